//! How memory and work went, since gputop began to look.
//!
//! By the second for 15 minutes, by ten seconds for 6 hours, by five minutes (lowest and highest) for 7 days:
//! per GPU, and per process and GPU. A process goes by its identity, and is remembered for a while when it
//! no longer holds anything. All of it takes less than 6 MiB on a host of 8 GPUs and 64 processes.

mod allocator_history;
mod curve;
mod event;
mod track;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

pub use self::allocator_history::AllocatorHistory;
pub use self::curve::{Curve, MinMax, Window};
use self::event::EventLog;
pub use self::event::{HistoryEvent, HistoryEventKind};
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment, Percent};
use crate::model::{GpuOrProcess, ProcessTotal, ReservedMemory};
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{Gpu, GpuUuid, Missing, Process, ProcessId, Reading, Snapshot};

/// The longest span that there is history of.
pub const WEEK: Duration = Duration::from_hours(7 * 24);

/// Who no longer holds anything is remembered for so long.
const REMEMBERED: Duration = Duration::from_hours(6);

/// And so many of them.
const GONE: usize = 24;

/// The spans that graphs show by themselves, until there is history of the last one.
const SPANS: [Duration; 5] = [
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_mins(5),
    Duration::from_mins(10),
    Duration::from_mins(15),
];

/// The memory of one subject over time.
#[derive(Debug, Clone)]
pub struct MemorySeries {
    curve: Curve,
    latest: Option<Bytes>,
    baseline: Option<Bytes>,
    peak: Option<Bytes>,
    began: Option<Moment>,
}

impl MemorySeries {
    /// Beyond a quarter of an hour, floors are known of so long.
    pub const COARSE: Duration = Duration::from_mins(5);

    pub(super) fn new() -> Self {
        Self { curve: Curve::long(), latest: None, baseline: None, peak: None, began: None }
    }

    pub(super) fn push(&mut self, at: Moment, memory: Option<Bytes>, patience: Duration) {
        if at < self.curve.end() {
            return;
        }
        if let Some(bytes) = memory {
            self.baseline.get_or_insert(bytes);
            self.began.get_or_insert(at);
            self.peak = self.peak.max(memory);
        }
        self.latest = memory;
        self.curve.push(at, memory.map(|it| u32::try_from(it.0 >> 10).unwrap_or(u32::MAX)), patience);
    }

    /// What was read in each part of a window, to the KiB. A part without a sample of its own repeats what was
    /// before it; absent in a gap, and where nothing was read yet.
    pub fn over(&self, window: &Window, now: Moment) -> Vec<Option<MinMax<Bytes>>> {
        self.curve.over(window, now).into_iter().map(|it| it.map(in_bytes)).collect()
    }

    /// The highest amount of each of `columns` equal parts of the last `span` before `now`, oldest first.
    pub fn columns(&self, now: Moment, span: Duration, columns: usize) -> Vec<Option<Bytes>> {
        let parts = self.curve.over(&Window::until(now, span, columns), now);
        parts.into_iter().map(|it| it.map(|it| in_bytes(it).high)).collect()
    }

    /// What was known at that moment, in the finest resolution that is left of it; absent in a gap.
    pub fn at(&self, at: Moment, now: Moment) -> Option<MinMax<Bytes>> {
        self.curve.at(at, now).map(in_bytes)
    }

    /// The least of the `span` up to that moment, of some minutes at most, by the second; of what is older than a quarter
    /// of an hour, the least of the five minutes that the moment lies in. Absent in a gap.
    pub fn floor(&self, until: Moment, span: Duration, now: Moment) -> Option<Bytes> {
        // Ten seconds keep their highest only, which says nothing of a floor.
        let is_by_the_second = now.since(until) + span <= SPANS[SPANS.len() - 1];
        let parts = usize::try_from(span.as_secs() / 5).unwrap_or(1);
        let window =
            if is_by_the_second { Window::until(until, span, parts) } else { Window::until(until, Self::COARSE, 1) };
        self.over(&window, now).into_iter().flatten().map(|it| it.low).min()
    }

    /// The time of the last sample.
    pub fn end(&self) -> Moment {
        self.curve.end()
    }

    /// The first amount that was read; absent when none was.
    pub fn baseline(&self) -> Option<Bytes> {
        self.baseline
    }

    /// When that was.
    pub fn began(&self) -> Option<Moment> {
        self.began
    }

    /// The highest amount since then.
    pub fn peak(&self) -> Option<Bytes> {
        self.peak
    }

    /// The last sample; absent when it could not be read.
    pub fn latest(&self) -> Option<Bytes> {
        self.latest
    }
}

