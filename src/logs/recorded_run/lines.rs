//! Reads the lines of a recording, each with the host that it comes from.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::base::text::Text;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::{RecordingReader, parse_line};

/// The most hosts of a recording. Lines of more are left out.
const MOST_HOSTS: usize = 1024;

/// A line of a recording that was understood.
#[derive(Debug)]
pub(crate) struct RecordedLine {
    pub(crate) host: HostKey,
    /// The name of the host in the recording; `None` for lines without a tag.
    pub(crate) host_name: Option<Text>,
    pub(crate) line: Line,
}

/// Reads a recording to its end; `-` is the standard input. Calls `each` with every line that is
/// understood. Returns one sentence for each problem.
///
/// # Errors
///
/// When the file cannot be read, and when there is no line of gputop in it.
pub(crate) fn read(
    path: &Path,
    mut each: impl FnMut(RecordedLine) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let name = Text::new(path.as_os_str().as_encoded_bytes());
    let is_stdin = path.as_os_str() == "-";
    let mut reader = RecordingReader::open(if is_stdin {
        Path::new("/dev/stdin")
    } else {
        path
    })
    .map_err(|error| {
        let advice = if error.kind() == ErrorKind::NotFound {
            ": `gputop record` writes recordings"
        } else {
            ""
        };
        anyhow!("cannot open {name}: {error}{advice}")
    })?;
    let mut hosts: Vec<Option<u64>> = Vec::new();
    let (mut misunderstood, mut number) = (None::<(String, u64)>, 0_u64);
    while let Some(line) = reader
        .next_line()
        .with_context(|| format!("cannot read {name}"))?
    {
        number += 1;
        match parse_line(line) {
            Ok(Some(parsed)) => {
                let tag = HostTag::parse(line);
                let key = tag.as_ref().map(|tag| tag.host_key);
                let place = hosts
                    .iter()
                    .position(|known| *known == key)
                    .unwrap_or(hosts.len());
                if place == MOST_HOSTS {
                    continue;
                }
                if place == hosts.len() {
                    hosts.push(key);
                }
                let Ok(host) = u16::try_from(place).map(HostKey) else {
                    continue;
                };
                each(RecordedLine {
                    host,
                    host_name: tag.and_then(|tag| tag.name),
                    line: parsed,
                })?;
            }
            // The recording may be from a later version, with more kinds of lines.
            Ok(None) => {}
            Err(reason) => {
                misunderstood
                    .get_or_insert_with(|| (format!("line {number}: {reason}"), 0))
                    .1 += 1;
            }
        }
    }
    let mut problems = reader.problems();
    problems.extend(misunderstood.map(|(first, count)| match count {
        1 => first,
        count => format!("{count} lines are not understood; the first is {first}"),
    }));
    if hosts.is_empty() {
        let reason = if problems.is_empty() {
            "it is empty".to_owned()
        } else {
            problems.join("; ")
        };
        return Err(anyhow!("{name} is no recording of gputop: {reason}"));
    }
    Ok(problems)
}
