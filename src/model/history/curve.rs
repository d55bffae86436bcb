//! Curves: a number over time, by the second for 15 minutes, coarser for a week. Times without a
//! value stay gaps.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::track::{BLANK, GAP, HIGHEST, Merge, Track};
use crate::base::units::Moment;
use crate::model::min_max::MinMax;

/// A resolution: the width of its buckets in milliseconds, and how many buckets are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolution {
    pub(super) width: u64,
    pub(super) kept: u32,
}

impl Resolution {
    pub(super) const SECONDS: Self = Self {
        width: 1000,
        kept: 15 * 60,
    };
    pub(super) const TENS: Self = Self {
        width: 10_000,
        kept: 6 * 360,
    };
    /// Keeps the lowest value too, which shows whether the floor rises.
    pub(super) const FIVE_MINUTES: Self = Self {
        width: 300_000,
        kept: 7 * 288,
    };

    fn bucket(self, at: Moment) -> u32 {
        u32::try_from(at.0 / self.width).unwrap_or(u32::MAX)
    }
}

/// A span of time in equal parts, as a graph shows it.
///
/// The parts begin at multiples of their length, so that a window moves by whole parts as time goes
/// on. The first part may lie before the host's boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    start: i64,
    part: u64,
    parts: usize,
}

impl Window {
    /// Returns the window of `parts` parts over the `span` up to `end`, which is in the last part.
    pub(crate) fn until(end: Moment, span: Duration, parts: usize) -> Self {
        let parts = parts.max(1);
        let part = (u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / parts as u64).max(1);
        let end = (end.0 / part).saturating_add(1).saturating_mul(part);
        Self {
            start: signed(end).saturating_sub(signed(part.saturating_mul(parts as u64))),
            part,
            parts,
        }
    }

    /// Returns the window from one moment to another, in parts as short as the history has for a
    /// window of this length.
    pub(crate) fn between(start: Moment, end: Moment) -> Self {
        let span = u64::try_from(end.since(start).as_millis()).unwrap_or(u64::MAX);
        let resolutions = [Resolution::SECONDS, Resolution::TENS];
        let fits = |resolution: &Resolution| span <= resolution.width * u64::from(resolution.kept);
        let part = resolutions
            .into_iter()
            .find(fits)
            .unwrap_or(Resolution::FIVE_MINUTES)
            .width;
        let start = start.0 / part * part;
        let parts = usize::try_from(end.0.saturating_sub(start) / part)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        Self {
            start: signed(start),
            part,
            parts,
        }
    }

    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    pub(crate) fn part(&self) -> Duration {
        Duration::from_millis(self.part)
    }

    /// The beginning of the window, or the host's boot if that is later.
    pub(crate) fn start(&self) -> Moment {
        self.moment(0)
    }

    /// The first moment after the window.
    pub(crate) fn end(&self) -> Moment {
        self.moment(self.parts)
    }

    /// Returns the part that contains a moment; `None` when the moment is outside the window.
    pub(crate) fn place(&self, at: Moment) -> Option<usize> {
        let since = u64::try_from(signed(at.0).saturating_sub(self.start)).ok()?;
        let part = usize::try_from(since / self.part).ok()?;
        (part < self.parts).then_some(part)
    }

    /// Returns the beginning of a part, or the host's boot if that is later.
    pub(crate) fn moment(&self, part: usize) -> Moment {
        Moment(self.edge(part).max(0).unsigned_abs())
    }

    /// The beginning of a part in milliseconds since boot; negative before the boot.
    fn edge(&self, part: usize) -> i64 {
        self.start
            .saturating_add(signed(self.part.saturating_mul(part as u64)))
    }
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// The coarse tracks of a curve, for times before the last 15 minutes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct CoarseTracks {
    #[serde(serialize_with = "last_hour")]
    tens: Track,
    #[serde(serialize_with = "lowest_by_the_hour")]
    low: Track,
    #[serde(serialize_with = "highest_by_the_hour")]
    high: Track,
}

impl CoarseTracks {
    /// Fills the coarse tracks from the track of seconds.
    fn from_seconds(seconds: &Track) -> Box<Self> {
        let mut long = Box::<Self>::default();
        let (first, slots) = seconds.slots(0, u32::MAX);
        let mut is_after_silence = false;
        for (second, slot) in (first..).zip(slots).filter(|(_, slot)| *slot != BLANK) {
            long.push(
                Moment(u64::from(second) * Resolution::SECONDS.width),
                slot,
                is_after_silence,
            );
            is_after_silence = slot == GAP;
        }
        long
    }

