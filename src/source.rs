//! Where lines come from. Every viewer and every report reads lines from [`Sources`] only.
//!
//! A source is an agent of this host, a command that the user gave, or a recording. The host key is
//! the number of the source, or in a recording the place of the host in the file; a line of an
//! agent never sets it. The lines of a remote agent are hostile input: lengths and counts are
//! checked before a line is parsed.

mod closing;
mod connection;
mod copies;
pub(crate) mod descriptors;
mod event;
mod host_source;
mod limits;
mod line_buffer;
mod line_reader;
mod local_agent;
mod masked_lines;
mod opening;
pub(crate) mod prometheus;
mod recording;
mod schedule;
mod slurm;
mod small_file;
mod ssh;
mod ssh_messages;
mod standard_error;
mod via;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{WaitOptions, wait};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::closing::ClosingCommand;
pub use self::closing::close_commands;
use self::connection::{ConnectedProcess, Connection, ConnectionReport, Reporter, SharedByHosts};
use self::copies::HostCopies;
pub use self::event::SourceEvent;
use self::host_source::{HostSource, OnHost};
pub(crate) use self::limits::parse as parse_line;
pub(crate) use self::line_reader::LineReader;
use self::opening::Ending;
#[cfg(any(test, fuzzing))]
pub(crate) use self::recording::read_bytes as read_recorded_bytes;
pub use self::recording::{
    FrameStart, Recording, RecordingLimits, RecordingReader, RecordingWriter,
};
use self::schedule::{ConnectStep, NextTry, Schedule};
pub use self::slurm::{AskedJob, SlurmCommands, SlurmJobId, SlurmTarget};
pub(crate) use self::small_file::read_small_file;
pub(crate) use self::ssh::masters::{Masters, is_open as master_is_open, stop as stop_master};
use self::ssh::own_program::OwnProgram;
pub use self::ssh::{HostList, HostName, SshHost, SshOptions, SshSettings};
pub(crate) use self::ssh::{HostTables, NamedHost, SrunStep, is_group_name};
use self::ssh::{SshRoute, UsedMaster};
pub use self::via::ViaCommand;
use crate::base::text::Text;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::command::Command;
use crate::protocol::connection_state::ConnectionState;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::PlayerCommand;

/// The most events that wait for the reader. While the reader is stopped, further lines wait in the
/// pipes, then at the agents.
const WAITING_EVENTS: usize = 16;

/// How long an agent of this host may take to exit before a program replaces gputop.
const EXIT_GRACE: Duration = Duration::from_millis(750);

/// How long an agent of this host may take to exit after its connection was closed, before gputop
/// leaves it to PID 1.
const CLOSE_GRACE: Duration = Duration::from_millis(250);

/// The time between two checks whether an agent has exited.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// The time between two looks at the connections to other hosts.
const CARE_INTERVAL: Duration = Duration::from_secs(3);

/// The time after which agents of other hosts are told again that the viewer lives: an agent behind
/// a cut link hears of its end only after many minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a viewer may be silent before the agents of other hosts end: three times
/// [`KEEP_ALIVE`].
const LONGEST_VIEWER_SILENCE: Duration = Duration::from_secs(45);

/// A longer pause of gputop itself means that the machine slept, or that gputop was stopped.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a host over ssh may take to answer after this machine slept.
const ANSWER_AFTER_SLEEP: Duration = Duration::from_secs(5);

/// A place that lines come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// An agent of this host, started as a child process.
    LocalAgent(AgentOptions),
    /// A command that the user gave, such as `ssh HOST gputop agent`.
    Via(ViaCommand),
    /// A host over the user's ssh.
    Ssh(SshHost),
    /// A file of lines.
    Recording(Recording),
}

impl Source {
    /// The name of the host by what the user typed. Returns `None` for this host and for the hosts
    /// of a recording.
    pub fn name(&self) -> Option<Text> {
        match self {
            Self::LocalAgent(_) | Self::Recording(_) => None,
            Self::Via(via) => Some(via.host_name()),
            Self::Ssh(host) => Some(host.host_name()),
        }
    }

    /// Describes the source, for a host whose name is not known yet.
    pub fn description(&self) -> Text {
        match self {
            Self::LocalAgent(_) => "this host".into(),
            Self::Via(via) => via.command_line(),
            Self::Ssh(host) => host.command_of_a_person().join(" ").into(),
            Self::Recording(recording) => Text::new(recording.path.as_os_str().as_encoded_bytes()),
        }
    }

