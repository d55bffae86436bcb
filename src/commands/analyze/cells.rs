//! The cells of a log's row: times, amounts of memory, names of GPUs.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

/// Returns the character between the cells of a line: a comma; a tab in copied tables; a semicolon where commas are
/// decimal; a space between the numbers of numpy and awk.
pub(super) fn separator(line: &str) -> char {
    let is_number = |cell: &str| cell.trim().parse::<f64>().is_ok();
    match (line.contains(','), line.contains('\t'), line.contains(';')) {
        (false, true, _) => '\t',
        (false, _, true) => ';',
        (false, ..) if line.contains(' ') && line.split_whitespace().all(is_number) => ' ',
        (true, _, true) if with_decimal_points(line).split(';').all(is_number) => ';',
        _ => ',',
    }
}

pub(super) fn split(line: &str, separator: char) -> Vec<&str> {
    match separator {
        ' ' => line.split_whitespace().collect(),
        _ => line.split(separator).map(|cell| cell.trim().trim_matches('"')).collect(),
    }
}

/// Replaces decimal commas in cells between semicolons: `0,5;100,5 MiB` becomes `0.5;100.5 MiB`.
pub(super) fn with_decimal_points(line: &str) -> Cow<'_, str> {
    if !line.contains(',') {
        return Cow::Borrowed(line);
    }
    let is_number = |cell: &str| {
        let starts_number = |first: char| first.is_ascii_digit() || first == '-';
        !cell.contains('.')
            && cell.trim().trim_matches('"').starts_with(starts_number)
            && cell.matches(',').count() == 1
    };
    let cells = line.split(';').map(|cell| if is_number(cell) { cell.replacen(',', ".", 1) } else { cell.to_owned() });
    Cow::Owned(cells.collect::<Vec<_>>().join(";"))
}

/// Parses an amount of memory: `1234 MiB`, `1.5GiB`, or a number of `unit` bytes, which numpy writes as `1.07e+10`.
/// Returns `None` if the cell is neither an amount nor one of nvidia-smi's words for a missing value.
pub(super) fn amount(cell: &str, unit: u64) -> Option<Reading<Bytes>> {
    if is_missing(cell) {
        return Some(Err(Missing::Unsupported));
    }
    let suffix = cell.trim_start_matches(|character: char| character.is_ascii_digit() || character == '.');
    let bytes = match Bytes::unit(suffix.trim()) {
        Some(unit) => Bytes::of(&cell[..cell.len() - suffix.len()], unit),
        None => Bytes::of(cell, unit),
    };
    bytes.map(Ok)
}

/// Whether the cell is empty or stands for a missing value: `[N/A]`, `[Not Supported]`, `[Insufficient Permissions]` …
pub(super) fn is_missing(cell: &str) -> bool {
    cell.starts_with('[') && cell.ends_with(']') || cell.eq_ignore_ascii_case("n/a") || cell.is_empty()
}

pub(super) fn is_gpu(cell: &str) -> bool {
    let is_address = || {
        let is_hex = |part: &&str| part.len() >= 2 && part.chars().all(|digit| digit.is_ascii_hexdigit());
        let parts: Vec<&str> = cell.split([':', '.']).collect();
        parts.len() == 4 && parts[..3].iter().all(is_hex) && parts[3].len() == 1
    };
    cell.starts_with("GPU-") || cell.starts_with("MIG-") || is_address()
}

/// Parses a time and returns milliseconds: since 1970 for a date like `2026/11/21 13:05:42.123`; since midnight or the
/// start of the log for `13:05:42.123`; for a bare number, multiples of `unit` milliseconds. Without a unit, a bare number
/// counts seconds unless it is too large for that.
pub(super) fn time(cell: &str, unit: Option<f64>) -> Option<i64> {
    /// 3,000 years in milliseconds. A larger time has another unit than the header says.
    const LONGEST: f64 = 1e14;
    if let Some(time) = date(cell).or_else(|| clock(cell)) {
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
    let is_digits = |part: &str, most: usize| part.len() <= most && part.chars().all(|digit| digit.is_ascii_digit());
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
    let milliseconds =
        ((0..60).contains(&minutes) && (0.0..61.0).contains(&seconds)).then(|| (seconds * 1000.0).round() as i64)?;
    Some((hours * 60 + minutes) * 60_000 + milliseconds)
}

/// Parses a date with a time of day, such as `2026/11/21 13:05:42.123` or `2026-11-21T13:05:42Z`, and returns milliseconds
/// since 1970. A time without a zone is taken for UTC.
pub(super) fn date(cell: &str) -> Option<i64> {
    const DAY_MS: i64 = 24 * 3_600_000;
    const LEAP_SECOND_MS: i64 = 1000;
    let (date, clock) = cell.split_once([' ', 'T'])?;
    let mut date = date.split(['/', '-']).map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let midnight = humantime::parse_rfc3339(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z")).ok()?;
    let midnight = i64::try_from(midnight.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    let (clock, zone) = zone(clock.trim());
    let (hours, rest) = clock.split_once(':')?;
    let time = time_of_day(hours, rest.split_once(':')?.0, rest.split_once(':')?.1)?;
    (0..=DAY_MS + LEAP_SECOND_MS).contains(&time).then(|| midnight + time - zone)
}

/// Splits the time zone off a time of day. Returns how far the zone is ahead of UTC, in milliseconds.
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
