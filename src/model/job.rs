//! Which processes belong together: a job is a root launcher and all its related processes.

mod partition;

use crate::base::text::Text;
use crate::model::process_tree::ProcessTree;
use crate::model::verdict::process_records::ProcessRecords;
use crate::model::{ProcessTotal, Total};
use crate::protocol::snapshot::{Missing, ProcessId, Reading, Snapshot};

/// The identity of a job from one snapshot to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKey {
    /// The job of a living root.
    Root(ProcessId),
    /// The rest of a job whose root has ended.
    Ended(ProcessId),
    /// The rest of a `torchrun` run whose launcher was never seen: user and run.
    Run(u32, Text),
    /// The rest of a process group whose leader was never seen: user, group and program.
    Group(u32, u32, Text),
}

/// Processes that were started together, and are best ended together.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its identity.
    pub key: JobKey,
    /// The process that started the others, to be ended first; `None` when it has ended.
    pub root: Option<ProcessId>,
    /// All processes of the job including the root, by PID. No process is in two jobs.
    pub members: Vec<ProcessId>,
    /// Its name: `train.py`.
    pub name: String,
    /// Its user.
    pub user: Reading<Text>,
    /// Its origin: `slurm 4711`, `tmux`.
    pub origin: Reading<Text>,
    /// The device memory of all members.
    pub memory: Reading<Total>,
    /// The indices of its GPUs in the snapshot's list.
    pub gpus: Vec<usize>,
}

/// All jobs, and the job of each process.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    list: Vec<Job>,
    /// By process index, the index of its job.
    of: Vec<usize>,
}

impl Jobs {
    /// Finds the jobs of a snapshot, and records the root of each process; those that hold most memory come first.
    pub(super) fn of(
        snapshot: &Snapshot,
        tree: &ProcessTree,
        records: &mut ProcessRecords,
        process_totals: &[ProcessTotal],
    ) -> Self {
        let (keys, of) = partition::partition(snapshot, tree, records);
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); keys.len()];
        for (at, job) in of.iter().enumerate() {
            parts[*job].push(at);
        }
        let list = keys.into_iter().zip(&parts).map(|(key, members)| describe(key, members, snapshot, tree, records));
        let mut jobs = Self { list: list.collect(), of };
        jobs.update_memory(process_totals);
        jobs
    }

    /// Updates the memory of each job, and sorts the jobs by it.
    pub(super) fn update_memory(&mut self, process_totals: &[ProcessTotal]) {
        for job in &mut self.list {
            let places =
                job.members.iter().filter_map(|id| process_totals.binary_search_by_key(id, |total| total.process).ok());
            let held = places.map(|at| &process_totals[at]);
            (job.memory, job.gpus) = (Total::sum(held.clone().map(|total| total.memory)), places_of(held));
        }
        let order = |a: &Job, b: &Job| by_memory(&a.memory, &b.memory).then_with(|| a.key.cmp(&b.key));
        if self.list.is_sorted_by(|a, b| order(a, b).is_le()) {
            return;
        }
        let mut ranked: Vec<(Job, usize)> = std::mem::take(&mut self.list).into_iter().zip(0..).collect();
        ranked.sort_by(|(a, _), (b, _)| order(a, b));
        let mut place = vec![0; ranked.len()];
        for (new, (_, old)) in ranked.iter().enumerate() {
            place[*old] = new;
        }
        self.list = ranked.into_iter().map(|(job, _)| job).collect();
        self.of.iter_mut().for_each(|job| *job = place[*job]);
    }

    pub(super) fn list(&self) -> &[Job] {
        &self.list
    }

    /// Returns the job of the process at an index.
    pub(super) fn at(&self, place: usize) -> Option<&Job> {
        self.list.get(*self.of.get(place)?)
    }
}

/// Compares jobs by memory: most first, unknown last.
fn by_memory(a: &Reading<Total>, b: &Reading<Total>) -> std::cmp::Ordering {
    let bytes = |memory: &Reading<Total>| memory.map(|total| total.bytes).ok();
    bytes(b).cmp(&bytes(a))
}

/// Returns a job without its memory.
fn describe(key: JobKey, members: &[usize], snapshot: &Snapshot, tree: &ProcessTree, records: &ProcessRecords) -> Job {
    let root = match key {
        JobKey::Root(id) => Some(id),
        JobKey::Ended(_) | JobKey::Run(..) | JobKey::Group(..) => None,
    };
    let representative = root.and_then(|root| tree.place(root)).or(members.first().copied());
    // The representative first; then any member with a known value.
    let facts = || representative.into_iter().chain(members.iter().copied()).map(|at| &snapshot.processes[at].facts);
    let gone = match &key {
        JobKey::Ended(id) => members.iter().find_map(|at| {
            let ghost = records.root_of_ghost(snapshot.processes[*at].id.pid);
            records.record(*at).root.as_ref().or(ghost).filter(|known| known.id == *id)
        }),
        _ => None,
    };
    let name = gone
        .or_else(|| representative.map(|at| &records.record(at).known))
        .map_or_else(String::new, |known| known.program());
    Job {
        root,
        name,
        user: first(facts().map(|facts| &facts.user)),
        origin: first(facts().map(|facts| &facts.origin)),
        memory: Err(Missing::NotYet),
        gpus: Vec::new(),
        members: members.iter().map(|at| snapshot.processes[*at].id).collect(),
        key,
    }
}

/// Returns the first known reading; else the reason of the first.
fn first<'a>(mut readings: impl Iterator<Item = &'a Reading<Text>> + Clone) -> Reading<Text> {
    let known = readings.clone().find(|reading| reading.is_ok());
    known.or_else(|| readings.next()).cloned().unwrap_or(Err(Missing::NotYet))
}

fn places_of<'a>(process_totals: impl Iterator<Item = &'a ProcessTotal>) -> Vec<usize> {
    let mut gpus: Vec<usize> = process_totals.flat_map(|total| total.gpus.iter().copied()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus
}
