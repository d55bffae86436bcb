//! The lines of a link: what the agent writes, and what it is told.
//!
//! Each is one JSON object with a `kind`. Later programs may add fields and kinds; what is not known
//! here is passed over.

use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::change::Change;
use crate::protocol::command::Command;
use crate::protocol::reply::Reply;
use crate::protocol::snapshot::Snapshot;

/// A line from the agent to the viewer.
///
/// This is version 1 of the format, and it is frozen: later versions of gputop may add properties, kinds and words, and never
/// change or remove any. Readers ignore what they do not know. Times ending in `_ms` count milliseconds from the boot of the
/// host, sleep included; `unix_time_ms` counts from 1970 (UTC).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// All that was seen in a pass.
    Full(Box<Snapshot>),
    /// What changed since the line before.
    Tick(Change),
    /// What came of a command.
    Reply(Reply),
}

#[derive(Deserialize)]
struct Head<'a> {
    kind: &'a str,
}

/// The kind of a line. It stands first in what gputop writes; to find it elsewhere takes as long as to read it all.
fn kind(line: &[u8]) -> serde_json::Result<&str> {
    let first = line.strip_prefix(br#"{"kind":""#).and_then(|rest| rest.split(|byte| *byte == b'"').next());
    match first.and_then(|kind| str::from_utf8(kind).ok()) {
        Some(kind) => Ok(kind),
        None => Ok(serde_json::from_slice::<Head<'_>>(line)?.kind),
    }
}

impl Line {
    /// Reads a line. Absent for a kind that is not known here.
    ///
    /// # Errors
    ///
    /// When it is no JSON object, or not one of this schema.
    pub fn parse(line: &[u8]) -> serde_json::Result<Option<Self>> {
        // Deriving this would copy the whole line into a tree first: the kind could stand last.
        Ok(Some(match kind(line)? {
            "full" => Self::Full(serde_json::from_slice(line)?),
            "tick" => Self::Tick(serde_json::from_slice(line)?),
            "reply" => Self::Reply(serde_json::from_slice(line)?),
            _ => return Ok(None),
        }))
    }

    /// Writes the line and its end.
    ///
    /// # Errors
    ///
    /// When `out` does not take it.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write(self, out)
    }
}

impl Command {
    /// Reads a line that the viewer wrote.
    ///
    /// # Errors
    ///
    /// When it is no command of this schema.
    pub fn parse(line: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(line)
    }

    /// Writes the line and its end.
    ///
    /// # Errors
    ///
    /// When `out` does not take it.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write(self, out)
    }
}

/// To anything: once for each place that lines go to, this is a tenth of a MiB of code.
fn write(line: &impl Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// The JSON Schema of the agent's lines: what [`schema`] says, as a text, so that the program need not make it.
pub const SCHEMA: &str = include_str!("../../assets/schema.json");

/// The JSON Schema of the agent's lines, by their types.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Line)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schema_is_that_of_the_types() {
        let types = serde_json::to_string_pretty(&super::schema()).unwrap() + "\n";
        assert!(types == super::SCHEMA, "run: cargo run --example schema > assets/schema.json");
    }
}
