//! Remembers of each process what earlier snapshots showed: its parents, its arguments, and since
//! when it has been quiet, blocked or dead. All times are those of the snapshots.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::KnownProcess;
use crate::base::text::Argv;
use crate::base::units::{Moment, Percent};
use crate::model::ProcessTotal;
use crate::model::process_role::{self, ProcessRole};
use crate::model::process_tree::ProcessTree;
use crate::protocol::snapshot::{
    Gpu, Identity, Missing, Process, ProcessFacts, ProcessId, Reading, Snapshot, State,
};

/// The CPU use in percent from which a process counts as computing. A process that spins while it
/// waits for the GPU uses a whole core; a process that waits in `poll` uses none.
const COMPUTES: f32 = 1.0;

/// The time for which an ended GPU process is remembered: the driver may still list its PID as a
/// ghost.
const REMEMBERED: Duration = Duration::from_hours(1);

/// The most ended GPU processes that are remembered; the oldest is dropped for a new one.
const MOST_ENDED: usize = 256;

/// The age below which a process counts as seen to begin.
const JUST_BEGUN: Duration = Duration::from_secs(3);

/// Whether a process computes, on a GPU or a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Activity {
    /// The process or a descendant computes.
    Computes,
    /// The process does not compute.
    Quiet,
    /// The use of CPU and GPUs is not known.
    Unknown,
}

/// A parent that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LostParent {
    pub(super) process: Arc<KnownProcess>,
    pub(super) role: ProcessRole,
    pub(super) at: Moment,
}

/// The parent at the last pass that showed one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ParentRecord {
    pid: u32,
    /// Whether the process began between two passes, with this parent.
    is_starter: bool,
}

/// The record of a living process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::model) struct ProcessRecord {
    /// The process and its last known arguments: a process that has ended no longer has any.
    pub(in crate::model) known: Arc<KnownProcess>,
    pub(in crate::model) role: ProcessRole,
    /// Whether the process was forked from its Python parent, and works for it: it called no
    /// `exec`, and did not leave the session.
    pub(in crate::model) forked: bool,
    /// The first parent whose end is a sign of an orphan; else the last parent that ended.
    pub(super) lost_parent: Option<LostParent>,
    pub(super) activity: Activity,
    /// Since when the process has not computed; `None` while it computes, or while that is unknown.
    pub(super) quiet_since: Option<Moment>,
    /// Whether the process was ever seen to compute.
    pub(super) computed: bool,
    /// Since when the process has waited in the kernel, where signals have no effect; `None` while
    /// it does not.
    pub(super) blocked_since: Option<Moment>,
    /// Since when the main thread has ended, or the process is only a PID that the driver lists;
    /// `None` while neither is so.
    pub(super) dead_since: Option<Moment>,
    /// The root of the first job that the process was seen in.
    pub(in crate::model) root: Option<Arc<KnownProcess>>,
    parent: Option<ParentRecord>,
    /// The parent at the last pass that showed one.
    creator: Option<(Arc<KnownProcess>, ProcessRole)>,
    gpu_process: bool,
}

/// A GPU process that ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EndedProcess {
    pub(super) known: Arc<KnownProcess>,
    root: Option<Arc<KnownProcess>>,
    at: Moment,
}

/// The processes of the latest snapshot, their tree, and their records. All three identify a
/// process by its index.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct ProcessView<'a> {
    pub(in crate::model) snapshot: &'a Snapshot,
    pub(in crate::model) tree: &'a ProcessTree,
    pub(in crate::model) records: &'a ProcessRecords,
}

impl<'a> ProcessView<'a> {
    pub(in crate::model) fn process(self, place: usize) -> &'a Process {
        &self.snapshot.processes[place]
    }

    pub(in crate::model) fn facts(self, place: usize) -> &'a ProcessFacts {
        &self.snapshot.processes[place].facts
    }

    pub(in crate::model) fn record(self, place: usize) -> &'a ProcessRecord {
        &self.records.records[place]
    }

    pub(in crate::model) fn role(self, place: usize) -> ProcessRole {
        self.record(place).role
    }

    /// Whether a process belongs to the simulated machine of another gputop.
    pub(in crate::model) fn is_stand_in(self, place: usize) -> bool {
        self.facts(place).is_of_demo() && !self.snapshot.gpus.iter().any(|gpu| gpu.facts.simulated)
    }

    /// Whether a process with this PID exists and has a living thread.
    pub(in crate::model) fn is_alive(self, pid: u32) -> bool {
        self.tree.living(pid).is_some_and(|at| {
            let load = &self.process(at).load;
            load.state != Ok(State::Zombie) || load.threads.is_ok_and(|threads| threads > 1)
        })
    }

    /// Returns the root of the first job that a process was seen in; for a ghost, the root of the
    /// ended GPU process that had the PID.
    pub(in crate::model) fn root(self, place: usize) -> Option<&'a Arc<KnownProcess>> {
        let id = self.process(place).id;
        match id.start_ticks {
            Some(_) => self.record(place).root.as_ref(),
            None => self.records.ended_process(id.pid)?.root.as_ref(),
        }
    }

    /// Returns the facts of an ended GPU process, by a ghost's PID or a zombie's identity.
    pub(super) fn facts_of_ended(self, id: ProcessId) -> Option<&'a ProcessFacts> {
        let known = match id.start_ticks {
            Some(_) => &self.record(self.tree.place(id)?).known,
            None => &self.records.ended_process(id.pid)?.known,
        };
        known.facts.as_deref()
    }
}

