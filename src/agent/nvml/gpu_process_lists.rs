//! Merges NVML's process lists of one GPU into one entry for each process.
//!
//! The compute and graphics lists overlap: a PID is counted once.

use super::errors::{self, the_gpu};
use super::gpu_calls::GpuCalls;
use super::process_list_reader::{ListEntry, ListError, ListKind, ProcessListReader};
use super::process_utilization::Utilization;
use crate::agent::NvmlProcess;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Cause, GpuFacts, Missing, Reading, Trouble, Use};

/// The processes of one GPU, as its lists named them last.
#[derive(Debug, Default)]
pub(super) struct GpuProcessLists {
    lists: [Vec<ListEntry>; 3],
    /// The time when each list was asked for. A list that is not read in a pass, or fails, stays as it was.
    listed: [Moment; 3],
    /// The reason why a list cannot be read.
    troubles: [Option<Trouble>; 3],
    /// The buffer for the next list.
    scratch: Vec<ListEntry>,
    /// Each process once, by PID.
    pub(super) merged: Vec<NvmlProcess>,
    pub(super) utilization: Utilization,
}

impl GpuProcessLists {
    /// Reads the lists that are due and merges all of them. `sm` is the utilization of every process until it is read.
    /// Returns why a list cannot be read.
    pub(super) fn read(
        &mut self,
        calls: &mut GpuCalls,
        reader: &mut ProcessListReader,
        facts: &GpuFacts,
        sm: Missing,
        slow: bool,
        now: Moment,
    ) -> Option<Trouble> {
        for list in [ListKind::Compute, ListKind::Graphics, ListKind::Mps] {
            if slow || list == ListKind::Compute {
                self.troubles[list as usize] = self.read_list(calls, reader, facts, list, now);
            }
        }
        self.merge(sm);
        self.troubles.iter().flatten().next().cloned()
    }

    fn read_list(
        &mut self,
        calls: &mut GpuCalls,
        reader: &mut ProcessListReader,
        facts: &GpuFacts,
        list: ListKind,
        now: Moment,
    ) -> Option<Trouble> {
        if !calls.is_callable(reader.function(list)) {
            return None;
        }
        let result = reader.read(calls, list, &mut self.scratch);
        // The reader may have fallen back to an older function.
        let function = reader.function(list);
        match result {
            Ok(()) => {
                calls.has_answered = true;
                self.take(list, now);
                None
            }
            Err(ListError::ImpossiblePid(pid)) => {
                let sentence = format!(
                    "{}: {function} named PID {pid}, which no process can have, so its processes are shown as last seen",
                    the_gpu(facts)
                );
                Some(Trouble {
                    cause: Cause::Failed,
                    sentence: sentence.into(),
                    call: Some(function.into()),
                    since: now,
                })
            }
            Err(ListError::Call(error)) => {
                let trouble = errors::of_gpu(function, &error, facts, now);
                let why = calls.note_error(function, &[], error);
                (why != Missing::Unsupported && calls.fatal.is_none()).then_some(trouble)
            }
        }
    }

    /// Takes the scratch buffer as this list, asked for at `listed` or later.
    fn take(&mut self, list: ListKind, listed: Moment) {
        self.listed[list as usize] = listed;
        std::mem::swap(&mut self.lists[list as usize], &mut self.scratch);
    }

    fn merge(&mut self, sm: Missing) {
        self.merged.clear();
        self.merged.reserve_exact(self.lists.iter().map(Vec::len).sum());
        let usages = [Use::Compute, Use::Graphics, Use::Mps];
        for ((usage, entries), listed) in usages.into_iter().zip(&self.lists).zip(self.listed) {
            self.merged.extend(entries.iter().map(|entry| NvmlProcess {
                pid: entry.pid,
                listed,
                usage,
                memory: entry.memory,
                sm: Err(sm),
            }));
        }
        self.merged.sort_by_key(|process| process.pid);
        self.merged.dedup_by(|later, first| {
            let same = later.pid == first.pid;
            if same {
                first.usage = both(first.usage, later.usage);
                first.listed = first.listed.max(later.listed);
                // Each list gives the memory of the whole process. The larger value counts it once.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, gib: u64) -> ListEntry {
        ListEntry { pid, memory: Ok(Bytes::from_gib(gib)) }
    }

    #[test]
    fn a_process_in_two_lists_is_counted_once() {
        let mut lists = GpuProcessLists::default();
        for (kind, entries) in [
            (ListKind::Compute, vec![entry(9, 2), entry(7, 1)]),
            (ListKind::Graphics, vec![entry(7, 3)]),
            (ListKind::Mps, vec![entry(9, 2)]),
        ] {
            lists.scratch = entries;
            lists.take(kind, Moment(0));
        }
        lists.merge(Missing::NotYet);
        let merged: Vec<_> = lists.merged.iter().map(|process| (process.pid, process.usage, process.memory)).collect();
        let expected = [(7, Use::ComputeAndGraphics, Ok(Bytes::from_gib(3))), (9, Use::Mps, Ok(Bytes::from_gib(2)))];
        assert_eq!(merged, expected);
    }

    #[test]
    fn a_process_is_as_old_as_the_list_that_named_it() {
        let mut lists = GpuProcessLists::default();
        for (kind, entries, listed) in
            [(ListKind::Graphics, vec![entry(7, 3), entry(8, 1)], 100), (ListKind::Compute, vec![entry(7, 3)], 900)]
        {
            lists.scratch = entries;
            lists.take(kind, Moment(listed));
        }
        lists.merge(Missing::NotYet);
        let listed: Vec<_> = lists.merged.iter().map(|process| (process.pid, process.listed)).collect();
        assert_eq!(listed, [(7, Moment(900)), (8, Moment(100))]);
    }
}
