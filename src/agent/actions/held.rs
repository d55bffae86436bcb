//! One process that is held: proven to be the one the person saw, signalled through its pidfd and
//! nowhere else, and watched until it is gone.
//!
//! A PID alone is never signalled. Its pidfd reads as ready when the last thread of the process has
//! ended, and its `fdinfo` says -1 when the parent has reaped it as well.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal, test_kill_process};

use super::audit::{Deed, Mode};
use super::refusal::{Owner, Refusal};
use crate::agent::procfs::stat::{self, ProcStat, living_thread};
use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::protocol::command::Signal;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{ProcessId, State};

/// A process that can be signalled safely.
#[derive(Debug)]
pub(super) struct Held {
    process: ProcessId,
    comm: Text,
    /// Its arguments, if the loop has read them: here, reading them could hang.
    argv: Option<Argv>,
    pidfd: OwnedFd,
    watch: Watch,
}

/// What is being waited for.
#[derive(Debug, Clone, Copy)]
enum Watch {
    /// It runs, and was not signalled.
    Running,
    /// It was signalled, and runs. When it still does at `report`, the viewer is told.
    Signalled { at: Moment, report: Moment },
    /// Its last thread ended, and its parent has not asked how. `told` when the viewer knows. Whether it has
    /// asked is looked at when it is time to `look`.
    Unreaped { at: Moment, told: bool, look: Moment },
}

impl Held {
    /// How long a parent may take to reap before its child is called a zombie.
    const REAPED_WITHIN: Duration = Duration::from_millis(200);

    /// How often one looks whether it was reaped: at first, and once it is called a zombie.
    /// The pidfd is ready all the time, so waiting on it would spin.
    const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

