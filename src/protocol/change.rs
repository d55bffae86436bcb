//! The difference between two snapshots: the content of a `tick` line.
//!
//! A change contains only the groups of readings that differ, each as a whole, and adds and removes
//! processes. A change can express any difference between two snapshots of one boot that list the
//! same GPUs in the same order; other differences need a `full` line.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{
    AllocatorStats, Driver, Failure, Gpu, GpuDetail, GpuFacts, GpuHealth, GpuLoad, GpuProcess,
    GpuUuid, Host, HostFacts, HostLoad, HostScan, MissingLists, ProbeReading, Process,
    ProcessFacts, ProcessId, ProcessLoad, Reading, SharedMemory, Snapshot, Trouble,
};

/// A new value, or `None` for one that did not change.
///
/// In JSON, an unchanged value is left out. A value that can itself be absent is an
/// `Update<Option<T>>`, whose `Some(None)`, "now absent", is `null` in JSON.
type Update<T> = Option<T>;

/// Reads an [`Update`] of an optional value. By default, serde takes `null` for an unchanged value.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Update<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Returns the new value where it differs from the old one.
fn update<T: PartialEq + Clone>(old: &T, new: &T) -> Update<T> {
    (old != new).then(|| new.clone())
}

fn replace<T>(value: &mut T, update: Update<T>) {
    if let Some(new) = update {
        *value = new;
    }
}

/// The difference between one snapshot and the next.
#[serde_with::apply(Update => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The number of the snapshot that this change leads to: one more than the number of the
    /// snapshot that the change starts from.
    pub sequence: u64,
    /// When the pass ended, in milliseconds since boot.
    #[serde(rename = "time_ms")]
    pub at: Moment,
    /// The same time by the host's wall clock: milliseconds since 1970 (UTC).
    #[serde(rename = "unix_time_ms")]
    pub unix_ms: u64,
    /// The new time from one pass to the next, in milliseconds.
    pub interval_ms: Update<u64>,
    /// Changes of the host.
    #[serde(default, skip_serializing_if = "HostChange::is_empty")]
    pub host: HostChange,
    /// The new readings of the driver.
    pub driver: Update<Driver>,
    /// Changes of GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuChange>,
    /// Processes that are new, with all their groups of readings, or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessChange>,
    /// Processes that ended, or that no longer relate to a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_processes: Vec<ProcessId>,
}

/// Changes of the host.
#[serde_with::apply(Update => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostChange {
    /// The new facts, of the same boot: for example another UTC offset.
    pub facts: Update<HostFacts>,
    /// Readings that change each second.
    pub load: Update<HostLoad>,
    /// The latest scan of every process.
    pub scan: Update<HostScan>,
}

impl HostChange {
    fn between(old: &Host, new: &Host) -> Self {
        let Host { facts, load, scan } = new;
        Self {
            facts: update(&old.facts, facts),
            load: update(&old.load, load),
            scan: update(&old.scan, scan),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn apply(self, host: &mut Host) {
        replace(&mut host.facts, self.facts);
        replace(&mut host.load, self.load);
        replace(&mut host.scan, self.scan);
    }
}

/// Changes of a GPU.
#[serde_with::apply(Update => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GpuChange {
    /// The UUID of the GPU.
    pub uuid: GpuUuid,
    /// The new facts: for example a product name that could not be read before.
    pub facts: Update<GpuFacts>,
    /// Readings that change each second.
    pub load: Update<GpuLoad>,
    /// Readings that change rarely.
    pub health: Update<GpuHealth>,
    /// The memory of the host that the GPU shares; `null` when it is not known to share any.
    #[serde(deserialize_with = "present")]
    pub shared_memory: Update<Option<SharedMemory>>,
    /// Readings of the GPU's page; `null` when they are no longer read.
    #[serde(deserialize_with = "present")]
    pub detail: Update<Option<Box<GpuDetail>>>,
    /// All GPU processes of the GPU, when `process_columns` cannot express the difference.
    pub processes: Update<Vec<GpuProcess>>,
    /// The changed readings of the GPU processes, when the processes and their order are the same
    /// and no changed reading is missing.
    pub process_columns: Update<GpuProcessColumns>,
    /// Why a list of the GPU is unknown; empty when all lists are known again.
    pub missing: Update<MissingLists>,
    /// The processes that have the GPU's device file open.
    pub device_file_holders: Update<Vec<ProcessId>>,
    /// Why the GPU does not answer; `null` when it answers again.
    #[serde(deserialize_with = "present")]
    pub trouble: Update<Option<Trouble>>,
    /// The functions of the driver that fail for the GPU while others work.
    pub failures: Update<Vec<Failure>>,
}

impl GpuChange {
    /// Returns the difference; `None` when there is none.
    fn between(old: &Gpu, new: &Gpu) -> Option<Self> {
        let Gpu {
            uuid,
            facts,
            load,
            health,
            shared_memory,
            detail,
            ..
        } = new;
        let Gpu {
            processes,
            missing,
            device_file_holders,
            trouble,
            failures,
            ..
        } = new;
        let changed_processes = old.processes != *processes;
        let process_columns = changed_processes
            .then(|| GpuProcessColumns::between(&old.processes, processes))
            .flatten();
        let change = Self {
            uuid: uuid.clone(),
            facts: update(&old.facts, facts),
            load: update(&old.load, load),
            health: update(&old.health, health),
            shared_memory: update(&old.shared_memory, shared_memory),
            detail: update(&old.detail, detail),
            processes: (changed_processes && process_columns.is_none()).then(|| processes.clone()),
            process_columns,
            missing: update(&old.missing, missing),
            device_file_holders: update(&old.device_file_holders, device_file_holders),
            trouble: update(&old.trouble, trouble),
            failures: update(&old.failures, failures),
        };
        (change
            != Self {
                uuid: uuid.clone(),
                ..Self::default()
            })
        .then_some(change)
    }

