//! Tells whether a process has `/dev/nvidia-uvm` open only because it inherited the descriptors in
//! a fork.
//!
//! CUDA opens `/dev/nvidia-uvm` where it is initialized, and cannot be used in a process that was
//! forked after that: every call fails. If all `/dev/nvidia-uvm` descriptors of a process are
//! inherited, its allocator stats are a stale copy of its parent's. The kernel compares descriptors
//! of two processes (`kcmp`) for a caller who may trace both.
//!
//! Threads prove the opposite: CUDA starts some where it is initialized, and a fork copies none of
//! them.

use std::fs::File;
use std::os::fd::RawFd;

use super::memory::{Memory, read_file};
use super::stats_reader::StatsReader;
use crate::agent::procfs::device_files::DeviceFiles;
use crate::agent::procfs::{has_threads_named, stat};
use crate::protocol::snapshot::{ProcessId, Reading};

/// The most descriptors that are compared. CUDA opens a handful.
const MOST_DESCRIPTORS: usize = 16;
/// For `kcmp`: compare whether two descriptors refer to one open file.
const KCMP_FILE: libc::c_int = 0;

/// Which process the allocator stats in a process's memory describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::agent) enum StatsOwner {
    /// The process itself.
    #[default]
    Own,
    /// An older process that forked this one: a stale copy.
    Inherited,
    /// The process itself or an older one: the process was forked, and has not been seen to
    /// allocate.
    Unknown,
    /// As `Unknown`, but the process that forked this one has ended, or has no such stats: nothing
    /// is left to compare with.
    Orphaned,
}

/// Whether CUDA has started a thread in the process.
pub(super) fn has_cuda_thread(pid: u32) -> bool {
    // `cuda-EvtHandlr`; drivers before 2022 name no thread.
    has_threads_named(pid, &[b"cuda-"]) == Ok(true)
}

/// Whether the parent of a forked process may be the process from which it has its stats: both are
/// of one program, and the parent has the allocator at the same location. A launcher that adopts
/// the workers of its forked trainer has none.
pub(super) fn is_below_its_creator(pid: u32, parent: Reading<u32>, reader: &StatsReader) -> bool {
    let Ok(parent) = parent else { return false };
    let start = stat::stack_start(parent);
    let has_allocator = || {
        let memory = File::open(format!("/proc/{parent}/mem"));
        memory.is_ok_and(|memory| reader.is_located_in(&mut Memory::new(&read_file(&memory))))
    };
    start.is_some() && start == stat::stack_start(pid) && has_allocator()
}

/// Returns the owner of the stats of a process that `older` may have forked, by their
/// `/dev/nvidia-uvm` descriptors. A process without such descriptors counts as `Inherited`: it may
/// have closed them.
pub(super) fn owner(older: ProcessId, id: ProcessId) -> StatsOwner {
    match count_inherited(older, id) {
        Some((inherited, all)) if inherited == all => StatsOwner::Inherited,
        Some((0, _)) => StatsOwner::Own,
        _ => StatsOwner::Unknown,
    }
}

/// Counts the `/dev/nvidia-uvm` descriptors of a process: those inherited from `older`, and all.
/// `None` when a process has ended, or the kernel does not compare.
fn count_inherited(older: ProcessId, id: ProcessId) -> Option<(usize, usize)> {
    let devices = DeviceFiles::from_environment();
    let descriptors = |id: ProcessId| {
        devices
            .uvm_descriptors(id.pid)
            .ok()
            .filter(|all| all.len() <= MOST_DESCRIPTORS)
    };
    let (theirs, ours) = (descriptors(older)?, descriptors(id)?);
    if theirs.is_empty() {
        return None;
    }
    let mut inherited = 0;
    for our in &ours {
        let is_same = theirs
            .iter()
            .map(|their| is_same_file(older.pid, *their, id.pid, *our));
        inherited += usize::from(is_same.collect::<Option<Vec<bool>>>()?.contains(&true));
    }
    // While both processes are alive, the descriptors are theirs, and not those of later processes
    // with the same PIDs.
    let are_alive = [older, id]
        .iter()
        .all(|id| stat::start_ticks(id.pid) == id.start_ticks);
    are_alive.then_some((inherited, ours.len()))
}

/// Whether descriptors of two processes refer to one open file. `None` when the kernel does not
/// compare them.
fn is_same_file(
    pid: u32,
    descriptor: RawFd,
    other_pid: u32,
    other_descriptor: RawFd,
) -> Option<bool> {
    let (pid, other_pid) = (
        libc::pid_t::try_from(pid).ok()?,
        libc::pid_t::try_from(other_pid).ok()?,
    );
    // SAFETY: the call takes numbers, and touches no memory.
    match unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            pid,
            other_pid,
            KCMP_FILE,
            descriptor,
            other_descriptor,
        )
    } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}
