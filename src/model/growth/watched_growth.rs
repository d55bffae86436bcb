//! A growth that is suspect or a leak, from when it is found until it has stopped.
//!
//! It stops when the floor stalls: when it rises by less than a quarter of what the rate predicts,
//! for longer than it ever did before it went on. Memory that is given back is a stall, too, unless
//! it is only a part of what the leak has gained: then it belongs to something else, and is removed
//! from the past.

use serde::{Deserialize, Serialize};

use super::buckets::{BucketLevels, Point};
use super::limits::LIMITS;
use super::plateau::LevellingOff;
use super::regular_growth::RegularGrowth;
use super::{Evidence, LONGEST_SPAN, LeakVerdict, floor, kib};

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
    /// Whether it gave back what it had gained. Later growth is another one.
    pub(super) is_given_back: bool,
}

/// How a growth has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GrowthEnd {
    /// It stopped so many seconds ago.
    Stopped(f64),
    /// It gave back what it had gained.
    GivenBack,
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
    /// The regular growth with the longest span, or the mean since the leak began if it rested. The
    /// forecast uses these figures.
    pub(super) longest: RegularGrowth,
    /// The longest growth of almost that span whose parts are enough to compare the rates of two
    /// halves; `None` if there is none.
    telling: Option<RegularGrowth>,
    /// The shortest part in seconds at which the growth was regular.
    finest_part: f64,
    /// The floor in KiB when the growth began, and the highest floor since then.
    base: f64,
    pub(super) top: f64,
    /// The KiB that something else on the GPU gave back at once, and has not taken again. They are
    /// removed from the past, so that the fall does not look like the end of the growth.
    given_back: f64,
    /// The length of the latest stall in seconds, at its longest: noise makes a stall look shorter
    /// for a while, and does not end it.
    stall: f64,
    /// The longest stall after which growth went on, in seconds. A stall must last longer than
    /// this to end the growth.
    pub(super) survived: f64,
    /// The longest rest after which the leak resumed when it counted as stopped, in seconds; 0 if
    /// it never did.
    pub(super) rest: f64,
    /// Where growth levels off; `None` while it may as well go on.
    pub(super) levelling_off: Option<LevellingOff>,
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
        if let Some(stopped) = stopped.filter(|stopped| !stopped.is_given_back)
            && growth.from + LIMITS.watch.parts_of_overlap * growth.part >= stopped.at
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
        let mut watched = Self {
            is_leak,
            from,
            found: levels.now(),
            rate,
            longest,
            telling: None,
            finest_part: growth.part,
            base: floor_at(levels, from),
            top: 0.0,
            given_back: 0.0,
            stall: 0.0,
            survived,
            rest,
            levelling_off: None,
            evidence: Evidence::default(),
        };
        watched.top = watched.floor_now(levels);
        watched
    }

    /// The verdict on the growth, where memory runs out at a limit in KiB.
    pub(super) fn verdict(&self, limit: Option<f64>) -> LeakVerdict {
        match self.levelling_off() {
            Some(levelling_off) if levelling_off.is_known(limit) => LeakVerdict::Filling,
            None if self.is_leak => LeakVerdict::Leak,
            _ => LeakVerdict::Suspect,
        }
    }

    /// Where the growth levels off; `None` while it may as well go on.
    pub(super) fn levelling_off(&self) -> Option<&LevellingOff> {
        let levelling_off = self.levelling_off.as_ref();
        levelling_off.filter(|levelling_off| levelling_off.is_confirmed(self.from))
    }

    /// The highest plateau in KiB up to which the growth may go on; `None` where it is not known.
    pub(super) fn known_plateau(&self) -> Option<f64> {
        let known = self
            .levelling_off()
            .filter(|levelling_off| levelling_off.is_sure);
        known.map(|levelling_off| levelling_off.plateau[2])
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
            && self.telling.is_none_or(|telling| telling.is_sound())
            && self
                .levelling_off
                .is_none_or(|levelling_off| levelling_off.is_sound())
            && (1e-6..1e12).contains(&self.rate)
            && (1e-6..1e12).contains(&self.finest_part)
            && [self.base, self.top, self.given_back]
                .into_iter()
                .all(|kib| (-1e12..1e12).contains(&kib))
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
        let (age, limits) = (levels.now() - self.from, &LIMITS.watch);
        let grown = || found.iter().filter(|growth| growth.span <= age);
        let by_span =
            |one: &&RegularGrowth, other: &&RegularGrowth| one.span.total_cmp(&other.span);
        let Some(longest) = grown().max_by(by_span) else {
            return;
        };
        let mean = on_average(*longest, levels, self.from);
        if longest.span > limits.share_for_figures * age {
            self.longest = *longest;
            let telling = grown().filter(|growth| {
                growth.parts >= limits.parts_of_telling
                    && growth.span > limits.share_of_telling * longest.span
            });
            self.telling = telling.max_by(by_span).copied();
        } else if self.rest > 0.0 {
            self.longest = mean;
            self.rate = mean.rate();
        }
        let half_patience = limits.patience_with_leak.least / 2.0;
        if longest.span > limits.share_for_rate * age
            && self.stall <= self.survived.max(half_patience)
        {
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

    /// Removes from the past the memory that something else gives back at once, when the KiB held
    /// fall from `last_held` at the last sample to `now`: less than a share of what the leak has
    /// gained, or so much that the leak cannot have held it all.
    pub(super) fn remove_fall(&mut self, levels: &mut BucketLevels, last_held: f64, now: f64) {
        let fall = self.floor_now(levels).min(last_held) - now;
        let limits = &LIMITS.watch;
        let gained = kib(self.evidence.gained);
        let is_of_others =
            fall < limits.share_of_others * gained || now < self.base - limits.share_kept * gained;
        if self.is_leak && fall > limits.smallest_jump && is_of_others {
            self.given_back += fall;
            self.base -= fall;
            self.top -= fall;
            levels.remove_jump(-fall, levels.now(), now);
        }
    }

    /// Removes from the past memory that something else takes again.
    pub(super) fn remove_rise(&mut self, levels: &mut BucketLevels) {
        let limits = &LIMITS.watch;
        if self.given_back < limits.smallest_jump {
            return;
        }
        let finest = levels.filled(0);
        let since = levels.now() - limits.longest_dip.max(4.0 * finest.width);
        // A part, or a stall that was survived, ends with a step of the leak itself.
        let part = self.longest.part.max(limits.longest_dip).max(self.survived);
        let earlier = levels.reaching(since - part);
        let from = since - part - 0.5 * earlier.width;
        let lowest = |points: &[Point], from: f64, to: f64| {
            let within = points
                .iter()
                .filter(|point| point.at > from && point.at < to);
            within.map(|point| point.low).min_by(f64::total_cmp)
        };
        let (Some(earlier_floor), Some(floor)) = (
            lowest(earlier.as_slice(), from, since),
            lowest(finest.as_slice(), since, f64::INFINITY),
        ) else {
            return;
        };
        let (rise, usual) = (
            floor - earlier_floor,
            self.rate * (part + levels.now() - since),
        );
        let taken = (rise - usual).min(self.given_back);
        if rise > limits.jump * usual && taken > limits.smallest_jump {
            self.given_back -= taken;
            self.base += taken;
            self.top += taken;
            levels.remove_jump(taken, since, floor);
        }
    }

    /// The growth whose halves show whether it speeds up.
    pub(super) fn telling(&self) -> &RegularGrowth {
        let telling = self.telling.as_ref();
        telling.filter(|_| !self.rests()).unwrap_or(&self.longest)
    }

    /// Whether the rate is the mean of a growth with rests: no line fits that.
    pub(super) fn rests(&self) -> bool {
        self.longest.parts <= LIMITS.watch.parts_of_mean
    }

    /// Whether memory still grows. A growth that is no leak may be the loading of a model, which
    /// ends at once: it counts as paused as soon as it stalls for longer than it ever did, and for
    /// longer than some of its parts.
    pub(super) fn goes_on(&self) -> bool {
        let limits = &LIMITS.watch;
        let pause =
            (limits.parts_of_pause * self.finest_part).max(limits.stalls_of_pause * self.survived);
        self.is_leak || self.stall <= pause
    }

    /// Whether what is held now, in KiB, is more than in the latest finished bucket, by at least a
    /// quarter of what the rate predicts. A growth that [goes on](Self::goes_on) may have ended
    /// just now.
    pub(super) fn rises(&self, held: f64, levels: &BucketLevels) -> bool {
        let points = levels.filled(0);
        points.as_slice().last().is_some_and(|latest| {
            held - latest.low >= LIMITS.watch.least_pace * self.rate * points.width
        })
    }

    /// Whether the growth has ended, and how; `None` while it goes on, or may go on.
    pub(super) fn end(&mut self, levels: &BucketLevels) -> Option<GrowthEnd> {
        self.top = self.top.max(self.floor_now(levels));
        let is_full = |levelling_off: &LevellingOff| {
            levelling_off.missing() < LIMITS.plateau.share_of_full * (self.top - self.base)
        };
        if self.levelling_off().is_some_and(is_full) {
            return Some(GrowthEnd::Stopped(0.0));
        }
        let little = self.base + LIMITS.watch.share_kept * (self.top - self.base);
        let points = levels.filled(0);
        let span = LIMITS.watch.patience_with_leak.least;
        let since = levels.now() - span.max(LIMITS.watch.fewest_buckets * points.width);
        let low = points
            .as_slice()
            .iter()
            .rev()
            .take_while(|point| point.low <= little);
        match low.last() {
            // Memory that was given back just now may be taken again, as a cache that was emptied.
            Some(first) if self.is_leak => {
                let began = first.at - 0.5 * points.width;
                (began <= since).then_some(GrowthEnd::GivenBack)
            }
            _ => self.has_stopped(levels).map(GrowthEnd::Stopped),
        }
    }

    /// Returns the seconds since the growth stopped; `None` while it goes on, or may go on.
    pub(super) fn has_stopped(&mut self, levels: &BucketLevels) -> Option<f64> {
        let limits = &LIMITS.watch;
        let rate = self.levelling_off().map_or(self.rate, |levelling_off| {
            levelling_off.rate().min(self.rate)
        });
        let stall = stall(levels, rate, self.from);
        if stall < limits.new_stall * self.stall {
            self.survived = self.survived.max(self.stall);
            self.stall = stall;
        }
        self.stall = self.stall.max(stall);
        let of_verdict = if self.is_leak {
            &limits.patience_with_leak
        } else {
            &limits.patience_with_suspect
        };
        let patience = of_verdict
            .least
            .max(of_verdict.stalls * self.survived)
            .max(limits.fewest_buckets * levels.width(0));
        (stall > patience).then_some(stall * (1.0 - limits.least_pace))
    }
}

/// The floor in KiB at a time in seconds since boot.
fn floor_at(levels: &BucketLevels, time: f64) -> f64 {
    let points = levels.reaching(time);
    let known = points.as_slice();
    let since = &known[known.partition_point(|point| point.at < time)..];
    let lows = since.iter().map(|point| point.low);
    lows.fold(f64::INFINITY, f64::min)
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
        part: span / LIMITS.watch.parts_of_mean,
        parts: LIMITS.watch.parts_of_mean,
        rates: [rate, rate],
        ..growth
    }
}

/// The longest time up to now, in seconds, in which the floor rose by less than a quarter of what
/// the rate predicts. The floor now is the highest of the last minute: a dip is none.
fn stall(levels: &BucketLevels, rate: f64, from: f64) -> f64 {
    let limits = &LIMITS.watch;
    let points = levels.filled(0);
    let now = levels.now();
    let recent = points
        .as_slice()
        .iter()
        .rev()
        .take_while(|point| now - point.at < limits.longest_dip.max(1.5 * points.width));
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
            if top - floor < limits.least_pace * rate * (now - point.at) {
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
    for place in (1..floor.len()).rev() {
        floor[place - 1].low = floor[place - 1].low.min(floor[place].low);
    }
    let Some(last) = floor.last().map(|point| point.low) else {
        return 0.0;
    };
    // A stall that has not ended was not survived.
    floor.truncate(floor.partition_point(|point| point.low < last) + 1);
    let mut longest = 0.0_f64;
    for (place, begin) in floor.iter().enumerate() {
        for end in &floor[place + 1..] {
            let span = end.at - begin.at;
            if span > longest && end.low - begin.low < LIMITS.watch.least_pace * rate * span {
                longest = span;
            }
        }
    }
    longest
}
