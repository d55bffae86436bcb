//! `gputop record`: writes what gputop sees to a recording, without a screen, until a signal ends
//! it.
//!
//! The lines of agents pass through unchanged.

mod sharing;
mod tell;
mod viewer_lines;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tokio::time::{Instant, sleep_until};

use self::sharing::Sharing;
use self::tell::{TELL_HEADING, TellArgs, Telling};
use super::live::end_signals::EndSignals;
use super::live::read_hosts::block_on;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::files::folders::recording_file;
use crate::files::recorder_note::OwnNote;
use crate::files::recorder_socket::RecorderSocket;
use crate::flags::{AgentArgs, HostArgs, values};
use crate::logs::recent_recordings;
use crate::logs::recording_output::RecordingOutput;
use crate::model::{Fleet, HostLabel, HostModel};
use crate::notify::{Destination, Message};
use crate::output::{Exit, print_error};
use crate::protocol::agent_options::SimulatedMachine;
use crate::protocol::command::Command;
use crate::protocol::connection_state::ConnectionState;
use crate::protocol::host_key::HostKey;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::source::{
    RecordingLimits, RecordingReader, RecordingWriter, Source, SourceEvent, Sources, Tap,
};

/// The time from the end of the agent of this host to its next start.
const RESTART_AFTER: Duration = Duration::from_secs(10);

/// The time from the refusal of another host to the next try. On the screen the user decides; sshd
/// blocks an address that fails to log in again and again.
const RESTART_OF_REFUSED: Duration = Duration::from_mins(10);

/// How long lines wait where somebody is told what is in them. They are written to the disk later,
/// or before something is told.
const WAIT_TO_TELL: Duration = Duration::from_secs(2);

/// How long the end of a recorder waits for messages that are on their way.
const LAST_MESSAGES: Duration = Duration::from_secs(3);

/// The options of `gputop record`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    agent: AgentArgs,

    /// The file to write or to append to; its older parts are FILE.1, FILE.2 and so on [default:
    /// `$XDG_STATE_HOME/gputop/recordings/HOST.jsonl.zst` or
    /// `~/.local/state/gputop/recordings/HOST.jsonl.zst`]
    #[arg(short, long, value_name = "FILE", value_parser = values::new_file())]
    output: Option<PathBuf>,

    /// Record the lines that a viewer writes to the standard input
    #[arg(long, hide = true, conflicts_with_all = ["notify", "on_alert"])]
    from_viewer: bool,

    /// Delete the oldest lines so that all parts together stay below this size
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = values::recording_size)]
    max_size: Bytes,

    /// Delete lines of this age, such as `12h` or `30d`
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = values::positive_span)]
    max_age: Duration,

    /// Tell this notification what happens: the NAME of a `[notify.NAME]` table in config.toml;
    /// repeat it for more. `gputop notify NAME` tries it
    #[arg(long, value_name = "NAME", help_heading = TELL_HEADING)]
    pub(crate) notify: Vec<String>,

    #[command(flatten)]
    tell: TellArgs,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

impl RecordArgs {
    /// The time from one pass of an agent to the next.
    pub(crate) fn interval(&self) -> Duration {
        self.agent
            .given_interval()
            .unwrap_or_else(|| self.hosts.usual_interval())
    }

    /// The file; `None` without a home directory and without `-o`.
    fn file(&self) -> Option<PathBuf> {
        let name = || {
            if self.hosts.has_others() {
                "hosts".to_owned()
            } else if self.agent.demo {
                recent_recordings::SIMULATED.to_owned()
            } else {
                rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .replace('/', "-")
            }
        };
        self.output
            .clone()
            .or_else(|| recording_file(&format!("{}.jsonl.zst", name())))
    }
}

