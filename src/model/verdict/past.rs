//! What was seen of each process before the latest snapshot: whose child it was, since when it is as
//! it is. Time is that of the snapshots.

use std::sync::Arc;
use std::time::Duration;

use super::Named;
use crate::base::text::Argv;
use crate::base::units::{Moment, Percent};
use crate::model::ProcessTotal;
use crate::model::related::RelatedProcesses;
use crate::model::related::role::{self, Role};
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessFacts, ProcessId, Reading, Snapshot, State};

/// CPU use from which a process computes. Waiting for the GPU takes a whole core, waiting in a poll none.
const COMPUTES: f32 = 1.0;

/// A GPU process that ended is remembered for so long: its PID may stay in the driver's list as a ghost.
const REMEMBERED: Duration = Duration::from_hours(1);

/// And so many of them.
const FALLEN: usize = 256;

/// Whether a process does anything, on a GPU or a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// It does, or a descendant does.
    Computes,
    /// It does not.
    Quiet,
    /// Not read yet.
    Unknown,
}

/// The end of a parent, as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loss {
    pub(super) who: Arc<Named>,
    pub(super) role: Role,
    pub(super) at: Moment,
}

/// What is remembered of a living process.
#[derive(Debug, Clone)]
pub(in crate::model) struct Life {
    /// By what it was when its arguments were seen last: one that has ended has none.
    pub(in crate::model) named: Arc<Named>,
    pub(in crate::model) role: Role,
    /// It had the arguments of the Python process that made it: it was forked, and not started.
    pub(in crate::model) forked: bool,
    /// The process that it was told to serve: `--parent=PID`.
    pub(super) served: Option<u32>,
    /// The first parent whose end tells something; else the last that ended.
    pub(super) loss: Option<Loss>,
    pub(super) work: Work,
    /// Since when we see it compute nothing.
    pub(super) quiet_since: Option<Moment>,
    /// It was seen to compute.
    pub(super) computed: bool,
    /// Since when we see it in the kernel, out of reach of signals.
    pub(super) blocked_since: Option<Moment>,
    /// Since when we see it dead, as its parent has not asked how it ended.
    pub(super) dead_since: Option<Moment>,
    /// The root of the job that it was seen in first.
    pub(in crate::model) root: Option<Arc<Named>>,
    parent: Option<u32>,
    /// Its parent at the last pass.
    maker: Option<(Arc<Named>, Role)>,
    gpu_process: bool,
    ties: Ties,
}

/// Numbers that a process shares with its related processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ties {
    pub(super) uid: Reading<u32>,
    pub(super) group: Reading<u32>,
    pub(super) session: Reading<u32>,
}

/// A GPU process that ended.
#[derive(Debug, Clone)]
pub(super) struct Fallen {
    pub(super) named: Arc<Named>,
    ties: Ties,
    root: Option<Arc<Named>>,
    at: Moment,
}

/// All that is remembered.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct Past {
    /// One for each process of the latest snapshot, in its order.
    lives: Vec<Life>,
    /// The latest last.
    fallen: Vec<Fallen>,
    /// Someone is remembered by arguments that they have no more.
    any_cleared: bool,
}

impl Past {
    /// Whether everyone is who they were at the last look: then nobody is another's related processes, or of another job. What the
    /// dead leave behind, and those who are only a PID, hangs on more.
    pub(in crate::model) fn is_settled(&self, snapshot: &Snapshot) -> bool {
        let is_same = |(life, process): (&Life, &Process)| {
            let facts = life.named.facts.as_ref();
            life.named.id == process.id && facts.is_some_and(|it| *it == process.facts || are_alike(it, &process.facts))
        };
        let is_dead = |(life, process): (&Life, &Process)| {
            life.dead_since.is_some() || process.load.state == Ok(State::Zombie) || process.id.start_ticks.is_none()
        };
        let mut pairs = self.lives.iter().zip(&snapshot.processes);
        !self.any_cleared && self.lives.len() == snapshot.processes.len() && pairs.all(|it| is_same(it) && !is_dead(it))
    }

