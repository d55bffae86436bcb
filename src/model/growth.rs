//! Detects memory leaks: whether a series leaks, how fast, and when memory runs out.
//!
//! A [`LeakDetector`] takes the memory samples of one GPU or process. It keeps the lowest and highest amount in each
//! bucket of time, on levels of finer and coarser buckets ([`buckets`]). The interval and regularity of the samples
//! therefore matter little, and a leak of minutes and a leak of days each fill the buckets of some level.
//!
//! The detector watches the floor: at each time, the lowest amount from then on. In a healthy series, new maxima come
//! by chance: sample `i` is one with probability 1/`i`, so the second half of the series has 0.7 new maxima on average,
//! whatever the batch sizes. In a leak, the floor rises at a steady or growing rate, in many steps, none of which is
//! most of the growth, and so fast that memory runs out within a day ([`trend`]).

mod buckets;
mod forecast;
mod leak_detectors;
mod memory_growth;
mod pattern;
mod sawtooth;
mod steps;
mod suspicion;
#[cfg(test)]
mod tests;
mod trend;
mod wording;

use serde::{Deserialize, Serialize};

use self::buckets::BucketLevels;
use self::forecast::GrowthPath;
pub(crate) use self::forecast::{Forecast, Rate};
pub(super) use self::leak_detectors::LeakDetectors;
pub use self::memory_growth::PartedDetector;
pub(crate) use self::memory_growth::{MemoryGrowth, describe_evidence, part_name};
use self::sawtooth::Sawtooth;
use self::steps::StepGrowth;
use self::suspicion::{StoppedLeak, Suspicion};
use self::trend::Trend;
use crate::base::units::{Bytes, Moment};

/// The verdict on the growth of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, strum::IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub enum LeakVerdict {
    /// Too few samples for a verdict.
    #[default]
    TooSoon,
    /// The series does not grow, or too slowly to matter within a day.
    Steady,
    /// The series grows in its first minutes, or ever more slowly, as in the warm-up of a job.
    WarmingUp,
    /// The series grows like a leak, but the growth is too short or too uneven to be sure.
    Suspect,
    /// The series grows evenly, and memory would run out within a day.
    Leak,
}

/// The figures behind a verdict of [`LeakVerdict::Suspect`] or [`LeakVerdict::Leak`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    pub since: Moment,
    /// The memory gained since then and not released.
    pub gained: Bytes,
    /// The duration of the growth in seconds.
    pub span: f64,
    /// The number of new maxima of the floor in that time.
    pub maxima: u32,
    /// The number of new maxima expected by chance in that time.
    pub chance: f64,
    pub rate: Rate,
    /// When memory runs out; `None` where the limit is unknown, or the time is too far away to predict.
    pub forecast: Option<Forecast>,
}

/// The kind of a sudden change of the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
pub enum MemoryDrop {
    /// Memory rose again after almost nothing was left: the process started again.
    #[strum(to_string = "restarted")]
    Restarted,
    /// Less than 128 MiB is left: the process has lost its CUDA context, or is about to end.
    #[strum(to_string = "context gone")]
    ContextGone,
    /// More than a fifth was released, and the rest is still held: the cache was emptied.
    #[strum(to_string = "cache emptied")]
    CacheEmptied,
}

/// Judges the growth of one series.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeakDetector {
    levels: BucketLevels,
    /// `None` while the amount is constant.
    steps: Option<Box<(StepGrowth, Sawtooth)>>,
    first: Option<Moment>,
    last: Option<(Moment, u32)>,
    /// The amount in KiB at which memory runs out; 0 when it is not known.
    limit: u32,
    /// The usual number of seconds between two samples.
    interval: f64,
    /// How many of the latest samples in a row came more than 2.5 intervals after the sample before them.
    late_samples: u8,
    samples: u32,
    /// The growth under suspicion, if any. Boxed: few series have one.
    suspicion: Option<Box<Suspicion>>,
    /// The amount in KiB above which a stopped leak counts as resumed: somewhat more than its highest amount, so that a
    /// single further step raises no second alarm.
    resumes_above: u32,
    verdict: LeakVerdict,
    last_drop: Option<(Moment, MemoryDrop)>,
    /// Whether the last drop left almost nothing.
    is_empty: bool,
    /// The last leak that stopped and may resume.
    stopped_leak: Option<StoppedLeak>,
    /// The length in seconds of the longest growth that was released afterwards, like garbage that is collected.
    longest_given_back: f64,
}

/// A longer time in seconds than any series of a checkpoint may span.
const LONGEST_SPAN: f64 = 1e9;

