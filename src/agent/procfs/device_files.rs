//! The GPUs' device files, and which of them a process has open.
//!
//! Memory hangs on `/dev/nvidia-uvm`: CUDA cannot start without it, and a forked child has it from its parent.
//! What only watches (`nvidia-smi -l`, nvtop, DCGM, another gputop) has a GPU's own file open through NVML, which
//! does without, and holds nothing.
//!
//! Links in `/proc/PID/fd` are read, and never followed: a file on a server that hangs would take us
//! with it. In a container the names are the same.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir, readlinkat_raw};
use rustix::io::Errno;

use super::stat::living_thread;

/// For tests: what stands in for `/dev/nvidia`, so that plain files can stand in for GPUs.
const VARIABLE: &str = "GPUTOP_DEVICES";

/// How the names of the device files begin.
#[derive(Debug, Clone)]
pub(in crate::agent) struct Devices(Vec<u8>);

/// The device files that a process has open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::agent) struct Open {
    /// The GPUs', by minor number, each once.
    pub(in crate::agent) minors: Vec<u32>,
    /// The one that only CUDA opens, of all GPUs: `/dev/nvidia-uvm`.
    pub(in crate::agent) cuda: bool,
}

impl Open {
    /// Whether it may hold memory of any GPU.
    pub(in crate::agent) fn may_hold(&self) -> bool {
        self.cuda
    }

    /// Whether it may hold memory of the GPU with that minor number.
    pub(in crate::agent) fn may_hold_of(&self, minor: u32) -> bool {
        self.cuda && (self.minors.is_empty() || self.minors.contains(&minor))
    }
}

impl Devices {
    /// More files of a process are not looked at: reading 4,096 links takes some 4 ms.
    const MOST: usize = 4096;

    /// The device files of this host, or those that a test has put in their place.
    pub(in crate::agent) fn of_host() -> Self {
        let prefix = std::env::var_os(VARIABLE).unwrap_or_else(|| "/dev/nvidia".into());
        Self(prefix.into_encoded_bytes())
    }

    /// Those whose paths begin so.
    #[cfg(test)]
    pub(in crate::agent) fn beginning_with(prefix: &Path) -> Self {
        Self(prefix.as_os_str().as_encoded_bytes().to_vec())
    }

    /// Which of them a process has open.
    pub(in crate::agent) fn open_by(&self, pid: u32) -> Result<Open, Errno> {
        self.open_in(format!("/proc/{pid}").as_ref())
    }

    /// The same for a process whose first thread has ended: its files are with those that live on.
    pub(in crate::agent) fn open_by_threads(&self, pid: u32) -> Result<Open, Errno> {
        let (folder, _) = living_thread(pid).ok_or(Errno::SRCH)?;
        self.open_in(&folder)
    }

    /// The descriptors that a process has of CUDA's own file; an error where it has too many files to look at all.
    pub(in crate::agent) fn cuda_files(&self, pid: u32) -> Result<Vec<RawFd>, Errno> {
        let mut found = Vec::new();
        let is_all = Self::each_file(format!("/proc/{pid}").as_ref(), |name, target| {
            let mut open = Open::default();
            self.take(target, &mut open);
            if open.cuda {
                found.extend(name.to_str().ok().and_then(|name| name.parse::<RawFd>().ok()));
            }
        })?;
        is_all.then_some(found).ok_or(Errno::TOOBIG)
    }

    fn open_in(&self, folder: &Path) -> Result<Open, Errno> {
        let mut open = Open::default();
        Self::each_file(folder, |_, target| self.take(target, &mut open))?;
        open.minors.sort_unstable();
        open.minors.dedup();
        Ok(open)
    }

    /// Shows each open file: the name of its link, and where that leads. Says whether these were all.
    fn each_file(folder: &Path, mut show: impl FnMut(&CStr, &[u8])) -> Result<bool, Errno> {
        let files = open_folder(&folder.join("fd"))?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut target = [MaybeUninit::<u8>::uninit(); 256];
        let mut files_read = RawDir::new(&files, &mut buffer);
        let mut seen = 0;
        while let Some(file) = files_read.next() {
            seen += 1;
            if seen > Self::MOST {
                return Ok(false);
            }
            let file = file?;
            // It may have been closed meanwhile; `.` and `..` are no links.
            let Ok((target, _)) = readlinkat_raw(&files, file.file_name(), &mut target[..]) else { continue };
            show(file.file_name(), target);
        }
        Ok(true)
    }

    fn take(&self, target: &[u8], open: &mut Open) {
        let Some(name) = target.strip_prefix(self.0.as_slice()) else { return };
        // `ctl`, `-modeset`, `-caps/…` and the rest say nothing of memory.
        match name {
            b"-uvm" => open.cuda = true,
            name => open.minors.extend(str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok())),
        }
    }
}

/// Opens a folder to list it.
pub(in crate::agent) fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(targets: &[&str], minors: &[u32], cuda: bool) {
        let devices = Devices(b"/dev/nvidia".to_vec());
        let mut open = Open::default();
        for target in targets {
            devices.take(target.as_bytes(), &mut open);
        }
        assert_eq!(open, Open { minors: minors.to_vec(), cuda });
    }

    #[test]
    fn only_files_that_memory_hangs_on_count() {
        check(&["/dev/nvidia0", "/dev/nvidia13", "/dev/nvidiactl"], &[0, 13], false);
        check(&["/dev/nvidia-uvm", "/dev/nvidia3"], &[3], true);
        check(&["/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-uvm-tools"], &[], false);
        check(&["/dev/null", "socket:[1]", "/dev/nvidia", "/dev/nvidia0x"], &[], false);
    }

    #[test]
    fn who_has_no_file_of_cuda_open_only_watches() {
        let trainer = Open { minors: vec![1], cuda: true };
        assert!(trainer.may_hold_of(1) && !trainer.may_hold_of(0));
        assert!(Open { minors: vec![], cuda: true }.may_hold_of(0));
        assert!(!Open { minors: vec![0, 1], cuda: false }.may_hold());
        assert!(!Open::default().may_hold_of(0));
    }
}
