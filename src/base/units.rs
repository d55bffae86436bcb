//! Quantities, each with a type of its own, and how they are printed: within a fixed width, so that
//! columns do not move.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{SignedDuration, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::time::Moment;

/// An amount of memory.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The most columns that an amount takes.
    pub const WIDTH: usize = 9;

    /// Returns this number of KiB.
    pub fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }

    /// Returns this number of MiB.
    pub fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// Returns this number of GiB.
    pub fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(1 << 30))
    }

    /// Returns the amount in GiB.
    #[expect(clippy::cast_precision_loss, reason = "2^53 bytes are 8 PiB")]
    pub fn gib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 30)
    }

    /// Subtracts another amount; 0 when the other amount is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Rounds the amount as it is printed: amounts that look the same are equal.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the amount was a u64"
    )]
    pub fn as_shown(self) -> Self {
        let (value, unit, decimals) = self.parts();
        let ten = 10_f64.powi(i32::from(decimals));
        Self(((value * ten).round_ties_even() / ten * 1024_f64.powi(i32::from(unit))) as u64)
    }

    /// Returns the printed form: the number, its unit as a power of 1024, and the digits after the
    /// point.
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn parts(self) -> (f64, u8, u8) {
        let (mut value, mut unit) = (self.0 as f64, 0);
        // 999.95 would print as 1000.0, which is a column wider. Bytes are printed as they are.
        while value >= if unit == 0 { 1024.0 } else { 999.95 } && unit < 6 {
            value /= 1024.0;
            unit += 1;
        }
        (value, unit, u8::from(unit > 1 && value < 99.95))
    }

    /// Returns the number of bytes in a unit of this name: 2^30 for `G` and `GiB`, 10^9 for `GB`.
    /// `None` for an unknown unit.
    pub fn unit(name: &str) -> Option<u64> {
        const UNITS: [(&[&str], u64); 9] = [
            (&["b", "byte", "bytes"], 1),
            (&["k", "kib"], 1 << 10),
            (&["m", "mib"], 1 << 20),
            (&["g", "gib"], 1 << 30),
            (&["t", "tib"], 1 << 40),
            (&["kb"], 1000),
            (&["mb"], 1_000_000),
            (&["gb"], 1_000_000_000),
            (&["tb"], 1_000_000_000_000),
        ];
        UNITS.iter().find_map(|(names, unit)| {
            names
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
                .then_some(*unit)
        })
    }

    /// Parses the number of an amount in units of `unit` bytes: `20`, `1.5`, `1.07e+10`. `None` for
    /// text that is no number, or too large.
    pub fn parse_number(number: &str, unit: u64) -> Option<Self> {
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Self);
        }
        #[expect(clippy::cast_precision_loss, reason = "units are powers of two or ten")]
        let bytes = number.parse::<f64>().ok()? * unit as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked on this line"
        )]
        (0.0..1e18)
            .contains(&bytes)
            .then(|| Self(bytes.round() as u64))
    }

    /// Returns the amount as a share of `whole`; `None` when `whole` is 0.
    #[expect(clippy::cast_precision_loss, reason = "a gauge has some dozen cells")]
    pub fn share_of(self, whole: Self) -> Option<f64> {
        (whole.0 > 0).then(|| self.0 as f64 / whole.0 as f64)
    }
}

/// Saturates, since a remote agent may send any amount.
impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self(0), Add::add)
    }
}

impl FromStr for Bytes {
    type Err = String;

    /// Parses `1024`, `20GiB`, `20 GiB`, `20G` (the same) or `20GB` (10^9 bytes each).
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let unit = text
            .find(|character: char| character.is_ascii_alphabetic())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(unit);
        let factor = if unit.is_empty() {
            Some(1)
        } else {
            Self::unit(unit)
        };
        let factor = factor
            .ok_or_else(|| format!("`{unit}` is no unit of memory: say GiB, MiB, KiB, GB…"))?;
        Self::parse_number(number.trim(), factor)
            .ok_or_else(|| format!("`{text}` is not an amount of memory, as in `20GiB`"))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let (value, unit, decimals) = self.parts();
        f.pad(&format!(
            "{value:.*} {}",
            usize::from(decimals),
            UNITS[usize::from(unit)]
        ))
    }
}

/// A share of one GPU or one core in percent, rounded to a tenth: smaller changes need not be sent.
/// CPU use counts cores and may exceed 100.
#[derive(
    Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Percent(f32);

impl Percent {
    /// The columns that a share takes, as in `100%`.
    pub const WIDTH: usize = 4;

    /// Rounds a share to a tenth.
    pub fn new(value: f32) -> Self {
        Self((value * 10.0).round() / 10.0)
    }

    /// Rounds the share as it is printed: shares that look the same are equal.
    pub fn as_shown(self) -> Self {
        Self(self.0.round_ties_even())
    }

    /// Returns the number; 100 for a whole GPU or core.
    pub fn value(self) -> f32 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.0}%", self.0))
    }
}