/// The age of a series in seconds below which there is no verdict.
const TOO_SOON: f64 = 60.0;
/// The age of a series in sampling intervals below which there is no verdict.
const TOO_FEW_SAMPLES: f64 = 10.0;
/// The age of a series in seconds below which any growth counts as warm-up.
const YOUNG_JOB: f64 = 300.0;
/// The longest time in seconds that a suspicion survives without a new maximum, unless samples are rare.
const LONGEST_WAIT_OF_SUSPECT: f64 = 110.0;
/// How many seconds of growth a rise stands for, per second that it takes at the current rate.
const RISE_CREDIT: f64 = 3.0;

impl LeakDetector {
    /// Whether a detector of a checkpoint, which may be forged, keeps the rules that its arithmetic relies on.
    fn is_sound(&self) -> bool {
        let last = self.last.map_or(Moment(0), |(last, _)| last);
        (0.0..LONGEST_SPAN).contains(&self.interval)
            && self.late_samples < 16
            && self.levels.is_sound(last)
            && self.steps.as_deref().is_none_or(|(steps, sawtooth)| steps.is_sound() && sawtooth.is_sound())
            && self.suspicion.as_deref().is_none_or(Suspicion::is_sound)
    }

    /// Adds a sample: the memory held at a time, and the amount at which memory runs out, where known. Ignores a sample
    /// that is not later than the last one.
    pub fn push(&mut self, at: Moment, memory: Bytes, limit: Option<Bytes>) {
        let kib = u32::try_from(memory.0 >> 10).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        let first = *self.first.get_or_insert(at);
        if let Some((before, held)) = self.last {
            if at <= before {
                return;
            }
            let elapsed = seconds(before, at);
            self.samples = self.samples.saturating_add(1);
            // A late sample hardly changes the interval, unless it is at least the fourth in a row, or the eighth in a
            // long series.
            self.late_samples =
                if self.samples > 2 && elapsed > 2.5 * self.interval { self.late_samples + 1 } else { 0 };
            let believed = if self.samples < 64 || self.levels.is_constant() { 4 } else { 8 };
            let weight = match self.late_samples {
                0 => (1.0 / f64::from(self.samples)).max(0.1),
                late_samples if late_samples < believed => 0.02,
                _ => 1.0,
            };
            self.interval += weight * (elapsed - self.interval);
            if self.samples >= 5 {
                self.levels.fit(self.interval);
            }
            self.note_drop(at, held, kib);
        }
        let seen = self.last.map_or(at, |(before, _)| Moment(before.0 + millis(self.interval)));
        self.last = Some((at, kib));
        self.limit = limit.map_or(0, |limit| u32::try_from(limit.0 >> 10).unwrap_or(u32::MAX));
        if let Some(suspicion) = &mut self.suspicion
            && kib > suspicion.top
        {
            suspicion.rise(at, kib, seen);
        }
        let finished = self.levels.push(at, kib);
        if finished > 0 {
            if let Some(bucket) = self.levels.latest() {
                let steps = self.steps.get_or_insert_with(|| (StepGrowth::since(first), Sawtooth::since(first)).into());
                steps.0.push(bucket);
                steps.1.push(bucket);
            }
            self.judge(at, finished);
        }
        if let Some(suspicion) = &self.suspicion
            && seconds(suspicion.last_rise, at) > suspicion.patience(self.interval)
            && !(suspicion.is_leak
                && at < suspicion.rises_until
                && seconds(suspicion.last_rise, at) < suspicion.sawtooth_period)
        {
            if suspicion.is_leak {
                self.stopped_leak = Some(StoppedLeak {
                    began: suspicion.since,
                    at: suspicion.last_rise,
                    longest: suspicion.longest_rest,
                });
                self.resumes_above = suspicion.top.saturating_add(suspicion.resumption());
            }
            self.suspicion = None;
        }
        let age = seconds(first, at);
        self.verdict = match &self.suspicion {
            Some(suspicion) if suspicion.is_leak => LeakVerdict::Leak,
            Some(_) => LeakVerdict::Suspect,
            None if age < TOO_SOON || age < TOO_FEW_SAMPLES * self.interval => LeakVerdict::TooSoon,
            None if finished > 0 => self.without_suspicion(age),
            None if self.verdict >= LeakVerdict::Suspect || self.verdict == LeakVerdict::TooSoon => LeakVerdict::Steady,
            None => self.verdict,
        };
    }

    /// The verdict so far.
    pub fn verdict(&self) -> LeakVerdict {
        self.verdict
    }

    /// The figures behind the verdict; `None` unless the verdict is suspect or leak.
    pub fn evidence(&self) -> Option<&Evidence> {
        self.suspicion.as_ref().map(|suspicion| &suspicion.evidence)
    }

    /// The last sudden drop or restart, and its time; `None` before the first.
    pub fn last_drop(&self) -> Option<(Moment, MemoryDrop)> {
        self.last_drop
    }

