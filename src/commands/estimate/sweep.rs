//! `--sweep`: estimates with many values of the function's parameters, as a grid.

use std::str::FromStr;

use serde_json::{Value, json};

use super::GpuKind;
use super::savings::answer_json;
use super::script::{EstimateRun, ScriptAnswers, TrainingEstimate};
use super::variant::StepVariant;
use crate::base::text::Text;

/// The parameters to sweep. The first one has the rows of the grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sweep {
    pub(super) rows: SweptParameter,
    /// Absent if one parameter is swept.
    pub(super) columns: Option<SweptParameter>,
}

/// A parameter of the function, and its values in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SweptParameter {
    pub(super) name: String,
    pub(super) values: Vec<u64>,
}

/// The answer for a cell of the grid. Absent if its run was not reached.
pub(super) type CellAnswer<'a> = Option<Result<&'a TrainingEstimate, &'a Text>>;

/// The parameter whose values are rows, and which a function without it gets from its inputs.
const BATCH: &str = "batch";

const LARGEST: u64 = 1 << 30;

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut found = text
            .split(',')
            .map(SweptParameter::from_str)
            .collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|parameter| parameter.name != BATCH);
        let mut found = found.into_iter();
        let (rows, columns) = (found.next(), found.next());
        match (rows, columns, found.next()) {
            (Some(rows), columns, None)
                if columns
                    .as_ref()
                    .is_none_or(|columns| columns.name != rows.name) =>
            {
                Ok(Self { rows, columns })
            }
            (.., None) => Err("names a parameter twice".to_owned()),
            _ => Err("names more than two parameters: a table has rows and columns".to_owned()),
        }
    }
}

impl FromStr for SweptParameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no range of a parameter: write it as in `batch=1..64,length=512..4096`"
            )
        };
        let (name, range) = text.split_once('=').ok_or_else(wrong)?;
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_alphabetic() || first == '_')
                && name
                    .chars()
                    .all(|letter| letter.is_alphanumeric() || letter == '_')
        };
        let (first, last) = range.split_once("..").unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
            return Err(wrong());
        };
        if !is_name(name) {
            return Err(wrong());
        }
        if first > last {
            return Err(format!("{range} goes down: write {name}={last}..{first}"));
        }
        if first == 0 || last > LARGEST {
            return Err(format!("{name} must be from 1 to {LARGEST}"));
        }
        Ok(Self {
            name: name.to_owned(),
            values: powers_of_two(first, last),
        })
    }
}

/// Returns the powers of two from one number to another, and these two.
fn powers_of_two(first: u64, last: u64) -> Vec<u64> {
    let mut found = vec![first];
    let powers = (0..u64::BITS).map(|power| 1_u64 << power);
    found.extend(powers.filter(|power| (first + 1..last).contains(power)));
    if last > first {
        found.push(last);
    }
    found
}

impl Sweep {
    /// The values of the columns; `None` where there are none.
    pub(super) fn column_values(&self) -> Vec<Option<u64>> {
        match &self.columns {
            Some(columns) => columns.values.iter().copied().map(Some).collect(),
            None => vec![None],
        }
    }

    /// Returns the values of the parameters in each cell, row by row.
    fn cells(&self) -> Vec<Vec<(&str, u64)>> {
        let mut found = Vec::new();
        for row in &self.rows.values {
            for column in self.column_values() {
                let mut cell = vec![(self.rows.name.as_str(), *row)];
                if let (Some(columns), Some(value)) = (&self.columns, column) {
                    cell.push((columns.name.as_str(), value));
                }
                found.push(cell);
            }
        }
        found
    }

    /// Returns a run for each cell.
    pub(super) fn runs(&self, variant: &StepVariant) -> Vec<EstimateRun<'_>> {
        self.cells()
            .into_iter()
            .map(|parameters| EstimateRun {
                parameters,
                variant: variant.clone(),
                is_brief: true,
            })
            .collect()
    }

    /// Returns the answer for each cell, row by row.
    pub(super) fn answers<'a>(&self, answers: &'a ScriptAnswers) -> Vec<CellAnswer<'a>> {
        let mut found: Vec<_> = answers
            .all
            .iter()
            .map(|answer| Some(answer.result()))
            .collect();
        found.resize(self.cells().len(), None);
        found
    }

    pub(super) fn to_json(&self, answers: &ScriptAnswers, gpus: &[GpuKind]) -> Value {
        let cells: Vec<Value> = self
            .cells()
            .iter()
            .zip(self.answers(answers))
            .map(|(parameters, answer)| {
                let mut cell = answer_json(answer, gpus);
                for (name, value) in parameters {
                    cell["parameters"][name] = (*value).into();
                }
                cell
            })
            .collect();
        let names: Vec<&str> = std::iter::once(&self.rows)
            .chain(&self.columns)
            .map(|parameter| parameter.name.as_str())
            .collect();
        json!({ "names": names, "cells": cells, "why_missing": answers.why_missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<u64> {
        text.parse::<SweptParameter>().unwrap().values
    }

    #[test]
    fn a_range_has_the_powers_of_two_and_its_ends() {
        assert_eq!(values("batch=1..64"), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(values("batch=3..20"), [3, 4, 8, 16, 20]);
        assert_eq!(values("batch=24"), [24]);
        assert_eq!(values("batch=5..7"), [5, 7]);
    }

    #[test]
    fn the_batch_has_the_rows() {
        let sweep: Sweep = "length=512..1024,batch=1..2".parse().unwrap();
        assert_eq!(
            sweep.cells(),
            [
                [("batch", 1), ("length", 512)],
                [("batch", 1), ("length", 1024)],
                [("batch", 2), ("length", 512)],
                [("batch", 2), ("length", 1024)]
            ]
        );
    }

    #[test]
    fn nonsense_gets_a_sentence() {
        for (text, words) in [
            ("length=5..3", "5..3 goes down: write length=3..5"),
            ("batch=0..4", "batch must be from 1 to"),
            ("batch=1..99999999999", "batch must be from 1 to"),
            (
                "batch",
                "`batch` is no range of a parameter: write it as in",
            ),
            ("batch=1..x", "`batch=1..x` is no range"),
            ("ba tch=1..2", "`ba tch=1..2` is no range"),
            ("batch=1..4,batch=2", "names a parameter twice"),
            ("a=1,b=2,c=3", "names more than two parameters"),
            ("", "`` is no range"),
        ] {
            let error = text.parse::<Sweep>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
