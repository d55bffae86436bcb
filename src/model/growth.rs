//! Whether an amount of memory leaks, how fast, and when it runs out.
//!
//! A [`LeakDetector`] is fed with what was read and when, one for each series, and keeps the lowest and highest amounts of
//! buckets of time, on levels of finer and coarser buckets ([`levels`]). So it makes no difference how often and how
//! evenly samples come, and both a leak of minutes and one of days fill a window of some level.
//!
//! What counts is the floor: the amount that was never given back after. In a healthy series a new maximum is a matter
//! of chance: sample `i` is one with probability 1 in `i`, so in the second half of its life there are 0.7, whatever the
//! lengths of its batches. A leak makes the floor rise at a steady pace or faster, by many steps of which none is
//! most of it ([`trend`]), and so fast that the memory runs out within a day ([`forecast`]).

mod buckets;
mod forecast;
mod leak_detectors;
mod memory_growth;
mod pattern;
mod sawtooth;
mod steps;
#[cfg(test)]
mod tests;
mod trend;
mod wording;

use self::buckets::BucketLevels;
use self::forecast::GrowthPath;
pub use self::forecast::{Forecast, Rate};
pub(super) use self::leak_detectors::LeakDetectors;
pub(super) use self::memory_growth::TensorDetectors;
pub use self::memory_growth::{MemoryGrowth, PartedDetector, evidence_of, part_name};
use self::sawtooth::Sawtooth;
use self::steps::Steps;
use self::trend::Trend;
use crate::base::units::{Bytes, Moment};

/// What is thought of the growth of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LeakVerdict {
    /// Not seen long enough to say.
    #[default]
    TooSoon,
    /// It does not grow, or too slowly to matter within a day.
    Steady,
    /// It grows, as young jobs do, or ever slower.
    WarmingUp,
    /// It grows as a leak does, and may still stop by itself.
    Suspect,
    /// It grows and does not stop.
    Leak,
}

/// What an outlook follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// When the growth began.
    pub since: Moment,
    /// What was added and not given back.
    pub gained: Bytes,
    /// Over how many seconds.
    pub span: f64,
    /// How often in that time there was more than ever before.
    pub maxima: u32,
    /// How often that would be by chance.
    pub chance: f64,
    /// How fast it grows now.
    pub rate: Rate,
    /// When memory runs out; absent where nobody knows how much there is, or beyond all plans.
    pub forecast: Option<Forecast>,
}

/// A sudden fall of memory, and what it usually means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryDrop {
    /// It began anew: nothing was held, and then something was again.
    Restarted,
    /// Next to nothing is left: the process has lost its context, or is about to go.
    ContextGone,
    /// Much was given back, and much is still held.
    CacheEmptied,
}

/// A series that is watched.
#[derive(Debug, Clone, Default)]
pub struct LeakDetector {
    levels: BucketLevels,
    /// Absent while nothing changes.
    stairs: Option<Box<(Steps, Sawtooth)>>,
    first: Option<Moment>,
    last: Option<(Moment, u32)>,
    /// Where memory ends, in KiB; 0 where nobody knows.
    limit: u32,
    /// Seconds from one sample to the next, as a rule.
    interval: f64,
    /// Samples in a row that came much later than that.
    holes: u8,
    samples: u32,
    /// In a place of its own: few are under suspicion.
    watch: Option<Box<Suspicion>>,
    /// What was held at most in a growth that has stopped, and some steps more, in KiB: until there is more, it does not go
    /// on. One more step is not worth a second call.
    stopped: u32,
    outlook: LeakVerdict,
    fall: Option<(Moment, MemoryDrop)>,
    /// Nothing is held since the last fall.
    is_empty: bool,
    /// The last leak that stopped: it may go on.
    paused: Option<StoppedLeak>,
    /// The longest growth, in seconds, that was given back, as garbage is when it is collected.
    tooth: f64,
}

/// A leak that stopped, and may go on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct StoppedLeak {
    /// When the leak began.
    began: Moment,
    /// When it stopped.
    at: Moment,
    /// Seconds that an earlier one took at most.
    longest: f64,
}

