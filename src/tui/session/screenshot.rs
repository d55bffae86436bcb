//! `--screenshot`: draws the screen of a session into an SVG file, without a terminal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use crossterm::event::KeyEvent;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, timeout, timeout_at};

use super::{SessionOptions, event_of_source, new_app, outline};
use crate::app::event::{Effect, Event};
use crate::app::keys::keymap::Intent;
use crate::app::{App, HostTrouble};
use crate::base::text::Text;
use crate::base::time::ViewerTime;
use crate::base::units::Moment;
use crate::model::{HostModel, OutlinePart};
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerCommand, PlayerReport};
use crate::protocol::recorder_report::{RecorderReport, RecorderState};
use crate::source::{SourceEvent, Sources, descriptors};
use crate::view;

/// How long to watch a live host if the user names no time: the second pass has rates, and the
/// third all processes.
const USUAL: Duration = Duration::from_secs(3);

/// How long after a key its result is on the screen, such as the reply of an agent.
const AFTER_KEY: Duration = Duration::from_secs(1);

/// The options of `--screenshot`.
#[derive(Debug, Clone)]
pub(crate) struct ScreenshotOptions {
    /// The file to write; `-` for the standard output.
    pub file: PathBuf,
    /// The columns and rows of the screen.
    pub size: (u16, u16),
    /// The time to watch before the first key; `None` for a few seconds, and for the whole of a
    /// recording.
    pub after: Option<Duration>,
    /// The keys to press, one after the other.
    pub keys: Vec<KeyEvent>,
    /// How long to wait for a line, beyond the time to watch.
    pub patience: Duration,
}

