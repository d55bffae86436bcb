//! The two clocks: data time, which is in the lines of agents, and viewer time, which the clock of the viewer measures.
//!
//! Data time drives history and verdicts. Viewer time drives notices, timeouts and "no data for 5 s". In a replay, the
//! two clocks run at different speeds, so no type converts one into the other.

use std::ops::AddAssign;
use std::time::{Duration, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A point in data time: milliseconds since the host booted, sleep included (`CLOCK_BOOTTIME`), as read by the agent.
///
/// Unlike the wall clock, this clock never jumps. The start ticks of processes are counted by this clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Moment(#[serde(deserialize_with = "bounded_milliseconds")] pub u64);

/// Reads milliseconds since boot. A hostile agent may send any number, so numbers above [`Moment::LATEST`] are replaced
/// by it: arithmetic with them could overflow.
fn bounded_milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(deserializer)?.min(Moment::LATEST.0))
}

impl Moment {
    /// The latest moment that is read from a line: 100 years after the boot.
    pub const LATEST: Self = Self(100 * 365 * 24 * 3600 * 1000);

    /// Returns the time since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment that is `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// An amount of viewer time, as the clock of the session measures it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ViewerTime(Duration);

impl ViewerTime {
    /// Zero viewer time.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Returns the amount of time that the session's clock measured.
    pub const fn new(measured: Duration) -> Self {
        Self(measured)
    }

    /// Returns the time that is left after `elapsed`; `None` when all of it has passed.
    pub fn left_after(self, elapsed: Self) -> Option<Self> {
        self.0.checked_sub(elapsed.0).map(Self)
    }

    /// Returns the amount, for display and for comparison with a timeout.
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl AddAssign for ViewerTime {
    fn add_assign(&mut self, elapsed: Self) {
        self.0 += elapsed.0;
    }
}

/// Returns the wall-clock time `2026-07-14T10:12:38.696+02:00`, in a time zone that is `offset` seconds ahead of UTC.
pub fn local_time(unix_ms: u64, offset: i32) -> String {
    /// The last millisecond of the year 9999, after which `humantime` formats nothing.
    const LAST_MS: u64 = 253_402_300_799_999;
    let local = unix_ms.saturating_add_signed(i64::from(offset) * 1000).min(LAST_MS);
    let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(local)).to_string();
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
    format!("{}{sign}{:02}:{:02}", time.trim_end_matches('Z'), minutes / 60, minutes % 60)
}
