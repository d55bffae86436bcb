//! The figures of two recordings side by side, for each GPU and process that both have.

use std::time::Duration;

use crate::base::units::Bytes;
use crate::logs::recorded_run::{
    GpuRun, HostRun, Mean, ObservedGrowth, ProcessKey, ProcessRun, RecordedRun,
};
use crate::protocol::snapshot::MarkPair;

/// A figure that two recordings are compared by. The names never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Metric {
    PeakBytes,
    PeakTensorBytes,
    FloorBytes,
    GrowthBytesPerHour,
    GrowthBytesPerStep,
    StepSeconds,
    MeanUtilizationPercent,
    MeanPowerWatts,
    OutOfMemoryErrors,
    BytesBetweenMarks,
}

/// A figure of both recordings; `None` where it is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ComparedMetric {
    pub(crate) metric: Metric,
    pub(crate) a: Option<f64>,
    pub(crate) b: Option<f64>,
    /// The standard errors of both values; `None` where they are exact or not known.
    pub(crate) errors: [Option<f64>; 2],
}

/// A GPU or process with its figures in both recordings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ComparedSubject {
    /// `GPU 0`, or the command line.
    pub(crate) name: String,
    /// The PIDs in both recordings; `None` for a GPU.
    pub(crate) pids: [Option<u32>; 2],
    pub(crate) metrics: Vec<ComparedMetric>,
}

/// Two recordings, compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunComparison {
    pub(crate) gpus: Vec<ComparedSubject>,
    pub(crate) processes: Vec<ComparedSubject>,
    /// Pairs of marks that the same process of both recordings set.
    pub(crate) marks: Vec<ComparedSubject>,
    /// The number of processes that only the first recording has, and only the second.
    pub(crate) unmatched: [usize; 2],
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// The words in a table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::PeakBytes => "peak",
            Self::PeakTensorBytes => "peak of tensors",
            Self::FloorBytes => "floor",
            Self::GrowthBytesPerHour | Self::GrowthBytesPerStep => "growth",
            Self::StepSeconds => "step",
            Self::MeanUtilizationPercent => "mean use",
            Self::MeanPowerWatts => "mean power",
            Self::OutOfMemoryErrors => "out of memory",
            Self::BytesBetweenMarks => "change of tensors",
        }
    }

    /// Returns a value with its unit; `-` if it is not known.
    pub(crate) fn format(self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return "-".to_owned();
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an amount of memory"
        )]
        let amount = Bytes(value.abs() as u64);
        match self {
            Self::PeakBytes | Self::PeakTensorBytes | Self::FloorBytes => amount.to_string(),
            Self::GrowthBytesPerHour => growth_words(value),
            Self::BytesBetweenMarks => format!("{}{amount}", sign(value)),
            Self::GrowthBytesPerStep => {
                let amount = amount.to_string().replace(".0 ", " ");
                format!("{}{amount}/step", sign(value))
            }
            Self::StepSeconds if value < 1.0 => format!("{:.0} ms", value * 1000.0),
            Self::StepSeconds => format!("{value:.2} s"),
            Self::MeanUtilizationPercent => format!("{value:.0}%"),
            Self::MeanPowerWatts => format!("{value:.0}W"),
            Self::OutOfMemoryErrors => format!("{value:.0}"),
        }
    }
}

/// Returns a growth in bytes per hour as words. It was measured for a minute at least, so that they
/// tell it per minute.
fn growth_words(bytes_per_hour: f64) -> String {
    ObservedGrowth::new(bytes_per_hour / 60.0, Duration::from_mins(1))
        .map_or_else(|| "-".to_owned(), |growth| growth.to_string())
}

fn sign(value: f64) -> char {
    if value < 0.0 { '-' } else { '+' }
}

impl ComparedMetric {
    /// The change from the first recording to the second; `None` if one value is not known.
    pub(crate) fn change(&self) -> Option<f64> {
        Some(self.b? - self.a?)
    }

    /// The change in percent; `None` where the first value is 0 or not known, for a growth, which
    /// may have either sign, and for a value that is a percentage itself.
    pub(crate) fn change_percent(&self) -> Option<f64> {
        let has_share = !matches!(
            self.metric,
            Metric::GrowthBytesPerHour
                | Metric::GrowthBytesPerStep
                | Metric::BytesBetweenMarks
                | Metric::MeanUtilizationPercent
        );
        let from = self.a.filter(|from| *from > 0.0 && has_share)?;
        Some(self.change()? / from * 100.0)
    }

