//! Everything that an agent saw of its host in one pass, as plain data, and its JSON form.
//!
//! The agent writes a [`Snapshot`] as a `full` line, and the
//! [`Change`](crate::protocol::change::Change) to the next one as a `tick` line. The viewer,
//! recordings and `--json` use the same lines. Nothing here reads a device or a file, or judges
//! what was read.
//!
//! - Readings that are taken together are a group with one time ([`readings`]).
//! - A [`GpuProcess`] is one process's use of one GPU. A [`Process`] is listed once, however many
//!   GPUs it uses.
//! - An instance of a GPU that is split by MIG is a [`Gpu`] of its own that names its parent.

mod agent_facts;
mod allocator_stats;
#[cfg(test)]
pub(crate) mod arbitrary;
mod distributed;
#[cfg(test)]
pub(crate) mod example;
mod gpu_detail;
mod gpu_process;
mod missing_by_name;
mod module_memory;
mod probe;
pub(crate) mod probe_version_1;
mod process_id;
mod program_marks;
mod readings;
mod tensor_group;
mod trouble;

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use self::agent_facts::AgentFacts;
pub use self::allocator_stats::{AllocatorStats, AllocatorUnreadable};
pub use self::distributed::DistributedFacts;
pub use self::gpu_detail::GpuDetail;
pub use self::gpu_process::{EngineShares, GpuProcess, ProcessNames};
pub use self::module_memory::{KeptResult, ModuleMemory, ModuleRow};
pub use self::probe::{
    ChangesSince, LineMemory, OmittedGroups, PeakParts, ProbeAnswer, ProbeDevice, ProbeMissing,
    ProbeReading, ProbeReport, StackRecording, StepEnd, TensorFill, TensorLeak, TrainingSteps,
};
pub use self::process_id::{ArgvDelay, Identity, ProcessId, State};
pub use self::program_marks::{MarkPair, MarkedDevice, OmittedChange, ProgramMark};
pub use self::readings::{
    DeviceAllocator, EccCounts, GpuFacts, GpuHealth, GpuLoad, HostFacts, HostLoad, HostScan,
    ProcessFacts, ProcessLoad,
};
pub use self::tensor_group::{AllocationLines, TensorCategory, TensorGroup};
pub use self::trouble::{Cause, Failure, Trouble};
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Moment};
use crate::protocol::launchers;

/// A value that was read, or the reason why there is none.
pub type Reading<T> = Result<T, Missing>;

/// Why a reading has no value. Reasons that ask for different actions of the user print
/// differently.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// This GPU, driver or system does not report the value. Prints `N/A`.
    #[strum(to_string = "N/A")]
    Unsupported,
    /// Reading the value needs other permissions. Prints `perm`.
    #[strum(to_string = "perm")]
    Denied,
    /// The driver lists the process, and it has ended. Prints `N/A`.
    #[strum(to_string = "N/A")]
    Gone,
    /// Not read yet, or a rate that needs a second reading. Prints `…`.
    #[strum(to_string = "…")]
    NotYet,
    /// The agent was started with `--only`, and this reading was not asked for. Prints `N/A`. In
    /// JSON it is `unsupported`, and its name is in `not_asked` beside `missing`.
    #[strum(to_string = "N/A")]
    #[serde(rename = "unsupported", skip_deserializing)]
    NotAsked,
    /// Reading the value failed. Prints `ERR`. A reason of a later version, which this one does not
    /// know, counts as this one.
    #[strum(to_string = "ERR")]
    #[serde(other)]
    Failed,
}

/// The UUID of a GPU or of a MIG instance. Unlike the index, the UUID stays the same when another
/// GPU is lost.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct GpuUuid(pub Text);

impl GpuUuid {
    /// The beginning of a name that stands for a UUID.
    pub(crate) const UNKNOWN: &str = "unknown-";

    /// Stands for the UUID of a GPU that could not be read, since the agent started.
    pub(crate) fn unknown(index: u32) -> Self {
        Self(format!("{}{index}", Self::UNKNOWN).into())
    }

