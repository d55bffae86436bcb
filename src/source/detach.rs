//! Runs a program without gputop's terminal.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns a command that runs this program, without gputop's terminal. The program's path may be in a directory that hangs; the
/// kernel still has the file that runs.
pub fn detached_gputop() -> Command {
    let mut command = Command::new("/proc/self/exe");
    detach(command.arg0("gputop"));
    command
}

/// Makes a command run in a session of its own, which has no controlling terminal. A program such as `ssh` then cannot
/// ask for a password on the screen, and keys such as Ctrl-C do not reach the program.
pub fn detach(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) }
}
