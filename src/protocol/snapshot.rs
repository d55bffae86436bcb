//! What was seen of one host: plain data, and the schema of every line that says it.
//!
//! A [`Snapshot`] is whole; a [`Change`](crate::protocol::change::Change) is what became of it since. The agent writes the one as a
//! `full` line and the other as a `tick` line ([`line`](crate::protocol::line)); the viewer, a recording and `--json` read
//! and write the same. Nothing here knows where the facts come from, or what they mean.
//!
//! - A *lane* is a group of readings taken together, with one time for all of them ([`readings`]).
//! - A *GPU process* is a process's hold on one GPU; a [`Process`] stands once, however many GPUs it is on.
//! - An instance of a split GPU (MIG) is a [`Gpu`] of its own that names its parent.

mod allocator_stats;
#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
pub(crate) mod example;
mod gpu_detail;
mod gpu_process;
mod process_id;
mod readings;
mod trouble;

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::allocator_stats::{AllocatorStats, AllocatorUnreadable};
pub use self::gpu_detail::GpuDetail;
pub use self::gpu_process::{GpuProcess, ProcessNames};
pub use self::process_id::{Identity, ProcessId, State};
pub use self::readings::{
    DeviceAllocator, EccCounts, GpuFacts, GpuHealth, GpuLoad, HostFacts, HostLoad, HostScan, ProcessFacts, ProcessLoad,
};
pub use self::trouble::{Cause, Failure, Trouble};
use crate::base::text::Text;
use crate::base::units::Moment;

/// A value that was read, or why there is none.
pub type Reading<T> = Result<T, Missing>;

/// Why a reading has no value. What asks something else of the person looking prints differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// This GPU, driver or system never reports it. `N/A`.
    Unsupported,
    /// Someone else may see it. `perm`.
    Denied,
    /// Of a process that the driver lists, and that is not here any more: there is nobody to ask. `N/A`.
    Gone,
    /// It should have worked. `ERR`.
    Failed,
    /// Not read yet, or a rate that needs a second reading. `…`.
    NotYet,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unsupported | Self::Gone => "N/A",
            Self::Denied => "perm",
            Self::Failed => "ERR",
            Self::NotYet => "…",
        })
    }
}

/// A GPU's own id, or a MIG instance's. This is not its index, which shifts when a GPU is lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GpuUuid(pub Text);

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a process uses a GPU. A process can be in more than one of NVML's lists; it is counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// In the list of compute processes.
    Compute,
    /// In the list of graphics processes.
    Graphics,
    /// In both.
    ComputeAndGraphics,
    /// A client of the MPS server.
    Mps,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compute => "C",
            Self::Graphics => "G",
            Self::ComputeAndGraphics => "C+G",
            Self::Mps => "M+C",
        })
    }
}

/// Why a clock is below what was asked for. NVML's clocks event reasons, those that slow a job down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The power limit set in software.
    PowerCap,
    /// The temperature limit of software.
    Thermal,
    /// The temperature limit of hardware: clocks halved or worse.
    HardwareThermal,
    /// The power supply asked for it.
    PowerBrake,
    /// Hardware slowdown, for heat or power.
    Hardware,
    /// Another GPU of its sync group is slower.
    SyncBoost,
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PowerCap => "power cap",
            Self::Thermal => "thermal",
            Self::HardwareThermal => "hw thermal",
            Self::PowerBrake => "power brake",
            Self::Hardware => "hw slowdown",
            Self::SyncBoost => "sync boost",
        })
    }
}

/// An error that the driver reported by NVIDIA's catalogue of Xid numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Xid {
    /// When it came.
    #[serde(rename = "time_ms")]
    pub at: Moment,
    /// Its number; 79 is a GPU that fell off the bus.
    pub code: u64,
}

/// How one GPU reaches another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// The index of the other GPU.
    #[serde(rename = "gpu_index")]
    pub to: u32,
    /// NVML's level of what lies between: 0 one board, 10 a PCIe switch, 20 several, 30 a host bridge, 40 a NUMA node,
    /// 50 the link between processors.
    #[serde(rename = "topology_level")]
    pub level: u32,
    /// Whether they can use NVLink; absent where the driver does not say.
    pub nvlink: Option<bool>,
}

