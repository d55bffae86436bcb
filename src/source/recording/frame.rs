//! zstd frames in a file: where they begin and end, and their content as a stream (RFC 8878).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::super::limits::LONGEST_LINE;

/// The first bytes of a frame.
pub(super) const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// The base-2 logarithm of the largest window that is accepted: 8 MiB, which RFC 8878 recommends.
/// gputop writes 2 MiB.
const LARGEST_WINDOW_LOG: u32 = 23;

/// The longest block: 128 KiB.
const LONGEST_BLOCK: u64 = 128 << 10;

/// The bytes of one read of the file.
const READ_SIZE: usize = 64 << 10;

/// Where the bytes of a frame end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameEnd {
    /// Before this offset.
    At(u64),
    /// The file ends within the frame. The last whole block ends before this offset.
    Torn(u64),
    /// No frame begins here.
    Invalid,
}

/// Finds the end of the frame that begins at `offset` in the first `length` bytes of a file. Reads
/// only the headers of the frame and of its blocks.
pub(super) fn find_end(file: &File, offset: u64, length: u64) -> io::Result<FrameEnd> {
    walk(file, offset, length, |_| {})
}

/// Returns the offsets at which the whole blocks of a frame end.
pub(super) fn block_ends(file: &File, offset: u64, length: u64) -> io::Result<Vec<u64>> {
    let mut ends = Vec::new();
    walk(file, offset, length, |end| ends.push(end))?;
    Ok(ends)
}

/// Finds the end of a frame. Calls `see` with the end of each whole block.
fn walk(file: &File, offset: u64, length: u64, mut see: impl FnMut(u64)) -> io::Result<FrameEnd> {
    /// The longest header of a frame, with the header of the first block.
    const LONGEST_HEADER: usize = 18 + 3;
    let mut header = [0; LONGEST_HEADER];
    let read = read_at(file, &mut header, offset, length)?;
    let header = &header[..read];
    let Some(rest) = header.strip_prefix(&MAGIC) else {
        return Ok(end_of_skippable(header, offset, length));
    };
    let Some(descriptor) = rest.first() else {
        return Ok(FrameEnd::Torn(offset));
    };
    let is_single_segment = descriptor & 0b10_0000 != 0;
    if descriptor & 0b1000 != 0 {
        return Ok(FrameEnd::Invalid);
    }
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 0b11)];
    let content_size_bytes = [u64::from(is_single_segment), 2, 4, 8][usize::from(descriptor >> 6)];
    let has_checksum = descriptor & 0b100 != 0;
    let header_bytes = MAGIC.len() as u64
        + 1
        + u64::from(!is_single_segment)
        + dictionary_bytes
        + content_size_bytes;
    let mut block_offset = offset + header_bytes;
    if block_offset > length {
        return Ok(FrameEnd::Torn(offset));
    }
    loop {
        let mut block = [0; 3];
        if read_at(file, &mut block, block_offset, length)? < block.len() {
            return Ok(FrameEnd::Torn(block_offset));
        }
        let block = u64::from(u32::from_le_bytes([block[0], block[1], block[2], 0]));
        let (is_last, kind, size) = (block & 1 == 1, (block >> 1) & 0b11, block >> 3);
        if kind == 3 || size > LONGEST_BLOCK {
            return Ok(FrameEnd::Invalid);
        }
        // A block of kind 1 is one byte, repeated.
        let end = block_offset
            + 3
            + if kind == 1 { 1 } else { size }
            + if is_last && has_checksum { 4 } else { 0 };
        if end > length {
            return Ok(FrameEnd::Torn(block_offset));
        }
        if is_last {
            return Ok(FrameEnd::At(end));
        }
        see(end);
        block_offset = end;
    }
}

/// Finds the end of a skippable frame, which other programs may write.
fn end_of_skippable(header: &[u8], offset: u64, length: u64) -> FrameEnd {
    let [magic, 0x2A, 0x4D, 0x18, a, b, c, d, ..] = *header else {
        return FrameEnd::Invalid;
    };
    let end = offset + 8 + u64::from(u32::from_le_bytes([a, b, c, d]));
    match magic {
        0x50..=0x5F if end <= length => FrameEnd::At(end),
        0x50..=0x5F => FrameEnd::Torn(offset),
        _ => FrameEnd::Invalid,
    }
}

/// Returns the offset of the next [`MAGIC`] from `offset` on; `None` when there is none in the
/// first `length` bytes.
pub(super) fn find_magic(file: &File, mut offset: u64, length: u64) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; READ_SIZE];
    loop {
        let read = read_at(file, &mut bytes, offset, length)?;
        if read < MAGIC.len() {
            return Ok(None);
        }
        if let Some(found) = bytes[..read]
            .windows(MAGIC.len())
            .position(|window| window == MAGIC)
        {
            return Ok(Some(offset + found as u64));
        }
        // The magic may lie across the end of these bytes.
        offset += (read + 1 - MAGIC.len()) as u64;
    }
}

