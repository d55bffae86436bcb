//! Whether the memory came back after a process ended, by what the GPUs say.
//!
//! What others took or gave in the meantime is left out of the sum. What nobody accounts for is not:
//! memory that a dead process's children still hold shows as not returned.

use crate::snapshot::{Gpu, GpuUuid, ProcessId, Snapshot};
use crate::units::{Bytes, Moment};

/// What one GPU held just before.
#[derive(Debug, Clone, PartialEq)]
struct Before {
    gpu: GpuUuid,
    used: Bytes,
    mine: Bytes,
    others: Bytes,
}

/// The memory that is expected back from one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaim {
    process: ProcessId,
    before: Vec<Before>,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// So much is free again.
    pub returned: Bytes,
    /// So much the process held.
    pub expected: Bytes,
}

impl Reclaim {
    /// What the process holds in this snapshot. GPUs that do not say how much are left out: of them
    /// nothing can be proved.
    pub fn expect(process: ProcessId, snapshot: &Snapshot) -> Self {
        let before = snapshot.gpus.iter().filter_map(|gpu| {
            let mine = gpu.tenants.iter().find(|it| it.process == process)?.memory.ok()?;
            Some(Before { gpu: gpu.uuid.clone(), used: gpu.load.memory_used.ok()?, mine, others: others(gpu, process) })
        });
        Self { process, before: before.collect() }
    }

    /// How much it is in all; absent when no GPU says.
    pub fn expected(&self) -> Option<Bytes> {
        (!self.before.is_empty()).then(|| self.before.iter().map(|it| it.mine).sum())
    }

    /// What came back up to this snapshot; absent while a GPU was not read since `ended`, and when
    /// nothing is known to expect.
    pub fn returned(&self, ended: Moment, snapshot: &Snapshot) -> Option<Returned> {
        let expected = self.expected()?;
        let mut returned = Bytes(0);
        for before in &self.before {
            let gpu = snapshot.gpu(&before.gpu).filter(|gpu| gpu.load.at > ended)?;
            let used = gpu.load.memory_used.ok()?;
            // used − others is what this process and nobody accounts for.
            let (was, is) = (before.used.saturating_sub(before.others), used.saturating_sub(others(gpu, self.process)));
            returned.0 += was.saturating_sub(is).min(before.mine).0;
        }
        Some(Returned { returned, expected })
    }
}

fn others(gpu: &Gpu, process: ProcessId) -> Bytes {
    gpu.tenants.iter().filter(|it| it.process != process).filter_map(|it| it.memory.ok()).sum()
}
