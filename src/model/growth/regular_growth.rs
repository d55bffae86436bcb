//! Finds growth that is regular at some scale.
//!
//! The end of a series is cut into parts of equal length. Growth is regular at that length when the
//! floor rose in each of the last parts, by similar amounts. Steps, teeth, pauses and noise only
//! make the parts longer in which growth is regular.

use serde::{Deserialize, Serialize};

use super::buckets::{BucketLevels, LENGTH, Points};
use super::gates::{Condition, Gate, Grade, largest_wave, share_of_return, speed_by_rises};
use super::limits::LIMITS;

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
        LIMITS.gates.buckets_of_part[usize::from(level > 0)..]
            .iter()
            .filter_map(move |buckets| Self::measure(levels, level, *buckets, &room).ok()?.graded())
    }

    /// Measures the longest growth in parts of so many buckets of a level. The error is the
    /// condition that growth is regular, where it is not.
    pub(super) fn measure(
        levels: &BucketLevels,
        level: usize,
        buckets: usize,
        room: impl Fn(f64) -> f64,
    ) -> Result<MeasuredGrowth<'_>, Condition> {
        let limits = &LIMITS.gates;
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
        let (floor, gains) = Gains::longest(&lows[..count]);
        let gains = gains.as_slice();
        #[expect(clippy::cast_precision_loss, reason = "parts are few")]
        let (parts, buckets) = (gains.len() as f64, buckets as f64);
        let regular = Condition {
            gate: Gate::Regular,
            measured: parts,
            limit: f64::from(limits.fewest_parts),
        };
        if !regular.is_met() {
            return Err(regular);
        }
        let from = count - 1 - gains.len();
        let part = points.width * buckets;
        let gained: f64 = gains.iter().sum();
        let mean = gained / parts;
        let scatter =
            (gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / parts).sqrt() / mean;
        let [first, second] = rates_of_halves(gains, part);
        // Growth may have begun in the middle of the first part, which then looks like
        // acceleration.
        let rates = rates_of_halves(without_knee(&gains[1..]), part);
        let span = parts * part;
        let latest = &known[known.len() - known.len().div_ceil(4)..];
        let top = latest.iter().map(|point| point.high).fold(0.0, f64::max);
        let end = floor[count - 1];
        Ok(MeasuredGrowth {
            levels,
            growth: Self {
                from: levels.now() - span,
                span,
                gained,
                part,
                parts,
                scatter,
                rates,
                left: room(top) * span / gained,
                is_even: false,
                is_suspect: false,
                is_leak: false,
            },
            before: [1, 2].map(|coarser| buckets_before(levels, level + coarser, span + part)),
            buckets,
            floor: end,
            speed: second / first,
            forgiven: limits.forgiven_errors * deviation_from_line(gains) / mean / parts.sqrt(),
            is_like_loading: floor[from] < limits.held_before_loading * end
                && gained > limits.rate_of_loading * span,
        })
    }

    /// The condition that memory is full within a day.
    pub(super) fn within_day(&self) -> Condition {
        Condition {
            gate: Gate::WithinDay,
            measured: self.left,
            limit: LIMITS.gates.longest_left,
        }
    }

    /// The condition that a floor in KiB is above that of a leak that stopped, by a mean gain: a
    /// little more is no second leak.
    pub(super) fn beyond(&self, stopped_floor: f64, floor: f64) -> Condition {
        Condition {
            gate: Gate::BeyondStoppedLeak,
            measured: floor,
            limit: stopped_floor + self.gained / self.parts,
        }
    }
}

/// A growth in parts of one length, with the figures from which its conditions follow.
pub(super) struct MeasuredGrowth<'a> {
    levels: &'a BucketLevels,
    /// The growth without grades.
    pub(super) growth: RegularGrowth,
    /// The buckets of two coarser levels before the growth.
    before: [Points; 2],
    /// The number of buckets of a part.
    buckets: f64,
    /// The floor now in KiB.
    floor: f64,
    /// The rate of the second half as a share of that of the first.
    speed: f64,
    /// The part of a speed's uncertainty that is added to it.
    forgiven: f64,
    /// Whether the growth begins and is as fast as when a process loads.
    is_like_loading: bool,
}

