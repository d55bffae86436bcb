//! The thread that performs the viewer's commands.
//!
//! The thread waits only for a line and for the end of a held process: for no driver, no pass, and no lock of another
//! process. So a process can be ended while all of these hang.

mod audit;
mod caution;
mod command_reader;
mod force;
mod held;
mod inspect;
#[cfg(test)]
mod pid_reuse_tests;
mod refusal;
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

pub(super) use self::audit::state_home;
use self::audit::{Audit, SignalMode};
use self::caution::Requester;
use self::command_reader::CommandReader;
pub(super) use self::force::{break_off_act, finish_act};
use self::held::HeldProcess;
use self::inspect::Inspector;
use self::refusal::Refusal;
use super::line_writer::Replies;
use super::procfs::stat;
use super::{AgentEvent, CommandTargets, clock, leave};
use crate::base::text::Text;
use crate::protocol::agent_options::{LONGEST_INTERVAL, SHORTEST_INTERVAL};
use crate::protocol::command::Command;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::{Identity, ProcessId};

/// How long an agent that leaves waits for its audit log to be written.
const AUDIT_WAIT: Duration = Duration::from_millis(800);

/// The name of the thread.
pub(super) const THREAD: &str = "actions";

/// Starts the thread, which performs commands from the standard input, and ends the agent when that closes.
pub(super) fn spawn(
    known: CommandTargets,
    wake: mpsc::Sender<AgentEvent>,
    replies: Replies,
    readonly: bool,
) -> io::Result<()> {
    let tell: ReplySender = Arc::new(move |reply| replies.send(reply));
    let audit = Audit::new(state_home(), tell.clone());
    let mut handler = CommandHandler::new(known, wake, tell, audit, readonly);
    thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
        handler.obey(stdio::stdin());
        handler.audit.finish(AUDIT_WAIT);
        leave();
    })?;
    Ok(())
}

/// Why a wait ended: a line can be read, or processes have ended.
struct WaitResult {
    line: bool,
    ended: BTreeSet<ProcessId>,
}

/// Sends a reply to the viewer.
pub(super) type ReplySender = Arc<dyn Fn(Reply) + Send + Sync>;

struct CommandHandler {
    known: CommandTargets,
    wake: mpsc::Sender<AgentEvent>,
    tell: ReplySender,
    readonly: bool,
    own: ProtectedPids,
    asker: Requester,
    inspector: Inspector,
    audit: Audit,
    held: BTreeMap<ProcessId, HeldProcess>,
    /// Processes whose end was reported to the viewer.
    gone: BTreeSet<ProcessId>,
    most_held: usize,
}

impl CommandHandler {
    /// The most held processes, each with a descriptor, if the limit on descriptors is at least twice that.
    const MOST_HELD: usize = 4096;

