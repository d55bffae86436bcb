//! The growth of every GPU and of every process on it, from snapshot to snapshot.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{LeakDetector, LeakVerdict};
use crate::base::units::Bytes;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Snapshot};

/// What was not seen for so long is gone; a driver that hangs, or a list that could not be read, may take a while.
pub(super) const GONE: Duration = Duration::from_mins(15);

#[derive(Debug, Clone, Default)]
struct GpuDetectors {
    whole: LeakDetector,
    /// Each in a place of its own: a tree has room for up to twice as many as are in it.
    processes: BTreeMap<ProcessId, Box<LeakDetector>>,
}

/// All that is watched.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct LeakDetectors(HashMap<GpuUuid, GpuDetectors>);

impl LeakDetectors {
    /// Takes what a snapshot says of memory. What could not be read is a gap.
    pub(in crate::model) fn learn(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            let (at, used, total) = (gpu.load.at, gpu.load.memory_used, gpu.load.memory_total);
            let watched = self.0.entry(gpu.uuid.clone()).or_default();
            if let Ok(used) = used {
                watched.whole.push(at, used, total.ok());
            }
            let free = total.ok().zip(used.ok()).map(|(total, used)| total.saturating_sub(used));
            for gpu_process in &gpu.processes {
                // Whom the agent has not looked at yet has another id in the next snapshot.
                if let Ok(held) = gpu_process.memory
                    && snapshot.process(gpu_process.process).is_some()
                {
                    // A process ends where the GPU does: at what it holds and what nobody holds.
                    let limit = free.map(|free| Bytes(held.0.saturating_add(free.0)));
                    watched.processes.entry(gpu_process.process).or_default().push(at, held, limit);
                }
            }
            watched.processes.retain(|_, it| it.last().is_some_and(|last| at.since(last) < GONE));
        }
        let now = snapshot.at;
        self.0.retain(|_, it| it.whole.last().is_none_or(|last| now.since(last) < GONE));
    }

    /// Whose memory grows as a leak does, on any GPU.
    pub(in crate::model) fn suspects(&self) -> impl Iterator<Item = ProcessId> {
        let gpu_processes = self.0.values().flat_map(|it| &it.processes);
        gpu_processes.filter(|(_, it)| it.verdict() >= LeakVerdict::Suspect).map(|(id, _)| *id)
    }

    /// The growth of a GPU's memory.
    pub(in crate::model) fn gpu(&self, gpu: &GpuUuid) -> Option<&LeakDetector> {
        self.0.get(gpu).map(|it| &it.whole)
    }

    /// The growth of what a process holds: on that of its GPUs where it looks worst.
    pub(in crate::model) fn process(&self, process: ProcessId) -> Option<&LeakDetector> {
        self.0.values().filter_map(|it| it.processes.get(&process)).map(Box::as_ref).max_by_key(|it| it.verdict())
    }
}
