//! A held process: verified to be the one that the user saw, signalled only through its pidfd, and
//! watched until it has ended.
//!
//! A PID alone is never signalled. The pidfd polls readable when the last thread of the process has
//! ended, and its `fdinfo` shows the PID -1 once the parent has reaped the process.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal as Number, pidfd_open, pidfd_send_signal, test_kill_process,
};

use super::audit::{SignalMode, SignalRecord, UserName};
use super::refusal::Refusal;
use crate::agent::clock;
use crate::agent::procfs::files;
use crate::agent::procfs::stat::{self, living_thread};
use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{ProcessId, State};

#[derive(Debug)]
pub(super) struct HeldProcess {
    process: ProcessId,
    pub(super) comm: Text,
    /// The real user ID that was last seen. `None` when it could not be read.
    uid: Option<u32>,
    /// The arguments. `None` until the slow-files thread has read them: reading them in this thread
    /// could hang.
    pub(super) argv: Option<Argv>,
    pidfd: OwnedFd,
    /// When the process was last signalled. `None` before the first signal, and after the end of
    /// the process.
    signalled: Option<Moment>,
    /// When the process was first seen to have ended. `None` while it lives.
    ended: Option<Moment>,
    is_zombie_reported: bool,
    /// When to check the process again. `None` when only its end matters.
    pub(super) due: Option<Moment>,
}

impl HeldProcess {
    /// How long a parent may take to reap its child before the child is reported as a zombie.
    const REAP_TIME: Duration = Duration::from_millis(200);

    /// The shortest and the longest time between two checks whether an ended process was reaped.
    /// The pidfd stays readable, so waiting for it would spin.
    const REAP_CHECK: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

    /// How often the owner of a process that was not signalled is looked at: it may call `setuid`.
    const OWNER_INTERVAL: Duration = Duration::from_secs(1);

