//! The figures of one out-of-memory message of PyTorch.

use crate::base::units::Bytes;
use crate::protocol::snapshot::Reading;

/// An amount as a message prints it, or a sum of such amounts, in bytes. May be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RoundedAmount {
    pub bytes: i128,
    /// How far the exact amount may be from `bytes`.
    pub slack: i128,
}

impl RoundedAmount {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            slack: self.slack + other.slack,
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(other.negated())
    }

    pub(super) fn negated(self) -> Self {
        Self {
            bytes: -self.bytes,
            ..self
        }
    }

    /// Returns the amount, or 0 if it is negative.
    pub(super) fn bytes(self) -> Bytes {
        Bytes(u64::try_from(self.bytes.max(0)).unwrap_or(u64::MAX))
    }

    pub(super) fn slack_bytes(self) -> Bytes {
        Self {
            bytes: self.slack,
            slack: 0,
        }
        .bytes()
    }

    /// Whether the amount is negative by more than rounding explains.
    pub(super) fn is_impossible(self) -> bool {
        self.bytes < -self.slack
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum MessageForm {
    /// `… S already allocated; S free; S cached)` (1.0 to 1.3), `S reserved in total by PyTorch)`
    /// (1.4 to 2.0).
    Brackets,
    /// `GPU 0 has a total capacity of S of which S is free. …` (2.1 and later).
    Sentences,
    /// `Allocation on device 0 would exceed allowed memory. …`, of the allocator `cudaMallocAsync`.
    Async,
    /// Rejected without asking the driver, by `per_process_memory_fraction` (2.13 and later).
    Rejected,
    Absurd,
    /// A warning of 2.13 and later: the driver had no memory, and PyTorch frees its cache and tries
    /// again.
    Retried,
    /// No figures: an error of the driver, or a text by the program.
    #[default]
    Bare,
}

/// One out-of-memory message. Figures that the message does not have are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OomMessage {
    pub form: MessageForm,
    /// `CUDA`, `HIP`, `XPU` or `NPU`. `None` if the start of the message is missing.
    pub backend: Option<&'static str>,
    /// The index of the GPU in the process. `CUDA_VISIBLE_DEVICES` can make it differ from the
    /// host's.
    pub gpu: Option<u32>,
    pub requested: Option<RoundedAmount>,
    pub total: Option<RoundedAmount>,
    pub free: Option<RoundedAmount>,
    /// Memory that PyTorch has allocated for tensors and private pools.
    pub allocated: Option<RoundedAmount>,
    /// The part of `allocated` in private pools (CUDA graphs).
    pub pools: Option<RoundedAmount>,
    /// Memory that PyTorch has taken from the driver.
    pub reserved: Option<RoundedAmount>,
    /// The part of `reserved` that is not allocated.
    pub unallocated: Option<RoundedAmount>,
    /// The limit of this process, set by a memory fraction.
    pub allowed: Option<RoundedAmount>,
    /// All memory of this process according to the driver; an error if the driver gave no figure.
    pub this_process: Option<Reading<RoundedAmount>>,
    /// PIDs of other processes and their memory; an error if the driver gave no figure.
    pub others: Vec<(u32, Reading<RoundedAmount>)>,
    pub is_cut: bool,
}

impl OomMessage {
    pub(super) fn amount_mut(&mut self, name: &str) -> Option<&mut Option<RoundedAmount>> {
        Some(match name {
            "requested" => &mut self.requested,
            "total" => &mut self.total,
            "free" => &mut self.free,
            "allocated" => &mut self.allocated,
            "pools" => &mut self.pools,
            "reserved" => &mut self.reserved,
            "unallocated" => &mut self.unallocated,
            "allowed" => &mut self.allowed,
            _ => return None,
        })
    }

    /// Whether `whole` has all figures of this message.
    pub(super) fn is_part_of(&self, whole: &Self) -> bool {
        fn fits<T: PartialEq + Copy>(part: Option<T>, whole: Option<T>) -> bool {
            part.is_none() || part == whole
        }
        let amounts = |message: &Self| {
            [
                message.requested,
                message.total,
                message.free,
                message.allocated,
                message.pools,
                message.reserved,
                message.unallocated,
                message.allowed,
            ]
        };
        fits(self.backend, whole.backend)
            && fits(self.gpu, whole.gpu)
            && amounts(self)
                .into_iter()
                .zip(amounts(whole))
                .all(|(part, whole)| fits(part, whole))
            && fits(self.this_process, whole.this_process)
            && self.others.iter().all(|other| whole.others.contains(other))
    }
}
