//! Finds the pattern of a growth as far as one series shows it: steady, in steps or accelerating.
//! Advice depends on the pattern.

use super::limits::LIMITS;
use super::{LeakDetector, LeakVerdict, kib};
use crate::model::GrowthPattern;

impl LeakDetector {
    /// The pattern of the growth; `None` unless the verdict is suspect or leak.
    pub fn pattern(&self) -> Option<GrowthPattern> {
        let watched = self.watched.as_ref()?;
        (self.verdict != LeakVerdict::Filling).then_some(())?;
        let now = watched.evidence.rate.0 / 1024.0;
        let average = kib(watched.evidence.gained) / watched.evidence.span.max(1.0);
        let limits = &LIMITS.pattern;
        let apart = limits
            .steps_apart
            .max(limits.samples_of_step * self.interval);
        let is_apart = watched.survived >= apart;
        Some(match () {
            () if is_apart && average * watched.survived > limits.step_height => {
                GrowthPattern::Steps
            }
            () if now > limits.acceleration * average => GrowthPattern::Accelerating,
            () => GrowthPattern::Steady,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{Bytes, Moment};
    use crate::model::LeakVerdict;

    /// Returns the verdict and pattern after some minutes. The closure returns the MiB at each
    /// second.
    fn pattern(minutes: u32, memory: impl Fn(f64) -> f64) -> (LeakVerdict, Option<GrowthPattern>) {
        let mut detector = LeakDetector::default();
        for second in 0..minutes * 60 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an amount of memory"
            )]
            let held = Bytes::from_mib(memory(f64::from(second)) as u64);
            detector.push(
                Moment(u64::from(second) * 1000),
                held,
                Some(Bytes::from_gib(80)),
            );
        }
        (detector.verdict(), detector.pattern())
    }

    #[test]
    fn a_growth_is_steady_in_steps_or_accelerating() {
        assert_eq!(
            pattern(40, |at| 10_000.0 + at),
            (LeakVerdict::Leak, Some(GrowthPattern::Steady))
        );
        // 20 MiB every 100 s: segments of the allocator.
        assert_eq!(
            pattern(60, |at| 78_000.0 + 20.0 * (at / 100.0).floor()).1,
            Some(GrowthPattern::Steady)
        );
        assert_eq!(
            pattern(60, |at| 10_000.0 + 500.0 * (at / 300.0).floor()).1,
            Some(GrowthPattern::Steps)
        );
        assert_eq!(
            pattern(60, |at| 10_000.0 + at * at / 500.0).1,
            Some(GrowthPattern::Accelerating)
        );
        assert_eq!(pattern(40, |_| 10_000.0), (LeakVerdict::Steady, None));
    }
}
