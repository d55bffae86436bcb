//! The dates and times of a log's rows, in the forms that programs write.

use jiff::civil::{Date, DateTime};
use jiff::fmt::strtime::BrokenDownTime;

/// The forms of times that [`LogTimes`] reads, for a person.
pub(super) const ACCEPTED: &str = "accepted are `2026/11/21 13:05:42.123`, `2026-11-21T13:05:42+01:00`, \
    `20261121 13:05:42`, `21.11.2026 13:05:42`, `21 Nov 2026 13:05:42`, `Sat Nov 21 13:05:42 2026`, \
    `11/21/2026 1:05:42 PM`, times of day or since the start as `13:05:42`, and seconds";

/// Dates that begin with something else than year, month and day.
const OTHER_FORMS: [&str; 9] = [
    "%a %b %d %H:%M:%S%.f %Y",
    "%a, %d %b %Y %H:%M:%S%.f",
    "%a %d %b %Y %I:%M:%S%.f %p",
    "%d %b %Y %H:%M:%S%.f",
    "%d-%b-%Y %H:%M:%S%.f",
    "%d/%b/%Y:%H:%M:%S%.f",
    "%d.%m.%Y %H:%M:%S%.f",
    "%m/%d/%Y %I:%M:%S%.f %p",
    "%b %d %Y %H:%M:%S%.f",
];

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

/// Parses the times of a log. Most rows have the date of the row before, which is parsed once.
#[derive(Debug, Default)]
pub(super) struct LogTimes {
    /// The date of the latest row as the log writes it, and its midnight in milliseconds since
    /// 1970.
    day: String,
    midnight: i64,
    /// The form of the latest date that was of no usual form.
    form: usize,
    /// Whether the latest time had a date.
    pub(super) has_date: bool,
    /// How far the latest date's time zone is ahead of UTC, in milliseconds. 0 for a date without a
    /// zone.
    pub(super) zone: i64,
}

impl LogTimes {
    /// Parses a time and returns milliseconds: since 1970 for a date like `2026/11/21
    /// 13:05:42.123`; since midnight or the start of the log for `13:05:42.123`; for a bare number,
    /// multiples of `unit` milliseconds. Without a unit, a bare number counts seconds unless it is
    /// too large for that.
    pub(super) fn time(&mut self, cell: &str, unit: Option<f64>) -> Option<i64> {
        let date = self.date(cell);
        let time = date.or_else(|| since_start(cell, unit))?;
        self.has_date = date.is_some();
        Some(time)
    }

    /// Parses a date with a time of day, such as `2026/11/21 13:05:42.123` or
    /// `2026-11-21T13:05:42Z`, and returns milliseconds since 1970. A time without a zone is taken
    /// for UTC.
    pub(super) fn date(&mut self, cell: &str) -> Option<i64> {
        /// Shorter text is no date with a time of day.
        const SHORTEST: usize = "2026-1-1 1:00:00".len();
        if cell.len() < SHORTEST || !cell.contains(':') {
            return None;
        }
        if let Some(time) = cell
            .strip_prefix(self.day.as_str())
            .filter(|_| !self.day.is_empty())
            && let Some(time) = time.strip_prefix([' ', 'T'])
        {
            let (time, zone) = time_of_day_with_zone(time)?;
            self.zone = zone;
            return Some(self.midnight + time);
        }
        let Some((day, time)) = cell.split_once([' ', 'T']) else {
            return self.date_of_other_form(cell);
        };
        let Some(midnight) = midnight(day) else {
            return self.date_of_other_form(cell);
        };
        let (time, zone) = time_of_day_with_zone(time)?;
        (self.day, self.midnight, self.zone) = (day.to_owned(), midnight, zone);
        Some(midnight + time)
    }

    fn date_of_other_form(&mut self, cell: &str) -> Option<i64> {
        let (cell, zone) = without_zone(cell);
        let cell = without_zone_name(cell);
        let parse = |form: usize| {
            let parsed = BrokenDownTime::parse(OTHER_FORMS[form], &cell)
                .ok()?
                .to_datetime()
                .ok()?;
            Some(milliseconds(parsed) - zone)
        };
        let known = parse(self.form).map(|time| (self.form, time));
        let (form, time) =
            known.or_else(|| (0..OTHER_FORMS.len()).find_map(|form| Some((form, parse(form)?))))?;
        (self.form, self.zone) = (form, zone);
        Some(time)
    }
}

