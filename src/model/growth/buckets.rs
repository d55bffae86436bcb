//! Keeps the samples of a series in buckets of time: the lowest and highest amount of each, on
//! levels of ever wider buckets.
//!
//! Every level has the same number of buckets, four times as wide as those of the level below. With
//! a sample each second, the finest level covers 9 minutes and the coarsest level 6 days; all
//! levels take less than 4 kB. With rarer samples, the buckets are wider, so that each has a sample
//! as a rule. A series that never changed needs no buckets: the memory of most processes is
//! constant.

use serde::{Deserialize, Serialize};

use super::limits::LIMITS;
use crate::base::units::Moment;
use crate::model::min_max::MinMax;

/// The most finished buckets that a level keeps.
pub(super) const LENGTH: usize = 64;
/// The width of the finest buckets in milliseconds, unless samples come less often.
const FINEST: u64 = 8000;
/// The width of finest buckets in milliseconds from which they are not widened any more.
const WIDEST: u64 = 3_600_000;

/// The amounts in KiB in one span of time; empty where no sample fell into it.
type Bucket = MinMax<u32>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct BucketLevel {
    open: Bucket,
    /// The finished buckets, oldest first.
    full: Vec<Bucket>,
}

impl BucketLevel {
    /// Adds a sample that is `ahead` buckets after the open one. Returns whether that finished the
    /// open bucket.
    fn push(&mut self, ahead: u64, kib: u32) -> bool {
        if ahead == 0 {
            self.open = self.open.with(Bucket::of(kib));
            return false;
        }
        let finished = std::mem::replace(&mut self.open, Bucket::of(kib));
        self.keep(finished);
        for _ in 1..ahead.min(LENGTH as u64 + 1) {
            self.keep(Bucket::EMPTY);
        }
        true
    }

    fn keep(&mut self, bucket: Bucket) {
        if self.full.len() == LENGTH {
            self.full.remove(0);
        } else if self.full.len() == self.full.capacity() {
            // Reserves little, so that coarse levels of short series stay small.
            self.full
                .reserve_exact(if self.full.len() < 16 { 4 } else { 16 });
        }
        self.full.push(bucket);
    }
}

/// The lowest and highest amount in one bucket of time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Point {
    /// The middle of the bucket in seconds since boot.
    pub(super) at: f64,
    /// The lowest amount in KiB.
    pub(super) low: f64,
    /// The highest amount in KiB.
    pub(super) high: f64,
}

impl Point {
    /// Returns a bucket as a point at the middle of its time, in seconds since boot; `None` for a
    /// bucket without samples.
    fn of(bucket: Bucket, at: f64) -> Option<Self> {
        (!bucket.is_empty()).then_some(Self {
            at,
            low: f64::from(bucket.low),
            high: f64::from(bucket.high),
        })
    }
}

/// The buckets of a level, oldest first. The open bucket is included only where each bucket has a
/// single sample.
#[derive(Debug, Clone)]
pub(super) struct Points {
    buckets: [Point; LENGTH],
    count: usize,
    /// The width of a bucket in seconds.
    pub(super) width: f64,
}

impl Points {
    pub(super) fn as_slice(&self) -> &[Point] {
        &self.buckets[..self.count]
    }

    /// Keeps only the points before a time in seconds since boot.
    pub(super) fn keep_before(&mut self, time: f64) {
        self.count = self.as_slice().partition_point(|point| point.at < time);
    }
}

/// A series in which the amount has never changed, and no bucket is without a sample.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Constant {
    first: Moment,
    last: Moment,
    kib: u32,
}

impl Constant {
    /// Returns the levels that the samples would have filled, with finest buckets of this width in
    /// milliseconds.
    fn varying(&self, finest: u64) -> Varying {
        let ever = Bucket::of(self.kib);
        let full = |level: usize| {
            let width = finest << (2 * level);
            usize::try_from(self.last.0 / width - self.first.0 / width)
                .unwrap_or(LENGTH)
                .min(LENGTH)
        };
        let levels = (0..BucketLevels::COUNT)
            .map(full)
            .take_while(|full| *full > 0);
        Varying {
            ever,
            levels: levels
                .map(|full| BucketLevel {
                    open: ever,
                    full: vec![ever; full],
                })
                .collect(),
        }
    }
}

/// A series in which the amount has changed, or a bucket is without a sample.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Varying {
    /// The lowest and highest amount of the series.
    ever: Bucket,
    /// The levels that have a finished bucket. On a further level, the open bucket equals `ever`.
    levels: Vec<BucketLevel>,
}

