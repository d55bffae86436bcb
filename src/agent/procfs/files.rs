//! Reads the files of `/proc/PID` that cannot block, and the properties of this host's `/proc`.

use std::cell::LazyCell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::device_files::{DeviceFiles, OpenDeviceFiles};
use super::freezer::Freezer;
use crate::base::text::Text;
use crate::base::units::{Moment, Percent};
use crate::protocol::snapshot::{Missing, Reading};

/// Whether this process runs in the PID namespace that the host started in. The inode of that namespace is the same
/// in every Linux: `PROC_PID_INIT_INO`.
pub(in crate::agent) fn is_initial_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// The properties of this host's `/proc`.
#[derive(Debug)]
pub(super) struct Procfs {
    /// Whether NVML's PIDs are those of this `/proc`.
    pids_are_local: bool,
    /// Whether the processes of other users are hidden (`hidepid=2`).
    hides_processes: bool,
    /// The most descriptors that this process may have open.
    descriptor_limit: u64,
    devices: DeviceFiles,
    /// Read on first use: the first line does not need it and should not wait for it.
    pub(super) freezer: LazyCell<Freezer>,
    /// In bytes.
    pub(super) page_size: u64,
    ticks_per_second: u64,
}

impl Procfs {
    /// Reads the properties. `pids_are_local` says that NVML's PIDs are those of this `/proc`, whatever the namespace.
    pub(super) fn new(pids_are_local: bool, devices: DeviceFiles) -> Self {
        Self {
            pids_are_local: pids_are_local || is_initial_pid_namespace(),
            hides_processes: !fs::exists("/proc/1").unwrap_or(true),
            descriptor_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            devices,
            freezer: LazyCell::new(Freezer::of_host),
            page_size: rustix::param::page_size() as u64,
            ticks_per_second: rustix::param::clock_ticks_per_second(),
        }
    }

    /// A `/proc` of another PID namespace than NVML's.
    #[cfg(test)]
    pub(super) fn foreign() -> Self {
        Self { pids_are_local: false, hides_processes: false, ..Self::new(true, DeviceFiles::of_host()) }
    }

    /// Whether a PID that NVML lists is certainly that of the process with this PID in `/proc`.
    pub(super) fn is_nvml_pid_certain(&self, pid: u32) -> bool {
        let is_any = |open: Result<OpenDeviceFiles, Errno>| open.is_ok_and(|open| open != OpenDeviceFiles::default());
        // If the main thread has ended, only the other threads list the open files.
        self.pids_are_local || is_any(self.devices.open_by(pid)) || is_any(self.devices.open_by_threads(pid))
    }

    /// Returns the descriptor if it may stay open. `None` when descriptors are about to run out.
    pub(super) fn keep_open(&self, stat: OwnedFd) -> Option<OwnedFd> {
        // Descriptors left for files that are open for a moment, and for those of NVML.
        const SPARE: u64 = 64;
        (u64::try_from(stat.as_raw_fd()).unwrap_or(0) + SPARE < self.descriptor_limit).then_some(stat)
    }

    /// Returns why a process that NVML lists cannot be read. `None` as the error means that its `stat` was malformed.
    pub(super) fn why_absent(&self, error: Option<Errno>) -> Missing {
        match error {
            Some(Errno::ACCESS | Errno::PERM) => Missing::Denied,
            // With hidepid, a process of another user looks like none.
            Some(Errno::NOENT) if self.hides_processes => Missing::Denied,
            // A process of another PID namespace has no files here.
            Some(Errno::NOENT) if !self.pids_are_local => Missing::Unsupported,
            Some(Errno::NOENT | Errno::SRCH) => Missing::Gone,
            Some(_) | None => Missing::Failed,
        }
    }

    /// Converts CPU time in ticks over a span to percent of one core.
    #[expect(clippy::cast_precision_loss, reason = "ticks between two passes are few")]
    pub(super) fn cpu_percent(&self, ticks: u64, span: Duration) -> Percent {
        let seconds = ticks as f32 / self.ticks_per_second as f32;
        Percent::new(100.0 * seconds / span.as_secs_f32())
    }

    /// Converts clock ticks since boot to a time.
    pub(super) fn moment(&self, ticks: u64) -> Moment {
        Moment(ticks.saturating_mul(1000) / self.ticks_per_second)
    }
}

/// Returns the real user ID of a process.
pub(in crate::agent) fn real_uid(pid: u32) -> Reading<u32> {
    let mut buffer = [0; 1024];
    let status = open(pid, "status").and_then(|status| read(status, &mut buffer)).map_err(missing)?;
    parse_real_uid(status).ok_or(Missing::Failed)
}

fn parse_real_uid(status: &[u8]) -> Option<u32> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:\t"))?;
    str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns why a file of a process that existed a moment ago cannot be read.
pub(super) fn missing(error: Errno) -> Missing {
    match error {
        Errno::ACCESS | Errno::PERM => Missing::Denied,
        // The process has ended meanwhile, which is no failure. The next pass leaves it out.
        Errno::NOENT | Errno::SRCH => Missing::NotYet,
        _ => Missing::Failed,
    }
}

/// Opens a file of a process.
pub(in crate::agent) fn open(pid: u32, name: &str) -> rustix::io::Result<OwnedFd> {
    use io::Write;
    let mut path = [0_u8; 40];
    let mut rest = path.as_mut_slice();
    // A PID has at most ten digits, so the path fits.
    let _fits: io::Result<()> = write!(rest, "/proc/{pid}/{name}");
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads the beginning of a file, as much as the buffer holds.
pub(in crate::agent) fn read(file: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<&[u8]> {
    let length = rustix::io::pread(file, &mut *buffer, 0)?;
    Ok(&buffer[..length])
}

/// Returns the kernel function that a blocked process or thread waits in, by its directory in `/proc`.
pub(in crate::agent) fn wchan(directory: &Path) -> Reading<Text> {
    let name = fs::read(directory.join("wchan")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::Denied,
        _ => Missing::Unsupported,
    })?;
    match name.as_slice() {
        // The kernel prints this when the thread has just woken up, without permission, and when built without wchan.
        b"" | b"0" => Err(Missing::Unsupported),
        name => Ok(Text::new(name)),
    }
}

/// Whether a process has threads that only a PyTorch trainer has. Looks at the newest threads first: PyTorch starts
/// these after its thread pools.
pub(super) fn has_trainer_threads(pid: u32) -> Reading<bool> {
    const TRAINER_THREADS: [&[u8]; 3] = [b"pt_autograd_", b"pt_data_pin", b"pt_nccl_"];
    const MOST_THREADS: usize = 256;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::Denied,
        // The process has ended.
        _ => Missing::NotYet,
    })?;
    let tasks: Vec<_> = tasks.filter_map(Result::ok).collect();
    let is_trainer = tasks.iter().rev().take(MOST_THREADS).any(|task| {
        let comm = fs::read(task.path().join("comm"));
        comm.is_ok_and(|comm| TRAINER_THREADS.iter().any(|name| comm.starts_with(name)))
    });
    Ok(is_trainer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_user_id_is_the_first_of_its_line() {
        assert_eq!(parse_real_uid(b"Name:\tpython\nUid:\t4000001\t1002\t1003\t1004\n"), Some(4_000_001));
        assert_eq!(parse_real_uid(b"Name:\tUid:\n"), None);
    }
}
