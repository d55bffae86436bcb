//! Splits a stream into lines, none of which is longer than a limit.

use std::io;

use tokio::io::{AsyncRead, BufReader};

use super::line_buffer::LineBuffer;

/// The bytes of buffer that are kept after a line, as a multiple of its length. The full lines are
/// the longest by far, and rare: with 200 hosts, room for one would be held 200 times.
const KEPT_LENGTHS: usize = 2;

/// The bytes of buffer for one read. Most lines are shorter.
const READ_SIZE: usize = 8 << 10;

/// Reads lines from a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: BufReader<R>,
    /// The line returned last; or the beginning of the next line.
    line: LineBuffer,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_SIZE, stream),
            line: LineBuffer::default(),
        }
    }

    /// Returns the next line without its line end, or `None` at the end of the stream. Safe to
    /// cancel: `line` then holds what was read. A line that is too long is an error.
    pub(crate) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if self.line.has_end() {
            self.line.begin(KEPT_LENGTHS * self.line.bytes.len());
        }
        self.line.read_async(&mut self.stream).await?;
        Ok(self.line.has_end().then_some(&self.line.bytes))
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
