//! A sentence for each reason, with the arithmetic that shows it: the figures of the message, and
//! their sum.

use super::breakdown::{MemoryOwner, MessageBreakdown};
use super::exact;
use super::message::{OomMessage, RoundedAmount};
use super::shortage::{cache, is_cache_negligible, memory_outside, others, plus};
use crate::base::units::Bytes;
use crate::model::Shortage;

/// The smallest share of a GPU held by other processes that a sentence on a full GPU mentions.
const MENTIONED_SHARE: f64 = 0.05;

/// The figures of a sentence. `None` if the message does not have a figure.
struct SentenceFigures {
    requested: Option<Bytes>,
    total: Option<Bytes>,
    free: Option<Bytes>,
    held: Option<Bytes>,
}

impl SentenceFigures {
    fn new(message: &OomMessage, breakdown: &MessageBreakdown) -> Self {
        let bytes = |amount: Option<RoundedAmount>| amount.map(RoundedAmount::bytes);
        Self {
            requested: bytes(message.requested),
            total: bytes(message.total),
            free: bytes(message.free),
            held: bytes(breakdown.held),
        }
    }
}

pub(super) fn sentence(
    shortage: Shortage,
    message: &OomMessage,
    breakdown: &MessageBreakdown,
) -> String {
    let sentence = match shortage {
        Shortage::TooBig => too_big(message, breakdown),
        Shortage::Full => full(message, breakdown),
        Shortage::Fragmentation => fragmentation(message, breakdown),
        Shortage::OutsidePytorch => outside_pytorch(message, breakdown),
        Shortage::SomeoneElse => someone_else(message, breakdown),
        Shortage::Limit => limit(message, breakdown),
        Shortage::Refused => refused(message, breakdown),
        Shortage::Absurd => {
            Some("more than 1 EB was requested, which is no real size: a dimension of a tensor is wrong.".to_owned())
        }
        Shortage::Retried => Some(retried(message, breakdown)),
        Shortage::Unsaid => None,
    };
    sentence.unwrap_or_else(|| {
        "the message does not have the figures that would show the reason.".to_owned()
    })
}

fn too_big(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let figures = SentenceFigures::new(message, breakdown);
    Some(format!(
        "{} were requested at once, and the whole GPU has {}.",
        exact_beside(figures.requested?, figures.total?),
        exact(figures.total?)
    ))
}

fn full(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let figures = SentenceFigures::new(message, breakdown);
    let (requested, total, held) = (figures.requested?, figures.total?, figures.held?);
    let holds = holds(breakdown, held);
    let sum = plus(held, requested);
    if sum > total {
        let others = others(breakdown);
        let is_large = others
            .share_of(total)
            .is_some_and(|share| share >= MENTIONED_SHARE);
        let others = if is_large {
            format!(
                " It would not fit without the {} of others either.",
                exact(others)
            )
        } else {
            String::new()
        };
        return Some(format!(
            "{holds} and asked for {} more: {}.{others}",
            exact(requested),
            sum_of(sum, total)
        ));
    }
    let free = figures.free?;
    let rest = total.saturating_sub(plus(held, free));
    if requested > free {
        let owners = if breakdown.not_pytorch.is_some() {
            "the driver and others hold"
        } else {
            "this process's CUDA context, the driver and others hold"
        };
        let sum = plus(plus(held, rest), requested);
        return Some(format!(
            "{holds}, {owners} {}, and it asked for {} more: {}.",
            exact(rest),
            exact(requested),
            sum_of(sum, total)
        ));
    }
    Some(format!(
        "{holds} of the GPU's {}, and asked for {} more. The {} that are free are the last pieces, which the driver cannot \
         always give away.",
        exact(total),
        exact(requested),
        exact(free)
    ))
}

/// Returns `this process holds 78.10 GiB (76.90 GiB of tensors, 400.00 MiB cached, 820.00 MiB
/// outside PyTorch)`.
fn holds(breakdown: &MessageBreakdown, held: Bytes) -> String {
    let named = [
        (MemoryOwner::Allocated, "of tensors"),
        (MemoryOwner::Unallocated, "cached"),
        (MemoryOwner::NotPyTorch, "outside PyTorch"),
        (MemoryOwner::ThisProcess, "that may be PyTorch's or not"),
    ];
    let parts: Vec<String> = named
        .into_iter()
        .filter_map(|(owner, name)| Some((breakdown.part(owner)?.bytes(), name)))
        .filter(|(part, _)| *part > Bytes(0))
        .map(|(part, name)| format!("{} {name}", exact(part)))
        .collect();
    match parts.as_slice() {
        [only] => format!("this process holds {only}"),
        [] => format!("this process holds {}", exact(held)),
        parts => format!("this process holds {} ({})", exact(held), parts.join(", ")),
    }
}

