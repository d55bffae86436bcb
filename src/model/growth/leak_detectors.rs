//! The leak detectors of all GPUs of a host, and of all processes on them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::loading::LoadingSigns;
use super::{LeakDetector, kib};
use crate::base::units::{Bytes, Moment};
use crate::model::ReservedMemory;
use crate::model::pairs;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Snapshot};

/// The time without samples after which a detector is dropped. A hung driver or an unreadable
/// process list may interrupt the samples for minutes.
const GONE: Duration = Duration::from_mins(15);

/// The most detectors of processes that have ended on a host. A host may start thousands of short
/// processes, or claim to.
const MOST_ENDED: usize = 20_000;

/// The detectors of the memory of one process on one GPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ProcessDetectors {
    /// Fed with the memory that NVML reports.
    pub(super) held: LeakDetector,
    /// Fed with the memory of tensors; `None` without allocator stats.
    pub(super) tensors: Option<Box<LeakDetector>>,
    pub(super) loading: LoadingSigns,
}

impl ProcessDetectors {
    /// The time of the last sample.
    fn last(&self) -> Moment {
        let tensors = self.tensors.as_ref().and_then(|tensors| tensors.last);
        self.held.last.max(tensors).map_or(Moment(0), |(at, _)| at)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct GpuDetectors {
    whole: LeakDetector,
    /// Boxed: a B-tree node has room for up to twice as many entries as it contains.
    #[serde(with = "pairs")]
    processes: BTreeMap<ProcessId, Box<ProcessDetectors>>,
}

/// The share of a GPU's growth from which on one process is its cause.
const CAUSE: f64 = 0.5;

impl GpuDetectors {
    /// The process that took more than half of the memory that the GPU has gained since it began to
    /// grow; `None` while the GPU does not grow, and where several processes share the growth.
    fn cause(&self) -> Option<ProcessId> {
        let evidence = self.whole.growing()?;
        let gained = |process: &ProcessDetectors| process.held.gained_since(evidence.since);
        let gains = self
            .processes
            .iter()
            .map(|(id, process)| (*id, gained(process)));
        let (id, most) = gains.max_by(|one, other| one.1.total_cmp(&other.1))?;
        (most > CAUSE * kib(evidence.gained)).then_some(id)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::model) struct LeakDetectors(#[serde(with = "pairs")] BTreeMap<GpuUuid, GpuDetectors>);

impl LeakDetectors {
    /// Whether the detectors of a checkpoint, which may be forged, keep the rules that arithmetic
    /// with them relies on.
    pub(in crate::model) fn are_sound(&self) -> bool {
        let processes = || self.0.values().flat_map(|gpu| gpu.processes.values());
        let wholes = self.0.values().map(|gpu| &gpu.whole);
        let held = processes().map(|process| &process.held);
        wholes
            .chain(held)
            .chain(processes().filter_map(|process| process.tensors.as_deref()))
            .all(LeakDetector::is_sound)
    }

    /// Adds the memory readings of a snapshot. A missing reading adds no sample.
    pub(in crate::model) fn add_snapshot(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            let (at, used, total) = (
                gpu.load.at,
                gpu.load.memory_used.ok(),
                gpu.load.memory_total.ok(),
            );
            let detectors = self.0.entry(gpu.uuid.clone()).or_default();
            if let Some(used) = used {
                detectors.whole.push(at, used, total);
            }
            // A process runs out of memory when the GPU does: its limit is its own memory plus what
            // is free.
            let free = total
                .zip(used)
                .map(|(total, used)| total.saturating_sub(used));
            let limit = |own: Bytes| free.map(|free| Bytes(free.0.saturating_add(own.0)));
            for gpu_process in &gpu.processes {
                // Skip a process that the agent has not read yet: it gets another id in the next
                // snapshot.
                let Some(process) = snapshot.process(gpu_process.process) else {
                    continue;
                };
                let detectors = detectors.processes.entry(process.id).or_default();
                if let Ok(held) = gpu_process.memory {
                    detectors.held.push(at, held, limit(held));
                }
                detectors.loading.add(snapshot.at, gpu_process, process);
                let devices = process
                    .allocator
                    .iter()
                    .flat_map(|allocator| &allocator.devices);
                let mut on_gpu = devices.filter(|device| device.gpu.as_ref() == Some(&gpu.uuid));
                if let Some(reserved) = on_gpu.find_map(|device| ReservedMemory::of(device).ok()) {
                    // Tensors may take all reserved memory but the pending part, which another
                    // stream still uses.
                    let room = reserved.sum().saturating_sub(reserved.pending);
                    detectors.tensors.get_or_insert_default().push(
                        at,
                        reserved.allocated,
                        limit(room),
                    );
                }
            }
            detectors.processes.retain(|_, process| {
                process.tensors.take_if(|tensors| !tensors.is_fed(at));
                process.held.is_fed(at) || process.tensors.is_some()
            });
        }
        self.0
            .retain(|_, gpu| gpu.whole.last.is_none() || gpu.whole.is_fed(snapshot.at));
        self.drop_surplus(snapshot);
    }

    /// Drops the detectors of the processes that ended first, when too many have ended.
    fn drop_surplus(&mut self, snapshot: &Snapshot) {
        let count: usize = self.0.values().map(|gpu| gpu.processes.len()).sum();
        if count <= MOST_ENDED {
            return;
        }
        // A process that the latest reading of its GPU shows has a sample of that time.
        let read_at = |gpu: &GpuUuid| {
            snapshot
                .gpu(gpu)
                .map_or(Moment(u64::MAX), |gpu| gpu.load.at)
        };
        let of_gpus = self
            .0
            .iter()
            .map(|(gpu, detectors)| (read_at(gpu), &detectors.processes));
        let all = of_gpus.flat_map(|(read_at, processes)| {
            processes.values().map(move |one| (read_at, one.last()))
        });
        let mut ends: Vec<Moment> = all
            .filter(|(read_at, last)| last < read_at)
            .map(|(_, last)| last)
            .collect();
        if let Some(surplus) = ends.len().checked_sub(MOST_ENDED + 1) {
            let (_, latest, _) = ends.select_nth_unstable(surplus);
            for (gpu, detectors) in &mut self.0 {
                detectors
                    .processes
                    .retain(|_, one| one.last() > *latest || one.last() >= read_at(gpu));
            }
        }
    }

    /// The processes whose memory on some GPU, in total or of tensors, grows, leak or not, or that
    /// cause the growth of a GPU; a process on several GPUs may come more than once.
    pub(in crate::model) fn suspects(&self) -> impl Iterator<Item = ProcessId> {
        let grows = |detector: &LeakDetector| detector.verdict().grows();
        let growing = move |gpu: &GpuDetectors| {
            let processes = gpu.processes.iter();
            let growing = processes.filter(move |(_, process)| {
                grows(&process.held) || process.tensors.as_deref().is_some_and(grows)
            });
            growing
                .map(|(id, _)| *id)
                .chain(gpu.cause())
                .collect::<Vec<_>>()
        };
        self.0.values().flat_map(growing)
    }

    /// The detectors of all GPUs whose memory grows because of this process.
    pub(super) fn gpus_filled_by(&self, id: ProcessId) -> impl Iterator<Item = &LeakDetector> {
        self.0
            .values()
            .filter(move |gpu| gpu.cause() == Some(id))
            .map(|gpu| &gpu.whole)
    }

    /// The process that causes the growth of a GPU, which may have ended; `None` where nobody does
    /// alone.
    pub(in crate::model) fn cause(&self, gpu: &GpuUuid) -> Option<ProcessId> {
        self.0.get(gpu)?.cause()
    }

    /// Whether a process that grows loads, by the signs on each of its GPUs.
    pub(in crate::model) fn loading(&self, id: ProcessId) -> impl Iterator<Item = &LoadingSigns> {
        self.on_gpus(id).map(|process| &process.loading)
    }

    /// The detector of all memory in use on a GPU.
    pub(in crate::model) fn gpu(&self, gpu: &GpuUuid) -> Option<&LeakDetector> {
        self.0.get(gpu).map(|gpu| &gpu.whole)
    }

    /// The detector of a process's memory, on the GPU with the worst verdict.
    pub(in crate::model) fn process(&self, id: ProcessId) -> Option<&LeakDetector> {
        let held = self
            .on_gpus(id)
            .map(|process| &process.held)
            .filter(|held| held.last.is_some());
        held.max_by_key(|detector| detector.verdict())
    }

    /// The detector of a process's tensor memory, on the GPU with the worst verdict.
    pub(super) fn tensors(&self, id: ProcessId) -> Option<&LeakDetector> {
        self.on_gpus(id)
            .filter_map(|process| process.tensors.as_deref())
            .max_by_key(|detector| detector.verdict())
    }

    fn on_gpus(&self, id: ProcessId) -> impl Iterator<Item = &ProcessDetectors> {
        self.0
            .values()
            .filter_map(move |gpu| gpu.processes.get(&id))
            .map(Box::as_ref)
    }
}

impl LeakDetector {
    /// Whether the last sample is younger than [`GONE`].
    fn is_fed(&self, now: Moment) -> bool {
        self.last.is_some_and(|(last, _)| now.since(last) < GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    #[test]
    fn only_so_many_ended_processes_are_kept_the_latest_of_them() {
        const EACH_PASS: u32 = 3000;
        let mut detectors = LeakDetectors::default();
        let mut host = example::host(1);
        for pass in 0..10 {
            host = (1..=EACH_PASS).fold(example::host(1).later(pass), |host, number| {
                host.with(
                    u32::try_from(pass).unwrap() * EACH_PASS + number,
                    "train",
                    0,
                    Bytes::from_mib(1),
                )
            });
            detectors.add_snapshot(&host);
        }
        let kept = &detectors.0[&host.gpus[0].uuid].processes;
        let living = host.processes.len();
        assert!(
            kept.len() <= MOST_ENDED + living && kept.len() + living > MOST_ENDED,
            "{}",
            kept.len()
        );
        assert!(
            host.processes
                .iter()
                .all(|process| kept.contains_key(&process.id))
        );
        assert!(kept.keys().all(|id| id.pid > EACH_PASS));
    }
}
