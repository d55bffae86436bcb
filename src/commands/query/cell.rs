//! One value as nvidia-smi writes it, and what it writes where there is none.

use std::fmt::Display;

use crate::base::units::{Bytes, Celsius, Hertz, Percent};
use crate::protocol::snapshot::{Missing, Reading};

/// What stands in one place of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    /// A value, and its unit: empty where it has none.
    Value(String, &'static str),
    /// Why there is none, in brackets.
    None(&'static str),
}

/// This GPU never reports it.
pub(super) const NOT_AVAILABLE: Cell = Cell::None("[N/A]");
/// The driver answers so since it was made to.
pub(super) const DEPRECATED: Cell = Cell::None("[Requested functionality has been deprecated]");

impl Cell {
    pub(super) fn plain(value: impl Display) -> Self {
        Self::Value(value.to_string(), "")
    }

    pub(super) fn missing(why: Missing) -> Self {
        match why {
            Missing::Unsupported | Missing::Gone => NOT_AVAILABLE,
            Missing::Denied => Self::None("[Insufficient Permissions]"),
            Missing::Failed | Missing::NotYet => Self::None("[Unknown Error]"),
        }
    }

    pub(super) fn of<T>(reading: Reading<T>, show: impl FnOnce(T) -> Self) -> Self {
        reading.map_or_else(Self::missing, show)
    }

    pub(super) fn text(&self, units: bool) -> String {
        match self {
            Self::Value(value, unit) if units && !unit.is_empty() => format!("{value} {unit}"),
            Self::Value(value, _) => value.clone(),
            Self::None(why) => (*why).to_owned(),
        }
    }
}

pub(super) fn plain<T: Display>(reading: Reading<T>) -> Cell {
    Cell::of(reading, Cell::plain)
}

/// Whole MiB, rounded up: a byte more is one more.
pub(super) fn mib(reading: Reading<Bytes>) -> Cell {
    Cell::of(reading, |it| Cell::Value(it.0.div_ceil(1 << 20).to_string(), "MiB"))
}

pub(super) fn percent(reading: Reading<Percent>) -> Cell {
    Cell::of(reading, |it| Cell::Value(format!("{:.0}", it.value()), "%"))
}

pub(super) fn celsius(reading: Reading<Celsius>) -> Cell {
    Cell::of(reading, |it| Cell::plain(it.0))
}

pub(super) fn mhz(reading: Reading<Hertz>) -> Cell {
    Cell::of(reading, |it| Cell::Value((it.0 / 1_000_000).to_string(), "MHz"))
}

/// From milliwatts.
pub(super) fn watts(reading: Reading<u32>) -> Cell {
    Cell::of(reading, |it| Cell::Value(format!("{}.{:02}", it / 1000, it % 1000 / 10), "W"))
}

/// From nanoseconds.
pub(super) fn microseconds(reading: Reading<u64>) -> Cell {
    Cell::of(reading, |it| Cell::Value((it / 1000).to_string(), "us"))
}

pub(super) fn enabled(reading: Reading<bool>) -> Cell {
    Cell::of(reading, |it| Cell::plain(if it { "Enabled" } else { "Disabled" }))
}

pub(super) fn yes(reading: Reading<bool>) -> Cell {
    Cell::of(reading, |it| Cell::plain(if it { "Yes" } else { "No" }))
}

/// `2026/07/14 08:12:38.696` of the host's local time.
pub(super) fn timestamp(unix_ms: u64, offset: i32) -> String {
    let local = i64::try_from(unix_ms).map_or(0, |it| it + i64::from(offset) * 1000).max(0);
    let (seconds, ms) = (local / 1000, local % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}")
}

/// Year, month and day, so many days after 1970 began.
fn date(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of year 0, so that the leap day is the last of its year, in eras of 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_ms, offset, expected) in [
            (0, 0, "1970/01/01 00:00:00.000"),
            (951_827_696_789, 0, "2000/02/29 12:34:56.789"),
            (1_784_016_758_696, 0, "2026/07/14 08:12:38.696"),
            (1_784_016_758_696, 7200, "2026/07/14 10:12:38.696"),
            (1_767_225_599_999, 3600, "2026/01/01 00:59:59.999"),
            (4_107_542_399_000, 0, "2100/02/28 23:59:59.000"),
            (4_107_542_400_000, 0, "2100/03/01 00:00:00.000"),
        ] {
            assert_eq!(timestamp(unix_ms, offset), expected);
        }
    }

    #[test]
    fn values_round_as_nvidia_smi_does() {
        assert_eq!(mib(Ok(Bytes(1))).text(true), "1 MiB");
        assert_eq!(mib(Ok(Bytes::from_mib(81559))).text(false), "81559");
        assert_eq!(watts(Ok(69_859)).text(true), "69.85 W");
        assert_eq!(watts(Ok(700_000)).text(false), "700.00");
        assert_eq!(microseconds(Ok(212_553_937_999)).text(true), "212553937 us");
        assert_eq!(percent(Err(Missing::Unsupported)).text(true), "[N/A]");
        assert_eq!(plain::<u32>(Err(Missing::Failed)).text(false), "[Unknown Error]");
    }
}