    fn push(&mut self, at: Moment, slot: u32, is_after_silence: bool) {
        let push = |track: &mut Track, resolution: Resolution, keep| {
            track.push(
                resolution.bucket(at),
                slot,
                keep,
                is_after_silence,
                resolution.kept,
            );
        };
        push(&mut self.tens, Resolution::TENS, Merge::Highest);
        push(&mut self.low, Resolution::FIVE_MINUTES, Merge::Lowest);
        push(&mut self.high, Resolution::FIVE_MINUTES, Merge::Highest);
    }
}

/// The buckets of an hour and of a day.
const TENS_OF_AN_HOUR: u32 = 360;
const PARTS_OF_AN_HOUR: u32 = 12;
const PARTS_OF_A_DAY: u32 = 288;

/// Writes the last hour into a checkpoint: older times have five-minute buckets, too, and would be
/// half of the checkpoint.
fn last_hour<S: Serializer>(tens: &Track, serializer: S) -> Result<S::Ok, S::Error> {
    tens.last_buckets(TENS_OF_AN_HOUR).serialize(serializer)
}

/// Writes the last day into a checkpoint as it is, and the days before by the hour.
fn lowest_by_the_hour<S: Serializer>(low: &Track, serializer: S) -> Result<S::Ok, S::Error> {
    low.merged(PARTS_OF_A_DAY, PARTS_OF_AN_HOUR, Merge::Lowest)
        .serialize(serializer)
}

fn highest_by_the_hour<S: Serializer>(high: &Track, serializer: S) -> Result<S::Ok, S::Error> {
    high.merged(PARTS_OF_A_DAY, PARTS_OF_AN_HOUR, Merge::Highest)
        .serialize(serializer)
}

/// The age in milliseconds at which a curve gets its coarse tracks.
const YOUNG: u64 = 60_000;

/// A number over time. The default keeps a week.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Curve {
    seconds: Track,
    /// Whether to keep only 15 minutes.
    is_short: bool,
    /// `None` in the first minute: most processes end within it, and a host may have a thousand.
    long: Option<Box<CoarseTracks>>,
    /// The times of the first and last sample, in milliseconds since boot; `first` is `None` before
    /// the first.
    first: Option<u64>,
    last: u64,
    /// The milliseconds without a sample after which there is a gap.
    patience: u64,
}

impl Curve {
    /// Returns a curve that keeps 15 minutes instead of a week.
    pub(super) fn short() -> Self {
        Self {
            is_short: true,
            ..Self::default()
        }
    }

    /// Adds the value at a time; `None` when it could not be read. A longer time than `patience`
    /// without a sample becomes a gap. Ignores a time before the last sample.
    pub(super) fn push(&mut self, at: Moment, value: Option<u32>, patience: Duration) {
        if at.0 < self.last {
            return;
        }
        // A second at least: with a short interval, two passes may be further apart than three
        // intervals.
        self.patience = u64::try_from(patience.as_millis())
            .unwrap_or(u64::MAX)
            .max(1000);
        let is_after_silence = at.0 - self.last > self.patience;
        let slot = value.map_or(GAP, |value| value.min(HIGHEST));
        if let Some(long) = &mut self.long {
            long.push(at, slot, is_after_silence);
        }
        let (bucket, kept) = (Resolution::SECONDS.bucket(at), Resolution::SECONDS.kept);
        self.seconds
            .push(bucket, slot, Merge::Highest, is_after_silence, kept);
        if !self.is_short
            && self.long.is_none()
            && self.first.is_some_and(|first| at.0 - first >= YOUNG)
        {
            self.long = Some(CoarseTracks::from_seconds(&self.seconds));
        }
        self.first.get_or_insert(at.0);
        self.last = at.0;
    }

    /// Whether a curve of a checkpoint keeps the rules that its arithmetic relies on.
    pub(super) fn is_sound(&self) -> bool {
        self.first.is_none_or(|first| first <= self.last) && self.last <= Moment::LATEST.0
    }

    pub(crate) fn end(&self) -> Moment {
        Moment(self.last)
    }

    /// Whether the last sample is recent enough to hold at this moment.
    fn reaches(&self, at: Moment) -> bool {
        at.0.saturating_sub(self.last) <= self.patience
    }

