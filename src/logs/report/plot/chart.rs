//! Draws a plot for a page. The curves stretch to the width of their column, on a phone, too; the
//! words around them are text of the page, which keeps its size.

use maud::{Markup, html};

use super::{Plot, PlotEvent, PlotRow, PlotScale, colours, row_curves, ticks};
use crate::base::units::Bytes;
use crate::model::Severity;

/// The size of the curves, in units of SVG.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 150.0;

/// The height of a thin row.
const ROW: f64 = 28.0;

/// The most ticks of time: a phone has room for so many.
const MOST_TIMES: u64 = 4;

/// The most events that have words below the curves. The others are lines with titles.
const MOST_EVENTS: usize = 3;

impl Plot {
    /// Returns the curves with their axes, legend and events.
    pub(in crate::logs::report) fn draw_chart(&self) -> Markup {
        let scale = PlotScale {
            span: self.span,
            left: 0.0,
            right: WIDTH,
            top_kib: self.top_kib(),
            top: 0.0,
            base: HEIGHT,
        };
        html! {
            div.plot role="img" aria-label=(format!("{}. {}", self.title, self.description)) {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" {
                    (self.draw_lines(&scale))
                    (self.draw_layers(&scale))
                    (self.draw_forecast(&scale, false))
                    (self.draw_capacity(&scale))
                    @for event in &self.events { (draw_event(event, &scale)) }
                }
                @for (kib, label) in ticks::amounts(scale.top_kib) {
                    span.amount style=(format!("top:{:.1}%", scale.y(kib) / HEIGHT * 100.0)) { (label) }
                }
            }
            @for row in &self.rows { (draw_row(row, &scale)) }
            (self.draw_times(&scale))
            (self.draw_legend())
            (self.draw_words_of_events())
        }
    }

    /// Draws the lines behind the curves.
    fn draw_lines(&self, scale: &PlotScale) -> Markup {
        html! {
            g.grid {
                @for (kib, _) in ticks::amounts(scale.top_kib) {
                    path d=(format!("M0 {:.1}H{WIDTH}", scale.y(kib))) {}
                }
                @for (at, _) in ticks::times(self.span, self.utc_offset, MOST_TIMES) {
                    path d=(format!("M{:.1} 0V{HEIGHT}", scale.x(at))) {}
                }
            }
        }
    }

    fn draw_times(&self, scale: &PlotScale) -> Markup {
        html! {
            div.times {
                @for (at, label) in ticks::times(self.span, self.utc_offset, MOST_TIMES) {
                    @let share = scale.x(at) / WIDTH * 100.0;
                    // A label at an end stays within the column.
                    @let class = if share < 8.0 { "first" } else if share > 92.0 { "last" } else { "" };
                    span class=(class) style=(format!("left:{share:.1}%")) { (label) }
                }
            }
        }
    }

    /// Draws the names of the layers, the top one first, with their amounts at the peak.
    fn draw_legend(&self) -> Markup {
        let sum = |amounts: &[u32]| amounts.iter().map(|kib| u64::from(*kib)).sum::<u64>();
        let peak = self.points.iter().max_by_key(|point| sum(&point.amounts));
        let amount = |layer: usize| Some(u64::from(*peak?.amounts.get(layer)?));
        html! {
            ul.legend {
                @for (number, layer) in self.layers.iter().enumerate().rev() {
                    li {
                        i class=(colours::class(layer.fill)) {}
                        (layer.name)
                        @if let Some(kib) = amount(number) { " " (Bytes::from_kib(kib)) }
                    }
                }
                @if let Some(forecast) = &self.forecast {
                    li.ahead { "if it grows on: " (self.forecast_label(forecast)) }
                }
            }
        }
    }

    /// Draws the worst events as text.
    fn draw_words_of_events(&self) -> Markup {
        let mut worst: Vec<&PlotEvent> = self
            .events
            .iter()
            .filter(|event| event.severity >= Severity::Notable)
            .collect();
        worst.sort_by_key(|event| std::cmp::Reverse(event.severity));
        worst.truncate(MOST_EVENTS);
        worst.sort_by_key(|event| event.at);
        html! {
            @if !worst.is_empty() {
                ul.events {
                    @for event in worst { li { (event.sentence) } }
                }
            }
        }
    }
}

fn draw_event(event: &PlotEvent, scale: &PlotScale) -> Markup {
    let class = match event.severity {
        Severity::Bad => "event bad",
        Severity::Notable => "event notable",
        Severity::Fine | Severity::Unknown => "event",
    };
    html! {
        path class=(class) d=(format!("M{:.1} 0V{HEIGHT}", scale.x(event.at))) {
            title { (event.sentence) }
        }
    }
}

fn draw_row(row: &PlotRow, scale: &PlotScale) -> Markup {
    html! {
        p.row title=(format!("to {}", row.top_label)) { (row.name) }
        svg.row viewBox=(format!("0 0 {WIDTH} {ROW}")) preserveAspectRatio="none" aria-hidden="true" {
            (row_curves(row, scale, 0.0, ROW))
        }
    }
}