    /// The latest amount in KiB.
    fn held(&self) -> f64 {
        self.last.map_or(0.0, |last| f64::from(last.1))
    }

    /// The amount in KiB at which memory runs out; `None` when it is not known.
    fn limit(&self) -> Option<f64> {
        (self.limit > 0).then(|| f64::from(self.limit))
    }

    /// Classifies a sudden drop or restart, by the KiB before and now. Ends the suspicion when the growth was released.
    fn note_drop(&mut self, at: Moment, before: u32, now: u32) {
        // The KiB below which nothing counts as held: a CUDA context alone takes more.
        const NOTHING: u32 = 128 << 10;
        // The KiB that must be released at once to count as a drop.
        const MUCH: u32 = 256 << 10;
        if self.is_empty && now > NOTHING {
            self.is_empty = false;
            self.last_drop = Some((at, MemoryDrop::Restarted));
            // The earlier samples belong to another run.
            *self = Self { last_drop: self.last_drop, interval: self.interval, first: Some(at), ..Self::default() };
            return;
        }
        if before <= now {
            return;
        }
        let fallen = before - now;
        if now < NOTHING && fallen > MUCH {
            self.is_empty = true;
            self.last_drop = Some((at, MemoryDrop::ContextGone));
        } else if fallen > MUCH && fallen > before / 5 {
            self.last_drop = Some((at, MemoryDrop::CacheEmptied));
        }
        // Memory fell below the base of the growth: the growth was garbage. The end of a short bump does not reach
        // below the base.
        if let Some(suspicion) = self.suspicion.take_if(|suspicion| f64::from(now) < suspicion.base) {
            self.longest_given_back = self.longest_given_back.max(seconds(suspicion.since, at));
            self.stopped_leak = None;
        }
    }

    /// Whether a trend only returns to about an amount held before: the series goes up and down. An earlier short bump
    /// does not count, since less was held most of the time.
    fn regains(&self, level: usize, trend: &Trend) -> bool {
        let held = self.held();
        (1..=2).any(|coarser| {
            let before = self.levels.points_before(level + coarser, trend.from);
            let before = before.as_slice();
            let above = |height: f64| before.iter().filter(|point| point.low > height).count();
            let third = |height: f64| 3 * above(height) > before.len();
            third(held - 0.7 * trend.gained) || above(held - 0.3 * trend.gained) > 0 && third(held - 0.8 * trend.gained)
        })
    }

    /// Whether a trend may be one more rise of a series that goes up and down, like that of a server: it gains less
    /// than twice the usual fluctuation, or less than 50 times as much and unevenly. False for a series that leaks
    /// already.
    fn is_fluctuation(&self, level: usize, trend: &Trend) -> bool {
        if self.suspicion.as_ref().is_some_and(|suspicion| suspicion.is_leak) {
            return false;
        }
        let fluctuation =
            [1, 2].map(|coarser| trend::fluctuation(self.levels.points_before(level + coarser, trend.from).as_slice()));
        let fluctuation = fluctuation[0].max(fluctuation[1]);
        trend.gained < 2.0 * fluctuation || trend.gained < 50.0 * fluctuation && trend.rest > 0.02
    }

    /// Returns the verdict on a series of this age in seconds that is not under suspicion: steady, or warming up.
    fn without_suspicion(&self, age: f64) -> LeakVerdict {
        let points = self.levels.points(0);
        let points = points.as_slice();
        let recent = &points[points.len().saturating_sub(12)..];
        let (Some(from), Some(to)) = (recent.first(), recent.last()) else { return LeakVerdict::Steady };
        let grows = to.low > from.high + f64::from(1 << 10) + from.high * 0.002;
        // A return to an amount that was held before is no warm-up.
        let is_more = grows && to.low > self.levels.highest(from.at);
        if is_more && (age < YOUNG_JOB || points.len() < 30 || self.levels.slows()) {
            LeakVerdict::WarmingUp
        } else {
            LeakVerdict::Steady
        }
    }

