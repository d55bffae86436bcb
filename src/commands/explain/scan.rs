//! Reads a log once, for PyTorch's messages and for known errors.

use super::error_finder::{AftermathLine, ErrorFinder};
use super::events::{self, LogEvent};
use super::find::MessageFinder;
use super::program::{self, Program};

#[derive(Default)]
pub(super) struct LogScanner {
    messages: MessageFinder,
    lines: ErrorFinder,
}

/// All that a log tells about failures.
#[cfg_attr(test, derive(Debug, Clone, PartialEq))]
pub(super) struct ScannedLog {
    /// The events, each with whether it is a consequence of another one.
    pub events: Vec<(LogEvent, bool)>,
    /// Lines that follow from an event.
    pub aftermath: Vec<AftermathLine>,
    pub program: Option<Program>,
    /// Whether a message of PyTorch advises `max_split_size_mb`.
    pub advises_split_size: bool,
    /// The number of different messages that were left out.
    pub left_out: u64,
    pub lines: u64,
}

impl LogScanner {
    pub(super) fn scan(&mut self, bytes: &[u8]) {
        self.messages.scan(bytes);
        self.lines.scan(bytes);
    }

    pub(super) fn finish(self) -> ScannedLog {
        let messages = self.messages.finish();
        let lines = self.lines.finish();
        let events = events::in_order(messages.found, lines.errors);
        let causes: Vec<&str> = events.iter().map(|(event, _)| event.cause()).collect();
        ScannedLog {
            events,
            aftermath: lines.aftermath,
            program: program::decisive(&lines.programs.found, &causes),
            advises_split_size: lines.advises_split_size,
            left_out: messages.left_out,
            lines: messages.lines,
        }
    }
}
