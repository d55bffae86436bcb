//! A line in dots: eight in each cell, as braille characters.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::areas::draw_over;
use crate::app::layout::Area;

/// The dots of a braille cell, by column and row, as bits of U+2800.
const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

#[derive(Debug, Clone, Copy, Default)]
struct DotCell {
    bits: u8,
    style: Style,
}

pub(super) struct Dots {
    area: Area,
    cells: Vec<DotCell>,
}

impl Dots {
    pub(super) fn new(area: Area) -> Self {
        Self {
            area,
            cells: vec![DotCell::default(); usize::from(area.width) * usize::from(area.height)],
        }
    }

    /// The row of dots nearest to a height, which is 0 at the lower edge and 1 at the upper edge.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the dots there are"
    )]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a screen has fewer than 2^52 dots"
    )]
    pub(super) fn row(&self, height: f64) -> usize {
        let dots = usize::from(self.area.height) * 4;
        dots - 1 - ((height.clamp(0.0, 1.0) * dots as f64).floor() as usize).min(dots - 1)
    }

    /// Draws every dot of a column between two rows. The style of the last dot in a cell is that of
    /// the cell.
    pub(super) fn line(&mut self, x: usize, rows: (usize, usize), style: Style) {
        let width = usize::from(self.area.width);
        for y in rows.0.min(rows.1)..=rows.0.max(rows.1) {
            if let Some(cell) = self
                .cells
                .get_mut(y / 4 * width + x / 2)
                .filter(|_| x / 2 < width)
            {
                *cell = DotCell {
                    bits: cell.bits | BITS[x % 2][y % 4],
                    style,
                };
            }
        }
    }

    /// Draws the dots on the screen, over its present content.
    pub(super) fn draw(&self, buffer: &mut Buffer) {
        let width = usize::from(self.area.width).max(1);
        for (number, cell) in self
            .cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.bits != 0)
        {
            let place = |offset: usize, start: u16| start + u16::try_from(offset).unwrap_or(0);
            let place = (
                place(number % width, self.area.x),
                place(number / width, self.area.y),
            );
            let glyph = char::from_u32(0x2800 | u32::from(cell.bits)).unwrap_or('·');
            draw_over(&mut buffer[place], glyph, cell.style);
        }
    }
}
