//! The GPUs' device files, and which of them a process has open.
//!
//! CUDA allocates through `/dev/nvidia-uvm`: it cannot start without that file, and a forked child
//! inherits it. A monitor (`nvidia-smi -l`, nvtop, DCGM, another gputop) opens a GPU's own file
//! through NVML, and allocates nothing. Where NVML opens `/dev/nvidia-uvm` too, as of driver 580,
//! the libraries of the process tell ([`super::monitors`]).
//!
//! Links in `/proc/PID/fd` are never followed, since that could hang. Device files have the same
//! names in a container.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{RawDir, readlinkat_raw};
use rustix::io::Errno;

use super::files::open_directory;
use super::stat::living_thread;

/// For tests: a prefix of paths that replaces `/dev/nvidia`, so that plain files can stand in for
/// GPUs.
const PREFIX_VARIABLE: &str = "GPUTOP_DEVICES";

/// The most files of one process that are read: reading 4,096 links takes about 4 ms.
const MOST_FILES: usize = 4096;

/// The path prefix of the device files.
#[derive(Debug, Clone)]
pub(in crate::agent) struct DeviceFiles(Vec<u8>);

/// For tests: the path with this ending that stands in for a file about the driver; `None` on a
/// real host.
pub(in crate::agent) fn stand_in(ending: &str) -> Option<PathBuf> {
    let mut path = std::env::var_os(PREFIX_VARIABLE)?;
    path.push(ending);
    Some(path.into())
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::agent) struct OpenDeviceFiles {
    /// The minor numbers of the GPUs, sorted, each once.
    pub(in crate::agent) minors: Vec<u32>,
    /// Whether `/dev/nvidia-uvm` is open, which CUDA uses for all GPUs.
    pub(in crate::agent) has_uvm: bool,
}

impl OpenDeviceFiles {
    pub(in crate::agent) fn may_hold_memory_of(&self, minor: u32) -> bool {
        self.has_uvm && (self.minors.is_empty() || self.minors.contains(&minor))
    }
}

impl DeviceFiles {
    /// The device files of this host, or the plain files that a test uses instead.
    pub(in crate::agent) fn from_environment() -> Self {
        let prefix = std::env::var_os(PREFIX_VARIABLE).unwrap_or_else(|| "/dev/nvidia".into());
        Self(prefix.into_encoded_bytes())
    }

    #[cfg(test)]
    pub(in crate::agent) fn with_prefix(prefix: &Path) -> Self {
        Self(prefix.as_os_str().as_encoded_bytes().to_vec())
    }

    pub(in crate::agent) fn open_by(&self, pid: u32) -> Result<OpenDeviceFiles, Errno> {
        self.open_in(format!("/proc/{pid}").as_ref())
    }

    /// Returns the device files of a process whose main thread has ended: only living threads still
    /// list them.
    pub(in crate::agent) fn open_by_threads(&self, pid: u32) -> Result<OpenDeviceFiles, Errno> {
        let (directory, _) = living_thread(pid).ok_or(Errno::SRCH)?;
        self.open_in(&directory)
    }

    /// Returns the descriptors by which a process has `/dev/nvidia-uvm` open. An error if it has
    /// more than [`MOST_FILES`] files.
    pub(in crate::agent) fn uvm_descriptors(&self, pid: u32) -> Result<Vec<RawFd>, Errno> {
        let mut found = Vec::new();
        let is_complete = for_each_file(format!("/proc/{pid}").as_ref(), |name, target| {
            let mut open = OpenDeviceFiles::default();
            self.add(target, &mut open);
            if open.has_uvm {
                found.extend(
                    name.to_str()
                        .ok()
                        .and_then(|name| name.parse::<RawFd>().ok()),
                );
            }
        })?;
        is_complete.then_some(found).ok_or(Errno::TOOBIG)
    }

    fn open_in(&self, directory: &Path) -> Result<OpenDeviceFiles, Errno> {
        let mut open = OpenDeviceFiles::default();
        for_each_file(directory, |_, target| self.add(target, &mut open))?;
        open.minors.sort_unstable();
        open.minors.dedup();
        Ok(open)
    }

    fn add(&self, target: &[u8], open: &mut OpenDeviceFiles) {
        match target.strip_prefix(self.0.as_slice()) {
            Some(b"-uvm") => open.has_uvm = true,
            // `ctl`, `-modeset`, `-caps/…` and the others say nothing about memory, and are no
            // numbers.
            Some(name) => open.minors.extend(
                str::from_utf8(name)
                    .ok()
                    .and_then(|name| name.parse::<u32>().ok()),
            ),
            None => (),
        }
    }
}

/// Calls `visit` with the name and target of each link in `fd`. Returns false if there are more
/// than [`MOST_FILES`].
pub(in crate::agent) fn for_each_file(
    directory: &Path,
    mut visit: impl FnMut(&CStr, &[u8]),
) -> Result<bool, Errno> {
    let files = open_directory(&directory.join("fd"))?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut target = [MaybeUninit::<u8>::uninit(); 256];
    let mut entries = RawDir::new(&files, &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        count += 1;
        if count > MOST_FILES {
            return Ok(false);
        }
        let entry = entry?;
        // Fails if the file has been closed meanwhile, and for `.` and `..`, which are not links.
        let Ok((target, _)) = readlinkat_raw(&files, entry.file_name(), &mut target[..]) else {
            continue;
        };
        visit(entry.file_name(), target);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(targets: &[&str], minors: &[u32], uvm: bool) {
        let devices = DeviceFiles(b"/dev/nvidia".to_vec());
        let mut open = OpenDeviceFiles::default();
        for target in targets {
            devices.add(target.as_bytes(), &mut open);
        }
        assert_eq!(
            open,
            OpenDeviceFiles {
                minors: minors.to_vec(),
                has_uvm: uvm
            }
        );
    }

    #[test]
    fn only_files_of_gpus_and_of_cuda_count() {
        check(
            &["/dev/nvidia0", "/dev/nvidia13", "/dev/nvidiactl"],
            &[0, 13],
            false,
        );
        check(&["/dev/nvidia-uvm", "/dev/nvidia3"], &[3], true);
        check(
            &[
                "/dev/nvidia-modeset",
                "/dev/nvidia-caps/nvidia-cap1",
                "/dev/nvidia-uvm-tools",
            ],
            &[],
            false,
        );
        check(
            &["/dev/null", "socket:[1]", "/dev/nvidia", "/dev/nvidia0x"],
            &[],
            false,
        );
    }

    #[test]
    fn a_process_without_nvidia_uvm_open_is_only_a_monitor() {
        let trainer = OpenDeviceFiles {
            minors: vec![1],
            has_uvm: true,
        };
        assert!(trainer.may_hold_memory_of(1) && !trainer.may_hold_memory_of(0));
        assert!(
            OpenDeviceFiles {
                minors: vec![],
                has_uvm: true
            }
            .may_hold_memory_of(0)
        );
        assert!(
            !OpenDeviceFiles {
                minors: vec![0, 1],
                has_uvm: false
            }
            .may_hold_memory_of(0)
        );
        assert!(!OpenDeviceFiles::default().may_hold_memory_of(0));
    }
}
