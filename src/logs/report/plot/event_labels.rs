//! Labels of events above a plot, in lanes, so that none covers another. An event without room for
//! a label has only a line.

use maud::{Markup, html};

use super::{LANE, LEFT, PlotEvent, RIGHT};
use crate::model::Severity;

/// The most lanes of labels.
const MOST_LANES: usize = 3;

/// The longest label in characters.
const LONGEST_LABEL: usize = 28;

/// The free space between two labels.
const GAP: f64 = 8.0;

/// The events of a plot with their places.
#[derive(Debug)]
pub(super) struct EventLane<'a> {
    placed: Vec<PlacedEvent<'a>>,
    /// How many lanes are used.
    pub(super) lanes: u32,
}

#[derive(Debug)]
struct PlacedEvent<'a> {
    event: &'a PlotEvent,
    x: f64,
    /// The lane from the top, and the place where the label begins; `None` without a label.
    label: Option<(u32, f64)>,
}

/// Returns about how wide a text is in the font of the plot.
pub(super) fn text_width(text: &str) -> f64 {
    /// The mean width of a character.
    const CHARACTER: f64 = 6.1;
    CHARACTER * f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX))
}

/// Returns a label that is not too long.
fn shortened(label: &str) -> String {
    if label.chars().count() <= LONGEST_LABEL {
        return label.to_owned();
    }
    label.chars().take(LONGEST_LABEL - 1).chain(['…']).collect()
}

impl<'a> EventLane<'a> {
    /// Places the labels, those of bad events first.
    pub(super) fn place(events: &'a [PlotEvent], x: impl Fn(u64) -> f64) -> Self {
        let mut placed: Vec<PlacedEvent<'a>> = events
            .iter()
            .map(|event| PlacedEvent {
                event,
                x: x(event.at),
                label: None,
            })
            .collect();
        let mut order: Vec<usize> = (0..placed.len()).collect();
        order.sort_by_key(|place| (rank(placed[*place].event.severity), *place));
        let mut taken: Vec<Vec<(f64, f64)>> = vec![Vec::new(); MOST_LANES];
        for place in order {
            let PlacedEvent { event, x, .. } = placed[place];
            let width = text_width(&shortened(&event.label));
            // The label is right of its line, and left of it at the right end.
            let start = if x + 3.0 + width > RIGHT {
                x - 3.0 - width
            } else {
                x + 3.0
            };
            if start < LEFT - 50.0 {
                continue;
            }
            let is_free = |lane: &Vec<(f64, f64)>| {
                lane.iter()
                    .all(|(from, to)| start - GAP > *to || start + width + GAP < *from)
            };
            let Some(lane) = taken.iter().position(is_free) else {
                continue;
            };
            taken[lane].push((start.min(x), (start + width).max(x)));
            placed[place].label = u32::try_from(lane).ok().map(|lane| (lane, start));
        }
        let lanes = placed
            .iter()
            .filter_map(|event| Some(event.label?.0 + 1))
            .max()
            .unwrap_or(0);
        Self { placed, lanes }
    }

    /// Draws the lines and the labels below `top`.
    pub(super) fn draw(&self, top: f64, bottom: f64) -> Markup {
        let base = top + LANE * f64::from(self.lanes);
        html! {
            @for PlacedEvent { event, x, label } in &self.placed {
                @let line_top = label.map_or(base, |(lane, _)| top + LANE * f64::from(lane) + 2.0);
                g class=(class(event.severity)) {
                    title { (event.sentence) }
                    path d=(format!("M{x:.1} {line_top:.1}V{bottom:.1}")) {}
                    @if let Some((lane, start)) = label {
                        text x=(format!("{start:.1}")) y=(format!("{:.1}", top + LANE * f64::from(*lane) + 11.0)) {
                            (shortened(&event.label))
                        }
                    }
                }
            }
        }
    }
}

fn rank(severity: Severity) -> u8 {
    match severity {
        Severity::Bad => 0,
        Severity::Notable => 1,
        Severity::Fine | Severity::Unknown => 2,
    }
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "event bad",
        Severity::Notable => "event notable",
        Severity::Fine | Severity::Unknown => "event",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_bad_news_come_first() {
        let event = |number: u64, severity| PlotEvent {
            at: number,
            label: format!("event number {number}"),
            sentence: String::new(),
            severity,
        };
        let events: Vec<PlotEvent> = (0..200)
            .map(|number| {
                event(
                    number * 4 + 62,
                    if number == 150 {
                        Severity::Bad
                    } else {
                        Severity::Fine
                    },
                )
            })
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let lane = EventLane::place(&events, |at| at as f64);
        let mut labels: Vec<(u32, f64, f64)> = Vec::new();
        for placed in &lane.placed {
            let Some((lane, start)) = placed.label else {
                continue;
            };
            labels.push((lane, start, start + text_width(&placed.event.label)));
        }
        for (number, a) in labels.iter().enumerate() {
            for b in &labels[number + 1..] {
                assert!(a.0 != b.0 || a.2 < b.1 || b.2 < a.1, "{a:?} {b:?}");
            }
        }
        assert!(labels.len() > 10, "{}", labels.len());
        assert!(lane.placed[150].label.is_some());
    }
}