    /// Sets the interval that the agent starts with at the next connection.
    fn set_interval(&mut self, interval: Duration) {
        match self {
            Self::LocalAgent(options) => options.interval = interval,
            Self::Via(via) => via.interval = Some(interval),
            Self::Ssh(host) => host.set_interval(interval),
            Self::Recording(_) => {}
        }
    }

    /// Notes that the user has the host on a screen. A host over ssh that lacks gputop gets a copy
    /// only then, since the user sees the announcement.
    #[must_use]
    pub(crate) fn on_screen(mut self) -> Self {
        if let Self::Ssh(host) = &mut self {
            host.has_screen = true;
        }
        self
    }

    /// Whether the lines come from a process that reaches another host. It is connected again by
    /// itself.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Via(_) | Self::Ssh(_))
    }
}

/// Removes the copies of gputop on a host. Returns the paths of the removed files.
///
/// # Errors
///
/// One sentence: why the host could not be asked.
pub(crate) async fn clean_copies(host: &SshHost) -> Result<Vec<Text>, String> {
    ssh::upload::clean(host.shell(&UsedMaster::Configured, true)).await
}

/// A function that gets each line of an agent that was understood, before its event: the host, the
/// line, and its bytes without the line end.
#[derive(Clone)]
pub struct Tap(Arc<Mutex<TapFunction>>);

type TapFunction = dyn FnMut(HostKey, &Line, &[u8]) + Send;