    /// Whether both values look the same to a person.
    pub(crate) fn is_same(&self) -> bool {
        self.change().is_some() && self.metric.format(self.a) == self.metric.format(self.b)
    }

    /// Whether the change is less than two of its standard errors.
    pub(crate) fn is_within_noise(&self) -> bool {
        let [Some(a), Some(b)] = self.errors else {
            return false;
        };
        self.change()
            .is_some_and(|change| change.abs() <= 2.0 * libm::hypot(a, b))
    }

    /// Returns both values in words, with their errors: `+114 MiB/min ± 3 MiB`.
    pub(crate) fn values_in_words(&self) -> [String; 2] {
        /// Bytes per hour or per step.
        const LEAST_ERROR: f64 = 1_048_576.0;
        let words = |value: Option<f64>, error: Option<f64>| {
            let text = self.metric.format(value);
            let per_unit = match self.metric {
                Metric::GrowthBytesPerHour if text.ends_with("/min") => 60.0,
                Metric::GrowthBytesPerHour | Metric::GrowthBytesPerStep => 1.0,
                _ => return text,
            };
            // A smaller error does not show in three digits.
            let least = (value.unwrap_or(0.0).abs() / 100.0).max(LEAST_ERROR);
            let Some(error) = error.filter(|error| value.is_some() && *error >= least) else {
                return text;
            };
            let error = Metric::PeakBytes.format(Some(error / per_unit));
            format!("{text} ± {}", error.replace(".0 ", " "))
        };
        [words(self.a, self.errors[0]), words(self.b, self.errors[1])]
    }

    /// Returns `-21.0 GiB (-34 %)`; `same` for a change that is not visible.
    pub(crate) fn change_in_words(&self) -> String {
        let Some(change) = self.change() else {
            return "-".to_owned();
        };
        if self.is_same() {
            return "same".to_owned();
        }
        if self.is_within_noise() {
            return "within noise".to_owned();
        }
        let amount = match self.metric {
            Metric::MeanUtilizationPercent => format!("{:.0} points", change.abs()),
            metric => metric.format(Some(change.abs())),
        };
        let amount = amount.trim_start_matches('+');
        let percent = self.change_percent().filter(|percent| percent.abs() >= 0.5);
        let percent = percent.map_or_else(String::new, |percent| format!(" ({percent:+.0} %)"));
        format!("{}{amount}{percent}", sign(change))
    }
}

impl ComparedSubject {
    /// Returns the figures that a person reads: those that one recording has, and errors only if
    /// there are any.
    pub(crate) fn shown_metrics(&self) -> impl Iterator<Item = &ComparedMetric> {
        let is_error = |value: Option<f64>| value.is_some_and(|errors| errors > 0.0);
        self.metrics
            .iter()
            .filter(move |metric| match metric.metric {
                Metric::OutOfMemoryErrors => is_error(metric.a) || is_error(metric.b),
                _ => metric.a.is_some() || metric.b.is_some(),
            })
    }
}

impl RunComparison {
    /// Compares two recordings. GPUs match by index. Processes match if they are the same process,
    /// else by command line, else by the name of their program.
    pub(crate) fn compare(a: &RecordedRun, b: &RecordedRun) -> Self {
        let hosts = a.hosts.iter().zip(&b.hosts);
        let gpus = hosts
            .clone()
            .flat_map(|(a, b)| compare_gpus(a, b))
            .collect();
        let (mut matched, mut unmatched) = (Vec::new(), [0, 0]);
        for (a, b) in hosts {
            let (mut left, mut right) = (a.largest_processes(), b.largest_processes());
            left.retain(|one| {
                let place = right.iter().position(|other| is_same_process(*one, *other));
                let other = place.map(|place| right.remove(place));
                matched.extend(other.map(|other| (*one, other)));
                other.is_none()
            });
            for by in [
                |process: &ProcessRun| process.command.clone(),
                |process: &ProcessRun| Some(process.name()),
            ] {
                left.retain(|one| {
                    let key = by(one.1);
                    let place = right
                        .iter()
                        .position(|other| key.is_some() && by(other.1) == key);
                    let other = place.map(|place| right.remove(place));
                    matched.extend(other.map(|other| (*one, other)));
                    other.is_none()
                });
            }
            unmatched[0] += left.len();
            unmatched[1] += right.len();
        }
        let pairs = matched.iter();
        Self {
            gpus,
            processes: pairs
                .clone()
                .map(|(one, other)| compare_processes(*one, *other))
                .collect(),
            marks: pairs
                .flat_map(|(one, other)| compare_marks(*one, *other))
                .collect(),
            unmatched,
        }
    }

