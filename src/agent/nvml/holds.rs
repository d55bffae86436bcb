//! Makes of NVML's process lists and utilisation samples one hold for each process.
//!
//! The compute and graphics lists overlap, so a PID is counted once.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;

use super::gpu::{Gpu, Pass, percent};
use super::processes::{Entry, List};
use super::raw;
use crate::agent::{Hold, clock};
use crate::snapshot::{Missing, Reading, Trouble, Use};
use crate::units::{Bytes, Moment};

/// The processes of one GPU, as its lists named them last.
#[derive(Debug, Default)]
pub(super) struct Lane {
    lists: [Vec<Entry>; 3],
    /// When each was asked for. Not each is read in each pass, and one that fails stays as it was.
    listed: [Moment; 3],
    /// Why a list is not to be had.
    troubles: [Option<Trouble>; 3],
    scratch: Vec<Entry>,
    merged: Vec<Hold>,
    /// When the shares were last asked for.
    asked: Option<Moment>,
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

    /// Each process once, by PID.
    pub(super) fn holds(&self) -> Vec<Hold> {
        self.merged.clone()
    }

    fn merge(&mut self) {
        self.merged.clear();
        let usages = [Use::Compute, Use::Graphics, Use::Mps];
        for ((usage, entries), listed) in usages.into_iter().zip(&self.lists).zip(self.listed) {
            self.merged.extend(entries.iter().map(|entry| Hold {
                pid: entry.pid,
                listed,
                usage,
                memory: entry.memory,
                sm: Err(Missing::Unsupported),
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
    gpu.lane.merge();
    // An instance does not say how busy its processes are.
    if gpu.readings.facts.parent.is_none() && !gpu.lane.merged.is_empty() {
        read_shares(gpu, pass, now);
    }
    gpu.lane.troubles.iter().flatten().next().cloned()
}

/// How far back a sample counts. Drivers take one every 1/6 s to 1 s; in a shorter window a busy process looks idle.
const WINDOW_MS: u64 = 1000;

fn read_shares(gpu: &mut Gpu, pass: &mut Pass<'_>, now: Moment) {
    let window = gpu.lane.asked.replace(now).map_or(WINDOW_MS, |asked| (now.0 - asked.0).max(WINDOW_MS));
    let after = clock::unix_ms().saturating_sub(window) * 1000;
    let samples = &mut *pass.samples;
    let asked = gpu.ask(pass.watch, "nvmlDeviceGetProcessUtilization", 0, |device| {
        match raw::process_utilization(device, samples, after) {
            // Nobody did anything.
            Err(NvmlError::NotFound) => Ok(()),
            other => other,
        }
    });
    for hold in &mut gpu.lane.merged {
        hold.sm = asked.and_then(|()| share(hold.pid, samples, after));
    }
}

/// The newest share of one process; a process without one did nothing.
fn share(pid: u32, samples: &[nvmlProcessUtilizationSample_t], after: u64) -> Reading<crate::units::Percent> {
    // Drivers pad their answer with samples of long ago.
    let mine = samples.iter().filter(|sample| sample.pid == pid && sample.timeStamp >= after);
    mine.max_by_key(|sample| sample.timeStamp).map_or_else(|| percent(0), |sample| percent(sample.smUtil))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Percent;

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
        lane.merge();
        let merged: Vec<_> = lane.holds().iter().map(|hold| (hold.pid, hold.usage, hold.memory)).collect();
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
        lane.merge();
        let listed: Vec<_> = lane.holds().iter().map(|hold| (hold.pid, hold.listed)).collect();
        assert_eq!(listed, [(7, Moment(900)), (8, Moment(100))]);
    }

    #[test]
    fn old_samples_and_impossible_shares_are_no_figures() {
        let sample = |pid, at, sm| nvmlProcessUtilizationSample_t {
            pid,
            timeStamp: at,
            smUtil: sm,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        let samples =
            [sample(7, 50, 99), sample(7, 150, 30), sample(7, 120, 40), sample(8, 50, 99), sample(9, 150, 101)];
        assert_eq!(share(7, &samples, 100), Ok(Percent::new(30.0)));
        assert_eq!(share(8, &samples, 100), Ok(Percent::new(0.0)));
        assert_eq!(share(9, &samples, 100), Err(Missing::Failed));
    }
}
