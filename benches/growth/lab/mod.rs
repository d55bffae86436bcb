//! The labelled set: memory of simulated jobs that are known to leak or not, and when they run out
//! of memory.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "amounts here are below 2^53, positive where they become whole, and drawn at random anyway"
)]

pub(crate) mod allocator;
pub(crate) mod job;
pub(crate) mod random;
pub(crate) mod sampling;
pub(crate) mod shapes;

use self::job::Job;
pub(crate) use self::sampling::Sampling;
pub(crate) use self::shapes::Shape;

/// The expected verdict on a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    /// Never a leak.
    Healthy,
    /// Not a leak, but not distinguishable from one before it stops.
    AtMostSuspect,
    /// A leak that must be found.
    Leak,
    /// A leak that is reported separately.
    HardLeak,
}

/// A series with its label. Times are in seconds since its beginning.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) shape: Shape,
    pub(crate) capacity: u64,
    /// The time and amount of each change of memory.
    pub(crate) log: Vec<(f64, u64)>,
    /// The same without PyTorch's cache; empty for series of several processes.
    pub(crate) tensors: Vec<(f64, u64)>,
    pub(crate) end: f64,
    /// The beginning of the leak.
    pub(crate) onset: Option<f64>,
    /// The time from which a leak can be detected: its beginning, or its sixth step. The delay
    /// counts from here.
    pub(crate) detectable_from: f64,
    /// The time at which memory ran out.
    pub(crate) out_of_memory_at: Option<f64>,
    /// The end of a growth that is no leak.
    pub(crate) plateau: Option<f64>,
}

impl Case {
    fn new(job: Job, end: f64) -> Self {
        Self {
            shape: Shape::Flat,
            capacity: job.plan.capacity,
            end: job.out_of_memory_at.unwrap_or(end),
            log: job.log,
            tensors: job.tensors,
            onset: None,
            detectable_from: 0.0,
            out_of_memory_at: job.out_of_memory_at,
            plateau: None,
        }
    }

    /// Drops the changes before a time.
    fn drop_before(&mut self, from: f64) {
        for log in [&mut self.log, &mut self.tensors] {
            let first = log
                .partition_point(|entry| entry.0 <= from)
                .saturating_sub(1);
            log.drain(..first);
            for (time, _) in log {
                *time = (*time - from).max(0.0);
            }
        }
        self.end -= from;
        self.detectable_from -= from;
        for time in [
            &mut self.onset,
            &mut self.out_of_memory_at,
            &mut self.plateau,
        ]
        .into_iter()
        .flatten()
        {
            *time -= from;
        }
    }

    /// The time from which a leak can be detected; infinite without a leak.
    pub(crate) fn detectable_from(&self) -> f64 {
        self.onset
            .map_or(f64::INFINITY, |onset| onset.max(self.detectable_from))
    }
}
