//! Checks whether memory was returned after processes ended, by the figures of the GPUs.
//!
//! Memory that other processes take or release in the meantime does not count. Unaccounted memory
//! does: memory that children of an ended process still hold is not returned.

use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Gpu, GpuUuid, ProcessId, Snapshot};

#[derive(Debug, Clone, PartialEq)]
struct GpuBefore {
    gpu: GpuUuid,
    used: Bytes,
    mine: Bytes,
    others: Bytes,
}

/// The memory that some processes are expected to return.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reclaim {
    processes: Vec<ProcessId>,
    before: Vec<GpuBefore>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Returned {
    pub gpu: GpuUuid,
    /// The part of `expected` that is free again.
    pub freed: Bytes,
    pub expected: Bytes,
}

impl Returned {
    /// Whether all expected memory was returned, but for a hundredth: the driver rounds.
    pub(crate) fn is_all(&self) -> bool {
        self.freed.0 >= self.expected.0 - self.expected.0 / 100
    }
}

impl Reclaim {
    /// Records the memory that the processes hold in a snapshot. Ignores GPUs with missing figures
    /// or an unknown list of processes: they could not show that memory was returned.
    pub(crate) fn expect(processes: Vec<ProcessId>, snapshot: &Snapshot) -> Self {
        let before = snapshot.gpus.iter().filter_map(|gpu| {
            let used = gpu.load.memory_used.ok()?;
            let others = others(gpu, &processes)?;
            let mut mine = gpu
                .processes
                .iter()
                .filter(|gpu_process| processes.contains(&gpu_process.process))
                .peekable();
            let mine = match mine.peek() {
                Some(_) => mine
                    .map(|gpu_process| gpu_process.memory.ok())
                    .sum::<Option<Bytes>>()?,
                // A process that has the GPU open without being listed may keep the unaccounted
                // memory.
                None if gpu
                    .device_file_holders
                    .iter()
                    .any(|holder| processes.contains(holder)) =>
                {
                    used.saturating_sub(others)
                }
                None => return None,
            };
            (mine.0 > 0).then(|| GpuBefore {
                gpu: gpu.uuid.clone(),
                used,
                mine,
                others,
            })
        });
        Self {
            before: before.collect(),
            processes,
        }
    }

    /// Whether memory is expected on every GPU on which `other` expects some.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other
            .before
            .iter()
            .all(|theirs| self.before.iter().any(|mine| mine.gpu == theirs.gpu))
    }

    /// The memory expected back on all GPUs together; `None` when the processes hold none, or no
    /// GPU shows how much.
    pub(crate) fn expected(&self) -> Option<Bytes> {
        (!self.before.is_empty()).then(|| self.before.iter().map(|before| before.mine).sum())
    }

    /// Returns the memory returned up to a snapshot, by GPU; `None` while a GPU was not read since
    /// `ended`.
    pub(crate) fn returned(&self, ended: Moment, snapshot: &Snapshot) -> Option<Vec<Returned>> {
        let returned = |before: &GpuBefore| {
            let gpu = snapshot
                .gpu(&before.gpu)
                .filter(|gpu| gpu.load.at > ended)?;
            let used = gpu.load.memory_used.ok()?;
            // `used − others` is the memory of these processes, plus unaccounted memory.
            let (was, is) = (
                before.used.saturating_sub(before.others),
                used.saturating_sub(others(gpu, &self.processes)?),
            );
            let freed = was.saturating_sub(is).min(before.mine);
            Some(Returned {
                gpu: before.gpu.clone(),
                freed,
                expected: before.mine,
            })
        };
        self.before.iter().map(returned).collect()
    }
}

/// The memory that all other processes hold on a GPU; `None` when the reading of one of them is
/// missing, or their list is.
fn others(gpu: &Gpu, processes: &[ProcessId]) -> Option<Bytes> {
    if gpu.missing.processes.is_some() {
        return None;
    }
    gpu.processes
        .iter()
        .filter(|gpu_process| !processes.contains(&gpu_process.process))
        .map(|gpu_process| gpu_process.memory.ok())
        .sum()
}