impl Varying {
    /// Adds a sample. `number` and `last_number` are the indices of the finest buckets of
    /// this sample and of the last one. Returns how many levels, from the finest on, have a new finished
    /// bucket.
    fn push(&mut self, last_number: u64, number: u64, kib: u32) -> usize {
        let mut finished = 0;
        for at in 0..BucketLevels::COUNT {
            let ahead = (number >> (2 * at)) - (last_number >> (2 * at));
            if at == self.levels.len() {
                if ahead == 0 {
                    break;
                }
                self.levels.reserve_exact(1);
                self.levels.push(BucketLevel {
                    open: self.ever,
                    full: Vec::new(),
                });
            }
            if self.levels[at].push(ahead, kib) {
                finished = at + 1;
            }
        }
        self.ever = self.ever.with(Bucket::of(kib));
        finished
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BucketLevels {
    /// The width of the finest buckets in milliseconds.
    finest: u64,
    /// The index, counted from boot, of the finest bucket that is open; the open buckets of other
    /// levels contain that bucket.
    number: u64,
    /// The series before its first change; `None` before the first sample.
    constant: Option<Constant>,
    /// `None` while `constant` describes the whole series.
    varying: Option<Box<Varying>>,
    /// Whether each finest bucket has a single sample as a rule: the bucket is hardly wider than
    /// the sampling interval.
    is_single: bool,
}

impl Default for BucketLevels {
    fn default() -> Self {
        Self {
            finest: FINEST,
            number: 0,
            constant: None,
            varying: None,
            is_single: false,
        }
    }
}

impl BucketLevels {
    pub(super) const COUNT: usize = 6;

    /// Raises or lowers what was before a jump by the jump in KiB. `since` is when it ended, in
    /// seconds since boot, and `level` the lowest amount since then, in KiB.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "buckets since boot are fewer than 2^53, and amounts are within the bounds of their type"
    )]
    pub(super) fn remove_jump(&mut self, jump: f64, since: f64, level: f64) {
        let (number, finest) = (self.number, self.finest);
        let Some(varying) = &mut self.varying else {
            return;
        };
        let whole = |kib: f64| kib.clamp(0.0, f64::from(u32::MAX - 1)) as u32;
        let moved = |kib: u32| whole(f64::from(kib) + jump);
        for (at, buckets) in varying.levels.iter_mut().enumerate() {
            let width = Self::seconds(finest << (2 * at));
            let ends = (0..=number >> (2 * at))
                .rev()
                .map(|number| (number + 1) as f64 * width);
            let newest_first =
                std::iter::once(&mut buckets.open).chain(buckets.full.iter_mut().rev());
            for (end, bucket) in ends
                .zip(newest_first)
                .filter(|(_, bucket)| !bucket.is_empty())
            {
                if end <= since {
                    *bucket = bucket.map(moved);
                } else if end - width < since {
                    bucket.low = moved(bucket.low).min(whole(level)).max(bucket.low);
                }
            }
        }
    }

    /// Whether the levels of a checkpoint keep the rules that their arithmetic relies on, for a
    /// series whose last sample was at a time.
    pub(super) fn is_sound(&self, last: Moment) -> bool {
        let levels = self.varying.iter().flat_map(|varying| &varying.levels);
        (FINEST..=2 * WIDEST).contains(&self.finest)
            && self.number <= last.0 / self.finest
            && self
                .constant
                .is_none_or(|constant| constant.first <= constant.last && constant.last <= last)
            && self
                .varying
                .as_ref()
                .is_none_or(|varying| varying.levels.len() <= Self::COUNT)
            && levels.into_iter().all(|level| level.full.len() <= LENGTH)
    }

    pub(super) fn is_constant(&self) -> bool {
        self.varying.is_none()
    }

    /// Adjusts the bucket width to the sampling interval in seconds.
    pub(super) fn fit(&mut self, interval: f64) {
        let fitting = |interval: f64| {
            let mut finest = FINEST;
            // Buckets may be a little narrower than the interval: now and then, a late sample then
            // leaves a bucket empty.
            while Self::seconds(finest) < 0.95 * interval && finest < WIDEST {
                finest *= 2;
            }
            finest
        };
        let finest = fitting(interval);
        // Narrows the buckets only when twice the interval would fit into narrower ones, too:
        // narrowing loses detail.
        if finest > self.finest || fitting(2.0 * interval) < self.finest {
            self.refit(finest);
        }
        self.is_single = self.finest >= 4 * FINEST && Self::seconds(self.finest) < 1.1 * interval;
    }

