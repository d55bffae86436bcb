//! `gputop run`: replaces this program by a Python program, or by a launcher of one, and lets
//! Python load gputop's probe. With `--fail-on-leak`, it stays as the parent of that program
//! instead, and judges at its end.
//!
//! Python runs `sitecustomize.py` of the first folder in `PYTHONPATH` when it starts, so the
//! program needs no change. The probe is part of this binary, and is unpacked into a private
//! folder.

mod gate;
mod gate_result;
mod gpu_watch;
pub(crate) mod group_witness;
mod known_leaks;
mod last_states;
pub(super) mod replace_program;
mod signals;
mod supervisor;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;

use self::gate::GateOptions;
use self::replace_program::replace_program;
use crate::base::text::Text;
use crate::files::probe_files;
use crate::output::{Exit, print_error};

/// Names the folder of the probe for gputop itself: a program that has this variable and not the
/// folder in `PYTHONPATH` has dropped the latter.
const FOLDER_VARIABLE: &str = "GPUTOP_PROBE_FOLDER";
/// Turns the probe off if it is `0`.
const SWITCH_VARIABLE: &str = "GPUTOP_PROBE";
const PATH_VARIABLE: &str = "PYTHONPATH";

/// The program to run.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    gate: GateOptions,

    /// The command, whose PID, exit code, signals and output stay as they are. `GPUTOP_PROBE=0`
    /// runs it without the probe
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes with --fail-on-leak, where the command itself succeeds; else its own code:
   12  a leak of GPU memory is likely in a process of the command
   13  no leak is likely, but nothing used CUDA with the probe, or a process could not be judged
    0  no leak is likely; some may be leaks";

/// Replaces this program by the command, so that PID, exit code, signals, terminal and output are
/// the command's. Prints nothing, unless the probe cannot be unpacked: then the command runs
/// without it. With `--fail-on-leak`, the command is a child.
///
/// Returns only at the end of a child, or if the command cannot be started.
///
/// # Errors
///
/// When leaks cannot be told.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let [program, arguments @ ..] = args.command.as_slice() else {
        return Ok(Exit::Usage.into());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if env::var_os(SWITCH_VARIABLE).is_none_or(|switch| switch != "0") {
        match probe_files::unpack() {
            Ok(folder) => {
                command.env(
                    PATH_VARIABLE,
                    with_first(&folder, env::var_os(PATH_VARIABLE).as_deref()),
                );
                command.env(FOLDER_VARIABLE, folder);
            }
            Err(why) => print_error(&Text::new(format!(
                "the program runs without gputop's probe: {why}"
            ))),
        }
    }
    if args.gate.fail_on_leak {
        return gate::run(&args.gate, &mut command);
    }
    Ok(replace_program(&mut command))
}

/// Returns a value of `PYTHONPATH` that begins with this folder. An empty element would be the
/// current folder to Python, so an empty value adds none.
fn with_first(folder: &Path, path: Option<&OsStr>) -> OsString {
    let mut value = folder.as_os_str().to_owned();
    if let Some(rest) = path.filter(|path| !path.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_first_and_no_element_is_empty() {
        let value = |path: Option<&str>| with_first("/probe".as_ref(), path.map(OsStr::new));
        assert_eq!(value(None), "/probe");
        assert_eq!(value(Some("")), "/probe");
        assert_eq!(value(Some("/a:/b")), "/probe:/a:/b");
    }
}
