//! The main loop of the screen: turns lines, keys, signals and time into events of the app, and
//! performs the app's effects.
//!
//! The loop runs on one thread and never blocks. Two more threads read the terminal and its keys,
//! and one watches for the end of the terminal. After a signal the exit code is 128 and the number
//! of the signal, as in a shell.

pub(crate) mod cast;
pub(crate) mod cluster;
mod frame_pacer;
mod history;
mod inputs;
mod notify;
mod options;
mod outline;
mod picture_file;
mod recorder;
mod save_settings;
pub(crate) mod screenshot;
mod slurm;
mod terminal_guest;
mod watcher;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crossterm::event::{self as terminal_event, KeyCode};
use rustix::process::Signal;
use tokio::sync::mpsc as queue;
use tokio::time::{Instant, sleep_until};

use self::frame_pacer::{FramePacer, ScreenState};
use self::history::{HistoryKeeper, HistoryResult};
use self::inputs::{listen, listen_to_replies};
use self::notify::Notifier;
pub(crate) use self::options::{ScreenFiles, SessionOptions, SettingsFiles};
use self::recorder::{RecorderQueue, SessionRecorder};
use self::save_settings::SettingsWriter;
use self::terminal_guest::TerminalGuest;
use crate::app::App;
use crate::app::event::{Effect, Event};
use crate::app::input::end_dialog::PlannedEnd;
use crate::app::settings::ThemeName;
use crate::base::terminal::{Background, size};
use crate::base::text::Text;
use crate::base::time::{ViewerClock, ViewerTime};
use crate::files::local_time::{unix_ms, utc_offset};
use crate::model::{Fleet, HostLabel, OutlinePart};
use crate::protocol::host_key::HostKey;
use crate::protocol::playback::PlayerReport;
use crate::protocol::recorder_report::{RecorderReport, RecorderState};
use crate::protocol::slurm_job::{SlurmCancelAnswer, SlurmJob};
use crate::source::prometheus::AskedRound;
use crate::source::{AskedJob, SlurmCommands, SourceEvent, Sources, descriptors};
use crate::tui::terminal::input::{Replies, TerminalReply};
use crate::tui::terminal::{self, Screen};
use crate::view::{self, Theme};

/// The longest time between two ticks. Ticks let the ages on the screen grow. Each event brings a
/// tick too, and this is a little longer than the default interval, so the timer wakes gputop only
/// while no lines come.
const TICK: Duration = Duration::from_millis(1050);

/// The shortest time between two ticks that lines bring.
const SHORTEST_TICK: Duration = Duration::from_millis(50);

/// The least time between two readings of the wall clock. Ticks let it go on between them.
const CLOCK: Duration = Duration::from_secs(1);

/// How long the screen may stay empty at the start, until the first line arrives.
const FIRST_FRAME: Duration = Duration::from_millis(50);

/// How long the first frame waits for the terminal to report its background.
const FIRST_COLOURS: Duration = Duration::from_millis(50);

/// How long gputop, before it leaves the terminal, waits for a reply that is still to come: the
/// shell would take the reply for keys.
const LAST_REPLY: Duration = Duration::from_millis(250);

/// An effect of Enter that was on the screen for a shorter time was not read: people answer later
/// to what they see. An Enter that comes sooner was typed for what the screen showed before, by a
/// slip or ahead of a slow connection.
const READING_TIME: Duration = Duration::from_millis(250);

