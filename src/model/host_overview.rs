//! One host in one line: the state of each GPU, what is free, and who uses the rest.

use std::collections::BTreeMap;

use super::HostModel;
use super::growth::Growing;
use super::health::TroubleRank;
use super::identity::GpuOrProcess;
use super::idle_holds::{GpuTime, HeldGpus, scheduled};
use super::process_total::Total;
use super::unaccounted;
use super::user_hues::UserHue;
use crate::base::text::Text;
use crate::base::units::Percent;
use crate::protocol::snapshot::{Gpu, GpuUuid, Missing, Reading, Snapshot, Use};

/// The share of its memory above which a GPU counts as nearly full.
const NEARLY_FULL: f64 = 0.9;

/// The state of a GPU that one cell shows. The first that applies counts, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum GpuState {
    /// The GPU is lost, hangs, or has a hardware error.
    Sick,
    /// The memory in use or the processes are not known, or the figures are old.
    Unknown,
    /// Its memory, or that of a process on it, leaks.
    Leak,
    /// A process that should not hold memory there does: an orphan, or one that has ended.
    Orphan,
    /// A process holds the GPU, and nobody has used it for half an hour.
    HeldIdle,
    /// More than 90 % of the memory is in use.
    NearlyFull,
    /// In use.
    Busy,
    /// No process computes on it, and its memory is free.
    Free,
}

impl GpuState {
    /// Whether something uses or holds the GPU.
    pub(crate) fn is_busy(self) -> bool {
        matches!(
            self,
            Self::Leak | Self::Orphan | Self::HeldIdle | Self::NearlyFull | Self::Busy
        )
    }
}

/// A whole GPU. A split one has the processes and the worst state of its MIG instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuOverview {
    pub(crate) uuid: GpuUuid,
    pub(crate) state: GpuState,
    /// The hue of the user with the most memory on it; `None` without one.
    pub(crate) hue: Option<UserHue>,
}

/// A host in one line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostOverview {
    /// The whole GPUs, in the order of the driver.
    pub(crate) gpus: Vec<GpuOverview>,
    pub(crate) memory_used: Reading<Total>,
    pub(crate) memory_total: Reading<Total>,
    /// The mean use of the multiprocessors, of the GPUs where it is known; `None` where it is known
    /// of none.
    pub(crate) sm: Option<Percent>,
    /// The power in watts of the GPUs where it is known; `None` where it is known of none.
    pub(crate) power: Option<f32>,
    /// The users of GPUs, each with the number of GPUs; the most first.
    pub(crate) users: Vec<(Text, usize)>,
    /// The jobs of schedulers and the containers on GPUs, each with its user and the number of GPUs:
    /// `slurm 4242`.
    pub(crate) jobs: Vec<JobOverview>,
    pub(crate) held: Vec<HeldGpus>,
    /// The GPUs that are held idle times the time, each GPU once.
    pub(crate) held_time: GpuTime,
}

/// A job of a scheduler, or a container, on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobOverview {
    /// `slurm 4242`.
    pub(crate) origin: Text,
    pub(crate) user: Option<Text>,
    pub(crate) gpus: usize,
}

impl HostOverview {
    /// The number of GPUs in this state.
    pub(crate) fn count(&self, state: GpuState) -> usize {
        self.gpus.iter().filter(|gpu| gpu.state == state).count()
    }
}

/// A whole GPU, and the MIG instances that it is split into.
struct WholeGpu<'a> {
    gpu: &'a Gpu,
    parts: Vec<&'a Gpu>,
}

impl<'a> WholeGpu<'a> {
    fn all_of(snapshot: &'a Snapshot) -> Vec<Self> {
        let is_whole = |gpu: &&Gpu| gpu.facts.parent.is_none();
        let whole = |gpu: &'a Gpu| Self {
            gpu,
            parts: snapshot
                .gpus
                .iter()
                .filter(|part| part.facts.parent.as_ref() == Some(&gpu.uuid))
                .collect(),
        };
        snapshot.gpus.iter().filter(is_whole).map(whole).collect()
    }

    fn with_parts(&self) -> impl Iterator<Item = &'a Gpu> + Clone {
        std::iter::once(self.gpu).chain(self.parts.clone())
    }

    /// The GPUs that processes can be on: the instances of a split GPU, else the GPU.
    fn usable(&self) -> Vec<&'a Gpu> {
        if self.parts.is_empty() {
            vec![self.gpu]
        } else {
            self.parts.clone()
        }
    }
}

