//! An out-of-memory message of PyTorch, and what each figure in it means.

use crate::base::units::Bytes;
use crate::protocol::snapshot::Reading;

/// An amount as a message gives it: rounded, so that sums over amounts may be off by the sum of their slacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    /// What is printed.
    pub bytes: Bytes,
    /// How far the truth may be from that: half a unit of the last digit.
    pub slack: Bytes,
}

/// The words that a message is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `… S already allocated; S free; S cached)` (1.0 to 1.3), `S reserved in total by PyTorch)` (1.4 to 2.0).
    Brackets,
    /// `GPU 0 has a total capacity of S of which S is free. …` (2.1 and later).
    Sentences,
    /// `Allocation on device 0 would exceed allowed memory. …`: the allocator `cudaMallocAsync`.
    Async,
    /// Refused before the driver was asked, by `per_process_memory_fraction` (2.13 and later).
    Rejected,
    /// More than 1 EB: a size that is no size.
    Absurd,
    /// No figures: the error of the driver itself, or words of somebody who caught the exception.
    Bare,
}

/// One out-of-memory message. A figure that the message does not have is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub form: Form,
    /// The framework's name for the kind of GPU: `CUDA`, `HIP`; absent when the message has lost its head.
    pub backend: Option<&'static str>,
    /// The process's own number for the GPU: `CUDA_VISIBLE_DEVICES` may make it another one of the host.
    pub gpu: Option<u32>,
    pub requested: Option<Amount>,
    pub total: Option<Amount>,
    pub free: Option<Amount>,
    /// By tensors, and by private pools.
    pub allocated: Option<Amount>,
    /// The part of `allocated` in private pools (CUDA graphs).
    pub pools: Option<Amount>,
    /// What the allocator took from the driver.
    pub reserved: Option<Amount>,
    /// Reserved and not allocated.
    pub unallocated: Option<Amount>,
    /// What this process may reserve, by a fraction set for it.
    pub allowed: Option<Amount>,
    /// All that this process holds, by the driver's account; missing when the driver did not say.
    pub this_process: Option<Reading<Amount>>,
    /// What others on the GPU hold, by PID; missing when the driver did not say.
    pub others: Vec<(u32, Reading<Amount>)>,
    /// It does not end as such a message does.
    pub is_cut: bool,
}

impl Message {
    pub(super) fn new(form: Form, backend: Option<&'static str>) -> Self {
        Self {
            form,
            backend,
            gpu: None,
            requested: None,
            total: None,
            free: None,
            allocated: None,
            pools: None,
            reserved: None,
            unallocated: None,
            allowed: None,
            this_process: None,
            others: Vec::new(),
            is_cut: false,
        }
    }
}

impl Message {
    /// Whether the other says all that this one does, and more.
    pub(super) fn is_part_of(&self, whole: &Self) -> bool {
        fn fits<T: PartialEq + Copy>(part: Option<T>, whole: Option<T>) -> bool {
            part.is_none() || part == whole
        }
        let amounts = |it: &Self| {
            [it.requested, it.total, it.free, it.allocated, it.pools, it.reserved, it.unallocated, it.allowed]
        };
        fits(self.backend, whole.backend)
            && fits(self.gpu, whole.gpu)
            && amounts(self).into_iter().zip(amounts(whole)).all(|(part, whole)| fits(part, whole))
            && fits(self.this_process, whole.this_process)
            && self.others.iter().all(|it| whole.others.contains(it))
    }
}
