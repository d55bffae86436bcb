//! The files of `/proc` that cannot block, and what this host's `/proc` is.

use std::cell::LazyCell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::device_files::{Devices, Open};
use super::freezer::Freezer;
use crate::base::text::Text;
use crate::protocol::snapshot::{Missing, Reading};

/// Whether this is the PID namespace that the host started in. Its inode is the same in every Linux:
/// `PROC_PID_INIT_INO`.
pub(in crate::agent) fn is_initial_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.as_os_str() == "pid:[4026531836]")
}

/// What `/proc` is like here.
#[derive(Debug)]
pub(super) struct Root {
    /// NVML's PIDs are those of this `/proc`.
    ours: bool,
    /// Other people's processes are hidden from us (`hidepid=2`).
    hides: bool,
    /// How many descriptors we may have.
    descriptors: u64,
    devices: Devices,
    /// The first line does not need it, and does not wait for it.
    pub(super) freezer: LazyCell<Freezer>,
    pub(super) page_size: u64,
    pub(super) ticks_per_second: u64,
}

impl Root {
    pub(super) fn new(ours: bool, devices: Devices) -> Self {
        Self {
            ours: ours || is_initial_pid_namespace(),
            hides: !fs::exists("/proc/1").unwrap_or(true),
            descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            devices,
            freezer: LazyCell::new(Freezer::of_host),
            page_size: rustix::param::page_size() as u64,
            ticks_per_second: rustix::param::clock_ticks_per_second(),
        }
    }

    /// One where NVML's PIDs are those of another PID namespace.
    #[cfg(test)]
    pub(super) fn foreign() -> Self {
        Self { ours: false, hides: false, ..Self::new(true, Devices::of_host()) }
    }

    /// Whether a PID that NVML names is surely one of this `/proc`.
    pub(super) fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether a process has a GPU's device file open.
    pub(super) fn holds_gpu(&self, pid: u32) -> bool {
        let is_any = |open: Result<Open, Errno>| open.is_ok_and(|open| open != Open::default());
        // Those of a process whose first thread has ended are with the threads that live on.
        is_any(self.devices.open_by(pid)) || is_any(self.devices.open_by_threads(pid))
    }

    /// Keeps a descriptor for good, unless they are about to run out.
    pub(super) fn keep(&self, stat: OwnedFd) -> Option<OwnedFd> {
        // Some are left for what is opened for a moment, and for what the library opens.
        const SPARE: u64 = 64;
        (u64::try_from(stat.as_raw_fd()).unwrap_or(0) + SPARE < self.descriptors).then_some(stat)
    }

    /// Why a process that NVML named is not in `/proc`; without an error, what stands there makes no sense.
    pub(super) fn why_absent(&self, error: Option<Errno>) -> Missing {
        match error {
            Some(Errno::ACCESS | Errno::PERM) => Missing::Denied,
            // With hidepid, somebody else's process and none look the same.
            Some(Errno::NOENT) if self.hides => Missing::Denied,
            // It is one of another PID namespace: it has no files here.
            Some(Errno::NOENT) if !self.ours => Missing::Unsupported,
            // It ended before this look, or during it.
            Some(Errno::NOENT | Errno::SRCH) => Missing::Gone,
            Some(_) | None => Missing::Failed,
        }
    }

    /// The real user id of a process that was here a moment ago.
    pub(super) fn uid(pid: u32) -> Reading<u32> {
        let mut buffer = [0; 1024];
        let status = open(pid, "status").and_then(|status| read(status, &mut buffer)).map_err(why)?;
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:\t"));
        let real = line.and_then(|line| line.split(|byte| *byte == b'\t').next());
        let real = real.and_then(|uid| str::from_utf8(uid).ok());
        real.and_then(|uid| uid.parse().ok()).ok_or(Missing::Failed)
    }
}

/// Why a file of a process that was here a moment ago cannot be read.
pub(super) fn why(error: Errno) -> Missing {
    match error {
        Errno::ACCESS | Errno::PERM => Missing::Denied,
        // It has ended meanwhile: nothing went wrong, and it is not in the next pass.
        Errno::NOENT | Errno::SRCH => Missing::NotYet,
        _ => Missing::Failed,
    }
}

/// Opens a file of a process.
pub(in crate::agent) fn open(pid: u32, name: &str) -> rustix::io::Result<OwnedFd> {
    use io::Write;
    let mut path = [0_u8; 40];
    let mut rest = path.as_mut_slice();
    // It fits: a PID has ten digits at most.
    let _fits: io::Result<()> = write!(rest, "/proc/{pid}/{name}");
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads the beginning of a file.
pub(in crate::agent) fn read(file: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<&[u8]> {
    let length = rustix::io::pread(file, &mut *buffer, 0)?;
    Ok(&buffer[..length])
}

/// The kernel function that a blocked process, or thread, waits in.
pub(super) fn wchan(folder: &Path) -> Reading<Text> {
    let why = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::Denied,
        _ => Missing::Unsupported,
    };
    let name = fs::read(folder.join("wchan")).map_err(why)?;
    match name.as_slice() {
        // So it says when it has just woken up, when we may not know, and when this kernel never tells.
        b"" | b"0" => Err(Missing::Unsupported),
        name => Ok(Text::new(name)),
    }
}

/// Whether a process has threads that only a trainer has. Of hundreds, the latest are looked at: those of
/// PyTorch come after its pools.
pub(super) fn has_trainer_threads(pid: u32) -> Reading<bool> {
    const TRAINER: [&[u8]; 3] = [b"pt_autograd_", b"pt_data_pin", b"pt_nccl_"];
    const MOST: usize = 256;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::Denied,
        // It has gone.
        _ => Missing::NotYet,
    })?;
    let tasks: Vec<_> = tasks.filter_map(Result::ok).collect();
    let is_trainer = tasks.iter().rev().take(MOST).any(|task| {
        let comm = fs::read(task.path().join("comm"));
        comm.is_ok_and(|comm| TRAINER.iter().any(|name| comm.starts_with(name)))
    });
    Ok(is_trainer)
}
