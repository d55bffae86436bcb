//! Reads a log once, for PyTorch's messages and for known errors.

use super::error_finder::{AftermathLine, ErrorFinder, LineFindings, UnknownLine};
use super::events::{self, LogEvent};
use super::failure_line::FailureSign;
use super::message_finder::{FoundMessage, FoundMessages, MessageFinder};
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
    /// Failures after which the program continued.
    pub recovered: Vec<RecoveredFailure>,
    /// Lines that state a failure in words that no known form has, before the events.
    pub unknown: Vec<UnknownLine>,
    /// Lines that follow from an event.
    pub aftermath: Vec<AftermathLine>,
    pub program: Option<Program>,
    /// Whether a message of PyTorch advises `max_split_size_mb`.
    pub advises_split_size: bool,
    /// The number of different messages that were left out.
    pub left_out: u64,
    pub lines: u64,
}

/// A failure after which the program continued.
#[cfg_attr(test, derive(Debug, Clone, PartialEq))]
pub(super) struct RecoveredFailure {
    pub line: u64,
    /// The line in which the program says that it continued.
    pub continued: u64,
}

impl LogScanner {
    pub(super) fn scan(&mut self, bytes: &[u8]) {
        self.messages.scan(bytes);
        self.lines.scan(bytes);
    }

    pub(super) fn finish(self) -> ScannedLog {
        let mut messages = self.messages.finish();
        let mut lines = self.lines.finish();
        messages.found.retain(|found| !found.is_in(&lines.mentions));
        let recovered = take_recovered(&mut messages.found, &mut lines);
        drop_warnings(&mut messages, &mut lines);
        let events = events::in_order(messages.found, lines.errors);
        let causes: Vec<&str> = events.iter().map(|(event, _)| event.cause()).collect();
        // Lines below an event most often say the same again, or follow from it.
        let first = events
            .iter()
            .map(|(event, _)| event.line())
            .min()
            .unwrap_or(u64::MAX);
        lines.unknown.retain(|unknown| {
            let counts = unknown.sign == FailureSign::Error
                || lines.after.ends_soon(unknown.last_line, messages.lines);
            counts && unknown.line < first
        });
        ScannedLog {
            events,
            recovered,
            unknown: lines.unknown,
            aftermath: lines.aftermath,
            program: program::deciding_program(&lines.programs.found, &causes),
            advises_split_size: lines.advises_split_size,
            left_out: messages.left_out,
            lines: messages.lines,
        }
    }
}

/// Drops the failures that were warnings, unless an error is in the log or it ends soon after them.
/// One that only ends a process is never dropped.
fn drop_warnings(messages: &mut FoundMessages, lines: &mut LineFindings) {
    let LineFindings {
        errors,
        unknown,
        warnings,
        after,
        ..
    } = lines;
    let has_error = errors.iter().any(|found| !found.is_warning)
        || messages.found.iter().any(|found| !found.is_in(warnings))
        || unknown
            .iter()
            .any(|unknown| unknown.sign == FailureSign::Error);
    if has_error {
        return;
    }
    let ends_soon = |line| after.ends_soon(line, messages.lines);
    messages.found.retain(|found| ends_soon(found.last_line));
    errors.retain(|found| found.error.ends || ends_soon(found.last_line));
}

/// Takes out the failures after which the program continued, unless a search for a batch size has
/// failed in the end.
fn take_recovered(
    messages: &mut Vec<FoundMessage>,
    lines: &mut LineFindings,
) -> Vec<RecoveredFailure> {
    if lines
        .errors
        .iter()
        .any(|found| found.error.cause == "batch_size_search")
    {
        return Vec::new();
    }
    let mut recovered = Vec::new();
    let mut remains = |line: u64, last_line: u64| {
        let continued = lines.after.continued(last_line);
        recovered.extend(continued.map(|continued| RecoveredFailure { line, continued }));
        continued.is_none()
    };
    messages.retain(|found| remains(found.line, found.last_line));
    lines
        .errors
        .retain(|found| found.error.ends || remains(found.line, found.last_line));
    lines
        .unknown
        .retain(|unknown| remains(unknown.line, unknown.last_line));
    recovered.sort_by_key(|failure| (failure.line, failure.continued));
    recovered.dedup_by_key(|failure| failure.continued);
    recovered
}
