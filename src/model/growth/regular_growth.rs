//! Finds growth that is regular at some scale.
//!
//! The end of a series is cut into parts of equal length. Growth is regular at that length when the
//! floor rose in each of the last parts, by similar amounts. Steps, teeth, pauses and noise only
//! make the parts longer in which growth is regular.

use serde::{Deserialize, Serialize};

use super::buckets::{BucketLevels, LENGTH, Point, Points};
use super::median_slope;

/// The numbers of buckets that make a part.
const BUCKETS_OF_PART: [usize; 5] = [1, 2, 3, 4, 6];

/// The fewest parts that show anything.
const FEWEST_PARTS: usize = 4;

/// The fewest parts of a leak whose parts have this many seconds. Each doubling of the length needs
/// one less, but never less than the third number: longer parts hold more samples.
const PARTS_OF_LEAK: (f64, f64, f64) = (16.0, 8.0, 6.0);

/// The least gain of a part, as a share of the mean gain.
const LEAST_GAIN: f64 = 0.25;

/// A gain this many times the second largest is a jump, with another cause: it counts as the second
/// largest.
const JUMP: f64 = 3.0;

/// The mean gain of a part in standard errors.
const STANDARD_ERRORS: f64 = 8.0;

/// The least growth, as a multiple of how far the series went up and down before.
const FLUCTUATIONS: f64 = 5.0;

/// The least gain of the second half as a share of that of the first, where the end is far away. A
/// growth that slows down more is a warm-up.
const LEAST_SPEED: f64 = 0.92;

/// The same for a suspect.
const LEAST_SPEED_OF_SUSPECT: f64 = 0.7;

/// How many standard errors of the speed are forgiven.
const FORGIVEN: f64 = 0.5;

/// The seconds for which growth lasts before it is a leak, if memory lasts for no more than the
/// second number of seconds; and the power with which a farther end makes it longer. The farther
/// the end, the surer the verdict.
const SPAN_OF_LEAK: (f64, f64, f64) = (110.0, 900.0, 0.35);

/// How many seconds it lasts while a process loads. Loading begins with at most this share of the
/// memory, and is at least this fast, in KiB per second: slow for a file system, and fast for a
/// leak.
const SPAN_OF_LOADING: f64 = 1200.0;
const LOADED: f64 = 0.5;
const LOADING: f64 = 12.0 * 1024.0;

/// The share of that span that makes a suspect.
const SHARE_OF_SUSPECT: f64 = 0.4;

/// The seconds for which growth lasts at most before it is a suspect, whose figures are shown, and
/// the same as a share of the time until memory runs out: a user must see it early enough, also
/// while a process loads.
const SHOWN_AFTER: (f64, f64) = (88.0, 0.2);

/// A growth that lasts up to now. Times are in seconds since boot, amounts in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct RegularGrowth {
    pub(super) from: f64,
    pub(super) span: f64,
    /// The rise of the floor. A jump counts in part.
    pub(super) gained: f64,
    /// The length of a part, and the number of parts.
    pub(super) part: f64,
    pub(super) parts: f64,
    /// The standard deviation of the gains, as a share of their mean.
    pub(super) scatter: f64,
    /// The rate in KiB per second in the first and in the second half, without the first part.
    /// Equal where there are too few parts to tell.
    pub(super) rates: [f64; 2],
    /// The seconds until memory runs out at this rate.
    pub(super) left: f64,
    /// Whether it does not slow down more than a suspect may.
    pub(super) is_even: bool,
    pub(super) is_suspect: bool,
    pub(super) is_leak: bool,
}

impl RegularGrowth {
    /// The mean rate in KiB per second.
    pub(super) fn rate(&self) -> f64 {
        self.gained / self.span
    }

    /// Whether the figures of a checkpoint, which may be forged, are such that arithmetic with them
    /// stays finite.
    pub(super) fn is_sound(&self) -> bool {
        let figures = [
            self.span,
            self.gained,
            self.part,
            self.parts,
            self.rates[0],
            self.rates[1],
        ];
        figures
            .into_iter()
            .all(|figure| (1e-6..1e12).contains(&figure))
            && (0.0..1e6).contains(&self.scatter)
            && (0.0..1e12).contains(&self.from)
    }

    /// Returns the regular growths on a level. `room` is the memory in KiB that may still be taken
    /// above an amount.
    pub(super) fn on_level(
        levels: &BucketLevels,
        level: usize,
        room: impl Fn(f64) -> f64,
    ) -> impl Iterator<Item = Self> {
        BUCKETS_OF_PART[usize::from(level > 0)..]
            .iter()
            .filter_map(move |buckets| Self::find(levels, level, *buckets, &room))
    }

