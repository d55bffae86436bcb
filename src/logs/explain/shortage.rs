//! The reasons why an allocation failed, decided by the arithmetic of the message's figures.
//!
//! [`reason_sentence`](super::reason_sentence) shows that arithmetic.

use super::breakdown::{MemoryOwner, MessageBreakdown};
use super::message::{MessageForm, OomMessage, RoundedAmount};
use crate::base::units::Bytes;
use crate::model::Shortage;

/// The share of a GPU that the driver may not be able to allocate even if it is free.
const UNUSABLE_SHARE: f64 = 0.02;
/// The smallest share of a GPU in PyTorch's cache with which the cache and free memory together
/// count.
const LARGE_CACHE_SHARE: f64 = 0.1;
/// The smallest share of a GPU in PyTorch's cache that can be the main reason. PyTorch rounds
/// requests up to blocks, so a cache that serves well has pieces of this size, too: in one piece,
/// they would last for a step or two.
const USEFUL_CACHE_SHARE: f64 = 0.02;
/// The smallest share of a GPU held by other processes with which they come before a small cache.
const LARGE_SHARE: f64 = 0.2;
/// The smallest share of a GPU held by other processes, or outside PyTorch, that can be a reason.
const OTHERS_SHARE: f64 = 0.05;
/// The smallest share of a GPU outside PyTorch that can be the main reason.
const LARGE_OUTSIDE_SHARE: f64 = 0.1;

/// An upper bound for the memory of a CUDA context, for messages that do not tell it from other
/// memory.
const CONTEXT: Bytes = Bytes(1 << 30);

/// Returns the reasons why the allocation failed, the main one first.
///
/// 1. An absurd size, a rejection, a second try, or no figures: the message says so.
/// 2. More was requested than the GPU has: too big.
/// 3. The message has a limit, and reserved and requested memory exceed it: limit.
/// 4. More was free than was requested: refused, or someone else if others fill the GPU but for a
///    last piece.
/// 5. The cache is at least as large as the request, or it is large and the request fits into the
///    cache and free memory together: fragmentation. Other processes that hold much come before a
///    small cache, a small cache is not the only reason, and a negligible one comes after the
///    reasons below.
/// 6. The process would fit into an empty GPU, and other processes hold the missing memory: someone
///    else.
/// 7. Much memory of the process is outside PyTorch, and the request would fit without it: outside
///    PyTorch.
/// 8. Otherwise, the process fills the GPU.
pub(super) fn shortages(message: &OomMessage, breakdown: &MessageBreakdown) -> Vec<Shortage> {
    match message.form {
        MessageForm::Absurd => return vec![Shortage::Absurd],
        MessageForm::Retried => return vec![Shortage::Retried],
        MessageForm::Rejected => return vec![Shortage::Limit],
        _ => {}
    }
    let (Some(requested), Some(total)) = (message.requested, message.total) else {
        return vec![Shortage::Unsaid];
    };
    let (requested, total) = (requested.bytes(), total.bytes());
    if requested > total {
        return vec![Shortage::TooBig];
    }
    let cache = cache(breakdown);
    let fragmentation = (cache >= requested).then_some(Shortage::Fragmentation);

    if let (Some(allowed), Some(own)) = (message.allowed, breakdown.own)
        && plus(own.bytes(), requested) > allowed.bytes()
    {
        return [Some(Shortage::Limit), fragmentation]
            .into_iter()
            .flatten()
            .collect();
    }
    let Some(held) = breakdown.held.map(RoundedAmount::bytes) else {
        return vec![fragmentation.unwrap_or(Shortage::Unsaid)];
    };
    let failed = FailedRequest {
        breakdown,
        requested,
        total,
        full: (plus(held, requested) > total).then_some(Shortage::Full),
        fragmentation,
    };
    match message.free.map(RoundedAmount::bytes) {
        None => failed.shortages_without_free(),
        Some(free) if free >= requested => failed.shortages_despite_free(free),
        Some(free) => failed.shortages_beyond_free(free),
    }
}

/// A request of a possible size, with the figures that are known in any message that has a
/// breakdown.
struct FailedRequest<'a> {
    breakdown: &'a MessageBreakdown,
    requested: Bytes,
    total: Bytes,
    /// `Full` if the process would not fit into an empty GPU.
    full: Option<Shortage>,
    /// `Fragmentation` if the cache is at least as large as the request.
    fragmentation: Option<Shortage>,
}

