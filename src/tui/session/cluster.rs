//! The session of the cluster view: the loop between the terminal, the thread that asks the
//! Prometheus server, and the app.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crossterm::event as terminal_event;
use rustix::process::Signal;
use tokio::sync::mpsc as queue;
use tokio::time::{Instant, sleep_until};

use super::inputs::{listen, listen_to_replies};
use super::terminal_guest::TerminalGuest;
use super::{
    FIRST_COLOURS, LAST_REPLY, SessionEnd, SessionInput, can_stop, stop_group, viewer_clock,
};
use crate::app::cluster::{ClusterApp, ClusterEffect, ClusterEvent};
use crate::app::settings::ThemeName;
use crate::base::terminal::{Background, size};
use crate::base::time::ViewerTime;
use crate::model::cluster::RoundKind;
use crate::source::prometheus::{AskedRound, Asker, PrometheusClient};
use crate::tui::terminal::input::{Replies, TerminalReply};
use crate::tui::terminal::{self, Screen};
use crate::view::{self, Theme};

/// The time between two frames without an event: the ages on the screen grow.
const TICK: Duration = Duration::from_secs(1);

/// How long the screen may stay empty at the start, until the first answer arrives.
const FIRST_FRAME: Duration = Duration::from_millis(150);

/// The kinds of rounds, by their slots: a round of a lower slot is asked first. The user waits for
/// rows.
const SLOTS: [RoundKind; 6] = [
    RoundKind::Rows,
    RoundKind::Totals,
    RoundKind::Past,
    RoundKind::Ended,
    RoundKind::AllGpus,
    RoundKind::Words,
];

/// The options of the cluster view.
#[derive(Debug)]
pub(crate) struct ClusterOptions {
    pub(crate) theme: Theme,
    /// The theme that the user chose.
    pub(crate) theme_name: ThemeName,
    pub(crate) mouse: bool,
    /// The filter with which the view begins; empty for none.
    pub(crate) filter: String,
    /// Sentences about the settings files, to show at the start.
    pub(crate) notices: Vec<String>,
    /// The flags of this command line that a gputop gets which opens a host.
    pub(crate) host_flags: Vec<String>,
    /// The configuration file that the user named; `None` for the usual one.
    pub(crate) named_config: Option<PathBuf>,
}

/// Shows the hosts that a Prometheus server knows until the user quits.
///
/// # Errors
///
/// When the terminal cannot be taken over, or no key can be read.
pub(crate) fn run(options: &ClusterOptions, client: PrometheusClient) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let screen = Screen::enter(options.mouse).context("cannot take over the terminal")?;
    terminal::end_on_panic(Some(screen.tty()));
    let end = runtime.block_on(async {
        let (sender, inputs) = listen()?;
        let replies = listen_to_replies(&sender).context("cannot read keys from the terminal")?;
        let app = ClusterApp::new(client.name().to_owned(), &options.filter);
        let notices = options.notices.iter().cloned().chain(client.notice());
        let notices: Vec<String> = notices.collect();
        let answered = sender.clone();
        let asker = Asker::start(client, move |round| {
            answered.send(SessionInput::Prometheus(round)).is_ok()
        })
        .context("cannot start the thread that asks the server")?;
        let session = ClusterSession {
            options,
            app,
            screen,
            replies,
            asker,
            inputs: sender,
            guest: None,
            now: Instant::now(),
            is_outdated: true,
            expects_continue: false,
        };
        session.run(inputs, notices).await
    })?;
    Ok(match end {
        SessionEnd::Quit => ExitCode::SUCCESS,
        SessionEnd::Signal(signal) => {
            ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(1))
        }
    })
}

struct ClusterSession<'a> {
    options: &'a ClusterOptions,
    app: ClusterApp,
    screen: Screen,
    replies: Arc<Replies>,
    asker: Asker,
    inputs: queue::UnboundedSender<SessionInput>,
    /// The gputop that shows a host; `None` while this one has the terminal.
    guest: Option<TerminalGuest>,
    /// The moment of the app's last tick.
    now: Instant,
    is_outdated: bool,
    /// Whether the SIGCONT after gputop stopped itself is still to come.
    expects_continue: bool,
}

