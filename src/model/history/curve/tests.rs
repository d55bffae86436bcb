//! Tests of curves against a plain list of all samples.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PATIENCE: Duration = Duration::from_secs(3);

fn curve(samples: &[(u64, Option<u32>)], patience: Duration) -> Curve {
    let mut curve = Curve::default();
    for (at, value) in samples {
        curve.push(Moment(*at), *value, patience);
    }
    curve
}

impl Curve {
    /// The heap memory in bytes.
    pub(in crate::model::history) fn bytes(&self) -> usize {
        let long = self.long.as_ref().map_or(0, |long| {
            size_of::<CoarseTracks>()
                + [&long.tens, &long.low, &long.high]
                    .into_iter()
                    .map(Track::bytes)
                    .sum::<usize>()
        });
        self.seconds.bytes() + long
    }
}

/// Checks the highest value in each part of the `span` seconds up to the second `now`. Samples are
/// given by their second.
#[track_caller]
fn check(samples: &[(u64, Option<u32>)], now: u64, span: u64, expected: &[Option<u32>]) {
    let samples: Vec<_> = samples
        .iter()
        .map(|(second, value)| (second * 1000, *value))
        .collect();
    let now = Moment(now * 1000);
    let window = Window::until(now, Duration::from_secs(span), expected.len());
    let parts = curve(&samples, PATIENCE).over(&window, now);
    assert_eq!(
        parts
            .iter()
            .map(|range| range.map(|range| range.high))
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_second_without_a_sample_repeats_the_one_before() {
    check(
        &[(100, Some(1)), (102, Some(3))],
        103,
        5,
        &[None, Some(1), Some(1), Some(3), Some(3)],
    );
}

#[test]
fn the_present_is_at_the_end_on_a_host_that_has_just_booted() {
    let samples: Vec<_> = (200..400).map(|second| (second, Some(7))).collect();
    check(
        &samples,
        399,
        7 * 86_400,
        &[None, None, None, None, None, None, Some(7)],
    );
    check(
        &samples,
        399,
        800,
        &[None, None, None, None, None, None, Some(7), Some(7)],
    );
}

#[test]
fn a_long_silence_is_a_gap() {
    let gap = [
        None,
        Some(1),
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        Some(3),
    ];
    check(&[(100, Some(1)), (110, Some(3))], 110, 12, &gap);
}

#[test]
fn a_missing_reading_is_a_gap_and_never_0() {
    check(
        &[(100, Some(7)), (101, None), (102, Some(7))],
        102,
        3,
        &[Some(7), None, Some(7)],
    );
    check(
        &[(100, Some(7)), (101, None)],
        103,
        4,
        &[Some(7), None, None, None],
    );
}

#[test]
fn a_part_shows_the_highest_of_its_samples() {
    check(
        &[
            (100, Some(1)),
            (101, Some(9)),
            (102, Some(2)),
            (103, Some(1)),
        ],
        103,
        4,
        &[Some(9), Some(2)],
    );
}

#[test]
fn a_present_without_samples_is_a_gap() {
    check(
        &[(100, Some(1))],
        106,
        8,
        &[None, Some(1), None, None, None, None, None, None],
    );
}

#[test]
fn a_slow_interval_has_gaps_only_where_samples_are_missing() {
    let minute = Duration::from_mins(1);
    let samples: Vec<_> = (0..60u32)
        .filter(|minute| !(20..25).contains(minute))
        .map(|minute| (u64::from(minute) * 60_000, Some(minute)))
        .collect();
    let curve = curve(&samples, 3 * minute);
    let now = Moment(59 * 60_000);
    let highs = |span, parts| -> Vec<Option<u32>> {
        curve
            .over(&Window::until(now, span, parts), now)
            .iter()
            .map(|part| part.map(|range| range.high))
            .collect()
    };
    // In the 10-second buckets, each minute appears six times.
    let expected: Vec<Option<u32>> = (325..355).map(|minute| Some(minute / 6)).collect();
    assert_eq!(highs(5 * minute, 30), expected);
    // In parts of a minute, with the gap.
    let expected: Vec<_> = (0..60)
        .map(|minute| (!(20..25).contains(&minute)).then_some(minute))
        .collect();
    assert_eq!(highs(60 * minute, 60), expected);
}

#[test]
fn lowest_and_highest_stay_for_a_week() {
    // A sawtooth whose floor rises by 1 each second, for three days with a sample each second.
    let mut curve = Curve::default();
    let end = 3 * 86_400;
    for second in 0..=end {
        curve.push(
            Moment(u64::from(second) * 1000),
            Some(second + 1000 * (second % 7)),
            PATIENCE,
        );
    }
    let now = Moment(u64::from(end) * 1000);
    let window = Window::until(now, Duration::from_hours(72), 72);
    let parts = curve.over(&window, now);
    for (hour, part) in parts.iter().enumerate().take(60).skip(1) {
        let begin = u32::try_from(window.moment(hour).0 / 1000).unwrap();
        let part = part.unwrap();
        assert!((begin..begin + 8).contains(&part.low), "{hour}: {part:?}");
        assert!(
            (begin + 3600 + 6000 - 14..begin + 3600 + 6000).contains(&part.high),
            "{hour}: {part:?}"
        );
    }
}

#[test]
fn a_week_of_noise_takes_no_more_memory_than_documented() {
    let mut curve = Curve::default();
    let mut noise = 1u32;
    for at in a_week() {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        curve.push(at, Some(noise >> 1), Duration::from_mins(20));
    }
    assert!(
        (30_000..36_000).contains(&curve.bytes()),
        "{}",
        curve.bytes()
    );
}

#[test]
fn constant_and_short_curves_take_almost_no_memory() {
    let mut idle = Curve::default();
    for at in a_week() {
        idle.push(at, Some(4_194_304), Duration::from_mins(20));
    }
    assert!(idle.bytes() < 5000, "{}", idle.bytes());
    let mut short = Curve::default();
    for second in 0..5 {
        short.push(Moment(second * 1000), Some(1), PATIENCE);
    }
    assert!(short.bytes() < 500, "{}", short.bytes());
}

/// Returns moments that fill every resolution: five minutes apart, then ten seconds, then one.
fn a_week() -> impl Iterator<Item = Moment> {
    let (week, six_hours, quarter) = (7 * 86_400, 6 * 3600, 900);
    let coarse = (0..week - six_hours).step_by(300);
    let middle = (week - six_hours..week - quarter).step_by(10);
    coarse
        .chain(middle)
        .chain(week - quarter..week)
        .map(|second| Moment(second * 1000))
}

/// Generates samples at about one interval, with jitter, missing readings and silences: the
/// patience, and the samples by milliseconds since boot.
fn any_samples() -> impl Strategy<Value = (Duration, Vec<(u64, Option<u32>)>)> {
    let intervals = prop::sample::select(vec![100u64, 500, 1000, 2000, 10_000, 60_000]);
    let step = (0..100u32, 0..40u64, prop::option::weighted(0.9, 0..5000u32));
    (
        intervals,
        prop::collection::vec(step, 1..600),
        0..1_000_000u64,
    )
        .prop_map(|(interval, steps, begin)| {
            let mut at = 10_000_000 + begin;
            let samples = steps.into_iter().map(|(chance, jitter, value)| {
                at += interval + interval * jitter / 100;
                // Now and then there is a silence, short or long.
                at += match chance {
                    0 => 700_000_000,
                    1..3 => 2_000_000,
                    3..6 => 7 * interval,
                    _ => 0,
                };
                (at, value)
            });
            (
                3 * Duration::from_millis(interval).max(Duration::from_millis(334)),
                samples.collect(),
            )
        })
}

/// Computes the expected parts from a plain list: the samples by bucket, the parts from the
/// buckets.
fn naive(
    samples: &[(u64, Option<u32>)],
    patience: u64,
    resolution: u64,
    window: &Window,
    now: u64,
) -> Vec<Option<u32>> {
    let mut buckets: BTreeMap<u64, Option<u32>> = BTreeMap::new();
    for (at, value) in samples {
        let bucket = buckets.entry(at / resolution * resolution).or_default();
        *bucket = (*bucket).max(*value);
    }
    let part = |part: usize| window.moment(part).0..window.moment(part + 1).0;
    let of = |place: usize| {
        let own = buckets.range(part(place));
        if let Some(own) = own.map(|(_, value)| *value).reduce(Option::max) {
            return own;
        }
        let (_, before) = buckets.range(..part(place).start).next_back()?;
        let last = samples
            .iter()
            .rev()
            .find(|sample| sample.0 < part(place).start)?
            .0;
        let next = samples
            .iter()
            .find(|sample| sample.0 >= part(place).end)
            .map_or(now, |sample| sample.0);
        let is_past =
            samples.iter().any(|sample| sample.0 >= part(place).end) || part(place).start <= now;
        if next - last <= patience && is_past {
            *before
        } else {
            None
        }
    };
    (0..window.parts()).map(of).collect()
}

proptest! {
    /// A curve shows what a list of all samples shows, in each resolution but the coarsest.
    #[test]
    fn nothing_is_lost_or_invented((patience, samples) in any_samples(), parts in 1..60usize, back in 0..10u64, wide in 1..5u64) {
        let curve = curve(&samples, patience);
        let (last, patience) = (samples[samples.len() - 1].0, u64::try_from(patience.as_millis()).unwrap().max(1000));
        for resolution in [Resolution::SECONDS, Resolution::TENS] {
            let part = resolution.width * wide;
            let end = last.saturating_sub(back * part);
            let window = Window::until(Moment(end), Duration::from_millis(part * parts as u64), parts);
            // When the resolution begins. The first minutes of the coarser ones come from the track
            // of seconds.
            let first = match (&curve.long, resolution.width) {
                (_, 1000) => curve.seconds.first().map(|second| u64::from(second) * 1000),
                (Some(long), _) => long.tens.first().map(|bucket| (u64::from(bucket) * 10_000).max(samples[0].0 + 300_000)),
                (None, _) => None,
            };
            if first.is_none_or(|first| window.start().0 < first) || (resolution.width == 1000 && part >= 10_000) {
                continue;
            }
            let highs: Vec<_> = curve.over(&window, Moment(last)).iter().map(|part| part.map(|range| range.high)).collect();
            prop_assert_eq!(highs, naive(&samples, patience, resolution.width, &window, last), "{:?} {:?}", window, resolution);
        }
    }

    /// At every zoom, a graph shows only values that were read, at about their time.
    #[test]
    fn every_zoom_shows_only_values_that_were_read((patience, samples) in any_samples(), parts in 1..60usize, span in 1..604_800u64) {
        let curve = curve(&samples, patience);
        let last = Moment(samples[samples.len() - 1].0);
        let window = Window::until(last, Duration::from_secs(span), parts);
        let held = u64::try_from(patience.as_millis()).unwrap().max(1000) + Resolution::FIVE_MINUTES.width;
        for (place, part) in curve.over(&window, last).into_iter().enumerate() {
            let Some(MinMax { low, high }) = part else { continue };
            let (from, to) = (window.moment(place).0.saturating_sub(held), window.moment(place + 1).0 + Resolution::FIVE_MINUTES.width);
            let near = || samples.iter().filter(|sample| (from..to).contains(&sample.0)).filter_map(|sample| sample.1);
            prop_assert!(near().any(|value| value == low) && near().any(|value| value == high), "{low} {high} at {place}");
        }
    }
}
