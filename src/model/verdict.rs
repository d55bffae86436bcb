//! Judges processes: which hold memory that they should not, and the evidence.
//!
//! A verdict follows from the latest snapshot and the records of earlier ones ([`process_records`]), and from nothing
//! else: a replay gives the verdicts of the live run. The rules are in [`judge`], the wording in [`wording`].

pub(super) mod judge;
mod orphan;
pub(super) mod process_records;
#[cfg(test)]
mod tests;
mod wording;

use std::sync::Arc;
use std::time::Duration;

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::Total;
use crate::model::process_role;
use crate::protocol::snapshot::{ProcessFacts, ProcessId, Reading};

/// A process, with the facts known while it lived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownProcess {
    /// Its identity.
    pub id: ProcessId,
    /// Its facts when last seen; `None` when it was never seen.
    facts: Option<Arc<ProcessFacts>>,
    /// Its relation to the processes it started: `trainer`, `launcher`.
    pub relation: &'static str,
}

impl KnownProcess {
    /// Returns its command line: `python train.py`. Empty when it was never seen.
    pub fn command(&self) -> String {
        self.facts.as_deref().map_or_else(String::new, process_role::command)
    }

    /// Returns its short name: `train.py`. Empty when it was never seen.
    pub fn program(&self) -> String {
        self.facts.as_deref().map_or_else(String::new, process_role::program)
    }
}

/// The end of a process that other processes outlived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    /// The process.
    pub process: Arc<KnownProcess>,
    /// The time since its end was seen.
    pub ago: Duration,
}

/// A sign that a process is an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrphanSign {
    /// The process that created it, or created the process it was forked from, ended while gputop watched.
    CreatorEnded(ProcessEnd),
    /// Its parent is one that adopts orphans: PID 1, a shell, a service manager, a container's shim.
    Left {
        /// The parent, as in `init` or `bash (120)`.
        to: Text,
    },
    /// The leader of its process group, with this PID, is gone.
    GroupLeaderGone(u32),
    /// The process that it was started to serve (`--parent=PID`) is gone.
    ServedGone(u32),
    /// It is a rank of this `torchrun` run, and no `torchrun` is among its ancestors.
    NoElasticAgent(Text),
}

/// Why a process is, or may be, an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanEvidence {
    /// The signs, strongest first. Never empty.
    pub signs: Vec<OrphanSign>,
    /// Whether it only serves another process: `DataLoader` worker, spawned child, forkserver.
    pub serves: bool,
    /// Whether it still computes.
    pub computes: bool,
}

/// The conclusion of a verdict, with its evidence.
#[derive(Debug, Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum VerdictKind {
    /// Its trainer or launcher is gone, and no process needs it.
    Orphan(OrphanEvidence),
    /// There are signs of an orphan, but not enough.
    MaybeOrphan(OrphanEvidence),
    /// It has ended and holds nothing, and its parent has not reaped it.
    Zombie {
        /// Its parent.
        parent: Option<Arc<KnownProcess>>,
    },
    /// Its main thread has ended, others have not.
    Dying {
        /// The number of remaining threads.
        threads: u32,
    },
    /// A thread waits in the driver, where signals have no effect.
    StuckInDriver {
        /// The kernel function that it waits in.
        wchan: Option<Text>,
        /// The time since this was first seen.
        span: Duration,
    },
    /// It waits in the kernel for a file system or disk, where signals have no effect.
    Blocked {
        /// The kernel function that it waits in.
        wchan: Option<Text>,
        /// The time since this was first seen.
        span: Duration,
    },
    /// Its control group is frozen.
    Frozen {
        /// The control file that freezes it.
        by: Text,
    },
    /// A signal stopped it, or a debugger.
    Stopped {
        /// Whether it was a debugger.
        traced: bool,
    },
    /// The driver lists it, and it is not visible here.
    Foreign {
        /// Whether it belongs to another user and is hidden. Otherwise it is in another PID namespace.
        hidden: bool,
    },
    /// The driver lists it, but there is no such process, or only a zombie.
    Ghost {
        /// The process that had the PID, if it was seen alive.
        was: Option<Arc<KnownProcess>>,
        /// The processes that most likely keep its memory.
        keepers: Vec<ProcessId>,
    },
    /// It holds memory and has not computed for long.
    Idle {
        /// The time since this was first seen.
        span: Duration,
        /// Whether it is a notebook's kernel.
        notebook: bool,
    },
    /// It works for this process.
    #[strum(serialize = "worker")]
    WorkerOf(Arc<KnownProcess>),
    /// It starts or serves other processes.
    Launcher,
    /// No problem was found.
    Active {
        /// Whether it is a training process.
        trainer: bool,
    },
    /// Not observed for long enough. Judged again at the next pass.
    TooSoon,
}

/// Device memory that a living process keeps in use, though the driver lists it for no living process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedMemory {
    /// The index of its GPU in [`Snapshot::gpus`](crate::protocol::snapshot::Snapshot::gpus).
    pub gpu: usize,
    /// The ghost that the driver lists for it; `None` when the driver lists no process.
    pub ghost: Option<ProcessId>,
    /// The amount.
    pub memory: Bytes,
    /// The number of processes that may keep it, including this one.
    pub holders: usize,
}

/// The verdict on one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The process.
    pub process: ProcessId,
    /// The conclusion.
    pub kind: VerdictKind,
    /// The device memory that the driver lists for it; `None` when it lists none.
    pub listed: Option<Reading<Total>>,
    /// The indices of the GPUs that it has open without being listed for them.
    pub open: Vec<usize>,
    /// The device memory that it may keep on those GPUs.
    pub kept: Vec<RetainedMemory>,
    /// Its resident host memory.
    pub rss: Reading<Bytes>,
}
