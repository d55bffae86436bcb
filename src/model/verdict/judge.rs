//! Judges processes by these rules, in this order; the first that applies gives the verdict.
//! 1. The driver's PID is not in `/proc`: *foreign* when it belongs to another PID namespace, else
//!    *ghost*.
//! 2. Ended: *zombie* with one thread, or *ghost* when the driver still lists it after
//!    [`GHOST_AFTER`]; with more threads *stuck* when one of them waits in the kernel, else *dying*
//!    where it has memory or takes [`DYING_AFTER`].
//! 3. Frozen with its control group: *frozen*. In the kernel, where signals have no effect, for
//!    [`BLOCKED_AFTER`]: *stuck* in the driver, else *blocked*.
//! 4. and 5. Left behind ([`orphan`]): *orphan*, or *orphan?*. Between the two: a process that a
//!    signal stopped is *stopped*: a stopped process cannot show whether it is needed. Then: a
//!    launcher or helper is a *launcher*, and a process that works for a living one is its *worker*.
//! 6. A notebook, or more than [`IDLE_MEMORY`] held, and no computation for [`IDLE_AFTER`]: *idle*.
//!    Until then *too soon*, unless the process was seen to compute.
//! 7. Otherwise *active*.

use std::time::Duration;

use super::orphan::{self, GpuUse, OrphanJudge};
use super::process_records::{Activity, ProcessRecord, ProcessView, use_of_gpus};
use super::{RetainedMemory, Verdict, VerdictKind};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::process_role::ProcessRole;
use crate::model::{ProcessTotal, UnaccountedMemory};
use crate::protocol::snapshot::{Gpu, Identity, Missing, Process, ProcessId, State, Use};

/// The time in the kernel after which a process is blocked. A healthy driver returns sooner.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_secs(10);

/// The time after which an ended process that the driver still lists is a ghost. The driver forgets
/// an ended process at once, unless another process keeps its memory.
pub(super) const GHOST_AFTER: Duration = Duration::from_secs(3);

/// The time after which a process without listed memory, whose main thread has ended, is dying. A
/// process with many threads takes a moment to exit.
pub(super) const DYING_AFTER: Duration = GHOST_AFTER;

/// The time without computation after which a process is idle: longer than a short break of its
/// user.
pub(super) const IDLE_AFTER: Duration = Duration::from_mins(10);

/// The memory above which an idle process matters. A CUDA context alone takes less.
pub(super) const IDLE_MEMORY: Bytes = Bytes(500 << 20);

/// Replaces the verdicts with those on the processes of the snapshot, in its order. Reuses the
/// memory of the old verdicts.
pub(in crate::model) fn judge(
    verdicts: &mut Vec<Verdict>,
    view: ProcessView<'_>,
    process_totals: &[ProcessTotal],
    unaccounted: &[UnaccountedMemory],
) {
    let unlisted: Vec<Vec<usize>> = view
        .snapshot
        .gpus
        .iter()
        .map(|gpu| unlisted_holders(view, gpu))
        .collect();
    let mut open = vec![Vec::new(); view.snapshot.processes.len()];
    for (gpu, holders) in unlisted.iter().enumerate() {
        for holder in holders {
            open[*holder].push(gpu);
        }
    }
    let mut held = process_totals.iter().peekable();
    let uses = view
        .snapshot
        .processes
        .iter()
        .zip(&open)
        .map(|(process, open)| {
            let is_listed = held.next_if(|total| total.process == process.id).is_some();
            GpuUse {
                is_listed,
                is_on_gpu: is_listed || !open.is_empty(),
            }
        });
    let mut orphans = OrphanJudge::new(view, uses.collect());
    let mut held = process_totals.iter().peekable();
    let judged = view
        .snapshot
        .processes
        .iter()
        .enumerate()
        .map(|(at, process)| {
            let process_total = held.next_if(|total| total.process == process.id);
            let open = std::mem::take(&mut open[at]);
            let kind = view.kind(at, process, process_total, || orphans.judge(at), &unlisted);
            Verdict {
                process: process.id,
                undecided_for: view.undecided_for(at, process, &kind, || orphans.judge(at)),
                kind,
                listed: process_total.map(|total| total.memory),
                open,
                kept: Vec::new(),
                rss: process.load.rss,
            }
        });
    verdicts.clear();
    verdicts.reserve_exact(judged.len());
    verdicts.extend(judged);
    attribute(verdicts, view, unaccounted);
}

