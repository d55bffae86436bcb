//! What was seen of each process before the latest snapshot: whose child it was, since when it is as
//! it is. Time is that of the snapshots.

use std::sync::Arc;
use std::time::Duration;

use super::KnownProcess;
use crate::base::text::Argv;
use crate::base::units::{Moment, Percent};
use crate::model::ProcessTotal;
use crate::model::process_role::{self, ProcessRole};
use crate::model::process_tree::ProcessTree;
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessFacts, ProcessId, Reading, Snapshot, State};

/// CPU use from which a process computes. Waiting for the GPU takes a whole core, waiting in a poll none.
const COMPUTES: f32 = 1.0;

/// A GPU process that ended is remembered for so long: its PID may stay in the driver's list as a ghost.
const REMEMBERED: Duration = Duration::from_hours(1);

/// And so many of them.
const FALLEN: usize = 256;

/// Whether a process does anything, on a GPU or a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    /// It does, or a descendant does.
    Computes,
    /// It does not.
    Quiet,
    /// Not read yet.
    Unknown,
}

/// The end of a parent, as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LostParent {
    pub(super) who: Arc<KnownProcess>,
    pub(super) role: ProcessRole,
    pub(super) at: Moment,
}

/// What is remembered of a living process.
#[derive(Debug, Clone)]
pub(in crate::model) struct ProcessRecord {
    /// By what it was when its arguments were seen last: one that has ended has none.
    pub(in crate::model) named: Arc<KnownProcess>,
    pub(in crate::model) role: ProcessRole,
    /// It had the arguments of the Python process that made it: it was forked, and not started.
    pub(in crate::model) forked: bool,
    /// The process that it was told to serve: `--parent=PID`.
    pub(super) served: Option<u32>,
    /// The first parent whose end tells something; else the last that ended.
    pub(super) lost_parent: Option<LostParent>,
    pub(super) activity: Activity,
    /// Since when we see it compute nothing.
    pub(super) quiet_since: Option<Moment>,
    /// It was seen to compute.
    pub(super) computed: bool,
    /// Since when we see it in the kernel, out of reach of signals.
    pub(super) blocked_since: Option<Moment>,
    /// Since when we see it dead, as its parent has not asked how it ended.
    pub(super) dead_since: Option<Moment>,
    /// The root of the job that it was seen in first.
    pub(in crate::model) root: Option<Arc<KnownProcess>>,
    parent: Option<u32>,
    /// Its parent at the last pass.
    maker: Option<(Arc<KnownProcess>, ProcessRole)>,
    gpu_process: bool,
    shared_ids: SharedIds,
}

/// Numbers that a process shares with its related processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedIds {
    pub(super) uid: Reading<u32>,
    pub(super) group: Reading<u32>,
    pub(super) session: Reading<u32>,
}

/// A GPU process that ended.
#[derive(Debug, Clone)]
pub(super) struct EndedProcess {
    pub(super) named: Arc<KnownProcess>,
    shared_ids: SharedIds,
    root: Option<Arc<KnownProcess>>,
    at: Moment,
}

/// All that is remembered.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct ProcessRecords {
    /// One for each process of the latest snapshot, in its order.
    records: Vec<ProcessRecord>,
    /// The latest last.
    ended_process: Vec<EndedProcess>,
    /// Someone is remembered by arguments that they have no more.
    any_cleared: bool,
}

impl ProcessRecords {
    /// Whether everyone is who they were at the last look: then nobody is another's related processes, or of another job. What the
    /// dead leave behind, and those who are only a PID, hangs on more.
    pub(in crate::model) fn is_settled(&self, snapshot: &Snapshot) -> bool {
        let is_same = |(record, process): (&ProcessRecord, &Process)| {
            let facts = record.named.facts.as_ref();
            record.named.id == process.id
                && facts.is_some_and(|it| *it == process.facts || are_alike(it, &process.facts))
        };
        let is_dead = |(record, process): (&ProcessRecord, &Process)| {
            record.dead_since.is_some() || process.load.state == Ok(State::Zombie) || process.id.start_ticks.is_none()
        };
        let mut pairs = self.records.iter().zip(&snapshot.processes);
        !self.any_cleared
            && self.records.len() == snapshot.processes.len()
            && pairs.all(|it| is_same(it) && !is_dead(it))
    }