/// A temperature in degrees Celsius.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Celsius(pub i32);

impl fmt::Display for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}°C", self.0))
    }
}

/// Electric power, rounded to a tenth of a watt.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Watts(f32);

impl Watts {
    /// Converts NVML's milliwatts.
    #[expect(clippy::cast_precision_loss, reason = "a GPU draws less than 2^24 mW")]
    pub fn from_milliwatts(milliwatts: u32) -> Self {
        Self((milliwatts as f32 / 100.0).round() / 10.0)
    }

    /// Returns the number of watts.
    pub fn value(self) -> f32 {
        self.0
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.0}W", self.0))
    }
}

/// The frequency of a clock in hertz, printed in MHz.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Hertz(pub u64);

impl Hertz {
    /// Converts NVML's MHz.
    pub fn from_mhz(mhz: u32) -> Self {
        Self(u64::from(mhz) * 1_000_000)
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} MHz", self.0 / 1_000_000))
    }
}

/// Parses a span of time: `2`, `0.5` (seconds), `500ms`, `1m 30s`, `7d`.
///
/// # Errors
///
/// When the text is no span of time, or a negative one: a sentence.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    /// The first day of a year without a leap day, for months and years.
    const FIRST_DAY: Date = Date::constant(2001, 1, 1);
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    let span = text
        .parse()
        .ok()
        .and_then(|span: Span| span.to_duration(FIRST_DAY).ok());
    span.and_then(|span| span.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no span of time; try 500ms, 2s, 1m 30s or 7d"))
}

/// A span of time with all of its units: `500ms`, `1m 30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactSpan(pub Duration);

impl fmt::Display for ExactSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        f.pad(&format!("{span:#}"))
    }
}

/// A span of time in its two largest units: `7s`, `4m05s`, `3h12m`, `9d04h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed(pub Duration);

impl Elapsed {
    /// The columns that a span of up to 27 years takes.
    pub const WIDTH: usize = 6;
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
        f.pad(&match () {
            () if seconds < 60 => format!("{seconds}s"),
            () if minutes < 60 => format!("{minutes}m{:02}s", seconds % 60),
            () if hours < 24 => format!("{hours}h{:02}m", minutes % 60),
            () if days < 100 => format!("{days}d{:02}h", hours % 24),
            () => format!("{days}d"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: impl fmt::Display, expected: &str) {
        assert_eq!(value.to_string(), expected);
    }

    #[test]
    fn bytes_show_three_digits_and_fit_their_column() {
        check(Bytes(0), "0 B");
        check(Bytes(1023), "1023 B");
        check(Bytes::from_kib(512), "512 KiB");
        check(Bytes::from_mib(1), "1.0 MiB");
        check(Bytes::from_mib(1000), "1.0 GiB");
        check(Bytes(65_712_345_088), "61.2 GiB");
        check(Bytes::from_gib(640), "640 GiB");
        for shift in 0..64 {
            let text = Bytes((1 << shift) - 1).to_string();
            assert!(text.len() <= Bytes::WIDTH, "{text}");
        }
        check(Bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn amounts_are_parsed_with_any_unit() {
        let read = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0);
        assert_eq!(read("1024"), Ok(1024));
        assert_eq!(
            (read("20GiB"), read("20 gib"), read("20G")),
            (Ok(20 << 30), Ok(20 << 30), Ok(20 << 30))
        );
        assert_eq!(
            (read("1.5 GiB"), read("80GB")),
            (Ok(3 << 29), Ok(80_000_000_000))
        );
        for wrong in [
            "",
            "GiB",
            "-1GiB",
            "20 parsec",
            "1e400",
            "NaN",
            "99999999999999999999",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_that_look_the_same_are_equal_and_keep_their_order() {
        let mut amounts: Vec<u64> = (0..64)
            .flat_map(|shift| [1 << shift, 999 << shift.min(54), 1051 << shift.min(53)])
            .collect();
        amounts.extend((0..3000).map(|step| step << 17));
        amounts.sort_unstable();
        for pair in amounts.windows(2) {
            let (a, b) = (Bytes(pair[0]), Bytes(pair[1]));
            assert!(a.as_shown() <= b.as_shown(), "{a} {b}");
            assert_eq!(
                a.as_shown() == b.as_shown(),
                a.to_string() == b.to_string(),
                "{a:?} {b:?}"
            );
        }
    }

    #[test]
    fn a_span_is_shown_in_its_two_largest_units() {
        check(Elapsed(Duration::from_secs(59)), "59s");
        check(Elapsed(Duration::from_secs(245)), "4m05s");
        check(Elapsed(Duration::from_mins(192)), "3h12m");
        check(Elapsed(Duration::from_hours(9 * 24 + 4)), "9d04h");
        check(Elapsed(Duration::from_hours(400 * 24)), "400d");
    }

    #[test]
    fn a_share_of_zero_is_none() {
        assert_eq!(Bytes(1).share_of(Bytes(0)), None);
    }
}
