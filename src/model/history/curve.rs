//! How a number went over time: by the second for a quarter of an hour, coarser for a week. Gaps stay gaps.

use std::time::Duration;

use super::track::{BLANK, GAP, HIGHEST, Merge, Track};
use crate::base::units::Moment;

/// A resolution: the width of its buckets in milliseconds, and how many of them are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tier {
    pub(super) width: u64,
    pub(super) kept: u32,
}

impl Tier {
    pub(super) const SECONDS: Self = Self { width: 1000, kept: 15 * 60 };
    pub(super) const TENS: Self = Self { width: 10_000, kept: 6 * 360 };
    /// Of these, the lowest is kept too: whether the floor rises shows only there.
    pub(super) const FIVE_MINUTES: Self = Self { width: 300_000, kept: 7 * 288 };

    fn bucket(self, at: Moment) -> u32 {
        u32::try_from(at.0 / self.width).unwrap_or(u32::MAX)
    }
}

/// The lowest and the highest number of a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinMax<T> {
    /// The lowest.
    pub low: T,
    /// The highest.
    pub high: T,
}

impl<T: Ord + Copy> MinMax<T> {
    /// Both stretches together.
    pub fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The same in another unit.
    pub fn map<U>(self, to: impl Fn(T) -> U) -> MinMax<U> {
        MinMax { low: to(self.low), high: to(self.high) }
    }
}

/// A stretch of time in equal parts, as a graph shows it.
///
/// The parts begin at multiples of their length: while time goes on they move by whole parts, and seldom. The first of
/// them may lie before the host booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    start: i64,
    part: u64,
    parts: usize,
}

impl Window {
    /// So many parts of the `span` up to that moment, which lies in the last of them.
    pub fn until(end: Moment, span: Duration, parts: usize) -> Self {
        let parts = parts.max(1);
        let part = (u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / parts as u64).max(1);
        let end = (end.0 / part).saturating_add(1).saturating_mul(part);
        Self { start: signed(end).saturating_sub(signed(part.saturating_mul(parts as u64))), part, parts }
    }

    /// How many parts.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// How long a part is.
    pub fn part(&self) -> Duration {
        Duration::from_millis(self.part)
    }

    /// Where it begins; at the earliest, when the host booted.
    pub fn start(&self) -> Moment {
        self.moment(0)
    }

    /// The first moment after it.
    pub fn end(&self) -> Moment {
        self.moment(self.parts)
    }

    /// The part that a moment lies in; absent when that is in none.
    pub fn place(&self, at: Moment) -> Option<usize> {
        let since = u64::try_from(signed(at.0).saturating_sub(self.start)).ok()?;
        let part = usize::try_from(since / self.part).ok()?;
        (part < self.parts).then_some(part)
    }

    /// The moment at which a part begins; at the earliest, when the host booted.
    pub fn moment(&self, part: usize) -> Moment {
        Moment(self.edge(part).max(0).unsigned_abs())
    }

    /// The same in milliseconds since the host booted, before that too.
    fn edge(&self, part: usize) -> i64 {
        self.start.saturating_add(signed(self.part.saturating_mul(part as u64)))
    }
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// What is kept beyond the quarter of an hour.
#[derive(Debug, Clone, Default)]
struct CoarseTracks {
    tens: Track,
    low: Track,
    high: Track,
}

impl CoarseTracks {
    /// What is known by the second so far.
    fn of(seconds: &Track) -> Box<Self> {
        let mut long = Box::<Self>::default();
        let (first, slots) = seconds.slots(0, u32::MAX);
        let mut is_after_silence = false;
        for (second, slot) in (first..).zip(slots).filter(|(_, slot)| *slot != BLANK) {
            long.push(Moment(u64::from(second) * Tier::SECONDS.width), slot, is_after_silence);
            is_after_silence = slot == GAP;
        }
        long
    }

    fn push(&mut self, at: Moment, slot: u32, is_after_silence: bool) {
        let push = |track: &mut Track, tier: Tier, keep| {
            track.push(tier.bucket(at), slot, keep, is_after_silence, tier.kept);
        };
        push(&mut self.tens, Tier::TENS, Merge::Highest);
        push(&mut self.low, Tier::FIVE_MINUTES, Merge::Lowest);
        push(&mut self.high, Tier::FIVE_MINUTES, Merge::Highest);
    }
}

/// A curve is short for so many milliseconds.
const YOUNG: u64 = 60_000;

/// A number over time.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    seconds: Track,
    /// It is to reach back a week.
    is_long: bool,
    /// Absent in its first minute: most processes are short, and a host may have a thousand.
    long: Option<Box<CoarseTracks>>,
    /// The times of the first sample and the last, in milliseconds.
    first: Option<u64>,
    last: u64,
    /// After so many without one, nothing is known.
    patience: u64,
}

impl Curve {
    /// One that reaches back a quarter of an hour.
    pub(super) fn short() -> Self {
        Self::default()
    }

    /// One that reaches back a week.
    pub(super) fn long() -> Self {
        Self { is_long: true, ..Self::default() }
    }