    /// Gets hold of that process, or says why not.
    ///
    /// 1. The pidfd comes first: from here on, whoever it names stays the one it names.
    /// 2. The start ticks prove that this is the process the person saw. That they cannot repeat is
    ///    the caller's part: it asks only for a process that was read a whole tick after its start.
    /// 3. The `fdinfo` proves that `/proc` spoke of the same process, in the same PID namespace.
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
        let held = Self { process, comm: Text::new(stat.comm), argv: None, pidfd, watch: Watch::Running };
        held.check_permission(pid)?;
        Ok(held)
    }

    /// Whether the kernel would let us signal it.
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

    /// The kernel's short name for it.
    pub(super) fn comm(&self) -> &Text {
        &self.comm
    }

    /// Whose it is; absent when it is gone.
    pub(super) fn owner(&self) -> Option<Owner> {
        Owner::of(self.process.pid).filter(|_| !self.is_reaped())
    }

    /// The same, known by these arguments.
    pub(super) fn known_by(self, argv: Option<Argv>) -> Self {
        Self { argv, ..self }
    }

    /// It runs this, if that was not known before: what has ended has no arguments.
    pub(super) fn learn_argv(&mut self, argv: &Argv) {
        if !argv.is_empty() {
            self.argv.get_or_insert_with(|| argv.clone());
        }
    }

    /// What it ran; absent when that is not known.
    pub(super) fn into_argv(self) -> Option<Argv> {
        self.argv
    }

    /// What is to be written down of a signal to it.
    pub(super) fn deed(&self, signal: Signal, mode: Mode) -> Deed {
        let (process, comm, argv) = (self.process, self.comm.clone(), self.argv.clone());
        Deed { process, comm, argv, owner: self.owner(), signal, mode }
    }

    /// Its parent now; absent when it is gone.
    pub(super) fn parent(&self) -> Option<u32> {
        self.read(|stat| stat.parent)
    }

    /// What it does now; absent when it is gone.
    pub(super) fn state(&self) -> Option<State> {
        self.read(|stat| stat.state)
    }

    fn read<T>(&self, part: impl FnOnce(ProcStat<'_>) -> T) -> Option<T> {
        let mut line = Vec::new();
        let part = stat::of(self.process.pid, &mut line).map(part).ok();
        // While it is not reaped, nobody else had its PID.
        part.filter(|_| !self.is_reaped())
    }

    /// Another descriptor of it; absent when there is no room for one.
    pub(super) fn duplicate(&self) -> Option<OwnedFd> {
        self.pidfd.try_clone().ok()
    }

    /// Sends a signal that ends nothing, and watches nothing. One that has ended does not mind.
    pub(super) fn send(&self, signal: rustix::process::Signal) -> Result<(), Refusal> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(Errno::PERM) => Err(self.denied()),
            Err(other) => Err(Refusal::Failed(other)),
        }
    }

    /// What reads as ready when it ends; absent once it has.
    pub(super) fn ends(&self) -> Option<BorrowedFd<'_>> {
        match self.watch {
            Watch::Running | Watch::Signalled { .. } => Some(self.pidfd.as_fd()),
            Watch::Unreaped { .. } => None,
        }
    }

    /// Sends the signal, and begins to watch what comes of it.
    pub(super) fn signal(&mut self, signal: Signal, now: Moment) -> Outcome {
        // A signal to a zombie "succeeds" and does nothing.
        if self.has_ended() {
            let fate = self.fate(now);
            self.watch = Watch::Unreaped { at: self.ended_at(now), told: true, look: now.after(Self::LOOK.1) };
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
                self.watch = Watch::Signalled { at: now, report: next_report(now, now) };
                Outcome::Sent { signal, at: now }
            }
            Err(Errno::SRCH) => Outcome::Ended { at: now },
            Err(Errno::PERM) => self.denied().outcome(self.process.pid),
            Err(other) => Refusal::Failed(other).outcome(self.process.pid),
        }
    }

    /// Looks at it again. Absent when there is nothing new to say.
    pub(super) fn look(&mut self, now: Moment) -> Option<Outcome> {
        if self.has_ended() {
            let fate = self.fate(now);
            let at = self.ended_at(now);
            let told = matches!(self.watch, Watch::Unreaped { told: true, .. });
            let is_zombie = matches!(fate, Outcome::Zombie { .. });
            // A parent that is about to reap it makes no zombie.
            let is_news = !is_zombie || (!told && now.since(at) >= Self::REAPED_WITHIN);
            let told = told || is_news;
            let look = now.after(if told { Self::LOOK.1 } else { Self::LOOK.0 });
            self.watch = Watch::Unreaped { at, told, look };
            return is_news.then_some(fate);
        }
        let Watch::Signalled { at, report } = self.watch else { return None };
        if now < report {
            return None;
        }
        self.watch = Watch::Signalled { at, report: next_report(at, now) };
        Some(self.alive(now.since(at)))
    }

    /// When to look again, should nothing happen before.
    pub(super) fn due(&self) -> Option<Moment> {
        match self.watch {
            Watch::Running => None,
            Watch::Signalled { report, .. } => Some(report),
            Watch::Unreaped { look, .. } => Some(look),
        }
    }

    /// Whether its last thread has ended. A dead leader with living threads has not.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // What cannot be asked is taken for alive: the next look asks again.
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// When it ended, or was first seen to have.
    fn ended_at(&self, now: Moment) -> Moment {
        match self.watch {
            Watch::Unreaped { at, .. } => at,
            Watch::Running | Watch::Signalled { .. } => now,
        }
    }

    /// What became of it, now that it has ended.
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

    /// What it does instead of ending.
    fn alive(&self, since: Duration) -> Outcome {
        let pid = self.process.pid;
        let state = stat::of(pid, &mut Vec::new()).map_or(State::Other, |stat| stat.state);
        // When the leader has ended and a thread lives on, what keeps that one is the answer.
        let thread = (state == State::Zombie).then(|| living_thread(pid)).flatten();
        let (task, state) = thread.unwrap_or_else(|| (format!("/proc/{pid}").into(), state));
        let wchan = fs::read(task.join("wchan")).ok().filter(|name| !matches!(name.as_slice(), b"" | b"0"));
        Outcome::Alive { state, wchan: wchan.map(Text::new), seconds: since.as_secs() }
    }
}

/// When the viewer is told next that a signalled process is alive: after 2, 5 and 10 seconds, then every 10.
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