/// The records of one host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::model) struct ProcessRecords {
    /// One record for each process of the latest snapshot, in its order.
    records: Vec<ProcessRecord>,
    /// The GPU processes that ended, latest last.
    ended: Vec<EndedProcess>,
    /// Whether a record keeps arguments that its process no longer has.
    any_argv_cleared: bool,
    /// The time of the last pass after a scan of all processes; `None` before the first.
    scanned: Option<Moment>,
    /// The time that a recorder saw before this model began; `None` if it began without a recorder.
    #[serde(skip)]
    pub(in crate::model) recorded: Option<RecordedTime>,
}

/// The time that a recorder saw.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct RecordedTime {
    /// When the recorder looked last.
    pub(in crate::model) until: Moment,
    /// When the model went on.
    pub(in crate::model) resumed: Moment,
}

impl ProcessRecords {
    /// Whether no process, parent or argument changed since the last pass, so that process tree and
    /// jobs are the same. Always false while zombies or unlisted PIDs exist: their jobs depend on
    /// more.
    pub(in crate::model) fn is_settled(&self, snapshot: &Snapshot) -> bool {
        let is_same = |(record, process): (&ProcessRecord, &Process)| {
            let facts = record.known.facts.as_ref();
            record.known.id == process.id
                && facts.is_some_and(|facts| {
                    is_equal(facts, &process.facts) || have_equal_ties(facts, &process.facts)
                })
        };
        let is_dead = |(record, process): (&ProcessRecord, &Process)| {
            record.dead_since.is_some()
                || process.load.state == Ok(State::Zombie)
                || process.id.start_ticks.is_none()
        };
        let mut pairs = self.records.iter().zip(&snapshot.processes);
        !self.any_argv_cleared
            && self.records.len() == snapshot.processes.len()
            && pairs.all(|pair| is_same(pair) && !is_dead(pair))
    }

    /// Updates the records with the latest snapshot.
    pub(in crate::model) fn add_snapshot(
        &mut self,
        snapshot: &Snapshot,
        tree: &ProcessTree,
        process_totals: &[ProcessTotal],
    ) {
        let is_same = self
            .records
            .iter()
            .map(|record| record.known.id)
            .eq(snapshot.processes.iter().map(|process| process.id));
        if !is_same {
            self.match_processes(snapshot);
        }
        self.ended
            .retain(|ended| snapshot.at.since(ended.at) < REMEMBERED);
        let mut held = process_totals.iter().peekable();
        self.any_argv_cleared = false;
        for (record, process) in self.records.iter_mut().zip(&snapshot.processes) {
            self.any_argv_cleared |= record.update_name(process);
            let process_total = held.next_if(|total| total.process == process.id);
            // A PID that NVML reported for another namespace does not matter when it ends.
            record.gpu_process =
                process_total.is_some() && process.facts.identity != Identity::Unverified;
            record.activity = activity(process, process_total, snapshot);
        }
        for at in 0..self.records.len() {
            if self.records[at].activity == Activity::Computes {
                // A process that waits for a computing descendant is not idle.
                for ancestor in tree.ancestors_of(at) {
                    let record = &mut self.records[ancestor];
                    match record.activity {
                        Activity::Computes => break,
                        _ if record.role.is_outside_jobs() => {}
                        _ => record.activity = Activity::Computes,
                    }
                }
            }
        }
        for (at, process) in snapshot.processes.iter().enumerate() {
            self.update(at, process, tree, snapshot);
        }
        self.scanned = (snapshot.host.scan.at != Moment(0)).then_some(snapshot.at);
    }

