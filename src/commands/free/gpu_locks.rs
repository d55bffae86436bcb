//! Locks that keep two `gputop free` of one user from choosing the same GPU before the memory of
//! the first job shows up.
//!
//! Each GPU has a file in a private folder of the user. The command of `gputop free` inherits the
//! lock of each of its GPUs, and the kernel releases a lock when no process has the file open any
//! more: after the command and its children have ended.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::files::folders::shared_folder;
use crate::files::private_folder;
use crate::protocol::snapshot::GpuUuid;

/// The locked file of a GPU. Not closed on exec: the command inherits the file and its lock.
pub(super) type GpuLock = OwnedFd;

/// The user's folder of lock files. While it is open here, no other `gputop free` chooses GPUs.
#[derive(Debug)]
pub(super) struct LockFolder(OwnedFd);

impl LockFolder {
    /// Opens the folder, and waits while another `gputop free` chooses, which takes microseconds.
    pub(super) fn open() -> Result<Self, String> {
        let path = shared_folder();
        let locked = private_folder::open(&path).and_then(|folder| {
            fs::flock(&folder, FlockOperation::LockExclusive)?;
            Ok(folder)
        });
        locked
            .map(Self)
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Locks a GPU. Returns `None` if another `gputop free` or its command has the lock.
    pub(super) fn lock(&self, gpu: &GpuUuid) -> io::Result<Option<GpuLock>> {
        // A UUID is text from outside, and that of a MIG instance may have slashes.
        let name: String = gpu
            .0
            .as_str()
            .chars()
            .map(|letter| {
                if letter.is_alphanumeric() {
                    letter
                } else {
                    '-'
                }
            })
            .collect();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
        let file = fs::openat(
            &self.0,
            format!("{name}.lock"),
            flags,
            Mode::RUSR | Mode::WUSR,
        )?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