/// Reads as many bytes as there are at `offset` in the first `length` bytes of a file.
pub(super) fn read_at(
    file: &File,
    bytes: &mut [u8],
    offset: u64,
    length: u64,
) -> io::Result<usize> {
    let room = usize::try_from(length.saturating_sub(offset))
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let mut read = 0;
    while read < room {
        match file.read_at(&mut bytes[read..room], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The content of one frame. Reading it needs the memory of a window and of two buffers, however
/// long the content is.
pub(super) struct FrameStream {
    file: Arc<File>,
    decoder: Decoder<'static>,
    /// The bytes that were read from the file, and how many of them the decoder has taken.
    input: Vec<u8>,
    taken: usize,
    /// The offset in the file behind `input`.
    offset: u64,
    length: u64,
    has_ended: bool,
}

impl FrameStream {
    /// Returns the content of the frame that begins at `offset` in the first `length` bytes of a
    /// file.
    pub(super) fn new(file: Arc<File>, offset: u64, length: u64) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW_LOG))?;
        Ok(Self {
            file,
            decoder,
            input: Vec::new(),
            taken: 0,
            offset,
            length,
            has_ended: false,
        })
    }

    /// Reads as far as this offset from now on.
    pub(super) fn extend_to(&mut self, length: u64) {
        self.length = length;
    }

    /// Returns the offset in the file behind the frame, once all of its content was read.
    pub(super) fn end(&self) -> u64 {
        self.offset - (self.input.len() - self.taken) as u64
    }
}

/// A frame that the file does not contain to its end gives [`io::ErrorKind::UnexpectedEof`] after
/// its last whole block.
impl Read for FrameStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while !self.has_ended && !bytes.is_empty() {
            let (mut input, mut output) = (
                InBuffer::around(&self.input[self.taken..]),
                OutBuffer::around(bytes),
            );
            let hint = self
                .decoder
                .run(&mut input, &mut output)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.taken += input.pos();
            let written = output.pos();
            self.has_ended = hint == 0;
            if written > 0 {
                return Ok(written);
            }
            if self.taken == self.input.len() && !self.has_ended {
                self.input.resize(READ_SIZE, 0);
                let read = read_at(&self.file, &mut self.input, self.offset, self.length)?;
                self.input.truncate(read);
                (self.taken, self.offset) = (0, self.offset + read as u64);
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(0)
    }
}

/// The content of a frame that was read as a whole.
pub(super) struct FrameContent {
    /// The number of bytes.
    pub(super) length: u64,
    /// The bytes; `None` when they are more than [`FrameContent::MOST_KEPT`].
    pub(super) kept: Option<Vec<u8>>,
}

impl FrameContent {
    /// The most bytes that are kept: a minute of 8 GPUs and 64 processes has 3 MiB.
    const MOST_KEPT: usize = 8 << 20;

    fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.kept
            .take_if(|kept| kept.len() + bytes.len() > Self::MOST_KEPT);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
    }
}

/// The state of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameState {
    /// All of its content can be read; the frame ends before this offset.
    Whole(u64),
    /// The file ends within the frame, and the content before that can be read.
    Torn,
    /// The content cannot be read, or breaks a limit.
    Damaged,
}

impl FrameState {
    /// The most bytes of content of one frame. gputop begins a new frame after some MiB.
    pub(super) const MOST_CONTENT: u64 = 1 << 30;

    /// Reads all of the frame that begins at `offset`.
    pub(super) fn read(
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> io::Result<(Self, FrameContent)> {
        let mut stream = FrameStream::new(Arc::clone(file), offset, length)?;
        let mut bytes = vec![0; READ_SIZE];
        let mut content = FrameContent {
            length: 0,
            kept: Some(Vec::new()),
        };
        let mut line = 0;
        loop {
            let read = match stream.read(&mut bytes) {
                Ok(0) => return Ok((Self::Whole(stream.end()), content)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok((Self::Torn, content));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Ok((Self::Damaged, content));
                }
                Err(error) => return Err(error),
            };
            content.add(&bytes[..read]);
            line = match bytes[..read].iter().rposition(|byte| *byte == b'\n') {
                Some(end) => read - end,
                None => line + read,
            };
            if content.length > Self::MOST_CONTENT || line > LONGEST_LINE {
                return Ok((Self::Damaged, content));
            }
        }
    }
}
