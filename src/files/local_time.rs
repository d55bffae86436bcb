//! The wall clock and the time zone of this host.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the milliseconds since 1970 (UTC), for what ends at a time of the day.
#[expect(
    clippy::disallowed_methods,
    reason = "a time of the day is one of the wall clock"
)]
pub(crate) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Returns how many seconds local time is ahead of UTC. `None` when the time zone is unknown.
pub(crate) fn utc_offset() -> Option<i32> {
    let now = clock_gettime(ClockId::Realtime).tv_sec;
    // SAFETY: the structure is plain numbers and a pointer, for all of which zero is valid.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: `localtime_r` reads `now` and writes `local`.
    if unsafe { libc::localtime_r(&raw const now, &raw mut local) }.is_null() {
        return None;
    }
    i32::try_from(local.tm_gmtoff).ok()
}
