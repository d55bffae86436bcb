//! Why an allocation failed, from what the message says: the main reason first, and each in a sentence.

use super::anatomy::{Anatomy, Sum};
use super::exact;
use super::message::{Form, Message};
use crate::base::units::Bytes;
use crate::model::Shortage;

/// What the driver cannot give of a GPU that is nearly full, as a part of it.
const CRUMBS: f64 = 0.02;
/// Cache of less than this, as a part of the GPU, is not what is missing.
const A_LITTLE: f64 = 0.01;
/// Who holds this much of a GPU is worth asking.
const MUCH: f64 = 0.2;
/// Others that hold less than this leave the GPU to this process.
const SOME: f64 = 0.05;

/// A context of CUDA takes some hundred MiB; where nobody says how much, this is taken for it at most.
const CONTEXT: Bytes = Bytes(1 << 30);

/// Why it failed.
///
/// 1. A size that is none, or no figures at all, say so themselves.
/// 2. More than the whole GPU has was asked for: too big.
/// 3. A limit is in the message, and what is reserved and asked for passes it: the limit.
/// 4. More was free than was asked for, and the GPU was not all but full: the driver refused.
/// 5. The cache has more than was asked for, and it is no trifle: fragmentation. Where it takes both the cache
///    and what is free, others that hold much come first.
/// 6. Even alone on the GPU it would not fit: this process fills it.
/// 7. Others hold what is missing: someone else. Otherwise this process fills it.
pub(super) fn judge(message: &Message, anatomy: &Anatomy) -> Vec<Shortage> {
    match message.form {
        Form::Absurd => return vec![Shortage::Absurd],
        Form::Rejected => return vec![Shortage::Limit],
        _ => {}
    }
    let (Some(requested), Some(total)) = (message.requested, message.total) else { return vec![Shortage::Unsaid] };
    let (requested, total) = (requested.bytes, total.bytes);
    if requested > total {
        return vec![Shortage::TooBig];
    }
    let share = |part: Bytes| part.share_of(total).unwrap_or(1.0);
    let own = anatomy.own.map(Sum::bytes);
    let cache = message_cache(anatomy);
    let is_cache_enough = |free: Bytes| cache.0.saturating_add(free.0) >= requested.0 && share(cache) >= A_LITTLE;
    let holders = others(anatomy);
    let fragmentation = is_cache_enough(Bytes(0)).then_some(Shortage::Fragmentation);
    let someone = (share(holders) >= MUCH).then_some(Shortage::SomeoneElse);

    if let (Some(allowed), Some(own)) = (message.allowed, own)
        && own.0.saturating_add(requested.0) > allowed.bytes.0
    {
        return [Some(Shortage::Limit), fragmentation].into_iter().flatten().collect();
    }
    let Some(free) = message.free.map(|it| it.bytes) else {
        return vec![fragmentation.unwrap_or(Shortage::Unsaid)];
    };
    if free >= requested && share(free) >= CRUMBS {
        return [Some(Shortage::Refused), fragmentation].into_iter().flatten().collect();
    }
    if let Some(fragmentation) = fragmentation {
        return [Some(fragmentation), someone].into_iter().flatten().collect();
    }
    if is_cache_enough(free) {
        return [someone, Some(Shortage::Fragmentation)].into_iter().flatten().collect();
    }
    let Some(own) = own else { return vec![Shortage::Unsaid] };
    let needed = own.0.saturating_sub(cache.0).saturating_add(requested.0);
    let alone = needed.saturating_add(anatomy.not_pytorch.map_or(0, |it| it.bytes().0));
    let missing = requested.0.saturating_sub(free.0.saturating_add(cache.0));
    if alone <= total.0 && holders.0 >= missing && share(holders) >= SOME {
        return vec![Shortage::SomeoneElse];
    }
    vec![Shortage::Full]
}

fn message_cache(anatomy: &Anatomy) -> Bytes {
    use super::anatomy::Whose;
    let cache = anatomy.parts.iter().find(|(whose, _)| *whose == Whose::Unallocated);
    cache.map_or(Bytes(0), |(_, part)| part.bytes())
}

/// What others hold, at least.
fn others(anatomy: &Anatomy) -> Bytes {
    let Some(others) = anatomy.others else { return anatomy.named_others().map(|(_, part)| part.bytes()).sum() };
    match anatomy.not_pytorch {
        Some(_) => others.bytes(),
        // This process's own context is among them.
        None => others.bytes().saturating_sub(CONTEXT),
    }
}

/// The reason in a sentence, for a person.
pub(super) fn sentence(shortage: Shortage, message: &Message, anatomy: &Anatomy) -> String {
    let say = |amount: Option<super::message::Amount>| amount.map_or_else(|| "?".to_owned(), |it| exact(it.bytes));
    let (requested, total, free) = (say(message.requested), say(message.total), say(message.free));
    let own = anatomy.own.map_or_else(|| "?".to_owned(), |it| exact(it.bytes()));
    match shortage {
        Shortage::TooBig => format!("{requested} were asked for at once, and the whole GPU has {total}."),
        Shortage::Full => {
            format!("this process itself has {own} of the GPU's {total}, and asked for {requested} more.")
        }
        Shortage::Fragmentation => {
            let cache = exact(message_cache(anatomy));
            let beside = if message_cache(anatomy).0 < message.requested.map_or(0, |it| it.bytes.0) {
                format!(", and {free} are free")
            } else {
                String::new()
            };
            format!(
                "{cache} are reserved by PyTorch and unallocated{beside}; but no piece of it was as large as the \
                 {requested} asked for."
            )
        }
        Shortage::SomeoneElse => {
            let named: Vec<(u32, Sum)> = anatomy.named_others().collect();
            let held: Bytes = named.iter().map(|(_, part)| part.bytes()).sum();
            let (who, has, them) = match named.as_slice() {
                [(pid, _)] => (format!("process {pid}"), "holds", "it"),
                _ => (format!("{} other processes", named.len()), "hold", "them"),
            };
            if held.share_of(others(anatomy)).is_some_and(|it| it >= 0.5) {
                format!(
                    "{who} {has} {} of the GPU's {total}; without {them}, {requested} would have had room.",
                    exact(held)
                )
            } else {
                format!(
                    "of the GPU's {total}, this process has {own}, and {free} are free. The message does not name those \
                     who have the rest; without them, {requested} would have had room."
                )
            }
        }
        Shortage::Limit => match message.allowed {
            Some(allowed) => format!(
                "this process may reserve {}; it has {own}, and asked for {requested} more. {free} of the GPU are free.",
                exact(allowed.bytes)
            ),
            None => format!(
                "{requested} more would have passed the part of the GPU that this process may have; PyTorch did not \
                 even ask the driver."
            ),
        },
        Shortage::Refused => format!("{free} were free when this was written, and {requested} were asked for."),
        Shortage::Absurd => "more than 1 EB was asked for.".to_owned(),
        Shortage::Unsaid => "the message does not have the figures that would tell.".to_owned(),
    }
}