    /// Searches for a trend on the `finished` finest levels, which have a new bucket, and updates the suspicion.
    fn judge(&mut self, at: Moment, finished: usize) {
        let Some(first) = self.first else { return };
        let mut best: Option<(Trend, bool)> = None;
        if self.suspicion.is_none() && self.last.is_some_and(|last| last.1 <= self.resumes_above) {
            return;
        }
        for level in 0..finished {
            let points = self.levels.points(level);
            let Some((trend, is_leak)) = trend::find(&points, self.limit(), 2.0 * self.longest_given_back) else {
                continue;
            };
            let is_leak = is_leak && !self.is_fluctuation(level, &trend);
            if let Some(suspicion) = &mut self.suspicion
                && is_leak
            {
                suspicion.rises_until = suspicion.rises_until.max(Moment(at.0 + millis(1.5 * points.width)));
            }
            if self.has_stopped(&trend, is_leak) || self.regains(level, &trend) {
                continue;
            }
            if best.as_ref().is_none_or(|(had, was)| (is_leak, trend.span) > (*was, had.span)) {
                best = Some((trend, is_leak));
            }
        }
        if let Some((steps, sawtooth)) = self.steps.as_deref() {
            let room = self.limit().map(|limit| (limit - self.held()).max(0.0));
            let (now, width) = (seconds(Moment(0), at), self.levels.width(0));
            let sawtooth = sawtooth.find(now, width, room);
            if let (Some(suspicion), Some(sawtooth)) = (&mut self.suspicion, &sawtooth) {
                suspicion.rises_until = suspicion.rises_until.max(Moment(at.0 + millis(0.3 * sawtooth.pause)));
            }
            if best.as_ref().is_none_or(|best| !best.1) {
                let steps = steps.find(now, width, room).filter(|trend| !self.is_fluctuation(0, trend));
                best = steps.or(sawtooth).map(|trend| (trend, true)).or(best);
            }
        }
        if let Some((trend, is_leak)) = best {
            let since = Moment(first.0.max(millis(trend.from)));
            // Growth that resumes after a rest shorter than the stopped leak lasted is the same leak, and began when
            // that one did.
            let (since, longest_rest) = match self.stopped_leak {
                Some(pause) if seconds(pause.at, since) < seconds(pause.began, pause.at) => {
                    (since.min(pause.began), pause.longest.max(seconds(pause.at, since)).max(self.interval))
                }
                _ => (since, 0.0),
            };
            self.suspect(at, trend, is_leak, since, longest_rest);
        }
        self.update_evidence(at);
    }

    /// Whether the finest buckets show that a trend found in coarser ones is over.
    fn has_stopped(&self, trend: &Trend, is_leak: bool) -> bool {
        let points = self.levels.points(0);
        let pauses = trend.pauses(points.as_slice());
        let patience = 1.6 * pauses.longest + 2.0 * points.width + 10.0;
        pauses.last > if is_leak { patience } else { patience.min(LONGEST_WAIT_OF_SUSPECT.max(2.0 * points.width)) }
    }

    fn suspect(&mut self, at: Moment, trend: Trend, is_leak: bool, since: Moment, longest_rest: f64) {
        let (_, held) = self.last.unwrap_or((at, 0));
        match &mut self.suspicion {
            Some(suspicion) => {
                // A leak stays a leak until it stops.
                suspicion.is_leak |= is_leak;
                // Coarser buckets date the beginning less exactly, so only a much earlier date replaces the known one.
                // In a growth with rests, the date found first may be the end of a rest.
                let known = seconds(suspicion.since, at);
                let longer = if suspicion.trend.begun { 3.0 * known } else { known + 2.0 * trend.width };
                if seconds(since, at) > longer {
                    suspicion.since = since;
                }
                suspicion.trend = trend;
            }
            None => {
                let pauses = trend.pauses(self.levels.points(0).as_slice());
                let suspicion = Suspicion {
                    since,
                    longest_rest,
                    is_leak,
                    base: 0.0,
                    top: held,
                    last_rise: Moment(at.0.saturating_sub(millis(pauses.last))),
                    longest_pause: pauses.longest,
                    sawtooth_period: 0.0,
                    rises_until: at,
                    evidence: Evidence { since, ..Evidence::default() },
                    trend,
                };
                self.suspicion = Some(suspicion.into());
            }
        }
    }

    fn update_evidence(&mut self, at: Moment) {
        let limit = self.limit();
        let (Some(first), Some(suspicion)) = (self.first, &mut self.suspicion) else { return };
        let since = seconds(Moment(0), suspicion.since);
        let points = self.levels.since(since);
        let width = points.width;
        let points = points.as_slice();
        let from = points.partition_point(|point| point.at < since + width / 2.0 - 1e-3);
        let points = &points[from.min(points.len().saturating_sub(4))..];
        let Some(path) = GrowthPath::of(points) else { return };
        let now = seconds(Moment(0), at);
        suspicion.base = path.base;
        suspicion.sawtooth_period = path.sawtooth_period(now);
        let (maxima, chance) = trend::maxima(points, (since - seconds(Moment(0), first)).max(0.0));
        suspicion.evidence = Evidence {
            since: suspicion.since,
            gained: Bytes(to_bytes(path.gained)),
            span: seconds(suspicion.since, at),
            maxima,
            chance,
            rate: Rate(path.rate(now) * 1024.0),
            forecast: limit.and_then(|limit| path.reaches(now, limit, suspicion.longest_rest)),
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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a gain is positive")]
fn to_bytes(kib: f64) -> u64 {
    (kib.max(0.0) * 1024.0) as u64
}
