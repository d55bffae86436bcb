//! Errors other than PyTorch's own message, by which GPU programs run out of memory: the table of
//! `assets/known-errors.toml`, which describes its columns.
//!
//! Each form has a literal text, which finds the few lines of a large log that may be an error, and
//! a pattern. A line of source code, or prose that mentions an error, does not match: see
//! [`error_finder`](super::error_finder).

use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

/// The table, which is parsed at its first use.
pub(super) static TABLE: LazyLock<KnownErrors> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "a test parses the table")]
    let mut table: KnownErrors =
        toml::from_str(include_str!("../../../assets/known-errors.toml")).expect("it is valid");
    for error in &mut table.errors {
        for form in error
            .forms
            .iter_mut()
            .filter(|form| form.sentence.is_empty())
        {
            form.sentence = error.sentence;
        }
    }
    table
});

/// A text of the table, which lasts as long as the program.
type Words = &'static str;

/// All known errors, lines that follow when one process of a job has failed, and words that state a
/// failure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownErrors {
    #[serde(rename = "error")]
    pub errors: Vec<KnownError>,
    pub aftermath: Vec<ErrorForm>,
    #[serde(rename = "statement")]
    pub statements: Vec<Statement>,
}

/// Words by which programs say that memory was missing.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    /// Texts of which each line with these words contains one.
    #[serde(deserialize_with = "texts")]
    pub literals: Vec<Words>,
    #[serde(deserialize_with = "text")]
    pub pattern: Words,
    /// A line that states a failure in these words.
    #[serde(deserialize_with = "text")]
    pub example: Words,
}

/// An error with a name of its own in JSON.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownError {
    #[serde(deserialize_with = "text")]
    pub cause: Words,
    #[serde(deserialize_with = "text")]
    pub title: Words,
    /// The sentence of each form that has none.
    #[serde(default, deserialize_with = "text")]
    sentence: Words,
    #[serde(rename = "form")]
    pub forms: Vec<ErrorForm>,
    #[serde(deserialize_with = "texts")]
    pub advice: Vec<Words>,
    #[serde(default, deserialize_with = "texts")]
    pub follows: Vec<Words>,
    #[serde(default, deserialize_with = "texts")]
    pub absorbs: Vec<Words>,
    /// Whether a log often names it after what it caused.
    #[serde(default)]
    pub named_late: bool,
    /// Whether nothing continues after this error: it ends a process, or tells that one has ended.
    #[serde(default)]
    pub ends: bool,
    /// Whether this is an out-of-memory error of a GPU without figures, which any program may have.
    #[serde(default)]
    pub full_gpu: bool,
}

/// One form in which an error is printed.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorForm {
    #[serde(deserialize_with = "text")]
    pub literal: Words,
    #[serde(deserialize_with = "text")]
    pub pattern: Words,
    /// Whether the form proves itself wherever in the line it stands; else it must stand where a
    /// message starts.
    #[serde(default, rename = "anywhere")]
    pub starts_anywhere: bool,
    pub below: Option<EarlierLine>,
    #[serde(default, deserialize_with = "text")]
    pub sentence: Words,
}

/// A line that some form needs above its own, because its own line does not tell enough.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierLine {
    #[serde(deserialize_with = "text")]
    pub literal: Words,
    #[serde(deserialize_with = "text")]
    pub pattern: Words,
    /// The most lines from this line to that of the form.
    pub within: u64,
}

/// Reads a text of the table, and keeps it for ever.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
    String::deserialize(deserializer).map(|text| &*text.leak())
}

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Words>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    Ok(texts.into_iter().map(|text| &*text.leak()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::on_error;

    #[test]
    fn each_form_says_what_happened_and_each_advice_and_cause_exists() {
        let causes: Vec<&str> = TABLE.errors.iter().map(|error| error.cause).collect();
        for error in &TABLE.errors {
            assert!(
                error.forms.iter().all(|form| !form.sentence.is_empty()),
                "{}",
                error.cause
            );
            assert_eq!(
                on_error(&error.advice).len(),
                error.advice.len(),
                "{}",
                error.cause
            );
            for other in error.follows.iter().chain(&error.absorbs) {
                let is_message = ["pytorch", "cuda_malloc_async"].contains(other);
                assert!(
                    is_message || causes.contains(other),
                    "{} names {other}",
                    error.cause
                );
            }
        }
        assert!(TABLE.aftermath.iter().all(|form| !form.sentence.is_empty()));
    }
}