    /// Takes in what was read at that time, if it could be read. After more than `patience` without that, there is a gap.
    pub(super) fn push(&mut self, at: Moment, value: Option<u32>, patience: Duration) {
        if at.0 < self.last {
            return;
        }
        // Two passes of a short interval may lie further apart than three times that.
        self.patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1000);
        let is_after_silence = at.0 - self.last > self.patience;
        let slot = value.map_or(GAP, |it| it.min(HIGHEST));
        if let Some(long) = &mut self.long {
            long.push(at, slot, is_after_silence);
        }
        let (bucket, kept) = (Tier::SECONDS.bucket(at), Tier::SECONDS.kept);
        self.seconds.push(bucket, slot, Merge::Highest, is_after_silence, kept);
        if self.is_long && self.long.is_none() && self.first.is_some_and(|first| at.0 - first >= YOUNG) {
            self.long = Some(CoarseTracks::of(&self.seconds));
        }
        self.first.get_or_insert(at.0);
        self.last = at.0;
    }

    /// The time of the last sample.
    pub fn end(&self) -> Moment {
        Moment(self.last)
    }

    /// Whether the last sample still tells of that moment.
    fn reaches(&self, at: Moment) -> bool {
        at.0.saturating_sub(self.last) <= self.patience
    }

    /// What was read in each part of a window. A part without a sample of its own repeats what was before
    /// it, unless that is a gap; nothing is known of what comes after `now`.
    pub fn over(&self, window: &Window, now: Moment) -> Vec<Option<MinMax<u32>>> {
        let mut parts = vec![None; window.parts()];
        let mut held = None;
        // Up to here parts are settled, and this is the first moment of the one after.
        let (mut settled, mut edge) = (0, window.start);
        self.samples(window, |at, value| {
            if signed(at.0) >= edge {
                // A few parts further on, as a rule the next one.
                let is_next = signed(at.0) - edge < signed(window.part);
                let part = if is_next { settled } else { window.place(at).unwrap_or(settled) };
                parts[settled..part].fill(held);
                parts[part] = value;
                settled = part + 1;
                edge = window.edge(settled);
            } else if let Some(last) = settled.checked_sub(1) {
                parts[last] = match (parts[last], value) {
                    (Some(a), Some(b)) => Some(MinMax::with(a, b)),
                    (a, b) => a.or(b),
                };
            }
            held = value;
        });
        // Samples after the window say that what was before them went on until its end.
        let known = if self.last >= window.end().0 {
            window.parts()
        } else if self.reaches(now) {
            window.place(now).map_or(settled, |it| it + 1)
        } else {
            settled
        };
        if settled < known {
            parts[settled..known].fill(held);
        }
        parts
    }

    /// What was last read at or before that moment, in the finest resolution that there is; absent in a gap.
    pub fn at(&self, at: Moment, now: Moment) -> Option<MinMax<u32>> {
        let window = Window { start: signed(at.0 / 1000 * 1000), part: 1000, parts: 1 };
        self.over(&window, now)[0]
    }

    /// Every sample of a window, and the last one before it: by the coarsest tier whose buckets are no wider than
    /// its parts, and by the next coarser ones where that no longer reaches.
    fn samples(&self, window: &Window, mut take: impl FnMut(Moment, Option<MinMax<u32>>)) {
        let mut tiers = vec![(Tier::SECONDS, &self.seconds, &self.seconds)];
        if let Some(long) = &self.long {
            tiers.push((Tier::TENS, &long.tens, &long.tens));
            tiers.push((Tier::FIVE_MINUTES, &long.low, &long.high));
        }
        let Some(first) = self.first else { return };
        let fine = tiers.iter().rposition(|(tier, ..)| tier.width <= window.part).unwrap_or(0);
        let mut begin = window.start();
        for (at, (tier, low, high)) in tiers.iter().enumerate().skip(fine).rev() {
            // Where a finer tier begins, this one ends.
            let until = if at == fine {
                window.end()
            } else {
                let (tier, finer, _) = tiers[at - 1];
                window.end().min(Moment(finer.first().map_or(u64::MAX, |it| u64::from(it) * tier.width)))
            };
            if begin >= until {
                continue;
            }
            let (from, to) = (tier.bucket(begin), tier.bucket(Moment(until.0 - 1)).saturating_add(1));
            // Before the first sample nothing is known, though its bucket begins earlier.
            let moment = |bucket: u32| Moment((u64::from(bucket) * tier.width).max(first / 1000 * 1000));
            let value = |low: u32, high: u32| (low != GAP).then_some(MinMax { low, high });
            if let (Some(low), Some(high)) = (low.before(from), high.before(from)) {
                take(Moment(moment(from).0.saturating_sub(1)), value(low, high));
            }
            let ((from, low), (_, high)) = (low.slots(from, to), high.slots(from, to));
            for (bucket, (low, high)) in (from..).zip(low.into_iter().zip(high)) {
                let at = moment(bucket);
                if low != BLANK && at < until {
                    take(at, value(low, high));
                }
            }
            begin = until;
        }
    }

    /// The memory that it takes beside itself.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let long = self.long.as_ref().map_or(0, |it| {
            size_of::<CoarseTracks>() + [&it.tens, &it.low, &it.high].into_iter().map(Track::bytes).sum::<usize>()
        });
        self.seconds.bytes() + long
    }
}

#[cfg(test)]
mod tests;
