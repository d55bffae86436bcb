//! The lowest and the highest value in a span of time: a bucket of a history, and of the growth
//! detector.

use serde::{Deserialize, Serialize};

/// The lowest and the highest value in a span of time. A checkpoint writes the two as a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(T, T)", into = "(T, T)")]
#[serde(bound(serialize = "T: Serialize + Clone"))]
pub(crate) struct MinMax<T> {
    pub low: T,
    pub high: T,
}

impl<T> From<(T, T)> for MinMax<T> {
    fn from((low, high): (T, T)) -> Self {
        Self { low, high }
    }
}

impl<T> From<MinMax<T>> for (T, T) {
    fn from(range: MinMax<T>) -> Self {
        (range.low, range.high)
    }
}

impl<T: Ord + Copy> MinMax<T> {
    /// Returns the range of a single value.
    pub(crate) fn of(value: T) -> Self {
        Self {
            low: value,
            high: value,
        }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    pub(crate) fn map<U>(self, to: impl Fn(T) -> U) -> MinMax<U> {
        MinMax {
            low: to(self.low),
            high: to(self.high),
        }
    }
}

impl MinMax<u32> {
    /// The range of no value. It takes four bytes less than `None`.
    pub(crate) const EMPTY: Self = Self {
        low: u32::MAX,
        high: 0,
    };

    pub(crate) fn is_empty(self) -> bool {
        self.low > self.high
    }
}
