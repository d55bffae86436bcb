//! A growth that is suspect or leaks: its new maxima, and how long it may pause before it counts as stopped.

use serde::{Deserialize, Serialize};

use super::trend::Trend;
use super::{Evidence, LONGEST_SPAN, LONGEST_WAIT_OF_SUSPECT, RISE_CREDIT, kib, millis, seconds};
use crate::base::units::Moment;

/// A leak that stopped and may resume.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct StoppedLeak {
    pub(super) began: Moment,
    pub(super) at: Moment,
    /// The longest rest after which the leak resumed before, in seconds.
    pub(super) longest: f64,
}

/// A growth that is suspect or leaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Suspicion {
    pub(super) trend: Trend,
    pub(super) since: Moment,
    /// The longest rest in seconds after which the growth resumed; 0 when it never rested.
    pub(super) longest_rest: f64,
    pub(super) is_leak: bool,
    /// The KiB of the floor after 30 % of the growth.
    pub(super) base: f64,
    /// The highest amount so far, in KiB.
    pub(super) top: u32,
    pub(super) last_rise: Moment,
    /// The longest recent time between two new maxima, in seconds.
    pub(super) longest_pause: f64,
    /// The seconds in which the floor rises by the usual height of the maxima above it. A sawtooth may have no new
    /// maximum for that long.
    pub(super) sawtooth_period: f64,
    /// The time until which the latest buckets and drops show that the floor rises.
    pub(super) rises_until: Moment,
    pub(super) evidence: Evidence,
}

impl Suspicion {
    /// Whether the figures of a checkpoint are spans of time where they should be.
    pub(super) fn is_sound(&self) -> bool {
        let forecast =
            self.evidence.forecast.into_iter().flat_map(|forecast| [forecast.likely, forecast.low, forecast.high]);
        let spans = [self.longest_rest, self.longest_pause, self.sawtooth_period, self.evidence.span];
        let seconds = spans.into_iter().chain(forecast.map(|left| left.as_secs_f64()));
        seconds.into_iter().all(|seconds| (0.0..=LONGEST_SPAN).contains(&seconds))
    }

    /// Adds a new maximum in KiB. `seen` is the time up to which samples show no new maximum.
    pub(super) fn rise(&mut self, at: Moment, kib: u32, seen: Moment) {
        // After a growth has stopped, its maximum still rises by chance, by ever less. A rise far below the expected
        // one therefore counts only in part.
        let rate = self.evidence.rate.0 / 1024.0;
        let paid = if rate > 0.0 { RISE_CREDIT * f64::from(kib - self.top) / rate } else { f64::INFINITY };
        // A time without samples is no pause.
        let gap = seconds(self.last_rise, seen.min(at)).min(paid);
        self.longest_pause = (self.longest_pause * libm::exp(-gap / (8.0 * self.longest_pause.max(1.0)))).max(gap);
        self.last_rise = if gap < paid { at } else { Moment(self.last_rise.0 + millis(gap)).min(at) };
        self.top = kib;
    }

    /// Returns the KiB that a stopped leak must gain to resume: a tenth of its gain, or what it gains in two minutes if
    /// that is less.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and less than a GPU has")]
    pub(super) fn resumption(&self) -> u32 {
        (kib(self.evidence.gained) / 10.0).min(self.evidence.rate.0.max(0.0) / 1024.0 * 120.0) as u32
    }

    /// Returns the seconds without a new maximum after which the growth counts as stopped, for this sampling interval
    /// in seconds.
    pub(super) fn patience(&self, interval: f64) -> f64 {
        if self.longest_pause < 1.5 * interval && self.longest_rest == 0.0 {
            // The series rose with every sample so far: a single sample without a rise shows that it stopped.
            return (0.9 * interval).max(30.0);
        }
        let patience = (1.6 * self.longest_pause + interval + 10.0).max(30.0);
        // A suspicion is dropped sooner than a leak.
        if self.is_leak { patience } else { patience.min(LONGEST_WAIT_OF_SUSPECT.max(2.5 * interval)) }
    }
}