/// Watches the sources for a while and writes the screen.
///
/// # Errors
///
/// When no source can be started, no line arrives, or the file cannot be written.
pub(crate) fn run(
    options: &SessionOptions,
    screenshot: &ScreenshotOptions,
) -> anyhow::Result<ExitCode> {
    descriptors::check()?;
    // The user should not wait before learning that the file cannot be written.
    if !is_stdout(&screenshot.file) {
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&screenshot.file);
        opened.with_context(|| format!("cannot write {}", screenshot.file.display()))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let svg = runtime.block_on(async {
        let sources = Sources::start(options.sources.clone(), None)?;
        let mut app = new_app(options, &sources);
        app.update(Event::Resized(screenshot.size.0, screenshot.size.1));
        let mut watcher = Watcher {
            app,
            sources,
            now: Instant::now(),
            is_over: false,
            is_jumping: false,
            awaits_position: false,
            hosts_to_step: BTreeSet::new(),
        };
        let (parts, outline) = mpsc::unbounded_channel();
        outline::start(&options.sources, move |part| parts.send(part).is_ok());
        let drawn = watcher.draw(options, screenshot, outline).await;
        watcher.sources.close().await;
        drawn
    })?;
    if is_stdout(&screenshot.file) {
        io::stdout().write_all(svg.as_bytes())?;
    } else {
        fs::write(&screenshot.file, svg)
            .with_context(|| format!("cannot write {}", screenshot.file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

/// A session without a terminal.
struct Watcher {
    app: App,
    sources: Sources,
    /// The moment of the app's last tick.
    now: Instant,
    /// Whether no more lines come.
    is_over: bool,
    /// Whether the end of a jump is still to come.
    is_jumping: bool,
    /// Whether the player is still to report the time of the latest line.
    awaits_position: bool,
    /// The hosts whose next pass is still to come, after a step.
    hosts_to_step: BTreeSet<HostKey>,
}

impl Watcher {
    async fn draw(
        &mut self,
        options: &SessionOptions,
        screenshot: &ScreenshotOptions,
        mut outline: UnboundedReceiver<OutlinePart>,
    ) -> anyhow::Result<String> {
        let is_recording = self.sources.is_recording();
        let after = screenshot.after.or((!is_recording).then_some(USUAL));
        self.watch(after, screenshot.patience).await;
        if self.data_time().is_none() {
            let late = || "no line arrived in time; `--timeout` waits longer".into();
            anyhow::bail!(
                "nothing to draw: {}",
                self.lost_hosts().next().cloned().unwrap_or_else(late)
            );
        }
        // The timeline of a recording, in which the keys find events. A long recording takes its
        // time.
        while let Some(part) = outline.recv().await {
            self.update(Event::Outline(part));
        }
        for key in &screenshot.keys {
            // A signal goes only to a process that a person saw in the dialog.
            if self.app.intent(*key) != Some(Intent::Confirm) {
                self.update(Event::Key(*key));
                if is_recording {
                    self.follow_steering(screenshot.patience).await?;
                } else {
                    self.watch(Some(AFTER_KEY), screenshot.patience).await;
                }
                self.app.mark_end_as_read();
            }
        }
        Ok(view::svg(&options.theme, &self.app))
    }

    /// Takes lines for this much time from the first line on: of a recording, data time, since it
    /// is read as fast as possible. For `None`, until the end of the recording. Waits no longer
    /// than `patience` for the first line.
    async fn watch(&mut self, span: Option<Duration>, patience: Duration) {
        let is_recording = self.sources.is_recording();
        let mut start = self.data_time();
        let until = |is_waiting: bool| {
            let span = if is_waiting { patience } else { span? };
            Some(Instant::now() + span)
        };
        let mut deadline = until(start.is_none());
        while !self.is_over {
            let passed = start.and_then(|start| Some(self.data_time()?.since(start)));
            if is_recording
                && !self.awaits_position
                && span.is_some_and(|span| passed >= Some(span))
            {
                return;
            }
            let event = match deadline.filter(|_| !is_recording) {
                Some(deadline) => match timeout_at(deadline, self.sources.next()).await {
                    Ok(event) => event,
                    Err(_) => return,
                },
                None => self.sources.next().await,
            };
            self.take_event(event);
            self.is_over |= self.lost_hosts().count() == self.sources.hosts().count();
            if start.is_none() {
                start = self.data_time();
                deadline = start.map_or(deadline, |_| until(false));
            }
        }
    }

    /// Goes to where a key of a replay leads: to the end of a jump, or to the next pass.
    ///
    /// # Errors
    ///
    /// When nothing arrives for `patience` before that: a picture of another moment would be false.
    async fn follow_steering(&mut self, patience: Duration) -> anyhow::Result<()> {
        while self.is_jumping || self.awaits_position || !self.hosts_to_step.is_empty() {
            let event = timeout(patience, self.sources.next()).await;
            self.take_event(event.context("the replay stopped before the moment to draw")?);
        }
        Ok(())
    }

    fn take_event(&mut self, event: SourceEvent) {
        if let SourceEvent::Player(_) | SourceEvent::RecordingEnded(_) = event {
            self.awaits_position = false;
        }
        match &event {
            SourceEvent::RecordingEnded(_) => {
                self.is_over = true;
                self.hosts_to_step.clear();
            }
            SourceEvent::Player(PlayerReport::JumpBegan) => self.is_over = false,
            SourceEvent::Player(PlayerReport::Jumped | PlayerReport::JumpRefused(_)) => {
                self.is_jumping = false;
            }
            SourceEvent::Line(host, line) if matches!(**line, Line::Full(_) | Line::Tick(_)) => {
                self.hosts_to_step.remove(host);
                self.awaits_position = self.sources.is_recording() && !self.app.is_jumping();
            }
            _ => {}
        }
        let before = std::mem::replace(&mut self.now, Instant::now());
        self.update(Event::Tick(ViewerTime::new(self.now - before)));
        self.update(event_of_source(event));
    }

    /// The reasons why no more lines come from some hosts.
    fn lost_hosts(&self) -> impl Iterator<Item = &Text> {
        self.app
            .troubles()
            .filter_map(|(_, trouble)| match trouble {
                HostTrouble::Lost(reason) => Some(reason),
                HostTrouble::Silent(_) | HostTrouble::NeverAnswered(_) => None,
            })
    }

    /// The time of the first host's latest snapshot; `None` before the first line of any host.
    fn data_time(&self) -> Option<Moment> {
        self.app
            .fleet()
            .hosts()
            .find(|(_, model)| model.latest().is_some())
            .map(|(_, model)| HostModel::now(model))
    }

    /// Passes an event to the app. Of its effects, only those on the agents and the player are
    /// performed.
    fn update(&mut self, event: Event) {
        match self.app.update(event) {
            Some(Effect::Commands(commands)) => {
                for (host, command) in commands {
                    self.sources.send(host, command);
                }
            }
            Some(Effect::StartRecording) => {
                let sentence = "a screenshot records nothing".into();
                self.update(Event::Recorder(RecorderReport {
                    state: RecorderState::Closed,
                    sentence,
                }));
            }
            Some(Effect::Play(commands)) => {
                for command in commands {
                    self.play(command);
                }
            }
            _ => {}
        }
    }

    /// Performs a command to the player. Between two keys no line is taken, so the replay stands
    /// still there.
    fn play(&mut self, command: PlayerCommand) {
        match command {
            PlayerCommand::Jump(_) => {
                self.is_jumping = true;
                self.sources.play(command);
            }
            PlayerCommand::Step => {
                self.hosts_to_step = self.app.fleet().hosts().map(|(host, _)| host).collect();
            }
            PlayerCommand::Pause | PlayerCommand::Resume | PlayerCommand::Speed(_) => {}
        }
    }
}