/// Records until SIGINT, SIGTERM or SIGHUP, or the end of the viewer.
///
/// # Errors
///
/// When the file cannot be written safely, or no source can be started.
pub(crate) fn run(args: &RecordArgs, destinations: Vec<Destination>) -> anyhow::Result<ExitCode> {
    let path = args
        .file()
        .ok_or_else(|| anyhow!("HOME is not set: name a file with -o"))?;
    let limits = RecordingLimits {
        max_size: args.max_size,
        max_age: args.max_age,
    };
    block_on(async {
        let mut ends = EndSignals::new()?;
        let writer = RecordingWriter::open(&path, limits).map_err(anyhow::Error::msg)?;
        let _note = OwnNote::write(&path);
        if args.from_viewer {
            viewer_lines::record(&path, writer, ends).await?;
            return Ok(Exit::Success.into());
        }
        let mut recorder = Recorder::start(args, writer, args.tell.telling(destinations))?;
        recorder.read_past(&path);
        recorder.forget_told();
        print_error(&Text::new(format!(
            "recording to {}; Ctrl-C ends it",
            path.display()
        )));
        loop {
            recorder.print_notes();
            let restart = recorder.restarts.values().min().copied();
            let due = [
                recorder.waiting_due(),
                recorder.output.writer.flush_due(),
                recorder.silence_due(),
                restart,
            ]
            .into_iter()
            .flatten()
            .min();
            tokio::select! {
                () = ends.next() => break,
                () = recorder.sharing.came.notified() => recorder.sources.send(HostKey::FIRST, Command::Full),
                event = recorder.sources.next() => recorder.receive(event),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => recorder.act_on_time(),
            }
        }
        recorder.record_waiting();
        recorder.sources.close().await;
        for note in recorder.output.writer.close(Instant::now()) {
            print_error(&note.into());
        }
        let notes = recorder.telling.map(|telling| telling.close(LAST_MESSAGES));
        for note in notes.into_iter().flatten() {
            print_error(&note);
        }
        if let Ok(sentence) = summary(&path) {
            print_error(&Text::new(sentence));
        }
        Ok(Exit::Success.into())
    })
}

/// Says how large and how long the recording is, and how to see it: `12.3 MiB, 8h00m: gputop replay
/// FILE`.
fn summary(path: &Path) -> io::Result<String> {
    let mut reader = RecordingReader::open(path)?;
    let Some((first, last)) = reader.span()? else {
        return Ok(format!("{} has no line", path.display()));
    };
    let span = Elapsed(Duration::from_millis(last.saturating_sub(first)));
    let path = path.display().to_string();
    Ok(format!(
        "{}, {span}: gputop replay {}",
        reader.size(),
        shell_words::quote(&path)
    ))
}

/// The raw lines of each host whose events are still to come.
type RawLines = Arc<Mutex<BTreeMap<HostKey, VecDeque<Vec<u8>>>>>;

/// How long lines wait until they are recorded, many at once: one after the other, each would find
/// the caches of the processor cold. Together with the time to write them, they are safe after 10
/// seconds.
const WAIT: Duration = Duration::from_secs(8);

/// The most bytes of lines that wait.
const MOST_WAITING: usize = 1 << 20;

/// Lines that were not recorded yet.
#[derive(Default)]
struct UnrecordedLines {
    /// The hosts, and the lines as they came and parsed.
    lines: Vec<(HostKey, Vec<u8>, Box<Line>)>,
    bytes: usize,
    /// When the first of them came; `None` when there is none.
    since: Option<Instant>,
}

impl UnrecordedLines {
    fn add(&mut self, host: HostKey, raw: Vec<u8>, line: Box<Line>) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes += raw.len();
        self.lines.push((host, raw, line));
    }
}

struct Recorder {
    sources: Sources,
    output: RecordingOutput,
    raw: RawLines,
    waiting: UnrecordedLines,
    interval: Duration,
    /// When sources that have ended are started again; those that do so by themselves are not here.
    restarts: BTreeMap<HostKey, Instant>,
    /// Why no lines come from some hosts, as it was printed.
    reasons: BTreeMap<HostKey, Text>,
    /// `None` where nobody is told anything.
    telling: Option<Telling>,
    /// The other gputops on this host that get its lines.
    sharing: Sharing,
    /// Their socket; `None` where another recorder has it, and without this host.
    _socket: Option<RecorderSocket>,
}

