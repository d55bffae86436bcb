//! Filled areas on each other, with eight steps of height in each cell.
//!
//! In a cell that two areas share, the foreground is the lower one and the background the upper
//! one.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Style};

use crate::app::layout::Area;
use crate::model::MinMax;
use crate::view::theme::{Fill, Theme};

/// The steps of height in a cell.
const STEPS: usize = 8;
const EIGHT: f64 = 8.0;

/// Memory that changed by less than this part of a plot, here a fiftieth, is steady.
const STEADY: usize = 50;

const BLOCKS: [char; STEPS] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Areas on each other, the lowest first.
pub(super) struct Areas {
    /// The fill of each area; `None` for memory whose parts are not known.
    fills: Vec<Option<Fill>>,
    /// For each column of cells the upper edges of the areas, in steps from the bottom; none in a
    /// gap.
    columns: Vec<Vec<usize>>,
    /// The area at the top of the last column; `None` before the first.
    top_area: Option<usize>,
    /// The lowest and the highest step that a column reached; `None` before the first.
    tops: Option<MinMax<usize>>,
}

impl Areas {
    pub(super) fn new(fills: Vec<Option<Fill>>) -> Self {
        Self {
            fills,
            columns: Vec::new(),
            top_area: None,
            tops: None,
        }
    }

    /// Whether the whole stayed the same in all columns: then its upper edge says all.
    fn is_steady(&self, plot: Area) -> bool {
        let most = usize::from(plot.height) * STEPS / STEADY;
        self.tops
            .is_some_and(|tops| tops.high - tops.low <= most.max(1))
    }

    /// Adds a column of cells at the right. `heights` are the upper edges of the areas as shares of
    /// the plot; none in a gap.
    ///
    /// The thickness of an area is rounded, and not its edges: an area of constant size must not
    /// flicker from column to column. The thickest area takes what is left, so that all of them end
    /// at the height of the whole. Areas at the top that are thinner than half a cell are drawn as
    /// a part of the area below: a cell has no third colour for them, and they would show only
    /// where the top happens to be at the edge of a cell.
    pub(super) fn push(&mut self, plot: Area, heights: impl Iterator<Item = f64>) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the steps there are"
        )]
        let steps = |share: f64| (share * f64::from(plot.height) * EIGHT).round() as usize;
        let mut below = 0.0_f64;
        let thickness = heights.map(|height| {
            let bottom = below;
            below = height.min(1.0).max(bottom);
            steps(below - bottom)
        });
        let mut parts: Vec<usize> = thickness.collect();
        let (whole, sum) = (steps(below), parts.iter().sum::<usize>());
        if !parts.is_empty() {
            let top = MinMax::of(whole);
            self.tops = Some(self.tops.map_or(top, |tops| tops.with(top)));
        }
        let thickest = (0..parts.len())
            .max_by_key(|part| parts[*part])
            .unwrap_or(0);
        if let Some(part) = parts.get_mut(thickest) {
            *part = (*part + whole).saturating_sub(sum);
        }
        // The area at the top of the column before stays there if it is a little thinner.
        let is_top =
            |part: usize| parts[part] + usize::from(self.top_area == Some(part)) >= STEPS / 2;
        let top_area = (0..parts.len())
            .rev()
            .find(|part| is_top(*part))
            .unwrap_or(thickest);
        self.top_area = Some(top_area);
        for above in top_area + 1..parts.len() {
            parts[top_area] += std::mem::take(&mut parts[above]);
        }
        let mut top = 0;
        for part in &mut parts {
            top += *part;
            *part = top;
        }
        self.columns.push(parts);
    }

    pub(super) fn draw(&self, buffer: &mut Buffer, theme: Theme, plot: Area) {
        let is_steady = self.is_steady(plot);
        let style = |fill: Option<Fill>, place: f64| match fill {
            Some(fill) if is_steady => theme.wash(fill, place),
            Some(fill) => theme.fill(fill, place),
            None => theme.dim(),
        };
        for row in 0..plot.height {
            let place = f64::from(row) / f64::from(plot.height.max(2) - 1);
            let body = if is_steady { 0.0 } else { place };
            let styles: Vec<Style> = self.fills.iter().map(|fill| style(*fill, body)).collect();
            let from = usize::from(row) * STEPS;
            for (x, tops) in (plot.x..plot.x + plot.width).zip(&self.columns) {
                let cell = &mut buffer[(x, plot.y + plot.height - 1 - row)];
                match tops
                    .last()
                    .map_or(0, |top| top.saturating_sub(from + STEPS))
                {
                    // The bright line is a cell thick: the less of it is in the cell above, the
                    // more is in this one.
                    above @ 0..STEPS => {
                        #[expect(clippy::cast_precision_loss, reason = "less than 8")]
                        let place = 1.0 - (1.0 - body) * above as f64 / EIGHT;
                        let mut styles = styles.clone();
                        let top_area = tops
                            .iter()
                            .position(|top| Some(top) == tops.last())
                            .unwrap_or(0);
                        styles[top_area] = style(self.fills[top_area], place);
                        self.draw_cell(cell, theme, from, tops, &styles);
                    }
                    _ => self.draw_cell(cell, theme, from, tops, &styles),
                }
            }
        }
    }

    /// Draws one cell, whose lower edge is at `from`.
    fn draw_cell(
        &self,
        cell: &mut Cell,
        theme: Theme,
        from: usize,
        tops: &[usize],
        styles: &[Style],
    ) {
        let area_of = |step: usize| tops.iter().position(|top| step < *top);
        let Some(lowest) = area_of(from) else { return };
        let highest = area_of(from + STEPS - 1);
        if highest == Some(lowest) {
            cell.set_char(glyph(theme, self.fills[lowest]))
                .set_style(styles[lowest]);
            return;
        }
        // Only two of the areas in a cell are drawn: the highest, and the largest of the others.
        let beginning = |area: usize| area.checked_sub(1).map_or(0, |below| tops[below]).max(from);
        let filled = highest.map_or(*tops.last().unwrap_or(&from), beginning) - from;
        let lower = match highest {
            // A thin area at the top is visible along its whole length.
            None => area_of((from + filled).saturating_sub(1)),
            Some(highest) => {
                (lowest..highest).max_by_key(|area| tops[*area].saturating_sub(beginning(*area)))
            }
        };
        let Some(lower) = lower else { return };
        let block = BLOCKS[filled.clamp(1, STEPS) - 1];
        match highest {
            // The top of all areas is a bright line.
            None => cell
                .set_char(block)
                .set_style(self.fills[lower].map_or(theme.dim(), |fill| theme.edge(fill))),
            // Two hatchings, or two areas of one colour, cannot share a cell.
            Some(highest) if theme.is_hatched() || styles[lower].fg == styles[highest].fg => {
                let area = if 2 * filled > STEPS { lower } else { highest };
                cell.set_char(glyph(theme, self.fills[area]))
                    .set_style(styles[area])
            }
            Some(highest) => cell
                .set_char(block)
                .set_style(styles[lower].bg(styles[highest].fg.unwrap_or(Color::Reset))),
        };
    }
}

