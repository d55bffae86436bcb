//! Makes of NVML's process lists one hold for each process.
//!
//! The compute and graphics lists overlap, so a PID is counted once.

use super::gpu::{Gpu, Pass};
use super::process_lists::{Entry, List};
use super::process_utilization::{self, Shares};
use crate::agent::Hold;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Missing, Reading, Trouble, Use};

/// The processes of one GPU, as its lists named them last.
#[derive(Debug, Default)]
pub(super) struct Lane {
    lists: [Vec<Entry>; 3],
    /// When each was asked for. Not each is read in each pass, and one that fails stays as it was.
    listed: [Moment; 3],
    /// Why a list is not to be had.
    troubles: [Option<Trouble>; 3],
    scratch: Vec<Entry>,
    pub(super) merged: Vec<Hold>,
    pub(super) shares: Shares,
}

impl Lane {
    /// Where the next list is read into.
    pub(super) fn scratch(&mut self) -> &mut Vec<Entry> {
        &mut self.scratch
    }

    /// Takes what was read as this list, asked for at `listed` or later.
    pub(super) fn take(&mut self, list: List, listed: Moment) {
        self.listed[list as usize] = listed;
        std::mem::swap(&mut self.lists[list as usize], &mut self.scratch);
    }

    /// Each process once, by PID, as merged last; it leaves them.
    pub(super) fn take_holds(&mut self) -> Vec<Hold> {
        std::mem::take(&mut self.merged)
    }

    fn merge(&mut self, sm: Missing) {
        self.merged.clear();
        self.merged.reserve_exact(self.lists.iter().map(Vec::len).sum());
        let usages = [Use::Compute, Use::Graphics, Use::Mps];
        for ((usage, entries), listed) in usages.into_iter().zip(&self.lists).zip(self.listed) {
            self.merged.extend(entries.iter().map(|entry| Hold {
                pid: entry.pid,
                listed,
                usage,
                memory: entry.memory,
                sm: Err(sm),
            }));
        }
        self.merged.sort_by_key(|hold| hold.pid);
        self.merged.dedup_by(|later, first| {
            let same = later.pid == first.pid;
            if same {
                first.usage = both(first.usage, later.usage);
                first.listed = first.listed.max(later.listed);
                // It stands in each list with the same memory. Taking the larger one counts it once.
                first.memory = larger(first.memory, later.memory);
            }
            same
        });
    }
}

fn both(one: Use, other: Use) -> Use {
    match (one, other) {
        (Use::Mps, _) | (_, Use::Mps) => Use::Mps,
        (one, other) if one == other => one,
        _ => Use::ComputeAndGraphics,
    }
}

fn larger(one: Reading<Bytes>, other: Reading<Bytes>) -> Reading<Bytes> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(one.max(other)),
        (one, other) => one.or(other),
    }
}

/// Reads who is on the GPU, and how busy each keeps it.
pub(super) fn read(gpu: &mut Gpu, pass: &mut Pass<'_>, slow: bool, now: Moment) -> Option<Trouble> {
    for list in [List::Compute, List::Graphics, List::Mps] {
        if slow || list == List::Compute {
            let trouble = gpu.read_list(pass, list, now);
            gpu.lane.troubles[list as usize] = trouble;
        }
    }
    // An instance does not say how busy its processes are.
    let has_shares = gpu.readings.facts.parent.is_none();
    gpu.lane.merge(if has_shares { Missing::NotYet } else { Missing::Unsupported });
    if has_shares && !pass.is_first_stage && !gpu.lane.merged.is_empty() {
        process_utilization::read(gpu, pass, slow, now);
    }
    gpu.lane.troubles.iter().flatten().next().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, gib: u64) -> Entry {
        Entry { pid, memory: Ok(Bytes::from_gib(gib)) }
    }

    #[test]
    fn a_process_in_two_lists_is_counted_once() {
        let mut lane = Lane::default();
        for (list, entries) in [
            (List::Compute, vec![entry(9, 2), entry(7, 1)]),
            (List::Graphics, vec![entry(7, 3)]),
            (List::Mps, vec![entry(9, 2)]),
        ] {
            *lane.scratch() = entries;
            lane.take(list, Moment(0));
        }
        lane.merge(Missing::NotYet);
        let merged: Vec<_> = lane.take_holds().iter().map(|hold| (hold.pid, hold.usage, hold.memory)).collect();
        let expected = [(7, Use::ComputeAndGraphics, Ok(Bytes::from_gib(3))), (9, Use::Mps, Ok(Bytes::from_gib(2)))];
        assert_eq!(merged, expected);
    }

    #[test]
    fn a_hold_is_as_old_as_the_list_that_named_it() {
        let mut lane = Lane::default();
        for (list, entries, listed) in
            [(List::Graphics, vec![entry(7, 3), entry(8, 1)], 100), (List::Compute, vec![entry(7, 3)], 900)]
        {
            *lane.scratch() = entries;
            lane.take(list, Moment(listed));
        }
        lane.merge(Missing::NotYet);
        let listed: Vec<_> = lane.take_holds().iter().map(|hold| (hold.pid, hold.listed)).collect();
        assert_eq!(listed, [(7, Moment(900)), (8, Moment(100))]);
    }
}
