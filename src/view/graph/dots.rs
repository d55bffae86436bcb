//! A picture in dots: eight in each cell, as braille characters. What is drawn later is on top.

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use crate::app::layout::Area;

/// The dots of a braille cell, by column and row, as bits of U+2800.
const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Fills that can be told apart without colour: whether there is a dot, by column and row.
const FILLS: [fn(usize, usize) -> bool; 6] = [
    |x, y| (x + y).is_multiple_of(4),
    |x, y| x.is_multiple_of(4) && y.is_multiple_of(2),
    |x, y| (x + 3 * y).is_multiple_of(4),
    |x, y| x.is_multiple_of(2) && y % 4 == 1,
    |x, y| (x + y).is_multiple_of(2),
    |x, y| x % 2 == 1 && y.is_multiple_of(2),
];

pub(super) const FILL_COUNT: usize = FILLS.len();

#[derive(Debug, Clone, Copy, Default)]
struct DotCell {
    bits: u8,
    style: Style,
    is_line: bool,
}

pub(super) struct Dots {
    area: Area,
    cells: Vec<DotCell>,
}

impl Dots {
    pub(super) fn new(area: Area) -> Self {
        Self { area, cells: vec![DotCell::default(); usize::from(area.width) * usize::from(area.height)] }
    }

    pub(super) fn height(&self) -> usize {
        usize::from(self.area.height) * 4
    }

    /// The row of dots nearest to a height, which is 0 at the lower edge and 1 at the upper edge.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the dots there are")]
    #[expect(clippy::cast_precision_loss, reason = "a screen has fewer than 2^52 dots")]
    pub(super) fn row(&self, height: f64) -> usize {
        let dots = self.height();
        dots - 1 - ((height.clamp(0.0, 1.0) * dots as f64).floor() as usize).min(dots - 1)
    }

    fn cell(&mut self, x: usize, y: usize) -> Option<&mut DotCell> {
        let width = usize::from(self.area.width);
        (x / 2 < width).then(|| self.cells.get_mut(y / 4 * width + x / 2))?
    }

    /// Draws every dot of a column between two rows, as a piece of a line.
    pub(super) fn line(&mut self, x: usize, rows: (usize, usize), style: Style) {
        for y in rows.0.min(rows.1)..=rows.0.max(rows.1) {
            if let Some(cell) = self.cell(x, y) {
                // A line replaces the fill of its cell, which would make the line ragged.
                let bits = if cell.is_line { cell.bits } else { 0 };
                *cell = DotCell { bits: bits | BITS[x % 2][y % 4], style, is_line: true };
            }
        }
    }

    /// Fills these rows of a column with one of the [`FILLS`].
    pub(super) fn fill(&mut self, x: usize, rows: std::ops::Range<usize>, fill: usize, style: Style) {
        for y in rows.filter(|y| FILLS[fill % FILL_COUNT](x, *y)) {
            if let Some(cell) = self.cell(x, y).filter(|cell| !cell.is_line) {
                *cell = DotCell { bits: cell.bits | BITS[x % 2][y % 4], style, is_line: false };
            }
        }
    }

    /// Draws the dots on the screen, over its present content.
    pub(super) fn draw(&self, buffer: &mut Buffer) {
        let width = usize::from(self.area.width).max(1);
        for (at, cell) in self.cells.iter().enumerate().filter(|(_, cell)| cell.bits != 0) {
            let place = |offset: usize, start: u16| start + u16::try_from(offset).unwrap_or(0);
            let place = (place(at % width, self.area.x), place(at / width, self.area.y));
            // A fill leaves other symbols visible; a line covers them.
            if cell.is_line || buffer[place].symbol() == " " {
                buffer[place].reset();
                buffer[place].set_char(glyph(cell.bits)).set_style(cell.style);
            }
        }
    }
}

fn glyph(bits: u8) -> char {
    char::from_u32(0x2800 | u32::from(bits)).unwrap_or('·')
}

/// Returns a cell with one of the [`FILLS`], as the sample beside the name of a layer.
pub(super) fn sample(fill: usize) -> char {
    let mut bits = 0;
    for (x, column) in BITS.iter().enumerate() {
        for (y, bit) in column.iter().enumerate() {
            bits |= if FILLS[fill % FILL_COUNT](x, y) { *bit } else { 0 };
        }
    }
    glyph(bits)
}
