//! The bytes of one line of a stream, which may be hostile: no line is longer than a limit.

use std::io::{self, BufRead, Read};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use super::limits::LONGEST_LINE;

/// A line without its end, or the beginning of one.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    pub bytes: Vec<u8>,
    has_end: bool,
}

impl LineBuffer {
    /// Begins the next line. Of the memory of a long line, this many bytes are kept.
    pub(super) fn begin(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.has_end = false;
    }

    /// Whether the line was read to its end.
    pub(super) fn has_end(&self) -> bool {
        self.has_end
    }

    /// Reads on, to the end of the line or of the stream.
    ///
    /// # Errors
    ///
    /// When the stream cannot be read, or the line is longer than [`LONGEST_LINE`].
    pub(super) fn read(&mut self, stream: &mut dyn BufRead) -> io::Result<()> {
        let room = self.room();
        stream.take(room).read_until(b'\n', &mut self.bytes)?;
        self.close()
    }

    /// As [`LineBuffer::read`], but no more than to this length. Safe to cancel: the bytes that were
    /// read stay.
    pub(super) async fn read_async(
        &mut self,
        stream: &mut (impl AsyncBufRead + Unpin),
        most: usize,
    ) -> io::Result<()> {
        let room = self
            .room()
            .min(most.saturating_sub(self.bytes.len()) as u64);
        stream.take(room).read_until(b'\n', &mut self.bytes).await?;
        self.close()
    }

    fn room(&self) -> u64 {
        (LONGEST_LINE + 1).saturating_sub(self.bytes.len()) as u64
    }

    fn close(&mut self) -> io::Result<()> {
        self.has_end = self.bytes.pop_if(|byte| *byte == b'\n').is_some();
        if self.bytes.len() <= LONGEST_LINE {
            return Ok(());
        }
        let sentence = format!("a line is longer than {} MiB", LONGEST_LINE >> 20);
        Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
    }
}
