//! Scores the verdicts of a judge on a case, and sums them over many cases.

use std::collections::BTreeMap;
use std::time::Duration;

use gputop::base::units::{Bytes, Moment};
use gputop::model::{LeakDetector, LeakVerdict, PartedDetector};

use crate::baselines;
use crate::lab::sampling::Sample;
use crate::lab::{Case, Label, Shape};
use crate::life::Life;

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
    pub(crate) const ALL: [Self; 4] = [
        Self::Gputop,
        Self::Threshold,
        Self::Regression,
        Self::MannKendall,
    ];
}

/// The verdict of a judge at one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) verdict: LeakVerdict,
    /// The forecast time until memory runs out, in seconds: likely, low, high. `None` without a
    /// forecast.
    pub(crate) time_left: Option<[f64; 3]>,
}

impl Judgement {
    /// The verdict with the forecast of the detector that gave it.
    fn new(verdict: LeakVerdict, detector: &LeakDetector) -> Self {
        let forecast = detector.evidence().and_then(|evidence| evidence.forecast);
        let seconds = |time: Duration| time.as_secs_f64();
        Self {
            verdict,
            time_left: forecast
                .map(|forecast| [forecast.likely, forecast.low, forecast.high].map(seconds)),
        }
    }
}

/// The result of a judge on a case. Times are in seconds since the beginning of the series.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The times of false alarms.
    pub(crate) false_alarms: Vec<f64>,
    /// The time of the first alarm for a leak; `None` when it was not detected.
    pub(crate) detected: Option<f64>,
    /// The delay of the alarm in samples, from when the leak could be detected.
    pub(crate) delay: f64,
    /// The delay as a share of the time to the end.
    pub(crate) delay_share: f64,
    /// The relative error of the forecast at half of the time to the end, and whether its interval
    /// was right.
    pub(crate) half: Option<(f64, bool)>,
    /// The same at the first alarm.
    pub(crate) call: Option<(f64, bool)>,
    /// How often the verdict on a leak became "leak".
    pub(crate) episodes: u32,
    /// How often a forecast of less than an hour came while more than two hours were left.
    pub(crate) false_soon: u32,
    /// That error in half widths of the interval.
    pub(crate) widths: f64,
    /// The number of forecasts, one a minute, and of those whose interval was right.
    pub(crate) minutes: (u32, u32),
    /// The seconds for which a growth stayed suspect after it had ended.
    pub(crate) lingered: f64,
    /// The seconds for which the verdict on a leak was "leak".
    pub(crate) leak_verdict_s: f64,
    /// The seconds without a leak.
    pub(crate) healthy: f64,
    /// The number of verdict changes.
    changes: u32,
    /// The time of the last sample in hours.
    hours: f64,
}

/// Takes the judgements of a case one after the other into its outcome.
struct Scorer<'a> {
    case: &'a Case,
    outcome: Outcome,
    last_verdict: LeakVerdict,
    /// The time of the last judgement.
    before: f64,
    /// The time of the last forecast that was counted.
    minute: f64,
    was_soon: bool,
}

