//! The processes of a job of a scheduler or container runtime, on all hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::WaitFailure;
use super::happening::{Happening, HappeningKind};
use crate::model::HostModel;
use crate::output::Exit;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Missing, Process, ProcessId, Snapshot};

/// How many consecutive snapshots must show that no process is left: a single list of the driver
/// may lack a process.
const SURE: u8 = 2;

/// The job on one host.
#[derive(Debug, Default)]
struct JobOnHost {
    /// The number of the last snapshot.
    sequence: Option<u64>,
    living: BTreeSet<ProcessId>,
    /// All processes of the job that were seen.
    seen: BTreeSet<ProcessId>,
    /// The number of consecutive snapshots without a process of the job, in each of which every
    /// process of the host was known.
    agreeing: u8,
}

#[derive(Debug)]
pub(super) struct AwaitedJob {
    id: String,
    hosts: BTreeMap<HostKey, JobOnHost>,
}

impl AwaitedJob {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.trim().to_owned(),
            hosts: BTreeMap::new(),
        }
    }

    /// Whether a process is of the job, and not gputop's own.
    pub(super) fn contains(&self, model: &HostModel, process: &Process) -> bool {
        let origin = match &process.facts.origin {
            Ok(origin) => Some(origin),
            // The environment of another user's process cannot be read.
            Err(Missing::Denied | Missing::Failed) => model
                .job(process.id)
                .and_then(|job| job.origin.as_ref().ok()),
            // A process without an origin may have the same root, such as the shell of a person.
            Err(_) => None,
        };
        origin.is_some_and(|origin| is_of_job(origin.as_str(), &self.id))
    }

    /// Takes the latest snapshot of a host. `waiting` are the processes that wait with gputop:
    /// itself, its agent, and the shells and scripts that started it. With `is_patient`, unread
    /// origins are waited for.
    pub(super) fn update(
        &mut self,
        host: HostKey,
        model: &HostModel,
        snapshot: &Snapshot,
        waiting: &BTreeSet<u32>,
        is_patient: bool,
    ) {
        let here = self.hosts.get(&host);
        if here.is_some_and(|here| here.sequence == Some(snapshot.sequence)) {
            return;
        }
        let is_member = |process: &&Process| {
            snapshot.lives(process.id)
                && !waiting.contains(&process.id.pid)
                && self.contains(model, process)
        };
        let members = snapshot.processes.iter().filter(is_member);
        let living: BTreeSet<ProcessId> = members.map(|process| process.id).collect();
        let is_unread = |process: &Process| {
            snapshot.lives(process.id) && process.facts.origin == Err(Missing::NotYet)
        };
        let is_known =
            model.is_complete() && !(is_patient && snapshot.processes.iter().any(is_unread));
        let here = self.hosts.entry(host).or_default();
        here.sequence = Some(snapshot.sequence);
        here.seen.extend(&living);
        here.agreeing = if living.is_empty() && is_known {
            here.agreeing.saturating_add(1)
        } else {
            0
        };
        here.living = living;
    }

    /// Returns the end of the job, once `hosts` hosts show none of its processes; or that none had
    /// one.
    pub(super) fn end(&self, hosts: usize) -> Option<Result<Happening, WaitFailure>> {
        let sure = self.hosts.values().filter(|here| here.agreeing >= SURE);
        if sure.count() < hosts {
            return None;
        }
        let processes: Vec<ProcessId> = self
            .hosts
            .values()
            .flat_map(|here| here.seen.iter().copied())
            .collect();
        if processes.is_empty() {
            let sentence = format!(
                "no process of job {} is seen here: gputop knows the processes on GPUs and those related to them, by \
                 Slurm job, container ID or pod as on the page of a process",
                self.id
            );
            return Some(Err((Exit::Nothing, sentence)));
        }
        let sentence = format!("job {} has ended: no process of it is left", self.id);
        Some(Ok(Happening {
            processes,
            ..Happening::new(HappeningKind::JobEnded, sentence)
        }))
    }

    /// Returns a clause on the processes that are left.
    pub(super) fn still_running(&self) -> String {
        let left: usize = self.hosts.values().map(|here| here.living.len()).sum();
        let es = if left == 1 { "" } else { "es" };
        format!("job {} has {left} process{es}", self.id)
    }
}

