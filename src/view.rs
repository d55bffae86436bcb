//! Draws the app. The view decides nothing about facts and keeps no state: the same app gives the same screen.
//!
//! From the top: `header`, `gpus`, `processes`, `graph`, `footer`. `page`, `settings_panel` and `end_dialog` cover the rest.

mod end_dialog;
mod footer;
mod gpus;
mod graph;
mod header;
mod page;
mod pen;
mod processes;
mod settings_panel;
mod theme;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub use self::theme::Theme;
use crate::app::App;
use crate::app::columns::ListColumn;
use crate::app::layout::{Area, SMALLEST};

/// Draws everything.
pub fn draw(buffer: &mut Buffer, theme: &Theme, app: &App) {
    let (theme, screen) = (theme.with(app.theme), buffer.area);
    // The terminal may have been resized since the app last heard of it.
    match app.layout().filter(|layout| layout.host.width == screen.width && layout.footer.y + 1 == screen.height) {
        Some(layout) => {
            header::draw(buffer, theme, app, layout.host);
            if let Some((items, cursor)) = app.settings_panel() {
                settings_panel::draw(buffer, theme, app, &items, cursor, layout.body);
            } else if app.modes.page().is_some() {
                page::draw(buffer, theme, app, layout.body);
            } else if app.modes.graph().is_some() {
                graph::draw(buffer, theme, app, layout.body);
            } else {
                gpus::draw(buffer, theme, app, layout.gpus);
                processes::draw(buffer, theme, app, layout.processes);
                processes::draw_evidence(buffer, theme, app, layout.reason);
                graph::draw(buffer, theme, app, layout.body);
            }
            end_dialog::draw(buffer, theme, app, layout.body);
            footer::draw(buffer, theme, app, layout.footer);
        }
        None => {
            let line =
                format!("{}x{} is too small: {}x{} will do", screen.width, screen.height, SMALLEST.0, SMALLEST.1);
            buffer.set_stringn(0, 0, line, usize::from(screen.width), theme.text());
        }
    }
    theme.finish(buffer);
}

/// Returns the columns that fit beside each other at their `least` widths. Leaves out columns from the right, but never
/// the one that takes the rest of the line.
fn fitting<C: ListColumn>(mut columns: Vec<C>, width: usize, least: impl Fn(C) -> usize) -> Vec<C> {
    while columns.iter().map(|column| least(*column) + 1).sum::<usize>() > width + 1
        && let Some(at) = columns.iter().rposition(|column| !column.spec().is_last).filter(|_| columns.len() > 1)
    {
        columns.remove(at);
    }
    columns
}

fn rect(area: Area) -> Rect {
    Rect { x: area.x, y: area.y, width: area.width, height: area.height }
}

#[cfg(test)]
mod tests;
