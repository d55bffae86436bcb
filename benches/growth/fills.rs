//! Growth of a process from its beginning until memory is full: when its rate and its forecast are
//! first known, and whether they are right. A sample comes each second.

use gputop::base::units::{Bytes, Moment};
use gputop::model::LeakDetector;

use crate::aim::Aim;
use crate::lab::random::Random;
use crate::lab::{Label, Sampling, Shape};
use crate::life::Life;
use crate::score::quantile;
use crate::workers::on_all_cores;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0;
const DAY: f64 = 86_400.0;

/// The seconds after which figures must be known at the latest.
const LATEST: f64 = 120.0;

/// The seconds without a forecast after which the next one is another one.
const SAME: f64 = 300.0;

/// How memory grows until it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// Evenly, in segments of the allocator.
    Linear,
    /// By a step every some minutes.
    Stairs,
    /// Ever faster.
    Accelerating,
}

impl Fill {
    const ALL: [Self; 3] = [Self::Linear, Self::Stairs, Self::Accelerating];
}

/// The MiB held at each second, until memory is full.
struct Series {
    held: Vec<f64>,
    /// When growth begins.
    begins: f64,
    span: f64,
    limit: f64,
}

impl Series {
    fn draw(fill: Fill, random: &mut Random) -> Self {
        let limit = 80.0 * GIB;
        let base = random.log_uniform(0.3, 40.0) * GIB;
        let (shortest, longest) = match fill {
            Fill::Linear | Fill::Accelerating => (180.0, 3.0 * 3600.0),
            Fill::Stairs => (3600.0, 4.0 * 3600.0),
        };
        let span = random.log_uniform(shortest, longest);
        let begins = random.pick(&[0.0, 1.0]) * random.uniform(0.0, 300.0).floor();
        let segment = random.pick(&[2.0, 20.0]);
        let swing = random.pick(&[0.0, 0.01]) * (limit - base);
        let step = span / random.uniform(12.0, 60.0);
        let power = random.uniform(1.5, 2.5);
        let grown = |second: f64| match fill {
            Fill::Linear => second / span,
            Fill::Stairs => (second / step).floor() * step / span,
            Fill::Accelerating => (second / span).powf(power),
        };
        let mut held = vec![base; begins as usize];
        held.extend((0..span as usize).map(|second| {
            let kept = ((limit - base) * grown(second as f64) / segment).floor() * segment;
            // The temporary memory of a training step.
            let temporary = if second % 4 < 2 { swing } else { 0.0 };
            (base + kept + temporary).min(limit)
        }));
        Self {
            held,
            begins,
            span,
            limit,
        }
    }
}

/// The figures on a series. Times are in seconds since growth began.
#[derive(Debug, Default)]
struct Figures {
    span: f64,
    rate: Option<f64>,
    forecast: Option<f64>,
    /// The forecast time left at half of the time, as a share of the true one.
    half: Option<f64>,
    /// The forecasts, one a minute, and those whose interval was right.
    minutes: [u32; 2],
    /// The same of those that are too late.
    late: u32,
}

impl Figures {
    fn measure(series: &Series) -> Self {
        let mut detector = LeakDetector::default();
        let mut figures = Self {
            span: series.span,
            ..Self::default()
        };
        let half = (series.begins + 0.5 * series.span) as usize;
        for (second, mib) in series.held.iter().enumerate() {
            push(&mut detector, second, *mib, series.limit);
            let at = second as f64 - series.begins;
            let left = series.held.len() as f64 - second as f64;
            let Some(evidence) = detector.growing().filter(|_| at >= 0.0) else {
                continue;
            };
            figures.rate.get_or_insert(at);
            let Some(forecast) = evidence.forecast else {
                continue;
            };
            figures.forecast.get_or_insert(at);
            if second >= half && figures.half.is_none() {
                figures.half = Some(forecast.likely.as_secs_f64() / left);
            }
            if second.is_multiple_of(20) {
                figures.minutes[0] += 1;
                figures.minutes[1] += u32::from(
                    forecast.low.as_secs_f64() <= left && left <= forecast.high.as_secs_f64(),
                );
                figures.late += u32::from(forecast.low.as_secs_f64() > left);
            }
        }
        figures
    }
}

fn push(detector: &mut LeakDetector, second: usize, mib: f64, limit: f64) {
    detector.push(
        Moment(second as u64 * 1000 + 1_000_000),
        Bytes((mib * MIB) as u64),
        Some(Bytes((limit * MIB) as u64)),
    );
}

