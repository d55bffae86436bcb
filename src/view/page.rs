//! Draws a page: its title, and its lines, which are headings, named texts and memory bars.

use ratatui::buffer::Buffer;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::App;
use crate::app::columns::Align;
use crate::app::layout::Area;
use crate::app::page::{LABEL, PageLine};

pub(super) fn head(buffer: &mut Buffer, theme: Theme, area: Area, title: &str, top: usize, lines: usize) {
    let Some(mut pen) = Pen::at(buffer, area, 0) else { return };
    pen.put(title, theme.accent());
    let shown = usize::from(area.height.saturating_sub(2));
    if lines > shown {
        let place = format!("{}-{} of {lines}", top + 1, (top + shown).min(lines));
        pen.tab_from_end(place.len()).put(place, theme.dim());
    }
}

pub(super) fn draw(buffer: &mut Buffer, theme: Theme, app: &App, area: Area) {
    let Some(page) = app.modes.page() else { return };
    head(buffer, theme, area, &page.title(), page.top, page.lines.len());
    for (row, line) in (2..area.height).zip(page.lines.iter().skip(page.top)) {
        let Some(mut pen) = Pen::at(buffer, area, row) else { return };
        match line {
            PageLine::Head(text) => pen.put(text, theme.head()),
            PageLine::Bar(breakdown) => {
                let room = usize::from(area.width).saturating_sub(2 + LABEL + 1 + 1);
                pen.skip(2 + LABEL + 1).breakdown(theme, breakdown, breakdown.whole, room, theme.full(None))
            }
            PageLine::Field(label, text) => {
                pen.skip(2).cell(label, LABEL, Align::Left, theme.dim()).skip(1).put(text, theme.text())
            }
        };
    }
}
