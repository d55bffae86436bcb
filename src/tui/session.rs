//! Where everything meets: link, keys, signals and time become events, effects are performed, the screen is drawn.
//!
//! One loop on one thread; it waits for nobody. Keys are read by a thread of their own, and another
//! watches for the end of the terminal. An app that leaves on a signal ends with 128 and its number, as
//! a shell would say it.

mod notify;
mod options;
mod save_settings;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use crossterm::event::{self as terminal_event, KeyCode, KeyEvent};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc as queue;
use tokio::time::{Instant, sleep_until};

use self::notify::Herald;
pub use self::options::{SessionOptions, SettingsFiles};
use self::save_settings::Keeper;
use crate::app::App;
use crate::app::end_dialog::PlannedEnd;
use crate::app::event::{Effect, Event};
use crate::app::keymap::Intent;
use crate::base::terminal::size;
use crate::base::text::Text;
use crate::model::{Fleet, HostLabel};
use crate::source::{SourceEvent, Sources};
use crate::tui::terminal::{self, Screen};
use crate::view::{self, Theme};

/// Time goes by at least so often, for the ages on the screen. It is told with each event anyway; being a
/// little longer than the usual interval, this wakes nobody while lines come.
const TICK: Duration = Duration::from_millis(1050);

/// How long the screen may stay empty at the start, while the agent's first line is on its way.
const FIRST_FRAME: Duration = Duration::from_millis(50);

/// The signals that end the session.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// Shows the screen until the person leaves.
///
/// # Errors
///
/// When no agent can be started, the terminal cannot be taken over, or no key can be read.
pub fn run(options: &SessionOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Sources start first: an agent takes longer to its first line than the rest here.
    let inside = runtime.enter();
    let sources = Sources::start(options.sources.clone(), None)?;
    drop(inside);
    let screen = Screen::enter(options.mouse).context("cannot take over the terminal")?;
    terminal::end_on_panic(Some(screen.tty()));
    let end = runtime.block_on(async {
        let (sender, outside) = outside()?;
        Session::new(options, screen, sources, &sender).run(outside).await
    })?;
    Ok(match end {
        End::Quit => ExitCode::SUCCESS,
        End::By(signal) => ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(1)),
    })
}

/// Why the session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The person left.
    Quit,
    /// A signal ended it; `SIGHUP` when the terminal went away, whether the signal came or not.
    By(Signal),
}

/// What comes from outside, but for the link.
#[derive(Debug)]
enum Outside {
    Terminal(terminal_event::Event),
    Signal(Signal),
    /// An alert was passed on to a program, which is over; what went wrong, if anything did.
    Told(Option<Text>),
    /// Settings are written down, or not, or not yet: what there is to say of it.
    Kept(Text),
    /// The terminal cannot be read, so that not even the quit key would work.
    Deaf(io::Error),
}

/// Starts to listen to keys, signals and the end of the terminal. Others may say something there, too.
fn outside() -> io::Result<(queue::UnboundedSender<Outside>, queue::UnboundedReceiver<Outside>)> {
    let (sender, outside) = queue::unbounded_channel();
    let others = sender.clone();
    for number in ENDING.into_iter().chain([Signal::TSTP, Signal::CONT, Signal::WINCH]) {
        let mut signals = signal(SignalKind::from_raw(number.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(
            async move { while signals.recv().await.is_some() && sender.send(Outside::Signal(number)).is_ok() {} },
        );
    }
    let keys = sender.clone();
    thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&keys))?;
    thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch_terminal(&sender))?;
    Ok((others, outside))
}

fn read_keys(outside: &queue::UnboundedSender<Outside>) {
    loop {
        let (event, last) = match terminal_event::read() {
            Ok(event) => (Outside::Terminal(event), false),
            Err(error) => (Outside::Deaf(error), true),
        };
        if outside.send(event).is_err() || last {
            return;
        }
    }
}

