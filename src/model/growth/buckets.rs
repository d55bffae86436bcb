//! The past of a series in buckets of time: the lowest and the highest amount of each, on levels of ever wider ones.
//!
//! Each level has room for the same number of buckets, four times as wide as those of the level below: the finest
//! reaches back some minutes, the coarsest some weeks, in less than 4 kB in all. The finest are wide enough that, as a
//! rule, there is a sample in each. As long as all samples are the same, nothing of it is there: of a thousand
//! processes, most only hold what they hold.

use crate::base::units::Moment;

/// Buckets of one level.
pub(super) const LENGTH: usize = 64;
/// Milliseconds that the finest buckets take, where samples come often.
const FINEST: u64 = 8000;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    low: u32,
    high: u32,
}

impl Bucket {
    /// Nothing was read.
    const HOLE: Self = Self { low: u32::MAX, high: 0 };

    fn is_hole(self) -> bool {
        self.low > self.high
    }

    fn take(&mut self, kib: u32) {
        self.low = self.low.min(kib);
        self.high = self.high.max(kib);
    }
}

#[derive(Debug, Clone)]
struct BucketLevel {
    open: Bucket,
    /// The oldest first.
    full: Vec<Bucket>,
}

impl BucketLevel {
    /// Takes what was held so many buckets after the open one; says whether that is finished.
    fn push(&mut self, further: u64, kib: u32) -> bool {
        if further == 0 {
            self.open.take(kib);
            return false;
        }
        let finished = std::mem::replace(&mut self.open, Bucket { low: kib, high: kib });
        self.keep(finished);
        for _ in 1..further.min(LENGTH as u64 + 1) {
            self.keep(Bucket::HOLE);
        }
        true
    }

    fn keep(&mut self, bucket: Bucket) {
        if self.full.len() == LENGTH {
            self.full.remove(0);
        } else if self.full.len() == self.full.capacity() {
            // Coarse levels of short lives stay small.
            self.full.reserve_exact(if self.full.len() < 16 { 4 } else { 16 });
        }
        self.full.push(bucket);
    }
}

/// What was held in one bucket of time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Point {
    /// The middle of the bucket, in seconds since boot.
    pub(super) at: f64,
    /// KiB.
    pub(super) low: f64,
    /// KiB.
    pub(super) high: f64,
}

/// The finished buckets of a level, oldest first, without the holes.
#[derive(Debug, Clone)]
pub(super) struct Points {
    buckets: [Point; LENGTH],
    count: usize,
    /// Seconds.
    pub(super) width: f64,
    /// Buckets in a row that one step takes at most.
    pub(super) long: usize,
}

impl Points {
    pub(super) fn as_slice(&self) -> &[Point] {
        &self.buckets[..self.count]
    }
}

/// A past in which the amount never changed, and no bucket was without a sample.
#[derive(Debug, Clone, Copy)]
struct Constant {
    first: Moment,
    last: Moment,
    kib: u32,
}

impl Constant {
    /// The levels as they would be.
    fn past(&self, finest: u64) -> Varying {
        let ever = Bucket { low: self.kib, high: self.kib };
        let full = |level: usize| {
            let width = finest << (2 * level);
            usize::try_from(self.last.0 / width - self.first.0 / width).unwrap_or(LENGTH).min(LENGTH)
        };
        let levels = (0..BucketLevels::COUNT).map(full).take_while(|full| *full > 0);
        Varying { ever, levels: levels.map(|full| BucketLevel { open: ever, full: vec![ever; full] }).collect() }
    }
}

/// A past in which it changed.
#[derive(Debug, Clone)]
struct Varying {
    /// The lowest and the highest since it began.
    ever: Bucket,
    /// The levels that have a finished bucket. In the open one of each of the others is all that there was.
    levels: Vec<BucketLevel>,
}

impl Varying {
    /// Takes what was held in one of the finest buckets, after that of the sample before; says of how many levels
    /// there is a new one.
    fn push(&mut self, before: u64, number: u64, kib: u32) -> usize {
        let mut finished = 0;
        for at in 0..BucketLevels::COUNT {
            let further = (number >> (2 * at)) - (before >> (2 * at));
            if at == self.levels.len() {
                if further == 0 {
                    break;
                }
                self.levels.reserve_exact(1);
                self.levels.push(BucketLevel { open: self.ever, full: Vec::new() });
            }
            if self.levels[at].push(further, kib) {
                finished = at + 1;
            }
        }
        self.ever.take(kib);
        finished
    }
}

