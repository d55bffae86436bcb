//! Reads the utilization of a GPU by each process, from the samples that the driver keeps.
//!
//! Every 1/6 s the driver takes a sample of the one process that runs then, and keeps some tens of
//! samples. It answers with one entry for each process: the average over its samples after a given
//! time.
//!
//! nvml.h calls the given time a CPU timestamp. It is usually a time of the wall clock
//! (NVIDIA/go-nvml#51, Syllo/nvtop#110), but some drivers count the time of other samples from boot
//! (polarsignals/gpu-metrics-agent#36). With the wrong clock, every process looks idle. Therefore,
//! when no process has a sample, all samples are requested: their timestamps show the clock.

use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;

use super::gpu_calls::GpuCalls;
use super::plausible::percent;
use super::raw;
use crate::agent::{NvmlProcess, clock};
use crate::base::units::{Moment, Percent};
use crate::protocol::snapshot::{EngineShares, Missing, Reading};

/// How long a sample counts, in milliseconds. Drivers take a sample every 1/6 s to 1 s: with less
/// time, a busy process would look idle.
const WINDOW_MS: u64 = 1000;

/// In microseconds. A later timestamp is of the wall clock (after 2001), an earlier one counts from
/// boot (less than 31 years).
const EARLIEST_WALL_US: u64 = 1_000_000_000_000_000;

/// How far a timestamp may be ahead of its clock, in microseconds: the clock is read separately,
/// and may be set back.
const AHEAD_US: u64 = 60_000_000;

