//! Measures leak detection on a labelled set of series: gputop's judge and three baselines.
//!
//! `cargo bench --bench growth` runs 48 seeds of each shape, with some 170 process-days of healthy jobs, and prints a
//! table for each judge. Its columns: cases; leaks that were found; cases with a false alarm; false alarms; days without
//! a leak; median delay in samples; median and ninth decile of the delay as a share of the time to the end; median
//! error and bias of the forecast at half of that time; share of forecasts whose interval was right, at that time and
//! each minute; ninth decile of the seconds for which a growth that is no leak stayed suspect after it ended; verdict
//! changes per hour.
//!
//! Arguments after `--`: `--seeds N`; `--first N`, the first seed (seeds from 0 and from 2^32 on were used while the
//! judge was written, seeds from 2^33 to 2^37 and, by default, from 2^38 on only to check it); `--interval SECONDS`;
//! `--shape NAME`; `--gputop` (no baselines); `--allocated` (gputop with allocator stats); `--list` (a line for each
//! case).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a table of rounded figures for a person"
)]

mod baselines;
mod lab;
mod score;

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use lab::random::Random;
use lab::{Sampling, Shape};
use score::{Judge, Outcome, Tally};

/// The command line.
struct Options {
    first: u64,
    count: u64,
    interval: f64,
    shapes: Vec<Shape>,
    judges: Vec<Judge>,
    list: bool,
}

fn main() {
    let mut options = Options {
        first: 1 << 38,
        count: 48,
        interval: 1.0,
        shapes: Shape::ALL.to_vec(),
        judges: Judge::ALL.to_vec(),
        list: false,
    };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(1.0);
        match argument.as_str() {
            "--seeds" => options.count = number() as u64,
            "--first" => options.first = number() as u64,
            "--interval" => options.interval = number(),
            "--gputop" => options.judges = vec![Judge::Gputop],
            "--allocated" => {
                options.judges = vec![Judge::Parts];
                options.shapes.retain(|shape| !matches!(shape, Shape::Restarts | Shape::Neighbours));
            }
            "--list" => options.list = true,
            "--shape" => {
                let name = arguments.next().unwrap_or_default();
                options.shapes.retain(|shape| format!("{shape:?}").contains(&name));
            }
            _ => {}
        }
    }
    let tallies = run(&options);
    for (judge, (shapes, all)) in &tallies {
        println!("== {judge:?}, a sample every {} s", options.interval);
        score::print(shapes, all);
    }
}

type Tallies = BTreeMap<Judge, (BTreeMap<Shape, Tally>, Tally)>;

fn run(options: &Options) -> Tallies {
    let next = AtomicU64::new(0);
    let tallies = Mutex::new(Tallies::new());
    let jobs = options.count * options.shapes.len() as u64;
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    let shape = options.shapes[(job % options.shapes.len() as u64) as usize];
                    let seed = options.first + job / options.shapes.len() as u64;
                    let case = shape.make(seed);
                    let (sampling, random) = (Sampling::every(options.interval), Random::seeded(seed ^ 0x77));
                    let samples = sampling.read(&case, &mut random.clone());
                    let tensors = sampling.read_log(&case, &case.tensors, &mut random.clone());
                    for judge in &options.judges {
                        let outcome = Outcome::of(*judge, &case, &samples, &tensors, options.interval);
                        if options.list {
                            println!("{shape:?} {seed} {}", outcome.line(&case));
                        }
                        let mut tallies = tallies.lock().expect("no judge panicked");
                        let (shapes, all) = tallies.entry(*judge).or_default();
                        shapes.entry(shape).or_default().add(&case, &outcome);
                        all.add(&case, &outcome);
                    }
                }
            });
        }
    });
    tallies.into_inner().expect("no judge panicked")
}