    /// Takes in the latest snapshot.
    pub(in crate::model) fn learn(&mut self, snapshot: &Snapshot, tree: &ProcessTree, process_totals: &[ProcessTotal]) {
        let is_same = self.records.iter().map(|it| it.named.id).eq(snapshot.processes.iter().map(|it| it.id));
        if !is_same {
            self.come_and_go(snapshot);
        }
        self.ended_process.retain(|it| snapshot.at.since(it.at) < REMEMBERED);
        let mut held = process_totals.iter().peekable();
        self.any_cleared = false;
        for (record, process) in self.records.iter_mut().zip(&snapshot.processes) {
            self.any_cleared |= record.name(process);
            let process_total = held.next_if(|it| it.process == process.id);
            // A PID that NVML did not mean tells nothing when it ends.
            record.gpu_process = process_total.is_some() && process.facts.identity != Identity::Unverified;
            record.activity = activity(process, process_total, snapshot);
        }
        for at in 0..self.records.len() {
            if self.records[at].activity == Activity::Computes {
                // Whoever waits for a process that computes is not idle.
                let mut line =
                    tree.line(at).take_while(|it| self.records[*it].activity != Activity::Computes).collect::<Vec<_>>();
                line.retain(|it| !self.records[*it].role.is_keeper());
                for it in line {
                    self.records[it].activity = Activity::Computes;
                }
            }
        }
        for (at, process) in snapshot.processes.iter().enumerate() {
            self.follow(at, process, tree, snapshot);
        }
    }

    /// Makes of the lives those of the snapshot's processes.
    fn come_and_go(&mut self, snapshot: &Snapshot) {
        let mut old = std::mem::take(&mut self.records).into_iter().peekable();
        let mut gone = Vec::new();
        self.records.reserve(snapshot.processes.len());
        for process in &snapshot.processes {
            while let Some(record) = old.next_if(|it| it.named.id < process.id) {
                gone.push(record);
            }
            self.records
                .push(old.next_if(|it| it.named.id == process.id).unwrap_or_else(|| ProcessRecord::of(process)));
        }
        gone.extend(old);
        self.bury(gone, snapshot.at);
    }

    /// Notes what became of one process.
    fn follow(&mut self, at: usize, process: &Process, tree: &ProcessTree, snapshot: &Snapshot) {
        let now = snapshot.at;
        let has_same_argv = |maker: usize| {
            let it = &self.records[maker];
            it.role.runs_python()
                && it.named.argv().is_some_and(|argv| !argv.is_empty() && self.records[at].named.argv() == Some(argv))
        };
        // A session of its own is what a daemon makes, and nobody's worker.
        let is_daemon = |maker: usize| {
            let session = snapshot.processes[maker].facts.session;
            session.is_ok() && process.facts.session.is_ok() && session != process.facts.session
        };
        let is_fork = tree.up(at).filter(|maker| has_same_argv(*maker)).map(|maker| !is_daemon(maker));
        let maker = tree.up(at).map(|it| &self.records[it]).map(|it| (it.named.clone(), it.role));
        let record = &mut self.records[at];
        record.forked = is_fork.unwrap_or(record.forked);
        if let Ok(parent) = process.facts.parent {
            if let Some(before) = record.parent.filter(|it| *it != parent) {
                record.lose(before, now);
            }
            record.parent = Some(parent);
            record.maker = maker.or(record.maker.take().filter(|it| it.0.id.pid == parent));
        }
        since(&mut record.blocked_since, process.load.state == Ok(State::DiskSleep), now);
        since(&mut record.dead_since, process.load.state == Ok(State::Zombie), now);
        since(&mut record.quiet_since, record.activity == Activity::Quiet, now);
        record.computed |= record.activity == Activity::Computes;
        let facts = &process.facts;
        record.shared_ids = SharedIds { uid: facts.uid, group: facts.group, session: facts.session };
    }

    fn bury(&mut self, gone: Vec<ProcessRecord>, now: Moment) {
        let gpu_processes = gone.into_iter().filter(|it| it.gpu_process && it.named.id.start_ticks.is_some());
        self.ended_process.extend(gpu_processes.map(|it| EndedProcess {
            named: it.named,
            shared_ids: it.shared_ids,
            root: it.root,
            at: now,
        }));
        let surplus = self.ended_process.len().saturating_sub(FALLEN);
        self.ended_process.drain(..surplus);
    }

    /// The GPU process with that PID that ended last.
    pub(super) fn ended_process(&self, pid: u32) -> Option<&EndedProcess> {
        self.ended_process.iter().rev().find(|it| it.named.id.pid == pid)
    }

    /// What tied the GPU process that had that PID, or has it and has ended, to its related processes; and its arguments.
    pub(super) fn shared_ids(&self, tree: &ProcessTree, id: ProcessId) -> Option<(SharedIds, Option<&Argv>)> {
        let dead = || tree.place(id).map(|at| (self.records[at].shared_ids, self.records[at].named.argv()));
        if id.start_ticks.is_some() {
            dead()
        } else {
            self.ended_process(id.pid).map(|it| (it.shared_ids, it.named.argv()))
        }
    }

    /// What is remembered of the process at that place.
    pub(in crate::model) fn record(&self, at: usize) -> &ProcessRecord {
        &self.records[at]
    }

