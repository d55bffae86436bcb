//! Samples a series: interval, jitter and gaps.

use super::Case;
use super::allocator::MIB;
use super::random::Random;

/// A sample: milliseconds and bytes.
pub(crate) type Sample = (u64, u64);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// The interval in seconds.
    pub(crate) interval: f64,
    /// The most that a sample may be late, as a share of the interval.
    pub(crate) jitter: f64,
    /// The gaps per hour.
    pub(crate) gaps_per_hour: f64,
}

impl Sampling {
    pub(crate) fn every(interval: f64) -> Self {
        Self {
            interval,
            jitter: 0.05,
            gaps_per_hour: 0.1,
        }
    }

    /// Samples a case, in whole MiB like `nvidia-smi`.
    pub(crate) fn read(self, case: &Case, random: &mut Random) -> Vec<Sample> {
        self.read_log(case, &case.log, random)
    }

    /// Samples one of its logs.
    pub(crate) fn read_log(
        self,
        case: &Case,
        log: &[(f64, u64)],
        random: &mut Random,
    ) -> Vec<Sample> {
        let mut samples = Vec::with_capacity((case.end / self.interval) as usize + 1);
        let (mut at, mut held) = (0, 0);
        let mut due = 0.0;
        let mut next_gap = self.until_gap(random);
        while due < case.end {
            let now = due + self.interval * self.jitter * random.unit();
            while let Some((_, next)) = log.get(at).filter(|entry| entry.0 <= now) {
                held = *next;
                at += 1;
            }
            samples.push(((now * 1000.0) as u64, held / MIB * MIB));
            due += self.interval;
            if due > next_gap {
                due += random.log_uniform(5.0, 900.0);
                next_gap = due + self.until_gap(random);
            }
        }
        samples
    }

    fn until_gap(self, random: &mut Random) -> f64 {
        if self.gaps_per_hour > 0.0 {
            3600.0 / self.gaps_per_hour * random.exponential()
        } else {
            f64::INFINITY
        }
    }
}
