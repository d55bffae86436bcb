//! Sums of readings, and what each process uses over all its GPUs.

use crate::base::units::{Bytes, Percent};
use crate::protocol::snapshot::{ProcessId, Reading, Snapshot};

/// A sum of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// The sum of the readings that succeeded.
    pub bytes: Bytes,
    /// Whether a reading is missing: the true sum is `bytes` or more.
    pub lower_bound: bool,
}

impl Total {
    /// Sums readings. When all are missing, so is the sum, for the reason of the first.
    pub fn of(parts: impl Iterator<Item = Reading<Bytes>>) -> Reading<Self> {
        let (mut known, mut missing) = (None, None);
        for part in parts {
            match part {
                Ok(bytes) => known = Some(Bytes(known.map_or(0, |sum: Bytes| sum.0).saturating_add(bytes.0))),
                Err(why) => missing = missing.or(Some(why)),
            }
        }
        match (known, missing) {
            (Some(bytes), missing) => Ok(Self { bytes, lower_bound: missing.is_some() }),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(Self { bytes: Bytes(0), lower_bound: false }),
        }
    }

    /// Sums totals.
    pub fn sum(totals: impl Iterator<Item = Reading<Self>>) -> Reading<Self> {
        let mut lower_bound = false;
        let parts = totals.map(|total| {
            total.map(|total| {
                lower_bound |= total.lower_bound;
                total.bytes
            })
        });
        let sum = Self::of(parts);
        sum.map(|sum| Self { lower_bound: sum.lower_bound || lower_bound, ..sum })
    }
}

/// The use of all GPUs by one process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProcessTotal {
    /// The process that uses the GPUs.
    pub process: ProcessId,
    /// The indices of the GPUs in [`Snapshot::gpus`].
    pub gpus: Vec<usize>,
    /// The device memory that the process holds.
    pub memory: Reading<Total>,
    /// The memory size of those GPUs together.
    pub capacity: Reading<Total>,
    /// The sum of its shares of the multiprocessors: 100 % is one whole GPU.
    pub sm: Reading<Percent>,
}

/// Returns the totals of all processes that use a GPU, in the order of the snapshot's processes.
pub(super) fn process_totals(snapshot: &Snapshot) -> Vec<ProcessTotal> {
    // Indices of the process, the GPU and the GPU process.
    let mut places: Vec<(usize, usize, usize)> = Vec::new();
    for (gpu_at, gpu) in snapshot.gpus.iter().enumerate() {
        // Skip a process that the agent has not read yet: it gets another id in the next snapshot.
        let place = |id| snapshot.processes.binary_search_by_key(&id, |process| process.id).ok();
        let users = gpu.processes.iter().enumerate();
        places.extend(users.filter_map(|(at, gpu_process)| Some((place(gpu_process.process)?, gpu_at, at))));
    }
    places.sort_unstable();
    places
        .chunk_by(|a, b| a.0 == b.0)
        .map(|places| {
            let uses = || places.iter().map(|(_, gpu, at)| &snapshot.gpus[*gpu].processes[*at]);
            ProcessTotal {
                process: snapshot.processes[places[0].0].id,
                gpus: places.iter().map(|(_, gpu, _)| *gpu).collect(),
                memory: Total::of(uses().map(|gpu_process| gpu_process.memory)),
                capacity: Total::of(places.iter().map(|(_, gpu, _)| snapshot.gpus[*gpu].load.memory_total)),
                sm: uses()
                    .map(|gpu_process| gpu_process.sm.map(Percent::value))
                    .sum::<Reading<f32>>()
                    .map(Percent::new),
            }
        })
        .collect()
}
