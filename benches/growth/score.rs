//! Scores the verdicts of a judge on a case, and sums them over many cases.

use std::collections::BTreeMap;

use gputop::base::units::{Bytes, Moment};
use gputop::model::{LeakDetector, LeakVerdict, PartedDetector};

use crate::baselines;
use crate::lab::sampling::Sample;
use crate::lab::{Case, Label, Shape};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Judge {
    Gputop,
    /// gputop with allocator stats.
    Parts,
    Threshold,
    Regression,
    MannKendall,
}

impl Judge {
    pub(crate) const ALL: [Self; 4] = [Self::Gputop, Self::Threshold, Self::Regression, Self::MannKendall];
}

/// A verdict at one sample, and the forecast time to the end in seconds: likely, low, high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Said {
    pub(crate) outlook: LeakVerdict,
    pub(crate) end: Option<[f64; 3]>,
}

/// The result of a judge on a case. Times are in seconds since the beginning of the series.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The times of false alarms.
    pub(crate) false_alarms: Vec<f64>,
    /// The time of the first alarm for a leak.
    pub(crate) called: Option<f64>,
    /// The delay of the alarm in samples, from when the leak could be detected.
    pub(crate) delay: f64,
    /// The delay as a share of the time to the end.
    pub(crate) way: f64,
    /// The relative error of the forecast at half of the time to the end, and whether its interval was right.
    pub(crate) half: Option<(f64, bool)>,
    /// That error in half widths of the interval.
    pub(crate) widths: f64,
    /// The number of forecasts, one a minute, and of those whose interval was right.
    pub(crate) minutes: (u32, u32),
    /// The seconds for which a growth stayed suspect after it had ended.
    pub(crate) lingered: f64,
    /// The seconds for which a leak was called one.
    pub(crate) stood: f64,
    /// The seconds without a leak.
    pub(crate) healthy: f64,
    pub(crate) suspected: bool,
    /// The number of verdict changes.
    turns: u32,
    /// The time of the last sample in hours.
    hours: f64,
}

impl Outcome {
    /// `tensors` are read at the same times as `samples`.
    pub(crate) fn of(judge: Judge, case: &Case, samples: &[Sample], tensors: &[Sample], interval: f64) -> Self {
        let mut outcome = Self::default();
        let onset = case.onset.unwrap_or(f64::INFINITY);
        let half = case.died.map(|died| f64::midpoint(onset.max(0.0), died));
        let mut was = LeakVerdict::TooSoon;
        let (mut minute, mut before) = (f64::NEG_INFINITY, 0.0);
        let mut told = |at: f64, said: Said| {
            let is_leak = said.outlook == LeakVerdict::Leak;
            outcome.suspected |= said.outlook == LeakVerdict::Suspect;
            if at < onset {
                if is_leak && was != LeakVerdict::Leak {
                    outcome.false_alarms.push(at);
                }
                outcome.healthy = at;
            } else {
                if is_leak && outcome.called.is_none() {
                    outcome.called = Some(at);
                }
                if is_leak {
                    outcome.stood += at - before;
                }
            }
            if let Some(plateau) = case.plateau
                && at > plateau
                && said.outlook >= LeakVerdict::Suspect
            {
                outcome.lingered = at - plateau;
            }
            if let (Some(died), true, Some([likely, low, high])) = (case.died, is_leak && at >= onset, said.end) {
                let left = died - at;
                if half.is_some_and(|half| at >= half) && outcome.half.is_none() {
                    outcome.half = Some(((likely - left) / left, low <= left && left <= high));
                    outcome.widths = if left < likely {
                        (left - likely) / (likely - low)
                    } else {
                        (left - likely) / (high - likely)
                    };
                }
                if at - minute >= 60.0 && left > 0.0 {
                    minute = at;
                    outcome.minutes.0 += 1;
                    outcome.minutes.1 += u32::from(low <= left && left <= high);
                }
            }
            outcome.turns += u32::from(said.outlook != was);
            outcome.hours = at / 3600.0;
            was = said.outlook;
            before = at;
        };
        match judge {
            Judge::Gputop => {
                let mut growth = LeakDetector::default();
                let limit = Some(Bytes(case.capacity));
                for (at, bytes) in samples {
                    growth.push(Moment(*at + 1_000_000), Bytes(*bytes), limit);
                    let forecast = growth.evidence().and_then(|evidence| evidence.forecast);
                    let end = forecast.map(|forecast| {
                        [forecast.likely, forecast.low, forecast.high].map(|forecast| forecast.as_secs_f64())
                    });
                    told(*at as f64 / 1000.0, Said { outlook: growth.verdict(), end });
                }
            }
            Judge::Parts => {
                let mut growth = PartedDetector::default();
                let limit = Some(Bytes(case.capacity));
                for ((at, bytes), (_, allocated)) in samples.iter().zip(tensors) {
                    // Counts the context as a tensor.
                    let parts = [Bytes(*bytes), Bytes((*allocated).min(*bytes))];
                    growth.push(Moment(*at + 1_000_000), Bytes(*bytes), Some(parts), limit);
                    let growing = growth.growth();
                    let forecast = growing.detector.evidence().and_then(|evidence| evidence.forecast);
                    let end = forecast.map(|forecast| {
                        [forecast.likely, forecast.low, forecast.high].map(|forecast| forecast.as_secs_f64())
                    });
                    told(*at as f64 / 1000.0, Said { outlook: growing.verdict(), end });
                }
            }
            Judge::Threshold => baselines::threshold(case, samples, told),
            Judge::Regression => baselines::regression(case, samples, told),
            Judge::MannKendall => baselines::mann_kendall(case, samples, told),
        }
        if let Some(called) = outcome.called {
            outcome.delay = ((called - case.tellable()) / interval).max(0.0);
            outcome.way = (called - onset) / (case.end - onset);
        }
        outcome
    }

