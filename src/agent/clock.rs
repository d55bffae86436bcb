//! Reads the clocks of this host.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::base::units::Moment;

/// Returns the time since boot, including suspend. Start ticks in `/proc/PID/stat` use the same
/// clock.
pub(super) fn now() -> Moment {
    Moment(milliseconds(clock_gettime(ClockId::Boottime)))
}

/// Returns the time since boot, without suspend.
pub(super) fn time_awake() -> Duration {
    Duration::from_millis(milliseconds(clock_gettime(ClockId::Monotonic)))
}

/// Returns the milliseconds since 1970 (UTC), by the wall clock.
pub(super) fn unix_ms() -> u64 {
    milliseconds(clock_gettime(ClockId::Realtime))
}

pub(super) fn thread_cpu_time() -> Duration {
    // CPU time is never negative, so the conversion cannot fail. `MAX` would make a time-limited
    // scan stop.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or(Duration::MAX)
}

fn milliseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000)
}
