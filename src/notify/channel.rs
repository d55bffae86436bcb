//! The thread of one notification: it sends one message after the other, and tries again for a
//! while. Nobody waits for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use super::destination::Destination;
use super::message::Message;
use super::request::{SendFailure, send};
use crate::base::text::Text;

/// The most messages that wait for one notification.
const MOST_WAITING: usize = 64;

/// The waits before the second and the third try.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

/// The age at which a message is dropped instead of tried once more.
const OLDEST: Duration = Duration::from_mins(2);

/// Numbers of messages that the thread and its starter share.
#[derive(Debug, Default)]
struct Counts {
    /// Lost, and not yet reported.
    lost: AtomicUsize,
    /// In the queue, or being sent.
    pending: AtomicUsize,
}

/// A notification, whose thread starts at its first message.
#[derive(Debug)]
pub(super) struct Channel {
    destination: Arc<Destination>,
    counts: Arc<Counts>,
    thread: Option<ThreadEnds>,
}

/// The ends of the channels to a thread. Dropping them ends it.
#[derive(Debug)]
struct ThreadEnds {
    queue: SyncSender<(Message, Instant)>,
    /// Never sent to: dropping it ends the wait for the next try.
    _closing: Sender<Infallible>,
}

impl Channel {
    pub(super) fn new(destination: Destination) -> Self {
        Self {
            destination: Arc::new(destination),
            counts: Arc::default(),
            thread: None,
        }
    }

    /// Queues a message if the filter lets it through. Never waits: a message for which there is no
    /// room is lost, and counted.
    pub(super) fn send(&mut self, message: &Message, notes: &Sender<Text>) {
        if !self.destination.filter.lets_through(message) {
            return;
        }
        if self.thread.is_none() {
            self.thread = self.start(notes);
        }
        let queued = self.thread.as_ref().is_some_and(|thread| {
            self.counts.pending.fetch_add(1, Ordering::Relaxed);
            let result = thread.queue.try_send((message.clone(), now()));
            if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = result {
                self.counts.pending.fetch_sub(1, Ordering::Relaxed);
            }
            result.is_ok()
        });
        if !queued {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(&self, notes: &Sender<Text>) -> Option<ThreadEnds> {
        let (queue, messages) = mpsc::sync_channel(MOST_WAITING);
        let (closing, is_closing) = mpsc::channel();
        let worker = ChannelThread {
            destination: Arc::clone(&self.destination),
            counts: Arc::clone(&self.counts),
            is_closing,
            notes: notes.clone(),
            told: None,
        };
        let started = thread::Builder::new()
            .name("notify".to_owned())
            .spawn(move || worker.run(&messages));
        if let Err(error) = started {
            let _closed = notes.send(note(
                &self.destination,
                format_args!("no message can be sent: {error}"),
            ));
            return None;
        }
        Some(ThreadEnds {
            queue,
            _closing: closing,
        })
    }

    /// Lets the thread end when it has tried each message that waits.
    pub(super) fn close(&mut self) {
        self.thread = None;
    }

    /// Returns a sentence on the messages that are lost, if there are any.
    pub(super) fn losses(&self) -> Option<Text> {
        let lost = self.counts.lost.swap(0, Ordering::Relaxed)
            + self.counts.pending.swap(0, Ordering::Relaxed);
        (lost > 0).then(|| {
            note(
                &self.destination,
                format_args!("{} lost", messages_were(lost)),
            )
        })
    }
}

/// Returns a sentence about a notification, which it names by NAME alone.
fn note(destination: &Destination, sentence: std::fmt::Arguments<'_>) -> Text {
    Text::new(format!("notification {}: {sentence}", destination.name))
}

fn messages_were(count: usize) -> String {
    if count == 1 {
        "1 message was".to_owned()
    } else {
        format!("{count} messages were")
    }
}

struct ChannelThread {
    destination: Arc<Destination>,
    counts: Arc<Counts>,
    is_closing: Receiver<Infallible>,
    notes: Sender<Text>,
    /// The cause of the failure that was told last; `None` while messages arrive.
    told: Option<String>,
}

impl ChannelThread {
    fn run(mut self, messages: &Receiver<(Message, Instant)>) {
        while let Ok((message, since)) = messages.recv() {
            let has_arrived = self.deliver(&message, since);
            if !has_arrived {
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
            self.counts.pending.fetch_sub(1, Ordering::Relaxed);
            if has_arrived {
                self.tell_success();
            }
        }
    }

    /// Tries to send a message, three times at most. Returns whether it arrived.
    fn deliver(&mut self, message: &Message, since: Instant) -> bool {
        let mut waits = RETRY_AFTER.into_iter();
        loop {
            if now().duration_since(since) > OLDEST {
                return false;
            }
            let Err(failure) = send(message, &self.destination) else {
                return true;
            };
            self.tell_failure(&failure);
            let Some(wait) = waits.next().filter(|_| failure.can_retry) else {
                return false;
            };
            let wait = failure.wait.map_or(wait, |asked| asked.max(wait));
            let Err(RecvTimeoutError::Timeout) = self.is_closing.recv_timeout(wait) else {
                return false;
            };
        }
    }

    /// Tells each new cause once.
    fn tell_failure(&mut self, failure: &SendFailure) {
        if self.told.as_ref() == Some(&failure.cause) {
            return;
        }
        let next = if failure.can_retry {
            "; gputop tries again"
        } else {
            ""
        };
        self.tell(format_args!(
            "messages do not arrive: {}{next}",
            failure.cause
        ));
        self.told = Some(failure.cause.clone());
    }

    fn tell_success(&mut self) {
        let lost = self.counts.lost.swap(0, Ordering::Relaxed);
        let had_failed = self.told.take().is_some();
        match (had_failed, lost) {
            (true, 0) => self.tell(format_args!("messages arrive again; none was lost")),
            (true, lost) => self.tell(format_args!(
                "messages arrive again; {} lost",
                messages_were(lost)
            )),
            (false, 0) => {}
            (false, lost) => self.tell(format_args!(
                "{} lost: there were more than {MOST_WAITING} at once",
                messages_were(lost)
            )),
        }
    }

    fn tell(&self, sentence: std::fmt::Arguments<'_>) {
        let _closed = self.notes.send(note(&self.destination, sentence));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the age of a message decides whether it is sent"
)]
fn now() -> Instant {
    Instant::now()
}