/// The NVIDIA driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Driver {
    /// Its version, as in `580.65.06`; absent when it could not be asked.
    pub version: Option<Text>,
    /// The newest CUDA it runs, as in `13.0`; absent when it could not be asked.
    pub cuda_version: Option<Text>,
    /// Why there is no answer from it at all; absent when all is well.
    pub trouble: Option<Trouble>,
    /// What fails while the rest goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// One GPU, or one instance of a GPU that is split by MIG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// Its id.
    pub uuid: GpuUuid,
    /// What does not change.
    pub facts: GpuFacts,
    /// What changes each second.
    pub load: GpuLoad,
    /// What changes now and then.
    pub health: GpuHealth,
    /// What few ask for; absent unless the agent was started with `--detail`, or a person looked at this GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<GpuDetail>>,
    /// Who uses it; on a split GPU, the instances name their own.
    pub processes: Vec<GpuProcess>,
    /// Who had its device file and that of CUDA (`/dev/nvidia-uvm`) open at the last scan, and so may hold memory;
    /// GPU processes too. Of those that we may look at. What only watches, as nvidia-smi, lacks the second.
    pub device_file_holders: Vec<ProcessId>,
    /// Why it does not answer, or not to all, as one that needs a reset; absent when all is well.
    pub trouble: Option<Trouble>,
    /// What fails while the rest goes on: why some reading is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

impl Gpu {
    /// Whether only its name, memory and compute processes were read so far, as in the first line of an agent.
    pub fn is_partly_read(&self) -> bool {
        self.trouble.is_none() && self.facts.bus_id == Err(Missing::NotYet)
    }
}

/// A GPU process, a device-file holder, or a process that is related to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ProcessJson")]
#[schemars(!from)]
pub struct Process {
    /// The identity of the process.
    #[serde(flatten)]
    pub id: ProcessId,
    /// Readings that change only by an `exec`, a new user ID or a new parent. Snapshots share them while they do not change.
    pub facts: Arc<ProcessFacts>,
    /// Readings that change each second.
    pub load: ProcessLoad,
    /// PyTorch's allocator stats; absent when they are not read: of processes that are no GPU process, or not surely the
    /// one that NVML means.
    #[serde(rename = "allocator_stats", default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<Box<AllocatorStats>>,
}

/// A [`Process`] as serde reads it. Its own `flatten` would first copy the object into a tree.
#[derive(Deserialize)]
struct ProcessJson {
    pid: u32,
    start_ticks: Option<u64>,
    facts: Arc<ProcessFacts>,
    load: ProcessLoad,
    allocator_stats: Option<Box<AllocatorStats>>,
}

impl From<ProcessJson> for Process {
    fn from(json: ProcessJson) -> Self {
        let ProcessJson { pid, start_ticks, facts, load, allocator_stats: allocator } = json;
        Self { id: ProcessId { pid, start_ticks }, facts, load, allocator }
    }
}

impl Process {
    /// Its facts, to be written. Other snapshots keep theirs.
    pub fn facts_mut(&mut self) -> &mut ProcessFacts {
        Arc::make_mut(&mut self.facts)
    }
}

impl ProcessFacts {
    /// Has what reads the same in one piece with another's: the workers of a job differ in little, and there may be
    /// hundreds.
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
    }
}

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// What does not change.
    pub facts: HostFacts,
    /// What changes each second.
    pub load: HostLoad,
    /// The last look at every process.
    pub scan: HostScan,
}

/// All that was seen in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The version of the format: 1.
    pub schema: u32,
    /// Counts the lines of a link. A tick says what changed since the line before it.
    pub sequence: u64,
    /// When this pass ended, in milliseconds since boot.
    #[serde(rename = "time_ms")]
    pub at: Moment,
    /// The same, by the host's wall clock: milliseconds since 1970 (UTC).
    #[serde(rename = "unix_time_ms")]
    pub unix_ms: u64,
    /// The time from one pass to the next.
    pub interval_ms: u64,
    /// The host.
    pub host: Host,
    /// The driver.
    pub driver: Driver,
    /// Every GPU, by index; the instances of a split one come right after it.
    pub gpus: Vec<Gpu>,
    /// Every GPU process and holder of a GPU, and their related processes: ancestors, descendants, and who shares their session.
    /// Related processes stays while it lives, also when its GPU process has ended. By PID.
    /// On a host of hundreds, a GPU process may be in the list of its GPU for one line before it is here.
    pub processes: Vec<Process>,
}

impl Snapshot {
    /// The version of the format that this program writes. It is frozen: additions do not raise it.
    pub const SCHEMA: u32 = 1;

    /// A lane older than so many intervals is stale.
    pub const STALE_AFTER: u32 = 3;

    /// The GPU of that id.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }

    /// The process of that id.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.binary_search_by_key(&id, |process| process.id).ok().map(|at| &self.processes[at])
    }

    /// Whether a process is there and has not ended.
    pub fn lives(&self, id: ProcessId) -> bool {
        let has_ended = |it: &Process| matches!(it.load.state, Ok(State::Zombie | State::Dead) | Err(Missing::Gone));
        self.process(id).is_some_and(|it| !has_ended(it))
    }
}
