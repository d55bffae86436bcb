//! Doubts about units, each with the option that settles it.

use super::columns::{CAPACITIES, unit_by_size, unit_name, unit_of_capacity};
use super::headline;
use super::judged::JudgedSeries;
use crate::base::units::Bytes;

/// A capacity below or above that of every GPU is the error of a unit.
///
/// Returns a sentence.
pub(super) fn error_of_capacity(series: &[JudgedSeries], unit: u64) -> Option<String> {
    /// More than any GPU has.
    const LARGEST: f64 = 2.0 * CAPACITIES.end;
    let of_gpu = |judged: &&JudgedSeries| is_of_gpu(judged);
    let small = series.iter().filter(of_gpu).find(|judged| {
        judged
            .series
            .total
            .is_some_and(|total| !(CAPACITIES.start..LARGEST).contains(&to_f64(total.0)))
    });
    if let Some(judged) = small {
        let total = judged.series.total.unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "an amount of memory")]
        let number = total.0 as f64 / unit as f64;
        let option = unit_of_capacity(number).map_or("--unit MiB".to_owned(), |unit| {
            format!("--unit {}", unit_name(unit))
        });
        return Some(format!(
            "{} would have {total}, which no GPU has: its unit is another one; give it with `{option}`",
            headline::name(judged)
        ));
    }
    let over = series.iter().filter(of_gpu).find(|judged| {
        judged
            .capacity
            .is_some_and(|capacity| highest(judged).0 > capacity.0.saturating_mul(2))
    })?;
    Some(format!(
        "{} would use {} of {}: the unit or the column is another one; give them with `--memory COLUMN --unit MiB`, or the \
         memory of the GPU with `--capacity`",
        headline::name(over),
        highest(over),
        over.capacity.unwrap_or_default()
    ))
}

/// The numbers of memory in a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct BareNumbers {
    /// Whether nothing in the log tells their unit.
    pub(super) has_no_unit: bool,
    /// The bytes of the unit that was taken.
    pub(super) unit: u64,
    pub(super) highest: f64,
}

/// Returns the doubts about a log that was judged.
pub(super) fn of(series: &[JudgedSeries], bare: &BareNumbers) -> Vec<String> {
    /// The highest amounts of all GPUs together that are surely no mistake of a unit.
    const LITTLE: u64 = 64 << 20;
    let of_gpus: Vec<&JudgedSeries> = series
        .iter()
        .filter(|judged| is_of_gpu(judged) || bare.has_no_unit && judged.series.pid.is_none())
        .collect();
    let Some(highest_of_gpu) = of_gpus.iter().map(|judged| highest(judged)).max() else {
        return Vec::new();
    };
    let has_capacity = of_gpus.iter().any(|judged| judged.capacity.is_some());
    let sum = Bytes(of_gpus.iter().map(|judged| highest(judged).0).sum());
    let (amount, words) = if bare.has_no_unit && !has_capacity && sum.0 < LITTLE {
        (sum, "little for a GPU")
    } else if !has_capacity && to_f64(highest_of_gpu.0) >= CAPACITIES.end {
        (highest_of_gpu, "more than a GPU has")
    } else {
        return over_capacity(&of_gpus);
    };
    let unit = unit_name(unit_by_size(bare.highest));
    vec![format!(
        "the unit of memory is not known: in {} it is {amount}, {words}; if it is {unit}, add `--unit {unit}`",
        unit_name(bare.unit)
    )]
}

/// Returns a doubt about bare times that would be far apart in seconds.
pub(super) fn of_times(series: &[JudgedSeries]) -> Option<String> {
    /// Seconds between two samples that no program waits.
    const LONG: f64 = 1000.0;
    /// Larger times are seconds since 1970.
    const DATES_MS: i64 = 1_000_000_000_000;
    let judged = series.iter().max_by_key(|judged| judged.samples)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of samples")]
    let interval = judged.span / judged.samples.saturating_sub(1).max(1) as f64;
    (interval >= LONG && judged.begin < DATES_MS).then(|| {
        format!(
            "the times have no unit, and in seconds the samples are {} apart; if they are 5 seconds apart, add `--interval 5`",
            judged.times.elapsed(interval)
        )
    })
}

fn over_capacity(of_gpus: &[&JudgedSeries]) -> Vec<String> {
    let over = of_gpus.iter().find(|judged| {
        judged
            .capacity
            .is_some_and(|capacity| highest(judged).0 / 100 * 95 > capacity.0)
    });
    let sentence = over.map(|judged| {
        format!(
            "{} uses up to {} of {}: check `--capacity`, `--memory` and `--unit`",
            headline::name(judged),
            highest(judged),
            judged.capacity.unwrap_or_default()
        )
    });
    sentence.into_iter().collect()
}

/// Whether a series is the memory of a GPU: processes and tensors may use little.
fn is_of_gpu(judged: &JudgedSeries) -> bool {
    judged.series.pid.is_none() && !judged.series.is_pytorch_only
}

fn highest(judged: &JudgedSeries) -> Bytes {
    Bytes(
        judged
            .points
            .iter()
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0),
    )
}

#[expect(clippy::cast_precision_loss, reason = "an amount of memory")]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}
