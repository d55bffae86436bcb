//! Compresses lines into zstd frames.

use std::io;

use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

/// The level of compression.
const LEVEL: i32 = 3;

/// The base-2 logarithm of the window: 2 MiB.
const WINDOW_LOG: u32 = 21;

/// The room for the output of one step.
const ROOM: usize = 64 << 10;

/// Compresses lines into frames, one after the other. The compressed bytes wait in memory.
pub(super) struct FrameWriter {
    encoder: Encoder<'static>,
    /// The compressed bytes since they were taken last.
    bytes: Vec<u8>,
}

impl FrameWriter {
    pub(super) fn new() -> io::Result<Self> {
        let mut encoder = Encoder::new(LEVEL)?;
        encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
        encoder.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self {
            encoder,
            bytes: Vec::new(),
        })
    }

    /// Forgets the frame and its bytes.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        self.bytes.clear();
        self.encoder.reinit()
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut input = InBuffer::around(bytes);
        while input.pos() < bytes.len() {
            self.step(|encoder, output| encoder.run(&mut input, output))?;
        }
        Ok(())
    }

    /// Ends the block, so that all lines can be read from the bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.step(Encoder::flush)? > 0 {}
        Ok(())
    }

    /// Ends the frame, and prepares for the next one.
    pub(super) fn end(&mut self) -> io::Result<()> {
        while self.step(|encoder, output| encoder.finish(output, true))? > 0 {}
        self.encoder.reinit()
    }

    /// The compressed bytes that were not taken yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn take_bytes(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(ROOM);
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Encoder<'static>, &mut OutBuffer<'_, Vec<u8>>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let written = self.bytes.len();
        self.bytes.reserve(ROOM);
        step(
            &mut self.encoder,
            &mut OutBuffer::around_pos(&mut self.bytes, written),
        )
    }
}
