//! The rate of memory that grows, and when it is full, in few words.

use std::time::Duration;

use super::short_amount;
use crate::base::time::WallClock;
use crate::base::units::Moment;
use crate::model::{Forecast, Growing, HostModel, Rate};

/// A rate in at most eleven columns: `+2.3G/min`, `+640M/h`.
pub(crate) fn rate(rate: Rate) -> String {
    let (amount, unit) = rate.per_unit();
    format!("+{}/{unit}", short_amount(amount))
}

/// When memory is full: `full 13:41`, with the weekday from 20 hours on, or `full in 12m` where the
/// time of day is not known. `None` where nobody can say.
pub(crate) fn when_full(model: &HostModel, growing: &Growing) -> Option<String> {
    Some(full_after(model.wall_clock(), model.now(), growing.left()?))
}

/// When memory is full, and the earliest and latest time of that: `full 13:41 (13:38–13:45)`.
/// `None` where nobody can say so closely: the range is wider than the time left.
pub(crate) fn full_within(model: &HostModel, growing: &Growing) -> Option<String> {
    let forecast = growing.evidence.forecast.filter(is_close)?;
    Some(full_between(model.wall_clock(), model.now(), &forecast))
}

/// `full 13:41`, this time after `now`; `full in 12m` where the time of day is not known.
pub(crate) fn full_after(clock: Option<WallClock>, now: Moment, left: Duration) -> String {
    clock.map_or_else(
        || format!("full in {}", rounded(left)),
        |clock| format!("full {}", clock.ahead(now.after(left), now)),
    )
}

/// `full 13:41 (13:38–13:45)`: the likely time, and the range that holds in eight of ten cases.
pub(crate) fn full_between(clock: Option<WallClock>, now: Moment, forecast: &Forecast) -> String {
    let range = [forecast.low, forecast.high].map(|left| match clock {
        Some(clock) => clock.ahead(now.after(left), now),
        None => rounded(left),
    });
    let likely = full_after(clock, now, forecast.likely);
    format!("{likely} ({})", range.join("–"))
}

/// Whether the range of a forecast is narrower than the time left.
pub(crate) fn is_close(forecast: &Forecast) -> bool {
    forecast.high.saturating_sub(forecast.low) < forecast.likely
}

/// A time in its largest unit: `45s`, `9m`, `3h`, `2d`.
pub(crate) fn rounded(span: Duration) -> String {
    let seconds = span.as_secs();
    let whole = |unit: u64| (seconds + unit / 2) / unit;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..5940 => format!("{}m", whole(60)),
        5940..172_800 => format!("{}h", whole(3600)),
        _ => format!("{}d", whole(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_left_has_its_largest_unit() {
        let words = |seconds| rounded(Duration::from_secs(seconds));
        assert_eq!(
            [20, 699, 5939, 5940, 172_799, 172_800].map(words),
            ["20s", "12m", "99m", "2h", "48h", "2d"]
        );
    }

    #[test]
    fn a_rate_is_short() {
        let per_minute = |mib: f64| rate(Rate(mib * 1_048_576.0 / 60.0));
        assert_eq!(
            [2400.0, 40.0, 0.5].map(per_minute),
            ["+2.3G/min", "+40.0M/min", "+30.0M/h"]
        );
    }
}
