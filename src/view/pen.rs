//! Writes a line of the screen from left to right, cell by cell, and never past its end.

use std::fmt::Display;

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::theme::{self, Theme};
use crate::app::columns::Align;
use crate::app::layout::Area;
use crate::base::units::Bytes;
use crate::model::{Breakdown, MemoryPart};

/// A position in a line of the screen. Text is written there, and moves the position to the right.
pub(super) struct Pen<'a> {
    buffer: &'a mut Buffer,
    x: u16,
    y: u16,
    end: u16,
}

impl<'a> Pen<'a> {
    /// Starts at the beginning of a line of an area, counted from its top; `None` when the area has no such line.
    pub(super) fn at(buffer: &'a mut Buffer, area: Area, line: u16) -> Option<Self> {
        let y = area.y + line;
        (line < area.height && area.width > 0).then_some(Self { buffer, x: area.x, y, end: area.x + area.width })
    }

    pub(super) fn room(&self) -> usize {
        usize::from(self.end - self.x)
    }

    pub(super) fn put(&mut self, text: impl AsRef<str>, style: Style) -> &mut Self {
        (self.x, _) = self.buffer.set_stringn(self.x, self.y, text, self.room(), style);
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

    /// Moves to `columns` before the end of the line, also back over what is written.
    pub(super) fn over_end(&mut self, columns: usize) -> &mut Self {
        self.x = self.end.saturating_sub(u16::try_from(columns).unwrap_or(u16::MAX));
        self
    }

    /// Writes a text; where it does not fit, the line ends with `…`.
    pub(super) fn rest(&mut self, text: impl Display, style: Style) -> &mut Self {
        let room = self.room();
        self.cell(text, room, Align::Left, style)
    }

    /// Writes the words that fit, and `…` where some are left out.
    pub(super) fn words(&mut self, text: impl AsRef<str>, style: Style) -> &mut Self {
        let text = text.as_ref();
        if text.width() <= self.room() {
            return self.put(text, style);
        }
        let ends = text.match_indices(' ').map(|(at, _)| at);
        let end = ends.take_while(|at| text[..*at].width() < self.room()).last().unwrap_or_default();
        self.put(text[..end].trim_end(), style).put("…", style)
    }

    /// Writes a text into a cell of this width and moves to the end of the cell. A longer text ends with `…`.
    pub(super) fn cell(&mut self, text: impl Display, width: usize, align: Align, style: Style) -> &mut Self {
        let text = text.to_string();
        let columns = text.width();
        let blank = width.saturating_sub(columns);
        if align == Align::Right {
            self.skip(blank);
        }
        let (room, start) = (width.min(self.room()), self.x);
        self.buffer.set_stringn(self.x, self.y, &text, room, style);
        if columns > width && room == width && width > 1 {
            self.buffer.set_stringn(start + u16::try_from(width).unwrap_or(1) - 1, self.y, "…", 1, style);
        }
        self.skip(if align == Align::Right { width.min(columns) } else { width })
    }

    /// Draws a bar whose filled part has this style. An unknown share leaves the bar blank.
    pub(super) fn gauge(&mut self, theme: Theme, share: Option<f64>, width: usize, style: Style) -> &mut Self {
        let Some(share) = share else { return self.skip(width) };
        let (filled, rest) = theme::bar(share, width);
        self.put(filled, style).put(rest, theme.dim())
    }

    /// Draws the parts of a memory breakdown as shares of `all`; allocated memory in the style `allocated`.
    pub(super) fn breakdown(
        &mut self,
        theme: Theme,
        breakdown: &Breakdown,
        all: Bytes,
        width: usize,
        allocated: Style,
    ) -> &mut Self {
        let pieces = [
            (vec![MemoryPart::Allocated], '━', allocated),
            (vec![MemoryPart::Pending, MemoryPart::Fragmented, MemoryPart::Cache], '┅', theme.unallocated()),
            (vec![MemoryPart::Outside, MemoryPart::Unaccounted, MemoryPart::Driver], '═', theme.outside()),
        ];
        let amounts = pieces.each_ref().map(|(parts, ..)| {
            parts.iter().map(|part| Bytes(breakdown.part(*part).max(0).unsigned_abs())).sum::<Bytes>()
        });
        let cells = theme::cells(amounts, all, width);
        let drawn: usize = cells.iter().sum();
        if drawn == 0 {
            let share = amounts.into_iter().sum::<Bytes>().share_of(all);
            let largest = (0..pieces.len()).max_by_key(|at| amounts[*at]).map_or(allocated, |at| pieces[at].2);
            return self.gauge(theme, share, width, largest);
        }
        for ((_, glyph, style), cells) in pieces.into_iter().zip(cells) {
            self.put(glyph.to_string().repeat(cells), style);
        }
        self.put("─".repeat(width - drawn), theme.dim())
    }

    /// Adds a style to the whole line, from the start of the area.
    pub(super) fn restyle(&mut self, area: Area, style: Style) {
        let line = ratatui::layout::Rect { x: area.x, y: self.y, width: area.width, height: 1 };
        self.buffer.set_style(line, style);
    }
}
