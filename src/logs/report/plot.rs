//! Draws a plot as SVG: memory in stacked layers, events above, thin rows of load below, and a
//! forecast ahead.

mod chart;
mod event_labels;
mod ticks;

use maud::{Markup, html};

use self::event_labels::EventLane;
use super::colours;
use super::path::{AreaPath, LinePath};
use crate::base::units::Bytes;
use crate::model::Severity;
use crate::output::fill::Fill;

/// The width of the drawing, and the places of its parts, in units of SVG.
const WIDTH: f64 = 880.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 866.0;
const LANE: f64 = 15.0;
const HEIGHT: f64 = 190.0;
const ROW: f64 = 28.0;
const ROW_GAP: f64 = 9.0;
const LEGEND_LINE: f64 = 17.0;

/// The most ticks of time.
const MOST_TIMES: u64 = 10;

/// A layer of a plot, from the bottom.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlotLayer {
    pub(super) name: String,
    pub(super) fill: Fill,
}

/// A point of all layers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlotPoint {
    /// The time in milliseconds since 1970.
    pub(super) at: u64,
    /// Whether nothing is known between the point before and this one.
    pub(super) after_gap: bool,
    /// The amount of each layer in KiB.
    pub(super) amounts: Vec<u32>,
}

/// A value of a thin row: the time, the mean, and the highest value.
pub(super) type RowPoint = (u64, f64, f64);

/// A thin row below the plot.
#[derive(Debug, Clone)]
pub(super) struct PlotRow {
    pub(super) name: &'static str,
    /// The value at the top, with its unit.
    pub(super) top: f64,
    pub(super) top_label: String,
    pub(super) points: Vec<RowPoint>,
    /// The longest time in milliseconds between two points of one line.
    pub(super) patience: u64,
}

/// An event on the time axis.
#[derive(Debug, Clone)]
pub(super) struct PlotEvent {
    pub(super) at: u64,
    pub(super) label: String,
    pub(super) sentence: String,
    pub(super) severity: Severity,
}

/// The growth of memory ahead, if it goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlotForecast {
    /// The time and the KiB where it begins.
    pub(super) from: (u64, u32),
    /// The KiB at which memory runs out.
    pub(super) full: u32,
    /// When that is likely, and the earliest and latest time.
    pub(super) likely: u64,
    pub(super) low: u64,
    pub(super) high: u64,
}

/// Everything that is drawn.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    /// Names the drawing in the page: letters and digits.
    pub(super) id: String,
    pub(super) title: String,
    /// The drawing in a sentence, for people who do not see it.
    pub(super) description: String,
    /// The times at the left and right end.
    pub(super) span: (u64, u64),
    pub(super) utc_offset: i32,
    pub(super) layers: Vec<PlotLayer>,
    pub(super) points: Vec<PlotPoint>,
    /// The memory of the GPU.
    pub(super) capacity: Option<Bytes>,
    pub(super) forecast: Option<PlotForecast>,
    pub(super) events: Vec<PlotEvent>,
    pub(super) rows: Vec<PlotRow>,
}

/// Converts times and amounts to places in the drawing, whose origin is at the top left.
#[derive(Debug, Clone, Copy)]
struct PlotScale {
    /// The first and the last time, in milliseconds since 1970.
    span: (u64, u64),
    /// The horizontal places of both.
    left: f64,
    right: f64,
    /// The amount at the upper end of the axis.
    top_kib: f64,
    /// The vertical place of that amount.
    top: f64,
    /// The vertical place of 0 bytes.
    base: f64,
}

#[expect(clippy::cast_precision_loss, reason = "places are rounded to tenths")]
impl PlotScale {
    fn x(&self, at: u64) -> f64 {
        let (from, to) = self.span;
        let share = at.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64;
        self.left + share.min(1.0) * (self.right - self.left)
    }

    fn y(&self, kib: f64) -> f64 {
        self.base - (kib / self.top_kib).min(1.0) * (self.base - self.top)
    }
}

