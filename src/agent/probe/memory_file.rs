//! The memory files of a process in which the probe publishes reports and reads requests: finds
//! them among the open files, checks them, reads and writes them.
//!
//! Nothing here may block. An open file of a process may be on a file system that hangs, under any
//! name, so a file is opened only after its device number proves that it is a memory file.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, MemfdFlags, Mode, OFlags, SealFlags, StatxFlags, fcntl_get_seals, memfd_create, statx,
};
use rustix::io::{Errno, pread, pwrite};

use super::state::{
    self, FileKind, HEADER_SIZE, Header, REPORTS, REQUESTS, ReportState, ReportWriter,
};
use crate::agent::procfs::device_files::for_each_file;
use crate::agent::procfs::{files, stat};
use crate::protocol::snapshot::{ProbeMissing, ProcessId};

/// The most files of one process that are tried: a forked process may have those of its ancestors.
const MOST_FILES: usize = 16;
/// How often a report is read again at once because the probe was writing it.
const MOST_TRIES: u8 = 3;

/// Finds the memory files of probes.
#[derive(Debug)]
pub(super) struct MemoryFiles {
    /// The device number that all memory files have.
    device: (u32, u32),
}

/// An open memory file of a process.
#[derive(Debug)]
struct FoundFile {
    file: OwnedFd,
    number: RawFd,
    inode: u64,
    writer: ReportWriter,
}

/// The file in which the probe of a process publishes.
#[derive(Debug)]
pub(super) struct ReportFile {
    found: FoundFile,
    /// The sequence number of the last report that was read; `None` before the first.
    sequence: Option<u64>,
}

impl MemoryFiles {
    pub(super) fn new() -> Result<Self, Errno> {
        let own = memfd_create("gputop", MemfdFlags::CLOEXEC)?;
        let (device, _, _) = identify(&own)?;
        Ok(Self { device })
    }

    /// Returns the file in which the probe of this process publishes; `None` if it has none.
    pub(super) fn report(&self, id: ProcessId) -> Result<Option<ReportFile>, Errno> {
        let found = self.find(id, REPORTS, OFlags::RDONLY)?;
        Ok(found.map(|found| ReportFile {
            found,
            sequence: None,
        }))
    }

    /// Writes a request to the probe of this process. Returns false if it has no file for requests.
    pub(super) fn request(&self, id: ProcessId, request: &[u8]) -> Result<bool, Errno> {
        let Some(found) = self.find(id, REQUESTS, OFlags::RDWR)? else {
            return Ok(false);
        };
        let mut bytes = [0; HEADER_SIZE];
        pread(&found.file, &mut bytes, 0)?;
        let before = Header::parse(REQUESTS, &bytes).map_or(0, |header| header.sequence);
        let writing = before.wrapping_add(1) | 1;
        let write = |bytes: &[u8], offset| pwrite(&found.file, bytes, offset).map(|_| ());
        write(&state::header(REQUESTS, found.writer, writing, request), 0)?;
        write(request, HEADER_SIZE as u64)?;
        write(
            &state::header(REQUESTS, found.writer, writing.wrapping_add(1), request),
            0,
        )?;
        Ok(true)
    }

    fn find(
        &self,
        id: ProcessId,
        kind: FileKind,
        access: OFlags,
    ) -> Result<Option<FoundFile>, Errno> {
        let mut numbers: Vec<RawFd> = Vec::new();
        for_each_file(format!("/proc/{}", id.pid).as_ref(), |name, target| {
            if target == kind.link.as_bytes() && numbers.len() < MOST_FILES {
                numbers.extend(
                    name.to_str()
                        .ok()
                        .and_then(|name| name.parse::<RawFd>().ok()),
                );
            }
        })?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let pid = namespace_pid(id.pid).ok_or(Errno::SRCH)?;
        let writer = ReportWriter {
            pid,
            start_ticks: id.start_ticks.ok_or(Errno::SRCH)?,
        };
        let open = |number| {
            self.open(id.pid, number, writer, kind, access)
                .ok()
                .flatten()
        };
        let found = numbers.into_iter().find_map(open);
        // The files are those of the process only if it is still there.
        Ok(found.filter(|_| stat::start_ticks(id.pid) == id.start_ticks))
    }

    /// Opens a file of a process. `None` if it is no such file of that process.
    fn open(
        &self,
        pid: u32,
        number: RawFd,
        writer: ReportWriter,
        kind: FileKind,
        access: OFlags,
    ) -> Result<Option<FoundFile>, Errno> {
        let path = rustix::fs::open(
            format!("/proc/{pid}/fd/{number}"),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let (device, inode, size) = identify(&path)?;
        if device != self.device || size != u64::from(kind.size) {
            return Ok(None);
        }
        let path = format!("/proc/self/fd/{}", path.as_raw_fd());
        let file = rustix::fs::open(
            path,
            access | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        )?;
        // Without these seals, the file could shrink while it is read.
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Ok(None);
        }
        let mut header = [0; HEADER_SIZE];
        let is_whole = pread(&file, &mut header, 0)? == HEADER_SIZE;
        let is_own = is_whole && state::may_be_of(kind, &header, writer);
        Ok(is_own.then_some(FoundFile {
            file,
            number,
            inode,
            writer,
        }))
    }
}

impl ReportFile {
    /// Reads the report if it is a new one.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> Result<ReportState, ProbeMissing> {
        let mut result = Err(ProbeMissing::Damaged);
        for _ in 0..MOST_TRIES {
            result = state::read(self.found.writer, self.sequence, buffer, |bytes, offset| {
                pread(&self.found.file, &mut *bytes, offset)
                    .is_ok_and(|length| length == bytes.len())
            });
            if result.is_ok() {
                break;
            }
        }
        let (state, sequence) = result?;
        self.sequence = Some(sequence);
        Ok(state)
    }

    /// Whether the process has the file still open under its number.
    pub(super) fn is_open_in(&self, pid: u32) -> bool {
        let link = format!("/proc/{pid}/fd/{}", self.found.number);
        let is_named = fs::read_link(&link).is_ok_and(|target| target == Path::new(REPORTS.link));
        let path =
            || rustix::fs::open(link.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        is_named
            && path()
                .and_then(|path| identify(&path))
                .is_ok_and(|(_, inode, _)| inode == self.found.inode)
    }
}

/// Returns the device number, inode number and size of a file, without asking a server.
fn identify(file: &OwnedFd) -> Result<((u32, u32), u64, u64), Errno> {
    let wanted = StatxFlags::INO | StatxFlags::SIZE | StatxFlags::TYPE;
    let stat = statx(
        file,
        "",
        AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
        wanted,
    )?;
    Ok((
        (stat.stx_dev_major, stat.stx_dev_minor),
        stat.stx_ino,
        stat.stx_size,
    ))
}

/// Returns the PID of a process as the process itself sees it: in its own PID namespace.
fn namespace_pid(pid: u32) -> Option<u32> {
    /// Enough for the line of hundreds of groups before it.
    const MOST_STATUS: usize = 16 << 10;
    let mut buffer = vec![0; MOST_STATUS];
    let status = files::open(pid, "status")
        .and_then(|file| files::read(file, &mut buffer))
        .ok()?;
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"NSpid:"));
    // Linux before 4.1 has no such line.
    let Some(line) = line else { return Some(pid) };
    str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .next_back()?
        .parse()
        .ok()
}