    /// Returns the range of values in each part of a window. A part without a sample repeats the
    /// value before it, unless there is a gap. `None` in a gap, before the first sample and after
    /// `now`.
    pub(crate) fn over(&self, window: &Window, now: Moment) -> Vec<Option<MinMax<u32>>> {
        let mut parts = vec![None; window.parts()];
        let mut held = None;
        // The parts before `settled` have their values; `edge` is the beginning of part `settled`.
        let (mut settled, mut edge) = (0, window.start);
        self.samples(window, |at, value| {
            if signed(at.0) >= edge {
                // Usually the sample is in the next part; knowing that saves a division.
                let is_next = signed(at.0) - edge < signed(window.part);
                let part = if is_next {
                    settled
                } else {
                    window.place(at).unwrap_or(settled)
                };
                if part >= parts.len() {
                    // A forged checkpoint may have a sample after the window.
                    return;
                }
                parts[settled..part].fill(held);
                parts[part] = value;
                settled = part + 1;
                edge = window.edge(settled);
            } else if let Some(last) = settled.checked_sub(1) {
                parts[last] = match (parts[last], value) {
                    (Some(a), Some(b)) => Some(a.with(b)),
                    (a, b) => a.or(b),
                };
            }
            held = value;
        });
        // A sample after the window shows that the last value held until the end of the window.
        let known = if self.last >= window.end().0 {
            window.parts()
        } else if self.reaches(now) {
            window.place(now).map_or(settled, |part| part + 1)
        } else {
            settled
        };
        if settled < known {
            parts[settled..known].fill(held);
        }
        parts
    }

    /// Returns the mean of each of `columns` equal parts of the last `span` before `now`, oldest
    /// first. `None` where no value is known.
    pub(crate) fn means(&self, now: Moment, span: Duration, columns: usize) -> Vec<Option<u32>> {
        /// A part is looked at in pieces no longer than this: coarser buckets keep only peaks, and
        /// a pause would be hidden.
        const PIECE: u128 = 9000;
        let part = span.as_millis() / columns.max(1) as u128;
        let pieces = usize::try_from(part.div_ceil(PIECE)).unwrap_or(1).max(1);
        let window = Window::until(now, span, columns * pieces);
        self.over(&window, now)
            .chunks(pieces)
            .map(|chunk| {
                let known = || chunk.iter().flatten();
                let middles = known().map(|range| u64::from(range.low).midpoint(range.high.into()));
                let count = known().count() as u64;
                u32::try_from(middles.sum::<u64>().checked_div(count)?).ok()
            })
            .collect()
    }

    /// Returns the latest value at or before a moment, in the finest resolution that is still kept;
    /// `None` in a gap.
    pub(crate) fn at(&self, at: Moment, now: Moment) -> Option<MinMax<u32>> {
        let window = Window {
            start: signed(at.0 / 1000 * 1000),
            part: 1000,
            parts: 1,
        };
        self.over(&window, now)[0]
    }

    /// Passes every sample in a window, and the last one before it, to `take`. Reads the coarsest
    /// resolution whose buckets are no wider than the window's parts, and coarser ones for times
    /// that this one no longer covers.
    fn samples(&self, window: &Window, mut take: impl FnMut(Moment, Option<MinMax<u32>>)) {
        let mut resolutions = vec![(Resolution::SECONDS, &self.seconds, &self.seconds)];
        if let Some(long) = &self.long {
            resolutions.push((Resolution::TENS, &long.tens, &long.tens));
            resolutions.push((Resolution::FIVE_MINUTES, &long.low, &long.high));
        }
        let Some(first) = self.first else { return };
        let finest = resolutions
            .iter()
            .rposition(|(resolution, ..)| resolution.width <= window.part)
            .unwrap_or(0);
        let mut begin = window.start();
        for (place, (resolution, low, high)) in resolutions.iter().enumerate().skip(finest).rev() {
            // Each resolution ends where the next finer one begins.
            let finer = resolutions[finest..place].last();
            let finer_begin = finer.and_then(|(resolution, track, _)| {
                Some(Moment(u64::from(track.first()?) * resolution.width))
            });
            let until = finer_begin.unwrap_or(window.end()).min(window.end());
            if begin >= until {
                continue;
            }
            let (from, to) = (
                resolution.bucket(begin),
                resolution.bucket(Moment(until.0 - 1)).saturating_add(1),
            );
            // The first sample's bucket begins before the sample.
            let moment = |bucket: u32| {
                Moment((u64::from(bucket) * resolution.width).max(first / 1000 * 1000))
            };
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
}

#[cfg(test)]
mod tests;
