//! Tests of single series. `benches/growth` measures the detection over many series, and
//! `tests/it/analyze.rs` tests some of them.

mod fills;
mod gates;
mod over;
mod plateau;

use std::time::Duration;

use super::{Evidence, Forecast, LeakDetector, LeakVerdict, MemoryDrop, Rate};
use crate::base::units::{Bytes, Moment};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 30 << 10;

/// Returns a detector after a sample each second; the closure returns the MiB.
fn watched(seconds: u64, mib: impl Fn(u64) -> u64) -> LeakDetector {
    let mut growth = LeakDetector::default();
    for at in 0..seconds {
        growth.push(
            Moment(5_000_000 + at * 1000),
            Bytes(mib(at) * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
    }
    growth
}

#[track_caller]
fn check(seconds: u64, mib: impl Fn(u64) -> u64, expected: LeakVerdict) -> LeakDetector {
    let growth = watched(seconds, mib);
    assert_eq!(growth.verdict(), expected, "{:?}", growth.evidence());
    growth
}

/// Returns a series that loads weights in the first 20 s, and then holds the MiB that the closure
/// adds.
fn job(added: impl Fn(u64) -> u64) -> impl Fn(u64) -> u64 {
    move |at| {
        if at < 20 {
            500 + at * 1000
        } else {
            20_500 + added(at)
        }
    }
}

#[test]
fn a_leak_that_is_read_once_a_minute_is_called_within_fifteen_samples() {
    let called = |late: u64| {
        let mut growth = LeakDetector::default();
        (0..60).find(|sample| {
            // All samples from the fourth on come `late` seconds later.
            let at = sample * 60_000 + if *sample > 2 { late * 1000 } else { 0 };
            growth.push(
                Moment(at),
                Bytes((20_500 + at / 2000) * MIB),
                Some(Bytes(LIMIT * MIB)),
            );
            growth.verdict() == LeakVerdict::Leak
        })
    };
    let samples = [0, 20, 100].map(|late| called(late).expect("it is called"));
    assert!(samples.iter().all(|sample| *sample <= 15), "{samples:?}");
}

#[test]
fn a_leak_is_called_as_soon_when_it_was_read_more_often_before() {
    let called = |often: u64| {
        let mut growth = LeakDetector::default();
        let early = (0..often).map(|at| (at, 20_500));
        let late = (1..60).map(|sample| (often + sample * 60, 20_500 + sample * 30));
        early.chain(late).find_map(|(at, mib)| {
            growth.push(
                Moment(at * 1000),
                Bytes(mib * MIB),
                Some(Bytes(LIMIT * MIB)),
            );
            (growth.verdict() == LeakVerdict::Leak).then(|| at.saturating_sub(often) / 60)
        })
    };
    let samples = [0, 600].map(|often| called(often).expect("it is called"));
    assert!(samples.iter().all(|sample| *sample <= 15), "{samples:?}");
}

#[test]
fn a_leak_is_called_with_its_rate_and_its_end() {
    // 2 MiB every 4 s; 10 GiB are left.
    let growth = check(900, job(|at| at / 4 * 2), LeakVerdict::Leak);
    let evidence = growth.evidence().expect("a leak has evidence");
    assert!(
        (evidence.rate.0 / 1024.0 - 512.0).abs() < 20.0,
        "{evidence:?}"
    );
    let forecast = evidence.forecast.expect("the limit is known");
    let truth = Duration::from_secs((LIMIT - 20_500 - 450) * 2);
    assert!(
        forecast.low < truth && truth < forecast.high,
        "{evidence:?}"
    );
    // The end is 20 times as far away as the growth has lasted.
    assert!(
        forecast.low > truth / 2 && forecast.high < 2 * truth,
        "{evidence:?}"
    );
    assert!(forecast.likely.abs_diff(truth) < truth / 20, "{evidence:?}");
    // The last part of the memory may not be available.
    assert!(
        forecast.low < Duration::from_secs((LIMIT / 100 * 98 - 20_500 - 450) * 2),
        "{evidence:?}"
    );
    assert!(
        evidence.maxima > 20 && evidence.chance < 6.0,
        "{evidence:?}"
    );
}

#[test]
fn the_forecast_of_an_even_growth_does_not_take_its_beginning_for_acceleration() {
    // 20 MiB each 28 s, from 640 s on: memory lasts for a day.
    let limit = 80 << 10;
    let mut growth = LeakDetector::default();
    for at in 0..3640_u64 {
        let held = Bytes((20 * 1024 + at.saturating_sub(640) / 28 * 20) * MIB);
        growth.push(Moment(at * 1000), held, Some(Bytes(limit * MIB)));
        let forecast = growth.evidence().and_then(|evidence| evidence.forecast);
        if let Some(forecast) = forecast {
            let truth = Duration::from_secs(640 + 60 * 1024 / 20 * 28 - at);
            assert!(
                forecast.likely > truth * 9 / 10,
                "after {at} s: {forecast:?}"
            );
        }
    }
}

#[test]
fn a_rise_in_a_series_that_goes_up_and_down_is_no_leak() {
    // The load of a server, in waves of 14, 40 and 95 minutes, with and without some late samples
    // in a row.
    let wave =
        |at: f64, period: f64, phase: f64| (at / period * std::f64::consts::TAU + phase).sin();
    for (late, by) in [(0, 0), (4, 60), (4, 15), (12, 60)] {
        let mut growth = LeakDetector::default();
        let mut at = 0_u32;
        let mut holes = 0..late;
        while at < 12 * 3600 {
            let time = f64::from(at);
            let load = wave(time, 2400.0, 0.0)
                + 0.7 * wave(time, 5700.0, 1.0)
                + 0.3 * wave(time, 820.0, 0.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "MiB"
            )]
            let held = Bytes((10_000.0 + 750.0 * load) as u64 * 2 * MIB);
            growth.push(Moment(u64::from(at) * 1000), held, Some(Bytes(80 << 30)));
            assert_ne!(
                growth.verdict(),
                LeakVerdict::Leak,
                "{late} by {by}, at {at} s: {:?}",
                growth.evidence()
            );
            at += if at >= 10_000 && holes.next().is_some() {
                by
            } else {
                1
            };
        }
    }
}

#[test]
fn a_series_that_is_constant_after_its_warm_up_is_steady() {
    check(50, job(|_| 0), LeakVerdict::TooSoon);
    check(600, job(|_| 0), LeakVerdict::Steady);
    // Growth that slows down, up to 6 GiB.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "MiB"
    )]
    let slower = job(|at| (6000.0 * (1.0 - (-(at as f64) / 200.0).exp())) as u64);
    check(3000, slower, LeakVerdict::Steady);
}

