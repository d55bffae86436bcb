//! Caches that fill up to a plateau, and leaks that must not be taken for them. A sample comes each
//! second.

use gputop::base::units::{Bytes, Moment};
use gputop::model::{LeakDetector, LeakVerdict};

use crate::aim::Aim;
use crate::lab::random::Random;
use crate::lab::{Case, Label, Sampling, Shape};
use crate::life::Life;
use crate::score::quantile;
use crate::workers::on_all_cores;

const MINUTE: f64 = 60.0;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0;

/// How a cache takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// Evenly, in segments of the allocator.
    Smooth,
    /// For each request, an entry of random size, unless it is cached already.
    Requests,
    /// The entries of a batch at once, some batches a minute.
    Batches,
    /// Evenly, while each step of the job takes temporary memory.
    Steps,
    /// By the square root of the time: without a plateau, but ever more slowly.
    SquareRoot,
}

impl Cache {
    const ALL: [Self; 5] = [
        Self::Smooth,
        Self::Requests,
        Self::Batches,
        Self::Steps,
        Self::SquareRoot,
    ];

    /// The share of the plateau that is filled after each second, for a time constant in seconds.
    fn fill(self, constant: f64, seconds: usize, random: &mut Random) -> Vec<f64> {
        let share = |second: usize| 1.0 - (-(second as f64) / constant).exp();
        match self {
            Self::Smooth | Self::Steps => (0..seconds).map(share).collect(),
            Self::SquareRoot => (0..seconds)
                .map(|second| (second as f64 / seconds as f64).sqrt())
                .collect(),
            Self::Batches => {
                let every = random.uniform(5.0, 60.0);
                let batch = |second: usize| (second as f64 / every).floor() * every;
                (0..seconds)
                    .map(|second| share(batch(second) as usize))
                    .collect()
            }
            Self::Requests => {
                let entries = random.log_uniform(1000.0, 20_000.0);
                let (mut cached, mut filled) = (0.0, Vec::with_capacity(seconds));
                let mut share = 0.0_f64;
                for _ in 0..seconds {
                    filled.push(share);
                    cached += entries / constant;
                    while cached >= 1.0 {
                        cached -= 1.0;
                        if !random.chance(share.min(1.0)) {
                            share = (share + random.uniform(0.2, 1.8) / entries).min(1.0);
                        }
                    }
                }
                filled
            }
        }
    }
}

/// The MiB held at each second.
struct Series {
    held: Vec<f64>,
    limit: f64,
    /// When the cache begins to fill.
    begins: f64,
    constant: f64,
    plateau: f64,
}

impl Series {
    /// Draws a cache whose plateau is below the limit, or above it.
    fn draw(cache: Cache, is_above: bool, random: &mut Random) -> Self {
        let limit = 80.0 * GIB;
        let base = random.uniform(2.0, 30.0) * GIB;
        let height = if is_above {
            random.uniform(1.1, 1.6)
        } else {
            random.uniform(0.15, 0.95)
        } * (limit - base);
        let constant = random.log_uniform(20.0, 60.0) * MINUTE;
        let begins = random.uniform(0.0, 600.0).floor();
        let mut held = vec![base; begins as usize];
        let (segment, step) = (random.pick(&[2.0, 20.0]), random.uniform(2.0, 12.0));
        let swing = if cache == Cache::Steps {
            random.uniform(0.2, 1.0) * GIB
        } else {
            0.0
        };
        for (second, share) in cache
            .fill(constant, (5.0 * constant) as usize, random)
            .iter()
            .enumerate()
        {
            let temporary = if second as f64 % step < step / 2.0 {
                0.0
            } else {
                swing * random.unit()
            };
            let amount = base + (height * share / segment).floor() * segment + temporary;
            if amount > limit {
                break;
            }
            held.push(amount);
        }
        Self {
            held,
            limit,
            begins,
            constant,
            plateau: base + height,
        }
    }
}