/// Prints when the figures of growth are known, and how often they are right.
pub(crate) fn run(first: u64, count: u64, list: bool) {
    for life in Life::ALL {
        print_healthy(life, true, first, 4 * count);
        print_healthy(life, false, first, count);
    }
    for fill in Fill::ALL {
        let all = on_all_cores(first..first + count, |seed| {
            let mut random = Random::seeded(seed ^ (0x6669_6c00 + fill as u64));
            let series = Series::draw(fill, &mut random);
            let figures = Figures::measure(&series);
            if list {
                println!("{fill:?} {seed} begins {} {figures:.2?}", series.begins);
            }
            figures
        });
        print(fill, &all);
    }
}

/// Prints how often a forecast appears on memory that is flat, or that a healthy job takes and gives
/// back or takes while it warms up.
fn print_healthy(life: Life, is_flat: bool, first: u64, count: u64) {
    let shapes: Vec<Shape> = Shape::ALL
        .into_iter()
        .filter(|shape| shape.label() == Label::Healthy && (*shape == Shape::Flat) == is_flat)
        .collect();
    let kinds = shapes.len() as u64;
    let figures = on_all_cores(0..count * kinds, |job| {
        let (shape, seed) = (shapes[(job % kinds) as usize], first + job / kinds);
        let mut case = shape.make(seed);
        life.share(&mut case, &mut Random::seeded(seed ^ 0x7766));
        let samples = Sampling::every(1.0).read(&case, &mut Random::seeded(seed ^ 0x77));
        let mut detector = LeakDetector::default();
        let (mut appearances, mut shown, mut last) = (0_u32, 0_u32, f64::NEG_INFINITY);
        for (at, bytes) in samples {
            let limit = Some(Bytes(case.capacity));
            detector.push(Moment(at + 1_000_000), Bytes(bytes), limit);
            let at = at as f64 / 1000.0;
            let growing = detector.growing();
            if growing.is_some_and(|evidence| evidence.forecast.is_some()) {
                appearances += u32::from(at - last > SAME);
                shown += 1;
                last = at;
            }
        }
        (appearances, shown, case.end)
    });
    let days = figures.iter().map(|one| one.2).sum::<f64>() / DAY;
    let appearances: u32 = figures.iter().map(|one| one.0).sum();
    let shown: u32 = figures.iter().map(|one| one.1).sum();
    println!(
        "{} with {life:?}: a forecast appears {:.2} times a day, and is there for {:.3} % of {days:.0} days",
        if is_flat {
            "flat jobs"
        } else {
            "other healthy jobs"
        },
        f64::from(appearances) / days,
        100.0 * f64::from(shown) / (days * DAY)
    );
}

fn print(fill: Fill, all: &[Figures]) {
    let share = |is_met: &dyn Fn(&Figures) -> bool| {
        100.0 * all.iter().filter(|one| is_met(one)).count() as f64 / all.len() as f64
    };
    if fill == Fill::Linear {
        let is_early =
            |at: Option<f64>, span: f64| at.is_some_and(|at| at <= (0.25 * span).min(LATEST));
        let name = "Linear, per cent with a rate after a quarter, 2:00 at the latest";
        Aim::least(100.0).print(name, share(&|one| is_early(one.rate, one.span)));
        let name = "Linear, per cent with a forecast then";
        Aim::least(100.0).print(name, share(&|one| is_early(one.forecast, one.span)));
        let shares: Vec<f64> = all
            .iter()
            .filter_map(|one| Some(one.rate? / one.span))
            .collect();
        let firsts: Vec<f64> = all.iter().filter_map(|one| one.rate).collect();
        println!(
            "    first rate after {:.0} s (median), {:.0} s (last), {:.2} of the time (last)",
            quantile(&firsts, 0.5),
            quantile(&firsts, 1.0),
            quantile(&shares, 1.0)
        );
    }
    if fill != Fill::Accelerating {
        let is_right = |one: &Figures| {
            one.half
                .is_some_and(|ratio| (1.0 / 1.5..=1.5).contains(&ratio))
        };
        Aim::least(90.0).print(
            &format!("{fill:?}, per cent of forecasts within 1.5 at half time"),
            share(&is_right),
        );
    }
    let sum = |place: usize| all.iter().map(|one| one.minutes[place]).sum::<u32>();
    Aim::least(90.0).print(
        &format!("{fill:?}, per cent of intervals that hold the truth"),
        100.0 * f64::from(sum(1)) / f64::from(sum(0)),
    );
    let late: u32 = all.iter().map(|one| one.late).sum();
    println!("    {late} of {} say that it is later than it is", sum(0));
}