impl Recorder {
    fn start(
        args: &RecordArgs,
        writer: RecordingWriter,
        telling: Option<Telling>,
    ) -> anyhow::Result<Self> {
        let raw = RawLines::default();
        let queue = Arc::clone(&raw);
        let sources = args.hosts.sources(&args.agent, args.agent.given_interval());
        let sharing = Sharing::default();
        let socket = match sources.first() {
            Some(Source::LocalAgent(agent)) if agent.demo == SimulatedMachine::None => {
                sharing.start()
            }
            _ => None,
        };
        let readers = sharing.clone();
        let tap = Tap::new(move |host, line, raw| {
            if host == HostKey::FIRST {
                readers.pass_on(line, raw);
            }
            queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(host)
                .or_default()
                .push_back(raw.to_vec());
        });
        let sources = Sources::start(sources, Some(tap))?;
        let mut fleet = Fleet::default();
        for (host, source) in sources.hosts() {
            fleet.set_label(
                host,
                HostLabel {
                    name: source.name(),
                    source: source.description(),
                },
            );
        }
        let output = RecordingOutput::new(fleet, writer);
        let waiting = UnrecordedLines::default();
        Ok(Self {
            sources,
            output,
            raw,
            waiting,
            interval: args.interval(),
            restarts: BTreeMap::new(),
            reasons: BTreeMap::new(),
            telling,
            sharing,
            _socket: socket,
        })
    }

    /// Lets the model continue where the recording ended: its next checkpoint then covers the time
    /// before.
    fn read_past(&mut self, path: &Path) {
        let hosts = self.sources.hosts().count();
        let Ok(mut reader) = RecordingReader::open(path) else {
            return;
        };
        let Ok(Some((_, last))) = reader.span() else {
            return;
        };
        if reader.seek(last).is_err() {
            return;
        }
        while let Ok(Some(line)) = reader.next_line() {
            let host = HostTag::parse(line).map_or(0, |tag| tag.host_key);
            if let Ok(host) = u16::try_from(host)
                && usize::from(host) < hosts
            {
                self.output.apply_raw(HostKey(host), line);
                if let Some(telling) = &mut self.telling {
                    telling.see(HostKey(host), &self.output.fleet);
                }
            }
        }
    }

    /// Knows what the lines of an earlier recorder say: that was told.
    fn forget_told(&mut self) {
        if let Some(telling) = &mut self.telling {
            telling.forget(&self.output.fleet);
        }
    }

    /// Returns when waiting lines are to be recorded; `None` when there is none.
    fn waiting_due(&self) -> Option<Instant> {
        let wait = if self.telling.is_some() {
            WAIT_TO_TELL
        } else {
            WAIT
        };
        Some(self.waiting.since? + wait)
    }

    /// Returns when it is to be told that a host is silent.
    fn silence_due(&self) -> Option<Instant> {
        self.telling.as_ref()?.silence_due()
    }

