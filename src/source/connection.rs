//! The connection to one source. For the process of an agent, lines come from its standard output,
//! and commands go to its standard input; a recording, or a source that failed to start, is a task
//! that only sends events.
//!
//! An agent may hang in the driver, where no signal ends it, so nothing here waits for its exit.
//! Closing a connection closes the agent's standard input, upon which the agent exits by itself. An
//! agent of this host gets no signal: a call of the driver may be running. `closing.rs` says when a
//! command of `--via` gets one.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command as StdCommand, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::line_reader::{LineReader, LongLineTurns};
use super::masked_lines::LineMasker;
use super::opening::{Ending, Opening, OpeningLine, Translator};
use super::schedule::NextTry;
use super::standard_error::StandardError;
use super::{SourceEvent, Tap, limits};
use crate::base::detach::{detach, explained};
use crate::base::text::Text;
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::PlayerCommand;

/// The shortest time between two notes, so that a program that writes all the time does not keep
/// the viewer busy.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessKind {
    /// The agent of this host. The last line of its standard error is the reason for its end.
    Agent,
    /// A command of `--via`, in a session of its own. The last line of its standard error is also a
    /// note while it runs.
    Via,
    /// The user's ssh, in a session of its own. The last line of its standard error is also a note
    /// once the host has answered.
    Ssh,
}

impl ProcessKind {
    /// The beginning of sentences about the process.
    fn subject(self) -> &'static str {
        match self {
            Self::Agent | Self::Ssh => "the agent",
            Self::Via => "the command",
        }
    }
}

/// Sends the events of one connection.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    pub(super) host: HostKey,
    /// The number of the connection, which its events carry.
    pub(super) connection: u64,
    pub(super) sender: mpsc::Sender<(HostKey, u64, ConnectionReport)>,
    pub(super) tap: Option<Tap>,
    pub(super) shared: SharedByHosts,
}

/// The state that all connections share, so that many hosts take no more memory than a few.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedByHosts {
    /// An agent may be of an earlier version, which masks less.
    masker: Arc<Mutex<LineMasker>>,
    long_lines: LongLineTurns,
}

/// A report of a connection.
#[derive(Debug)]
pub(super) enum ConnectionReport {
    Event(SourceEvent),
    /// The host has answered: its first line is to come. Holds the path of gputop there; `None` if
    /// another program writes the lines.
    Answered(Option<Text>),
    Ended(Ending),
}

impl Reporter {
    /// Sends an event once there is room for it. Returns whether anything still reads events.
    pub(super) async fn send(&self, event: SourceEvent) -> bool {
        self.report(ConnectionReport::Event(event)).await
    }

    /// As [`Reporter::send`].
    async fn report(&self, report: ConnectionReport) -> bool {
        let report = (self.host, self.connection, report);
        self.sender.send(report).await.is_ok()
    }

    /// Returns a connection without a process, which reports this error as its end.
    pub(super) fn failed_to_start(self, error: &io::Error) -> Connection {
        let ending = Ending {
            next: NextTry::OnRequest,
            ..Ending::new(error.to_string())
        };
        Connection::to_task(self.connection, async move {
            _ = self.report(ConnectionReport::Ended(ending)).await;
        })
    }
}

/// The connection to one source.
#[derive(Debug)]
pub(super) struct Connection {
    /// The number that events of this connection carry.
    pub(super) number: u64,
    commands: Option<mpsc::UnboundedSender<Command>>,
    /// Commands to the player of a recording; `None` without a player.
    player: Option<mpsc::UnboundedSender<PlayerCommand>>,
    /// The tasks own the pipes, and end with the connection.
    tasks: JoinSet<()>,
    process: Option<ConnectedProcess>,
}

impl Connection {
    /// Returns a connection of a host that is not connected.
    pub(super) fn none() -> Self {
        Self {
            number: 0,
            commands: None,
            player: None,
            tasks: JoinSet::new(),
            process: None,
        }
    }

    /// Returns a connection that is one task and takes no commands.
    pub(super) fn to_task(number: u64, task: impl Future<Output = ()> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(task);
        Self {
            number,
            commands: None,
            player: None,
            tasks,
            process: None,
        }
    }

