//! Finds a growth that goes on in a window of buckets: many steps, evenly spread, not slowing, and soon at the end.

use super::PAID;
use super::buckets::{LENGTH, Point, Points};

/// A growth that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trend {
    /// When it began, in seconds since boot.
    pub(super) from: f64,
    /// How long it has gone on, in seconds.
    pub(super) span: f64,
    /// Seconds that a bucket takes.
    pub(super) width: f64,
    /// KiB.
    pub(super) gained: f64,
    /// KiB a second, mean.
    pub(super) rate: f64,
    /// Its beginning was seen: it held still before, or grew much faster.
    pub(super) begun: bool,
    /// By how much it is off a parabola, as a share of what was gained.
    pub(super) rest: f64,
    /// The longest time without growth within it, in seconds.
    pub(super) pause: f64,
}

/// Seconds within which memory has to run out, or nobody needs to know.
pub(super) const RELEVANT: f64 = 24.0 * 3600.0;

/// KiB a second: slow for a file system, and fast for a leak.
pub(super) const LOADING: f64 = 12.0 * 1024.0;

/// How a floor goes.
#[derive(Debug, Clone, Copy)]
struct FloorShape {
    span: f64,
    /// How many steps of one size it would be.
    steps: f64,
    /// Root mean square of what a parabola leaves unexplained, as a share of what was gained.
    rest: f64,
    /// How much the rate changes from begin to end, as a share of the mean rate.
    bend: f64,
    /// KiB a second, mean.
    rate: f64,
}

/// The amounts that were never given back after.
pub(super) fn floor(points: &[Point]) -> [f64; LENGTH] {
    let mut floor = [0.0; LENGTH];
    let mut lowest = f64::INFINITY;
    for (at, point) in points.iter().enumerate().rev() {
        lowest = lowest.min(point.low);
        floor[at] = lowest;
    }
    floor
}

/// KiB that were held for a while, and given back, on average. The middle one of three parts of the time tells: in one
/// of them something else may have ended.
#[expect(clippy::cast_precision_loss, reason = "a window has few points")]
pub(super) fn wander(points: &[Point]) -> f64 {
    let mut thirds = [0, 1, 2].map(|third| {
        let points = &points[points.len() * third / 3..points.len() * (third + 1) / 3];
        let above: f64 = points.iter().zip(floor(points)).map(|(point, floor)| point.low - floor).sum();
        above / points.len().max(1) as f64
    });
    thirds.sort_by(f64::total_cmp);
    thirds[1]
}

/// Points up to the last fall of a sawtooth: the tooth that rises now says nothing of the floor.
fn whole_teeth(points: &[Point]) -> &[Point] {
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

/// Finds the trend that lasts to the end of the window and is most even, and says whether it is a leak or a suspect.
///
/// `limit` is where memory ends, in KiB; `least` is how long, in seconds,
/// it has to have gone on, after others that came to nothing.
pub(super) fn find(window: &Points, limit: Option<f64>, least: f64) -> Option<(Trend, bool)> {
    let points = window.as_slice();
    let whole = whole_teeth(points);
    if whole.is_empty() {
        return None;
    }
    let floor = floor(whole);
    let floor = &floor[..whole.len()];
    let top = points[points.len() - points.len().div_ceil(4)..].iter().map(|it| it.high).fold(0.0, f64::max);
    let (mut leak, mut suspect) = (None::<Trend>, None);
    let starts = starts(whole, floor);
    for (at, start) in starts.iter().enumerate() {
        if at > 0 && starts[at - 1] == *start {
            continue;
        }
        let Some(part) = Candidate::of(whole, floor, *start, window.long) else { continue };
        // Where nobody told the limit, as much again as there is now stands for it.
        let left = limit.map_or(top, |limit| (limit - top).max(0.0)) / part.shape.rate;
        let span = part.shape.span;
        // What would end within less than it took is a bump that ends before, or it is too late to say.
        if left > RELEVANT || left < 0.5 * span && span < 600.0 || part.before == BeforeTrend::Faster {
            continue;
        }
        let need = part.need(left).max(least);
        let trend = part.trend(window.width);
        if part.is_steady(1.0) && span >= need {
            if leak.is_none_or(|it| trend.rest < it.rest) {
                leak = Some(trend);
            }
        } else if suspect.is_none() && part.is_steady(1.5) && span >= 0.4 * need {
            suspect = Some(trend);
        }
    }
    leak.map(|it| (it, true)).or(suspect.map(|it| (it, false)))
}

/// The longest even growth to the end of the window, however slow it is.
pub(super) fn slow_growth(window: &Points) -> Option<Trend> {
    let points = whole_teeth(window.as_slice());
    if points.is_empty() {
        return None;
    }
    let floor = floor(points);
    let floor = &floor[..points.len()];
    let mut parts = starts(points, floor).into_iter().filter_map(|it| Candidate::of(points, floor, it, window.long));
    parts.find(|it| it.before != BeforeTrend::Faster && it.is_steady(1.0)).map(|it| it.trend(window.width))
}

/// Where a trend may have begun: with the window, at a bend upwards, or downwards after a warm-up; in their order.
fn starts(points: &[Point], floor: &[f64]) -> [usize; 5] {
    let (low, high) = knees(points, floor, 0);
    let (after_low, after_high) = knees(points, floor, high);
    let mut starts = [0, low, high, after_low, after_high];
    starts.sort_unstable();
    starts
}

/// What was before a trend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeforeTrend {
    /// It held still.
    Plateau,
    /// It grew much faster: that was something else.
    Jump,
    /// It grew a little faster, bit by bit.
    Faster,
    /// Nobody saw, or it is unclear where the trend begins.
    Unknown,
}

