//! The memory that grows now, whatever its verdict: how fast, when it is full, and whether that is
//! urgent.

use std::time::Duration;

use super::{Evidence, LeakDetectors, LeakVerdict};
use crate::base::units::Bytes;
use crate::model::GpuOrProcess;
use crate::protocol::snapshot::{Gpu, Snapshot};

/// Memory that is full within this time is urgent.
const SOON: Duration = Duration::from_mins(15);

/// Memory stays urgent until it lasts longer than this: a forecast goes up and down a little.
const NO_LONGER_SOON: Duration = Duration::from_mins(19);

/// The longest time for which the growth of a process that has not computed is not urgent.
const LOADING_BEFORE_COMPUTING: Duration = Duration::from_mins(10);

/// The longest time for which growth is not urgent while the process reads from files what it puts
/// on the GPU.
const LOADING_FROM_FILES: Duration = Duration::from_mins(1);

/// Reading from files does not hide an end that is nearer than this.
const NEAR: Duration = Duration::from_mins(4);

/// The share of a GPU's memory in use from which on loading no longer hides that it will be full.
const ALMOST_FULL: f64 = 0.95;

/// A process or GPU whose memory grows now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Growing {
    pub(crate) subject: GpuOrProcess,
    /// Filling, suspect or leak.
    pub(crate) verdict: LeakVerdict,
    pub(crate) evidence: Evidence,
    /// Whether memory will be full within a quarter of an hour.
    pub(crate) is_soon: bool,
    /// Whether the process seems to load a model. It is not urgent then.
    pub(crate) is_loading: bool,
    /// The line of the leak that the probe reports, as in `train.py:41`.
    pub(crate) line: Option<String>,
    /// Why the probe judges worse than the figures alone; `None` where it does not.
    pub(crate) by_probe: Option<String>,
}

impl Growing {
    /// The likely time until memory is full; `None` where that cannot be predicted.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.evidence.forecast.map(|forecast| forecast.likely)
    }

    /// The reason for the verdict: that of the probe if its verdict is worse, else the figures.
    pub(crate) fn reason(&self) -> String {
        let by_probe = self.by_probe.clone();
        by_probe.unwrap_or_else(|| self.evidence.to_string())
    }

    /// Where growth levels off before memory is full; `None` unless that is known.
    pub(crate) fn calm_plateau(&self) -> Option<Bytes> {
        let plateau = self.evidence.plateau?;
        (self.verdict == LeakVerdict::Filling && !plateau.is_above_limit).then_some(plateau.likely)
    }

    /// Whether memory will soon be full, and the process does not merely load.
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_soon && !self.is_loading
    }

    /// Whether memory will be full within this time. A process that merely loads does not count, nor
    /// does an end that is near while memory does not rise.
    pub(crate) fn is_full_within(&self, time: Duration) -> bool {
        let is_rising = |left: Duration| self.is_soon || left > SOON;
        !self.is_loading
            && self
                .left()
                .is_some_and(|left| left <= time && is_rising(left))
    }

    /// Whether it is a leak. A process that has not computed yet does not leak.
    pub(crate) fn is_leak(&self) -> bool {
        self.verdict == LeakVerdict::Leak && !self.is_loading
    }

    /// Adds whether the growth is urgent, and whether it looks like loading. `grew` is what grew
    /// at the last snapshot. A growth that does not rise just now becomes no urgent one: it may
    /// have ended, as that of a load does.
    pub(in crate::model) fn with_urgency(
        mut self,
        rises: bool,
        grew: &[Self],
        detectors: &LeakDetectors,
        now: &Snapshot,
    ) -> Self {
        let last = grew.iter().find(|grew| grew.subject == self.subject);
        let was_urgent = last.is_some_and(Self::is_urgent);
        let was_soon = last.is_some_and(|last| last.is_soon);
        let limit = if was_soon { NO_LONGER_SOON } else { SOON };
        self.is_soon = self.left().is_some_and(|left| left <= limit);
        // The probe tells a leak from a model that is loaded.
        self.is_loading = self.by_probe.is_none() && self.looks_like_loading(detectors, now);
        if self.is_urgent() && !was_urgent && !rises {
            self.is_soon = false;
        }
        self
    }

    fn looks_like_loading(&self, detectors: &LeakDetectors, snapshot: &Snapshot) -> bool {
        let GpuOrProcess::Process(id) = self.subject else {
            return false;
        };
        let grown_for = snapshot.at.since(self.evidence.found);
        let mut gpus = snapshot.gpus.iter().filter(|gpu| gpu.process(id).is_some());
        let [mut has_not_computed, mut reads] = [true, true];
        for signs in detectors.loading(id) {
            has_not_computed &= signs.has_not_computed(snapshot.at);
            reads &= signs.reads_what_it_gains();
        }
        let is_near = self.left().is_some_and(|left| left < NEAR);
        has_not_computed && grown_for < LOADING_BEFORE_COMPUTING && !gpus.any(is_almost_full)
            || reads
                && grown_for < LOADING_FROM_FILES
                && !is_near
                && self.verdict != LeakVerdict::Leak
    }
}

fn is_almost_full(gpu: &Gpu) -> bool {
    let (used, total) = (gpu.load.memory_used.ok(), gpu.load.memory_total.ok());
    used.zip(total)
        .and_then(|(used, total)| used.share_of(total))
        .is_some_and(|share| share >= ALMOST_FULL)
}

#[cfg(test)]
mod tests;