impl MeasuredGrowth<'_> {
    /// The conditions of a grade, each computed when it is asked for.
    pub(super) fn conditions(&self, grade: Grade) -> impl Iterator<Item = Condition> {
        let gates = grade.gates().iter();
        gates.filter_map(move |gate| self.condition(*gate, grade))
    }

    /// Whether all conditions of a grade are met.
    fn has(&self, grade: Grade) -> bool {
        self.conditions(grade).all(|condition| condition.is_met())
    }

    /// The growth, with the grades that it has; `None` if it is none.
    fn graded(&self) -> Option<RegularGrowth> {
        self.has(Grade::Growth).then(|| {
            let is_even = self.has(Grade::Even);
            RegularGrowth {
                is_even,
                is_suspect: is_even && self.has(Grade::Suspect),
                is_leak: self.has(Grade::Leak),
                ..self.growth
            }
        })
    }

    /// A condition of a grade; `None` where its figure cannot be measured, or no grade has the gate.
    fn condition(&self, gate: Gate, grade: Grade) -> Option<Condition> {
        let (growth, limits) = (&self.growth, &LIMITS.gates);
        let of_grade = |leak: f64, even: f64| if grade == Grade::Leak { leak } else { even };
        let share = |before: &Points| share_of_return(before.as_slice(), self.floor, growth.gained);
        let (measured, limit) = match gate {
            Gate::Regular => (growth.parts, f64::from(limits.fewest_parts)),
            Gate::NoReturn => (
                self.before.iter().map(share).fold(0.0, f64::max),
                limits.share_of_return,
            ),
            Gate::NoWave => (growth.gained, limits.waves * self.largest_wave()),
            Gate::StandardErrors => (
                growth.parts.sqrt() / growth.scatter.max(1e-9),
                of_grade(limits.standard_errors, limits.standard_errors_of_suspect),
            ),
            Gate::Speed => (
                self.speed + self.forgiven,
                of_grade(self.least_speed(), limits.least_speed_of_suspect),
            ),
            Gate::SpeedByRises => (
                speed_by_rises(self.levels, growth.from)? + self.forgiven,
                self.least_speed(),
            ),
            Gate::PartLength => (self.buckets, self.fewest_buckets()),
            Gate::Parts => (growth.parts, self.parts_of_leak()),
            Gate::Span => (
                growth.span,
                of_grade(self.span_of_leak(), self.span_of_suspect()),
            ),
            Gate::WithinDay | Gate::BeyondStoppedLeak => return None,
        };
        Some(Condition {
            gate,
            measured,
            limit,
        })
    }

    /// The least speed of a leak. Growth that would level off before it reaches the limit is none.
    fn least_speed(&self) -> f64 {
        let halves_left = 2.0 * self.growth.left / self.growth.span;
        (halves_left / (1.0 + halves_left)).min(LIMITS.gates.least_speed)
    }

    /// The largest rise in KiB before the growth that was given back.
    fn largest_wave(&self) -> f64 {
        let began = self.floor - self.growth.gained;
        let waves = self.before.iter();
        waves
            .map(|before| largest_wave(before.as_slice(), began))
            .fold(0.0, f64::max)
    }

    fn fewest_buckets(&self) -> f64 {
        if self.levels.width(0) >= LIMITS.gates.wide_bucket {
            1.0
        } else {
            LIMITS.gates.fewest_buckets
        }
    }

    /// The fewest parts of a leak. Longer parts hold more samples, so that fewer are needed.
    fn parts_of_leak(&self) -> f64 {
        let limits = &LIMITS.gates;
        (limits.parts_of_leak - libm::log2(self.growth.part / limits.part_of_leak))
            .max(limits.fewest_parts_of_leak)
    }

    fn span_of_leak(&self) -> f64 {
        let limits = &LIMITS.gates;
        if self.is_like_loading {
            limits.span_of_loading
        } else {
            let distance = (self.growth.left / limits.near_end).max(1.0);
            limits.span_of_leak * libm::pow(distance, limits.span_power)
        }
    }

    fn span_of_suspect(&self) -> f64 {
        let limits = &LIMITS.gates;
        let of_end = limits.suspect_share_of_end * self.growth.left;
        // Short parts show only growth that will soon fill memory.
        if self.buckets < self.fewest_buckets() {
            return of_end;
        }
        (limits.suspect_share_of_leak * self.span_of_leak())
            .min(limits.span_of_suspect)
            .min(of_end)
    }
}

