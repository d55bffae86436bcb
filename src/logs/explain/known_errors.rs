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
    toml::from_str(include_str!("../../../assets/known-errors.toml")).expect("the table is valid")
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
    #[serde(rename = "form")]
    pub forms: Vec<ErrorForm>,
    #[serde(deserialize_with = "texts")]
    pub advice: Vec<Words>,
    #[serde(default, deserialize_with = "texts")]
    pub follows: Vec<Words>,
    #[serde(default, deserialize_with = "texts")]
    pub absorbs: Vec<Words>,
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
    /// Whether the error begins in the middle of prose, as `Killed` at the end of a line does.
    #[serde(default, rename = "anywhere")]
    pub starts_anywhere: bool,
    pub below: Option<EarlierLine>,
    #[serde(deserialize_with = "text")]
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