    fn new(
        known: CommandTargets,
        wake: mpsc::Sender<AgentEvent>,
        tell: ReplySender,
        audit: Audit,
        readonly: bool,
    ) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.and_then(|it| usize::try_from(it).ok());
        Self {
            known,
            wake,
            readonly,
            own: ProtectedPids::now(),
            asker: Requester::now(),
            inspector: Inspector::new(tell.clone()),
            tell,
            audit,
            held: BTreeMap::new(),
            gone: BTreeSet::new(),
            most_held: descriptors.map_or(Self::MOST_HELD, |it| Self::MOST_HELD.min(it / 2)),
        }
    }

    /// Performs commands until the input closes.
    fn obey(&mut self, lines: impl AsFd) {
        let mut input = CommandReader::new(&lines);
        loop {
            match self.wait(&lines) {
                Ok(WaitResult { line, ended }) => {
                    if line {
                        match input.read() {
                            Ok(commands) => commands.into_iter().for_each(|command| self.perform(&command)),
                            Err(_end) => return,
                        }
                    }
                    self.watch(&ended);
                }
                Err(error) => {
                    // An agent that cannot wait for commands must not stay.
                    let _closed = writeln!(io::stderr(), "gputop agent: cannot wait for commands: {error}");
                    return;
                }
            }
        }
    }

    /// Waits for a line, for the end of a held process, or until a held process is due.
    fn wait(&self, lines: &impl AsFd) -> io::Result<WaitResult> {
        let now = clock::now();
        let due = self.held.values().filter_map(HeldProcess::due).min();
        let timeout = due.map(|due| due.since(now)).map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        let ends = || self.held.iter().filter_map(|(process, held)| Some((process, held.ends()?)));
        let mut fds = vec![PollFd::new(lines, PollFlags::IN)];
        fds.extend(ends().map(|(_, pidfd)| PollFd::from_borrowed_fd(pidfd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        // Hang-up and error count too: the read that follows returns them.
        let mut is_ready = fds.iter().map(|it| !it.revents().is_empty());
        let line = is_ready.next() == Some(true);
        let ended = ends().zip(is_ready).filter_map(|((process, _), is_ready)| is_ready.then_some(*process)).collect();
        Ok(WaitResult { line, ended })
    }

    fn perform(&mut self, command: &Command) {
        match *command {
            Command::Interval { milliseconds } => {
                let interval = Duration::from_millis(milliseconds).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
                self.wake(AgentEvent::Interval(interval));
            }
            Command::Scan => self.wake(AgentEvent::Scan),
            Command::Full => self.wake(AgentEvent::Full),
            Command::Detail { ref gpu } => self.wake(AgentEvent::Detail(gpu.clone())),
            Command::Inspect { process } => self.inspector.begin(process),
            Command::Hold { process } => {
                let outcome = match self.hold(process) {
                    Ok(caution) => Outcome::Held { caution },
                    Err(refusal) => refusal.outcome(process.pid),
                };
                self.reply(process, outcome);
            }
            Command::Force { ref processes } => {
                for process in processes {
                    self.learn_argv(*process);
                }
                self.force(processes);
            }
            Command::Release { process } => {
                self.held.remove(&process);
            }
            Command::Signal { process, signal } => {
                self.learn_argv(process);
                let outcome = match self.held.get_mut(&process) {
                    Some(held) => {
                        self.audit.act(held.deed(signal, SignalMode::One));
                        held.signal(signal, clock::now())
                    }
                    None if self.readonly => Refusal::ReadOnly.outcome(process.pid),
                    None => Refusal::NotHeld.outcome(process.pid),
                };
                self.tell(process, outcome);
            }
        }
    }

    /// Holds a process. Returns a caution, if there is a reason for one. Rules that need no look at the process come first.
    fn hold(&mut self, process: ProcessId) -> Result<Option<Text>, Refusal> {
        let pid = process.pid;
        if self.readonly {
            return Err(Refusal::ReadOnly);
        }
        if let Some(refusal) = self.own.refusal(pid) {
            return Err(refusal);
        }
        if process.start_ticks.is_none() {
            return Err(Refusal::Absent);
        }
        let known = self.known.get(pid).ok_or(Refusal::Unknown)?;
        match known.facts.identity {
            _ if known.process != process => return Err(Refusal::Ended),
            Identity::Unverified => return Err(Refusal::Unverified),
            Identity::Fresh => return Err(Refusal::Fresh),
            Identity::Sure => (),
        }
        // A process that has ended is held again, so that its end is reported again.
        if self.held.get(&process).is_none_or(|held| held.ends().is_none()) {
            if self.held.len() >= self.most_held {
                return Err(Refusal::TooMany(self.most_held));
            }
            self.held.insert(process, HeldProcess::open(process)?.known_by(known.facts.argv.clone().ok()));
            self.gone.remove(&process);
        }
        let Some(held) = self.held.get(&process) else { return Err(Refusal::NotHeld) };
        let origin = known.facts.origin.as_ref().ok().map(Text::as_str);
        Ok(caution::about(held.comm(), held.owner().as_ref(), origin, self.asker))
    }

    /// Takes over the arguments of a held process, if they were read meanwhile.
    fn learn_argv(&mut self, process: ProcessId) {
        if let (Some(held), Some(known)) = (self.held.get_mut(&process), self.known.get(process.pid))
            && known.process == process
            && let Ok(argv) = &known.facts.argv
        {
            held.learn_argv(argv);
        }
    }

    /// Checks these processes and those that are due, and reports what is new.
    fn watch(&mut self, ended: &BTreeSet<ProcessId>) {
        let now = clock::now();
        let mut news = Vec::new();
        let mut has_one_ended = false;
        for (&process, held) in &mut self.held {
            if !ended.contains(&process) && held.due().is_none_or(|due| now < due) {
                continue;
            }
            let was_alive = held.ends().is_some();
            news.extend(held.look(now).map(|outcome| (process, outcome)));
            has_one_ended |= was_alive && held.ends().is_none();
        }
        if has_one_ended {
            // Its memory is free, even before its parent has reaped it.
            self.wake(AgentEvent::Scan);
        }
        for (process, outcome) in news {
            self.tell(process, outcome);
        }
    }

    /// Records and sends an outcome, and releases a process that has ended.
    fn tell(&mut self, process: ProcessId, outcome: Outcome) {
        self.audit.fate(process, &outcome);
        if matches!(outcome, Outcome::Ended { .. }) {
            if let Some(argv) = self.held.remove(&process).and_then(HeldProcess::into_argv) {
                self.wake(AgentEvent::Ended(argv));
            }
            if self.gone.len() >= self.most_held {
                self.gone.clear();
            }
            self.gone.insert(process);
            self.wake(AgentEvent::Scan);
        }
        self.reply(process, outcome);
    }

    fn reply(&self, process: ProcessId, outcome: Outcome) {
        (self.tell)(Reply { process, outcome });
    }

    fn wake(&self, wake: AgentEvent) {
        // The main loop ends only with the agent.
        let _leaving: Result<(), mpsc::SendError<AgentEvent>> = self.wake.send(wake);
    }
}

/// The processes that gputop must not end: the agent, its viewer, and their ancestors.
struct ProtectedPids {
    ourselves: [u32; 2],
    ancestors: BTreeSet<u32>,
}

impl ProtectedPids {
    /// Reads the ancestors now: after the end of the viewer, the parent is another process.
    fn now() -> Self {
        let agent = getpid().as_raw_nonzero().get().unsigned_abs();
        let viewer = getppid().map_or(agent, |parent| parent.as_raw_nonzero().get().unsigned_abs());
        let mut ancestors = BTreeSet::new();
        let mut next = viewer;
        // Parents that change while they are read could form a circle.
        while next != 0 && ancestors.insert(next) {
            next = stat::of(next, &mut Vec::new()).map_or(0, |stat| stat.parent);
        }
        Self { ourselves: [agent, viewer], ancestors }
    }

    /// Returns why no process with this PID may be signalled. `None` when there is no such reason.
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
