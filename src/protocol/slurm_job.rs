//! A job of Slurm, as `squeue` and `scontrol` describe it.

use std::fmt;
use std::time::Duration;

use crate::base::text::Text;

/// A job that has nodes. Slurm, and through the name of the job its owner, say all of this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJob {
    /// The number of the job. Each task of an array has one of its own.
    pub number: u32,
    /// The task of an array that the job is; `None` for any other job.
    pub task: Option<ArrayTask>,
    /// The name that its owner has chosen.
    pub name: Text,
    /// The login name of its owner.
    pub user: Text,
    /// The state in Slurm's word, such as `RUNNING`.
    pub state: Text,
    /// How long the job has run; `None` where Slurm does not say so.
    pub run_time: Option<Duration>,
    /// The nodes, in Slurm's order.
    pub nodes: Vec<SlurmNode>,
    /// When Slurm was asked, in milliseconds since 1970, by the clock of this host.
    pub asked_at: u64,
}

/// A job of Slurm, and the hosts of the dialog that would cancel it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmCancel {
    /// `4242`, or `4242_7` for a task of an array.
    pub job: String,
    /// The names of the hosts, as the user typed them.
    pub hosts: Vec<String>,
    /// The number of the dialog, which is new each time that one opens.
    pub dialog: u64,
}

/// The answer of Slurm to a dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmCancelAnswer {
    /// The job and the dialog.
    pub question: SlurmCancel,
    /// Whether `scancel` was to be run; otherwise, whether it may be.
    pub has_run: bool,
    /// Why not, in one sentence.
    pub result: Result<(), Text>,
}

/// A task of an array of jobs: `4242_3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayTask {
    /// The number of the array.
    pub array: u32,
    /// The number of the task in it.
    pub task: u32,
}

/// A node of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmNode {
    /// The name of the node, which is also that of the host.
    pub name: Text,
    /// The indices of the GPUs that the job has there, in order; `None` where Slurm does not say so.
    /// An index is the place in the list of the node's device files, which usually is the minor
    /// number of the file.
    pub gpus: Option<Vec<u32>>,
}

impl fmt::Display for ArrayTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.array, self.task)
    }
}

impl SlurmJob {
    /// Returns the ID that means this job alone to Slurm: `4242`, or `4242_3` for a task of an array.
    /// The number of a task may also be that of its array.
    pub fn id(&self) -> String {
        match self.task {
            Some(task) => task.to_string(),
            None => self.number.to_string(),
        }
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &str) -> Option<&SlurmNode> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }

    /// Whether the GPU of a node whose device file has this minor number is one of the job's; `None`
    /// where that is not known, and for a host that is no node of the job.
    pub fn has_gpu(&self, node: &str, minor: u32) -> Option<bool> {
        Some(self.node(node)?.gpus.as_ref()?.contains(&minor))
    }

    /// Returns how many GPUs the job has; `None` if that is not known of a node.
    pub fn gpus(&self) -> Option<usize> {
        let counts = self
            .nodes
            .iter()
            .map(|node| Some(node.gpus.as_ref()?.len()));
        counts.sum()
    }
}