/// The result of a series. Times are in time constants.
#[derive(Debug)]
struct Outcome {
    /// The time with the verdict "leak".
    in_leak: f64,
    /// When it was first called filling.
    filling: Option<f64>,
    /// The relative error of the plateau when it was first named, and whether its range was right.
    named: Option<(f64, bool)>,
    /// The forecasts of a cache that is too large, one a minute while it is called filling, and
    /// those whose interval was right.
    forecasts: [u32; 2],
}

impl Outcome {
    fn measure(series: &Series) -> Self {
        let mut detector = LeakDetector::default();
        let mut outcome = Self {
            in_leak: 0.0,
            filling: None,
            named: None,
            forecasts: [0; 2],
        };
        for (second, mib) in series.held.iter().enumerate() {
            detector.push(
                Moment(second as u64 * 1000 + 1_000_000),
                Bytes((mib * MIB) as u64),
                Some(Bytes((series.limit * MIB) as u64)),
            );
            match detector.verdict() {
                LeakVerdict::Leak => outcome.in_leak += 1.0 / series.constant,
                LeakVerdict::Filling => outcome.add_filling(series, second, &detector),
                _ => {}
            }
        }
        outcome
    }

    fn add_filling(&mut self, series: &Series, second: usize, detector: &LeakDetector) {
        let at = (second as f64 - series.begins) / series.constant;
        self.filling.get_or_insert(at);
        let Some((evidence, plateau)) = detector
            .evidence()
            .and_then(|evidence| Some((evidence, evidence.plateau?)))
        else {
            return;
        };
        let [likely, low, high] =
            [plateau.likely, plateau.low, plateau.high].map(|bytes| bytes.0 as f64 / MIB);
        let is_right = low <= series.plateau && series.plateau <= high;
        self.named
            .get_or_insert((likely / series.plateau - 1.0, is_right));
        if second.is_multiple_of(60) && series.plateau > series.limit {
            let left = (series.held.len() - second) as f64;
            let is_right = evidence.forecast.is_some_and(|forecast| {
                forecast.low.as_secs_f64() <= left && left <= forecast.high.as_secs_f64()
            });
            self.forecasts[0] += 1;
            self.forecasts[1] += u32::from(is_right);
        }
    }
}

/// Prints how long caches are called a leak, and how soon filling; then how many leaks are withdrawn
/// as if they levelled off.
pub(crate) fn run(first: u64, count: u64, list: bool) {
    for cache in Cache::ALL {
        for is_above in [false, true] {
            let outcomes = on_all_cores(first..first + count, |seed| {
                let mut random = Random::seeded(seed ^ (0x706c_6100 + cache as u64));
                let series = Series::draw(cache, is_above, &mut random);
                let outcome = Outcome::measure(&series);
                if list {
                    println!(
                        "{cache:?} {seed} begins {} constant {:.0} plateau {:.0} {outcome:.3?}",
                        series.begins, series.constant, series.plateau
                    );
                }
                outcome
            });
            let limit = if is_above { " above the limit" } else { "" };
            print(cache, &format!("{cache:?}{limit}"), &outcomes);
        }
    }
    for life in Life::ALL {
        withdraw(life, first, count, list);
    }
}

