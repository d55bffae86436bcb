//! A watched process: any process of the host whose end a viewer waits for. It is never signalled,
//! so it may belong to anybody, and need not be listed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::held::pid_in_proc;
use super::refusal::Refusal;
use crate::agent::procfs::stat;
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::ProcessId;

/// Why a process is not watched.
pub(super) enum WatchFailure {
    /// No process has the PID.
    NoProcess,
    Refused(Refusal),
}

impl From<WatchFailure> for Outcome {
    fn from(failure: WatchFailure) -> Self {
        match failure {
            WatchFailure::NoProcess => Self::NoProcess,
            WatchFailure::Refused(refusal) => refusal.into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct WatchedProcess {
    /// Without start ticks where `/proc` hides the process.
    pub(super) process: ProcessId,
    end: EndSign,
}

/// How the end of a process is found.
#[derive(Debug)]
enum EndSign {
    /// The pidfd polls readable. It refers to this process only, even if its PID is used again.
    Pidfd(OwnedFd),
    /// The kernel or a sandbox has no pidfds: the PID and these start ticks are looked at now and
    /// then.
    StartTicks { ticks: u64, due: Moment },
}

impl WatchedProcess {
    /// How often a process without a pidfd is looked at.
    const CHECK: Duration = Duration::from_millis(500);

    /// Begins to watch the process that has this PID now. Also returns the kernel's name of it;
    /// `None` where `/proc` hides the process.
    pub(super) fn open(number: u32, now: Moment) -> Result<(Self, Option<Text>), WatchFailure> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(WatchFailure::NoProcess)?;
        // The pidfd comes first: from here on, it refers to one process only.
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::SRCH) => return Err(WatchFailure::NoProcess),
            Err(Errno::NOSYS | Errno::PERM) => None,
            // Which error a thread has depends on the version of the kernel.
            Err(Errno::INVAL | Errno::NOENT) => {
                return Err(WatchFailure::Refused(Refusal::Thread(number)));
            }
            Err(other) => return Err(WatchFailure::Refused(Refusal::Failed(number, other))),
        };
        let mut line = Vec::new();
        let stat = stat::read_process(number, &mut line).ok();
        let start_ticks = stat.map(|stat| stat.start_ticks);
        let comm = stat.map(|stat| Text::new(stat.comm));
        let end = match (pidfd, start_ticks) {
            // The start ticks are those of the pidfd's process, unless `/proc` is of another PID
            // namespace, or the process has ended in between. Its end is reported then.
            (Some(pidfd), _) => match pid_in_proc(pidfd.as_fd()) {
                Some(named) if named != i64::from(number) && named != -1 => {
                    return Err(WatchFailure::Refused(Refusal::ForeignProc(number)));
                }
                _ => EndSign::Pidfd(pidfd),
            },
            (None, Some(ticks)) => EndSign::StartTicks { ticks, due: now },
            (None, None) => return Err(WatchFailure::NoProcess),
        };
        let process = ProcessId {
            pid: number,
            start_ticks,
        };
        Ok((Self { process, end }, comm))
    }

    /// The pidfd, which polls readable when the process ends.
    pub(super) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            EndSign::Pidfd(pidfd) => Some(pidfd.as_fd()),
            EndSign::StartTicks { .. } => None,
        }
    }

    /// When to look at the process again; `None` when its pidfd shows the end.
    pub(super) fn due(&self) -> Option<Moment> {
        match self.end {
            EndSign::Pidfd(_) => None,
            EndSign::StartTicks { due, .. } => Some(due),
        }
    }

    /// Whether all threads of the process have ended.
    pub(super) fn has_ended(&mut self, now: Moment) -> bool {
        match &mut self.end {
            EndSign::Pidfd(pidfd) => {
                let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
                // If polling fails, the process counts as alive until the next check.
                poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
            }
            EndSign::StartTicks { due, .. } if now < *due => false,
            EndSign::StartTicks { ticks, due } => {
                *due = now.after(Self::CHECK);
                stat::has_ended(self.process.pid, *ticks)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Sleeper, TestHandler, wait_for_state};
    use super::*;
    use crate::agent::clock;
    use crate::protocol::command::Command;
    use crate::protocol::snapshot::State;

    fn watch(handler: &TestHandler, pid: u32) -> (ProcessId, Outcome) {
        handler.send(&Command::Watch { pid });
        let reply = handler.reply();
        (reply.process, reply.outcome)
    }

    #[test]
    fn the_end_of_a_watched_process_is_reported_though_nothing_lists_it() {
        let (handler, child) = (TestHandler::readonly(), Sleeper::start());
        let id = child.id();
        let name = Some("sleep".into());
        assert_eq!(watch(&handler, id.pid), (id, Outcome::Watched { name }));
        drop(child);
        let reply = handler.reply();
        assert_eq!(reply.process, id);
        assert!(matches!(reply.outcome, Outcome::Ended { .. }), "{reply:?}");
        let none = ProcessId {
            pid: id.pid,
            start_ticks: None,
        };
        assert_eq!(watch(&handler, id.pid), (none, Outcome::NoProcess));
        assert_eq!(watch(&handler, 0).1, Outcome::NoProcess);
        assert_eq!(watch(&handler, u32::MAX).1, Outcome::NoProcess);
    }

    #[test]
    fn a_process_that_nobody_reaps_has_ended() {
        let (handler, mut child) = (TestHandler::new(), Sleeper::start());
        let id = child.id();
        child.0.kill().expect("it is ours");
        wait_for_state(id, State::Zombie);
        assert!(matches!(
            watch(&handler, id.pid),
            (_, Outcome::Watched { .. })
        ));
        assert!(matches!(handler.reply().outcome, Outcome::Ended { .. }));
    }

    #[test]
    fn a_thread_is_not_watched() {
        let handler = TestHandler::new();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let (_, outcome) = watch(&handler, thread.unsigned_abs());
        let Outcome::Refused { reason } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            reason
                .as_str()
                .ends_with("is a thread, not a process: name its process"),
            "{reason}"
        );
    }

    #[test]
    fn without_a_pidfd_the_start_ticks_show_the_end() {
        let mut child = Sleeper::start();
        let id = child.id();
        let now = clock::now();
        let ticks = id.start_ticks.expect("it lives");
        let mut watched = WatchedProcess {
            process: id,
            end: EndSign::StartTicks { ticks, due: now },
        };
        assert!(!watched.has_ended(now));
        child.0.kill().expect("it is ours");
        child.0.wait().expect("it ends");
        assert_eq!(watched.due(), Some(now.after(WatchedProcess::CHECK)));
        assert!(!watched.has_ended(now), "it is not looked at yet");
        assert!(watched.has_ended(now.after(WatchedProcess::CHECK)));
    }
}
