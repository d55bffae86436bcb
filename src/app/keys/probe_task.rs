//! The tasks of the probe on request, from the page of its process.
//! [`crate::app::input::ask_probe`] asks for them.

use crate::protocol::snapshot::ProbeAnswer;

/// For how many steps stacks are recorded.
pub(in crate::app) const STEPS_OF_LINES: u32 = 3;
pub(in crate::app) const STEPS_OF_PEAK: u32 = 2;
const STEPS_OF_MODULES: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeTask {
    Tensors,
    Holders,
    Lines,
    Peak,
    Modules,
    Mark,
    Unmark,
    Snapshot,
}

/// A task and its progress.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AskedTask {
    pub task: ProbeTask,
    pub progress: TaskProgress,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TaskProgress {
    /// The user has seen its cost, and not confirmed it yet.
    Proposed,
    /// The agent was asked.
    Sent,
    /// The probe was asked, in a request with this number.
    Asked(u64),
    Answered(Box<ProbeAnswer>),
    /// It was not done, for this reason.
    Failed(String),
}

impl ProbeTask {
    /// For how many steps the task records stacks, which takes time; `None` if it does not.
    pub(crate) fn recorded_steps(self) -> Option<u32> {
        match self {
            Self::Lines => Some(STEPS_OF_LINES),
            Self::Peak => Some(STEPS_OF_PEAK),
            Self::Modules => Some(STEPS_OF_MODULES),
            _ => None,
        }
    }
}
