//! A message taken apart: who has how much of the GPU, and whether the message's own figures add up.
//!
//! ```text
//! total = this process: allocated + unallocated + not PyTorch's
//!       + other processes, each by PID
//!       + the rest: what the message accounts for nowhere
//!       + free
//! ```

use super::message::{Amount, Form, Message};
use crate::base::units::Bytes;

/// A sum of amounts, and how far rounding may have taken it from the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub bytes: i128,
    pub slack: i128,
}

impl Sum {
    fn plus(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        Self { bytes: self.bytes + other.bytes, slack: self.slack + other.slack }
    }

    fn minus(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        Self { bytes: self.bytes - other.bytes, slack: self.slack + other.slack }
    }

    /// As much of it as there can be.
    pub(super) fn bytes(self) -> Bytes {
        Bytes(u64::try_from(self.bytes.max(0)).unwrap_or(u64::MAX))
    }

    /// How far rounding may have taken it.
    pub(super) fn slack(self) -> Bytes {
        Self { bytes: self.slack, slack: 0 }.bytes()
    }

    /// Below 0 by more than rounding explains.
    fn is_impossible(self) -> bool {
        self.bytes < -self.slack
    }
}

impl From<Amount> for Sum {
    fn from(amount: Amount) -> Self {
        Self { bytes: amount.bytes.0.into(), slack: amount.slack.0.into() }
    }
}

impl From<Option<Amount>> for Sum {
    fn from(amount: Option<Amount>) -> Self {
        amount.map_or_else(Self::default, Self::from)
    }
}

/// Whose a part of the GPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// This process's, held by its tensors and private pools.
    Allocated,
    /// This process's, in PyTorch's cache.
    Unallocated,
    /// This process's, beside PyTorch.
    NotPyTorch,
    /// This process's; whether PyTorch's, the message does not say.
    Held,
    /// That process's.
    Other(u32),
    /// Not accounted for in the message.
    Rest,
    /// Nobody's.
    Free,
}

/// Under which name this process stands in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Me {
    /// What it holds in all is not in the message.
    Unnamed,
    /// "this process".
    Named,
    /// A PID: in a container, processes go by the PIDs of the host.
    As(u32),
}

/// A sum of the message's own that does not come out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// What is more than what.
    pub claim: &'static str,
    /// By how much, and how much of that rounding can explain.
    pub by: Sum,
}

/// A message taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Anatomy {
    /// Those that are known, in the order of a bar. Where total and free are known and nothing is amiss,
    /// they add up to the total.
    pub parts: Vec<(Whose, Sum)>,
    /// Reserved by PyTorch in this process, or allocated where only that is known.
    pub own: Option<Sum>,
    /// Held by this process beside PyTorch; absent when nobody says.
    pub not_pytorch: Option<Sum>,
    /// Used by others or not accounted for; absent when nobody says.
    pub others: Option<Sum>,
    pub me: Me,
    pub mismatches: Vec<Mismatch>,
    /// How far rounding may have taken the sum of the parts from the total.
    pub rounding: Bytes,
}