impl HostModel {
    /// Returns the host in one line; `None` before its first line.
    pub(crate) fn overview(&self) -> Option<HostOverview> {
        let snapshot = self.latest()?;
        let whole = WholeGpu::all_of(snapshot);
        let mut users: BTreeMap<&Text, usize> = BTreeMap::new();
        let mut jobs: BTreeMap<&Text, JobOverview> = BTreeMap::new();
        let leaking = self.leaking_places();
        let mut gpus = Vec::with_capacity(whole.len());
        for gpu in &whole {
            let (mut of_gpu, mut origins): (Vec<(&Text, u64)>, Vec<&Text>) = Default::default();
            for listed in gpu.with_parts().flat_map(|part| &part.processes) {
                let Some(process) = snapshot
                    .process(listed.process)
                    .filter(|_| listed.usage != Use::Graphics)
                else {
                    continue;
                };
                let user = process.facts.user.as_ref().ok();
                let memory = listed.memory.map_or(0, |memory| memory.0);
                if let Some(name) = user {
                    match of_gpu.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, sum)) => *sum = sum.saturating_add(memory),
                        None => of_gpu.push((name, memory)),
                    }
                }
                if let Some(origin) = scheduled(process)
                    && !origins.contains(&origin)
                {
                    origins.push(origin);
                    let job = jobs.entry(origin).or_insert_with(|| JobOverview {
                        origin: origin.clone(),
                        user: user.cloned(),
                        gpus: 0,
                    });
                    job.gpus += 1;
                }
            }
            for (user, _) in &of_gpu {
                *users.entry(user).or_default() += 1;
            }
            let first = of_gpu.iter().max_by_key(|(_, memory)| *memory);
            gpus.push(GpuOverview {
                uuid: gpu.gpu.uuid.clone(),
                state: self.state_of(gpu, &leaking),
                hue: first.and_then(|(name, _)| self.user_hue(name)),
            });
        }
        let mut users: Vec<(Text, usize)> = users
            .into_iter()
            .map(|(name, count)| (name.clone(), count))
            .collect();
        users.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut jobs: Vec<JobOverview> = jobs.into_values().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.gpus));
        let whole = || whole.iter().map(|gpu| gpu.gpu);
        let holds = self.idle_holds();
        Some(HostOverview {
            gpus,
            memory_used: Total::sum_bytes(whole().map(|gpu| gpu.load.memory_used)),
            memory_total: Total::sum_bytes(whole().map(|gpu| gpu.load.memory_total)),
            sm: mean(whole().filter_map(|gpu| Some(gpu.load.sm.ok()?.value()))),
            power: whole()
                .filter_map(|gpu| Some(gpu.load.power.ok()?.value()))
                .reduce(|sum, watts| sum + watts),
            users,
            jobs,
            held: HeldGpus::by_user(&holds, self.now()),
            held_time: GpuTime::of(holds.iter(), self.now()),
        })
    }

    /// Whether no process computes on a GPU, also none that the driver does not list, and no
    /// unaccounted memory is left there. A GPU that does not answer, or of which little was read
    /// yet, is not free. A GPU without memory of its own is judged by its processes.
    pub(crate) fn is_free(&self, gpu: &Gpu) -> bool {
        gpu.trouble.is_none()
            && gpu.missing.processes.is_none()
            && (gpu.load.memory_used.is_ok() || gpu.shared_memory.is_some())
            && gpu
                .processes
                .iter()
                .all(|process| process.usage == Use::Graphics)
            && gpu.load.sm != Err(Missing::NotYet)
            && !is_busy_without_process(gpu)
            && self
                .unaccounted()
                .iter()
                .all(|unaccounted| unaccounted.gpu != gpu.uuid)
    }

    /// The places of the GPUs whose memory leaks, or that of a process on them.
    fn leaking_places(&self) -> Vec<usize> {
        let Some(snapshot) = self.latest() else {
            return Vec::new();
        };
        let leaks = self.growing().iter().filter(|growing| growing.is_leak());
        let places = leaks.flat_map(|Growing { subject, .. }| match subject {
            GpuOrProcess::Gpu(uuid) => snapshot
                .gpus
                .iter()
                .position(|gpu| gpu.uuid == *uuid)
                .into_iter()
                .collect(),
            GpuOrProcess::Process(id) => self
                .process_total(*id)
                .map_or_else(Vec::new, |total| total.gpus.clone()),
        });
        places.collect()
    }

    fn state_of(&self, whole: &WholeGpu<'_>, leaking: &[usize]) -> GpuState {
        let gpu = whole.gpu;
        if matches!(
            self.rank_of(gpu),
            Some(TroubleRank::Lost | TroubleRank::HardwareError)
        ) {
            return GpuState::Sick;
        }
        let usable = whole.usable();
        let is_known = |gpu: &&Gpu| {
            let has_memory = gpu.load.memory_used.is_ok() || gpu.shared_memory.is_some();
            has_memory && gpu.load.sm != Err(Missing::NotYet) || !gpu.processes.is_empty()
        };
        if self.age(gpu).is_some() || !usable.iter().all(is_known) {
            return GpuState::Unknown;
        }
        let snapshot = self.latest();
        let leaks = |gpu: &&Gpu| {
            leaking.iter().any(|place| {
                snapshot.is_some_and(|snapshot| {
                    snapshot
                        .gpus
                        .get(*place)
                        .is_some_and(|leaking| leaking.uuid == gpu.uuid)
                })
            })
        };
        let share = |gpu: &Gpu| {
            gpu.load
                .memory_used
                .ok()?
                .share_of(gpu.load.memory_total.ok()?)
        };
        let is_full = |gpu: &&Gpu| share(gpu).is_some_and(|share| share > NEARLY_FULL);
        let holds_idle = usable.iter().any(|gpu| self.is_held_idle(gpu));
        // Without the processes, memory in use shows that a GPU is not free, and nothing shows that
        // it is.
        let is_unlisted = |gpu: &&Gpu| {
            gpu.missing.processes.is_some()
                && gpu.load.memory_used.ok() <= unaccounted::idle_memory(gpu)
        };
        match () {
            () if whole.with_parts().any(|gpu| leaks(&gpu)) => GpuState::Leak,
            () if usable
                .iter()
                .any(|gpu| self.leftovers_on(gpu).next().is_some()) =>
            {
                GpuState::Orphan
            }
            () if holds_idle => GpuState::HeldIdle,
            () if usable.iter().any(is_full) => GpuState::NearlyFull,
            () if usable.iter().all(|gpu| self.is_free(gpu)) => GpuState::Free,
            () if usable.iter().all(is_unlisted) => GpuState::Unknown,
            () => GpuState::Busy,
        }
    }
}

fn mean(values: impl Iterator<Item = f32>) -> Option<Percent> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| Percent::new(sum / count))
}

/// Whether the GPU computes although the driver lists no process for it. `false` where the list of
/// processes may be incomplete, beside graphics processes, whose use this may be, and for a GPU
/// whose instances have the processes.
pub(crate) fn is_busy_without_process(gpu: &Gpu) -> bool {
    gpu.trouble.is_none()
        && gpu.missing.processes.is_none()
        && gpu.health.mig != Ok(true)
        && gpu.processes.is_empty()
        && computes(gpu)
}

/// Whether kernels run on the GPU for a part of the time that is worth a word. After the end of a
/// process, or the start of the driver, the use stays high for a second.
pub(crate) fn computes(gpu: &Gpu) -> bool {
    const BUSY: f32 = 10.0;
    gpu.load.sm.is_ok_and(|sm| sm.value() >= BUSY)
}

#[cfg(test)]
mod tests;
