//! The table of what each flag saves: the runs that tell it, and its rows.

use serde_json::{Value, json};

use super::GpuKind;
use super::script::{EstimateRun, ScriptAnswer, ScriptAnswers, TrainingEstimate};
use super::variant::StepVariant;
use crate::base::text::Text;

/// A row of the table of what each flag saves.
#[derive(Debug)]
pub(super) struct SavingsRow<'a> {
    /// The flags of the row: none, one, or all that were given.
    pub(super) flags: Vec<String>,
    /// Absent if this run was not reached.
    pub(super) answer: Option<Result<&'a TrainingEstimate, &'a Text>>,
}

/// Returns the runs that tell what each flag saves. The first has all flags.
pub(super) fn runs(variant: &StepVariant) -> Vec<EstimateRun<'static>> {
    let run = |variant, is_brief| EstimateRun {
        parameters: Vec::new(),
        variant,
        is_brief,
    };
    let alone = variant.each_alone();
    let mut runs = vec![run(variant.clone(), false)];
    if !alone.is_empty() {
        runs.push(run(StepVariant::default(), true));
    }
    if alone.len() > 1 {
        runs.extend(alone.into_iter().map(|(_, variant)| run(variant, true)));
    }
    runs
}

/// Returns the rows of the table: without flags, with each flag, with all. Empty without flags, and
/// for a measurement.
pub(super) fn rows<'a>(variant: &StepVariant, answers: &'a ScriptAnswers) -> Vec<SavingsRow<'a>> {
    let flags: Vec<String> = variant
        .each_alone()
        .into_iter()
        .map(|(flag, _)| flag)
        .collect();
    if flags.is_empty() || answers.first.measured {
        return Vec::new();
    }
    let mut found: Vec<SavingsRow<'_>> = Vec::new();
    let mut others = answers.all.iter().skip(1);
    let mut next = |flags| SavingsRow {
        flags,
        answer: others.next().map(ScriptAnswer::result),
    };
    found.push(next(Vec::new()));
    if flags.len() > 1 {
        found.extend(flags.iter().map(|flag| next(vec![flag.clone()])));
    }
    found.push(SavingsRow {
        flags,
        answer: Some(Ok(&answers.first)),
    });
    found
}

impl SavingsRow<'_> {
    pub(super) fn to_json(&self, gpus: &[GpuKind]) -> Value {
        let mut found = answer_json(self.answer, gpus);
        found["flags"] = json!(self.flags);
        found
    }

    /// Returns the bytes that the row needs less than another one; negative if it needs more.
    pub(super) fn saved_from(&self, other: &Self) -> Option<i64> {
        let total = |row: &Self| match row.answer {
            Some(Ok(estimate)) => i64::try_from(estimate.total().0).ok(),
            _ => None,
        };
        Some(total(other)? - total(self)?)
    }
}

/// Returns the answer to one of several runs. Without an answer, all of it is null.
pub(super) fn answer_json(
    answer: Option<Result<&TrainingEstimate, &Text>>,
    gpus: &[GpuKind],
) -> Value {
    let estimate = answer.and_then(Result::ok);
    json!({
        "peak_bytes": estimate.map(|estimate| estimate.bytes.peak),
        "total_bytes": estimate.map(TrainingEstimate::total),
        "by_formula": estimate.map(|estimate| &estimate.by_formula),
        "fits": estimate.map(|estimate| estimate.fitting(gpus)),
        "error": answer.and_then(Result::err),
    })
}