/// The end of a window, from where a trend may have begun.
struct Candidate<'a> {
    points: &'a [Point],
    floor: &'a [f64],
    shape: FloorShape,
    before: BeforeTrend,
    /// As fast as files are read.
    is_fast: bool,
    /// It fills a process that is new, as weights do that are being loaded.
    loads: bool,
}

impl<'a> Candidate<'a> {
    fn of(points: &'a [Point], floor: &'a [f64], start: usize, long: usize) -> Option<Self> {
        let (part, heights) = (&points[start..], &floor[start..]);
        let shape = shape(part, heights, long)?;
        let age = part[0].at - points[0].at;
        // What is loaded comes in large pieces, and holds still between them.
        let pause = if shape.rate > LOADING { pauses_of(part, heights, shape.rate).longest } else { 0.0 };
        let before = match () {
            () if plateau(points, floor, start, shape.rate, pause) => BeforeTrend::Plateau,
            () if slows(points, floor, start, shape.rate) => BeforeTrend::Faster,
            () if age > 0.0 && floor[start] - floor[0] > 4.0 * shape.rate * age => BeforeTrend::Jump,
            () => BeforeTrend::Unknown,
        };
        let base = if before == BeforeTrend::Jump { heights[0] } else { floor[0] };
        let end = heights[heights.len() - 1];
        let is_fast = shape.rate > 3.0 * LOADING;
        let loads = (shape.rate > LOADING || shape.steps < 8.0)
            && (before != BeforeTrend::Plateau && base < 0.5 * end || heights[0] < 0.3 * end);
        Some(Self { points: part, floor: heights, shape, before, is_fast, loads })
    }

    /// How long it has to go on before it is called a leak, in seconds, when memory ends in `left` seconds. Where there
    /// is time, there is no hurry: a buffer that fills, or an epoch that is sorted by length, may come to its end.
    ///
    /// One that fills at an even pace from the start looks in every respect as a leak does, until it is full. To wait
    /// until 8 % of the room is filled would spare one in twelve of them, to wait for ten minutes two in twelve, and make
    /// leaks wait one and a half times and more than twice as long (`benches/growth`).
    fn need(&self, left: f64) -> f64 {
        match () {
            () if self.loads && self.shape.steps < 8.0 => f64::INFINITY,
            () if self.loads => 1200.0,
            () if self.is_fast && self.before != BeforeTrend::Plateau => {
                (0.3 * (self.shape.span + left)).clamp(250.0, 1200.0)
            }
            () if self.before == BeforeTrend::Plateau => (0.01 * left).clamp(110.0, 250.0),
            () => (0.012 * left).clamp(230.0, 270.0),
        }
    }

    /// Whether its steps are as many, and as evenly spread, as those of a leak; with some slack, of a suspect.
    fn is_steady(&self, slack: f64) -> bool {
        let FloorShape { steps, rest, bend, .. } = self.shape;
        let enough = if slack > 1.0 { 4.0 } else { 5.6 };
        // Few steps have to be very regular. A parabola that bends by more than 2 would begin with a fall.
        let (even, most) = match steps {
            ..8.0 => (0.05, 1.0),
            ..16.0 => (0.06, 1.5),
            _ => (0.065, 2.2),
        };
        // What began with the job may be a warm-up.
        let least = if self.before == BeforeTrend::Plateau { -0.2 - 4.0 * rest } else { -0.12 - 2.0 * rest };
        steps >= enough && rest <= even * slack && (least * slack..most * slack).contains(&bend)
    }

