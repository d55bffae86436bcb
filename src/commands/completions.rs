//! `gputop completions`: the completions of a shell.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::{self, Exit};

/// The argument of `gputop completions`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the completions of a command line.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn run(args: &CompletionsArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "gputop", &mut script);
    output::print(&script)?;
    Ok(Exit::Success.into())
}
