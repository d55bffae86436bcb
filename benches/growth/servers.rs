//! Leaks in the memory of servers: the load goes up and down by day and by the minute, requests
//! have different lengths, and a leak of a known rate is added, or none.

use crate::lab::random::Random;
use crate::lab::{Case, Sampling, Shape};
use crate::life::Life;
use crate::score::{Judge, Outcome, quantile};

const HOUR: f64 = 3600.0;
const MIB: u64 = 1 << 20;

/// The rates of the added leaks in MiB an hour.
const RATES: [u64; 4] = [500, 1000, 2000, 5000];

/// The seconds for which a server is watched.
const WATCHED: f64 = 10.0 * HOUR;

/// Returns the memory of a server. Its load may be its own requests, that of other programs on the
/// GPU, or both.
fn server(kind: u64, seed: u64) -> Case {
    let (shape, noise) = match kind {
        0 => (Shape::Serving, false),
        1 => (Shape::Serving, true),
        2 => (Shape::VariableLengths, true),
        _ => (Shape::Flat, true),
    };
    let mut case = shape.make(seed);
    if noise {
        Life::ServerNoise.share(&mut case, &mut Random::seeded(seed ^ 0x7766));
    }
    case.end = case.end.min(WATCHED);
    case
}

/// Adds a leak of so many MiB an hour, which begins within the first fifth of the time.
pub(crate) fn add_leak(case: &mut Case, rate: u64, random: &mut Random) {
    let onset = random.uniform(0.0, 0.2) * case.end;
    let every = random.log_uniform(0.5, 20.0);
    let mut steps = Vec::new();
    let mut now = onset;
    while now < case.end {
        now += every * random.uniform(0.5, 1.5);
        steps.push((now, ((now - onset) / HOUR * rate as f64) as u64 * MIB));
    }
    case.onset = Some(onset);
    case.detectable_from = onset;
    case.add(&steps, false);
}

/// Prints, for each rate, the leaks that were found, the median delay in seconds, and the episodes;
/// and the false alarms in the same series without a leak.
pub(crate) fn run(first: u64, count: u64, interval: f64, list: bool) {
    let judge = |rate: Option<u64>, kind: u64, seed: u64| {
        let mut case = server(kind, seed);
        if let Some(rate) = rate {
            add_leak(&mut case, rate, &mut Random::seeded(seed ^ rate));
        }
        let samples = Sampling::every(interval).read(&case, &mut Random::seeded(seed ^ 0x77));
        let outcome = Outcome::measure(Judge::Gputop, &case, &samples, &[], interval);
        if list {
            println!("server {kind} {seed} {rate:?} {}", outcome.line(&case));
        }
        outcome
    };
    for rate in RATES.map(Some).into_iter().chain([None]) {
        let cases = (first..first + count).flat_map(|seed| (0..4).map(move |kind| (kind, seed)));
        let outcomes: Vec<Outcome> = cases.map(|(kind, seed)| judge(rate, kind, seed)).collect();
        let Some(rate) = rate else {
            let (alarms, days) = Outcome::false_alarms_in_days(&outcomes);
            println!("without a leak: {alarms} false alarms in {days:.1} days");
            continue;
        };
        let delays: Vec<f64> = outcomes
            .iter()
            .filter(|outcome| outcome.detected.is_some())
            .map(|outcome| outcome.delay * interval)
            .collect();
        let episodes: u32 = outcomes.iter().map(|outcome| outcome.episodes).sum();
        println!(
            "{rate} MiB/h: {} of {} found, median delay {:.0} s, {:.2} episodes each",
            delays.len(),
            outcomes.len(),
            quantile(&delays, 0.5),
            f64::from(episodes) / delays.len() as f64
        );
    }
}

/// The upper bound, with 95 % confidence, of the expected number of events of which so many were
/// seen.
pub(crate) fn poisson_bound(seen: usize) -> f64 {
    let at_most_seen = |expected: f64| {
        let mut term = (-expected).exp();
        let mut sum = term;
        for count in 1..=seen {
            term *= expected / count as f64;
            sum += term;
        }
        sum
    };
    let mut bound = 0.0;
    while at_most_seen(bound) > 0.05 {
        bound += 0.01;
    }
    bound
}