    /// Returns whether the change can be applied to this GPU: its columns have one value for each
    /// GPU process.
    fn fits(&self, gpu: &Gpu) -> bool {
        let length = self.processes.as_ref().unwrap_or(&gpu.processes).len();
        self.process_columns
            .as_ref()
            .is_none_or(|columns| columns.fits(length))
    }

    fn apply(self, gpu: &mut Gpu) {
        replace(&mut gpu.facts, self.facts);
        replace(&mut gpu.load, self.load);
        replace(&mut gpu.health, self.health);
        replace(&mut gpu.shared_memory, self.shared_memory);
        replace(&mut gpu.detail, self.detail);
        replace(&mut gpu.processes, self.processes);
        if let Some(columns) = self.process_columns {
            columns.apply(&mut gpu.processes);
        }
        replace(&mut gpu.missing, self.missing);
        replace(&mut gpu.device_file_holders, self.device_file_holders);
        replace(&mut gpu.trouble, self.trouble);
        replace(&mut gpu.failures, self.failures);
    }
}

/// The readings of all GPU processes of one GPU, in the order of the processes. A column in which
/// nothing changed is left out.
///
/// With an object for each process, these readings would be nine tenths of a tick of a thousand
/// processes.
#[serde_with::apply(Update => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuProcessColumns {
    /// Device memory that the driver gave to each process.
    #[serde(rename = "memory_used_bytes")]
    pub memory: Update<Vec<Bytes>>,
    /// Share of the last second in which kernels of each process ran.
    #[serde(rename = "sm_utilization_percent")]
    pub sm: Update<Vec<Percent>>,
}

impl GpuProcessColumns {
    /// Returns the changed columns; `None` where columns cannot express the difference.
    fn between(old: &[GpuProcess], new: &[GpuProcess]) -> Option<Self> {
        let is_same_process = |(old, new): (&GpuProcess, &GpuProcess)| {
            // A reading that is added to `GpuProcess` needs a column, unless most agents leave it
            // out.
            let GpuProcess {
                process,
                usage,
                memory: _,
                sm: _,
                engines,
                names,
            } = new;
            (process, usage, engines, names) == (&old.process, &old.usage, &old.engines, &old.names)
        };
        if old.len() != new.len() || !old.iter().zip(new).all(is_same_process) {
            return None;
        }
        let memory = column(old, new, |gpu_process| gpu_process.memory).ok()?;
        Some(Self {
            memory,
            sm: column(old, new, |gpu_process| gpu_process.sm).ok()?,
        })
    }

    fn fits(&self, gpu_processes: usize) -> bool {
        let lengths = [
            self.memory.as_ref().map(Vec::len),
            self.sm.as_ref().map(Vec::len),
        ];
        lengths
            .into_iter()
            .flatten()
            .all(|length| length == gpu_processes)
    }

