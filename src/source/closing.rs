//! Lets the commands of `--via` end after their input was closed.
//!
//! A command may be an `ssh` that has become a control master, through which the user's other
//! sessions run: a signal to it ends them all. So a command whose output ends gets no signal. Only
//! a command that keeps its output open gets one, SIGTERM, and not if it may be such a master. A
//! process of its own waits for that, so the viewer quits at once.

mod listening_socket;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd, read};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::Instant;

use self::listening_socket::may_be_master;
use crate::base::detach::detached_gputop;

/// How long a command may keep its output open after its input was closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// A command whose input is closed, and whose output is still open.
#[derive(Debug)]
pub(super) struct ClosingCommand {
    pid: Pid,
    /// Identifies the process, whose PID may be used again once its parent has reaped it.
    pidfd: OwnedFd,
    output: OwnedFd,
}

impl ClosingCommand {
    /// Returns `None` if the output has ended, or if this Linux has no pidfds. The child must not
    /// be reaped yet.
    pub(super) fn new(child: &Child, output: OwnedFd) -> Option<Self> {
        let mut poll_fd = [PollFd::new(&output, PollFlags::IN)];
        let has_ended = poll(&mut poll_fd, Some(&Timespec::default())).is_ok()
            && poll_fd[0].revents() == PollFlags::HUP;
        if has_ended {
            return None;
        }
        let pid = Pid::from_child(child);
        Some(Self {
            pid,
            pidfd: pidfd_open(pid, PidfdFlags::empty()).ok()?,
            output,
        })
    }

    /// Returns the command of [`Self::argument`]. Returns `None` for another text.
    fn from_argument(argument: &str) -> Option<Self> {
        let mut numbers = argument.split(':').map(str::parse::<RawFd>);
        let (Some(Ok(pid)), Some(Ok(pidfd)), Some(Ok(output)), None) = (
            numbers.next(),
            numbers.next(),
            numbers.next(),
            numbers.next(),
        ) else {
            return None;
        };
        let descriptor = |number: RawFd| {
            // SAFETY: the number is not -1. If no file is open under it, the next call fails.
            (number > 2
                && fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC).is_ok())
            // SAFETY: the file is open, and this process inherited it for this command only.
            .then(|| unsafe { OwnedFd::from_raw_fd(number) })
        };
        let (pidfd, output) = (descriptor(pidfd)?, descriptor(output)?);
        Some(Self {
            pid: Pid::from_raw(pid)?,
            pidfd,
            output,
        })
    }

    /// Describes the command to a process that inherits its descriptors.
    fn argument(&self) -> String {
        format!(
            "{}:{}:{}",
            self.pid,
            self.pidfd.as_raw_fd(),
            self.output.as_raw_fd()
        )
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.pidfd.as_fd(), self.output.as_fd()]
    }

    /// Reads some output, so that a command that waits for room in the pipe goes on. Returns
    /// whether the output has ended.
    fn discard_output(&self) -> bool {
        match read(&self.output, &mut [0; 16 << 10]) {
            Ok(length) => length == 0,
            Err(error) => ![Errno::INTR, Errno::AGAIN].contains(&error),
        }
    }
}

/// Starts a process that lets these commands end. Returns `None` if there are no commands.
pub(super) fn start_process(commands: Vec<ClosingCommand>) -> io::Result<Option<Child>> {
    if commands.is_empty() {
        return Ok(None);
    }
    let mut process = detached_gputop();
    process
        .arg("close-commands")
        .args(commands.iter().map(ClosingCommand::argument));
    process
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let inherit = move || {
        let mut descriptors = commands.iter().flat_map(ClosingCommand::descriptors);
        descriptors.try_for_each(|descriptor| Ok(fcntl_setfd(descriptor, FdFlags::empty())?))
    };
    // SAFETY: the closure makes system calls only, allocates nothing and takes no lock.
    unsafe { process.pre_exec(inherit) };
    process.spawn().map(Some)
}

/// Lets the commands end that [`start_process`] describes in these arguments.
pub fn close_commands(arguments: &[String]) {
    close(
        arguments
            .iter()
            .filter_map(|argument| ClosingCommand::from_argument(argument))
            .collect(),
        PATIENCE,
    );
}

/// Waits until the output of each command has ended, and at most for this time. Then sends SIGTERM
/// to each of the others that cannot be a control master.
fn close(mut commands: Vec<ClosingCommand>, patience: Duration) {
    let deadline = Instant::now() + patience;
    while !commands.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else {
            break;
        };
        let mut outputs: Vec<_> = commands
            .iter()
            .map(|command| PollFd::new(&command.output, PollFlags::IN))
            .collect();
        match poll(&mut outputs, Some(&timeout)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let is_ready: Vec<bool> = outputs
            .iter()
            .map(|output| !output.revents().is_empty())
            .collect();
        let mut is_ready = is_ready.into_iter();
        commands.retain(|command| !(is_ready.next() == Some(true) && command.discard_output()));
        if left.is_zero() {
            break;
        }
    }
    for command in &commands {
        if !may_be_master(command.pid) {
            let _ended = pidfd_send_signal(&command.pidfd, Signal::TERM);
        }
    }
}
