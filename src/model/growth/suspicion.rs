//! A growth under suspicion: how it goes on, and how long it may pause.

use super::trend::Trend;
use super::{Evidence, LONGEST_WAIT_OF_SUSPECT, RISE_CREDIT, kib, millis, seconds};
use crate::base::units::Moment;

/// A leak that stopped and may resume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StoppedLeak {
    /// When the leak began.
    pub(super) began: Moment,
    /// When it stopped.
    pub(super) at: Moment,
    /// The longest rest before, in seconds.
    pub(super) longest: f64,
}

/// A growth that may be a leak, or is one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Suspicion {
    pub(super) trend: Trend,
    pub(super) since: Moment,
    /// The longest time in seconds for which it stopped before it resumed.
    pub(super) longest_rest: f64,
    pub(super) is_leak: bool,
    /// The KiB of the floor in the first third of the growth.
    pub(super) base: f64,
    /// The highest amount so far, in KiB.
    pub(super) top: u32,
    pub(super) last_rise: Moment,
    /// The longest time between two new maxima of late, in seconds.
    pub(super) longest_pause: f64,
    /// The seconds in which the growth makes up for the swings above its floor. A sawtooth may go that long without a
    /// new maximum.
    pub(super) sawtooth_period: f64,
    /// The time until which the floor is known to rise.
    pub(super) rises_until: Moment,
    pub(super) evidence: Evidence,
}

impl Suspicion {
    /// Notes a new maximum. `seen` is the time until which there was none.
    pub(super) fn rise(&mut self, at: Moment, kib: u32, seen: Moment) {
        // After a growth has stopped, its maximum still rises by chance, a little and ever less. A rise far below the
        // expected one therefore counts only in part.
        let rate = self.evidence.rate.0 / 1024.0;
        let paid = if rate > 0.0 { RISE_CREDIT * f64::from(kib - self.top) / rate } else { f64::INFINITY };
        // A rise while nothing was read is no pause.
        let gap = seconds(self.last_rise, seen.min(at)).min(paid);
        self.longest_pause = (self.longest_pause * libm::exp(-gap / (8.0 * self.longest_pause.max(1.0)))).max(gap);
        self.last_rise = if gap < paid { at } else { Moment(self.last_rise.0 + millis(gap)).min(at) };
        self.top = kib;
    }

    /// Returns the KiB that a stopped leak must gain to resume: a tenth of its gain, or its gain in two minutes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and less than a GPU has")]
    pub(super) fn resumption(&self) -> u32 {
        (kib(self.evidence.gained) / 10.0).min(self.evidence.rate.0.max(0.0) / 1024.0 * 120.0) as u32
    }

    /// Returns the seconds without a new maximum after which the growth has stopped.
    pub(super) fn patience(&self, interval: f64) -> f64 {
        if self.longest_pause < 1.5 * interval && self.longest_rest == 0.0 {
            // The series rose with every sample so far: one without a rise counts.
            return (0.9 * interval).max(30.0);
        }
        let patience = (1.6 * self.longest_pause + interval + 10.0).max(30.0);
        // A suspicion does not deserve the long wait of a leak.
        if self.is_leak { patience } else { patience.min(LONGEST_WAIT_OF_SUSPECT.max(2.5 * interval)) }
    }
}
