//! Finds stairs: what is left of each epoch, in steps of one size at even times. The sixth one makes them a leak.
//!
//! A window of buckets that has room for six epochs is coarse, and would show the sixth step late.

use super::buckets::Point;
use super::trend::{self, Trend};
use crate::base::units::Moment;

/// A step at each epoch that is a leak, and what was held before the first.
const ENOUGH: usize = 7;

/// Seconds between two steps at least: what takes less shows in the finest buckets, and warm-ups have such steps.
const SHORTEST: f64 = 45.0;

/// What has been held since that time.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    /// Seconds since boot.
    since: u32,
    /// KiB.
    held: u32,
}

/// The last steps of a series, each higher than the one before.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    /// When the series began, in seconds since boot.
    first: u32,
    treads: [Step; ENOUGH],
    count: u8,
    /// The last bucket was higher than the one before: the step may go on.
    rises: bool,
    /// There were more steps before these.
    is_later: bool,
}

impl Steps {
    /// Of a series that began at that time.
    pub(super) fn since(first: Moment) -> Self {
        Self { first: u32::try_from(first.0 / 1000).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Takes the lowest of a bucket.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are positive, and came from u32")]
    pub(super) fn push(&mut self, bucket: Point) {
        // The middle of a wide bucket may be later than that of a narrow one that follows.
        let since = (bucket.at as u32).max(self.last().map_or(0, |it| it.since));
        let fresh = Step { since, held: bucket.low as u32 };
        // What was given back was a bump, and no step.
        while let Some(last) = self.last()
            && fresh.held < last.held - self.height() / 8
        {
            self.count -= 1;
            self.rises = false;
        }
        let Some(last) = self.last() else {
            // Until now it held still, or there is nothing left to stand on.
            let since = std::mem::replace(&mut self.first, since).min(since);
            self.keep(Step { since, ..fresh });
            return;
        };
        let rise = fresh.held.saturating_sub(last.held);
        match self.count {
            _ if rise == 0 => {}
            2.. if self.rises => self.treads[usize::from(self.count) - 1].held = fresh.held,
            _ => self.keep(fresh),
        }
        self.rises = rise > 0;
    }

    /// Takes what is a step of its own if it is higher at all. After the sixth one, it is still one.
    pub(super) fn step(&mut self, bottom: Point) {
        self.push(bottom);
        self.rises = false;
        self.is_later = false;
    }

    fn last(&self) -> Option<Step> {
        self.treads[..usize::from(self.count)].last().copied()
    }

    /// KiB of the last step.
    fn height(&self) -> u32 {
        match &self.treads[..usize::from(self.count)] {
            [.., before, last] => last.held - before.held,
            _ => 0,
        }
    }

    fn keep(&mut self, fresh: Step) {
        if usize::from(self.count) == ENOUGH {
            self.treads.rotate_left(1);
            self.is_later = true;
        } else {
            self.count += 1;
        }
        self.treads[usize::from(self.count) - 1] = fresh;
        // What is uneven was something else: the stairs begin there.
        if !self.are_even() {
            let last = usize::from(self.count) - 1;
            self.treads[0] = self.treads[last - 1];
            self.treads[1] = self.treads[last];
            self.count = 2;
            self.is_later = false;
        }
    }

    /// Whether all steps are of about one size, and at about even times.
    fn are_even(&self) -> bool {
        let treads = &self.treads[..usize::from(self.count)];
        let [base, first, .., last] = treads else { return true };
        let steps = f64::from(self.count) - 1.0;
        let (height, interval) =
            (f64::from(last.held - base.held) / steps, f64::from(last.since - first.since) / (steps - 1.0));
        let is_even = |it: u32, mean: f64| (0.6..1.5).contains(&(f64::from(it) / mean));
        treads.windows(2).all(|it| is_even(it[1].held - it[0].held, height))
            && treads[1..].windows(2).all(|it| is_even(it[1].since - it[0].since, interval))
    }

    /// The trend of stairs that go on; `now` in seconds since boot, `width` of a bucket in seconds, `room` in KiB until
    /// memory ends, where that is known.
    pub(super) fn find(&self, now: f64, width: f64, room: Option<f64>) -> Option<Trend> {
        let [base, first, _, third, fourth, _, last] = self.treads;
        if usize::from(self.count) < ENOUGH || self.is_later {
            return None;
        }
        let seconds = |from: Step, to: Step| f64::from(to.since - from.since);
        let (span, gained) = (seconds(first, last), f64::from(last.held - base.held));
        let (interval, height) = (span / 5.0, gained / 6.0);
        let rate = height / interval;
        // A warm-up comes in even steps, too, but ever slower, and at once.
        let slows = seconds(fourth, last) > 1.06 * seconds(first, third);
        let began = seconds(base, first) > 0.6 * interval && (rate < trend::LOADING || base.held > last.held / 2);
        // A step that comes and goes within a minute is a bump.
        let goes_on = ((0.1 * interval).min(60.0)..1.5 * interval).contains(&(now - f64::from(last.since)));
        let is_stair = interval >= (3.0 * width).max(SHORTEST) && rate < 3.0 * trend::LOADING;
        let is_relevant = room.unwrap_or(f64::from(last.held)) / rate < trend::RELEVANT;
        (began && goes_on && is_stair && is_relevant && !slows).then_some(Trend {
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