    fn apply(self, gpu_processes: &mut [GpuProcess]) {
        for (gpu_process, memory) in gpu_processes
            .iter_mut()
            .zip(self.memory.into_iter().flatten())
        {
            gpu_process.memory = Ok(memory);
        }
        for (gpu_process, sm) in gpu_processes.iter_mut().zip(self.sm.into_iter().flatten()) {
            gpu_process.sm = Ok(sm);
        }
    }
}

/// Returns the new readings, or `None` when all are the same. Fails when a new reading is missing,
/// since a column cannot contain the reason.
fn column<T: PartialEq>(
    old: &[GpuProcess],
    new: &[GpuProcess],
    reading: impl Fn(&GpuProcess) -> Reading<T>,
) -> Reading<Update<Vec<T>>> {
    if old.iter().map(&reading).eq(new.iter().map(&reading)) {
        return Ok(None);
    }
    new.iter().map(reading).collect::<Reading<_>>().map(Some)
}

/// Changes of a process.
#[serde_with::apply(Update => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ProcessChangeJson")]
#[schemars(!from)]
pub struct ProcessChange {
    /// The identity of the process.
    #[serde(flatten)]
    pub id: ProcessId,
    /// Readings that change only by an `exec`, a new user ID or a new parent.
    pub facts: Update<Arc<ProcessFacts>>,
    /// Readings that change each second.
    pub load: Update<ProcessLoad>,
    /// PyTorch's allocator stats; `null` when they are no longer read.
    #[serde(rename = "allocator_stats")]
    pub allocator: Update<Option<Box<AllocatorStats>>>,
    /// The report of gputop's probe; `null` when it is no longer read.
    pub probe: Update<Option<Arc<ProbeReading>>>,
    /// The bytes that the process has read; `null` when they are no longer read.
    #[serde(rename = "read_bytes")]
    pub bytes_read: Update<Option<Bytes>>,
}

/// A [`ProcessChange`] as serde reads it: serde's `flatten` would first copy the object into a
/// tree.
#[derive(Deserialize)]
struct ProcessChangeJson {
    pid: u32,
    start_ticks: Option<u64>,
    facts: Update<Arc<ProcessFacts>>,
    load: Update<ProcessLoad>,
    #[serde(default, deserialize_with = "present")]
    allocator_stats: Update<Option<Box<AllocatorStats>>>,
    #[serde(default, deserialize_with = "present")]
    probe: Update<Option<Arc<ProbeReading>>>,
    #[serde(default, deserialize_with = "present")]
    read_bytes: Update<Option<Bytes>>,
}

impl From<ProcessChangeJson> for ProcessChange {
    fn from(json: ProcessChangeJson) -> Self {
        let ProcessChangeJson {
            pid,
            start_ticks,
            facts,
            load,
            allocator_stats: allocator,
            probe,
            read_bytes,
        } = json;
        Self {
            id: ProcessId { pid, start_ticks },
            facts,
            load,
            allocator,
            probe,
            bytes_read: read_bytes,
        }
    }
}

impl ProcessChange {
    fn empty(id: ProcessId) -> Self {
        Self {
            id,
            facts: None,
            load: None,
            allocator: None,
            probe: None,
            bytes_read: None,
        }
    }

    /// Returns the difference; `None` when there is none.
    fn between(old: &Process, new: &Process) -> Option<Self> {
        let Process {
            id,
            facts,
            load,
            allocator,
            probe,
            bytes_read,
        } = new;
        let change = Self {
            id: *id,
            facts: update(&old.facts, facts),
            load: update(&old.load, load),
            allocator: update(&old.allocator, allocator),
            probe: update(&old.probe, probe),
            bytes_read: update(&old.bytes_read, bytes_read),
        };
        (change != Self::empty(*id)).then_some(change)
    }

    fn added(process: &Process) -> Self {
        let Process {
            id,
            facts,
            load,
            allocator,
            probe,
            bytes_read,
        } = process;
        let (allocator, probe) = (allocator.clone().map(Some), probe.clone().map(Some));
        let bytes_read = bytes_read.map(Some);
        Self {
            id: *id,
            facts: Some(facts.clone()),
            load: Some(load.clone()),
            allocator,
            probe,
            bytes_read,
        }
    }
}

