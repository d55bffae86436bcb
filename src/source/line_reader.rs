//! Splits a stream into lines, none of which is longer than a limit.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits::LONGEST_LINE;

/// The bytes of buffer that are kept between two lines: enough for a line of a hundred processes. The first line is the
/// longest by far.
const KEPT_ROOM: usize = 64 << 10;

/// The bytes of buffer for one read: as many as a pipe holds.
const READ_SIZE: usize = 64 << 10;

/// Splits a stream into lines.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    stream: R,
    bytes: Vec<u8>,
    /// The length of the line returned last, which is still at the beginning of `bytes`.
    returned: usize,
    /// The number of bytes at the beginning that contain no further line end.
    searched: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream, bytes: Vec::with_capacity(READ_SIZE), returned: 0, searched: 0 }
    }

    /// Returns the next line without its line end, or `None` at the end of the stream. Safe to cancel.
    ///
    /// # Errors
    ///
    /// When the stream cannot be read, or a line is longer than [`LONGEST_LINE`].
    pub(super) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.bytes.drain(..self.returned);
        self.bytes.shrink_to(KEPT_ROOM);
        self.searched -= self.returned;
        self.returned = 0;
        loop {
            if let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.searched + length;
                self.returned = line + 1;
                self.searched = line + 1;
                return Ok(Some(&self.bytes[..line]));
            }
            self.searched = self.bytes.len();
            if self.bytes.len() > LONGEST_LINE {
                let sentence = format!("its line is longer than {} MiB", LONGEST_LINE >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
            }
            self.bytes.reserve(READ_SIZE);
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Returns the bytes after the last line end: once the stream has ended, a line that was cut off.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.returned..]
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
            assert_eq!(lines.rest(), b"rest");
        });
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        run(async {
            let error = LineReader::new(tokio::io::repeat(b'x')).next().await.unwrap_err();
            assert_eq!(error.to_string(), "its line is longer than 64 MiB");
        });
    }
}