impl Scorer<'_> {
    fn record(&mut self, at: f64, judgement: Judgement) {
        let case = self.case;
        let onset = case.onset.unwrap_or(f64::INFINITY);
        let is_leak = judgement.verdict == LeakVerdict::Leak;
        let is_new = is_leak && self.last_verdict != LeakVerdict::Leak;
        let outcome = &mut self.outcome;
        if at < onset {
            if is_new {
                outcome.false_alarms.push(at);
            }
            outcome.healthy = at;
        } else if is_leak {
            outcome.detected.get_or_insert(at);
            outcome.episodes += u32::from(is_new);
            outcome.leak_verdict_s += at - self.before;
        }
        if let Some(plateau) = case.plateau
            && at > plateau
            && judgement.verdict >= LeakVerdict::Suspect
        {
            outcome.lingered = at - plateau;
        }
        outcome.changes += u32::from(judgement.verdict != self.last_verdict);
        outcome.hours = at / 3600.0;
        self.last_verdict = judgement.verdict;
        self.before = at;
        if let (Some(out_of_memory_at), true, Some(time_left)) = (
            case.out_of_memory_at,
            is_leak && at >= onset,
            judgement.time_left,
        ) {
            let half = f64::midpoint(onset.max(0.0), out_of_memory_at);
            self.record_forecast(at, out_of_memory_at - at, time_left, at >= half);
        }
    }

    /// `left` is the time that was left indeed.
    fn record_forecast(
        &mut self,
        at: f64,
        left: f64,
        [likely, low, high]: [f64; 3],
        is_past_half: bool,
    ) {
        let outcome = &mut self.outcome;
        let is_right = low <= left && left <= high;
        let error = (likely - left) / left;
        if outcome.call.is_none() && left > 0.0 {
            outcome.call = Some((error, is_right));
        }
        let is_soon = likely <= 3600.0 && left > 7200.0;
        outcome.false_soon += u32::from(is_soon && !self.was_soon);
        self.was_soon = is_soon;
        if is_past_half && outcome.half.is_none() {
            outcome.half = Some((error, is_right));
            outcome.widths = if left < likely {
                (left - likely) / (likely - low)
            } else {
                (left - likely) / (high - likely)
            };
        }
        if at - self.minute >= 60.0 && left > 0.0 {
            self.minute = at;
            outcome.minutes.0 += 1;
            outcome.minutes.1 += u32::from(is_right);
        }
    }
}

/// Calls `record` with the time and the verdict of the judge at each sample.
fn judge_samples(
    judge: Judge,
    case: &Case,
    samples: &[Sample],
    tensors: &[Sample],
    mut record: impl FnMut(f64, Judgement),
) {
    let limit = Some(Bytes(case.capacity));
    match judge {
        Judge::Gputop => {
            let mut growth = LeakDetector::default();
            for (at, bytes) in samples {
                growth.push(Moment(*at + 1_000_000), Bytes(*bytes), limit);
                record(
                    *at as f64 / 1000.0,
                    Judgement::new(growth.verdict(), &growth),
                );
            }
        }
        Judge::Parts => {
            let mut growth = PartedDetector::default();
            for ((at, bytes), (_, allocated)) in samples.iter().zip(tensors) {
                // Counts the context as a tensor.
                let parts = [Bytes(*bytes), Bytes((*allocated).min(*bytes))];
                growth.push(Moment(*at + 1_000_000), Bytes(*bytes), Some(parts), limit);
                let growing = growth.growth();
                record(
                    *at as f64 / 1000.0,
                    Judgement::new(growing.verdict(), growing.detector),
                );
            }
        }
        Judge::Threshold => baselines::threshold(case, samples, record),
        Judge::Regression => baselines::regression(case, samples, record),
        Judge::MannKendall => baselines::mann_kendall(case, samples, record),
    }
}

impl Outcome {
    /// Returns the false alarms of several cases, and the days without a leak that they saw.
    pub(crate) fn false_alarms_in_days(outcomes: &[Self]) -> (usize, f64) {
        let alarms = outcomes.iter().map(|outcome| outcome.false_alarms.len());
        let seconds = outcomes.iter().map(|outcome| outcome.healthy);
        (alarms.sum(), seconds.sum::<f64>() / 86_400.0)
    }

    /// `tensors` are read at the same times as `samples`.
    pub(crate) fn measure(
        judge: Judge,
        case: &Case,
        samples: &[Sample],
        tensors: &[Sample],
        interval: f64,
    ) -> Self {
        let mut scorer = Scorer {
            case,
            outcome: Self::default(),
            last_verdict: LeakVerdict::TooSoon,
            before: 0.0,
            minute: f64::NEG_INFINITY,
            was_soon: false,
        };
        judge_samples(judge, case, samples, tensors, |at, judgement| {
            scorer.record(at, judgement);
        });
        let mut outcome = scorer.outcome;
        if let Some(detected) = outcome.detected {
            outcome.delay = ((detected - case.detectable_from()) / interval).max(0.0);
            let onset = case.onset.unwrap_or(f64::INFINITY);
            outcome.delay_share = (detected - onset) / (case.end - onset);
        }
        outcome
    }

