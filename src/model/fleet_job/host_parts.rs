//! The parts of jobs on one host: found anew only when a process came, ended or has other facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::marks::{self, JobMark};
use super::{JobPart, RankOfHost, RankSource, only};
use crate::base::text::Text;
use crate::model::{HostModel, Job};
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{DistributedFacts, Process, ProcessId, Snapshot};

/// The parts on one host, and what they were made from.
#[derive(Debug, Clone, Default)]
pub(super) struct HostParts {
    /// The sequence number and time of the line; `None` before the first.
    line: Option<(u64, u64)>,
    revision: u64,
    /// The GPU processes, each with the number of its GPUs.
    gpu_processes: Vec<(ProcessId, usize)>,
    list: Vec<Arc<JobPart>>,
}

impl HostParts {
    /// Whether the host has sent a line since the last time.
    pub(super) fn has_new_line(&mut self, model: &HostModel) -> bool {
        let line = model
            .latest()
            .map(|snapshot| (snapshot.sequence, snapshot.at.0));
        line.is_some() && std::mem::replace(&mut self.line, line) != line
    }

    /// Brings the parts up to date. Returns whether they are other ones than before.
    pub(super) fn update(&mut self, host: HostKey, model: &HostModel) -> bool {
        let Some(snapshot) = model.latest() else {
            return false;
        };
        let totals = model.process_totals();
        let is_same = self.revision == model.jobs_revision()
            && self.gpu_processes.len() == totals.len()
            && self
                .gpu_processes
                .iter()
                .zip(totals)
                .all(|(known, total)| *known == (total.process, total.gpus.len()));
        if is_same {
            return false;
        }
        self.revision = model.jobs_revision();
        self.gpu_processes = totals
            .iter()
            .map(|total| (total.process, total.gpus.len()))
            .collect();
        let list = parts_of(host, model, snapshot);
        if self.list == list {
            return false;
        }
        self.list = list;
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<JobPart>> {
        self.list.iter()
    }
}

/// Returns the parts of all jobs of a host: of jobs by the process tree that use a GPU or have
/// ranks, those with the same marks together.
fn parts_of(host: HostKey, model: &HostModel, snapshot: &Snapshot) -> Vec<Arc<JobPart>> {
    let mut parts: BTreeMap<(JobMark, Option<JobMark>), JobPart> = BTreeMap::new();
    for job in model.job_list() {
        let Some(part) = part_of(host, model, snapshot, job) else {
            continue;
        };
        let first = part.slurm.clone().or_else(|| part.run.clone());
        let key = (
            first.unwrap_or_else(|| part.local.clone()),
            part.run.clone(),
        );
        match parts.get_mut(&key) {
            Some(known) => known.join(part),
            None => {
                parts.insert(key, part);
            }
        }
    }
    parts
        .into_values()
        .map(|mut part| {
            part.settle();
            Arc::new(part)
        })
        .collect()
}

/// Returns the part of a job by the process tree; `None` for one that gputop cannot name beyond its
/// program, and for one without GPU and rank, as the batch script of a job of Slurm.
fn part_of(host: HostKey, model: &HostModel, snapshot: &Snapshot, job: &Job) -> Option<JobPart> {
    let processes = || job.members.iter().filter_map(|id| snapshot.process(*id));
    let user = job.user.as_ref().ok();
    let is_of_user = |process: &&Process| process.facts.user.as_ref().ok() == user;
    let mut ranks: Vec<(RankOfHost, &Process, &DistributedFacts)> = processes()
        .filter(is_of_user)
        .filter_map(|process| {
            let facts = process.facts.distributed.as_deref()?;
            Some((rank_of(process.id, facts)?, process, facts))
        })
        .collect();
    if let Some(best) = ranks.iter().map(|(rank, ..)| rank.source).min() {
        ranks.retain(|(rank, ..)| rank.source == best);
    }
    let uses_gpu = !job.gpus.is_empty();
    let is_launched = ranks
        .iter()
        .any(|(rank, ..)| matches!(rank.source, RankSource::Torch | RankSource::Mpi));
    if !uses_gpu && !is_launched {
        return None;
    }
    let slurm = user.and_then(|user| marks::slurm(processes(), user));
    let run = user.and_then(|user| {
        if ranks.is_empty() {
            return ray(model, job, snapshot, user);
        }
        // A single rank that proves nothing keeps the whole job apart.
        let runs = ranks.iter();
        only(runs.map(|(_, process, _)| marks::run(process, user)))?
    });
    let of_slurm = processes()
        .find_map(|process| process.facts.distributed.as_ref()?.slurm_job_name.as_ref())
        .filter(|_| slurm.is_some());
    let container = job
        .origin
        .as_ref()
        .ok()
        .filter(|origin| origin.as_str().contains(' '));
    let launcher = || {
        let is_torch = |(rank, process, _): &(RankOfHost, &Process, &DistributedFacts)| {
            rank.source == RankSource::Torch && process.facts.elastic_run.is_ok()
        };
        let mut launchers = ranks.iter().map(|(_, process, _)| &process.facts.launcher);
        if ranks.iter().any(is_torch) {
            Some("torchrun".into())
        } else {
            launchers.find_map(|launcher| launcher.as_ref().ok().cloned())
        }
    };
    let started_by = container.cloned().or_else(launcher);
    if slurm.is_none() && run.is_none() && ranks.is_empty() && started_by.is_none() {
        return None;
    }
    let facts = || ranks.iter().map(|(.., facts)| *facts);
    let main = main_processes(&ranks, model);
    Some(JobPart {
        host,
        members: job.members.clone(),
        roots: job.root.into_iter().collect(),
        left_over: left_over(&ranks),
        gpus: job.gpus.clone(),
        local_world_size: facts().find_map(|facts| facts.local_world_size),
        group_rank: facts().find_map(|facts| facts.group_rank),
        world_size: facts().find_map(|facts| facts.world_size),
        name: of_slurm.map_or_else(|| job.name.clone(), ToString::to_string),
        has_name_of_slurm: of_slurm.is_some(),
        user: user.cloned(),
        slurm,
        run,
        local: JobMark::Local {
            host,
            key: job.key.clone(),
            started_by,
        },
        ranks: main,
    })
}

/// Returns the rank that the environment of a process names.
fn rank_of(process: ProcessId, facts: &DistributedFacts) -> Option<RankOfHost> {
    let source = match (&facts.rank_variable, facts.local_rank) {
        (None, Some(_)) => RankSource::Torch,
        (None, None) => RankSource::RankAlone,
        (Some(name), _) if name.as_str() == "SLURM_PROCID" => RankSource::Slurm,
        (Some(_), _) => RankSource::Mpi,
    };
    Some(RankOfHost {
        rank: facts.rank?,
        local_rank: facts.local_rank,
        process,
        restart_count: facts.restart_count,
        source,
    })
}

/// Returns the process of each rank: one that holds GPU memory, else the oldest that its creator
/// did not merely fork. The children of a rank inherit its environment; those that have outlived it
/// are not the rank.
fn main_processes(
    ranks: &[(RankOfHost, &Process, &DistributedFacts)],
    model: &HostModel,
) -> Vec<RankOfHost> {
    let mut main: BTreeMap<u32, (bool, u64, RankOfHost)> = BTreeMap::new();
    let newest = newest_start(ranks);
    for (rank, process, _) in ranks {
        let holds = model.process_total(process.id).is_some();
        let is_orphan = process.facts.parent.is_ok_and(|parent| parent == 1);
        let is_copy = process.facts.forked == Ok(true) || is_orphan;
        if rank.restart_count < newest || !holds && is_copy {
            continue;
        }
        let found = (!holds, process.id.start_ticks.unwrap_or(u64::MAX), *rank);
        let known = main.entry(rank.rank).or_insert(found);
        if (found.0, found.1) < (known.0, known.1) {
            *known = found;
        }
    }
    main.into_values().map(|(.., rank)| rank).collect()
}

/// The latest count of starts of the ranks on a host: torchrun starts all of them together. `None` if
/// no rank has a count.
fn newest_start(ranks: &[(RankOfHost, &Process, &DistributedFacts)]) -> Option<u32> {
    ranks.iter().map(|(rank, ..)| rank.restart_count).max()?
}

/// Returns the processes of earlier starts of the ranks.
fn left_over(ranks: &[(RankOfHost, &Process, &DistributedFacts)]) -> Vec<ProcessId> {
    let newest = newest_start(ranks);
    let old = ranks
        .iter()
        .filter(|(rank, ..)| rank.restart_count < newest);
    old.map(|(_, process, _)| process.id).collect()
}

/// Returns the Ray job that the workers of a job serve. The raylet above them names its cluster.
fn ray(model: &HostModel, job: &Job, snapshot: &Snapshot, user: &Text) -> Option<JobMark> {
    let ids = job.members.iter().filter_map(|id| {
        let process = snapshot.process(*id)?;
        process.facts.distributed.as_ref()?.ray_job_id.as_ref()
    });
    let id = only(ids)?;
    let tree = model.process_tree();
    let raylets = job.members.iter().filter_map(|member| {
        let place = tree.place(*member)?;
        let mut line = std::iter::once(place).chain(tree.ancestors_of(place));
        line.find_map(|place| {
            let argv = snapshot.processes.get(place)?.facts.argv.as_ref().ok()?;
            marks::ray_session(argv.iter())
        })
    });
    Some(JobMark::Ray {
        user: user.clone(),
        session: only(raylets)?,
        job: id.clone(),
    })
}

impl JobPart {
    /// Takes in another job by the process tree of the same host and with the same marks: `srun`
    /// starts each rank by itself.
    fn join(&mut self, other: Self) {
        self.members.extend(other.members);
        self.roots.extend(other.roots);
        self.left_over.extend(other.left_over);
        self.gpus.extend(other.gpus);
        self.ranks.extend(other.ranks);
        self.local_world_size = self.local_world_size.or(other.local_world_size);
        self.group_rank = self.group_rank.or(other.group_rank);
        self.world_size = self.world_size.or(other.world_size);
        if other.has_name_of_slurm && !self.has_name_of_slurm {
            (self.name, self.has_name_of_slurm) = (other.name, true);
        }
    }

    /// Sorts everything, and keeps the ranks of the best source and of the latest start alone.
    fn settle(&mut self) {
        self.members.sort_unstable();
        self.roots.sort_unstable();
        self.gpus.sort_unstable();
        self.gpus.dedup();
        if let Some(best) = self.ranks.iter().map(|rank| rank.source).min() {
            self.ranks.retain(|rank| rank.source == best);
        }
        let newest = self.ranks.iter().map(|rank| rank.restart_count).max();
        let (ranks, old): (Vec<RankOfHost>, _) = std::mem::take(&mut self.ranks)
            .into_iter()
            .partition(|rank| Some(rank.restart_count) == newest);
        self.ranks = ranks;
        self.left_over
            .extend(old.iter().map(|rank: &RankOfHost| rank.process));
        self.left_over.sort_unstable();
        self.left_over.dedup();
        self.ranks
            .sort_by_key(|rank| (rank.rank, rank.process.start_ticks, rank.process));
        self.ranks.dedup_by_key(|rank| rank.rank);
    }
}
