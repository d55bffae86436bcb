//! Finds growth that lasts to the end of a window of buckets: many steps, evenly spread, not slowing down, and fast
//! enough to fill memory within a day. Also finds slower growth, which is reported and is no leak. Forecasts use its parabolas.

use serde::{Deserialize, Serialize};

use super::RISE_CREDIT;
use super::buckets::{LENGTH, Point, Points};

/// A growth found in a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Trend {
    /// When the growth began, in seconds since boot.
    pub(super) from: f64,
    /// The duration so far in seconds.
    pub(super) span: f64,
    /// The width in seconds of the buckets in which the growth was found.
    pub(super) width: f64,
    /// The gain in KiB.
    pub(super) gained: f64,
    /// The mean rate in KiB per second.
    pub(super) rate: f64,
    /// Whether the window shows the beginning: before it, the series was constant, or grew much faster.
    pub(super) begun: bool,
    /// The root mean square distance of the floor from a parabola, as a share of the gain.
    pub(super) rest: f64,
    /// The longest time without growth within the trend, in seconds.
    pub(super) pause: f64,
}

/// The seconds within which memory must run out for a growth to matter.
pub(super) const RELEVANT: f64 = 24.0 * 3600.0;

/// A rate in KiB per second that is slow for loading from a file system and fast for a leak.
pub(super) const LOADING: f64 = 12.0 * 1024.0;

/// Returns the floor in KiB: for each point, the lowest amount from there on.
pub(super) fn floor(points: &[Point]) -> [f64; LENGTH] {
    let mut floor = [0.0; LENGTH];
    let mut lowest = f64::INFINITY;
    for (at, point) in points.iter().enumerate().rev() {
        lowest = lowest.min(point.low);
        floor[at] = lowest;
    }
    floor
}

/// Returns how many KiB an amount is above the floor on average. Computes the average for each third of the time and
/// returns the median: in one third, a large release may distort the figure.
#[expect(clippy::cast_precision_loss, reason = "a window has few points")]
pub(super) fn fluctuation(points: &[Point]) -> f64 {
    let mut thirds = [0, 1, 2].map(|third| {
        let points = &points[points.len() * third / 3..points.len() * (third + 1) / 3];
        let above: f64 = points.iter().zip(floor(points)).map(|(point, floor)| point.low - floor).sum();
        above / points.len().max(1) as f64
    });
    thirds.sort_by(f64::total_cmp);
    thirds[1]
}

/// Returns the points up to the last drop of a sawtooth; all points when the series is no sawtooth. The rise after the
/// last drop shows nothing about the floor.
fn before_last_drop(points: &[Point]) -> &[Point] {
    let mut top = 0.0_f64;
    let mut depth = 0.0_f64;
    for point in points {
        top = top.max(point.high);
        depth = depth.max(top - point.low);
    }
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return points };
    if depth < 0.2 * (last.high - first.low).abs() {
        return points;
    }
    let falls = || (1..points.len()).filter(|at| points[*at].low < points[at - 1].low - 0.3 * depth);
    match falls().next_back() {
        Some(at) if falls().count() >= 3 => &points[..=at],
        _ => points,
    }
}

/// Returns the most even trend that is a leak, with `true`; else the longest trend that is suspect, with `false`. The
/// trend lasts to the end of the window.
///
/// `limit` is the amount in KiB at which memory runs out. `least` is the minimum duration of a leak in seconds: longer
/// than other growth that was released.
pub(super) fn find(window: &Points, limit: Option<f64>, least: f64) -> Option<(Trend, bool)> {
    let points = window.as_slice();
    let whole = before_last_drop(points);
    if whole.is_empty() {
        return None;
    }
    let floor = floor(whole);
    let floor = &floor[..whole.len()];
    let top = points[points.len() - points.len().div_ceil(4)..].iter().map(|point| point.high).fold(0.0, f64::max);
    let (mut leak, mut suspect) = (None::<Trend>, None);
    for part in candidates(whole, floor, window.longest_step) {
        // Where the limit is unknown, assumes twice the highest recent amount.
        let left = limit.map_or(top, |limit| (limit - top).max(0.0)) / part.rate;
        let span = part.span;
        // A short growth that would fill memory in half the time that it has lasted is a bump, or a verdict would come
        // too late.
        if left > RELEVANT || left < 0.5 * span && span < 600.0 || part.before == BeforeTrend::Faster {
            continue;
        }
        let need = part.need(left).max(least);
        let trend = part.trend(window.width);
        if part.is_steady(1.0) && span >= need {
            if leak.is_none_or(|best| trend.rest < best.rest) {
                leak = Some(trend);
            }
        } else if suspect.is_none() && part.is_steady(1.5) && span >= 0.4 * need {
            suspect = Some(trend);
        }
    }
    leak.map(|trend| (trend, true)).or(suspect.map(|trend| (trend, false)))
}

