//! Starts this program again, or any program without gputop's terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Returns a command that runs this program. The program's path may be in a directory that hangs,
/// and an update may have replaced the file there; the kernel still has the file that runs.
pub(crate) fn this_gputop() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("gputop");
    command
}

/// Explains why this program could not be started again.
pub(crate) fn explained(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound && !Path::new("/proc/self").exists() {
        let sentence =
            "/proc is not mounted, and gputop reads the processes there: mount -t proc proc /proc";
        return io::Error::new(error.kind(), sentence);
    }
    error
}

/// Returns a command that runs this program, without gputop's terminal.
pub(crate) fn detached_gputop() -> Command {
    let mut command = this_gputop();
    detach(&mut command);
    command
}

/// Returns a command that runs this program without gputop's terminal, and only as long as the
/// thread that starts it.
pub(crate) fn short_lived_gputop() -> Command {
    let mut command = detached_gputop();
    end_with_this_thread(&mut command, Signal::KILL);
    command
}

/// Makes the kernel send this signal to the process of a command when the thread that starts it
/// ends, even if that thread is killed.
pub(crate) fn end_with_this_thread(command: &mut Command, signal: Signal) -> &mut Command {
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || Ok(set_parent_process_death_signal(Some(signal))?)) }
}

/// Makes a command run in a session of its own, which has no controlling terminal. A program such
/// as `ssh` then cannot ask for a password on the screen, and keys such as Ctrl-C do not reach the
/// program.
pub(crate) fn detach(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) }
}