    /// Moves the samples into wider or narrower buckets. When narrowing, each wide bucket goes into
    /// its first narrow bucket.
    fn refit(&mut self, finest: u64) {
        let (old_finest, newest) = (std::mem::replace(&mut self.finest, finest), self.number);
        // A constant series has no buckets to move.
        let Some(varying) = self.varying.take() else {
            return;
        };
        *self = Self {
            finest,
            ..Self::default()
        };
        // The buckets of all levels, newest first; of each coarser level, only those that are older
        // than the finer levels reach.
        let mut known = Vec::new();
        let mut forgotten = u64::MAX;
        for (at, level) in varying.levels.iter().enumerate() {
            let (width, newest) = (old_finest << (2 * at), newest >> (2 * at));
            let buckets = std::iter::once(&level.open).chain(level.full.iter().rev());
            let begins = (0..=newest).rev().map(|number| number * width);
            known.extend(
                begins
                    .zip(buckets)
                    .filter(|(begin, bucket)| *begin < forgotten && !bucket.is_empty()),
            );
            if level.full.len() < LENGTH {
                break;
            }
            forgotten = newest.saturating_sub(LENGTH as u64) * width;
        }
        for (begin, bucket) in known.into_iter().rev() {
            self.push(Moment(begin), bucket.low);
            self.push(Moment(begin), bucket.high);
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the widest bucket is of some months"
    )]
    fn seconds(millis: u64) -> f64 {
        millis as f64 / 1000.0
    }

    /// Adds a sample. Returns how many levels, from the finest on, have a new finished bucket: 0
    /// while the amount is constant.
    pub(super) fn push(&mut self, at: Moment, kib: u32) -> usize {
        let number = at.0 / self.finest;
        let varying = match &mut self.varying {
            Some(varying) => varying,
            none => {
                let constant = self.constant.get_or_insert(Constant {
                    first: at,
                    last: at,
                    kib,
                });
                self.number = constant.last.0 / self.finest;
                if constant.kib == kib && number - self.number <= 1 {
                    constant.last = at;
                    return 0;
                }
                none.insert(constant.varying(self.finest).into())
            }
        };
        varying.push(std::mem::replace(&mut self.number, number), number, kib)
    }

    /// The width of a level's buckets in seconds.
    pub(super) fn width(&self, level: usize) -> f64 {
        Self::seconds(self.finest << (2 * level))
    }