/// Ends the program when the terminal goes away. Reading keys would not notice, but spin; and SIGHUP may
/// be ignored, or go to another session.
fn watch_terminal(outside: &queue::UnboundedSender<Outside>) {
    /// How long the session may take to leave by itself.
    const GRACE: Duration = Duration::from_millis(500);
    // A hang-up of a pty wakes the poll; that of other terminals may be seen only when asked again.
    let a_second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let stdout = io::stdout();
    let is_gone = || {
        let mut terminal = [PollFd::new(&stdout, PollFlags::empty())];
        match rustix::event::poll(&mut terminal, Some(&a_second)) {
            Ok(_) => !terminal[0].revents().is_empty(),
            Err(error) => error != rustix::io::Errno::INTR,
        }
    };
    while !is_gone() {}
    if outside.send(Outside::Signal(Signal::HUP)).is_ok() {
        let (_nobody_sends, never) = mpsc::channel::<()>();
        let _timeout: Result<(), mpsc::RecvTimeoutError> = never.recv_timeout(GRACE);
    }
    #[expect(clippy::exit, reason = "the session does not answer, and there is no terminal to restore")]
    std::process::exit(128 + Signal::HUP.as_raw());
}

/// How the picture on the screen stands to what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Picture {
    UpToDate,
    /// Something happened by itself.
    Old,
    /// Something happened because of the person, who waits for it.
    Awaited,
}

/// Spaces frames out: ten a second on average, but an answer to the person comes at once a few times in a row.
#[derive(Debug)]
struct Pace {
    /// When the next frame is due, by the average.
    next: Instant,
}

impl Pace {
    const FRAME: Duration = Duration::from_millis(100);

    /// When this picture may be drawn.
    fn due(&self, picture: Picture) -> Instant {
        // Lines may come in pairs, as the first ones do. More than that is kept for the person.
        let ahead = if picture == Picture::Awaited { 4 * Self::FRAME } else { Self::FRAME };
        self.next.checked_sub(ahead).unwrap_or(self.next)
    }

    fn drawn(&mut self, now: Instant) {
        self.next = self.next.max(now) + Self::FRAME;
    }
}

/// All that the loop holds.
struct Session<'a> {
    app: App,
    theme: Theme,
    screen: Screen,
    sources: Sources,
    /// Up to when the app knows the time.
    now: Instant,
    picture: Picture,
    pace: Pace,
    /// What the panel on the screen says that Enter does, and to whom. What was typed ahead of that sends nothing.
    panel_shown: Option<PlannedEnd>,
    /// There was no line yet.
    is_blank: bool,
    /// A SIGCONT is on its way that we know of.
    continued: bool,
    herald: Herald<'a>,
    keeper: Keeper<'a>,
}

impl<'a> Session<'a> {
    fn new(
        options: &'a SessionOptions,
        screen: Screen,
        sources: Sources,
        outside: &queue::UnboundedSender<Outside>,
    ) -> Self {
        let now = Instant::now();
        let mut fleet = Fleet::default();
        for (host, source) in sources.hosts() {
            fleet.set_label(host, HostLabel { name: source.name().cloned(), source: source.description() });
        }
        let mut app = App::with_hosts(options.app, fleet);
        app.apply_settings(options.settings.clone());
        for notice in &options.notices {
            app.update(Event::Done(notice.as_str().into()));
        }
        Self {
            app,
            theme: options.theme,
            screen,
            sources,
            now,
            picture: Picture::Old,
            pace: Pace { next: now + FIRST_FRAME + Pace::FRAME },
            panel_shown: None,
            is_blank: true,
            continued: false,
            herald: Herald::new(&options.alert_command, options.bell, outside.clone()),
            keeper: Keeper::new(&options.settings_files, outside.clone()),
        }
    }

