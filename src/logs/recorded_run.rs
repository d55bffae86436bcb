//! A recording folded into the figures of a page: for each GPU and process its curves in a bounded
//! number of points, and what was found: events, leaks, suspects, and times when memory ran out.
//!
//! All lines go through the model of the live view, so the findings are those that the screen had.
//! The memory does not grow with the length of the recording.

mod decimated;
mod findings;
mod fold;
mod lines;
mod memory_layer;
mod observed_growth;
mod process_run;
mod range;

use std::collections::BTreeMap;

pub(crate) use self::decimated::{Decimated, Extremes, Mean};
pub(crate) use self::findings::{HeldMemory, LeakFound, RunEvent, SuspectFound};
pub(crate) use self::fold::{fold, fold_with};
pub(crate) use self::lines::read as read_lines;
pub(crate) use self::memory_layer::MemoryLayer;
pub(crate) use self::observed_growth::{ObservedGrowth, rate_error};
pub(crate) use self::process_run::ProcessRun;
pub(crate) use self::range::RunRange;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::UserHues;
use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// A recording, folded.
#[derive(Debug)]
pub(crate) struct RecordedRun {
    pub(crate) hosts: Vec<HostRun>,
    /// One sentence for each problem with the file.
    pub(crate) problems: Vec<String>,
    /// The hues of the users, as a replay of the recording shows them.
    pub(crate) user_hues: UserHues,
}

/// A process of a recording. A recording may go on after a reboot, which starts the identities of
/// processes anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessKey {
    /// Counts the boots of the host in the recording from 0.
    pub(crate) boot: u32,
    pub(crate) id: ProcessId,
}

/// A GPU or a process of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunSubject {
    Gpu(GpuUuid),
    Process(ProcessKey),
}

/// A host in a recording. Times are milliseconds since 1970 (UTC), by the clock of the host when
/// the recording or the boot began.
#[derive(Debug)]
pub(crate) struct HostRun {
    pub(crate) name: Text,
    /// How far the local time of the host is ahead of UTC, in seconds; `None` when it is not known.
    pub(crate) utc_offset: Option<i32>,
    /// The version of the driver.
    pub(crate) driver: Option<Text>,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// In the order of the GPUs of the host.
    pub(crate) gpus: Vec<GpuRun>,
    pub(crate) processes: BTreeMap<ProcessKey, ProcessRun>,
    /// In the order of time.
    pub(crate) events: Vec<RunEvent>,
    pub(crate) leaks: Vec<LeakFound>,
    pub(crate) suspects: Vec<SuspectFound>,
}

/// A GPU in a recording.
#[derive(Debug)]
pub(crate) struct GpuRun {
    pub(crate) uuid: GpuUuid,
    /// The index, or index and instance.
    pub(crate) label: String,
    pub(crate) name: Option<Text>,
    /// `None` when it was never read.
    pub(crate) capacity: Option<Bytes>,
    pub(crate) power_limit: Option<f32>,
    pub(crate) memory: RunMemory,
    /// The memory in use, with the processes that hold it in KiB.
    pub(crate) curve: Decimated<Extremes<Vec<(ProcessKey, u32)>>>,
    pub(crate) sm: LoadRange,
    pub(crate) power: LoadRange,
    pub(crate) temperature: LoadRange,
}

/// The lowest and the highest amount of memory, with their times.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunMemory {
    pub(crate) peak: Option<(u64, Bytes)>,
    pub(crate) lowest: Option<(u64, Bytes)>,
}

impl RunMemory {
    fn add(&mut self, at: u64, bytes: Bytes) {
        if self.peak.is_none_or(|(_, peak)| bytes > peak) {
            self.peak = Some((at, bytes));
        }
        if self.lowest.is_none_or(|(_, lowest)| bytes < lowest) {
            self.lowest = Some((at, bytes));
        }
    }
}

/// A value such as utilization over time, and over the whole recording.
#[derive(Debug)]
pub(crate) struct LoadRange {
    pub(crate) curve: Decimated<Mean>,
    /// `None` when it was never read.
    pub(crate) all: Option<Mean>,
}

impl LoadRange {
    fn new() -> Self {
        Self {
            curve: Decimated::new(GPU_BUCKETS),
            all: None,
        }
    }

