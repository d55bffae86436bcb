//! Finds what is left under a sawtooth: after each fall a little more than after the one before. Such bottoms make
//! stairs, and the sixth step makes them a leak.
//!
//! In a window of buckets teeth of minutes are few points on the floor among many above it, and tell late.

use super::levels::Point;
use super::millis;
use super::stairs::Stairs;
use super::trend::Trend;
use crate::units::Moment;

/// KiB that a tooth falls at least.
const DEEP: f64 = 64.0 * 1024.0;

/// The teeth of a series.
#[derive(Debug, Clone)]
pub(super) struct Teeth {
    bottoms: Stairs,
    /// KiB: the highest bottom so far.
    most: f64,
    /// KiB: the most since the last bottom.
    top: f64,
    /// Where the tooth that has fallen stands at least; absent while one rises.
    fallen: Option<Point>,
}

impl Teeth {
    /// Of a series that began at that time.
    pub(super) fn since(first: Moment) -> Self {
        Self { bottoms: Stairs::since(first), most: 0.0, top: 0.0, fallen: None }
    }

    /// Takes a bucket.
    pub(super) fn push(&mut self, bucket: Point) {
        match self.fallen {
            // In a bucket with the fall, the most may have been before it.
            Some(bottom) if bucket.low > bottom.low + DEEP / 2.0 => {
                // What goes up and down has low and high bottoms, too: no more than regained is no step.
                if bottom.low <= self.most {
                    self.bottoms = Stairs::since(Moment(millis(bottom.at)));
                }
                self.most = self.most.max(bottom.low);
                self.bottoms.step(bottom);
                self.fallen = None;
                self.top = bucket.high;
            }
            Some(bottom) if bucket.low >= bottom.low => {}
            None if bucket.low >= self.top - DEEP => self.top = self.top.max(bucket.high),
            _ => self.fallen = Some(bucket),
        }
    }

    /// The trend of bottoms that go on to rise; as [`Stairs::find`].
    pub(super) fn find(&self, now: f64, width: f64, room: Option<f64>) -> Option<Trend> {
        self.bottoms.find(now, width, room)
    }
}
