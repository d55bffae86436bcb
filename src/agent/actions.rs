//! The thread that performs the viewer's commands.
//!
//! The thread waits only for commands, for the end of held processes and for the time to check
//! them: for no driver, no pass, and no lock of another process. So the user can end a process
//! while all of these hang.

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
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getpid, getppid, getrlimit};

use self::audit::{Audit, SignalMode};
use self::caution::{Requester, caution};
pub(super) use self::command_reader::CommandReader;
pub(super) use self::force::{continue_stopped, finish_forced_end};
use self::held::HeldProcess;
use self::inspect::Inspector;
use self::refusal::Refusal;
use self::watched::{WatchFailure, WatchedProcess};
use super::procfs::stat;
use super::{AgentEvent, CommandTargets, clock, leave, print_error, probe};
use crate::base::text::Text;
use crate::files::folders::state_folder;
use crate::protocol::agent_options::{LONGEST_INTERVAL, SHORTEST_INTERVAL};
use crate::protocol::command::Command;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::{Identity, ProcessId};

/// How long an agent that ends waits for its audit log to be written.
const AUDIT_WAIT: Duration = Duration::from_millis(800);

pub(super) const THREAD: &str = "actions";

pub(super) type ReplySender = Arc<dyn Fn(Reply) + Send + Sync>;

/// The commands of the viewer: those that were read already, and the input of those to come.
pub(super) struct CommandInput {
    pub first: Vec<Command>,
    pub reader: CommandReader<'static>,
}

/// Starts the thread. It performs the commands, and ends the agent when their input closes, or is
/// silent for as long as a command says.
pub(super) fn spawn(
    input: CommandInput,
    targets: CommandTargets,
    events: mpsc::Sender<AgentEvent>,
    replies: ReplySender,
    readonly: bool,
    logs_signals: bool,
) -> io::Result<()> {
    let audit = logs_signals.then(|| Audit::new(state_folder(), replies.clone()));
    let mut handler = CommandHandler::new(targets, events, replies, audit, readonly);
    thread::Builder::new()
        .name(THREAD.to_owned())
        .spawn(move || {
            handler.run(input.first, input.reader);
            if let Some(audit) = handler.audit {
                audit.finish(AUDIT_WAIT);
            }
            leave();
        })?;
    Ok(())
}

struct CommandHandler {
    targets: CommandTargets,
    events: mpsc::Sender<AgentEvent>,
    replies: ReplySender,
    readonly: bool,
    protected: ProtectedPids,
    requester: Requester,
    inspector: Inspector,
    /// `None` when signals are not logged.
    audit: Option<Audit>,
    held: BTreeMap<ProcessId, HeldProcess>,
    watched: Vec<WatchedProcess>,
    reported_ended: BTreeSet<ProcessId>,
    most_held: usize,
    longest_stop: Duration,
}

impl CommandHandler {
    /// The most processes that are held at once, if this is at most half of the limit on
    /// descriptors: each takes one.
    const MOST_HELD: usize = 4096;

    /// The longest time for which a forced end stops processes before it is known whether all can
    /// be ended.
    const LONGEST_STOP: Duration = Duration::from_secs(3);

    fn new(
        targets: CommandTargets,
        events: mpsc::Sender<AgentEvent>,
        replies: ReplySender,
        audit: Option<Audit>,
        readonly: bool,
    ) -> Self {
        let descriptors = getrlimit(Resource::Nofile)
            .current
            .and_then(|limit| usize::try_from(limit).ok());
        Self {
            targets,
            events,
            readonly,
            protected: ProtectedPids::read(),
            requester: Requester::current(),
            inspector: Inspector::new(replies.clone()),
            replies,
            audit,
            held: BTreeMap::new(),
            watched: Vec::new(),
            reported_ended: BTreeSet::new(),
            most_held: descriptors.map_or(Self::MOST_HELD, |limit| Self::MOST_HELD.min(limit / 2)),
            longest_stop: Self::LONGEST_STOP,
        }
    }