/// Whether a process with this origin, as the model words it, belongs to the job with this ID.
fn is_of_job(origin: &str, id: &str) -> bool {
    /// A shorter beginning of an ID may be that of several containers.
    const SHORTEST: usize = 4;
    let is_beginning = |a: &str, b: &str| a.len() >= SHORTEST && b.starts_with(a);
    match origin.split_once(' ') {
        _ if origin == id => true,
        Some(("slurm" | "kubernetes", job)) => job == id,
        // The model has the beginning of a container's ID.
        Some((_, container)) => is_beginning(id, container) || is_beginning(container, id),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Moment};
    use crate::protocol::snapshot::example;

    /// A host whose processes have these origins, by PID from 7 on.
    fn host(origins: &[&str]) -> Snapshot {
        let mut host = example::host(1);
        host.host.scan.at = Moment(1);
        for (pid, _) in (7..).zip(origins) {
            host = host.with(pid, "python train.py", 0, Bytes::from_gib(1));
        }
        for (process, origin) in host.processes.iter_mut().zip(origins) {
            process.facts_mut().origin = Ok((*origin).into());
        }
        host
    }

    /// Takes snapshots of a host, and returns how the wait for job 4711 ends after each.
    fn ends(
        snapshots: &[Snapshot],
        waiting: &[u32],
    ) -> Vec<Option<Result<Happening, WaitFailure>>> {
        let (mut job, mut model) = (AwaitedJob::new("4711"), HostModel::default());
        let waiting: BTreeSet<u32> = waiting.iter().copied().collect();
        let mut step = |(number, snapshot): (u64, &Snapshot)| {
            let mut snapshot = snapshot.clone();
            snapshot.sequence = number;
            model.replace(snapshot.clone());
            job.update(HostKey::FIRST, &model, &snapshot, &waiting, true);
            // A snapshot counts once.
            job.update(HostKey::FIRST, &model, &snapshot, &waiting, true);
            job.end(1)
        };
        (1..).zip(snapshots).map(&mut step).collect()
    }

    #[test]
    fn a_job_ends_with_its_last_process_and_not_with_a_hole_in_a_list() {
        let both = host(&["slurm 4711", "slurm 4711", "slurm 9"]);
        let other = both.clone().without(7).without(8);
        let steps = [&both, &other, &both, &other, &other].map(Clone::clone);
        let ends = ends(&steps, &[]);
        assert!(ends[..4].iter().all(Option::is_none), "{ends:?}");
        let Some(Some(Ok(ended))) = ends.last() else {
            panic!("{ends:?}")
        };
        assert_eq!(ended.kind, HappeningKind::JobEnded);
        assert_eq!(
            ended.sentence,
            "job 4711 has ended: no process of it is left"
        );
        let pids: Vec<u32> = ended.processes.iter().map(|id| id.pid).collect();
        assert_eq!(pids, [7, 8]);
    }

    #[test]
    fn a_process_counts_by_the_job_of_its_root_only_where_its_own_cannot_be_read() {
        for (origin, counts) in [(Missing::Denied, true), (Missing::Unsupported, false)] {
            let mut rest = host(&["slurm 4711", "slurm 4711"]);
            rest.processes[1].facts_mut().parent = Ok(7);
            rest.processes[1].facts_mut().origin = Err(origin);
            let mut model = HostModel::default();
            model.replace(rest.clone());
            let job = AwaitedJob::new("4711");
            let child = &rest.processes[1];
            assert_eq!(job.contains(&model, child), counts, "{origin}");
        }
    }

    #[test]
    fn a_job_without_a_process_is_not_found_once_all_origins_are_read() {
        let mut unread = host(&["slurm 9"]);
        unread.processes[0].facts_mut().origin = Err(Missing::NotYet);
        let read = host(&["slurm 9"]);
        let steps = [&unread, &unread, &read, &read].map(Clone::clone);
        let ends = ends(&steps, &[]);
        assert!(ends[..3].iter().all(Option::is_none), "{ends:?}");
        assert!(
            matches!(&ends[3], Some(Err((Exit::Nothing, sentence))) if sentence.contains("job 4711")),
            "{ends:?}"
        );
    }

    #[test]
    fn the_scripts_that_wait_are_no_part_of_the_job() {
        let steps = [host(&["slurm 4711"]), host(&["slurm 4711"])];
        assert_eq!(ends(&steps, &[]), [None, None]);
        assert!(matches!(ends(&steps, &[7])[1], Some(Err(_))));
    }

    #[test]
    fn an_id_is_that_of_its_scheduler_or_the_beginning_of_a_container() {
        for (origin, id, expected) in [
            ("slurm 4711", "4711", true),
            ("slurm 4711", "slurm 4711", true),
            ("slurm 47110", "4711", false),
            ("slurm 4711", "471", false),
            ("kubernetes train-0", "train-0", true),
            ("kubernetes train-01", "train-0", false),
            ("docker 3f2a91c0d1e2", "3f2a91c0d1e2", true),
            ("docker 3f2a91c0d1e2", "3f2a", true),
            ("docker 3f2a91c0d1e2", "3f2a91c0d1e2aabbccdd", true),
            ("docker 3f2a91c0d1e2", "3f", false),
            ("docker 3f2a91c0d1e2", "4711", false),
            ("trainer.service", "trainer.service", true),
            ("tmux", "4711", false),
        ] {
            assert_eq!(is_of_job(origin, id), expected, "{origin}, {id}");
        }
    }
}
