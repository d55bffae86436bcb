//! The timeline of a replay: the span of the recording, its gaps and events, and where the replay
//! is.

use crate::model::{OutlineEvent, OutlinePart, Severity};

/// The most events that are kept. A forged recording could have any number.
const MOST_EVENTS: usize = 10_000;

/// The most gaps that are kept.
const MOST_GAPS: usize = 1000;

/// A jump to an event goes this much farther, in milliseconds: the clock of the host may have
/// drifted since.
const DRIFT_MS: u64 = 500;

/// An event this much earlier, in milliseconds, is not the one where the replay is.
const BEFORE_MS: u64 = 1500;

/// The outline of the recording, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Timeline {
    /// The times of the first and the last line, in milliseconds since 1970; `None` until they are
    /// known.
    pub span: Option<(u64, u64)>,
    /// Whether all events are known.
    pub(super) is_complete: bool,
    gaps: Vec<(u64, u64)>,
    /// In the order of time.
    events: Vec<OutlineEvent>,
}

/// The content of a column of the timeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TimelineCell<'a> {
    Recorded,
    Gap,
    /// The most serious event of the column.
    Event(&'a OutlineEvent),
}

impl Timeline {
    pub(super) fn add(&mut self, part: OutlinePart) {
        match part {
            OutlinePart::Span { begin, end } => self.span = Some((begin, end.max(begin + 1))),
            OutlinePart::Gap { begin, end } if self.gaps.len() < MOST_GAPS => {
                self.gaps.push((begin, end));
            }
            OutlinePart::Event(event) if self.events.len() < MOST_EVENTS => {
                let place = self
                    .events
                    .partition_point(|other| other.unix_ms <= event.unix_ms);
                self.events.insert(place, event);
            }
            OutlinePart::Complete => self.is_complete = true,
            OutlinePart::Gap { .. } | OutlinePart::Event(_) => {}
        }
    }

    /// Whether all events up to a time are known. The outline is read from the beginning of the
    /// recording.
    pub(super) fn is_known_to(&self, unix_ms: u64) -> bool {
        self.is_complete
            || self
                .events
                .last()
                .is_some_and(|event| event.unix_ms > unix_ms)
    }