/// Returns the longest even growth to the end of the window, however slow.
pub(super) fn find_slow(window: &Points) -> Option<Trend> {
    let points = before_last_drop(window.as_slice());
    if points.is_empty() {
        return None;
    }
    let floor = floor(points);
    let floor = &floor[..points.len()];
    let mut parts = candidates(points, floor, window.longest_step);
    parts.find(|part| part.before != BeforeTrend::Faster && part.is_steady(1.0)).map(|part| part.trend(window.width))
}

/// Returns the trends that may last to the end of the window, earliest start first. A trend starts at the start of the
/// window, where the floor bends upwards, or where it bends downwards after a warm-up.
fn candidates<'a>(
    points: &'a [Point],
    floor: &'a [f64],
    longest_step: usize,
) -> impl Iterator<Item = TrendCandidate<'a>> {
    let (low, high) = bends(points, floor, 0);
    let (after_low, after_high) = bends(points, floor, high);
    let mut starts = [0, low, high, after_low, after_high];
    starts.sort_unstable();
    let is_new = move |at: &usize| *at == 0 || starts[*at - 1] != starts[*at];
    (0..starts.len()).filter(is_new).filter_map(move |at| TrendCandidate::of(points, floor, starts[at], longest_step))
}

/// The course of a series before a trend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeforeTrend {
    /// The floor was almost constant.
    Plateau,
    /// The floor rose much faster, for another reason.
    Jump,
    /// The floor rose somewhat faster, in small steps: a warm-up.
    Faster,
    /// The window does not show the time before, or the beginning of the trend is unclear.
    Unknown,
}

/// A possible trend: the end of a window, from a point where a trend may begin.
struct TrendCandidate<'a> {
    points: &'a [Point],
    floor: &'a [f64],
    span: f64,
    /// The effective number of steps, as [`steps`] returns it.
    steps: f64,
    /// The root mean square distance of the floor from a parabola, as a share of the gain.
    rest: f64,
    /// The change of the rate from beginning to end, as a share of the mean rate.
    bend: f64,
    /// The mean rate in KiB per second.
    rate: f64,
    before: BeforeTrend,
    /// Whether the growth looks like weights that are loaded into a new process.
    loads: bool,
}

impl<'a> TrendCandidate<'a> {
    fn of(points: &'a [Point], floor: &'a [f64], start: usize, longest_step: usize) -> Option<Self> {
        let (part, heights) = (&points[start..], &floor[start..]);
        let (first, last) = (part.first()?, part.last()?);
        let (gained, span) = (heights[heights.len() - 1] - heights[0], last.at - first.at);
        if gained <= 0.0 || span <= 0.0 || part.len() < 4 {
            return None;
        }
        let fit = Parabola::of(part, heights).filter(|fit| fit.slope > 0.0)?;
        let (rate, steps) = (2.0 * fit.slope / span, steps(heights, longest_step));
        let age = first.at - points[0].at;
        // Loading comes in large pieces, with pauses between them.
        let pause = if rate > LOADING { pauses_of(part, heights, rate).longest } else { 0.0 };
        let before = match () {
            () if is_after_plateau(points, floor, start, rate, pause) => BeforeTrend::Plateau,
            () if slows(points, floor, start, rate) => BeforeTrend::Faster,
            () if age > 0.0 && floor[start] - floor[0] > 4.0 * rate * age => BeforeTrend::Jump,
            () => BeforeTrend::Unknown,
        };
        let base = if before == BeforeTrend::Jump { heights[0] } else { floor[0] };
        let end = heights[heights.len() - 1];
        let loads = (rate > LOADING || steps < 8.0)
            && (before != BeforeTrend::Plateau && base < 0.5 * end || heights[0] < 0.3 * end);
        let (rest, bend) = (fit.rest / gained, 4.0 * fit.bend / fit.slope);
        Some(Self { points: part, floor: heights, span, steps, rest, bend, rate, before, loads })
    }

