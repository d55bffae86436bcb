//! Derives from snapshots: process totals, related processes, jobs, history, growth, verdicts and
//! GPU health.
//!
//! A [`Fleet`] has one [`HostModel`] for each host. The model is pure: time arrives with the
//! snapshots, so a replay gives the same answers as the live run. The model cannot fail, and
//! contains nothing about keys, rows or colours.

mod advice;
mod breakdown;
mod checkpoint;
pub(crate) mod cluster;
mod fleet;
mod fleet_job;
mod growth;
pub(crate) mod health;
mod held_idle;
mod history;
mod host;
mod host_overview;
mod identity;
mod idle_holds;
mod job;
mod leak_advice;
mod min_max;
mod news;
mod outline;
mod pairs;
mod past;
mod process_role;
mod process_total;
mod process_tree;
mod ranked_trouble;
mod reclaim;
mod recorded_clock;
mod unaccounted;
mod user_hues;
mod verdict;

pub(crate) use self::advice::{
    Advice, AllocatorOptions, GrowthPattern, Shortage, on_error, on_growth, on_shortage,
};
pub(crate) use self::breakdown::{Breakdown, MemoryPart, ReservedMemory, reserved, with_instances};
pub(crate) use self::fleet::{Fleet, HostLabel};
pub(crate) use self::fleet_job::{
    FleetJob, FleetJobKey, JobMedians, JobPart, JobRank, Lag, MissingRank, RankFigures, main_gpu,
};
pub(crate) use self::growth::{
    Evidence, Forecast, Growing, MemoryDrop, Rate, describe_evidence, part_name,
};
pub use self::growth::{LeakDetector, LeakVerdict, PartedDetector};
pub(crate) use self::health::{Severity, TroubleRank, telling_xid};
pub(crate) use self::held_idle::{HELD_IDLE_AFTER, HeldIdle};
pub(crate) use self::history::{
    AllocatorHistory, Curve, GpuHistory, HistoryEvent, HistoryEventKind, MemoryHistory,
    ProcessHistory, TensorHistory, TensorLayer, WEEK, Window,
};
pub use self::host::HostModel;
pub(crate) use self::host_overview::{
    GpuOverview, GpuState, HostOverview, computes, is_busy_without_process,
};
pub(crate) use self::identity::{GpuOrProcess, HostGpu, HostProcess, HostSubject};
pub(crate) use self::idle_holds::{GpuTime, HeldGpus, IdleHold};
pub use self::job::{Job, JobKey};
pub(crate) use self::min_max::MinMax;
pub(crate) use self::news::{NewsItem, NewsKind};
pub(crate) use self::outline::{OutlineEvent, OutlinePart, events as outline_events};
pub use self::past::Past;
pub(crate) use self::process_role::{DATALOADER_WORKER, is_interactive_shell, short_name};
pub(crate) use self::process_total::{ProcessTotal, Total};
pub(crate) use self::ranked_trouble::RankedTrouble;
pub(crate) use self::reclaim::{Reclaim, Returned};
pub(crate) use self::recorded_clock::RecordedClock;
pub(crate) use self::unaccounted::{UnaccountedMemory, idle_memory};
pub(crate) use self::user_hues::{UserHue, UserHues};
pub use self::verdict::{
    KnownProcess, OrphanEvidence, OrphanSign, ProcessEnd, RetainedMemory, Verdict, VerdictKind,
};
