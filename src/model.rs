//! Derives from snapshots: process totals, related processes, jobs, history, growth, verdicts and GPU health.
//!
//! A [`Fleet`] has one [`HostModel`] for each host. The model is pure: time arrives with the snapshots, so a replay
//! gives the same answers as the live run. The model cannot fail, and contains nothing about keys, rows or colours.

mod advice;
mod breakdown;
mod fleet;
mod growth;
pub mod health;
mod history;
mod host;
mod identity;
mod job;
mod leak_advice;
mod process_role;
mod process_total;
mod process_tree;
mod reclaim;
mod unaccounted;
mod verdict;

pub use self::advice::{Advice, GrowthPattern, Shortage, on_growth, on_shortage};
pub use self::breakdown::{Breakdown, MemoryPart, ReservedMemory, reserved, with_instances};
pub use self::fleet::{Fleet, HostLabel};
pub use self::growth::{
    Evidence, Forecast, LeakDetector, LeakVerdict, MemoryDrop, MemoryGrowth, PartedDetector, Rate, describe_evidence,
    part_name,
};
pub use self::health::{HealthVerdict, Severity};
pub use self::history::{
    AllocatorHistory, Curve, GpuHistory, History, HistoryEvent, HistoryEventKind, MemoryHistory, MinMax,
    ProcessHistory, WEEK, Window,
};
pub use self::host::HostModel;
pub use self::identity::{GpuOrProcess, HostGpu, HostProcess, HostSubject};
pub use self::job::{Job, JobKey};
pub use self::process_total::{ProcessTotal, Total};
pub use self::process_tree::ProcessTree;
pub use self::reclaim::{Reclaim, Returned};
pub use self::unaccounted::UnaccountedMemory;
pub use self::verdict::{KnownProcess, OrphanEvidence, OrphanSign, ProcessEnd, RetainedMemory, Verdict, VerdictKind};
