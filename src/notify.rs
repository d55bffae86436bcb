//! Tells people and programs away from the screen: notification services over HTTPS, and the program
//! of `--on-alert`.
//!
//! Nothing here makes its caller wait. Each notification has a thread of its own from its first
//! message on, and nothing but its settings before. A URL or a token is a [`Secret`], which is
//! neither printed nor passed on.

mod alert_program;
mod body;
mod channel;
mod destination;
mod filter;
mod message;
mod request;
mod secret;

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

pub(crate) use self::alert_program::AlertProgram;
use self::channel::Channel;
pub(crate) use self::destination::{Destination, Endpoint, Service};
pub(crate) use self::filter::MessageFilter;
pub(crate) use self::message::{KINDS, Message, Phase};
pub(crate) use self::secret::{Secret, remove_variable};
use crate::base::text::Text;

/// The notifications of a recorder, and its program of `--on-alert`.
#[derive(Debug)]
pub(crate) struct Notifications {
    channels: Vec<Channel>,
    program: AlertProgram,
    /// Sentences for the user, from this thread and others.
    notes: (Sender<Text>, Receiver<Text>),
    /// Sentences of programs that end later: nobody waits for these.
    program_notes: (Sender<Text>, Receiver<Text>),
}

impl Notifications {
    /// Makes notifications of these destinations. Starts no thread and opens no connection.
    pub(crate) fn new(destinations: Vec<Destination>, program: AlertProgram) -> Self {
        Self {
            channels: destinations.into_iter().map(Channel::new).collect(),
            program,
            notes: mpsc::channel(),
            program_notes: mpsc::channel(),
        }
    }

    /// Sends a message to each destination whose filter lets it through, and runs the program.
    /// Returns at once; [`Self::take_notes`] says what failed.
    pub(crate) fn send(&mut self, message: &Message) {
        for channel in &mut self.channels {
            channel.send(message, &self.notes.0);
        }
        let notes = self.program_notes.0.clone();
        let report = move |problem| {
            let _closed = notes.send(problem);
        };
        let started =
            self.program
                .run(message.kind, &message.sentence, message.all_facts(), report);
        if let Err(problem) = started {
            let _closed = self.program_notes.0.send(problem);
        }
    }

    /// Returns the sentences for the user since the last call: failures, each once, and their ends.
    pub(crate) fn take_notes(&mut self) -> Vec<Text> {
        self.notes
            .1
            .try_iter()
            .chain(self.program_notes.1.try_iter())
            .collect()
    }

    /// Waits until each message that waits in a queue was tried once, for this time at most. Returns
    /// the last sentences for the user, with the numbers of lost messages.
    pub(crate) fn close(mut self, patience: Duration) -> Vec<Text> {
        for channel in &mut self.channels {
            channel.close();
        }
        let (own, notes) = self.notes;
        // The receiver hears of the end of the last thread when no sender is left.
        drop(own);
        let end = now() + patience;
        let mut last = Vec::new();
        while let Ok(note) = notes.recv_timeout(end.saturating_duration_since(now())) {
            last.push(note);
        }
        last.extend(self.program_notes.1.try_iter());
        last.extend(self.channels.iter().filter_map(Channel::losses));
        last
    }
}

/// Sends one message now, in one try.
///
/// # Errors
///
/// When it did not arrive: the cause, without any part of the URL.
pub(crate) fn try_once(message: &Message, to: &Destination) -> Result<(), Text> {
    request::send(message, to).map_err(|failure| failure.cause.into())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the end of a recorder is bounded in time"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_server_costs_its_messages_and_no_time() {
        /// More than a queue takes.
        const MESSAGES: usize = 80;
        let url = Secret::new("http://127.0.0.1:1/hunter2").unwrap();
        let dead = Destination {
            name: "dead".into(),
            service: Service::Webhook,
            endpoint: Endpoint::new(url).unwrap(),
            token: None,
            sends_command: false,
            filter: MessageFilter::default(),
            priority: None,
            tags: Vec::new(),
        };
        let program = AlertProgram::new(Vec::new());
        let mut notifications = Notifications::new(vec![dead], program);
        let message = Message::test("node1".to_owned(), "a sentence".to_owned());
        let started = now();
        for _ in 0..MESSAGES {
            notifications.send(&message);
        }
        assert!(started.elapsed() < Duration::from_secs(2));
        let notes = notifications.close(Duration::from_mins(1));
        assert!(started.elapsed() < Duration::from_mins(1));
        let expected = [
            "notification dead: messages do not arrive: the server refuses the connection; gputop tries again",
            "notification dead: 80 messages were lost",
        ];
        assert_eq!(notes, expected.map(Text::from));
    }
}
