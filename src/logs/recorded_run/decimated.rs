//! Series of a bounded number of buckets. When there are too many, two neighbours become one, so
//! that a day takes as much memory as an hour.

use std::time::Duration;

use super::observed_growth::{ObservedGrowth, rate_error};

/// The samples of one part of the time.
pub(crate) trait DecimatedBucket {
    /// Adds the samples of the next part.
    fn merge(&mut self, later: Self);
}

/// Buckets of equal width, in the order of time. Times without a sample have none.
#[derive(Debug, Clone)]
pub(crate) struct Decimated<B> {
    /// The width of a bucket in milliseconds.
    width: u64,
    most: usize,
    /// Each bucket with its number: the time of its beginning is the number times the width.
    buckets: Vec<(u64, B)>,
}

impl<B: DecimatedBucket> Decimated<B> {
    /// The width of the first buckets in milliseconds.
    const FINEST: u64 = 1000;

    /// Returns an empty series of at most `most` buckets.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            width: Self::FINEST,
            most: most.max(2),
            buckets: Vec::new(),
        }
    }

    /// Adds the sample at a time in milliseconds. A time before the last bucket counts as part of
    /// that.
    pub(crate) fn push(&mut self, at: u64, sample: B) {
        let number = at / self.width;
        match self.buckets.last_mut() {
            Some((last, bucket)) if *last >= number => bucket.merge(sample),
            _ => self.buckets.push((number, sample)),
        }
        while self.buckets.len() > self.most {
            self.widen();
        }
    }

    /// Doubles the width.
    fn widen(&mut self) {
        self.width *= 2;
        let mut wide: Vec<(u64, B)> = Vec::with_capacity(self.most);
        for (number, bucket) in self.buckets.drain(..) {
            match wide.last_mut() {
                Some((last, before)) if *last == number / 2 => before.merge(bucket),
                _ => wide.push((number / 2, bucket)),
            }
        }
        self.buckets = wide;
    }

    /// Returns the series with at most `most` buckets.
    pub(crate) fn reduced(&self, most: usize) -> Self
    where
        B: Clone,
    {
        let mut reduced = Self {
            most: most.max(2),
            ..self.clone()
        };
        while reduced.buckets.len() > reduced.most {
            reduced.widen();
        }
        reduced
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Returns the milliseconds without a sample after which a curve is interrupted: some times the
    /// usual time between two buckets, which is that between two samples where those are rare.
    pub(crate) fn patience(&self) -> u64 {
        /// Samples that are a little late are no gap.
        const LEAST: u64 = 10_000;
        let numbers = self.buckets.iter().zip(self.buckets.iter().skip(1));
        let mut steps: Vec<u64> = numbers.map(|(one, next)| next.0 - one.0).collect();
        steps.sort_unstable();
        let usual = steps.get(steps.len() / 2).copied().unwrap_or(1);
        (usual * self.width * 5 / 2).max(LEAST)
    }

    /// Returns each bucket with the time of its beginning in milliseconds.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &B)> {
        self.buckets
            .iter()
            .map(|(number, bucket)| (number * self.width, bucket))
    }
}

/// A sample of an amount and its parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AmountSample<P> {
    /// The time in milliseconds since 1970.
    pub(crate) at: u64,
    /// The amount in KiB.
    pub(crate) kib: u32,
    /// Decides between samples of the same amount: memory of tensors in KiB.
    pub(crate) inner_kib: u32,
    pub(crate) parts: P,
}

/// The samples with the lowest and the highest amount. Both keep their parts, which therefore add
/// up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Extremes<P> {
    pub(crate) low: AmountSample<P>,
    pub(crate) high: AmountSample<P>,
    /// Whether the amount was not known before the first sample: the curve is interrupted there.
    pub(crate) after_gap: bool,
}

