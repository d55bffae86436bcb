//! The rows of a log in little memory: a log may have millions.

use crate::base::units::Bytes;

/// A row with an amount of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogRow {
    /// Milliseconds: since 1970, since midnight, or since the start of the log.
    pub(super) time: i64,
    /// The number of the line in the log.
    pub(super) line: u32,
    /// The index of the series.
    pub(super) series: u32,
    pub(super) used_kib: u32,
    /// The amount in KiB at which memory runs out; [`LogRow::NO_LIMIT`] if it is not known.
    pub(super) limit_kib: u32,
}

impl LogRow {
    pub(super) const NO_LIMIT: u32 = u32::MAX;

    pub(super) fn new(
        time: i64,
        line: u64,
        series: usize,
        used: Bytes,
        limit: Option<Bytes>,
    ) -> Self {
        Self {
            time,
            line: u32::try_from(line).unwrap_or(u32::MAX),
            series: u32::try_from(series).unwrap_or(u32::MAX),
            used_kib: kib(used),
            limit_kib: limit.map_or(Self::NO_LIMIT, kib),
        }
    }

    pub(super) fn used(&self) -> Bytes {
        Bytes::from_kib(u64::from(self.used_kib))
    }

    pub(super) fn limit(&self) -> Option<Bytes> {
        (self.limit_kib != Self::NO_LIMIT).then(|| Bytes::from_kib(u64::from(self.limit_kib)))
    }
}

/// Returns an amount in KiB, as the detector counts.
pub(super) fn kib(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0 >> 10)
        .unwrap_or(u32::MAX)
        .min(LogRow::NO_LIMIT - 1)
}
