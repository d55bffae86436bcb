//! Tells whether a process has CUDA's file open only because it inherited it in a fork.
//!
//! CUDA opens `/dev/nvidia-uvm` where it is initialized, and cannot be used in a process that was forked after that: every
//! call fails. If all `/dev/nvidia-uvm` descriptors of a process are inherited, its allocator stats are a stale copy of its
//! parent's. The kernel compares descriptors of two processes (`kcmp`) for a caller who may trace both.

use std::os::fd::RawFd;

use crate::agent::procfs::device_files::DeviceFiles;
use crate::agent::procfs::stat;
use crate::protocol::snapshot::ProcessId;

/// The most descriptors that are compared. CUDA opens a handful.
const MOST_DESCRIPTORS: usize = 16;
/// For `kcmp`: compare whether two descriptors refer to one open file.
const KCMP_FILE: libc::c_int = 0;

/// Whether all `/dev/nvidia-uvm` descriptors of a process were inherited from `older`. A process without any may have closed
/// the inherited ones. Returns `None` when that cannot be told: a process has ended, the kernel does not compare, or some
/// descriptors are inherited and some not.
pub(super) fn is_inherited_from(older: ProcessId, id: ProcessId) -> Option<bool> {
    let devices = DeviceFiles::of_host();
    let descriptors = |id: ProcessId| devices.uvm_descriptors(id.pid).ok().filter(|all| all.len() <= MOST_DESCRIPTORS);
    let (theirs, ours) = (descriptors(older)?, descriptors(id)?);
    if theirs.is_empty() {
        return None;
    }
    let mut inherited = 0;
    for our in &ours {
        let is_same = theirs.iter().map(|their| is_same_file(older.pid, *their, id.pid, *our));
        inherited += usize::from(is_same.collect::<Option<Vec<bool>>>()?.contains(&true));
    }
    // The descriptors were those of these processes, and not of later ones with the same PIDs.
    let are_alive = [older, id].iter().all(|id| stat::start_ticks(id.pid) == id.start_ticks);
    match inherited {
        _ if !are_alive => None,
        count if count == ours.len() => Some(true),
        0 => Some(false),
        _ => None,
    }
}

/// Whether descriptors of two processes refer to one open file. `None` when the kernel does not tell.
fn is_same_file(pid: u32, descriptor: RawFd, other_pid: u32, other_descriptor: RawFd) -> Option<bool> {
    let (pid, other_pid) = (libc::pid_t::try_from(pid).ok()?, libc::pid_t::try_from(other_pid).ok()?);
    // SAFETY: the call takes numbers, and touches no memory.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, KCMP_FILE, descriptor, other_descriptor) } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}