/// Returns the second half of gains if growth became faster once, between the halves, and is even
/// since then: that is no acceleration. Else returns all gains.
fn without_knee(gains: &[f64]) -> &[f64] {
    let quarter = gains.len() / 4;
    let sum = |gains: &[f64]| gains.iter().sum::<f64>();
    let [early, third, latest] = [
        sum(&gains[..2 * quarter]) / 2.0,
        sum(&gains[gains.len() - 2 * quarter..gains.len() - quarter]),
        sum(&gains[gains.len() - quarter..]),
    ];
    let change = f64::midpoint(third, latest) - early;
    if change > 0.0 && latest - third < LIMITS.forecast.lasting_change * change {
        &gains[gains.len() - 2 * quarter..]
    } else {
        gains
    }
}

/// The rates of the first and the second half of gains in parts of so many seconds; their mean if
/// there are fewer than eight.
#[expect(clippy::cast_precision_loss, reason = "parts are few")]
fn rates_of_halves(gains: &[f64], part: f64) -> [f64; 2] {
    let half = if gains.len() < 2 * usize::from(LIMITS.gates.fewest_parts) {
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

    /// Returns the floor, and the gains of the most last parts that are regular.
    fn longest(lows: &[f64]) -> ([f64; LENGTH / 2], Self) {
        let mut floor = [0.0; LENGTH / 2];
        let mut lowest = f64::INFINITY;
        for (part, low) in lows.iter().enumerate().rev() {
            lowest = lowest.min(*low);
            floor[part] = lowest;
        }
        let heights = &floor[..lows.len()];
        // In most series, the floor did not rise in each of the last parts.
        let rising = heights
            .windows(2)
            .rev()
            .take_while(|pair| pair[1] > pair[0])
            .count();
        let found = (1..=rising)
            .rev()
            .find_map(|count| Self::regular(&heights[lows.len() - 1 - count..]));
        let none = Self {
            gains: [0.0; LENGTH / 2],
            count: 0,
        };
        (floor, found.unwrap_or(none))
    }

    /// Returns the gains between these heights if they are regular. A jump counts as the second
    /// largest gain.
    fn regular(heights: &[f64]) -> Option<Self> {
        let mut gains = [0.0; LENGTH / 2];
        let count = heights.len() - 1;
        let (mut largest, mut second) = (0, 0.0);
        for (part, pair) in heights.windows(2).enumerate() {
            gains[part] = pair[1] - pair[0];
            if part > 0 {
                second = f64::max(second, gains[part].min(gains[largest]));
                largest = if gains[part] > gains[largest] {
                    part
                } else {
                    largest
                };
            }
        }
        let limits = &LIMITS.gates;
        if gains[largest] > limits.jump * second && count > usize::from(limits.fewest_parts) + 1 {
            gains[largest] = second;
        }
        let regular = Self { gains, count };
        #[expect(clippy::cast_precision_loss, reason = "parts are few")]
        let mean = regular.as_slice().iter().sum::<f64>() / count as f64;
        (mean > 0.0
            && regular
                .as_slice()
                .iter()
                .all(|gain| *gain >= limits.least_gain * mean))
        .then_some(regular)
    }
}

/// The standard deviation of gains about a straight line.
#[expect(clippy::cast_precision_loss, reason = "parts are few")]
fn deviation_from_line(gains: &[f64]) -> f64 {
    let count = gains.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, gains.iter().sum::<f64>() / count);
    let (mut up, mut along) = (0.0, 0.0);
    for (part, gain) in gains.iter().enumerate() {
        up += (part as f64 - middle) * (gain - mean);
        along += (part as f64 - middle).powi(2);
    }
    let rest =
        |(part, gain): (usize, &f64)| (gain - mean - up / along * (part as f64 - middle)).powi(2);
    (gains.iter().enumerate().map(rest).sum::<f64>() / (count - 2.0)).sqrt()
}

/// Returns the buckets of a level, or of the coarsest one, that are older than so many seconds.
fn buckets_before(levels: &BucketLevels, level: usize, seconds: f64) -> Points {
    let mut points = levels.filled(level.min(BucketLevels::COUNT - 1));
    let begin = levels.now() - seconds;
    points.keep_before(begin);
    points
}
