//! When memory runs out, if it goes on as it did: from the path of a growth so far, straight or bent.

use std::time::Duration;

use super::buckets::Point;
use super::trend::{Parabola, floor};

/// The share of a GPU's memory that may be nobody's to have: the driver keeps some of it, the log of a process does not
/// say what the others hold, and the request that fails is larger than what is left.
const HEADROOM: f64 = 0.02;

/// How much of what it may take longer is believed: hardly any end is sooner than with that headroom, so that more may be
/// later for the interval to be right in four of five cases.
const LATE: f64 = 0.75;
/// The same for teeth of 3 % of the GPU's memory and more; in between for those of 1 % and more.
const TEETH: f64 = 1.5;

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

/// In how much time memory runs out, from when it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// As it looks.
    pub likely: Duration,
    /// In one of ten cases, or fewer, it is sooner.
    pub low: Duration,
    /// In one of ten cases it is later.
    pub high: Duration,
}

/// How a growth went so far, in KiB and seconds since boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrowthPath {
    /// In the first third of the time.
    pub(super) base: f64,
    pub(super) gained: f64,
    middle: f64,
    half: f64,
    fit: Parabola,
    /// Bend of the parabola that is believed.
    bend: f64,
    /// By how much the bend may be wrong.
    doubt: f64,
    /// By how much the slope may be wrong.
    slack: f64,
    /// KiB by which it strays from the path in about as much time as it went.
    noise: f64,
    /// How far what is held at most stands above the floor.
    above: f64,
    /// By how much that and the single steps differ.
    spread: f64,
}

impl GrowthPath {
    /// The path through these points.
    pub(super) fn of(points: &[Point]) -> Option<Self> {
        let mut floor = floor(points);
        let heights = &mut floor[..points.len()];
        // The lowest of a bucket is what was held when it began.
        let mut rise = 0.0;
        for at in 0..heights.len() {
            rise = heights.get(at + 1).map_or(rise, |next| next - heights[at]);
            heights[at] += 0.5 * rise.min(points[at].high - points[at].low);
        }
        let (first, last) = (points.first()?, points.last()?);
        let fit = Parabola::of(points, &heights[..])?;
        let (middle, half) = (f64::midpoint(first.at, last.at), (last.at - first.at) / 2.0);
        // What is left over is no noise of single points: some of them in a row are above, and some below. Each such
        // row counts as one.
        let mut rows = 1.0_f64;
        let mut was_above = None;
        for (point, height) in points.iter().zip(&*heights) {
            let u = (point.at - middle) / half;
            let is_above = *height > fit.height + fit.slope * u + fit.bend * u * u;
            rows += f64::from(u8::from(was_above.is_some_and(|was| was != is_above)));
            was_above = Some(is_above);
        }
        let noise = fit.rest / rows.sqrt();
        let doubt = 3.35 * 2.0 * noise;
        let slack = 1.73 * 2.0 * noise;
        let bend = fit.bend * fit.bend * fit.bend / (fit.bend * fit.bend + doubt * doubt + 1e-9);
        // What is held at most, over what is left of it after: teeth and bumps, but not stairs.
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

    /// KiB a second at that time.
    pub(super) fn rate(&self, now: f64) -> f64 {
        let u = (now - self.middle) / self.half;
        (self.fit.slope + 2.0 * self.bend.max(0.0) * u).max(0.0) / self.half
    }

    /// Seconds that it takes to rise by what is held at most above the floor.
    pub(super) fn tooth(&self, now: f64) -> f64 {
        let rate = self.rate(now);
        if rate > 0.0 { self.above.max(0.0) / rate } else { 0.0 }
    }

    /// When the limit is reached, in KiB, by what may rest for so many seconds once more; absent when that is not to be
    /// seen.
    pub(super) fn reaches(&self, now: f64, limit: f64, rest: f64) -> Option<Forecast> {
        let u = (now - self.middle) / self.half;
        let held = self.fit.height + self.fit.slope * u + self.fit.bend * u * u + self.above;
        let room = (limit - held).max(0.0);
        let parabola = |slope: f64, bend: f64| {
            // From here the slope is that of the parabola's end, and goes on changing only upwards.
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
        // Whether the bend itself grows says which of the two it is.
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
        // Which of the two bends it is, a young growth does not tell.
        let (slope, bend) = (self.fit.slope, self.bend);
        let either =
            if bend > 0.0 { (parabola(slope, bend) - exponential(slope, bend)).abs() * self.half } else { 0.0 };
        let strays = 5.0 * self.noise * (likely / (2.0 * self.half)).sqrt();
        let margin = 0.002 * likely + (0.3 * self.spread + strays) / self.rate(now).max(1e-9) + 2.0;
        let margin = libm::hypot(margin, 0.35 * if either.is_finite() { either } else { 0.0 });
        // Close to the end, where most jobs live that fill their GPU, that is not much of what is left.
        let headroom = (HEADROOM * limit / room.max(1e-9)).min(0.5) * likely;
        // The end comes with the top of a tooth, and some time passes from one to the next.
        let teeth = (50.0 * self.above / limit.max(1e-9) - 0.5).clamp(0.0, 1.0);
        let late_by = LATE + teeth * (TEETH - LATE);
        let seconds = |it: f64| Duration::try_from_secs_f64(it.clamp(0.0, 1e9)).ok();
        (likely < 1e8).then_some(())?;
        Some(Forecast {
            likely: seconds(likely)?,
            low: seconds(likely - ((likely - soon).powi(2) + margin * margin).sqrt() - headroom)?,
            high: seconds(likely + late_by * ((late - likely).powi(2) + margin * margin).sqrt() + rest.min(likely))?,
        })
    }
}
