//! The times of the passes and of their lines.

use std::time::Duration;

use crate::base::units::Moment;

/// The delay of the second pass after the first line. A rate needs two passes.
const SECOND_PASS: Duration = Duration::from_millis(205);
/// The longest time that a line waits for the driver.
const LINE_WAIT: Duration = Duration::from_millis(250);

pub(super) struct PassSchedule {
    pub(super) interval: Duration,
    pub(super) next_pass: Moment,
    /// Until when the line of the current pass waits for the driver. `None` once the line is
    /// written.
    pub(super) line_due: Option<Moment>,
    has_line: bool,
}

impl PassSchedule {
    pub(super) fn new(interval: Duration, now: Moment) -> Self {
        Self {
            interval,
            next_pass: now,
            line_due: None,
            has_line: false,
        }
    }

    /// Whether a pass is due. If so, sets the time of the next one. The passes keep their rhythm,
    /// unless this process was stopped for longer than an interval.
    pub(super) fn take_pass(&mut self, now: Moment) -> bool {
        let is_due = now >= self.next_pass;
        if is_due {
            let next = self.next_pass.after(self.interval);
            self.next_pass = if next > now {
                next
            } else {
                now.after(self.interval)
            };
        }
        is_due
    }

    pub(super) fn await_driver(&mut self, now: Moment) {
        self.line_due = Some(now.after(self.interval.min(LINE_WAIT)));
    }

    /// Begins a line. Returns whether it is the first one.
    pub(super) fn begin_line(&mut self, now: Moment) -> bool {
        self.line_due = None;
        let is_first = !self.has_line;
        if is_first {
            self.has_line = true;
            self.next_pass = self.next_pass.min(now.after(SECOND_PASS));
        }
        is_first
    }

    pub(super) fn set_interval(&mut self, interval: Duration, now: Moment) {
        self.interval = interval;
        self.next_pass = self.next_pass.min(now.after(interval));
    }

    /// Whether a line will be written soon.
    pub(super) fn is_line_near(&self, now: Moment) -> bool {
        self.line_due.is_some() || self.next_pass.since(now) <= LINE_WAIT
    }
}