impl Anatomy {
    pub(super) fn of(message: &Message) -> Self {
        let mut mismatches = Vec::new();
        let mut amiss = |claim, excess: Sum| {
            if (Sum { bytes: -excess.bytes, ..excess }).is_impossible() {
                mismatches.push(Mismatch { claim, by: excess });
            }
        };
        let allocated = message.allocated.map(Sum::from);
        let unallocated = match (message.unallocated, message.reserved, allocated) {
            (Some(unallocated), ..) => Some(unallocated.into()),
            (None, Some(reserved), Some(allocated)) => Some(Sum::from(reserved).minus(allocated)),
            _ => None,
        };
        let own = match (message.reserved, allocated, unallocated) {
            (Some(reserved), ..) => Some(reserved.into()),
            (None, Some(allocated), Some(unallocated)) => Some(allocated.plus(unallocated)),
            (None, allocated, _) => allocated,
        };
        if let (Some(allocated), Some(reserved)) = (allocated, message.reserved) {
            amiss("PyTorch has allocated more than it has reserved", allocated.minus(reserved));
        }
        if let (Some(pools), Some(allocated)) = (message.pools, allocated) {
            amiss("private pools hold more than is allocated in all", Sum::from(pools).minus(allocated));
        }

        let me = me(message, own.unwrap_or_default());
        let held = match (me, message.this_process) {
            (Me::Named, Some(held)) => held.ok(),
            (Me::As(me), _) => message.others.iter().find(|(pid, _)| *pid == me).and_then(|(_, held)| held.ok()),
            _ => None,
        };
        let beside = held.map(|held| Sum::from(held).minus(own.unwrap_or_default()));
        if let Some(beside) = beside {
            amiss(
                "PyTorch has reserved more than the driver says this process holds",
                Sum { bytes: -beside.bytes, ..beside },
            );
        }
        // Of a message that was cut off before that, nobody knows how much of it PyTorch has reserved.
        let not_pytorch = beside.filter(|_| unallocated.is_some() || message.reserved.is_some());

        let mut parts = Vec::new();
        parts.extend(allocated.map(|it| (Whose::Allocated, it)));
        parts.extend(unallocated.map(|it| (Whose::Unallocated, it)));
        let whose = if not_pytorch.is_some() { Whose::NotPyTorch } else { Whose::Held };
        parts.extend(beside.map(|it| (whose, it)));
        let others = message.others.iter().filter(|(pid, _)| me != Me::As(*pid));
        parts.extend(others.filter_map(|(pid, held)| Some((Whose::Other(*pid), held.ok()?.into()))));
        // What a part cannot be is said above, and is not a part.
        for (_, part) in &mut parts {
            part.bytes = part.bytes.max(0);
        }
        let mut others = None;
        let mut rounding = Bytes(0);
        if let (Some(total), Some(free), Some(own)) = (message.total, message.free, own) {
            // Taken as a whole, rather than in parts that were rounded one by one.
            let mine = held.map(Sum::from).filter(|held| held.bytes >= own.bytes).unwrap_or(own);
            let of_others = parts.iter().filter(|(whose, _)| matches!(whose, Whose::Other(_)));
            let of_others = of_others.fold(Sum::default(), |sum, (_, part)| sum.plus(*part));
            let rest = Sum::from(total).minus(free).minus(mine).minus(of_others);
            rounding = rest.slack();
            amiss("the parts come to more than the GPU has", Sum { bytes: -rest.bytes, ..rest });
            others = Some(of_others);
            if rest.bytes > 0 {
                parts.push((Whose::Rest, rest));
                others = Some(of_others.plus(rest));
            }
        } else if let (Some(total), Some(own)) = (message.total, own) {
            amiss("PyTorch has more than the GPU has", own.minus(total));
        }
        parts.extend(message.free.map(|it| (Whose::Free, it.into())));
        Self { parts, own, not_pytorch, others, me, mismatches, rounding }
    }

    /// What others hold that the message names.
    pub(super) fn named_others(&self) -> impl Iterator<Item = (u32, Sum)> {
        self.parts.iter().filter_map(|(whose, part)| match whose {
            Whose::Other(pid) => Some((*pid, *part)),
            _ => None,
        })
    }
}

/// In a container the driver lists this process, too, under a PID that it does not know as its own.
fn me(message: &Message, own: Sum) -> Me {
    if message.this_process.is_some() {
        return Me::Named;
    }
    if message.form != Form::Sentences || message.is_cut {
        return Me::Unnamed;
    }
    // It holds at least what PyTorch reserved. Of two that do, the smaller leaves less unexplained.
    let can = message.others.iter().filter_map(|(pid, held)| {
        let held = Sum::from(held.ok()?);
        (!held.minus(own).is_impossible()).then_some((held.bytes, *pid))
    });
    can.min().map_or(Me::Unnamed, |(_, pid)| Me::As(pid))
}
