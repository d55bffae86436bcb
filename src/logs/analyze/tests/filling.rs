//! Logs of memory that fills up to a plateau.

use super::*;

/// Returns the log of a cache with a time constant of half an hour, with a row each ten seconds.
fn log_of_cache(minutes: u32) -> AnalyzedLog {
    let row = |row: u32| {
        let seconds = 10 * row;
        let share = 1.0 - libm::exp(-f64::from(seconds) / 1800.0);
        format!("{seconds},{:.0},81920\n", 10_240.0 + 40_960.0 * share)
    };
    let rows: String = (0..6 * minutes).map(row).collect();
    read(&format!(
        "seconds,memory.used [MiB],memory.total [MiB]\n{rows}"
    ))
}

#[test]
fn a_cache_that_filled_up_is_not_said_to_have_leaked() {
    for (minutes, words) in [(30, "fills up since "), (240, "filled up from ")] {
        let log = log_of_cache(minutes);
        let judged = &log.series[0];
        assert_eq!(judged.worst_verdict(), LeakVerdict::Filling);
        let called = judged.timeline.iter().map(|timed| timed.verdict);
        assert!(
            called.max() == Some(LeakVerdict::Leak),
            "{:?}",
            judged.timeline
        );
        let text = text::format(&[(Text::new("log"), log)], false, style(100));
        assert!(text.contains(words), "{text}");
        assert!(
            text.contains("levels off near 5") || text.contains("levels off near 4"),
            "{text}"
        );
        assert!(!text.contains("LEAKED"), "{text}");
        assert!(!text.contains("What to try"), "{text}");
    }
}

#[test]
fn the_json_has_the_plateau() {
    let series = &to_json(&[(Text::new("log"), log_of_cache(30))])["series"][0];
    assert_eq!(series["verdict"], "filling", "{series:#}");
    assert_eq!(series["worst_verdict"], "filling");
    let timeline = series["timeline"].as_array().unwrap();
    let last = timeline.last().unwrap();
    assert_eq!(last["verdict"], "filling");
    let plateau = &last["plateau"];
    assert_eq!(plateau["is_known"], true, "{plateau}");
    assert_eq!(plateau["is_above_limit"], false);
    let gib = |name: &str| plateau[name].as_u64().unwrap() >> 30;
    assert!(
        gib("low_bytes") <= 50 && (45..55).contains(&gib("bytes")) && 49 <= gib("high_bytes"),
        "{plateau}"
    );
    assert_eq!(last["oom_in_s"], serde_json::Value::Null);
}
