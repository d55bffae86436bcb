//! Another process's memory, as far as a bounded number of looks reaches.
//!
//! Whatever stands there may be forged: a look is at a few KiB at most, their number is limited, and a
//! chain that leads in a circle ends with them.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// So many looks find an allocator many times over. Each takes about a microsecond.
const LOOKS: u32 = 8192;
/// So much in all.
const BYTES: usize = 16 << 20;

/// A place in memory: its address, and how many bytes.
pub(super) type Piece = (u64, usize);
/// Fills a buffer with many pieces at once; false when that cannot be done.
type Gather<'a> = &'a dyn Fn(&[Piece], &mut [u8]) -> bool;

/// Memory that can be looked at, some more times.
pub(super) struct Memory<'a> {
    /// Fills the buffer from that address; false when not all of it is there.
    read: &'a dyn Fn(u64, &mut [u8]) -> bool,
    gather: Option<Gather<'a>>,
    looks: u32,
    bytes: usize,
}

impl<'a> Memory<'a> {
    /// All that `read` reaches.
    pub(super) fn new(read: &'a dyn Fn(u64, &mut [u8]) -> bool) -> Self {
        Self { read, gather: None, looks: LOOKS, bytes: BYTES }
    }

    /// The same, with a quicker way to many pieces.
    pub(super) fn gathering(self, gather: Gather<'a>) -> Self {
        Self { gather: Some(gather), ..self }
    }

    /// Fills the buffer; absent when not all of that is there, or when enough was looked at.
    pub(super) fn read(&mut self, at: u64, buffer: &mut [u8]) -> Option<()> {
        self.looks = self.looks.checked_sub(1)?;
        self.bytes = self.bytes.checked_sub(buffer.len())?;
        at.checked_add(buffer.len() as u64)?;
        (self.read)(at, buffer).then_some(())
    }

    /// Fills the buffer with these pieces, one after the other; absent when not all of them are there.
    pub(super) fn read_all(&mut self, pieces: &[Piece], buffer: &mut [u8]) -> Option<()> {
        let is_bounded = buffer.len() <= self.bytes && pieces.len() <= self.looks as usize;
        if is_bounded && self.gather.is_some_and(|gather| gather(pieces, buffer)) {
            self.looks -= 1;
            self.bytes -= buffer.len();
            return Some(());
        }
        let mut rest = buffer;
        for (at, size) in pieces {
            let (piece, others) = rest.split_at_mut_checked(*size)?;
            self.read(*at, piece)?;
            rest = others;
        }
        Some(())
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

/// Reads many pieces of a process's memory in one call, which costs a third of as many reads of a file. The call takes a
/// PID, which is no identity: it was that process's memory when that has not ended afterwards, see [`ended`]. It may
/// run another program since: who reads knows by what is there.
pub(super) fn gather(pid: u32) -> impl Fn(&[Piece], &mut [u8]) -> bool {
    move |pieces, buffer| {
        let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
        let remote = |(at, size): &Piece| {
            // Nothing is at the end of the address space.
            let address = usize::try_from(*at).unwrap_or(usize::MAX);
            libc::iovec { iov_base: std::ptr::without_provenance_mut::<c_void>(address), iov_len: *size }
        };
        let remote: Vec<libc::iovec> = pieces.iter().map(remote).collect();
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: it writes to the buffer, no more than its length; addresses of the other process are no pointers here.
        let read = unsafe {
            libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        usize::try_from(read) == Ok(buffer.len())
    }
}

/// So many are asked at once: no limit on open files is lower.
const AT_ONCE: usize = 256;

/// Which of these processes have ended, and which may have, since the kernel would not say; a few hundred in one call,
/// since each costs as much as a piece of memory.
pub(super) fn ended<'a, T>(processes: impl Iterator<Item = (T, &'a OwnedFd)>) -> (Vec<T>, Vec<T>) {
    let (mut ended, mut unknown) = (Vec::new(), Vec::new());
    let (mut who, mut handles): (Vec<_>, Vec<_>) =
        processes.map(|(who, handle)| (who, PollFd::new(handle, PollFlags::IN))).unzip();
    for handles in handles.chunks_mut(AT_ONCE) {
        let is_known = retry_on_intr(|| poll(handles, Some(&Timespec::default()))).is_ok();
        for (who, handle) in who.drain(..handles.len()).zip(handles) {
            if !is_known {
                unknown.push(who);
            } else if !handle.revents().is_empty() {
                ended.push(who);
            }
        }
    }
    (ended, unknown)
}

/// Reads a `/proc/PID/mem`. It belongs to one address space: when its process has ended, or runs another
/// program since, or its PID is used again, nothing is to be read any more.
pub(super) fn of(file: &File) -> impl Fn(u64, &mut [u8]) -> bool {
    |at, buffer| file.read_exact_at(buffer, at).is_ok()
}