    /// Returns the buckets of a level as points. A bucket without samples repeats the one before
    /// it.
    #[expect(
        clippy::cast_precision_loss,
        reason = "buckets since boot are fewer than 2^53"
    )]
    pub(super) fn filled(&self, level: usize) -> Points {
        let width = self.width(level);
        let mut points = Points {
            buckets: [Point::default(); LENGTH],
            count: 0,
            width,
        };
        let Some(full) = self.full(level) else {
            return points;
        };
        let oldest = (self.number >> (2 * level)).saturating_sub(full.len() as u64);
        let open = self.single().filter(|_| level == 0);
        let mut latest = None;
        let skipped = usize::from(open.is_some() && full.len() == LENGTH);
        for (number, bucket) in (oldest..).zip(full).skip(skipped) {
            let at = (number as f64 + 0.5) * width;
            let Some(point) =
                Point::of(*bucket, at).or_else(|| latest.map(|latest| Point { at, ..latest }))
            else {
                continue;
            };
            latest = Some(point);
            points.buckets[points.count] = point;
            points.count += 1;
        }
        if let Some(open) = open {
            points.buckets[points.count] = open;
            points.count += 1;
        }
        points
    }

    /// Whether the newest finished bucket of the finest level has a sample.
    pub(super) fn is_newest_known(&self) -> bool {
        self.single().is_some()
            || self
                .full(0)
                .and_then(<[Bucket]>::last)
                .is_some_and(|bucket| !bucket.is_empty())
    }

    /// The end of the newest finest bucket whose samples count, in seconds since boot.
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    pub(super) fn now(&self) -> f64 {
        (self.number + u64::from(self.is_single)) as f64 * self.width(0)
    }

    /// Returns the open finest bucket where buckets have a single sample as a rule: waiting for its
    /// end would delay the verdict by one sample.
    fn single(&self) -> Option<Point> {
        self.is_single.then_some(())?;
        self.point(self.varying.as_ref()?.levels.first()?.open, 0.5)
    }

    /// Returns a finest bucket as a point whose middle is `behind` bucket widths after the
    /// beginning of the open bucket.
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    fn point(&self, bucket: Bucket, behind: f64) -> Option<Point> {
        Point::of(bucket, (self.number as f64 + behind) * self.width(0))
    }

    /// The finished buckets of a level; `None` when the level has none.
    fn full(&self, level: usize) -> Option<&[Bucket]> {
        Some(&self.varying.as_ref()?.levels.get(level)?.full)
    }

    /// Returns the points of the finest level that reaches back to a time in seconds since boot.
    pub(super) fn reaching(&self, since: f64) -> Points {
        let fits = |level: &usize| {
            let Some(full) = self.full(*level) else {
                return true;
            };
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let begin = ((self.number >> (2 * level)).saturating_sub(full.len() as u64)) as f64
                * self.width(*level);
            begin <= since || full.len() < LENGTH
        };
        self.filled((0..Self::COUNT).find(fits).unwrap_or(Self::COUNT - 1))
    }

    /// Returns the highest amount in KiB before a time in seconds since boot, as far as buckets
    /// reach; 0 when there are none.
    pub(super) fn highest(&self, time: f64) -> f64 {
        let level = |at| {
            let points = self.filled(at);
            let until = time - points.width / 2.0;
            points
                .as_slice()
                .iter()
                .take_while(|point| point.at <= until)
                .map(|point| point.high)
                .fold(0.0, f64::max)
        };
        (0..Self::COUNT).map(level).fold(0.0, f64::max)
    }

    /// Whether the second half of the finest buckets grew less than the first half, by more than even
    /// growth does.
    pub(super) fn slows(&self) -> bool {
        let points = self.filled(0);
        let points = points.as_slice();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return false;
        };
        let middle = points[points.len() / 2];
        LIMITS.series.even_share * (middle.low - first.low) > last.low - middle.low
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl BucketLevels {
        /// The heap memory in bytes.
        pub(in crate::model::growth) fn heap(&self) -> usize {
            let level = |level: &BucketLevel| {
                size_of::<BucketLevel>() + level.full.capacity() * size_of::<Bucket>()
            };
            self.varying
                .iter()
                .flat_map(|varying| &varying.levels)
                .map(level)
                .sum()
        }
    }

    proptest! {
        /// The levels computed from the ends of a constant series equal those that all of its
        /// samples fill.
        #[test]
        fn a_constant_series_has_the_levels_of_its_samples(
            first in 0_u64..1 << 40, samples in 1_u64..5000, every in 1_u64..8000, then in 1_u64..100,
        ) {
            let mut levels = BucketLevels::default();
            let mut each = [(); BucketLevels::COUNT].map(|()| BucketLevel { open: Bucket::EMPTY, full: Vec::new() });
            let mut before = first;
            for sample in 0..samples + then {
                let (at, kib) = (first + sample * every, if sample < samples { 7 } else { 8 });
                levels.push(Moment(at), kib);
                for (at_level, level) in each.iter_mut().enumerate() {
                    let width = FINEST << (2 * at_level);
                    level.push(at / width - before / width, kib);
                }
                before = at;
            }
            let varying = levels.varying.unwrap();
            let all = BucketLevel { open: varying.ever, full: Vec::new() };
            let kept = (0..BucketLevels::COUNT).map(|at| format!("{:?}", varying.levels.get(at).unwrap_or(&all)));
            prop_assert_eq!(kept.collect::<Vec<_>>(), each.iter().map(|level| format!("{level:?}")).collect::<Vec<_>>());
        }

        /// Samples that came before the interval was known are in the wider buckets, too.
        #[test]
        fn wider_buckets_hold_what_the_narrow_ones_did(
            first in 0_u64..1 << 40, held in proptest::collection::vec(0_u32..9, 2..7), every in 9.0..70.0,
        ) {
            let (mut late, mut early) = (BucketLevels::default(), BucketLevels::default());
            early.fit(every);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than 70,000")]
            let step = (every * 1000.0) as u64;
            for (sample, kib) in (0_u64..).zip(held) {
                let at = Moment(first + sample * step);
                late.push(at, kib);
                early.push(at, kib);
            }
            late.fit(every);
            prop_assert_eq!(format!("{:?}", late.filled(0).as_slice()), format!("{:?}", early.filled(0).as_slice()));
        }
    }
}
