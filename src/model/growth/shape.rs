//! In which way a series grows, as far as its memory alone tells: what is worth trying first depends on it.

use super::{LeakDetector, kib};
use crate::model::Growth;

/// So much later than the last one, in seconds and in samples, comes a step of a stair.
const APART: (f64, f64) = (60.0, 15.0);

/// KiB. PyTorch's allocator takes 2 or 20 MiB from the driver at once, so a steady growth has such steps, too.
const STEP: f64 = 24.0 * 1024.0;

/// It grows so many times faster than it did on average.
const FASTER: f64 = 1.6;

impl LeakDetector {
    /// The way of the growth that is watched; absent unless it is a suspect or a leak.
    pub fn way(&self) -> Option<Growth> {
        let watch = self.watch.as_ref()?;
        let now = watch.evidence.rate.0 / 1024.0;
        let average = kib(watch.evidence.gained) / watch.evidence.span.max(1.0);
        let is_apart = watch.longest >= APART.0.max(APART.1 * self.interval);
        Some(match () {
            () if is_apart && average * watch.longest > STEP => Growth::Stair,
            () if now > FASTER * average => Growth::Accelerating,
            () => Growth::Steady,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Moment};
    use crate::model::Outlook;

    /// What is said after `minutes` of a series with a sample each second, in MiB.
    fn way(minutes: u32, memory: impl Fn(f64) -> f64) -> (Outlook, Option<Growth>) {
        let mut detector = LeakDetector::default();
        for second in 0..minutes * 60 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an amount of memory")]
            let held = Bytes::from_mib(memory(f64::from(second)) as u64);
            detector.push(Moment(u64::from(second) * 1000), held, Some(Bytes::from_gib(80)));
        }
        (detector.outlook(), detector.way())
    }

    #[test]
    fn a_growth_is_steady_a_stair_or_faster_and_faster() {
        assert_eq!(way(40, |at| 10_000.0 + at), (Outlook::Leak, Some(Growth::Steady)));
        // By 20 MiB every 100 s: so the allocator takes it.
        assert_eq!(way(60, |at| 78_000.0 + 20.0 * (at / 100.0).floor()).1, Some(Growth::Steady));
        assert_eq!(way(60, |at| 10_000.0 + 500.0 * (at / 300.0).floor()).1, Some(Growth::Stair));
        assert_eq!(way(60, |at| 10_000.0 + at * at / 500.0).1, Some(Growth::Accelerating));
        assert_eq!(way(40, |_| 10_000.0), (Outlook::Steady, None));
    }
}
