//! The history of memory and load of each GPU and process, and the events on them.
//!
//! The history keeps the highest amount of each second for 15 minutes and of each 10 seconds for 6
//! hours, and the lowest and highest amount of each five minutes for 7 days. The history of a
//! process is kept for six hours after the process released its memory. The whole history of 8 GPUs
//! and 64 processes takes less than 6 MiB.

mod curve;
mod event;
mod tensors;
mod track;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::curve::{Curve, Window};
use self::event::EventLog;
pub(crate) use self::event::{HistoryEvent, HistoryEventKind};
pub(crate) use self::tensors::{TensorHistory, TensorLayer};
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment, Percent};
use crate::model::held_idle::IdleRecord;
use crate::model::min_max::MinMax;
use crate::model::pairs;
use crate::model::{GpuOrProcess, ProcessTotal, ReservedMemory, process_role};
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{
    Gpu, GpuUuid, Missing, Process, ProcessFacts, ProcessId, Reading, Snapshot,
};

/// The longest span that the history covers.
pub(crate) const WEEK: Duration = Duration::from_hours(7 * 24);

/// The time for which a process that holds nothing is remembered.
const REMEMBERED: Duration = Duration::from_hours(6);

/// The most such processes that are remembered; those that held memory for longest are kept.
const MOST_GONE: usize = 24;

/// The spans in which a graph grows with the history, in seconds.
const SPANS: [u64; 34] = [
    10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 2700, 3600, 5400,
    7200, 10_800, 14_400, 21_600, 32_400, 43_200, 64_800, 86_400, 129_600, 172_800, 259_200,
    345_600, 432_000, 518_400, 604_800,
];

/// The time for which the amount of each second is kept.
const BY_THE_SECOND: Duration = Duration::from_mins(15);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct MemoryHistory {
    curve: Curve,
    latest: Option<Bytes>,
    /// The first amount that was read, and its time.
    first: Option<(Moment, Bytes)>,
    /// `None` when no amount was read.
    pub peak: Option<Bytes>,
}

impl MemoryHistory {
    /// The resolution of floors that are older than 15 minutes.
    pub(crate) const COARSE: Duration = Duration::from_mins(5);

    fn is_sound(&self) -> bool {
        self.curve.is_sound()
    }

    pub(super) fn push(&mut self, at: Moment, memory: Option<Bytes>, patience: Duration) {
        if at < self.curve.end() {
            return;
        }
        self.first = self.first.or(memory.map(|bytes| (at, bytes)));
        self.peak = self.peak.max(memory);
        self.latest = memory;
        self.curve.push(
            at,
            memory.map(|memory| u32::try_from(memory.0 >> 10).unwrap_or(u32::MAX)),
            patience,
        );
    }

    /// Returns the lowest and highest amount in each part of a window, rounded down to KiB. A part
    /// without a sample repeats the amount before it; `None` in a gap, and before the first sample.
    pub(crate) fn over(&self, window: &Window, now: Moment) -> Vec<Option<MinMax<Bytes>>> {
        self.curve
            .over(window, now)
            .into_iter()
            .map(|part| part.map(in_bytes))
            .collect()
    }

    /// Returns the highest amount in each of `columns` equal parts of the last `span` before `now`,
    /// oldest first.
    pub(crate) fn columns(
        &self,
        now: Moment,
        span: Duration,
        columns: usize,
    ) -> Vec<Option<Bytes>> {
        let parts = self.curve.over(&Window::until(now, span, columns), now);
        parts
            .into_iter()
            .map(|range| range.map(|range| in_bytes(range).high))
            .collect()
    }

    /// Returns the amount at a moment, in the finest resolution that is still kept; `None` in a
    /// gap.
    pub(crate) fn at(&self, at: Moment, now: Moment) -> Option<MinMax<Bytes>> {
        self.curve.at(at, now).map(in_bytes)
    }

    /// Returns the lowest amount in the `span` up to a moment; if the span begins more than 15
    /// minutes ago, that of the five-minute bucket that contains the moment. `None` in a gap.
    pub(crate) fn floor(&self, until: Moment, span: Duration, now: Moment) -> Option<Bytes> {
        // The 10-second buckets keep only the highest amount.
        let is_by_the_second = now.since(until) + span <= BY_THE_SECOND;
        let (span, part) = if is_by_the_second {
            (span, 5)
        } else {
            (Self::COARSE, Self::COARSE.as_secs())
        };
        let window = Window::until(
            until,
            span,
            usize::try_from(span.as_secs() / part).unwrap_or(1),
        );
        self.over(&window, now)
            .into_iter()
            .flatten()
            .map(|range| range.low)
            .min()
    }

