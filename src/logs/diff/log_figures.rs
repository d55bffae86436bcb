//! The figures of two logs that are no recordings, side by side.

use std::time::Duration;

use super::comparison::{ComparedMetric, ComparedSubject, Metric, RunComparison};
use crate::logs::analyze::{LogSummary, SeriesSummary};
use crate::logs::recorded_run::{ObservedGrowth, rate_error};

/// Compares two logs. Series match by name; the only series of two logs match, too.
pub(super) fn compare(a: &LogSummary, b: &LogSummary) -> RunComparison {
    let mut right: Vec<&SeriesSummary> = b.series.iter().collect();
    let mut left = Vec::new();
    let (mut gpus, mut processes) = (Vec::new(), Vec::new());
    let mut add = |one: &SeriesSummary, other: &SeriesSummary| {
        let subject = compare_series(one, other);
        if one.pid.is_some() {
            processes.push(subject);
        } else {
            gpus.push(subject);
        }
    };
    for one in &a.series {
        let place = right.iter().position(|other| other.name == one.name);
        match place.map(|place| right.remove(place)) {
            Some(other) => add(one, other),
            None => left.push(one),
        }
    }
    if let ([one], [other]) = (left.as_slice(), right.as_slice()) {
        add(one, other);
        (left, right) = (Vec::new(), Vec::new());
    }
    let processes_of =
        |series: &[&SeriesSummary]| series.iter().filter(|one| one.pid.is_some()).count();
    RunComparison {
        marks: Vec::new(),
        unmatched: [processes_of(&left), processes_of(&right)],
        gpus,
        processes,
    }
}

fn compare_series(one: &SeriesSummary, other: &SeriesSummary) -> ComparedSubject {
    let is_same_axis = one.step == other.step;
    let growth = if one.step.is_some() {
        Metric::GrowthBytesPerStep
    } else {
        Metric::GrowthBytesPerHour
    };
    let metrics = [Metric::PeakBytes, Metric::FloorBytes, growth].map(|metric| {
        let value = |series: &SeriesSummary| match metric {
            Metric::PeakBytes => (
                series
                    .points
                    .iter()
                    .map(|(_, bytes)| *bytes)
                    .reduce(f64::max),
                None,
            ),
            Metric::FloorBytes => (floor(series), None),
            _ if is_same_axis => {
                growth_of(series).map_or((None, None), |(rate, error)| (Some(rate), error))
            }
            _ => (None, None),
        };
        let ((a, a_error), (b, b_error)) = (value(one), value(other));
        ComparedMetric {
            metric,
            a,
            b,
            errors: [a_error, b_error],
        }
    });
    ComparedSubject {
        name: if one.name == other.name {
            one.name.clone()
        } else {
            format!("{} / {}", one.name, other.name)
        },
        pids: [one.pid, other.pid],
        metrics: metrics.into(),
    }
}

/// Returns the lowest amount in the second half of the time.
fn floor(series: &SeriesSummary) -> Option<f64> {
    let half = series.points.get(series.points.len() / 2..)?;
    half.iter().map(|(_, bytes)| *bytes).reduce(f64::min)
}

/// Returns the growth of the floor behind the first quarter of the time, per hour or per step, with
/// its standard error. `None` where it was measured for less than a minute, or by too few samples.
fn growth_of(series: &SeriesSummary) -> Option<(f64, Option<f64>)> {
    const PARTS: usize = 8;
    const HOUR: f64 = 3600.0;
    let behind = series.points.get(series.points.len() / 4..)?;
    let floors: Vec<(f64, f64)> = behind
        .chunks(behind.len().div_ceil(PARTS).max(1))
        .filter_map(|part| {
            part.iter()
                .copied()
                .min_by(|one, other| one.1.total_cmp(&other.1))
        })
        .collect();
    let (first, last) = (floors.first()?, floors.last()?);
    let (elapsed, gain) = (last.0 - first.0, last.1 - first.1);
    let error = rate_error(&floors);
    if series.step.is_some() {
        return (elapsed > 0.0).then(|| (gain / elapsed, error));
    }
    let elapsed = Duration::try_from_secs_f64(elapsed).ok()?;
    let growth = ObservedGrowth::new(gain, elapsed)?;
    Some((growth.per_hour(), error.map(|error| error * HOUR)))
}