impl Tap {
    /// Makes a tap of a function.
    pub fn new(function: impl FnMut(HostKey, &Line, &[u8]) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(function)))
    }

    fn copy(&self, host: HostKey, line: &Line, raw: &[u8]) {
        if let Ok(mut function) = self.0.lock() {
            function(host, line, raw);
        }
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

/// All sources of one run, in the order of their host keys. An agent exits by itself when its pipes
/// are closed.
#[derive(Debug)]
pub struct Sources {
    list: Vec<HostSource>,
    events: mpsc::Receiver<(HostKey, u64, ConnectionReport)>,
    sender: mpsc::Sender<(HostKey, u64, ConnectionReport)>,
    tap: Option<Tap>,
    shared: SharedByHosts,
    /// The number of the newest connection.
    newest: u64,
    /// Processes that end by themselves, or through `closing.rs`, and that have not exited yet.
    exiting: Vec<Child>,
    schedule: Schedule,
    /// Questions to ssh about the routes to hosts.
    lookups: JoinSet<(usize, SshRoute, Option<Arc<OwnProgram>>)>,
    copies: HostCopies,
    /// Events that are to be returned before others.
    pending: VecDeque<SourceEvent>,
    care: Care,
}

/// The time of the connections to other hosts.
#[derive(Debug)]
struct Care {
    /// When the connections are looked at next; `None` without another host.
    due: Option<Instant>,
    /// When the agents are next told that the viewer lives.
    keep_alive: Instant,
    /// The time since the boot, sleep included, when they were looked at.
    awake: Duration,
}

impl Sources {
    /// Starts all sources. Must be called within the tokio runtime. Returns an error when there is
    /// only one source and it cannot be started. With several sources, the failure is an event of
    /// the host. Other hosts are connected one after the other, and again after the end of their
    /// connections, while [`Self::next`] waits.
    pub fn start(sources: Vec<Source>, tap: Option<Tap>) -> io::Result<Self> {
        let (sender, events) = mpsc::channel(WAITING_EVENTS);
        let is_only_one = sources.len() == 1;
        let now = Instant::now();
        let connects = sources.iter().find_map(|source| match source {
            Source::Ssh(host) => Some(host.connects()),
            _ => None,
        });
        let has_remote = sources.iter().any(Source::is_remote);
        let mut all = Self {
            list: Vec::new(),
            events,
            sender,
            tap,
            shared: SharedByHosts::default(),
            newest: 0,
            exiting: Vec::new(),
            schedule: Schedule::new(connects.unwrap_or(usize::MAX), now),
            lookups: JoinSet::new(),
            copies: HostCopies::default(),
            pending: VecDeque::new(),
            care: Care {
                due: has_remote.then_some(now + CARE_INTERVAL),
                keep_alive: now + KEEP_ALIVE,
                awake: time_since_boot(),
            },
        };
        for (place, source) in sources.into_iter().enumerate() {
            let is_ssh = matches!(source, Source::Ssh(_));
            let is_scheduled = is_ssh || source.is_remote() && !is_only_one;
            all.list.push(HostSource::new(source, Connection::none()));
            all.schedule.add(is_ssh, now);
            if is_scheduled {
                all.begin(place);
                continue;
            }
            match all.connect(place) {
                Err(error) if is_only_one => return Err(error),
                Err(error) => all.report_failed_start(place, &error),
                Ok(()) => {}
            }
        }
        Ok(all)
    }

    fn reporter(&mut self, place: usize) -> Reporter {
        self.newest += 1;
        Reporter {
            host: key(place),
            connection: self.newest,
            sender: self.sender.clone(),
            tap: self.tap.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Connects a host now.
    fn connect(&mut self, place: usize) -> io::Result<()> {
        let reporter = self.reporter(place);
        let Some(host) = self.list.get_mut(place) else {
            return Ok(());
        };
        host.connect(self.copies.copy_name().as_deref(), reporter)?;
        // Another host waits for none but those over ssh.
        if !matches!(host.source, Source::Ssh(_)) {
            self.schedule.let_in(place, Instant::now());
        }
        Ok(())
    }

    fn report_failed_start(&mut self, place: usize, error: &io::Error) {
        let reporter = self.reporter(place);
        if let Some(host) = self.list.get_mut(place) {
            host.connection = reporter.failed_to_start(error);
        }
    }

    /// Lets the schedule connect a host.
    fn begin(&mut self, place: usize) {
        self.schedule.start(place, Instant::now());
        self.tell(place, ConnectionState::Waiting);
    }

    /// Tells the state of the connection to another host. A command of `--via` has none until it has
    /// ended: nobody knows when it has connected.
    fn tell(&mut self, place: usize, state: ConnectionState) {
        let has_state = self.list.get(place).is_some_and(|host| match host.source {
            Source::Ssh(_) => true,
            Source::Via(_) => host.has_ended,
            Source::LocalAgent(_) | Source::Recording(_) => false,
        });
        if has_state {
            self.pending
                .push_back(SourceEvent::Connection(key(place), state));
        }
    }

    /// The sources, each with the key of its host.
    pub fn hosts(&self) -> impl Iterator<Item = (HostKey, &Source)> {
        (0..)
            .map(HostKey)
            .zip(self.list.iter().map(|host| &host.source))
    }

    /// Returns the name that ssh connects to for a host, as the user typed it: a login host for a step
    /// of `srun`. `None` without ssh.
    pub(crate) fn ssh_name(&self, host: HostKey) -> Option<Text> {
        match &self.list.get(usize::from(host.0))?.source {
            Source::Ssh(ssh) => ssh.ssh_name().map(|name| Text::new(name.as_str())),
            _ => None,
        }
    }

    /// Returns whether the lines come from a recording.
    pub fn is_recording(&self) -> bool {
        self.list
            .iter()
            .any(|host| matches!(host.source, Source::Recording(_)))
    }

    /// Waits for the next event of any source, and connects hosts meanwhile. Without a source that can
    /// report, waits for ever. Safe to cancel.
    pub async fn next(&mut self) -> SourceEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            let now = Instant::now();
            if let Some(step) = self.schedule.take(now) {
                self.perform(step);
                continue;
            }
            if self.care.due.is_some_and(|due| due <= now) {
                self.take_care(now);
                continue;
            }
            for (place, note) in self.copies.advance(now) {
                self.pending.push_back(SourceEvent::Note(key(place), note));
            }
            if !self.pending.is_empty() {
                continue;
            }
            let due = [self.schedule.due(), self.care.due, self.copies.due()]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                (place, copy) = self.copies.finished() => self.copied(place, copy),
                Some(Ok((place, route, program))) = self.lookups.join_next() => {
                    self.copies.set_program(program);
                    self.schedule.looked_up(place, &route.server, now);
                    if let Some(host) = self.list.get_mut(place) {
                        host.route = Some(route);
                    }
                }
                Some((host, number, report)) = self.events.recv() => {
                    let place = usize::from(host.0);
                    // The connection may have been closed while the report was waiting.
                    if self.list.get(place).is_some_and(|host| host.connection.number == number) {
                        self.receive(place, report);
                    }
                }
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            }
        }
    }

    fn perform(&mut self, step: ConnectStep) {
        match step {
            ConnectStep::LookUp(place) => {
                if let Some(HostSource {
                    source: Source::Ssh(host),
                    ..
                }) = self.list.get(place)
                {
                    let route = host.route();
                    self.lookups.spawn(async move {
                        // Without the file of this program, hosts get no copy.
                        let program = OwnProgram::get().await.ok();
                        (place, route.await, program)
                    });
                }
            }
            ConnectStep::Connect(place) => match self.connect(place) {
                Ok(()) => self.tell(place, ConnectionState::Connecting),
                Err(error) => self.report_failed_start(place, &error),
            },
        }
    }

    fn receive(&mut self, place: usize, report: ConnectionReport) {
        let now = Instant::now();
        match report {
            ConnectionReport::Event(event) => {
                if let (SourceEvent::Line(_, line), Some(host)) = (&event, self.list.get_mut(place))
                {
                    if let Line::Full(snapshot) = &**line {
                        host.interval_ms = Some(snapshot.interval_ms);
                        host.can_end_after_silence = snapshot.can_end_after_silence();
                        self.schedule.answered(place);
                    }
                    host.heard = Some(now);
                }
                self.pending.push_back(event);
            }
            ConnectionReport::Answered(path) => {
                self.schedule.let_in(place, now);
                if let Some(host) = self.list.get_mut(place) {
                    host.heard = Some(now);
                    if path.is_some() {
                        host.on_host = OnHost::Unknown;
                    }
                }
                self.tell(place, ConnectionState::Answered);
                if self
                    .list
                    .get(place)
                    .is_some_and(|host| host.was_refused_gpus)
                {
                    let note = "Slurm gave the step no GPU, since it refused one with GPUs";
                    self.pending
                        .push_back(SourceEvent::Note(key(place), note.into()));
                }
                self.pending
                    .extend(path.map(|path| SourceEvent::Program(key(place), path)));
            }
            ConnectionReport::Ended(ending) => self.end(place, ending),
        }
    }

    /// Ends the connection to a host, for this reason.
    fn end(&mut self, place: usize, ending: Ending) {
        let Some(host) = self.list.get_mut(place) else {
            return;
        };
        let process = host.connection.close();
        host.heard = None;
        host.has_ended = true;
        host.avoids_master |= ending.blames_master;
        let was_refused_again = host.was_refused_gpus && ending.blames_gpus;
        host.was_refused_gpus |= ending.blames_gpus;
        let is_remote = host.source.is_remote();
        self.let_end(process);
        let ending = match ending.lacks_gputop {
            None => ending,
            Some(contact) => match self.help_without_gputop(place, &contact) {
                Some(reason) => Ending {
                    next: NextTry::OnRequest,
                    ..Ending::new(reason)
                },
                None => return,
            },
        };
        let next = if is_remote && !was_refused_again {
            ending.next
        } else {
            NextTry::OnRequest
        };
        let again = self.schedule.ended(place, next, Instant::now());
        self.pending
            .push_back(SourceEvent::Ended(key(place), ending.reason));
        let waits = if next == NextTry::AfterLogin {
            ConnectionState::NeedsLogin
        } else {
            ConnectionState::WaitsForUser
        };
        self.tell(place, again.map_or(waits, ConnectionState::TriesAgain));
    }

    /// Ends connections over ssh from which nothing comes, and tells the agents of other hosts that
    /// this viewer lives.
    fn take_care(&mut self, now: Instant) {
        self.care.due = Some(now + CARE_INTERVAL);
        let awake = std::mem::replace(&mut self.care.awake, time_since_boot());
        let has_slept = self.care.awake.saturating_sub(awake) > CARE_INTERVAL + LONGEST_PAUSE;
        let mut silent = Vec::new();
        for (place, host) in self.list.iter_mut().enumerate() {
            let (Source::Ssh(_), Some(heard)) = (&host.source, host.heard) else {
                continue;
            };
            let longest = host.longest_silence();
            if has_slept {
                // The link may be gone. A host that still hears gputop answers at once.
                host.connection.send(Command::Full);
                host.heard = now.checked_sub(longest.saturating_sub(ANSWER_AFTER_SLEEP));
            } else if now.saturating_duration_since(heard) >= longest {
                silent.push((place, longest));
            }
        }
        for (place, silence) in silent {
            let ending = Ending {
                blames_master: self.list[place].may_use_master(),
                ..Ending::new(format!("no line came for {} s", silence.as_secs()))
            };
            self.end(place, ending);
        }
        if self.care.keep_alive <= now {
            self.care.keep_alive = now + KEEP_ALIVE;
            let longest_silence = u64::try_from(LONGEST_VIEWER_SILENCE.as_millis()).ok();
            for host in &self.list {
                if let (true, Some(milliseconds)) = (host.source.is_remote(), host.interval_ms) {
                    let silence = longest_silence.filter(|_| host.can_end_after_silence);
                    host.connection.send(Command::Interval {
                        milliseconds,
                        silence,
                    });
                }
            }
        }
    }

    /// Sends a command to the agent of this host, without waiting until the agent reads it. A
    /// recording takes no commands.
    pub fn send(&mut self, host: HostKey, command: Command) {
        if let Some(host) = self.list.get_mut(usize::from(host.0)) {
            if let Command::Interval { milliseconds, .. } = command {
                host.interval_ms = Some(milliseconds);
                host.source
                    .set_interval(Duration::from_millis(milliseconds));
            }
            host.connection.send(command);
        }
    }

    /// Sends a command to the player of a recording. Live hosts take none.
    pub fn play(&self, command: PlayerCommand) {
        for host in &self.list {
            host.connection.play(command);
        }
    }

    /// Starts the source of this host anew, with this interval between two passes. The other hosts
    /// are not affected.
    pub fn restart(&mut self, host: HostKey, interval: Duration) {
        let place = usize::from(host.0);
        let Some(host) = self.list.get_mut(place) else {
            return;
        };
        host.source.set_interval(interval);
        host.avoids_master = false;
        host.was_refused_gpus = false;
        host.on_host = OnHost::Unknown;
        host.heard = None;
        self.copies.forget(place);
        let is_remote = host.source.is_remote();
        let process = host.connection.close();
        self.let_end(process);
        if is_remote {
            self.begin(place);
        } else if let Err(error) = self.connect(place) {
            self.report_failed_start(place, &error);
        }
    }

    /// Lets the processes of connections that were closed end.
    fn let_end(&mut self, processes: impl IntoIterator<Item = ConnectedProcess>) {
        let mut commands = Vec::new();
        for ConnectedProcess { child, output } in processes {
            commands.extend(output.and_then(|output| ClosingCommand::new(&child, output)));
            self.exiting.push(child);
        }
        // If the process cannot be started, the commands get no signal.
        self.exiting
            .extend(closing::start_process(commands).ok().flatten());
    }

    /// Reaps processes that have exited since their connection was closed. Does not wait.
    pub fn reap(&mut self) {
        retain_running(&mut self.exiting);
    }

    /// Closes all connections. Waits for agents of this host to exit, for at most [`CLOSE_GRACE`]: a
    /// call of the driver may hang. Where PID 1 reaps no processes, as the program of a container,
    /// an agent that gputop did not reap stays a zombie as long as the container runs. Waits for no
    /// command of `--via`.
    pub async fn close(&mut self) {
        let processes: Vec<_> = self
            .list
            .iter_mut()
            .filter_map(|host| host.connection.close())
            .collect();
        for host in &mut self.list {
            host.connection.wait_until_closed().await;
        }
        let (agents, commands): (Vec<_>, Vec<_>) = processes
            .into_iter()
            .partition(|process| process.output.is_none());
        self.let_end(commands);
        let mut agents: Vec<Child> = agents.into_iter().map(|agent| agent.child).collect();
        let deadline = Instant::now() + CLOSE_GRACE;
        loop {
            retain_running(&mut agents);
            if agents.is_empty() || Instant::now() >= deadline {
                break;
            }
            sleep(EXIT_POLL).await;
        }
        self.exiting.extend(agents);
    }
}

/// The key of the host with this place in the list.
fn key(place: usize) -> HostKey {
    HostKey(u16::try_from(place).unwrap_or(u16::MAX))
}

/// The time since the boot, sleep included.
fn time_since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Reaps the processes that have exited, and keeps the others.
fn retain_running(processes: &mut Vec<Child>) {
    processes.retain_mut(|process| !matches!(process.try_wait(), Ok(Some(_)) | Err(_)));
}

/// Waits until the agents of this host have exited, for at most [`EXIT_GRACE`]: a call of the
/// driver may hang. Called before `exec`, whose program would inherit the agents as children.
pub async fn reap_agents() {
    let deadline = Instant::now() + EXIT_GRACE;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < deadline => sleep(EXIT_POLL).await,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests;
