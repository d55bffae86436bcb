//! Which processes belong together: a job is a root launcher and all its kin.

use crate::model::Total;
use crate::snapshot::{ProcessId, Reading};
use crate::untrusted::Text;

/// What makes a job this job, from one snapshot to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKey {
    /// A living root and its kin.
    Root(ProcessId),
    /// What is left of the job of a root that has ended.
    Ended(ProcessId),
    /// What is left of a run of `torchrun` of that user, whose launcher was never seen.
    Run(u32, Text),
    /// What is left of a process group of that user, whose leader was never seen; and of one program in it.
    Group(u32, u32, Text),
}

/// Processes that were started together, and are best ended together.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What makes it this job.
    pub key: JobKey,
    /// The process that started the others: the one to ask to end. Absent when it has ended.
    pub root: Option<ProcessId>,
    /// Everybody in it, the root too, by PID. No process is in two jobs.
    pub members: Vec<ProcessId>,
    /// What people call it: `train.py`.
    pub name: String,
    /// Whose it is.
    pub user: Reading<Text>,
    /// Where it was started: `slurm 4711`, `tmux`.
    pub origin: Reading<Text>,
    /// Device memory of all of them.
    pub memory: Reading<Total>,
    /// Places of its GPUs in the snapshot's list.
    pub gpus: Vec<usize>,
}

/// What one user has.
#[derive(Debug, Clone, PartialEq)]
pub struct UserTotal {
    /// Who.
    pub user: Reading<Text>,
    /// Processes of his or hers that hold a GPU.
    pub processes: usize,
    /// Device memory of all of them.
    pub memory: Reading<Total>,
    /// Places of their GPUs in the snapshot's list.
    pub gpus: Vec<usize>,
}