fn print(cache: Cache, name: &str, outcomes: &[Outcome]) {
    let in_leak: Vec<f64> = outcomes.iter().map(|one| one.in_leak).collect();
    let mean = in_leak.iter().sum::<f64>() / in_leak.len() as f64;
    Aim::most(0.3).print(&format!("{name}, time constants in leak"), mean);
    let early = outcomes
        .iter()
        .filter(|one| one.filling.is_some_and(|at| at <= 0.9));
    // The square root has no plateau.
    let aim = Aim::least(if cache == Cache::SquareRoot {
        0.0
    } else {
        90.0
    });
    aim.print(
        &format!("{name}, per cent called filling by 0.9"),
        100.0 * early.count() as f64 / outcomes.len() as f64,
    );
    let fillings: Vec<f64> = outcomes.iter().filter_map(|one| one.filling).collect();
    let named: Vec<(f64, bool)> = outcomes.iter().filter_map(|one| one.named).collect();
    let errors: Vec<f64> = named.iter().map(|(error, _)| error.abs()).collect();
    let right = named.iter().filter(|(_, is_right)| *is_right).count();
    let sum = |place: usize| outcomes.iter().map(|one| one.forecasts[place]).sum::<u32>();
    println!(
        "    in leak {:.2} (ninth decile), filling from {:.2} (median), {:.2} (ninth decile)",
        quantile(&in_leak, 0.9),
        quantile(&fillings, 0.5),
        quantile(&fillings, 0.9)
    );
    println!(
        "    plateau first named: error {:.3} (median), {:.3} (ninth decile), {right} of {} ranges right; {} of {} forecasts right",
        quantile(&errors, 0.5),
        quantile(&errors, 0.9),
        named.len(),
        sum(1),
        sum(0)
    );
}

/// How a leak was withdrawn as if it levelled off.
#[derive(Debug, Default)]
struct Withdrawal {
    is_called: bool,
    count: u32,
    /// The seconds until it was called again, at most.
    longest: f64,
}

impl Withdrawal {
    fn measure(case: &Case) -> Self {
        let samples = Sampling::every(1.0).read(case, &mut Random::seeded(0x77));
        let (mut detector, mut withdrawal) = (LeakDetector::default(), Self::default());
        let (mut was_leak, mut since) = (false, None);
        for (at, bytes) in samples {
            detector.push(
                Moment(at + 1_000_000),
                Bytes(bytes),
                Some(Bytes(case.capacity)),
            );
            let seconds = at as f64 / 1000.0;
            if seconds < case.onset.unwrap_or(0.0) {
                continue;
            }
            let is_leak = detector.verdict() == LeakVerdict::Leak;
            withdrawal.is_called |= is_leak;
            if let Some(since) = since.take_if(|_| is_leak) {
                withdrawal.longest = withdrawal.longest.max(seconds - since);
            }
            let levels_off = detector
                .evidence()
                .is_some_and(|evidence| evidence.plateau.is_some());
            if was_leak && !is_leak && levels_off {
                withdrawal.count += 1;
                since = Some(seconds);
            }
            was_leak = is_leak;
        }
        if let Some(since) = since {
            withdrawal.longest = withdrawal.longest.max(case.end - since);
        }
        withdrawal
    }
}

/// Prints how many leaks with this life are withdrawn.
fn withdraw(life: Life, first: u64, count: u64, list: bool) {
    let is_leak = |shape: &Shape| matches!(shape.label(), Label::Leak | Label::HardLeak);
    let shapes: Vec<Shape> = Shape::ALL.into_iter().filter(is_leak).collect();
    let kinds = shapes.len() as u64;
    let results = on_all_cores(0..count * kinds, |job| {
        let (shape, seed) = (shapes[(job % kinds) as usize], first + job / kinds);
        let mut case = shape.make(seed);
        life.share(&mut case, &mut Random::seeded(seed ^ 0x7766));
        let withdrawal = Withdrawal::measure(&case);
        if list && withdrawal.count > 0 {
            println!(
                "{shape:?} {life:?} {seed} {withdrawal:.0?} end {:.0}",
                case.end
            );
        }
        withdrawal
    });
    let called = results.iter().filter(|one| one.is_called).count();
    let withdrawn: Vec<&Withdrawal> = results.iter().filter(|one| one.count > 0).collect();
    let most = if life == Life::Nothing { 0.0 } else { 4.0 };
    Aim::most(most).print(
        &format!("leaks with {life:?}, per cent withdrawn"),
        100.0 * withdrawn.len() as f64 / called as f64,
    );
    let longest = withdrawn.iter().map(|one| one.longest).fold(0.0, f64::max);
    println!(
        "    {} of {called}, called again after {longest:.0} s at most",
        withdrawn.len()
    );
}