    /// Opens a pidfd of a process, or returns why the process must not be signalled.
    ///
    /// 1. The pidfd comes first: from here on, it refers to one process only.
    /// 2. The start ticks prove that this is the process the user saw. The caller ensures that no
    ///    later process has the same: it holds only a process that was read at least one clock tick
    ///    after its start.
    /// 3. The `fdinfo` proves that `/proc` described the same process, in the same PID namespace.
    /// 4. The kernel permits signals to the process.
    pub(super) fn open(process: ProcessId) -> Result<Self, Refusal> {
        let number = process.pid;
        // To `kill`, 0 and negative numbers mean process groups.
        let pid = i32::try_from(number)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(Refusal::NoProcess(number))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => Refusal::Ended(number),
            Errno::NOSYS | Errno::PERM => Refusal::NoPidfd(number),
            other => Refusal::Failed(number, other),
        })?;
        let mut line = Vec::new();
        let stat = stat::read_process(number, &mut line).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::SRCH) | None => Refusal::Ended(number),
                // For example, no descriptor is free.
                Some(other) => Refusal::Failed(number, other),
            }
        })?;
        if process.start_ticks != Some(stat.start_ticks) {
            return Err(Refusal::Ended(number));
        }
        if stat.is_kernel_thread() {
            return Err(Refusal::Kernel(number));
        }
        match pid_in_proc(pidfd.as_fd()) {
            Some(named) if named == i64::from(number) => (),
            Some(-1) => return Err(Refusal::Ended(number)),
            Some(_) | None => return Err(Refusal::ForeignProc(number)),
        }
        let held = Self {
            process,
            comm: Text::new(stat.comm),
            uid: files::real_uid(number).ok(),
            argv: None,
            pidfd,
            signalled: None,
            ended: None,
            is_zombie_reported: false,
            due: Some(clock::now()),
        };
        // This checks the permission by PID, and sends no signal. If the process is not reaped
        // afterwards, it had the PID all the time, so the result is about this process.
        match test_kill_process(pid) {
            Ok(()) => Ok(held),
            Err(_) if held.is_reaped() => Err(Refusal::Ended(number)),
            Err(error) => Err(held.refusal(error)),
        }
    }

    fn refusal(&self, error: Errno) -> Refusal {
        let pid = self.process.pid;
        match (error, self.owner()) {
            (Errno::PERM, Some(owner)) => Refusal::denied(pid, self.comm.clone(), owner),
            (Errno::PERM, None) | (Errno::SRCH, _) => Refusal::Ended(pid),
            (other, _) => Refusal::Failed(pid, other),
        }
    }

    /// Returns the owner that was last seen, if it is another one than before.
    pub(super) fn new_owner(&mut self) -> Option<u32> {
        let owner = self.owner().filter(|owner| self.uid != Some(*owner));
        self.uid = owner.or(self.uid);
        owner
    }

    /// Returns the real user ID of the process. `None` when the process has been reaped.
    pub(super) fn owner(&self) -> Option<u32> {
        files::real_uid(self.process.pid)
            .ok()
            .filter(|_| !self.is_reaped())
    }

    pub(super) fn record(&self, signal: Signal, mode: SignalMode) -> SignalRecord {
        let (comm, argv, owner) = (self.comm.clone(), self.argv.clone(), self.owner());
        SignalRecord {
            process: self.process,
            comm,
            argv,
            owner_uid: owner,
            owner: owner.map(UserName),
            signal,
            mode,
        }
    }

    /// Reads the state of the process and the PID of its parent. `None` when the process has been
    /// reaped.
    pub(super) fn state_and_parent(&self) -> Option<(State, u32)> {
        let mut line = Vec::new();
        let stat = stat::read_process(self.process.pid, &mut line).ok()?;
        // Until it is reaped, no other process has its PID.
        (!self.is_reaped()).then_some((stat.state, stat.parent))
    }

    /// Sends a signal without watching its effect. Succeeds also when the process has ended.
    pub(super) fn send(&self, signal: Number) -> Result<(), Refusal> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(self.refusal(error)),
        }
    }

    /// Returns the pidfd, which polls readable when the process ends. `None` once the process was
    /// seen to have ended.
    pub(super) fn running_pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.ended.is_none().then(|| self.pidfd.as_fd())
    }

    /// The effect is watched from here on, see [`HeldProcess::check`].
    pub(super) fn signal(&mut self, signal: Signal, now: Moment) -> Outcome {
        // A signal to a zombie "succeeds" and does nothing.
        if self.has_ended() {
            self.is_zombie_reported = true;
            return self.end(now);
        }
        let number = match signal {
            Signal::Int => Number::INT,
            Signal::Term => Number::TERM,
            Signal::Kill => Number::KILL,
            Signal::Hup => Number::HUP,
            Signal::Quit => Number::QUIT,
            Signal::Usr1 => Number::USR1,
            Signal::Usr2 => Number::USR2,
            Signal::Stop => Number::STOP,
            Signal::Cont => Number::CONT,
        };
        match pidfd_send_signal(&self.pidfd, number) {
            Ok(()) => {
                (self.signalled, self.due) = (Some(now), Some(next_report(now, now)));
                Outcome::Sent { signal, at: now }
            }
            Err(Errno::SRCH) => Outcome::Ended { at: now },
            Err(error) => self.refusal(error).into(),
        }
    }

    /// Checks whether the process has ended, and else whether its state is due to be reported.
    /// Returns `None` when there is nothing new.
    pub(super) fn check(&mut self, now: Moment) -> Option<Outcome> {
        if self.has_ended() {
            let outcome = self.end(now);
            if let Outcome::Zombie { at, .. } = outcome {
                // The parent may be about to reap the process.
                if self.is_zombie_reported || now.since(at) < Self::REAP_TIME {
                    return None;
                }
                self.is_zombie_reported = true;
            }
            return Some(outcome);
        }
        let Some(signalled) = self.signalled else {
            self.due = Some(now.after(Self::OWNER_INTERVAL));
            return None;
        };
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.due = Some(next_report(signalled, now));
        Some(self.alive(now.since(signalled)))
    }

    /// Whether all threads of the process have ended. A dead leader alone does not count.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // If polling fails, the process counts as alive until the next check.
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Notes that the process has ended, and returns whether it is a zombie or gone.
    fn end(&mut self, now: Moment) -> Outcome {
        let at = *self.ended.get_or_insert(now);
        self.signalled = None;
        self.due = Some(
            now.after(
                now.since(at)
                    .clamp(Self::REAP_CHECK[0], Self::REAP_CHECK[1]),
            ),
        );
        match stat::read_process(self.process.pid, &mut Vec::new()) {
            // Linux before 5.5 does not show -1 for a reaped process, hence the other two
            // conditions.
            Ok(stat)
                if !self.is_reaped()
                    && stat.state == State::Zombie
                    && self.process.start_ticks == Some(stat.start_ticks) =>
            {
                Outcome::Zombie {
                    at,
                    parent: stat.parent,
                }
            }
            _ => Outcome::Ended { at },
        }
    }

    pub(super) fn is_reaped(&self) -> bool {
        pid_in_proc(self.pidfd.as_fd()) == Some(-1)
    }

    fn alive(&self, elapsed: Duration) -> Outcome {
        let pid = self.process.pid;
        let state =
            stat::read_process(pid, &mut Vec::new()).map_or(State::Other, |stat| stat.state);
        // If only the main thread has ended, the state of a living thread is reported.
        let thread = (state == State::Zombie)
            .then(|| living_thread(pid))
            .flatten();
        let (directory, state) = thread.unwrap_or_else(|| (format!("/proc/{pid}").into(), state));
        Outcome::Alive {
            state,
            wchan: files::wchan(&directory).ok(),
            seconds: elapsed.as_secs(),
        }
    }
}

/// Returns when the viewer learns next that a signalled process is alive: after 2, 5 and 10
/// seconds, then every 10.
fn next_report(signalled: Moment, now: Moment) -> Moment {
    let seconds = match now.since(signalled).as_secs() {
        0..2 => 2,
        2..5 => 5,
        more => (more / 10 + 1) * 10,
    };
    signalled.after(Duration::from_secs(seconds))
}

/// Returns the PID of a pidfd's process in `/proc`; -1 when the process was reaped. `None` when it
/// cannot be read.
pub(super) fn pid_in_proc(pidfd: BorrowedFd<'_>) -> Option<i64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_after_2_5_and_10_seconds_and_then_every_10() {
        let seconds = |count| Moment(1234).after(Duration::from_secs(count));
        let reports =
            std::iter::successors(Some(seconds(0)), |&now| Some(next_report(seconds(0), now)));
        assert!(reports.take(6).eq([0, 2, 5, 10, 20, 30].map(seconds)));
        // An agent that was stopped for a while does not catch up on the reports that it missed.
        assert_eq!(next_report(seconds(0), seconds(61)), seconds(70));
    }
}
