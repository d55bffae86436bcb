//! How an amount of memory went: one sample a second at most, for fifteen minutes, gaps kept.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::{Bytes, Moment};

/// How far a series reaches back.
pub(super) const WINDOW: Duration = Duration::from_mins(15);

/// The spans that graphs show, until the history fills the whole window.
const SPANS: [Duration; 4] =
    [Duration::from_mins(1), Duration::from_mins(2), Duration::from_mins(5), Duration::from_mins(10)];

/// The shortest span of graphs that shows so much history.
pub(super) fn span(known: Duration) -> Duration {
    SPANS.into_iter().find(|span| *span >= known).unwrap_or(WINDOW)
}

/// Eight bytes a sample: a busy host has a thousand series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    /// Seconds since boot.
    second: u32,
    kib: u32,
}

impl Sample {
    /// What stands for "not known here".
    const GAP: u32 = u32::MAX;
}

/// The memory of one subject over time.
#[derive(Debug, Clone, Default)]
pub struct Series {
    samples: VecDeque<Sample>,
    baseline: Option<Bytes>,
    peak: Option<Bytes>,
    began: Option<Moment>,
}

impl Series {
    /// Adds what was read at that time. A second has one sample, its highest; after more than
    /// `patience` without one, there is a gap.
    pub(super) fn push(&mut self, at: Moment, memory: Option<Bytes>, patience: Duration) {
        let second = u32::try_from(at.0 / 1000).unwrap_or(u32::MAX);
        let kib = memory.map_or(Sample::GAP, |it| u32::try_from(it.0 >> 10).unwrap_or(Sample::GAP - 1));
        if let Some(bytes) = memory {
            self.baseline.get_or_insert(bytes);
            self.began.get_or_insert(at);
            self.peak = self.peak.max(memory);
        }
        match self.samples.back_mut() {
            Some(last) if second < last.second => return,
            Some(last) if second == last.second => {
                // A gap is the highest number, and gives way to any other.
                last.kib = if last.kib == Sample::GAP { kib } else { last.kib.max(kib.min(Sample::GAP - 1)) };
                return;
            }
            Some(last) if u64::from(second - last.second) > patience.as_secs().max(1) => {
                let gap = Sample { second: last.second + 1, kib: Sample::GAP };
                self.samples.push_back(gap);
            }
            _ => {}
        }
        self.samples.push_back(Sample { second, kib });
        let window = u32::try_from(WINDOW.as_secs()).unwrap_or(u32::MAX);
        while self.samples.front().is_some_and(|first| second - first.second > window) {
            self.samples.pop_front();
        }
    }

    /// What was read at each time, oldest first; absent where it could not be.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Moment, Option<Bytes>)> {
        self.samples.iter().map(|it| {
            let memory = (it.kib != Sample::GAP).then(|| Bytes::from_kib(u64::from(it.kib)));
            (Moment(u64::from(it.second) * 1000), memory)
        })
    }

    /// The highest amount of each of `columns` equal parts of the last `span` before `now`, oldest
    /// first. A part without a sample of its own repeats the one before it, unless that is a gap.
    pub fn columns(&self, now: Moment, span: Duration, columns: usize) -> Vec<Option<Bytes>> {
        // The parts begin at multiples of their length: they move by whole columns, and seldom.
        let part = (u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / columns.max(1) as u64).max(1);
        let end = (now.0 / part + 1) * part;
        let Some(start) = end.checked_sub(part * columns as u64) else { return vec![None; columns] };
        let mut highest = vec![None; columns];
        let mut filled = vec![false; columns];
        let mut before = None;
        for (at, memory) in self.iter() {
            let Some(offset) = at.0.checked_sub(start) else {
                before = memory;
                continue;
            };
            let column = usize::try_from(offset / part).unwrap_or(usize::MAX).min(columns.saturating_sub(1));
            highest[column] = if filled[column] { highest[column].max(memory) } else { memory };
            filled[column] = true;
        }
        let last = filled.iter().rposition(|it| *it).map_or(0, |at| at + 1);
        for column in 0..columns {
            if filled[column] {
                before = highest[column];
            } else if column < last || self.is_fresh(now) {
                highest[column] = before;
            }
        }
        highest
    }

    /// Whether the last sample still tells of the present.
    fn is_fresh(&self, now: Moment) -> bool {
        now.since(self.end()) <= Duration::from_secs(3)
    }

    /// The time of the last sample.
    pub fn end(&self) -> Moment {
        Moment(self.samples.back().map_or(0, |last| u64::from(last.second) * 1000))
    }

    /// The first amount that was read; absent when none was.
    pub fn baseline(&self) -> Option<Bytes> {
        self.baseline
    }

    /// When that was.
    pub fn began(&self) -> Option<Moment> {
        self.began
    }

    /// The highest amount since then.
    pub fn peak(&self) -> Option<Bytes> {
        self.peak
    }

    /// The last sample; absent when it is a gap.
    pub fn latest(&self) -> Option<Bytes> {
        self.iter().next_back().and_then(|(_, memory)| memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn series(samples: &[(u64, Option<u64>)]) -> Series {
        let mut series = Series::default();
        for (second, mib) in samples {
            series.push(Moment(second * 1000), mib.map(Bytes::from_mib), PATIENCE);
        }
        series
    }

    #[track_caller]
    fn check(series: &Series, now: u64, span: u64, expected: &[Option<u64>]) {
        let columns = series.columns(Moment(now * 1000), Duration::from_secs(span), expected.len());
        let expected: Vec<_> = expected.iter().map(|it| it.map(Bytes::from_mib)).collect();
        assert_eq!(columns, expected);
    }

    #[test]
    fn a_second_without_a_sample_repeats_the_one_before() {
        check(&series(&[(100, Some(1)), (102, Some(3))]), 103, 5, &[None, Some(1), Some(1), Some(3), Some(3)]);
    }

    #[test]
    fn a_long_silence_is_a_gap() {
        let gap = series(&[(100, Some(1)), (110, Some(3))]);
        check(&gap, 110, 12, &[None, Some(1), None, None, None, None, None, None, None, None, None, Some(3)]);
    }

    #[test]
    fn a_missing_reading_is_a_gap_and_never_nothing() {
        check(&series(&[(100, Some(7)), (101, None), (102, Some(7))]), 102, 3, &[Some(7), None, Some(7)]);
    }

    #[test]
    fn a_column_shows_the_highest_of_its_samples() {
        check(&series(&[(100, Some(1)), (101, Some(9)), (102, Some(2)), (103, Some(1))]), 103, 4, &[Some(9), Some(2)]);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten_but_not_the_baseline() {
        let mut long = Series::default();
        for second in 0..2000 {
            long.push(Moment(second * 1000), Some(Bytes::from_mib(second)), PATIENCE);
        }
        assert_eq!(long.samples.len() as u64, WINDOW.as_secs() + 1);
        assert_eq!((long.baseline(), long.peak()), (Some(Bytes(0)), Some(Bytes::from_mib(1999))));
    }
}
