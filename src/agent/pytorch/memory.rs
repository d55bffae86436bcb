//! Reads the memory of another process, with limits.
//!
//! The memory may be forged to do harm, so the number of reads and bytes is limited. A chain of
//! pointers that leads in a circle ends when the limit is reached.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// The most ranges that one [`Memory`] reads: several times what finding an allocator takes. Each
/// takes about a microsecond.
const MOST_READS: usize = 8192;
const MOST_BYTES: usize = 16 << 20;

/// The smallest size of a page.
pub(super) const PAGE: usize = 4096;

/// An address, and a number of bytes from there.
pub(super) type MemoryRange = (u64, usize);

/// Fills the buffer with these ranges, one after the other. Returns false when not all of them are
/// mapped.
type ReadRanges<'a> = &'a dyn Fn(&[MemoryRange], &mut [u8]) -> bool;

/// The memory of a process, with the reads that are left.
pub(super) struct Memory<'a> {
    read: ReadRanges<'a>,
    reads_left: usize,
    bytes_left: usize,
}

impl<'a> Memory<'a> {
    pub(super) fn new(read: ReadRanges<'a>) -> Self {
        Self {
            read,
            reads_left: MOST_READS,
            bytes_left: MOST_BYTES,
        }
    }

    pub(super) fn read(&mut self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.read_all(&[(address, buffer.len())], buffer)
    }

    /// Fills the buffer with these ranges, one after the other. Returns `None` when not all of them
    /// are mapped, or when the limit is reached.
    pub(super) fn read_all(&mut self, ranges: &[MemoryRange], buffer: &mut [u8]) -> Option<()> {
        self.reads_left = self.reads_left.checked_sub(ranges.len())?;
        self.bytes_left = self.bytes_left.checked_sub(buffer.len())?;
        let is_range = ranges
            .iter()
            .all(|(address, size)| address.checked_add(*size as u64).is_some());
        (is_range && (self.read)(ranges, buffer)).then_some(())
    }

    pub(super) fn bytes<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        let mut buffer = [0; N];
        self.read(address, &mut buffer)?;
        Some(buffer)
    }

    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_ne_bytes)
    }

    /// Whether this text, with a NUL after it, is at that address.
    pub(super) fn has_text(&mut self, address: u64, text: &str) -> bool {
        let mut buffer = [0; 128];
        let Some(buffer) = buffer.get_mut(..=text.len()) else {
            return false;
        };
        self.read(address, buffer).is_some() && buffer.split_last() == Some((&0, text.as_bytes()))
    }
}

/// Returns the number of eight bytes at that offset. `None` past the end.
pub(super) fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Turns a function that fills a buffer from one address into one that reads several ranges.
pub(super) fn one_by_one(
    read: impl Fn(u64, &mut [u8]) -> bool,
) -> impl Fn(&[MemoryRange], &mut [u8]) -> bool {
    move |ranges, mut buffer| {
        ranges.iter().all(|(address, size)| {
            let (piece, rest) = std::mem::take(&mut buffer).split_at_mut(*size);
            buffer = rest;
            read(*address, piece)
        })
    }
}

/// Returns a function that reads from an open `/proc/PID/mem`. The file belongs to one address
/// space: once the process has ended or called `exec`, nothing can be read, even if another process
/// has the PID.
pub(super) fn read_file(file: &File) -> impl Fn(&[MemoryRange], &mut [u8]) -> bool {
    one_by_one(|address, buffer| file.read_exact_at(buffer, address).is_ok())
}

/// Reads several ranges of a process's memory in one call, `process_vm_readv`, at a third of the
/// cost of as many reads of a file. The call takes a PID, which is no identity: the memory was that
/// of the process only if the process is still alive afterwards, see [`ended`]. After an `exec`,
/// the bytes themselves show that they are no longer the allocator's.
pub(super) fn read_by_pid(pid: u32, ranges: &[MemoryRange], buffer: &mut [u8]) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return false;
    };
    let remote = |(address, size): &MemoryRange| {
        // Nothing is mapped at the end of the address space.
        let address = usize::try_from(*address).unwrap_or(usize::MAX);
        libc::iovec {
            iov_base: std::ptr::without_provenance_mut::<c_void>(address),
            iov_len: *size,
        }
    };
    let remote: Vec<libc::iovec> = ranges.iter().map(remote).collect();
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: the call writes only to the buffer, within its length. Addresses of the other process
    // are no pointers here.
    let read = unsafe {
        libc::process_vm_readv(
            pid,
            &raw const local,
            1,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read) == Ok(buffer.len())
}

/// The most descriptors in one call of `poll`: no limit on open files is lower.
const MOST_POLLED: usize = 256;

/// Returns the processes that have ended. A process whose pidfd cannot be polled counts as ended.
/// Polls hundreds of pidfds in one call, since a call costs as much as a read of memory.
pub(super) fn ended<'a, T>(processes: impl Iterator<Item = (T, &'a OwnedFd)>) -> Vec<T> {
    let (processes, mut pidfds): (Vec<_>, Vec<_>) = processes
        .map(|(process, pidfd)| (process, PollFd::new(pidfd, PollFlags::IN)))
        .unzip();
    let mut has_ended = Vec::with_capacity(pidfds.len());
    for pidfds in pidfds.chunks_mut(MOST_POLLED) {
        let is_polled = retry_on_intr(|| poll(pidfds, Some(&Timespec::default()))).is_ok();
        has_ended.extend(
            pidfds
                .iter()
                .map(|pidfd| !is_polled || !pidfd.revents().is_empty()),
        );
    }
    processes
        .into_iter()
        .zip(has_ended)
        .filter(|(_, has_ended)| *has_ended)
        .map(|(process, _)| process)
        .collect()
}
