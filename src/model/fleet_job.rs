//! One job over all its hosts: which processes of which hosts work for it, and which rank each is.
//!
//! A host alone has jobs by its process tree ([`Job`](super::Job)). Two of them on different hosts
//! are one job only if their marks say so: the job of Slurm, the run of `torchrun` or `deepspeed`, the
//! namespace of MPI, or the job of a Ray cluster. In doubt they stay apart, because a job is ended as
//! a whole.

mod figures;
mod host_parts;
mod join;
mod marks;
mod stragglers;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use self::figures::{JobMedians, RankFigures, main_gpu};
use self::host_parts::HostParts;
pub(crate) use self::marks::JobMark;
pub(crate) use self::stragglers::Lag;
use self::stragglers::LaggingRank;
use super::{HostModel, HostProcess};
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::ProcessId;

/// The identity of a job over all hosts, from one refresh to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetJobKey {
    pub mark: JobMark,
    /// The run inside a job of Slurm, if that has several runs with the same ranks.
    pub run: Option<JobMark>,
    /// The only host of the job, if other hosts have the same marks and the same ranks: they stay
    /// apart.
    pub host: Option<HostKey>,
}

/// A job over all its hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetJob {
    pub key: FleetJobKey,
    /// The name in Slurm, or that of the program: `llama`, `train.py`.
    pub name: String,
    /// `None` if it could not be read.
    pub user: Option<Text>,
    /// The number of ranks that the job has when it is complete; `None` if no process says it.
    pub world_size: Option<u32>,
    /// The processes of each host. A host has several parts if it has several runs of a job of
    /// Slurm.
    pub parts: Vec<Arc<JobPart>>,
    /// The ranks that run, sorted by their number.
    pub ranks: Vec<JobRank>,
    /// The ranks that were seen earlier and run no longer, sorted by their number.
    pub gone: Vec<GoneRank>,
    /// The ranks whose GPU is slower than those of the others, for any time.
    lagging: Vec<LaggingRank>,
}

/// The processes of a job on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPart {
    pub host: HostKey,
    /// All processes, sorted.
    pub members: Vec<ProcessId>,
    /// The processes that started others, and are ended first: `torchrun`. None if they have ended.
    pub roots: Vec<ProcessId>,
    /// The processes of an earlier start of the ranks, which torchrun has replaced.
    pub left_over: Vec<ProcessId>,
    /// The places of its GPUs in the list of the snapshot that the part was found in.
    gpus: Vec<usize>,
    /// The number of ranks on this host, as its processes say; `None` if they do not.
    pub(crate) local_world_size: Option<u32>,
    /// torchrun's number of the host.
    pub(crate) group_rank: Option<u32>,
    world_size: Option<u32>,
    name: String,
    has_name_of_slurm: bool,
    user: Option<Text>,
    slurm: Option<JobMark>,
    run: Option<JobMark>,
    local: JobMark,
    ranks: Vec<RankOfHost>,
}

/// A rank that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRank {
    pub rank: u32,
    pub host: HostKey,
    /// `None` if no variable says it.
    pub local_rank: Option<u32>,
    /// The process of the rank itself; its children inherit the rank.
    pub process: ProcessId,
}

/// A rank that was seen earlier, and that no host shows any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoneRank {
    pub last: JobRank,
    /// The time of its host when its process was missing for the first time.
    pub at: Moment,
}

/// A rank of one host, by the variable that says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankOfHost {
    rank: u32,
    local_rank: Option<u32>,
    process: ProcessId,
    /// `TORCHELASTIC_RESTART_COUNT`; `None` for a rank that torchrun did not start.
    restart_count: Option<u32>,
    source: RankSource,
}

/// How a process knows its rank, the best source first: a task of Slurm may be a torchrun, whose
/// children have ranks of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RankSource {
    /// `RANK` and `LOCAL_RANK`.
    Torch,
    /// `RANK` alone: Kubernetes numbers pods with it.
    RankAlone,
    /// The variables of an MPI launcher.
    Mpi,
    /// `SLURM_PROCID`.
    Slurm,
}

impl FleetJob {
    /// The scheduler or launcher and the name of the job: `slurm 4242 llama`, `torchrun train.py`.
    pub(crate) fn title(&self) -> String {
        let title = self.key.mark.title();
        let names = [title.as_str(), self.name.as_str()];
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.join(" ")
    }

