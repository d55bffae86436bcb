//! Judges processes: who holds what should not be held, and why we think so.
//!
//! A verdict follows from the latest snapshot and from what was seen before it ([`past`]), and from
//! nothing else: a recording gets the verdicts that were given live. The rules stand in [`judge`], the
//! words for a person in [`wording`].

pub(super) mod judge;
mod judge_input;
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

/// A process, and what it went by while it lived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownProcess {
    /// Who.
    pub id: ProcessId,
    /// What was known of it; absent when it was never seen.
    facts: Option<Arc<ProcessFacts>>,
    /// What it was to those it started: `trainer`, `launcher`.
    pub calling: &'static str,
}

impl KnownProcess {
    /// What it ran: `python train.py`. Empty when it was never seen.
    pub fn command(&self) -> String {
        self.facts.as_deref().map_or_else(String::new, process_role::command)
    }

    /// What people call it: `train.py`. Empty when it was never seen.
    pub fn program(&self) -> String {
        self.facts.as_deref().map_or_else(String::new, process_role::program)
    }
}

/// The end of a process that others lived on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnd {
    /// Who has ended.
    pub who: Arc<KnownProcess>,
    /// How long ago that was seen.
    pub ago: Duration,
}

/// What speaks for a process having been left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrphanSign {
    /// The process that made it, or made what it was forked from, ended while we watched.
    CreatorEnded(ProcessEnd),
    /// Its parent is what processes are left to: PID 1, a shell, a service manager, a container's shim.
    Left {
        /// The parent, as in `init` or `bash (120)`.
        to: Text,
    },
    /// The leader of its process group is gone.
    GroupLeaderGone(u32),
    /// It was told whom to serve (`--parent=PID`), and that process is gone.
    ServedGone(u32),
    /// It is a rank of a run of `torchrun`, and there is no `torchrun` above it.
    NoElasticAgent(Text),
}

/// Why a process is, or may be, an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanEvidence {
    /// What speaks for it, the strongest first. Never empty.
    pub signs: Vec<OrphanSign>,
    /// It is what only works for another: `DataLoader` worker, spawned child, forkserver.
    pub serves: bool,
    /// It computes all the same.
    pub computes: bool,
}

/// What we think of a process, with the evidence.
#[derive(Debug, Clone, PartialEq)]
pub enum VerdictKind {
    /// Its trainer or launcher is gone; it stays for nobody.
    Orphan(OrphanEvidence),
    /// Something speaks for that, and not enough.
    MaybeOrphan(OrphanEvidence),
    /// It has ended, holds nothing, and its parent has not asked how.
    Zombie {
        /// Who should ask.
        parent: Option<Arc<KnownProcess>>,
    },
    /// Its first thread has ended, others have not.
    Dying {
        /// How many are left.
        threads: u32,
    },
    /// A thread waits in the driver, out of reach of signals.
    StuckInDriver {
        /// The kernel function that it waits in.
        wchan: Option<Text>,
        /// For how long we have seen it so.
        span: Duration,
    },
    /// It waits in the kernel, out of reach of signals, for a file system or a disk.
    Blocked {
        /// The kernel function that it waits in.
        wchan: Option<Text>,
        /// For how long we have seen it so.
        span: Duration,
    },
    /// It is frozen with its control group.
    Frozen {
        /// The file that does it.
        by: Text,
    },
    /// A signal stopped it, or a debugger.
    Stopped {
        /// It was a debugger.
        traced: bool,
    },
    /// The driver lists it, and it is not to be seen here.
    Foreign {
        /// It is somebody else's, and hidden from us. Otherwise it is of another PID namespace.
        hidden: bool,
    },
    /// The driver lists it, and there is no such process, or only a zombie.
    Ghost {
        /// Who it was, if it was seen alive.
        was: Option<Arc<KnownProcess>>,
        /// Who most likely keeps its memory.
        heirs: Vec<ProcessId>,
    },
    /// It holds memory and has computed nothing for long.
    Idle {
        /// For how long we have seen it so.
        span: Duration,
        /// It is a notebook's kernel.
        notebook: bool,
    },
    /// It works for that process.
    WorkerOf(Arc<KnownProcess>),
    /// It starts others, or serves them.
    Launcher,
    /// Nothing speaks against it.
    Active {
        /// It trains.
        trainer: bool,
    },
    /// Not watched long enough to say. Asked again at the next pass.
    TooSoon,
}

/// Device memory that stays because a process lives, though the driver lists it for nobody that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedMemory {
    /// The place of its GPU in the snapshot's list.
    pub gpu: usize,
    /// The ghost that the driver lists for it; absent when it lists nobody.
    pub ghost: Option<ProcessId>,
    /// How much.
    pub memory: Bytes,
    /// How many processes may keep it, this one too.
    pub keepers: usize,
}

/// What we think of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whom it is about.
    pub process: ProcessId,
    /// What we think.
    pub kind: VerdictKind,
    /// The device memory that the driver lists for it; absent when it lists none.
    pub listed: Option<Reading<Total>>,
    /// Places of the GPUs that it has open, and is not listed for.
    pub open: Vec<usize>,
    /// The device memory that it may keep there.
    pub kept: Vec<RetainedMemory>,
    /// Its resident memory of the host.
    pub rss: Reading<Bytes>,
}