    pub(crate) fn line(&self, case: &Case) -> String {
        format!(
            "onset {:.0?} end {:.0} plateau {:.0?} called {:.0?} delay {:.0} way {:.2} half {:.2?} widths {:.2} minutes {:?} alarms {:.0?} lingered {:.0}",
            case.onset,
            case.end,
            case.plateau,
            self.called,
            self.delay,
            self.way,
            self.half,
            self.widths,
            self.minutes,
            self.false_alarms,
            self.lingered
        )
    }
}

/// The sum of many results.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    cases: u32,
    called: u32,
    /// Cases with a false alarm: healthy ones, and those that only look like a leak.
    false_cases: [u32; 2],
    false_alarms: usize,
    days: f64,
    plain: u32,
    plain_called: u32,
    delays: Vec<f64>,
    ways: Vec<f64>,
    errors: Vec<f64>,
    biases: Vec<f64>,
    covered: u32,
    minutes: Vec<f64>,
    lingered: Vec<f64>,
    stood: Vec<f64>,
    turns: u32,
    hours: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, case: &Case, outcome: &Outcome) {
        let label = case.shape.label();
        self.cases += 1;
        self.turns += outcome.turns;
        self.hours += outcome.hours;
        let suspects = usize::from(label == Label::AtMostSuspect);
        self.false_cases[suspects] += u32::from(!outcome.false_alarms.is_empty());
        if label != Label::AtMostSuspect {
            self.days += outcome.healthy / 86_400.0;
            self.false_alarms += outcome.false_alarms.len();
        }
        if case.plateau.is_some() {
            self.lingered.push(outcome.lingered);
        }
        if case.onset.is_none() {
            return;
        }
        self.called += u32::from(outcome.called.is_some());
        if label == Label::Leak {
            self.plain += 1;
            self.plain_called += u32::from(outcome.called.is_some());
        }
        if outcome.called.is_some() {
            self.delays.push(outcome.delay);
            self.ways.push(outcome.way);
            self.stood.push(outcome.stood / (case.end - case.onset.unwrap_or(0.0)));
        }
        if let Some((error, covered)) = outcome.half {
            self.errors.push(error.abs());
            self.biases.push(error);
            self.covered += u32::from(covered);
        }
        if outcome.minutes.0 > 0 {
            self.minutes.push(f64::from(outcome.minutes.1) / f64::from(outcome.minutes.0));
        }
    }
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() { f64::NAN } else { sorted[((sorted.len() - 1) as f64 * share).round() as usize] }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn print(shapes: &BTreeMap<Shape, Tally>, all: &Tally) {
    println!(
        "{:<16} {:>5} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "shape",
        "cases",
        "called",
        "false",
        "alarms",
        "days",
        "delay",
        "way",
        "w90",
        "error",
        "bias",
        "cover",
        "cov/m",
        "linger",
        "turns"
    );
    let line = |name: &str, tally: &Tally| {
        println!(
            "{name:<16} {:>5} {:>6} {:>6} {:>6} {:>7.1} {:>6.0} {:>6.3} {:>6.2} {:>6.3} {:>6.3} {:>6.2} {:>6.2} {:>6.0} {:>6.1}",
            tally.cases,
            tally.called,
            tally.false_cases[0] + tally.false_cases[1],
            tally.false_alarms,
            tally.days,
            median(&tally.delays),
            median(&tally.ways),
            quantile(&tally.ways, 0.9),
            median(&tally.errors),
            median(&tally.biases),
            f64::from(tally.covered) / tally.errors.len() as f64,
            mean(&tally.minutes),
            quantile(&tally.lingered, 0.9),
            f64::from(tally.turns) / tally.hours,
        );
    };
    for (shape, tally) in shapes {
        line(&format!("{shape:?}"), tally);
    }
    line("all", all);
    let mut plain = Tally::default();
    for tally in shapes.iter().filter(|(shape, _)| shape.label() == Label::Leak).map(|(_, tally)| tally) {
        plain.delays.extend(&tally.delays);
        plain.ways.extend(&tally.ways);
        plain.errors.extend(&tally.errors);
        plain.covered += tally.covered;
        plain.minutes.extend(&tally.minutes);
    }
    let share = |a: u32, b: u32| f64::from(a) / f64::from(b);
    println!(
        "plain leaks: precision {:.3} (with what is at most suspect {:.3}), recall {:.3}, {:.3} false alarms a process-day over {:.0} days,\n  delay {:.0} samples and {:.1} % of the way, forecast error {:.1} % at half life, coverage {:.2} (of all forecasts {:.2})",
        share(all.plain_called, all.plain_called + all.false_cases[0]),
        share(all.plain_called, all.plain_called + all.false_cases[0] + all.false_cases[1]),
        share(all.plain_called, all.plain),
        all.false_alarms as f64 / all.days,
        all.days,
        median(&plain.delays),
        100.0 * median(&plain.ways),
        100.0 * median(&plain.errors),
        f64::from(plain.covered) / plain.errors.len() as f64,
        mean(&plain.minutes),
    );
}
