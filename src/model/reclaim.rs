//! Whether the memory came back after processes ended, by what the GPUs say.
//!
//! What others took or gave in the meantime is left out of the sum. What nobody accounts for is not:
//! memory that a dead process's children still hold shows as not returned.

use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Gpu, GpuUuid, ProcessId, Snapshot};

/// What one GPU held just before.
#[derive(Debug, Clone, PartialEq)]
struct GpuBefore {
    gpu: GpuUuid,
    used: Bytes,
    mine: Bytes,
    others: Bytes,
}

/// The memory that is expected back from some processes.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaim {
    processes: Vec<ProcessId>,
    before: Vec<GpuBefore>,
}

/// What came back on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// Which.
    pub gpu: GpuUuid,
    /// So much is free again.
    pub returned: Bytes,
    /// So much the processes held.
    pub expected: Bytes,
}

impl Returned {
    /// Whether that is all of it: the driver rounds, so a hundredth may be missing.
    pub fn is_all(&self) -> bool {
        self.returned.0 >= self.expected.0 - self.expected.0 / 100
    }
}

impl Reclaim {
    /// What the processes hold in this snapshot. GPUs that do not say how much are left out: of them
    /// nothing can be proved.
    pub fn expect(processes: Vec<ProcessId>, snapshot: &Snapshot) -> Self {
        let before = snapshot.gpus.iter().filter_map(|gpu| {
            let used = gpu.load.memory_used.ok()?;
            let others = others(gpu, &processes)?;
            let mut mine = gpu.processes.iter().filter(|it| processes.contains(&it.process)).peekable();
            let mine = match mine.peek() {
                Some(_) => mine.map(|it| it.memory.ok()).sum::<Option<Bytes>>()?,
                // Who is not listed and has it open may keep what nobody accounts for.
                None if gpu.device_file_holders.iter().any(|it| processes.contains(it)) => used.saturating_sub(others),
                None => return None,
            };
            (mine.0 > 0).then(|| GpuBefore { gpu: gpu.uuid.clone(), used, mine, others })
        });
        Self { before: before.collect(), processes }
    }

    /// Whether it expects something back on every GPU on which `other` does.
    pub fn covers(&self, other: &Self) -> bool {
        other.before.iter().all(|it| self.before.iter().any(|mine| mine.gpu == it.gpu))
    }

    /// How much it is in all; absent when no GPU says.
    pub fn expected(&self) -> Option<Bytes> {
        (!self.before.is_empty()).then(|| self.before.iter().map(|it| it.mine).sum())
    }

    /// What came back up to this snapshot, GPU by GPU; absent while one of them was not read since `ended`.
    pub fn returned(&self, ended: Moment, snapshot: &Snapshot) -> Option<Vec<Returned>> {
        let returned = |before: &GpuBefore| {
            let gpu = snapshot.gpu(&before.gpu).filter(|gpu| gpu.load.at > ended)?;
            let used = gpu.load.memory_used.ok()?;
            // used − others is what these processes and nobody account for.
            let (was, is) =
                (before.used.saturating_sub(before.others), used.saturating_sub(others(gpu, &self.processes)?));
            let returned = was.saturating_sub(is).min(before.mine);
            Some(Returned { gpu: before.gpu.clone(), returned, expected: before.mine })
        };
        self.before.iter().map(returned).collect()
    }
}

/// What others hold; absent when one of them does not say.
fn others(gpu: &Gpu, processes: &[ProcessId]) -> Option<Bytes> {
    gpu.processes.iter().filter(|it| !processes.contains(&it.process)).map(|it| it.memory.ok()).sum()
}
