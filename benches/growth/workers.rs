//! Runs the same work on many inputs, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Returns the results for all numbers of a range, in the order of the numbers.
pub(crate) fn on_all_cores<T: Send>(
    numbers: std::ops::Range<u64>,
    work: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(numbers.start);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    let result = work(number);
                    results
                        .lock()
                        .expect("no worker panicked")
                        .push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no worker panicked");
    results.sort_by_key(|result| result.0);
    results.into_iter().map(|result| result.1).collect()
}
