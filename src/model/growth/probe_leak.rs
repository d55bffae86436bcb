//! The leak that the probe of `gputop run` reports in a process: another source of the verdict on
//! its growth, beside the detectors.

use std::time::Duration;

use super::{Evidence, LeakVerdict, Rate};
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{ProbeReport, Process, TensorLeak};

/// The worst leak in the last report of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeLeak<'a> {
    leak: &'a TensorLeak,
    rate: Rate,
    /// The mean duration of a step in seconds; `None` where it is not known.
    step: Option<f64>,
}

impl<'a> ProbeLeak<'a> {
    /// Returns a likely leak before others, and among these the fastest. Leaks without a rate do not
    /// count: fragmentation is memory that does not grow any more.
    pub(in crate::model) fn of(process: &'a Process) -> Option<Self> {
        let report = process.probe.as_ref()?.report.as_ref()?;
        let leaks = report
            .leaks
            .iter()
            .filter_map(|leak| Self::new(leak, report));
        leaks.max_by(|one, other| {
            let likely = one.verdict().cmp(&other.verdict());
            likely.then(one.rate.0.total_cmp(&other.rate.0))
        })
    }

    fn new(leak: &'a TensorLeak, report: &ProbeReport) -> Option<Self> {
        let step = report.steps.as_ref().and_then(|steps| steps.seconds);
        let step = step.filter(|step| step.is_finite() && *step > 0.0);
        let by_step = || Some(to_f64(leak.bytes_per_step?) / step?);
        let by_second = leak
            .bytes_per_second
            .filter(|bytes| *bytes > Bytes(0))
            .map(to_f64);
        let rate = by_second.or_else(by_step).filter(|rate| *rate > 0.0)?;
        let rate = Rate(rate);
        Some(Self { leak, rate, step })
    }

    /// A leak if the probe is sure of the cause, else suspect.
    pub(super) fn verdict(self) -> LeakVerdict {
        if self.leak.is_likely() {
            LeakVerdict::Leak
        } else {
            LeakVerdict::Suspect
        }
    }

    /// The line of the program, as in `train.py:41`; `None` when the probe does not know it.
    pub(crate) fn line(self) -> Option<&'a str> {
        self.leak.line()
    }

    /// The cause, the line and the growth: `tensors are kept with their history, train.py:41, +30
    /// MiB/min for 40 steps`.
    pub(super) fn reason(self) -> String {
        let growth = match self.leak.steps {
            Some(steps) => format!("{} for {steps} steps", self.rate),
            None => self.rate.to_string(),
        };
        let cause = self.leak.title.as_ref().map(ToString::to_string);
        let line = self.line().map(str::to_owned);
        let parts: Vec<String> = [cause, line, Some(growth)].into_iter().flatten().collect();
        parts.join(", ")
    }

    /// The figures of the growth, without a forecast: the probe knows no limit of the memory.
    pub(super) fn evidence(self, now: Moment) -> Evidence {
        #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
        let steps = self.leak.steps.map_or(0.0, |steps| steps as f64);
        let span = self.step.map_or(0.0, |step| steps * step);
        let ago = Duration::try_from_secs_f64(span).unwrap_or(Duration::MAX);
        let since = now.before(ago);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and the rate is a mean"
        )]
        let by_rate = || Bytes((self.rate.0 * span) as u64);
        Evidence {
            since,
            found: since,
            gained: self.leak.bytes.unwrap_or_else(by_rate),
            span: now.since(since).as_secs_f64(),
            rate: self.rate,
            ..Evidence::default()
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more")]
fn to_f64(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

#[cfg(test)]
mod tests;