    /// The time at the left edge of a column, of so many columns.
    fn edge(&self, column: usize, columns: usize) -> Option<u64> {
        let (begin, end) = self.span?;
        let part = u128::from(end - begin) * column as u128 / columns.max(1) as u128;
        Some(begin + u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// The column of a time; `None` outside of the span.
    pub(crate) fn column(&self, unix_ms: u64, columns: usize) -> Option<usize> {
        let (begin, end) = self.span?;
        let since = u128::from(unix_ms.checked_sub(begin)?);
        let column = usize::try_from(since * columns as u128 / u128::from(end - begin)).ok()?;
        // The last moment belongs to the last column.
        (unix_ms <= end).then_some(column.min(columns.saturating_sub(1)))
    }

    /// The cells of the timeline, from left to right; none while the span is not known.
    pub(crate) fn cells(&self, columns: usize) -> Vec<TimelineCell<'_>> {
        if self.span.is_none() {
            return Vec::new();
        }
        let is_gap = |column: usize| {
            let (from, to) = self
                .edge(column, columns)
                .zip(self.edge(column + 1, columns))
                .unwrap_or_default();
            self.gaps
                .iter()
                .any(|(begin, end)| *begin <= from && to <= *end)
        };
        let mut cells: Vec<TimelineCell<'_>> = (0..columns)
            .map(|column| {
                if is_gap(column) {
                    TimelineCell::Gap
                } else {
                    TimelineCell::Recorded
                }
            })
            .collect();
        for event in &self.events {
            let Some(cell) = self
                .column(event.unix_ms, columns)
                .and_then(|column| cells.get_mut(column))
            else {
                continue;
            };
            if !matches!(cell, TimelineCell::Event(other) if other.severity >= event.severity) {
                *cell = TimelineCell::Event(event);
            }
        }
        cells
    }

    /// The target of a jump to a column: its event, or its first moment.
    pub(super) fn target(&self, column: usize, columns: usize) -> Option<u64> {
        match self.cells(columns).get(column)? {
            TimelineCell::Event(event) => Some(event.unix_ms + DRIFT_MS),
            TimelineCell::Recorded | TimelineCell::Gap => self.edge(column, columns),
        }
    }

    /// The next event after a time, or the one before, and the target of a jump to it. `alerts`
    /// leaves out those that are not serious.
    pub(super) fn next_event(
        &self,
        at: u64,
        by: isize,
        alerts: bool,
    ) -> Option<(&OutlineEvent, u64)> {
        let mut events = self
            .events
            .iter()
            .filter(|event| !alerts || event.severity == Severity::Bad);
        let event = if by > 0 {
            events.find(|event| event.unix_ms > at + DRIFT_MS)?
        } else {
            events.rfind(|event| event.unix_ms + BEFORE_MS < at)?
        };
        Some((event, event.unix_ms + DRIFT_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewsKind;

    const BEGIN: u64 = 1_784_016_758_000;

    fn event(second: u64, severity: Severity) -> OutlineEvent {
        let news = if severity == Severity::Bad {
            NewsKind::Leak
        } else {
            NewsKind::Ended
        };
        let sentence = format!("at {second}").into();
        OutlineEvent {
            unix_ms: BEGIN + second * 1000,
            number: second,
            host: "vm".into(),
            news,
            severity,
            sentence,
        }
    }

    fn timeline() -> Timeline {
        let mut timeline = Timeline::default();
        assert!(timeline.cells(10).is_empty(), "nothing is known yet");
        timeline.add(OutlinePart::Span {
            begin: BEGIN,
            end: BEGIN + 100_000,
        });
        for (second, severity) in [
            (77, Severity::Fine),
            (23, Severity::Bad),
            (25, Severity::Fine),
            (100, Severity::Fine),
        ] {
            timeline.add(OutlinePart::Event(event(second, severity)));
        }
        timeline.add(OutlinePart::Gap {
            begin: BEGIN + 35_000,
            end: BEGIN + 62_000,
        });
        timeline
    }

    #[test]
    fn columns_show_the_most_serious_event_and_whole_gaps() {
        let timeline = timeline();
        let shown: String = timeline
            .cells(10)
            .into_iter()
            .map(|cell| match cell {
                TimelineCell::Recorded => '-',
                TimelineCell::Gap => ' ',
                TimelineCell::Event(event) if event.severity == Severity::Bad => '!',
                TimelineCell::Event(_) => 'v',
            })
            .collect();
        assert_eq!(shown, "--!-  -v-v");
    }

    #[test]
    fn a_click_leads_to_the_event_of_the_column_or_to_its_first_moment() {
        let timeline = timeline();
        assert_eq!(timeline.target(2, 10), Some(BEGIN + 23_500));
        assert_eq!(timeline.target(3, 10), Some(BEGIN + 30_000));
        assert_eq!(timeline.target(10, 10), None);
    }

    #[test]
    fn events_are_reached_one_after_the_other() {
        let timeline = timeline();
        let next = |at: u64, by: isize, alerts: bool| {
            let (event, target) = timeline.next_event(BEGIN + at, by, alerts)?;
            assert_eq!(target, event.unix_ms + DRIFT_MS);
            Some((event.unix_ms - BEGIN) / 1000)
        };
        assert_eq!(next(0, 1, false), Some(23));
        assert_eq!(next(23_100, 1, false), Some(25));
        assert_eq!(next(25_100, -1, false), Some(23));
        assert_eq!(next(30_000, 1, true), None);
        assert_eq!(next(22_000, 1, true), Some(23));
        assert_eq!(next(23_000, -1, false), None);
    }

    #[test]
    fn times_of_a_forged_outline_do_no_harm() {
        let mut timeline = Timeline::default();
        timeline.add(OutlinePart::Span {
            begin: u64::MAX - 5,
            end: 0,
        });
        timeline.add(OutlinePart::Gap {
            begin: u64::MAX,
            end: 0,
        });
        assert_eq!(timeline.cells(80).len(), 80);
        assert_eq!(timeline.column(0, 80), None);
    }
}
