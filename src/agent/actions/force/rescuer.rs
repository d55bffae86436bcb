//! A process that continues the stopped processes if the agent is killed in the middle of a forced
//! end.
//!
//! Nothing that runs in the agent survives SIGKILL, and a stopped process stays stopped. So another
//! process reads the list of stopped processes from a pipe. When the pipe closes before the word
//! that all is done, that process continues them.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::super::held::HeldProcess;
use crate::protocol::snapshot::ProcessId;

/// The line after which no process needs to be continued.
const DONE: &str = "done";

/// The process that continues the stopped processes, as the agent sees it.
pub(super) struct Rescuer {
    /// `None` when the process could not be started in time. The job that is ended may be the
    /// reason, so the forced end takes place without it.
    list: Option<ChildStdin>,
}

impl Rescuer {
    /// The longest wait for the start of the process. The program file may be on a file system that
    /// hangs.
    const START_TIME: Duration = Duration::from_millis(500);

    pub(super) fn start() -> Self {
        let (sender, list) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("rescuer".to_owned())
            .spawn(move || {
                let mut command = Command::new("/proc/self/exe");
                command
                    .arg0("gputop")
                    .arg("continue-stopped")
                    .stdin(Stdio::piped());
                // A signal to the agent's process group must not end both.
                let child = command
                    .process_group(0)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
                if let Ok(mut child) = child {
                    // When nobody waits any more, the pipe closes, and the process ends.
                    let _late = sender.send(child.stdin.take());
                    let _reaped = child.wait();
                }
            });
        Self {
            list: thread
                .ok()
                .and_then(|_| list.recv_timeout(Self::START_TIME).ok().flatten()),
        }
    }

    /// Adds a process that is about to be stopped.
    pub(super) fn add(&mut self, process: ProcessId) {
        if let Some(start_ticks) = process.start_ticks {
            self.write(format_args!("{} {start_ticks}\n", process.pid));
        }
    }

    /// Ends the process: the agent has killed or continued all stopped processes.
    pub(super) fn dismiss(mut self) {
        self.write(format_args!("{DONE}\n"));
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        // If the process is gone, the forced end takes place without it.
        let _gone = self
            .list
            .as_mut()
            .map(|list| list.write_all(line.to_string().as_bytes()));
    }
}

/// Reads the list of an agent, and continues its processes if the agent ends without the last line.
pub(in crate::agent) fn continue_stopped(list: impl BufRead) {
    let mut stopped = Vec::new();
    for line in list.lines().map_while(io::Result::ok) {
        if line == DONE {
            return;
        }
        if let Some((pid, start_ticks)) = line.split_once(' ')
            && let (Ok(pid), Ok(start_ticks)) = (pid.parse(), start_ticks.parse())
        {
            stopped.push(ProcessId {
                pid,
                start_ticks: Some(start_ticks),
            });
        }
    }
    for process in stopped.into_iter().rev() {
        // The process may have ended. Its PID and start ticks are verified again, and the signal
        // goes to a pidfd.
        let _ended = HeldProcess::open(process).and_then(|held| held.send(Signal::CONT));
    }
}
