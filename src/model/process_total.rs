//! Sums of readings, and what each process uses over all its GPUs.

use std::fmt;

use crate::base::units::{Bytes, Percent};
use crate::protocol::snapshot::{Gpu, GpuProcess, ProcessId, Reading, Snapshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    pub bytes: Bytes,
    /// Whether a reading is missing: the true sum is `bytes` or more.
    pub is_lower_bound: bool,
}

impl Total {
    /// Sums readings. When all are missing, so is the sum, for the reason of the first.
    pub fn sum_bytes(parts: impl Iterator<Item = Reading<Bytes>>) -> Reading<Self> {
        Self::sum(parts.map(|part| {
            part.map(|bytes| Self {
                bytes,
                is_lower_bound: false,
            })
        }))
    }

    pub fn sum(totals: impl Iterator<Item = Reading<Self>>) -> Reading<Self> {
        let (mut known, mut missing) = (None::<Self>, None);
        for total in totals {
            match total {
                Ok(total) => {
                    let sum = known.get_or_insert_default();
                    sum.bytes = Bytes(sum.bytes.0.saturating_add(total.bytes.0));
                    sum.is_lower_bound |= total.is_lower_bound;
                }
                Err(why) => missing = missing.or(Some(why)),
            }
        }
        match (known, missing) {
            (Some(sum), missing) => Ok(Self {
                is_lower_bound: sum.is_lower_bound || missing.is_some(),
                ..sum
            }),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(Self::default()),
        }
    }
}

/// `41.2 GiB`, `≥ 41.2 GiB`.
impl fmt::Display for Total {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}{}",
            if self.is_lower_bound { "≥ " } else { "" },
            self.bytes
        )
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProcessTotal {
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

impl ProcessTotal {
    /// Returns what a GPU process uses on its GPU, which has this index in the snapshot.
    pub(crate) fn on_gpu(gpu_process: &GpuProcess, gpu: &Gpu, place: usize) -> Self {
        Self {
            process: gpu_process.process,
            gpus: vec![place],
            memory: Total::sum_bytes([gpu_process.memory].into_iter()),
            capacity: Total::sum_bytes([gpu.load.memory_total].into_iter()),
            sm: gpu_process.sm,
        }
    }
}

/// Returns the totals of all processes that use a GPU, in the order of the snapshot's processes.
pub(super) fn process_totals(snapshot: &Snapshot) -> Vec<ProcessTotal> {
    // Indices of the process, the GPU and the GPU process.
    let mut places: Vec<(usize, usize, usize)> = Vec::new();
    for (gpu_at, gpu) in snapshot.gpus.iter().enumerate() {
        // Skip a process that the agent has not read yet: it gets another id in the next snapshot.
        let place = |id| {
            snapshot
                .processes
                .binary_search_by_key(&id, |process| process.id)
                .ok()
        };
        let users = gpu.processes.iter().enumerate();
        places.extend(
            users.filter_map(|(at, gpu_process)| Some((place(gpu_process.process)?, gpu_at, at))),
        );
    }
    places.sort_unstable();
    places
        .chunk_by(|a, b| a.0 == b.0)
        .map(|places| {
            let gpus: Vec<usize> = places.iter().map(|(_, gpu, _)| *gpu).collect();
            let uses = || {
                let pairs = snapshot.gpus_at(&gpus).zip(places);
                pairs.filter_map(|(gpu, (_, _, at))| gpu.processes.get(*at))
            };
            ProcessTotal {
                process: snapshot.processes[places[0].0].id,
                memory: Total::sum_bytes(uses().map(|gpu_process| gpu_process.memory)),
                capacity: Total::sum_bytes(
                    snapshot.gpus_at(&gpus).map(|gpu| gpu.load.memory_total),
                ),
                sm: uses()
                    .map(|gpu_process| gpu_process.sm.map(Percent::value))
                    .sum::<Reading<f32>>()
                    .map(Percent::new),
                gpus,
            }
        })
        .collect()
}
