//! The hands of the agent: a thread that obeys the viewer's commands.
//!
//! It waits for a line, for the end of a process that is held, and for nothing else: no driver, no
//! pass, no lock of another process. So a process can be ended while all of these hang.

mod force;
mod held;
mod input;
mod refusal;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getpid, getppid, getrlimit};
use rustix::stdio;

pub(super) use self::force::finish_act;
use self::held::Held;
use self::input::Input;
use self::refusal::Refusal;
use super::inspect::Inspector;
use super::proc::stat;
use super::writer::Replies;
use super::{Known, Wake, clock, leave};
use crate::cli::SHORTEST_INTERVAL;
use crate::control::{Command, Outcome, Reply};
use crate::snapshot::{Identity, ProcessId};

/// The longest interval a viewer may ask for; beyond it, arithmetic with times could overflow.
const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// Starts the thread that obeys the standard input, and ends the agent when that closes.
pub(super) fn spawn(known: Known, wake: mpsc::Sender<Wake>, replies: Replies, readonly: bool) -> io::Result<()> {
    let mut hands = Hands::new(known, wake, Arc::new(move |reply| replies.send(reply)), readonly);
    thread::Builder::new().name("hands".to_owned()).spawn(move || {
        hands.obey(stdio::stdin());
        leave();
    })?;
    Ok(())
}

/// Takes a reply to the viewer.
pub(super) type Tell = Arc<dyn Fn(Reply) + Send + Sync>;

struct Hands {
    known: Known,
    wake: mpsc::Sender<Wake>,
    tell: Tell,
    readonly: bool,
    own: Own,
    inspector: Inspector,
    held: BTreeMap<ProcessId, Held>,
    /// Those of whose end the viewer was told.
    gone: BTreeSet<ProcessId>,
    most_held: usize,
}

impl Hands {
    /// Each costs a descriptor: so many, if the system lets us have twice that.
    const MOST_HELD: usize = 4096;