    /// Finds the longest growth in parts of so many buckets of a level.
    fn find(
        levels: &BucketLevels,
        level: usize,
        buckets: usize,
        room: impl Fn(f64) -> f64,
    ) -> Option<Self> {
        let points = levels.filled(level);
        let count = (points.as_slice().len() / buckets).min(LENGTH / 2);
        let known = &points.as_slice()[points.as_slice().len() - count * buckets..];
        let mut lows = [0.0; LENGTH / 2];
        for (part, low) in known.chunks_exact(buckets).zip(&mut lows) {
            *low = part
                .iter()
                .map(|point| point.low)
                .fold(f64::INFINITY, f64::min);
        }
        let lows = &lows[..count];
        let (floor, gains) = Gains::longest(lows)?;
        let from = count - 1 - gains.count;
        let gains = gains.as_slice();
        #[expect(clippy::cast_precision_loss, reason = "parts are few")]
        let (parts, part) = (gains.len() as f64, points.width * buckets as f64);
        let gained: f64 = gains.iter().sum();
        let mean = gained / parts;
        let scatter =
            (gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / parts).sqrt() / mean;
        let [first, second] = rates_of_halves(gains, part);
        // Growth may have begun in the middle of the first part, which then looks like
        // acceleration.
        let rates = rates_of_halves(&gains[1..], part);
        let span = parts * part;
        let latest = &known[known.len() - known.len().div_ceil(4)..];
        let top = latest.iter().map(|point| point.high).fold(0.0, f64::max);
        let left = room(top) * span / gained;
        let end = floor[count - 1];
        let before = [1, 2].map(|coarser| before(levels, level + coarser, span + part));
        if before.iter().any(|before| {
            is_return(before.as_slice(), end, gained) || is_fluctuation(before.as_slice(), gained)
        }) {
            return None;
        }
        let needed = if floor[from] < LOADED * end && gained > LOADING * span {
            SPAN_OF_LOADING
        } else {
            SPAN_OF_LEAK.0 * libm::pow((left / SPAN_OF_LEAK.1).max(1.0), SPAN_OF_LEAK.2)
        };
        let needed_of_suspect = (SHARE_OF_SUSPECT * needed)
            .min(SHOWN_AFTER.0)
            .min(SHOWN_AFTER.1 * left);
        // Parts of one bucket of several samples are short. They show only growth that will soon
        // fill memory.
        let is_short = buckets == 1 && !levels.is_single();
        let forgiven = FORGIVEN * deviation_from_line(gains) / mean / parts.sqrt();
        let speed = second / first + forgiven;
        // Growth that would level off before it reaches the limit is no leak.
        let halves_left = 2.0 * left / span;
        let least_speed = (halves_left / (1.0 + halves_left)).min(LEAST_SPEED);
        let (length, most, least) = PARTS_OF_LEAK;
        let fewest = (most - libm::log2(part / length)).max(least);
        let strength = parts.sqrt() / scatter.max(1e-9);
        let is_even = speed >= LEAST_SPEED_OF_SUSPECT && strength >= 0.5 * STANDARD_ERRORS;
        Some(Self {
            from: levels.now() - span,
            span,
            gained,
            part,
            parts,
            scatter,
            rates,
            left,
            is_even,
            is_suspect: is_even
                && span >= needed_of_suspect
                && !(is_short && span < SHOWN_AFTER.1 * left),
            is_leak: !is_short
                && strength >= STANDARD_ERRORS
                && parts >= fewest
                && span >= needed
                && speed >= least_speed
                && speed_by_rises(levels, levels.now() - span)
                    .is_none_or(|speed| speed + forgiven >= least_speed),
        })
    }
}

/// The rate of the second half as a share of that of the first, each the median slope of the floor
/// between the moments at which it rose. Memory grows in pieces, so that the time between those
/// moments is better known than the gain of a part. `None` if the floor rose too seldom.
fn speed_by_rises(levels: &BucketLevels, from: f64) -> Option<f64> {
    let points = levels.reaching(from);
    let known = points.as_slice();
    let known = &known[known.partition_point(|point| point.at < from)..];
    let mut rises: Vec<(f64, f64)> = Vec::with_capacity(known.len());
    for point in known.iter().rev() {
        if rises.last().is_none_or(|later| point.low < later.1) {
            rises.push((point.at, point.low));
        }
    }
    let middle = f64::midpoint(rises.first()?.0, rises.last()?.0);
    let half = rises.partition_point(|rise| rise.0 >= middle);
    Some(median_slope(&rises[..half])? / median_slope(&rises[half..])?)
}

/// The rates of the first and the second half of gains in parts of so many seconds; their mean if
/// there are fewer than eight.
#[expect(clippy::cast_precision_loss, reason = "parts are few")]
fn rates_of_halves(gains: &[f64], part: f64) -> [f64; 2] {
    let half = if gains.len() < 2 * FEWEST_PARTS {
        gains.len()
    } else {
        gains.len() / 2
    };
    [&gains[..half], &gains[gains.len() - half..]]
        .map(|gains| gains.iter().sum::<f64>() / (gains.len() as f64 * part))
}

