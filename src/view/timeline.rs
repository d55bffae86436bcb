//! Draws the timeline of a replay: its begin and end, what happened, and where the replay is.

use ratatui::buffer::Buffer;

use super::news::{sign, style};
use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::layout::Area;
use crate::app::recordings::replay::TimelineCell;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(replay) = &app.replay else { return };
    let Some(bar) = app.timeline_bar() else {
        if let Some(mut pen) = Pen::at(buffer, area, 0) {
            pen.rest(
                "no timeline yet; nothing here acts on the machine",
                theme.dim(),
            );
        }
        return;
    };
    let Some(mut pen) = Pen::at(buffer, area, 0) else {
        return;
    };
    pen.put(&bar.begin, theme.dim()).skip(1);
    let position = replay
        .at
        .and_then(|at| replay.timeline.column(at, bar.width));
    for (column, cell) in replay.timeline.cells(bar.width).into_iter().enumerate() {
        let (symbol, style) = match cell {
            TimelineCell::Recorded => ("─", theme.dim()),
            TimelineCell::Gap => (" ", theme.dim()),
            TimelineCell::Event(event) => (sign(event.news), style(theme, event.severity)),
        };
        if position == Some(column) {
            pen.put(if symbol == "─" { " " } else { symbol }, theme.badge());
        } else {
            pen.put(symbol, style);
        }
    }
    pen.skip(1)
        .put(&bar.end, theme.dim())
        .skip(2)
        .put(&bar.position, theme.text())
        .skip(2)
        .put(bar.words, theme.dim());
}
