//! The reasons why an allocation failed, from the figures of the message, and a sentence for each.

use super::breakdown::{MemoryOwner, MessageBreakdown};
use super::exact;
use super::message::{MessageForm, OomMessage, RoundedAmount};
use crate::base::units::Bytes;
use crate::model::Shortage;

/// The share of a GPU that the driver cannot allocate even if it is free.
const UNUSABLE_SHARE: f64 = 0.02;
/// The smallest share of a GPU in PyTorch's cache with which the cache counts as a reason.
const CACHE_SHARE: f64 = 0.01;
/// The smallest share of a GPU held by other processes with which they count beside another reason.
const LARGE_SHARE: f64 = 0.2;
/// The smallest share of a GPU held by other processes with which they can be the only reason.
const OTHERS_SHARE: f64 = 0.05;

/// An upper bound for the memory of a CUDA context, for messages that do not tell it from other memory.
const CONTEXT: Bytes = Bytes(1 << 30);

/// Returns the reasons why the allocation failed, the main one first.
///
/// 1. An absurd size, a rejection, or no figures: the message says so.
/// 2. More was requested than the GPU has: too big.
/// 3. The message has a limit, and reserved and requested memory exceed it: limit.
/// 4. More was free than was requested, and more than the driver cannot allocate: refused.
/// 5. The cache has more than was requested, and is not tiny: fragmentation. If the request fits only into the cache and
///    free memory together, other processes that hold much come first.
/// 6. The request would not fit even if the process had the GPU alone: this process fills it.
/// 7. Other processes hold what is missing: someone else. Otherwise this process fills the GPU.
pub(super) fn shortages(message: &OomMessage, breakdown: &MessageBreakdown) -> Vec<Shortage> {
    match message.form {
        MessageForm::Absurd => return vec![Shortage::Absurd],
        MessageForm::Rejected => return vec![Shortage::Limit],
        _ => {}
    }
    let (Some(requested), Some(total)) = (message.requested, message.total) else { return vec![Shortage::Unsaid] };
    let (requested, total) = (requested.bytes(), total.bytes());
    if requested > total {
        return vec![Shortage::TooBig];
    }
    let share = |part: Bytes| part.share_of(total).unwrap_or(1.0);
    let own = breakdown.own.map(RoundedAmount::bytes);
    let cache = cache(breakdown);
    let is_cache_enough = |free: Bytes| cache.0.saturating_add(free.0) >= requested.0 && share(cache) >= CACHE_SHARE;
    let others = others(breakdown);
    let fragmentation = is_cache_enough(Bytes(0)).then_some(Shortage::Fragmentation);
    let someone_else = (share(others) >= LARGE_SHARE).then_some(Shortage::SomeoneElse);

    if let (Some(allowed), Some(own)) = (message.allowed, own)
        && own.0.saturating_add(requested.0) > allowed.bytes().0
    {
        return [Some(Shortage::Limit), fragmentation].into_iter().flatten().collect();
    }
    let Some(free) = message.free.map(RoundedAmount::bytes) else {
        return vec![fragmentation.unwrap_or(Shortage::Unsaid)];
    };
    if free >= requested && share(free) >= UNUSABLE_SHARE {
        return [Some(Shortage::Refused), fragmentation].into_iter().flatten().collect();
    }
    if let Some(fragmentation) = fragmentation {
        return [Some(fragmentation), someone_else].into_iter().flatten().collect();
    }
    if is_cache_enough(free) {
        return [someone_else, Some(Shortage::Fragmentation)].into_iter().flatten().collect();
    }
    let Some(own) = own else { return vec![Shortage::Unsaid] };
    let needed = own.0.saturating_sub(cache.0).saturating_add(requested.0);
    let alone = needed.saturating_add(breakdown.not_pytorch.map_or(0, |part| part.bytes().0));
    let missing = requested.0.saturating_sub(free.0.saturating_add(cache.0));
    let is_someone_else = alone <= total.0 && others.0 >= missing && share(others) >= OTHERS_SHARE;
    vec![if is_someone_else { Shortage::SomeoneElse } else { Shortage::Full }]
}

fn cache(breakdown: &MessageBreakdown) -> Bytes {
    breakdown.part(MemoryOwner::Unallocated).map_or(Bytes(0), RoundedAmount::bytes)
}

/// Returns a lower bound for the memory of other processes.
fn others(breakdown: &MessageBreakdown) -> Bytes {
    match (breakdown.others, breakdown.not_pytorch) {
        (None, _) => breakdown.other_processes().map(|(_, part)| part.bytes()).sum(),
        (Some(others), Some(_)) => others.bytes(),
        // The CUDA context of this process is counted among the others.
        (Some(others), None) => others.bytes().saturating_sub(CONTEXT),
    }
}

pub(super) fn sentence(shortage: Shortage, message: &OomMessage, breakdown: &MessageBreakdown) -> String {
    let amount = |amount: Option<RoundedAmount>| amount.map_or_else(|| "?".to_owned(), |amount| exact(amount.bytes()));
    let (requested, total, free) = (amount(message.requested), amount(message.total), amount(message.free));
    let own = breakdown.own.map_or_else(|| "?".to_owned(), |own| exact(own.bytes()));
    match shortage {
        Shortage::TooBig => format!("{requested} were requested at once, and the whole GPU has {total}."),
        Shortage::Full => {
            format!("this process itself has {own} of the GPU's {total}, and requested {requested} more.")
        }
        Shortage::Fragmentation => {
            let cache = cache(breakdown);
            let needs_free = cache.0 < message.requested.map_or(0, |requested| requested.bytes().0);
            let free = if needs_free { format!(", and {free} are free") } else { String::new() };
            format!(
                "{} are reserved by PyTorch and unallocated{free}, but no contiguous piece is as large as the requested \
                 {requested}.",
                exact(cache)
            )
        }
        Shortage::SomeoneElse => {
            let named: Vec<(u32, RoundedAmount)> = breakdown.other_processes().collect();
            let held: Bytes = named.iter().map(|(_, part)| part.bytes()).sum();
            let (subject, holds, them) = match named.as_slice() {
                [(pid, _)] => (format!("process {pid}"), "holds", "it"),
                _ => (format!("{} other processes", named.len()), "hold", "them"),
            };
            if held.share_of(others(breakdown)).is_some_and(|share| share >= 0.5) {
                format!(
                    "{subject} {holds} {} of the GPU's {total}; without {them}, {requested} would have fit.",
                    exact(held)
                )
            } else {
                format!(
                    "of the GPU's {total}, this process has {own}, and {free} are free. The message does not name the \
                     processes that hold the rest; without them, {requested} would have fit."
                )
            }
        }
        Shortage::Limit => match message.allowed {
            Some(allowed) => format!(
                "this process may reserve {}; it has {own}, and requested {requested} more. {free} of the GPU are free.",
                exact(allowed.bytes())
            ),
            None => format!(
                "{requested} more would have exceeded this process's memory fraction; PyTorch did not even ask the \
                 driver."
            ),
        },
        Shortage::Refused => format!("{free} were free when this was written, and {requested} were requested."),
        Shortage::Absurd => "more than 1 EB was requested.".to_owned(),
        Shortage::Unsaid => "the message does not have the figures that would show the reason.".to_owned(),
    }
}