    /// Returns the highest amount from a moment until now; `None` if none is known.
    pub(crate) fn peak_since(&self, from: Moment, now: Moment) -> Option<Bytes> {
        self.over(&Window::between(from, now), now)
            .into_iter()
            .flatten()
            .map(|range| range.high)
            .max()
    }

    pub(crate) fn end(&self) -> Moment {
        self.curve.end()
    }

    pub(crate) fn baseline(&self) -> Option<Bytes> {
        self.first.map(|(_, bytes)| bytes)
    }

    /// The time at which the baseline was read; `None` when none was.
    pub(crate) fn began(&self) -> Option<Moment> {
        self.first.map(|(at, _)| at)
    }

    /// The latest amount; `None` when it could not be read.
    pub(crate) fn latest(&self) -> Option<Bytes> {
        self.latest
    }
}

fn in_bytes(kib: MinMax<u32>) -> MinMax<Bytes> {
    kib.map(|kib| Bytes::from_kib(kib.into()))
}

/// The memory of a process by PyTorch's own figures, on all of its devices together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AllocatorHistory {
    /// Memory held by tensors.
    pub allocated: MemoryHistory,
    /// All memory that PyTorch has taken from CUDA: allocated and unallocated.
    pub reserved: MemoryHistory,
}

impl AllocatorHistory {
    /// Returns the most that tensors held in the last minute, temporary tensors of a training step
    /// included; `None` where it was not read.
    pub(crate) fn top(&self, now: Moment) -> Option<Bytes> {
        self.allocated
            .columns(now, Duration::from_mins(1), 1)
            .pop()
            .flatten()
    }

    fn is_sound(&self) -> bool {
        self.allocated.is_sound() && self.reserved.is_sound()
    }

