//! The end of a series whose memory is full then.

use super::episodes::between;
use super::rows::LogRow;
use crate::base::units::Bytes;

/// Times are seconds since the start of the series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FullEnd {
    /// When memory was full, and stayed so to the end.
    pub(super) at: f64,
    /// The memory that filled up last.
    pub(super) gained: Bytes,
    /// When this growth began.
    pub(super) from: f64,
}

impl FullEnd {
    /// Returns the end of rows in the order of time; `None` if memory was not full, or its limit
    /// is not known.
    pub(super) fn of(rows: &[LogRow]) -> Option<Self> {
        /// The share of the memory in hundredths that counts as full.
        const FULL: u64 = 97;
        /// Seconds before the end in which the growth began.
        const LONGEST: f64 = 3.0 * 3600.0;
        let (first, last) = (rows.first()?, rows.last()?);
        let level = last.limit()?.0 / 100 * FULL;
        if last.used().0 < level || level == 0 {
            return None;
        }
        let full = rows.iter().rposition(|row| row.used().0 < level)? + 1;
        let at = between(first, &rows[full]);
        let begin = rows.partition_point(|row| between(first, row) < at - LONGEST);
        let before = &rows[begin..=full];
        let low = before.iter().map(|row| row.used().0).min()?;
        let top = rows[full].used().0;
        // The growth begins where the tenth of it was not yet reached for the last time.
        let base = low + (top - low.min(top)) / 10;
        let from = before.iter().rposition(|row| row.used().0 <= base)?;
        Some(Self {
            at,
            gained: Bytes(top - before[from].used().0.min(top)),
            from: between(first, &before[from]),
        })
    }
}
