//! The leak detectors of all GPUs, and of all processes on them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{LeakDetector, LeakVerdict};
use crate::base::units::Bytes;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Snapshot};

/// The time without samples after which a detector is dropped. A hung driver or an unreadable process list may take
/// minutes.
pub(super) const GONE: Duration = Duration::from_mins(15);

#[derive(Debug, Clone, Default)]
struct GpuDetectors {
    whole: LeakDetector,
    /// Boxed: a B-tree node has room for up to twice as many entries as are in it.
    processes: BTreeMap<ProcessId, Box<LeakDetector>>,
}

/// The detectors of one host, fed with the memory that NVML reports.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct LeakDetectors(HashMap<GpuUuid, GpuDetectors>);

impl LeakDetectors {
    /// Adds a snapshot's memory readings. A missing reading is a gap.
    pub(in crate::model) fn learn(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            let (at, used, total) = (gpu.load.at, gpu.load.memory_used, gpu.load.memory_total);
            let detectors = self.0.entry(gpu.uuid.clone()).or_default();
            if let Ok(used) = used {
                detectors.whole.push(at, used, total.ok());
            }
            let free = total.ok().zip(used.ok()).map(|(total, used)| total.saturating_sub(used));
            for gpu_process in &gpu.processes {
                // A process that the agent has not read yet gets another id in the next snapshot.
                if let Ok(held) = gpu_process.memory
                    && snapshot.process(gpu_process.process).is_some()
                {
                    // A process runs out of memory when the GPU does: its limit is what it holds plus what is free.
                    let limit = free.map(|free| Bytes(held.0.saturating_add(free.0)));
                    detectors.processes.entry(gpu_process.process).or_default().push(at, held, limit);
                }
            }
            detectors.processes.retain(|_, detector| detector.last().is_some_and(|last| at.since(last) < GONE));
        }
        let now = snapshot.at;
        self.0.retain(|_, gpu| gpu.whole.last().is_none_or(|last| now.since(last) < GONE));
    }

    /// The processes whose memory grows like a leak on some GPU.
    pub(in crate::model) fn suspects(&self) -> impl Iterator<Item = ProcessId> {
        let gpu_processes = self.0.values().flat_map(|gpu| &gpu.processes);
        gpu_processes.filter(|(_, detector)| detector.verdict() >= LeakVerdict::Suspect).map(|(id, _)| *id)
    }

    /// The detector of a GPU.
    pub(in crate::model) fn gpu(&self, gpu: &GpuUuid) -> Option<&LeakDetector> {
        self.0.get(gpu).map(|gpu| &gpu.whole)
    }

    /// The detector of a process, on the GPU with the worst verdict.
    pub(in crate::model) fn process(&self, process: ProcessId) -> Option<&LeakDetector> {
        self.0
            .values()
            .filter_map(|gpu| gpu.processes.get(&process))
            .map(Box::as_ref)
            .max_by_key(|detector| detector.verdict())
    }
}