    fn push(&mut self, at: Moment, reserved: Option<ReservedMemory>, patience: Duration) {
        self.allocated
            .push(at, reserved.map(|reserved| reserved.allocated), patience);
        self.reserved
            .push(at, reserved.map(|reserved| reserved.sum()), patience);
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct GpuHistory {
    pub memory: MemoryHistory,
    /// The use of the multiprocessors, in whole percent.
    pub sm: Curve,
    /// The power draw, in whole watts.
    pub power: Curve,
    /// The temperature in kelvin, as a curve has no negative numbers: [`GpuHistory::celsius`]
    /// converts it.
    pub temperature: Curve,
    /// How long a process has held the GPU idle. Older checkpoints do not have it.
    #[serde(default)]
    pub(in crate::model) idle: IdleRecord,
}

impl GpuHistory {
    /// 0 °C in kelvin, rounded.
    const ZERO_CELSIUS: i32 = 273;

    fn is_sound(&self) -> bool {
        self.memory.is_sound()
            && [&self.sm, &self.power, &self.temperature]
                .into_iter()
                .all(Curve::is_sound)
    }

    fn add_readings(&mut self, gpu: &Gpu, patience: Duration) {
        let load = &gpu.load;
        self.idle.add_readings(gpu);
        self.memory.push(load.at, load.memory_used.ok(), patience);
        self.sm
            .push(load.at, load.sm.ok().map(whole_percent), patience);
        self.power.push(
            load.at,
            load.power.ok().map(|power| rounded(power.value())),
            patience,
        );
        let kelvin = |celsius: i32| u32::try_from(celsius.saturating_add(Self::ZERO_CELSIUS)).ok();
        self.temperature.push(
            load.at,
            load.temperature
                .ok()
                .and_then(|temperature| kelvin(temperature.0)),
            patience,
        );
    }

    /// Converts a temperature of the curve to degrees Celsius.
    pub(crate) fn celsius(kelvin: u32) -> i32 {
        i32::try_from(kelvin)
            .unwrap_or(i32::MAX)
            .saturating_sub(Self::ZERO_CELSIUS)
    }
}

fn whole_percent(percent: Percent) -> u32 {
    rounded(percent.value())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a percentage or watts, never below 0"
)]
fn rounded(value: f32) -> u32 {
    value.round() as u32
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProcessHistory {
    /// The facts, as last read with arguments, which a zombie has no more; `None` before the first.
    facts: Option<Arc<ProcessFacts>>,
    /// The memory on each GPU that the process was seen on.
    pub parts: Vec<(GpuUuid, MemoryHistory)>,
    /// The use of the multiprocessors of all its GPUs, in percent of one GPU, for 15 minutes.
    pub sm: Curve,
    /// The resident host memory in KiB, for 15 minutes.
    pub rss: Curve,
    /// When the process was first seen to hold no GPU memory; `None` while it holds some.
    pub gone: Option<Moment>,
    /// The history of the allocator stats; `None` where none were ever read.
    pub allocator: Option<Box<AllocatorHistory>>,
    /// The history of the probe's categories; `None` where there was never a report.
    pub tensors: Option<Box<TensorHistory>>,
    /// The memory on all GPUs together; `None` while the process was only on one.
    all: Option<Box<MemoryHistory>>,
}

impl ProcessHistory {
    fn new() -> Self {
        Self {
            facts: None,
            // Most processes are on one GPU.
            parts: Vec::with_capacity(1),
            sm: Curve::short(),
            rss: Curve::short(),
            gone: None,
            allocator: None,
            tensors: None,
            all: None,
        }
    }

    fn is_sound(&self) -> bool {
        let whole = self
            .parts
            .iter()
            .map(|(_, memory)| memory)
            .chain(self.all.as_deref());
        whole.into_iter().all(MemoryHistory::is_sound)
            && [&self.sm, &self.rss].into_iter().all(Curve::is_sound)
            && self
                .allocator
                .as_deref()
                .is_none_or(AllocatorHistory::is_sound)
            && self.tensors.as_deref().is_none_or(TensorHistory::is_sound)
    }

    /// Adds the latest readings, and reports the events that they show.
    fn add_readings(
        &mut self,
        process: &Process,
        process_total: &ProcessTotal,
        snapshot: &Snapshot,
        patience: Duration,
        mut report: impl FnMut(&GpuUuid, Moment, HistoryEventKind),
    ) {
        self.gone = None;
        let has_arguments =
            |facts: &ProcessFacts| facts.argv.as_ref().is_ok_and(|argv| !argv.is_empty());
        if has_arguments(&process.facts) || !self.facts.as_deref().is_some_and(has_arguments) {
            self.facts = Some(Arc::clone(&process.facts));
        }
        // The sum is as old as its oldest reading.
        let gpus = || snapshot.gpus_at(&process_total.gpus);
        let at = gpus().map(|gpu| gpu.load.at).min().unwrap_or(snapshot.at);
        let new_gpus = || gpus().filter(|gpu| self.on_gpu(&gpu.uuid).is_none());
        if self.all.is_none() && self.parts.len() + new_gpus().count() > 1 {
            // The history on the first GPU was the total until now. There is no earlier total when
            // all GPUs appear at once.
            let before = self
                .parts
                .first()
                .map_or_else(MemoryHistory::default, |(_, series)| series.clone());
            self.all = Some(Box::new(before));
        }
        for gpu in gpus() {
            let Some(gpu_process) = gpu.process(process.id) else {
                continue;
            };
            let known = self.parts.iter().position(|(uuid, _)| *uuid == gpu.uuid);
            let place = known.unwrap_or_else(|| {
                report(&gpu.uuid, gpu.load.at, HistoryEventKind::Began);
                self.parts
                    .push((gpu.uuid.clone(), MemoryHistory::default()));
                self.parts.len() - 1
            });
            let series = &mut self.parts[place].1;
            let before = series.latest();
            series.push(gpu.load.at, gpu_process.memory.ok(), patience);
            if let (Some(from), Some(to)) = (before, series.latest())
                && event::is_drop(from, to)
            {
                report(
                    &gpu.uuid,
                    gpu.load.at,
                    HistoryEventKind::Dropped { from, to },
                );
            }
        }
        if let Some(all) = &mut self.all {
            // An incomplete sum would look like a drop.
            let total = process_total
                .memory
                .ok()
                .filter(|total| !total.is_lower_bound);
            all.push(at, total.map(|total| total.bytes), patience);
        }
        let reserved = ReservedMemory::of_process(process, None, snapshot.at);
        if reserved.is_some() || self.allocator.is_some() {
            self.allocator
                .get_or_insert_default()
                .push(at, reserved, patience);
        }
        let report = process.fresh_report(snapshot.at);
        if report.is_some() || self.tensors.is_some() {
            self.tensors
                .get_or_insert_default()
                .push(at, report, patience);
        }
        self.sm
            .push(at, process_total.sm.ok().map(whole_percent), patience);
        let rss = process
            .load
            .rss
            .ok()
            .map(|rss| u32::try_from(rss.0 >> 10).unwrap_or(u32::MAX));
        self.rss.push(snapshot.at, rss, patience);
    }

    /// The facts, as last read; `None` before.
    pub(crate) fn facts(&self) -> Option<&Arc<ProcessFacts>> {
        self.facts.as_ref()
    }

    /// The short name, as in `train.py`.
    pub(crate) fn name(&self) -> Reading<Text> {
        self.facts
            .as_deref()
            .map_or(Err(Missing::NotYet), process_role::short_name)
    }

    /// The user; an error when the facts were never read.
    pub(crate) fn user(&self) -> Reading<&Text> {
        self.facts.as_deref().map_or(Err(Missing::NotYet), |facts| {
            facts.user.as_ref().map_err(|why| *why)
        })
    }

    /// The memory on all GPUs together; `None` before the first sample.
    pub(crate) fn memory(&self) -> Option<&MemoryHistory> {
        self.all
            .as_deref()
            .or_else(|| self.parts.first().map(|(_, series)| series))
    }

    /// The memory on one GPU; `None` when the process was never seen on it.
    pub(crate) fn on_gpu(&self, gpu: &GpuUuid) -> Option<&MemoryHistory> {
        self.parts
            .iter()
            .find(|(uuid, _)| uuid == gpu)
            .map(|(_, series)| series)
    }

    /// The time for which the process was seen to hold memory.
    fn length(&self) -> Duration {
        self.memory()
            .and_then(|series| Some(series.end().since(series.began()?)))
            .unwrap_or(Duration::ZERO)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct History {
    #[serde(with = "pairs")]
    gpus: BTreeMap<GpuUuid, GpuHistory>,
    /// Boxed: a B-tree node has room for up to twice as many entries as it contains.
    #[serde(with = "pairs")]
    processes: BTreeMap<ProcessId, Box<ProcessHistory>>,
    events: EventLog,
    began: Option<Moment>,
    passes: u64,
}

impl History {
    /// Whether a history of a checkpoint, which may be forged, keeps the rules that arithmetic with
    /// it relies on.
    pub(super) fn is_sound(&self) -> bool {
        self.events.is_sound()
            && self.gpus.values().all(GpuHistory::is_sound)
            && self.processes.values().all(|process| process.is_sound())
    }

    pub(super) fn add_snapshot(&mut self, snapshot: &Snapshot, process_totals: &[ProcessTotal]) {
        let now = snapshot.at;
        // A simulated machine may report its past after its first line.
        self.began = Some(self.began.map_or(now, |began| began.min(now)));
        self.passes = self.passes.saturating_add(1);
        // A process in the first two passes was there before gputop started. The first pass alone
        // is not enough: the agent may not have read the identity of the process yet.
        let is_first = self.passes <= 2;
        let patience = Snapshot::STALE_AFTER * Duration::from_millis(snapshot.interval_ms);
        for gpu in &snapshot.gpus {
            self.gpus
                .entry(gpu.uuid.clone())
                .or_default()
                .add_readings(gpu, patience);
        }
        self.gpus
            .retain(|_, gpu| now.since(gpu.memory.end()) <= WEEK);
        for process_total in process_totals {
            let Some(process) = snapshot.process(process_total.process) else {
                continue;
            };
            let known = self
                .processes
                .entry(process.id)
                .or_insert_with(|| Box::new(ProcessHistory::new()));
            let (gpus, events) = (&self.gpus, &mut self.events);
            // When a GPU answers late, its processes appear with its first readings: they did not
            // just begin.
            let soon = Duration::from_millis(snapshot.interval_ms) * 3 / 2;
            let is_new = |gpu: &GpuUuid, at: Moment| {
                let began = gpus.get(gpu).and_then(|gpu| gpu.memory.began());
                began.is_some_and(|began| at.since(began) <= soon)
            };
            known.add_readings(
                process,
                process_total,
                snapshot,
                patience,
                |gpu, at, kind| {
                    if kind != HistoryEventKind::Began || !(is_first || is_new(gpu, at)) {
                        let process = Some((process.id, process_role::short_name(&process.facts)));
                        events.add(HistoryEvent {
                            at,
                            kind,
                            gpu: Some(gpu.clone()),
                            process,
                        });
                    }
                },
            );
        }
        self.forget(process_totals, now);
        self.events.add_xids(snapshot);
    }

    /// Records that gputop sent a signal to a process.
    pub(super) fn signalled(&mut self, process: ProcessId, signal: Signal, at: Moment) {
        let name = self
            .processes
            .get(&process)
            .map_or(Err(Missing::NotYet), |process| process.name());
        let kind = HistoryEventKind::Signalled(signal);
        self.events.add(HistoryEvent {
            at,
            kind,
            gpu: None,
            process: Some((process, name)),
        });
    }

    /// Records the end of processes that hold no GPU memory any more. Forgets those that have held
    /// none for long; when there are many, those that held memory for the shortest time.
    fn forget(&mut self, process_totals: &[ProcessTotal], now: Moment) {
        if self.processes.len() == process_totals.len() {
            return;
        }
        for (id, process) in &mut self.processes {
            if process.gone.is_none()
                && process_totals
                    .binary_search_by_key(id, |total| total.process)
                    .is_err()
            {
                process.gone = Some(now);
                for (gpu, series) in &process.parts {
                    // The process left this GPU before it released the others: that was not its
                    // end.
                    if process
                        .memory()
                        .is_some_and(|all| series.end() >= all.end())
                    {
                        let kind = HistoryEventKind::Ended(series.latest());
                        let process = Some((*id, process.name()));
                        self.events.add(HistoryEvent {
                            at: now,
                            kind,
                            gpu: Some(gpu.clone()),
                            process,
                        });
                    }
                }
            }
        }
        self.processes.retain(|_, process| {
            process
                .gone
                .is_none_or(|gone| now.since(gone) <= REMEMBERED)
        });
        let gone = self
            .processes
            .iter()
            .filter(|(_, process)| process.gone.is_some());
        let mut gone: Vec<(Duration, ProcessId)> =
            gone.map(|(id, process)| (process.length(), *id)).collect();
        gone.sort_unstable();
        for (_, id) in &gone[..gone.len().saturating_sub(MOST_GONE)] {
            self.processes.remove(id);
        }
    }

    pub(crate) fn gpu(&self, uuid: &GpuUuid) -> Option<&GpuHistory> {
        self.gpus.get(uuid)
    }

    pub(crate) fn process(&self, id: ProcessId) -> Option<&ProcessHistory> {
        self.processes.get(&id).map(Box::as_ref)
    }

    /// Returns all processes that hold or held memory of a GPU, by the time of their first sample.
    pub(crate) fn gpu_processes(
        &self,
        gpu: &GpuUuid,
    ) -> Vec<(ProcessId, &ProcessHistory, &MemoryHistory)> {
        let on = self
            .processes
            .iter()
            .filter_map(|(id, process)| Some((*id, process.as_ref(), process.on_gpu(gpu)?)));
        let mut gpu_processes: Vec<_> = on.collect();
        gpu_processes.sort_unstable_by_key(|(id, _, series)| (series.began(), *id));
        gpu_processes
    }

    /// Returns the events of a GPU, or of a process and its GPUs; latest first.
    pub(crate) fn events<'a>(
        &'a self,
        subject: &'a GpuOrProcess,
    ) -> impl Iterator<Item = &'a HistoryEvent> {
        let is_on = |id: ProcessId, gpu: &GpuUuid| {
            self.process(id)
                .is_some_and(|process| process.on_gpu(gpu).is_some())
        };
        let concerns = move |event: &&HistoryEvent| match (subject, &event.gpu, &event.process) {
            (GpuOrProcess::Process(id), _, Some((process, _))) => id == process,
            (GpuOrProcess::Process(id), Some(gpu), None) => is_on(*id, gpu),
            (GpuOrProcess::Gpu(uuid), Some(gpu), _) => uuid == gpu,
            (GpuOrProcess::Gpu(uuid), None, Some((id, _))) => is_on(*id, uuid),
            (_, None, None) => false,
        };
        self.events.iter().rev().filter(concerns)
    }

    /// Returns the events after the first `seen` ones, oldest first.
    pub(super) fn events_after(&self, seen: u64) -> impl Iterator<Item = &HistoryEvent> {
        self.events.after(seen)
    }

    pub(crate) fn began(&self) -> Option<Moment> {
        self.began
    }

    /// The longest of [`SPANS`] that the history fills, so that a graph has no blank part.
    pub(crate) fn span(&self, now: Moment) -> Duration {
        let known = self.began.map_or(Duration::ZERO, |began| now.since(began));
        let filled = SPANS.partition_point(|seconds| Duration::from_secs(*seconds) <= known);
        Duration::from_secs(SPANS[filled.saturating_sub(1)])
    }
}

#[cfg(test)]
mod tests;
