//! A process of a recording: its names, its memory over time, and the last report of its probe.

use std::sync::Arc;

use super::decimated::{AmountSample, Decimated, Extremes, Mean};
use super::memory_layer::{LayerAmounts, MemoryLayer, in_kib};
use super::{LoadRange, ProcessKey, RunMemory};
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment, Percent};
use crate::model::{HostModel, ProcessTotal, short_name};
use crate::output::labels;
use crate::protocol::snapshot::{
    GpuUuid, MarkPair, ProbeReading, ProbeReport, Process, ProcessFacts,
};

/// The most pairs of marks of a process that are kept.
const MOST_PAIRS: usize = 64;

/// The most buckets of a curve of a process.
const PROCESS_BUCKETS: usize = 256;

/// A process that held GPU memory.
#[derive(Debug)]
pub(crate) struct ProcessRun {
    /// The facts as last read with arguments, which a zombie has no more.
    facts: Arc<ProcessFacts>,
    /// The command line; `None` if it is not known.
    pub(crate) command: Option<String>,
    pub(crate) gpus: Vec<GpuUuid>,
    /// The times of the first and last sample.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Whether the process held memory in the last snapshot.
    pub(crate) is_there: bool,
    pub(crate) memory: RunMemory,
    /// The memory of tensors; empty where it is not known.
    pub(crate) tensors: RunMemory,
    /// The highest allocated memory since the process began, by PyTorch's own count, at the last
    /// pass; `None` before the first, and on several devices, whose peaks have times of their own.
    allocated_peak: Option<Bytes>,
    pub(crate) curve: Decimated<Extremes<LayerAmounts>>,
    pub(crate) sm: LoadRange,
    /// How often PyTorch ran out of memory in all; `None` when it is not known.
    pub(crate) ooms: Option<u64>,
    /// The last reading of the probe with a report.
    probe: Option<Arc<ProbeReading>>,
    pub(crate) steps: Option<StepSpan>,
    /// The pairs of marks that the program set, as last reported, in the order of their first time.
    pub(crate) mark_pairs: Vec<MarkPair>,
    /// The memory times the time for which it was held, in KiB and milliseconds: how much the
    /// process matters.
    weight: u128,
}

/// The training steps that were seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StepSpan {
    /// The number of the first step that was seen, and its time.
    first: (u64, u64),
    last: (u64, u64),
}

impl StepSpan {
    /// The mean duration of a step in seconds; `None` before the second one.
    #[expect(clippy::cast_precision_loss, reason = "steps and milliseconds of days")]
    pub(crate) fn seconds(&self) -> Option<f64> {
        let steps = self
            .last
            .0
            .checked_sub(self.first.0)
            .filter(|steps| *steps > 0)?;
        Some(self.last.1.saturating_sub(self.first.1) as f64 / 1000.0 / steps as f64)
    }
}

impl ProcessRun {
    pub(super) fn new(process: &Process, at: u64) -> Self {
        Self {
            facts: Arc::clone(&process.facts),
            command: None,
            gpus: Vec::new(),
            began: at,
            ended: at,
            is_there: true,
            memory: RunMemory::default(),
            tensors: RunMemory::default(),
            allocated_peak: None,
            curve: Decimated::new(PROCESS_BUCKETS),
            sm: LoadRange::new(),
            ooms: None,
            probe: None,
            steps: None,
            mark_pairs: Vec::new(),
            weight: 0,
        }
    }

    /// Adds the readings of a pass.
    pub(super) fn add(
        &mut self,
        model: &HostModel,
        process: &Process,
        total: &ProcessTotal,
        pass: &Pass<'_>,
    ) {
        if process
            .facts
            .argv
            .as_ref()
            .is_ok_and(|argv| !argv.is_empty())
            && (self.command.is_none() || !Arc::ptr_eq(&self.facts, &process.facts))
        {
            self.facts = Arc::clone(&process.facts);
            self.command = labels::command_line(process);
        }
        for gpu in total.gpus.iter().filter_map(|place| pass.gpus.get(*place)) {
            if !self.gpus.contains(gpu) {
                self.gpus.push((*gpu).clone());
            }
        }
        self.is_there = true;
        self.add_memory(model, process, total, pass);
        self.sm.add(pass.at, total.sm.ok().map(Percent::value));
        if let Some(allocator) = process
            .allocator
            .as_ref()
            .filter(|stats| !stats.devices.is_empty())
        {
            self.ooms = allocator
                .devices
                .iter()
                .map(|device| device.ooms.ok())
                .sum::<Option<u64>>()
                .or(self.ooms);
            if let [device] = &allocator.devices[..] {
                self.add_allocated_peak(pass.at, device.allocated_peak.ok());
            }
        }
        self.add_report(process, pass);
    }