    fn add(&mut self, at: u64, value: Option<f32>) {
        use self::decimated::DecimatedBucket;
        let Some(value) = value else { return };
        self.curve.push(at, Mean::of(value));
        match &mut self.all {
            Some(all) => all.merge(Mean::of(value)),
            None => self.all = Some(Mean::of(value)),
        }
    }
}

/// The most buckets of a curve of a GPU. A page is at most that many pixels wide, and each bucket
/// has two points.
const GPU_BUCKETS: usize = 480;

impl RecordedRun {
    /// Keeps one process, its GPUs and its findings. Returns whether there is one with this PID.
    pub(crate) fn keep_process(&mut self, pid: u32) -> bool {
        self.hosts.retain(|host| host.process_by_pid(pid).is_some());
        self.hosts.truncate(1);
        for host in &mut self.hosts {
            let Some(key) = host.process_by_pid(pid) else {
                continue;
            };
            host.processes.retain(|other, _| *other == key);
            let gpus = host
                .processes
                .get(&key)
                .map(|process| process.gpus.clone())
                .unwrap_or_default();
            host.gpus.retain(|gpu| gpus.contains(&gpu.uuid));
            host.forget_findings();
        }
        !self.hosts.is_empty()
    }

    /// Keeps one GPU, its processes and their findings. Returns whether there is a GPU with this
    /// label.
    pub(crate) fn keep_gpu(&mut self, label: &str) -> bool {
        for host in &mut self.hosts {
            host.gpus.retain(|gpu| gpu.label == label);
            let gpus: Vec<GpuUuid> = host.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
            host.processes
                .retain(|_, process| process.gpus.iter().any(|gpu| gpus.contains(gpu)));
            host.forget_findings();
        }
        self.hosts.retain(|host| !host.gpus.is_empty());
        !self.hosts.is_empty()
    }
}

impl HostRun {
    /// Forgets the findings about GPUs and processes that are not kept.
    fn forget_findings(&mut self) {
        let (gpus, processes) = (&self.gpus, &self.processes);
        let is_kept = |subject: &RunSubject| match subject {
            RunSubject::Gpu(uuid) => gpus.iter().any(|gpu| gpu.uuid == *uuid),
            RunSubject::Process(key) => processes.contains_key(key),
        };
        self.events.retain(|event| is_kept(&event.subject));
        self.leaks.retain(|leak| is_kept(&leak.subject));
        self.suspects
            .retain(|suspect| processes.contains_key(&suspect.process));
    }

    /// Returns the GPU with this UUID.
    pub(crate) fn gpu(&self, uuid: &GpuUuid) -> Option<&GpuRun> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }

    /// Returns the GPU with the highest memory.
    pub(crate) fn fullest_gpu(&self) -> Option<&GpuRun> {
        self.gpus
            .iter()
            .max_by_key(|gpu| gpu.memory.peak.map(|(_, peak)| peak))
    }

    /// Returns the processes with the highest memory first.
    pub(crate) fn largest_processes(&self) -> Vec<(ProcessKey, &ProcessRun)> {
        let mut processes: Vec<_> = self
            .processes
            .iter()
            .map(|(key, process)| (*key, process))
            .collect();
        processes.sort_by_key(|(key, process)| {
            (
                std::cmp::Reverse(process.memory.peak.map(|(_, peak)| peak)),
                *key,
            )
        });
        processes
    }

    /// Returns the process with this PID; if several had it, the one at the end of the recording,
    /// else the largest.
    pub(crate) fn process_by_pid(&self, pid: u32) -> Option<ProcessKey> {
        let mut processes = self.largest_processes();
        processes.retain(|(key, _)| key.id.pid == pid);
        let last = processes
            .iter()
            .find(|(_, process)| process.is_there)
            .or(processes.first());
        last.map(|(key, _)| *key)
    }

    /// Returns `train.py (PID 4711)`, or `GPU 0`.
    pub(crate) fn subject_name(&self, subject: &RunSubject) -> String {
        match subject {
            RunSubject::Gpu(uuid) => self
                .gpu(uuid)
                .map_or_else(|| "a GPU".to_owned(), |gpu| format!("GPU {}", gpu.label)),
            RunSubject::Process(key) => match self.processes.get(key) {
                Some(process) => process.name_with_pid(*key),
                None => format!("PID {}", key.id.pid),
            },
        }
    }
}