impl<P: Clone> Extremes<P> {
    /// Returns the bucket of one sample.
    pub(crate) fn new(sample: AmountSample<P>, after_gap: bool) -> Self {
        Self {
            low: sample.clone(),
            high: sample,
            after_gap,
        }
    }

    /// Returns both samples in the order of time; one if they are the same.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &AmountSample<P>> {
        let (first, second) = if self.low.at <= self.high.at {
            (&self.low, &self.high)
        } else {
            (&self.high, &self.low)
        };
        std::iter::once(first).chain((first.at != second.at).then_some(second))
    }
}

impl<P> Decimated<Extremes<P>> {
    /// Returns the growth of the floor from the second quarter of the time to the last: the first
    /// quarter, in which a program starts, does not count. `None` where there are too few samples,
    /// or less than a minute of them.
    pub(crate) fn growth(&self) -> Option<ObservedGrowth> {
        /// The smallest growth as a share of the amount.
        const LEAST_SHARE: f64 = 0.005;
        let (second, last) = (self.floor_of_quarter(1)?, self.floor_of_quarter(3)?);
        let elapsed = Duration::from_millis(last.at.saturating_sub(second.at));
        let gain = f64::from(last.inner_kib) - f64::from(second.inner_kib);
        // The floor of a sawtooth varies a little from sample to sample.
        let gain = if gain.abs() < LEAST_SHARE * f64::from(second.inner_kib) {
            0.0
        } else {
            gain
        };
        ObservedGrowth::new(gain * 1024.0, elapsed)
    }

    /// Returns the standard error of the growth in bytes per hour, from the floors of eight parts
    /// of the time behind its first quarter. `None` where there are too few samples.
    pub(crate) fn growth_error(&self) -> Option<f64> {
        const PARTS: usize = 8;
        let behind = self.buckets.get(self.buckets.len() / 4..)?;
        let floors: Vec<(f64, f64)> = behind
            .chunks(behind.len().div_ceil(PARTS).max(1))
            .filter_map(|part| {
                let lows = part.iter().map(|(_, bucket)| &bucket.low);
                lows.min_by_key(|sample| sample.inner_kib)
            })
            .map(|low| {
                (
                    Duration::from_millis(low.at).as_secs_f64(),
                    f64::from(low.inner_kib) * 1024.0,
                )
            })
            .collect();
        Some(rate_error(&floors)? * 3600.0)
    }

    /// Returns the lowest amount in KiB in the second half of the time; `None` without samples.
    pub(crate) fn floor(&self) -> Option<u32> {
        let half = self.buckets.get(self.buckets.len() / 2..)?;
        half.iter().map(|(_, bucket)| bucket.low.inner_kib).min()
    }

    /// Returns the sample with the lowest amount in a quarter of the buckets.
    fn floor_of_quarter(&self, quarter: usize) -> Option<&AmountSample<P>> {
        let edge = |quarter: usize| self.buckets.len() * quarter / 4;
        let buckets = self.buckets.get(edge(quarter)..edge(quarter + 1))?;
        buckets
            .iter()
            .map(|(_, bucket)| &bucket.low)
            .min_by_key(|sample| sample.inner_kib)
    }
}

impl<P> AmountSample<P> {
    fn rank(&self) -> (u32, u32) {
        (self.kib, self.inner_kib)
    }
}

impl<P> DecimatedBucket for Extremes<P> {
    fn merge(&mut self, later: Self) {
        if later.low.rank() < self.low.rank() {
            self.low = later.low;
        }
        if later.high.rank() >= self.high.rank() {
            self.high = later.high;
        }
    }
}

/// The mean and the highest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    sum: f64,
    count: u32,
    pub(crate) high: f32,
}