    /// Adds and removes records so that they match the snapshot's processes.
    fn match_processes(&mut self, snapshot: &Snapshot) {
        let mut old = std::mem::take(&mut self.records).into_iter().peekable();
        let mut gone = Vec::new();
        self.records.reserve(snapshot.processes.len());
        for process in &snapshot.processes {
            while let Some(record) = old.next_if(|record| record.known.id < process.id) {
                gone.push(record);
            }
            let known = old.next_if(|record| record.known.id == process.id);
            self.records
                .push(known.unwrap_or_else(|| ProcessRecord::of(process)));
        }
        gone.extend(old);
        gone.retain(|record| record.gpu_process && record.known.id.start_ticks.is_some());
        let at = snapshot.at;
        self.ended.extend(
            gone.into_iter()
                .map(|ProcessRecord { known, root, .. }| EndedProcess { known, root, at }),
        );
        let surplus = self.ended.len().saturating_sub(MOST_ENDED);
        self.ended.drain(..surplus);
    }

    /// Updates the record of one process.
    fn update(&mut self, place: usize, process: &Process, tree: &ProcessTree, snapshot: &Snapshot) {
        let now = snapshot.at;
        let argv = self.records[place]
            .known
            .argv()
            .filter(|argv| !argv.is_empty());
        let parent = tree.parent_of(place).map(|parent| {
            (
                &self.records[parent],
                snapshot.processes[parent].facts.session,
            )
        });
        let (session, forked) = (process.facts.session, process.facts.forked);
        let is_fork = parent
            .filter(|(parent, _)| {
                parent.role.runs_python() && argv.is_some() && parent.known.argv() == argv
            })
            // A daemon has a session of its own, and is no worker.
            .map(|(_, above)| {
                forked != Ok(false) && (above.is_err() || session.is_err() || session == above)
            });
        let creator = parent.map(|(parent, _)| (parent.known.clone(), parent.role));
        let began = self.saw_begin(process, snapshot);
        let record = &mut self.records[place];
        record.forked = is_fork.unwrap_or(record.forked) && session != Ok(process.id.pid);
        if let Ok(parent) = process.facts.parent {
            let before = record.parent;
            if let Some(before) = before.filter(|before| before.pid != parent) {
                record.lose(before.pid, now);
            }
            let is_starter =
                before.map_or(began, |before| before.is_starter && before.pid == parent);
            record.parent = Some(ParentRecord {
                pid: parent,
                is_starter,
            });
            record.creator = creator.or(record
                .creator
                .take()
                .filter(|creator| creator.0.id.pid == parent));
        }
        since(
            &mut record.blocked_since,
            process.load.state == Ok(State::DiskSleep),
            now,
        );
        let is_dead = process.load.state == Err(Missing::Gone) || process.has_main_thread_ended();
        since(&mut record.dead_since, is_dead, now);
        since(
            &mut record.quiet_since,
            record.activity == Activity::Quiet,
            now,
        );
        record.computed |= record.activity == Activity::Computes;
    }

    /// Whether the process began after the pass before, a short while ago. Then no other process
    /// has had the time to adopt it.
    fn saw_begin(&self, process: &Process, snapshot: &Snapshot) -> bool {
        let per_second = snapshot.host.facts.ticks_per_second.max(1);
        let began = process
            .id
            .start_ticks
            .map(|ticks| Moment(ticks.saturating_mul(1000) / per_second));
        began.is_some_and(|began| {
            self.scanned.is_some_and(|scanned| began > scanned)
                && snapshot.at.since(began) < JUST_BEGUN
        })
    }

    /// Returns the last ended GPU process with a PID.
    pub(super) fn ended_process(&self, pid: u32) -> Option<&EndedProcess> {
        self.ended
            .iter()
            .rev()
            .find(|ended| ended.known.id.pid == pid)
    }

    /// Records the root of each process's job, by the index of the process. A process whose root
    /// has ended keeps its record.
    pub(in crate::model) fn set_roots(
        &mut self,
        tree: &ProcessTree,
        root: impl Fn(usize) -> Option<ProcessId>,
    ) {
        for at in 0..self.records.len() {
            if let Some(root) = root(at).and_then(|root| tree.place(root)) {
                self.records[at].root = Some(self.records[root].known.clone());
            }
        }
    }
}

impl KnownProcess {
    /// Returns the arguments; `None` when they are not known.
    pub(super) fn argv(&self) -> Option<&Argv> {
        self.facts.as_ref()?.argv.as_ref().ok()
    }
}

impl ProcessRecord {
    /// Whether the process began between two passes, and still has the parent that it had then:
    /// that parent started it.
    pub(super) fn was_seen_to_begin(&self) -> bool {
        self.parent.is_some_and(|parent| parent.is_starter)
    }

