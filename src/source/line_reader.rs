//! Splits a stream into lines, none of which is longer than a limit.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::limits::LONGEST_LINE;

/// The bytes of buffer that are kept between two lines: enough for a line of a hundred processes.
/// The first line is the longest by far.
const KEPT_ROOM: usize = 64 << 10;

/// The bytes of buffer for one read: as many as a pipe holds.
const READ_SIZE: usize = 64 << 10;

/// Reads lines from a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: BufReader<R>,
    /// The line returned last, with its line end; or the beginning of the next line.
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_SIZE, stream),
            line: Vec::new(),
        }
    }

    /// Returns the next line without its line end, or `None` at the end of the stream. Safe to
    /// cancel: `line` then holds what was read. A line longer than [`LONGEST_LINE`] is an error.
    pub(crate) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if self.line.ends_with(b"\n") {
            self.line.clear();
            self.line.shrink_to(KEPT_ROOM);
        }
        let room = LONGEST_LINE + 1 - self.line.len();
        (&mut self.stream)
            .take(room as u64)
            .read_until(b'\n', &mut self.line)
            .await?;
        if self.line.len() > LONGEST_LINE {
            let sentence = format!("its line is longer than {} MiB", LONGEST_LINE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
        }
        Ok(self.line.strip_suffix(b"\n"))
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
            assert_eq!(error.to_string(), "its line is longer than 64 MiB");
        });
    }
}
