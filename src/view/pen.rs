//! Writes a line of the screen from left to right, cell by cell, and never past its end.

use std::fmt::Display;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use unicode_width::UnicodeWidthStr;

use super::theme::{self, Fill, Theme};
use crate::app::layout::Area;
use crate::app::lists::columns::Align;
use crate::base::units::Bytes;
use crate::model::UserHue;
use crate::model::{Breakdown, MemoryPart};

/// Blocks by their width in eighths of a cell.
const LEFT_EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A position in a line of the screen. Text is written there, and moves the position to the right.
pub(super) struct Pen<'a> {
    buffer: &'a mut Buffer,
    start: u16,
    x: u16,
    y: u16,
    end: u16,
}

/// The style of a text that replaces the text below it, and keeps its background.
fn over(style: Style) -> Style {
    Style {
        fg: style.fg.or(Some(Color::Reset)),
        sub_modifier: !style.add_modifier,
        ..style
    }
}

impl<'a> Pen<'a> {
    /// Starts at the beginning of a line of an area, counted from its top; `None` when the area has
    /// no such line.
    pub(super) fn at(buffer: &'a mut Buffer, area: Area, line: u16) -> Option<Self> {
        let (y, end) = (
            area.y + line,
            (area.x + area.width).min(buffer.area.right()),
        );
        (line < area.height && area.x < end).then_some(Self {
            buffer,
            start: area.x,
            x: area.x,
            y,
            end,
        })
    }

    /// The column of the screen that is written next.
    pub(super) fn column(&self) -> usize {
        self.x.into()
    }

    pub(super) fn room(&self) -> usize {
        usize::from(self.end - self.x)
    }

    pub(super) fn put(&mut self, text: impl AsRef<str>, style: Style) -> &mut Self {
        self.x = self.write(self.x, text.as_ref(), self.room(), style);
        self
    }

