//! Reads the standard error of a process. When the process exits, the last line of it is the
//! reason.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::timeout;

use crate::base::text::Text;

/// How long the reason may take to arrive on standard error after the last line. Another process
/// could keep standard error open for ever.
const REASON_TIMEOUT: Duration = Duration::from_millis(200);

/// The most bytes that are kept: enough for the longest [`Text`] and a line before it.
const KEPT: usize = 2 * Text::LIMIT;

#[derive(Debug)]
pub(super) struct StandardError {
    stream: ChildStderr,
    /// The bytes read last, at most [`KEPT`].
    tail: Vec<u8>,
    has_ended: bool,
}

impl StandardError {
    pub(super) fn new(stream: ChildStderr) -> Self {
        Self {
            stream,
            tail: Vec::new(),
            has_ended: false,
        }
    }

    /// Reads once; after the end of the stream, waits for ever. Safe to cancel.
    pub(super) async fn read(&mut self) {
        if self.has_ended {
            return std::future::pending().await;
        }
        let mut buffer = [0; Text::LIMIT];
        match self.stream.read(&mut buffer).await {
            Ok(0) | Err(_) => self.has_ended = true,
            Ok(length) => self.tail.extend_from_slice(&buffer[..length]),
        }
        let surplus = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..surplus);
    }

    /// Returns the last lines that are not empty, once the stream has ended, or has not ended in
    /// time.
    pub(super) async fn last_lines(&mut self) -> Vec<Text> {
        let read_to_end = async {
            while !self.has_ended {
                self.read().await;
            }
        };
        let _in_time = timeout(REASON_TIMEOUT, read_to_end).await;
        self.lines().collect()
    }

    /// Returns the last line that is not empty; `None` when there is none.
    pub(super) fn last_line(&self) -> Option<Text> {
        self.lines().last()
    }

    fn lines(&self) -> impl Iterator<Item = Text> {
        let lines = self
            .tail
            .split(|byte| *byte == b'\n' || *byte == b'\r')
            .map(<[u8]>::trim_ascii);
        // The sentence that a line becomes part of names the program.
        lines
            .filter(|line| !line.is_empty())
            .map(|line| Text::new(line.strip_prefix(b"gputop: ").unwrap_or(line)))
    }
}
