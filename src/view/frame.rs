//! Draws the frame around a part of the screen, with a title on its upper edge.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::pen::Pen;
use super::theme::Theme;
use crate::app::layout::Area;

/// Draws the edges of an area. `selected` makes the frame bright.
pub(super) fn draw(buffer: &mut Buffer, theme: Theme, area: Area, selected: bool) {
    draw_in(
        buffer,
        area,
        if selected {
            theme.accent()
        } else {
            theme.dim()
        },
    );
}

/// Draws the edges of an area in a style.
pub(super) fn draw_in(buffer: &mut Buffer, area: Area, style: Style) {
    if area.width < 2 || area.height < 2 {
        return;
    }
    let edge = usize::from(area.width - 2);
    for line in 0..area.height {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        if line == 0 {
            pen.repeat('╭', 1, style)
                .repeat('─', edge, style)
                .repeat('╮', 1, style);
        } else if line + 1 == area.height {
            pen.repeat('╰', 1, style)
                .repeat('─', edge, style)
                .repeat('╯', 1, style);
        } else {
            pen.repeat('│', 1, style)
                .tab_from_end(1)
                .repeat('│', 1, style);
        }
    }
}

/// Writes a title on the upper edge of a framed area, and returns the pen after it.
pub(super) fn title<'a>(
    buffer: &'a mut Buffer,
    theme: Theme,
    area: Area,
    text: &str,
) -> Option<Pen<'a>> {
    let edge = Area {
        x: area.x + 2,
        width: area.width.checked_sub(4)?,
        height: 1,
        ..area
    };
    let mut pen = Pen::at(buffer, edge, 0)?;
    pen.put(" ", theme.text());
    let room = pen.room().saturating_sub(1);
    pen.words(text.chars().take(room).collect::<String>(), theme.accent())
        .put(" ", theme.text());
    Some(pen)
}
