//! Three baseline judges: a threshold, a linear regression, and the Mann-Kendall test.

use std::collections::VecDeque;

use gputop::model::LeakVerdict;

use crate::lab::Case;
use crate::lab::sampling::Sample;
use crate::score::Judgement;

/// The seconds of samples that the baselines use.
const WINDOW: f64 = 600.0;
/// The seconds between two verdicts, each on a new mean.
const MEAN_SPAN: f64 = 10.0;
/// A leak that takes more seconds than this is not reported.
const LONGEST_FORECAST: f64 = 86_400.0;

/// Reports a leak when more than nine tenths are in use.
pub(crate) fn threshold(case: &Case, samples: &[Sample], mut record: impl FnMut(f64, Judgement)) {
    for (at, bytes) in samples {
        let verdict = if *bytes > case.capacity / 10 * 9 {
            LeakVerdict::Leak
        } else {
            LeakVerdict::Steady
        };
        record(
            *at as f64 / 1000.0,
            Judgement {
                verdict,
                time_left: None,
            },
        );
    }
}

/// Fits a line to the last ten minutes. Returns its slope if the line explains most of the
/// variance.
pub(crate) fn regression(case: &Case, samples: &[Sample], record: impl FnMut(f64, Judgement)) {
    judge_windows(case, samples, record, |points| {
        let count = points.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
        let (xx, xy, yy) = (
            mean(&|point| (point.0 - x).powi(2)),
            mean(&|point| (point.0 - x) * (point.1 - y)),
            mean(&|point| (point.1 - y).powi(2)),
        );
        let explained = if yy > 0.0 { xy * xy / (xx * yy) } else { 0.0 };
        (explained > 0.8).then_some(xy / xx)
    });
}

/// The Mann-Kendall test at a level of 0.1 %. Returns Sen's slope if later values are larger.
pub(crate) fn mann_kendall(case: &Case, samples: &[Sample], record: impl FnMut(f64, Judgement)) {
    judge_windows(case, samples, record, |points| {
        let count = points.len() as f64;
        let (mut sign, mut slopes) = (0.0, Vec::new());
        for (at, a) in points.iter().enumerate() {
            for b in points.iter().skip(at + 1) {
                sign += (b.1 - a.1)
                    .partial_cmp(&0.0)
                    .map_or(0.0, |options| f64::from(options as i8));
                slopes.push((b.1 - a.1) / (b.0 - a.0));
            }
        }
        let score = sign / (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
        slopes.sort_by(f64::total_cmp);
        (score > 3.09).then(|| slopes[slopes.len() / 2])
    });
}

/// Judges means of ten seconds over ten minutes. `slope` returns bytes per second where it detects
/// growth.
fn judge_windows(
    case: &Case,
    samples: &[Sample],
    mut record: impl FnMut(f64, Judgement),
    slope: impl Fn(&VecDeque<(f64, f64)>) -> Option<f64>,
) {
    let mut points: VecDeque<(f64, f64)> = VecDeque::new();
    let (mut sum, mut count, mut due) = (0.0, 0.0, MEAN_SPAN);
    let mut judgement = Judgement {
        verdict: LeakVerdict::TooSoon,
        time_left: None,
    };
    for (at, bytes) in samples {
        let now = *at as f64 / 1000.0;
        sum += *bytes as f64;
        count += 1.0;
        if now >= due {
            due = now + MEAN_SPAN;
            points.push_back((now, sum / count));
            (sum, count) = (0.0, 0.0);
            while points.front().is_some_and(|point| now - point.0 > WINDOW) {
                points.pop_front();
            }
            let room = case.capacity.saturating_sub(*bytes) as f64;
            let slope = if points.len() >= 20 {
                slope(&points)
            } else {
                None
            };
            let left = slope
                .filter(|slope| *slope > 0.0)
                .map(|slope| room / slope)
                .filter(|seconds| *seconds < LONGEST_FORECAST);
            judgement = Judgement {
                verdict: if left.is_some() {
                    LeakVerdict::Leak
                } else {
                    LeakVerdict::Steady
                },
                time_left: left.map(|seconds| [seconds, seconds * 0.8, seconds * 1.2]),
            };
        }
        record(now, judgement);
    }
}
