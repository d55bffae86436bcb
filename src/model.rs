//! What the snapshots mean: the latest of them, what each process holds in all, and how it came there.
//!
//! Pure: time comes in with the data, so a recording gives the answers that were given live. It
//! cannot fail; trouble is data. It knows nothing of keys, rows or colours.

mod advice;
mod breakdown;
mod cause;
mod growth;
pub mod health;
mod history;
mod job;
mod reclaim;
mod related;
mod unaccounted;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

pub use self::advice::{Advice, Growth, Shortage, on_growth, on_shortage};
pub use self::breakdown::{Breakdown, Part, Reserved, reserved, with_instances};
use self::growth::{Allocated, Leaks};
pub use self::growth::{
    Evidence, Fall, Forecast, Growing, LeakDetector, Outlook, PartedDetector, Rate, evidence_of, part_name,
};
pub use self::health::{Health, Weight};
pub use self::history::{
    Curve, Extent, GpuHistory, History, Occurrence, ProcessHistory, Series, Split, WEEK, What, Window,
};
use self::job::Jobs;
pub use self::job::{Job, JobKey};
pub use self::reclaim::{Reclaim, Returned};
pub use self::related::RelatedProcesses;
pub use self::unaccounted::Unaccounted;
use self::verdict::past::Past;
pub use self::verdict::{Ended, Kept, Kind, Named, Orphaned, Sign, Verdict};
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::change::Change;
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{Gpu, GpuUuid, ProcessFacts, ProcessId, Reading, Snapshot};

/// A sum over readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// The sum of what could be read.
    pub bytes: Bytes,
    /// Something could not be read: the truth is this much or more.
    pub lower_bound: bool,
}

impl Total {
    /// Sums up. A sum over nothing but missing readings is missing, for the reason of the first.
    pub fn of(parts: impl Iterator<Item = Reading<Bytes>>) -> Reading<Self> {
        let (mut known, mut missing) = (None, None);
        for part in parts {
            match part {
                Ok(bytes) => known = Some(Bytes(known.map_or(0, |it: Bytes| it.0).saturating_add(bytes.0))),
                Err(why) => missing = missing.or(Some(why)),
            }
        }
        match (known, missing) {
            (Some(bytes), missing) => Ok(Self { bytes, lower_bound: missing.is_some() }),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(Self { bytes: Bytes(0), lower_bound: false }),
        }
    }

    /// Sums up sums.
    pub fn sum(parts: impl Iterator<Item = Reading<Self>>) -> Reading<Self> {
        let mut lower_bound = false;
        let parts = parts.map(|part| {
            part.map(|total| {
                lower_bound |= total.lower_bound;
                total.bytes
            })
        });
        let sum = Self::of(parts);
        sum.map(|sum| Self { lower_bound: sum.lower_bound || lower_bound, ..sum })
    }
}

/// All that one process holds, over every GPU it is on.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessTotal {
    /// Whose.
    pub process: ProcessId,
    /// Places of its GPUs in the snapshot's list.
    pub gpus: Vec<usize>,
    /// Its device memory.
    pub memory: Reading<Total>,
    /// The memory that those GPUs have in all.
    pub capacity: Reading<Total>,
    /// Its use of their multiprocessors; 100 for one whole GPU.
    pub sm: Reading<Percent>,
}

/// What has a memory history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A GPU, or an instance of one.
    Gpu(GpuUuid),
    /// A process, over all of its GPUs.
    Process(ProcessId),
}

/// What is known of the host.
#[derive(Debug, Clone, Default)]
pub struct Model {
    latest: Option<Snapshot>,
    process_totals: Vec<ProcessTotal>,
    related: RelatedProcesses,
    unaccounted: Vec<Unaccounted>,
    jobs: Jobs,
    past: Past,
    verdicts: Vec<Verdict>,
    history: History,
    leaks: Leaks,
    allocated: Allocated,
    silence: Duration,
}

