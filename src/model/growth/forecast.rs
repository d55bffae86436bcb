//! Predicts when memory runs out if the growth continues along its path so far, straight or curved.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::buckets::Point;
use super::trend::{Parabola, floor};

/// The share of a GPU's memory that may not be available: the driver keeps some, the log of one process does not show
/// what other processes hold, and the request that fails is larger than what is left.
const HEADROOM: f64 = 0.02;

/// The factor of the upper error bound, calibrated so that the interval contains 80 % of the true ends: with the
/// headroom, hardly any end is before the lower bound.
const UPPER_BOUND_SCALE: f64 = 0.75;
/// The same factor for a sawtooth whose teeth are 3 % of memory or more; from 1 % to 3 %, the factor is interpolated.
const SAWTOOTH_UPPER_BOUND_SCALE: f64 = 1.5;

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

/// The path of a growth so far, in KiB and seconds since boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrowthPath {
    /// The KiB of the floor at 30 % of the time.
    pub(super) base: f64,
    pub(super) gained: f64,
    middle: f64,
    half: f64,
    fit: Parabola,
    /// The curvature used for the forecast: shrunk towards 0 by its uncertainty.
    bend: f64,
    doubt: f64,
    slack: f64,
    /// The standard error of the fitted path, in KiB.
    noise: f64,
    /// The usual height of the maxima above the floor, in KiB.
    above: f64,
    /// The variation of that height, plus the largest step, in KiB.
    spread: f64,
}

impl GrowthPath {
    /// Fits a path to these points; `None` when there are too few.
    pub(super) fn of(points: &[Point]) -> Option<Self> {
        let mut floor = floor(points);
        let heights = &mut floor[..points.len()];
        // In a growth, the lowest amount of a bucket is the amount at its beginning: raise it to that at its middle.
        let mut rise = 0.0;
        for at in 0..heights.len() {
            rise = heights.get(at + 1).map_or(rise, |next| next - heights[at]);
            heights[at] += 0.5 * rise.min(points[at].high - points[at].low);
        }
        let (first, last) = (points.first()?, points.last()?);
        let fit = Parabola::of(points, &heights[..])?;
        let (middle, half) = (f64::midpoint(first.at, last.at), (last.at - first.at) / 2.0);
        // The residuals are correlated: runs of points are above or below the fit. Each run counts as one observation.
        let mut runs = 1.0_f64;
        let mut was_above = None;
        for (point, height) in points.iter().zip(&*heights) {
            let u = (point.at - middle) / half;
            let is_above = *height > fit.height + fit.slope * u + fit.bend * u * u;
            runs += f64::from(u8::from(was_above.is_some_and(|was| was != is_above)));
            was_above = Some(is_above);
        }
        let noise = fit.rest / runs.sqrt();
        let doubt = 3.35 * 2.0 * noise;
        let slack = 1.73 * 2.0 * noise;
        let bend = fit.bend * fit.bend * fit.bend / (fit.bend * fit.bend + doubt * doubt + 1e-9);
        // How far the maxima are above the floor of the next bucket: drops and bumps count, steps do not.
        let mut tops = [0.0_f64; 3];
        let mut jump = 0.0_f64;
        for (at, point) in points.iter().enumerate() {
            let after = heights[(at + 1).min(points.len() - 1)];
            let top = &mut tops[at * 3 / points.len()];
            *top = top.max(point.high - after);
            jump = jump.max(after - heights[at]);
        }
        tops.sort_by(f64::total_cmp);
        let above = tops[1];
        let spread = (tops[2] - tops[0]).min(2.0 * above) + jump;
        Some(Self {
            base: heights[heights.len() * 3 / 10],
            gained: heights[points.len() - 1] - heights[0],
            middle,
            half,
            fit,
            bend,
            doubt,
            slack,
            noise,
            above,
            spread,
        })
    }

    /// The rate in KiB per second at a time in seconds since boot.
    pub(super) fn rate(&self, now: f64) -> f64 {
        let u = (now - self.middle) / self.half;
        (self.fit.slope + 2.0 * self.bend.max(0.0) * u).max(0.0) / self.half
    }

