//! Draws small graphs of the use and the memory of a GPU or a process, in dots: two samples and four
//! heights in each cell.
//!
//! In the mirror of a tile, use grows upwards from an axis and memory downwards. All of these
//! graphs have the same time axis, the last 15 minutes, which fills from the right.

use std::time::Duration;

use ratatui::buffer::Buffer;

use super::pen::Pen;
use super::theme::{Fill, Theme};
use crate::app::layout::Area;
use crate::base::units::{Bytes, Moment};
use crate::model::{Curve, MemoryHistory};

/// The time that every small graph shows.
pub(super) const SPAN: Duration = Duration::from_mins(15);

/// Memory that changed by less than this share of a graph's height is steady.
const STEADY: f64 = 0.02;

/// The samples of a small graph, oldest first, as shares of its height; `None` where no value is
/// known.
#[derive(Debug)]
pub(super) struct Samples {
    shares: Vec<Option<f64>>,
    fill: Fill,
    /// Whether the value stayed the same: the graph is a thin line above a faint area.
    is_steady: bool,
}

impl Samples {
    /// Returns the use of multiprocessors, in percent of one GPU, for a graph of this many cells.
    pub(super) fn of_use(curve: &Curve, now: Moment, cells: usize) -> Self {
        let means = curve.means(now, SPAN, 2 * cells);
        let share = |percent: u32| f64::from(percent.min(100)) / 100.0;
        Self {
            shares: means.into_iter().map(|mean| mean.map(share)).collect(),
            fill: Fill::Busy,
            is_steady: false,
        }
    }

    /// Returns an amount of memory as a share of `all`, for a graph of this many cells.
    pub(super) fn of_memory(
        history: &MemoryHistory,
        now: Moment,
        all: Bytes,
        fill: Fill,
        cells: usize,
    ) -> Self {
        let columns = history.columns(now, SPAN, 2 * cells);
        let shares: Vec<Option<f64>> = columns
            .into_iter()
            .map(|held| held.and_then(|held| held.share_of(all)))
            .collect();
        Self::of_shares(shares, fill)
    }

    /// Returns these shares of a graph's height, two for each cell.
    pub(super) fn of_shares(shares: Vec<Option<f64>>, fill: Fill) -> Self {
        let known = || shares.iter().flatten().copied();
        let change = known().fold(0.0, f64::max) - known().fold(1.0, f64::min);
        Self {
            is_steady: change < STEADY && fill != Fill::Busy,
            shares,
            fill,
        }
    }

    /// Whether the values in a cell are 0, as far as they are known.
    fn is_zero(&self, cell: usize) -> bool {
        let shares = self.shares.get(2 * cell..2 * cell + 2).unwrap_or_default();
        shares.iter().flatten().all(|share| *share == 0.0)
    }

    /// The number of dots of a sample in a graph of this height in dots: one at least, which tells a
    /// value of 0 from an unknown one. `None` where no value is known.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the dots of a screen"
    )]
    fn dots(&self, place: usize, height: u16) -> Option<u16> {
        let share = self.shares.get(place).copied().flatten()?;
        let dots = (share.clamp(0.0, 1.0) * f64::from(height)).round() as u16;
        Some(dots.max(1))
    }
}

/// The direction in which a graph grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    Up,
    Down,
}

/// Draws use upwards and memory downwards from an axis in the middle of an area. With an odd number
/// of rows, use has one more: it moves, and memory is in the list too.
pub(super) fn draw(
    buffer: &mut Buffer,
    theme: Theme,
    area: Area,
    usage: Option<&Samples>,
    memory: Option<&Samples>,
) {
    let above = area.height.div_ceil(2);
    let (upper, lower) = (
        Area {
            height: above,
            ..area
        },
        Area {
            y: area.y + above,
            height: area.height - above,
            ..area
        },
    );
    if let Some(usage) = usage {
        draw_half(buffer, theme, upper, usage, Growth::Up);
    }
    if let Some(memory) = memory {
        draw_half(buffer, theme, lower, memory, Growth::Down);
    }
}

/// Draws samples upwards from the lower edge of an area.
pub(super) fn draw_up(buffer: &mut Buffer, theme: Theme, area: Area, samples: &Samples) {
    draw_half(buffer, theme, area, samples, Growth::Up);
}

