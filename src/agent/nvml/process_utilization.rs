//! How busy each process keeps a GPU, by the samples that its driver keeps.
//!
//! The driver takes one each 1/6 s, of the one process that is at work then, and keeps some tens of them. It answers
//! with a line for each process: its average over the samples after a given time.
//!
//! nvml.h calls that time a CPU timestamp. It is one of the wall clock (NVIDIA/go-nvml#51, Syllo/nvtop#110), but samples
//! of other kinds were seen dated from the boot (polarsignals/gpu-metrics-agent#36). By the wrong clock, every process
//! would look idle; so when none has a sample, all samples are asked for, and tell their clock.

use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlProcessUtilizationSample_t;

use super::gpu::{Gpu, Pass, percent};
use super::raw;
use crate::agent::{Hold, clock};
use crate::base::units::{Moment, Percent};
use crate::protocol::snapshot::{Missing, Reading};

/// How far back a sample counts. Drivers take one every 1/6 s to 1 s; in a shorter window a busy process looks idle.
const WINDOW_MS: u64 = 1000;

/// In microseconds since 1970 this is 2001, since the boot 31 years.
const AGES: u64 = 1_000_000_000_000_000;

/// How far a sample may lie ahead of the clock that dates it: clocks are read one after the other, and set now and then.
const AHEAD_US: u64 = 60_000_000;

/// For so long it counts that a sample named a process of the lists. A stranger of the host may have had that PID.
const NAMES: Duration = Duration::from_mins(10);

/// What was found out about a GPU's samples.
#[derive(Debug)]
pub(super) struct Shares {
    /// When they were last asked for.
    asked: Option<Moment>,
    dating: Dating,
    /// When a sample last named a process of the lists.
    named: Option<Moment>,
}

/// The time from which on a sample counts, and up to when it can be one.
#[derive(Debug, Clone, Copy)]
struct Span {
    after: u64,
    now: Moment,
    unix_us: u64,
}

impl Span {
    fn from(after: u64, now: Moment) -> Self {
        Self { after, now, unix_us: clock::unix_ms().saturating_mul(1000) }
    }

    /// Whether it is recent, and of no time to come: neither by the wall clock, nor by one that began with the boot.
    fn has(self, sample: &nvmlProcessUtilizationSample_t) -> bool {
        let clock = if sample.timeStamp < AGES { self.now.0.saturating_mul(1000) } else { self.unix_us };
        sample.timeStamp >= self.after && sample.timeStamp <= clock.saturating_add(AHEAD_US)
    }
}

/// By which clock samples are dated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dating {
    /// By the wall clock; until one was seen, that is only likely.
    Wall { seen: bool },
    /// By one of the driver's own: the time of its newest sample, and when that was found.
    Own { newest: u64, found: Moment },
}

impl Default for Shares {
    fn default() -> Self {
        Self { asked: None, dating: Dating::Wall { seen: false }, named: None }
    }
}

impl Shares {
    /// What the clock of the samples shows, in microseconds.
    fn now_us(&self, now: Moment) -> u64 {
        match self.dating {
            Dating::Wall { .. } => clock::unix_ms().saturating_mul(1000),
            Dating::Own { newest, found } => newest.saturating_add((now.0 - found.0).saturating_mul(1000)),
        }
    }

    /// Takes note of the newest sample. Says whether it shows that the question was about another time.
    fn learn(&mut self, newest: u64, now: Moment) -> bool {
        match &mut self.dating {
            dating @ Dating::Wall { seen: false } if newest < AGES => {
                *dating = Dating::Own { newest, found: now };
                true
            }
            Dating::Wall { seen } => {
                *seen = true;
                false
            }
            Dating::Own { newest: before, found } if newest > *before => {
                (*before, *found) = (newest, now);
                true
            }
            Dating::Own { .. } => false,
        }
    }
}