impl ClusterSession<'_> {
    async fn run(
        mut self,
        mut inputs: queue::UnboundedReceiver<SessionInput>,
        notices: Vec<String>,
    ) -> anyhow::Result<SessionEnd> {
        let mut frame_due = self.now + FIRST_FRAME;
        let mut end = self.resized();
        for notice in notices {
            end = end.or(self.update(ClusterEvent::Said(notice)));
        }
        if let Some(background) = Background::from_env() {
            end = end.or(self.update(ClusterEvent::Background(background)));
        } else if self.options.theme_name == ThemeName::Auto && self.replies.expect() {
            self.screen.ask();
            frame_due = frame_due.max(self.now + FIRST_COLOURS);
        }
        while end.is_none() {
            let is_ready = self.screen.is_ready();
            end = tokio::select! {
                biased;
                Some(input) = inputs.recv() => {
                    self.is_outdated = true;
                    if matches!(input, SessionInput::Prometheus(_) | SessionInput::Terminal(_)) {
                        frame_due = self.now;
                    }
                    self.tick().or(self.take(input)?)
                }
                () = self.screen.ready(), if self.is_outdated && !is_ready => None,
                () = sleep_until(frame_due), if self.is_outdated && is_ready => {
                    self.draw();
                    None
                }
                () = sleep_until(self.now + TICK) => {
                    self.is_outdated = true;
                    self.tick()
                }
            };
        }
        let end = end.context("the session ended without a reason")?;
        self.guest = None;
        if end != SessionEnd::Signal(Signal::HUP) {
            self.replies.drain(LAST_REPLY);
        }
        self.screen.tty().restore();
        Ok(end)
    }

    fn take(&mut self, input: SessionInput) -> anyhow::Result<Option<SessionEnd>> {
        let event = match input {
            // Typed before the terminal was lent, and read after.
            SessionInput::Terminal(_) if self.replies.is_lent() => return Ok(None),
            SessionInput::Terminal(event) => match event {
                terminal_event::Event::Key(key) => ClusterEvent::Key(key),
                terminal_event::Event::Mouse(mouse) => ClusterEvent::Mouse(mouse),
                terminal_event::Event::Paste(text) => ClusterEvent::Paste(text),
                _ => return Ok(None),
            },
            SessionInput::Reply(TerminalReply::Background(background)) => {
                ClusterEvent::Background(background)
            }
            SessionInput::Prometheus(AskedRound {
                slot,
                round,
                answers,
                ..
            }) => match SLOTS.get(slot) {
                Some(kind) => ClusterEvent::Answered(*kind, round, answers),
                None => return Ok(None),
            },
            SessionInput::HostClosed(sentence) => {
                self.guest = None;
                self.replies.take_back();
                self.take_over()?;
                ClusterEvent::Said(sentence)
            }
            SessionInput::Signal(signal) => return self.signal(signal),
            SessionInput::KeysUnreadable(error) => {
                return Err(error).context("cannot read keys from the terminal");
            }
            _ => return Ok(None),
        };
        Ok(self.update(event))
    }

    fn update(&mut self, event: ClusterEvent) -> Option<SessionEnd> {
        let effects = self.app.update(event);
        effects.into_iter().find_map(|effect| self.perform(effect))
    }

    fn perform(&mut self, effect: ClusterEffect) -> Option<SessionEnd> {
        match effect {
            ClusterEffect::Ask(kind, round, questions) => {
                let slot = SLOTS.iter().position(|known| *known == kind)?;
                self.asker.ask(slot, round, questions);
            }
            ClusterEffect::Open(host) => self.open(&host),
            ClusterEffect::Redraw => self.screen.redraw(),
            ClusterEffect::Suspend => return self.suspend(),
            ClusterEffect::Quit => return Some(SessionEnd::Quit),
        }
        None
    }

    fn tick(&mut self) -> Option<SessionEnd> {
        let before = std::mem::replace(&mut self.now, Instant::now());
        if let Some(clock) = viewer_clock() {
            let end = self.update(ClusterEvent::Clock(clock));
            if end.is_some() {
                return end;
            }
        }
        self.update(ClusterEvent::Tick(ViewerTime::new(self.now - before)))
    }

    fn draw(&mut self) {
        let (app, options) = (&self.app, self.options);
        self.screen
            .draw(|buffer| view::draw_cluster(buffer, &options.theme, options.theme_name, app));
        self.is_outdated = false;
    }

    fn resized(&mut self) -> Option<SessionEnd> {
        let (columns, lines) = size();
        self.update(ClusterEvent::Resized(columns, lines))
    }

    fn take_over(&mut self) -> anyhow::Result<()> {
        self.is_outdated = true;
        self.screen
            .take_over()
            .context("cannot take over the terminal again")
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<Option<SessionEnd>> {
        match signal {
            // The keys of the terminal mean the program that it is lent to, which gets them too.
            Signal::INT | Signal::QUIT | Signal::CONT if self.replies.is_lent() => Ok(None),
            Signal::TSTP if self.replies.is_lent() => {
                stop_group();
                Ok(None)
            }
            Signal::TSTP => Ok(self.suspend()),
            Signal::CONT => {
                if !std::mem::take(&mut self.expects_continue) {
                    self.take_over()?;
                }
                Ok(self.resized())
            }
            Signal::WINCH => {
                self.screen.redraw();
                Ok(self.resized())
            }
            signal => Ok(Some(SessionEnd::Signal(signal))),
        }
    }

    fn suspend(&mut self) -> Option<SessionEnd> {
        if !can_stop() {
            return None;
        }
        self.replies.drain(LAST_REPLY);
        self.screen.tty().restore();
        self.expects_continue = stop_group();
        if self.screen.return_from_shell().is_err() {
            return Some(SessionEnd::Signal(Signal::HUP));
        }
        self.is_outdated = true;
        self.resized()
    }

    /// Lends the terminal to a gputop that shows the host over ssh.
    fn open(&mut self, host: &str) {
        self.replies.drain(LAST_REPLY);
        self.replies.lend();
        self.screen.tty().restore();
        let name = format!("--host={host}");
        let arguments = self.options.host_flags.iter().chain([&name]);
        let (inputs, shown) = (self.inputs.clone(), host.to_owned());
        let started = TerminalGuest::start(
            arguments.map(String::as_str),
            self.options.named_config.as_deref(),
            move |status| {
                let sentence = match status {
                    Ok(status) if status.success() => format!("back from {shown}"),
                    Ok(status) => format!("gputop on {shown} ended with {status}"),
                    Err(error) => format!("cannot wait for gputop on {shown}: {error}"),
                };
                let _over = inputs.send(SessionInput::HostClosed(sentence));
            },
        );
        match started {
            Ok(guest) => self.guest = Some(guest),
            Err(error) => {
                let sentence = format!("cannot open {host}: {error}");
                let _no_terminal = writeln!(io::stderr(), "gputop: {sentence}");
                let _at_end = self.inputs.send(SessionInput::HostClosed(sentence));
            }
        }
    }
}
