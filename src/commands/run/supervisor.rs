//! Runs a command as a child, and stands in its place: signals that are sent to gputop alone reach
//! the command, gputop stops and continues with it, and ends as it ends.

use std::io;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

use super::group_witness::GroupWitness;
use super::signals::{self, BlockedSignals};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// With an exit code.
    Exited(u8),
    /// By the signal with this number.
    Killed(i32),
}

impl CommandEnd {
    pub(super) fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// Ends gputop by the signal that killed the command. Otherwise, and where that signal does not
    /// end gputop, returns the exit code of the command, as a shell knows it.
    pub(super) fn reproduce(self) -> ExitCode {
        match self {
            Self::Exited(code) => ExitCode::from(code),
            Self::Killed(signal) => {
                // The command may have written a core file: another one would replace it.
                let _kept = signals::forbid_core_file();
                signals::take_default_action(signal);
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
            }
        }
    }
}

/// Runs the command to its end, in a process whose signals are blocked.
///
/// # Errors
///
/// When the command cannot be started.
pub(super) fn run_to_end(
    command: &mut Command,
    blocked: &BlockedSignals,
) -> io::Result<CommandEnd> {
    blocked.restore_in(command);
    let mut witness = GroupWitness::start()?;
    let child = Pid::from_child(&command.spawn()?);
    loop {
        let waited = waitpid(Some(child), WaitOptions::NOHANG | WaitOptions::UNTRACED)?;
        match waited.map(|(_, status)| status) {
            Some(status) => match end(status) {
                Some(end) => return Ok(end),
                None => stop_as(status),
            },
            None => match blocked.next() {
                libc::SIGCHLD => {}
                signal => {
                    if !witness.was_sent(signal) {
                        signals::send(child, signal);
                    }
                }
            },
        }
    }
}

/// Returns how a child ended; `None` if it was stopped.
fn end(status: WaitStatus) -> Option<CommandEnd> {
    let exited = status.exit_status().map(|code| {
        // The kernel keeps eight bits.
        CommandEnd::Exited(u8::try_from(code & 0xFF).unwrap_or(u8::MAX))
    });
    exited.or_else(|| status.terminating_signal().map(CommandEnd::Killed))
}

/// Stops this process by the signal that stopped the command, so that the shell of both takes the
/// terminal back. Returns when this process is continued. If the whole group is, the command
/// continues too; if gputop alone is, the signal reaches the command as others do.
fn stop_as(status: WaitStatus) {
    if let Some(signal) = status.stopping_signal() {
        signals::take_default_action(signal);
    }
}