/// The glyph of a filled cell.
pub(super) fn glyph(theme: Theme, fill: Option<Fill>) -> char {
    fill.map_or('░', |fill| theme.area_glyph(fill))
}

/// Draws a glyph over a cell. Where the cell is filled, its colour becomes the background.
pub(super) fn draw_over(cell: &mut Cell, glyph: char, style: Style) {
    if cell.symbol() == "█" {
        cell.bg = cell.fg;
    }
    cell.set_char(glyph);
    cell.fg = Color::Reset;
    cell.modifier = style.add_modifier;
    cell.set_style(style);
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;
    use crate::base::terminal::ColourDepth;

    const PLOT: Area = Area {
        x: 0,
        y: 0,
        width: 4,
        height: 2,
    };

    fn drawn(theme: Theme) -> Buffer {
        drawn_of(
            theme,
            [[0.25, 0.25, 0.25], [0.5, 0.75, 0.75], [0.375, 1.0, 1.0]],
        )
    }

    /// Draws columns of three areas each, and a gap after them.
    fn drawn_of(theme: Theme, columns: [[f64; 3]; 3]) -> Buffer {
        let mut areas = Areas::new(vec![Some(Fill::Allocated), Some(Fill::Unallocated), None]);
        for heights in columns {
            areas.push(PLOT, heights.into_iter());
        }
        areas.push(PLOT, std::iter::empty());
        let mut buffer = Buffer::empty(Rect {
            x: 0,
            y: 0,
            width: PLOT.width,
            height: PLOT.height,
        });
        areas.draw(&mut buffer, theme, PLOT);
        buffer
    }

    fn rows(buffer: &Buffer) -> Vec<String> {
        let cells: Vec<&str> = buffer.content.iter().map(Cell::symbol).collect();
        cells
            .chunks(usize::from(PLOT.width))
            .map(<[&str]>::concat)
            .collect()
    }

    #[test]
    fn a_cell_has_eight_steps_and_the_colours_of_two_areas() {
        let theme = Theme::new(false, ColourDepth::Sixteen);
        let buffer = drawn(theme);
        assert_eq!(rows(&buffer), [" ▄█ ", "▄█▆ "]);
        let (allocated, unallocated) = (
            theme.fill(Fill::Allocated, 0.0),
            theme.fill(Fill::Unallocated, 0.0),
        );
        assert_eq!(
            (Some(buffer[(2, 1)].fg), Some(buffer[(2, 1)].bg)),
            (allocated.fg, unallocated.fg)
        );
        assert_eq!(
            (buffer[(1, 0)].bg, buffer[(2, 0)].bg),
            (Color::Reset, Color::Reset)
        );
    }

    #[test]
    fn memory_that_stays_the_same_is_a_bright_edge_above_a_faint_area() {
        let theme = Theme::new(false, ColourDepth::Rgb);
        let steady = drawn_of(theme, [[0.75; 3]; 3]);
        assert_eq!(rows(&steady), ["▄▄▄ ", "███ "]);
        let edge = Some(steady[(0, 0)].fg);
        assert_eq!(edge, theme.edge(Fill::Allocated).fg);
        let wash = |place| theme.wash(Fill::Allocated, place).fg;
        // Half of the edge is in the row above.
        assert_eq!(Some(steady[(0, 1)].fg), wash(0.5));
        assert!(wash(0.0) != wash(0.5) && wash(0.5) != edge);
    }

    #[test]
    fn without_colour_areas_are_hatched() {
        assert_eq!(
            rows(&drawn(Theme::new(false, ColourDepth::None))),
            [" ▄▒ ", "▄██ "]
        );
    }

    #[test]
    fn a_line_over_an_area_keeps_the_colour_of_the_area() {
        let theme = Theme::new(false, ColourDepth::Sixteen);
        let mut buffer = drawn(theme);
        draw_over(&mut buffer[(1, 1)], '┊', theme.accent());
        assert_eq!(Some(buffer[(1, 1)].bg), theme.fill(Fill::Allocated, 0.0).fg);
    }
}
