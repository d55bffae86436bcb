//! The growth of memory as it was measured, with the time over which it was.

use std::fmt;
use std::time::Duration;

use crate::base::units::Bytes;
use crate::model::{Evidence, Rate};

/// A change of memory that was measured for a minute at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ObservedGrowth {
    /// Negative where memory was given back.
    bytes_per_second: f64,
    elapsed: Duration,
}

impl ObservedGrowth {
    /// The shortest period that a rate names.
    const MINUTE: Duration = Duration::from_mins(1);

    const HOUR: Duration = Duration::from_hours(1);

    /// Returns the growth by this many bytes; `None` where it was measured for less than a minute:
    /// a rate per minute would be a guess.
    pub(crate) fn new(bytes: f64, elapsed: Duration) -> Option<Self> {
        (elapsed >= Self::MINUTE).then(|| Self {
            bytes_per_second: bytes / elapsed.as_secs_f64(),
            elapsed,
        })
    }

    /// Returns the growth of a leak; `None` where it was measured for less than a minute.
    pub(crate) fn of_leak(evidence: &Evidence) -> Option<Self> {
        let elapsed = Duration::try_from_secs_f64(evidence.span).ok()?;
        Self::new(evidence.rate.0 * elapsed.as_secs_f64(), elapsed)
    }

    /// Returns the growth in bytes per hour.
    pub(crate) fn per_hour(self) -> f64 {
        self.bytes_per_second * Self::HOUR.as_secs_f64()
    }
}

/// Returns the standard error of the rate of some amounts, each with its second: how far the amounts
/// are from a straight line. `None` with fewer than four.
#[expect(clippy::cast_precision_loss, reason = "some dozen amounts")]
pub(crate) fn rate_error(amounts: &[(f64, f64)]) -> Option<f64> {
    let count = amounts.len() as f64;
    if amounts.len() < 4 {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| amounts.iter().map(of).sum::<f64>() / count;
    let (middle, level) = (mean(|amount| amount.0), mean(|amount| amount.1));
    let spread: f64 = amounts
        .iter()
        .map(|(at, _)| (at - middle) * (at - middle))
        .sum();
    if spread <= 0.0 {
        return None;
    }
    let rate = amounts
        .iter()
        .map(|(at, bytes)| (at - middle) * (bytes - level))
        .sum::<f64>()
        / spread;
    let rest: f64 = amounts
        .iter()
        .map(|(at, bytes)| bytes - level - rate * (at - middle))
        .map(|rest| rest * rest)
        .sum();
    Some(libm::sqrt(rest / (count - 2.0) / spread))
}

/// `+1.5 GiB/min`, `-30 MiB/h`, or `0`. As on the screen, a slow growth is told per hour, but only
/// where it was measured for an hour.
impl fmt::Display for ObservedGrowth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A slower growth, in bytes per hour, is not visible.
        const LEAST: f64 = 1_048_576.0;
        if self.per_hour().abs() < LEAST {
            return out.write_str("0");
        }
        let sign = if self.bytes_per_second < 0.0 {
            '-'
        } else {
            '+'
        };
        let (amount, unit) = if self.elapsed >= Self::HOUR {
            Rate(self.bytes_per_second.abs()).per_unit()
        } else {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an amount of memory"
            )]
            let amount = Bytes((self.bytes_per_second.abs() * 60.0) as u64);
            (amount, "min")
        };
        let amount = amount.to_string().replace(".0 ", " ");
        write!(out, "{sign}{amount}/{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1_073_741_824.0;

    fn words(gib: f64, seconds: u64) -> Option<String> {
        ObservedGrowth::new(gib * GIB, Duration::from_secs(seconds))
            .map(|growth| growth.to_string())
    }

    #[test]
    fn a_straight_line_has_no_error_and_scatter_has_one() {
        let line: Vec<(f64, f64)> = (0..8)
            .map(|at| (f64::from(at), f64::from(3 * at)))
            .collect();
        assert!(rate_error(&line).is_some_and(|error| error < 1e-9));
        let scatter: Vec<(f64, f64)> = line
            .iter()
            .map(|(at, bytes)| (*at, bytes + at % 2.0))
            .collect();
        assert!(rate_error(&scatter).is_some_and(|error| (0.05..0.2).contains(&error)));
        assert_eq!(rate_error(&line[..3]), None);
    }

    #[test]
    fn no_rate_comes_from_less_than_its_period() {
        assert_eq!(words(1.0, 20), None);
        assert_eq!(words(1.5, 60).as_deref(), Some("+1.5 GiB/min"));
        // A slow growth: per hour only after an hour.
        assert_eq!(words(0.01, 1800).as_deref(), Some("+350 KiB/min"));
        assert_eq!(words(0.02, 3600).as_deref(), Some("+20.5 MiB/h"));
        assert_eq!(words(-2.0, 3600).as_deref(), Some("-34.1 MiB/min"));
        assert_eq!(words(0.0001, 3600).as_deref(), Some("0"));
    }
}
