//! Notices when unaccounted memory of a GPU grows: an unlisted process has allocated memory, or
//! holds that of an ended one.

use std::collections::HashMap;

use crate::agent::GpuReadings;
use crate::base::units::Bytes;
use crate::protocol::snapshot::GpuUuid;

/// The least growth that is reported. Smaller changes are normal.
const GROWTH: Bytes = Bytes(256 << 20);

/// The lowest unaccounted memory of each GPU since it last grew.
#[derive(Debug, Default)]
pub(in crate::agent) struct UnaccountedBaseline(HashMap<GpuUuid, Bytes>);

impl UnaccountedBaseline {
    /// Returns whether unaccounted memory of a GPU is more than [`GROWTH`] above its baseline, and
    /// updates the baselines. Slow growth adds up.
    pub(in crate::agent) fn has_grown(&mut self, gpus: &[GpuReadings]) -> bool {
        let mut is_any = false;
        for gpu in gpus {
            let Ok(used) = gpu.load.memory_used else {
                continue;
            };
            // A process with unknown memory only makes the difference larger, which does not count
            // as growth.
            let listed: Bytes = gpu
                .processes
                .iter()
                .filter_map(|process| process.memory.ok())
                .sum();
            let unaccounted = used.saturating_sub(listed);
            let baseline = self.0.entry(gpu.uuid.clone()).or_insert(unaccounted);
            if unaccounted.saturating_sub(*baseline) > GROWTH {
                is_any = true;
                *baseline = unaccounted;
            }
            *baseline = unaccounted.min(*baseline);
        }
        is_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Moment;
    use crate::protocol::snapshot::Missing;

    #[test]
    fn only_growth_above_the_lowest_value_counts() {
        let mut baseline = UnaccountedBaseline::default();
        let mut has_grown = |mib| {
            let mut gpu = GpuReadings::unknown(0, Moment(0), Missing::Failed);
            gpu.load.memory_used = Ok(Bytes::from_mib(mib));
            baseline.has_grown(&[gpu])
        };
        let results = [5000, 5200, 5300, 5400, 1000, 1200, 1300].map(&mut has_grown);
        assert_eq!(results, [false, false, true, false, false, false, true]);
    }
}
