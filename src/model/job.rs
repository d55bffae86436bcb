//! Finds the processes that belong together: a job is a root launcher and all its related
//! processes.

mod partition;

use crate::base::text::Text;
use crate::model::verdict::process_records::ProcessView;
use crate::model::{ProcessTotal, Total};
use crate::protocol::snapshot::{Missing, ProcessId, Reading};

/// The identity of a job from one snapshot to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKey {
    /// The job of a living root.
    Root(ProcessId),
    /// The rest of a job whose root has ended.
    Ended(ProcessId),
    /// The processes of a `torchrun` run whose launcher was never seen: the user ID, and the ID of
    /// the run.
    Run(u32, Text),
    /// The processes of a process group whose leader was never seen: the user ID, the ID of the
    /// group, and the name of the program.
    Group(u32, u32, Text),
}

/// Processes that were started together, and are best ended together.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The identity of the job in other snapshots.
    pub key: JobKey,
    /// The process that started the others, to be ended first; `None` when it has ended or was
    /// never seen.
    pub root: Option<ProcessId>,
    /// All processes of the job including the root, by PID. No process is in two jobs.
    pub members: Vec<ProcessId>,
    /// The short name of the root, as in `train.py`; of another member when the root was never
    /// seen.
    pub name: String,
    /// The user of the root, or else of a member.
    pub user: Reading<Text>,
    /// The program or scheduler that started the job: `slurm 4711`, `tmux`.
    pub origin: Reading<Text>,
    /// The device memory of all members.
    pub memory: Reading<Total>,
    /// The indices in the snapshot's list of the GPUs that the members use.
    pub gpus: Vec<usize>,
}

/// All jobs, and the job of each process.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    pub(super) list: Vec<Job>,
    /// By process index, the index of its job.
    job_of: Vec<usize>,
}

impl Jobs {
    /// Finds the jobs of a snapshot. Their memory is not known yet.
    pub(super) fn of(view: ProcessView<'_>) -> Self {
        let (keys, job_of) = partition::partition(view);
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); keys.len()];
        for (place, job) in job_of.iter().enumerate() {
            parts[*job].push(place);
        }
        let list = keys
            .into_iter()
            .zip(&parts)
            .map(|(key, members)| describe(key, members, view));
        Self {
            list: list.collect(),
            job_of,
        }
    }

    /// Updates the memory of each job, and sorts the jobs by it: most first, unknown last.
    pub(super) fn update_memory(&mut self, process_totals: &[ProcessTotal]) {
        for job in &mut self.list {
            let places = job.members.iter().filter_map(|id| {
                process_totals
                    .binary_search_by_key(id, |total| total.process)
                    .ok()
            });
            let totals = places.map(|place| &process_totals[place]);
            job.memory = Total::sum(totals.clone().map(|total| total.memory));
            job.gpus = totals
                .flat_map(|total| total.gpus.iter().copied())
                .collect();
            job.gpus.sort_unstable();
            job.gpus.dedup();
        }
        let bytes = |job: &Job| job.memory.map(|total| total.bytes).ok();
        let order = |a: &Job, b: &Job| bytes(b).cmp(&bytes(a)).then_with(|| a.key.cmp(&b.key));
        if self.list.is_sorted_by(|a, b| order(a, b).is_le()) {
            return;
        }
        let mut ranked: Vec<(Job, usize)> = std::mem::take(&mut self.list)
            .into_iter()
            .zip(0..)
            .collect();
        ranked.sort_by(|(a, _), (b, _)| order(a, b));
        let mut place = vec![0; ranked.len()];
        for (new, (_, old)) in ranked.iter().enumerate() {
            place[*old] = new;
        }
        self.list = ranked.into_iter().map(|(job, _)| job).collect();
        self.job_of.iter_mut().for_each(|job| *job = place[*job]);
    }

    /// Returns the job of the process at an index.
    pub(super) fn at(&self, place: usize) -> Option<&Job> {
        self.list.get(*self.job_of.get(place)?)
    }
}

/// Returns the job with these members, given by their indices; its memory and GPUs are not known
/// yet.
fn describe(key: JobKey, members: &[usize], view: ProcessView<'_>) -> Job {
    let root = if let JobKey::Root(id) = key {
        Some(id)
    } else {
        None
    };
    let representative = root
        .and_then(|root| view.tree.place(root))
        .or(members.first().copied());
    // Prefers the facts of the representative to those of other members.
    let facts = || {
        representative
            .into_iter()
            .chain(members.iter().copied())
            .map(|place| view.facts(place))
    };
    let gone = members.iter().find_map(|place| {
        view.root(*place)
            .filter(|root| key == JobKey::Ended(root.id))
    });
    let name = gone.or_else(|| representative.map(|place| &view.record(place).known));
    Job {
        root,
        name: name.map_or_else(String::new, |known| known.program()),
        user: first(facts().map(|facts| &facts.user)),
        origin: first(facts().map(|facts| &facts.origin)),
        memory: Err(Missing::NotYet),
        gpus: Vec::new(),
        members: members
            .iter()
            .map(|place| view.process(*place).id)
            .collect(),
        key,
    }
}

/// Returns the first reading that is known; when none is, the first reading.
fn first<'a>(mut readings: impl Iterator<Item = &'a Reading<Text>> + Clone) -> Reading<Text> {
    let known = readings.clone().find(|reading| reading.is_ok());
    known
        .or_else(|| readings.next())
        .cloned()
        .unwrap_or(Err(Missing::NotYet))
}
