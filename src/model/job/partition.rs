//! Partitions processes into jobs: each process is in exactly one.
//!
//! 1. A process joins its parent's job when the parent is a Python process, launcher or helper of
//!    the same user, or has itself joined such a job. A program that a Python process started in a
//!    session or group of its own is a job of its own. A shell that runs a script joins the job of
//!    the Python process that started it, unless that process is a notebook. Interactive shells,
//!    tmux, sshd, service managers, container shims and notebook servers start jobs and are in none
//!    of these jobs.
//! 2. A process stays in its first job when its parent ends, also when the root ends.
//! 3. Ranks of `torchrun` without a known agent are one job when they have the same run name, user
//!    and program, and started together. The name alone is not enough: people reuse names.
//! 4. Among processes left behind before gputop started: workers of one process group are one job,
//!    and so are other processes in it with the same arguments.

use std::collections::HashMap;

use super::JobKey;
use crate::base::text::Text;
use crate::model::process_role::ProcessRole;
use crate::model::verdict::orphan;
use crate::model::verdict::process_records::ProcessView;

/// The most seconds between the starts of two ranks of one `torchrun` run.
const START_GAP: u64 = 10;

/// Returns the jobs, and by process index the index of its job.
pub(super) fn partition(view: ProcessView<'_>) -> (Vec<JobKey>, Vec<usize>) {
    let mut parts = JobPartition::from_parents(view);
    parts.join_runs(view);
    parts.join_groups(view);
    parts.settle()
}

/// The jobs of all processes while rules are applied.
struct JobPartition {
    /// By process index, the key by rules 1 and 2.
    keys: Vec<JobKey>,
    /// Keys that turned out to mean the same job.
    same: HashMap<JobKey, JobKey>,
}

impl JobPartition {
    /// Applies rules 1 and 2.
    fn from_parents(view: ProcessView<'_>) -> Self {
        let processes = &view.snapshot.processes;
        let mut keys: Vec<Option<JobKey>> = vec![None; processes.len()];
        let mut joined = vec![false; processes.len()];
        for from in 0..keys.len() {
            let ancestors = [from].into_iter().chain(view.tree.ancestors_of(from));
            let line: Vec<usize> = ancestors
                .take_while(|place| keys[*place].is_none())
                .collect();
            for place in line.into_iter().rev() {
                let id = processes[place].id;
                let parent = view
                    .tree
                    .parent_of(place)
                    .filter(|parent| is_one_job(view, *parent, joined[*parent], place));
                joined[place] = parent.is_some();
                let is_above = |root| {
                    view.tree
                        .ancestors_of(place)
                        .any(|ancestor| processes[ancestor].id == root)
                };
                keys[place] = Some(match view.root(place).map(|root| root.id) {
                    None if id.start_ticks.is_none() => JobKey::Ended(id),
                    Some(root) if view.tree.place(root).is_none() => JobKey::Ended(root),
                    // The parent of the process ended, the root of its job did not: the root may be
                    // in a larger job by now.
                    Some(root) if root != id && !is_above(root) => JobKey::Root(root),
                    _ => parent
                        .and_then(|parent| keys[parent].clone())
                        .unwrap_or(JobKey::Root(id)),
                });
            }
        }
        let keys: Vec<JobKey> = keys.into_iter().flatten().collect();
        let own = processes.iter().map(|process| JobKey::Root(process.id));
        let same = own
            .zip(keys.iter().cloned())
            .filter(|(own, key)| own != key)
            .collect();
        Self { keys, same }
    }

    /// Returns the key that represents all keys of the same job.
    fn find(&self, key: &JobKey) -> JobKey {
        let mut key = key;
        // Limits the steps, in case of a cycle: any key of the cycle will do.
        for _ in 0..=self.same.len() {
            match self.same.get(key) {
                Some(next) => key = next,
                None => break,
            }
        }
        key.clone()
    }

    /// Makes `from` mean the same job as `to`.
    fn join(&mut self, from: &JobKey, to: &JobKey) {
        let (from, to) = (self.find(from), self.find(to));
        if from != to {
            self.same.insert(from, to);
        }
    }

    /// Applies rule 3: ranks of one `torchrun` run.
    fn join_runs(&mut self, view: ProcessView<'_>) {
        let mut runs: HashMap<(u32, &Text), Vec<usize>> = HashMap::new();
        for (place, process) in view.snapshot.processes.iter().enumerate() {
            // A rank that is its own root has no agent.
            let is_rank = self.find(&self.keys[place]) == JobKey::Root(process.id);
            if let (true, Ok(run), Ok(uid)) =
                (is_rank, &process.facts.elastic_run, process.facts.uid)
            {
                runs.entry((uid, run)).or_default().push(place);
            }
        }
        let mut runs: Vec<_> = runs.into_iter().collect();
        runs.sort_unstable();
        for ((uid, run), ranks) in runs {
            self.join_ranks(view, ranks, uid, run);
        }
    }

