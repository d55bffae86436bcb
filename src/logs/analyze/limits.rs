//! The amount of memory at which each series of a log runs out of it.

use std::collections::{HashMap, VecDeque};

use super::rows::{LogRow, kib};
use super::series::LogSeries;
use crate::base::units::Bytes;

/// Fills in the amount at which each series runs out of memory: the capacity of its GPU, less what
/// the other processes on it hold. The rows are in the order of time. Rows that have a limit keep
/// it.
pub(super) fn add_limits(rows: &mut [LogRow], series: &[LogSeries], capacity: Option<Bytes>) {
    /// Milliseconds after which the latest sample of a process no longer counts.
    const STALE: i64 = 60_000;
    if capacity.is_none() && series.iter().all(|series| series.total.is_none()) {
        return;
    }
    let mut numbers = HashMap::new();
    let gpus: Vec<usize> = series
        .iter()
        .map(|series| {
            let count = numbers.len();
            *numbers.entry((&series.host, &series.gpu)).or_insert(count)
        })
        .collect();
    // The memory that the processes on each GPU hold together, the latest sample of each process,
    // and all samples that count.
    let mut together = vec![0_u64; numbers.len()];
    let mut latest: Vec<Option<(i64, u32)>> = vec![None; series.len()];
    let mut recent: VecDeque<(i64, u32)> = VecDeque::new();
    for row in rows {
        let place = row.series as usize;
        let Some(capacity) = capacity.or(series[place].total) else {
            continue;
        };
        if series[place].pid.is_none() {
            if row.limit_kib == LogRow::NO_LIMIT {
                row.limit_kib = kib(capacity);
            }
            continue;
        }
        while let Some((time, old)) = recent
            .front()
            .copied()
            .filter(|(time, _)| row.time - time >= STALE)
        {
            recent.pop_front();
            let old = old as usize;
            if let Some((_, held)) = latest[old].take_if(|(sampled, _)| *sampled == time) {
                together[gpus[old]] -= u64::from(held);
            }
        }
        let sum = &mut together[gpus[place]];
        *sum -= latest[place].map_or(0, |(_, held)| u64::from(held));
        if row.limit_kib == LogRow::NO_LIMIT {
            row.limit_kib = kib(capacity.saturating_sub(Bytes::from_kib(*sum)));
        }
        *sum += u64::from(row.used_kib);
        latest[place] = Some((row.time, row.used_kib));
        recent.push_back((row.time, row.series));
    }
}
