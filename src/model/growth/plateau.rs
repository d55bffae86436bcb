//! Tells growth that levels off, as a cache that fills up, from growth that goes on.
//!
//! The time of a growth is cut into equal parts. A cache takes ever less in each of them: the gain
//! of a part is always about the same share of the gain of the part before, so the gains that are
//! still to come have a finite sum. That sum is what is missing from the plateau.

use serde::{Deserialize, Serialize};

use super::buckets::BucketLevels;
use super::limits::LIMITS;
use super::{Plateau, to_bytes};
use crate::base::units::Bytes;

/// The parts into which the time of a growth is cut.
const PARTS: usize = 8;

/// The same for arithmetic.
const COUNT: f64 = 8.0;

/// The gains of the parts of a growth, in KiB.
type PartGains = [f64; PARTS];

/// A growth that levels off: how surely, and where. Amounts are in KiB, times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct LevellingOff {
    /// The plateau: likely, lowest and highest.
    pub(super) plateau: [f64; 3],
    /// The floor when this was measured.
    held: f64,
    /// The time in which the rate falls to 37 %: likely, shortest and longest.
    time_constant: [f64; 3],
    /// Whether the plateau is known well enough to name it.
    pub(super) is_sure: bool,
    /// When growth was first seen to level off, and last.
    seen: [f64; 2],
}

/// A fit of gains that become less by the same factor from part to part.
#[derive(Debug, Clone, Copy)]
struct ExponentialFit {
    /// How many time constants the growth lasts.
    constants: f64,
    /// The gain of the first part.
    first: f64,
    /// The sum of the squared deviations from the fit.
    squares: f64,
}

impl ExponentialFit {
    /// Fits gains with a given number of time constants in the whole time.
    fn of(gains: &PartGains, constants: f64) -> Self {
        let factor = libm::exp(-constants / COUNT);
        let mut power = 1.0;
        let (mut product, mut norm) = (0.0, 0.0);
        for gain in gains {
            product += power * gain;
            norm += power * power;
            power *= factor;
        }
        let first = product / norm;
        let total: f64 = gains.iter().map(|gain| gain * gain).sum();
        Self {
            constants,
            first,
            squares: (total - first * product).max(0.0),
        }
    }

    fn factor(&self) -> f64 {
        libm::exp(-self.constants / COUNT)
    }

    /// The gains after the last part.
    fn still_missing(&self) -> f64 {
        self.first * libm::exp(-self.constants) / (1.0 - self.factor())
    }

    /// The gains of the last quarter of the parts.
    fn last_quarter(&self) -> f64 {
        let until = libm::exp(-self.constants);
        let from = libm::exp(-0.75 * self.constants);
        self.first * (from - until) / (1.0 - self.factor())
    }
}

impl LevellingOff {
    /// Whether the plateau can be named, and is clearly below the limit in KiB or clearly above it.
    pub(super) fn is_known(&self, limit: Option<f64>) -> bool {
        let [_, low, high] = self.plateau;
        self.is_sure && limit.is_none_or(|limit| high < limit || low > limit)
    }

    /// Returns the KiB that are likely missing from the plateau.
    pub(super) fn missing(&self) -> f64 {
        (self.plateau[0] - self.held).max(0.0)
    }

    /// The rate now, in KiB per second.
    pub(super) fn rate(&self) -> f64 {
        self.missing() / self.time_constant[0]
    }

    /// The plateau in bytes, where memory runs out at a limit in KiB.
    pub(super) fn plateau(&self, limit: Option<f64>) -> Plateau {
        let [likely, low, high] = self.plateau.map(|kib| Bytes(to_bytes(kib)));
        Plateau {
            likely,
            low,
            high,
            is_known: self.is_known(limit),
            is_above_limit: limit.is_some_and(|limit| self.plateau[1] > limit),
        }
    }

    /// The seconds until more KiB are held than now by `room`: by the likely, the lowest and the
    /// highest plateau; infinite where the plateau is lower.
    pub(super) fn seconds(&self, room: f64) -> [f64; 3] {
        [0, 1, 2].map(|fit| {
            let share = room / (self.plateau[fit] - self.held);
            if (0.0..1.0).contains(&share) {
                -self.time_constant[fit] * libm::log(1.0 - share)
            } else {
                f64::INFINITY
            }
        })
    }

