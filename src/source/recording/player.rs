//! The player: sends the lines of a recording when they are due, and obeys the user who pauses,
//! steps and jumps.
//!
//! Another process reads the file. A jump starts a new reader, near the wanted time. Lines from
//! there up to that time are sent without delay, between [`PlayerReport::JumpBegan`] and
//! [`PlayerReport::Jumped`].

use std::io;
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use tokio::process::ChildStderr;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use super::line_parser::{LineParser, ParsedInput, ParsedLine};
use crate::base::detach::explained;
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerCommand, PlayerReport, Speed};
use crate::source::SourceEvent;
use crate::source::connection::Reporter;
use crate::source::standard_error::StandardError;

const MOST_HOSTS: usize = 1024;

/// A longer time between two lines is a gap: nothing was recorded. The longest interval of an agent
/// is a minute.
const GAP: Duration = Duration::from_mins(2);

/// How long the player waits at a gap, at any speed.
const WAIT_AT_GAP: Duration = Duration::from_secs(1);

/// A host whose first line is this much later than the lines of other hosts has a clock that is
/// ahead.
const CLOCK_AHEAD: u64 = 60_000;

/// A line that is this much earlier than the line before comes after the clock was set back, in
/// milliseconds.
const CLOCK_SET_BACK: u64 = 60_000;

/// Returns a command that prints the lines of a recording; from a little before a time in
/// milliseconds since 1970, if one is given.
pub(super) type ReaderCommand = Box<dyn Fn(Option<u64>) -> Command + Send + Sync>;

/// The process that reads the file, and its output.
pub(super) struct Reader {
    process: Child,
    lines: LineParser,
    /// Why the file cannot be read to its end; empty if it can.
    standard_error: StandardError,
    /// The number of lines that were read.
    count: u64,
}

impl Reader {
    /// Takes over a process that prints lines.
    pub(super) fn new(
        process: Child,
        stdout: process::ChildStdout,
        stderr: process::ChildStderr,
    ) -> io::Result<Self> {
        Ok(Self {
            process,
            lines: LineParser::start(stdout)?,
            standard_error: StandardError::new(ChildStderr::from_std(stderr)?),
            count: 0,
        })
    }
}

/// Starts a process that prints lines, and returns it with its outputs.
pub(super) fn start(
    command: &mut Command,
) -> io::Result<(Child, process::ChildStdout, process::ChildStderr)> {
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(explained)?;
    match (process.stdout.take(), process.stderr.take()) {
        (Some(stdout), Some(stderr)) => Ok((process, stdout, stderr)),
        _ => Err(io::Error::other("a process was started without pipes")),
    }
}

/// A host in a recording.
pub(super) struct RecordedHost {
    /// The key of the host in the file; `None` for lines without a tag.
    pub(super) key_in_file: Option<u64>,
    /// The data time of its newest line.
    pub(super) at: Moment,
    /// The time from the beginning of the recording, or from the latest jump, to that line.
    pub(super) position: Duration,
    /// How far the clock of the host is ahead of the clocks of the other hosts, in milliseconds.
    ahead: u64,
    /// The number of its lines that were sent since the latest jump.
    lines: u64,
    /// The time since 1970 of its newest line, in milliseconds.
    unix_ms: u64,
}

impl RecordedHost {
    pub(super) fn new(key_in_file: Option<u64>, at: Moment, position: Duration) -> Self {
        Self {
            key_in_file,
            at,
            position,
            ahead: 0,
            lines: 0,
            unix_ms: 0,
        }
    }

    /// Advances to the line at this data time. Returns the time from the beginning of the recording
    /// to that line.
    pub(super) fn advance(&mut self, at: Moment) -> Duration {
        // A smaller time is that of another boot: how much time passed is not known, so none is
        // counted.
        let step = at.since(std::mem::replace(&mut self.at, at));
        self.position = self.position.saturating_add(step);
        self.position
    }
}

/// A line that was read and not sent yet.
struct PendingLine {
    /// The place of its host among the hosts.
    place: usize,
    line: Line,
    name: Option<Text>,
    /// The data time and the time since 1970; `None` for a line without them.
    times: Option<(Moment, u64)>,
}

/// Whether lines are sent.
#[derive(Debug, Clone, PartialEq)]
enum Playing {
    On,
    Paused,
    /// Holds the places of the hosts that had their pass of this step.
    Stepping(Vec<usize>),
}

