//! What stands in one cell of a log: a time, an amount of memory, a GPU.

use std::borrow::Cow;

use crate::base::units::Bytes;

/// What stands between the cells of a line: in tables that were copied it is a tab, in those of countries with a
/// decimal comma a semicolon, and blanks between the numbers that numpy and awk write.
pub(super) fn separator(line: &str) -> char {
    let is_number = |cell: &str| cell.trim().parse::<f64>().is_ok();
    match (line.contains(','), line.contains('\t'), line.contains(';')) {
        (false, true, _) => '\t',
        (false, _, true) => ';',
        (false, ..) if line.contains(' ') && line.split_whitespace().all(is_number) => ' ',
        (true, _, true) if with_points(line).split(';').all(is_number) => ';',
        _ => ',',
    }
}

/// The cells of a line.
pub(super) fn split(line: &str, separator: char) -> Vec<&str> {
    match separator {
        ' ' => line.split_whitespace().collect(),
        _ => line.split(separator).map(|it| it.trim().trim_matches('"')).collect(),
    }
}

/// A line of cells between semicolons, with a point for the comma of each number: `0.5;100.5 MiB` for `0,5;100,5 MiB`.
pub(super) fn with_points(line: &str) -> Cow<'_, str> {
    if !line.contains(',') {
        return Cow::Borrowed(line);
    }
    let is_number = |cell: &str| {
        let begins = |it: char| it.is_ascii_digit() || it == '-';
        !cell.contains('.') && cell.trim().trim_matches('"').starts_with(begins) && cell.matches(',').count() == 1
    };
    let cells = line.split(';').map(|it| if is_number(it) { it.replacen(',', ".", 1) } else { it.to_owned() });
    Cow::Owned(cells.collect::<Vec<_>>().join(";"))
}

/// What a cell says of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(Bytes),
    /// The driver did not say: `[N/A]`.
    Missing,
}

/// An amount: `1234 MiB`, `1.5GiB`, or a bare number of `unit` bytes, which numpy writes as `1.07e+10`.
pub(super) fn amount(cell: &str, unit: u64) -> Option<Amount> {
    if is_missing(cell) {
        return Some(Amount::Missing);
    }
    let suffix = cell.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.');
    let bytes = match Bytes::unit(suffix.trim()) {
        Some(unit) => Bytes::of(&cell[..cell.len() - suffix.len()], unit),
        None => Bytes::of(cell, unit),
    };
    bytes.map(Amount::Bytes)
}

/// `[N/A]`, `[Not Supported]`, `[Insufficient Permissions]` and the like.
pub(super) fn is_missing(cell: &str) -> bool {
    cell.starts_with('[') && cell.ends_with(']') || cell.eq_ignore_ascii_case("n/a") || cell.is_empty()
}

/// How a GPU is named: by its UUID, or by its address on the bus.
pub(super) fn is_gpu(cell: &str) -> bool {
    let is_address = || {
        let hex = |it: &str| it.len() >= 2 && it.chars().all(|it| it.is_ascii_hexdigit());
        let parts: Vec<&str> = cell.split([':', '.']).collect();
        parts.len() == 4 && parts[..3].iter().all(|it| hex(it)) && parts[3].len() == 1
    };
    cell.starts_with("GPU-") || cell.starts_with("MIG-") || is_address()
}

/// A time in milliseconds: since 1970 for `2026/11/21 13:05:42.123` and the like (of no known zone), as it is for a bare
/// number, which is of `unit` milliseconds or, where nobody says that, of seconds unless it is too large for that.
pub(super) fn time(cell: &str, unit: Option<f64>) -> Option<i64> {
    if let Some(time) = date(cell).or_else(|| clock(cell)) {
        return Some(time);
    }
    let value: f64 = cell.parse().ok()?;
    let value = match value.abs() {
        // Nothing that began with the log is as long as the time since 1970.
        _ if let Some(unit) = unit.filter(|it| value.abs() * it < 1e14) => value * unit,
        // Since 1970, in nanoseconds, microseconds, milliseconds.
        1e17.. => value / 1e6,
        1e14.. => value / 1e3,
        1e11.. => value,
        _ => value * 1000.0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "it is not large")]
    (value.abs() < 1e16).then(|| value.round() as i64)
}

/// `13:05:42.123`, the time of day, or since it began. An address on the bus, `0000:17:00.0`, is none.
fn clock(cell: &str) -> Option<i64> {
    let mut parts = cell.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let whole = seconds.split('.').next()?;
    let is_digits = |it: &str, most: usize| it.len() <= most && it.chars().all(|it| it.is_ascii_digit());
    let is_padded = hours.len() > 2 && hours.starts_with('0');
    if parts.next().is_some() || is_padded || !is_digits(hours, 4) || !is_digits(minutes, 2) || !is_digits(whole, 2) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds: f64 = seconds.parse().ok()?;
    let is_clock = (0..60).contains(&minutes) && (0.0..61.0).contains(&seconds);
    #[expect(clippy::cast_possible_truncation, reason = "less than a minute")]
    is_clock.then(|| (hours * 3600 + minutes * 60) * 1000 + (seconds * 1000.0).round() as i64)
}

/// `2026/11/21 13:05:42.123`, `2026-11-21T13:05:42Z`.
pub(super) fn date(cell: &str) -> Option<i64> {
    let (day, clock) = cell.split_once([' ', 'T'])?;
    let mut day = day.split(['/', '-']).map(|it| it.parse::<i64>().ok());
    let (year, month, of_month) = (day.next()??, day.next()??, day.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&of_month) || !(1970..=9999).contains(&year) {
        return None;
    }
    let (clock, shift) = zone(clock.trim());
    let mut clock = clock.split(':');
    let (hour, minute): (i64, i64) = (clock.next()?.parse().ok()?, clock.next()?.parse().ok()?);
    let second: f64 = clock.next()?.parse().ok()?;
    if clock.next().is_some()
        || !(0..24).contains(&hour)
        || !(0..60).contains(&minute)
        || !(0.0..61.0).contains(&second)
    {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 61,000")]
    let millis = (second * 1000.0).round() as i64;
    Some(((days(year, month, of_month) * 24 + hour) * 60 + minute) * 60_000 + millis - shift)
}

/// A time of day without its zone, and the milliseconds by which that is ahead.
fn zone(clock: &str) -> (&str, i64) {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return (clock, 0);
    }
    let Some(at) = clock.rfind(['+', '-']) else { return (clock, 0) };
    let digits: String = clock[at + 1..].chars().filter(char::is_ascii_digit).collect();
    match digits.parse::<i64>() {
        Ok(zone) if digits.len() == 4 => {
            let sign = if clock[at..].starts_with('-') { -1 } else { 1 };
            (&clock[..at], sign * (zone / 100 * 60 + zone % 100) * 60_000)
        }
        _ => (clock, 0),
    }
}

/// Days since 1970 of a date of the Gregorian calendar, whose years begin in March here.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