    /// Whether the figures of a checkpoint, which may be forged, are such that arithmetic with them
    /// stays finite.
    pub(super) fn is_sound(&self) -> bool {
        let amounts = self.plateau.into_iter().chain([self.held]);
        amounts.into_iter().all(|kib| (0.0..1e12).contains(&kib))
            && self
                .time_constant
                .into_iter()
                .all(|seconds| (1e-3..1e12).contains(&seconds))
            && self
                .seen
                .into_iter()
                .all(|seconds| (0.0..1e12).contains(&seconds))
    }

    /// Whether growth has seemed to level off for so long that this is no chance.
    pub(super) fn is_confirmed(&self, from: f64) -> bool {
        let [first, last] = self.seen;
        last - first >= LIMITS.plateau.confirming * (last - from)
    }

    /// Follows a growth since a time; `None` while it may as well go on.
    pub(super) fn follow(levels: &BucketLevels, from: f64, before: Option<Self>) -> Option<Self> {
        let is_kept = |before: &Self| {
            before.is_confirmed(from)
                && levels.now() - before.seen[1]
                    < LIMITS.plateau.confirming * (before.seen[1] - from)
        };
        Self::measure(levels, from, before.as_ref()).or(before.filter(is_kept))
    }

    /// Measures a growth since a time; `None` while it may as well go on. A growth that levelled off
    /// `before` meets easier conditions.
    fn measure(levels: &BucketLevels, from: f64, before: Option<&Self>) -> Option<Self> {
        let limits = &LIMITS.plateau;
        let PartedGrowth { gains, span, end } = PartedGrowth::measure(levels, from)?;
        let total: f64 = gains.iter().sum();
        let best = fits(&gains).min_by(|one, other| one.squares.total_cmp(&other.squares))?;
        let noise = COUNT * (limits.least_noise * total / COUNT).powi(2);
        let variance = (best.squares + noise) / (COUNT - 2.0);
        let ease_of = |is_met: bool| if is_met { limits.ease } else { 1.0 };
        let ease = ease_of(before.is_some());
        let is_most_at_start = before.is_some() || best.constants <= limits.most_constants;
        let slows = ease * best.constants >= limits.least_constants;
        let is_no_chance =
            ease * (squares_about_mean(&gains) - best.squares) >= limits.significance * variance;
        let is_no_knee = best.squares + noise
            <= ease * limits.share_of_knee * (squares_about_knee(&gains) + noise);
        let latest: f64 = gains[PARTS - PARTS / 4..].iter().sum();
        let is_over_at_end = latest
            <= (1.0 + ease * limits.more_at_end) * best.last_quarter() + limits.least_noise * total;
        if !(slows && is_most_at_start && is_no_chance && is_no_knee && is_over_at_end) {
            return None;
        }
        let is_possible = |fit: &ExponentialFit| {
            fit.squares <= best.squares + limits.deviations.powi(2) * variance
        };
        let possible: Vec<ExponentialFit> = fits(&gains).filter(is_possible).collect();
        let (slowest, fastest) = (possible.first()?, possible.last()?);
        let ease = ease_of(before.is_some_and(|before| before.is_sure));
        let most_to_come = ease * limits.widest * best.still_missing() + limits.least_noise * total;
        let fits = [&best, fastest, slowest];
        Some(Self {
            held: end,
            plateau: fits.map(|fit| end + fit.still_missing()),
            time_constant: fits.map(|fit| span / fit.constants),
            is_sure: ease * best.constants >= limits.constants_of_sure
                && slowest.still_missing() <= most_to_come,
            seen: [
                before.map_or(levels.now(), |before| before.seen[0]),
                levels.now(),
            ],
        })
    }
}

