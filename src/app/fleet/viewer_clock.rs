//! The clock of the viewer, which the first line shows, and how far the clocks of hosts differ from
//! it. Lists of several hosts have its times; what one host says alone has the host's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::app::App;
use crate::base::time::{ViewerClock, ViewerTime, WallClock, local_time};
use crate::base::units::Elapsed;
use crate::model::{Fleet, HostModel, RecordedClock};
use crate::protocol::host_key::HostKey;

/// A difference up to this is the way of a line to the viewer.
const TOLERATED_MS: u64 = 2000;

/// A longer way of some lines hardly changes a known difference: each line counts as one of so many.
const LINES: i64 = 64;

/// The viewer's clock, and the differences of the hosts' clocks.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// `None` until the session says it, and in a replay.
    viewer: Option<ViewerClock>,
    /// The milliseconds that the clock of each host is behind that of the viewer; negative if it is
    /// ahead. A line is on its way for some time, so the least difference is the best.
    behind_ms: BTreeMap<HostKey, i64>,
}

impl Clocks {
    pub(in crate::app) fn set(&mut self, clock: ViewerClock) {
        self.viewer = Some(clock);
    }

    pub(in crate::app) fn advance(&mut self, elapsed: ViewerTime) {
        if let Some(clock) = &mut self.viewer {
            *clock += elapsed;
        }
    }

    /// Compares the time in a line that has just come from a host with the viewer's.
    fn compare(&mut self, host: HostKey, unix_ms: u64) {
        let Some(viewer) = self.viewer else { return };
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let behind = signed(viewer.unix_ms).saturating_sub(signed(unix_ms));
        let known = self.behind_ms.entry(host).or_insert(behind);
        *known = behind.min(known.saturating_add(behind.saturating_sub(*known) / LINES));
    }

    /// The milliseconds that the clock of a host is behind; 0 for a difference that may be the way
    /// of its lines.
    fn behind(&self, host: HostKey) -> i64 {
        let behind = self.behind_ms.get(&host).copied().unwrap_or(0);
        if behind.unsigned_abs() <= TOLERATED_MS {
            0
        } else {
            behind
        }
    }

    /// The clock by which times of several hosts are shown together: the viewer's. In a replay that
    /// of the host; `None` while no time zone is known.
    pub(crate) fn shared(&self, fleet: &Fleet, host: HostKey) -> Option<WallClock> {
        let model = fleet.host(host)?;
        let Some(viewer) = self.viewer else {
            return model.wall_clock();
        };
        let latest = model.latest()?;
        let unix_ms = latest.unix_ms.saturating_add_signed(self.behind(host));
        Some(WallClock::new(latest.at, unix_ms, viewer.utc_offset))
    }
}

impl App {
    /// Compares the clock of a host with the viewer's after a line of the host.
    pub(in crate::app) fn compare_clocks(&mut self, host: HostKey) {
        let latest = self.data.live().host(host).and_then(HostModel::latest);
        if let Some(unix_ms) = latest.map(|latest| latest.unix_ms) {
            self.clocks.compare(host, unix_ms);
        }
    }

    /// Says by how much the clock of a host differs from the viewer's: `clock 1m30s behind`, `clock
    /// 5h00m behind (time zone)`. `None` up to two seconds, and in a replay.
    pub(crate) fn clock_difference(&self, host: HostKey) -> Option<String> {
        let viewer = self.clocks.viewer?;
        let facts = &self.fleet().host(host)?.latest()?.host.facts;
        let zones = facts.utc_offset.map_or(0, |of_host| {
            1000 * (i64::from(viewer.utc_offset) - i64::from(of_host))
        });
        let behind = self.clocks.behind(host);
        let all = behind.saturating_add(zones);
        let word = if all < 0 { "ahead" } else { "behind" };
        let why = if behind == 0 { " (time zone)" } else { "" };
        let by = Elapsed(Duration::from_millis(all.unsigned_abs()));
        (all != 0).then(|| format!("clock {by} {word}{why}"))
    }

    /// The local time of the viewer, as in `03:41:12`; in a replay that of the recording. Until
    /// either is known, the time of the first host whose time zone is known.
    pub(crate) fn time_of_day(&self) -> Option<String> {
        let fleet = self.fleet();
        if let Some(at) = self.replay.as_ref().and_then(|replay| replay.at) {
            return Some(RecordedClock::of_first_host(fleet).seconds(at));
        }
        if let Some(clock) = self.clocks.viewer.filter(|_| self.replay.is_none()) {
            let local = local_time(clock.unix_ms, clock.utc_offset);
            return Some(local[11..19].to_owned());
        }
        let clock = |model: &HostModel| Some(model.wall_clock()?.seconds(model.now(), model.now()));
        fleet.hosts().find_map(|(_, model)| clock(model))
    }

    /// The clock time of the latest line of a host, as in `12:02`.
    pub(in crate::app) fn last_seen(&self, host: HostKey) -> Option<String> {
        let model = self.fleet().host(host)?;
        let clock = self.clocks.shared(self.fleet(), host)?;
        Some(clock.near(model.now(), model.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostKey = HostKey::FIRST;
    /// 2026-07-14T08:12:38Z.
    const NOW: u64 = 1_784_016_758_000;

    fn clocks() -> Clocks {
        let mut clocks = Clocks::default();
        clocks.set(ViewerClock {
            unix_ms: NOW,
            utc_offset: 7200,
        });
        clocks
    }

    fn behind(clocks: &mut Clocks, unix_ms: u64) -> i64 {
        clocks.compare(HOST, unix_ms);
        clocks.behind(HOST)
    }

    #[test]
    fn a_clock_differs_from_two_seconds_on_by_the_line_with_the_shortest_way() {
        let mut clocks = clocks();
        let mut behind = |ms: u64| behind(&mut clocks, NOW - ms);
        // The first line took longer, and so does the last.
        assert_eq!([4000, 1500, 1400, 9000].map(&mut behind), [4000, 0, 0, 0]);
        assert_eq!(self::behind(&mut clocks, NOW + 18_000_000), -18_000_000);
    }

    #[test]
    fn a_clock_that_is_set_back_is_known_after_some_minutes_of_lines() {
        let mut clocks = clocks();
        clocks.compare(HOST, NOW);
        let lines = (0..600).map(|_| behind(&mut clocks, NOW - 60_000));
        assert!(lines.last().is_some_and(|behind| behind > 55_000));
    }

    #[test]
    fn no_time_of_a_hostile_agent_overflows() {
        let mut clocks = clocks();
        for unix_ms in [0, u64::MAX, 0, u64::MAX] {
            behind(&mut clocks, unix_ms);
        }
    }
}
