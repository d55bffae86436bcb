//! Finds unaccounted memory: device memory in use by no listed process.

use crate::base::units::Bytes;
use crate::model::Total;
use crate::protocol::snapshot::{Gpu, GpuUuid, Missing, ProcessId, Reading, Snapshot};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnaccountedMemory {
    pub gpu: GpuUuid,
    /// The amount; always more than a driver may use for itself.
    pub memory: Bytes,
    /// The processes that have the GPU open and that the driver does not list for it: the likely
    /// holders of the memory.
    pub device_file_holders: Vec<ProcessId>,
    /// The number of processes whose open files the agent may not read: the holder may be among
    /// them.
    pub unreadable: u32,
}

/// Unaccounted memory up to this amount is ignored: contexts, page tables, and figures read at
/// different moments.
const LEAST: Bytes = Bytes(256 << 20);

/// Up to the total memory divided by this number is ignored, too.
const SLACK_PART: u64 = 100;

/// A driver before 510 reserves memory and counts it as used: the total divided by `RESERVE_PART`,
/// plus `RESERVE_PIECE`.
const RESERVE_PART: u64 = 50;
const RESERVE_PIECE: Bytes = Bytes(300 << 20);

/// Returns the unaccounted memory of a GPU; `Ok(None)` when there is none.
///
/// Missing when the memory in use, the memory of a GPU process, or the list of processes is
/// missing: the difference could belong to that process, or to one that is not listed. A GPU with
/// MIG instances has none itself: its instances have.
pub(super) fn find(gpu: &Gpu, snapshot: &Snapshot) -> Reading<Option<UnaccountedMemory>> {
    let is_split = snapshot
        .gpus
        .iter()
        .any(|other| other.facts.parent.as_ref() == Some(&gpu.uuid));
    if is_split || gpu.trouble.is_some() {
        return Ok(None);
    }
    if let Some(why) = gpu.missing.processes {
        return Err(why);
    }
    let (used, total) = (gpu.load.memory_used?, gpu.load.memory_total?);
    // Missing while all processes are listed.
    let omitted = gpu
        .health
        .omitted_processes
        .is_ok()
        .then_some(gpu.health.omitted_memory);
    let claimed = Total::sum_bytes(
        gpu.processes
            .iter()
            .map(|gpu_process| gpu_process.memory)
            .chain(omitted),
    )?;
    if claimed.is_lower_bound {
        return Err(gpu
            .processes
            .iter()
            .find_map(|gpu_process| gpu_process.memory.err())
            .unwrap_or(Missing::Failed));
    }
    let memory = used.saturating_sub(claimed.bytes);
    Ok((memory > slack(gpu, total)).then(|| UnaccountedMemory {
        gpu: gpu.uuid.clone(),
        memory,
        device_file_holders: gpu.unlisted_holders(),
        unreadable: snapshot.host.scan.unreadable,
    }))
}

/// Returns the memory that may be in use on a GPU without a process; `None` where its total is not
/// known.
pub(crate) fn idle_memory(gpu: &Gpu) -> Option<Bytes> {
    Some(slack(gpu, gpu.load.memory_total.ok()?))
}

/// Returns the memory that may be in use without a process: more is unaccounted.
fn slack(gpu: &Gpu, total: Bytes) -> Bytes {
    let slack = LEAST.max(Bytes(total.0 / SLACK_PART));
    match gpu.load.memory_reserved {
        // The driver reports its reserve separately: the memory in use does not contain it.
        Ok(_) => slack,
        Err(_) => Bytes(slack.0 + total.0 / RESERVE_PART + RESERVE_PIECE.0),
    }
}