    async fn run(mut self, mut outside: queue::UnboundedReceiver<Outside>) -> anyhow::Result<End> {
        let mut end = self.resized();
        while end.is_none() {
            let (is_old, is_ready) = (self.picture != Picture::UpToDate, self.screen.is_ready());
            end = tokio::select! {
                biased;
                Some(event) = outside.recv() => match event {
                    Outside::Terminal(event) => self.terminal(&event),
                    Outside::Signal(signal) => self.signal(signal)?,
                    Outside::Told(trouble) => {
                        self.herald.is_back();
                        trouble.and_then(|reason| self.happen(Event::Done(reason)))
                    }
                    Outside::Kept(words) => self.happen(Event::Done(words)),
                    Outside::Deaf(error) => return Err(error).context("cannot read keys from the terminal"),
                },
                () = self.screen.ready(), if is_old && !is_ready => None,
                // Before lines: a host that sends without a pause must not keep the screen from being drawn.
                () = sleep_until(self.pace.due(self.picture)), if is_old && is_ready => {
                    self.draw();
                    None
                }
                event = self.sources.next() => self.receive(event),
                () = sleep_until(self.now + TICK) => self.pass(),
            };
        }
        self.screen.tty().leave();
        self.keeper.leave(&self.app.settings()).await;
        end.context("the session ended without a reason")
    }

    fn draw(&mut self) {
        let theme = self.theme.with(self.app.theme());
        self.screen.draw(|buffer| view::draw(buffer, &theme, &self.app));
        self.panel_shown = self.app.planned_end();
        self.picture = Picture::UpToDate;
        self.pace.drawn(Instant::now());
    }

    /// Lets the app know that time went by. It is told so before each other event, too.
    fn pass(&mut self) -> Option<End> {
        self.sources.reap();
        let before = std::mem::replace(&mut self.now, Instant::now());
        self.happen(Event::Tick(self.now - before))
    }

    fn happen(&mut self, event: Event) -> Option<End> {
        self.picture = self.picture.max(Picture::Old);
        let effect = self.app.update(event);
        if self.app.end_dialog().is_none() {
            self.panel_shown = None;
        }
        effect.and_then(|effect| self.perform(effect))
    }

    fn terminal(&mut self, event: &terminal_event::Event) -> Option<End> {
        let event = match event {
            terminal_event::Event::Key(key) if self.is_unseen(*key) => return None,
            terminal_event::Event::Key(key) => Event::Key(*key),
            terminal_event::Event::Mouse(mouse) => Event::Mouse(*mouse),
            terminal_event::Event::Paste(text) => return self.paste(text),
            // Resizing comes as a signal: whoever reads keys hears of it only after the rest of a key.
            terminal_event::Event::Resize(..)
            | terminal_event::Event::FocusGained
            | terminal_event::Event::FocusLost => return None,
        };
        self.picture = Picture::Awaited;
        self.pass().or_else(|| self.happen(event))
    }

    /// Whether a key would send a signal that the panel on the screen does not show, or not to these: typed ahead, or
    /// while the terminal took no frame.
    fn is_unseen(&self, key: KeyEvent) -> bool {
        self.app.intent(key) == Some(Intent::Confirm) && self.panel_shown != self.app.planned_end()
    }

    /// What is pasted is text, for the filter or a mark; its letters are no keys elsewhere.
    fn paste(&mut self, text: &str) -> Option<End> {
        if !self.app.is_typing() {
            return None;
        }
        self.picture = Picture::Awaited;
        let letters = text.chars().filter(|letter| !letter.is_control());
        letters.map(|letter| Event::Key(KeyCode::Char(letter).into())).find_map(|key| self.happen(key))
    }

