//! A held process: proven to be the one that the person saw, signalled only through its pidfd, and watched until it has
//! ended.
//!
//! A PID alone is never signalled. The pidfd polls readable when the last thread of the process has ended, and its `fdinfo`
//! shows the PID -1 once the parent has reaped the process.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal, test_kill_process};

use super::audit::{SignalMode, SignalRecord};
use super::refusal::{Owner, Refusal};
use crate::agent::procfs::stat::{self, ProcStat, living_thread};
use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{ProcessId, State};

/// A process that can be signalled safely, by its pidfd.
#[derive(Debug)]
pub(super) struct HeldProcess {
    process: ProcessId,
    comm: Text,
    /// The arguments, if the main loop has read them: reading them here could hang.
    argv: Option<Argv>,
    pidfd: OwnedFd,
    watch: WatchState,
}

/// The change that a process is watched for.
#[derive(Debug, Clone, Copy)]
enum WatchState {
    /// It runs and was not signalled: its end.
    Running,
    /// It was signalled and runs. At `report`, the viewer is told that it is still alive.
    Signalled { at: Moment, report: Moment },
    /// Its last thread has ended, and its parent has not reaped it. `told` when the viewer knows. Checked again at `look`.
    Unreaped { at: Moment, told: bool, look: Moment },
}

impl HeldProcess {
    /// How long a parent may take to reap before its child is called a zombie.
    const REAPED_WITHIN: Duration = Duration::from_millis(200);

    /// How often to check whether it was reaped: at first, and once it is reported as a zombie. Its pidfd stays readable, so
    /// polling it would spin.
    const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