    pub(crate) fn line(&self, case: &Case) -> String {
        format!(
            "episodes {} onset {:.0?} end {:.0} plateau {:.0?} detected {:.0?} delay {:.0} share {:.2} half {:.2?} widths {:.2} minutes {:?} alarms {:.0?} lingered {:.0}",
            self.episodes,
            case.onset,
            case.end,
            case.plateau,
            self.detected,
            self.delay,
            self.delay_share,
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
    detected: u32,
    /// Cases with a false alarm: healthy ones, and those that only look like a leak.
    false_cases: [u32; 2],
    false_alarms: usize,
    days: f64,
    plain: u32,
    plain_detected: u32,
    delays: Vec<f64>,
    delay_shares: Vec<f64>,
    errors: Vec<f64>,
    biases: Vec<f64>,
    covered: u32,
    minutes: Vec<f64>,
    lingered: Vec<f64>,
    leak_verdict_shares: Vec<f64>,
    episodes: u32,
    false_soon: u32,
    call_errors: Vec<f64>,
    calls_covered: u32,
    changes: u32,
    hours: f64,
}

impl Tally {
    pub(crate) fn add(&mut self, case: &Case, outcome: &Outcome) {
        let label = case.shape.label();
        self.cases += 1;
        self.changes += outcome.changes;
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
        self.detected += u32::from(outcome.detected.is_some());
        if label == Label::Leak {
            self.plain += 1;
            self.plain_detected += u32::from(outcome.detected.is_some());
        }
        if outcome.detected.is_some() {
            self.delays.push(outcome.delay);
            self.delay_shares.push(outcome.delay_share);
            let after = case.end - outcome.detected.unwrap_or(case.end);
            self.leak_verdict_shares.push(if after > 0.0 {
                (outcome.leak_verdict_s / after).min(1.0)
            } else {
                1.0
            });
        }
        self.episodes += outcome.episodes;
        self.false_soon += outcome.false_soon;
        if let Some((error, covered)) = outcome.call {
            self.call_errors.push(error.abs());
            self.calls_covered += u32::from(covered);
        }
        if let Some((error, covered)) = outcome.half {
            self.errors.push(error.abs());
            self.biases.push(error);
            self.covered += u32::from(covered);
        }
        if outcome.minutes.0 > 0 {
            self.minutes
                .push(f64::from(outcome.minutes.1) / f64::from(outcome.minutes.0));
        }
    }
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() {
        f64::NAN
    } else {
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn print(shapes: &BTreeMap<Shape, Tally>, all: &Tally) {
    println!(
        "{:<16} {:>5} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "shape",
        "cases",
        "found",
        "false",
        "alarms",
        "days",
        "delay",
        "share",
        "s90",
        "error",
        "bias",
        "cover",
        "cov/m",
        "linger",
        "changes"
    );
    let line = |name: &str, tally: &Tally| {
        println!(
            "{name:<16} {:>5} {:>6} {:>6} {:>6} {:>7.1} {:>6.0} {:>6.3} {:>6.2} {:>6.3} {:>6.3} {:>6.2} {:>6.2} {:>6.0} {:>6.1}",
            tally.cases,
            tally.detected,
            tally.false_cases[0] + tally.false_cases[1],
            tally.false_alarms,
            tally.days,
            median(&tally.delays),
            median(&tally.delay_shares),
            quantile(&tally.delay_shares, 0.9),
            median(&tally.errors),
            median(&tally.biases),
            f64::from(tally.covered) / tally.errors.len() as f64,
            mean(&tally.minutes),
            quantile(&tally.lingered, 0.9),
            f64::from(tally.changes) / tally.hours,
        );
    };
    for (shape, tally) in shapes {
        line(&format!("{shape:?}"), tally);
    }
    line("all", all);
    let mut plain = Tally::default();
    for tally in shapes
        .iter()
        .filter(|(shape, _)| shape.label() == Label::Leak)
        .map(|(_, tally)| tally)
    {
        plain.delays.extend(&tally.delays);
        plain.delay_shares.extend(&tally.delay_shares);
        plain.errors.extend(&tally.errors);
        plain.covered += tally.covered;
        plain.minutes.extend(&tally.minutes);
    }
    let share = |a: u32, b: u32| f64::from(a) / f64::from(b);
    println!(
        "plain leaks: precision {:.3} (with growth that is at most suspect {:.3}), recall {:.3}, {:.3} false alarms per process-day over {:.0} days,\n  delay {:.0} samples and {:.1} % of the time to the end, forecast error {:.1} % at half life, coverage {:.2} (of all forecasts {:.2})",
        share(all.plain_detected, all.plain_detected + all.false_cases[0]),
        share(
            all.plain_detected,
            all.plain_detected + all.false_cases[0] + all.false_cases[1]
        ),
        share(all.plain_detected, all.plain),
        all.false_alarms as f64 / all.days,
        all.days,
        median(&plain.delays),
        100.0 * median(&plain.delay_shares),
        100.0 * median(&plain.errors),
        f64::from(plain.covered) / plain.errors.len() as f64,
        mean(&plain.minutes),
    );
}

/// Prints a line for each shape and life: cases; leaks that were found; episodes for each found
/// leak; the mean share of the time after the first alarm with the verdict "leak"; the median delay
/// in samples; the median error of the forecast, and the share of intervals that were right, at the
/// alarm and at half life; forecasts of less than an hour while more than two hours were left;
/// cases with a false alarm, false alarms, and days without a leak.
pub(crate) fn print_lives(cells: &BTreeMap<(Shape, Life), Tally>) {
    println!(
        "{:<16} {:<17} {:>5} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>5} {:>5} {:>6} {:>6}",
        "shape",
        "life",
        "cases",
        "found",
        "epis",
        "share",
        "delay",
        "err/c",
        "cov/c",
        "err/h",
        "cov/h",
        "soon",
        "false",
        "alarms",
        "days"
    );
    let line = |shape: &str, life: &str, tally: &Tally| {
        println!(
            "{shape:<16} {life:<17} {:>5} {:>5} {:>6.2} {:>6.3} {:>6.0} {:>6.2} {:>6.2} {:>6.2} {:>6.2} {:>5} {:>5} {:>6} {:>6.1}",
            tally.cases,
            tally.detected,
            f64::from(tally.episodes) / f64::from(tally.detected),
            mean(&tally.leak_verdict_shares),
            median(&tally.delays),
            median(&tally.call_errors),
            f64::from(tally.calls_covered) / tally.call_errors.len() as f64,
            median(&tally.errors),
            f64::from(tally.covered) / tally.errors.len() as f64,
            tally.false_soon,
            tally.false_cases[0] + tally.false_cases[1],
            tally.false_alarms,
            tally.days,
        );
    };
    for ((shape, life), tally) in cells {
        line(&format!("{shape:?}"), &format!("{life:?}"), tally);
    }
    for life in Life::ALL {
        for label in [
            Label::Healthy,
            Label::AtMostSuspect,
            Label::Leak,
            Label::HardLeak,
        ] {
            let mut sum = Tally::default();
            for (_, tally) in cells
                .iter()
                .filter(|((shape, of), _)| *of == life && shape.label() == label)
            {
                sum.join(tally);
            }
            line(&format!("= {label:?}"), &format!("{life:?}"), &sum);
        }
    }
}

impl Tally {
    fn join(&mut self, other: &Self) {
        self.cases += other.cases;
        self.detected += other.detected;
        self.episodes += other.episodes;
        self.false_soon += other.false_soon;
        self.calls_covered += other.calls_covered;
        self.covered += other.covered;
        self.false_alarms += other.false_alarms;
        self.days += other.days;
        for label in 0..2 {
            self.false_cases[label] += other.false_cases[label];
        }
        self.leak_verdict_shares.extend(&other.leak_verdict_shares);
        self.delays.extend(&other.delays);
        self.call_errors.extend(&other.call_errors);
        self.errors.extend(&other.errors);
    }
}