    fn run(&mut self, first: Vec<Command>, mut reader: CommandReader<'_>) {
        let input = reader.input;
        for command in first {
            self.perform(command);
        }
        loop {
            let (has_input, ended) = match self.wait(&input, reader.silence_left()) {
                Ok(ready) => ready,
                // An agent that cannot wait for commands must end.
                Err(error) => return print_error(&format!("cannot wait for commands: {error}")),
            };
            if has_input {
                let Ok(commands) = reader.read() else { return };
                for command in commands {
                    self.perform(command);
                }
            }
            if reader.silence_left() == Some(Duration::ZERO) {
                return;
            }
            self.check_held(&ended);
            self.check_watched();
        }
    }

    /// Waits for input for at most this time, for the end of a held or watched process, or until one
    /// is due for a check. Returns whether there is input, and the held processes that ended.
    fn wait(
        &self,
        input: &impl AsFd,
        silence_left: Option<Duration>,
    ) -> io::Result<(bool, BTreeSet<ProcessId>)> {
        let held = self.held.values().filter_map(|held| held.due);
        let watched = self.watched.iter().filter_map(WatchedProcess::due);
        let due = held.chain(watched).min();
        let timeout = due
            .map(|due| due.since(clock::now()))
            .into_iter()
            .chain(silence_left)
            .min()
            .and_then(|timeout| Timespec::try_from(timeout).ok());
        let running = || {
            self.held
                .iter()
                .filter_map(|(process, held)| Some((process, held.running_pidfd()?)))
        };
        let mut fds = vec![PollFd::new(input, PollFlags::IN)];
        let watched = self.watched.iter().filter_map(WatchedProcess::pidfd);
        let pidfds = running().map(|(_, pidfd)| pidfd).chain(watched);
        fds.extend(pidfds.map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        // A hang-up or an error counts as ready: the next read reports it.
        let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_input = is_ready.next() == Some(true);
        let ended = running()
            .zip(is_ready)
            .filter(|(_, is_ready)| *is_ready)
            .map(|((process, _), _)| *process);
        Ok((has_input, ended.collect()))
    }

    fn perform(&mut self, command: Command) {
        match command {
            // The reader knows of the silence.
            Command::Interval { milliseconds, .. } => {
                let interval =
                    Duration::from_millis(milliseconds).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
                self.send_event(AgentEvent::Interval(interval));
            }
            Command::Scan => self.send_event(AgentEvent::Scan),
            Command::Full => self.send_event(AgentEvent::Full),
            Command::Detail { gpu } => self.send_event(AgentEvent::Detail(gpu)),
            Command::Inspect { process } => self.inspector.begin(process),
            Command::Hold { process } => {
                let outcome = self
                    .hold(process)
                    .map_or_else(Outcome::from, |caution| Outcome::Held { caution });
                self.reply(process, outcome);
            }
            Command::Force { processes } => {
                for process in &processes {
                    self.update_argv(*process);
                }
                // If one has another owner, a person decides anew about all.
                if self.report_new_owners(&processes) {
                    for process in processes {
                        self.report_caution(process);
                    }
                } else {
                    self.force(&processes);
                }
            }
            Command::AskProbe { process, request } => {
                let outcome = match self.check_identity(process) {
                    Ok(()) if self.is_of_demo(process) => Outcome::Refused {
                        reason: "--demo simulates the report of this program: nobody answers"
                            .into(),
                    },
                    Ok(()) => probe::ask(process, &request),
                    Err(refusal) => refusal.into(),
                };
                self.reply(process, outcome);
            }
            Command::Release { process } => {
                self.held.remove(&process);
            }
            Command::Watch { pid } => self.watch(pid),
            Command::Signal { process, .. } if self.report_new_owners(&[process]) => {}
            Command::Signal { process, signal } => {
                self.update_argv(process);
                let outcome = match self.held.get_mut(&process) {
                    Some(held) => {
                        if let Some(audit) = &mut self.audit {
                            audit.signal(held.record(signal, SignalMode::One));
                        }
                        held.signal(signal, clock::now())
                    }
                    None if self.readonly => Refusal::ReadOnly.into(),
                    None => Refusal::NotHeld(process.pid).into(),
                };
                self.report(process, outcome);
            }
        }
    }

    /// Returns a caution, if there is a reason for one. The checks that read nothing come first.
    fn hold(&mut self, process: ProcessId) -> Result<Option<Text>, Refusal> {
        let pid = process.pid;
        if self.readonly {
            return Err(Refusal::ReadOnly);
        }
        self.protected.check(pid)?;
        self.check_identity(process)?;
        // A held process that has ended is opened again, so that its end is reported again.
        if self
            .held
            .get(&process)
            .is_none_or(|held| held.running_pidfd().is_none())
        {
            if self.held.len() >= self.most_held {
                return Err(Refusal::TooMany(pid, self.most_held));
            }
            self.held.insert(process, HeldProcess::open(process)?);
            self.reported_ended.remove(&process);
            self.update_argv(process);
        }
        Ok(self.caution(process))
    }

    /// Watches any process of the host: no signal follows, so nothing protects it.
    fn watch(&mut self, pid: u32) {
        let number = self.held.len() + self.watched.len();
        let opened = if number >= self.most_held {
            Err(WatchFailure::Refused(Refusal::TooMany(pid, self.most_held)))
        } else {
            WatchedProcess::open(pid, clock::now())
        };
        match opened {
            Ok((watched, name)) => {
                self.reply(watched.process, Outcome::Watched { name });
                self.watched.push(watched);
            }
            Err(failure) => {
                let process = ProcessId {
                    pid,
                    start_ticks: None,
                };
                self.reply(process, failure.into());
            }
        }
    }

    fn check_watched(&mut self) {
        let now = clock::now();
        let ended = self
            .watched
            .extract_if(.., |watched| watched.has_ended(now));
        let ended: Vec<ProcessId> = ended.map(|watched| watched.process).collect();
        for process in ended {
            self.reply(process, Outcome::Ended { at: now });
        }
    }

    /// Refuses a process that is not in the newest snapshot, or whose identity is not sure.
    fn check_identity(&self, process: ProcessId) -> Result<(), Refusal> {
        let pid = process.pid;
        if process.start_ticks.is_none() {
            return Err(Refusal::Absent(pid));
        }
        let (known, facts) = self.targets.get(pid).ok_or(Refusal::Unknown(pid))?;
        match facts.identity {
            _ if known != process => Err(Refusal::Ended(pid)),
            Identity::Unverified => Err(Refusal::Unverified(pid)),
            Identity::Fresh => Err(Refusal::Fresh(pid)),
            Identity::Sure => Ok(()),
        }
    }

    /// Whether a process is one of a simulated machine.
    fn is_of_demo(&self, process: ProcessId) -> bool {
        let known = self.targets.get(process.pid);
        known.is_some_and(|(_, facts)| facts.is_of_demo())
    }

    /// Returns why to think twice about ending a held process; `None` when there is no reason.
    fn caution(&self, process: ProcessId) -> Option<Text> {
        let held = self.held.get(&process)?;
        let known = self
            .targets
            .get(process.pid)
            .filter(|(known, _)| *known == process);
        let origin = known
            .as_ref()
            .and_then(|(_, facts)| facts.origin.as_ref().ok())
            .map(Text::as_str);
        caution(held.comm.as_str(), held.owner(), origin, self.requester)
    }

    /// Tells the viewer the caution about a held process anew.
    fn report_caution(&self, process: ProcessId) {
        self.reply(
            process,
            Outcome::Held {
                caution: self.caution(process),
            },
        );
    }

    /// Tells the viewer which of these held processes have another owner than when they were last
    /// looked at. A signal to them waits for the user, who saw the old owner. Returns whether there
    /// is one.
    fn report_new_owners(&mut self, processes: &[ProcessId]) -> bool {
        let mut has_one = false;
        for process in processes {
            if self
                .held
                .get_mut(process)
                .and_then(HeldProcess::new_owner)
                .is_some()
            {
                has_one = true;
                self.send_event(AgentEvent::OwnerChanged(*process));
                self.report_caution(*process);
            }
        }
        has_one
    }

    /// Keeps the arguments of a held process once the main loop knows them. The empty arguments of
    /// a zombie are not kept.
    fn update_argv(&mut self, process: ProcessId) {
        if let (Some(held), Some((known, facts))) =
            (self.held.get_mut(&process), self.targets.get(process.pid))
            && known == process
            && let Some(argv) = facts.argv.as_ref().ok().filter(|argv| !argv.is_empty())
        {
            held.argv.get_or_insert_with(|| argv.clone());
        }
    }

    fn check_held(&mut self, ended: &BTreeSet<ProcessId>) {
        let now = clock::now();
        let (mut news, mut checked, mut has_one_ended) = (Vec::new(), Vec::new(), false);
        for (process, held) in &mut self.held {
            if ended.contains(process) || held.due.is_some_and(|due| now >= due) {
                checked.push(*process);
                let was_running = held.running_pidfd().is_some();
                news.extend(held.check(now).map(|outcome| (*process, outcome)));
                has_one_ended |= was_running && held.running_pidfd().is_none();
            }
        }
        if has_one_ended {
            // The GPU memory of ended processes is free, even before their parents reap them.
            self.send_event(AgentEvent::Scan);
        }
        for (process, outcome) in news {
            self.report(process, outcome);
        }
        self.report_new_owners(&checked);
    }

    /// Records and sends an outcome, and releases a process that has ended.
    fn report(&mut self, process: ProcessId, outcome: Outcome) {
        if let Some(audit) = &mut self.audit {
            audit.effect(process, &outcome);
        }
        if matches!(outcome, Outcome::Ended { .. }) {
            if let Some(argv) = self.held.remove(&process).and_then(|held| held.argv) {
                self.send_event(AgentEvent::Ended(argv));
            }
            if self.reported_ended.len() >= self.most_held {
                self.reported_ended.clear();
            }
            self.reported_ended.insert(process);
            self.send_event(AgentEvent::Scan);
        }
        self.reply(process, outcome);
    }

    fn reply(&self, process: ProcessId, outcome: Outcome) {
        (self.replies)(Reply { process, outcome });
    }

    fn send_event(&self, event: AgentEvent) {
        // Sending fails only while the agent ends.
        let _leaving: Result<(), mpsc::SendError<AgentEvent>> = self.events.send(event);
    }
}

/// The processes that gputop must not end: the agent, its viewer, and their ancestors.
struct ProtectedPids {
    ourselves: [u32; 2],
    ancestors: BTreeSet<u32>,
}

impl ProtectedPids {
    /// Reads the ancestors while the viewer still lives: after its end, the agent has another
    /// parent.
    fn read() -> Self {
        let agent = getpid().as_raw_nonzero().get().unsigned_abs();
        let viewer = getppid().map_or(agent, |parent| parent.as_raw_nonzero().get().unsigned_abs());
        let mut ancestors = BTreeSet::new();
        let mut next = viewer;
        // Parents that change while they are read could form a circle.
        while next != 0 && ancestors.insert(next) {
            next = stat::read_process(next, &mut Vec::new()).map_or(0, |stat| stat.parent);
        }
        Self {
            ourselves: [agent, viewer],
            ancestors,
        }
    }

    /// Refuses a PID that no process to signal may have.
    fn check(&self, pid: u32) -> Result<(), Refusal> {
        match pid {
            _ if pid <= 1 || i32::try_from(pid).is_err() => Err(Refusal::NoProcess(pid)),
            _ if self.ourselves.contains(&pid) => Err(Refusal::Ourselves(pid)),
            _ if self.ancestors.contains(&pid) => Err(Refusal::Ancestor(pid)),
            _ => Ok(()),
        }
    }
}