impl Model {
    /// Takes a whole snapshot. Of another boot, it starts a new history: PIDs and times mean other things there.
    pub fn replace(&mut self, mut snapshot: Snapshot) {
        if self.latest.as_ref().is_some_and(|old| old.host.facts.boot_id != snapshot.host.facts.boot_id) {
            *self = Self::default();
        }
        // Everything here finds processes by their place, and a line may come from any program.
        snapshot.processes.sort_by_key(|it| it.id);
        let mut before: Option<Arc<ProcessFacts>> = None;
        for process in &mut snapshot.processes {
            // Facts that are the same stay in one piece with those that are remembered.
            let old = self.latest.as_ref().and_then(|old| old.process(process.id));
            if let Some(old) = old.filter(|old| old.facts == process.facts) {
                process.facts = old.facts.clone();
            } else if let Some(before) = &before {
                process.facts_mut().share(before);
            }
            before = Some(process.facts.clone());
        }
        self.latest = Some(snapshot);
        self.learn();
    }

    /// Takes what changed. A change that starts from another snapshot is passed over: a whole one follows.
    pub fn change(&mut self, change: Change) {
        if self.latest.as_mut().is_some_and(|latest| latest.apply(change).is_ok()) {
            self.learn();
        }
    }

    /// A process was sent a signal from here.
    pub fn signalled(&mut self, process: ProcessId, signal: Signal, at: Moment) {
        self.history.signalled(process, signal, at);
    }

    /// Time went by without a line.
    pub fn pass(&mut self, time: Duration) {
        self.silence += time;
    }

    /// The host as last seen; absent before the first line.
    pub fn latest(&self) -> Option<&Snapshot> {
        self.latest.as_ref()
    }

    /// What each process holds, in the order of the snapshot's processes.
    pub fn process_totals(&self) -> &[ProcessTotal] {
        &self.process_totals
    }

    /// What one process holds.
    pub fn process_total(&self, process: ProcessId) -> Option<&ProcessTotal> {
        self.process_totals.binary_search_by_key(&process, |it| it.process).ok().map(|at| &self.process_totals[at])
    }

    /// Who descends from whom.
    pub fn related(&self) -> &RelatedProcesses {
        &self.related
    }

    /// The GPUs with memory in use that nobody accounts for.
    pub fn unaccounted(&self) -> &[Unaccounted] {
        &self.unaccounted
    }

    /// What to think of each process, in the order of the snapshot's processes.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// What to think of one process.
    pub fn verdict(&self, process: ProcessId) -> Option<&Verdict> {
        self.verdicts.binary_search_by_key(&process, |it| it.process).ok().map(|at| &self.verdicts[at])
    }

    /// Every process, by the job that it belongs to: those that hold most first.
    pub fn jobs(&self) -> &[Job] {
        self.jobs.list()
    }

    /// The job that a process belongs to.
    pub fn job(&self, process: ProcessId) -> Option<&Job> {
        self.jobs.at(self.related.place(process)?)
    }

    /// Whether every process of the host was looked at once: before that, nobody knows all of a job.
    pub fn is_complete(&self) -> bool {
        self.latest.as_ref().is_some_and(|it| it.host.scan.at != Moment(0))
    }

    /// How the memory of a subject went since gputop began to look.
    pub fn series(&self, subject: &Subject) -> Option<&Series> {
        match subject {
            Subject::Gpu(uuid) => self.history.gpu(uuid).map(|it| &it.memory),
            Subject::Process(id) => self.history.process(*id)?.memory(),
        }
    }

    /// How the parts of what a process holds went, where PyTorch tells them apart.
    pub fn split(&self, subject: &Subject) -> Option<&Split> {
        let Subject::Process(id) = subject else { return None };
        self.history.process(*id)?.split.as_deref()
    }