/// Returns the indices of the processes that have a GPU open without being listed for it, sorted.
fn unlisted_holders(view: ProcessView<'_>, gpu: &Gpu) -> Vec<usize> {
    let mut holders: Vec<usize> = gpu
        .unlisted_holders()
        .into_iter()
        .filter_map(|holder| view.tree.place(holder))
        .collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

impl ProcessView<'_> {
    /// Judges one process. `unlisted` are the processes that have each GPU open without being
    /// listed.
    fn kind(
        self,
        place: usize,
        process: &Process,
        process_total: Option<&ProcessTotal>,
        orphan: impl FnOnce() -> Option<VerdictKind>,
        unlisted: &[Vec<usize>],
    ) -> VerdictKind {
        let record = self.record(place);
        // Computed only for ghosts.
        let keepers = || {
            let gpus = process_total.iter().flat_map(|total| &total.gpus);
            orphan::likely_holders(
                self,
                process.id,
                gpus.flat_map(|gpu| &unlisted[*gpu]).copied().collect(),
            )
        };
        if let Some(kind) = self
            .absent(process, process_total, keepers)
            .or_else(|| self.ended(place, process, process_total, keepers))
            .or_else(|| {
                process
                    .facts
                    .frozen_by
                    .clone()
                    .ok()
                    .map(|by| VerdictKind::Frozen { by })
            })
            .or_else(|| self.out_of_reach(process, record))
        {
            return kind;
        }
        let orphan = orphan();
        if matches!(orphan, Some(VerdictKind::Orphan(_) | VerdictKind::TooSoon)) {
            return orphan.unwrap_or(VerdictKind::TooSoon);
        }
        if let Ok(state @ (State::Stopped | State::Traced)) = process.load.state {
            return VerdictKind::Stopped {
                traced: state == State::Traced,
            };
        }
        orphan
            .or_else(|| self.launcher_or_worker(place, record))
            .or_else(|| self.idle(process, record, process_total))
            .unwrap_or_else(|| VerdictKind::Active {
                trainer: process.facts.trainer_threads == Ok(true),
            })
    }

    /// Returns the time for which it has been open whether the process is an orphan, has ended or
    /// is stuck.
    fn undecided_for(
        self,
        place: usize,
        process: &Process,
        kind: &VerdictKind,
        orphan: impl FnOnce() -> Option<VerdictKind>,
    ) -> Option<Duration> {
        let record = self.record(place);
        let is_undecided = match kind {
            // The driver, or the parent, may have been about to forget the process.
            VerdictKind::Zombie { .. } | VerdictKind::Ghost { .. } => {
                record.dead_since == Some(self.snapshot.at)
            }
            VerdictKind::TooSoon if process.id.start_ticks.is_none() => true,
            VerdictKind::TooSoon if process.load.state == Err(Missing::Gone) => true,
            VerdictKind::TooSoon
                if record.activity == Activity::Unknown || process.awaits_arguments() =>
            {
                matches!(orphan(), Some(VerdictKind::TooSoon))
            }
            VerdictKind::WorkerOf(_)
            | VerdictKind::Launcher
            | VerdictKind::Active { .. }
            | VerdictKind::TooSoon => {
                // A process that has computed was not stuck until then.
                let since = record.blocked_since?.max(record.quiet_since?);
                return Some(self.snapshot.at.since(since));
            }
            _ => false,
        };
        is_undecided.then_some(Duration::ZERO)
    }

    /// Applies rule 1: the process is not visible here.
    fn absent(
        self,
        process: &Process,
        process_total: Option<&ProcessTotal>,
        keepers: impl Fn() -> Vec<ProcessId>,
    ) -> Option<VerdictKind> {
        if process.id.start_ticks.is_some() {
            // A local process with a PID that the driver reported for a process of another
            // namespace.
            let is_stranger =
                process.facts.identity == Identity::Unverified && process_total.is_some();
            return is_stranger.then_some(VerdictKind::Foreign { hidden: false });
        }
        Some(match process.load.state.err() {
            // A process that was seen here is not in another namespace.
            Some(Missing::Unsupported) if self.records.ended_process(process.id.pid).is_none() => {
                VerdictKind::Foreign { hidden: false }
            }
            Some(Missing::Denied) => VerdictKind::Foreign { hidden: true },
            Some(Missing::NotYet) => VerdictKind::TooSoon,
            // The process may live.
            Some(Missing::Failed) => VerdictKind::Unreadable,
            _ => VerdictKind::Ghost {
                was: self
                    .records
                    .ended_process(process.id.pid)
                    .map(|ended| ended.known.clone()),
                keepers: keepers(),
            },
        })
    }

    /// Applies rule 2: the process has ended. It is too soon to tell while the driver was not asked
    /// since.
    fn ended(
        self,
        place: usize,
        process: &Process,
        process_total: Option<&ProcessTotal>,
        keepers: impl Fn() -> Vec<ProcessId>,
    ) -> Option<VerdictKind> {
        if process.load.state == Err(Missing::Gone) {
            return Some(VerdictKind::TooSoon);
        }
        if !process.has_main_thread_ended() {
            return None;
        }
        let threads = process.load.threads.unwrap_or(1);
        let state = process.load.state;
        let record = self.record(place);
        let is_dead_for = |span: Duration| {
            record
                .dead_since
                .is_some_and(|since| self.snapshot.at.since(since) >= span)
        };
        let is_listed = process_total
            .is_some_and(|total| total.memory.is_ok_and(|bytes| bytes.bytes > Bytes(0)));
        let answers = |gpu: &usize| {
            let gpu = self.snapshot.gpus.get(*gpu);
            gpu.is_some_and(|gpu| gpu.missing.processes.is_none())
        };
        let has_gpu_answered = process_total.is_none_or(|total| total.gpus.iter().any(answers));
        Some(
            if threads <= 1 && is_listed && has_gpu_answered && is_dead_for(GHOST_AFTER) {
                VerdictKind::Ghost {
                    was: Some(record.known.clone()),
                    keepers: keepers(),
                }
            } else if threads <= 1 {
                VerdictKind::Zombie {
                    parent: self
                        .tree
                        .parent_of(place)
                        .map(|parent| self.record(parent).known.clone()),
                    has_gpu_answered,
                }
            } else if state == Ok(State::DiskSleep) || process.load.wchan.is_ok() {
                VerdictKind::StuckInDriver {
                    wchan: process.load.wchan.clone().ok(),
                    span: self.blocked(record),
                }
            } else if !is_listed && !is_dead_for(DYING_AFTER) {
                VerdictKind::TooSoon
            } else {
                VerdictKind::Dying {
                    threads: threads - 1,
                }
            },
        )
    }

    /// Applies the second part of rule 3: signals have no effect on the process.
    fn out_of_reach(self, process: &Process, record: &ProcessRecord) -> Option<VerdictKind> {
        let span = self.blocked(record);
        (span >= BLOCKED_AFTER).then(|| {
            let wchan = process.load.wchan.clone().ok();
            if wchan.as_ref().is_some_and(is_driver) {
                VerdictKind::StuckInDriver { wchan, span }
            } else {
                VerdictKind::Blocked { wchan, span }
            }
        })
    }

    fn blocked(self, record: &ProcessRecord) -> Duration {
        record
            .blocked_since
            .map_or(Duration::ZERO, |since| self.snapshot.at.since(since))
    }

    /// Applies the end of rules 4 and 5, where the process shows no sign of an orphan: a launcher,
    /// or a worker whose starter lives.
    fn launcher_or_worker(self, place: usize, record: &ProcessRecord) -> Option<VerdictKind> {
        if matches!(record.role, ProcessRole::Launcher | ProcessRole::Helper) && !record.forked {
            return Some(VerdictKind::Launcher);
        }
        let starter = orphan::starter(self, place).filter(|_| orphan::serves(record))?;
        if self.role(starter).is_outside_jobs() {
            return None;
        }
        Some(VerdictKind::WorkerOf(self.record(starter).known.clone()))
    }

    /// Applies rule 6: the process has not computed for long.
    fn idle(
        self,
        process: &Process,
        record: &ProcessRecord,
        process_total: Option<&ProcessTotal>,
    ) -> Option<VerdictKind> {
        let process_total = process_total?;
        if record.activity == Activity::Unknown {
            let is_coming = process.load.cpu == Err(Missing::NotYet)
                || process_total.sm == Err(Missing::NotYet);
            return is_coming.then_some(VerdictKind::TooSoon);
        }
        // A program that draws the screen waits most of the time.
        let gpus = self.snapshot.gpus_at(&process_total.gpus);
        let mut mine = gpus.filter_map(|gpu| gpu.process(process.id));
        if mine.all(|gpu_process| gpu_process.usage == Use::Graphics) {
            return None;
        }
        let notebook = record.role == ProcessRole::Notebook;
        let is_much = process_total
            .memory
            .is_ok_and(|total| total.bytes > IDLE_MEMORY);
        let rests = use_of_gpus(process_total, self.snapshot).is_ok_and(|sm| sm.value() <= 0.0);
        let span = self.snapshot.at.since(
            record
                .quiet_since
                .filter(|_| rests && (notebook || is_much))?,
        );
        match () {
            () if span >= IDLE_AFTER => Some(VerdictKind::Idle { span, notebook }),
            () if !record.computed => Some(VerdictKind::TooSoon),
            () => None,
        }
    }
}

