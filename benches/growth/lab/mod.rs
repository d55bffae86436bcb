//! The labelled set: memory of jobs of which one knows whether they leak, and when they run out.

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

/// What may be said of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Label {
    /// Never a leak.
    Healthy,
    /// Never a leak either, but nobody can tell before it stops.
    AtMostSuspect,
    /// A leak, and it must be found.
    Leak,
    /// A leak, and it is reported apart.
    HardLeak,
}

/// A series with its label. Times are seconds since it begins.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) shape: Shape,
    pub(crate) capacity: u64,
    /// Every change of the memory held, with its time.
    pub(crate) log: Vec<(f64, u64)>,
    /// Of that, all but PyTorch's cache; not of what several processes hold, or one after the other.
    pub(crate) tensors: Vec<(f64, u64)>,
    pub(crate) end: f64,
    /// When the leak began.
    pub(crate) onset: Option<f64>,
    /// From when on one could tell: the onset, or the sixth step of stairs. A delay counts from here.
    pub(crate) tellable: f64,
    /// When memory ran out.
    pub(crate) died: Option<f64>,
    /// When a growth that is none ended.
    pub(crate) plateau: Option<f64>,
}

impl Case {
    fn of(job: Job, end: f64) -> Self {
        Self {
            shape: Shape::Flat,
            capacity: job.plan.capacity,
            end: job.died.unwrap_or(end),
            log: job.log,
            tensors: job.tensors,
            onset: None,
            tellable: 0.0,
            died: job.died,
            plateau: None,
        }
    }

    /// Forgets what was before that time.
    fn begin(&mut self, from: f64) {
        for log in [&mut self.log, &mut self.tensors] {
            let first = log.partition_point(|entry| entry.0 <= from).saturating_sub(1);
            log.drain(..first);
            for it in log {
                it.0 = (it.0 - from).max(0.0);
            }
        }
        self.end -= from;
        self.tellable -= from;
        for time in [&mut self.onset, &mut self.died, &mut self.plateau].into_iter().flatten() {
            *time -= from;
        }
    }

    /// From when on a delay counts.
    pub(crate) fn tellable(&self) -> f64 {
        self.onset.map_or(f64::INFINITY, |onset| onset.max(self.tellable))
    }
}
