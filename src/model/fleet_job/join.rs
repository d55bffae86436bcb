//! Joins the parts of all hosts to jobs.

use std::collections::HashMap;
use std::sync::Arc;

use super::{FleetJob, FleetJobKey, GoneRank, JobMark, JobPart, JobRank, only};
use crate::base::units::Moment;
use crate::protocol::host_key::HostKey;

/// Returns the jobs of these parts, which are sorted by host. Parts with the same mark are one job,
/// unless a rank is on two of their hosts: then those with the same run are, unless a rank is on two
/// of their hosts: then each host has a job of its own.
pub(super) fn join<'a>(parts: impl Iterator<Item = &'a Arc<JobPart>>) -> Vec<FleetJob> {
    let mut jobs = Vec::new();
    for (mark, parts) in grouped(parts, JobPart::first_mark) {
        let key = FleetJobKey {
            mark: mark.clone(),
            run: None,
            host: None,
        };
        match FleetJob::new(&key, &parts) {
            Some(job) => jobs.push(job),
            None => split(&key, &parts, &mut jobs),
        }
    }
    jobs.sort_by(|a, b| {
        let size = |job: &FleetJob| (job.gpu_count(), job.ranks.len());
        size(b).cmp(&size(a)).then_with(|| a.key.cmp(&b.key))
    });
    jobs
}

/// Adds the jobs of parts that have the same mark, and a rank on two hosts.
fn split(key: &FleetJobKey, parts: &[&Arc<JobPart>], jobs: &mut Vec<FleetJob>) {
    for (run, parts) in grouped(parts.iter().copied(), |part| &part.run) {
        let key = FleetJobKey {
            run: run.clone(),
            ..key.clone()
        };
        if let Some(job) = FleetJob::new(&key, &parts) {
            jobs.push(job);
            continue;
        }
        for (host, parts) in grouped(parts.iter().copied(), |part| &part.host) {
            let key = FleetJobKey {
                host: Some(*host),
                ..key.clone()
            };
            jobs.extend(FleetJob::new(&key, &parts));
        }
    }
}

/// Returns the parts with each value, in the order of the first of them.
fn grouped<'a, Key: Eq + std::hash::Hash + 'a>(
    parts: impl Iterator<Item = &'a Arc<JobPart>>,
    key: impl Fn(&'a JobPart) -> &'a Key,
) -> Vec<(&'a Key, Vec<&'a Arc<JobPart>>)> {
    let mut places: HashMap<&Key, usize> = HashMap::new();
    let mut groups: Vec<(&Key, Vec<&Arc<JobPart>>)> = Vec::new();
    for part in parts {
        let key = key(part);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(part);
    }
    groups
}

impl JobPart {
    /// The mark that joins this part to those of other hosts, if it has one.
    fn first_mark(&self) -> &JobMark {
        self.slurm
            .as_ref()
            .or(self.run.as_ref())
            .unwrap_or(&self.local)
    }
}

impl FleetJob {
    /// Returns the job of these parts; `None` if a rank is on two hosts.
    fn new(key: &FleetJobKey, parts: &[&Arc<JobPart>]) -> Option<Self> {
        let best = parts
            .iter()
            .flat_map(|part| part.ranks.iter().map(|rank| rank.source))
            .min();
        let mut found: Vec<(JobRank, Option<u32>)> = parts
            .iter()
            .flat_map(|part| {
                let counts = part.ranks.iter().filter(|rank| Some(rank.source) == best);
                counts.map(|rank| {
                    let job_rank = JobRank {
                        rank: rank.rank,
                        host: part.host,
                        local_rank: rank.local_rank,
                        process: rank.process,
                    };
                    (job_rank, rank.restart_count)
                })
            })
            .collect();
        // The latest start of a rank first.
        found.sort_by_key(|(rank, restarts)| (rank.rank, std::cmp::Reverse(*restarts), rank.host));
        let mut ranks: Vec<JobRank> = Vec::with_capacity(found.len());
        let mut replaced: Vec<JobRank> = Vec::new();
        for same in found.chunk_by(|(a, _), (b, _)| a.rank == b.rank) {
            let (first, latest) = same[0];
            for (other, restarts) in &same[1..] {
                match other.host == first.host {
                    _ if *restarts < latest => replaced.push(*other),
                    true => {}
                    false => return None,
                }
            }
            ranks.push(first);
        }
        let mut parts: Vec<Arc<JobPart>> = parts.iter().map(|part| Arc::clone(part)).collect();
        for rank in replaced {
            let mut of_host = parts.iter_mut().filter(|part| part.host == rank.host);
            if let Some(part) = of_host.find(|part| part.members.contains(&rank.process)) {
                Arc::make_mut(part).left_over.push(rank.process);
            }
        }
        let of_source = parts
            .iter()
            .filter(|part| best.is_some() && part.ranks.first().map(|rank| rank.source) == best);
        let world_size = only(of_source.map(|part| part.world_size)).flatten();
        let named = parts.iter().find(|part| part.has_name_of_slurm);
        let name = named
            .or(parts.first())
            .map_or_else(String::new, |part| part.name.clone());
        let user = parts.iter().find_map(|part| part.user.clone());
        Some(Self {
            key: key.clone(),
            name,
            user,
            world_size,
            parts,
            ranks,
            gone: Vec::new(),
            lagging: Vec::new(),
        })
    }
}

/// Lets jobs go on from what was known of them before: the ranks that ran and run no longer, and
/// those that are slow. `now` is the time of a host.
pub(super) fn remember(
    jobs: &mut [FleetJob],
    before: Vec<FleetJob>,
    now: impl Fn(HostKey) -> Moment,
) {
    let mut before: HashMap<FleetJobKey, FleetJob> = before
        .into_iter()
        .map(|job| (job.key.clone(), job))
        .collect();
    for job in jobs {
        let Some(before) = before.remove(&job.key) else {
            continue;
        };
        let runs = |rank: u32| {
            job.ranks
                .binary_search_by_key(&rank, |seen| seen.rank)
                .is_ok()
        };
        let mut gone = before.gone;
        gone.extend(before.ranks.iter().map(|seen| GoneRank {
            last: *seen,
            at: now(seen.host),
        }));
        gone.retain(|gone| !runs(gone.last.rank));
        gone.sort_by_key(|gone| gone.last.rank);
        gone.dedup_by_key(|gone| gone.last.rank);
        (job.gone, job.lagging) = (gone, before.lagging);
    }
}