    /// Returns a connection to the player of a recording.
    pub(super) fn to_player<T: Future<Output = ()> + Send + 'static>(
        number: u64,
        player: impl FnOnce(mpsc::UnboundedReceiver<PlayerCommand>) -> T,
    ) -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        Self {
            player: Some(sender),
            ..Self::to_task(number, player(commands))
        }
    }

    /// Starts a process and connects to it. `opening` has the rules for the lines before those of an
    /// agent; `None` if there are no such lines.
    pub(super) fn to_process(
        mut command: StdCommand,
        kind: ProcessKind,
        opening: Option<Box<dyn Opening>>,
        reporter: Reporter,
    ) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let program = match kind {
            ProcessKind::Agent => "the agent".to_owned(),
            ProcessKind::Via | ProcessKind::Ssh => {
                detach(&mut command).get_program().display().to_string()
            }
        };
        let mut child = command
            .spawn()
            .map_err(|error| {
                if kind == ProcessKind::Agent {
                    explained(error)
                } else {
                    error
                }
            })
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
            })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other(format!(
                "{program} was started without pipes"
            )));
        };
        let output = match kind {
            ProcessKind::Agent => None,
            ProcessKind::Via | ProcessKind::Ssh => Some(stdout.as_fd().try_clone_to_owned()?),
        };
        let stdin = ChildStdin::from_std(stdin)?;
        let lines = LineReader::new(ChildStdout::from_std(stdout)?)
            .with_turns(reporter.shared.long_lines.clone());
        let standard_error = StandardError::new(ChildStderr::from_std(stderr)?);
        let (commands, to_send) = mpsc::unbounded_channel();
        let lines = ProcessLines {
            lines,
            standard_error,
            kind,
            opening,
            is_open: false,
            parser: ProcessLineParser {
                masker: Arc::clone(&reporter.shared.masker),
                translator: None,
            },
            reporter: reporter.clone(),
        };
        let mut connection = Self::to_task(reporter.connection, async move {
            if let Some(ending) = lines.forward().await {
                reporter.report(ConnectionReport::Ended(ending)).await;
            }
        });
        connection.tasks.spawn(send(stdin, to_send));
        Ok(Self {
            commands: Some(commands),
            process: Some(ConnectedProcess { child, output }),
            ..connection
        })
    }

    /// Sends a command, without waiting until the agent reads it. Does nothing once the agent has
    /// ended: its end is an event.
    pub(super) fn send(&self, command: Command) {
        let _ended = self
            .commands
            .as_ref()
            .map(|commands| commands.send(command));
    }

    /// Sends a command to the player of a recording; does nothing without a player.
    pub(super) fn play(&self, command: PlayerCommand) {
        let _ended = self.player.as_ref().map(|player| player.send(command));
    }

    /// Closes the pipes as soon as the runtime goes on. Returns the process if it may not have
    /// exited yet.
    pub(super) fn close(&mut self) -> Option<ConnectedProcess> {
        self.tasks.abort_all();
        self.commands = None;
        self.process.take()
    }

    /// Waits until the pipes of a connection that was closed are closed. No task delays that.
    pub(super) async fn wait_until_closed(&mut self) {
        self.tasks.shutdown().await;
    }
}

#[derive(Debug)]
pub(super) struct ConnectedProcess {
    pub(super) child: Child,
    /// The standard output of a command of `--via`; `None` for an agent of this host.
    pub(super) output: Option<OwnedFd>,
}

async fn send(mut stdin: ChildStdin, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        let mut line = Vec::new();
        if command.write(&mut line).is_err() || stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// The output of a process.
struct ProcessLines {
    lines: LineReader<ChildStdout>,
    standard_error: StandardError,
    kind: ProcessKind,
    opening: Option<Box<dyn Opening>>,
    /// Whether the opening is over: each line is one of the agent.
    is_open: bool,
    parser: ProcessLineParser,
    reporter: Reporter,
}

/// Parses the lines of a process.
struct ProcessLineParser {
    masker: Arc<Mutex<LineMasker>>,
    /// Understands lines of another program than an agent.
    translator: Option<Translator>,
}

impl ProcessLineParser {
    /// Returns a line as an agent would write it today, and parsed; `None` for a line of a kind that
    /// is not known.
    fn parse<'a>(&mut self, line: &'a [u8]) -> (Cow<'a, [u8]>, Result<Option<Line>, String>) {
        let Some(translate) = &mut self.translator else {
            let mut masker = self.masker.lock().unwrap_or_else(PoisonError::into_inner);
            let line = masker.mask(line);
            let parsed = limits::parse(&line);
            return (line, parsed);
        };
        let parsed = translate(line);
        let mut bytes = Vec::new();
        if let Ok(Some(parsed)) = &parsed {
            _ = parsed.write(&mut bytes);
            _ = bytes.pop_if(|byte| *byte == b'\n');
        }
        (bytes.into(), parsed)
    }
}