    /// Whether this only stands for a UUID.
    pub(crate) fn is_unknown(&self) -> bool {
        self.0.as_str().starts_with(Self::UNKNOWN)
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a process uses a GPU, by the lists of NVML that name it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// In the list of compute processes.
    #[strum(to_string = "C")]
    Compute,
    /// In the list of graphics processes.
    #[strum(to_string = "G")]
    Graphics,
    /// In both lists.
    #[strum(to_string = "C+G")]
    ComputeAndGraphics,
    /// A client of the MPS server.
    #[strum(to_string = "M+C")]
    Mps,
}

/// Why a clock is below the requested one: the NVML clocks event reasons that slow a job down.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The power limit set in software.
    #[strum(to_string = "power cap")]
    PowerCap,
    /// The temperature limit set in software.
    #[strum(to_string = "thermal")]
    Thermal,
    /// The temperature limit of the hardware: clocks are halved, or lower.
    #[strum(to_string = "hw thermal")]
    HardwareThermal,
    /// A power brake that the power supply requested.
    #[strum(to_string = "power brake")]
    PowerBrake,
    /// Hardware slowdown, for temperature or power.
    #[strum(to_string = "hw slowdown")]
    Hardware,
    /// Another GPU of the sync group is slower.
    #[strum(to_string = "sync boost")]
    SyncBoost,
}

/// An error that the driver reported by an Xid number of NVIDIA's catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Xid {
    /// When the driver reported it, in milliseconds since boot.
    #[serde(rename = "time_ms")]
    pub at: Moment,
    /// The Xid number: 79 when the GPU has fallen off the bus.
    pub code: u64,
}

/// The path from one GPU to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// The NVML index of the other GPU.
    #[serde(rename = "gpu_index")]
    pub to: u32,
    /// The nearest common part of both GPUs, as `nvmlGpuTopologyLevel_t`: 0 board, 10 PCIe switch,
    /// 20 several PCIe switches, 30 host bridge, 40 NUMA node, 50 the link between CPUs.
    #[serde(rename = "topology_level")]
    pub level: u32,
    /// Whether both GPUs can reach each other over NVLink; `null` when the driver does not report
    /// it.
    pub nvlink: Option<bool>,
}

/// The NVIDIA driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Driver {
    /// The driver version, as in `580.65.06`; `null` when it could not be read.
    pub version: Option<Text>,
    /// The newest CUDA version that the driver supports, as in `13.0`; `null` when it could not be
    /// read.
    pub cuda_version: Option<Text>,
    /// The trouble of the driver as a whole: why it cannot be used, or which of its functions
    /// hangs; `null` while there is none.
    pub trouble: Option<Trouble>,
    /// The functions of the driver that fail while others work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// The memory of the host, which a GPU shares with the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedMemory {
    /// Memory in use by all programs of the host: total minus available.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// Total memory.
    #[serde(rename = "total_bytes")]
    pub total: Bytes,
}

/// The lists of a GPU that could not be read.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingLists {
    /// Why the processes that use the GPU are unknown; absent when the driver listed them. The
    /// reason is `unsupported` where the driver cannot list them (WSL 2, vGPU), and `failed` while
    /// a call hangs, which the GPU's `trouble` then names.
    pub processes: Option<Missing>,
    /// Whether the processes are unknown because the agent was not asked for them. The reason is
    /// then `unsupported`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processes_not_asked: bool,
}

impl MissingLists {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One GPU, or one instance of a GPU that is split by MIG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// The UUID of the GPU or MIG instance.
    pub uuid: GpuUuid,
    /// Static facts.
    pub facts: GpuFacts,
    /// Readings that change each second.
    pub load: GpuLoad,
    /// Readings that change rarely.
    pub health: GpuHealth,
    /// The memory of the host, where the GPU has none of its own and shares it with the CPUs
    /// (unified memory, as of a GB10); absent for other GPUs. The memory of the GPU is then
    /// unsupported in `load`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<SharedMemory>,
    /// Readings of the GPU's page; absent unless the agent was started with `--detail`, or the page
    /// was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<GpuDetail>>,
    /// The processes that use the GPU; the processes on a MIG instance are listed there. Where
    /// `missing.processes` says why they could not be listed, they are as last seen, or none.
    pub processes: Vec<GpuProcess>,
    /// Why a list of the GPU is unknown.
    #[serde(default, skip_serializing_if = "MissingLists::is_empty")]
    pub missing: MissingLists,
    /// The processes that had the device file of the GPU and that of CUDA (`/dev/nvidia-uvm`) open
    /// at the last scan, and may therefore hold memory. GPU processes are included; processes whose
    /// open files the agent may not read are not. Monitors such as nvidia-smi do not open
    /// `/dev/nvidia-uvm`.
    pub device_file_holders: Vec<ProcessId>,
    /// Why the GPU does not answer, or answers only in part, as a GPU that needs a reset does;
    /// `null` while it works.
    pub trouble: Option<Trouble>,
    /// The functions of the driver that fail for this GPU while others work, so that some readings
    /// are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

impl Gpu {
    /// Returns the short name: the index, or `index:instance` for a MIG instance.
    pub(crate) fn label(&self) -> String {
        match self.facts.gpu_instance {
            Ok(instance) if self.facts.parent.is_some() => {
                format!("{}:{instance}", self.facts.index)
            }
            _ => self.facts.index.to_string(),
        }
    }

