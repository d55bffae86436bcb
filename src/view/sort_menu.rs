//! Draws the menu of the columns that the process list can be sorted by, over that list.

use ratatui::buffer::Buffer;
use ratatui::widgets::{Clear, Widget};

use super::pen::Pen;
use super::rect;
use super::theme::Theme;
use crate::app::App;
use crate::app::layout::Area;
use crate::app::lists::columns::{Align, ListColumn};

/// The width of a column's name.
const NAME: usize = 9;

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, cursor: usize, area: Area) {
    let choices = app.sort_choices();
    let rows = usize::from(area.height.saturating_sub(1));
    let height = u16::try_from(choices.len().min(rows) + 1).unwrap_or(area.height);
    let area = Area { height, ..area };
    Clear.render(rect(area).intersection(buffer.area), buffer);
    if let Some(mut pen) = Pen::at(buffer, area, 0) {
        pen.style_as_heading(theme);
        pen.put("Sort by", theme.head());
    }
    let top = (cursor + 1).saturating_sub(rows);
    for (line, (place, column)) in (1..area.height).zip(choices.into_iter().enumerate().skip(top)) {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        let sort = app.processes.sort;
        let mark = match sort.descending {
            _ if column != sort.column => " ",
            true => "▼",
            false => "▲",
        };
        pen.put(mark, theme.accent())
            .skip(1)
            .cell(column.spec().name, NAME, Align::Left, theme.text())
            .skip(1);
        pen.words(column.spec().help, theme.dim());
        if place == cursor {
            pen.select(theme, area);
        }
    }
}
