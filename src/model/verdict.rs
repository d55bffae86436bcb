//! The verdicts on processes: which of them hold memory that they should not, and the evidence.
//!
//! This file defines the types; [`judge`] has the rules, [`wording`] the words. A verdict depends
//! only on the latest snapshot and the records of earlier ones ([`process_records`]), so a replay
//! gives the verdicts of the live run.

pub(super) mod judge;
pub(super) mod orphan;
pub(super) mod process_records;
#[cfg(test)]
mod tests;
mod wording;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::Total;
use crate::model::process_role;
use crate::protocol::snapshot::{ProcessFacts, ProcessId, Reading};

/// A process and its last known facts, which outlive it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownProcess {
    /// The identity of the process; without start ticks when only its PID is known.
    pub id: ProcessId,
    /// The facts when the process was last seen; `None` when it was never seen.
    facts: Option<Arc<ProcessFacts>>,
    /// The relation of the process to those that it started: `trainer`, `launcher`.
    #[serde(deserialize_with = "process_role::relation")]
    pub relation: Cow<'static, str>,
}

impl KnownProcess {
    /// Returns the command line, as in `python train.py`; empty when the process was never seen.
    pub fn command(&self) -> String {
        self.facts
            .as_deref()
            .map_or_else(String::new, process_role::command)
    }

    /// Returns the short name, as in `train.py`; empty when the process was never seen.
    pub fn program(&self) -> String {
        self.facts
            .as_deref()
            .map_or_else(String::new, process_role::program)
    }
}

/// The end of a process that other processes outlived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    /// The process that ended.
    pub process: Arc<KnownProcess>,
    /// The time since the end was seen.
    pub ago: Duration,
    /// When a recorder saw the end, for a sentence; `None` if gputop itself saw it.
    pub recorded: Option<Text>,
}

/// A sign that a process is an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrphanSign {
    /// The creator of the process, or of the helper that forked the process, ended while gputop
    /// watched.
    CreatorEnded(ProcessEnd),
    /// The living process that started this one is itself an orphan.
    StarterIsOrphan(Arc<KnownProcess>),
    /// The parent of the process is one that adopts orphans: PID 1, a shell, a service manager, a
    /// container's shim.
    Left {
        /// The parent, as in `PID 1` or `PID 120, bash`.
        to: Text,
    },
    /// The leader of the process group, which had this PID, is gone.
    GroupLeaderGone(u32),
    /// This PID, which the process was started to serve (`--parent=PID`), is gone.
    ServedGone(u32),
    /// The environment shows that this launcher started the process and waits for its end, but it
    /// is not among the ancestors: `torchrun (run 7f)`, `launcher (accelerate)`.
    LauncherGone(Text),
}

/// Why a process is, or may be, an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanEvidence {
    /// The signs, strongest first. Never empty.
    pub signs: Vec<OrphanSign>,
    /// Whether the process only serves another one, as a `DataLoader` worker, a spawned child or a
    /// forkserver does.
    pub serves: bool,
    /// Whether the process still computes.
    pub computes: bool,
}

/// The conclusion of a verdict, with its evidence.
#[derive(Debug, Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum VerdictKind {
    /// The trainer or launcher of the process is gone, and no process needs it.
    Orphan(OrphanEvidence),
    /// There are signs of an orphan, but not enough.
    MaybeOrphan(OrphanEvidence),
    /// The process has ended, and its parent has not reaped it.
    Zombie {
        /// The parent; `None` when it is not in the snapshot.
        parent: Option<Arc<KnownProcess>>,
        /// Whether a GPU that lists the process has answered since, so that its memory is known.
        has_gpu_answered: bool,
    },
    /// The main thread of the process has ended, others have not.
    Dying {
        /// The number of remaining threads.
        threads: u32,
    },
    /// A thread of the process waits in the driver, where signals have no effect.
    StuckInDriver {
        /// The kernel function that the thread waits in; `None` when it is not known.
        wchan: Option<Text>,
        /// The time for which this has been seen.
        span: Duration,
    },
    /// The process waits in the kernel for a file system or disk, where signals have no effect.
    Blocked {
        /// The kernel function that the thread waits in; `None` when it is not known.
        wchan: Option<Text>,
        /// The time for which this has been seen.
        span: Duration,
    },
    /// The control group of the process is frozen.
    Frozen {
        /// The control file through which the group was frozen.
        by: Text,
    },
    /// A signal or a debugger stopped the process.
    Stopped {
        /// Whether a debugger stopped it.
        traced: bool,
    },
    /// The driver lists the process, which is not visible here.
    Foreign {
        /// Whether the process is hidden because it belongs to another user. Otherwise it is in
        /// another PID namespace.
        hidden: bool,
    },
    /// The driver lists the PID, and the state of the process could not be read.
    Unreadable,
    /// The driver lists the PID, but no process has it, or only a zombie.
    Ghost {
        /// The process that had the PID; `None` when it was never seen alive.
        was: Option<Arc<KnownProcess>>,
        /// The processes that most likely keep the memory.
        keepers: Vec<ProcessId>,
    },
    /// The process holds memory and has not computed for long.
    Idle {
        /// The time for which this has been seen.
        span: Duration,
        /// Whether the process is the kernel of a notebook.
        notebook: bool,
    },
    /// The process works for this one.
    #[strum(serialize = "worker")]
    WorkerOf(Arc<KnownProcess>),
    /// The process starts or serves others.
    Launcher,
    /// The process shows no problem.
    Active {
        /// Whether the process has the threads of a trainer.
        trainer: bool,
    },
    /// The process was not watched for long enough; it is judged again at the next pass.
    TooSoon,
}

/// Device memory that a living process keeps in use, though the driver lists it for no living
/// process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedMemory {
    /// The index of the GPU in [`Snapshot::gpus`](crate::protocol::snapshot::Snapshot::gpus).
    pub gpu: usize,
    /// The ghost that the driver lists with this memory; `None` when the memory is unaccounted.
    pub ghost: Option<ProcessId>,
    /// The amount that is kept.
    pub memory: Bytes,
    /// The number of processes that may keep the memory, including this one.
    pub holders: usize,
}

/// The verdict on one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The process that is judged.
    pub process: ProcessId,
    /// The conclusion.
    pub kind: VerdictKind,
    /// The device memory that the driver lists for the process; `None` when the driver does not
    /// list the process.
    pub listed: Option<Reading<Total>>,
    /// The indices of the GPUs that the process has open without being listed for them.
    pub open: Vec<usize>,
    /// The device memory that the process may keep on those GPUs.
    pub kept: Vec<RetainedMemory>,
    /// The resident host memory of the process.
    pub rss: Reading<Bytes>,
    /// The time for which it has been open whether the process is an orphan, has ended or is stuck:
    /// one more reading may show it. `None` where no reading would.
    pub undecided_for: Option<Duration>,
}