/// A growth under suspicion.
#[derive(Debug, Clone, PartialEq)]
struct Suspicion {
    trend: Trend,
    since: Moment,
    /// Seconds for which it stopped at most, and went on.
    rested: f64,
    is_leak: bool,
    /// KiB that were held, and not given back, in its first third.
    base: f64,
    /// KiB.
    top: u32,
    risen: Moment,
    /// Seconds between two new maxima: the longest of late.
    longest: f64,
    /// Seconds that the growth takes to make up for what comes and goes above its floor. For so long a sawtooth may be
    /// without a new maximum.
    tooth: f64,
    /// Until when the floor is known to rise.
    rises: Moment,
    evidence: Evidence,
}

impl Suspicion {
    /// Takes a new maximum; `seen` is until when there was none.
    fn rise(&mut self, at: Moment, kib: u32, seen: Moment) {
        // A high-water mark goes on to rise by chance, a little and ever less, after a growth has stopped: what is far
        // less than was due is no more than a part of a rise.
        let rate = self.evidence.rate.0 / 1024.0;
        let paid = if rate > 0.0 { PAID * f64::from(kib - self.top) / rate } else { f64::INFINITY };
        // What rose in a hole of the readings made no pause there.
        let gap = seconds(self.risen, seen.min(at)).min(paid);
        self.longest = (self.longest * libm::exp(-gap / (8.0 * self.longest.max(1.0)))).max(gap);
        self.risen = if gap < paid { at } else { Moment(self.risen.0 + millis(gap)).min(at) };
        self.top = kib;
    }

    /// KiB that it has to gain to go on, once it has stopped: a tenth of what it gained, or what it gains in two minutes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and less than a GPU has")]
    fn resumption(&self) -> u32 {
        (kib(self.evidence.gained) / 10.0).min(self.evidence.rate.0.max(0.0) / 1024.0 * 120.0) as u32
    }

    /// Seconds without a new maximum after which it has stopped.
    fn patience(&self, interval: f64) -> f64 {
        if self.longest < 1.5 * interval && self.rested == 0.0 {
            // It rose with every reading, and never rested before: one that is no higher is much.
            return (0.9 * interval).max(30.0);
        }
        let patience = (1.6 * self.longest + interval + 10.0).max(30.0);
        // A mere suspicion is not worth a long wait.
        if self.is_leak { patience } else { patience.min(SUSPECTED.max(2.5 * interval)) }
    }
}

/// Seconds since it began in which nothing is said.
const TOO_SOON: f64 = 60.0;
/// Samples before which nothing is said.
const TOO_FEW: f64 = 10.0;
/// Seconds since it began in which any growth is one of a young job.
const YOUNG: f64 = 300.0;
/// Seconds without a new maximum that a suspicion outlasts at most.
const SUSPECTED: f64 = 110.0;
/// A rise stands for as much time as it takes at a third of the pace.
const PAID: f64 = 3.0;