impl Change {
    /// Returns the change that leads from `old` to `new`; `None` where only a `full` line can.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Option<Self> {
        let Snapshot {
            schema,
            sequence,
            at,
            unix_ms,
            interval_ms,
            agent,
            host,
            driver,
            gpus,
            processes,
        } = new;
        let same_gpus = old
            .gpus
            .iter()
            .map(|gpu| &gpu.uuid)
            .eq(gpus.iter().map(|gpu| &gpu.uuid));
        if old.sequence + 1 != *sequence
            || old.schema != *schema
            || old.agent != *agent
            || old.host.facts.boot_id != host.facts.boot_id
            || !same_gpus
        {
            return None;
        }
        let ids_of_old = old.processes.iter().map(|process| process.id);
        let process_change = |process: &Process| match old.process(process.id) {
            Some(old) => ProcessChange::between(old, process),
            None => Some(ProcessChange::added(process)),
        };
        Some(Self {
            sequence: *sequence,
            at: *at,
            unix_ms: *unix_ms,
            interval_ms: update(&old.interval_ms, interval_ms),
            host: HostChange::between(&old.host, host),
            driver: update(&old.driver, driver),
            gpus: old
                .gpus
                .iter()
                .zip(gpus)
                .filter_map(|(old, new)| GpuChange::between(old, new))
                .collect(),
            processes: processes.iter().filter_map(process_change).collect(),
            removed_processes: ids_of_old.filter(|id| new.process(*id).is_none()).collect(),
        })
    }
}

/// The error that a change does not start from this snapshot: a line was lost, or there are two
/// writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfStep;

/// The largest number of processes of one host that a reader keeps: the default limit of PIDs of a
/// Linux kernel.
pub const MOST_PROCESSES: usize = 32_768;

impl Snapshot {
    /// Turns this snapshot into the one that the change leads to. Returns an error when the change
    /// starts from another snapshot. This snapshot then stays as it is; the next `full` line
    /// replaces it.
    pub fn apply(&mut self, change: Change) -> Result<(), OutOfStep> {
        let fits = |change: &GpuChange| self.gpu(&change.uuid).is_none_or(|gpu| change.fits(gpu));
        if self.sequence.checked_add(1) != Some(change.sequence) || !change.gpus.iter().all(fits) {
            return Err(OutOfStep);
        }
        self.sequence = change.sequence;
        self.at = change.at;
        self.unix_ms = change.unix_ms;
        replace(&mut self.interval_ms, change.interval_ms);
        change.host.apply(&mut self.host);
        replace(&mut self.driver, change.driver);
        for change in change.gpus {
            if let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.uuid == change.uuid) {
                change.apply(gpu);
            }
        }
        if !change.removed_processes.is_empty() {
            let removed: HashSet<ProcessId> = change.removed_processes.into_iter().collect();
            self.processes
                .retain(|process| !removed.contains(&process.id));
        }
        self.apply_processes(change.processes);
        Ok(())
    }

    fn apply_processes(&mut self, changes: Vec<ProcessChange>) {
        let known = self.processes.len();
        for mut change in changes {
            let found =
                self.processes[..known].binary_search_by_key(&change.id, |process| process.id);
            if let (Some(facts), Some(other)) = (&mut change.facts, self.facts_before(found.ok())) {
                Arc::make_mut(facts).share(other);
            }
            match (found, change.facts, change.load) {
                (Ok(place), facts, load) => {
                    let process = &mut self.processes[place];
                    replace(&mut process.facts, facts);
                    replace(&mut process.load, load);
                    replace(&mut process.allocator, change.allocator);
                    replace(&mut process.probe, change.probe);
                    replace(&mut process.bytes_read, change.bytes_read);
                }
                (Err(_), Some(facts), Some(load)) if self.processes.len() < MOST_PROCESSES => {
                    let (allocator, probe) = (change.allocator.flatten(), change.probe.flatten());
                    let bytes_read = change.bytes_read.flatten();
                    self.processes.push(Process {
                        id: change.id,
                        facts,
                        load,
                        allocator,
                        probe,
                        bytes_read,
                    });
                }
                // Ignores a new process without its readings, or beyond the limit: the writer is
                // not gputop.
                (Err(_), ..) => {}
            }
        }
        if self.processes.len() > known {
            self.processes.sort_by_key(|process| process.id);
            self.processes.dedup_by_key(|process| process.id);
        }
    }

    /// Returns the facts of the process before that place, or of the last process: that process is
    /// usually of the same job.
    fn facts_before(&self, at: Option<usize>) -> Option<&ProcessFacts> {
        self.processes[..at.unwrap_or(self.processes.len())]
            .last()
            .map(|process| process.facts.as_ref())
    }
}

#[cfg(test)]
mod tests;
