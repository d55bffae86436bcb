//! The GPUs' device files, and which of them a process has open.
//!
//! Links in `/proc/PID/fd` are read, and never followed: a file on a server that hangs would take us
//! with it. In a container the names are the same.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir, readlinkat_raw};
use rustix::io::Errno;

use super::proc::living_thread;

/// For tests: what stands in for `/dev/nvidia`, so that plain files can stand in for GPUs.
const VARIABLE: &str = "GPUTOP_DEVICES";

/// How the names of the device files begin.
#[derive(Debug, Clone)]
pub(super) struct Devices(Vec<u8>);

/// The device files that a process has open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Open {
    /// The GPUs', by minor number, each once.
    pub(super) minors: Vec<u32>,
    /// One that all GPUs share: some of their memory may be its.
    pub(super) shared: bool,
}

impl Open {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.minors.is_empty() && !self.shared
    }

    /// Whether it may hold memory of the GPU with that minor number.
    pub(super) fn is_of(&self, minor: u32) -> bool {
        self.minors.contains(&minor) || self.minors.is_empty() && self.shared
    }
}

impl Devices {
    /// More files of a process are not looked at: reading 4,096 links takes some 4 ms.
    const MOST: usize = 4096;

    /// The device files of this host, or those that a test has put in their place.
    pub(super) fn of_host() -> Self {
        let prefix = std::env::var_os(VARIABLE).unwrap_or_else(|| "/dev/nvidia".into());
        Self(prefix.into_encoded_bytes())
    }

    /// Those whose paths begin so.
    #[cfg(test)]
    pub(super) fn beginning_with(prefix: &Path) -> Self {
        Self(prefix.as_os_str().as_encoded_bytes().to_vec())
    }

    /// Which of them a process has open.
    pub(super) fn open_by(&self, pid: u32) -> Result<Open, Errno> {
        self.open_in(format!("/proc/{pid}").as_ref())
    }

    /// The same for a process whose first thread has ended: its files are with those that live on.
    pub(super) fn open_by_threads(&self, pid: u32) -> Result<Open, Errno> {
        let (folder, _) = living_thread(pid).ok_or(Errno::SRCH)?;
        self.open_in(&folder)
    }

    fn open_in(&self, folder: &Path) -> Result<Open, Errno> {
        let files = open_folder(&folder.join("fd"))?;
        let mut open = Open::default();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut target = [MaybeUninit::<u8>::uninit(); 256];
        let mut files_read = RawDir::new(&files, &mut buffer);
        let mut seen = 0;
        while let Some(file) = files_read.next() {
            seen += 1;
            if seen > Self::MOST {
                break;
            }
            // It may have been closed meanwhile; `.` and `..` are no links.
            let Ok((target, _)) = readlinkat_raw(&files, file?.file_name(), &mut target[..]) else { continue };
            self.take(target, &mut open);
        }
        open.minors.sort_unstable();
        open.minors.dedup();
        Ok(open)
    }

    fn take(&self, target: &[u8], open: &mut Open) {
        let Some(name) = target.strip_prefix(self.0.as_slice()) else { return };
        // `-modeset`, `-caps/…` and the rest say nothing of memory.
        match name {
            b"ctl" | b"-uvm" => open.shared = true,
            name => open.minors.extend(str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok())),
        }
    }
}

/// Opens a folder to list it.
pub(super) fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(targets: &[&str], minors: &[u32], shared: bool) {
        let devices = Devices(b"/dev/nvidia".to_vec());
        let mut open = Open::default();
        for target in targets {
            devices.take(target.as_bytes(), &mut open);
        }
        assert_eq!(open, Open { minors: minors.to_vec(), shared });
    }

    #[test]
    fn only_files_that_memory_hangs_on_count() {
        check(&["/dev/nvidia0", "/dev/nvidia13"], &[0, 13], false);
        check(&["/dev/nvidiactl"], &[], true);
        check(&["/dev/nvidia-uvm", "/dev/nvidia3"], &[3], true);
        check(&["/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-uvm-tools"], &[], false);
        check(&["/dev/null", "socket:[1]", "/dev/nvidia", "/dev/nvidia0x"], &[], false);
    }

    #[test]
    fn a_file_that_all_gpus_share_counts_where_no_gpu_is_named() {
        let both = Open { minors: vec![1], shared: true };
        assert!(both.is_of(1) && !both.is_of(0));
        assert!(Open { minors: vec![], shared: true }.is_of(0));
        assert!(!Open::default().is_of(0));
    }
}