/// Sends the lines of a recording.
pub(super) struct Player {
    reader_command: ReaderCommand,
    reader: Reader,
    /// Readers of before the latest jumps, which have not exited yet.
    exiting: Vec<Child>,
    /// Why the recording cannot jump; `None` if it can.
    cannot_jump: Option<&'static str>,
    commands: UnboundedReceiver<PlayerCommand>,
    /// The hosts in the order of their keys, which is the order in which they appear.
    hosts: Vec<RecordedHost>,
    pending: Option<PendingLine>,
    has_ended: bool,
    mode: Playing,
    speed: Speed,
    /// An instant, and the position of the recording at that instant. Both change with the speed.
    pace: (Instant, Duration),
    /// The position of the latest line that was sent.
    position: Duration,
    /// The target of the jump that is under way, in milliseconds since 1970.
    target: Option<u64>,
    /// The time since 1970 in milliseconds, by the clock of the host at `clock_host`; `None` until
    /// a line was sent.
    now: Option<u64>,
    /// The host of the first line since the latest jump.
    clock_host: usize,
    /// The reason why the first ignored line was not understood, and the number of ignored lines;
    /// `None` when there are none.
    ignored: Option<(String, u64)>,
    reporter: Reporter,
}

impl Player {
    pub(super) fn new(
        reader_command: ReaderCommand,
        reader: Reader,
        cannot_jump: Option<&'static str>,
        speed: Speed,
        commands: UnboundedReceiver<PlayerCommand>,
        reporter: Reporter,
    ) -> Self {
        Self {
            cannot_jump,
            reader_command,
            reader,
            exiting: Vec::new(),
            commands,
            hosts: Vec::new(),
            pending: None,
            has_ended: false,
            mode: Playing::On,
            speed,
            pace: (Instant::now(), Duration::ZERO),
            position: Duration::ZERO,
            target: None,
            now: None,
            clock_host: 0,
            ignored: None,
            reporter,
        }
    }

    /// Plays until nothing reads events any more, or the recording cannot be replayed at all.
    pub(super) async fn run(mut self) {
        while self.advance().await {}
    }

    /// Reads or sends one line, or obeys one command. Returns whether to go on.
    async fn advance(&mut self) -> bool {
        if let Ok(command) = self.commands.try_recv() {
            return self.perform(command).await;
        }
        if self.pending.is_none() && !self.has_ended {
            return tokio::select! {
                biased;
                Some(command) = self.commands.recv() => self.perform(command).await,
                input = self.reader.lines.next() => match input {
                    ParsedInput::Line(line) => {
                        self.reader.count += 1;
                        self.take_line(*line);
                        true
                    }
                    ParsedInput::Misunderstood(count) => {
                        self.reader.count += count;
                        if let Some((_, ignored)) = &mut self.ignored {
                            *ignored += count;
                        }
                        true
                    }
                    ParsedInput::End { is_cut_off } => {
                        self.end(is_cut_off.then(|| "the last line of the recording is cut off".to_owned()), None).await
                    }
                    ParsedInput::Failed(error) => {
                        let error = format!("line {}: {error}", self.reader.count + 1);
                        self.end(None, Some(error)).await
                    }
                }
            };
        }
        let Some(line) = self.pending.take() else {
            // The recording has ended.
            return match self.commands.recv().await {
                Some(command) => self.perform(command).await,
                None => false,
            };
        };
        if let Some(target) = self.target {
            return if self.is_after(&line, target) {
                self.finish_jump(line).await
            } else {
                self.send(line).await
            };
        }
        match &mut self.mode {
            Playing::On => {}
            Playing::Stepping(stepped)
                if line.times.is_none() || !stepped.contains(&line.place) =>
            {
                if line.times.is_some() {
                    stepped.push(line.place);
                }
                return self.send(line).await;
            }
            Playing::Paused | Playing::Stepping(_) => {
                self.mode = Playing::Paused;
                self.pending = Some(line);
                return match self.commands.recv().await {
                    Some(command) => self.perform(command).await,
                    None => false,
                };
            }
        }
        let due = self.due(&line);
        // A timer would wait for up to a millisecond more.
        if due.is_some_and(|due| due <= Instant::now()) {
            return self.send(line).await;
        }
        tokio::select! {
            biased;
            Some(command) = self.commands.recv() => {
                self.pending = Some(line);
                self.perform(command).await
            }
            () = wait_until(due) => self.send(line).await,
        }
    }

