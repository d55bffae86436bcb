//! Draws the app. The view decides nothing about facts and keeps no state: the same app gives the
//! same screen.
//!
//! From the top: `header`, `gpus`, `processes`, `graph`, `news`, `footer`; of several hosts `fleet`
//! instead. `page`, `settings_panel` and `end_dialog` cover the rest.

mod cluster;
mod dialog_frame;
mod end_dialog;
mod end_over_hosts;
mod fleet;
mod footer;
mod frame;
mod gpus;
mod graph;
mod header;
mod host_line;
mod mirror;
mod news;
mod page;
mod pen;
mod processes;
mod settings_panel;
mod sort_menu;
mod svg;
mod theme;
mod timeline;
mod waiting_hosts;
mod welcome;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Paragraph, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

pub(crate) use self::cluster::draw as draw_cluster;
use self::pen::Pen;
pub(crate) use self::svg::Film;
pub(crate) use self::theme::RoleColours;
pub use self::theme::Theme;
use crate::app::layout::{Area, Layout, SMALLEST};
use crate::app::lists::user_totals::user_totals;
use crate::app::{App, List, Mode};

/// Draws everything.
pub fn draw(buffer: &mut Buffer, theme: &Theme, app: &App) {
    let (theme, screen) = (theme.with(app.drawn_theme()), buffer.area);
    // The terminal may have been resized since the app last heard of it.
    match app
        .layout()
        .filter(|layout| layout.host.width == screen.width && layout.footer.y + 1 == screen.height)
    {
        Some(layout) => {
            if app.is_fleet_view() {
                fleet::draw_header(buffer, theme, app, layout.host);
            } else {
                header::draw(buffer, theme, app, layout.host);
            }
            if app.modes.page().is_some() {
                page::draw(buffer, theme, app, app.page_area(layout.body));
                graph::draw_panels(buffer, theme, app);
            } else if app.modes.graph().is_some() {
                graph::draw(buffer, theme, app, layout.body);
            } else if app.is_fleet_view() {
                fleet::draw(buffer, theme, app);
            } else if let Some(missing) = app.missing_gpus() {
                welcome::draw(buffer, theme, &missing, layout.body);
            } else {
                lists(buffer, theme, app, &layout);
            }
            if let Some((items, cursor)) = app.settings_panel() {
                let area = layout.settings_panel();
                Clear.render(rect(area), buffer);
                settings_panel::draw(buffer, theme, app, &items, cursor, area);
            }
            end_dialog::draw(buffer, theme, app, layout.body);
            end_over_hosts::draw(buffer, theme, app, layout.body);
            timeline::draw(buffer, theme, app, layout.timeline);
            footer::draw(buffer, theme, app, layout.footer);
        }
        None => too_small(buffer, theme),
    }
    theme.finish(buffer);
}

/// Says which size the screen needs.
fn too_small(buffer: &mut Buffer, theme: Theme) {
    let screen = buffer.area;
    let line = format!(
        "{}x{} is too small: {}x{} will do",
        screen.width, screen.height, SMALLEST.0, SMALLEST.1
    );
    Paragraph::new(line)
        .style(theme.text())
        .wrap(Wrap { trim: true })
        .render(screen, buffer);
}

/// Draws the lists, the graph and the news.
fn lists(buffer: &mut Buffer, theme: Theme, app: &App, layout: &Layout) {
    frames(buffer, theme, app, layout);
    gpus::draw(buffer, theme, app, layout.gpus);
    waiting_hosts::draw(buffer, theme, app, layout.waiting_hosts);
    processes::draw(buffer, theme, app, layout.processes);
    processes::draw_evidence(buffer, theme, app, layout.reason);
    graph::draw(buffer, theme, app, layout.body);
    news::draw(buffer, theme, app, layout.news, layout.has_frames);
    if let Mode::SortMenu(cursor) = app.modes.current() {
        sort_menu::draw(buffer, theme, app, *cursor, layout.processes);
    }
}

/// Draws the frames around the lists and the graph.
fn frames(buffer: &mut Buffer, theme: Theme, app: &App, layout: &Layout) {
    if !layout.has_frames {
        return;
    }
    if layout.tiles.is_none() {
        framed(
            buffer,
            theme,
            layout.gpus_and_hosts().frame(),
            "GPUs",
            app.focus == List::Gpus,
        );
    }
    let processes = Area {
        height: layout.processes.height + layout.reason.height + layout.unread_note.height,
        ..layout.processes
    };
    frame::draw(
        buffer,
        theme,
        processes.frame(),
        app.focus == List::Processes,
    );
    if let Some(mut pen) = frame::title(buffer, theme, processes.frame(), "Processes") {
        users(&mut pen, theme, app);
    }
    if layout.graph.height > 0 {
        let graph = layout.graph;
        let area = Area {
            x: graph.x - 2,
            width: graph.width + 4,
            height: graph.height + 1,
            ..graph
        };
        frame::draw(buffer, theme, area, false);
        let edge = Area {
            x: graph.x - 1,
            width: graph.width + 2,
            ..graph
        };
        if app.subject().is_none() {
            frame::title(buffer, theme, area, "Graph");
        } else if let Some(mut pen) = Pen::at(buffer, edge, 0) {
            // The head of the graph is on the upper edge.
            pen.put(" ".repeat(pen.room()), theme.text());
        }
    }
}

/// Draws the memory of each user in the user's hue, as far as there is room, where the only host has
/// several users.
fn users(pen: &mut Pen<'_>, theme: Theme, app: &App) {
    let mut hosts = app.fleet().hosts();
    let (Some((_, model)), None) = (hosts.next(), hosts.next()) else {
        return;
    };
    let users = user_totals(model);
    if users.len() < 2 {
        return;
    }
    for (name, totals) in users {
        let held = totals.held();
        if name.as_str().width() + held.width() + 4 > pen.room() {
            return;
        }
        pen.skip(1)
            .put(" ", theme.text())
            .put(name.as_str(), theme.user(model.user_hue(&name)))
            .put(format!(" {held} "), theme.text());
    }
}

fn framed(buffer: &mut Buffer, theme: Theme, area: Area, title: &str, is_focused: bool) {
    frame::draw(buffer, theme, area, is_focused);
    frame::title(buffer, theme, area, title);
}

/// Returns the screen as an SVG file, in 24-bit colours unless the theme has none.
pub fn svg(theme: &Theme, app: &App) -> String {
    let (width, height) = app.size;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let theme = theme.for_picture();
    draw(&mut buffer, &theme, app);
    svg::svg(&buffer, theme.with(app.drawn_theme()).picture_colours())
}

fn rect(area: Area) -> Rect {
    Rect {
        x: area.x,
        y: area.y,
        width: area.width,
        height: area.height,
    }
}

#[cfg(test)]
mod tests;
