//! Memory that no listed process accounts for: when it jumps, someone took it whom the driver does not
//! list, or died and left it to others.

use std::collections::HashMap;

use crate::agent::GpuReadings;
use crate::base::units::Bytes;
use crate::protocol::snapshot::GpuUuid;

/// Less than this comes and goes.
const JUMP: Bytes = Bytes(256 << 20);

/// What was unaccounted of each GPU.
#[derive(Debug, Default)]
pub(in crate::agent) struct Unaccounted(HashMap<GpuUuid, Bytes>);

impl Unaccounted {
    /// Whether it grew by a jump on any GPU. What grows slowly adds up.
    pub(in crate::agent) fn jumped(&mut self, gpus: &[GpuReadings]) -> bool {
        let mut any = false;
        for gpu in gpus {
            let Ok(used) = gpu.load.memory_used else { continue };
            // One that is not known makes the sum too small, and the rest too large by a part that stays.
            let claimed: Bytes = gpu.processes.iter().filter_map(|process| process.memory.ok()).sum();
            let unaccounted = used.saturating_sub(claimed);
            let before = self.0.entry(gpu.uuid.clone()).or_insert(unaccounted);
            if unaccounted.saturating_sub(*before) > JUMP {
                any = true;
                *before = unaccounted;
            }
            *before = unaccounted.min(*before);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Moment;
    use crate::protocol::snapshot::Missing;

    #[test]
    fn only_a_jump_upwards_is_worth_a_look() {
        let mut unaccounted = Unaccounted::default();
        let mut jumped = |mib| {
            let mut gpu = GpuReadings::unknown(0, Moment(0), Missing::Failed);
            gpu.load.memory_used = Ok(Bytes::from_mib(mib));
            unaccounted.jumped(&[gpu])
        };
        let seen = [5000, 5200, 5300, 5400, 1000, 1200, 1300].map(&mut jumped);
        assert_eq!(seen, [false, false, true, false, false, false, true]);
    }
}