    /// Takes in the latest snapshot.
    pub(in crate::model) fn learn(
        &mut self,
        snapshot: &Snapshot,
        related: &RelatedProcesses,
        process_totals: &[ProcessTotal],
    ) {
        let is_same = self.lives.iter().map(|it| it.named.id).eq(snapshot.processes.iter().map(|it| it.id));
        if !is_same {
            self.come_and_go(snapshot);
        }
        self.fallen.retain(|it| snapshot.at.since(it.at) < REMEMBERED);
        let mut held = process_totals.iter().peekable();
        self.any_cleared = false;
        for (life, process) in self.lives.iter_mut().zip(&snapshot.processes) {
            self.any_cleared |= life.name(process);
            let process_total = held.next_if(|it| it.process == process.id);
            // A PID that NVML did not mean tells nothing when it ends.
            life.gpu_process = process_total.is_some() && process.facts.identity != Identity::Unverified;
            life.work = work(process, process_total, snapshot);
        }
        for at in 0..self.lives.len() {
            if self.lives[at].work == Work::Computes {
                // Whoever waits for a process that computes is not idle.
                let mut line =
                    related.line(at).take_while(|it| self.lives[*it].work != Work::Computes).collect::<Vec<_>>();
                line.retain(|it| !self.lives[*it].role.is_keeper());
                for it in line {
                    self.lives[it].work = Work::Computes;
                }
            }
        }
        for (at, process) in snapshot.processes.iter().enumerate() {
            self.follow(at, process, related, snapshot);
        }
    }

    /// Makes of the lives those of the snapshot's processes.
    fn come_and_go(&mut self, snapshot: &Snapshot) {
        let mut old = std::mem::take(&mut self.lives).into_iter().peekable();
        let mut gone = Vec::new();
        self.lives.reserve(snapshot.processes.len());
        for process in &snapshot.processes {
            while let Some(life) = old.next_if(|it| it.named.id < process.id) {
                gone.push(life);
            }
            self.lives.push(old.next_if(|it| it.named.id == process.id).unwrap_or_else(|| Life::of(process)));
        }
        gone.extend(old);
        self.bury(gone, snapshot.at);
    }

    /// Notes what became of one process.
    fn follow(&mut self, at: usize, process: &Process, related: &RelatedProcesses, snapshot: &Snapshot) {
        let now = snapshot.at;
        let has_same_argv = |maker: usize| {
            let it = &self.lives[maker];
            it.role.runs_python()
                && it.named.argv().is_some_and(|argv| !argv.is_empty() && self.lives[at].named.argv() == Some(argv))
        };
        // A session of its own is what a daemon makes, and nobody's worker.
        let is_daemon = |maker: usize| {
            let session = snapshot.processes[maker].facts.session;
            session.is_ok() && process.facts.session.is_ok() && session != process.facts.session
        };
        let is_fork = related.up(at).filter(|maker| has_same_argv(*maker)).map(|maker| !is_daemon(maker));
        let maker = related.up(at).map(|it| &self.lives[it]).map(|it| (it.named.clone(), it.role));
        let life = &mut self.lives[at];
        life.forked = is_fork.unwrap_or(life.forked);
        if let Ok(parent) = process.facts.parent {
            if let Some(before) = life.parent.filter(|it| *it != parent) {
                life.lose(before, now);
            }
            life.parent = Some(parent);
            life.maker = maker.or(life.maker.take().filter(|it| it.0.id.pid == parent));
        }
        since(&mut life.blocked_since, process.load.state == Ok(State::DiskSleep), now);
        since(&mut life.dead_since, process.load.state == Ok(State::Zombie), now);
        since(&mut life.quiet_since, life.work == Work::Quiet, now);
        life.computed |= life.work == Work::Computes;
        let facts = &process.facts;
        life.ties = Ties { uid: facts.uid, group: facts.group, session: facts.session };
    }

    fn bury(&mut self, gone: Vec<Life>, now: Moment) {
        let gpu_processes = gone.into_iter().filter(|it| it.gpu_process && it.named.id.start_ticks.is_some());
        self.fallen.extend(gpu_processes.map(|it| Fallen { named: it.named, ties: it.ties, root: it.root, at: now }));
        let surplus = self.fallen.len().saturating_sub(FALLEN);
        self.fallen.drain(..surplus);
    }