    fn receive(&mut self, event: SourceEvent) -> Option<End> {
        if std::mem::take(&mut self.is_blank) {
            self.pace.next = Instant::now();
        }
        let event = match event {
            SourceEvent::Line(host, line) => Event::Line(host, line),
            SourceEvent::Note(_, note) => Event::Done(note),
            SourceEvent::Named(host, name) => {
                Event::Host(host, HostLabel { name: Some(name), source: "a recording".into() })
            }
            SourceEvent::RecordingEnded(problem) => {
                let problem = problem.map_or_else(String::new, |problem| format!(": {problem}"));
                Event::Done(Text::new(format!("end of the recording{problem}")))
            }
            SourceEvent::Ended(host, reason) => Event::SourceLost(host, reason),
        };
        self.pass().or_else(|| self.happen(event))
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<Option<End>> {
        match signal {
            Signal::TSTP => Ok(self.perform(Effect::Suspend)),
            Signal::CONT => {
                // Whoever stopped us, or the shell meanwhile, may have changed the terminal.
                if !std::mem::take(&mut self.continued) {
                    self.screen.take().context("cannot take over the terminal again")?;
                }
                Ok(self.resized())
            }
            Signal::WINCH => {
                // A window that shrank and grew again has its old size, and lost what stood there.
                self.screen.forget();
                self.picture = Picture::Awaited;
                Ok(self.resized())
            }
            signal => Ok(Some(End::By(signal))),
        }
    }

    fn resized(&mut self) -> Option<End> {
        let (columns, lines) = size();
        self.happen(Event::Resized(columns, lines))
    }

    /// Does what the app asks for: the only place where an effect becomes a deed.
    fn perform(&mut self, effect: Effect) -> Option<End> {
        match effect {
            Effect::Commands(commands) => {
                commands.into_iter().for_each(|(host, command)| self.sources.send(host, command));
            }
            Effect::Alert(alerts) => {
                if self.herald.rings() {
                    self.screen.ring();
                }
                let troubles: Vec<Text> = alerts.iter().filter_map(|alert| self.herald.tell(alert).err()).collect();
                return troubles.into_iter().find_map(|reason| self.happen(Event::Done(reason)));
            }
            // The interval that the user set lives on.
            Effect::Reconnect(hosts) => {
                hosts.into_iter().for_each(|host| self.sources.restart(host, self.app.interval()));
            }
            Effect::Copy(text) => self.screen.copy(&text),
            Effect::Keep => {
                let trouble = self.keeper.write(&self.app.settings()).err();
                return trouble.and_then(|reason| self.happen(Event::Done(reason)));
            }
            Effect::Suspend => return self.suspend(),
            Effect::Quit => return Some(End::Quit),
        }
        None
    }

    /// Stops until the shell lets us go on.
    fn suspend(&mut self) -> Option<End> {
        // A shell with job control gives every job a process group of its own. In the first group of a
        // session, as under `ssh -t HOST gputop`, nobody could ever wake us.
        // SAFETY: neither takes a pointer. rustix has no word for 0, a session from outside of a PID namespace.
        if unsafe { libc::getsid(0) == libc::getpgrp() } {
            return None;
        }
        self.screen.tty().leave();
        // The whole group, as the terminal would have done: the shell waits for a `sudo` or `time` around us.
        self.continued = rustix::process::kill_current_process_group(Signal::STOP).is_ok();
        if self.screen.return_from_shell().is_err() {
            return Some(End::By(Signal::HUP));
        }
        self.picture = Picture::Awaited;
        self.resized()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_at_once_and_the_average_stays_at_ten_frames_a_second() {
        let start = Instant::now();
        let mut pace = Pace { next: start };
        let mut now = start;
        let mut frames = 0;
        while now < start + Duration::from_secs(10) {
            now = now.max(pace.due(Picture::Awaited));
            pace.drawn(now);
            frames += 1;
        }
        assert!((100..=105).contains(&frames), "{frames}");

        // Lines of a fast agent leave room for the answer to a key.
        let mut pace = Pace { next: now };
        for _ in 0..20 {
            now = now.max(pace.due(Picture::Old));
            pace.drawn(now);
        }
        assert_eq!(pace.due(Picture::Awaited), pace.due(Picture::Old) - 3 * Pace::FRAME);
    }
}
