//! A series for each gate, which that gate alone refuses to call a leak.

use super::super::gates::{Condition, Gate, Grade};
use super::super::regular_growth::{MeasuredGrowth, RegularGrowth};
use super::*;

/// KiB in a MiB.
const KIB: f64 = 1024.0;

/// The level of a detector, and the number of its buckets that make a part.
type LengthOfParts = (usize, usize);

fn measure(
    detector: &LeakDetector,
    length: LengthOfParts,
) -> Result<MeasuredGrowth<'_>, Condition> {
    let room = |above| detector.room(above);
    RegularGrowth::measure(&detector.levels, length.0, length.1, room)
}

/// Returns all conditions of a leak.
fn conditions(detector: &LeakDetector, length: LengthOfParts) -> Vec<Condition> {
    let measured = match measure(detector, length) {
        Ok(measured) => measured,
        Err(condition) => return vec![condition],
    };
    let points = detector.levels.filled(0);
    let floor = points.as_slice().last().expect("there are buckets").low;
    let stopped = detector.stopped_leak;
    measured
        .conditions(Grade::Growth)
        .chain(measured.conditions(Grade::Leak))
        .chain([measured.growth.within_day()])
        .chain(stopped.map(|stopped| measured.growth.beyond(stopped.floor, floor)))
        .collect()
}

/// Checks that one condition alone is not met after so many seconds, and that the series is no
/// leak. The closure returns the MiB at each second.
#[track_caller]
fn check_gate(
    gate: Gate,
    [measured, limit]: [f64; 2],
    seconds: u64,
    length: LengthOfParts,
    mib: impl Fn(u64) -> u64,
) {
    let detector = watched(seconds, mib);
    let all = conditions(&detector, length);
    let refused: Vec<&Condition> = all.iter().filter(|condition| !condition.is_met()).collect();
    let [refused] = refused[..] else {
        panic!("{all:?}");
    };
    let is_near = |one: f64, other: f64| (one - other).abs() <= 0.001 * other;
    assert!(
        refused.gate == gate && is_near(refused.measured, measured),
        "{refused:?}"
    );
    assert!(is_near(refused.limit, limit), "{refused:?}");
    assert_ne!(detector.verdict(), LeakVerdict::Leak);
}

#[test]
fn growth_in_fewer_than_four_parts_is_not_regular() {
    let steps = job(|at| at / 300 * 500);
    check_gate(Gate::Regular, [3.0, 4.0], 1400, (2, 2), steps);
}

#[test]
fn a_return_to_an_amount_held_before_is_no_growth() {
    let returns = job(|at| at.checked_sub(3000).map_or(6000, |later| later * 8));
    check_gate(Gate::NoReturn, [1.0, 1.0 / 3.0], 3200, (0, 2), returns);
}

#[test]
fn a_rise_no_larger_than_an_earlier_one_is_a_wave() {
    // 600 MiB are taken in 600 s and given back, again and again, and the next rise begins 600 MiB
    // higher.
    let waves = |at: u64| 5000 + at.checked_sub(3000).map_or(at % 600, |later| 600 + later);
    let figures = [496.0 * KIB, 1.5 * 560.0 * KIB];
    check_gate(Gate::NoWave, figures, 3200, (0, 2), waves);
}

#[test]
fn uneven_gains_are_too_few_standard_errors() {
    // Gains of 100, 400 and 140 MiB.
    let uneven = |at| {
        5000 + at / 128 * 640
            + [0, 100, 500][usize::from(at % 128 >= 43) + usize::from(at % 128 >= 86)]
    };
    check_gate(Gate::StandardErrors, [4.236, 8.4], 400, (0, 6), uneven);
    let detector = watched(400, uneven);
    assert_eq!(detector.verdict(), LeakVerdict::Suspect);
    let measured = measure(&detector, (0, 6)).expect("it is regular");
    let limits: Vec<(Gate, f64)> = measured
        .conditions(Grade::Even)
        .map(|condition| (condition.gate, condition.limit))
        .collect();
    assert_eq!(limits, [(Gate::Speed, 0.7), (Gate::StandardErrors, 4.0)]);
}

#[test]
fn parts_of_one_bucket_are_short() {
    let fast = |at| 10_000 + at * 10;
    check_gate(Gate::PartLength, [1.0, 2.0], 154, (0, 1), fast);
}

#[test]
fn four_long_parts_are_too_few() {
    let steps = job(|at| at / 300 * 500);
    check_gate(Gate::Parts, [4.0, 6.0], 1600, (2, 2), steps);
}

#[test]
fn growth_lasts_longer_when_its_end_is_far_away() {
    // Memory lasts for 20,500 s more: 110 s times the power 0.35 of a 900th of that.
    let slow = |at| 10_000 + at;
    check_gate(Gate::Span, [176.0, 328.65], 200, (0, 2), slow);
}

#[test]
fn growth_with_steps_at_its_begin_slows_down() {
    let slows = |at: u64| 28_000 + at + at.min(30) / 30 * 20 + at.min(90) / 90 * 20;
    check_gate(Gate::Speed, [0.8625, 0.92], 200, (0, 2), slows);
}

#[test]
fn growth_whose_steps_become_rarer_slows_down() {
    // Equal numbers of them in each part hide that.
    let rarer = |piece: f64| -300.0 * libm::log1p(-12.0 * piece / 300.0);
    let steps: Vec<f64> = (1..25).map(|piece| rarer(f64::from(piece))).collect();
    let slows = job(|at| {
        let at = Duration::from_secs(at).as_secs_f64();
        steps.iter().filter(|step| **step <= at).map(|_| 20).sum()
    });
    check_gate(Gate::SpeedByRises, [0.6312, 0.92], 400, (0, 6), slows);
}

#[test]
fn growth_whose_end_is_days_away_does_not_matter() {
    let slow = job(|at| at / 60 * 2);
    check_gate(Gate::WithinDay, [300_174.0, 86_400.0], 3600, (2, 2), slow);
}

#[test]
fn growth_below_a_leak_that_stopped_is_no_new_leak() {
    // The leak stops at 11,000 MiB, and 1000 MiB are given back.
    let again = |at: u64| match at {
        ..1500 => 5000 + at * 4,
        1500..2500 => 11_000,
        2500..3000 => 10_000,
        _ => 10_000 + (at - 3000),
    };
    let figures = [10_688.0 * KIB, 11_096.0 * KIB];
    check_gate(Gate::BeyondStoppedLeak, figures, 3700, (1, 3), again);
}