    /// Returns the use of the GPU by this process; `None` when the driver does not list the process
    /// for it.
    pub fn process(&self, id: ProcessId) -> Option<&GpuProcess> {
        self.processes
            .iter()
            .find(|gpu_process| gpu_process.process == id)
    }

    /// Returns the device-file holders that the driver does not list for the GPU.
    pub fn unlisted_holders(&self) -> Vec<ProcessId> {
        let mut listed: Vec<ProcessId> = self
            .processes
            .iter()
            .map(|gpu_process| gpu_process.process)
            .collect();
        listed.sort_unstable();
        self.device_file_holders
            .iter()
            .copied()
            .filter(|holder| listed.binary_search(holder).is_err())
            .collect()
    }

    /// Whether only the name, memory and compute processes of the GPU were read so far, as in the
    /// first line of an agent.
    pub fn is_partly_read(&self) -> bool {
        // A GPU without memory figures was not read at all, and a GPU that hangs may never be read
        // further.
        let hangs = self.trouble.as_ref().is_some_and(Trouble::is_silence);
        self.facts.bus_id == Err(Missing::NotYet)
            && self.load.memory_used != Err(Missing::NotYet)
            && !hangs
    }
}

/// A GPU process, a device-file holder, or a process that is related to one.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ProcessJson")]
#[schemars(!from)]
pub struct Process {
    /// The identity of the process.
    #[serde(flatten)]
    pub id: ProcessId,
    /// Readings that change only by an `exec`, a new user ID or a new parent. Snapshots share them
    /// while they do not change.
    pub facts: Arc<ProcessFacts>,
    /// Readings that change each second.
    pub load: ProcessLoad,
    /// PyTorch's allocator stats; absent when they are not read: the process is no GPU process, or
    /// may not be the one that NVML means.
    #[serde(rename = "allocator_stats")]
    pub allocator: Option<Box<AllocatorStats>>,
    /// The report of gputop's probe; absent when the process does not run Python, or is no GPU
    /// process.
    pub probe: Option<Arc<ProbeReading>>,
    /// The bytes that the process has read since it started, from files or pipes: the larger of
    /// `rchar` and `read_bytes` of `/proc/PID/io`. Absent where it cannot be read, and while the
    /// GPU memory of the process does not grow.
    #[serde(rename = "read_bytes")]
    pub bytes_read: Option<Bytes>,
}

/// A [`Process`] as serde reads it: serde's `flatten` would first copy the object into a tree.
#[derive(Deserialize)]
struct ProcessJson {
    pid: u32,
    start_ticks: Option<u64>,
    facts: Arc<ProcessFacts>,
    load: ProcessLoad,
    allocator_stats: Option<Box<AllocatorStats>>,
    probe: Option<Arc<ProbeReading>>,
    read_bytes: Option<Bytes>,
}

impl From<ProcessJson> for Process {
    fn from(json: ProcessJson) -> Self {
        let ProcessJson {
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

impl Process {
    /// Returns the last report of the probe; `None` when there is none, or it is old at this
    /// moment.
    pub fn fresh_report(&self, now: Moment) -> Option<&ProbeReport> {
        let report = self.probe.as_ref()?.report.as_ref()?;
        (now.since(report.at) < ProbeReport::FRESH).then_some(report)
    }

    /// Whether the main thread has ended; others may still run. Resident memory is gone with the
    /// main thread. Kernel threads never have any, but each is a single thread.
    pub(crate) fn has_main_thread_ended(&self) -> bool {
        self.load.state == Ok(State::Zombie)
            || self.load.rss == Ok(Bytes(0)) && self.load.threads.is_ok_and(|threads| threads > 1)
    }

    /// Whether the arguments will be read soon. A zombie has none.
    pub(crate) fn awaits_arguments(&self) -> bool {
        let ProcessFacts {
            argv, argv_delay, ..
        } = &*self.facts;
        *argv == Err(Missing::NotYet)
            && argv_delay.is_none()
            && self.load.state != Ok(State::Zombie)
    }

    /// Returns the facts to be changed. Snapshots that share them keep the old ones.
    pub fn facts_mut(&mut self) -> &mut ProcessFacts {
        Arc::make_mut(&mut self.facts)
    }
}

impl ProcessFacts {
    /// Whether the process belongs to the simulated machine of a `gputop --demo`: its environment
    /// says so, and its last argument where the environment cannot be read.
    pub(crate) fn is_of_demo(&self) -> bool {
        let is_marked = |name: &Text| name.as_str() == launchers::DEMO;
        self.launcher.as_ref().is_ok_and(is_marked)
            || self.argv.iter().flat_map(Argv::iter).last() == Some("(gputop demo)")
    }

    /// Shares the memory of equal texts with the facts of another process: the hundreds of workers
    /// that a job may have differ in few texts.
    pub(crate) fn share(&mut self, other: &Self) {
        fn share<T: Clone + PartialEq>(mine: &mut Reading<T>, other: &Reading<T>) {
            if mine == other {
                mine.clone_from(other);
            }
        }
        share(&mut self.user, &other.user);
        share(&mut self.comm, &other.comm);
        share(&mut self.argv, &other.argv);
        share(&mut self.origin, &other.origin);
        share(&mut self.elastic_run, &other.elastic_run);
        share(&mut self.launcher, &other.launcher);
        if let (Some(mine), Some(other)) = (&mut self.distributed, &other.distributed) {
            mine.share(other);
        }
    }
}

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Static facts.
    pub facts: HostFacts,
    /// Readings that change each second.
    pub load: HostLoad,
    /// The latest scan of every process.
    pub scan: HostScan,
}

/// Everything that an agent saw of its host in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The version of the format: 1.
    pub schema: u32,
    /// Counts `full` and `tick` lines from 1. A `tick` line changes the snapshot with the previous
    /// number.
    pub sequence: u64,
    /// When the pass ended, in milliseconds since boot.
    #[serde(rename = "time_ms")]
    pub at: Moment,
    /// The same time by the host's wall clock: milliseconds since 1970 (UTC).
    #[serde(rename = "unix_time_ms")]
    pub unix_ms: u64,
    /// The time from one pass to the next, in milliseconds.
    pub interval_ms: u64,
    /// The program that wrote the line; absent for agents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<AgentFacts>>,
    /// The host itself: its facts, load and last scan.
    pub host: Host,
    /// The NVIDIA driver on the host.
    pub driver: Driver,
    /// Every GPU, by index; MIG instances follow their GPU.
    pub gpus: Vec<Gpu>,
    /// Every GPU process and device-file holder, and their related processes (ancestors,
    /// descendants, and processes of the same group or session), by PID. A related process stays in
    /// the list when its GPU process has ended. With hundreds of processes, a GPU process may be in
    /// the list of its GPU one line before it is here.
    pub processes: Vec<Process>,
}

impl Snapshot {
    /// Returns the GPUs at these places in [`Snapshot::gpus`]. Places are those of one snapshot;
    /// places that this one does not have are left out.
    pub fn gpus_at<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = &'a Gpu> + Clone {
        places.iter().filter_map(|place| self.gpus.get(*place))
    }

    /// The version of the format that this program writes. Additions do not raise it.
    pub const SCHEMA: u32 = 1;

    /// The age, in intervals, from which a group of readings is stale.
    pub const STALE_AFTER: u32 = 3;

    /// Returns the GPU with this UUID; `None` when it is not in the snapshot.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }

    /// Returns the process with this identity; `None` when it is not in the snapshot.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes
            .binary_search_by_key(&id, |process| process.id)
            .ok()
            .map(|place| &self.processes[place])
    }

    /// Returns whether the process is listed and has not ended.
    pub fn lives(&self, id: ProcessId) -> bool {
        let has_ended = |process: &Process| {
            matches!(
                process.load.state,
                Ok(State::Zombie | State::Dead) | Err(Missing::Gone)
            )
        };
        self.process(id).is_some_and(|process| !has_ended(process))
    }
}