impl LeakDetector {
    /// Takes what was held at that time, and the amount at which it would run out of memory, where that is known.
    /// What is not later than the sample before is passed over.
    pub fn push(&mut self, at: Moment, memory: Bytes, limit: Option<Bytes>) {
        let kib = u32::try_from(memory.0 >> 10).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        let first = *self.first.get_or_insert(at);
        if let Some((before, held)) = self.last {
            if at <= before {
                return;
            }
            let elapsed = seconds(before, at);
            self.samples = self.samples.saturating_add(1);
            // Holes are not the rule, but for some in a row: the more that is known, the more it takes.
            self.holes = if self.samples > 2 && elapsed > 2.5 * self.interval { self.holes + 1 } else { 0 };
            let believed = if self.samples < 64 || self.levels.is_still() { 4 } else { 8 };
            let weight = match self.holes {
                0 => (1.0 / f64::from(self.samples)).max(0.1),
                holes if holes < believed => 0.02,
                _ => 1.0,
            };
            self.interval += weight * (elapsed - self.interval);
            if self.samples >= 5 {
                self.levels.fit(self.interval);
            }
            self.fell(at, held, kib);
        }
        let seen = self.last.map_or(at, |(before, _)| Moment(before.0 + millis(self.interval)));
        self.last = Some((at, kib));
        self.limit = limit.map_or(0, |it| u32::try_from(it.0 >> 10).unwrap_or(u32::MAX));
        if let Some(watch) = &mut self.watch
            && kib > watch.top
        {
            watch.rise(at, kib, seen);
        }
        let finished = self.levels.push(at, kib);
        if finished > 0 {
            if let Some(bucket) = self.levels.latest() {
                let stairs = self.stairs.get_or_insert_with(|| (Steps::since(first), Sawtooth::since(first)).into());
                stairs.0.push(bucket);
                stairs.1.push(bucket);
            }
            self.judge(at, finished, limit);
        }
        if let Some(watch) = &self.watch
            && seconds(watch.risen, at) > watch.patience(self.interval)
            && !(watch.is_leak && at < watch.rises && seconds(watch.risen, at) < watch.tooth)
        {
            if watch.is_leak {
                self.paused = Some(StoppedLeak { began: watch.since, at: watch.risen, longest: watch.rested });
                self.stopped = watch.top.saturating_add(watch.resumption());
            }
            self.watch = None;
        }
        let age = seconds(first, at);
        self.outlook = match &self.watch {
            Some(watch) if watch.is_leak => LeakVerdict::Leak,
            Some(_) => LeakVerdict::Suspect,
            None if age < TOO_SOON || age < TOO_FEW * self.interval => LeakVerdict::TooSoon,
            None if finished > 0 => self.calm(age),
            None if self.outlook >= LeakVerdict::Suspect || self.outlook == LeakVerdict::TooSoon => LeakVerdict::Steady,
            None => self.outlook,
        };
    }

    /// What is thought of it.
    pub fn verdict(&self) -> LeakVerdict {
        self.outlook
    }

    /// What that follows from; absent unless it is a suspect or a leak.
    pub fn evidence(&self) -> Option<&Evidence> {
        self.watch.as_ref().map(|it| &it.evidence)
    }

    /// When the last sample was taken.
    pub(super) fn last(&self) -> Option<Moment> {
        self.last.map(|(at, _)| at)
    }

    /// The last sudden fall, and when it was.
    pub fn last_drop(&self) -> Option<(Moment, MemoryDrop)> {
        self.fall
    }

    /// Names a sudden fall, and draws from it what it says of the growth before.
    fn fell(&mut self, at: Moment, before: u32, now: u32) {
        // A context alone takes more.
        const NOTHING: u32 = 128 << 10;
        const MUCH: u32 = 256 << 10;
        if self.is_empty && now > NOTHING {
            self.is_empty = false;
            self.fall = Some((at, MemoryDrop::Restarted));
            // What was there before says nothing of what is there now.
            *self = Self { fall: self.fall, interval: self.interval, first: Some(at), ..Self::default() };
            return;
        }
        if before <= now {
            return;
        }
        let fallen = before - now;
        if now < NOTHING && fallen > MUCH {
            self.is_empty = true;
            self.fall = Some((at, MemoryDrop::ContextGone));
        } else if fallen > MUCH && fallen > before / 5 {
            self.fall = Some((at, MemoryDrop::CacheEmptied));
        }
        if let Some(watch) = &self.watch {
            // What was never given back is given back: it was garbage. A bump that ends is none of that.
            if f64::from(now) < watch.base {
                self.tooth = self.tooth.max(seconds(watch.since, at));
                self.paused = None;
                self.watch = None;
            }
        }
    }

