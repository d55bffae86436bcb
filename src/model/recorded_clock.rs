//! The times that the user types to jump in a recording.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::base::time::local_time;
use crate::base::units::parse_span;
use crate::model::{Fleet, HostModel};

const DAY_MS: u64 = 86_400_000;

/// The clock on the wall of the recorded hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordedClock {
    /// Seconds ahead of UTC; 0 if the time zone is not known.
    pub offset: i32,
}

impl RecordedClock {
    /// Returns the clock of the first host whose time zone is known.
    pub(crate) fn of_first_host(fleet: &Fleet) -> Self {
        let offset = |model: &HostModel| model.latest()?.host.facts.utc_offset.ok();
        Self {
            offset: fleet
                .hosts()
                .find_map(|(_, model)| offset(model))
                .unwrap_or(0),
        }
    }

    /// Returns `03:41:12`.
    pub(crate) fn seconds(self, unix_ms: u64) -> String {
        local_time(unix_ms, self.offset)[11..19].to_owned()
    }

    /// Returns `03:41`, with the date before it if that of `other` is another one.
    pub(crate) fn hour_and_minute(self, unix_ms: u64, other: u64) -> String {
        let (time, other) = (
            local_time(unix_ms, self.offset),
            local_time(other, self.offset),
        );
        if time[..10] == other[..10] {
            return time[11..16].to_owned();
        }
        format!("{} {}", &time[5..10], &time[11..16])
    }

    /// Returns a time in milliseconds since 1970 that the user typed while the recording is at
    /// `now`.
    ///
    /// # Errors
    ///
    /// When the text is no time: a sentence with examples.
    pub(crate) fn parse(self, text: &str, now: u64) -> Result<u64, String> {
        let text = text.trim();
        self.parsed(text, now).ok_or_else(|| {
            format!("{text} is no time: try 03:10, 03:10:22, 07-14 03:10, -10m or +1h")
        })
    }

    fn parsed(self, text: &str, now: u64) -> Option<u64> {
        let milliseconds = |span: Duration| u64::try_from(span.as_millis()).ok();
        if let Some(ahead) = text.strip_prefix('+') {
            return now.checked_add(milliseconds(parse_span(ahead.trim()).ok()?)?);
        }
        if let Some(back) = text.strip_prefix('-') {
            return Some(now.saturating_sub(milliseconds(parse_span(back.trim()).ok()?)?));
        }
        let today = local_time(now, self.offset);
        let (day, time) = match text.rsplit_once([' ', 'T']) {
            // A day of this year may lack the year.
            Some((day, time)) if day.trim().len() == "07-14".len() => {
                (format!("{}-{}", &today[..4], day.trim()), time)
            }
            Some((day, time)) => (day.trim().to_owned(), time),
            None => (today[..10].to_owned(), text),
        };
        let seconds = match time.matches(':').count() {
            0 => return None,
            1 => ":00",
            _ => "",
        };
        // Hours may have one digit.
        let hours = if time.find(':') == Some(1) { "0" } else { "" };
        let parsed: DateTime = format!("{day}T{hours}{time}{seconds}").parse().ok()?;
        let local = parsed
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp()
            .as_millisecond();
        let local = u64::try_from(local).ok()?;
        // The pass at which the clock of the screen shows this second.
        let found = local
            .checked_add_signed(-i64::from(self.offset) * 1000)?
            .checked_add(999)?;
        if text.contains([' ', 'T']) {
            return Some(found);
        }
        // Without a day, the nearest such time is meant.
        let times = [found.saturating_sub(DAY_MS), found, found + DAY_MS];
        times.into_iter().min_by_key(|time| time.abs_diff(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-07-14T08:12:38Z, at which clocks in Berlin show 10:12:38.
    const NOW: u64 = 1_784_016_758_000;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let clock = RecordedClock { offset: 7200 };
        let found = clock
            .parse(text, NOW)
            .map(|time| local_time(time, clock.offset)[..19].to_owned());
        assert_eq!(found.as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn a_time_of_day_is_the_nearest_one() {
        check("09:10", "2026-07-14T09:10:00");
        check("9:10:22", "2026-07-14T09:10:22");
        check("23:00", "2026-07-13T23:00:00");
        check("21:00", "2026-07-14T21:00:00");
    }

    #[test]
    fn a_day_may_stand_before_the_time() {
        check("07-12 23:10", "2026-07-12T23:10:00");
        check("2025-12-31 23:10:05", "2025-12-31T23:10:05");
        check("2025-12-31T03:10", "2025-12-31T03:10:00");
    }

    #[test]
    fn a_sign_counts_from_the_time_of_the_recording() {
        check("-10m", "2026-07-14T10:02:38");
        check("+1h 30m", "2026-07-14T11:42:38");
        check("+ 5", "2026-07-14T10:12:43");
        check("-9000d", "2001-11-22T10:12:38");
        check("-90000d", "1970-01-01T02:00:00");
    }

    #[test]
    fn a_text_that_is_no_time_is_shown_with_examples() {
        let clock = RecordedClock { offset: 0 };
        for text in [
            "25:00",
            "noon",
            "+soon",
            "1",
            "07-14",
            "2026-02-30 00:00",
            "+99999999999999999999y",
            "🦀:10",
            "é 1:1",
        ] {
            let refused = clock.parse(text, NOW).unwrap_err();
            assert!(refused.contains("is no time: try 03:10"), "{refused}");
        }
    }
}
