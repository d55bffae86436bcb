//! Limits on the lines of a remote agent. A line is checked before it is parsed, so that a short
//! hostile line cannot become a large allocation.

use serde::Deserialize;

use crate::base::text::Text;
use crate::protocol::change::MOST_PROCESSES;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Snapshot;

/// The length in bytes of the longest line that is accepted. A line with 1,000 processes has one
/// MiB.
pub(super) const LONGEST_LINE: usize = 64 << 20;

/// The length in bytes of the longest checkpoint. A week of 8 GPUs and 64 processes takes less than
/// 8 MiB.
const LONGEST_CHECKPOINT: usize = 32 << 20;

/// Lines up to this length in bytes are parsed unchecked: an object takes two bytes at least and
/// becomes a KiB at most, so the result stays below 32 MiB.
const UNCHECKED_LENGTH: usize = 64 << 10;

/// The largest number of objects in a line. A process is about five objects.
const MOST_OBJECTS: usize = 500_000;

/// The largest number of values in a line. A process is about 60 values.
const MOST_VALUES: usize = 4_000_000;

/// The deepest nesting of objects and arrays. A snapshot has eight levels.
const DEEPEST_NESTING: usize = 64;

/// The largest number of GPUs and GPU instances of one host. The largest host that NVIDIA sells has
/// 72.
const MOST_GPUS: usize = 1024;

/// Checks the shape of a raw line, which may be no JSON at all. Returns an error when parsing it
/// could take much more memory than the line.
pub(super) fn check_raw(line: &[u8]) -> Result<(), String> {
    if line.len() <= UNCHECKED_LENGTH {
        return Ok(());
    }
    let (mut objects, mut values, mut depth) = (0_usize, 1_usize, 0_usize);
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' | b'[' => {
                objects += usize::from(*byte == b'{');
                depth += 1;
                if depth > DEEPEST_NESTING {
                    return Err(format!(
                        "its line nests deeper than {DEEPEST_NESTING} levels"
                    ));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    if objects > MOST_OBJECTS || values > MOST_VALUES {
        return Err(format!(
            "its line has {objects} objects and {values} values, more than any host needs"
        ));
    }
    Ok(())
}

/// Advances to the byte after the end of a JSON string.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
}

/// Parses a line within all limits. Returns `None` for a line of an unknown kind.
///
/// # Errors
///
/// When the line is no line of an agent, has another version of the format or exceeds a limit: one
/// sentence that shows the beginning of a line that is no JSON.
pub(crate) fn parse(line: &[u8]) -> Result<Option<Line>, String> {
    check_raw(line)?;
    let parsed = Line::parse(line).map_err(|error| {
        // Another version may also have other fields.
        let other = serde_json::from_slice(line)
            .ok()
            .and_then(|Version { schema }| other_version(schema));
        match other {
            Some(sentence) => sentence,
            None => {
                let beginning = Text::new(&line[..line.len().min(SHOWN_LENGTH)]);
                format!("its line is not understood: {error}: {beginning}")
            }
        }
    })?;
    if let Some(Line::Full(snapshot)) = &parsed
        && let Some(sentence) = other_version(snapshot.schema)
    {
        return Err(sentence);
    }
    let (gpus, processes) = match &parsed {
        Some(Line::Full(snapshot)) => (snapshot.gpus.len(), snapshot.processes.len()),
        Some(Line::Tick(change)) => (change.gpus.len(), change.processes.len()),
        Some(Line::Checkpoint(_)) if line.len() > LONGEST_CHECKPOINT => {
            return Err(format!(
                "its checkpoint is longer than {} MiB",
                LONGEST_CHECKPOINT >> 20
            ));
        }
        Some(Line::Reply(_) | Line::Checkpoint(_)) | None => (0, 0),
    };
    for (count, noun, limit) in [
        (gpus, "GPUs", MOST_GPUS),
        (processes, "processes", MOST_PROCESSES),
    ] {
        if count > limit {
            return Err(format!("its line has {count} {noun}; the limit is {limit}"));
        }
    }
    Ok(parsed)
}

/// The part of a line that says its version.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// Returns a sentence if this gputop does not read this version of the format. Both versions fit
/// into a line of 80 columns.
fn other_version(schema: u32) -> Option<String> {
    let read = Snapshot::SCHEMA;
    (schema != read).then(|| {
        format!(
            "it writes version {schema}, this gputop reads version {read}: install the same version of gputop on both hosts"
        )
    })
}

/// How many bytes of a line that is not understood are shown: about one line of a terminal.
const SHOWN_LENGTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    #[track_caller]
    fn check_refused(line: &str, reason: &str) {
        let refused = parse(line.as_bytes()).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }

    /// Returns a line with one unknown field, which the parser skips.
    fn line_with(field: &str) -> String {
        format!(r#"{{"kind":"full","unknown":{field}}}"#)
    }

    #[test]
    fn a_line_of_many_small_values_is_refused_before_it_is_parsed() {
        check_refused(
            &line_with(&format!("[{}{{}}]", "{},".repeat(MOST_OBJECTS))),
            "500002 objects",
        );
        check_refused(
            &line_with(&format!("[{}0]", "0,".repeat(MOST_VALUES))),
            "values, more than any host needs",
        );
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let nested =
            |depth: usize| line_with(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        // The parser skips an unknown field without recursion.
        check_refused(&nested(10_000), "missing field");
        check_refused(&nested(1_000_000), "its line nests deeper than 64 levels");
    }

    #[test]
    fn brackets_in_strings_are_text() {
        let argument = format!(
            "\"{}\\\"{}\"",
            "{".repeat(UNCHECKED_LENGTH),
            "[,".repeat(UNCHECKED_LENGTH)
        );
        assert_eq!(check_raw(line_with(&argument).as_bytes()), Ok(()));
    }

    #[test]
    fn a_snapshot_with_too_many_gpus_is_refused() {
        let mut line = Vec::new();
        Line::Full(Box::new(example::host(1025)))
            .write(&mut line)
            .unwrap();
        assert_eq!(
            parse(&line),
            Err("its line has 1025 GPUs; the limit is 1024".to_owned())
        );
    }

    #[test]
    fn a_checkpoint_that_is_too_long_is_refused() {
        let line = |length: usize| {
            let state = " ".repeat(length);
            format!(
                r#"{{"kind":"checkpoint","version":1,"time_ms":1,"unix_time_ms":1,"state":[{state}]}}"#
            )
        };
        assert!(matches!(
            parse(line(LONGEST_CHECKPOINT / 2).as_bytes()),
            Ok(Some(Line::Checkpoint(_)))
        ));
        check_refused(
            &line(LONGEST_CHECKPOINT),
            "its checkpoint is longer than 32 MiB",
        );
    }

    #[test]
    fn another_version_of_the_format_is_refused_whatever_its_fields_are() {
        let reason = "it writes version 2, this gputop reads version 1: install the same version";
        check_refused(r#"{"kind":"full","schema":2,"hosts":[]}"#, reason);
        let mut snapshot = example::host(1);
        snapshot.schema = 2;
        let mut line = Vec::new();
        Line::Full(Box::new(snapshot)).write(&mut line).unwrap();
        check_refused(str::from_utf8(&line).unwrap(), reason);
    }

    #[test]
    fn a_line_that_is_no_json_is_shown() {
        check_refused(
            "Welcome to gpu-02!",
            "its line is not understood: expected value at line 1 column 1: Welcome to gpu-02!",
        );
        let long = parse("x".repeat(1000).as_bytes()).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }
}