    /// Takes a line in, which then is pending unless it is not understood.
    fn take_line(&mut self, parsed: ParsedLine) {
        let number = self.reader.count;
        let ParsedLine { line, tag } = parsed;
        let line = match line {
            Ok(Some(line)) => line,
            // The recording may be from a later version, with more kinds of lines.
            Ok(None) => return,
            Err(reason) => return self.ignore(number, &reason),
        };
        let key_in_file = tag.as_ref().map(|tag| tag.host_key);
        let times = match &line {
            Line::Full(snapshot) => Some((snapshot.at, snapshot.unix_ms)),
            Line::Tick(change) => Some((change.at, change.unix_ms)),
            Line::Reply(_) | Line::Checkpoint(_) => None,
        };
        let place = self
            .hosts
            .iter()
            .position(|host| host.key_in_file == key_in_file)
            .unwrap_or(self.hosts.len());
        // A checkpoint after the first line replaces the lines before it. The model derives the
        // same as a later checkpoint holds.
        if matches!(line, Line::Checkpoint(_))
            && self.hosts.get(place).is_none_or(|host| host.lines != 1)
        {
            return;
        }
        if place == MOST_HOSTS {
            return self.ignore(number, &format!("its host is one more than {MOST_HOSTS}"));
        }
        if place == self.hosts.len() {
            self.hosts.push(RecordedHost::new(
                key_in_file,
                Moment::default(),
                Duration::ZERO,
            ));
        }
        self.pending = Some(PendingLine {
            place,
            line,
            name: tag.and_then(|tag| tag.name),
            times,
        });
    }

    fn ignore(&mut self, number: u64, reason: &str) {
        let (_, count) = self
            .ignored
            .get_or_insert_with(|| (format!("line {number} of the recording: {reason}"), 0));
        *count += 1;
    }

    /// When a line is due; `None` for never.
    fn due(&mut self, line: &PendingLine) -> Option<Instant> {
        let Some((at, _)) = line.times else {
            return Some(Instant::now());
        };
        let host = &self.hosts[line.place];
        // The first line of a host is due at once.
        let step = if host.lines > 0 {
            at.since(host.at)
        } else {
            Duration::ZERO
        };
        let position = if host.lines > 0 {
            host.position.saturating_add(step)
        } else {
            self.position
        };
        let Speed::Times(times) = self.speed else {
            return Some(Instant::now());
        };
        let since_pace = position.saturating_sub(self.pace.1).as_secs_f64() / times;
        let due = self
            .pace
            .0
            .checked_add(Duration::try_from_secs_f64(since_pace).unwrap_or(Duration::MAX));
        if position.saturating_sub(self.position) < GAP {
            return due;
        }
        let after_gap = Instant::now() + WAIT_AT_GAP;
        if due.is_some_and(|due| due <= after_gap) {
            return due;
        }
        self.pace = (after_gap, position);
        Some(after_gap)
    }

    /// Sends a line. Returns whether anything still reads events.
    async fn send(&mut self, pending: PendingLine) -> bool {
        let PendingLine {
            place,
            line,
            name,
            times,
        } = pending;
        let Ok(key) = u16::try_from(place).map(HostKey) else {
            return true;
        };
        let host = &mut self.hosts[place];
        host.lines += 1;
        if host.lines == 1 {
            host.position = self.position;
            host.at = times.map(|(at, _)| at).unwrap_or_default();
            if let (Some((_, unix_ms)), Some(now)) = (times, self.now) {
                host.ahead = Some(unix_ms.saturating_sub(now))
                    .filter(|ahead| *ahead > CLOCK_AHEAD)
                    .unwrap_or(0);
            }
            if let Some(name) = name
                && !self.reporter.send(SourceEvent::Named(key, name)).await
            {
                return false;
            }
        }
        if let Some((at, unix_ms)) = times {
            let host = &mut self.hosts[place];
            self.position = self.position.max(host.advance(at));
            host.unix_ms = unix_ms;
            let unix_ms = unix_ms.saturating_sub(host.ahead);
            self.now = match self.now {
                Some(now) if place != self.clock_host => Some(now.max(unix_ms)),
                Some(_) => Some(unix_ms),
                None => {
                    self.clock_host = place;
                    Some(unix_ms)
                }
            };
        }
        // A key that answers to what the screen shows goes on from there.
        (self.target.is_some() || self.send_position().await)
            && self
                .reporter
                .send(SourceEvent::Line(key, Box::new(line)))
                .await
    }

