//! Whether data moves over a GPU's PCIe link, by the driver's two counters of bytes.
//!
//! The counters have 32 bits and wrap after 4 GiB, which takes less than a second on a busy link. So
//! the amount between two readings is not known, but whether there was much: a busy link that wraps
//! to nearly the same value at each reading for half an hour does not occur.

use crate::base::units::Moment;
use crate::protocol::snapshot::{Missing, Reading};

/// Bytes per second in both directions together below which the link is quiet. Calls of NVML move
/// up to 1 MB per second over the link of an idle H100.
const QUIET: u64 = 4_000_000;

/// The readings that lie further apart say nothing: a counter may have wrapped often.
const LONGEST_MS: u64 = 60_000;

/// The latest counters of bytes sent and received, and when they were read.
#[derive(Debug, Default)]
pub(super) struct PcieTraffic(Option<(Moment, [u32; 2])>);

impl PcieTraffic {
    /// Returns whether the link was quiet since the counters before; not known at the first
    /// reading.
    pub(super) fn is_quiet(&mut self, counters: Reading<[u32; 2]>, now: Moment) -> Reading<bool> {
        let before = self.0.take();
        let counters = counters?;
        self.0 = Some((now, counters));
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
}