/// Reads how busy each process keeps the GPU.
pub(super) fn read(gpu: &mut Gpu, pass: &mut Pass<'_>, slow: bool, now: Moment) {
    let mut shares = std::mem::take(&mut gpu.lane.shares);
    let window = shares.asked.replace(now).map_or(WINDOW_MS, |asked| (now.0 - asked.0).max(WINDOW_MS));
    let after = shares.now_us(now).saturating_sub(window * 1000);
    let span = Span::from(after, now);
    let mut asked = ask(gpu, pass, after);
    match newest(pass.samples, span) {
        Some(newest) => drop(shares.learn(newest, now)),
        // Seldom: on an idle GPU it is in vain.
        None if slow && asked.is_ok() && shares.dating != (Dating::Wall { seen: true }) => {
            asked = ask(gpu, pass, 0);
            if newest(pass.samples, Span { after: 1, ..span }).is_some_and(|newest| shares.learn(newest, now)) {
                // How old that one is, the next will show.
                asked = Err(Missing::NotYet);
            }
        }
        None => {}
    }
    let named = |hold: &Hold| pass.samples.iter().any(|sample| sample.pid == hold.pid && span.has(sample));
    if gpu.lane.merged.iter().any(named) {
        shares.named = Some(now);
    }
    // In a container, samples may name PIDs of the host while the lists name its own (Project-HAMi/HAMi-core#112): then it
    // cannot be told who works. Where nobody does, it can.
    let is_proven = shares.named.is_some_and(|at| now.since(at) < NAMES);
    let is_known = is_proven || !pass.lists.is_contained() || newest(pass.samples, span).is_none();
    let idle = if is_known { percent(0) } else { Err(Missing::Unsupported) };
    for hold in &mut gpu.lane.merged {
        hold.sm = asked.and_then(|()| share(hold.pid, pass.samples, span).unwrap_or(idle));
    }
    gpu.lane.shares = shares;
}

fn ask(gpu: &mut Gpu, pass: &mut Pass<'_>, after: u64) -> Reading<()> {
    let samples = &mut *pass.samples;
    gpu.ask(pass.watch, "nvmlDeviceGetProcessUtilization", 0, |device| {
        match raw::process_utilization(device, samples, after) {
            // Nobody did anything.
            Err(NvmlError::NotFound) => Ok(()),
            other => other,
        }
    })
}

/// The time of the newest sample that can be one. Drivers pad their answer with nonsense, and with samples of long ago.
fn newest(samples: &[nvmlProcessUtilizationSample_t], span: Span) -> Option<u64> {
    let good = samples.iter().filter(|it| it.pid != 0 && it.smUtil <= 100 && span.has(it));
    good.map(|it| it.timeStamp).max()
}

/// The newest share of one process; one without a sample did nothing.
fn share(pid: u32, samples: &[nvmlProcessUtilizationSample_t], span: Span) -> Option<Reading<Percent>> {
    let mine = samples.iter().filter(|sample| sample.pid == pid && span.has(sample));
    mine.max_by_key(|sample| sample.timeStamp).map(|sample| percent(sample.smUtil))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, at: u64, sm: u32) -> nvmlProcessUtilizationSample_t {
        nvmlProcessUtilizationSample_t { pid, timeStamp: at, smUtil: sm, memUtil: 0, encUtil: 0, decUtil: 0 }
    }

    #[test]
    fn old_samples_and_impossible_shares_are_no_figures() {
        let samples =
            [sample(7, 50, 99), sample(7, 150, 30), sample(7, 120, 40), sample(8, 50, 99), sample(9, 150, 101)];
        let span = Span::from(100, Moment(1));
        assert_eq!(share(7, &samples, span), Some(Ok(Percent::new(30.0))));
        assert_eq!(share(8, &samples, span), None);
        assert_eq!(share(9, &samples, span), Some(Err(Missing::Failed)));
        assert_eq!(newest(&samples, span), Some(150));
        assert_eq!(newest(&[sample(9, 150, 101), sample(0, 150, 1), sample(7, 50, 1)], span), None);
    }

    #[test]
    fn a_sample_of_a_time_to_come_sets_no_clock_and_is_no_figure() {
        let span = Span::from(1, Moment(100_000));
        let wall = clock::unix_ms() * 1000;
        // By a clock that began with the boot 100 s ago, by the wall clock, and what is neither.
        assert_eq!(newest(&[sample(7, 99_000_000, 1), sample(8, AGES - 1, 1)], span), Some(99_000_000));
        assert_eq!(newest(&[sample(7, wall, 1), sample(8, u64::MAX, 1)], span), Some(wall));
        assert_eq!(share(8, &[sample(8, u64::MAX, 99), sample(8, wall, 3)], span), Some(Ok(Percent::new(3.0))));
    }

    #[test]
    fn samples_that_are_dated_from_the_boot_are_told_by_their_own_clock() {
        let mut shares = Shares::default();
        assert!(shares.learn(5_000_000, Moment(70_000)));
        assert_eq!(shares.now_us(Moment(71_000)), 6_000_000);
        assert!(!shares.learn(5_000_000, Moment(72_000)), "it is the same one");
        assert!(shares.learn(9_000_000, Moment(73_000)));
        assert_eq!(shares.now_us(Moment(73_000)), 9_000_000);
    }

    #[test]
    fn one_sample_by_the_wall_clock_settles_it() {
        let mut shares = Shares::default();
        let wall = clock::unix_ms() * 1000;
        assert!(!shares.learn(wall, Moment(1)));
        assert!(!shares.learn(5_000_000, Moment(2)), "nonsense does not move it");
        assert!(shares.now_us(Moment(3)) >= wall);
    }
}
