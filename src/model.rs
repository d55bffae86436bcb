//! Derives from snapshots: process totals, related processes, jobs, history, growth, verdicts and GPU health.
//!
//! A [`Fleet`] has one [`HostModel`] for each host. The model is pure: time arrives with the snapshots, so a replay gives
//! the same answers as the live run. It cannot fail, and it knows nothing of keys, rows or colours.

mod advice;
mod breakdown;
mod cause;
mod fleet;
mod growth;
pub mod health;
mod history;
mod host;
mod identity;
mod job;
mod process_total;
mod reclaim;
mod related;
mod unaccounted;
mod verdict;

pub use self::advice::{Advice, Growth, Shortage, on_growth, on_shortage};
pub use self::breakdown::{Breakdown, Part, Reserved, reserved, with_instances};
pub use self::fleet::{Fleet, HostLabel};
pub use self::growth::{
    Evidence, Fall, Forecast, Growing, LeakDetector, Outlook, PartedDetector, Rate, evidence_of, part_name,
};
pub use self::health::{Health, Weight};
pub use self::history::{
    Curve, Extent, GpuHistory, History, Occurrence, ProcessHistory, Series, Split, WEEK, What, Window,
};
pub use self::host::HostModel;
pub use self::identity::{GpuOrProcess, HostGpu, HostProcess};
pub use self::job::{Job, JobKey};
pub use self::process_total::{ProcessTotal, Total};
pub use self::reclaim::{Reclaim, Returned};
pub use self::related::RelatedProcesses;
pub use self::unaccounted::Unaccounted;
pub use self::verdict::{Ended, Kept, Kind, Named, Orphaned, Sign, Verdict};
