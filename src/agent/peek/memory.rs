//! Another process's memory, as far as a bounded number of looks reaches.
//!
//! Whatever stands there may be forged: a look is at a few KiB at most, their number is limited, and a
//! chain that leads in a circle ends with them.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// So many looks find an allocator many times over. Each takes about a microsecond.
const LOOKS: u32 = 8192;
/// So much in all.
const BYTES: usize = 16 << 20;

/// Memory that can be looked at, some more times.
pub(super) struct Memory<'a> {
    /// Fills the buffer from that address; false when not all of it is there.
    read: &'a dyn Fn(u64, &mut [u8]) -> bool,
    looks: u32,
    bytes: usize,
}

impl<'a> Memory<'a> {
    /// All that `read` reaches.
    pub(super) fn new(read: &'a dyn Fn(u64, &mut [u8]) -> bool) -> Self {
        Self { read, looks: LOOKS, bytes: BYTES }
    }

    /// Fills the buffer; absent when not all of that is there, or when enough was looked at.
    pub(super) fn read(&mut self, at: u64, buffer: &mut [u8]) -> Option<()> {
        self.looks = self.looks.checked_sub(1)?;
        self.bytes = self.bytes.checked_sub(buffer.len())?;
        at.checked_add(buffer.len() as u64)?;
        (self.read)(at, buffer).then_some(())
    }

    /// So many bytes.
    pub(super) fn bytes<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut buffer = [0; N];
        self.read(at, &mut buffer)?;
        Some(buffer)
    }

    /// A number of eight bytes.
    pub(super) fn word(&mut self, at: u64) -> Option<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    /// Whether a text stands there, and ends.
    pub(super) fn has_text(&mut self, at: u64, text: &str) -> bool {
        let mut buffer = [0; 128];
        let Some(buffer) = buffer.get_mut(..=text.len()) else { return false };
        self.read(at, buffer).is_some() && buffer.split_last() == Some((&0, text.as_bytes()))
    }
}

/// The number of eight bytes at that place; absent past the end.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Reads a `/proc/PID/mem`. It belongs to one address space: when its process has ended, or runs another
/// program since, or its PID is used again, nothing is to be read any more.
pub(super) fn of(file: &File) -> impl Fn(u64, &mut [u8]) -> bool {
    |at, buffer| file.read_exact_at(buffer, at).is_ok()
}
