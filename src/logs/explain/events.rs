//! The events of a log in the order in which they are told: the first cause, other causes, and what
//! followed.

use super::error_finder::FoundError;
use super::message::MessageForm;
use super::message_finder::{FoundMessage, LogRank};

/// A failed allocation, or another known error.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LogEvent {
    Message(Box<FoundMessage>),
    Error(Box<FoundError>),
}

impl LogEvent {
    pub(super) fn cause(&self) -> &'static str {
        match self {
            Self::Message(found) if found.message.form == MessageForm::Async => "cuda_malloc_async",
            Self::Message(_) => "pytorch",
            Self::Error(found) => found.error.cause,
        }
    }

    pub(super) fn line(&self) -> u64 {
        match self {
            Self::Message(found) => found.line,
            Self::Error(found) => found.line,
        }
    }

    pub(super) fn ranks(&self) -> &[LogRank] {
        match self {
            Self::Message(found) => &found.ranks,
            Self::Error(found) => &found.ranks,
        }
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Message(found) => found.count,
            Self::Error(found) => found.count,
        }
    }

    /// Whether PyTorch tried again after this, and no failure is known.
    fn is_retried(&self) -> bool {
        matches!(self, Self::Message(found) if found.message.form == MessageForm::Retried)
    }

    /// Whether this event is other words for `other`, or tells nothing beside it.
    fn is_absorbed_by(&self, other: &Self) -> bool {
        let bare = ["pytorch", "cuda_malloc_async", "cuda_out_of_memory"];
        match (self, other) {
            (Self::Message(_), _) => self.is_retried() && !other.is_retried(),
            // A program that catches the exception often prints it without figures as well.
            (Self::Error(found), Self::Message(_)) => {
                bare.contains(&found.error.cause) && !other.is_retried()
            }
            // Lines that begin and end each report of the kernel do not say whose memory was full.
            (Self::Error(found), Self::Error(other))
                if found.is_vague && found.error.cause == "kernel_oom_killer" =>
            {
                other.error.cause == "cgroup_limit"
            }
            (Self::Error(found), Self::Error(other)) => {
                other.error.absorbs.contains(&found.error.cause)
            }
        }
    }

    /// Whether this event is a consequence of `other`.
    fn follows(&self, other: &Self) -> bool {
        let Self::Error(found) = self else {
            return false;
        };
        let is_named_late = matches!(other, Self::Error(other) if other.error.named_late);
        found.error.follows.contains(&other.cause())
            && (is_named_late || other.line() <= self.line())
    }
}

/// Returns the events in the order in which they are told, each with whether it is a consequence of
/// another one.
pub(super) fn in_order(
    messages: Vec<FoundMessage>,
    errors: Vec<FoundError>,
) -> Vec<(LogEvent, bool)> {
    let messages = messages
        .into_iter()
        .map(|found| LogEvent::Message(Box::new(found)));
    let mut events: Vec<LogEvent> = messages
        .chain(
            errors
                .into_iter()
                .map(|found| LogEvent::Error(Box::new(found))),
        )
        .collect();
    let absorbed: Vec<bool> = events
        .iter()
        .map(|event| events.iter().any(|other| event.is_absorbed_by(other)))
        .collect();
    let mut absorbed = absorbed.into_iter();
    events.retain(|_| absorbed.next() != Some(true));
    let follow: Vec<bool> = events
        .iter()
        .map(|event| events.iter().any(|other| event.follows(other)))
        .collect();
    let mut ordered: Vec<(LogEvent, bool)> = events.into_iter().zip(follow).collect();
    ordered.sort_by_key(|(event, follows)| (*follows, event.line()));
    ordered
}