    /// The seconds in which the floor rises by the height of the maxima above it.
    pub(super) fn sawtooth_period(&self, now: f64) -> f64 {
        let rate = self.rate(now);
        if rate > 0.0 { self.above.max(0.0) / rate } else { 0.0 }
    }

    /// Predicts when the growth reaches the limit in KiB; `None` when that cannot be predicted. The upper bound allows
    /// for one more rest of `rest` seconds.
    pub(super) fn reaches(&self, now: f64, limit: f64, rest: f64) -> Option<Forecast> {
        let u = (now - self.middle) / self.half;
        let held = self.fit.height + self.fit.slope * u + self.fit.bend * u * u + self.above;
        let room = (limit - held).max(0.0);
        let parabola = |slope: f64, bend: f64| {
            // From here on, the slope is that of the parabola's end, and may only increase.
            let bend = bend.max(0.0);
            let speed = slope + 2.0 * bend * u;
            match () {
                () if speed <= 0.0 => f64::INFINITY,
                () if bend < 1e-6 * speed => room / speed,
                () => ((speed * speed + 4.0 * bend * room).sqrt() - speed) / (2.0 * bend),
            }
        };
        let exponential = |slope: f64, bend: f64| {
            let bend = bend.clamp(0.0, 0.48 * slope.max(0.0));
            let speed = slope + 2.0 * bend * u;
            let factor = libm::log((slope + 2.0 * bend) / (slope - 2.0 * bend)) / 2.0;
            if factor > 1e-3 { libm::log1p(factor * room / speed) / factor } else { room / speed }
        };
        // A growing curvature means exponential growth, a constant one a parabola.
        let factor = libm::log(
            (self.fit.slope + 2.0 * self.bend) / (self.fit.slope - 2.0 * self.bend).max(0.02 * self.fit.slope),
        ) / 2.0;
        let due = self.bend * 2.0 / 3.0 * factor / 5.0;
        let (due2, noise2) = (due * due, self.fit.rest * self.fit.rest);
        let sure = if self.bend > 0.0 { due2 / (due2 + noise2) } else { 0.0 };
        let share = if due > 0.0 { sure * (self.fit.twist / due).clamp(0.0, 1.0) + (1.0 - sure) * 0.3 } else { 0.0 };
        let after = |slope: f64, bend: f64| {
            let straight = parabola(slope, bend);
            if bend <= 0.0 || slope <= 0.0 {
                return straight * self.half;
            }
            (share * exponential(slope, bend) + (1.0 - share) * straight) * self.half
        };
        let likely = after(self.fit.slope, self.bend);
        let (soon, late) = (
            after(self.fit.slope + self.slack, self.bend + self.doubt),
            after(self.fit.slope - self.slack, self.bend - self.doubt),
        );
        // A young growth does not show whether it is a parabola or an exponential.
        let (slope, bend) = (self.fit.slope, self.bend);
        let either =
            if bend > 0.0 { (parabola(slope, bend) - exponential(slope, bend)).abs() * self.half } else { 0.0 };
        let strays = 5.0 * self.noise * (likely / (2.0 * self.half)).sqrt();
        let margin = 0.002 * likely + (0.3 * self.spread + strays) / self.rate(now).max(1e-9) + 2.0;
        let margin = libm::hypot(margin, 0.35 * if either.is_finite() { either } else { 0.0 });
        // Close to the limit, where jobs that fill their GPU are, the headroom counts as half of what is left at most.
        let headroom = (HEADROOM * limit / room.max(1e-9)).min(0.5) * likely;
        // Memory runs out at the top of a sawtooth, and some time passes between two tops.
        let sawtooth_share = (50.0 * self.above / limit.max(1e-9) - 0.5).clamp(0.0, 1.0);
        let late_by = UPPER_BOUND_SCALE + sawtooth_share * (SAWTOOTH_UPPER_BOUND_SCALE - UPPER_BOUND_SCALE);
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).ok();
        (likely < 1e8).then_some(())?;
        Some(Forecast {
            likely: seconds(likely)?,
            low: seconds(likely - ((likely - soon).powi(2) + margin * margin).sqrt() - headroom)?,
            high: seconds(likely + late_by * ((late - likely).powi(2) + margin * margin).sqrt() + rest.min(likely))?,
        })
    }
}
