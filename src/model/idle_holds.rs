//! The users and jobs that hold GPUs idle, since when, and how many GPU-hours that makes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::HostModel;
use super::held_idle::{HELD_IDLE_AFTER, HeldIdle, computes};
use super::job::JobKey;
use super::process_total::Total;
use crate::base::text::Text;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Gpu, GpuProcess, Process, ProcessId, Reading, Snapshot};

/// The memory that the processes of one user and one job hold on an idle GPU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdleHold {
    /// The place of the GPU in [`Snapshot::gpus`].
    pub(crate) gpu: usize,
    /// `None` where the user is not known.
    pub(crate) user: Option<Text>,
    /// The job of a scheduler, or the container: `slurm 4242`; `None` for a process of neither.
    pub(crate) scheduled: Option<Text>,
    /// The job on this host; `None` for a process that is only a PID.
    pub(crate) job: Option<JobKey>,
    /// The processes, the one with the most memory first. There is at least one.
    pub(crate) processes: Vec<ProcessId>,
    /// The memory of these processes on the GPU.
    pub(crate) memory: Reading<Total>,
    /// Since when the GPU is idle and one of the processes is on it.
    pub(crate) since: Moment,
    /// Whether the beginning was seen. Otherwise it may have been idle for longer.
    pub(crate) was_seen: bool,
}

impl IdleHold {
    /// The process with the most memory there.
    pub(crate) fn holder(&self) -> ProcessId {
        self.processes[0]
    }

    /// Whether both are of one user and one job. On one host, a job of a scheduler may consist of
    /// several jobs of this host.
    pub(crate) fn is_of_same_job(&self, other: &Self) -> bool {
        let is_same = match (&self.scheduled, &other.scheduled) {
            (None, None) => self.job == other.job,
            (one, another) => one == another,
        };
        is_same && self.user == other.user
    }
}

/// GPUs that one user holds idle.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldGpus {
    /// `None` where the user is not known.
    pub(crate) user: Option<Text>,
    /// The places of the GPUs in [`Snapshot::gpus`].
    pub(crate) gpus: Vec<usize>,
    /// The process with the most memory on one of them.
    pub(crate) holder: ProcessId,
    /// The memory that the user's processes hold there.
    pub(crate) memory: Reading<Total>,
    /// Since when all of them are idle, as in [`HeldIdle::Since`].
    pub(crate) since: Moment,
    pub(crate) was_seen: bool,
    /// The GPUs times the time.
    pub(crate) time: GpuTime,
}

/// GPUs times the time since when they are held idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GpuTime {
    pub(crate) time: Duration,
    /// Whether the beginning of a part was not seen: the true time is this or longer.
    pub(crate) is_lower_bound: bool,
}

impl GpuTime {
    /// The time in hours.
    pub(crate) fn hours(self) -> f64 {
        self.time.as_secs_f64() / 3600.0
    }

    /// Adds up the time of holds. A GPU counts once, with its longest hold.
    pub(crate) fn of<'a>(holds: impl Iterator<Item = &'a IdleHold>, now: Moment) -> Self {
        let mut of_gpus: BTreeMap<usize, (Moment, bool)> = BTreeMap::new();
        for hold in holds {
            let longest = of_gpus
                .entry(hold.gpu)
                .or_insert((hold.since, hold.was_seen));
            if hold.since < longest.0 {
                *longest = (hold.since, hold.was_seen);
            }
        }
        of_gpus
            .into_values()
            .map(|(since, was_seen)| Self {
                time: now.since(since),
                is_lower_bound: !was_seen,
            })
            .sum()
    }
}

impl std::iter::Sum for GpuTime {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            time: sum.time.saturating_add(part.time),
            is_lower_bound: sum.is_lower_bound || part.is_lower_bound,
        })
    }
}

impl HeldGpus {
    /// Joins the holds of each user.
    pub(crate) fn by_user(holds: &[IdleHold], now: Moment) -> Vec<Self> {
        let mut users: Vec<(&Option<Text>, Vec<&IdleHold>)> = Vec::new();
        for hold in holds {
            match users.iter_mut().find(|(user, _)| **user == hold.user) {
                Some((_, of_user)) => of_user.push(hold),
                None => users.push((&hold.user, vec![hold])),
            }
        }
        users
            .into_iter()
            .filter_map(|(user, of_user)| {
                let bytes = |hold: &IdleHold| hold.memory.map_or(0, |total| total.bytes.0);
                // The first of those with the same memory.
                let largest = of_user.iter().rev().max_by_key(|hold| bytes(hold))?;
                let latest = of_user.iter().max_by_key(|hold| hold.since)?;
                let mut gpus: Vec<usize> = of_user.iter().map(|hold| hold.gpu).collect();
                gpus.dedup();
                Some(Self {
                    user: user.clone(),
                    gpus,
                    holder: largest.holder(),
                    memory: Total::sum(of_user.iter().map(|hold| hold.memory)),
                    since: latest.since,
                    was_seen: latest.was_seen,
                    time: GpuTime::of(of_user.iter().copied(), now),
                })
            })
            .collect()
    }
}

