//! Finds growth under a sawtooth: each drop leaves a little more than the one before. The bottoms of the drops make
//! steps, and the sixth step makes them a leak.
//!
//! [`trend`](super::trend) would find such a growth late: when drops are minutes apart, few points of a window are on
//! the floor.

use serde::{Deserialize, Serialize};

use super::buckets::Point;
use super::steps::StepGrowth;
use super::trend::Trend;
use crate::base::units::Moment;

/// The least depth of a drop in KiB.
const LEAST_DROP: u32 = 64 << 10;

/// The lowest amount after a drop.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Bottom {
    /// The time in seconds since boot.
    at: u32,
    /// The amount in KiB.
    low: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Sawtooth {
    first: Moment,
    /// The bottoms as steps; `None` before the first drop, as in most series.
    bottoms: Option<Box<StepGrowth>>,
    /// The highest bottom so far, in KiB.
    most: u32,
    /// The highest amount since the last bottom, in KiB.
    top: u32,
    /// The bottom of the current drop; `None` outside a drop.
    bottom: Option<Bottom>,
}

impl Sawtooth {
    /// Returns a sawtooth without drops, for a series that begins at a time.
    pub(super) fn since(first: Moment) -> Self {
        Self { first, bottoms: None, most: 0, top: 0, bottom: None }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.bottoms.as_deref().is_none_or(StepGrowth::is_sound)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "all are positive, and came from u32")]
    pub(super) fn push(&mut self, bucket: Point) {
        let (at, low, high) = (bucket.at as u32, bucket.low as u32, bucket.high as u32);
        match self.bottom {
            // The top starts with this bucket: the highest amount in the bucket of the drop may be from before the
            // drop.
            Some(bottom) if low > bottom.low.saturating_add(LEAST_DROP / 2) => {
                self.step(bottom);
                self.bottom = None;
                self.top = high;
            }
            Some(bottom) if low >= bottom.low => {}
            None if low >= self.top.saturating_sub(LEAST_DROP) => self.top = self.top.max(high),
            _ => self.bottom = Some(Bottom { at, low }),
        }
    }

    fn step(&mut self, Bottom { at, low }: Bottom) {
        // After a bottom no higher than an earlier one, steps are counted anew: a series that goes up and down has low
        // and high bottoms, too.
        if low <= self.most {
            self.first = Moment(u64::from(at) * 1000);
            self.bottoms = None;
        }
        self.most = self.most.max(low);
        let height = f64::from(low);
        let bottoms = self.bottoms.get_or_insert_with(|| StepGrowth::since(self.first).into());
        bottoms.step(Point { at: f64::from(at), low: height, high: height });
    }

    /// The trend of bottoms that continue to rise: see [`StepGrowth::find`].
    pub(super) fn find(&self, now: f64, width: f64, room: Option<f64>) -> Option<Trend> {
        self.bottoms.as_ref()?.find(now, width, room)
    }
}
