//! A growth that is suspect or a leak, from when it is found until it has stopped.
//!
//! It stops when the floor stalls: when it rises by less than a quarter of what the rate predicts,
//! for longer than it ever did before it went on. Memory that is given back is a stall, too, unless
//! it is only a part of what the leak has gained: then it belongs to something else, and is removed
//! from the past.

use serde::{Deserialize, Serialize};

use super::buckets::{BucketLevels, Point};
use super::regular_growth::RegularGrowth;
use super::{Evidence, LONGEST_SPAN, floor, kib};

/// Growth stalls while it gains less than this share of what its rate predicts.
const LEAST_PACE: f64 = 0.25;

/// The stall in seconds that ends a leak that never stalled before, and how many times the longest
/// one ends one that did: pauses of a job often differ by so much.
const PATIENCE_WITH_LEAK: (f64, f64) = (110.0, 3.0);

/// The same for a suspect.
const PATIENCE_WITH_SUSPECT: (f64, f64) = (80.0, 1.2);

/// The parts after which a growth that is no leak pauses, and how many times its longest stall.
const PAUSE: (f64, f64) = (2.0, 1.2);

/// The same in widths of the finest buckets, where samples are rare.
const LEAST_BUCKETS: f64 = 1.6;

/// The seconds for which memory may be given back: a garbage collection, or an emptied cache that
/// fills again.
const LONGEST_DIP: f64 = 64.0;

/// A rise this many times what the rate predicts is a jump, with another cause.
const JUMP: f64 = 3.0;

/// The KiB below which a jump is ignored: half of what a CUDA context takes.
const SMALLEST_JUMP: f64 = 262_144.0;

/// Memory that is given back at once is not the leak's while it is less than this share of what the
/// leak has gained.
const SHARE_OF_OTHERS: f64 = 0.5;

/// The parts that a growth with rests counts as: fewer than a regular growth has.
const PARTS_OF_MEAN: f64 = 2.0;

/// A stall that is this much shorter than the one before is a new one: growth went on between them.
const WENT_ON: f64 = 0.4;

/// A leak that stopped, and may resume. Times are in seconds since boot, amounts in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct StoppedLeak {
    pub(super) began: f64,
    pub(super) at: f64,
    /// The floor when it stopped.
    pub(super) floor: f64,
    /// The longest stall that it survived, in seconds.
    pub(super) survived: f64,
    /// The longest rest after which it resumed, in seconds.
    pub(super) rest: f64,
}

/// A growth that is suspect or a leak. Times are in seconds since boot, amounts in KiB, rates in
/// KiB per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct WatchedGrowth {
    pub(super) is_leak: bool,
    pub(super) from: f64,
    /// When the growth was found.
    pub(super) found: f64,
    /// The mean rate while it grows, pauses included.
    pub(super) rate: f64,
    /// The growth over the longest time.
    pub(super) longest: RegularGrowth,
    /// The shortest part in seconds at which the growth was regular.
    finest_part: f64,
    /// Memory that something else gave back at once, and has not taken again, in KiB.
    given_back: f64,
    /// The longest part of the current stall, in seconds.
    stall: f64,
    /// The longest stall after which growth went on, in seconds.
    pub(super) survived: f64,
    /// The longest rest after which the leak resumed when it counted as stopped, in seconds; 0 if
    /// it never did.
    pub(super) rest: f64,
    pub(super) evidence: Evidence,
}

impl WatchedGrowth {
    /// Watches a growth. One that goes on after a leak stopped is that leak.
    pub(super) fn new(
        growth: RegularGrowth,
        levels: &BucketLevels,
        stopped: Option<StoppedLeak>,
    ) -> Self {
        let (mut from, mut rest) = (growth.from, 0.0);
        let mut survived = longest_stall(levels, growth.rate(), growth.from);
        if let Some(stopped) = stopped
            && growth.from + 2.0 * growth.part >= stopped.at
        {
            rest = stopped.rest.max(growth.from - stopped.at);
            survived = survived.max(stopped.survived).max(rest);
            // After a rest longer than the leak lasted, it is another leak.
            if growth.from - stopped.at < stopped.at - stopped.began {
                from = from.min(stopped.began);
            }
        }
        let is_leak = growth.is_leak;
        let longest = if from < growth.from {
            on_average(growth, levels, from)
        } else {
            growth
        };
        let rate = longest.rate();
        Self {
            is_leak,
            from,
            found: levels.now(),
            rate,
            longest,
            finest_part: growth.part,
            given_back: 0.0,
            stall: 0.0,
            survived,
            rest,
            evidence: Evidence::default(),
        }
    }