    fn receive(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Line(host, line) => {
                self.reasons.remove(&host);
                if let Some(telling) = &mut self.telling {
                    telling.hear(host);
                }
                let (raw, is_latest) = {
                    let mut lines = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
                    let waiting = lines.entry(host).or_default();
                    (waiting.pop_front(), waiting.is_empty())
                };
                if let Some(raw) = raw {
                    self.waiting.add(host, raw, line);
                }
                // Later lines were passed on already: the past must not end before the reader's first one.
                if host == HostKey::FIRST && is_latest && self.sharing.awaits_past() {
                    self.send_past();
                }
                // The first lines show at once whether writing succeeds.
                if self.waiting.bytes >= MOST_WAITING || !self.output.writer.has_written() {
                    self.record_waiting();
                }
            }
            SourceEvent::Ended(host, reason) => {
                self.record_waiting();
                // A host that is down for days says so once.
                if self.reasons.get(&host) != Some(&reason) {
                    let name = self.output.fleet.name(host);
                    print_error(&Text::new(format!("{name}: {reason}; trying again")));
                    self.reasons.insert(host, reason.clone());
                }
                if let Some(telling) = &mut self.telling {
                    telling.lose(host, &reason, &self.output.fleet);
                }
                self.raw
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&host);
                self.restarts.insert(host, Instant::now() + RESTART_AFTER);
            }
            SourceEvent::Connection(host, ConnectionState::TriesAgain(_)) => {
                self.restarts.remove(&host);
            }
            SourceEvent::Connection(
                host,
                ConnectionState::WaitsForUser | ConnectionState::NeedsLogin,
            ) => {
                self.restarts
                    .insert(host, Instant::now() + RESTART_OF_REFUSED);
            }
            SourceEvent::Note(host, note) => {
                print_error(&Text::new(format!(
                    "{}: {note}",
                    self.output.fleet.name(host)
                )));
            }
            SourceEvent::Past(..)
            | SourceEvent::Named(..)
            | SourceEvent::RecordingEnded(_)
            | SourceEvent::Player(_)
            | SourceEvent::Connection(..)
            | SourceEvent::Program(..) => {}
        }
    }

    /// Tells a new reader what this recorder knows of its host.
    fn send_past(&mut self) {
        self.record_waiting();
        let checkpoint = self
            .output
            .fleet
            .host(HostKey::FIRST)
            .and_then(HostModel::checkpoint);
        self.sharing
            .send_past(checkpoint.map(|checkpoint| Line::Checkpoint(Box::new(checkpoint))));
    }

    fn record_waiting(&mut self) {
        let mut hosts = BTreeSet::new();
        for (host, raw, line) in std::mem::take(&mut self.waiting).lines {
            self.record(host, raw, *line);
            hosts.insert(host);
            if let Some(telling) = &mut self.telling {
                telling.see(host, &self.output.fleet);
            }
        }
        let Some(telling) = &mut self.telling else {
            self.output.writer.flush_waiting(Instant::now());
            return;
        };
        let messages: Vec<Message> = hosts
            .into_iter()
            .flat_map(|host| telling.take(host, &self.output.fleet))
            .collect();
        // A recorder that is started again reads that this was told.
        if !messages.is_empty() || !self.output.writer.has_written() {
            self.output.writer.flush_waiting(Instant::now());
        }
        telling.send(&messages);
    }

    fn record(&mut self, host: HostKey, mut raw: Vec<u8>, line: Line) {
        if self.sources.hosts().nth(1).is_some() {
            let tag = HostTag {
                host_key: host.0.into(),
                name: Some(self.output.fleet.name(host).into()),
            };
            tag.append_to(&mut raw);
            self.output.set_tag(host, tag);
        }
        raw.push(b'\n');
        if !self.output.record(host, raw, line, Instant::now()) {
            self.sources.send(host, Command::Full);
        }
    }

    fn act_on_time(&mut self) {
        let now = Instant::now();
        if self.waiting_due().is_some_and(|due| due <= now) {
            self.record_waiting();
        }
        if let Some(telling) = &mut self.telling {
            telling.lose_silent(now, &self.output.fleet);
        }
        self.output.writer.flush_if_due(now);
        let due: Vec<HostKey> = self
            .restarts
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(host, _)| *host)
            .collect();
        for host in due {
            self.restarts.remove(&host);
            self.sources.restart(host, self.interval);
        }
        self.sources.reap();
    }

    fn print_notes(&mut self) {
        for note in self.output.writer.take_notes() {
            print_error(&note.into());
        }
        let notes = self.telling.as_mut().map(Telling::take_notes);
        for note in notes.into_iter().flatten() {
            print_error(&note);
        }
    }
}
