//! The GPUs' device files, and which of them a process has open.
//!
//! CUDA allocates through `/dev/nvidia-uvm`: it cannot start without that file, and a forked child
//! inherits it. A monitor (`nvidia-smi -l`, nvtop, DCGM, another gputop) opens a GPU's own file
//! through NVML, and allocates nothing. Where NVML opens `/dev/nvidia-uvm` too, as of driver 580,
//! the libraries of the process tell ([`super::monitors`]).
//!
//! WSL 2 has one device file for all GPUs instead, `/dev/dxg`.
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
/// GPUs, and for `/dev/dxg` one whose path is the prefix and [`DXG_ENDING`].
const PREFIX_VARIABLE: &str = "GPUTOP_DEVICES";

/// The most files of one process that are read: reading 4,096 links takes about 4 ms.
const MOST_FILES: usize = 4096;

/// See [`PREFIX_VARIABLE`].
const DXG_ENDING: &str = "-dxg";

/// The paths of the device files.
#[derive(Debug, Clone)]
pub(in crate::agent) struct DeviceFiles {
    /// The beginning of the paths of all but WSL's.
    prefix: Vec<u8>,
    /// The path of WSL's.
    dxg: Vec<u8>,
}

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
    /// Whether `/dev/dxg` is open, through which all of WSL's GPUs are used.
    pub(in crate::agent) has_dxg: bool,
}

impl OpenDeviceFiles {
    /// Whether the process may hold memory of the GPU with this minor number; `None` if the number
    /// is not known, as in WSL.
    pub(in crate::agent) fn may_hold_memory_of(&self, minor: Option<u32>) -> bool {
        let has_gpu = |minor| self.minors.is_empty() || self.minors.contains(&minor);
        self.has_dxg || (self.has_uvm && minor.is_some_and(has_gpu))
    }

    /// Whether the process may hold memory of some GPU.
    pub(in crate::agent) fn may_hold_memory(&self) -> bool {
        self.has_uvm || self.has_dxg
    }
}

impl DeviceFiles {
    /// The device files of this host, or the plain files that a test uses instead.
    pub(in crate::agent) fn from_environment() -> Self {
        match std::env::var_os(PREFIX_VARIABLE) {
            Some(prefix) => Self::with_prefix(prefix.as_ref()),
            None => Self {
                prefix: b"/dev/nvidia".to_vec(),
                dxg: b"/dev/dxg".to_vec(),
            },
        }
    }

    pub(in crate::agent) fn with_prefix(prefix: &Path) -> Self {
        let prefix = prefix.as_os_str().as_encoded_bytes().to_vec();
        Self {
            dxg: [&prefix, DXG_ENDING.as_bytes()].concat(),
            prefix,
        }
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
        if target == self.dxg {
            open.has_dxg = true;
            return;
        }
        match target.strip_prefix(self.prefix.as_slice()) {
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
        let devices = DeviceFiles {
            prefix: b"/dev/nvidia".to_vec(),
            dxg: b"/dev/dxg".to_vec(),
        };
        let mut open = OpenDeviceFiles::default();
        for target in targets {
            devices.add(target.as_bytes(), &mut open);
        }
        assert_eq!(
            open,
            OpenDeviceFiles {
                minors: minors.to_vec(),
                has_uvm: uvm,
                has_dxg: targets.contains(&"/dev/dxg"),
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
        check(&["/dev/dxg", "/dev/dxg0", "/dev/nvidia-dxg"], &[], false);
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
        let open = |minors: &[u32], has_uvm, has_dxg| OpenDeviceFiles {
            minors: minors.to_vec(),
            has_uvm,
            has_dxg,
        };
        let trainer = open(&[1], true, false);
        assert!(trainer.may_hold_memory_of(Some(1)) && !trainer.may_hold_memory_of(Some(0)));
        assert!(!trainer.may_hold_memory_of(None));
        assert!(open(&[], true, false).may_hold_memory_of(Some(0)));
        assert!(!open(&[0, 1], false, false).may_hold_memory_of(Some(0)));
        assert!(!OpenDeviceFiles::default().may_hold_memory_of(Some(0)));
        // WSL has no minor numbers.
        assert!(open(&[], false, true).may_hold_memory_of(None));
    }
}