#[test]
fn growth_too_slow_to_matter_within_a_day_is_mentioned() {
    // 31 MiB a minute: memory lasts for 3 days.
    let held = |at: u64| 20_500 + at * 31 / 60;
    let limit = 20_500 + 31 * 60 * 24 * 3;
    let mut growth = LeakDetector::default();
    for at in 0..3500 {
        growth.push(
            Moment(at * 1000),
            Bytes(held(at) * MIB),
            Some(Bytes(limit * MIB)),
        );
    }
    assert_eq!(growth.verdict(), LeakVerdict::Steady);
    let sentence = growth.sentence();
    assert!(
        sentence.starts_with("steady, though +1.") && sentence.contains(" GiB in 5"),
        "{sentence}"
    );
    assert!(
        sentence.ends_with(" min; at this pace memory lasts 2 d 23 h"),
        "{sentence}"
    );
    // After the growth has stopped, it is no longer mentioned.
    for at in 3500..4000 {
        growth.push(
            Moment(at * 1000),
            Bytes(held(3500) * MIB),
            Some(Bytes(limit * MIB)),
        );
    }
    assert_eq!(growth.sentence(), "steady");
    // Loading, or memory that comes and goes, is not mentioned either.
    assert_eq!(watched(3000, job(|_| 0)).sentence(), "steady");
    assert_eq!(
        watched(3000, job(|at| at * 37 % 101 * 20)).sentence(),
        "steady"
    );
}

#[test]
fn growth_not_called_yet_or_over_years_is_not_mentioned_as_slow() {
    let sentence = |every: u64, count: u64, held: &dyn Fn(u64) -> u64| {
        let mut growth = LeakDetector::default();
        for at in (0..count).map(|sample| sample * every) {
            growth.push(
                Moment(at * 1000),
                Bytes(held(at) << 10),
                Some(Bytes(LIMIT * MIB)),
            );
        }
        (growth.verdict(), growth.sentence())
    };
    // Growth that fills memory within hours is not slow, whether it is loading or a leak.
    assert!(
        !sentence(1, 400, &|at| (1000 + at * 13) << 10)
            .1
            .contains("though")
    );
    // At 10 MiB a day, memory lasts for years.
    assert_eq!(
        sentence(60, 10_000, &|at| (1000 << 10) + at * 10_240 / 86_400),
        (LeakVerdict::Steady, "steady".to_owned())
    );
}

