//! Measures leak detection on a labelled set of series: gputop's judge and three baselines.
//!
//! `cargo bench --bench growth` runs 48 seeds of each shape, with some 170 process-days of healthy
//! jobs, and prints a table for each judge. Its columns: cases; leaks that were found; cases with a
//! false alarm; false alarms; days without a leak; median delay in samples; median and ninth decile
//! of the delay as a share of the time to the end; median error and bias of the forecast at half of
//! that time; share of forecasts whose interval was right, at that time and each minute; ninth
//! decile of the seconds for which a growth that is no leak stayed suspect after it ended; verdict
//! changes per hour.
//!
//! Arguments after `--`: `--seeds N`; `--first N`, the first seed (seeds from 0 and from 2^32 on
//! were used while the judge was written, seeds from 2^33 to 2^37 and, by default, from 2^38 on
//! only to check it); `--interval SECONDS`; `--shape NAME`; `--lives` (each shape alone, and with
//! other things that share its curve: `life.rs`); `--servers` (leaks of known rates in the memory
//! of servers, and the same servers without: `servers.rs`); `--pods` (the same for servers that go up
//! and down like real inference pods: `pods.rs`); `--endings` (growth that is given back:
//! `endings.rs`); `--fills` (growth until
//! memory is full, and the forecasts on healthy jobs: `fills.rs`); `--plateaus` (caches that fill up: `plateaus.rs`, written with seeds from 7000 and
//! from 2^38 on); `--gputop` (no baselines);
//! `--allocated` (gputop with allocator stats); `--list` (a line for each case).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a table of rounded figures for a person"
)]

mod aim;
mod baselines;
mod endings;
mod fills;
mod lab;
mod life;
mod plateaus;
mod pods;
mod score;
mod servers;
mod workers;

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use lab::random::Random;
use lab::{Sampling, Shape};
use life::Life;
use score::{Judge, Outcome, Tally};

/// The command line.
struct Options {
    first: u64,
    count: u64,
    interval: f64,
    shapes: Vec<Shape>,
    judges: Vec<Judge>,
    lives: Vec<Life>,
    list: bool,
}

fn main() {
    let mut options = Options {
        first: 1 << 38,
        count: 48,
        interval: 1.0,
        shapes: Shape::ALL.to_vec(),
        judges: Judge::ALL.to_vec(),
        lives: vec![Life::Nothing],
        list: false,
    };
    let (mut servers, mut pods, mut endings) = (false, false, false);
    let (mut plateaus, mut fills) = (false, false);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            arguments
                .next()
                .and_then(|word| word.parse::<f64>().ok())
                .unwrap_or(1.0)
        };
        match argument.as_str() {
            "--seeds" => options.count = number() as u64,
            "--first" => options.first = number() as u64,
            "--interval" => options.interval = number(),
            "--gputop" => options.judges = vec![Judge::Gputop],
            "--allocated" => {
                options.judges = vec![Judge::Parts];
                options
                    .shapes
                    .retain(|shape| !matches!(shape, Shape::Restarts | Shape::Neighbours));
            }
            "--lives" => options.lives = Life::ALL.to_vec(),
            "--servers" => servers = true,
            "--pods" => pods = true,
            "--endings" => endings = true,
            "--fills" => fills = true,
            "--plateaus" => plateaus = true,
            "--list" => options.list = true,
            "--shape" => {
                let name = arguments.next().unwrap_or_default();
                options
                    .shapes
                    .retain(|shape| format!("{shape:?}").contains(&name));
            }
            _ => {}
        }
    }
    if servers {
        servers::run(options.first, options.count, options.interval, options.list);
        return;
    }
    if pods {
        pods::run(options.first, options.count, options.list);
        return;
    }
    if endings {
        endings::run(options.first, options.count, options.list);
        return;
    }
    if fills {
        fills::run(options.first, options.count, options.list);
        return;
    }
    if plateaus {
        plateaus::run(options.first, options.count, options.list);
        return;
    }
    let tallies = run(&options);
    for (judge, sum) in &tallies {
        println!("== {judge:?}, a sample every {} s", options.interval);
        if options.lives.len() > 1 {
            score::print_lives(&sum.cells);
        } else {
            score::print(&sum.shapes, &sum.all);
        }
    }
}

type Tallies = BTreeMap<Judge, Sum>;

/// The results of a judge.
#[derive(Debug, Default)]
struct Sum {
    shapes: BTreeMap<Shape, Tally>,
    cells: BTreeMap<(Shape, Life), Tally>,
    all: Tally,
}

fn run(options: &Options) -> Tallies {
    let next = AtomicU64::new(0);
    let tallies = Mutex::new(Tallies::new());
    let cells: Vec<(Shape, Life)> = options
        .shapes
        .iter()
        .flat_map(|shape| options.lives.iter().map(|life| (*shape, *life)))
        .collect();
    let jobs = options.count * cells.len() as u64;
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    let (shape, life) = cells[(job % cells.len() as u64) as usize];
                    let seed = options.first + job / cells.len() as u64;
                    let mut case = shape.make(seed);
                    life.share(&mut case, &mut Random::seeded(seed ^ 0x7766));
                    let (sampling, random) = (
                        Sampling::every(options.interval),
                        Random::seeded(seed ^ 0x77),
                    );
                    let samples = sampling.read(&case, &mut random.clone());
                    let tensors = sampling.read_log(&case, &case.tensors, &mut random.clone());
                    for judge in &options.judges {
                        let outcome =
                            Outcome::measure(*judge, &case, &samples, &tensors, options.interval);
                        if options.list {
                            println!("{shape:?} {life:?} {seed} {}", outcome.line(&case));
                        }
                        let mut tallies = tallies.lock().expect("no judge panicked");
                        let sum = tallies.entry(*judge).or_default();
                        sum.shapes.entry(shape).or_default().add(&case, &outcome);
                        sum.cells
                            .entry((shape, life))
                            .or_default()
                            .add(&case, &outcome);
                        sum.all.add(&case, &outcome);
                    }
                }
            });
        }
    });
    tallies.into_inner().expect("no judge panicked")
}