fn draw_half(buffer: &mut Buffer, theme: Theme, area: Area, samples: &Samples, growth: Growth) {
    for line in 0..area.height {
        let Some(mut pen) = Pen::at(buffer, area, line) else {
            return;
        };
        // The rows between this one and the axis.
        let below = match growth {
            Growth::Up => area.height - 1 - line,
            Growth::Down => line,
        };
        for cell in 0..usize::from(area.width) {
            let columns = [2 * cell, 2 * cell + 1].map(|place| {
                let dots = samples.dots(place, 4 * area.height);
                dots.map(|dots| dots.saturating_sub(4 * below))
            });
            let highest = columns.into_iter().flatten().max().unwrap_or(0);
            if highest == 0 {
                pen.skip(1);
                continue;
            }
            let is_edge = highest <= 4;
            let place = f64::from(below + 1) / f64::from(area.height);
            let style = match samples.is_steady {
                _ if samples.is_zero(cell) => theme.faint(samples.fill),
                true if is_edge => theme.edge(samples.fill),
                true => theme.faint(samples.fill),
                false => theme.fill(samples.fill, 0.4 + 0.6 * place),
            };
            // A steady line has no area where it is the only row of a graph.
            let is_line = samples.is_steady && area.height == 1 && growth == Growth::Up;
            pen.put(glyph(columns, growth, is_line).to_string(), style);
        }
    }
}

/// Returns the braille character with this many dots from the axis on in its two columns, or with
/// the last of these dots alone.
fn glyph(columns: [Option<u16>; 2], growth: Growth, is_line: bool) -> char {
    /// The dots of a braille cell by column and row, as bits of U+2800.
    const BITS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
    let mut bits = 0;
    for (column, dots) in columns.into_iter().enumerate() {
        let dots = usize::from(dots.unwrap_or(0).min(4));
        let first = if is_line { dots.saturating_sub(1) } else { 0 };
        for dot in first..dots {
            let row = if growth == Growth::Up { 3 - dot } else { dot };
            bits |= BITS[column][row];
        }
    }
    char::from_u32(0x2800 | bits).unwrap_or(' ')
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Cell;
    use ratatui::layout::Rect;

    use super::*;
    use crate::base::terminal::ColourDepth;

    #[test]
    fn dots_grow_from_the_axis() {
        let up = |a, b| glyph([Some(a), Some(b)], Growth::Up, false);
        assert_eq!([up(4, 4), up(1, 0), up(0, 2)], ['⣿', '⡀', '⢠']);
        let down = |a, b| glyph([Some(a), Some(b)], Growth::Down, false);
        assert_eq!([down(4, 4), down(1, 0), down(0, 2)], ['⣿', '⠁', '⠘']);
        assert_eq!(glyph([Some(3), None], Growth::Up, true), '⠂', "a line");
    }

    #[test]
    fn a_mirror_has_use_above_and_memory_below_a_faint_zero_and_a_blank_for_the_unknown() {
        let samples = |shares: [Option<f64>; 6], fill| Samples {
            shares: shares.into(),
            fill,
            is_steady: false,
        };
        let (half, zero) = (Some(0.5), Some(0.0));
        let usage = samples([None, None, zero, zero, half, Some(1.0)], Fill::Busy);
        let memory = samples([None, None, zero, zero, Some(0.75), half], Fill::Other);
        let area = Area {
            width: 3,
            height: 4,
            ..Area::default()
        };
        let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 4));
        let theme = Theme::new(false, ColourDepth::Rgb);
        draw(&mut buffer, theme, area, Some(&usage), Some(&memory));
        let symbols: Vec<&str> = buffer.content.iter().map(Cell::symbol).collect();
        let rows: Vec<String> = symbols.chunks(3).map(<[&str]>::concat).collect();
        assert_eq!(rows, ["  ⢸", " ⣀⣿", " ⠉⣿", "  ⠃"]);
        let colour = |x, y| Some(buffer[(x, y)].fg);
        assert_eq!(colour(1, 1), theme.faint(Fill::Busy).fg);
        assert_eq!(colour(1, 2), theme.faint(Fill::Other).fg);
        assert_eq!(colour(2, 0), theme.fill(Fill::Busy, 1.0).fg);
        assert_ne!(colour(2, 2), theme.faint(Fill::Other).fg);
    }
}