    /// Whether the figures of a checkpoint, which may be forged, are such that arithmetic with them
    /// stays finite.
    pub(super) fn is_sound(&self) -> bool {
        let forecast = self.evidence.forecast.into_iter();
        let ends = forecast.flat_map(|forecast| {
            [forecast.likely, forecast.low, forecast.high].map(|left| left.as_secs_f64())
        });
        let spans = [
            self.from,
            self.found,
            self.stall,
            self.survived,
            self.rest,
            self.evidence.span,
        ]
        .into_iter()
        .chain(ends);
        self.longest.is_sound()
            && (1e-6..1e12).contains(&self.rate)
            && (1e-6..1e12).contains(&self.finest_part)
            && (0.0..1e12).contains(&self.given_back)
            && spans
                .into_iter()
                .all(|seconds| (0.0..=LONGEST_SPAN).contains(&seconds))
    }

    /// Learns from the growth that is regular now.
    pub(super) fn follow(&mut self, found: &[RegularGrowth], levels: &BucketLevels) {
        self.finest_part = found
            .iter()
            .map(|growth| growth.part)
            .fold(self.finest_part, f64::min);
        let age = levels.now() - self.from;
        let grown = found.iter().filter(|growth| growth.span <= age);
        let Some(longest) = grown.max_by(|one, other| one.span.total_cmp(&other.span)) else {
            return;
        };
        let mean = on_average(*longest, levels, self.from);
        if longest.span > 0.4 * age {
            self.longest = *longest;
        } else if self.rest > 0.0 {
            self.longest = mean;
            self.rate = mean.rate();
        }
        if longest.span > 0.7 * age && self.stall <= self.survived.max(PATIENCE_WITH_LEAK.0 / 2.0) {
            self.rate = longest.rate();
        } else {
            // A short growth does not raise the rate. But the rate is never higher than what was
            // gained on the whole shows.
            self.rate = self.rate.min(mean.rate());
        }
    }

    /// The floor now, in KiB: the lowest amount of the last part, and what was gained since then,
    /// unless the series shows less.
    pub(super) fn floor_now(&self, levels: &BucketLevels) -> f64 {
        let points = levels.reaching(levels.now() - self.longest.part);
        let begin = levels.now() - self.longest.part - 0.5 * points.width;
        let recent = points.as_slice().iter().filter(|point| point.at >= begin);
        let (low, top) = recent.fold((f64::INFINITY, 0.0_f64), |(low, top), point| {
            (low.min(point.low), top.max(point.low))
        });
        (low + self.rate * self.longest.part).min(top)
    }

    /// Removes from the past memory that something else gives back at once, at a sample of so many
    /// KiB after one of `before`.
    pub(super) fn remove_fall(&mut self, levels: &mut BucketLevels, before: f64, now: f64) {
        let fall = self.floor_now(levels).min(before) - now;
        if self.is_leak
            && fall > SMALLEST_JUMP
            && fall < SHARE_OF_OTHERS * kib(self.evidence.gained)
        {
            self.given_back += fall;
            levels.remove_jump(-fall, levels.now(), now);
        }
    }

    /// Removes from the past memory that something else takes again.
    pub(super) fn remove_rise(&mut self, levels: &mut BucketLevels) {
        if self.given_back < SMALLEST_JUMP {
            return;
        }
        let finest = levels.filled(0);
        let since = levels.now() - LONGEST_DIP.max(4.0 * finest.width);
        // A part, or a stall that was survived, ends with a step of the leak itself.
        let part = self.longest.part.max(LONGEST_DIP).max(self.survived);
        let earlier = levels.reaching(since - part);
        let from = since - part - 0.5 * earlier.width;
        let lowest = |points: &[Point], from: f64, to: f64| {
            let within = points
                .iter()
                .filter(|point| point.at > from && point.at < to);
            within.map(|point| point.low).min_by(f64::total_cmp)
        };
        let (Some(before), Some(recent)) = (
            lowest(earlier.as_slice(), from, since),
            lowest(finest.as_slice(), since, f64::INFINITY),
        ) else {
            return;
        };
        let (rise, usual) = (recent - before, self.rate * (part + levels.now() - since));
        let taken = (rise - usual).min(self.given_back);
        if rise > JUMP * usual && taken > SMALLEST_JUMP {
            self.given_back -= taken;
            levels.remove_jump(taken, since, recent);
        }
    }