/// Shows the screen until the user quits.
///
/// # Errors
///
/// When no source can be started, the terminal cannot be taken over, or no key can be read.
pub(crate) fn run(options: &SessionOptions) -> anyhow::Result<ExitCode> {
    descriptors::check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Sources start first, because an agent needs longer for its first line than the terminal does.
    let guard = runtime.enter();
    let recorder_queue = RecorderQueue::default();
    let sources = Sources::start(options.sources.clone(), Some(recorder_queue.tap()))?;
    drop(guard);
    let screen = Screen::enter(options.mouse).context("cannot take over the terminal")?;
    terminal::end_on_panic(Some(screen.tty()));
    let (end, recorded) = runtime.block_on(async {
        let (sender, inputs) = listen()?;
        let replies = listen_to_replies(&sender).context("cannot read keys from the terminal")?;
        let outlines = sender.clone();
        outline::start(&options.sources, move |part| {
            outlines.send(SessionInput::Outline(part)).is_ok()
        });
        let recorder = SessionRecorder::new(sender.clone(), &recorder_queue);
        Session::new(options, screen, replies, sources, recorder, &sender)
            .run(inputs)
            .await
    })?;
    // Only now the terminal is as before.
    if let Some(sentence) = recorded {
        let _no_terminal = writeln!(io::stderr(), "gputop: {sentence}");
    }
    Ok(match end {
        SessionEnd::Quit => ExitCode::SUCCESS,
        SessionEnd::Signal(signal) => {
            ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(1))
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionEnd {
    Quit,
    /// A signal arrived; `SIGHUP` also stands for a terminal that is gone.
    Signal(Signal),
}

/// An input of the loop other than the events of the sources.
#[derive(Debug)]
enum SessionInput {
    Terminal(terminal_event::Event),
    /// The terminal has answered a question.
    Reply(TerminalReply),
    Signal(Signal),
    /// The program of an alert could not be run, or failed.
    AlertProgramFailed(Text),
    /// A part of the outline of the recording.
    Outline(OutlinePart),
    /// A sentence on whether settings were written.
    SettingsWritten(Text),
    /// The process that writes a recording has reported its state.
    Recorder(RecorderReport),
    /// A process has read or written the history of a host.
    History(HostKey, HistoryResult),
    /// Slurm has said whether the user may cancel the job of a dialog, or has cancelled it.
    SlurmCancel(SlurmCancelAnswer),
    /// Slurm has answered, or cannot be asked.
    Slurm(Result<SlurmJob, Text>),
    /// The process that logs in to a host has ended; whether the connection is open.
    LoggedIn(HostKey, bool),
    /// A Prometheus server has answered the questions of a round, or could not.
    Prometheus(AskedRound),
    /// The gputop that showed a host of a cluster has ended, with a sentence on how.
    HostClosed(String),
    /// The terminal cannot be read, so not even the key that quits would work.
    KeysUnreadable(io::Error),
}

/// Returns the app at the start of a session.
fn new_app(options: &SessionOptions, sources: &Sources) -> App {
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
    let mut app = App::with_hosts(options.app.clone(), fleet);
    app.apply_settings(options.settings.clone());
    app.set_filter(&options.filter);
    if let Some(background) = Background::from_env() {
        app.update(Event::Background(background));
    }
    for notice in &options.notices {
        app.update(Event::Done(notice.as_str().into()));
    }
    app
}

/// Reads the wall clock and the time zone of the viewer; `None` if the zone is not known.
fn viewer_clock() -> Option<ViewerClock> {
    Some(ViewerClock {
        unix_ms: unix_ms(),
        utc_offset: utc_offset()?,
    })
}

/// Returns the event of the app for an event of a source; `None` if the screen does not show it.
fn event_of_source(event: SourceEvent) -> Option<Event> {
    Some(match event {
        SourceEvent::Program(..) => return None,
        SourceEvent::Line(host, line) => Event::Line(host, line),
        SourceEvent::Connection(host, state) => Event::Connection(host, state),
        SourceEvent::Past(host, past) => Event::RecorderPast(host, past),
        SourceEvent::Note(host, note) => Event::Said(host, note),
        SourceEvent::Named(host, name) => Event::Host(
            host,
            HostLabel {
                name: Some(name),
                source: "a recording".into(),
            },
        ),
        SourceEvent::RecordingEnded(problem) => Event::RecordingEnded(problem),
        SourceEvent::Player(report) => Event::Player(report),
        SourceEvent::Ended(host, reason) => Event::SourceLost(host, reason),
    })
}

struct Session<'a> {
    app: App,
    theme: Theme,
    screen: Screen,
    replies: Arc<Replies>,
    /// Whether the terminal was asked for its background, which happens once.
    has_asked: bool,
    /// How long a frame waits for the reply; `None` once it has come.
    awaits_colours_until: Option<Instant>,
    sources: Sources,
    /// The moment of the app's last tick.
    now: Instant,
    /// When the wall clock is read again.
    clock_due: Instant,
    screen_state: ScreenState,
    pacer: FramePacer,
    /// The effect of Enter that the end-process dialog on the screen announces, and when the user
    /// had time to read it; `None` while no dialog is drawn, and from that time on.
    unread_end: Option<(PlannedEnd, Instant)>,
    is_blank: bool,
    /// Whether the SIGCONT after gputop stopped itself is still to come.
    expects_continue: bool,
    inputs: queue::UnboundedSender<SessionInput>,
    /// The configuration file that the user named.
    config: Option<&'a Path>,
    /// The program that the terminal is lent to; `None` while this one has it.
    guest: Option<TerminalGuest>,
    notifier: Notifier,
    settings_writer: SettingsWriter<'a>,
    history: HistoryKeeper<'a>,
    recorder: SessionRecorder,
    /// The job of `--slurm`; `None` without one.
    asked_job: Option<&'a AskedJob>,
    /// The commands of Slurm, where `--slurm` says; on this host without it.
    slurm_commands: SlurmCommands,
}

impl<'a> Session<'a> {
    fn new(
        options: &'a SessionOptions,
        screen: Screen,
        replies: Arc<Replies>,
        sources: Sources,
        recorder: SessionRecorder,
        inputs: &queue::UnboundedSender<SessionInput>,
    ) -> Self {
        let now = Instant::now();
        Self {
            app: new_app(options, &sources),
            theme: options.theme,
            screen,
            replies,
            has_asked: false,
            awaits_colours_until: None,
            sources,
            now,
            clock_due: now,
            screen_state: ScreenState::Outdated,
            pacer: FramePacer::new(options.sources.len(), now + FIRST_FRAME),
            unread_end: None,
            is_blank: true,
            expects_continue: false,
            inputs: inputs.clone(),
            config: options.named_config.as_deref(),
            guest: None,
            notifier: Notifier::new(&options.alert_command, options.bell, inputs.clone()),
            settings_writer: SettingsWriter::new(options, inputs.clone()),
            history: HistoryKeeper::new(options.history_files.as_ref(), inputs.clone()),
            recorder,
            asked_job: options.asked_job.as_ref(),
            slurm_commands: options.slurm_commands.clone(),
        }
    }

    /// Runs until the session ends. Returns why, and a sentence on a recording that ended with it.
    async fn run(
        mut self,
        mut inputs: queue::UnboundedReceiver<SessionInput>,
    ) -> anyhow::Result<(SessionEnd, Option<Text>)> {
        if self.ask_for_background() {
            self.awaits_colours_until = Some(Instant::now() + FIRST_COLOURS);
        }
        let mut end = self.resized();
        while end.is_none() {
            let (is_outdated, is_ready) = (
                self.screen_state != ScreenState::UpToDate,
                self.screen.is_ready(),
            );
            let frame_due = self.frame_due();
            let read_at = self.unread_end.as_ref().map(|(_, read_at)| *read_at);
            end = tokio::select! {
                biased;
                Some(input) = inputs.recv() => match input {
                    // Typed before the terminal was lent, and read after.
                    SessionInput::Terminal(_) if self.replies.is_lent() => None,
                    SessionInput::Terminal(event) => self.terminal(&event),
                    SessionInput::Reply(reply) => self.take_reply(reply),
                    SessionInput::Signal(signal) => self.signal(signal)?,
                    SessionInput::AlertProgramFailed(problem) => self.update(Event::Done(problem)),
                    SessionInput::Outline(part) => self.update(Event::Outline(part)),
                    SessionInput::SettingsWritten(sentence) => self.update(Event::Done(sentence)),
                    SessionInput::Recorder(report) => {
                        if report.state == RecorderState::Closed {
                            self.recorder.stop();
                        }
                        self.update(Event::Recorder(report))
                    }
                    SessionInput::SlurmCancel(answer) => self.update(Event::SlurmCancel(answer)),
                    SessionInput::LoggedIn(host, is_open) => {
                        self.guest = None;
                        self.replies.take_back();
                        self.take_over()?;
                        self.update(Event::LoggedIn(host, is_open))
                    }
                    SessionInput::History(host, result) => {
                        self.history.take_result(host, result).and_then(|event| self.update(event))
                    }
                    SessionInput::Slurm(answer) => self.update(Event::Slurm(answer)),
                    SessionInput::KeysUnreadable(error) => return Err(error).context("cannot read keys from the terminal"),
                    // These are for the cluster view.
                    SessionInput::Prometheus(_) | SessionInput::HostClosed(_) => None,
                },
                () = self.screen.ready(), if is_outdated && !is_ready => None,
                // Before lines: a host that sends without a pause must not keep the screen from
                // being drawn.
                () = sleep_until(frame_due), if is_outdated && is_ready => {
                    self.draw();
                    None
                }
                () = sleep_until(read_at.unwrap_or(self.now)), if read_at.is_some() && is_ready => {
                    self.take_end_as_read();
                    None
                }
                event = self.sources.next() => self.receive(event),
                () = sleep_until(self.now + TICK) => self.tick(),
            };
        }
        self.guest = None;
        if end != Some(SessionEnd::Signal(Signal::HUP)) {
            self.replies.drain(LAST_REPLY);
        }
        self.screen.tty().restore();
        self.history.finish(self.app.live_fleet());
        let recorded = self.recorder.finish().await;
        self.settings_writer.finish(&self.app.settings()).await;
        self.sources.close().await;
        Ok((end.context("the session ended without a reason")?, recorded))
    }

    /// Asks the terminal for its background if the theme depends on it and the terminal was not
    /// asked before. Returns whether it was asked now.
    fn ask_for_background(&mut self) -> bool {
        if self.has_asked || self.app.theme != ThemeName::Auto {
            return false;
        }
        self.has_asked = true;
        let can_answer = self.replies.expect();
        if can_answer {
            self.screen.ask();
        }
        can_answer
    }

    fn take_reply(&mut self, reply: TerminalReply) -> Option<SessionEnd> {
        let awaited = self.awaits_colours_until.take();
        match reply {
            TerminalReply::Background(background) => {
                // The first frame waits for the first line, too.
                if awaited.is_none() {
                    self.screen_state = ScreenState::Awaited;
                }
                self.update(Event::Background(background))
            }
            TerminalReply::End => None,
        }
    }

    /// When the next frame may be drawn.
    fn frame_due(&self) -> Instant {
        let due = self.pacer.due(self.screen_state);
        self.awaits_colours_until
            .map_or(due, |awaited| due.max(awaited))
    }

    fn draw(&mut self) {
        self.awaits_colours_until = None;
        self.app.settle();
        self.screen
            .draw(|buffer| view::draw(buffer, &self.theme, &self.app));
        let unread = self.app.unread_end();
        if self.unread_end.as_ref().map(|(end, _)| end) != unread.as_ref() {
            self.unread_end = unread.map(|end| (end, Instant::now() + READING_TIME));
        }
        self.screen_state = ScreenState::UpToDate;
        self.pacer.note_frame(Instant::now());
    }

    fn take_end_as_read(&mut self) {
        // The dialog may have changed since it was drawn.
        if self
            .unread_end
            .take()
            .is_some_and(|(end, _)| self.app.unread_end() == Some(end))
        {
            self.app.mark_end_as_read();
            self.screen_state = ScreenState::Awaited;
        }
    }

    /// Ticks before an event of a source, but not for each of the many lines of a fleet.
    fn tick_for_line(&mut self) -> Option<SessionEnd> {
        if self.now.elapsed() < SHORTEST_TICK {
            return None;
        }
        self.tick()
    }

    fn tick(&mut self) -> Option<SessionEnd> {
        self.sources.reap();
        let before = std::mem::replace(&mut self.now, Instant::now());
        self.history
            .start_due(self.app.live_fleet(), &self.sources, self.now);
        self.set_clock();
        self.update(Event::Tick(ViewerTime::new(self.now - before)))
    }

    /// Tells the app what the wall clock shows, once a second at most: it may be set, and the time
    /// zone may change. In a replay, the clock is that of the recording.
    fn set_clock(&mut self) {
        if self.now < self.clock_due || self.sources.is_recording() {
            return;
        }
        self.clock_due = self.now + CLOCK;
        if let Some(clock) = viewer_clock() {
            self.app.take(Event::Clock(clock));
        }
    }

    /// Passes an event to the app and performs the effect that it asks for.
    fn update(&mut self, event: Event) -> Option<SessionEnd> {
        self.screen_state = self.screen_state.max(ScreenState::Outdated);
        let is_of_user = matches!(event, Event::Key(_) | Event::Mouse(_));
        let effect = self.app.take(event);
        if is_of_user {
            // The next key may come before the next frame, and acts on what this one changed.
            self.app.settle();
        }
        // The user may have chosen the theme just now.
        self.ask_for_background();
        effect.and_then(|effect| self.perform(effect))
    }

    fn terminal(&mut self, event: &terminal_event::Event) -> Option<SessionEnd> {
        let event = match event {
            terminal_event::Event::Key(key) => Event::Key(*key),
            terminal_event::Event::Mouse(mouse) => Event::Mouse(*mouse),
            terminal_event::Event::Paste(text) => return self.paste(text),
            // A new size comes as a signal: the thread that reads keys would report it only after
            // the rest of a key.
            terminal_event::Event::Resize(..)
            | terminal_event::Event::FocusGained
            | terminal_event::Event::FocusLost => return None,
        };
        self.screen_state = ScreenState::Awaited;
        self.tick().or_else(|| self.update(event))
    }

    /// Takes pasted text into the filter or the name of a mark. Elsewhere its letters would be
    /// keys, so it is ignored.
    fn paste(&mut self, text: &str) -> Option<SessionEnd> {
        if !self.app.is_typing() {
            return None;
        }
        self.screen_state = ScreenState::Awaited;
        let letters = text.chars().filter(|letter| !letter.is_control());
        letters
            .map(|letter| Event::Key(KeyCode::Char(letter).into()))
            .find_map(|key| self.update(key))
    }

    fn receive(&mut self, event: SourceEvent) -> Option<SessionEnd> {
        if std::mem::take(&mut self.is_blank) {
            self.pacer.next = Instant::now();
        }
        if let SourceEvent::Player(PlayerReport::Jumped) = event {
            self.screen_state = ScreenState::Awaited;
        }
        if let SourceEvent::Line(host, _) = event {
            self.recorder.name(host, self.app.live_fleet().name(host));
        }
        let event = event_of_source(event)?;
        if self.app.is_jumping() {
            // The lines of a jump change nothing on the screen, and are many.
            return self.update(event);
        }
        self.tick_for_line().or_else(|| self.update(event))
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<Option<SessionEnd>> {
        match signal {
            // The keys of the terminal mean the program that it is lent to, which gets them too.
            Signal::INT | Signal::QUIT | Signal::CONT if self.replies.is_lent() => Ok(None),
            Signal::TSTP if self.replies.is_lent() => {
                stop_group();
                Ok(None)
            }
            Signal::TSTP => Ok(self.perform(Effect::Suspend)),
            Signal::CONT => {
                // After a SIGSTOP from elsewhere, the shell has changed the modes of the terminal.
                if !std::mem::take(&mut self.expects_continue) {
                    self.take_over()?;
                }
                Ok(self.resized())
            }
            Signal::WINCH => {
                // A window that shrank and grew again has its old size, but lost its content.
                self.screen.redraw();
                self.screen_state = ScreenState::Awaited;
                Ok(self.resized())
            }
            signal => Ok(Some(SessionEnd::Signal(signal))),
        }
    }

    fn take_over(&mut self) -> anyhow::Result<()> {
        self.screen_state = ScreenState::Awaited;
        self.screen
            .take_over()
            .context("cannot take over the terminal again")
    }

    fn resized(&mut self) -> Option<SessionEnd> {
        let (columns, lines) = size();
        self.update(Event::Resized(columns, lines))
    }

    fn perform(&mut self, effect: Effect) -> Option<SessionEnd> {
        match effect {
            Effect::Commands(commands) => {
                for (host, command) in commands {
                    self.sources.send(host, command);
                }
            }
            Effect::Play(commands) => {
                for command in commands {
                    self.sources.play(command);
                }
            }
            Effect::Alert(alerts) => {
                if self.notifier.rings_bell {
                    self.screen.ring();
                }
                let problems: Vec<Text> = alerts
                    .iter()
                    .filter_map(|alert| self.notifier.notify(alert).err())
                    .collect();
                return problems
                    .into_iter()
                    .find_map(|problem| self.update(Event::Done(problem)));
            }
            // A restarted agent gets the interval that the user chose.
            Effect::Reconnect(hosts) => {
                for host in hosts {
                    self.sources.restart(host, self.app.options.interval);
                }
            }
            Effect::AskToCancel(job, other) => {
                slurm::ask_to_cancel(&self.slurm_commands, job, self.inputs.clone());
                return self.perform(*other);
            }
            Effect::CancelSlurmJob(job) => {
                slurm::cancel(&self.slurm_commands, job, self.inputs.clone());
            }
            Effect::AskSlurm(other) => {
                if let Some(asked) = &self.asked_job {
                    slurm::ask(asked, self.inputs.clone());
                }
                return self.perform(*other);
            }
            Effect::LogIn(host) => return self.log_in(host),
            Effect::Copy(text) => self.screen.copy(&text),
            Effect::SaveScreen => {
                let (svg, csv) = (view::svg(&self.theme, &self.app), self.app.series_csv());
                let files = ScreenFiles {
                    name: self.app.saved_name(),
                    svg,
                    csv,
                };
                let problem = self.settings_writer.write_screen(files).err();
                return problem.and_then(|problem| self.update(Event::Done(problem)));
            }
            Effect::SaveSettings => {
                let problem = self.settings_writer.write(&self.app.settings()).err();
                return problem.and_then(|problem| self.update(Event::Done(problem)));
            }
            Effect::StartRecording => {
                self.recorder.start(
                    &self.app.recording_name(),
                    self.app.live_fleet(),
                    &mut self.sources,
                );
            }
            Effect::StopRecording => self.recorder.stop(),
            Effect::Suspend => return self.suspend(),
            Effect::Quit => return Some(SessionEnd::Quit),
        }
        None
    }

    /// Lends the terminal to the process that logs in to a host.
    fn log_in(&mut self, host: HostKey) -> Option<SessionEnd> {
        let name = self.sources.ssh_name(host)?;
        self.replies.drain(LAST_REPLY);
        self.replies.lend();
        self.screen.tty().restore();
        let inputs = self.inputs.clone();
        let started = TerminalGuest::start(
            ["hosts", "connect", "--from-viewer", "--", name.as_str()],
            self.config,
            move |status| {
                let is_open = status.is_ok_and(|status| status.success());
                let _over = inputs.send(SessionInput::LoggedIn(host, is_open));
            },
        );
        match started {
            Ok(guest) => self.guest = Some(guest),
            Err(error) => {
                let _no_terminal = writeln!(io::stderr(), "gputop: cannot log in: {error}");
                let _at_end = self.inputs.send(SessionInput::LoggedIn(host, false));
            }
        }
        None
    }

    fn suspend(&mut self) -> Option<SessionEnd> {
        if !can_stop() {
            return None;
        }
        self.replies.drain(LAST_REPLY);
        self.screen.tty().restore();
        // The whole group, as the terminal does it: the shell waits for a `sudo` or `time` that
        // started gputop.
        self.expects_continue = stop_group();
        if self.screen.return_from_shell().is_err() {
            return Some(SessionEnd::Signal(Signal::HUP));
        }
        self.screen_state = ScreenState::Awaited;
        self.resized()
    }
}

/// Whether something continues gputop after it has stopped. A shell with job control gives every job
/// a process group of its own. In the first group of a session, as under `ssh -t HOST gputop`, nothing
/// would continue a stopped program.
fn can_stop() -> bool {
    // SAFETY: neither call takes a pointer. rustix cannot express 0, a session from outside of
    // the PID namespace.
    unsafe { libc::getsid(0) != libc::getpgrp() }
}

/// Stops all processes of the group, as the terminal does it for Ctrl-Z. Returns whether it could.
fn stop_group() -> bool {
    rustix::process::kill_current_process_group(Signal::STOP).is_ok()
}
