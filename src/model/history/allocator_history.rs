//! The history of a process's allocator stats.

use std::time::Duration;

use super::MemoryHistory;
use crate::base::units::{Bytes, Moment};
use crate::model::ReservedMemory;

/// The memory of a process by PyTorch's own figures, on all of its devices together.
#[derive(Debug, Clone)]
pub struct AllocatorHistory {
    /// Memory held by tensors.
    pub allocated: MemoryHistory,
    /// All memory that PyTorch has taken from CUDA: allocated and cached.
    pub reserved: MemoryHistory,
}

impl AllocatorHistory {
    pub(in crate::model) fn new() -> Self {
        Self { allocated: MemoryHistory::new(), reserved: MemoryHistory::new() }
    }

    /// Returns the most that tensors held in the last minute. That includes the temporary tensors of a training step.
    pub fn top(&self, now: Moment) -> Option<Bytes> {
        self.allocated.columns(now, Duration::from_mins(1), 1).pop().flatten()
    }

    /// Adds the readings of that time; `None` when they could not be read.
    pub(super) fn push(&mut self, at: Moment, reserved: Option<ReservedMemory>, patience: Duration) {
        self.allocated.push(at, reserved.map(|reserved| reserved.allocated), patience);
        self.reserved.push(at, reserved.map(|reserved| reserved.sum()), patience);
    }
}