/// The fits with all numbers of time constants that are tried, the fewest first.
fn fits(gains: &PartGains) -> impl Iterator<Item = ExponentialFit> {
    let limits = &LIMITS.plateau;
    let ratio = limits.most_tried / limits.fewest_tried;
    (0..limits.tried).map(move |step| {
        let share = f64::from(step) / f64::from(limits.tried - 1);
        ExponentialFit::of(gains, limits.fewest_tried * libm::pow(ratio, share))
    })
}

/// The sum of the squared deviations of gains from their mean.
fn squares_about_mean(gains: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "parts are few")]
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    gains.iter().map(|gain| (gain - mean).powi(2)).sum()
}

/// The sum of the squared deviations of gains that change once from one mean to another, where they
/// fit best: memory that something else took, or growth that became slower and goes on.
fn squares_about_knee(gains: &PartGains) -> f64 {
    (1..PARTS)
        .map(|place| squares_about_mean(&gains[..place]) + squares_about_mean(&gains[place..]))
        .fold(f64::INFINITY, f64::min)
}

/// A growth in equal parts.
struct PartedGrowth {
    gains: PartGains,
    /// The seconds from the first to the last step.
    span: f64,
    /// The floor in KiB after the last part.
    end: f64,
}

impl PartedGrowth {
    /// Cuts the growth since a time into equal parts; `None` where the floor rose in too few
    /// buckets. Memory may grow in steps: between the middles of two steps, it counts as growing
    /// evenly.
    fn measure(levels: &BucketLevels, from: f64) -> Option<Self> {
        let known = lows_since(levels, from);
        // The middle of each step, and how long it lasts.
        let steps = known.chunk_by(|one, next| next.kib <= one.kib);
        let steps = steps.filter_map(|step| Some((*step.first()?, *step.last()?)));
        let middle = |(from, to): (Low, Low)| Low {
            at: f64::midpoint(from.at, to.at),
            kib: from.kib,
        };
        let mut steps: Vec<(Low, Low)> = steps.collect();
        // The last step may become longer, unless it is the longest already.
        let latest = steps.pop()?;
        let length = |(from, to): &(Low, Low)| to.at - from.at;
        let longest = steps.iter().map(length).fold(0.0, f64::max);
        let mut rises: Vec<Low> = steps.into_iter().map(middle).collect();
        if length(&latest) > longest {
            rises.extend([middle(latest), latest.1]);
        }
        if rises.len() < LIMITS.plateau.fewest_rises {
            return None;
        }
        let (first, last) = (*rises.first()?, *rises.last()?);
        let span = last.at - first.at;
        let mut gains = [0.0; PARTS];
        let (mut time, mut before) = (first.at, first.kib);
        for gain in &mut gains {
            time += span / COUNT;
            let next = rises.partition_point(|rise| rise.at < time);
            let next = next.clamp(1, rises.len() - 1);
            let (from, to) = (rises[next - 1], rises[next]);
            let share = ((time - from.at) / (to.at - from.at)).min(1.0);
            let height = from.kib + share * (to.kib - from.kib);
            *gain = height - before;
            before = height;
        }
        Some(Self {
            gains,
            span,
            end: before,
        })
    }
}

/// The floor at a time in seconds since boot.
#[derive(Debug, Clone, Copy)]
struct Low {
    at: f64,
    kib: f64,
}

/// The floor at the beginning of each bucket since a time, from the finest buckets that there are.
fn lows_since(levels: &BucketLevels, from: f64) -> Vec<Low> {
    let mut newest_first: Vec<Low> = Vec::new();
    let (mut reached, mut lowest) = (f64::INFINITY, f64::INFINITY);
    for level in 0..BucketLevels::COUNT {
        let points = levels.filled(level);
        let half = 0.5 * points.width;
        let until = reached;
        let older = points.as_slice().iter().rev();
        let older = older.skip_while(|point| point.at + half > until);
        for point in older.take_while(|point| point.at - half >= from) {
            reached = point.at - half;
            lowest = lowest.min(point.low);
            newest_first.push(Low {
                at: reached,
                kib: lowest,
            });
        }
        let oldest = points.as_slice().first();
        if oldest.is_none_or(|oldest| oldest.at - half <= from) {
            break;
        }
    }
    newest_first.reverse();
    newest_first
}