/// How long a sample with a listed PID proves that samples and lists use the same PIDs. Limited,
/// since the match may be a coincidence.
const NAMED_FOR: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct Utilization {
    /// `None` before the first call.
    called: Option<Moment>,
    /// `None` until a sample was seen; until then, the wall clock is assumed.
    clock: Option<SampleClock>,
    /// The last time when a sample named a listed process.
    named: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleClock {
    Wall,
    /// A clock of the driver: the timestamp of the newest sample in microseconds, and when that
    /// sample was found.
    Own {
        newest: u64,
        found: Moment,
    },
}

/// The time in which a sample counts: from `after`, in microseconds by the clock of the samples,
/// until now.
#[derive(Debug, Clone, Copy)]
struct SampleSpan {
    after: u64,
    now: Moment,
    unix_us: u64,
}

impl SampleSpan {
    fn from(after: u64, now: Moment) -> Self {
        Self {
            after,
            now,
            unix_us: clock::unix_ms().saturating_mul(1000),
        }
    }

    /// Whether a sample is recent and not from the future, by the wall clock or by a clock that
    /// began with the boot.
    fn has(self, sample: &nvmlProcessUtilizationSample_t) -> bool {
        let now_us = if sample.timeStamp < EARLIEST_WALL_US {
            self.now.0.saturating_mul(1000)
        } else {
            self.unix_us
        };
        sample.timeStamp >= self.after && sample.timeStamp <= now_us.saturating_add(AHEAD_US)
    }
}

impl Utilization {
    /// Returns the current time by the clock of the samples, in microseconds.
    fn now_us(&self, now: Moment) -> u64 {
        match self.clock {
            None | Some(SampleClock::Wall) => clock::unix_ms().saturating_mul(1000),
            Some(SampleClock::Own { newest, found }) => {
                newest.saturating_add((now.0 - found.0).saturating_mul(1000))
            }
        }
    }

    /// Determines the clock from the newest timestamp. Returns whether the samples use a clock of
    /// the driver and this timestamp is newer than the last.
    fn update_clock(&mut self, newest: u64, now: Moment) -> bool {
        let is_own = match self.clock {
            None => newest < EARLIEST_WALL_US,
            Some(SampleClock::Wall) => false,
            Some(SampleClock::Own { newest: before, .. }) if newest > before => true,
            Some(SampleClock::Own { .. }) => return false,
        };
        self.clock = Some(if is_own {
            SampleClock::Own { newest, found: now }
        } else {
            SampleClock::Wall
        });
        is_own
    }

    pub(super) fn read(
        &mut self,
        calls: &mut GpuCalls,
        samples: &mut Vec<nvmlProcessUtilizationSample_t>,
        processes: &mut [NvmlProcess],
        is_contained: bool,
        slow: bool,
        now: Moment,
    ) {
        let window = self
            .called
            .replace(now)
            .map_or(WINDOW_MS, |called| (now.0 - called.0).max(WINDOW_MS));
        let after = self.now_us(now).saturating_sub(window * 1000);
        let span = SampleSpan::from(after, now);
        let mut result = read_samples(calls, samples, after);
        match newest(samples, span) {
            Some(newest) => drop(self.update_clock(newest, now)),
            // Only in slow passes: on an idle GPU, this call finds no samples either.
            None if slow && result.is_ok() && self.clock != Some(SampleClock::Wall) => {
                result = read_samples(calls, samples, 0);
                let all = SampleSpan { after: 1, ..span };
                if newest(samples, all).is_some_and(|newest| self.update_clock(newest, now)) {
                    // The next pass shows how old that sample is.
                    result = Err(Missing::NotYet);
                }
            }
            None => {}
        }
        let has_sample = |process: &NvmlProcess| {
            samples
                .iter()
                .any(|sample| sample.pid == process.pid && span.has(sample))
        };
        if processes.iter().any(has_sample) {
            self.named = Some(now);
        }
        // In a container, samples may have PIDs of the host while the lists have the container's
        // (Project-HAMi/HAMi-core#112). Then a process without a sample is certainly idle only if
        // there is no sample at all.
        let is_proven = self.named.is_some_and(|at| now.since(at) < NAMED_FOR);
        let is_known = is_proven || !is_contained || newest(samples, span).is_none();
        let idle = if is_known {
            percent(0)
        } else {
            Err(Missing::Unsupported)
        };
        for process in processes {
            // The lines of an agent that reads everything do not have these.
            let is_wanted = !calls.only.is_everything() && result.is_ok();
            process.engines = newest_of(process.pid, samples, span)
                .filter(|_| is_wanted)
                .and_then(engines);
            process.sm = result.and_then(|()| share(process.pid, samples, span).unwrap_or(idle));
        }
    }
}

fn read_samples(
    calls: &mut GpuCalls,
    samples: &mut Vec<nvmlProcessUtilizationSample_t>,
    after: u64,
) -> Reading<()> {
    calls.read(
        "nvmlDeviceGetProcessUtilization",
        |device| match raw::process_utilization(device, samples, after) {
            // No process was active.
            Err(NvmlError::NotFound) => Ok(()),
            other => other,
        },
    )
}

/// Returns the timestamp of the newest valid sample. Drivers pad their answer with invalid and old
/// samples.
fn newest(samples: &[nvmlProcessUtilizationSample_t], span: SampleSpan) -> Option<u64> {
    let valid = samples
        .iter()
        .filter(|sample| sample.pid != 0 && sample.smUtil <= 100 && span.has(sample));
    valid.map(|sample| sample.timeStamp).max()
}

/// Returns the utilization of one process by its newest sample. `None` without a sample.
fn share(
    pid: u32,
    samples: &[nvmlProcessUtilizationSample_t],
    span: SampleSpan,
) -> Option<Reading<Percent>> {
    newest_of(pid, samples, span).map(|sample| percent(sample.smUtil))
}

/// Returns the newest sample of one process.
fn newest_of(
    pid: u32,
    samples: &[nvmlProcessUtilizationSample_t],
    span: SampleSpan,
) -> Option<&nvmlProcessUtilizationSample_t> {
    let mine = samples
        .iter()
        .filter(|sample| sample.pid == pid && span.has(sample));
    mine.max_by_key(|sample| sample.timeStamp)
}

/// Returns the shares of the other engines in a sample; `None` if one of them is impossible.
fn engines(sample: &nvmlProcessUtilizationSample_t) -> Option<EngineShares> {
    let (memory, encoder, decoder) = (sample.memUtil, sample.encUtil, sample.decUtil);
    let is_possible = [memory, encoder, decoder].iter().all(|share| *share <= 100);
    is_possible.then_some(EngineShares {
        memory_percent: memory,
        encoder_percent: encoder,
        decoder_percent: decoder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, at: u64, sm: u32) -> nvmlProcessUtilizationSample_t {
        nvmlProcessUtilizationSample_t {
            pid,
            timeStamp: at,
            smUtil: sm,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        }
    }

    #[test]
    fn old_samples_and_impossible_shares_are_no_figures() {
        let samples = [
            sample(7, 50, 99),
            sample(7, 150, 30),
            sample(7, 120, 40),
            sample(8, 50, 99),
            sample(9, 150, 101),
        ];
        let span = SampleSpan::from(100, Moment(1));
        assert_eq!(share(7, &samples, span), Some(Ok(Percent::new(30.0))));
        assert_eq!(share(8, &samples, span), None);
        assert_eq!(share(9, &samples, span), Some(Err(Missing::Failed)));
        assert_eq!(newest(&samples, span), Some(150));
        assert_eq!(
            newest(
                &[sample(9, 150, 101), sample(0, 150, 1), sample(7, 50, 1)],
                span
            ),
            None
        );
    }

    #[test]
    fn a_sample_of_a_time_to_come_sets_no_clock_and_is_no_figure() {
        let span = SampleSpan::from(1, Moment(100_000));
        let wall = clock::unix_ms() * 1000;
        // Timestamps of a clock that counts from boot, 100 s ago; of the wall clock; and of
        // neither.
        assert_eq!(
            newest(
                &[sample(7, 99_000_000, 1), sample(8, EARLIEST_WALL_US - 1, 1)],
                span
            ),
            Some(99_000_000)
        );
        assert_eq!(
            newest(&[sample(7, wall, 1), sample(8, u64::MAX, 1)], span),
            Some(wall)
        );
        assert_eq!(
            share(8, &[sample(8, u64::MAX, 99), sample(8, wall, 3)], span),
            Some(Ok(Percent::new(3.0)))
        );
    }

    #[test]
    fn samples_that_are_dated_from_the_boot_are_told_by_their_own_clock() {
        let mut shares = Utilization::default();
        assert!(shares.update_clock(5_000_000, Moment(70_000)));
        assert_eq!(shares.now_us(Moment(71_000)), 6_000_000);
        assert!(
            !shares.update_clock(5_000_000, Moment(72_000)),
            "it is the same one"
        );
        assert!(shares.update_clock(9_000_000, Moment(73_000)));
        assert_eq!(shares.now_us(Moment(73_000)), 9_000_000);
    }

    #[test]
    fn one_sample_by_the_wall_clock_settles_it() {
        let mut shares = Utilization::default();
        let wall = clock::unix_ms() * 1000;
        assert!(!shares.update_clock(wall, Moment(1)));
        assert!(
            !shares.update_clock(5_000_000, Moment(2)),
            "nonsense does not move it"
        );
        assert!(shares.now_us(Moment(3)) >= wall);
    }
}
