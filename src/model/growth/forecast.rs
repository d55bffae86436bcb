//! Predicts when memory runs out if growth goes on as it changed from the first half of its time to
//! the second.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::buckets::BucketLevels;
use super::limits::LIMITS;
use super::plateau::LevellingOff;
use super::regular_growth::RegularGrowth;
use super::watched_growth::WatchedGrowth;
use super::{floor, median_slope};

/// A rate of growth in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
pub struct Rate(pub f64);

/// The time until memory runs out, counted from when the forecast was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    pub likely: Duration,
    /// The lower bound: in at most one case in ten, memory runs out sooner.
    pub low: Duration,
    /// The upper bound: in one case in ten, memory runs out later.
    pub high: Duration,
}

/// The rate now, in KiB per second, and its change in a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) rate: f64,
    change: f64,
}

impl Pace {
    /// The pace at the end of a growth. A change between the halves counts as far as it is larger
    /// than scatter; growth that slows down goes on at the rate of its second half.
    pub(super) fn measure(watched: &WatchedGrowth, levels: &BucketLevels) -> Self {
        let growth = watched.telling();
        let [first, second] = growth.rates;
        let change = second - first;
        let sure = (change.abs() - noise(growth) * first).max(0.0);
        if change > 0.0 && sure > 0.0 {
            let change = sure / (0.5 * growth.span);
            return Self {
                rate: f64::midpoint(first, second) + sure,
                change,
            };
        }
        Self {
            rate: if change < 0.0 && sure > 0.0 {
                second
            } else {
                fitted_rate(watched, levels)
            },
            change: 0.0,
        }
    }

    /// Whether the rate changed by more than scatter, upwards.
    pub(super) fn speeds_up(self) -> bool {
        self.change > 0.0
    }

    /// The seconds in which so many KiB are gained.
    fn seconds(self, room: f64) -> f64 {
        if self.change > 0.0 {
            ((self.rate * self.rate + 2.0 * self.change * room).sqrt() - self.rate) / self.change
        } else {
            room / self.rate.max(1e-6)
        }
    }
}

/// The slope of the floor in KiB per second: the median of the slopes between each two buckets
/// (Theil and Sen). A single jump hardly changes it.
fn fitted_rate(watched: &WatchedGrowth, levels: &BucketLevels) -> f64 {
    if watched.rests() {
        return watched.longest.rate();
    }
    let points = levels.reaching(watched.longest.from);
    let known = points.as_slice();
    let known = &known[known.partition_point(|point| point.at < watched.longest.from)..];
    let floor = floor(known);
    let floor: Vec<(f64, f64)> = known.iter().map(|point| point.at).zip(floor).collect();
    median_slope(&floor)
        .filter(|slope| *slope > 0.0)
        .unwrap_or_else(|| watched.longest.rate())
}

/// The standard error of the rate, as a share of it.
fn noise(growth: &RegularGrowth) -> f64 {
    2.0 * growth.scatter / growth.parts.sqrt()
}

/// Predicts when memory runs out at a limit in KiB; `None` when that cannot be predicted.
pub(super) fn forecast(
    watched: &WatchedGrowth,
    levels: &BucketLevels,
    limit: f64,
) -> Option<Forecast> {
    let pace = Pace::measure(watched, levels);
    let now = levels.now();
    let held = watched.floor_now(levels);
    let [usual, most] = peaks(levels).map(|peak| (limit - peak.max(held)).max(0.0));
    let likely = pace.seconds(usual);
    let limits = &LIMITS.forecast;
    let ratio =
        (likely / (now - watched.from).max(1.0)).clamp(limits.least_ratio, limits.largest_ratio);
    let of_distance = limits.error * libm::pow(ratio, limits.error_power);
    let error = limits.deviations * libm::hypot(noise(&watched.longest), of_distance);
    // Close to the limit, where jobs that fill their GPU are, the headroom is half of what is left
    // at most.
    let sure_room = most - (limits.headroom * limit).min(0.5 * most);
    // Growth that became faster may go on to do so by more than in a straight line.
    let sooner = if pace.speeds_up() {
        limits.error_of_acceleration
    } else {
        0.0
    };
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).ok();
    (likely < 1e8).then_some(())?;
    Some(Forecast {
        likely: seconds(likely)?,
        low: seconds((pace.seconds(sure_room) * libm::exp(-error - sooner)).min(likely))?,
        high: seconds(likely * libm::exp(error) + watched.rest.min(likely))?,
    })
}

/// Predicts when memory runs out at a limit in KiB that is below the plateau; `None` if it is above.
pub(super) fn before_plateau(
    levelling_off: &LevellingOff,
    watched: &WatchedGrowth,
    levels: &BucketLevels,
    limit: f64,
) -> Option<Forecast> {
    let held = watched.floor_now(levels);
    let [usual, most] = peaks(levels).map(|peak| (limit - peak.max(held)).max(0.0));
    let sure_room = most - (LIMITS.forecast.headroom * limit).min(0.5 * most);
    let [likely, slow, fast] = levelling_off.seconds(usual);
    let [_, _, soonest] = levelling_off.seconds(sure_room);
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).ok();
    (likely < 1e8).then_some(())?;
    Some(Forecast {
        likely: seconds(likely)?,
        low: seconds(soonest.min(likely))?,
        high: seconds(slow.max(fast).max(likely))?,
    })
}

/// The usual highest amount, and the highest one, in KiB.
fn peaks(levels: &BucketLevels) -> [f64; 2] {
    let mut points = levels.filled(LIMITS.forecast.level_of_peaks);
    if points.as_slice().is_empty() {
        points = levels.filled(0);
    }
    let mut highs: Vec<f64> = points.as_slice().iter().map(|point| point.high).collect();
    highs.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let usual = (highs.len() as f64 * (1.0 - LIMITS.forecast.rare)) as usize;
    // Without a finished bucket, the amount that is held is the highest one.
    [highs.get(usual), highs.last()].map(|peak| peak.copied().map_or(0.0, f64::from))
}
