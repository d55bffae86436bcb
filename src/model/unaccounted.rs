//! Device memory in use that no listed process accounts for.

use crate::base::units::Bytes;
use crate::model::Total;
use crate::protocol::snapshot::{Gpu, GpuUuid, Missing, ProcessId, Reading, Snapshot};

/// The memory of one GPU, or one instance of one, that nobody accounts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnaccountedMemory {
    /// Where.
    pub gpu: GpuUuid,
    /// How much; always beyond what a driver may keep for itself.
    pub memory: Bytes,
    /// Who has the GPU open and is not listed for it: one of them, or more, holds it.
    pub device_file_holders: Vec<ProcessId>,
    /// Processes that could not be looked at: the holder may be among them.
    pub unreadable: u32,
}

/// Less than this is nobody's business: contexts, pages, what was read a moment later.
const LEAST: Bytes = Bytes(256 << 20);

/// Nor is one part in so many of all memory.
const PART: u64 = 100;

/// What a driver before 510 keeps for itself and counts as used: one part in so many of all memory, and a piece more.
const RESERVE_PART: u64 = 50;
const RESERVE_PIECE: Bytes = Bytes(300 << 20);

/// What of a GPU's memory in use nobody accounts for: `Ok(None)` when it is all accounted for.
///
/// Missing when the memory in use is, or that of a GPU process: the rest could be any of theirs. A GPU that
/// is split has none, its instances have.
pub(super) fn find(gpu: &Gpu, snapshot: &Snapshot) -> Reading<Option<UnaccountedMemory>> {
    let is_split = snapshot.gpus.iter().any(|it| it.facts.parent.as_ref() == Some(&gpu.uuid));
    if is_split || gpu.trouble.is_some() {
        return Ok(None);
    }
    let (used, total) = (gpu.load.memory_used?, gpu.load.memory_total?);
    let claimed = Total::of(gpu.processes.iter().map(|it| it.memory))?;
    if claimed.lower_bound {
        return Err(gpu.processes.iter().find_map(|it| it.memory.err()).unwrap_or(Missing::Failed));
    }
    let memory = used.saturating_sub(claimed.bytes);
    Ok((memory > slack(gpu, total)).then(|| UnaccountedMemory {
        gpu: gpu.uuid.clone(),
        memory,
        device_file_holders: gpu
            .device_file_holders
            .iter()
            .copied()
            .filter(|id| gpu.processes.iter().all(|it| it.process != *id))
            .collect(),
        unreadable: snapshot.host.scan.unreadable,
    }))
}

/// How much may be in use without a process.
fn slack(gpu: &Gpu, total: Bytes) -> Bytes {
    let slack = LEAST.max(Bytes(total.0 / PART));
    match gpu.load.memory_reserved {
        // It is not part of what is in use.
        Ok(_) => slack,
        Err(_) => Bytes(slack.0 + total.0 / RESERVE_PART + RESERVE_PIECE.0),
    }
}