    /// Adds a peak between two passes, by which PyTorch's own peak rose.
    fn add_allocated_peak(&mut self, at: u64, peak: Option<Bytes>) {
        let before = std::mem::replace(&mut self.allocated_peak, peak);
        if let Some((peak, before)) = peak.zip(before)
            && peak > before
        {
            self.tensors.add(at, peak);
        }
    }

    /// Adds the memory of a pass, if all of it is known. A longer time than `patience` without a
    /// sample is a gap.
    fn add_memory(
        &mut self,
        model: &HostModel,
        process: &Process,
        total: &ProcessTotal,
        pass: &Pass<'_>,
    ) {
        let Pass {
            at, now, patience, ..
        } = *pass;
        // An incomplete sum would look like a drop, or like a peak.
        if let Some(memory) = total.memory.ok().filter(|memory| !memory.is_lower_bound) {
            let kib = in_kib(memory.bytes.0);
            let (parts, tensors) = MemoryLayer::amounts(model, process, kib, now);
            let since = at.saturating_sub(self.ended);
            let after_gap = self.curve.is_empty() || since > patience;
            self.weight += u128::from(kib) * u128::from(since.min(patience));
            self.memory.add(at, memory.bytes);
            if let Some(tensors) = tensors {
                self.tensors.add(at, Bytes::from_kib(tensors.into()));
            }
            // Without figures of PyTorch, all samples of an amount are the same.
            let inner_kib = tensors.unwrap_or(kib);
            self.curve.push(
                at,
                Extremes::new(
                    AmountSample {
                        at,
                        kib,
                        inner_kib,
                        parts,
                    },
                    after_gap,
                ),
            );
            self.ended = at;
        }
    }

    /// Takes the report of the probe if it is new.
    fn add_report(&mut self, process: &Process, pass: &Pass<'_>) {
        if let Some(reading) = process.probe.as_ref()
            && let Some(report) = &reading.report
            && self
                .probe
                .as_ref()
                .is_none_or(|before| !Arc::ptr_eq(before, reading))
        {
            self.probe = Some(Arc::clone(reading));
            for pair in &report.mark_pairs {
                let is_same = |known: &&mut MarkPair| {
                    known.since.name == pair.since.name && known.until.name == pair.until.name
                };
                let has_room = self.mark_pairs.len() < MOST_PAIRS;
                match self.mark_pairs.iter_mut().find(is_same) {
                    Some(known) => known.clone_from(pair),
                    None if has_room => self.mark_pairs.push(pair.clone()),
                    None => {}
                }
            }
            if let Some(steps) = &report.steps {
                let step = (steps.count, pass.unix(report.at));
                let span = self.steps.get_or_insert(StepSpan {
                    first: step,
                    last: step,
                });
                if step.0 < span.first.0 {
                    span.first = step;
                }
                if step.0 > span.last.0 {
                    span.last = step;
                }
            }
        }
    }

    /// The last report of the probe; `None` where it did not run.
    pub(crate) fn report(&self) -> Option<&ProbeReport> {
        self.probe.as_ref()?.report.as_ref()
    }

    /// The script or program, as in `train.py`.
    pub(crate) fn name(&self) -> String {
        short_name(&self.facts).map_or_else(|_| "a process".to_owned(), |name| name.to_string())
    }

    /// Returns `train.py (PID 4711)`.
    pub(crate) fn name_with_pid(&self, key: ProcessKey) -> String {
        format!("{} (PID {})", self.name(), key.id.pid)
    }

    pub(crate) fn user(&self) -> Option<&Text> {
        self.facts.user.as_ref().ok()
    }

    pub(super) fn weight(&self) -> u128 {
        self.weight
    }

    /// The mean use of the multiprocessors in percent; `None` when it was never read.
    pub(crate) fn mean_sm(&self) -> Option<f64> {
        self.sm.all.as_ref().map(Mean::mean)
    }
}

/// A pass of the agent, as the parts of the fold need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass<'a> {
    /// The time in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) now: Moment,
    pub(super) boot: u32,
    /// The milliseconds without a sample after which there is a gap.
    pub(super) patience: u64,
    /// The GPUs in the order of the snapshot.
    pub(super) gpus: &'a [&'a GpuUuid],
}

impl Pass<'_> {
    /// Returns the time in milliseconds since 1970 of a moment of this boot.
    pub(super) fn unix(&self, at: Moment) -> u64 {
        (self.at + at.0).saturating_sub(self.now.0)
    }
}
