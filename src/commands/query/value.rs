//! One value as nvidia-smi writes it, and the words that nvidia-smi writes where a value is missing.

use std::fmt::Display;
use std::time::{Duration, UNIX_EPOCH};

use crate::base::units::{Bytes, Celsius, Hertz, Percent};
use crate::protocol::snapshot::{Missing, Reading};

/// A value in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QueryValue {
    /// The text of a value, without its unit.
    Known(String),
    /// The words that stand for a missing value.
    Absent(&'static str),
}

/// The GPU does not support the reading.
pub(super) const NOT_AVAILABLE: QueryValue = QueryValue::Absent("[N/A]");
/// The reading failed.
pub(super) const UNKNOWN_ERROR: QueryValue = QueryValue::Absent("[Unknown Error]");
/// The answer of newer drivers to fields that NVIDIA has withdrawn.
pub(super) const DEPRECATED: QueryValue = QueryValue::Absent("[Requested functionality has been deprecated]");

impl QueryValue {
    pub(super) fn plain(value: impl Display) -> Self {
        Self::Known(value.to_string())
    }

    pub(super) fn missing(reason: Missing) -> Self {
        match reason {
            Missing::Unsupported | Missing::Gone => NOT_AVAILABLE,
            Missing::Denied => Self::Absent("[Insufficient Permissions]"),
            Missing::Failed | Missing::NotYet => UNKNOWN_ERROR,
        }
    }

    pub(super) fn of<T>(reading: Reading<T>, show: impl FnOnce(T) -> Self) -> Self {
        reading.map_or_else(Self::missing, show)
    }

    /// Returns the text, followed by `unit` unless that is empty or the value is missing.
    pub(super) fn text(&self, unit: &str) -> String {
        match self {
            Self::Known(value) if unit.is_empty() => value.clone(),
            Self::Known(value) => format!("{value} {unit}"),
            Self::Absent(words) => (*words).to_owned(),
        }
    }
}

pub(super) fn plain(reading: &Reading<impl Display>) -> QueryValue {
    match reading {
        Ok(value) => QueryValue::plain(value),
        Err(missing) => QueryValue::missing(*missing),
    }
}

/// Whole MiB, rounded up as nvidia-smi does.
pub(super) fn mib(reading: Reading<Bytes>) -> QueryValue {
    plain(&reading.map(|bytes| bytes.0.div_ceil(1 << 20)))
}

pub(super) fn percent(reading: Reading<Percent>) -> QueryValue {
    plain(&reading.map(|share| format!("{:.0}", share.value())))
}

pub(super) fn celsius(reading: Reading<Celsius>) -> QueryValue {
    plain(&reading.map(|temperature| temperature.0))
}

pub(super) fn mhz(reading: Reading<Hertz>) -> QueryValue {
    plain(&reading.map(|clock| clock.0 / 1_000_000))
}

/// Watts with two decimals, from milliwatts.
pub(super) fn watts(reading: Reading<u32>) -> QueryValue {
    plain(&reading.map(|milliwatts| format!("{}.{:02}", milliwatts / 1000, milliwatts % 1000 / 10)))
}

/// Whole microseconds, from nanoseconds.
pub(super) fn microseconds(reading: Reading<u64>) -> QueryValue {
    plain(&reading.map(|nanoseconds| nanoseconds / 1000))
}

pub(super) fn enabled(reading: Reading<bool>) -> QueryValue {
    choice(reading, ["Disabled", "Enabled"])
}

pub(super) fn yes(reading: Reading<bool>) -> QueryValue {
    choice(reading, ["No", "Yes"])
}

/// The first word for `false`, the second one for `true`.
pub(super) fn choice(reading: Reading<bool>, words: [&'static str; 2]) -> QueryValue {
    plain(&reading.map(|choice| words[usize::from(choice)]))
}

/// The word for a number of one of NVML's enumerations, which count from 0.
pub(super) fn word(reading: Reading<u32>, words: &[&'static str]) -> QueryValue {
    QueryValue::of(reading, |number| words.get(number as usize).map_or(UNKNOWN_ERROR, QueryValue::plain))
}

/// `2026/07/14 08:12:38.696`, in a time zone that is `offset` seconds ahead of UTC.
pub(super) fn timestamp(unix_ms: u64, offset: i32) -> String {
    /// The last millisecond of the year 9999, after which `humantime` formats nothing.
    const LAST_MS: u64 = 253_402_300_799_999;
    let local = unix_ms.saturating_add_signed(i64::from(offset) * 1000).min(LAST_MS);
    let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(local)).to_string();
    time.trim_end_matches('Z').replace('-', "/").replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_the_calendar() {
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
        assert_eq!(mib(Ok(Bytes(1))).text("MiB"), "1 MiB");
        assert_eq!(mib(Ok(Bytes::from_mib(81559))).text(""), "81559");
        assert_eq!(watts(Ok(69_859)).text("W"), "69.85 W");
        assert_eq!(watts(Ok(700_000)).text(""), "700.00");
        assert_eq!(microseconds(Ok(212_553_937_999)).text("us"), "212553937 us");
        assert_eq!(percent(Err(Missing::Unsupported)).text("%"), "[N/A]");
        assert_eq!(plain(&Err::<u32, _>(Missing::Failed)).text(""), "[Unknown Error]");
    }
}
