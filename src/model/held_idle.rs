//! GPUs that a process holds and nobody uses: no kernel ran and nothing moved over PCIe for half an
//! hour.
//!
//! A time without readings ends an idle time: nobody knows whether the GPU was used meanwhile. The
//! time after it is counted anew, as a lower bound.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::units::Moment;
use crate::protocol::snapshot::{Gpu, GpuProcess, Use};

/// The time after which a GPU that is held and idle counts as held idle.
pub(crate) const HELD_IDLE_AFTER: Duration = Duration::from_mins(30);

/// The longest time between two readings in which a GPU that is idle before and after counts as
/// idle.
const LONGEST_GAP: Duration = Duration::from_mins(1);

/// How long a GPU that a process holds has been idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldIdle {
    /// The GPU is in use, or no process holds it.
    No,
    /// The use of the multiprocessors or the traffic on the PCIe link is not known.
    Unknown,
    /// A process holds the GPU, which is idle.
    Since {
        since: Moment,
        /// Whether the GPU was seen in use just before. Otherwise it may have been idle for longer.
        was_seen: bool,
    },
}

/// The use of a GPU by its earlier readings.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct IdleRecord {
    /// Since when the GPU has been idle while a process held it; `None` while it is not.
    since: Option<Moment>,
    /// Whether the beginning was seen; without meaning where `since` is `None`.
    was_seen: bool,
    /// Whether a process holds the GPU, and its use is not known.
    is_unknown: bool,
    /// The latest reading at which the GPU was in use, or no process held it; `None` before the
    /// first. Older checkpoints do not have it.
    #[serde(default)]
    used_at: Option<Moment>,
    /// Since when no process has held the GPU, and whether the beginning was seen; `None` while one
    /// holds it, or that is not known. Older checkpoints do not have it.
    #[serde(default)]
    unheld: Option<(Moment, bool)>,
    /// The time of the latest reading.
    at: Moment,
}

impl IdleRecord {
    /// Adds the latest readings of the GPU. Readings that were added before change nothing.
    pub(super) fn add_readings(&mut self, gpu: &Gpu) {
        let at = gpu.load.at;
        if at <= self.at && self.at != Moment(0) {
            return;
        }
        let is_continued = self.at != Moment(0) && at.since(self.at) <= LONGEST_GAP;
        let use_of_gpu = if is_held(gpu) {
            Some(is_in_use(gpu))
        } else if gpu.missing.processes.is_none() {
            None
        } else {
            // Nobody knows whether a process holds it; one that computes does.
            Some(is_in_use(gpu).filter(|is_used| *is_used))
        };
        let unheld = use_of_gpu.is_none().then(|| {
            let was_held = is_continued && self.unheld.is_none() && !self.is_unknown;
            let before = self.unheld.filter(|_| is_continued);
            before.unwrap_or((at, was_held))
        });
        // The PCIe link of a GPU that was in use until now may not be read for some seconds.
        let was_used = self
            .used_at
            .is_some_and(|used| at.since(used) <= LONGEST_GAP);
        let (since, was_seen, used_at) = match use_of_gpu {
            // A process that comes to an idle GPU holds it from then on.
            None | Some(Some(true)) => (None, false, Some(at)),
            Some(Some(false)) => match self.since.filter(|_| is_continued) {
                Some(since) => (Some(since), self.was_seen, self.used_at),
                None => (Some(at), was_used, self.used_at),
            },
            Some(None) => (None, false, self.used_at),
        };
        *self = Self {
            since,
            was_seen,
            is_unknown: use_of_gpu == Some(None),
            used_at,
            unheld,
            at,
        };
    }

    /// Since when no process has held the GPU, and whether the beginning was seen; `None` while one
    /// holds it, or that is not known.
    pub(super) fn unheld_since(&self) -> Option<(Moment, bool)> {
        self.unheld
    }

    pub(super) fn held_idle(&self) -> HeldIdle {
        match self.since {
            _ if self.is_unknown => HeldIdle::Unknown,
            Some(since) => HeldIdle::Since {
                since,
                was_seen: self.was_seen,
            },
            None => HeldIdle::No,
        }
    }
}

/// Whether a process computes on the GPU or may do so: one that draws the screen does not count.
fn is_held(gpu: &Gpu) -> bool {
    gpu.processes.iter().any(computes)
}

/// Whether a process computes on a GPU or may do so.
pub(super) fn computes(process: &GpuProcess) -> bool {
    process.usage != Use::Graphics
}

