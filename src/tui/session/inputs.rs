//! Listens to the terminal: keys, replies, signals, and its end.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crossterm::event as terminal_event;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc as queue;

use super::SessionInput;
use crate::tui::terminal::input::{self, Replies};

/// The signals that end the session: those that end a program which does not handle them, and are
/// no fault of it. A scheduler may send any of them, such as Slurm's `--signal`, and the terminal
/// must be restored.
const ENDING_SIGNALS: [Signal; 13] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::POWER,
];

/// Starts to listen to keys, signals and the end of the terminal. Returns a sender for further
/// inputs, and the inputs.
pub(super) fn listen() -> io::Result<(
    queue::UnboundedSender<SessionInput>,
    queue::UnboundedReceiver<SessionInput>,
)> {
    let (sender, inputs) = queue::unbounded_channel();
    let further = sender.clone();
    for number in ENDING_SIGNALS
        .into_iter()
        .chain([Signal::TSTP, Signal::CONT, Signal::WINCH])
    {
        let mut signals = signal(SignalKind::from_raw(number.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some()
                && sender.send(SessionInput::Signal(number)).is_ok()
            {}
        });
    }
    thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || watch_terminal(&sender))?;
    Ok((further, inputs))
}

/// Starts to read the terminal, and its keys.
pub(super) fn listen_to_replies(
    inputs: &queue::UnboundedSender<SessionInput>,
) -> io::Result<Arc<Replies>> {
    let (replies, keys) = (inputs.clone(), inputs.clone());
    let replies = input::start(move |reply| {
        let reply = reply.map_or_else(SessionInput::KeysUnreadable, SessionInput::Reply);
        replies.send(reply).is_ok()
    })?;
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || read_keys(&keys))?;
    Ok(replies)
}

fn read_keys(inputs: &queue::UnboundedSender<SessionInput>) {
    loop {
        let (input, is_last) = match terminal_event::read() {
            Ok(event) => (SessionInput::Terminal(event), false),
            Err(error) => (SessionInput::KeysUnreadable(error), true),
        };
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}

/// Ends the program when the terminal is gone. The thread that reads keys would not notice but use
/// a whole core, and SIGHUP may be ignored or go to another session.
fn watch_terminal(inputs: &queue::UnboundedSender<SessionInput>) {
    /// How long the session may take to end by itself.
    const GRACE: Duration = Duration::from_millis(500);
    // The end of a pty wakes the poll; the end of other terminals may show only in a new poll.
    let a_second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let stdout = io::stdout();
    let is_gone = || {
        let mut terminal = [PollFd::new(&stdout, PollFlags::empty())];
        match rustix::event::poll(&mut terminal, Some(&a_second)) {
            Ok(_) => !terminal[0].revents().is_empty(),
            Err(error) => error != rustix::io::Errno::INTR,
        }
    };
    while !is_gone() {}
    if inputs.send(SessionInput::Signal(Signal::HUP)).is_ok() {
        let (_never_sends, never) = mpsc::channel::<()>();
        let _timeout: Result<(), mpsc::RecvTimeoutError> = never.recv_timeout(GRACE);
    }
    #[expect(
        clippy::exit,
        reason = "the session does not end by itself, and there is no terminal to restore"
    )]
    std::process::exit(128 + Signal::HUP.as_raw());
}
