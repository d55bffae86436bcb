//! Splits a stream into lines, none of which is longer than a limit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::limits::LONGEST_LINE;
use super::line_buffer::LineBuffer;

/// The bytes of buffer that are kept after a line, as a multiple of its length. The full lines are
/// the longest by far, and rare: with 200 hosts, room for one would be held 200 times.
const KEPT_LENGTHS: usize = 2;

/// The bytes of buffer for one read. Most lines are shorter.
const READ_SIZE: usize = 8 << 10;

/// The length in bytes from which a line is long. A full line of a thousand processes is.
const LONG: usize = 1 << 20;

/// The most long lines at once. The other hosts wait until one is delivered, and their agents with
/// them: nothing is lost, and hostile hosts together take no more memory than these lines.
const MOST_LONG: usize = 4;

/// The longest time until the end of a long line, so that a host which never ends its line keeps
/// no other one waiting.
const LONG_LINE_TIME: Duration = Duration::from_secs(20);

/// The turns of sources that read a long line. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct LongLineTurns(Arc<Semaphore>);

impl Default for LongLineTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_LONG)))
    }
}

/// Reads lines from a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: BufReader<R>,
    /// The line returned last; or the beginning of the next line.
    line: LineBuffer,
    /// The turns for long lines; `None` where there is one source only.
    turns: Option<LongLineTurns>,
    /// The turn of the long line in `line`, and when it must be over.
    turn: Option<(OwnedSemaphorePermit, Instant)>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_SIZE, stream),
            line: LineBuffer::default(),
            turns: None,
            turn: None,
        }
    }

    /// Returns the reader, which takes a turn for each long line.
    pub(super) fn with_turns(self, turns: LongLineTurns) -> Self {
        Self {
            turns: Some(turns),
            ..self
        }
    }

    /// Returns the next line without its line end, or `None` at the end of the stream. Safe to
    /// cancel: `line` then holds what was read. A line that is too long is an error.
    pub(crate) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if self.line.has_end() {
            self.line
                .begin(KEPT_LENGTHS * self.line.bytes.len().min(LONG));
            self.turn = None;
        }
        self.line.read_async(&mut self.stream, LONG).await?;
        if !self.line.has_end() && self.line.bytes.len() >= LONG {
            self.read_long().await?;
        }
        Ok(self.line.has_end().then_some(&self.line.bytes))
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads on in a long line, once it is its turn. Safe to cancel.
    async fn read_long(&mut self) -> io::Result<()> {
        if let (Some(LongLineTurns(turns)), None) = (&self.turns, &self.turn) {
            let turn = Arc::clone(turns).acquire_owned().await;
            self.turn = turn
                .ok()
                .map(|turn| (turn, Instant::now() + LONG_LINE_TIME));
        }
        let read = self.line.read_async(&mut self.stream, LONGEST_LINE + 1);
        let Some((_, deadline)) = &self.turn else {
            return read.await;
        };
        timeout_at(*deadline, read).await.unwrap_or_else(|_| {
            let seconds = LONG_LINE_TIME.as_secs();
            let sentence = format!("a line of more than 1 MiB has no end after {seconds} s");
            Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    #[test]
    fn lines_are_cut_where_they_end() {
        run(async {
            let mut lines = LineReader::new(&b"one\n\ntwo\nrest"[..]);
            assert_eq!(lines.next().await.unwrap(), Some(&b"one"[..]));
            assert_eq!(lines.next().await.unwrap(), Some(&b""[..]));
            assert_eq!(lines.next().await.unwrap(), Some(&b"two"[..]));
            assert_eq!(lines.next().await.unwrap(), None);
        });
    }

    #[test]
    fn four_long_lines_are_read_at_once_and_the_others_wait_until_one_is_done_with() {
        run(async {
            let turns = LongLineTurns::default();
            let long = [&vec![b'x'; 2 * LONG][..], b"\nshort\n"].concat();
            let reader = || LineReader::new(&long[..]).with_turns(turns.clone());
            let mut readers: Vec<_> = (0..MOST_LONG).map(|_| reader()).collect();
            for reader in &mut readers {
                assert_eq!(reader.next().await.unwrap().unwrap().len(), 2 * LONG);
            }
            let mut late = reader();
            let is_late = tokio::select! {
                biased;
                _ = late.next() => false,
                () = tokio::task::yield_now() => true,
            };
            assert!(is_late, "all turns are taken");
            // The one that goes on with its next line gives its turn back.
            assert_eq!(readers[0].next().await.unwrap(), Some(&b"short"[..]));
            assert_eq!(late.next().await.unwrap().unwrap().len(), 2 * LONG);
            assert_eq!(late.next().await.unwrap(), Some(&b"short"[..]));
        });
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        run(async {
            let error = LineReader::new(tokio::io::repeat(b'x'))
                .next()
                .await
                .unwrap_err();
            assert_eq!(error.to_string(), "a line is longer than 64 MiB");
        });
    }
}
