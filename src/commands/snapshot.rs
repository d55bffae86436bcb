//! `gputop snapshot`: lets the probe in a Python program write a snapshot that PyTorch's
//! `memory_viz` opens.

use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use super::probed_process;
use super::read_hosts::ReadOptions;
use crate::base::text::Text;
use crate::output::{self, Exit};
use crate::protocol::command::{Command, ProbeRequest};
use crate::protocol::reply::Outcome;

/// The process and the file.
#[derive(Debug)]
pub struct SnapshotOptions {
    /// This host.
    pub read: ReadOptions,
    /// The PID of the program.
    pub pid: u32,
    /// The new file; `None` for a name with the PID and the step in the current folder.
    pub file: Option<PathBuf>,
}

/// After this number of passes, the probe will not answer: its thread is stuck, or the program is.
const MOST_PASSES: u32 = 120;

/// Asks the probe for a snapshot, waits for its answer, and prints the path of the file. Fails if
/// no agent can be started, or if the standard output cannot be written.
pub fn run(options: &SnapshotOptions) -> anyhow::Result<ExitCode> {
    let (mut is_asked, mut id, mut passes) = (false, None, 0);
    let found = probed_process::converse(&options.read, options.pid, |found, replies, command| {
        if !is_asked {
            is_asked = true;
            let step = found
                .report
                .steps
                .as_ref()
                .map_or_else(String::new, |steps| format!("-step-{}", steps.count));
            let file = options
                .file
                .clone()
                .unwrap_or_else(|| format!("gputop-{}{step}.pickle", options.pid).into());
            match absolute(&file) {
                Ok(path) => {
                    let request = ProbeRequest::Snapshot { path };
                    *command = Some(Command::AskProbe {
                        process: found.process.id,
                        request,
                    });
                }
                Err(why) => return Some(Err(why)),
            }
            return None;
        }
        for reply in replies {
            match &reply.outcome {
                Outcome::ProbeAsked { id: asked } => id = Some(*asked),
                Outcome::Refused { reason } => return Some(Err(reason.clone())),
                _ => {}
            }
        }
        passes += 1;
        match found
            .report
            .answer
            .as_ref()
            .filter(|answer| Some(answer.id) == id)
        {
            Some(answer) if answer.ok => Some(Ok((answer.path.clone(), answer.bytes))),
            Some(answer) => {
                let why = answer
                    .error
                    .clone()
                    .unwrap_or_else(|| "the probe could not write it".into());
                Some(Err(why))
            }
            None if passes >= MOST_PASSES => Some(Err(Text::new(format!(
                "the probe in process {} does not answer: the program may be in a long call",
                options.pid
            )))),
            None => None,
        }
    })?;
    let (path, bytes) = match found {
        Ok(written) => written,
        Err(why) => {
            output::print_error(&Text::new(format!("no snapshot: {why}")));
            return Ok(Exit::Error.into());
        }
    };
    let path = path.map_or_else(String::new, |path| path.to_string());
    let size = bytes.map_or_else(String::new, |bytes| format!(" ({bytes})"));
    output::print(
        format!("{path}{size}: open it at https://docs.pytorch.org/memory_viz\n").as_bytes(),
    )?;
    Ok(Exit::Success.into())
}

/// Returns the path from the root: the program has another current folder.
fn absolute(file: &Path) -> Result<Text, Text> {
    let path =
        path::absolute(file).map_err(|error| Text::new(format!("{}: {error}", file.display())))?;
    let text = Text::new(path.as_os_str().as_encoded_bytes());
    if path.to_str() == Some(text.as_str()) {
        return Ok(text);
    }
    Err("the path has characters that gputop cannot pass on: use plain letters".into())
}