fn in_bytes(kib: MinMax<u32>) -> MinMax<Bytes> {
    kib.map(|it| Bytes::from_kib(it.into()))
}

/// What is remembered of a GPU.
#[derive(Debug, Clone)]
pub struct GpuHistory {
    /// Memory in use.
    pub memory: MemorySeries,
    /// Use of its multiprocessors, in whole percent.
    pub sm: Curve,
    /// In whole watts.
    pub power: Curve,
    /// In degrees above absolute zero: [`GpuHistory::celsius`] makes it what people read.
    pub temperature: Curve,
}

impl GpuHistory {
    /// Absolute zero, in degrees Celsius below 0.
    const ZERO: i32 = 273;

    fn new() -> Self {
        Self { memory: MemorySeries::new(), sm: Curve::long(), power: Curve::long(), temperature: Curve::long() }
    }

    fn learn(&mut self, gpu: &Gpu, patience: Duration) {
        let load = &gpu.load;
        self.memory.push(load.at, load.memory_used.ok(), patience);
        self.sm.push(load.at, load.sm.ok().map(whole_percent), patience);
        self.power.push(load.at, load.power.ok().map(|it| whole(it.value())), patience);
        let kelvin = |it: i32| u32::try_from(it.saturating_add(Self::ZERO)).ok();
        self.temperature.push(load.at, load.temperature.ok().and_then(|it| kelvin(it.0)), patience);
    }

    /// A temperature of the curve in degrees Celsius.
    pub fn celsius(kelvin: u32) -> i32 {
        i32::try_from(kelvin).unwrap_or(i32::MAX).saturating_sub(Self::ZERO)
    }
}