    /// Writes the part of a text that fits into this number of columns. Returns the column after
    /// it.
    fn write(&mut self, x: u16, text: &str, columns: usize, style: Style) -> u16 {
        let style = over(style);
        // Most texts are ASCII. They need no search for composed characters, which takes a tenth of
        // the time of a redraw.
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.buffer.set_stringn(x, self.y, text, columns, style).0;
        }
        let mut x = x;
        for character in text.chars().take(columns) {
            self.buffer[(x, self.y)]
                .set_char(character)
                .set_style(style);
            x += 1;
        }
        x
    }

    /// Writes a symbol, which is one column wide, into this number of cells.
    pub(super) fn repeat(&mut self, symbol: char, columns: usize, style: Style) -> &mut Self {
        for _ in 0..columns.min(self.room()) {
            self.buffer[(self.x, self.y)]
                .set_char(symbol)
                .set_style(over(style));
            self.x += 1;
        }
        self
    }

    pub(super) fn skip(&mut self, columns: usize) -> &mut Self {
        let columns = columns.min(self.room());
        self.x += u16::try_from(columns).unwrap_or(u16::MAX);
        self
    }

    /// Moves right, to `columns` before the end of the line; never back over what is written.
    pub(super) fn tab_from_end(&mut self, columns: usize) -> &mut Self {
        let room = self.room();
        self.skip(room.saturating_sub(columns))
    }

    /// Moves to this column of the line; never back over what is written.
    pub(super) fn tab_to(&mut self, column: usize) -> &mut Self {
        let written = usize::from(self.x - self.start);
        self.skip(
            column
                .saturating_sub(written)
                .max(usize::from(written >= column)),
        )
    }

    /// Writes a symbol into this column of the line, wherever the pen is.
    pub(super) fn put_at(&mut self, column: usize, symbol: char, style: Style) {
        let x = usize::from(self.start) + column;
        if let Some(x) = u16::try_from(x).ok().filter(|x| *x < self.end) {
            self.buffer[(x, self.y)]
                .set_char(symbol)
                .set_style(over(style));
        }
    }

    /// Moves to `columns` before the end of the line, also back over what is written.
    pub(super) fn over_end(&mut self, columns: usize) -> &mut Self {
        self.x = self
            .end
            .saturating_sub(u16::try_from(columns).unwrap_or(u16::MAX));
        self
    }

    /// Writes a text at the end of the line, which then ends two columns before it.
    pub(super) fn put_at_end(&mut self, text: &str, style: Style) -> &mut Self {
        let columns = u16::try_from(text.width().min(self.room())).unwrap_or(u16::MAX);
        self.write(self.end - columns, text, columns.into(), style);
        self.end = self.end.saturating_sub(columns + 2).max(self.x);
        self
    }

    /// Writes a text; where it does not fit, the line ends with `…`.
    pub(super) fn rest(&mut self, text: impl Display, style: Style) -> &mut Self {
        let room = self.room();
        self.cell(text, room, Align::Left, style)
    }

    /// Writes the words that fit, and `…` where some are left out.
    pub(super) fn words(&mut self, text: impl AsRef<str>, style: Style) -> &mut Self {
        self.words_within(text, self.room(), style)
    }

    /// Writes a badge, which begins and ends with a blank. Where it does not fit, the words that do,
    /// and `…`.
    pub(super) fn badge(&mut self, text: &str, style: Style) -> &mut Self {
        if text.width() <= self.room() {
            return self.put(text, style);
        }
        self.words(text.trim_end(), style)
    }

    /// Writes the words that fit into this number of columns, and `…` where some are left out.
    pub(super) fn words_within(
        &mut self,
        text: impl AsRef<str>,
        columns: usize,
        style: Style,
    ) -> &mut Self {
        let (text, columns) = (text.as_ref(), columns.min(self.room()));
        if text.width() <= columns {
            return self.put(text, style);
        }
        let ends = text.match_indices(' ').map(|(at, _)| at);
        let end = ends
            .take_while(|at| text[..*at].width() < columns)
            .last()
            .filter(|end| !text[..*end].trim().is_empty());
        let Some(end) = end else {
            // The first word alone is too long.
            return self.cell(text, columns, Align::Left, style);
        };
        self.put(text[..end].trim_end(), style).put("…", style)
    }

    /// Writes a text into a cell of this width and moves to the end of the cell. A longer text ends
    /// with `…`.
    pub(super) fn cell(
        &mut self,
        text: impl Display,
        width: usize,
        align: Align,
        style: Style,
    ) -> &mut Self {
        let text = text.to_string();
        let columns = text.width();
        let blank = width.saturating_sub(columns);
        if align == Align::Right {
            self.skip(blank);
        }
        let (room, start) = (width.min(self.room()), self.x);
        self.write(start, &text, room, style);
        if columns > width && room == width && width > 1 {
            self.write(start + u16::try_from(width).unwrap_or(1) - 1, "…", 1, style);
        }
        self.skip(if align == Align::Right {
            width.min(columns)
        } else {
            width
        })
    }

    /// Passes the next cells of the line, of this width, to `draw`, and moves past them.
    pub(super) fn area(&mut self, width: usize, draw: impl FnOnce(&mut Buffer, Area)) -> &mut Self {
        let area = Area {
            x: self.x,
            y: self.y,
            width: u16::try_from(width.min(self.room())).unwrap_or(0),
            height: 1,
        };
        draw(self.buffer, area);
        self.skip(width)
    }

    /// Draws a bar that is filled to this share. An unknown share leaves the bar blank. `tint` is
    /// added to its style.
    pub(super) fn gauge(
        &mut self,
        theme: Theme,
        share: Option<f64>,
        width: usize,
        fill: Fill,
        tint: Style,
    ) -> &mut Self {
        const WHOLE: u64 = 1 << 32;
        let Some(share) = share else {
            return self.skip(width);
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of 2^32"
        )]
        let filled = Bytes((share.clamp(0.0, 1.0) * WHOLE as f64) as u64);
        self.amounts(theme, [(filled, fill)], Bytes(WHOLE), width, tint)
    }

    /// Draws the parts of a memory breakdown as shares of `all`.
    pub(super) fn breakdown(
        &mut self,
        theme: Theme,
        breakdown: &Breakdown,
        all: Bytes,
        width: usize,
        tint: Style,
    ) -> &mut Self {
        self.amounts(theme, parts(breakdown), all, width, tint)
    }

    /// Draws amounts of memory as shares of `all`.
    pub(super) fn amounts<const PARTS: usize>(
        &mut self,
        theme: Theme,
        parts: [(Bytes, Fill); PARTS],
        all: Bytes,
        width: usize,
        tint: Style,
    ) -> &mut Self {
        let mut eighths = theme::cells(parts.map(|(amount, _)| amount), all, 8 * width);
        // An amount that is too small for an eighth of a cell differs from none.
        let largest = parts
            .iter()
            .enumerate()
            .max_by_key(|(_, (amount, _))| *amount);
        if let Some((place, _)) = largest.filter(|(_, (amount, _))| amount.0 > 0)
            && eighths.iter().all(|eighths| *eighths == 0)
            && width > 0
        {
            eighths[place] = 1;
        }
        let filled: usize = eighths.iter().sum();
        let fill_at = |eighth: usize| {
            let mut end = 0;
            let part = eighths.iter().position(|eighths| {
                end += eighths;
                eighth < end
            });
            parts[part.unwrap_or(PARTS - 1)].1
        };
        // The colour of the words beside a bar is not that of its parts.
        let tint = Style { fg: None, ..tint };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a bar has fewer than 2^52 cells"
        )]
        let style = |theme: Theme, fill: Fill, cell: usize| {
            theme
                .fill(fill, (cell + 1) as f64 / width as f64)
                .patch(tint)
        };
        // A hatched bar has whole cells: its glyphs tell the parts apart.
        let (whole, rest) = match theme.is_hatched() {
            true if filled > 0 => (((filled + 4) / 8).max(1), 0),
            true => (0, 0),
            false => (filled / 8, filled % 8),
        };
        for cell in 0..whole {
            let fill = fill_at((8 * cell + 4).min(filled.saturating_sub(1)));
            self.repeat(theme.bar_glyph(fill), 1, style(theme, fill, cell));
        }
        if rest > 0 {
            let fill = fill_at(filled - 1);
            self.repeat(LEFT_EIGHTHS[rest - 1], 1, style(theme, fill, whole));
        }
        let drawn = whole + usize::from(rest > 0);
        self.repeat('─', width - drawn, theme.dim())
    }

    /// Marks the column before the line in the hue of a user; `is_mine` makes the mark wide.
    pub(super) fn mark_edge(&mut self, theme: Theme, hue: Option<UserHue>, is_mine: bool) {
        if let Some(x) = self.start.checked_sub(1) {
            self.buffer[(x, self.y)]
                .set_char(if is_mine { '█' } else { '▎' })
                .set_style(over(theme.edge(Fill::User(hue))));
        }
    }

    /// Gives the rest of the line the style of headings, and the column before the line too.
    pub(super) fn style_as_heading(&mut self, theme: Theme) {
        let x = if self.x == self.start {
            self.x.saturating_sub(1)
        } else {
            self.x
        };
        let rest = Rect {
            x,
            y: self.y,
            width: self.end - x,
            height: 1,
        };
        if theme.head().bg.is_some() {
            self.buffer.set_style(rest, theme.head());
        }
    }

    /// Marks the whole line as that under the cursor.
    pub(super) fn select(&mut self, theme: Theme, area: Area) {
        theme.select(self.buffer, self.line(area));
    }

    fn line(&self, area: Area) -> Rect {
        Rect {
            x: area.x,
            y: self.y,
            width: area.width,
            height: 1,
        }
    }
}

