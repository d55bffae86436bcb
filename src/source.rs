//! Where lines come from. Every viewer and every report reads lines from [`Sources`] only.
//!
//! A source is an agent of this host, a command that the user gave, or a recording. The host key is
//! the number of the source, or in a recording the place of the host in the file; a line of an
//! agent never sets it. The lines of a remote agent are hostile input: lengths and counts are
//! checked before a line is parsed.

mod closing;
mod connection;
pub(crate) mod descriptors;
mod event;
mod limits;
mod line_buffer;
mod line_reader;
mod local_agent;
mod masked_lines;
mod recording;
mod standard_error;
mod via;

use std::fmt;
use std::io;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{WaitOptions, wait};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use self::closing::ClosingCommand;
pub use self::closing::close_commands;
use self::connection::{ConnectedProcess, Connection, Reporter};
pub use self::event::SourceEvent;
pub(crate) use self::limits::parse as parse_line;
pub(crate) use self::line_reader::LineReader;
pub use self::recording::{
    FrameStart, Recording, RecordingLimits, RecordingReader, RecordingWriter,
};
pub use self::via::ViaCommand;
use crate::base::text::Text;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::command::Command;
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

/// A place that lines come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// An agent of this host, started as a child process.
    LocalAgent(AgentOptions),
    /// A command that the user gave, such as `ssh HOST gputop agent`.
    Via(ViaCommand),
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
        }
    }

    /// Describes the source, for a host whose name is not known yet.
    pub fn description(&self) -> Text {
        match self {
            Self::LocalAgent(_) => "this host".into(),
            Self::Via(via) => via.command_line(),
            Self::Recording(recording) => Text::new(recording.path.as_os_str().as_encoded_bytes()),
        }
    }

    /// Sets the interval that the agent starts with at the next connection.
    fn set_interval(&mut self, interval: Duration) {
        match self {
            Self::LocalAgent(options) => options.interval = interval,
            Self::Via(via) => via.interval = Some(interval),
            Self::Recording(_) => {}
        }
    }

    fn connect(&self, reporter: Reporter) -> io::Result<Connection> {
        match self {
            Self::LocalAgent(options) => local_agent::connect(options, reporter),
            Self::Via(via) => via.connect(reporter),
            Self::Recording(recording) => recording.connect(reporter),
        }
    }
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
    list: Vec<(Source, Connection)>,
    events: mpsc::Receiver<(u64, SourceEvent)>,
    sender: mpsc::Sender<(u64, SourceEvent)>,
    tap: Option<Tap>,
    /// The number of the newest connection.
    newest: u64,
    /// Processes that end by themselves, or through `closing.rs`, and that have not exited yet.
    exiting: Vec<Child>,
}

impl Sources {
    /// Starts all sources. Must be called within the tokio runtime. Returns an error when there is
    /// only one source and it cannot be started. With several sources, the failure is an event of
    /// the host.
    pub fn start(sources: Vec<Source>, tap: Option<Tap>) -> io::Result<Self> {
        let (sender, events) = mpsc::channel(WAITING_EVENTS);
        let is_only_one = sources.len() == 1;
        let mut all = Self {
            list: Vec::new(),
            events,
            sender,
            tap,
            newest: 0,
            exiting: Vec::new(),
        };
        for (number, source) in (0..).zip(sources) {
            let reporter = all.reporter(HostKey(number));
            let connection = match source.connect(reporter.clone()) {
                Err(error) if is_only_one => return Err(error),
                connection => connection.unwrap_or_else(|error| reporter.failed_to_start(&error)),
            };
            all.list.push((source, connection));
        }
        Ok(all)
    }

    fn reporter(&mut self, host: HostKey) -> Reporter {
        self.newest += 1;
        Reporter {
            host,
            connection: self.newest,
            sender: self.sender.clone(),
            tap: self.tap.clone(),
        }
    }

    /// The sources, each with the key of its host.
    pub fn hosts(&self) -> impl Iterator<Item = (HostKey, &Source)> {
        (0..)
            .map(HostKey)
            .zip(self.list.iter().map(|(source, _)| source))
    }

    /// Returns whether the lines come from a recording.
    pub fn is_recording(&self) -> bool {
        self.list
            .iter()
            .any(|(source, _)| matches!(source, Source::Recording(_)))
    }

    /// Waits for the next event of any source. Without a source that can report, waits for ever.
    /// Safe to cancel.
    pub async fn next(&mut self) -> SourceEvent {
        loop {
            let Some((connection, event)) = self.events.recv().await else {
                return std::future::pending().await;
            };
            let Some((_, current)) = self
                .list
                .iter_mut()
                .find(|(_, current)| current.number == connection)
            else {
                // The connection was closed while the event was waiting.
                continue;
            };
            if let SourceEvent::Ended(..) = event {
                let process = current.close();
                self.let_end(process);
            }
            return event;
        }
    }

    /// Sends a command to the agent of this host, without waiting until the agent reads it. A
    /// recording takes no commands.
    pub fn send(&self, host: HostKey, command: Command) {
        if let Some((_, connection)) = self.list.get(usize::from(host.0)) {
            connection.send(command);
        }
    }

    /// Sends a command to the player of a recording. Live hosts take none.
    pub fn play(&self, command: PlayerCommand) {
        for (_, connection) in &self.list {
            connection.play(command);
        }
    }

    /// Starts the source of this host anew, with this interval between two passes. The other hosts
    /// are not affected.
    pub fn restart(&mut self, host: HostKey, interval: Duration) {
        let reporter = self.reporter(host);
        let Some((source, connection)) = self.list.get_mut(usize::from(host.0)) else {
            return;
        };
        source.set_interval(interval);
        let process = connection.close();
        *connection = source
            .connect(reporter.clone())
            .unwrap_or_else(|error| reporter.failed_to_start(&error));
        self.let_end(process);
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
            .filter_map(|(_, connection)| connection.close())
            .collect();
        for (_, connection) in &mut self.list {
            connection.wait_until_closed().await;
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