impl FailedRequest<'_> {
    fn share(&self, part: Bytes) -> f64 {
        part.share_of(self.total).unwrap_or(1.0)
    }

    /// Returns the reasons if the message does not say how much memory was free.
    fn shortages_without_free(&self) -> Vec<Shortage> {
        let is_cache_large = self.share(cache(self.breakdown)) > LARGE_CACHE_SHARE;
        let also_full = self
            .full
            .filter(|_| self.fragmentation.is_none() || !is_cache_large);
        let reasons = if is_cache_negligible(self.breakdown, self.total) {
            [self.full, self.fragmentation]
        } else {
            [self.fragmentation, also_full]
        };
        let reasons: Vec<Shortage> = reasons.into_iter().flatten().collect();
        if reasons.is_empty() {
            vec![Shortage::Unsaid]
        } else {
            reasons
        }
    }

    /// Returns the reasons if more was free than was requested.
    fn shortages_despite_free(&self, free: Bytes) -> Vec<Shortage> {
        let is_nearly_full = self.share(free) < UNUSABLE_SHARE;
        let others_fill = is_nearly_full
            && self.full.is_none()
            && self.share(others(self.breakdown)) >= LARGE_SHARE;
        let someone_else = others_fill.then_some(Shortage::SomeoneElse);
        let nearly_full = (is_nearly_full && !others_fill).then_some(Shortage::Full);
        [
            someone_else,
            Some(Shortage::Refused),
            self.fragmentation,
            nearly_full,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the reasons if less was free than was requested.
    fn shortages_beyond_free(&self, free: Bytes) -> Vec<Shortage> {
        let &Self {
            breakdown,
            requested,
            full,
            ..
        } = self;
        let share = |part: Bytes| self.share(part);
        let cache = cache(breakdown);
        let is_cache_large = share(cache) > LARGE_CACHE_SHARE && plus(cache, free) >= requested;
        let fragmentation = self
            .fragmentation
            .or(is_cache_large.then_some(Shortage::Fragmentation));
        let (others, outside) = (others(breakdown), memory_outside(breakdown));
        let is_someone_else =
            full.is_none() && plus(others, free) >= requested && share(others) >= OTHERS_SHARE;
        let someone_else = is_someone_else.then_some(Shortage::SomeoneElse);
        let is_outside =
            outside > CONTEXT && plus(outside, free) >= requested && share(outside) >= OTHERS_SHARE;
        let outside_pytorch = is_outside.then_some(Shortage::OutsidePytorch);
        let is_outside_first =
            is_outside && share(outside) >= LARGE_OUTSIDE_SHARE && outside > others;

        // Memory of the driver may take the last piece, though the process would fit by the figures
        // of the message.
        let filled = full.or(someone_else.is_none().then_some(Shortage::Full));
        let ordered = if fragmentation.is_some()
            && !is_cache_negligible(breakdown, self.total)
            && (is_cache_large || share(others) < LARGE_SHARE)
        {
            // Even in one piece, a small cache would soon be used up: the GPU is full, too.
            let is_also_full = !is_cache_large && (full.is_some() || share(others) < OTHERS_SHARE);
            let also_full = filled.filter(|_| is_also_full);
            [
                fragmentation,
                someone_else.filter(|_| share(others) >= LARGE_SHARE),
                outside_pytorch,
                also_full,
            ]
        } else if is_outside_first {
            [outside_pytorch, someone_else, fragmentation, filled]
        } else {
            [someone_else, filled, outside_pytorch, fragmentation]
        };
        ordered.into_iter().flatten().collect()
    }
}

pub(super) fn plus(part: Bytes, other: Bytes) -> Bytes {
    Bytes(part.0.saturating_add(other.0))
}

pub(super) fn cache(breakdown: &MessageBreakdown) -> Bytes {
    breakdown
        .part(MemoryOwner::Unallocated)
        .map_or(Bytes(0), RoundedAmount::bytes)
}

/// Whether PyTorch's cache is so small that no more than a step or two would fit into it.
pub(super) fn is_cache_negligible(breakdown: &MessageBreakdown, total: Bytes) -> bool {
    cache(breakdown)
        .share_of(total)
        .is_some_and(|share| share < USEFUL_CACHE_SHARE)
}

/// Returns the memory of this process outside PyTorch, 0 if the message does not tell it from other
/// memory.
pub(super) fn memory_outside(breakdown: &MessageBreakdown) -> Bytes {
    breakdown.not_pytorch.map_or(Bytes(0), RoundedAmount::bytes)
}

/// Returns a lower bound for the memory of other processes.
pub(super) fn others(breakdown: &MessageBreakdown) -> Bytes {
    match (breakdown.others, breakdown.not_pytorch) {
        (None, _) => breakdown
            .other_processes()
            .map(|(_, part)| part.bytes())
            .sum(),
        (Some(others), Some(_)) => others.bytes(),
        // The CUDA context of this process is counted among the others.
        (Some(others), None) => others.bytes().saturating_sub(CONTEXT),
    }
}