    /// The GPU process with that PID that ended last.
    pub(super) fn fallen(&self, pid: u32) -> Option<&Fallen> {
        self.fallen.iter().rev().find(|it| it.named.id.pid == pid)
    }

    /// What tied the GPU process that had that PID, or has it and has ended, to its related processes; and its arguments.
    pub(super) fn ties(&self, related: &RelatedProcesses, id: ProcessId) -> Option<(Ties, Option<&Argv>)> {
        let dead = || related.place(id).map(|at| (self.lives[at].ties, self.lives[at].named.argv()));
        if id.start_ticks.is_some() { dead() } else { self.fallen(id.pid).map(|it| (it.ties, it.named.argv())) }
    }

    /// What is remembered of the process at that place.
    pub(in crate::model) fn life(&self, at: usize) -> &Life {
        &self.lives[at]
    }

    /// The root of the job of a ghost: of the GPU process whose PID it has.
    pub(in crate::model) fn root_of_ghost(&self, pid: u32) -> Option<&Arc<Named>> {
        self.fallen(pid).and_then(|it| it.root.as_ref())
    }

    /// Notes in which job a process was seen.
    pub(in crate::model) fn belongs(&mut self, at: usize, root: Arc<Named>) {
        self.lives[at].root = Some(root);
    }
}

impl Named {
    /// Its arguments; absent when they are not known.
    pub(super) fn argv(&self) -> Option<&Argv> {
        self.facts.as_ref()?.argv.as_ref().ok()
    }
}

impl Life {
    fn of(process: &Process) -> Self {
        Self {
            named: Named { id: process.id, facts: None, calling: "" }.into(),
            role: Role::Unknown,
            forked: false,
            served: None,
            loss: None,
            work: Work::Unknown,
            quiet_since: None,
            computed: false,
            blocked_since: None,
            dead_since: None,
            root: None,
            parent: None,
            maker: None,
            gpu_process: false,
            ties: Ties { uid: Err(Missing::NotYet), group: Err(Missing::NotYet), session: Err(Missing::NotYet) },
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
        self.role = Role::of(process);
        let mut arguments = facts.argv.iter().flat_map(Argv::iter);
        self.served = arguments.find_map(|it| it.strip_prefix("--parent=")).and_then(|it| it.parse().ok());
        // A tool, as `vllm`, is no trainer.
        let is_script = self.role == Role::Python && role::program(facts).strip_suffix(".py").is_some();
        let calling = if is_script { "trainer" } else { self.role.calling() };
        self.named = Named { id: process.id, facts: Some(facts.clone()), calling }.into();
        false
    }

    /// Its parent ended.
    fn lose(&mut self, pid: u32, now: Moment) {
        // That a shell or a service manager went tells nothing, so it does not hide a loss that does.
        if self.loss.as_ref().is_some_and(|it| it.role.makes()) {
            return;
        }
        let id = ProcessId { pid, start_ticks: None };
        let stranger = || (Named { id, facts: None, calling: "parent" }.into(), Role::Unknown);
        let (who, role) = self.maker.take().filter(|it| it.0.id.pid == pid).unwrap_or_else(stranger);
        self.loss = Some(Loss { who, role, at: now });
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

fn work(process: &Process, process_total: Option<&ProcessTotal>, snapshot: &Snapshot) -> Work {
    let (cpu, sm) = (process.load.cpu, process_total.map(|it| use_of_gpus(it, snapshot)));
    if cpu.is_ok_and(|it| it.value() >= COMPUTES) || sm.is_some_and(|it| it.is_ok_and(|it| it.value() > 0.0)) {
        return Work::Computes;
    }
    match (cpu, sm) {
        (Err(Missing::NotYet), _) | (_, Some(Err(Missing::NotYet))) => Work::Unknown,
        (Err(_), None | Some(Err(_))) => Work::Unknown,
        _ => Work::Quiet,
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