impl Plot {
    /// Returns the drawing as a file of its own, with this style sheet.
    pub(super) fn draw_alone(&self, style: &Markup) -> Markup {
        let legend = self.legend_lines();
        let legend_height =
            LEGEND_LINE * f64::from(u32::try_from(legend.len()).unwrap_or(u32::MAX));
        let lane = EventLane::place(&self.events, |at| self.scale(0.0).x(at));
        let top = 8.0 + legend_height + LANE * f64::from(lane.lanes) + 6.0;
        let scale = self.scale(top);
        let rows_top = scale.base + ROW_GAP;
        let bottom =
            rows_top + (ROW + ROW_GAP) * f64::from(u32::try_from(self.rows.len()).unwrap_or(0));
        let height = bottom + 20.0;
        let (title_id, description_id) =
            (format!("{}-title", self.id), format!("{}-desc", self.id));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img"
                aria-labelledby=(format!("{title_id} {description_id}")) {
                title id=(title_id) { (self.title) }
                desc id=(description_id) { (self.description) }
                (style)
                (draw_legend(&legend))
                (self.draw_grid(&scale, bottom))
                (self.draw_layers(&scale))
                (self.draw_forecast(&scale, true))
                (self.draw_capacity(&scale))
                @for (number, row) in (0_u32..).zip(&self.rows) {
                    (draw_row(row, &scale, rows_top + (ROW + ROW_GAP) * f64::from(number)))
                }
                (lane.draw(8.0 + legend_height, bottom))
            }
        }
    }

    fn scale(&self, top: f64) -> PlotScale {
        PlotScale {
            span: self.span,
            left: LEFT,
            right: RIGHT,
            top_kib: self.top_kib(),
            top,
            base: top + HEIGHT,
        }
    }

    /// Returns the amount at the upper end of the axis.
    fn top_kib(&self) -> f64 {
        let total =
            |point: &PlotPoint| point.amounts.iter().map(|kib| f64::from(*kib)).sum::<f64>();
        let highest = self.points.iter().map(total).fold(1024.0, f64::max) * 1.04;
        #[expect(clippy::cast_precision_loss, reason = "places are rounded to tenths")]
        let capacity = self
            .capacity
            .map_or(0.0, |capacity| (capacity.0 >> 10) as f64 * 1.02);
        // The end of a forecast within the plot is at its top.
        let full = self
            .forecast
            .filter(|forecast| forecast.likely <= self.span.1);
        let full = full.map_or(0.0, |forecast| f64::from(forecast.full) * 1.02);
        highest.max(capacity).max(full)
    }

    /// Returns the entries of the legend in lines that fit the width: the place, the layer.
    fn legend_lines(&self) -> Vec<Vec<(f64, &PlotLayer)>> {
        let mut lines: Vec<Vec<(f64, &PlotLayer)>> = Vec::new();
        let mut x = RIGHT;
        // The top layer comes first.
        for layer in self.layers.iter().rev() {
            let width = 26.0 + event_labels::text_width(&layer.name);
            if x + width > RIGHT {
                lines.push(Vec::new());
                x = LEFT;
            }
            if let Some(line) = lines.last_mut() {
                line.push((x, layer));
            }
            x += width;
        }
        lines
    }

    fn draw_grid(&self, scale: &PlotScale, bottom: f64) -> Markup {
        html! {
            g.grid {
                @for (kib, label) in ticks::amounts(scale.top_kib) {
                    @let y = scale.y(kib);
                    path d=(format!("M{LEFT} {y:.1}H{RIGHT}")) {}
                    text x=(LEFT - 6.0) y=(format!("{:.1}", y + 4.0)) text-anchor="end" { (label) }
                }
                @for (at, label) in ticks::times(self.span, self.utc_offset, MOST_TIMES) {
                    @let x = scale.x(at);
                    path d=(format!("M{x:.1} {:.1}V{bottom:.1}", scale.top)) {}
                    text x=(format!("{x:.1}")) y=(format!("{:.1}", bottom + 14.0)) text-anchor="middle" { (label) }
                }
            }
        }
    }

    /// Draws each layer down to the base line, the top layer first: the next one covers its lower
    /// part.
    fn draw_layers(&self, scale: &PlotScale) -> Markup {
        html! {
            @for (number, layer) in self.layers.iter().enumerate().rev() {
                @let area = self.area(number, scale);
                @if !area.is_empty() {
                    path.area.(colours::class(layer.fill)) d=(area) { title { (layer.name) } }
                }
            }
        }
    }

    /// Returns the path of a layer with all below it.
    fn area(&self, layer: usize, scale: &PlotScale) -> String {
        let mut path = AreaPath::new(scale.base);
        for point in &self.points {
            let kib: f64 = point
                .amounts
                .iter()
                .take(layer + 1)
                .map(|kib| f64::from(*kib))
                .sum();
            path.point(scale.x(point.at), scale.y(kib), point.after_gap);
        }
        path.finish()
    }

    fn draw_capacity(&self, scale: &PlotScale) -> Markup {
        let Some(capacity) = self.capacity else {
            return html! {};
        };
        #[expect(clippy::cast_precision_loss, reason = "places are rounded to tenths")]
        let y = scale.y((capacity.0 >> 10) as f64);
        html! {
            path.capacity d=(format!("M{} {y:.1}H{}", scale.left, scale.right)) { title { (format!("{capacity} in all")) } }
        }
    }

    /// Draws the growth ahead, and with `is_labelled`, when memory is full.
    fn draw_forecast(&self, scale: &PlotScale, is_labelled: bool) -> Markup {
        let Some(forecast) = self.forecast else {
            return html! {};
        };
        let (from_x, from_y) = (scale.x(forecast.from.0), scale.y(forecast.from.1.into()));
        // The line ends at the right end of the plot, if that comes first.
        let end = |at: u64| {
            let end = at.min(self.span.1);
            let whole = at.saturating_sub(forecast.from.0).max(1);
            #[expect(clippy::cast_precision_loss, reason = "places are rounded to tenths")]
            let share = end.saturating_sub(forecast.from.0) as f64 / whole as f64;
            let kib = f64::from(forecast.from.1)
                + share * (f64::from(forecast.full) - f64::from(forecast.from.1));
            (scale.x(end), scale.y(kib))
        };
        let ((low_x, low_y), (likely_x, likely_y), (high_x, high_y)) =
            (end(forecast.low), end(forecast.likely), end(forecast.high));
        let corner = if high_x < scale.right - 0.05 {
            String::new()
        } else {
            format!("L{} {:.1}", scale.right, low_y.min(likely_y))
        };
        let label = self.forecast_label(&forecast);
        // The label is below the line, whose left end is lower.
        let label_x = likely_x
            .max(from_x + event_labels::text_width(&label))
            .min(scale.right - 2.0);
        let share = event_labels::text_width(&label) / (likely_x - from_x).max(1.0);
        let label_y =
            (likely_y + share.min(1.0) * (from_y - likely_y) + 16.0).min(scale.base - 4.0);
        html! {
            path.doubt d=(format!("M{from_x:.1} {from_y:.1}L{low_x:.1} {low_y:.1}{corner}L{high_x:.1} {high_y:.1}Z")) {}
            path.forecast d=(format!("M{from_x:.1} {from_y:.1}L{likely_x:.1} {likely_y:.1}")) {
                title { "if it grows on: " (label) }
            }
            @if is_labelled {
                text.forecast-label x=(format!("{label_x:.1}")) y=(format!("{label_y:.1}")) text-anchor="end" { (label) }
            }
        }
    }

    fn forecast_label(&self, forecast: &PlotForecast) -> String {
        let time = ticks::clock(forecast.likely, self.utc_offset, self.span);
        format!("full at about {time}")
    }
}