    /// How everything went since gputop began to look.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether the memory of a subject leaks, and which part of it, where PyTorch tells parts apart.
    pub fn growing(&self, subject: &Subject) -> Option<Growing<'_>> {
        let held = self.growth(subject);
        match subject {
            Subject::Gpu(_) => held.map(Growing::whole),
            Subject::Process(id) => self.allocated.judge(*id, held, self.history.process(*id), self.now()),
        }
    }

    /// The processes that hold memory, and more and more of it, as with a leak; by PID.
    pub fn suspects(&self) -> Vec<ProcessId> {
        let mut suspects: Vec<ProcessId> = self.leaks.suspects().chain(self.allocated.suspects()).collect();
        suspects.retain(|it| self.process_total(*it).is_some());
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }

    /// Whether what the driver says of a subject leaks. Of a process on several GPUs, where it looks worst.
    pub fn growth(&self, subject: &Subject) -> Option<&LeakDetector> {
        match subject {
            Subject::Gpu(gpu) => self.leaks.gpu(gpu),
            Subject::Process(process) => self.leaks.process(*process),
        }
    }

    /// The span that graphs show by themselves: as much as there is history of, up to 15 minutes.
    pub fn span(&self) -> Duration {
        self.history.span(self.now())
    }

    /// The present, by the host's clock: when the latest line was written, and the silence since.
    pub fn now(&self) -> Moment {
        self.latest.as_ref().map_or_else(Moment::default, |latest| latest.at.after(self.silence))
    }

    /// How long there was no line; absent while lines come as they should.
    pub fn silence(&self) -> Option<Duration> {
        self.is_overdue(self.silence).then_some(self.silence)
    }

    /// How old a GPU's figures are; absent while they are fresh.
    pub fn age(&self, gpu: &Gpu) -> Option<Duration> {
        let age = self.now().since(gpu.load.at);
        // A GPU that was never read has no figures that could be old.
        (gpu.load.at != Moment::default() && self.is_overdue(age)).then_some(age)
    }

    /// What to think of a GPU. An instance of one is as well as the whole.
    pub fn health(&self, gpu: &Gpu) -> Health {
        let parent = gpu.facts.parent.as_ref().filter(|_| gpu.trouble.is_none());
        let whole = parent.and_then(|uuid| self.latest.as_ref()?.gpu(uuid));
        health::judge(whole.unwrap_or(gpu), self.now())
    }

    fn is_overdue(&self, age: Duration) -> bool {
        let Some(latest) = &self.latest else { return false };
        // The first passes of a short interval may take longer than it.
        age > (Snapshot::STALE_AFTER * Duration::from_millis(latest.interval_ms)).max(Duration::from_millis(500))
    }

    /// Draws from the latest snapshot what follows from it.
    fn learn(&mut self) {
        self.silence = Duration::ZERO;
        let Some(latest) = &self.latest else { return };
        self.process_totals = process_totals(latest);
        // Most passes change nobody's ties, and finding them is most of what a large host costs.
        let is_settled = self.past.is_settled(latest);
        if !is_settled {
            self.related = RelatedProcesses::of(latest);
        }
        self.unaccounted = latest.gpus.iter().filter_map(|gpu| unaccounted::find(gpu, latest).ok()?).collect();
        self.past.learn(latest, &self.related, &self.process_totals);
        if is_settled {
            self.jobs.weigh(&self.process_totals);
        } else {
            self.jobs = Jobs::of(latest, &self.related, &mut self.past, &self.process_totals);
        }
        verdict::judge::judge(
            &mut self.verdicts,
            latest,
            &self.related,
            &self.past,
            &self.process_totals,
            &self.unaccounted,
        );
        self.leaks.learn(latest);
        self.allocated.learn(latest);
        self.history.learn(latest, &self.process_totals);
    }
}

fn process_totals(snapshot: &Snapshot) -> Vec<ProcessTotal> {
    let mut places: Vec<(usize, usize, usize)> = Vec::new();
    for (gpu_at, gpu) in snapshot.gpus.iter().enumerate() {
        // Whom the agent has not looked at yet has another id in the next snapshot.
        let place = |id| snapshot.processes.binary_search_by_key(&id, |it| it.id).ok();
        let gpu_processes = gpu.processes.iter().enumerate();
        places.extend(gpu_processes.filter_map(|(tenant_at, it)| Some((place(it.process)?, gpu_at, tenant_at))));
    }
    places.sort_unstable();
    places
        .chunk_by(|a, b| a.0 == b.0)
        .map(|places| {
            let mine = || places.iter().map(|(_, gpu, gpu_process)| &snapshot.gpus[*gpu].processes[*gpu_process]);
            ProcessTotal {
                process: snapshot.processes[places[0].0].id,
                gpus: places.iter().map(|(_, gpu, _)| *gpu).collect(),
                memory: Total::of(mine().map(|it| it.memory)),
                capacity: Total::of(places.iter().map(|(_, gpu, _)| snapshot.gpus[*gpu].load.memory_total)),
                sm: mine().map(|it| it.sm.map(Percent::value)).sum::<Reading<f32>>().map(Percent::new),
            }
        })
        .collect()
}
