//! Replaces this program by another one, which keeps its PID, so that the exit code and signals of
//! that one are the result.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::base::text::Text;
use crate::output;

/// Replaces this program by the command. Returns only if that fails, with the exit code of a shell.
pub(in crate::commands) fn replace_program(command: &mut Command) -> ExitCode {
    let error = command.exec();
    refuse_program(command, &error)
}

/// Says why a command cannot be started. Returns the exit code of a shell.
pub(super) fn refuse_program(command: &Command, error: &io::Error) -> ExitCode {
    /// The exit codes of a shell for a command that is not there, and for one that cannot be run.
    const NOT_FOUND: u8 = 127;
    const NOT_RUNNABLE: u8 = 126;
    output::print_error(&Text::new(format!(
        "cannot run {}: {error}",
        command.get_program().display()
    )));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_RUNNABLE
    })
}
