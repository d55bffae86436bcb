//! The past of a series in buckets of time: the lowest and the highest amount of each, on levels of ever wider ones.
//!
//! Each level has room for the same number of buckets, four times as wide as those of the level below: the finest
//! reaches back some minutes, the coarsest some weeks, in less than 4 kB in all. The finest are wide enough that, as a
//! rule, there is a sample in each.

use std::collections::VecDeque;

use crate::units::Moment;

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
}

#[derive(Debug, Clone, Default)]
struct Level {
    /// Which bucket of this width since boot is the open one.
    number: u64,
    open: Option<Bucket>,
    full: VecDeque<Bucket>,
}

impl Level {
    /// Whether a bucket was finished.
    fn push(&mut self, number: u64, kib: u32) -> bool {
        let fresh = Bucket { low: kib, high: kib };
        match &mut self.open {
            Some(open) if number == self.number => {
                open.low = open.low.min(kib);
                open.high = open.high.max(kib);
                false
            }
            open => {
                let finished = open.replace(fresh);
                let missed = number - self.number;
                self.number = number;
                let Some(finished) = finished else { return false };
                let holes = usize::try_from(missed - 1).unwrap_or(LENGTH).min(LENGTH);
                self.keep(finished);
                for _ in 0..holes {
                    self.keep(Bucket::HOLE);
                }
                true
            }
        }
    }
}

impl Level {
    fn keep(&mut self, bucket: Bucket) {
        if self.full.len() == LENGTH {
            self.full.pop_front();
        } else if self.full.len() == self.full.capacity() {
            // Coarse levels of short lives stay small.
            self.full.reserve_exact(LENGTH / 4);
        }
        self.full.push_back(bucket);
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

#[derive(Debug, Clone)]
pub(super) struct Levels {
    /// Milliseconds that the finest buckets take.
    finest: u64,
    levels: [Level; Levels::COUNT],
}

impl Default for Levels {
    fn default() -> Self {
        Self { finest: FINEST, levels: Default::default() }
    }
}

impl Levels {
    pub(super) const COUNT: usize = 6;

    /// Begins anew where so many seconds from one sample to the next ask for other buckets.
    pub(super) fn fit(&mut self, interval: f64) {
        let mut finest = FINEST;
        while Self::seconds(finest) < 1.05 * interval && finest < 3_600_000 {
            finest *= 2;
        }
        // A change of mind costs all that is known: not for little.
        if finest > self.finest || finest * 4 <= self.finest {
            *self = Self { finest, ..Self::default() };
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the widest bucket is of some months")]
    fn seconds(millis: u64) -> f64 {
        millis as f64 / 1000.0
    }

    /// Takes what was held; says how many levels, from the finest on, have a new bucket.
    pub(super) fn push(&mut self, at: Moment, kib: u32) -> usize {
        let mut number = at.0 / self.finest;
        let mut finished = 0;
        for (at, level) in self.levels.iter_mut().enumerate() {
            if level.push(number, kib) {
                finished = at + 1;
            }
            number /= 4;
        }
        finished
    }

    /// Some steps take half a minute; where the finest buckets are wider than that, a step is one bucket of each level.
    fn long(&self) -> usize {
        match self.finest {
            ..=FINEST => 3,
            0..32_000 => 2,
            _ => 1,
        }
    }

    /// Seconds that a bucket of that level takes.
    fn width(&self, level: usize) -> f64 {
        Self::seconds(self.finest << (2 * level))
    }

    #[expect(clippy::cast_precision_loss, reason = "buckets since boot are fewer than 2^53")]
    pub(super) fn points(&self, level: usize) -> Points {
        let width = self.width(level);
        let Level { number, full, .. } = &self.levels[level];
        let mut points = Points { buckets: [Point::default(); LENGTH], count: 0, width, long: self.long() };
        let oldest = number.saturating_sub(full.len() as u64);
        for (number, bucket) in (oldest..).zip(full) {
            if !bucket.is_hole() {
                let at = (number as f64 + 0.5) * width;
                points.buckets[points.count] = Point { at, low: f64::from(bucket.low), high: f64::from(bucket.high) };
                points.count += 1;
            }
        }
        points
    }

    /// The finest level that reaches back so far.
    pub(super) fn since(&self, since: f64) -> Points {
        let fits = |it: &usize| {
            let level = &self.levels[*it];
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let begin = (level.number.saturating_sub(level.full.len() as u64)) as f64 * self.width(*it);
            begin <= since || level.full.len() < LENGTH
        };
        self.points((0..Self::COUNT).find(fits).unwrap_or(Self::COUNT - 1))
    }

    /// Whether the growth of the last minutes is slower than before.
    pub(super) fn slows(&self) -> bool {
        let points = self.points(0);
        let points = points.as_slice();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return false };
        let middle = points[points.len() / 2];
        middle.low - first.low > last.low - middle.low
    }

    /// Bytes beside its own.
    #[cfg(test)]
    pub(super) fn heap(&self) -> usize {
        self.levels.iter().map(|it| it.full.capacity() * size_of::<Bucket>()).sum()
    }
}
