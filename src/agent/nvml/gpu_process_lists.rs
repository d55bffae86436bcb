//! Merges NVML's process lists of one GPU. The compute and graphics lists overlap: a PID is counted
//! once.

use super::errors::{self, gpu_name};
use super::gpu_calls::GpuCalls;
use super::process_list_reader::{COMPUTE, LISTS, ListError, ProcessListReader};
use crate::agent::NvmlProcess;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Cause, GpuFacts, Missing, Reading, Trouble, Use};

#[derive(Debug, Default)]
pub(super) struct GpuProcessLists {
    /// The entries of each list, in the order of [`LISTS`]. A list that is not read in a pass, or
    /// fails, keeps its entries.
    lists: [Vec<NvmlProcess>; 3],
    /// Why each list is unknown, in the same order; `None` for a list that was read, and for one
    /// that this GPU lacks beside the list of compute processes.
    missing: [Option<Missing>; 3],
    /// The trouble that keeps each list from being read, in the same order.
    troubles: [Option<Trouble>; 3],
}

/// The processes on a GPU.
#[derive(Debug)]
pub(super) struct ListedProcesses {
    /// Each process once, sorted by PID.
    pub(super) processes: Vec<NvmlProcess>,
    /// Why the processes are unknown, or only some of them are known; `None` when all lists were
    /// read.
    pub(super) missing: Option<Missing>,
    /// The trouble of the first list that cannot be read.
    pub(super) trouble: Option<Trouble>,
}

impl ListedProcesses {
    /// The processes on a GPU that is split: its instances list them.
    pub(super) fn of_split_gpu() -> Self {
        Self {
            processes: vec![],
            missing: None,
            trouble: None,
        }
    }
}

impl GpuProcessLists {
    /// Reads the lists that are due.
    pub(super) fn read(
        &mut self,
        calls: &mut GpuCalls,
        reader: &mut ProcessListReader,
        facts: &GpuFacts,
        slow: bool,
        now: Moment,
    ) -> ListedProcesses {
        for list in (0..LISTS.len()).filter(|list| slow || *list == COMPUTE) {
            (self.missing[list], self.troubles[list]) = (None, None);
            let path = match LISTS[list].0 {
                Use::Graphics => "graphics_processes",
                _ => "processes",
            };
            if !calls.only.has(path) {
                self.missing[list] = (list == COMPUTE).then_some(Missing::NotAsked);
                continue;
            }
            if !calls.is_callable(reader.function(list)) {
                self.missing[list] = missing(list, Missing::Unsupported);
                continue;
            }
            let result = reader.read(calls, list, now);
            // The reader may have fallen back to an older function.
            let function = reader.function(list);
            match result {
                Ok(processes) => {
                    calls.has_answered = true;
                    self.lists[list] = processes;
                }
                Err(ListError::ImpossiblePid(pid)) => {
                    let gpu = gpu_name(facts);
                    let sentence = format!(
                        "{gpu}: {function} named PID {pid}, which no process can have, so its processes are shown as \
                         last seen"
                    );
                    let call = Some(function.into());
                    let trouble = Trouble {
                        cause: Cause::Failed,
                        sentence: sentence.into(),
                        call,
                        since: now,
                    };
                    (self.missing[list], self.troubles[list]) =
                        (Some(Missing::Failed), Some(trouble));
                }
                Err(ListError::Call(error)) => {
                    let trouble = errors::gpu_trouble(function, &error, facts, now);
                    let why = calls.note_error(function, &[], error);
                    self.missing[list] = missing(list, why);
                    self.troubles[list] =
                        (why != Missing::Unsupported && calls.fatal.is_none()).then_some(trouble);
                }
            }
        }
        ListedProcesses {
            processes: self.merged(),
            missing: self.missing.iter().flatten().next().copied(),
            trouble: self.troubles.iter().flatten().next().cloned(),
        }
    }

    fn merged(&self) -> Vec<NvmlProcess> {
        let mut merged = self.lists.concat();
        merged.sort_by_key(|process| process.pid);
        merged.dedup_by(|later, first| {
            let same = later.pid == first.pid;
            if same {
                first.usage = both(first.usage, later.usage);
                first.listed = first.listed.max(later.listed);
                // Each list gives the memory of the whole process, so the two values must not be
                // added.
                first.memory = larger(first.memory, later.memory);
            }
            same
        });
        merged
    }
}

/// Returns why a list is unknown that could not be read. A GPU that cannot list graphics processes
/// or MPS clients has none: the driver of a data centre, and a MIG instance, lack these lists.
fn missing(list: usize, why: Missing) -> Option<Missing> {
    (list == COMPUTE || why != Missing::Unsupported).then_some(why)
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
        NvmlProcess {
            pid,
            listed,
            usage,
            memory,
            sm: Err(Missing::NotYet),
            engines: None,
        }
    }

    fn merged(lists: [Vec<NvmlProcess>; 3]) -> Vec<NvmlProcess> {
        GpuProcessLists {
            lists,
            ..GpuProcessLists::default()
        }
        .merged()
    }

    #[test]
    fn a_process_in_two_lists_is_counted_once() {
        let merged = merged([
            vec![
                process(9, Use::Compute, 2, 0),
                process(7, Use::Compute, 1, 0),
            ],
            vec![process(7, Use::Graphics, 3, 0)],
            vec![process(9, Use::Mps, 2, 0)],
        ]);
        assert_eq!(
            merged,
            [
                process(7, Use::ComputeAndGraphics, 3, 0),
                process(9, Use::Mps, 2, 0)
            ]
        );
    }

    #[test]
    fn a_process_is_as_old_as_the_list_that_named_it() {
        let graphics = vec![
            process(7, Use::Graphics, 3, 100),
            process(8, Use::Graphics, 1, 100),
        ];
        let merged = merged([vec![process(7, Use::Compute, 3, 900)], graphics, vec![]]);
        let listed: Vec<_> = merged
            .iter()
            .map(|process| (process.pid, process.listed))
            .collect();
        assert_eq!(listed, [(7, Moment(900)), (8, Moment(100))]);
    }
}