/// Whether a kernel ran or data moved; `None` where either is not known and the other shows no use.
fn is_in_use(gpu: &Gpu) -> Option<bool> {
    let computes = gpu.load.sm.ok().map(|sm| sm.value() > 0.0);
    let moves = gpu.health.pcie_quiet.ok().map(|is_quiet| !is_quiet);
    match (computes, moves) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        (None, _) | (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Percent};
    use crate::protocol::snapshot::Missing;
    use crate::protocol::snapshot::example::host;

    /// The record after readings, each with its second, its use in percent and whether the PCIe
    /// link was quiet.
    fn after(readings: &[(u64, Option<f32>, Option<bool>)]) -> HeldIdle {
        let mut record = IdleRecord::default();
        let mut gpu = host(1)
            .with(7, "jupyter", 0, Bytes::from_gib(9))
            .gpus
            .remove(0);
        for (second, sm, is_quiet) in readings {
            gpu.load.at = Moment(second * 1000);
            gpu.load.sm = sm.map(Percent::new).ok_or(Missing::Failed);
            gpu.health.pcie_quiet = is_quiet.ok_or(Missing::Unsupported);
            record.add_readings(&gpu);
        }
        record.held_idle()
    }

    fn since(second: u64, was_seen: bool) -> HeldIdle {
        HeldIdle::Since {
            since: Moment(second * 1000),
            was_seen,
        }
    }

    #[test]
    fn a_gpu_is_held_idle_from_its_first_reading_without_use_on() {
        let idle = |second| (second, Some(0.0), Some(true));
        assert_eq!(after(&[idle(1), idle(2)]), since(1, false));
        let used = (1, Some(3.0), Some(true));
        assert_eq!(after(&[used, idle(2), idle(50)]), since(2, true));
        let copies = (2, Some(0.0), Some(false));
        assert_eq!(after(&[idle(1), copies]), HeldIdle::No);
        assert_eq!(after(&[idle(1), copies, idle(3)]), since(3, true));
    }

    #[test]
    fn without_both_readings_nobody_says_that_a_gpu_is_idle() {
        let idle = |second| (second, Some(0.0), Some(true));
        assert_eq!(after(&[(1, Some(0.0), None)]), HeldIdle::Unknown);
        assert_eq!(after(&[(1, None, Some(true))]), HeldIdle::Unknown);
        // It may have been used meanwhile.
        assert_eq!(
            after(&[idle(1), (2, None, Some(true)), idle(3)]),
            since(3, false)
        );
        // A GPU that was in use a moment ago was idle from then on at the latest.
        let used = (1, Some(3.0), Some(true));
        assert_eq!(
            after(&[used, (2, Some(0.0), None), idle(12)]),
            since(12, true)
        );
        let unknown = |second| (second, Some(0.0), None);
        let long = [used, unknown(31), unknown(61), idle(62)];
        assert_eq!(after(&long), since(62, false));
        // Either shows that it is used.
        assert_eq!(after(&[(1, Some(9.0), None)]), HeldIdle::No);
        assert_eq!(after(&[(1, None, Some(false))]), HeldIdle::No);
    }

    #[test]
    fn a_time_without_readings_is_no_idle_time() {
        let idle = |second| (second, Some(0.0), Some(true));
        assert_eq!(after(&[idle(1), idle(61)]), since(1, false));
        assert_eq!(after(&[idle(1), idle(62)]), since(62, false));
    }

    #[test]
    fn a_gpu_is_unheld_since_its_last_process_ended_while_its_processes_are_known() {
        let mut record = IdleRecord::default();
        let held = host(1)
            .with(7, "jupyter", 0, Bytes::from_gib(9))
            .gpus
            .remove(0);
        let free = host(1).gpus.remove(0);
        let mut add = |second: u64, gpu: &Gpu, missing| {
            let mut gpu = gpu.clone();
            gpu.load.at = Moment(second * 1000);
            (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(0.0)), Ok(true));
            gpu.missing.processes = missing;
            record.add_readings(&gpu);
            record
                .unheld_since()
                .map(|(since, was_seen)| (since.0 / 1000, was_seen))
        };
        assert_eq!(add(1, &held, None), None);
        assert_eq!(add(2, &free, None), Some((2, true)));
        assert_eq!(add(50, &free, None), Some((2, true)));
        assert_eq!(add(51, &free, Some(Missing::Denied)), None);
        assert_eq!(add(52, &free, None), Some((52, false)));
        // Nobody read for a while.
        assert_eq!(add(200, &free, None), Some((200, false)));
    }

    #[test]
    fn a_gpu_without_a_process_is_not_held() {
        let mut record = IdleRecord::default();
        let mut gpu = host(1).gpus.remove(0);
        (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(0.0)), Ok(true));
        record.add_readings(&gpu);
        assert_eq!(record.held_idle(), HeldIdle::No);
        assert_eq!(record.unheld_since(), Some((gpu.load.at, false)));
    }
}
