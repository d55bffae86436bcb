//! The two clocks: data time, which is in the lines of agents, and viewer time, which the clock of
//! the viewer measures.
//!
//! Data time drives history and verdicts. Viewer time drives notices, timeouts and "no data for 5
//! s". In a replay, the two clocks run at different speeds, so no type converts one into the other.

use std::ops::AddAssign;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A point in data time: milliseconds since the host booted, sleep included (`CLOCK_BOOTTIME`), as
/// read by the agent.
///
/// Unlike the wall clock, this clock never jumps. The start ticks of processes are counted by this
/// clock.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Moment(#[serde(deserialize_with = "bounded_milliseconds")] pub u64);

/// Reads milliseconds since boot. A hostile agent may send any number, so numbers above
/// [`Moment::LATEST`] are replaced by it: arithmetic with them could overflow.
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

    /// Returns the moment that is `span` earlier; that of the boot when `span` is longer.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(span))
    }

    /// Returns the moment that is `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
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

/// The wall clock of the viewer and its time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewerClock {
    /// Milliseconds since 1970, UTC.
    pub unix_ms: u64,
    /// Seconds ahead of UTC.
    pub utc_offset: i32,
}

impl AddAssign<ViewerTime> for ViewerClock {
    fn add_assign(&mut self, elapsed: ViewerTime) {
        let elapsed = u64::try_from(elapsed.0.as_millis()).unwrap_or(u64::MAX);
        self.unix_ms = self.unix_ms.saturating_add(elapsed);
    }
}

/// The wall clock of a host, in its time zone. Converts a [`Moment`] to local time: milliseconds
/// since 1970, as a clock on the wall shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock {
    /// A moment, and its local time.
    known: (Moment, u64),
}

impl WallClock {
    /// Returns the clock that showed `unix_ms` (UTC) at a moment, in a time zone that is `offset`
    /// seconds ahead of UTC.
    pub fn new(at: Moment, unix_ms: u64, offset: i32) -> Self {
        // A later time could not be added to. The year is far above 9999, after which nothing is
        // formatted.
        let latest = Moment::LATEST.0 * 1000;
        Self {
            known: (
                at,
                unix_ms
                    .min(latest)
                    .saturating_add_signed(i64::from(offset) * 1000),
            ),
        }
    }

    /// Returns the local time of a moment.
    pub fn local_ms(self, at: Moment) -> u64 {
        let (known, local) = self.known;
        (local + at.0).saturating_sub(known.0)
    }

    /// Returns `03:41:12`, or the date `07-14` for a moment more than a day before or after `now`.
    pub fn seconds(self, at: Moment, now: Moment) -> String {
        let local = self.local_ms(at);
        if is_near(at, now) {
            Self::time_of_day(local)
        } else {
            Self::day(local)
        }
    }

    /// Returns `03:41`, with the date before it, as in `07-14 03:41`, for a moment more than a day
    /// before or after `now`.
    pub fn near(self, at: Moment, now: Moment) -> String {
        let local = self.local_ms(at);
        let time = Self::hour_and_minute(local);
        if is_near(at, now) {
            time
        } else {
            format!("{} {time}", Self::day(local))
        }
    }

    /// Returns `13:41` for a moment that is to come; from 20 hours on with the weekday, as in
    /// `Fri 13:41`, and from six days on with the date.
    pub fn ahead(self, at: Moment, now: Moment) -> String {
        const NEXT_DAY: Duration = Duration::from_hours(20);
        const NEXT_WEEK: Duration = Duration::from_hours(6 * 24);
        let local = self.local_ms(at);
        let time = Self::hour_and_minute(local);
        match at.since(now) {
            left if left < NEXT_DAY => time,
            left if left < NEXT_WEEK => format!("{} {time}", Self::weekday(local)),
            _ => format!("{} {time}", Self::day(local)),
        }
    }

    /// Returns the weekday of a local time, as in `Fri`.
    fn weekday(local_ms: u64) -> &'static str {
        const DAY: u64 = 24 * 3600 * 1000;
        // 1 January 1970 was a Thursday.
        const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        usize::try_from(local_ms / DAY % 7).map_or("", |day| WEEKDAYS[day])
    }

    /// Returns the month and day of a local time, as in `07-14`.
    pub fn day(local_ms: u64) -> String {
        local_time(local_ms, 0)[5..10].to_owned()
    }

    /// Returns `03:41`.
    pub fn hour_and_minute(local_ms: u64) -> String {
        local_time(local_ms, 0)[11..16].to_owned()
    }

    /// Returns `03:41:12`.
    pub fn time_of_day(local_ms: u64) -> String {
        local_time(local_ms, 0)[11..19].to_owned()
    }
}

/// Whether two moments are less than a day apart.
fn is_near(at: Moment, now: Moment) -> bool {
    at.since(now).max(now.since(at)) < Duration::from_hours(24)
}

/// Returns the wall-clock time `2026-07-14T10:12:38.696+02:00`, in a time zone that is `offset`
/// seconds ahead of UTC.
pub fn local_time(unix_ms: u64, offset: i32) -> String {
    let local = unix_ms.saturating_add_signed(i64::from(offset) * 1000);
    let local = i64::try_from(local).unwrap_or(i64::MAX);
    let time = format!(
        "{:.3}",
        Timestamp::from_millisecond(local).unwrap_or(Timestamp::MAX)
    );
    let (sign, minutes) = (
        if offset < 0 { '-' } else { '+' },
        offset.unsigned_abs() / 60,
    );
    format!(
        "{}{sign}{:02}:{:02}",
        time.trim_end_matches('Z'),
        minutes / 60,
        minutes % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_come_has_its_weekday_from_the_next_day_on() {
        // Thursday, 26 November 2026, 10:12 UTC.
        let clock = WallClock::new(Moment(0), 1_795_687_920_000, 0);
        let ahead = |hours| clock.ahead(Moment(0).after(Duration::from_hours(hours)), Moment(0));
        assert_eq!(
            [1, 19, 20, 48, 200].map(ahead),
            ["11:12", "05:12", "Fri 06:12", "Sat 10:12", "12-04 18:12"]
        );
    }

    #[test]
    fn a_moment_has_a_clock_time_in_the_time_zone_of_its_host() {
        // 2026-07-14T08:12:38Z.
        let now = Moment(5_000_000);
        let clock = WallClock::new(now, 1_784_016_758_000, 7200);
        assert_eq!(clock.seconds(now, now), "10:12:38");
        assert_eq!(clock.seconds(Moment(4_940_000), now), "10:11:38");
        assert_eq!(clock.near(now.after(Duration::from_hours(3)), now), "13:12");
        assert_eq!(
            clock.near(now.after(Duration::from_hours(48)), now),
            "07-16 10:12"
        );
        let later = Moment(5_000_000 + 25 * 3_600_000);
        assert_eq!(clock.seconds(now, later), "07-14");
    }

    #[test]
    fn no_clock_of_a_hostile_agent_overflows() {
        for (at, unix_ms, offset) in [
            (0, u64::MAX, i32::MAX),
            (Moment::LATEST.0, 0, i32::MIN),
            (0, 0, i32::MIN),
        ] {
            let clock = WallClock::new(Moment(at), unix_ms, offset);
            assert_eq!(clock.seconds(Moment(0), Moment::LATEST).len(), 5);
            assert_eq!(clock.near(Moment::LATEST, Moment::LATEST).len(), 5);
        }
    }
}