/// The gains of the last parts.
struct Gains {
    gains: [f64; LENGTH / 2],
    count: usize,
}

impl Gains {
    fn as_slice(&self) -> &[f64] {
        &self.gains[..self.count]
    }

    /// Returns the floor, and the gains of the most last parts that are regular; `None` if there
    /// are too few of them.
    fn longest(lows: &[f64]) -> Option<([f64; LENGTH / 2], Self)> {
        let mut floor = [0.0; LENGTH / 2];
        let mut lowest = f64::INFINITY;
        for (at, low) in lows.iter().enumerate().rev() {
            lowest = lowest.min(*low);
            floor[at] = lowest;
        }
        let heights = &floor[..lows.len()];
        // In most series, the floor did not rise in each of the last parts.
        let rising = heights
            .windows(2)
            .rev()
            .take_while(|pair| pair[1] > pair[0])
            .count();
        let found = (FEWEST_PARTS..=rising)
            .rev()
            .find_map(|count| Self::regular(&heights[lows.len() - 1 - count..]))?;
        Some((floor, found))
    }

    /// Returns the gains between these heights if they are regular. A jump counts as the second
    /// largest gain.
    fn regular(heights: &[f64]) -> Option<Self> {
        let mut gains = [0.0; LENGTH / 2];
        let count = heights.len() - 1;
        let (mut largest, mut second) = (0, 0.0);
        for (at, pair) in heights.windows(2).enumerate() {
            gains[at] = pair[1] - pair[0];
            if at > 0 {
                second = f64::max(second, gains[at].min(gains[largest]));
                largest = if gains[at] > gains[largest] {
                    at
                } else {
                    largest
                };
            }
        }
        if gains[largest] > JUMP * second && count > FEWEST_PARTS + 1 {
            gains[largest] = second;
        }
        let regular = Self { gains, count };
        #[expect(clippy::cast_precision_loss, reason = "parts are few")]
        let mean = regular.as_slice().iter().sum::<f64>() / count as f64;
        (mean > 0.0
            && regular
                .as_slice()
                .iter()
                .all(|gain| *gain >= LEAST_GAIN * mean))
        .then_some(regular)
    }
}

/// The standard deviation of gains about a straight line.
#[expect(clippy::cast_precision_loss, reason = "parts are few")]
fn deviation_from_line(gains: &[f64]) -> f64 {
    let count = gains.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, gains.iter().sum::<f64>() / count);
    let (mut up, mut along) = (0.0, 0.0);
    for (at, gain) in gains.iter().enumerate() {
        up += (at as f64 - middle) * (gain - mean);
        along += (at as f64 - middle).powi(2);
    }
    let rest =
        |(at, gain): (usize, &f64)| (gain - mean - up / along * (at as f64 - middle)).powi(2);
    (gains.iter().enumerate().map(rest).sum::<f64>() / (count - 2.0)).sqrt()
}

/// Returns the buckets of a level, or of the coarsest one, that are older than so many seconds.
fn before(levels: &BucketLevels, level: usize, seconds: f64) -> Points {
    let mut points = levels.filled(level.min(BucketLevels::COUNT - 1));
    let begin = levels.now() - seconds;
    points.keep_before(begin);
    points
}

/// Whether growth up to an amount only returns to about what was held before: the series goes up
/// and down. An earlier short bump does not count, since less was held most of the time.
fn is_return(before: &[Point], end: f64, gained: f64) -> bool {
    let above = |height: f64| before.iter().filter(|point| point.low > height).count();
    let is_third = |height: f64| 3 * above(height) > before.len();
    is_third(end - 0.7 * gained) || above(end - 0.3 * gained) > 0 && is_third(end - 0.8 * gained)
}

/// Whether growth is no more than one more rise of a series that goes up and down, like that of a
/// server. How far it does is the mean height above the floor in each third of the time, and of
/// these the middle one: a large release may distort a third.
fn is_fluctuation(before: &[Point], gained: f64) -> bool {
    let mut thirds = [0, 1, 2].map(|third| {
        let points = &before[before.len() * third / 3..before.len() * (third + 1) / 3];
        let (mut above, mut floor) = (0.0, f64::INFINITY);
        for point in points.iter().rev() {
            floor = floor.min(point.low);
            above += point.low - floor;
        }
        #[expect(clippy::cast_precision_loss, reason = "a level has few buckets")]
        let count = points.len().max(1) as f64;
        above / count
    });
    thirds.sort_by(f64::total_cmp);
    gained < FLUCTUATIONS * thirds[1]
}