    /// Returns one sentence about the largest process, else the first GPU: the answer to whether a
    /// change helped.
    pub(crate) fn headline(&self) -> Option<String> {
        let subject = self.processes.first().or(self.gpus.first())?;
        let is_told = |metric: &&ComparedMetric| {
            metric.change().is_some() && metric.metric != Metric::PeakTensorBytes
        };
        let told = subject.shown_metrics().filter(is_told).map(|metric| {
            let [a, b] = [metric.a, metric.b].map(|value| metric.metric.format(value));
            let words = metric.metric.words();
            match metric.change_in_words().as_str() {
                "same" => format!("{words} {a} as before"),
                "within noise" => format!("{words} {a} → {b} (within noise)"),
                _ => match metric.change_percent() {
                    Some(percent) if percent.abs() >= 0.5 => {
                        format!("{words} {a} → {b} ({percent:+.0} %)")
                    }
                    _ => format!("{words} {a} → {b}"),
                },
            }
        });
        Some(format!(
            "{}: {}",
            subject.name,
            told.collect::<Vec<_>>().join(", ")
        ))
    }
}

/// Whether two recordings, or parts of one, show the same process. Start ticks of two boots are
/// hardly ever equal.
fn is_same_process(one: (ProcessKey, &ProcessRun), other: (ProcessKey, &ProcessRun)) -> bool {
    one.0.id == other.0.id && one.0.id.start_ticks.is_some() && one.1.gpus == other.1.gpus
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn in_bytes(amount: Option<(u64, Bytes)>) -> Option<f64> {
    amount.map(|(_, bytes)| bytes.0 as f64)
}

/// `growth_errors` are the standard errors of the growth.
fn compare(
    metrics: &[Metric],
    growth_errors: [Option<f64>; 2],
    values: impl Fn(Metric) -> [Option<f64>; 2],
) -> Vec<ComparedMetric> {
    let compared = metrics.iter().map(|metric| {
        let [a, b] = values(*metric);
        ComparedMetric {
            metric: *metric,
            a,
            b,
            errors: if *metric == Metric::GrowthBytesPerHour {
                growth_errors
            } else {
                [None, None]
            },
        }
    });
    compared.collect()
}

fn compare_gpus(a: &HostRun, b: &HostRun) -> Vec<ComparedSubject> {
    let value = |gpu: &GpuRun, metric: Metric| match metric {
        Metric::PeakBytes => in_bytes(gpu.memory.peak),
        Metric::FloorBytes => gpu.curve.floor().map(|kib| f64::from(kib) * 1024.0),
        Metric::GrowthBytesPerHour => gpu.curve.growth().map(ObservedGrowth::per_hour),
        Metric::MeanUtilizationPercent => gpu.sm.all.as_ref().map(Mean::mean),
        Metric::MeanPowerWatts => gpu.power.all.as_ref().map(Mean::mean),
        Metric::GrowthBytesPerStep
        | Metric::PeakTensorBytes
        | Metric::StepSeconds
        | Metric::OutOfMemoryErrors
        | Metric::BytesBetweenMarks => None,
    };
    let metrics = [
        Metric::PeakBytes,
        Metric::FloorBytes,
        Metric::GrowthBytesPerHour,
        Metric::MeanUtilizationPercent,
        Metric::MeanPowerWatts,
    ];
    let pairs = a
        .gpus
        .iter()
        .filter_map(|one| Some((one, b.gpus.iter().find(|other| other.label == one.label)?)));
    pairs
        .map(|(one, other)| ComparedSubject {
            name: format!("GPU {}", one.label),
            pids: [None, None],
            metrics: compare(
                &metrics,
                [one.curve.growth_error(), other.curve.growth_error()],
                |metric| [value(one, metric), value(other, metric)],
            ),
        })
        .collect()
}

fn compare_processes(
    one: (ProcessKey, &ProcessRun),
    other: (ProcessKey, &ProcessRun),
) -> ComparedSubject {
    let value = |process: &ProcessRun, metric: Metric| match metric {
        Metric::PeakBytes => in_bytes(process.memory.peak),
        Metric::PeakTensorBytes => in_bytes(process.tensors.peak),
        Metric::FloorBytes => process.curve.floor().map(|kib| f64::from(kib) * 1024.0),
        Metric::GrowthBytesPerHour => process.curve.growth().map(ObservedGrowth::per_hour),
        Metric::StepSeconds => process.steps.and_then(|steps| steps.seconds()),
        Metric::MeanUtilizationPercent => process.mean_sm(),
        Metric::MeanPowerWatts | Metric::GrowthBytesPerStep | Metric::BytesBetweenMarks => None,
        #[expect(clippy::cast_precision_loss, reason = "few errors")]
        Metric::OutOfMemoryErrors => process.ooms.map(|ooms| ooms as f64),
    };
    let metrics = [
        Metric::PeakBytes,
        Metric::PeakTensorBytes,
        Metric::FloorBytes,
        Metric::GrowthBytesPerHour,
        Metric::StepSeconds,
        Metric::MeanUtilizationPercent,
        Metric::OutOfMemoryErrors,
    ];
    ComparedSubject {
        name: other.1.command.clone().unwrap_or_else(|| other.1.name()),
        pids: [Some(one.0.id.pid), Some(other.0.id.pid)],
        metrics: compare(
            &metrics,
            [one.1.curve.growth_error(), other.1.curve.growth_error()],
            |metric| [value(one.1, metric), value(other.1, metric)],
        ),
    }
}

/// Compares how much each pair of marks changed the memory of tensors, in the mean of all times.
fn compare_marks(
    one: (ProcessKey, &ProcessRun),
    other: (ProcessKey, &ProcessRun),
) -> Vec<ComparedSubject> {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mean = |pair: &MarkPair| {
        let total = pair
            .total_bytes_change()
            .unwrap_or_else(|| pair.bytes_change());
        Some(total as f64 / pair.times.unwrap_or(1).max(1) as f64)
    };
    let subject = |pair: &MarkPair| {
        let is_same = |known: &&MarkPair| {
            known.since.name == pair.since.name && known.until.name == pair.until.name
        };
        let matching = other.1.mark_pairs.iter().find(is_same)?;
        Some(ComparedSubject {
            name: format!(
                "{}: {} → {}",
                other.1.name(),
                pair.since.name,
                pair.until.name
            ),
            pids: [Some(one.0.id.pid), Some(other.0.id.pid)],
            metrics: compare(&[Metric::BytesBetweenMarks], [None, None], |_| {
                [mean(pair), mean(matching)]
            }),
        })
    };
    one.1.mark_pairs.iter().filter_map(subject).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_sign_unit_and_share() {
        let words = |metric, a: f64, b: f64| {
            ComparedMetric {
                metric,
                a: Some(a),
                b: Some(b),
                errors: [None, None],
            }
            .change_in_words()
        };
        let gib = f64::from(1 << 30);
        assert_eq!(
            words(Metric::PeakBytes, 60.0 * gib, 45.0 * gib),
            "-15.0 GiB (-25 %)"
        );
        assert_eq!(
            words(Metric::GrowthBytesPerHour, gib, -gib),
            "-34.1 MiB/min"
        );
        assert_eq!(words(Metric::GrowthBytesPerHour, 100.0, -100.0), "same");
        let growth = |error: f64| ComparedMetric {
            metric: Metric::GrowthBytesPerHour,
            a: Some(gib),
            b: Some(2.0 * gib),
            errors: [Some(error), Some(error)],
        };
        assert_eq!(growth(gib).change_in_words(), "within noise");
        assert_eq!(growth(gib / 10.0).change_in_words(), "+17.1 MiB/min");
        assert_eq!(
            growth(gib / 10.0).values_in_words()[0],
            "+17.1 MiB/min ± 1.7 MiB"
        );
        assert_eq!(words(Metric::StepSeconds, 0.200, 0.250), "+50 ms (+25 %)");
        assert_eq!(words(Metric::MeanUtilizationPercent, 80.2, 80.3), "same");
        assert_eq!(
            words(Metric::MeanUtilizationPercent, 80.0, 90.0),
            "+10 points"
        );
        assert_eq!(
            ComparedMetric {
                metric: Metric::StepSeconds,
                a: None,
                b: Some(1.0),
                errors: [None, None],
            }
            .change_in_words(),
            "-"
        );
    }
}
