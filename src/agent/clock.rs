//! The agent's clock: where time comes in.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::units::Moment;

/// Now, by the clock of a process's start ticks.
pub(super) fn now() -> Moment {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let seconds = Duration::from_secs(u64::try_from(tv_sec).unwrap_or(0));
    Moment(0).after(seconds + Duration::from_nanos(u64::try_from(tv_nsec).unwrap_or(0)))
}