fn fragmentation(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let requested = message.requested?.bytes();
    let cache = cache(breakdown);
    if let Some(total) = message
        .total
        .map(RoundedAmount::bytes)
        .filter(|total| is_cache_negligible(breakdown, *total))
    {
        return Some(format!(
            "PyTorch's cache has {} that no tensor uses, but in pieces that are each smaller than the {} asked for. Even in \
             one piece it would be used up soon: it is only {:.1}% of the GPU.",
            exact(cache),
            exact(requested),
            cache.share_of(total)? * 100.0
        ));
    }
    if cache >= requested {
        return Some(format!(
            "PyTorch's cache has {} that no tensor uses, more than the {} asked for, but in pieces that are each too small.",
            exact(cache),
            exact(requested)
        ));
    }
    let free = message.free?.bytes();
    Some(format!(
        "PyTorch's cache has {} that no tensor uses, and {} are free: {} in all, enough for the {} asked for, but in pieces \
         that are each too small.",
        exact(cache),
        exact(free),
        exact(plus(cache, free)),
        exact(requested)
    ))
}

fn outside_pytorch(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let figures = SentenceFigures::new(message, breakdown);
    let (requested, free, held) = (figures.requested?, figures.free?, figures.held?);
    let outside = memory_outside(breakdown);
    Some(format!(
        "{} of the {} that this process holds are outside PyTorch. Without them {} would be free, enough for the {} asked \
         for.",
        exact(outside),
        exact(held),
        exact(plus(outside, free)),
        exact(requested)
    ))
}

fn someone_else(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let figures = SentenceFigures::new(message, breakdown);
    let (requested, total, free, held) = (
        figures.requested?,
        figures.total?,
        figures.free?,
        figures.held?,
    );
    let named: Vec<(u32, RoundedAmount)> = breakdown.other_processes().collect();
    let of_named: Bytes = named.iter().map(|(_, part)| part.bytes()).sum();
    let subject = match named.as_slice() {
        [(pid, _)] => format!("process {pid} holds"),
        _ => format!("{} other processes hold", named.len()),
    };
    // The process may have nothing yet but its context.
    let alone = format!(
        "This process holds {} and asked for {} more: {}, which an otherwise empty GPU has.",
        exact(held),
        exact(requested),
        sum_of(plus(held, requested), total)
    );
    if of_named
        .share_of(others(breakdown))
        .is_some_and(|share| share >= 0.5)
    {
        return Some(format!(
            "{subject} {} of the GPU's {}. {alone}",
            exact(of_named),
            exact(total)
        ));
    }
    let rest = total.saturating_sub(plus(held, free));
    let or_outside = if breakdown.not_pytorch.is_some() {
        ""
    } else {
        ", or to other libraries in this process"
    };
    Some(format!(
        "{} of the GPU's {} belong to processes that the message does not name{or_outside}. {alone}",
        exact(rest),
        exact(total)
    ))
}

fn limit(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let requested = message.requested?.bytes();
    let (Some(allowed), Some(own)) = (message.allowed, breakdown.own) else {
        return Some(format!(
            "{} more would have exceeded this process's memory fraction; PyTorch did not even ask the driver.",
            exact(requested)
        ));
    };
    let (allowed, own) = (allowed.bytes(), own.bytes());
    let free = message.free.map_or_else(String::new, |free| {
        format!(" {} of the GPU are free.", exact(free.bytes()))
    });
    Some(format!(
        "a memory fraction allows this process {}. It has {} and asked for {} more: {}.{free}",
        exact(allowed),
        exact(own),
        exact(requested),
        sum_of(plus(own, requested), allowed)
    ))
}

fn refused(message: &OomMessage, breakdown: &MessageBreakdown) -> Option<String> {
    let figures = SentenceFigures::new(message, breakdown);
    Some(format!(
        "{} were free when this was written, more than the {} asked for.",
        exact(figures.free?),
        exact(figures.requested?)
    ))
}

fn retried(message: &OomMessage, breakdown: &MessageBreakdown) -> String {
    const WARNING: &str = "This line is a warning: PyTorch frees its cache and tries again. No error follows in this log, so the \
        second try succeeded, and it cost only time.";
    let figures = SentenceFigures::new(message, breakdown);
    match (figures.requested, figures.free, figures.total) {
        (Some(requested), Some(free), Some(total)) => format!(
            "{} were asked for, and {} of the GPU's {} were free. {WARNING}",
            exact(requested),
            exact(free),
            exact(total)
        ),
        _ => WARNING.to_owned(),
    }
}

/// Formats an amount in MiB if the amount beside which it stands is in MiB.
fn exact_beside(amount: Bytes, other: Bytes) -> String {
    const MIB: u64 = 1 << 20;
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let in_mib = || format!("{:.2} MiB", amount.0 as f64 / MIB as f64);
    if (MIB..MIB << 10).contains(&other.0) && amount.0 >= MIB << 10 {
        in_mib()
    } else {
        exact(amount)
    }
}

/// Returns `80.10 GiB of 79.25 GiB`. Amounts that differ look different.
fn sum_of(sum: Bytes, limit: Bytes) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let in_unit = |bytes: Bytes, unit: u64| format!("{:.2}", bytes.0 as f64 / unit as f64);
    if sum == limit || exact(sum) != exact(limit) {
        return format!("{} of {}", exact_beside(sum, limit), exact(limit));
    }
    let (unit, name) = if limit.0 >= 1 << 30 {
        (1 << 20, "MiB")
    } else {
        (1 << 10, "KiB")
    };
    format!(
        "{} {name} of {} {name}",
        in_unit(sum, unit),
        in_unit(limit, unit)
    )
}