    /// Returns the seconds that the growth must last before it is called a leak, when memory runs out in `left`
    /// seconds. Far from the limit, there is time to wait whether a buffer becomes full, or an epoch ends whose samples
    /// are sorted by length.
    ///
    /// A buffer that fills at an even pace from the start looks exactly like a leak until it is full. Waiting until 8 %
    /// of the free memory is filled would avoid one false alarm in twelve, and alarms for leaks would take 1.5 times as
    /// long. Waiting for ten minutes would avoid two in twelve, and alarms would take more than twice as long
    /// (`benches/growth`).
    fn need(&self, left: f64) -> f64 {
        match () {
            () if self.loads && self.steps < 8.0 => f64::INFINITY,
            () if self.loads => 1200.0,
            // The growth is as fast as the loading of files.
            () if self.rate > 3.0 * LOADING && self.before != BeforeTrend::Plateau => {
                (0.3 * (self.span + left)).clamp(250.0, 1200.0)
            }
            () if self.before == BeforeTrend::Plateau => (0.01 * left).clamp(110.0, 250.0),
            () => (0.012 * left).clamp(230.0, 270.0),
        }
    }

    /// Whether the growth has enough steps, evenly enough spread, for a leak; with `slack` above 1, for a suspect.
    fn is_steady(&self, slack: f64) -> bool {
        let Self { steps, rest, bend, .. } = *self;
        let enough = if slack > 1.0 { 4.0 } else { 5.6 };
        // The largest `rest` and `bend` by the number of steps: few steps must be very regular. Above a bend of 2, the parabola
        // begins with a fall; among many steps, noise can bend a straight rise a little more than that.
        let (even, most) = match steps {
            ..8.0 => (0.05, 1.0),
            ..16.0 => (0.06, 1.5),
            _ => (0.065, 2.2),
        };
        // Growth that does not follow a plateau may be a warm-up: to count, it must slow down less.
        let least = if self.before == BeforeTrend::Plateau { -0.2 - 4.0 * rest } else { -0.12 - 2.0 * rest };
        steps >= enough && rest <= even * slack && (least * slack..most * slack).contains(&bend)
    }

    fn trend(&self, width: f64) -> Trend {
        Trend {
            from: self.points[0].at,
            span: self.span,
            width,
            gained: self.floor[self.floor.len() - 1] - self.floor[0],
            rate: self.rate,
            begun: matches!(self.before, BeforeTrend::Plateau | BeforeTrend::Jump),
            rest: self.rest,
            pause: pauses_of(self.points, self.floor, self.rate).longest,
        }
    }
}

/// Whether the floor was almost constant before the start, for at least 45 s and longer than `pause`, the longest pause
/// of the growth.
fn is_after_plateau(points: &[Point], floor: &[f64], start: usize, rate: f64, pause: f64) -> bool {
    if start < 4 {
        return false;
    }
    let from = points[..start].partition_point(|point| point.at < points[start].at - 600.0);
    let span = points[start].at - points[from].at;
    span >= (1.5 * pause).max(45.0) && floor[start] - floor[from] < 0.25 * rate * span
}

/// Whether the floor rose faster, in small steps, just before the start: the end of a warm-up. One large step, or a
/// rise five times as fast, has another cause and does not count.
fn slows(points: &[Point], floor: &[f64], start: usize, rate: f64) -> bool {
    let begin = start.saturating_sub(points.len() - start);
    let (from, to) = (points[begin], points[start]);
    let gained = floor[start] - floor[begin];
    let largest = floor[begin..=start].windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    let before = gained / (to.at - from.at).max(1.0);
    start - begin >= 4 && largest < 0.6 * gained && before > 1.2 * rate && before < 5.0 * rate
}

/// Returns the indices of the points where the floor bends most: upwards, at the beginning of a growth, and downwards,
/// at the end of a warm-up.
fn bends(points: &[Point], floor: &[f64], start: usize) -> (usize, usize) {
    let (first, last) = (start, points.len() - 1);
    let span = points[last].at - points[first].at;
    let slope = if span > 0.0 { (floor[last] - floor[first]) / span } else { 0.0 };
    let (mut low, mut high) = ((start, 0.0), (start, 0.0));
    for at in start..points.len() {
        let above = floor[at] - floor[first] - slope * (points[at].at - points[first].at);
        if above < low.1 {
            low = (at, above);
        }
        if above > high.1 {
            high = (at, above);
        }
    }
    (low.0, high.0)
}

/// Returns the effective number of steps, which is the square of their sum by the sum of their squares: the number of the
/// steps if all are equal, less if a few make most of the rise. Adjacent buckets that rise are one step, up to `longest_step`
/// buckets.
fn steps(floor: &[f64], longest_step: usize) -> f64 {
    let (mut sum, mut squares, mut step, mut length) = (0.0, 0.0, 0.0, 0);
    for pair in floor.windows(2) {
        let rise = pair[1] - pair[0];
        if rise <= 0.0 || length == longest_step {
            squares += step * step;
            (step, length) = (0.0, 0);
        }
        if rise > 0.0 {
            sum += rise;
            step += rise;
            length += 1;
        }
    }
    squares += step * step;
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// A fitted curve in KiB: `height + slope·u + bend·u²`, for a time `u` from -1 to 1 over the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parabola {
    pub(super) height: f64,
    pub(super) slope: f64,
    pub(super) bend: f64,
    /// The coefficient of the third Legendre polynomial in the residuals: above 0 when the bend grows.
    pub(super) twist: f64,
    /// The root mean square of the residuals, in KiB.
    pub(super) rest: f64,
}

