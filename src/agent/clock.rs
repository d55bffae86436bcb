//! The clocks of this host. No other file of the agent reads a clock.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::base::units::Moment;

/// Milliseconds since boot, sleep included: the clock of start ticks.
pub(super) fn now() -> Moment {
    Moment(milliseconds(clock_gettime(ClockId::Boottime)))
}

/// Milliseconds since 1970 (UTC), by the wall clock.
pub(super) fn unix_ms() -> u64 {
    milliseconds(clock_gettime(ClockId::Realtime))
}

/// The CPU time of this thread.
pub(super) fn computed() -> Duration {
    // The time is never negative. If it were, a limited task would have no time left.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or(Duration::MAX)
}

fn milliseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000)
}

/// Seconds that local time is ahead of UTC; `None` where the time zone is not known.
pub(super) fn utc_offset() -> Option<i32> {
    let now = clock_gettime(ClockId::Realtime).tv_sec;
    // SAFETY: the structure is plain numbers and a pointer, for all of which zero is a value.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: it reads one number and fills the structure.
    if unsafe { libc::localtime_r(&raw const now, &raw mut local) }.is_null() {
        return None;
    }
    i32::try_from(local.tm_gmtoff).ok()
}