fn draw_legend(lines: &[Vec<(f64, &PlotLayer)>]) -> Markup {
    html! {
        @for (number, line) in (0_u32..).zip(lines) {
            @let y = 8.0 + LEGEND_LINE * f64::from(number);
            @for (x, layer) in line {
                rect.area.(colours::class(layer.fill)) x=(format!("{x:.1}")) y=(format!("{y:.1}")) width="11" height="11" rx="2" {}
                text x=(format!("{:.1}", x + 16.0)) y=(format!("{:.1}", y + 9.5)) { (layer.name) }
            }
        }
    }
}

fn draw_row(row: &PlotRow, scale: &PlotScale, top: f64) -> Markup {
    let base = top + ROW;
    html! {
        g.row {
            path.frame d=(format!("M{LEFT} {top:.1}H{RIGHT}M{LEFT} {base:.1}H{RIGHT}")) {}
            (row_curves(row, scale, top, base))
            text x=(LEFT - 6.0) y=(format!("{:.1}", top + ROW / 2.0 + 4.0)) text-anchor="end" { (row.name) " " (row.top_label) }
        }
    }
}

/// Draws the mean and the highest value of a row between these heights.
fn row_curves(row: &PlotRow, scale: &PlotScale, top: f64, base: f64) -> Markup {
    let y = |value: f64| base - (value / row.top.max(1e-9)).clamp(0.0, 1.0) * (base - top);
    let (mut means, mut highs) = (AreaPath::new(base), LinePath::default());
    let mut before: Option<u64> = None;
    for (at, mean, high) in &row.points {
        let after_gap = before.is_none_or(|before| at.saturating_sub(before) > row.patience);
        before = Some(*at);
        means.point(scale.x(*at), y(*mean), after_gap);
        highs.point(scale.x(*at), y(*high), after_gap);
    }
    html! {
        path.mean d=(means.finish()) { title { (row.name) ": mean" } }
        path.high d=(highs.finish()) { title { (row.name) ": highest" } }
    }
}