impl Mean {
    pub(crate) fn of(value: f32) -> Self {
        Self {
            sum: f64::from(value),
            count: 1,
            high: value,
        }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

impl DecimatedBucket for Mean {
    fn merge(&mut self, later: Self) {
        self.sum += later.sum;
        self.count = self.count.saturating_add(later.count);
        self.high = self.high.max(later.high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, kib: u32) -> Extremes<()> {
        Extremes::new(
            AmountSample {
                at,
                kib,
                inner_kib: 0,
                parts: (),
            },
            false,
        )
    }

    #[test]
    fn a_long_series_keeps_each_peak_and_floor_in_few_buckets() {
        let mut series = Decimated::new(100);
        for second in 0..86_400 {
            let kib = match second {
                40_000 => 9000,
                50_000 => 7,
                _ => 1000 + second % 10,
            };
            series.push(
                u64::from(second) * 1000,
                sample(u64::from(second) * 1000, kib),
            );
        }
        let buckets: Vec<_> = series.iter().map(|(_, bucket)| bucket.clone()).collect();
        assert!((50..=100).contains(&buckets.len()), "{}", buckets.len());
        assert_eq!(
            buckets.iter().map(|bucket| bucket.high.kib).max(),
            Some(9000)
        );
        assert_eq!(buckets.iter().map(|bucket| bucket.low.kib).min(), Some(7));
        let low = buckets
            .iter()
            .find(|bucket| bucket.low.kib == 7)
            .map(|bucket| bucket.low.at);
        assert_eq!(low, Some(50_000_000));
        assert!(series.reduced(20).iter().count() <= 20);
    }

    #[test]
    fn the_growth_is_that_of_the_floor_after_the_start() {
        let growth = |kib: fn(u32) -> u32| {
            let mut series = Decimated::new(50);
            for second in 0..3600 {
                let at = u64::from(second) * 1000;
                let sample = AmountSample {
                    at,
                    kib: kib(second),
                    inner_kib: kib(second),
                    parts: (),
                };
                series.push(at, Extremes::new(sample, false));
            }
            series
                .growth()
                .map(|growth| (growth.per_hour() / 1024.0).round())
        };
        // A program that takes its memory in the first minutes, with a peak in each step.
        assert_eq!(
            growth(|second| second.min(600) * 100 + second % 7 * 50),
            Some(0.0)
        );
        let leak = growth(|second| 1000 + second * 10 + second % 7 * 50).unwrap();
        assert!((35_900.0..36_100.0).contains(&leak), "{leak}");
        assert_eq!(Decimated::<Extremes<()>>::new(50).growth(), None);
    }

    #[test]
    fn a_process_that_was_seen_for_twenty_seconds_has_no_rate() {
        let seen_for = |seconds: u32| {
            let mut series = Decimated::new(256);
            for second in 0..=seconds {
                let at = u64::from(second) * 1000;
                let sample = AmountSample {
                    at,
                    kib: 1_000_000 * second,
                    inner_kib: 1_000_000 * second,
                    parts: (),
                };
                series.push(at, Extremes::new(sample, false));
            }
            series.growth()
        };
        assert_eq!([20, 60].map(seen_for), [None, None]);
        assert!(
            seen_for(150).is_some(),
            "from the second quarter to the last"
        );
    }

    #[test]
    fn rare_samples_are_one_curve() {
        let patience = |seconds: u64| {
            let mut series = Decimated::new(480);
            for sample in 0..20 {
                series.push(sample * seconds * 1000, Mean::of(50.0));
            }
            series.patience()
        };
        assert_eq!([1, 10, 60].map(patience), [10_000, 25_000, 150_000]);
    }

    #[test]
    fn a_mean_counts_each_sample_once() {
        let mut series = Decimated::new(2);
        for (second, value) in [(0, 10.0), (1, 20.0), (2, 30.0), (3, 40.0), (4, 100.0)] {
            series.push(second * 1000, Mean::of(value));
        }
        let means: Vec<(f64, f32)> = series
            .iter()
            .map(|(_, mean)| (mean.mean(), mean.high))
            .collect();
        assert_eq!(means, [(25.0, 40.0), (100.0, 100.0)]);
    }
}
