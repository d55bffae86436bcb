//! The properties of this host's `/proc`: whether its PIDs are NVML's, why a process is missing,
//! and the units of values.

use std::cell::LazyCell;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::device_files::{DeviceFiles, OpenDeviceFiles};
use super::files::is_initial_pid_namespace;
use super::freezer::Freezer;
use crate::base::units::{Moment, Percent};
use crate::protocol::snapshot::Missing;

#[derive(Debug)]
pub(super) struct HostProcfs {
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

impl HostProcfs {
    /// `pids_are_local`: NVML's PIDs are those of this `/proc`, whatever the namespace.
    pub(super) fn new(pids_are_local: bool, devices: DeviceFiles) -> Self {
        Self {
            pids_are_local: pids_are_local || is_initial_pid_namespace(),
            hides_processes: !fs::exists("/proc/1").unwrap_or(true),
            descriptor_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            devices,
            freezer: LazyCell::new(Freezer::find),
            page_size: rustix::param::page_size() as u64,
            ticks_per_second: rustix::param::clock_ticks_per_second(),
        }
    }

    /// A `/proc` of another PID namespace than NVML's.
    #[cfg(test)]
    pub(super) fn foreign() -> Self {
        Self {
            pids_are_local: false,
            hides_processes: false,
            ..Self::new(true, DeviceFiles::from_environment())
        }
    }

    /// Whether a PID that NVML lists is certainly that of the process with this PID in `/proc`.
    pub(super) fn is_nvml_pid_certain(&self, pid: u32) -> bool {
        let is_any = |open: Result<OpenDeviceFiles, Errno>| {
            open.is_ok_and(|open| open != OpenDeviceFiles::default())
        };
        // If the main thread has ended, only the other threads list the open files.
        self.pids_are_local
            || is_any(self.devices.open_by(pid))
            || is_any(self.devices.open_by_threads(pid))
    }

    /// Returns the descriptor if it may stay open. `None` when descriptors are about to run out.
    pub(super) fn keep_open(&self, file: OwnedFd) -> Option<OwnedFd> {
        // The number of descriptors left for files that are open briefly, and for those of NVML.
        const SPARE: u64 = 64;
        (u64::try_from(file.as_raw_fd()).unwrap_or(0) + SPARE < self.descriptor_limit)
            .then_some(file)
    }

    /// Returns why a process that NVML lists cannot be read. `None` as the error means that its
    /// `stat` was malformed.
    pub(super) fn why_absent(&self, error: Option<Errno>) -> Missing {
        match error {
            Some(Errno::ACCESS | Errno::PERM) => Missing::Denied,
            // With hidepid, a process of another user seems not to exist.
            Some(Errno::NOENT) if self.hides_processes => Missing::Denied,
            // A process of another PID namespace has no files here.
            Some(Errno::NOENT) if !self.pids_are_local => Missing::Unsupported,
            Some(Errno::NOENT | Errno::SRCH) => Missing::Gone,
            Some(_) | None => Missing::Failed,
        }
    }

    /// Converts CPU time in ticks over a span to percent of one core.
    #[expect(
        clippy::cast_precision_loss,
        reason = "ticks between two passes are few"
    )]
    pub(super) fn cpu_percent(&self, ticks: u64, span: Duration) -> Percent {
        let seconds = ticks as f32 / self.ticks_per_second as f32;
        Percent::new(100.0 * seconds / span.as_secs_f32())
    }

    pub(super) fn moment(&self, ticks: u64) -> Moment {
        Moment(ticks.saturating_mul(1000) / self.ticks_per_second)
    }
}
