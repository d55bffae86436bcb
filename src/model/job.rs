//! Which processes belong together: a job is a root launcher and all its related processes.

mod partition;

use crate::base::text::Text;
use crate::model::process_tree::ProcessTree;
use crate::model::verdict::process_records::ProcessRecords;
use crate::model::{ProcessTotal, Total};
use crate::protocol::snapshot::{Missing, ProcessId, Reading, Snapshot};

/// What makes a job this job, from one snapshot to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKey {
    /// A living root and its related processes.
    Root(ProcessId),
    /// What is left of the job of a root that has ended.
    Ended(ProcessId),
    /// What is left of a run of `torchrun` of that user, whose launcher was never seen.
    Run(u32, Text),
    /// What is left of a process group of that user, whose leader was never seen; and of one program in it.
    Group(u32, u32, Text),
}

/// Processes that were started together, and are best ended together.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What makes it this job.
    pub key: JobKey,
    /// The process that started the others: the one to ask to end. Absent when it has ended.
    pub root: Option<ProcessId>,
    /// Everybody in it, the root too, by PID. No process is in two jobs.
    pub members: Vec<ProcessId>,
    /// What people call it: `train.py`.
    pub name: String,
    /// Whose it is.
    pub user: Reading<Text>,
    /// Where it was started: `slurm 4711`, `tmux`.
    pub origin: Reading<Text>,
    /// Device memory of all of them.
    pub memory: Reading<Total>,
    /// Places of its GPUs in the snapshot's list.
    pub gpus: Vec<usize>,
}

/// Every process by its job.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    list: Vec<Job>,
    /// By the place of a process, the place of its job.
    of: Vec<usize>,
}

impl Jobs {
    /// The jobs of a snapshot, those that hold most first. Remembers who was seen in which.
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
        jobs.weigh(process_totals);
        jobs
    }

    /// Sums up what each of them holds, and puts those that hold most first.
    pub(super) fn weigh(&mut self, process_totals: &[ProcessTotal]) {
        for job in &mut self.list {
            let places =
                job.members.iter().filter_map(|id| process_totals.binary_search_by_key(id, |it| it.process).ok());
            let held = places.map(|at| &process_totals[at]);
            (job.memory, job.gpus) = (sum(&held), places_of(held));
        }
        let order = |a: &Job, b: &Job| heaviest(&a.memory, &b.memory).then_with(|| a.key.cmp(&b.key));
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
        self.of.iter_mut().for_each(|it| *it = place[*it]);
    }

    pub(super) fn list(&self) -> &[Job] {
        &self.list
    }

    /// The job of the process at that place.
    pub(super) fn at(&self, place: usize) -> Option<&Job> {
        self.list.get(*self.of.get(place)?)
    }
}

/// Those that hold most first, those of which nothing is known last.
fn heaviest(a: &Reading<Total>, b: &Reading<Total>) -> std::cmp::Ordering {
    let bytes = |it: &Reading<Total>| it.map(|it| it.bytes).ok();
    bytes(b).cmp(&bytes(a))
}

/// A job, but for what it holds.
fn describe(key: JobKey, members: &[usize], snapshot: &Snapshot, tree: &ProcessTree, records: &ProcessRecords) -> Job {
    let root = match key {
        JobKey::Root(id) => Some(id),
        JobKey::Ended(_) | JobKey::Run(..) | JobKey::Group(..) => None,
    };
    let speaker = root.and_then(|it| tree.place(it)).or(members.first().copied());
    // The speaker first: of the others, one does for all.
    let facts = || speaker.into_iter().chain(members.iter().copied()).map(|at| &snapshot.processes[at].facts);
    let gone = match &key {
        JobKey::Ended(id) => members.iter().find_map(|at| {
            let ghost = records.root_of_ghost(snapshot.processes[*at].id.pid);
            records.record(*at).root.as_ref().or(ghost).filter(|it| it.id == *id)
        }),
        _ => None,
    };
    let name = gone.or_else(|| speaker.map(|at| &records.record(at).named)).map_or_else(String::new, |it| it.program());
    Job {
        root,
        name,
        user: first(facts().map(|it| &it.user)),
        origin: first(facts().map(|it| &it.origin)),
        memory: Err(Missing::NotYet),
        gpus: Vec::new(),
        members: members.iter().map(|at| snapshot.processes[*at].id).collect(),
        key,
    }
}

/// The first that is known; else why the first is not.
fn first<'a>(mut readings: impl Iterator<Item = &'a Reading<Text>> + Clone) -> Reading<Text> {
    let known = readings.clone().find(|it| it.is_ok());
    known.or_else(|| readings.next()).cloned().unwrap_or(Err(Missing::NotYet))
}

/// All the memory, and whether it is more than could be read.
fn sum<'a>(process_totals: &(impl Iterator<Item = &'a ProcessTotal> + Clone)) -> Reading<Total> {
    let total = Total::of(process_totals.clone().map(|it| it.memory.map(|it| it.bytes)))?;
    let is_bound = process_totals.clone().any(|it| it.memory.is_ok_and(|it| it.lower_bound));
    Ok(Total { lower_bound: total.lower_bound || is_bound, ..total })
}

fn places_of<'a>(process_totals: impl Iterator<Item = &'a ProcessTotal>) -> Vec<usize> {
    let mut gpus: Vec<usize> = process_totals.flat_map(|it| it.gpus.iter().copied()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus
}