    /// The hosts where ranks of the job run or ran, each once.
    pub fn hosts(&self) -> Vec<HostKey> {
        let running = self.parts.iter().map(|part| part.host);
        let gone = self.gone.iter().map(|gone| gone.last.host);
        let mut hosts: Vec<HostKey> = running.chain(gone).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// The hosts where processes of the job run, each once.
    pub(crate) fn hosts_of_parts(&self) -> Vec<HostKey> {
        let mut hosts: Vec<HostKey> = self.parts.iter().map(|part| part.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Whether all ranks that were seen have ended, while other processes of the job still run.
    pub(crate) fn has_only_leftovers(&self) -> bool {
        self.ranks.is_empty() && !self.gone.is_empty()
    }

    /// The number of GPUs that the job uses, over all hosts.
    pub(crate) fn gpu_count(&self) -> usize {
        self.parts.iter().map(|part| part.gpus.len()).sum()
    }

    /// The number of ranks that no host has shown, and of all ranks; `None` if all were seen, or the
    /// job does not say how many it has. Ranks that have ended were seen.
    pub(crate) fn unseen(&self) -> Option<(u32, u32)> {
        let all = self.world_size?;
        let seen = u32::try_from(self.ranks.len() + self.gone.len()).ok()?;
        let unseen = all.saturating_sub(seen);
        (unseen > 0).then_some((unseen, all))
    }

    /// All processes of the job.
    pub fn members(&self) -> impl Iterator<Item = HostProcess> {
        self.parts.iter().flat_map(|part| {
            part.members.iter().map(|process| HostProcess {
                host: part.host,
                process: *process,
            })
        })
    }

    pub fn contains(&self, process: HostProcess) -> bool {
        self.parts.iter().any(|part| {
            part.host == process.host && part.members.binary_search(&process.process).is_ok()
        })
    }

    /// The ranks that no host shows, and since when, as far as they were seen. Only if all hosts of
    /// the job answer; else nobody knows: `None`.
    pub(crate) fn missing(&self, answers: impl Fn(HostKey) -> bool) -> Option<Vec<MissingRank>> {
        let world_size = self.world_size?;
        if !self.hosts().into_iter().all(answers) {
            return None;
        }
        let of_group = |group: u32| {
            self.parts
                .iter()
                .find(|part| part.group_rank == Some(group))
        };
        let runs = |rank: u32| {
            self.ranks
                .binary_search_by_key(&rank, |seen| seen.rank)
                .is_ok()
        };
        // None where hosts have different numbers of ranks.
        let sizes = self.parts.iter().filter_map(|part| part.local_world_size);
        let per_host = only(sizes).filter(|size| *size > 0);
        let mut missing = Vec::new();
        for rank in (0..world_size.min(MOST_RANKS)).filter(|rank| !runs(*rank)) {
            let gone = self.gone.binary_search_by_key(&rank, |gone| gone.last.rank);
            if let Ok(place) = gone {
                let GoneRank { last, at } = self.gone[place];
                missing.push(MissingRank {
                    rank,
                    host: Some(last.host),
                    local_rank: last.local_rank,
                    since: Some(at),
                });
                continue;
            }
            // torchrun numbers the ranks host by host. A rank of a host that gputop does not watch
            // is not missing.
            let place = per_host.and_then(|size| {
                let part = of_group(rank / size)?;
                Some((part.host, rank % size))
            });
            if let Some((host, local_rank)) = place {
                missing.push(MissingRank {
                    rank,
                    host: Some(host),
                    local_rank: Some(local_rank),
                    since: None,
                });
            }
        }
        Some(missing)
    }
}

/// Returns the value that all items have; `None` without items, and if two differ.
fn only<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}

/// More ranks than any job has: a hostile environment may name any size.
const MOST_RANKS: u32 = 1 << 16;

/// A rank that should run, and that no host shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingRank {
    pub(crate) rank: u32,
    /// Where it was seen, or where torchrun started it; `None` if that is not known.
    pub(crate) host: Option<HostKey>,
    pub(crate) local_rank: Option<u32>,
    /// The time of that host when its process was missing for the first time; `None` for a rank that
    /// was never seen.
    pub(crate) since: Option<Moment>,
}

/// The jobs of the fleet that have a scheduler, a launcher or a container, and what is needed to
/// find them again.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetJobs {
    hosts: BTreeMap<HostKey, HostParts>,
    list: Vec<FleetJob>,
}

impl FleetJobs {
    /// Finds the jobs anew, if a process came, ended or has other facts, and notes which ranks are
    /// slow.
    pub(super) fn update<'a>(
        &mut self,
        hosts: impl Iterator<Item = HostKey>,
        model: impl Fn(HostKey) -> Option<&'a HostModel>,
    ) {
        let (mut is_changed, mut new_lines) = (false, Vec::new());
        for host in hosts {
            let Some(model) = model(host) else { continue };
            let parts = self.hosts.entry(host).or_default();
            if parts.has_new_line(model) {
                new_lines.push(host);
                is_changed |= parts.update(host, model);
            }
        }
        if is_changed {
            let parts = self.hosts.values().flat_map(HostParts::iter);
            let before = std::mem::replace(&mut self.list, join::join(parts));
            let now = |host| model(host).map_or(Moment::default(), HostModel::now);
            join::remember(&mut self.list, before, now);
        }
        for job in &mut self.list {
            job.note_lags(&model, |host| new_lines.binary_search(&host).is_ok());
        }
    }

    pub(crate) fn list(&self) -> &[FleetJob] {
        &self.list
    }
}

#[cfg(test)]
mod layouts;
#[cfg(test)]
mod tests;