#[test]
fn a_leak_with_steps_little_rarer_than_its_samples_does_not_come_and_go() {
    for step in [61, 63, 65, 70, 90] {
        let mut growth = LeakDetector::default();
        let (mut calls, mut was) = (0, LeakVerdict::TooSoon);
        for at in (0..8 * 3600).step_by(60) {
            growth.push(
                Moment(at * 1000),
                Bytes((10_000 + at / step * 100) * MIB),
                Some(Bytes(2 * LIMIT * MIB)),
            );
            calls += u32::from(growth.verdict() == LeakVerdict::Leak && was != LeakVerdict::Leak);
            was = growth.verdict();
        }
        assert!((1..=2).contains(&calls), "{step} s: {calls} calls");
    }
}

#[test]
fn an_uneven_sawtooth_with_a_rising_floor_stays_a_leak() {
    let mut growth = LeakDetector::default();
    let mut lengths = [60, 90, 40, 70, 50, 60, 55].into_iter().cycle();
    let (mut began, mut until) = (20, 60);
    let mut called = 0;
    for at in 0..4200_u64 {
        if at >= until {
            (began, until) = (at, until + lengths.next().unwrap_or(60));
        }
        let tooth = job(|_| began + 20 * at.saturating_sub(began))(at);
        growth.push(
            Moment(5_000_000 + at * 1000),
            Bytes(tooth * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
        match growth.verdict() {
            LeakVerdict::Leak => called += 1,
            other => assert_eq!(called, 0, "{other:?} after {at} s"),
        }
    }
    assert!(called > 3000, "{called}");
}

#[test]
fn four_equal_steps_are_no_leak_and_the_sixth_one_is() {
    let steps = |count: u64| job(move |at| (at / 300).min(count) * 500);
    for seconds in (100..6000).step_by(100) {
        assert_ne!(
            watched(seconds, steps(4)).verdict(),
            LeakVerdict::Leak,
            "after {seconds} s"
        );
    }
    check(6000, steps(4), LeakVerdict::Steady);
    check(1850, steps(20), LeakVerdict::Leak);
}

#[test]
fn a_series_that_regains_an_earlier_amount_is_no_leak() {
    let server = |tops: u64| {
        job(move |at| match at {
            ..3000 => tops,
            _ => (at - 3000) * 8,
        })
    };
    check(3600, server(6000), LeakVerdict::Steady);
    check(3600, server(0), LeakVerdict::Leak);
}

#[test]
fn a_sawtooth_is_a_leak_only_if_its_floor_rises() {
    let sawtooth = |rate: u64| job(move |at| at % 40 * 50 + at / 40 * 40 * rate);
    check(1500, sawtooth(0), LeakVerdict::Steady);
    check(1500, sawtooth(2), LeakVerdict::Leak);
}

#[test]
fn the_sixth_drop_to_a_higher_bottom_makes_a_leak() {
    // `first` is the MiB at the bottom of the first drop; the bottoms of the others rise by 300 MiB
    // each.
    let sawtooth = |first: u64| {
        job(move |at| {
            let tooth = at / 400;
            (at % 400).min(30) * 150 + if tooth == 1 { first } else { tooth * 300 }
        })
    };
    for seconds in (400..2400).step_by(100) {
        assert_ne!(
            watched(seconds, sawtooth(300)).verdict(),
            LeakVerdict::Leak,
            "after {seconds} s"
        );
    }
    for seconds in (2900..8000).step_by(100) {
        check(seconds, sawtooth(300), LeakVerdict::Leak);
    }
    // The first drop ends higher than the later ones: the series held more before, and released it.
    for seconds in (400..3200).step_by(100) {
        assert_ne!(
            watched(seconds, sawtooth(3000)).verdict(),
            LeakVerdict::Leak,
            "after {seconds} s"
        );
    }
}

#[test]
fn a_sawtooth_runs_out_of_memory_at_its_first_top_above_the_limit() {
    // Rises of 3000 MiB every 600 s, of which 120 MiB stay.
    let sawtooth = |at: u64| at % 600 * 5 + at / 600 * 120;
    let end = (0..1_000_000)
        .find(|at| 20_500 + sawtooth(*at) >= LIMIT)
        .expect("it grows");
    for now in (end / 4..end * 3 / 4).step_by(1000) {
        let growth = check(now, job(sawtooth), LeakVerdict::Leak);
        let forecast = growth
            .evidence()
            .and_then(|evidence| evidence.forecast)
            .expect("the limit is known");
        let truth = Duration::from_secs(end - now);
        assert!(
            forecast.low < truth && truth < forecast.high,
            "after {now} s {truth:?}: {forecast:?}"
        );
    }
}

#[test]
fn a_warm_up_that_was_called_a_leak_is_not_called_again_at_each_further_step() {
    // Pieces of 20 to 420 MiB, ever less often.
    let (mut pieces, mut at, mut wait, mut random) = (Vec::new(), 20.0, 30.0, 2 * 7919_u64);
    for _ in 0..40 {
        at += wait;
        wait *= 1.06;
        random = random * 48_271 % 1_000_003;
        pieces.push((at, 20 + random % 400));
    }
    let added = |now: u32| {
        pieces
            .iter()
            .filter(|piece| piece.0 <= f64::from(now))
            .map(|piece| piece.1)
            .sum::<u64>()
    };
    let (mut growth, mut calls, mut was) = (LeakDetector::default(), 0, LeakVerdict::TooSoon);
    for at in 0..8000 {
        let held = job(|_| added(at))(u64::from(at)) * MIB;
        growth.push(
            Moment(5_000_000 + u64::from(at) * 1000),
            Bytes(held),
            Some(Bytes((LIMIT + 20_000) * MIB)),
        );
        calls += u32::from(growth.verdict() == LeakVerdict::Leak && was != LeakVerdict::Leak);
        was = growth.verdict();
    }
    assert_eq!(
        (calls, was),
        (1, LeakVerdict::Steady),
        "{:?}",
        growth.evidence()
    );
}

#[test]
fn a_warm_up_in_equal_pieces_is_no_leak() {
    // Pieces of 20 MiB, at first 12 s apart: equal numbers of them in each part hide that they come
    // ever less often.
    for slowness in [150.0, 300.0, 600.0] {
        let pieces: Vec<f64> = (1..100)
            .map(|piece| -slowness * libm::log1p(-12.0 * f64::from(piece) / slowness))
            .take_while(|at| at.is_finite())
            .collect();
        let mut growth = LeakDetector::default();
        for at in 0..6000_u32 {
            let added = pieces
                .iter()
                .filter(|piece| **piece <= f64::from(at))
                .map(|_| 20)
                .sum::<u64>();
            let held = job(|_| added)(u64::from(at)) * MIB;
            growth.push(
                Moment(5_000_000 + u64::from(at) * 1000),
                Bytes(held),
                Some(Bytes(LIMIT * MIB)),
            );
            assert_ne!(
                growth.verdict(),
                LeakVerdict::Leak,
                "slowness {slowness}, after {at} s"
            );
        }
    }
}

#[test]
fn the_rate_of_a_leak_that_slows_down_is_at_most_its_mean() {
    // 20 MiB a minute for 10 minutes, then 7 MiB a minute for 15, in pieces of 1 MiB: at that rate,
    // memory lasts for days.
    let growth = watched(1500, |at| {
        2000 + at.min(600) / 3 + at.saturating_sub(600) * 7 / 60
    });
    let evidence = growth.evidence().expect("it grows");
    let mean = 305.0 * 1_048_576.0 / 1500.0;
    assert!(
        (0.3 * mean..1.05 * mean).contains(&evidence.rate.0),
        "{evidence:?}"
    );
}

#[test]
fn the_lower_bound_with_little_room_is_not_0() {
    // 300 MiB are left of 30 GiB.
    let growth = check(900, |at| 30_200 + at / 4, LeakVerdict::Leak);
    let forecast = growth
        .evidence()
        .and_then(|evidence| evidence.forecast)
        .expect("the limit is known");
    assert!(forecast.low > forecast.likely / 4, "{forecast:?}");
}

#[test]
fn a_growth_that_fills_memory_in_more_than_a_day_is_no_leak() {
    check(7000, job(|at| at / 60 * 2), LeakVerdict::Steady);
}

#[test]
fn no_verdict_comes_and_goes_while_nothing_new_happens() {
    let series: [fn(u64) -> u64; 3] = [
        // A cache that fills for three minutes and is emptied.
        |at| at % 200 * 10,
        // An even growth so slow that memory lasts for a week.
        |at| at / 64,
        |at| at / 200 * 3,
    ];
    for (number, added) in series.into_iter().enumerate() {
        let (mut growth, mut said) = (LeakDetector::default(), Vec::new());
        for at in 0..7200 {
            let held = job(added)(at) * MIB;
            growth.push(
                Moment(5_000_000 + at * 1000),
                Bytes(held),
                Some(Bytes(80 << 30)),
            );
            if said.last() != Some(&growth.verdict()) {
                said.push(growth.verdict());
            }
        }
        assert!(
            said.len() <= 5 && said.last() == Some(&LeakVerdict::Steady),
            "{number}: {said:?}"
        );
    }
}

#[test]
fn rare_or_unordered_samples_make_no_difference() {
    for interval in [200, 2000, 10_000, 60_000] {
        let mut growth = LeakDetector::default();
        for at in 0..18_000_000 / interval {
            let late = at * 7919 % 100 * interval / 300;
            let time = Moment(1_000_000 + at * interval + late);
            let mib = 20_000 + at * interval / 4000 * 2;
            growth.push(time, Bytes(mib * MIB), Some(Bytes(LIMIT * MIB)));
            // A sample that is not later than the one before is ignored.
            growth.push(Moment(time.0 - 1), Bytes(0), None);
        }
        assert_eq!(
            growth.verdict(),
            LeakVerdict::Leak,
            "every {interval} ms: {:?}",
            growth.evidence()
        );
    }
}

#[test]
fn falls_have_names() {
    let named = |mib: &[u64]| {
        let mut growth = LeakDetector::default();
        for (at, mib) in (1..).zip(mib) {
            growth.push(Moment(at * 1000), Bytes(mib * MIB), None);
        }
        growth.last_drop().map(|(at, fall)| (at.0 / 1000, fall))
    };
    assert_eq!(named(&[9000, 9000, 8900]), None);
    assert_eq!(
        named(&[9000, 9000, 3000]),
        Some((3, MemoryDrop::CacheEmptied))
    );
    assert_eq!(named(&[9000, 0]), Some((2, MemoryDrop::ContextGone)));
    assert_eq!(named(&[9000, 0, 0, 700]), Some((4, MemoryDrop::Restarted)));
}

#[test]
fn the_sentence_has_all_figures() {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let forecast = Forecast {
        likely: minutes(190),
        low: minutes(168),
        high: minutes(222),
    };
    let evidence = Evidence {
        since: Moment(0),
        found: Moment(0),
        gained: Bytes(360 * MIB),
        span: 720.0,
        maxima: 38,
        chance: 0.7,
        rate: Rate(0.5 * 1024.0 * 1024.0),
        speeds_up: false,
        forecast: Some(forecast),
        plateau: None,
    };
    let sentence = "+30 MiB/min for 12 min (38 new highs, 1 expected by chance); \
         out of memory in 3 h 10 min (2 h 50 to 3 h 40)";
    assert_eq!(evidence.to_string(), sentence);
    let faster = Evidence {
        speeds_up: true,
        ..evidence
    };
    assert_eq!(
        faster.to_string(),
        format!("{sentence}; speeding up: could be much sooner")
    );
}

#[test]
fn growth_that_becomes_faster_is_said_to_speed_up_and_even_growth_is_not() {
    let speeds_up = |mib: fn(u64) -> u64| {
        let detector = watched(3000, job(mib));
        let evidence = detector.evidence().expect("it grows");
        (evidence.speeds_up, evidence.forecast.is_some())
    };
    assert_eq!(speeds_up(|at| at * 2), (false, true));
    assert_eq!(speeds_up(|at| at * at / 1000), (true, true));
}

/// The memory of a thousand series must stay at some kB each.
#[test]
fn a_series_of_days_takes_little_memory() {
    assert!(
        size_of::<LeakDetector>() < 640,
        "{}",
        size_of::<LeakDetector>()
    );
    let growth = watched(3 * 86_400, |at| 1000 + at % 7);
    assert!(growth.levels.heap() < 4096, "{}", growth.levels.heap());
}
