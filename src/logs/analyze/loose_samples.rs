//! Samples of lines of text and of JSON, whose axis is known at the end only: such a line may have
//! a time, a step, both or neither, and the amounts of several labels.

use std::collections::HashMap;

use super::column_names::MemoryRole;
use super::columns::{self, LogAxis};
use super::log_options::LogOptions;
use super::log_samples::{LogSamples, SampleNumbers};
use super::series::LogSeries;
use crate::base::text::Text;
use crate::base::units::Bytes;

/// The moment of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct LooseMoment {
    /// In milliseconds.
    pub(super) time: Option<i64>,
    /// The step in thousandths.
    pub(super) step: Option<i64>,
}

/// An amount that a line tells, and of what it is the memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LooseAmount {
    /// The label in the log: `MA`, `memory`. Empty where the GPU is enough.
    pub(super) label: String,
    pub(super) role: Option<MemoryRole>,
    pub(super) host: Option<String>,
    pub(super) gpu: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) process: Option<String>,
    pub(super) number: f64,
    /// The bytes of the unit behind the number; `None` for a bare number.
    pub(super) unit: Option<u64>,
    /// The bytes of the unit that the label tells, or the capacity beside it. The user may know
    /// better.
    pub(super) named_unit: Option<u64>,
    pub(super) total: Option<Bytes>,
}

#[derive(Debug)]
struct LooseSample {
    moment: LooseMoment,
    number: u32,
    line: u64,
    series: u32,
    amount: f64,
}

#[derive(Debug)]
struct LooseSeries {
    series: LogSeries,
    role: MemoryRole,
    key: String,
    /// The bytes of the unit, however it is known.
    unit: Option<u64>,
    /// The bytes of bare numbers.
    named_unit: Option<u64>,
    samples: u64,
}

#[derive(Debug, Default)]
pub(super) struct LooseSamples {
    samples: Vec<LooseSample>,
    series: Vec<LooseSeries>,
    by_key: HashMap<String, usize>,
    numbers: SampleNumbers,
    pub(super) step_word: &'static str,
    pub(super) has_dates: bool,
    /// The highest number without a unit.
    pub(super) highest_number: f64,
}

/// The axis of the samples, and notes on them.
#[derive(Debug, Default)]
pub(super) struct LooseSummary {
    pub(super) axis: LogAxis,
    pub(super) notes: Vec<String>,
    /// The labels whose numbers have no unit.
    pub(super) without_unit: Vec<String>,
}

impl LooseSamples {
    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn add(&mut self, line: u64, moment: LooseMoment, amount: &LooseAmount) {
        let role = amount.role.unwrap_or(MemoryRole::Plain);
        let key = format!(
            "{}\0{}\0{}\0{}",
            amount.label,
            amount.host.as_deref().unwrap_or(""),
            amount.gpu.as_deref().unwrap_or(""),
            amount.pid.unwrap_or(0)
        );
        let place = *self.by_key.entry(key).or_insert_with(|| {
            let is_index = amount
                .gpu
                .as_ref()
                .is_some_and(|gpu| gpu.bytes().all(|digit| digit.is_ascii_digit()));
            let label = Some(&amount.label).filter(|label| !label.is_empty());
            self.series.push(LooseSeries {
                series: LogSeries {
                    host: amount.host.as_deref().map(Text::new),
                    gpu: amount.gpu.as_deref().map(Text::new),
                    is_index,
                    pid: amount.pid,
                    names: amount
                        .process
                        .iter()
                        .map(|name| (0, Text::new(name)))
                        .collect(),
                    label: label.map(Text::new),
                    is_pytorch_only: matches!(role, MemoryRole::Allocated | MemoryRole::Reserved),
                    ..LogSeries::default()
                },
                role,
                key: amount.label.clone(),
                unit: amount.unit.or(amount.named_unit),
                named_unit: amount.named_unit,
                samples: 0,
            });
            self.series.len() - 1
        });
        let series = &mut self.series[place];
        series.series.total = amount.total.or(series.series.total);
        series.unit = series.unit.or(amount.unit).or(amount.named_unit);
        series.named_unit = series.named_unit.or(amount.named_unit);
        series.samples += 1;
        if amount.unit.is_none() {
            self.highest_number = self.highest_number.max(amount.number);
        }
        self.samples.push(LooseSample {
            moment,
            number: self.numbers.next(place),
            line,
            series: u32::try_from(place).unwrap_or(u32::MAX),
            amount: amount
                .unit
                .map_or(-amount.number, |unit| amount.number * to_f64(unit)),
        });
    }

    /// Returns the axis that tells most samples apart: times, else steps.
    fn axis(&self) -> LogAxis {
        let distinct = |of: &dyn Fn(&LooseSample) -> Option<i64>| {
            self.samples
                .iter()
                .filter_map(of)
                .collect::<std::collections::HashSet<_>>()
                .len()
        };
        let counts = self.series.iter().map(|series| series.samples);
        let samples = usize::try_from(counts.max().unwrap_or(0)).unwrap_or(usize::MAX);
        let times = distinct(&|sample| sample.moment.time);
        let steps = distinct(&|sample| sample.moment.step);
        let is_enough = |count: usize| count * 4 >= samples * 3 && count > 1;
        match () {
            () if is_enough(times) && times * 4 >= steps * 3 => LogAxis::Time,
            () if is_enough(steps) => LogAxis::Steps(self.step_word),
            () => LogAxis::None,
        }
    }

