//! Servers whose memory goes up and down as much as that of real inference pods, with leaks of known
//! rates, or none.
//!
//! Real pods that were recorded held 10 GiB at the lowest, 22 at the median and 32 to 47 at the
//! highest, and changed by 1.5 GiB from one sample to the next, with a sample each 57 seconds. Here,
//! requests arrive at a rate that drifts over the day, and each holds memory for some minutes.

use crate::aim::Aim;
use crate::lab::random::Random;
use crate::lab::{Case, Sampling, Shape};
use crate::score::{Judge, Outcome, quantile};
use crate::servers::{add_leak, poisson_bound};
use crate::workers::on_all_cores;

const HOUR: f64 = 3600.0;
const GIB: f64 = (1_u64 << 30) as f64;

/// The seconds between two samples.
const INTERVAL: f64 = 57.0;

/// The rates of the added leaks in MiB an hour, and the percentage of them that should be found.
const RATES: [(u64, f64); 4] = [(500, 0.0), (1000, 80.0), (2000, 80.0), (5000, 45.0)];

/// The most false alarms a day.
const FALSE_ALARMS_A_DAY: f64 = 0.02;

/// Returns the memory of a pod.
fn pod(seed: u64) -> Case {
    let mut random = Random::seeded(seed ^ 0x0070_6f64);
    loop {
        if let Some(case) = draw(&mut random) {
            return case;
        }
    }
}

/// Draws the memory of a pod; `None` if it does not fit on the GPU.
fn draw(random: &mut Random) -> Option<Case> {
    let end = random.log_uniform(12.0, 30.0) * HOUR;
    let floor = random.uniform(8.0, 11.0) * GIB;
    let size = random.log_uniform(3.5, 6.5) * GIB;
    let usual = random.uniform(10.0, 14.0) * GIB / size;
    let life = random.log_uniform(400.0, 1000.0);
    let (day, by_day) = (random.uniform(0.0, 24.0 * HOUR), random.uniform(0.0, 0.1));
    let (drift, by_drift) = (
        random.log_uniform(0.3 * HOUR, 3.0 * HOUR),
        random.uniform(0.0, 0.1),
    );
    let (mut kept, wobble) = (0.0, random.uniform(0.0, 2.0) * GIB);
    let (mut log, mut now, mut load, mut checked) = (Vec::new(), 0.0_f64, 0.0_f64, 0.0_f64);
    let mut requests: Vec<f64> = (0..usual as usize)
        .map(|_| size * random.uniform(0.3, 1.7))
        .collect();
    while now < end {
        let rhythm = by_day * (std::f64::consts::TAU * (now + day) / (24.0 * HOUR)).sin();
        let arrivals = (usual * (1.0 + rhythm + by_drift * load)).max(0.1) / life;
        let ends = requests.len() as f64 / life;
        let wait = random.exponential() / (arrivals + ends);
        now += wait;
        let share = ((now - checked) / drift).min(1.0);
        load += -share * load + (2.0 * share).sqrt() * random.normal();
        checked = now;
        if random.chance(arrivals / (arrivals + ends)) {
            requests.push(size * random.uniform(0.3, 1.7));
        } else {
            let place = random.whole(0, requests.len() as u64 - 1) as usize;
            requests.swap_remove(place);
        }
        if random.chance(wait / 900.0) {
            kept = random.uniform(0.0, wobble);
        }
        let held = floor + kept + requests.iter().sum::<f64>();
        log.push((now, held as u64));
    }
    let top = log.iter().map(|entry| entry.1).max().unwrap_or(0);
    let capacity = (48_u64 << 30) / 50 * 49;
    if top > capacity {
        return None;
    }
    log.insert(0, (0.0, floor as u64));
    Some(Case {
        capacity,
        end,
        log,
        tensors: Vec::new(),
        shape: Shape::Serving,
        onset: None,
        detectable_from: 0.0,
        out_of_memory_at: None,
        plateau: None,
    })
}

/// Prints how many leaks of each rate were found, and the false alarms without one.
pub(crate) fn run(first: u64, count: u64, list: bool) {
    let judge = |rate: Option<u64>, seed: u64| {
        let mut case = pod(seed);
        if let Some(rate) = rate {
            add_leak(&mut case, rate, &mut Random::seeded(seed ^ rate));
        }
        let samples = Sampling::every(INTERVAL).read(&case, &mut Random::seeded(seed ^ 0x77));
        let outcome = Outcome::measure(Judge::Gputop, &case, &samples, &[], INTERVAL);
        if list {
            println!("pod {seed} {rate:?} {}", outcome.line(&case));
        }
        (outcome, case.out_of_memory_at.is_some())
    };
    describe(first, count);
    for (rate, aim) in RATES {
        let outcomes = on_all_cores(first..first + count, |seed| judge(Some(rate), seed));
        let found: Vec<&Outcome> = outcomes
            .iter()
            .map(|outcome| &outcome.0)
            .filter(|outcome| outcome.detected.is_some())
            .collect();
        let full = outcomes.iter().filter(|outcome| outcome.1).count();
        let delays: Vec<f64> = found.iter().map(|outcome| outcome.delay).collect();
        let episodes: u32 = found.iter().map(|outcome| outcome.episodes).sum();
        let early: usize = outcomes
            .iter()
            .map(|outcome| outcome.0.false_alarms.len())
            .sum();
        Aim::least(aim).print(
            &format!("pods, found of a leak of {rate} MiB/h, per cent"),
            100.0 * found.len() as f64 / outcomes.len() as f64,
        );
        println!(
            "    {} of {} found, {full} ran out of memory, median delay {:.0} samples, {:.2} episodes each, {early} alarms before the leak",
            found.len(),
            outcomes.len(),
            quantile(&delays, 0.5),
            f64::from(episodes) / found.len() as f64
        );
    }
    let outcomes = on_all_cores(first..first + 8 * count, |seed| judge(None, seed).0);
    let (alarms, days) = Outcome::false_alarms_in_days(&outcomes);
    Aim::most(FALSE_ALARMS_A_DAY).print(
        "pods without a leak, false alarms a day",
        alarms as f64 / days,
    );
    println!(
        "    {alarms} false alarms in {days:.0} days, at most {:.3} a day with 95 % confidence",
        poisson_bound(alarms) / days
    );
}

/// Prints the figures in which the pods should be like real ones.
fn describe(first: u64, count: u64) {
    let figures = on_all_cores(first..first + count, |seed| {
        let case = pod(seed);
        let samples = Sampling::every(INTERVAL).read(&case, &mut Random::seeded(seed ^ 0x77));
        let held: Vec<f64> = samples.iter().map(|sample| sample.1 as f64 / GIB).collect();
        let steps = held.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let step = steps.sum::<f64>() / held.len() as f64;
        [0.0, 0.5, 1.0]
            .map(|share| quantile(&held, share))
            .into_iter()
            .chain([step])
            .collect::<Vec<f64>>()
    });
    let median = |figure: usize| {
        quantile(
            &figures.iter().map(|pod| pod[figure]).collect::<Vec<_>>(),
            0.5,
        )
    };
    println!(
        "{count} pods: lowest {:.0}, median {:.0}, highest {:.0} GiB, mean step {:.1} GiB",
        median(0),
        median(1),
        median(2),
        median(3)
    );
}