    /// Whether a trend regains what was held before: it goes up and down, and this is no new maximum, or little more
    /// than one. A bump is nothing to regain, as most of the time less was held.
    fn regains(&self, level: usize, trend: &Trend) -> bool {
        let held = self.last.map_or(0.0, |it| f64::from(it.1));
        (1..=2).any(|coarser| {
            let points = self.levels.points((level + coarser).min(BucketLevels::COUNT - 1));
            let points = points.as_slice();
            let before = &points[..points.partition_point(|it| it.at < trend.from)];
            let above = |height: f64| before.iter().filter(|it| it.low > height).count();
            let third = |height: f64| 3 * above(height) > before.len();
            third(held - 0.7 * trend.gained) || above(held - 0.3 * trend.gained) > 0 && third(held - 0.8 * trend.gained)
        })
    }

    /// Whether a trend may be one more rise of a series that went up and down before, as that of a server does: it is
    /// less than such a rise, or not much more and as uneven. Whoever leaks already does so still.
    fn wanders(&self, level: usize, trend: &Trend) -> bool {
        if self.watch.as_ref().is_some_and(|it| it.is_leak) {
            return false;
        }
        let wander = [1, 2].map(|coarser| {
            let points = self.levels.points((level + coarser).min(BucketLevels::COUNT - 1));
            let points = points.as_slice();
            trend::wander(&points[..points.partition_point(|it| it.at < trend.from)])
        });
        let wander = wander[0].max(wander[1]);
        trend.gained < 2.0 * wander || trend.gained < 50.0 * wander && trend.rest > 0.02
    }

    /// Steady, or growing as young jobs do.
    fn calm(&self, age: f64) -> LeakVerdict {
        let points = self.levels.points(0);
        let points = points.as_slice();
        let recent = &points[points.len().saturating_sub(12)..];
        let (Some(from), Some(to)) = (recent.first(), recent.last()) else { return LeakVerdict::Steady };
        let grows = to.low > from.high + f64::from(1 << 10) + from.high * 0.002;
        // What was held before, and comes again, is no warm-up.
        let is_more = grows && to.low > self.levels.highest(from.at);
        if is_more && (age < YOUNG || points.len() < 30 || self.levels.slows()) {
            LeakVerdict::WarmingUp
        } else {
            LeakVerdict::Steady
        }
    }

    /// Looks at the levels that have a new bucket.
    fn judge(&mut self, at: Moment, finished: usize, limit: Option<Bytes>) {
        let Some(first) = self.first else { return };
        let mut best: Option<(Trend, bool)> = None;
        let is_over = self.watch.is_none() && self.last.is_some_and(|it| it.1 <= self.stopped);
        let finished = if is_over { 0 } else { finished };
        for level in 0..finished {
            let points = self.levels.points(level);
            let Some((trend, is_leak)) = trend::find(&points, limit.map(kib), 2.0 * self.tooth) else {
                continue;
            };
            let is_leak = is_leak && !self.wanders(level, &trend);
            if let Some(watch) = &mut self.watch
                && is_leak
            {
                watch.rises = watch.rises.max(Moment(at.0 + millis(1.5 * points.width)));
            }
            if self.has_stopped(&trend, is_leak) || self.regains(level, &trend) {
                continue;
            }
            let is_better = best.as_ref().is_none_or(|(had, was)| (is_leak, trend.span) > (*was, had.span));
            if is_better {
                best = Some((trend, is_leak));
            }
        }
        if finished > 0
            && let Some((stairs, teeth)) = self.stairs.as_deref()
        {
            let held = self.last.map_or(0.0, |it| f64::from(it.1));
            let room = limit.map(|it| (kib(it) - held).max(0.0));
            let (now, width) = (seconds(Moment(0), at), self.levels.width(0));
            let teeth = teeth.find(now, width, room);
            if let (Some(watch), Some(teeth)) = (&mut self.watch, &teeth) {
                watch.rises = watch.rises.max(Moment(at.0 + millis(0.3 * teeth.pause)));
            }
            if best.as_ref().is_none_or(|it| !it.1) {
                let stairs = stairs.find(now, width, room).filter(|it| !self.wanders(0, it));
                best = stairs.or(teeth).map(|it| (it, true)).or(best);
            }
        }
        if let Some((trend, is_leak)) = best {
            let since = Moment(first.0.max(millis(trend.from)));
            // After a pause no longer than the growth before, it is the same one.
            let (since, rested) = match self.paused {
                Some(pause) if seconds(pause.at, since) < seconds(pause.began, pause.at) => {
                    (since.min(pause.began), pause.longest.max(seconds(pause.at, since)).max(self.interval))
                }
                _ => (since, 0.0),
            };
            self.suspect(at, trend, is_leak, since, rested);
        }
        self.look_ahead(at, limit);
    }