/// Parses a time without a date, in milliseconds.
fn since_start(cell: &str, unit: Option<f64>) -> Option<i64> {
    /// 3,000 years in milliseconds. A larger time has another unit than the header says.
    const LONGEST: f64 = 1e14;
    if let Some(time) = clock(cell) {
        return Some(time);
    }
    let value: f64 = cell.parse().ok()?;
    let value = match (value.abs(), unit) {
        (size, Some(unit)) if size * unit < LONGEST => value * unit,
        // Nanoseconds, microseconds and milliseconds since 1970.
        (1e17.., _) => value / 1e6,
        (1e14.., _) => value / 1e3,
        (1e11.., _) => value,
        _ => value * 1000.0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "the value is small")]
    (value.abs() < 1e16).then(|| value.round() as i64)
}

/// Parses `13:05:42.123`. The PCI address `0000:17:00.0` is not a time.
fn clock(cell: &str) -> Option<i64> {
    let (hours, rest) = cell.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':')?;
    let whole = seconds.split('.').next()?;
    let is_digits = |part: &str, most: usize| {
        part.len() <= most && part.bytes().all(|digit| digit.is_ascii_digit())
    };
    let is_padded = hours.len() > 2 && hours.starts_with('0');
    if is_padded || !is_digits(hours, 4) || !is_digits(minutes, 2) || !is_digits(whole, 2) {
        return None;
    }
    time_of_day(hours, minutes, seconds)
}

/// Parses a time of day and returns milliseconds. Hours may exceed 23.
fn time_of_day(hours: &str, minutes: &str, seconds: &str) -> Option<i64> {
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds: f64 = seconds.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "below 61,000")]
    let milliseconds = ((0..60).contains(&minutes) && (0.0..61.0).contains(&seconds))
        .then(|| (seconds * 1000.0).round() as i64)?;
    Some((hours * 60 + minutes) * MINUTE_MS + milliseconds)
}

/// Parses the time of day after a date. Returns milliseconds since midnight in UTC, which may be
/// the day before, and how far its time zone is ahead of UTC.
fn time_of_day_with_zone(time: &str) -> Option<(i64, i64)> {
    let (time, zone) = without_zone(time.trim());
    let mut parts = time.splitn(3, ':');
    let time = time_of_day(parts.next()?, parts.next()?, parts.next()?)?;
    (0..=DAY_MS + SECOND_MS)
        .contains(&time)
        .then_some((time - zone, zone))
}

/// Parses `2026/11/21`, `2026-11-21` or `20261121`. Returns its midnight in milliseconds since
/// 1970.
fn midnight(day: &str) -> Option<i64> {
    let [year, month, day] = if day.len() == 8 && day.bytes().all(|digit| digit.is_ascii_digit()) {
        [&day[..4], &day[4..6], &day[6..]]
    } else {
        let mut parts = day.split(['/', '-']);
        let parts = [
            parts.next()?,
            parts.next()?,
            parts.next().filter(|_| parts.next().is_none())?,
        ];
        // `11/21/2026` has its year at the end.
        parts
            .into_iter()
            .all(|part| part.len() <= 4)
            .then_some(parts)
            .filter(|parts| parts[0].len() == 4)?
    };
    let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some(milliseconds(
        date.to_datetime(jiff::civil::Time::midnight()),
    ))
}

/// Returns milliseconds since 1970.
fn milliseconds(time: DateTime) -> i64 {
    time.to_zoned(jiff::tz::TimeZone::UTC)
        .map_or(0, |time| time.timestamp().as_millisecond())
}

/// Splits the offset from UTC off a time of day. Returns the offset in milliseconds.
fn without_zone(clock: &str) -> (&str, i64) {
    if clock
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b':' || byte == b'.')
    {
        return (clock, 0);
    }
    if let Some(clock) = ["Z", "z", "UTC", "GMT"]
        .into_iter()
        .find_map(|zone| clock.strip_suffix(zone))
    {
        return (clock.trim_end(), 0);
    }
    let Some(sign_offset) = clock.rfind(['+', '-']) else {
        return (clock, 0);
    };
    let digits: String = clock[sign_offset + 1..]
        .chars()
        .filter(|digit| *digit != ':')
        .collect();
    match digits.parse::<i64>() {
        Ok(zone) if digits.len() == 4 && clock[..sign_offset].contains(':') => {
            let sign = if clock[sign_offset..].starts_with('-') {
                -1
            } else {
                1
            };
            (
                clock[..sign_offset].trim_end(),
                sign * (zone / 100 * 60 + zone % 100) * MINUTE_MS,
            )
        }
        _ => (clock, 0),
    }
}

/// Removes the name of a time zone, such as the `CET` in `Sat Nov 21 13:05:42 CET 2026`: a log
/// stays in its zone, and [`super::time_order`] sees the hours that daylight saving time adds and
/// skips.
fn without_zone_name(cell: &str) -> String {
    let is_zone = |word: &&str| {
        (3..=5).contains(&word.len()) && word.bytes().all(|letter| letter.is_ascii_uppercase())
    };
    cell.split_whitespace()
        .filter(|word| !is_zone(word))
        .collect::<Vec<_>>()
        .join(" ")
}
