//! Growth that is no leak and ends: memory that is given back again and again. Each series lasts eight hours with a sample each second.

use gputop::base::units::{Bytes, Moment};
use gputop::model::{LeakDetector, LeakVerdict};

use crate::aim::Aim;
use crate::lab::random::Random;
use crate::score::quantile;
use crate::workers::on_all_cores;

const HOUR: f64 = 3600.0;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0;

/// The seconds for which a series is watched.
const WATCHED: u32 = 8 * 3600;

/// A kind of growth that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Memory grows for 20 to 90 minutes, and is given back at once.
    Teeth,
    /// The same, with a base that falls.
    FallingTeeth,
    /// Two teeth, and then nothing.
    TwoTeeth,
    /// Memory grows while data is generated, and stays low while a model is trained on it.
    TwoPhases,
    /// Generations of different lengths grow one cache each.
    Generations,
}

impl Shape {
    const ALL: [Self; 5] = [
        Self::Teeth,
        Self::FallingTeeth,
        Self::TwoTeeth,
        Self::TwoPhases,
        Self::Generations,
    ];
}

/// The MiB held at each second, and the seconds at which memory was given back.
struct Series {
    held: Vec<f64>,
    falls: Vec<u32>,
    limit: f64,
}

impl Series {
    fn draw(shape: Shape, random: &mut Random) -> Self {
        let limit = 80.0 * GIB;
        let base = random.uniform(8.0, 40.0) * GIB;
        let height = random.uniform(0.1, 0.8) * (limit - base);
        let period = random.log_uniform(HOUR / 3.0, 1.5 * HOUR);
        let rising_part = if shape == Shape::TwoPhases {
            random.uniform(0.3, 0.7)
        } else {
            1.0
        };
        let (mut held, mut falls) = (Vec::new(), Vec::new());
        let mut low = base;
        let before = random.uniform(60.0, 600.0);
        held.resize(before as usize, low);
        while held.len() < WATCHED as usize {
            let of_usual = match shape {
                Shape::Generations => random.log_uniform(0.25, 1.0),
                _ => random.uniform(0.9, 1.1),
            };
            if shape == Shape::TwoTeeth && falls.len() == 2 {
                held.resize(WATCHED as usize, low);
                break;
            }
            let span = (period * of_usual) as usize;
            let rising = (span as f64 * rising_part) as usize;
            let segment = random.pick(&[2.0, 20.0]);
            held.extend((0..rising).map(|second| {
                let added = height * of_usual * second as f64 / rising as f64;
                low + (added / segment).floor() * segment
            }));
            falls.push(held.len() as u32);
            if shape == Shape::FallingTeeth {
                low -= random.uniform(0.0, 0.03) * base;
            }
            held.extend((rising..span).map(|_| low));
            let pause = random.uniform(0.0, 20.0) as usize;
            held.extend((0..pause).map(|_| low));
        }
        held.truncate(WATCHED as usize);
        falls.retain(|fall| *fall < WATCHED);
        Self { held, falls, limit }
    }

    /// The verdict at each second.
    fn judge(&self) -> Vec<LeakVerdict> {
        let mut detector = LeakDetector::default();
        let push = |(second, mib): (usize, &f64)| {
            detector.push(
                Moment(second as u64 * 1000 + 1_000_000),
                Bytes((mib * MIB) as u64),
                Some(Bytes((self.limit * MIB) as u64)),
            );
            detector.verdict()
        };
        self.held.iter().enumerate().map(push).collect()
    }
}

/// Prints the share of the time with the verdict "leak", and how soon it is over.
pub(crate) fn run(first: u64, count: u64, list: bool) {
    for shape in Shape::ALL {
        let results = on_all_cores(first..first + count, |seed| {
            let mut random = Random::seeded(seed ^ (0x656e_6400 + shape as u64));
            let series = Series::draw(shape, &mut random);
            let verdicts = series.judge();
            let leaks = |verdicts: &[LeakVerdict]| {
                let leaks = verdicts
                    .iter()
                    .filter(|verdict| **verdict == LeakVerdict::Leak);
                leaks.count() as f64 / verdicts.len() as f64
            };
            let over = |(place, fall): (usize, &u32)| {
                let next = series.falls.get(place + 1).copied().unwrap_or(WATCHED);
                let after = &verdicts[*fall as usize..next as usize];
                let was_leak = verdicts[*fall as usize - 1] == LeakVerdict::Leak;
                was_leak.then(|| {
                    let over = after
                        .iter()
                        .position(|verdict| *verdict != LeakVerdict::Leak);
                    over.unwrap_or(after.len()) as f64
                })
            };
            let overs: Vec<f64> = series.falls.iter().enumerate().filter_map(over).collect();
            let first_fall = series.falls.first().map_or(0, |fall| *fall as usize);
            if list {
                println!(
                    "{shape:?} {seed} in leak {:.3}, after the first fall {:.3}, over after {overs:?}, falls {:?}",
                    leaks(&verdicts),
                    leaks(&verdicts[first_fall..]),
                    series.falls
                );
            }
            (leaks(&verdicts), leaks(&verdicts[first_fall..]), overs)
        });
        let mean = |sum: f64| 100.0 * sum / results.len() as f64;
        Aim::most(5.0).print(
            &format!("{shape:?}, time in leak from the first fall on, per cent"),
            mean(results.iter().map(|result| result.1).sum()),
        );
        println!(
            "    with the first rise {:.1} %",
            mean(results.iter().map(|result| result.0).sum())
        );
        let overs: Vec<f64> = results.iter().flat_map(|result| result.2.clone()).collect();
        Aim::most(300.0).print(
            &format!("{shape:?}, seconds from a fall until no leak, ninth decile"),
            quantile(&overs, 0.9),
        );
    }
}
