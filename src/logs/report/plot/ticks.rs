//! The ticks of the axes: amounts of memory in round numbers, and clock times.

use crate::base::time::WallClock;
use crate::base::units::Bytes;

/// The most lines across a plot.
const MOST_AMOUNTS: f64 = 5.0;

/// The widths between two ticks of time in seconds.
const STEPS: [u64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800,
];

const DAY: u64 = 86_400;

/// Returns amounts in KiB up to `top`, with their labels.
pub(super) fn amounts(top: f64) -> Vec<(f64, String)> {
    const WIDTHS: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];
    let mut unit = 1.0;
    while top / (unit * 1024.0) >= 1.0 {
        unit *= 1024.0;
    }
    let width = WIDTHS
        .into_iter()
        .map(|width| width * unit)
        .find(|width| top / width <= MOST_AMOUNTS)
        .unwrap_or(500.0 * unit);
    let place = |number: u32| f64::from(number) * width;
    let ticks = (0..).map(place).take_while(|kib| *kib <= top);
    ticks.map(|kib| (kib, label(kib))).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an amount of memory"
)]
fn label(kib: f64) -> String {
    if kib == 0.0 {
        "0".to_owned()
    } else {
        Bytes::from_kib(kib as u64).to_string().replace(".0 ", " ")
    }
}

/// Returns at most this many times of a span in milliseconds since 1970, with their labels in local
/// time.
pub(super) fn times((from, to): (u64, u64), utc_offset: i32, most: u64) -> Vec<(u64, String)> {
    let local = |at: u64| at.saturating_add_signed(i64::from(utc_offset) * 1000) / 1000;
    let seconds = (to.saturating_sub(from) / 1000).max(1);
    let step = STEPS
        .into_iter()
        .find(|step| seconds / step < most)
        .unwrap_or(seconds / most);
    let first = local(from).div_ceil(step) * step;
    let ticks = (0..=most)
        .map(|number| first + number * step)
        .take_while(|time| *time <= local(to));
    ticks
        .map(|time| {
            let local_ms = time * 1000;
            let label = match () {
                () if time % DAY == 0 && seconds > DAY / 2 => WallClock::day(local_ms),
                () if step >= DAY => WallClock::day(local_ms),
                () if step < 60 => WallClock::time_of_day(local_ms),
                () => WallClock::hour_and_minute(local_ms),
            };
            (
                local_ms.saturating_add_signed(-i64::from(utc_offset) * 1000),
                label,
            )
        })
        .collect()
}

/// Returns the local time of a moment, with the date if it is outside the day of the span's end.
pub(super) fn clock(at: u64, utc_offset: i32, span: (u64, u64)) -> String {
    let local = |at: u64| at.saturating_add_signed(i64::from(utc_offset) * 1000);
    let time = WallClock::hour_and_minute(local(at));
    if local(at) / 1000 / DAY == local(span.1) / 1000 / DAY {
        time
    } else {
        format!("{} {time}", WallClock::day(local(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_round_and_few() {
        let labels = |gib: f64| {
            amounts(gib * 1_048_576.0)
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(81.6), ["0", "20 GiB", "40 GiB", "60 GiB", "80 GiB"]);
        assert_eq!(labels(0.3), ["0", "100 MiB", "200 MiB", "300 MiB"]);
        assert_eq!(labels(1.2), ["0", "1 GiB"]);
    }

    #[test]
    fn times_are_at_round_minutes_of_the_local_time() {
        // 2026-07-14T08:12:38Z.
        let from = 1_784_016_758_000;
        let labels = |seconds: u64, offset| {
            times((from, from + seconds * 1000), offset, 10)
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels(20, 7200),
            ["10:12:40", "10:12:45", "10:12:50", "10:12:55"]
        );
        assert_eq!(
            labels(3600, 0),
            ["08:20", "08:30", "08:40", "08:50", "09:00", "09:10"]
        );
        assert_eq!(
            labels(86_400, 3600),
            [
                "12:00", "15:00", "18:00", "21:00", "07-15", "03:00", "06:00", "09:00"
            ]
        );
    }
}
