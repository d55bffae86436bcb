//! A process in gputop's process group, which shows whether a signal was sent to the whole group,
//! as a terminal does at Ctrl-C, or to gputop alone.
//!
//! It has all signals blocked, so those that it was sent stay pending, and the kernel lists them.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Stdio};

use rustix::process::{getpgrp, setpgid};

use crate::base::detach::this_gputop;

/// The name of the hidden subcommand.
const SUBCOMMAND: &str = "group-witness";

pub(super) struct GroupWitness {
    process: Child,
}

impl GroupWitness {
    /// Starts the process. Fails if no process can be started. Call it while all signals are
    /// blocked: the process inherits that.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = this_gputop();
        command.arg(SUBCOMMAND).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            process: command.spawn()?,
        })
    }

    /// Returns whether a signal that gputop has just received was sent to the whole group. Where
    /// that is not known, returns false: rather twice than never.
    pub(super) fn was_sent(&mut self, signal: i32) -> bool {
        // The kernel sends a signal to all members under a lock, and changes no group meanwhile.
        // This call changes nothing, and waits until all members have the signal.
        let _no_change = setpgid(None, Some(getpgrp()));
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let is_pending = status.is_ok_and(|status| is_pending(&status, signal));
        // A pending signal stays pending, so the next one needs a new process.
        if is_pending && let Ok(next) = Self::start() {
            *self = next;
        }
        is_pending
    }
}

impl Drop for GroupWitness {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Waits until gputop closes the standard input, or has ended.
pub(crate) fn wait_in_group() {
    let _ended = io::stdin().read(&mut [0]);
}

/// Whether `/proc/PID/status` lists a signal as pending for the process.
fn is_pending(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_signals_are_bits_of_a_mask() {
        let status = "Name:\tgputop\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000004000\n";
        let pending: Vec<i32> = (1..=64)
            .filter(|signal| is_pending(status, *signal))
            .collect();
        assert_eq!(pending, [libc::SIGTERM]);
    }
}