    /// Joins ranks of one run by program and start time: the name of a run is typed by a user, or
    /// `none`, and not unique.
    fn join_ranks(&mut self, view: ProcessView<'_>, mut ranks: Vec<usize>, uid: u32, name: &Text) {
        let start = |place: usize| view.process(place).id.start_ticks;
        let program = |place: usize| view.record(place).known.program();
        let gap = START_GAP.saturating_mul(view.snapshot.host.facts.ticks_per_second);
        let is_soon = |a: usize, b: usize| {
            start(a)
                .zip(start(b))
                .is_some_and(|(a, b)| b.saturating_sub(a) <= gap)
        };
        ranks.sort_by_cached_key(|place| (program(*place), start(*place)));
        for run in ranks.chunk_by(|a, b| program(*a) == program(*b) && is_soon(*a, *b)) {
            let name = format!("{name} {}", view.process(run[0]).id.pid);
            for place in run {
                let key = self.keys[*place].clone();
                self.join(&key, &JobKey::Run(uid, name.as_str().into()));
            }
        }
    }

    /// Applies rule 4: processes left behind in one process group.
    fn join_groups(&mut self, view: ProcessView<'_>) {
        let mut left: HashMap<JobKey, Vec<usize>> = HashMap::new();
        for (place, process) in view.snapshot.processes.iter().enumerate() {
            let facts = &process.facts;
            let (Ok(uid), Ok(group)) = (facts.uid, facts.group) else {
                continue;
            };
            let is_root = self.find(&self.keys[place]) == JobKey::Root(process.id);
            if orphan::left(view, place).is_none() || !is_root || group <= 1 || view.is_alive(group)
            {
                continue;
            }
            let arguments = match view.role(place) {
                ProcessRole::Worker | ProcessRole::Helper => "".into(),
                // A trainer is a job of its own.
                ProcessRole::Python if facts.trainer_threads != Ok(true) => {
                    view.record(place).known.command().into()
                }
                _ => continue,
            };
            left.entry(JobKey::Group(uid, group, arguments))
                .or_default()
                .push(place);
        }
        for (key, members) in left {
            let is_worker =
                matches!(&key, JobKey::Group(_, _, arguments) if arguments.as_str().is_empty());
            // A single process that serves no other one remains its own root.
            if is_worker || members.len() > 1 {
                for place in members {
                    self.join(&JobKey::Root(view.process(place).id), &key);
                }
            }
        }
    }

    /// Returns the jobs, and by process index the index of its job.
    fn settle(self) -> (Vec<JobKey>, Vec<usize>) {
        let mut places: HashMap<JobKey, usize> = HashMap::new();
        let mut keys = Vec::new();
        let mut job_of = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let key = self.find(key);
            let place = *places.entry(key.clone()).or_insert_with(|| {
                keys.push(key);
                keys.len() - 1
            });
            job_of.push(place);
        }
        (keys, job_of)
    }
}

/// Whether a process belongs to its parent's job by rule 1.
fn is_one_job(view: ProcessView<'_>, parent: usize, parent_joined: bool, child: usize) -> bool {
    let uid = view.facts(parent).uid;
    if uid.is_err() || uid != view.facts(child).uid {
        return false;
    }
    let above = view.role(parent);
    let is_started =
        above == ProcessRole::Launcher || above.is_python() && !is_independent(view, parent, child);
    match view.role(child) {
        ProcessRole::Shell | ProcessRole::Adopter => false,
        ProcessRole::Script => {
            is_started && above != ProcessRole::Notebook
                || above == ProcessRole::Other && parent_joined
        }
        _ => {
            is_started
                || parent_joined
                    && matches!(
                        above,
                        ProcessRole::Other | ProcessRole::Script | ProcessRole::Unknown
                    )
        }
    }
}

/// Whether a program is a job of its own, although a Python program started it: it leads a session
/// or group of its own. A scheduler starts its jobs like that. The ranks of one run, which differ
/// in their number, are one job all the same.
fn is_independent(view: ProcessView<'_>, parent: usize, child: usize) -> bool {
    let facts = view.facts(child);
    let own = Ok(view.process(child).id.pid);
    (facts.session == own || facts.group == own)
        && !orphan::serves(view.record(child))
        && (facts.rank.is_err() || facts.rank == view.facts(parent).rank)
}