    fn of(process: &Process) -> Self {
        Self {
            known: KnownProcess {
                id: process.id,
                facts: None,
                relation: "".into(),
            }
            .into(),
            role: ProcessRole::Unknown,
            forked: false,
            lost_parent: None,
            activity: Activity::Unknown,
            quiet_since: None,
            computed: false,
            blocked_since: None,
            dead_since: None,
            root: None,
            parent: None,
            creator: None,
            gpu_process: false,
        }
    }

    /// Updates the name and arguments. An ended process no longer has arguments: then keeps the old
    /// ones and returns true.
    fn update_name(&mut self, process: &Process) -> bool {
        let facts = &process.facts;
        let is_same = self
            .known
            .facts
            .as_ref()
            .is_some_and(|known| is_equal(known, facts));
        let is_cleared = !is_same
            && self.known.argv().is_some()
            && facts.argv.as_ref().is_ok_and(Argv::is_empty);
        if is_same || is_cleared {
            return is_cleared;
        }
        self.forked &= self.known.argv() == facts.argv.as_ref().ok();
        self.role = ProcessRole::of(process);
        // A tool like `vllm` is no trainer.
        let is_script = self.role == ProcessRole::Python
            && process_role::program(facts).strip_suffix(".py").is_some();
        let relation = if is_script {
            "trainer"
        } else {
            self.role.relation()
        };
        self.known = KnownProcess {
            id: process.id,
            facts: Some(facts.clone()),
            relation: relation.into(),
        }
        .into();
        false
    }

    /// Records that the parent ended, which had this PID.
    fn lose(&mut self, pid: u32, now: Moment) {
        // The end of a shell or service manager is no sign of an orphan, and must not hide a parent
        // whose end is one.
        if self
            .lost_parent
            .as_ref()
            .is_some_and(|lost_parent| lost_parent.role.runs_python())
        {
            return;
        }
        let id = ProcessId {
            pid,
            start_ticks: None,
        };
        let stranger = || {
            (
                KnownProcess {
                    id,
                    facts: None,
                    relation: "parent".into(),
                }
                .into(),
                ProcessRole::Unknown,
            )
        };
        let (process, role) = self
            .creator
            .take()
            .filter(|creator| creator.0.id.pid == pid)
            .unwrap_or_else(stranger);
        self.lost_parent = Some(LostParent {
            process,
            role,
            at: now,
        });
    }
}

/// Whether two facts are equal. Most are the same allocation.
fn is_equal(one: &Arc<ProcessFacts>, other: &Arc<ProcessFacts>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Whether two readings of a process lead to the same process tree and job. Ignores whether the
/// thread names were read yet, which takes minutes on a large host, unless they show a trainer.
fn have_equal_ties(one: &ProcessFacts, other: &ProcessFacts) -> bool {
    let trains = |facts: &ProcessFacts| facts.trainer_threads == Ok(true);
    trains(one) == trains(other)
        && *one
            == ProcessFacts {
                trainer_threads: one.trainer_threads,
                ..other.clone()
            }
}

/// Updates the time since which a condition holds; `None` while it does not hold.
fn since(since: &mut Option<Moment>, is_so: bool, now: Moment) {
    *since = is_so.then(|| since.unwrap_or(now));
}

fn activity(
    process: &Process,
    process_total: Option<&ProcessTotal>,
    snapshot: &Snapshot,
) -> Activity {
    let (cpu, sm) = (
        process.load.cpu,
        process_total.map(|total| use_of_gpus(total, snapshot)),
    );
    if cpu.is_ok_and(|cpu| cpu.value() >= COMPUTES)
        || sm.is_some_and(|sm| sm.is_ok_and(|sm| sm.value() > 0.0))
    {
        return Activity::Computes;
    }
    match (cpu, sm) {
        (Err(Missing::NotYet), _) | (_, Some(Err(Missing::NotYet))) => Activity::Unknown,
        (Err(_), None | Some(Err(_))) => Activity::Unknown,
        _ => Activity::Quiet,
    }
}

/// Returns a process's use of its GPUs. Where the driver has no figures by process, idle GPUs mean
/// 0.
pub(super) fn use_of_gpus(process_total: &ProcessTotal, snapshot: &Snapshot) -> Reading<Percent> {
    let rests = |gpu: &Gpu| gpu.load.sm.is_ok_and(|sm| sm.value() <= 0.0);
    let mut gpus = snapshot.gpus_at(&process_total.gpus);
    match process_total.sm {
        Err(why) if why != Missing::NotYet && gpus.all(rests) => Ok(Percent::new(0.0)),
        sm => sm,
    }
}