#[derive(Debug, Clone)]
pub(super) struct BucketLevels {
    /// Milliseconds that the finest buckets take.
    finest: u64,
    /// Which of the finest since boot is the open one; the open ones above lie around it.
    number: u64,
    /// Absent before the first sample.
    still: Option<Constant>,
    /// Absent while `still` is all that there is to know.
    past: Option<Box<Varying>>,
    /// The finest buckets are hardly wider than the time from one sample to the next.
    is_single: bool,
}

impl Default for BucketLevels {
    fn default() -> Self {
        Self { finest: FINEST, number: 0, still: None, past: None, is_single: false }
    }
}

impl BucketLevels {
    pub(super) const COUNT: usize = 6;

    /// Whether nothing ever changed.
    pub(super) fn is_still(&self) -> bool {
        self.past.is_none()
    }

    /// Makes buckets as wide as so many seconds from one sample to the next ask for.
    pub(super) fn fit(&mut self, interval: f64) {
        let fitting = |interval: f64| {
            let mut finest = FINEST;
            // Late by chance now and then leaves a bucket empty, which is no matter.
            while Self::seconds(finest) < 0.95 * interval && finest < 3_600_000 {
                finest *= 2;
            }
            finest
        };
        let finest = fitting(interval);
        // For little it is not worth what the narrower ones do not know.
        if finest > self.finest || fitting(2.0 * interval) < self.finest {
            self.refit(finest);
        }
        self.is_single = self.long() == 1 && Self::seconds(self.finest) < 1.1 * interval;
    }

