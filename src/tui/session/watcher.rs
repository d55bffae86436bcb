//! A session without a terminal: takes lines and keys, and shows nothing.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use anyhow::Context;
use crossterm::event::KeyEvent;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, timeout, timeout_at};

use super::{SessionOptions, event_of_source, new_app, outline, viewer_clock};
use crate::app::event::{Effect, Event};
use crate::app::input::end_dialog::EndDialog;
use crate::app::keys::keymap::Intent;
use crate::app::{App, HostTrouble};
use crate::base::text::Text;
use crate::base::time::ViewerTime;
use crate::base::units::Moment;
use crate::model::{HostModel, OutlinePart};
use crate::protocol::agent_options::SimulatedMachine;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::playback::{PlayerCommand, PlayerReport, Speed};
use crate::protocol::recorder_report::{RecorderReport, RecorderState};
use crate::source::{Source, SourceEvent, Sources};

/// The product of a session without a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    Screenshot,
    Cast,
}

/// How far a replay has to play.
struct ReplayPace {
    speed: Speed,
    is_paused: bool,
    /// The moment of the replay after the latest key; `None` before the first line.
    steered_to: Option<Moment>,
    /// The time on the screen since then.
    since: Duration,
}

impl ReplayPace {
    /// The moment to which the replay has to play; `None` for its end.
    fn target(&self) -> Option<Moment> {
        match self.speed {
            Speed::Times(times) => {
                let played = self.since.as_secs_f64() * times;
                let played = Duration::try_from_secs_f64(played).ok()?;
                Some(self.steered_to?.after(played))
            }
            Speed::Max => None,
        }
    }
}

/// A session without a terminal.
pub(super) struct Watcher {
    pub app: App,
    pub sources: Sources,
    product: Product,
    /// The parts of the outline of a recording.
    outline: UnboundedReceiver<OutlinePart>,
    /// How long to wait for a line.
    patience: Duration,
    pace: ReplayPace,
    /// The moment of the app's last tick.
    now: Instant,
    /// Whether no more lines come.
    is_over: bool,
    /// Whether the end of a jump is still to come.
    is_jumping: bool,
    /// The hosts whose next pass is still to come, after a step.
    hosts_to_step: BTreeSet<HostKey>,
}

impl Watcher {
    /// Starts the sources. Waits for lines no longer than `patience`.
    pub(super) fn start(
        options: &SessionOptions,
        size: (u16, u16),
        patience: Duration,
        product: Product,
    ) -> io::Result<Self> {
        let sources = Sources::start(options.sources.clone(), None)?;
        let mut app = new_app(options, &sources);
        app.update(Event::Resized(size.0, size.1));
        let (parts, outline) = mpsc::unbounded_channel();
        outline::start(&options.sources, move |part| parts.send(part).is_ok());
        Ok(Self {
            app,
            sources,
            product,
            outline,
            patience,
            pace: ReplayPace {
                speed: options.app.speed,
                is_paused: false,
                steered_to: None,
                since: Duration::ZERO,
            },
            now: Instant::now(),
            is_over: false,
            is_jumping: false,
            hosts_to_step: BTreeSet::new(),
        })
    }

    /// Watches for a while until there is something to draw, and reads the outline of a recording:
    /// its timeline, in which the keys find events. A long recording takes its time.
    ///
    /// # Errors
    ///
    /// When no line arrives.
    pub(super) async fn begin(&mut self, span: Option<Duration>) -> anyhow::Result<()> {
        self.watch(span).await;
        if self.data_time().is_none() {
            let late = || "no line arrived in time; `--timeout` waits longer".into();
            anyhow::bail!(
                "nothing to draw: {}",
                self.lost_hosts().next().cloned().unwrap_or_else(late)
            );
        }
        while let Some(part) = self.outline.recv().await {
            self.update(Event::Outline(part));
        }
        self.go_on_from_here();
        Ok(())
    }

