//! Finds what is left under a sawtooth: after each fall a little more than after the one before. Such bottoms make
//! stairs, and the sixth step makes them a leak.
//!
//! In a window of buckets teeth of minutes are few points on the floor among many above it, and tell late.

use super::buckets::Point;
use super::steps::Steps;
use super::trend::Trend;
use crate::base::units::Moment;

/// KiB that a tooth falls at least.
const DEEP: u32 = 64 << 10;

/// The lowest of a tooth that has fallen.
#[derive(Debug, Clone, Copy)]
struct Bottom {
    /// Seconds since boot.
    at: u32,
    /// KiB.
    low: u32,
}

/// The teeth of a series.
#[derive(Debug, Clone)]
pub(super) struct Sawtooth {
    first: Moment,
    /// Absent before the first: most series have no teeth.
    bottoms: Option<Box<Steps>>,
    /// KiB: the highest bottom so far.
    most: u32,
    /// KiB: the most since the last bottom.
    top: u32,
    /// Absent while a tooth rises.
    fallen: Option<Bottom>,
}

impl Sawtooth {
    /// Of a series that began at that time.
    pub(super) fn since(first: Moment) -> Self {
        Self { first, bottoms: None, most: 0, top: 0, fallen: None }
    }

    /// Takes a bucket.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "all are positive, and came from u32")]
    pub(super) fn push(&mut self, bucket: Point) {
        let (at, low, high) = (bucket.at as u32, bucket.low as u32, bucket.high as u32);
        match self.fallen {
            // In a bucket with the fall, the most may have been before it.
            Some(bottom) if low > bottom.low + DEEP / 2 => {
                self.step(bottom);
                self.fallen = None;
                self.top = high;
            }
            Some(bottom) if low >= bottom.low => {}
            None if low >= self.top.saturating_sub(DEEP) => self.top = self.top.max(high),
            _ => self.fallen = Some(Bottom { at, low }),
        }
    }

    fn step(&mut self, Bottom { at, low }: Bottom) {
        // What goes up and down has low and high bottoms, too: no more than regained is no step.
        if low <= self.most {
            self.first = Moment(u64::from(at) * 1000);
            self.bottoms = None;
        }
        self.most = self.most.max(low);
        let height = f64::from(low);
        let bottoms = self.bottoms.get_or_insert_with(|| Steps::since(self.first).into());
        bottoms.step(Point { at: f64::from(at), low: height, high: height });
    }

    /// The trend of bottoms that go on to rise; as [`Stairs::find`].
    pub(super) fn find(&self, now: f64, width: f64, room: Option<f64>) -> Option<Trend> {
        self.bottoms.as_ref()?.find(now, width, room)
    }
}