    /// Whether the finest buckets show that a trend of coarser ones is over.
    fn has_stopped(&self, trend: &Trend, is_leak: bool) -> bool {
        let points = self.levels.points(0);
        let pauses = trend.pauses(points.as_slice());
        let patience = 1.6 * pauses.longest + 2.0 * points.width + 10.0;
        pauses.last > if is_leak { patience } else { patience.min(SUSPECTED.max(2.0 * points.width)) }
    }

    fn suspect(&mut self, at: Moment, trend: Trend, is_leak: bool, since: Moment, rested: f64) {
        let (_, held) = self.last.unwrap_or((at, 0));
        match &mut self.watch {
            Some(watch) => {
                // Once it is a leak it stays one until it stops.
                watch.is_leak |= is_leak;
                // A coarser bucket knows the beginning less well; but with pauses, what looked like the beginning
                // may have been one of many.
                let known = seconds(watch.since, at);
                let longer = if watch.trend.begun { 3.0 * known } else { known + 2.0 * trend.width };
                if seconds(since, at) > longer {
                    watch.since = since;
                }
                watch.trend = trend;
            }
            None => {
                let pauses = trend.pauses(self.levels.points(0).as_slice());
                let watch = Suspicion {
                    since,
                    rested,
                    is_leak,
                    base: 0.0,
                    top: held,
                    risen: Moment(at.0.saturating_sub(millis(pauses.last))),
                    longest: pauses.longest,
                    tooth: 0.0,
                    rises: at,
                    evidence: Evidence {
                        since,
                        gained: Bytes(0),
                        span: 0.0,
                        maxima: 0,
                        chance: 0.0,
                        rate: Rate(0.0),
                        forecast: None,
                    },
                    trend,
                };
                self.watch = Some(watch.into());
            }
        }
    }

    /// Brings rate, forecast and evidence of a growth that is watched up to date.
    fn look_ahead(&mut self, at: Moment, limit: Option<Bytes>) {
        let (Some(first), Some(watch)) = (self.first, &mut self.watch) else { return };
        let since = seconds(Moment(0), watch.since);
        let points = self.levels.since(since);
        let width = points.width;
        let points = points.as_slice();
        let from = points.partition_point(|it| it.at < since + width / 2.0 - 1e-3);
        let points = &points[from.min(points.len().saturating_sub(4))..];
        let Some(path) = GrowthPath::of(points) else { return };
        let now = seconds(Moment(0), at);
        watch.base = path.base;
        watch.tooth = path.tooth(now);
        let (maxima, chance) = trend::maxima(points, (since - seconds(Moment(0), first)).max(0.0));
        watch.evidence = Evidence {
            since: watch.since,
            gained: Bytes(to_bytes(path.gained)),
            span: seconds(watch.since, at),
            maxima,
            chance,
            rate: Rate(path.rate(now) * 1024.0),
            forecast: limit.and_then(|limit| path.reaches(now, kib(limit), watch.rested)),
        };
    }
}

fn seconds(from: Moment, to: Moment) -> f64 {
    to.since(from).as_secs_f64()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time since boot is small and positive")]
fn millis(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0) as u64
}

#[expect(clippy::cast_precision_loss, reason = "2^53 KiB are more than there is")]
fn kib(bytes: Bytes) -> f64 {
    (bytes.0 >> 10) as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what was gained is positive")]
fn to_bytes(kib: f64) -> u64 {
    (kib.max(0.0) * 1024.0) as u64
}