/// The parts of a memory breakdown that a bar tells apart.
pub(super) fn parts(breakdown: &Breakdown) -> [(Bytes, Fill); 3] {
    let amount = |parts: &[MemoryPart]| {
        parts
            .iter()
            .map(|part| Bytes(breakdown.part(*part).max(0).unsigned_abs()))
            .sum::<Bytes>()
    };
    [
        (
            amount(&[MemoryPart::Allocated, MemoryPart::Undivided]),
            Fill::Allocated,
        ),
        (
            amount(&[
                MemoryPart::Pending,
                MemoryPart::Fragmented,
                MemoryPart::Cache,
            ]),
            Fill::Unallocated,
        ),
        (
            amount(&[
                MemoryPart::Outside,
                MemoryPart::Unaccounted,
                MemoryPart::Driver,
            ]),
            Fill::Other,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;
    use crate::app::settings::ThemeName;
    use crate::base::terminal::ColourDepth;

    #[test]
    fn a_bar_beside_words_keeps_the_colours_of_its_parts_in_every_theme() {
        let area = Area {
            width: 4,
            height: 1,
            ..Area::default()
        };
        for name in [ThemeName::Dark, ThemeName::Terminal, ThemeName::Nord] {
            let theme = Theme::new(false, ColourDepth::Rgb).with(name);
            let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
            let mut pen = Pen::at(&mut buffer, area, 0).unwrap();
            let parts = [(Bytes(1), Fill::Allocated), (Bytes(1), Fill::Other)];
            pen.amounts(theme, parts, Bytes(2), 4, theme.text());
            for (x, fill, place) in [(0, Fill::Allocated, 0.25), (3, Fill::Other, 1.0)] {
                assert_eq!(
                    Some(buffer[(x, 0)].fg),
                    theme.fill(fill, place).fg,
                    "{name}"
                );
            }
        }
    }
}
