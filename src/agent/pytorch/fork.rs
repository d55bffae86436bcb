//! Whether what a process has of CUDA is its own, or was left to it by a fork.
//!
//! CUDA opens `/dev/nvidia-uvm` where it starts, and does not start in a process that was forked since: there every call
//! of it fails. So who has that file only as another process opened it, has that one's books as they were at the fork, and
//! nothing of the GPU; who opened it himself, has his own. Which open files of two processes are one and the same, the
//! kernel says to who may look into both.

use std::os::fd::RawFd;

use crate::agent::procfs::device_files::DeviceFiles;
use crate::agent::procfs::stat;
use crate::protocol::snapshot::ProcessId;

/// No more files than so many are compared: CUDA opens a handful.
const FILES: usize = 16;
/// To `kcmp`: whether two descriptors are of one open file.
const KCMP_FILE: libc::c_int = 0;

/// Whether all that a process has open of CUDA was opened by another, older one. Absent where that cannot be told: one of
/// them has ended, the kernel does not compare, or there is no such file.
pub(super) fn was_left_by(older: ProcessId, id: ProcessId) -> Option<bool> {
    let devices = DeviceFiles::of_host();
    let files = |id: ProcessId| devices.uvm_descriptors(id.pid).ok().filter(|it| it.len() <= FILES);
    let (theirs, ours) = (files(older)?, files(id)?);
    if theirs.is_empty() {
        return None;
    }
    let mut left = 0;
    for our in &ours {
        let mut is_theirs = false;
        for their in &theirs {
            is_theirs |= is_same(older.pid, *their, id.pid, *our)?;
        }
        left += usize::from(is_theirs);
    }
    // These were their files, and not those of who has their PIDs now.
    let is_there =
        |id: ProcessId| stat::of(id.pid, &mut Vec::new()).is_ok_and(|it| Some(it.start_ticks) == id.start_ticks);
    if !is_there(older) || !is_there(id) {
        return None;
    }
    match left {
        0 if !ours.is_empty() => Some(false),
        // It may have closed what was left to it.
        left if left == ours.len() => Some(true),
        // Some of each: nobody knows what such a process does.
        _ => None,
    }
}

/// Whether two processes' descriptors are of one open file. Absent when the kernel does not say.
fn is_same(pid: u32, file: RawFd, other: u32, others: RawFd) -> Option<bool> {
    let (pid, other) = (libc::pid_t::try_from(pid).ok()?, libc::pid_t::try_from(other).ok()?);
    // SAFETY: it takes numbers, and touches no memory.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_FILE, file, others) } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}
