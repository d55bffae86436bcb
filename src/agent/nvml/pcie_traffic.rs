//! Whether data moves over a GPU's PCIe link: by the driver's two counters of bytes, or where it has
//! none by samples.
//!
//! The counters have 32 bits and wrap after 4 GiB, which takes less than a second on a busy link. So
//! the amount between two readings is not known, but whether there was much: a busy link that wraps
//! to nearly the same value at each reading for half an hour does not occur.
//!
//! Drivers before 550 have no counters. A sample blocks its thread for 40 ms and sees no more than
//! that time, so it is taken each 30 seconds, and only while a process holds the GPU without using
//! it.

use std::time::Duration;

use crate::base::units::Moment;
use crate::protocol::snapshot::{Missing, Reading};

/// Bytes per second in both directions together below which the link is quiet. Calls of NVML move
/// up to 1 MB per second over the link of an idle H100.
const QUIET: u64 = 4_000_000;

/// The readings that lie further apart say nothing: a counter may have wrapped often.
const LONGEST_MS: u64 = 60_000;

/// The time between two samples. Slow passes are ten seconds apart, so it is a little less than
/// three of them.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(29);

/// The latest counters and the latest sample.
#[derive(Debug, Default)]
pub(super) struct PcieTraffic {
    /// The bytes sent and received, and when they were read.
    counters: Option<(Moment, [u32; 2])>,
    /// Whether the link was quiet, and when that was sampled; `None` while the GPU is in use.
    sample: Option<(Moment, Reading<bool>)>,
}

impl PcieTraffic {
    /// Returns whether the link was quiet since the counters before; not known at the first
    /// reading.
    pub(super) fn is_quiet(&mut self, counters: Reading<[u32; 2]>, now: Moment) -> Reading<bool> {
        let before = self.counters.take();
        let counters = counters?;
        self.counters = Some((now, counters));
        let (since, before) = before.ok_or(Missing::NotYet)?;
        let millis = now.0.saturating_sub(since.0);
        if !(1..=LONGEST_MS).contains(&millis) {
            return Err(Missing::NotYet);
        }
        let moved: u64 = counters
            .iter()
            .zip(before)
            .map(|(now, before)| u64::from(now.wrapping_sub(before)))
            .sum();
        Ok(moved * 1000 / millis < QUIET)
    }

    /// Returns whether the link was quiet in the latest sample, of a GPU without counters. `sample`
    /// takes one: the KB per second that were sent and received. Nothing is sampled, and not known,
    /// unless a process holds the GPU without using it.
    pub(super) fn is_sample_quiet(
        &mut self,
        is_held_without_use: bool,
        now: Moment,
        sample: impl FnOnce() -> Reading<[u32; 2]>,
    ) -> Reading<bool> {
        if !is_held_without_use {
            self.sample = None;
            return Err(Missing::NotYet);
        }
        if let Some((at, is_quiet)) = self.sample
            && now.since(at) < SAMPLE_INTERVAL
        {
            return is_quiet;
        }
        let kilobytes: Reading<u64> = sample().map(|rates| rates.into_iter().map(u64::from).sum());
        let is_quiet = kilobytes.map(|rate| rate * 1000 < QUIET);
        self.sample = Some((now, is_quiet));
        is_quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_nvml_are_quiet_and_copies_are_not_also_when_a_counter_wraps() {
        let mut traffic = PcieTraffic::default();
        let mut at =
            |seconds: u64, counters| traffic.is_quiet(Ok(counters), Moment(seconds * 1000));
        assert_eq!(at(0, [u32::MAX - 100, 7]), Err(Missing::NotYet));
        // Measured on an H100 whose process does nothing: 0.67 and 0.3 MB/s.
        assert_eq!(at(10, [6_700_000, 3_000_007]), Ok(true));
        // A copy of 4 MiB each second.
        assert_eq!(at(20, [13_700_000, 48_000_000]), Ok(false));
        assert_eq!(at(20, [13_700_000, 48_000_000]), Err(Missing::NotYet));
        assert_eq!(at(200, [13_700_000, 48_000_000]), Err(Missing::NotYet));
        assert_eq!(at(210, [13_700_000, 48_000_000]), Ok(true));
    }

    #[test]
    fn counters_that_cannot_be_read_are_missing_and_the_next_ones_are_the_first() {
        let mut traffic = PcieTraffic::default();
        assert_eq!(
            traffic.is_quiet(Ok([0, 0]), Moment(0)),
            Err(Missing::NotYet)
        );
        let lost = traffic.is_quiet(Err(Missing::Failed), Moment(10_000));
        assert_eq!(lost, Err(Missing::Failed));
        let again = traffic.is_quiet(Ok([0, 0]), Moment(20_000));
        assert_eq!(again, Err(Missing::NotYet));
    }

    #[test]
    fn a_sample_is_taken_each_half_minute_while_a_process_holds_the_gpu_without_use() {
        let mut traffic = PcieTraffic::default();
        let mut taken = 0;
        let mut at = |second: u64, is_held_without_use, rates| {
            let is_quiet =
                traffic.is_sample_quiet(is_held_without_use, Moment(second * 1000), || {
                    taken += 1;
                    rates
                });
            (is_quiet, taken)
        };
        let (quiet, busy) = (Ok([300, 120]), Ok([3_900, 200]));
        assert_eq!(at(0, false, quiet), (Err(Missing::NotYet), 0));
        assert_eq!(at(10, true, quiet), (Ok(true), 1));
        // The sample counts until the next.
        assert_eq!(at(20, true, busy), (Ok(true), 1));
        assert_eq!(at(30, true, busy), (Ok(true), 1));
        assert_eq!(at(40, true, busy), (Ok(false), 2));
        assert_eq!(at(50, true, quiet), (Ok(false), 2));
        // After a use, an earlier sample says nothing.
        assert_eq!(at(60, false, quiet), (Err(Missing::NotYet), 2));
        assert_eq!(at(70, true, quiet), (Ok(true), 3));
        let unsupported = Err(Missing::Unsupported);
        assert_eq!(at(100, true, unsupported), (Err(Missing::Unsupported), 4));
    }
}