    fn new(known: Known, wake: mpsc::Sender<Wake>, tell: Tell, readonly: bool) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.and_then(|it| usize::try_from(it).ok());
        Self {
            known,
            wake,
            readonly,
            own: Own::now(),
            inspector: Inspector::new(tell.clone()),
            tell,
            held: BTreeMap::new(),
            gone: BTreeSet::new(),
            most_held: descriptors.map_or(Self::MOST_HELD, |it| Self::MOST_HELD.min(it / 2)),
        }
    }

    /// Obeys one line after another until there are no more.
    fn obey(&mut self, lines: impl AsFd) {
        let mut input = Input::new(&lines);
        loop {
            match self.wait(&lines) {
                Ok(true) => match input.read() {
                    Ok(commands) => commands.into_iter().for_each(|command| self.perform(&command)),
                    Err(_end) => return,
                },
                Ok(false) => (),
                Err(error) => {
                    // Without waiting there is no obeying, and an agent that obeys nobody must not stay.
                    let _closed = writeln!(io::stderr(), "gputop agent: cannot wait for commands: {error}");
                    return;
                }
            }
            self.watch();
        }
    }

    /// Waits for a line, for the end of a process, or for the next time to look. True when a line came.
    fn wait(&self, lines: &impl AsFd) -> io::Result<bool> {
        let now = clock::now();
        let due = self.held.values().filter_map(|held| held.due(now)).min();
        let timeout = due.map(|due| due.since(now)).map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        let mut fds = vec![PollFd::new(lines, PollFlags::IN)];
        fds.extend(
            self.held.values().filter_map(Held::ends).map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN)),
        );
        match poll(&mut fds, timeout.as_ref()) {
            // Hang-up and error count too: reading tells which.
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn perform(&mut self, command: &Command) {
        match *command {
            Command::Interval { milliseconds } => {
                let interval = Duration::from_millis(milliseconds).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
                self.wake(Wake::Interval(interval));
            }
            Command::Scan => self.wake(Wake::Scan),
            Command::Inspect { process } => self.inspector.begin(process),
            Command::Hold { process } => {
                let outcome = match self.hold(process) {
                    Ok(()) => Outcome::Held { caution: None },
                    Err(refusal) => refusal.outcome(process.pid),
                };
                self.reply(process, outcome);
            }
            Command::Force { ref processes } => self.force(processes),
            Command::Release { process } => {
                self.held.remove(&process);
            }
            Command::Signal { process, signal } => {
                let now = clock::now();
                let outcome = match self.held.get_mut(&process) {
                    Some(held) => held.signal(signal, now),
                    None if self.readonly => Refusal::ReadOnly.outcome(process.pid),
                    None => Refusal::NotHeld.outcome(process.pid),
                };
                self.tell(process, outcome);
            }
        }
    }

    /// Gets hold of a process. The rules that need no look at the process come first.
    fn hold(&mut self, process: ProcessId) -> Result<(), Refusal> {
        let pid = process.pid;
        if self.readonly {
            return Err(Refusal::ReadOnly);
        }
        if let Some(refusal) = self.own.refusal(pid) {
            return Err(refusal);
        }
        if process.start_ticks.is_none() {
            return Err(Refusal::Unverified);
        }
        let known = self.known.get(pid).ok_or(Refusal::Unknown)?;
        match known.identity {
            _ if known.process != process => return Err(Refusal::Ended),
            Identity::Unverified => return Err(Refusal::Unverified),
            Identity::Fresh => return Err(Refusal::Fresh),
            Identity::Sure => (),
        }
        // One that has ended is taken anew, so that the viewer is told of its end again.
        if self.held.get(&process).is_some_and(|held| held.ends().is_some()) {
            return Ok(());
        }
        if self.held.len() >= self.most_held {
            return Err(Refusal::TooMany(self.most_held));
        }
        self.gone.remove(&process);
        self.held.insert(process, Held::open(process)?);
        Ok(())
    }

    /// Looks at every process that is held, and says what is new.
    fn watch(&mut self) {
        let now = clock::now();
        let mut news = Vec::new();
        let mut has_one_ended = false;
        for (&process, held) in &mut self.held {
            let was_alive = held.ends().is_some();
            news.extend(held.look(now).map(|outcome| (process, outcome)));
            has_one_ended |= was_alive && held.ends().is_none();
        }
        if has_one_ended {
            // Its memory is back, even before its parent has asked for it.
            self.wake(Wake::Scan);
        }
        for (process, outcome) in news {
            self.tell(process, outcome);
        }
    }

    /// Replies, and lets go of a process that is no more.
    fn tell(&mut self, process: ProcessId, outcome: Outcome) {
        if matches!(outcome, Outcome::Ended { .. }) {
            self.held.remove(&process);
            if self.gone.len() >= self.most_held {
                self.gone.clear();
            }
            self.gone.insert(process);
            self.wake(Wake::Scan);
        }
        self.reply(process, outcome);
    }

    fn reply(&self, process: ProcessId, outcome: Outcome) {
        (self.tell)(Reply { process, outcome });
    }

    fn wake(&self, wake: Wake) {
        // The loop is gone only when the agent is leaving.
        let _leaving: Result<(), mpsc::SendError<Wake>> = self.wake.send(wake);
    }
}

/// The processes that gputop must not end: itself and whatever it runs in.
struct Own {
    ourselves: [u32; 2],
    ancestors: BTreeSet<u32>,
}

impl Own {
    /// As it is now. The viewer is asked for at once: after its death the parent is someone else.
    fn now() -> Self {
        let agent = getpid().as_raw_nonzero().get().unsigned_abs();
        let viewer = getppid().map_or(agent, |parent| parent.as_raw_nonzero().get().unsigned_abs());
        let mut ancestors = BTreeSet::new();
        let mut next = viewer;
        // A process that is read while its parent ends can make a circle of it.
        while next != 0 && ancestors.insert(next) {
            next = stat::of(next, &mut Vec::new()).map_or(0, |stat| stat.parent);
        }
        Self { ourselves: [agent, viewer], ancestors }
    }

    /// Why a process with that PID must not be signalled, whoever it is; absent when there is no such reason.
    fn refusal(&self, pid: u32) -> Option<Refusal> {
        if pid <= 1 || i32::try_from(pid).is_err() {
            Some(Refusal::NoProcess)
        } else if self.ourselves.contains(&pid) {
            Some(Refusal::Ourselves)
        } else {
            self.ancestors.contains(&pid).then_some(Refusal::Ancestor)
        }
    }
}