    /// Moves the samples of the labels that are judged. `default_unit` is that of bare numbers.
    pub(super) fn finish(
        self,
        options: &LogOptions,
        default_unit: u64,
        into: &mut LogSamples,
    ) -> LooseSummary {
        let axis = if options.interval.is_some() {
            LogAxis::None
        } else {
            self.axis()
        };
        let mut summary = LooseSummary {
            axis,
            ..LooseSummary::default()
        };
        let is_kept = self.kept(options, &mut summary.notes);
        let (mut places, mut units) = (Vec::new(), Vec::new());
        for (series, is_kept) in self.series.into_iter().zip(&is_kept) {
            units.push(options.unit.or(series.named_unit).unwrap_or(default_unit));
            if *is_kept {
                if series.unit.is_none()
                    && options.unit.is_none()
                    && !summary.without_unit.contains(&series.key)
                {
                    summary.without_unit.push(series.key);
                }
                into.series.push(series.series);
            }
            places.push(into.series.len().saturating_sub(1));
        }
        for sample in self.samples {
            let series = sample.series as usize;
            if !is_kept[series] {
                continue;
            }
            let place = match axis {
                LogAxis::Time => sample.moment.time,
                LogAxis::Steps(_) => sample.moment.step,
                LogAxis::None => Some(i64::from(sample.number) * 1000),
            };
            let Some(place) = place else { continue };
            // A negative amount has no unit.
            let bytes = if sample.amount < 0.0 {
                -sample.amount * to_f64(units[series])
            } else {
                sample.amount
            };
            let Some(bytes) = Bytes::parse_number(&format!("{bytes:.0}"), 1) else {
                continue;
            };
            into.add(place, sample.line, places[series], bytes, None);
        }
        // A document has one series after the other.
        for rows in into.rows.chunk_by_mut(|one, other| one.line == other.line) {
            rows.sort_by_key(|row| row.time);
        }
        summary
    }

    /// Returns which series are judged: those that the user named, or those of the best roles. A
    /// high-water mark counts only if there is nothing else.
    fn kept(&self, options: &LogOptions, notes: &mut Vec<String>) -> Vec<bool> {
        let is_wanted = |series: &LooseSeries| {
            options.memory.is_empty()
                || options
                    .memory
                    .iter()
                    .any(|name| LogOptions::is_name(name, &series.key))
        };
        let is_of_memory = |series: &LooseSeries| {
            !matches!(
                series.role,
                MemoryRole::Free | MemoryRole::Total | MemoryRole::Percent
            )
        };
        let most = self
            .series
            .iter()
            .filter(|series| is_of_memory(series))
            .map(|series| series.samples)
            .max();
        // A label of few lines is an accident: `loaded 14.5 GB`.
        let is_frequent = |series: &LooseSeries| series.samples * 20 >= most.unwrap_or(0);
        let has_others = self.series.iter().any(|series| {
            is_of_memory(series)
                && series.role != MemoryRole::Peak
                && is_frequent(series)
                && is_wanted(series)
        });
        let mut peaks: Vec<&str> = Vec::new();
        let is_kept = self.series.iter().map(|series| {
            let is_peak = series.role == MemoryRole::Peak;
            if is_peak && has_others && !peaks.contains(&series.key.as_str()) {
                peaks.push(&series.key);
            }
            is_wanted(series)
                && is_of_memory(series)
                && (is_frequent(series) || !options.memory.is_empty())
                && (!is_peak || !has_others || !options.memory.is_empty())
        });
        let is_kept = is_kept.collect();
        if !peaks.is_empty() {
            let names: Vec<String> = peaks.iter().map(|name| format!("`{name}`")).collect();
            notes.push(format!(
                "high-water marks never fall, so they are not judged: {}",
                names.join(", ")
            ));
        } else if !has_others && options.memory.is_empty() && !self.series.is_empty() {
            notes.push(
                "the log has high-water marks only: memory that is given back does not show"
                    .to_owned(),
            );
        }
        is_kept
    }
}

/// Returns the unit of bare numbers, and of the capacity beside them.
pub(super) fn units_of_numbers(
    used: Option<u64>,
    total: Option<(f64, Option<u64>)>,
) -> (Option<u64>, Option<Bytes>) {
    let Some((number, total_unit)) = total else {
        return (used, None);
    };
    let of_total = total_unit
        .or_else(|| columns::unit_of_capacity(number))
        .or(used);
    let total = of_total.and_then(|unit| Bytes::parse_number(&format!("{number}"), unit));
    (used.or(of_total), total)
}

#[expect(clippy::cast_precision_loss, reason = "units are powers of two or ten")]
fn to_f64(unit: u64) -> f64 {
    unit as f64
}
