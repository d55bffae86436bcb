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
        let writer = writer(message, own.unwrap_or_default());
        let held = held(message, writer);
        let beside = held.map(|held| held.minus(own.unwrap_or_default()));
        let mut contradictions = allocator_contradictions(message);
        contradictions.extend(beside.and_then(|beside| {
            contradiction(
                "PyTorch has reserved more than the driver says this process holds",
                beside.negated(),
            )
        }));
        // A message that was cut off earlier does not say how much of the memory PyTorch has
        // reserved.
        let not_pytorch = beside.filter(|_| unallocated.is_some() || reserved.is_some());

        let owner = if not_pytorch.is_some() {
            MemoryOwner::NotPyTorch
        } else {
            MemoryOwner::ThisProcess
        };
        let mut parts = Vec::new();
        parts.extend(allocated.map(|part| (MemoryOwner::Allocated, part)));
        parts.extend(unallocated.map(|part| (MemoryOwner::Unallocated, part)));
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
        // One figure for this process has less rounding than the sum of its parts.
        let held = held
            .filter(|held| own.is_none_or(|own| held.bytes >= own.bytes))
            .or(own);
        let mut breakdown = Self {
            parts,
            own,
            held,
            not_pytorch,
            others: None,
            writer,
            contradictions,
            rounding: Bytes(0),
        };
        breakdown.add_rest(message);
        breakdown
    }

    /// Adds the memory that the message does not account for, and the free memory.
    fn add_rest(&mut self, message: &OomMessage) {
        let this_process = self.held.filter(|_| self.own.is_some());
        if let (Some(total), Some(free), Some(this_process)) =
            (message.total, message.free, this_process)
        {
            let of_others = self.other_processes();
            let of_others =
                of_others.fold(RoundedAmount::default(), |sum, (_, part)| sum.plus(part));
            let rest = total.minus(free).minus(this_process).minus(of_others);
            self.rounding = rest.slack_bytes();
            self.contradictions.extend(contradiction(
                "the parts come to more than the GPU has",
                rest.negated(),
            ));
            self.others = Some(of_others);
            if rest.bytes > 0 {
                self.parts.push((MemoryOwner::Rest, rest));
                self.others = Some(of_others.plus(rest));
            }
        } else if let (Some(total), Some(own)) = (message.total, self.own) {
            self.contradictions.extend(contradiction(
                "PyTorch has more than the GPU has",
                own.minus(total),
            ));
        }
        self.parts
            .extend(message.free.map(|free| (MemoryOwner::Free, free)));
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

/// Returns a claim that the message's figures make, if they are certain to exceed what is possible.
fn contradiction(claim: &'static str, excess: RoundedAmount) -> Option<ContradictoryFigures> {
    let is_certain = excess.negated().is_impossible();
    is_certain.then_some(ContradictoryFigures { claim, by: excess })
}

/// Returns the contradictions between PyTorch's own figures.
fn allocator_contradictions(message: &OomMessage) -> Vec<ContradictoryFigures> {
    let check = |claim, part: Option<RoundedAmount>, whole: Option<RoundedAmount>| {
        contradiction(claim, part?.minus(whole?))
    };
    [
        check(
            "PyTorch has allocated more than it has reserved",
            message.allocated,
            message.reserved,
        ),
        check(
            "private pools hold more than is allocated in all",
            message.pools,
            message.allocated,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the memory of the process that wrote the message, by the figure for all of it.
fn held(message: &OomMessage, writer: WriterName) -> Option<RoundedAmount> {
    match (writer, message.this_process) {
        (WriterName::ThisProcess, held) => held?.ok(),
        (WriterName::HostPid(own), _) => {
            let mut others = message.others.iter();
            others.find(|(pid, _)| *pid == own)?.1.ok()
        }
        (WriterName::None, _) => None,
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
