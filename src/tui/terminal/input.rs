//! Reads the terminal, takes replies out, and passes keys on to crossterm.
//!
//! crossterm reads the standard input and knows no replies: it makes keys of a colour, drops device
//! attributes without telling, and takes all keys after an unfinished `ESC [ ?` for a part of it.
//! Therefore a thread reads the terminal, and a socket replaces the terminal as the standard input.
//! The socket keeps apart what was written apart, since crossterm takes an `ESC` for the Esc key
//! when nothing follows it in the same read.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossterm::event as terminal_event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::stdio::{dup2_stdin, stdin};
use tokio::time::Instant;

use super::replies::{ReplyFilter, TerminalInput};
use crate::base::terminal::{self, Background};

/// The most bytes of one read. crossterm has room for twice as many.
const READ: usize = 512;

/// A reply of the terminal to [`Screen::ask`](super::Screen::ask).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalReply {
    /// The background of the terminal.
    Background(Background),
    /// The end of the replies, whether or not the background was among them.
    End,
}

/// The replies that are still to come, shared by the session and the thread that reads.
#[derive(Debug)]
pub struct Replies {
    filter: Mutex<ReplyFilter>,
    changed: Condvar,
    can_ask: bool,
    /// Whether another program reads the terminal. Changes only while the filter is locked.
    is_lent: AtomicBool,
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, ReplyFilter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects replies from now on. Returns false where none can come, because the input or the
    /// output is no terminal.
    pub fn expect(&self) -> bool {
        if self.can_ask {
            self.lock().ask(Instant::now());
        }
        self.can_ask
    }

    /// Leaves what is typed from now on to another program, until [`Replies::take_back`].
    pub fn lend(&self) {
        let _filter = self.lock();
        self.is_lent.store(true, Ordering::Relaxed);
    }

    /// Whether another program reads what is typed.
    pub fn is_lent(&self) -> bool {
        self.is_lent.load(Ordering::Relaxed)
    }

    /// Reads again what is typed.
    pub fn take_back(&self) {
        let filter = self.lock();
        self.is_lent.store(false, Ordering::Relaxed);
        drop(filter);
        self.changed.notify_all();
    }

    /// Waits while another program reads the terminal.
    fn while_lent<'a>(
        &self,
        filter: MutexGuard<'a, ReplyFilter>,
    ) -> Option<MutexGuard<'a, ReplyFilter>> {
        if !self.is_lent() {
            return Some(filter);
        }
        let is_lent = |_: &mut ReplyFilter| self.is_lent();
        drop(self.changed.wait_while(filter, is_lent));
        None
    }

    /// Waits until no reply is outstanding, but no longer than `patience`. A reply that comes later
    /// is typed into the shell.
    pub fn drain(&self, patience: Duration) {
        let is_open = |filter: &mut ReplyFilter| filter.is_open(Instant::now());
        let _timed_out = self
            .changed
            .wait_timeout_while(self.lock(), patience, is_open);
    }
}

/// Starts a thread that reads the terminal. Keys go to crossterm, and replies to `report`, which
/// returns whether more are wanted; an error is the last thing that is reported.
///
/// # Errors
///
/// When the terminal cannot be opened, or no thread can be started.
pub fn start(
    report: impl Fn(io::Result<TerminalReply>) -> bool + Send + 'static,
) -> io::Result<Arc<Replies>> {
    let is_terminal = io::stdin().is_terminal();
    let tty = if is_terminal {
        fcntl_dupfd_cloexec(stdin(), 3)?
    } else {
        let tty = OwnedFd::from(File::open("/dev/tty")?);
        dup2_stdin(&tty)?;
        tty
    };
    // Without a timeout, this only makes crossterm choose the standard input, while that is a
    // terminal.
    terminal_event::poll(Duration::ZERO)?;
    let (keys, for_crossterm) = UnixDatagram::pair()?;
    dup2_stdin(&for_crossterm)?;
    let replies = Arc::new(Replies {
        filter: Mutex::new(ReplyFilter::new()),
        changed: Condvar::new(),
        can_ask: is_terminal && terminal::is_stdout(),
        is_lent: AtomicBool::new(false),
    });
    let shared = Arc::clone(&replies);
    thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            if let Err(error) = pass_on(&tty, &keys, &shared, &report) {
                report(Err(error));
            }
        })?;
    Ok(replies)
}

/// Reads until the terminal or the session is gone.
fn pass_on(
    tty: &OwnedFd,
    keys: &UnixDatagram,
    replies: &Replies,
    report: &impl Fn(io::Result<TerminalReply>) -> bool,
) -> io::Result<()> {
    let mut bytes = [0; READ];
    loop {
        let deadline = replies.lock().deadline();
        let inputs = if is_readable_before(tty, deadline)? {
            // Locked until the read is over: it does not wait, since the terminal can be read, and
            // nothing else reads it before it is lent.
            let Some(mut filter) = replies.while_lent(replies.lock()) else {
                continue;
            };
            match rustix::io::read(tty, &mut bytes) {
                // The watchdog of the session notices a terminal that is gone.
                Ok(0) => return Ok(()),
                Ok(length) => filter.take(&bytes[..length], Instant::now()),
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            }
        } else {
            replies.lock().expire(Instant::now())
        };
        replies.changed.notify_all();
        for input in inputs {
            let is_wanted = match input {
                TerminalInput::Keys(bytes) => keys.send(&bytes).map(|_| true)?,
                TerminalInput::Background(background) => {
                    report(Ok(TerminalReply::Background(background)))
                }
                TerminalInput::EndMark => report(Ok(TerminalReply::End)),
            };
            if !is_wanted {
                return Ok(());
            }
        }
    }
}

/// Waits until the terminal can be read, or is gone. Returns false when the deadline comes first.
fn is_readable_before(tty: &OwnedFd, deadline: Option<Instant>) -> io::Result<bool> {
    let timeout = deadline
        .map(|deadline| deadline.saturating_duration_since(Instant::now()))
        .map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
    match poll(&mut [PollFd::new(tty, PollFlags::IN)], timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        // Nothing expires before its deadline, so an early end of the wait does no harm.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