    /// Puts what the buckets say into wider or narrower ones. What a wide one says stands in one narrow one, at its
    /// beginning, as if the samples had come as seldom.
    fn refit(&mut self, finest: u64) {
        let (before, newest) = (std::mem::replace(&mut self.finest, finest), self.number);
        // What stood still is told from its two ends.
        let Some(past) = self.past.take() else { return };
        *self = Self { finest, ..Self::default() };
        // Of each level what those below have forgotten, the newest first.
        let mut known = Vec::new();
        let mut forgotten = u64::MAX;
        for (at, level) in past.levels.iter().enumerate() {
            let (width, newest) = (before << (2 * at), newest >> (2 * at));
            let buckets = std::iter::once(&level.open).chain(level.full.iter().rev());
            let begins = (0..=newest).rev().map(|number| number * width);
            known.extend(begins.zip(buckets).filter(|(begin, it)| *begin < forgotten && !it.is_hole()));
            if level.full.len() < LENGTH {
                break;
            }
            forgotten = newest.saturating_sub(LENGTH as u64) * width;
        }
        for (begin, bucket) in known.into_iter().rev() {
            // The lowest comes first: what was freed in between shows in the bucket before, if anywhere.
            self.push(Moment(begin), bucket.low);
            self.push(Moment(begin), bucket.high);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the widest bucket is of some months")]
    fn seconds(millis: u64) -> f64 {
        millis as f64 / 1000.0
    }

    /// Takes what was held; says how many levels, from the finest on, have a new bucket: none while nothing changes.
    pub(super) fn push(&mut self, at: Moment, kib: u32) -> usize {
        let number = at.0 / self.finest;
        let past = match &mut self.past {
            Some(past) => past,
            none => {
                let still = self.still.get_or_insert(Constant { first: at, last: at, kib });
                self.number = still.last.0 / self.finest;
                if still.kib == kib && number - self.number <= 1 {
                    still.last = at;
                    return 0;
                }
                none.insert(still.past(self.finest).into())
            }
        };
        past.push(std::mem::replace(&mut self.number, number), number, kib)
    }

    /// Some steps take half a minute; where the finest buckets are wider than that, a step is one bucket of each level.
    fn long(&self) -> usize {
        match self.finest {
            0..=FINEST => 3,
            _ if self.finest < 4 * FINEST => 2,
            _ => 1,
        }
    }

    /// Seconds that a bucket of that level takes.
    pub(super) fn width(&self, level: usize) -> f64 {
        Self::seconds(self.finest << (2 * level))
    }

    #[expect(clippy::cast_precision_loss, reason = "buckets since boot are fewer than 2^53")]
    pub(super) fn points(&self, level: usize) -> Points {
        let width = self.width(level);
        let mut points = Points { buckets: [Point::default(); LENGTH], count: 0, width, long: self.long() };
        let Some(full) = self.full(level) else { return points };
        let number = self.number >> (2 * level);
        let oldest = number.saturating_sub(full.len() as u64);
        for (number, bucket) in (oldest..).zip(full) {
            if !bucket.is_hole() {
                let at = (number as f64 + 0.5) * width;
                points.buckets[points.count] = Point { at, low: f64::from(bucket.low), high: f64::from(bucket.high) };
                points.count += 1;
            }
        }
        if level == 0
            && let Some(open) = self.single()
        {
            if points.count == LENGTH {
                points.buckets.rotate_left(1);
                points.count -= 1;
            }
            points.buckets[points.count] = open;
            points.count += 1;
        }
        points
    }

    /// The open one of the finest buckets, where there is a single sample in each, as a rule: to wait until it is finished
    /// would be to wait for one more.
    fn single(&self) -> Option<Point> {
        self.is_single.then_some(())?;
        self.point(self.past.as_ref()?.levels.first()?.open, 0.5)
    }

    /// The last of the finest buckets.
    pub(super) fn latest(&self) -> Option<Point> {
        self.single().or_else(|| self.point(*self.full(0)?.last()?, -0.5))
    }

    /// A bucket that lies so many of the finest ones behind the beginning of the open one.
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    fn point(&self, bucket: Bucket, behind: f64) -> Option<Point> {
        let at = (self.number as f64 + behind) * self.width(0);
        (!bucket.is_hole()).then_some(Point { at, low: f64::from(bucket.low), high: f64::from(bucket.high) })
    }

    /// The finished buckets of a level.
    fn full(&self, level: usize) -> Option<&[Bucket]> {
        Some(&self.past.as_ref()?.levels.get(level)?.full)
    }

    /// The finest level that reaches back so far.
    pub(super) fn since(&self, since: f64) -> Points {
        let fits = |it: &usize| {
            let Some(full) = self.full(*it) else { return true };
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let begin = ((self.number >> (2 * it)).saturating_sub(full.len() as u64)) as f64 * self.width(*it);
            begin <= since || full.len() < LENGTH
        };
        self.points((0..Self::COUNT).find(fits).unwrap_or(Self::COUNT - 1))
    }

    /// The most that was held before that time, in KiB, as far as it is known; 0 where nothing is.
    pub(super) fn highest(&self, before: f64) -> f64 {
        let level = |at| {
            let points = self.points(at);
            let until = before - points.width / 2.0;
            points.as_slice().iter().take_while(|it| it.at <= until).map(|it| it.high).fold(0.0, f64::max)
        };
        (0..Self::COUNT).map(level).fold(0.0, f64::max)
    }

    /// Whether the growth of the last minutes is slower than before, by a quarter at least: an even one is no slower and
    /// no faster by turns.
    pub(super) fn slows(&self) -> bool {
        let points = self.points(0);
        let points = points.as_slice();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
        let middle = points[points.len() / 2];
        0.75 * (middle.low - first.low) > last.low - middle.low
    }

    /// Bytes beside its own.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        let level = |it: &BucketLevel| size_of::<BucketLevel>() + it.full.capacity() * size_of::<Bucket>();
        self.past.iter().flat_map(|it| &it.levels).map(level).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What stood still is told from its two ends as if each sample had been kept.
        #[test]
        fn a_still_past_is_the_past_that_it_was(
            first in 0_u64..1 << 40, samples in 1_u64..5000, every in 1_u64..8000, then in 1_u64..100,
        ) {
            let mut levels = BucketLevels::default();
            let mut each = [(); BucketLevels::COUNT].map(|()| BucketLevel { open: Bucket::HOLE, full: Vec::new() });
            let mut before = first;
            for sample in 0..samples + then {
                let (at, kib) = (first + sample * every, if sample < samples { 7 } else { 8 });
                levels.push(Moment(at), kib);
                for (level, it) in each.iter_mut().enumerate() {
                    let width = FINEST << (2 * level);
                    it.push(at / width - before / width, kib);
                }
                before = at;
            }
            let past = levels.past.unwrap();
            let all = BucketLevel { open: past.ever, full: Vec::new() };
            let kept = (0..BucketLevels::COUNT).map(|at| format!("{:?}", past.levels.get(at).unwrap_or(&all)));
            prop_assert_eq!(kept.collect::<Vec<_>>(), each.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>());
        }

        /// What was seen before it was known how seldom samples come is seen in wider buckets, too.
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
            prop_assert_eq!(format!("{:?}", late.points(0).as_slice()), format!("{:?}", early.points(0).as_slice()));
        }
    }
}
