//! Detects memory leaks: whether a series leaks, how fast, and when memory runs out.
//!
//! A [`LeakDetector`] takes the memory samples of one GPU or process. It keeps the lowest and
//! highest amount in each bucket of time, on levels of finer and coarser buckets ([`buckets`]). The
//! interval and regularity of the samples therefore matter little, and a leak of minutes and a leak
//! of days each fill the buckets of some level.
//!
//! Growth is a leak when it is regular at some scale: when the floor, the lowest amount from a time
//! on, rose in each of the last parts of the series by a similar amount, whatever the length of the
//! parts ([`regular_growth`]). From then on it is a leak until the floor stalls for longer than it
//! ever did before it went on ([`watched_growth`]).

mod buckets;
mod forecast;
mod gates;
mod growing;
mod leak_detectors;
mod limits;
mod loading;
mod memory_growth;
mod pattern;
mod plateau;
mod probe_leak;
mod regular_growth;
#[cfg(test)]
mod tests;
mod watched_growth;
mod wording;

use serde::{Deserialize, Serialize};

use self::buckets::{BucketLevels, LENGTH};
use self::forecast::Pace;
pub(crate) use self::forecast::{Forecast, Rate};
pub(crate) use self::growing::Growing;
pub(super) use self::leak_detectors::LeakDetectors;
use self::limits::LIMITS;
pub use self::memory_growth::PartedDetector;
pub(crate) use self::memory_growth::{MemoryGrowth, describe_evidence, part_name};
use self::plateau::LevellingOff;
pub(super) use self::probe_leak::ProbeLeak;
use self::regular_growth::RegularGrowth;
use self::watched_growth::{GrowthEnd, StoppedLeak, WatchedGrowth};
use crate::base::units::{Bytes, Moment};

/// The verdict on the growth of a series.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    strum::IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
pub enum LeakVerdict {
    /// Too few samples for a verdict.
    #[default]
    TooSoon,
    /// The series does not grow, or too slowly to matter within a day.
    Steady,
    /// The series grows in its first minutes, or ever more slowly, as in the warm-up of a job.
    WarmingUp,
    /// The series grows ever more slowly towards a plateau, as a cache that fills up.
    Filling,
    /// The series grows like a leak, but the growth is too short or too uneven to be sure.
    Suspect,
    /// The series grows evenly, and memory would run out within a day.
    Leak,
}

/// The figures behind a verdict that memory grows: from [`LeakVerdict::Filling`] on.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    pub since: Moment,
    /// When the growth was found: later than it began, since it must be regular for some time.
    pub found: Moment,
    /// The memory gained since then and not released.
    pub gained: Bytes,
    /// The duration of the growth in seconds.
    pub span: f64,
    /// The number of new maxima of the floor in that time.
    pub maxima: u32,
    /// The number of new maxima expected by chance in that time.
    pub chance: f64,
    pub rate: Rate,
    /// Whether growth becomes faster: then memory may run out much sooner than forecast.
    pub speeds_up: bool,
    /// When memory runs out; `None` where the limit is unknown, the time is too far away to predict,
    /// or growth levels off before.
    pub forecast: Option<Forecast>,
    /// Where growth levels off, or may; `None` while there is no sign of it.
    pub plateau: Option<Plateau>,
}

/// The amount at which growth levels off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plateau {
    pub likely: Bytes,
    pub low: Bytes,
    pub high: Bytes,
    /// Whether this is known: else growth may as well go on.
    pub is_known: bool,
    /// Whether memory runs out before.
    pub is_above_limit: bool,
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
    first: Option<Moment>,
    last: Option<(Moment, u32)>,
    /// The amount in KiB at which memory runs out; 0 when it is not known.
    limit: u32,
    /// The usual number of seconds between two samples.
    interval: f64,
    /// How many of the latest samples in a row came more than 2.5 intervals after the sample before
    /// them.
    late_samples: u8,
    samples: u32,
    /// The growth that is suspect or a leak, if any. Boxed: few series have one.
    watched: Option<Box<WatchedGrowth>>,
    verdict: LeakVerdict,
    last_drop: Option<(Moment, MemoryDrop)>,
    /// Whether the last drop left almost nothing.
    is_empty: bool,
    /// The last leak that stopped and may resume.
    stopped_leak: Option<StoppedLeak>,
}

