//! In which way a series grows, as far as its memory alone tells: what is worth trying first depends on it.

use super::{LeakDetector, kib};
use crate::model::GrowthPattern;

/// So much later than the last one, in seconds and in samples, comes a step of a stair.
const APART: (f64, f64) = (60.0, 15.0);

/// KiB. PyTorch's allocator takes 2 or 20 MiB from the driver at once, so a steady growth has such steps, too.
const STEP: f64 = 24.0 * 1024.0;

/// It grows so many times faster than it did on average.
const FASTER: f64 = 1.6;

impl LeakDetector {
    /// The way of the growth that is watched; absent unless it is a suspect or a leak.
    pub fn pattern(&self) -> Option<GrowthPattern> {
        let watch = self.watch.as_ref()?;
        let now = watch.evidence.rate.0 / 1024.0;
        let average = kib(watch.evidence.gained) / watch.evidence.span.max(1.0);
        let is_apart = watch.longest >= APART.0.max(APART.1 * self.interval);
        Some(match () {
            () if is_apart && average * watch.longest > STEP => GrowthPattern::Stair,
            () if now > FASTER * average => GrowthPattern::Accelerating,
            () => GrowthPattern::Steady,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Moment};
    use crate::model::LeakVerdict;

    /// What is said after `minutes` of a series with a sample each second, in MiB.
    fn pattern(minutes: u32, memory: impl Fn(f64) -> f64) -> (LeakVerdict, Option<GrowthPattern>) {
        let mut detector = LeakDetector::default();
        for second in 0..minutes * 60 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an amount of memory")]
            let held = Bytes::from_mib(memory(f64::from(second)) as u64);
            detector.push(Moment(u64::from(second) * 1000), held, Some(Bytes::from_gib(80)));
        }
        (detector.verdict(), detector.pattern())
    }

    #[test]
    fn a_growth_is_steady_a_stair_or_faster_and_faster() {
        assert_eq!(pattern(40, |at| 10_000.0 + at), (LeakVerdict::Leak, Some(GrowthPattern::Steady)));
        // By 20 MiB every 100 s: so the allocator takes it.
        assert_eq!(pattern(60, |at| 78_000.0 + 20.0 * (at / 100.0).floor()).1, Some(GrowthPattern::Steady));
        assert_eq!(pattern(60, |at| 10_000.0 + 500.0 * (at / 300.0).floor()).1, Some(GrowthPattern::Stair));
        assert_eq!(pattern(60, |at| 10_000.0 + at * at / 500.0).1, Some(GrowthPattern::Accelerating));
        assert_eq!(pattern(40, |_| 10_000.0), (LeakVerdict::Steady, None));
    }
}