    /// Presses a key and watches until its result can be drawn: for `span`, and in a replay to the
    /// end of a jump. A key that would signal a process is left out, unless each target is a
    /// process of the simulated machine of this cast.
    ///
    /// # Errors
    ///
    /// When the replay does not get to where the key leads.
    pub(super) async fn press(&mut self, key: KeyEvent, span: Duration) -> anyhow::Result<()> {
        if self.app.intent(key) == Some(Intent::Confirm) && !self.may_confirm() {
            return Ok(());
        }
        self.update(Event::Key(key));
        if self.sources.is_recording() {
            self.follow_steering().await?;
            self.go_on_from_here();
        } else {
            self.watch(Some(span)).await;
        }
        Ok(())
    }

    /// Whether Enter in the end-process dialog reaches only processes of the simulated machine. A
    /// signal to another one needs a person who saw the process in the dialog.
    fn may_confirm(&self) -> bool {
        let is_demo = |source: &Source| matches!(source, Source::LocalAgent(options) if options.demo != SimulatedMachine::None);
        let dialog = self.app.modes.end_dialog();
        self.product == Product::Cast
            && self.sources.hosts().all(|(_, source)| is_demo(source))
            && dialog.is_some_and(EndDialog::is_simulated)
    }

    /// Lets this much time pass on the screen. A live host is watched for as long; a replay is
    /// played as far as its speed leads in that time, which takes less.
    pub(super) async fn pass(&mut self, span: Duration) {
        if !self.sources.is_recording() {
            self.watch(Some(span)).await;
            return;
        }
        self.pace.since = self.pace.since.saturating_add(span);
        let target = self.pace.target();
        while !self.is_over
            && !self.pace.is_paused
            && (target.is_none() || self.data_time() < target)
        {
            let event = self.sources.next().await;
            self.take(event);
        }
        self.update(Event::Tick(ViewerTime::new(span)));
    }

    /// Lets a replay go on from where it is.
    fn go_on_from_here(&mut self) {
        (self.pace.steered_to, self.pace.since) = (self.data_time(), Duration::ZERO);
    }

    /// Takes lines for this much time from the first line on: of a recording, data time, since it
    /// is read as fast as possible. For `None`, until the end of the recording. Waits no longer
    /// than the patience for the first line.
    pub(super) async fn watch(&mut self, span: Option<Duration>) {
        let is_recording = self.sources.is_recording();
        let mut start = self.data_time();
        let patience = self.patience;
        let until = |is_waiting: bool| {
            let span = if is_waiting { patience } else { span? };
            Some(Instant::now() + span)
        };
        let mut deadline = until(start.is_none());
        while !self.is_over {
            let passed = start.and_then(|start| Some(self.data_time()?.since(start)));
            if is_recording && span.is_some_and(|span| passed >= Some(span)) {
                return;
            }
            let event = match deadline.filter(|_| !is_recording) {
                Some(deadline) => match timeout_at(deadline, self.sources.next()).await {
                    Ok(event) => event,
                    Err(_) => return,
                },
                None => self.sources.next().await,
            };
            self.take(event);
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
    /// When nothing arrives in time before that: a picture of another moment would be false.
    async fn follow_steering(&mut self) -> anyhow::Result<()> {
        while self.is_jumping || !self.hosts_to_step.is_empty() {
            let event = timeout(self.patience, self.sources.next()).await;
            self.take(event.context("the replay stopped before the moment to draw")?);
        }
        Ok(())
    }

    fn take(&mut self, event: SourceEvent) {
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
            }
            _ => {}
        }
        let before = std::mem::replace(&mut self.now, Instant::now());
        if let Some(clock) = viewer_clock().filter(|_| !self.sources.is_recording()) {
            self.update(Event::Clock(clock));
        }
        self.update(Event::Tick(ViewerTime::new(self.now - before)));
        if let Some(event) = event_of_source(event) {
            self.update(event);
        }
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
    pub(super) fn data_time(&self) -> Option<Moment> {
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
                let sentence = match self.product {
                    Product::Screenshot => "a screenshot records nothing",
                    Product::Cast => "a cast records nothing",
                };
                self.update(Event::Recorder(RecorderReport {
                    state: RecorderState::Closed,
                    sentence: sentence.into(),
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
                self.pace.is_paused = true;
                self.hosts_to_step = self.app.fleet().hosts().map(|(host, _)| host).collect();
            }
            PlayerCommand::Pause => self.pace.is_paused = true,
            PlayerCommand::Resume => self.pace.is_paused = false,
            PlayerCommand::Speed(speed) => self.pace.speed = speed,
        }
    }
}
