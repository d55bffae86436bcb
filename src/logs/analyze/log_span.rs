//! The times of a log's first and last row, and times of day as the log writes them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;

use super::rows::LogRow;
use crate::base::units::Elapsed;

/// The time between the first and the last row of a log, as [`LogRow::time`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LogSpan {
    pub(super) begin: i64,
    pub(super) end: i64,
    /// How far the time zone of the log's dates is ahead of UTC, in milliseconds. `None` for a log
    /// without dates.
    zone: Option<i64>,
}

impl LogSpan {
    /// Returns the span of rows in the order of time. `zone` is `None` for a log without dates.
    pub(super) fn new(rows: &[LogRow], zone: Option<i64>) -> Self {
        let (begin, end) = rows
            .first()
            .zip(rows.last())
            .map_or((0, 0), |(first, last)| (first.time, last.time));
        Self { begin, end, zone }
    }

    /// Returns the time of day of a moment: `22:19`, in a log of more than a day `21 Nov 22:19`,
    /// and in a log of some minutes `22:19:52`. `None` for a log without dates.
    pub(super) fn clock(self, time: i64) -> Option<String> {
        const SHORT: i64 = 10 * 60_000;
        const DAY: i64 = 24 * 60 * 60_000;
        let format = match self.end - self.begin {
            span if span <= SHORT => "%H:%M:%S",
            span if span <= DAY => "%H:%M",
            _ => "%-d %b %H:%M",
        };
        Some(self.civil(time)?.strftime(format).to_string())
    }

    /// Returns the date and time of day of a moment: `2026-11-21 22:19:52`. `None` for a log
    /// without dates.
    pub(super) fn date(self, time: i64) -> Option<String> {
        Some(self.civil(time)?.strftime("%Y-%m-%d %H:%M:%S").to_string())
    }

    fn civil(self, time: i64) -> Option<DateTime> {
        let local = Timestamp::from_millisecond(time.checked_add(self.zone?)?).ok()?;
        Some(local.to_zoned(jiff::tz::TimeZone::UTC).datetime())
    }

    /// Returns the time from the log's first row to a moment.
    pub(super) fn since_begin(self, time: i64) -> Elapsed {
        Elapsed(Duration::from_millis(
            (time - self.begin).max(0).unsigned_abs(),
        ))
    }
}