    /// The root of the job of a ghost: of the GPU process whose PID it has.
    pub(in crate::model) fn root_of_ghost(&self, pid: u32) -> Option<&Arc<KnownProcess>> {
        self.ended_process(pid).and_then(|it| it.root.as_ref())
    }

    /// Notes in which job a process was seen.
    pub(in crate::model) fn belongs(&mut self, at: usize, root: Arc<KnownProcess>) {
        self.records[at].root = Some(root);
    }
}

impl KnownProcess {
    /// Its arguments; absent when they are not known.
    pub(super) fn argv(&self) -> Option<&Argv> {
        self.facts.as_ref()?.argv.as_ref().ok()
    }
}

impl ProcessRecord {
    fn of(process: &Process) -> Self {
        Self {
            named: KnownProcess { id: process.id, facts: None, calling: "" }.into(),
            role: ProcessRole::Unknown,
            forked: false,
            served: None,
            lost_parent: None,
            activity: Activity::Unknown,
            quiet_since: None,
            computed: false,
            blocked_since: None,
            dead_since: None,
            root: None,
            parent: None,
            maker: None,
            gpu_process: false,
            shared_ids: SharedIds {
                uid: Err(Missing::NotYet),
                group: Err(Missing::NotYet),
                session: Err(Missing::NotYet),
            },
        }
    }

    /// Takes in what it is called. A process that has ended keeps the arguments that it had: says whether it has none
    /// any more.
    fn name(&mut self, process: &Process) -> bool {
        let facts = &process.facts;
        let is_same = self.named.facts.as_ref() == Some(facts);
        let is_cleared = !is_same && self.named.argv().is_some() && facts.argv.as_ref().is_ok_and(Argv::is_empty);
        if is_same || is_cleared {
            return is_cleared;
        }
        self.forked &= self.named.argv() == facts.argv.as_ref().ok();
        self.role = ProcessRole::of(process);
        let mut arguments = facts.argv.iter().flat_map(Argv::iter);
        self.served = arguments.find_map(|it| it.strip_prefix("--parent=")).and_then(|it| it.parse().ok());
        // A tool, as `vllm`, is no trainer.
        let is_script = self.role == ProcessRole::Python && process_role::program(facts).strip_suffix(".py").is_some();
        let calling = if is_script { "trainer" } else { self.role.calling() };
        self.named = KnownProcess { id: process.id, facts: Some(facts.clone()), calling }.into();
        false
    }

    /// Its parent ended.
    fn lose(&mut self, pid: u32, now: Moment) {
        // That a shell or a service manager went tells nothing, so it does not hide a loss that does.
        if self.lost_parent.as_ref().is_some_and(|it| it.role.makes()) {
            return;
        }
        let id = ProcessId { pid, start_ticks: None };
        let stranger = || (KnownProcess { id, facts: None, calling: "parent" }.into(), ProcessRole::Unknown);
        let (who, role) = self.maker.take().filter(|it| it.0.id.pid == pid).unwrap_or_else(stranger);
        self.lost_parent = Some(LostParent { who, role, at: now });
    }
}

/// Whether all of it is the same that tells whose a process is. On a large host it takes minutes until the threads of
/// all were looked at, and most trainers have none of their own.
fn are_alike(one: &ProcessFacts, other: &ProcessFacts) -> bool {
    let trains = |it: &ProcessFacts| it.trainer_threads == Ok(true);
    trains(one) == trains(other) && *one == ProcessFacts { trainer_threads: one.trainer_threads, ..other.clone() }
}

/// Counts from when we began to see it so.
fn since(since: &mut Option<Moment>, is_so: bool, now: Moment) {
    *since = is_so.then(|| since.unwrap_or(now));
}

fn activity(process: &Process, process_total: Option<&ProcessTotal>, snapshot: &Snapshot) -> Activity {
    let (cpu, sm) = (process.load.cpu, process_total.map(|it| use_of_gpus(it, snapshot)));
    if cpu.is_ok_and(|it| it.value() >= COMPUTES) || sm.is_some_and(|it| it.is_ok_and(|it| it.value() > 0.0)) {
        return Activity::Computes;
    }
    match (cpu, sm) {
        (Err(Missing::NotYet), _) | (_, Some(Err(Missing::NotYet))) => Activity::Unknown,
        (Err(_), None | Some(Err(_))) => Activity::Unknown,
        _ => Activity::Quiet,
    }
}

/// What it uses of its GPUs. Where the driver does not say by process, a GPU that rests says it of all.
pub(super) fn use_of_gpus(process_total: &ProcessTotal, snapshot: &Snapshot) -> Reading<Percent> {
    let rests = |at: &usize| snapshot.gpus[*at].load.sm.is_ok_and(|it| it.value() <= 0.0);
    match process_total.sm {
        Err(why) if why != Missing::NotYet && process_total.gpus.iter().all(rests) => Ok(Percent::new(0.0)),
        sm => sm,
    }
}
