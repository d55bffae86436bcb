//! Reading and writing lines: one JSON object each.
//!
//! Programs of later versions may add properties and kinds. Readers ignore those that they do not
//! know.

use std::io;

use schemars::{JsonSchema, Schema};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::change::Change;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::command::Command;
use crate::protocol::host_tag::HostTag;
use crate::protocol::judged::Judged;
use crate::protocol::reply::Reply;
use crate::protocol::snapshot::Snapshot;

/// A line from the agent to the viewer, or of a recording.
///
/// This is version 1 of the format, and it is frozen: later versions of gputop may add properties,
/// kinds and values of enumerations, and never change or remove any. Readers ignore what they do
/// not know. `time_ms` and `start_time_ms` count milliseconds from the boot of the host, sleep
/// included; `unix_time_ms` counts them from 1970 (UTC). `interval_ms` is a duration.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(transform = add_fields_of_outputs)]
pub enum Line {
    /// Everything that the agent saw in a pass.
    Full(Box<Snapshot>),
    /// The changes since the previous snapshot.
    Tick(Box<Change>),
    /// The result of a command, or what became of a process after it.
    Reply(Reply),
    /// The state that was derived from the lines before: in recordings, and from a recorder.
    Checkpoint(Box<Checkpoint>),
}

/// Adds the tag of the host to the schema of each kind of line, and what is judged to that of full
/// lines.
fn add_fields_of_outputs(schema: &mut Schema) {
    let mut fields = [
        schemars::schema_for!(HostTag),
        schemars::schema_for!(Judged),
    ];
    for name in ["$schema", "$defs", "title"] {
        for field in &mut fields {
            field.remove(name);
        }
    }
    let [tag, judged] = fields;
    for kind in schema
        .get_mut("oneOf")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        kind["properties"]["source"] = tag.as_value().clone();
        if kind["properties"]["kind"]["const"] == "full" {
            kind["properties"]["judged"] = judged.as_value().clone();
        }
    }
}

/// The part of a line that contains its kind.
#[derive(Deserialize)]
struct LineKind<'a> {
    kind: &'a str,
}

/// Returns the kind of a line. gputop writes the kind first; finding it elsewhere takes as long as
/// parsing the line.
fn kind(line: &str) -> serde_json::Result<&str> {
    let first = line
        .strip_prefix(r#"{"kind":""#)
        .and_then(|rest| rest.split('"').next());
    match first {
        Some(kind) => Ok(kind),
        None => Ok(serde_json::from_str::<LineKind<'_>>(line)?.kind),
    }
}

impl Line {
    /// Parses a line. Returns `None` for a kind that this version does not know, and an error for a
    /// line that is no JSON object of this schema.
    pub fn parse(line: &[u8]) -> serde_json::Result<Option<Self>> {
        // One check of the whole line is faster than a check of each string in it.
        let line = str::from_utf8(line).map_err(serde_json::Error::custom)?;
        // The derived implementation would first copy the line into a tree, since the kind could
        // come last.
        Ok(Some(match kind(line)? {
            "full" => Self::Full(serde_json::from_str(line)?),
            "tick" => Self::Tick(Box::new(serde_json::from_str(line)?)),
            "reply" => Self::Reply(serde_json::from_str(line)?),
            "checkpoint" => Self::Checkpoint(Box::new(serde_json::from_str(line)?)),
            _ => return Ok(None),
        }))
    }

    /// Writes the line and a line feed.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write(self, out)
    }
}

impl Command {
    /// Parses a line that the viewer wrote.
    pub fn parse(line: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(line)
    }

    /// Writes the line and a line feed.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        write(self, out)
    }
}

/// Writes to a trait object: a copy of this code for each type of writer would add a tenth of a MiB
/// to the program.
fn write(line: &impl Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// The JSON Schema of the agent's lines as text. The program contains this text, not the code that
/// makes it.
pub const SCHEMA: &str = include_str!("../../assets/schema.json");

/// Makes the JSON Schema of the agent's lines from their types.
pub fn schema() -> Schema {
    schemars::schema_for!(Line)
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn the_state_of_a_checkpoint_is_kept_as_it_is_written() {
        let line = "{\"kind\":\"checkpoint\",\"version\":7,\"time_ms\":1,\"unix_time_ms\":2,\"state\":{\"a\": [1.0,  2]}}\n";
        let parsed = Line::parse(line.as_bytes()).unwrap().unwrap();
        assert!(matches!(&parsed, Line::Checkpoint(checkpoint) if checkpoint.version == 7));
        let mut written = Vec::new();
        parsed.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), line);
    }

    #[test]
    fn the_checked_in_schema_matches_the_types() {
        let types = serde_json::to_string_pretty(&super::schema()).unwrap() + "\n";
        assert!(
            types == super::SCHEMA,
            "run: cargo run --example schema > assets/schema.json"
        );
    }
}