    async fn report(&self, report: PlayerReport) -> bool {
        self.reporter.send(SourceEvent::Player(report)).await
    }

    async fn send_position(&mut self) -> bool {
        match self.now {
            Some(now) => self.report(PlayerReport::At(now)).await,
            None => true,
        }
    }

    /// Whether a line comes after the target of a jump, or after the clock was set back: then the
    /// target is not ahead. The first line of each host never does: the host would be missing.
    fn is_after(&self, line: &PendingLine, target: u64) -> bool {
        let host = &self.hosts[line.place];
        line.times.is_some_and(|(_, unix_ms)| {
            let is_set_back = host.unix_ms.saturating_sub(unix_ms) > CLOCK_SET_BACK;
            host.lines > 0 && (is_set_back || unix_ms.saturating_sub(host.ahead) > target)
        })
    }

    /// Ends the jump before a line, which is due after the usual time.
    async fn finish_jump(&mut self, next: PendingLine) -> bool {
        self.pending = Some(next);
        self.report_jump().await
    }

    /// Reports the end of the jump that is under way, if any.
    async fn report_jump(&mut self) -> bool {
        if self.target.take().is_none() {
            return true;
        }
        self.pace = (Instant::now(), self.position);
        self.send_position().await && self.report(PlayerReport::Jumped).await
    }

    async fn perform(&mut self, command: PlayerCommand) -> bool {
        match command {
            PlayerCommand::Pause => self.mode = Playing::Paused,
            PlayerCommand::Resume => self.mode = Playing::On,
            PlayerCommand::Step => self.mode = Playing::Stepping(Vec::new()),
            PlayerCommand::Speed(speed) => self.speed = speed,
            PlayerCommand::Jump(target) => return self.jump(target).await,
        }
        self.pace = (Instant::now(), self.position);
        true
    }

    async fn jump(&mut self, target: u64) -> bool {
        if let Some(reason) = self.cannot_jump {
            return self.report(PlayerReport::JumpRefused(reason.into())).await;
        }
        let started = start(&mut (self.reader_command)(Some(target)));
        let reader = match started
            .and_then(|(process, stdout, stderr)| Reader::new(process, stdout, stderr))
        {
            Ok(reader) => reader,
            Err(error) => {
                let reason = Text::new(format!("cannot read the recording: {error}"));
                return self.report(PlayerReport::JumpRefused(reason)).await;
            }
        };
        let mut old = std::mem::replace(&mut self.reader, reader).process;
        let _exited: io::Result<()> = old.kill();
        self.exiting.push(old);
        self.exiting
            .retain_mut(|process| !matches!(process.try_wait(), Ok(Some(_)) | Err(_)));
        for host in &mut self.hosts {
            (host.lines, host.ahead) = (0, 0);
        }
        (self.pending, self.has_ended, self.ignored) = (None, false, None);
        (self.target, self.now, self.position) = (Some(target), None, Duration::ZERO);
        if let Playing::Stepping(_) = self.mode {
            self.mode = Playing::Paused;
        }
        self.report(PlayerReport::JumpBegan).await
    }

    /// Reports the end of the recording, and what is wrong with the file. Returns whether a jump
    /// could still follow.
    async fn end(&mut self, problem: Option<String>, failure: Option<String>) -> bool {
        self.has_ended = true;
        if !self.report_jump().await {
            return false;
        }
        let last_lines = self.reader.standard_error.last_lines().await;
        let failure = failure.or_else(|| last_lines.last().map(Text::to_string));
        let ignored = self.ignored.take().map(|(sentence, count)| match count {
            1 => sentence,
            count => format!("{count} lines are not understood; the first is {sentence}"),
        });
        let problems: Vec<String> = failure.into_iter().chain(ignored).chain(problem).collect();
        if self.hosts.is_empty() {
            let reason = if problems.is_empty() {
                "there is no line in it".to_owned()
            } else {
                problems.join("; ")
            };
            let reason = Text::new(format!("the recording cannot be replayed: {reason}"));
            self.reporter
                .send(SourceEvent::Ended(HostKey::FIRST, reason))
                .await;
            return false;
        }
        let problem = (!problems.is_empty()).then(|| Text::new(problems.join("; ")));
        self.reporter
            .send(SourceEvent::RecordingEnded(problem))
            .await
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        // A line so far in the future is never due.
        None => std::future::pending().await,
    }
}