/// Whether a kernel function belongs to the driver.
fn is_driver(wchan: &Text) -> bool {
    ["nv", "_nv", "uvm_", "rm_", "os_acquire", "os_wait"]
        .iter()
        .any(|prefix| wchan.as_str().starts_with(prefix))
}

/// Attributes the memory of ghosts, and unaccounted memory, to the orphans that may keep it.
fn attribute(verdicts: &mut [Verdict], view: ProcessView<'_>, unaccounted: &[UnaccountedMemory]) {
    let mut pools = Vec::new();
    let is_orphan = |at: &usize| verdicts[*at].is_orphan();
    let orphans = |holders: &[ProcessId]| -> Vec<usize> {
        holders
            .iter()
            .filter_map(|holder| view.tree.place(*holder))
            .filter(is_orphan)
            .collect()
    };
    for verdict in &*verdicts {
        let VerdictKind::Ghost { keepers, .. } = &verdict.kind else {
            continue;
        };
        for (gpu_at, gpu) in view.snapshot.gpus.iter().enumerate() {
            if let Some(memory) = gpu
                .process(verdict.process)
                .and_then(|gpu_process| gpu_process.memory.ok())
            {
                let mut holders = orphans(keepers);
                holders.retain(|at| verdicts[*at].open.contains(&gpu_at));
                pools.push((gpu_at, Some(verdict.process), memory, holders));
            }
        }
    }
    for pool in unaccounted {
        let Some(gpu) = view
            .snapshot
            .gpus
            .iter()
            .position(|gpu| gpu.uuid == pool.gpu)
        else {
            continue;
        };
        pools.push((gpu, None, pool.memory, orphans(&pool.device_file_holders)));
    }
    for (gpu, ghost, memory, holders) in pools {
        for at in &holders {
            verdicts[*at].kept.push(RetainedMemory {
                gpu,
                ghost,
                memory,
                holders: holders.len(),
            });
        }
    }
}
