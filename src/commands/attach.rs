//! `gputop attach`: starts the probe in a Python program that runs already.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::agent::attach::{AttachState, AttachTarget};
use crate::base::text::Text;
use crate::base::units::parse_span;
use crate::files::probe_files;
use crate::output::{self, Exit};

/// The program to attach to.
#[derive(Debug, Clone, Args)]
pub(crate) struct AttachArgs {
    /// The PID of the program
    pid: u32,

    /// How long to wait until the program lets the probe start
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    wait: Duration,
}

/// Starts the probe, and prints whether it is there or has to wait; or why it cannot be started.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn run(args: &AttachArgs) -> anyhow::Result<ExitCode> {
    match attach(args) {
        Ok(sentence) => output::print(format!("{sentence}\n").as_bytes())?,
        Err(why) => {
            output::print_error(&why);
            return Ok(Exit::Error.into());
        }
    }
    Ok(Exit::Success.into())
}

fn attach(args: &AttachArgs) -> Result<String, Text> {
    let pid = args.pid;
    let target = AttachTarget::open(pid).map_err(|why| Text::new(why.to_string()))?;
    let folder = probe_files::unpack()
        .map_err(|why| Text::new(format!("the probe cannot be attached: {why}")))?;
    target
        .inject(&folder)
        .map_err(|why| Text::new(why.to_string()))?;
    match target.wait(args.wait) {
        AttachState::Attached => Ok(format!(
            "attached to {pid}: press Enter on it in gputop, or run `gputop tensors {pid}`"
        )),
        AttachState::Waiting => Ok(format!(
            "attached to {pid}: the probe waits for the program to use a GPU through PyTorch"
        )),
        AttachState::Queued => Ok(format!(
            "queued in {pid}: the probe starts when the main thread next runs Python code; until then it is in a long call \
             of C, such as a wait for the GPU, for input or for another thread"
        )),
        AttachState::Failed(why) => Err(Text::new(format!(
            "the probe is in process {pid}, and cannot work: {why}"
        ))),
        AttachState::Ended => Err(Text::new(format!(
            "process {pid} ended before the probe started"
        ))),
    }
}