fn whole_percent(percent: Percent) -> u32 {
    whole(percent.value())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage or watts, never below 0")]
fn whole(value: f32) -> u32 {
    value.round() as u32
}

/// What is remembered of a process.
#[derive(Debug, Clone)]
pub struct ProcessHistory {
    /// Its short name, as last read.
    pub name: Reading<Text>,
    /// Its memory on each GPU that it was ever seen on.
    pub parts: Vec<(GpuUuid, MemorySeries)>,
    /// Use of the multiprocessors of all its GPUs, in whole percent, for 15 minutes.
    pub sm: Curve,
    /// Memory of the host in KiB, for 15 minutes.
    pub rss: Curve,
    /// Since when it holds nothing any more; absent while it does.
    pub gone: Option<Moment>,
    /// Of that, what PyTorch took and what tensors hold; absent where that was never read.
    pub allocator: Option<Box<AllocatorHistory>>,
    /// Its memory on all of them, once they are more than one.
    all: Option<Box<MemorySeries>>,
}

impl ProcessHistory {
    fn new() -> Self {
        Self {
            name: Err(Missing::NotYet),
            // Most are on one GPU.
            parts: Vec::with_capacity(1),
            sm: Curve::short(),
            rss: Curve::short(),
            gone: None,
            allocator: None,
            all: None,
        }
    }

    /// Takes in what was seen of it, and says what happened.
    fn learn(
        &mut self,
        process: &Process,
        process_total: &ProcessTotal,
        snapshot: &Snapshot,
        patience: Duration,
        mut say: impl FnMut(&GpuUuid, Moment, HistoryEventKind),
    ) {
        self.gone = None;
        if process.facts.comm.is_ok() || self.name.is_err() {
            self.name.clone_from(&process.facts.comm);
        }
        // A process on several GPUs is as old as the oldest of its readings.
        let at = process_total.gpus.iter().map(|at| snapshot.gpus[*at].load.at).min().unwrap_or(snapshot.at);
        let gpus = || process_total.gpus.iter().map(|at| &snapshot.gpus[*at]);
        let is_known = |gpu: &&Gpu| self.parts.iter().any(|(uuid, _)| *uuid == gpu.uuid);
        if self.all.is_none() && self.parts.len() + gpus().filter(|it| !is_known(it)).count() > 1 {
            // What it had on the first of them was all until now; nothing, where it is seen on all at once.
            let before = self.parts.first().map_or_else(MemorySeries::new, |(_, series)| series.clone());
            self.all = Some(Box::new(before));
        }
        for gpu in gpus() {
            let Some(gpu_process) = gpu.processes.iter().find(|it| it.process == process.id) else { continue };
            let known = self.parts.iter().position(|(uuid, _)| *uuid == gpu.uuid);
            let place = known.unwrap_or_else(|| {
                say(&gpu.uuid, gpu.load.at, HistoryEventKind::Began);
                self.parts.push((gpu.uuid.clone(), MemorySeries::new()));
                self.parts.len() - 1
            });
            let series = &mut self.parts[place].1;
            let before = series.latest();
            series.push(gpu.load.at, gpu_process.memory.ok(), patience);
            if let (Some(from), Some(to)) = (before, series.latest())
                && event::is_fall(from, to)
            {
                say(&gpu.uuid, gpu.load.at, HistoryEventKind::Fell { from, to });
            }
        }
        if let Some(all) = &mut self.all {
            // A sum that misses a part would show as a fall.
            all.push(at, process_total.memory.ok().filter(|it| !it.lower_bound).map(|it| it.bytes), patience);
        }
        let reserved = process.allocator.as_ref().and_then(|it| ReservedMemory::of_all(&it.devices));
        if reserved.is_some() || self.allocator.is_some() {
            self.allocator.get_or_insert_with(|| Box::new(AllocatorHistory::new())).push(at, reserved, patience);
        }
        self.sm.push(at, process_total.sm.ok().map(whole_percent), patience);
        let rss = process.load.rss.ok().map(|it| u32::try_from(it.0 >> 10).unwrap_or(u32::MAX));
        self.rss.push(snapshot.at, rss, patience);
    }

    /// Its memory on all of its GPUs together.
    pub fn memory(&self) -> Option<&MemorySeries> {
        self.all.as_deref().or_else(|| self.parts.first().map(|(_, series)| series))
    }

    /// Its memory on one GPU.
    pub fn on(&self, gpu: &GpuUuid) -> Option<&MemorySeries> {
        self.parts.iter().find(|(uuid, _)| uuid == gpu).map(|(_, series)| series)
    }

    /// For how long it was seen to hold memory.
    fn length(&self) -> Duration {
        self.memory().and_then(|it| Some(it.end().since(it.began()?))).unwrap_or(Duration::ZERO)
    }
}

/// All that is remembered.
#[derive(Debug, Clone, Default)]
pub struct History {
    gpus: HashMap<GpuUuid, GpuHistory>,
    /// Each in a place of its own: a tree has room for up to twice as many as are in it.
    processes: BTreeMap<ProcessId, Box<ProcessHistory>>,
    events: EventLog,
    began: Option<Moment>,
    passes: u64,
}

impl History {
    /// Takes in the latest snapshot.
    pub(super) fn learn(&mut self, snapshot: &Snapshot, process_totals: &[ProcessTotal]) {
        let now = snapshot.at;
        self.began.get_or_insert(now);
        self.passes += 1;
        // Whom the first passes find was there before. The second finds who had no name in the first.
        let is_first = self.passes <= 2;
        let patience = Snapshot::STALE_AFTER * Duration::from_millis(snapshot.interval_ms);
        for gpu in &snapshot.gpus {
            match self.gpus.get_mut(&gpu.uuid) {
                Some(known) => known.learn(gpu, patience),
                None => {
                    self.gpus.entry(gpu.uuid.clone()).or_insert_with(GpuHistory::new).learn(gpu, patience);
                }
            }
        }
        self.gpus.retain(|_, it| now.since(it.memory.end()) <= WEEK);
        for process_total in process_totals {
            let Some(process) = snapshot.process(process_total.process) else { continue };
            let known = self.processes.entry(process.id).or_insert_with(|| Box::new(ProcessHistory::new()));
            let (gpus, events) = (&self.gpus, &mut self.events);
            // A GPU that answers late is read for the first time then.
            let soon = Duration::from_millis(snapshot.interval_ms) * 3 / 2;
            let is_new = |gpu: &GpuUuid, at: Moment| {
                let began = gpus.get(gpu).and_then(|it| it.memory.began());
                began.is_some_and(|began| at.since(began) <= soon)
            };
            known.learn(process, process_total, snapshot, patience, |gpu, at, what| {
                if what != HistoryEventKind::Began || !(is_first || is_new(gpu, at)) {
                    let process = Some((process.id, process.facts.comm.clone()));
                    events.add(HistoryEvent { at, what, gpu: Some(gpu.clone()), process });
                }
            });
        }
        self.forget(process_totals, now);
        self.events.learn(snapshot);
    }

    /// A process was sent a signal from here.
    pub(super) fn signalled(&mut self, process: ProcessId, signal: Signal, at: Moment) {
        let name = self.processes.get(&process).map_or(Err(Missing::NotYet), |it| it.name.clone());
        let what = HistoryEventKind::Signalled(signal);
        self.events.add(HistoryEvent { at, what, gpu: None, process: Some((process, name)) });
    }

    /// Forgets who has held nothing for long; of many, those that it saw the least of.
    fn forget(&mut self, process_totals: &[ProcessTotal], now: Moment) {
        if self.processes.len() == process_totals.len() {
            return;
        }
        for (id, it) in &mut self.processes {
            if it.gone.is_none() && process_totals.binary_search_by_key(id, |it| it.process).is_err() {
                it.gone = Some(now);
                for (gpu, series) in &it.parts {
                    // What left a GPU before was no end.
                    if it.memory().is_some_and(|all| series.end() >= all.end()) {
                        let (what, gpu) = (HistoryEventKind::Ended(series.latest()), Some(gpu.clone()));
                        self.events.add(HistoryEvent { at: now, what, gpu, process: Some((*id, it.name.clone())) });
                    }
                }
            }
        }
        self.processes.retain(|_, it| it.gone.is_none_or(|gone| now.since(gone) <= REMEMBERED));
        let mut gone: Vec<(Duration, ProcessId)> =
            self.processes.iter().filter(|(_, it)| it.gone.is_some()).map(|(id, it)| (it.length(), *id)).collect();
        if gone.len() > GONE {
            gone.sort_unstable();
            for (_, id) in &gone[..gone.len() - GONE] {
                self.processes.remove(id);
            }
        }
    }

    /// What is remembered of a GPU.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&GpuHistory> {
        self.gpus.get(uuid)
    }

    /// What is remembered of a process.
    pub fn process(&self, id: ProcessId) -> Option<&ProcessHistory> {
        self.processes.get(&id).map(Box::as_ref)
    }

    /// Everyone who holds or held memory of that GPU, who was there first at the beginning.
    pub fn gpu_processes(&self, gpu: &GpuUuid) -> Vec<(ProcessId, &ProcessHistory, &MemorySeries)> {
        let on = self.processes.iter().filter_map(|(id, it)| Some((*id, it.as_ref(), it.on(gpu)?)));
        let mut gpu_processes: Vec<_> = on.collect();
        gpu_processes.sort_unstable_by_key(|(id, _, series)| (series.began(), *id));
        gpu_processes
    }

    /// What happened to a subject, the latest first: on that GPU, or to that process and the GPUs it is on.
    pub fn events<'a>(&'a self, subject: &'a GpuOrProcess) -> impl Iterator<Item = &'a HistoryEvent> {
        let concerns = move |it: &&HistoryEvent| match (subject, &it.gpu, &it.process) {
            (GpuOrProcess::Process(id), _, Some((process, _))) => id == process,
            (GpuOrProcess::Process(id), Some(gpu), None) => self.process(*id).is_some_and(|it| it.on(gpu).is_some()),
            (GpuOrProcess::Gpu(uuid), Some(gpu), _) => uuid == gpu,
            (GpuOrProcess::Gpu(uuid), None, Some((id, _))) => self.process(*id).is_some_and(|it| it.on(uuid).is_some()),
            (_, None, None) => false,
        };
        self.events.iter().rev().filter(concerns)
    }

    /// When gputop began to look; absent before the first line.
    pub fn began(&self) -> Option<Moment> {
        self.began
    }

    /// The span that graphs show by themselves: as much as there is history of, up to 15 minutes.
    pub fn span(&self, now: Moment) -> Duration {
        let known = self.began.map_or(Duration::ZERO, |began| now.since(began));
        SPANS.into_iter().find(|span| *span >= known).unwrap_or(SPANS[SPANS.len() - 1])
    }

    /// The memory that all of it takes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let gpu = |it: &GpuHistory| it.memory.curve.bytes() + it.sm.bytes() + it.power.bytes() + it.temperature.bytes();
        let process = |it: &ProcessHistory| {
            let own = size_of::<ProcessHistory>();
            let parts = it.parts.iter().map(|(_, series)| series.curve.bytes()).sum::<usize>();
            let all = it.all.as_ref().map_or(0, |it| size_of::<MemorySeries>() + it.curve.bytes());
            let allocator = it
                .allocator
                .as_ref()
                .map_or(0, |it| size_of::<AllocatorHistory>() + it.allocated.curve.bytes() + it.reserved.curve.bytes());
            own + allocator
                + parts
                + it.parts.capacity() * size_of::<(GpuUuid, MemorySeries)>()
                + all
                + it.sm.bytes()
                + it.rss.bytes()
        };
        self.gpus.values().map(gpu).sum::<usize>()
            + self.processes.values().map(|it| process(it)).sum::<usize>()
            + self.gpus.capacity() * size_of::<(GpuUuid, GpuHistory)>()
            + 2 * self.processes.len() * size_of::<(ProcessId, Box<ProcessHistory>)>()
    }
}

#[cfg(test)]
mod tests;