/// A longer time in seconds than any series of a checkpoint may span.
const LONGEST_SPAN: f64 = 1e9;

impl LeakDetector {
    /// Whether a detector of a checkpoint, which may be forged, keeps the rules that its arithmetic
    /// relies on.
    fn is_sound(&self) -> bool {
        let last = self.last.map_or(Moment(0), |(last, _)| last);
        (0.0..LONGEST_SPAN).contains(&self.interval)
            && self.late_samples < 16
            && self.levels.is_sound(last)
            && self.watched.as_deref().is_none_or(WatchedGrowth::is_sound)
    }

    /// Adds a sample: the memory held at a time, and the amount at which memory runs out, where
    /// known. Ignores a sample that is not later than the last one.
    pub fn push(&mut self, at: Moment, memory: Bytes, limit: Option<Bytes>) {
        let kib = u32::try_from(memory.0 >> 10)
            .unwrap_or(u32::MAX - 1)
            .min(u32::MAX - 1);
        // A damaged checkpoint may say that the series begins later than now.
        let first = self.first.map_or(at, |first| first.min(at));
        self.first = Some(first);
        if let Some((last, held)) = self.last {
            if at <= last {
                return;
            }
            let elapsed = seconds(last, at);
            self.samples = self.samples.saturating_add(1);
            // A late sample hardly changes the interval, unless it is at least the fourth in a row,
            // or the eighth in a long series.
            self.late_samples = if self.samples > 2 && elapsed > 2.5 * self.interval {
                self.late_samples + 1
            } else {
                0
            };
            let believed = if self.samples < 64 || self.levels.is_constant() {
                4
            } else {
                8
            };
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
        self.last = Some((at, kib));
        self.limit = limit.map_or(0, |limit| u32::try_from(limit.0 >> 10).unwrap_or(u32::MAX));
        let finished = self.levels.push(at, kib);
        if finished > 0 {
            self.judge(at, finished);
        }
        let (age, limits) = (seconds(first, at), &LIMITS.series);
        self.verdict = match &self.watched {
            Some(watched) => watched.verdict(self.limit()),
            None if age < limits.too_soon || age < limits.too_few_samples * self.interval => {
                LeakVerdict::TooSoon
            }
            None if finished > 0 => self.without_growth(age),
            None if self.verdict >= LeakVerdict::Filling
                || self.verdict == LeakVerdict::TooSoon =>
            {
                LeakVerdict::Steady
            }
            None => self.verdict,
        };
    }

    /// The verdict so far.
    pub fn verdict(&self) -> LeakVerdict {
        self.verdict
    }

    /// The figures behind the verdict; `None` unless memory [grows](LeakVerdict::grows).
    pub fn evidence(&self) -> Option<&Evidence> {
        self.watched.as_ref().map(|watched| &watched.evidence)
    }

    /// The figures of the growth that goes on now; `None` when nothing grows, and while a growth
    /// that is no leak pauses.
    pub fn growing(&self) -> Option<&Evidence> {
        self.watched
            .as_deref()
            .filter(|watched| watched.goes_on())
            .map(|watched| &watched.evidence)
    }

    /// Whether memory grows, and rose just now.
    pub fn rises(&self) -> bool {
        self.watched
            .as_deref()
            .is_some_and(|watched| watched.rises(self.held(), &self.levels))
    }

    /// The KiB that the floor has gained since a time; what is held now if the series began later.
    fn gained_since(&self, since: Moment) -> f64 {
        let since = seconds(Moment(0), since);
        if self
            .first
            .is_none_or(|first| seconds(Moment(0), first) > since)
        {
            return self.held();
        }
        // A constant series has no points.
        let points = self.levels.reaching(since);
        let start = points.as_slice().iter().find(|point| point.at >= since);
        start.map_or(0.0, |start| self.held() - start.low)
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

    /// Classifies a sudden drop or restart, by the KiB held at the last sample and now.
    fn note_drop(&mut self, at: Moment, last_held: u32, now: u32) {
        let limits = &LIMITS.series;
        if self.is_empty && now > limits.nothing {
            self.is_empty = false;
            self.last_drop = Some((at, MemoryDrop::Restarted));
            // The earlier samples belong to another run.
            *self = Self {
                last_drop: self.last_drop,
                interval: self.interval,
                first: Some(at),
                ..Self::default()
            };
            return;
        }
        if last_held <= now {
            return;
        }
        let fallen = last_held - now;
        if let Some(watched) = &mut self.watched {
            watched.remove_fall(&mut self.levels, f64::from(last_held), f64::from(now));
        }
        if now < limits.nothing && fallen > limits.least_drop {
            self.is_empty = true;
            (self.watched, self.stopped_leak) = (None, None);
            self.last_drop = Some((at, MemoryDrop::ContextGone));
        } else if fallen > limits.least_drop && fallen > last_held / limits.cache_divisor {
            self.last_drop = Some((at, MemoryDrop::CacheEmptied));
        }
    }

    /// Returns the verdict on a series of this age in seconds that does not grow like a leak:
    /// steady, or warming up.
    fn without_growth(&self, age: f64) -> LeakVerdict {
        let limits = &LIMITS.series;
        let points = self.levels.filled(0);
        let points = points.as_slice();
        let recent = &points[points.len().saturating_sub(limits.recent_buckets)..];
        let (Some(from), Some(to)) = (recent.first(), recent.last()) else {
            return LeakVerdict::Steady;
        };
        let grows = to.low > from.high + limits.least_rise + from.high * limits.least_share;
        // A return to an amount that was held before is no warm-up.
        let is_more = grows && to.low > self.levels.highest(from.at);
        let is_young = age < limits.young_job || points.len() < limits.young_buckets;
        if is_more && (is_young || self.levels.slows()) {
            LeakVerdict::WarmingUp
        } else {
            LeakVerdict::Steady
        }
    }

    /// The memory in KiB that may still be taken above an amount; as much as is held where the
    /// limit is not known.
    fn room(&self, above: f64) -> f64 {
        self.limit()
            .map_or_else(|| self.held(), |limit| (limit - above).max(0.0))
    }

    /// The regular growths on a level.
    fn growths(&self, level: usize) -> impl Iterator<Item = RegularGrowth> {
        RegularGrowth::on_level(&self.levels, level, |above| self.room(above))
    }

    /// Looks for growth on the `finished` finest levels, which have a new bucket, and whether the
    /// watched one goes on.
    fn judge(&mut self, at: Moment, finished: usize) {
        if let Some(watched) = &mut self.watched {
            watched.remove_rise(&mut self.levels);
        }
        let is_leaking = self.watched.as_ref().is_some_and(|watched| watched.is_leak);
        let held = self
            .levels
            .filled(0)
            .as_slice()
            .last()
            .map_or(0.0, |point| point.low);
        let stopped = self.stopped_leak.filter(|_| !is_leaking);
        let is_new = |growth: &RegularGrowth| {
            stopped.is_none_or(|stopped| growth.beyond(stopped.floor, held).is_met())
        };
        let found: Vec<RegularGrowth> = (0..finished)
            .flat_map(|level| self.growths(level))
            .filter(is_new)
            .collect();
        let rank = |growth: &RegularGrowth| (growth.is_leak, -growth.part);
        let suspects = found
            .iter()
            .filter(|growth| (growth.is_leak || growth.is_suspect) && growth.within_day().is_met());
        let best = suspects.max_by(|one, other| {
            rank(one)
                .partial_cmp(&rank(other))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        match (&mut self.watched, best) {
            (Some(watched), best) if watched.is_leak || !best.is_some_and(|best| best.is_leak) => {
                watched.follow(&found, &self.levels);
            }
            (_, Some(best)) => {
                self.watched =
                    Some(WatchedGrowth::new(*best, &self.levels, self.stopped_leak).into());
            }
            (_, None) => {}
        }
        self.end_growth();
        self.note_plateau();
        self.update_evidence(at);
    }

    /// Stops to watch a growth that has stopped.
    fn end_growth(&mut self) {
        // A time without samples shows no stall.
        let Some(watched) = self
            .watched
            .as_mut()
            .filter(|_| self.levels.is_newest_known())
        else {
            return;
        };
        let Some(end) = watched.end(&self.levels) else {
            return;
        };
        let plateau = watched.known_plateau();
        if watched.is_leak || plateau.is_some() {
            let latest = self.levels.filled(0).as_slice().last().copied();
            let (stopped_for, floor) = match end {
                GrowthEnd::Stopped(seconds) => {
                    let floor = latest.map_or(0.0, |point| point.low);
                    // A cache may still fill up to its plateau.
                    (seconds, plateau.map_or(floor, |plateau| plateau.max(floor)))
                }
                // Growth that only regains what was given back is no other leak.
                GrowthEnd::GivenBack => (0.0, watched.top),
            };
            self.stopped_leak = Some(StoppedLeak {
                began: watched.from,
                at: (self.levels.now() - stopped_for).max(watched.from),
                floor,
                survived: watched.survived,
                rest: watched.rest,
                is_given_back: end == GrowthEnd::GivenBack,
            });
        }
        self.watched = None;
    }

    /// Finds whether the watched growth levels off.
    fn note_plateau(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.levelling_off =
                LevellingOff::follow(&self.levels, watched.from, watched.levelling_off);
        }
    }

    fn update_evidence(&mut self, at: Moment) {
        let limit = self.limit();
        let (Some(first), Some(watched)) = (self.first, &mut self.watched) else {
            return;
        };
        let since = Moment(millis(watched.from).clamp(first.0, at.0));
        let points = self.levels.reaching(watched.from);
        let known = points.as_slice();
        let known = &known[known.partition_point(|point| point.at < watched.from)..];
        let floor = floor(known);
        let floor = &floor[..known.len()];
        let gained = floor
            .first()
            .zip(floor.last())
            .map_or(0.0, |(first, last)| last - first);
        let maxima = floor.windows(2).filter(|pair| pair[1] > pair[0]).count();
        let earlier = seconds(first, since).max(points.width / 2.0);
        let span = seconds(since, at);
        let pace = Pace::measure(watched, &self.levels);
        let mut rate = pace.rate;
        let mut forecast = limit.and_then(|limit| forecast::forecast(watched, &self.levels, limit));
        let levelling_off = watched.levelling_off().copied();
        if let Some(levelling_off) = levelling_off {
            rate = levelling_off.rate();
            if levelling_off.is_known(limit) {
                forecast = limit.and_then(|limit| {
                    forecast::before_plateau(&levelling_off, watched, &self.levels, limit)
                });
            }
        }
        let plateau = levelling_off.map(|levelling_off| levelling_off.plateau(limit));
        watched.evidence = Evidence {
            since,
            found: Moment(millis(watched.found)),
            gained: Bytes(to_bytes(gained)),
            span,
            maxima: u32::try_from(maxima).unwrap_or(u32::MAX),
            chance: libm::log((earlier + span) / earlier),
            rate: Rate(rate * 1024.0),
            speeds_up: pace.speeds_up() && plateau.is_none(),
            forecast,
            plateau,
        };
    }
}

/// Returns the floor in KiB: for each point, the lowest amount from there on.
fn floor(points: &[buckets::Point]) -> [f64; LENGTH] {
    let mut floor = [0.0; LENGTH];
    let mut lowest = f64::INFINITY;
    for (place, point) in points.iter().enumerate().rev() {
        lowest = lowest.min(point.low);
        floor[place] = lowest;
    }
    floor
}

/// The median of the slopes between each two points, which are times and amounts (Theil and Sen);
/// `None` without two points.
fn median_slope(points: &[(f64, f64)]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (place, (from, low)) in points.iter().enumerate() {
        slopes.extend(
            points[place + 1..]
                .iter()
                .map(|(to, high)| (high - low) / (to - from)),
        );
    }
    let middle = slopes.len() / 2;
    (!slopes.is_empty()).then(|| *slopes.select_nth_unstable_by(middle, f64::total_cmp).1)
}

fn seconds(from: Moment, to: Moment) -> f64 {
    to.since(from).as_secs_f64()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time since boot is small and positive"
)]
fn millis(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0) as u64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 KiB are more than there is"
)]
fn kib(bytes: Bytes) -> f64 {
    (bytes.0 >> 10) as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a gain is positive"
)]
fn to_bytes(kib: f64) -> u64 {
    (kib.max(0.0) * 1024.0) as u64
}
