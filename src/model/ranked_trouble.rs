//! The troubles of a host, in the one order that the header, the tiles, the news and the alerts
//! use.

use std::time::Duration;

use super::health::{self, TroubleRank};
use super::{GpuOrProcess, HostModel, Verdict, VerdictKind};
use crate::protocol::snapshot::{Cause, Gpu, Missing, ProcessId, Snapshot, Trouble};

/// A trouble of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankedTrouble {
    pub(crate) rank: TroubleRank,
    /// The GPU or process in trouble; `None` for the driver or the host.
    pub(crate) subject: Option<GpuOrProcess>,
    /// Whether it concerns the user as whom the agent runs: a process of this user, or a GPU with
    /// one. Root owns everything.
    pub(crate) is_mine: bool,
    /// The likely time until memory is full; `None` where that is not known, and for other
    /// troubles.
    pub(crate) left: Option<Duration>,
}

impl HostModel {
    /// The troubles of the host, the most urgent first. Within a rank those of the user come first,
    /// then those that come soonest.
    pub(crate) fn troubles(&self) -> Vec<RankedTrouble> {
        let Some(snapshot) = self.latest() else {
            return Vec::new();
        };
        let mut troubles = Vec::new();
        if snapshot
            .driver
            .trouble
            .as_ref()
            .is_some_and(|trouble| trouble.cause == Cause::Hung)
        {
            troubles.push(RankedTrouble::of_driver());
        }
        // A MIG instance has the troubles of its GPU.
        for gpu in snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu.facts.parent.is_none())
        {
            if let Some(rank) = self.rank_of(gpu) {
                let subject = GpuOrProcess::Gpu(gpu.uuid.clone());
                troubles.push(RankedTrouble::new(rank, snapshot, subject, None));
            }
        }
        for growing in self.growing() {
            let rank = match () {
                () if growing.is_urgent() => TroubleRank::FullSoon,
                () if growing.is_leak() => TroubleRank::Leak,
                () => continue,
            };
            troubles.push(RankedTrouble::new(
                rank,
                snapshot,
                growing.subject.clone(),
                growing.left(),
            ));
        }
        let mut leftovers = self.leftovers().peekable();
        if leftovers.peek().is_some() {
            let is_mine = leftovers.any(|verdict| is_mine(snapshot, verdict.process));
            troubles.push(RankedTrouble {
                rank: TroubleRank::Leftover,
                subject: None,
                is_mine,
                left: None,
            });
        }
        troubles.sort_by_key(RankedTrouble::urgency);
        troubles
    }

    /// Whether a driver is installed on the host and does not run, so that no GPU is listed. A host
    /// without NVML may have none.
    pub(crate) fn has_broken_driver(&self) -> bool {
        let Some(snapshot) = self.latest() else {
            return false;
        };
        let is_broken = |trouble: &Trouble| {
            matches!(
                trouble.cause,
                Cause::NotLoading | Cause::NoDriver | Cause::Mismatch | Cause::Failed
            )
        };
        snapshot.gpus.is_empty() && snapshot.driver.trouble.as_ref().is_some_and(is_broken)
    }

    /// The verdicts on processes that are left on any GPU, as in [`Self::leftovers_on`].
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts()
            .iter()
            .filter(|verdict| is_left_on_gpu(verdict))
    }

    /// The verdicts on processes that are left on a GPU: the driver lists them there, or they have
    /// it open while it has unaccounted memory.
    pub(crate) fn leftovers_on<'a>(&'a self, gpu: &'a Gpu) -> impl Iterator<Item = &'a Verdict> {
        let holders = self
            .unaccounted()
            .iter()
            .find(|unaccounted| unaccounted.gpu == gpu.uuid)
            .map_or(&[][..], |unaccounted| &unaccounted.device_file_holders);
        self.verdicts().iter().filter(move |verdict| {
            let is_here =
                gpu.process(verdict.process).is_some() || holders.contains(&verdict.process);
            is_here && is_left_on_gpu(verdict)
        })
    }

    /// The kind of trouble that a GPU has; `None` if it has none.
    pub(crate) fn rank_of(&self, gpu: &Gpu) -> Option<TroubleRank> {
        match &gpu.trouble {
            Some(trouble) if trouble.is_starting() => None,
            Some(Trouble {
                cause: Cause::Reset,
                ..
            }) => Some(TroubleRank::HardwareError),
            // Where a call is refused, the GPU may be well.
            Some(trouble)
                if trouble.cause != Cause::Denied && !health::is_partial(gpu, trouble) =>
            {
                Some(TroubleRank::Lost)
            }
            _ => self.health(gpu).trouble,
        }
    }
}

impl RankedTrouble {
    /// No data comes from the host.
    pub(crate) fn of_silence() -> Self {
        Self::of_host(TroubleRank::Silent)
    }

    /// The driver of the host does not run, or does not answer.
    pub(crate) fn of_driver() -> Self {
        Self::of_host(TroubleRank::Lost)
    }

    fn of_host(rank: TroubleRank) -> Self {
        Self {
            rank,
            subject: None,
            is_mine: true,
            left: None,
        }
    }

    fn new(
        rank: TroubleRank,
        snapshot: &Snapshot,
        subject: GpuOrProcess,
        left: Option<Duration>,
    ) -> Self {
        let is_mine = match &subject {
            GpuOrProcess::Process(id) => is_mine(snapshot, *id),
            GpuOrProcess::Gpu(uuid) => snapshot.gpu(uuid).is_some_and(|gpu| {
                gpu.processes
                    .iter()
                    .any(|gpu_process| is_mine(snapshot, gpu_process.process))
            }),
        };
        Self {
            rank,
            subject: Some(subject),
            is_mine,
            left,
        }
    }

    /// The key by which troubles are sorted, the most urgent first.
    pub(crate) fn urgency(&self) -> (TroubleRank, bool, Duration) {
        (self.rank, !self.is_mine, self.left.unwrap_or(Duration::MAX))
    }
}

/// Whether a process is an orphan or has ended, and holds GPU memory.
fn is_left_on_gpu(verdict: &Verdict) -> bool {
    let has_kind = match verdict.kind {
        VerdictKind::Orphan(_)
        | VerdictKind::Ghost { .. }
        | VerdictKind::Dying { .. }
        | VerdictKind::StuckInDriver { .. } => true,
        // A zombie that the driver lists without memory holds none.
        VerdictKind::Zombie {
            has_gpu_answered, ..
        } => has_gpu_answered && matches!(verdict.listed, Some(Ok(total)) if total.bytes.0 > 0),
        VerdictKind::MaybeOrphan(_)
        | VerdictKind::Blocked { .. }
        | VerdictKind::Frozen { .. }
        | VerdictKind::Stopped { .. }
        | VerdictKind::Foreign { .. }
        | VerdictKind::Unreadable
        | VerdictKind::Idle { .. }
        | VerdictKind::WorkerOf(_)
        | VerdictKind::Launcher
        | VerdictKind::Active { .. }
        | VerdictKind::TooSoon => false,
    };
    has_kind && verdict.is_on_gpu()
}

/// Whether a process belongs to the user of the agent.
fn is_mine(snapshot: &Snapshot, process: ProcessId) -> bool {
    let agent = snapshot.host.facts.uid;
    let uid = snapshot
        .process(process)
        .map_or(Err(Missing::Gone), |process| process.facts.uid);
    agent == 0 || uid == Ok(agent)
}