/// Sends the event of a line. Returns whether anything still reads events.
async fn deliver(reporter: &Reporter, has_past: &mut bool, line: &[u8], parsed: Line) -> bool {
    let host = reporter.host;
    if let Line::Checkpoint(past) = parsed {
        // One checkpoint of a recorder comes with each connection. More of them would replace the
        // history of the host again and again.
        return std::mem::replace(has_past, true)
            || reporter.send(SourceEvent::Past(host, past)).await;
    }
    if let Some(tap) = &reporter.tap {
        tap.copy(host, &parsed, line);
    }
    reporter
        .send(SourceEvent::Line(host, Box::new(parsed)))
        .await
}

impl ProcessLines {
    /// Sends each line of the standard output as an event, and notes of the standard error. Returns
    /// how the connection has ended, or `None` when nothing reads events any more.
    async fn forward(mut self) -> Option<Ending> {
        let subject = self.kind.subject();
        let host = self.reporter.host;
        self.is_open = self.opening.is_none();
        let (mut noted, mut has_past) = (None, false);
        let mut note_due: Option<Instant> = None;
        loop {
            let deadline = self
                .opening
                .as_ref()
                .filter(|_| !self.is_open)
                .and_then(|opening| opening.deadline());
            let line = tokio::select! {
                biased;
                () = sleep_until(note_due.unwrap_or_else(Instant::now)), if note_due.is_some() => {
                    note_due = None;
                    let note = self.standard_error.last_line();
                    if let (Some(note), true) = (&note, note != noted)
                        && !self.reporter.send(SourceEvent::Note(host, note.clone())).await
                    {
                        return None;
                    }
                    noted = note;
                    continue;
                }
                () = self.standard_error.read() => {
                    let is_noted = match self.kind {
                        ProcessKind::Agent => false,
                        ProcessKind::Via => true,
                        ProcessKind::Ssh => self.is_open,
                    };
                    note_due = is_noted.then(|| note_due.unwrap_or_else(|| Instant::now() + NOTE_INTERVAL));
                    continue;
                }
                line = self.lines.next() => line,
                // The deadline may have passed while gputop was stopped: a line that has come counts.
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return self.opening.map(|opening| opening.timed_out());
                }
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    return Some(Ending::new(format!("cannot read from {subject}: {error}")));
                }
            };
            let line = match self.opening.as_mut().filter(|_| !self.is_open) {
                None => line,
                Some(opening) => match opening.take(line) {
                    OpeningLine::Skipped => continue,
                    OpeningLine::Over(ending) => return Some(ending),
                    OpeningLine::Agent(line) => {
                        self.is_open = true;
                        line
                    }
                    OpeningLine::Answered(path) => {
                        self.is_open = true;
                        self.reporter
                            .report(ConnectionReport::Answered(Some(path)))
                            .await;
                        continue;
                    }
                    OpeningLine::Translated(translator) => {
                        self.is_open = true;
                        self.parser.translator = Some(translator);
                        self.reporter.report(ConnectionReport::Answered(None)).await;
                        continue;
                    }
                },
            };
            let (line, parsed) = self.parser.parse(line);
            let delivered = match parsed {
                // The agent may be of a later version, which sends more kinds of lines.
                Ok(None) => continue,
                Ok(Some(parsed)) => deliver(&self.reporter, &mut has_past, &line, parsed).await,
                Err(reason) if self.parser.translator.is_some() => {
                    return Some(Ending::new(reason));
                }
                Err(reason) => return Some(Ending::new(format!("{subject}: {reason}"))),
            };
            if !delivered {
                return None;
            }
        }
        let last_lines = self.standard_error.last_lines().await;
        Some(match (&self.opening, last_lines.last()) {
            (Some(opening), _) => opening.ended(&last_lines),
            (None, Some(line)) => Ending::new(format!("{subject} ended: {line}")),
            (None, None) => Ending::new(format!("{subject} ended without a word")),
        })
    }
}
