//! How the parts of what PyTorch took of the GPUs went, in a process that it could be read of.

use std::time::Duration;

use super::MemorySeries;
use crate::base::units::{Bytes, Moment};
use crate::model::ReservedMemory;

/// What PyTorch said of the memory of a process, on all of its devices.
#[derive(Debug, Clone)]
pub struct AllocatorHistory {
    /// Held by tensors.
    pub allocated: MemorySeries,
    /// All that PyTorch took from CUDA: that, and what it keeps.
    pub reserved: MemorySeries,
}

impl AllocatorHistory {
    pub(in crate::model) fn new() -> Self {
        Self { allocated: MemorySeries::new(), reserved: MemorySeries::new() }
    }

    /// What tensors held at the most in the last minute: with what a step takes, and soon gives back.
    pub fn top(&self, now: Moment) -> Option<Bytes> {
        self.allocated.columns(now, Duration::from_mins(1), 1).pop().flatten()
    }

    /// Takes in what was read at that time, if it could be read.
    pub(super) fn push(&mut self, at: Moment, reserved: Option<ReservedMemory>, patience: Duration) {
        self.allocated.push(at, reserved.map(|it| it.allocated), patience);
        self.reserved.push(at, reserved.map(|it| it.sum()), patience);
    }
}