impl HostModel {
    /// How long a GPU that a process holds has been idle.
    pub(crate) fn held_idle(&self, gpu: &Gpu) -> HeldIdle {
        self.history()
            .gpu(&gpu.uuid)
            .map_or(HeldIdle::Unknown, |history| history.idle.held_idle())
    }

    /// Since when no process has held a GPU, and whether the beginning was seen. `None` while one
    /// holds it, or that is not known.
    pub(crate) fn unheld_since(&self, gpu: &Gpu) -> Option<(Moment, bool)> {
        self.history().gpu(&gpu.uuid)?.idle.unheld_since()
    }

    /// Whether processes have held the GPU idle for half an hour, these or others.
    pub(super) fn is_held_idle(&self, gpu: &Gpu) -> bool {
        matches!(self.held_idle(gpu), HeldIdle::Since { since, .. }
            if gpu.load.at.since(since) >= HELD_IDLE_AFTER)
    }

    /// The users and jobs that have held GPUs idle for half an hour, in the order of the GPUs.
    pub(crate) fn idle_holds(&self) -> Vec<IdleHold> {
        let mut holds = self.holds();
        holds.retain(|hold| {
            let gpu = self.latest().and_then(|latest| latest.gpus.get(hold.gpu));
            gpu.is_some_and(|gpu| gpu.load.at.since(hold.since) >= HELD_IDLE_AFTER)
        });
        holds
    }

    /// The users and jobs that hold idle GPUs, however long, in the order of the GPUs.
    pub(crate) fn holds(&self) -> Vec<IdleHold> {
        let Some(snapshot) = self.latest() else {
            return Vec::new();
        };
        let mut holds = Vec::new();
        for (place, gpu) in snapshot.gpus.iter().enumerate() {
            if let HeldIdle::Since { since, was_seen } = self.held_idle(gpu) {
                holds.extend(self.holds_on(snapshot, place, since, was_seen));
            }
        }
        holds
    }

    /// The holds on a GPU that is idle since this moment. A process that came later holds it from
    /// then on.
    fn holds_on(
        &self,
        snapshot: &Snapshot,
        place: usize,
        since: Moment,
        was_seen: bool,
    ) -> Vec<IdleHold> {
        let gpu = &snapshot.gpus[place];
        let mut listed: Vec<&GpuProcess> = gpu
            .processes
            .iter()
            .filter(|listed| computes(listed))
            .collect();
        listed.sort_by_key(|listed| std::cmp::Reverse(listed.memory.map_or(0, |bytes| bytes.0)));
        let mut holds: Vec<IdleHold> = Vec::new();
        for listed in listed {
            let came = self.came_to(snapshot, gpu, listed.process);
            let process = snapshot.process(listed.process);
            let hold = IdleHold {
                gpu: place,
                user: process.and_then(|process| process.facts.user.clone().ok()),
                scheduled: process.and_then(scheduled).cloned(),
                job: self.job(listed.process).map(|job| job.key.clone()),
                processes: vec![listed.process],
                memory: Total::sum_bytes([listed.memory].into_iter()),
                since: came.map_or(since, |came| came.max(since)),
                was_seen: was_seen || came.is_some_and(|came| came > since),
            };
            match holds.iter_mut().find(|known| known.is_of_same_job(&hold)) {
                Some(known) => {
                    known.processes.extend(hold.processes);
                    known.memory = Total::sum([known.memory, hold.memory].into_iter());
                    if hold.since < known.since {
                        (known.since, known.was_seen) = (hold.since, hold.was_seen);
                    }
                }
                None => holds.push(hold),
            }
        }
        holds
    }

    /// When a process came to a GPU: when its memory there was first read, or else when it started.
    /// `None` where neither is known.
    fn came_to(&self, snapshot: &Snapshot, gpu: &Gpu, id: ProcessId) -> Option<Moment> {
        let seen = || self.history().process(id)?.on_gpu(&gpu.uuid)?.began();
        let started = || {
            let per_second = snapshot.host.facts.ticks_per_second.max(1);
            Some(Moment(id.start_ticks?.saturating_mul(1000) / per_second))
        };
        seen().or_else(started)
    }
}

/// The job of a scheduler, or the container, of a process: `slurm 4242`. `tmux` and `ssh` are none.
pub(super) fn scheduled(process: &Process) -> Option<&Text> {
    let origin = process.facts.origin.as_ref().ok()?;
    origin.as_str().contains(' ').then_some(origin)
}

#[cfg(test)]
mod tests;
