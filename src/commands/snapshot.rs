//! `gputop snapshot`: lets the probe in a Python program write a snapshot that PyTorch's
//! `memory_viz` opens.

use std::path::{self, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::live::probed_process;
use crate::base::text::Text;
use crate::flags::{ReadArgs, values};
use crate::output::{self, Exit};
use crate::protocol::command::{Command, ProbeRequest};
use crate::protocol::reply::Outcome;

/// The process and the file.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct SnapshotArgs {
    /// The PID of the program
    pid: u32,

    /// The new file [default: `gputop-PID-step-STEP.pickle` in the current folder]
    #[arg(short, long, value_name = "FILE", value_parser = values::new_file())]
    output: Option<PathBuf>,

    /// Record all allocations of this number of steps first (1 to 100): `memory_viz` draws them as
    /// "Active Memory Timeline". Without it, the snapshot has only what is allocated now
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=100))]
    steps: Option<u32>,

    #[command(flatten)]
    read: ReadArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  the snapshot was written
    6  no process has the PID, or it has no report of the probe
    1  the probe cannot write the file, or another error";

/// After this number of passes, the probe will not answer: its thread is stuck, or the program is.
const MOST_PASSES: u32 = 120;
/// The same while steps are recorded: the probe gives up after 10 minutes.
const MOST_RECORDING_PASSES: u32 = 2500;

/// Asks the probe for a snapshot, waits for its answer, and prints the path of the file. Fails if
/// no agent can be started, or if the standard output cannot be written.
pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let pid = args.pid;
    let (mut is_asked, mut id, mut passes) = (false, None, 0);
    let most_passes = match args.steps {
        Some(_) => MOST_RECORDING_PASSES,
        None => MOST_PASSES,
    };
    let found = probed_process::converse(&args.read, false, pid, |found, replies, command| {
        if !is_asked {
            is_asked = true;
            let step = found
                .report
                .steps
                .as_ref()
                .map_or_else(String::new, |steps| format!("-step-{}", steps.count));
            let file = args
                .output
                .clone()
                .unwrap_or_else(|| format!("gputop-{pid}{step}.pickle").into());
            match absolute(&file) {
                Ok(path) => {
                    let request = ProbeRequest::Snapshot {
                        path,
                        steps: args.steps,
                    };
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
            Some(answer) if answer.ok => {
                Some(Ok((answer.path.clone(), answer.bytes, answer.steps)))
            }
            Some(answer) => {
                let why = answer
                    .error
                    .clone()
                    .unwrap_or_else(|| "the probe could not write it".into());
                Some(Err(why))
            }
            None if passes >= most_passes => Some(Err(Text::new(format!(
                "the probe in process {pid} does not answer: the program may be in a long call"
            )))),
            None => None,
        }
    })?;
    let (path, bytes, steps) = match found {
        Ok(written) => written,
        Err(why) => {
            output::print_error(&Text::new(format!("no snapshot: {why}")));
            // A process with a report is asked at once.
            let exit = if is_asked { Exit::Error } else { Exit::Nothing };
            return Ok(exit.into());
        }
    };
    let path = path.map_or_else(String::new, |path| path.to_string());
    let size = bytes.map_or_else(String::new, |bytes| format!(" ({bytes})"));
    let traces = steps.map_or_else(String::new, |steps| format!(", with {steps} steps"));
    let text = format!("{path}{size}{traces}: open it at https://docs.pytorch.org/memory_viz\n");
    output::print(text.as_bytes())?;
    if args.steps.is_some() && steps.is_none() {
        output::print_error(&Text::new(
            "the probe recorded no steps: the program records its allocations itself, or its probe is of an older gputop",
        ));
    }
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
