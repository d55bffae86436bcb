//! The figures of growth that goes on until memory is full.

use super::*;

/// Returns the share of minutes with a forecast whose interval holds the time at which memory is
/// full, after `seconds`.
fn share_right(seconds: u64, mib: impl Fn(u64) -> u64) -> f64 {
    let mut growth = LeakDetector::default();
    let (mut forecasts, mut right) = (0_u32, 0_u32);
    for second in 0..seconds {
        growth.push(
            Moment(5_000_000 + second * 1000),
            Bytes(mib(second) * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
        let forecast = growth.growing().and_then(|evidence| evidence.forecast);
        if let Some(forecast) = forecast.filter(|_| second % 60 == 0) {
            let left = Duration::from_secs(seconds - second);
            forecasts += 1;
            right += u32::from(forecast.low <= left && left <= forecast.high);
        }
    }
    assert!(
        u64::from(forecasts) > seconds / 90,
        "{forecasts} forecasts in {seconds} s"
    );
    f64::from(right) / f64::from(forecasts)
}

#[test]
fn the_interval_of_growth_that_speeds_up_holds_the_end_nine_times_of_ten() {
    for seconds in [1800, 5400] {
        let room = LIMIT - 2048;
        let squared = |at: u64| 2048 + room * at * at / (seconds * seconds);
        let right = share_right(seconds, squared);
        assert!(right >= 0.9, "{seconds} s: {right}");
    }
}

#[test]
fn the_interval_of_stairs_holds_the_end_nine_times_of_ten() {
    let room = LIMIT - 2048;
    let right = share_right(7200, |at| 2048 + room * (at / 240) / 30);
    assert!(right >= 0.9, "{right}");
}

#[test]
fn an_even_fill_of_three_minutes_has_figures_after_a_quarter_of_the_time() {
    let room = LIMIT - 2048;
    let mut growth = LeakDetector::default();
    let first = (0..180_u64).find(|second| {
        growth.push(
            Moment(5_000_000 + second * 1000),
            Bytes((2048 + room * second / 180) * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
        let growing = growth.growing();
        growing.is_some_and(|evidence| evidence.forecast.is_some())
    });
    assert!(first.is_some_and(|first| first <= 48), "{first:?}");
}