    /// Whether the rate is the mean of a growth with rests: no line fits that.
    pub(super) fn rests(&self) -> bool {
        self.longest.parts <= PARTS_OF_MEAN
    }

    /// Whether memory still grows. A growth that is no leak may be the loading of a model, which
    /// ends at once: it counts as paused as soon as it stalls for longer than it ever did, and for
    /// longer than some of its parts.
    pub(super) fn goes_on(&self) -> bool {
        self.is_leak || self.stall <= (PAUSE.0 * self.finest_part).max(PAUSE.1 * self.survived)
    }

    /// Whether what is held now, in KiB, is more than in the latest finished bucket, by at least a
    /// quarter of what the rate predicts. A growth that [goes on](Self::goes_on) may have ended
    /// just now.
    pub(super) fn rises(&self, held: f64, levels: &BucketLevels) -> bool {
        let points = levels.filled(0);
        points
            .as_slice()
            .last()
            .is_some_and(|latest| held - latest.low >= LEAST_PACE * self.rate * points.width)
    }

    /// Returns the seconds since the growth stopped; `None` while it goes on, or may go on.
    pub(super) fn has_stopped(&mut self, levels: &BucketLevels) -> Option<f64> {
        let stall = stall(levels, self.rate, self.from);
        if stall < WENT_ON * self.stall {
            self.survived = self.survived.max(self.stall);
            self.stall = stall;
        }
        self.stall = self.stall.max(stall);
        let (least, times) = if self.is_leak {
            PATIENCE_WITH_LEAK
        } else {
            PATIENCE_WITH_SUSPECT
        };
        let patience = least
            .max(times * self.survived)
            .max(LEAST_BUCKETS * levels.width(0));
        (stall > patience).then_some(stall * (1.0 - LEAST_PACE))
    }
}

/// Returns a growth that resumed after a rest as it is on average since the leak began.
fn on_average(growth: RegularGrowth, levels: &BucketLevels, from: f64) -> RegularGrowth {
    let points = levels.reaching(from);
    let known = points.as_slice();
    let floor = floor(known);
    let first = known
        .partition_point(|point| point.at < from)
        .min(known.len().saturating_sub(1));
    let gained = known
        .len()
        .checked_sub(1)
        .map_or(0.0, |last| floor[last] - floor[first])
        .max(growth.gained);
    let span = levels.now() - from;
    let rate = gained / span;
    RegularGrowth {
        from,
        span,
        gained,
        part: span / PARTS_OF_MEAN,
        parts: PARTS_OF_MEAN,
        rates: [rate, rate],
        ..growth
    }
}

/// The longest time up to now, in seconds, in which the floor rose by less than a quarter of what
/// the rate predicts. The floor now is the highest of the last minute: a dip is none.
fn stall(levels: &BucketLevels, rate: f64, from: f64) -> f64 {
    let points = levels.filled(0);
    let now = levels.now();
    let recent = points
        .as_slice()
        .iter()
        .rev()
        .take_while(|point| now - point.at < LONGEST_DIP.max(1.5 * points.width));
    let top = recent.map(|point| point.low).fold(0.0, f64::max);
    let stall_on = |level: usize| {
        let points = levels.filled(level);
        let mut floor = top;
        let mut longest = 0.0;
        for point in points
            .as_slice()
            .iter()
            .rev()
            .take_while(|point| point.at >= from)
        {
            floor = floor.min(point.low);
            if top - floor < LEAST_PACE * rate * (now - point.at) {
                longest = now - point.at;
            }
        }
        longest
    };
    (0..BucketLevels::COUNT).map(stall_on).fold(0.0, f64::max)
}

/// The longest time since some moment in which the floor rose by less than a quarter of what the
/// rate predicts, and after which it went on.
fn longest_stall(levels: &BucketLevels, rate: f64, from: f64) -> f64 {
    let points = levels.reaching(from);
    let known = points.as_slice();
    let mut floor = known[known.partition_point(|point| point.at < from)..].to_vec();
    for at in (1..floor.len()).rev() {
        floor[at - 1].low = floor[at - 1].low.min(floor[at].low);
    }
    let Some(last) = floor.last().map(|point| point.low) else {
        return 0.0;
    };
    // A stall that has not ended was not survived.
    floor.truncate(floor.partition_point(|point| point.low < last) + 1);
    let mut longest = 0.0_f64;
    for (at, begin) in floor.iter().enumerate() {
        for end in &floor[at + 1..] {
            let span = end.at - begin.at;
            if span > longest && end.low - begin.low < LEAST_PACE * rate * span {
                longest = span;
            }
        }
    }
    longest
}
