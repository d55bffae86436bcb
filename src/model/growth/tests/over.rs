//! Leaks that stop, rest and go on.

use super::*;

#[test]
fn a_leak_that_stops_is_withdrawn_within_two_minutes() {
    let stops = |at: u64| job(|at| at.min(1000))(at);
    check(1000, stops, LeakVerdict::Leak);
    check(1120, stops, LeakVerdict::Steady);
}

#[test]
fn a_leak_that_stops_is_withdrawn_within_two_minutes_or_three_samples() {
    for (every, within) in [(1_u64, 120), (10, 120), (30, 120), (60, 180)] {
        // The leak stops between two samples; a sample is missing some time before.
        for stops in [3602, 3630, 3658] {
            let mut growth = LeakDetector::default();
            for at in (0..=stops + within)
                .step_by(usize::try_from(every).expect("it is small"))
                .filter(|at| *at != 1800)
            {
                growth.push(
                    Moment(at * 1000),
                    Bytes((10_500 + at.min(stops)) * MIB),
                    Some(Bytes(LIMIT * MIB)),
                );
                assert!(
                    at < 1200 || at > stops || growth.verdict() == LeakVerdict::Leak,
                    "{every} s, {at} s"
                );
            }
            assert_eq!(
                growth.verdict(),
                LeakVerdict::Steady,
                "{every} s, {stops} s: {:?}",
                growth.evidence()
            );
        }
    }
}

#[test]
fn the_upper_bound_for_a_leak_that_rested_allows_for_one_more_rest() {
    let paused = |pause: u64| {
        let growth = check(
            2400 + pause,
            |at| 500 + at.min(1200) + at.saturating_sub(1200 + pause),
            LeakVerdict::Leak,
        );
        growth
            .evidence()
            .and_then(|evidence| evidence.forecast)
            .expect("the limit is known")
    };
    let (even, paused) = (paused(0), paused(600));
    assert!(
        paused.high >= even.high + Duration::from_mins(10),
        "{even:?}, {paused:?}"
    );
}

#[test]
fn a_leak_that_stops_after_missing_samples_is_withdrawn_as_soon() {
    let mut growth = LeakDetector::default();
    let mut told = Vec::new();
    for at in (0..600).chain(900..1400_u64) {
        let mib = job(|at| at.min(1200))(at);
        growth.push(
            Moment(5_000_000 + at * 1000),
            Bytes(mib * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
        told.push((at, growth.verdict()));
    }
    assert!(
        told.iter()
            .all(|(at, verdict)| !(920..1200).contains(at) || *verdict == LeakVerdict::Leak),
        "{told:?}"
    );
    assert!(
        told.iter()
            .all(|(at, verdict)| *at < 1320 || *verdict < LeakVerdict::Suspect),
        "{told:?}"
    );
}

#[test]
fn a_suspicion_ends_after_two_steps_are_missing_and_a_leak_that_stopped_does_not_come_back() {
    let told = |mib: &dyn Fn(u64) -> u64| {
        let mut growth = LeakDetector::default();
        let outlooks = (0..6000).map(|at| {
            growth.push(
                Moment(5_000_000 + at * 1000),
                Bytes(mib(at) * MIB),
                Some(Bytes(LIMIT * MIB)),
            );
            growth.verdict()
        });
        outlooks.collect::<Vec<_>>()
    };
    let few = told(&job(|at| (at / 150).min(5) * 300));
    assert!(few.contains(&LeakVerdict::Suspect));
    let last = few
        .iter()
        .rposition(|verdict| *verdict >= LeakVerdict::Suspect);
    assert!(last.is_some_and(|last| last < 5 * 150 + 400), "{last:?}");
    let filled = told(&job(|at| at.min(1000) + at.saturating_sub(1000) / 1000));
    assert!(filled.contains(&LeakVerdict::Leak));
    assert!(
        filled[1120..]
            .iter()
            .all(|verdict| *verdict < LeakVerdict::Suspect)
    );
}

#[test]
fn a_leak_goes_on_while_something_else_gives_memory_back_and_takes_it_again() {
    let with_neighbour = job(|at| at * 2 + if (3000..4000).contains(&at) { 0 } else { 2000 });
    let mut growth = LeakDetector::default();
    let mut verdicts = Vec::new();
    for at in 0..6000 {
        growth.push(
            Moment(5_000_000 + at * 1000),
            Bytes(with_neighbour(at) * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
        verdicts.push(growth.verdict());
    }
    let first = verdicts
        .iter()
        .position(|verdict| *verdict == LeakVerdict::Leak)
        .expect("it is found");
    let end = verdicts[first..]
        .iter()
        .position(|verdict| *verdict != LeakVerdict::Leak);
    assert_eq!(end, None, "found after {first} s");
    let rate = growth.evidence().expect("a leak has evidence").rate.0 / f64::from(1 << 20);
    assert!((1.9..2.1).contains(&rate), "{rate} MiB/s");
}

#[test]
fn a_leak_that_goes_on_after_a_rest_has_its_mean_rate() {
    // 4 MiB/s for 400 s of each 750 s.
    let resting = job(|at| at / 750 * 1600 + (at % 750).min(400) * 4);
    let growth = check(750 + 300, resting, LeakVerdict::Leak);
    let rate = growth.evidence().expect("a leak has evidence").rate.0 / f64::from(1 << 20);
    assert!((2.0..3.3).contains(&rate), "{rate} MiB/s");
}

#[test]
fn a_leak_that_gives_back_its_gain_is_over_within_two_minutes_and_does_not_come_back() {
    // Each 1800 s, 7.2 GiB are taken and given back.
    let teeth = job(|at| at % 1800 * 4);
    check(1800, &teeth, LeakVerdict::Leak);
    for seconds in (1940..9000).step_by(120) {
        let verdict = watched(seconds, &teeth).verdict();
        assert_ne!(verdict, LeakVerdict::Leak, "after {seconds} s");
    }
}

#[test]
fn a_leak_is_not_over_when_a_larger_neighbour_leaves_its_gpu() {
    // The leak takes 2 MiB each second; a job beside it held 10 GiB from the start and ends.
    let leak = job(|at| at * 2);
    let beside = |at: u64| leak(at) + if at < 1800 { 10_240 } else { 0 };
    for seconds in [1800, 1860, 1920, 2100, 3600] {
        check(seconds, beside, LeakVerdict::Leak);
    }
}
