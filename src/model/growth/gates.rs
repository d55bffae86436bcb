//! The gates of the detector: each is one condition on a growth, with its figures.
//!
//! A growth has a grade when it meets all conditions of the grade. They are computed one after the
//! other, the costly ones last, so that the first one that is not met ends the work.

use super::buckets::{BucketLevels, Point};
use super::limits::LIMITS;
use super::median_slope;

/// A condition on a growth. Amounts are in KiB, times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Growth is regular: the number of the last parts in which the floor rose by similar amounts.
    Regular,
    /// Growth does not only return to an amount held before: the share of the time before in which
    /// about as much was held.
    NoReturn,
    /// Growth is not one more rise of a series that goes up and down: the amount gained, compared
    /// with the largest earlier rise that was given back.
    NoWave,
    /// The gains are even, so that chance does not explain their mean: the mean in standard errors.
    StandardErrors,
    /// Growth does not slow down: the rate of the second half as a share of that of the first.
    Speed,
    /// Growth does not slow down by the moments at which the floor rose: the same ratio.
    SpeedByRises,
    /// A part is long enough to show regular growth: its number of buckets.
    PartLength,
    /// Growth has enough parts: their number.
    Parts,
    /// Growth has lasted long enough: its time.
    Span,
    /// Memory is full within a day: the time until then.
    WithinDay,
    /// Growth goes beyond the leak that stopped before it: the amount held.
    BeyondStoppedLeak,
}

/// A gate with the figure that decides, and the limit of that figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Condition {
    pub(super) gate: Gate,
    pub(super) measured: f64,
    pub(super) limit: f64,
}

impl Condition {
    pub(super) fn is_met(&self) -> bool {
        match self.gate {
            Gate::NoReturn | Gate::WithinDay => self.measured <= self.limit,
            _ => self.measured >= self.limit,
        }
    }
}

/// A grade of a growth. Only [`Grade::Growth`] is needed for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grade {
    /// It is growth, and not one of the rises and falls of the series.
    Growth,
    /// It does not slow down more than a suspect may.
    Even,
    /// It is suspect, if it is even.
    Suspect,
    Leak,
}

impl Grade {
    pub(super) fn gates(self) -> &'static [Gate] {
        match self {
            Self::Growth => &[Gate::Regular, Gate::NoReturn, Gate::NoWave],
            Self::Even => &[Gate::Speed, Gate::StandardErrors],
            Self::Suspect => &[Gate::Span],
            Self::Leak => &[
                Gate::PartLength,
                Gate::StandardErrors,
                Gate::Parts,
                Gate::Span,
                Gate::Speed,
                Gate::SpeedByRises,
            ],
        }
    }
}

/// The share of the time before a growth in which about as much was held as the growth reaches: the
/// series goes up and down. An earlier short bump does not count, since less was held most of the
/// time.
#[expect(clippy::cast_precision_loss, reason = "a level has few buckets")]
pub(super) fn share_of_return(before: &[Point], floor: f64, gained: f64) -> f64 {
    let limits = &LIMITS.gates;
    let above = |below: f64| {
        let height = floor - below * gained;
        before.iter().filter(|point| point.low > height).count()
    };
    let below = if above(limits.near_return) > 0 {
        limits.return_after_near
    } else {
        limits.return_below
    };
    above(below) as f64 / before.len().max(1) as f64
}

/// The largest rise in KiB that was given back, in a series that ends at a floor. It rises in many
/// buckets, and in none by much of the whole: requests that come and go make no wave.
pub(super) fn largest_wave(before: &[Point], floor: f64) -> f64 {
    let limits = &LIMITS.gates;
    let (mut largest, mut lowest_later) = (0.0, floor);
    // The rise that ends at `top`: its buckets, its steepest one, and the lowest amount after it.
    let (mut top, mut rises, mut steepest, mut after) = (0.0, 0_u8, 0.0, floor);
    let mut later = None;
    for point in before.iter().rev() {
        match later.filter(|later| point.low < *later) {
            Some(later) => {
                rises = rises.saturating_add(1);
                steepest = f64::max(steepest, later - point.low);
            }
            None => (top, rises, steepest, after) = (point.low, 0, 0.0, lowest_later),
        }
        let rise = top - point.low;
        let is_wave = rises >= limits.rises_of_wave && steepest < limits.steepest_of_wave * rise;
        if is_wave && after < point.low + 0.5 * rise {
            largest = f64::max(largest, rise);
        }
        lowest_later = lowest_later.min(point.low);
        later = Some(point.low);
    }
    largest
}

/// The rate of the second half as a share of that of the first, each the median slope of the floor
/// between the moments at which it rose. Memory grows in pieces, so that the time between those
/// moments is better known than the gain of a part. `None` if the floor rose too seldom.
pub(super) fn speed_by_rises(levels: &BucketLevels, from: f64) -> Option<f64> {
    let points = levels.reaching(from);
    let known = points.as_slice();
    let known = &known[known.partition_point(|point| point.at < from)..];
    let mut rises: Vec<(f64, f64)> = Vec::with_capacity(known.len());
    for point in known.iter().rev() {
        if rises.last().is_none_or(|later| point.low < later.1) {
            rises.push((point.at, point.low));
        }
    }
    let middle = f64::midpoint(rises.first()?.0, rises.last()?.0);
    let half = rises.partition_point(|rise| rise.0 >= middle);
    Some(median_slope(&rises[..half])? / median_slope(&rises[half..])?)
}
