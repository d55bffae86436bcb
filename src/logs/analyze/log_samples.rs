//! The samples of a log, by series, as they are read.

use std::collections::HashMap;

use super::rows::LogRow;
use super::series::LogSeries;
use super::unreadable::UnreadableLines;
use crate::base::units::Bytes;

#[derive(Debug, Default)]
pub(super) struct LogSamples {
    pub(super) rows: Vec<LogRow>,
    pub(super) series: Vec<LogSeries>,
    by_key: HashMap<String, usize>,
    /// The number of missing readings.
    pub(super) missing: u64,
    pub(super) unreadable: UnreadableLines,
    numbers: SampleNumbers,
}

impl LogSamples {
    /// Returns the index of the series with this key, which `make` describes.
    pub(super) fn place(&mut self, key: &str, make: impl FnOnce() -> LogSeries) -> usize {
        if let Some(place) = self.by_key.get(key) {
            return *place;
        }
        self.series.push(make());
        self.by_key.insert(key.to_owned(), self.series.len() - 1);
        self.series.len() - 1
    }

    pub(super) fn add(
        &mut self,
        time: i64,
        line: u64,
        place: usize,
        used: Bytes,
        limit: Option<Bytes>,
    ) {
        self.rows.push(LogRow::new(time, line, place, used, limit));
    }

    /// Returns the number of the sample that the next row of a series belongs to.
    pub(super) fn number(&mut self, place: usize) -> u32 {
        self.numbers.next(place)
    }
}

/// Numbers the samples of a log without times: a sample ends when one of its series comes again.
#[derive(Debug, Default)]
pub(super) struct SampleNumbers {
    current: u32,
    /// The number of the latest sample of each series, counted from 1.
    latest: Vec<u32>,
}

impl SampleNumbers {
    pub(super) fn next(&mut self, place: usize) -> u32 {
        if self.latest.len() <= place {
            self.latest.resize(place + 1, 0);
        }
        self.current = self.current.max(1);
        if self.latest[place] == self.current {
            self.current = self.current.saturating_add(1);
        }
        self.latest[place] = self.current;
        self.current - 1
    }
}
