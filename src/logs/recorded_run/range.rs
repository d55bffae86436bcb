//! A part of a recording: `run.zst@10:15..10:45`, `run.zst@+5m..+20m`, `run.zst@warm..tuned` from
//! one mark to another.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::base::units::parse_span;

/// A recording, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRange {
    pub(crate) path: PathBuf,
    pub(super) from: Option<RangeEdge>,
    pub(super) to: Option<RangeEdge>,
}

/// The beginning or end of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RangeEdge {
    /// Milliseconds after the beginning of the recording.
    After(u64),
    /// Milliseconds since 1970.
    Unix(u64),
    /// A local time in milliseconds of the day: the first such moment in the recording.
    TimeOfDay(u64),
    /// The moment when the program set the mark with this name.
    Mark(String),
}

const DAY_MS: u64 = 86_400_000;

impl RunRange {
    /// Returns a whole recording.
    pub(crate) fn whole_recording(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            from: None,
            to: None,
        }
    }

    /// Whether only a part of the recording is meant.
    pub(crate) fn is_part(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Parses `FILE` or `FILE@FROM..TO`. A file whose name contains the sign is meant as it is.
    pub(crate) fn parse(text: &str) -> Self {
        let whole = Self::whole_recording(Path::new(text));
        let Some((path, range)) = text
            .rsplit_once('@')
            .filter(|_| fs::symlink_metadata(text).is_err())
        else {
            return whole;
        };
        let (from, to) = range.split_once("..").unwrap_or((range, ""));
        let edge = |text: &str| (!text.is_empty()).then(|| RangeEdge::parse(text));
        Self {
            path: PathBuf::from(path),
            from: edge(from),
            to: edge(to),
        }
    }
}

impl RangeEdge {
    fn parse(text: &str) -> Self {
        let after = text
            .strip_prefix('+')
            .and_then(|span| parse_span(span).ok());
        if let Some(after) = after {
            return Self::After(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        if let Some(time) = time_of_day(text) {
            return Self::TimeOfDay(time);
        }
        let utc = |date: DateTime| Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp());
        let date = text.parse().ok().or_else(|| utc(text.parse().ok()?));
        match date.and_then(|date: Timestamp| u64::try_from(date.as_millisecond()).ok()) {
            Some(since) => Self::Unix(since),
            None => Self::Mark(text.to_owned()),
        }
    }

    /// Returns the time of the edge in milliseconds since 1970; `None` for a mark.
    pub(super) fn time(&self, began: u64, utc_offset: i32) -> Option<u64> {
        match self {
            Self::After(after) => Some(began.saturating_add(*after)),
            Self::Unix(time) => Some(*time),
            Self::TimeOfDay(time) => {
                let local = began.saturating_add_signed(i64::from(utc_offset) * 1000);
                Some(began + (time + DAY_MS - local % DAY_MS) % DAY_MS)
            }
            Self::Mark(_) => None,
        }
    }

    pub(super) fn is_mark(&self, name: &str) -> bool {
        matches!(self, Self::Mark(mark) if mark == name)
    }
}

/// Parses `10:15` or `10:15:30`, in milliseconds.
fn time_of_day(text: &str) -> Option<u64> {
    let parts: Option<Vec<u64>> = text
        .split(':')
        .map(|part| part.parse().ok().filter(|_| part.len() == 2))
        .collect();
    match parts?.as_slice() {
        [hours @ 0..24, minutes @ 0..60] => Some((hours * 60 + minutes) * 60_000),
        [hours @ 0..24, minutes @ 0..60, seconds @ 0..60] => {
            Some(((hours * 60 + minutes) * 60 + seconds) * 1000)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_by_times_or_marks() {
        let parse = |text: &str| {
            let RunRange { path, from, to } = RunRange::parse(text);
            (path.display().to_string(), from, to)
        };
        let mark = |name: &str| Some(RangeEdge::Mark(name.to_owned()));
        assert_eq!(parse("run"), ("run".to_owned(), None, None));
        assert_eq!(
            parse("run@warm..tuned"),
            ("run".to_owned(), mark("warm"), mark("tuned"))
        );
        assert_eq!(parse("a@b@warm"), ("a@b".to_owned(), mark("warm"), None));
        assert_eq!(
            parse("run@..+5m"),
            ("run".to_owned(), None, Some(RangeEdge::After(300_000)))
        );
        let times = (
            Some(RangeEdge::TimeOfDay(36_900_000)),
            Some(RangeEdge::TimeOfDay(36_930_000)),
        );
        assert_eq!(
            parse("run@10:15..10:15:30"),
            ("run".to_owned(), times.0, times.1)
        );
        assert_eq!(
            parse("run@2026-07-14 08:12:38").1,
            Some(RangeEdge::Unix(1_784_016_758_000))
        );
    }

    #[test]
    fn a_time_of_day_is_the_first_one_in_the_recording() {
        // 2026-07-14T08:12:38Z, which is 10:12:38 there.
        let (began, offset) = (1_784_016_758_000, 7200);
        assert_eq!(
            RangeEdge::parse("10:12:40").time(began, offset),
            Some(began + 2000)
        );
        assert_eq!(
            RangeEdge::parse("10:12:36").time(began, offset),
            Some(began + 86_398_000)
        );
    }
}
