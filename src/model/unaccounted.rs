//! Finds unaccounted memory: device memory in use by no listed process.

use crate::base::units::Bytes;
use crate::model::Total;
use crate::protocol::snapshot::{Gpu, GpuUuid, Missing, ProcessId, Reading, Snapshot};

/// The unaccounted memory of a GPU or MIG instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnaccountedMemory {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The amount; always more than a driver may use itself.
    pub memory: Bytes,
    /// The processes that have the GPU open without being listed for it: one or more of them hold the memory.
    pub device_file_holders: Vec<ProcessId>,
    /// The number of processes that could not be inspected: the holder may be among them.
    pub unreadable: u32,
}

/// Smaller amounts are ignored: contexts, pages, and figures read at different moments.
const LEAST: Bytes = Bytes(256 << 20);

/// One in this many parts of all memory is ignored, too.
const SLACK_PART: u64 = 100;

/// The memory that a driver before 510 reserves and counts as used: one in this many parts of all memory, plus a
/// constant.
const RESERVE_PART: u64 = 50;
const RESERVE_PIECE: Bytes = Bytes(300 << 20);

/// Returns the unaccounted memory of a GPU; `Ok(None)` when there is none.
///
/// Missing when the memory in use, or that of a GPU process, is missing: the rest could belong to any process. A GPU
/// with MIG instances has none itself.
pub(super) fn find(gpu: &Gpu, snapshot: &Snapshot) -> Reading<Option<UnaccountedMemory>> {
    let is_split = snapshot.gpus.iter().any(|other| other.facts.parent.as_ref() == Some(&gpu.uuid));
    if is_split || gpu.trouble.is_some() {
        return Ok(None);
    }
    let (used, total) = (gpu.load.memory_used?, gpu.load.memory_total?);
    let claimed = Total::of(gpu.processes.iter().map(|gpu_process| gpu_process.memory))?;
    if claimed.lower_bound {
        return Err(gpu.processes.iter().find_map(|gpu_process| gpu_process.memory.err()).unwrap_or(Missing::Failed));
    }
    let memory = used.saturating_sub(claimed.bytes);
    Ok((memory > slack(gpu, total)).then(|| UnaccountedMemory {
        gpu: gpu.uuid.clone(),
        memory,
        device_file_holders: gpu.unlisted_holders(),
        unreadable: snapshot.host.scan.unreadable,
    }))
}

/// The memory that may be in use without a process.
fn slack(gpu: &Gpu, total: Bytes) -> Bytes {
    let slack = LEAST.max(Bytes(total.0 / SLACK_PART));
    match gpu.load.memory_reserved {
        // The reserve is not part of the memory in use.
        Ok(_) => slack,
        Err(_) => Bytes(slack.0 + total.0 / RESERVE_PART + RESERVE_PIECE.0),
    }
}
