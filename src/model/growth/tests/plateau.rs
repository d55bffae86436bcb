//! Growth that levels off.

use super::*;

/// The time constant of the caches in seconds: half an hour.
const CONSTANT: f64 = 1800.0;

/// Returns the MiB that a cache of `size` MiB has taken after some seconds.
fn cache(size: f64) -> impl Fn(u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an amount of memory"
    )]
    let filled = move |at: u64| (size * (1.0 - libm::exp(-(at as f64) / CONSTANT))) as u64;
    filled
}

/// Returns the verdict at the end of each minute.
fn verdicts(minutes: u64, mib: impl Fn(u64) -> u64) -> Vec<LeakVerdict> {
    let mut growth = LeakDetector::default();
    let mut verdict_after = |second: u64| {
        growth.push(
            Moment(5_000_000 + second * 1000),
            Bytes(mib(second) * MIB),
            Some(Bytes(LIMIT * MIB)),
        );
        growth.verdict()
    };
    let seconds = 0..60 * minutes;
    let all: Vec<LeakVerdict> = seconds.map(&mut verdict_after).collect();
    all.into_iter().skip(59).step_by(60).collect()
}

#[test]
fn a_cache_that_fills_up_is_filling_and_its_plateau_is_named() {
    let detector = check(1620, job(cache(6000.0)), LeakVerdict::Filling);
    let evidence = detector.evidence().expect("it grows");
    let plateau = evidence.plateau.expect("it levels off");
    let truth = Bytes((20_500 + 6000) * MIB);
    assert!(
        plateau.low <= truth && truth <= plateau.high,
        "{plateau:?}, {truth}"
    );
    assert!(plateau.is_known && !plateau.is_above_limit, "{plateau:?}");
    assert_eq!(evidence.forecast, None);
    let sentence = detector.sentence();
    assert!(sentence.starts_with("filling: +"), "{sentence}");
    assert!(sentence.contains("; levels off near "), "{sentence}");
}

#[test]
fn a_cache_that_would_be_larger_than_the_memory_has_a_forecast() {
    let held = job(cache(14_000.0));
    let full = (0..86_400).find(|at| held(*at) >= LIMIT).expect("it fills");
    let detector = check(full - 300, held, LeakVerdict::Filling);
    let evidence = detector.evidence().expect("it grows");
    let forecast = evidence.forecast.expect("memory runs out");
    let truth = Duration::from_mins(5);
    assert!(
        forecast.low <= truth && truth <= forecast.high,
        "{forecast:?}"
    );
    let sentence = detector.sentence();
    assert!(
        sentence.contains(", which is more than there is; out of memory in "),
        "{sentence}"
    );
}

#[test]
fn growth_that_may_level_off_is_no_leak() {
    let detector = check(780, job(cache(14_000.0)), LeakVerdict::Suspect);
    let sentence = detector.sentence();
    assert!(sentence.contains("; may level off near "), "{sentence}");
    assert!(sentence.contains("; out of memory in "), "{sentence}");
}

#[test]
fn an_even_leak_with_a_jump_at_its_beginning_does_not_level_off() {
    let leak = |at: u64| 2 * at + if at > 300 { 1500 } else { 0 };
    let verdicts = verdicts(60, job(leak));
    assert_eq!(verdicts[15..], [LeakVerdict::Leak; 45]);
}

#[test]
fn a_leak_that_becomes_slower_and_goes_on_does_not_level_off() {
    let leak = |at: u64| 4 * at.min(1200) + 2 * at.saturating_sub(1200);
    let verdicts = verdicts(60, job(leak));
    assert_eq!(verdicts[15..], [LeakVerdict::Leak; 45]);
}

#[test]
fn a_full_cache_that_takes_a_little_more_does_not_leak() {
    let verdicts = verdicts(180, job(cache(6000.0)));
    let late = &verdicts[45..];
    assert!(
        late.iter().all(|verdict| *verdict < LeakVerdict::Suspect),
        "{late:?}"
    );
}

#[test]
fn a_leak_after_a_cache_has_filled_is_called() {
    let cache = cache(4000.0);
    let verdicts = verdicts(180, job(move |at| cache(at) + at.saturating_sub(9000)));
    let called = (150..180).find(|minute| verdicts[*minute] == LeakVerdict::Leak);
    assert_eq!(verdicts[148], LeakVerdict::Steady);
    assert!(called.is_some_and(|minute| minute < 165), "{called:?}");
}
