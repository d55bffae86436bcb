//! Repairs the end of a file of frames after its writer was killed or the disk was full.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::frame::{FrameEnd, FrameStream, MAGIC, block_ends, find_end, find_magic};

/// The bit of a frame's descriptor that says that a checksum follows the last block. The descriptor
/// follows the magic.
const CHECKSUM_BIT: u8 = 0b100;

/// A last block without content.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

/// The end of a file of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repaired {
    /// The length of the file, which ends with a whole frame.
    pub(super) length: u64,
    /// The bytes that were cut off.
    pub(super) cut: u64,
    /// Whether the last frame was closed.
    pub(super) is_closed: bool,
}

/// Makes the file end with a whole frame. A frame that is cut off is closed after its last whole
/// line that was flushed.
pub(super) fn repair(file: &Arc<File>, length: u64) -> io::Result<Repaired> {
    let mut offset = 0;
    while offset < length {
        match find_end(file, offset, length)? {
            FrameEnd::At(end) => offset = end,
            end => match next_frame(file, offset, length)? {
                Some(next) => offset = next,
                None if end == FrameEnd::Invalid => return cut(file, offset, length),
                None => return close_frame(file, offset, length),
            },
        }
    }
    Ok(Repaired {
        length,
        cut: 0,
        is_closed: false,
    })
}

/// Closes the frame at `offset`, within which the file ends.
pub(super) fn close_frame(file: &Arc<File>, offset: u64, length: u64) -> io::Result<Repaired> {
    let mut good = None;
    let mut stream = FrameStream::new(Arc::clone(file), offset, offset)?;
    let mut bytes = vec![0; 64 << 10];
    'blocks: for end in block_ends(file, offset, length)? {
        stream.extend_to(end);
        // A disk may have zeros at the end after a power loss, which are blocks without content.
        let mut last = None;
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => break 'blocks,
                Ok(read) => last = bytes[..read].last().copied(),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) if error.kind() == ErrorKind::InvalidData => break 'blocks,
                Err(error) => return Err(error),
            }
        }
        if last == Some(b'\n') {
            good = Some(end);
        }
    }
    let Some(good) = good else {
        return cut(file, offset, length);
    };
    file.set_len(good)?;
    // The checksum of what is left is not known without reading it all again, so the frame has
    // none.
    let mut descriptor = [0];
    let descriptor_offset = offset + MAGIC.len() as u64;
    file.read_exact_at(&mut descriptor, descriptor_offset)?;
    file.write_all_at(&[descriptor[0] & !CHECKSUM_BIT], descriptor_offset)?;
    file.write_all_at(&LAST_BLOCK, good)?;
    file.sync_data()?;
    Ok(Repaired {
        length: good + LAST_BLOCK.len() as u64,
        cut: length - good,
        is_closed: true,
    })
}

fn cut(file: &File, offset: u64, length: u64) -> io::Result<Repaired> {
    file.set_len(offset)?;
    file.sync_data()?;
    Ok(Repaired {
        length: offset,
        cut: length - offset,
        is_closed: false,
    })
}

/// Returns the offset of a frame behind the damaged one at `offset`.
fn next_frame(file: &File, offset: u64, length: u64) -> io::Result<Option<u64>> {
    let mut magic = offset;
    while let Some(next) = find_magic(file, magic + MAGIC.len() as u64, length)? {
        if find_end(file, next, length)? != FrameEnd::Invalid {
            return Ok(Some(next));
        }
        magic = next;
    }
    Ok(None)
}
