//! Finds growth in equal steps at equal intervals, such as memory that each epoch leaves behind. The sixth step makes
//! the growth a leak.
//!
//! [`trend`] would find such a growth late: a window that covers six epochs has wide buckets.

use serde::{Deserialize, Serialize};

use super::buckets::Point;
use super::trend::{self, Trend};
use crate::base::units::Moment;

/// The number of amounts that show a leak: six steps, and the amount before the first.
const ENOUGH: usize = 7;

/// The least time between two steps, in seconds: [`trend`] finds faster steps, and warm-ups have such steps, too.
const SHORTEST: f64 = 45.0;

/// An amount, and the time since which it is held.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Step {
    /// The time in seconds since boot.
    since: u32,
    /// The amount in KiB.
    held: u32,
}

/// The last steps of a series, each higher than the one before.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct StepGrowth {
    /// The beginning of the series in seconds since boot.
    first: u32,
    steps: [Step; ENOUGH],
    count: u8,
    /// Whether the last bucket was higher than the one before: the step may continue.
    rises: bool,
    /// Whether there were more steps before these.
    is_later: bool,
}

impl StepGrowth {
    /// Returns a growth without steps, for a series that begins at a time.
    pub(super) fn since(first: Moment) -> Self {
        Self { first: u32::try_from(first.0 / 1000).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Whether the steps of a checkpoint rise, one after the other.
    pub(super) fn is_sound(&self) -> bool {
        let Some(steps) = self.steps.get(..usize::from(self.count)) else { return false };
        steps.is_sorted_by_key(|step| step.since) && steps.is_sorted_by_key(|step| step.held)
    }

    /// Adds the lowest amount of a bucket.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are positive, and came from u32")]
    pub(super) fn push(&mut self, bucket: Point) {
        // The middle of a wide bucket may be later than that of a narrow bucket after it.
        let since = (bucket.at as u32).max(self.last().map_or(0, |step| step.since));
        let fresh = Step { since, held: bucket.low as u32 };
        // A rise that was released is a bump, not a step.
        while let Some(last) = self.last()
            && fresh.held < last.held - self.height() / 8
        {
            self.count -= 1;
            self.rises = false;
        }
        let Some(last) = self.last() else {
            // No step is left: the amount was constant until now, or was released.
            let since = std::mem::replace(&mut self.first, since).min(since);
            self.keep(Step { since, ..fresh });
            return;
        };
        let rise = fresh.held.saturating_sub(last.held);
        match self.count {
            _ if rise == 0 => {}
            2.. if self.rises => self.steps[usize::from(self.count) - 1].held = fresh.held,
            _ => self.keep(fresh),
        }
        self.rises = rise > 0;
    }

    /// Adds an amount, which is a step of its own if it is higher than the last one. Further steps after the sixth
    /// count, too.
    pub(super) fn step(&mut self, bottom: Point) {
        self.push(bottom);
        self.rises = false;
        self.is_later = false;
    }

    fn last(&self) -> Option<Step> {
        self.steps[..usize::from(self.count)].last().copied()
    }

    /// The height of the last step in KiB.
    fn height(&self) -> u32 {
        match &self.steps[..usize::from(self.count)] {
            [.., before, last] => last.held - before.held,
            _ => 0,
        }
    }

    fn keep(&mut self, fresh: Step) {
        if usize::from(self.count) == ENOUGH {
            self.steps.rotate_left(1);
            self.is_later = true;
        } else {
            self.count += 1;
        }
        self.steps[usize::from(self.count) - 1] = fresh;
        // An uneven step has another cause: count the steps anew from it.
        if !self.are_even() {
            let last = usize::from(self.count) - 1;
            self.steps[0] = self.steps[last - 1];
            self.steps[1] = self.steps[last];
            self.count = 2;
            self.is_later = false;
        }
    }

    /// Whether all steps have about the same height and are about the same time apart.
    fn are_even(&self) -> bool {
        let known = &self.steps[..usize::from(self.count)];
        let [base, first, .., last] = known else { return true };
        let steps = f64::from(self.count) - 1.0;
        let (height, interval) =
            (f64::from(last.held - base.held) / steps, f64::from(last.since - first.since) / (steps - 1.0));
        let is_even = |value: u32, mean: f64| (0.6..1.5).contains(&(f64::from(value) / mean));
        known.windows(2).all(|pair| is_even(pair[1].held - pair[0].held, height))
            && known[1..].windows(2).all(|pair| is_even(pair[1].since - pair[0].since, interval))
    }

    /// Returns the trend of six even steps that continue. `now` is in seconds since boot, `width` is that of a bucket
    /// in seconds, `room` is the free memory in KiB, where known.
    pub(super) fn find(&self, now: f64, width: f64, room: Option<f64>) -> Option<Trend> {
        let [base, first, _, third, fourth, _, last] = self.steps;
        if usize::from(self.count) < ENOUGH || self.is_later {
            return None;
        }
        let seconds = |from: Step, to: Step| f64::from(to.since - from.since);
        let (span, gained) = (seconds(first, last), f64::from(last.held - base.held));
        let (interval, height) = (span / 5.0, gained / 6.0);
        let rate = height / interval;
        // Warm-ups have even steps, too, but they slow down, and begin with the series.
        let slows = seconds(fourth, last) > 1.06 * seconds(first, third);
        let began = seconds(base, first) > 0.6 * interval && (rate < trend::LOADING || base.held > last.held / 2);
        // Waits up to a minute: a step that is released sooner is a bump.
        let goes_on = ((0.1 * interval).min(60.0)..1.5 * interval).contains(&(now - f64::from(last.since)));
        let is_stepwise = interval >= (3.0 * width).max(SHORTEST) && rate < 3.0 * trend::LOADING;
        let is_relevant = room.unwrap_or(f64::from(last.held)) / rate < trend::RELEVANT;
        (began && goes_on && is_stepwise && is_relevant && !slows).then_some(Trend {
            from: f64::from(first.since),
            span,
            width,
            gained,
            rate,
            begun: true,
            rest: 0.0,
            pause: 1.2 * interval,
        })
    }
}
