//! Merges NVML's process lists of one GPU into one entry for each process.
//!
//! The compute and graphics lists overlap: a PID is counted once.

use super::errors::{self, gpu_name};
use super::gpu_calls::GpuCalls;
use super::process_list_reader::{COMPUTE, LISTS, ListError, ProcessListReader};
use super::process_utilization::Utilization;
use crate::agent::NvmlProcess;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Cause, GpuFacts, Missing, Reading, Trouble, Use};

#[derive(Debug, Default)]
pub(super) struct GpuProcessLists {
    /// The entries of each list, in the order of [`LISTS`]. A list that is not read in a pass, or fails, keeps its entries.
    lists: [Vec<NvmlProcess>; 3],
    /// Why each list cannot be read, in the same order.
    troubles: [Option<Trouble>; 3],
    /// The buffer for the next list.
    scratch: Vec<NvmlProcess>,
    /// Each process once, sorted by PID.
    pub(super) merged: Vec<NvmlProcess>,
    pub(super) utilization: Utilization,
}

impl GpuProcessLists {
    /// Reads the lists that are due and merges all lists. Returns the trouble of the first list that cannot be read.
    pub(super) fn read(
        &mut self,
        calls: &mut GpuCalls,
        reader: &mut ProcessListReader,
        facts: &GpuFacts,
        slow: bool,
        now: Moment,
    ) -> Option<Trouble> {
        for list in 0..LISTS.len() {
            if slow || list == COMPUTE {
                self.troubles[list] = self.read_list(calls, reader, facts, list, now);
            }
        }
        self.merge();
        self.troubles.iter().flatten().next().cloned()
    }

    fn read_list(
        &mut self,
        calls: &mut GpuCalls,
        reader: &mut ProcessListReader,
        facts: &GpuFacts,
        list: usize,
        now: Moment,
    ) -> Option<Trouble> {
        if !calls.is_callable(reader.function(list)) {
            return None;
        }
        let result = reader.read(calls, list, now, &mut self.scratch);
        // The reader may have fallen back to an older function.
        let function = reader.function(list);
        match result {
            Ok(()) => {
                calls.has_answered = true;
                std::mem::swap(&mut self.lists[list], &mut self.scratch);
                None
            }
            Err(ListError::ImpossiblePid(pid)) => {
                let sentence = format!(
                    "{}: {function} named PID {pid}, which no process can have, so its processes are shown as last seen",
                    gpu_name(facts)
                );
                Some(Trouble {
                    cause: Cause::Failed,
                    sentence: sentence.into(),
                    call: Some(function.into()),
                    since: now,
                })
            }
            Err(ListError::Call(error)) => {
                let trouble = errors::gpu_trouble(function, &error, facts, now);
                let why = calls.note_error(function, &[], error);
                (why != Missing::Unsupported && calls.fatal.is_none()).then_some(trouble)
            }
        }
    }

    fn merge(&mut self) {
        self.merged.clear();
        self.merged.reserve_exact(self.lists.iter().map(Vec::len).sum());
        self.merged.extend(self.lists.iter().flatten().cloned());
        self.merged.sort_by_key(|process| process.pid);
        self.merged.dedup_by(|later, first| {
            let same = later.pid == first.pid;
            if same {
                first.usage = both(first.usage, later.usage);
                first.listed = first.listed.max(later.listed);
                // Each list gives the memory of the whole process, so the two values must not be added.
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

    fn process(pid: u32, usage: Use, gib: u64, listed: u64) -> NvmlProcess {
        let (listed, memory) = (Moment(listed), Ok(Bytes::from_gib(gib)));
        NvmlProcess { pid, listed, usage, memory, sm: Err(Missing::NotYet) }
    }

    fn merged(lists: [Vec<NvmlProcess>; 3]) -> Vec<NvmlProcess> {
        let mut lists = GpuProcessLists { lists, ..GpuProcessLists::default() };
        lists.merge();
        lists.merged
    }

    #[test]
    fn a_process_in_two_lists_is_counted_once() {
        let merged = merged([
            vec![process(9, Use::Compute, 2, 0), process(7, Use::Compute, 1, 0)],
            vec![process(7, Use::Graphics, 3, 0)],
            vec![process(9, Use::Mps, 2, 0)],
        ]);
        assert_eq!(merged, [process(7, Use::ComputeAndGraphics, 3, 0), process(9, Use::Mps, 2, 0)]);
    }

    #[test]
    fn a_process_is_as_old_as_the_list_that_named_it() {
        let graphics = vec![process(7, Use::Graphics, 3, 100), process(8, Use::Graphics, 1, 100)];
        let merged = merged([vec![process(7, Use::Compute, 3, 900)], graphics, vec![]]);
        let listed: Vec<_> = merged.iter().map(|process| (process.pid, process.listed)).collect();
        assert_eq!(listed, [(7, Moment(900)), (8, Moment(100))]);
    }
}