    fn trend(&self, width: f64) -> Trend {
        Trend {
            from: self.points[0].at,
            span: self.shape.span,
            width,
            gained: self.floor[self.floor.len() - 1] - self.floor[0],
            rate: self.shape.rate,
            begun: matches!(self.before, BeforeTrend::Plateau | BeforeTrend::Jump),
            rest: self.shape.rest,
            pause: pauses_of(self.points, self.floor, self.shape.rate).longest,
        }
    }
}

/// Whether before the start it held still for a while, and longer than the growth pauses.
fn plateau(points: &[Point], floor: &[f64], start: usize, rate: f64, pause: f64) -> bool {
    if start < 4 {
        return false;
    }
    let from = points[..start].partition_point(|it| it.at < points[start].at - 600.0);
    let span = points[start].at - points[from].at;
    span >= (1.5 * pause).max(45.0) && floor[start] - floor[from] < 0.25 * rate * span
}

/// Whether it grew faster just before the start, bit by bit: a warm-up comes to its end so. One jump, or a growth so much
/// faster that it was something else, says nothing.
fn slows(points: &[Point], floor: &[f64], start: usize, rate: f64) -> bool {
    let begin = start.saturating_sub(points.len() - start);
    let (from, to) = (points[begin], points[start]);
    let gained = floor[start] - floor[begin];
    let largest = floor[begin..=start].windows(2).map(|it| it[1] - it[0]).fold(0.0, f64::max);
    let before = gained / (to.at - from.at).max(1.0);
    start - begin >= 4 && largest < 0.6 * gained && before > 1.2 * rate && before < 5.0 * rate
}

/// Where the floor bends most: upwards, which begins a growth, and downwards, which ends a warm-up.
fn knees(points: &[Point], floor: &[f64], start: usize) -> (usize, usize) {
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

/// How the floor goes over these points; absent where it does not rise.
fn shape(points: &[Point], floor: &[f64], long: usize) -> Option<FloorShape> {
    let count = points.len();
    let (first, last) = (points.first()?, points.last()?);
    let gained = floor[count - 1] - floor[0];
    let span = last.at - first.at;
    if gained <= 0.0 || span <= 0.0 || count < 4 {
        return None;
    }
    let fit = Parabola::of(points, floor)?;
    if fit.slope <= 0.0 {
        return None;
    }
    Some(FloorShape {
        span,
        steps: steps(floor, long),
        rest: fit.rest / gained,
        bend: 4.0 * fit.bend / fit.slope,
        rate: 2.0 * fit.slope / span,
    })
}

/// In how many steps of one size the floor would have risen as unevenly as it did. Buckets next to each other that
/// rise are one step, until there are as many as that: what rises for long is no step.
fn steps(floor: &[f64], long: usize) -> f64 {
    let (mut sum, mut squares, mut step, mut length) = (0.0, 0.0, 0.0, 0);
    for pair in floor.windows(2) {
        let rise = pair[1] - pair[0];
        if rise <= 0.0 || length == long {
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

/// `height + slope·u + bend·u²` over the time from -1 to 1 of the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parabola {
    pub(super) height: f64,
    pub(super) slope: f64,
    pub(super) bend: f64,
    /// How much of the third Legendre polynomial is in what is left: the bend grows.
    pub(super) twist: f64,
    /// Root mean square of what is left.
    pub(super) rest: f64,
}

impl Parabola {
    /// The best by least squares.
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

/// Times without a new maximum, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pauses {
    /// How often it rose after a pause, or for long.
    pub(super) bursts: usize,
    /// The longest between two rises.
    pub(super) longest: f64,
    /// Since the last rise.
    pub(super) last: f64,
}

impl Trend {
    /// The pauses of what was held at most, as far as these buckets show the trend. Where they show too little of it,
    /// the longest is that of the buckets in which it was found.
    pub(super) fn pauses(&self, points: &[Point]) -> Pauses {
        let points = &points[points.partition_point(|it| it.at < self.from)..];
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
            risen = point.at.min(risen + PAID * (pair[1] - pair[0]) / rate);
        }
        pauses.last = point.at - risen;
    }
    pauses
}

/// New maxima of what was held at least, and how many there would be by chance in a series that was that old (in
/// seconds) when these points began.
pub(super) fn maxima(points: &[Point], age: f64) -> (u32, f64) {
    let floor = floor(points);
    let count = floor[..points.len()].windows(2).filter(|it| it[1] > it[0]).count();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return (0, 0.0) };
    let width = points.windows(2).map(|it| it[1].at - it[0].at).fold(f64::INFINITY, f64::min).max(1.0);
    let before = age.max(width / 2.0);
    (u32::try_from(count).unwrap_or(u32::MAX), libm::log((before + last.at - first.at) / before))
}
