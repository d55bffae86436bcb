//! Runs a program without gputop's terminal.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a command run in a session of its own, which has no controlling terminal. A program such as `ssh` then cannot
/// ask for a password on the screen, and keys such as Ctrl-C do not reach the program.
pub fn detach(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) }
}
