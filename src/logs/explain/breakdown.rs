//! The owners of a GPU's memory according to a message, and whether the message's figures add up.
//!
//! ```text
//! total = this process: allocated + unallocated + not PyTorch's
//!       + other processes, each by PID
//!       + the rest, which the message does not account for
//!       + free
//! ```

use super::message::{MessageForm, OomMessage, RoundedAmount};
use crate::base::units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryOwner {
    /// Tensors and private pools of this process.
    Allocated,
    /// PyTorch's cache in this process.
    Unallocated,
    /// Memory of this process outside PyTorch.
    NotPyTorch,
    /// Memory of this process of which the message does not say whether it is PyTorch's.
    ThisProcess,
    OtherProcess(u32),
    Rest,
    Free,
}

/// How the message names the process that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriterName {
    None,
    ThisProcess,
    /// By this PID on the host, which the process in a container does not know.
    HostPid(u32),
}

/// A sum of the message's figures that is impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContradictoryFigures {
    pub claim: &'static str,
    pub by: RoundedAmount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageBreakdown {
    /// The known parts, in the order of the bar. They add up to the total if total and free memory
    /// are known and nothing contradicts.
    pub parts: Vec<(MemoryOwner, RoundedAmount)>,
    /// Memory reserved by PyTorch in this process, or allocated if only that is known.
    pub own: Option<RoundedAmount>,
    /// All memory of this process that the message tells from that of others: at least `own`.
    pub held: Option<RoundedAmount>,
    pub not_pytorch: Option<RoundedAmount>,
    /// Memory of other processes and memory that is not accounted for, if known.
    pub others: Option<RoundedAmount>,
    pub writer: WriterName,
    pub contradictions: Vec<ContradictoryFigures>,
    /// How far rounding may have taken the sum of the parts from the total.
    pub rounding: Bytes,
}

impl MessageBreakdown {
    pub(super) fn of(message: &OomMessage) -> Self {
        let mut contradictions = Vec::new();
        let mut check = |claim, excess: RoundedAmount| {
            if excess.negated().is_impossible() {
                contradictions.push(ContradictoryFigures { claim, by: excess });
            }
        };
        let (allocated, reserved) = (message.allocated, message.reserved);
        let unallocated = match (message.unallocated, reserved, allocated) {
            (Some(unallocated), ..) => Some(unallocated),
            (None, Some(reserved), Some(allocated)) => Some(reserved.minus(allocated)),
            _ => None,
        };
        let own = match (reserved, allocated, unallocated) {
            (Some(reserved), ..) => Some(reserved),
            (None, Some(allocated), Some(unallocated)) => Some(allocated.plus(unallocated)),
            (None, allocated, _) => allocated,
        };
        if let (Some(allocated), Some(reserved)) = (allocated, reserved) {
            check(
                "PyTorch has allocated more than it has reserved",
                allocated.minus(reserved),
            );
        }
        if let (Some(pools), Some(allocated)) = (message.pools, allocated) {
            check(
                "private pools hold more than is allocated in all",
                pools.minus(allocated),
            );
        }

        let writer = writer(message, own.unwrap_or_default());
        let held = match (writer, message.this_process) {
            (WriterName::ThisProcess, Some(held)) => held.ok(),
            (WriterName::HostPid(own), _) => message
                .others
                .iter()
                .find(|(pid, _)| *pid == own)
                .and_then(|(_, held)| held.ok()),
            _ => None,
        };
        let beside = held.map(|held| held.minus(own.unwrap_or_default()));
        if let Some(beside) = beside {
            check(
                "PyTorch has reserved more than the driver says this process holds",
                beside.negated(),
            );
        }
        // A message that was cut off earlier does not say how much of the memory PyTorch has
        // reserved.
        let not_pytorch = beside.filter(|_| unallocated.is_some() || reserved.is_some());

        let mut parts = Vec::new();
        parts.extend(allocated.map(|part| (MemoryOwner::Allocated, part)));
        parts.extend(unallocated.map(|part| (MemoryOwner::Unallocated, part)));
        let owner = if not_pytorch.is_some() {
            MemoryOwner::NotPyTorch
        } else {
            MemoryOwner::ThisProcess
        };
        parts.extend(beside.map(|part| (owner, part)));
        let others = message
            .others
            .iter()
            .filter(|(pid, _)| writer != WriterName::HostPid(*pid));
        parts.extend(
            others.filter_map(|(pid, held)| Some((MemoryOwner::OtherProcess(*pid), held.ok()?))),
        );
        // A negative part is reported as a contradiction above.
        for (_, part) in &mut parts {
            part.bytes = part.bytes.max(0);
        }
        let mut others = None;
        let mut rounding = Bytes(0);
        // One figure for this process has less rounding than the sum of its parts.
        let held = held
            .filter(|held| own.is_none_or(|own| held.bytes >= own.bytes))
            .or(own);
        if let (Some(total), Some(free), Some(this_process)) =
            (message.total, message.free, held.filter(|_| own.is_some()))
        {
            let of_others = parts
                .iter()
                .filter(|(owner, _)| matches!(owner, MemoryOwner::OtherProcess(_)));
            let of_others =
                of_others.fold(RoundedAmount::default(), |sum, (_, part)| sum.plus(*part));
            let rest = total.minus(free).minus(this_process).minus(of_others);
            rounding = rest.slack();
            check("the parts come to more than the GPU has", rest.negated());
            others = Some(of_others);
            if rest.bytes > 0 {
                parts.push((MemoryOwner::Rest, rest));
                others = Some(of_others.plus(rest));
            }
        } else if let (Some(total), Some(own)) = (message.total, own) {
            check("PyTorch has more than the GPU has", own.minus(total));
        }
        parts.extend(message.free.map(|free| (MemoryOwner::Free, free)));
        Self {
            parts,
            own,
            held,
            not_pytorch,
            others,
            writer,
            contradictions,
            rounding,
        }
    }

    pub(super) fn part(&self, owner: MemoryOwner) -> Option<RoundedAmount> {
        self.parts
            .iter()
            .find(|(known, _)| *known == owner)
            .map(|(_, part)| *part)
    }

    pub(super) fn other_processes(&self) -> impl Iterator<Item = (u32, RoundedAmount)> {
        self.parts.iter().filter_map(|(owner, part)| match owner {
            MemoryOwner::OtherProcess(pid) => Some((*pid, *part)),
            _ => None,
        })
    }
}

/// Finds the process that wrote the message. The driver lists a process of a container under its
/// PID on the host, which the process does not know. So the message has its own process among the
/// others.
fn writer(message: &OomMessage, own: RoundedAmount) -> WriterName {
    if message.this_process.is_some() {
        return WriterName::ThisProcess;
    }
    if message.form != MessageForm::Sentences || message.is_cut {
        return WriterName::None;
    }
    // The process holds at least what PyTorch has reserved. Of several candidates, the smallest one
    // leaves the least memory unexplained.
    let candidates = message.others.iter().filter_map(|(pid, held)| {
        let held = held.ok()?;
        (!held.minus(own).is_impossible()).then_some((held.bytes, *pid))
    });
    candidates
        .min()
        .map_or(WriterName::None, |(_, pid)| WriterName::HostPid(pid))
}