impl Parabola {
    /// Fits a parabola to the heights in KiB by least squares; `None` when the points do not determine one.
    #[expect(clippy::cast_precision_loss, reason = "a window has few points")]
    pub(super) fn of(points: &[Point], heights: &[f64]) -> Option<Self> {
        let (first, last) = (points.first()?, points.last()?);
        let (middle, half) = (f64::midpoint(first.at, last.at), (last.at - first.at) / 2.0);
        let base = heights[0];
        let count = points.len() as f64;
        let (mut u1, mut u2, mut u3, mut u4) = (0.0, 0.0, 0.0, 0.0);
        let (mut y0, mut y1, mut y2) = (0.0, 0.0, 0.0);
        for (point, height) in points.iter().zip(heights) {
            let u = (point.at - middle) / half;
            let (y, uu) = (height - base, u * u);
            u1 += u;
            u2 += uu;
            u3 += uu * u;
            u4 += uu * uu;
            y0 += y;
            y1 += y * u;
            y2 += y * uu;
        }
        // Cramer's rule for the three normal equations.
        let determinant = |a: [f64; 3], b: [f64; 3], c: [f64; 3]| {
            a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0])
        };
        let whole = determinant([count, u1, u2], [u1, u2, u3], [u2, u3, u4]);
        if whole.abs() < 1e-9 {
            return None;
        }
        let height = determinant([y0, u1, u2], [y1, u2, u3], [y2, u3, u4]) / whole;
        let slope = determinant([count, y0, u2], [u1, y1, u3], [u2, y2, u4]) / whole;
        let bend = determinant([count, u1, y0], [u1, u2, y1], [u2, u3, y2]) / whole;
        let (mut squares, mut twist) = (0.0, 0.0);
        for (point, y) in points.iter().zip(heights) {
            let u = (point.at - middle) / half;
            let left = y - base - height - slope * u - bend * u * u;
            squares += left * left;
            twist += left * (2.5 * u * u * u - 1.5 * u);
        }
        Some(Self { height: height + base, slope, bend, twist: 7.0 * twist / count, rest: (squares / count).sqrt() })
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pauses {
    pub(super) bursts: usize,
    /// The longest time between two rises, in seconds.
    pub(super) longest: f64,
    /// The time since the last rise, in seconds.
    pub(super) last: f64,
}

impl Trend {
    /// Returns the pauses between new maxima in these buckets. With fewer than six rises, takes the longest pause from
    /// the buckets in which the trend was found.
    pub(super) fn pauses(&self, points: &[Point]) -> Pauses {
        let points = &points[points.partition_point(|point| point.at < self.from)..];
        let mut heights = [0.0; LENGTH];
        let mut top = 0.0_f64;
        for (height, point) in heights.iter_mut().zip(points) {
            top = top.max(point.high);
            *height = top;
        }
        let pauses = pauses_of(points, &heights[..points.len()], self.rate);
        if pauses.bursts >= 6 { pauses } else { Pauses { longest: self.pause, ..pauses } }
    }
}

fn pauses_of(points: &[Point], heights: &[f64], rate: f64) -> Pauses {
    let mut pauses = Pauses::default();
    let Some(first) = points.first() else { return pauses };
    let mut risen = first.at;
    for (pair, point) in heights.windows(2).zip(&points[1..]) {
        if pair[1] > pair[0] {
            if pauses.bursts > 0 {
                pauses.longest = pauses.longest.max(point.at - risen);
            }
            pauses.bursts += 1;
            risen = point.at.min(risen + RISE_CREDIT * (pair[1] - pair[0]) / rate);
        }
        pauses.last = point.at - risen;
    }
    pauses
}

/// Returns the number of new maxima of the floor, and the number expected by chance in a series that was `age` seconds
/// old at the first of these points.
pub(super) fn maxima(points: &[Point], age: f64) -> (u32, f64) {
    let floor = floor(points);
    let count = floor[..points.len()].windows(2).filter(|pair| pair[1] > pair[0]).count();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return (0, 0.0) };
    let width = points.windows(2).map(|pair| pair[1].at - pair[0].at).fold(f64::INFINITY, f64::min).max(1.0);
    let before = age.max(width / 2.0);
    (u32::try_from(count).unwrap_or(u32::MAX), libm::log((before + last.at - first.at) / before))
}