    /// Opens a pidfd of that process, or returns why it must not be signalled.
    ///
    /// 1. The pidfd comes first: from here on, it refers to one process only.
    /// 2. The start ticks prove that this is the process the person saw. The caller makes sure that they cannot repeat: it
    ///    holds only a process that was read a whole tick after its start.
    /// 3. The `fdinfo` proves that `/proc` described the same process, in the same PID namespace.
    pub(super) fn open(process: ProcessId) -> Result<Self, Refusal> {
        let pid = kernel_pid(process.pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => Refusal::Ended,
            Errno::NOSYS | Errno::PERM => Refusal::NoPidfd,
            other => Refusal::Failed(other),
        })?;
        let mut line = Vec::new();
        let stat = stat::of(process.pid, &mut line).map_err(|error| match Errno::from_io_error(&error) {
            // Out of descriptors is not gone.
            Some(Errno::NOENT | Errno::SRCH) | None => Refusal::Ended,
            Some(other) => Refusal::Failed(other),
        })?;
        if process.start_ticks != Some(stat.start_ticks) {
            return Err(Refusal::Ended);
        }
        if stat.is_kernel_thread() {
            return Err(Refusal::Kernel);
        }
        match named_by(pidfd.as_fd()) {
            Some(named) if named == i64::from(process.pid) => (),
            Some(-1) => return Err(Refusal::Ended),
            Some(_) | None => return Err(Refusal::ForeignProc),
        }
        let held = Self { process, comm: Text::new(stat.comm), argv: None, pidfd, watch: WatchState::Running };
        held.check_permission(pid)?;
        Ok(held)
    }

    /// Checks whether the kernel permits signalling it.
    fn check_permission(&self, pid: Pid) -> Result<(), Refusal> {
        // This asks about the PID and signals nobody. When the process is still there afterwards,
        // it had the PID all the time, so the answer was about it.
        match test_kill_process(pid) {
            Ok(()) => Ok(()),
            Err(_) if self.is_reaped() => Err(Refusal::Ended),
            Err(Errno::PERM) => Err(self.denied()),
            Err(Errno::SRCH) => Err(Refusal::Ended),
            Err(other) => Err(Refusal::Failed(other)),
        }
    }

    fn denied(&self) -> Refusal {
        match self.owner() {
            Some(owner) => Refusal::Denied { comm: self.comm.clone(), owner },
            None => Refusal::Ended,
        }
    }

    /// Returns the kernel's short name of the process.
    pub(super) fn comm(&self) -> &Text {
        &self.comm
    }

    /// Returns the owner. `None` when the process has been reaped.
    pub(super) fn owner(&self) -> Option<Owner> {
        Owner::of(self.process.pid).filter(|_| !self.is_reaped())
    }

    /// Sets the arguments.
    pub(super) fn known_by(self, argv: Option<Argv>) -> Self {
        Self { argv, ..self }
    }

    /// Sets the arguments unless they are known: an ended process has none.
    pub(super) fn learn_argv(&mut self, argv: &Argv) {
        if !argv.is_empty() {
            self.argv.get_or_insert_with(|| argv.clone());
        }
    }

    /// Returns the arguments. `None` when they are not known.
    pub(super) fn into_argv(self) -> Option<Argv> {
        self.argv
    }

    /// Returns the audit record of a signal to it.
    pub(super) fn deed(&self, signal: Signal, mode: SignalMode) -> SignalRecord {
        let (process, comm, argv) = (self.process, self.comm.clone(), self.argv.clone());
        SignalRecord { process, comm, argv, owner: self.owner(), signal, mode }
    }

    /// Returns the PID of its parent now. `None` when it has been reaped.
    pub(super) fn parent(&self) -> Option<u32> {
        self.read(|stat| stat.parent)
    }

    /// Returns its state now. `None` when it has been reaped.
    pub(super) fn state(&self) -> Option<State> {
        self.read(|stat| stat.state)
    }

    fn read<T>(&self, part: impl FnOnce(ProcStat<'_>) -> T) -> Option<T> {
        let mut line = Vec::new();
        let part = stat::of(self.process.pid, &mut line).map(part).ok();
        // Until it is reaped, no other process has its PID.
        part.filter(|_| !self.is_reaped())
    }

    /// Duplicates the pidfd. `None` when there are no descriptors left.
    pub(super) fn duplicate(&self) -> Option<OwnedFd> {
        self.pidfd.try_clone().ok()
    }

    /// Sends a signal without watching its effect. No error if the process has ended.
    pub(super) fn send(&self, signal: rustix::process::Signal) -> Result<(), Refusal> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(Errno::PERM) => Err(self.denied()),
            Err(other) => Err(Refusal::Failed(other)),
        }
    }

    /// Returns the pidfd, which polls readable at the end. `None` once the process has ended.
    pub(super) fn ends(&self) -> Option<BorrowedFd<'_>> {
        match self.watch {
            WatchState::Running | WatchState::Signalled { .. } => Some(self.pidfd.as_fd()),
            WatchState::Unreaped { .. } => None,
        }
    }

    /// Sends the signal, and begins to watch its effect.
    pub(super) fn signal(&mut self, signal: Signal, now: Moment) -> Outcome {
        // A signal to a zombie "succeeds" and does nothing.
        if self.has_ended() {
            let fate = self.fate(now);
            self.watch = WatchState::Unreaped { at: self.ended_at(now), told: true, look: now.after(Self::LOOK.1) };
            return fate;
        }
        let number = match signal {
            Signal::Int => rustix::process::Signal::INT,
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Hup => rustix::process::Signal::HUP,
            Signal::Quit => rustix::process::Signal::QUIT,
            Signal::Usr1 => rustix::process::Signal::USR1,
            Signal::Usr2 => rustix::process::Signal::USR2,
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Cont => rustix::process::Signal::CONT,
        };
        match pidfd_send_signal(&self.pidfd, number) {
            Ok(()) => {
                self.watch = WatchState::Signalled { at: now, report: next_report(now, now) };
                Outcome::Sent { signal, at: now }
            }
            Err(Errno::SRCH) => Outcome::Ended { at: now },
            Err(Errno::PERM) => self.denied().outcome(self.process.pid),
            Err(other) => Refusal::Failed(other).outcome(self.process.pid),
        }
    }

    /// Checks it again. Returns `None` when there is nothing new.
    pub(super) fn look(&mut self, now: Moment) -> Option<Outcome> {
        if self.has_ended() {
            let fate = self.fate(now);
            let at = self.ended_at(now);
            let told = matches!(self.watch, WatchState::Unreaped { told: true, .. });
            let is_zombie = matches!(fate, Outcome::Zombie { .. });
            // The parent may be about to reap it.
            let is_news = !is_zombie || (!told && now.since(at) >= Self::REAPED_WITHIN);
            let told = told || is_news;
            let look = now.after(if told { Self::LOOK.1 } else { Self::LOOK.0 });
            self.watch = WatchState::Unreaped { at, told, look };
            return is_news.then_some(fate);
        }
        let WatchState::Signalled { at, report } = self.watch else { return None };
        if now < report {
            return None;
        }
        self.watch = WatchState::Signalled { at, report: next_report(at, now) };
        Some(self.alive(now.since(at)))
    }

    /// When to check again. `None` when only its end matters.
    pub(super) fn due(&self) -> Option<Moment> {
        match self.watch {
            WatchState::Running => None,
            WatchState::Signalled { report, .. } => Some(report),
            WatchState::Unreaped { look, .. } => Some(look),
        }
    }

    /// Whether its last thread has ended. A dead leader with living threads has not.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // If polling fails, it counts as alive until the next check.
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// When it ended, or was first seen to have.
    fn ended_at(&self, now: Moment) -> Moment {
        match self.watch {
            WatchState::Unreaped { at, .. } => at,
            WatchState::Running | WatchState::Signalled { .. } => now,
        }
    }

    /// Returns the outcome of its end.
    fn fate(&self, now: Moment) -> Outcome {
        let at = self.ended_at(now);
        match stat::of(self.process.pid, &mut Vec::new()) {
            // Linux before 5.5 does not say -1 for a reaped process, hence the rest.
            Ok(stat)
                if !self.is_reaped()
                    && stat.state == State::Zombie
                    && self.process.start_ticks == Some(stat.start_ticks) =>
            {
                Outcome::Zombie { at, parent: stat.parent }
            }
            _ => Outcome::Ended { at },
        }
    }

    pub(super) fn is_reaped(&self) -> bool {
        named_by(self.pidfd.as_fd()) == Some(-1)
    }

    /// Returns what it does instead of ending.
    fn alive(&self, since: Duration) -> Outcome {
        let pid = self.process.pid;
        let state = stat::of(pid, &mut Vec::new()).map_or(State::Other, |stat| stat.state);
        // If the main thread has ended and another lives, the state of that one is reported.
        let thread = (state == State::Zombie).then(|| living_thread(pid)).flatten();
        let (task, state) = thread.unwrap_or_else(|| (format!("/proc/{pid}").into(), state));
        let wchan = fs::read(task.join("wchan")).ok().filter(|name| !matches!(name.as_slice(), b"" | b"0"));
        Outcome::Alive { state, wchan: wchan.map(Text::new), seconds: since.as_secs() }
    }
}

/// Returns when the viewer is told next that a signalled process is alive: after 2, 5 and 10 seconds, then every 10.
fn next_report(signalled: Moment, now: Moment) -> Moment {
    let seconds = match now.since(signalled).as_secs() {
        0..2 => 2,
        2..5 => 5,
        more => (more / 10 + 1) * 10,
    };
    signalled.after(Duration::from_secs(seconds))
}

/// The PID as the kernel takes it: never 0, which is a group, nor a negative number.
fn kernel_pid(pid: u32) -> Result<Pid, Refusal> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Refusal::NoProcess)
}

/// The PID that `/proc` gives to the process of a pidfd; -1 when it was reaped.
fn named_by(pidfd: BorrowedFd<'_>) -> Option<i64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_after_2_5_and_10_seconds_and_then_every_10() {
        let seconds = |count| Moment(1234).after(Duration::from_secs(count));
        let reports = std::iter::successors(Some(seconds(0)), |&now| Some(next_report(seconds(0), now)));
        assert!(reports.take(6).eq([0, 2, 5, 10, 20, 30].map(seconds)));
        // An agent that was stopped for a while does not report each time it missed.
        assert_eq!(next_report(seconds(0), seconds(61)), seconds(70));
    }
}
