//! Tests of the headline, the episodes and the table: what happened, not only how it ended.

use std::fmt::Write;

use super::headline::headline;
use super::log::{AnalyzedLog, LogReader};
use super::tests::{style, to_json};
use super::text;
use crate::base::text::Text;
use crate::base::units::Bytes;

/// Reads a log of a GPU of 80 GiB with a sample every two seconds, whose MiB `mib` returns.
fn read(seconds: u64, mib: impl Fn(u64) -> u64) -> AnalyzedLog {
    let mut log = LogReader::new(Some(Bytes::from_gib(80)));
    (0..seconds).step_by(2).for_each(|second| log.line(&format!("{second},{}", mib(second) << 20)));
    log.finish()
}

/// Reads a log, and returns the headline, the last and the worst verdict, and the ends of the episodes.
fn judge(seconds: u64, mib: impl Fn(u64) -> u64) -> (String, String, String, Vec<String>) {
    let log = read(seconds, mib);
    let sentence = headline(&log.series[0]);
    let json = to_json(&[(Text::new("log"), log)]);
    let series = &json["series"][0];
    assert_eq!(series["headline"], sentence.as_str());
    let word = |name: &str| series[name].as_str().unwrap_or_default().to_owned();
    let episodes = series["episodes"].as_array().into_iter().flatten();
    let ends = episodes.filter(|episode| episode["verdict"] == "leak").map(|episode| episode["end"].to_string());
    (sentence, word("verdict"), word("worst_verdict"), ends.map(|end| end.replace('"', "")).collect())
}

/// MiB of a job that begins to leak 10 MiB/s after ten minutes.
fn leak(second: u64) -> u64 {
    20_000 + second.saturating_sub(600) * 10
}

#[test]
fn the_headline_says_what_happened() {
    let leaks = || "leak".to_owned();
    // The log ends during the leak.
    let (sentence, last, worst, ends) = judge(6600, leak);
    assert!(
        sentence.starts_with("LEAKED from 10m")
            && sentence.contains(" to 1h49m, +")
            && sentence.ends_with(", ended at 78.1 of 80 GiB"),
        "{sentence}"
    );
    assert_eq!((last, worst, ends), (leaks(), leaks(), vec!["series_ends".to_owned()]));
    // The job ran out of memory, and the GPU is idle since then.
    let (sentence, last, worst, ends) = judge(12_000, |second| if second < 6700 { leak(second) } else { 5 });
    assert!(
        sentence.starts_with("LEAKED from 10m")
            && sentence.contains(" to 1h51m, +")
            && sentence.ends_with(", until the program ended at 79.1 of 80 GiB"),
        "{sentence}"
    );
    assert_eq!((last, worst, ends), (leaks(), leaks(), vec!["program_ended".to_owned()]));
    // It stayed full.
    let (sentence, last, ..) = judge(12_000, |second| leak(second).min(81_000));
    assert!(sentence.contains("stopped at 79.1 of 80 GiB"), "{sentence}");
    assert_eq!(last, "leak");
    // Growth stopped far from the end.
    let (sentence, last, worst, ends) = judge(7200, |second| leak(second.min(3000)));
    assert!(sentence.contains(" to 49m") && sentence.ends_with("stopped at 43 of 80 GiB"), "{sentence}");
    assert_eq!((last.as_str(), worst, ends), ("steady", leaks(), vec!["stopped".to_owned()]));
    // The memory was given back.
    let (sentence, last, _, ends) = judge(7200, |second| if second < 3000 { leak(second) } else { 21_000 });
    assert!(sentence.contains(" to 49m58s") && sentence.ends_with("released at 42.9 of 80 GiB"), "{sentence}");
    assert_eq!((last.as_str(), ends), ("steady", vec!["released".to_owned()]));
    // Nothing happened, or too little to tell.
    assert_eq!(judge(7200, |_| 20_480).0, "steady for 1h59m; 20 of 80 GiB at the end");
    assert_eq!(judge(10, |_| 20_480).0, "too soon to say: 5 samples in 8s");
}

#[test]
fn a_job_that_leaks_until_each_restart_leaked_several_times() {
    let (sentence, _, worst, ends) =
        judge(14_400, |second| if second % 3600 < 10 { 5 } else { 20_000 + second % 3600 * 10 });
    assert!(sentence.starts_with("LEAKED 4 times, last from 3h") && sentence.contains(", ended at "), "{sentence}");
    assert_eq!(worst, "leak");
    assert_eq!(ends, ["program_ended", "program_ended", "program_ended", "series_ends"]);
}

#[test]
fn the_headline_comes_first_and_the_events_in_the_order_of_time() {
    let mib = |second: u64| match second {
        0..3000 => leak(second),
        3000..3020 => 5,
        _ => 20_000 + second % 2000 / 1000 * 9000,
    };
    let text = text::format(&[(Text::new("log"), read(9000, mib))], false, style(80));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("memory: LEAKED from 10m"), "{text}");
    assert!(lines[..3].concat().contains("42.9 of 80 GiB"), "{text}");
    let events: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("  after ")).collect();
    let places: Vec<Option<usize>> = ["LEAK: ", "context gone", "steady", "cache emptied"]
        .iter()
        .map(|word| events.iter().position(|event| event.contains(word)))
        .collect();
    assert!(places.is_sorted() && places[0].is_some() && places[3].is_some(), "{places:?}\n{text}");
}

/// Returns a log of so many processes. Each tenth leaks.
fn processes(count: u64) -> AnalyzedLog {
    let mut text = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n".to_owned();
    for second in (0..1800_u64).step_by(10) {
        let time = format!("2026/11/21 13:{:02}:{:02}.000", second / 60, second % 60);
        for process in 0..count {
            let leaked = if process % 10 == 3 { second * (process + 1) / 4 } else { 0 };
            let _infallible: std::fmt::Result = writeln!(
                text,
                "{time}, GPU-{:08x}-aaaa-bbbb-cccc-0123456789ab, {}, /usr/bin/python3, {} MiB",
                process % 8,
                4000 + process,
                500 + leaked
            );
        }
    }
    let mut log = LogReader::new(Some(Bytes::from_gib(80)));
    text.lines().for_each(|line| log.line(line));
    log.finish()
}

#[test]
fn many_series_begin_with_a_table_of_those_that_leaked() {
    let logs = [(Text::new("log"), processes(30))];
    let text = text::format(&logs, false, style(80));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "30 series: 3 leaked, 27 steady");
    let columns: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(columns, ["GPU", "PID", "NAME", "VERDICT", "FROM", "TO", "RATE", "ENDED", "AT"]);
    let row: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(row[..4], ["GPU-00000003", "4003", "python3", "LEAKED"], "{text}");
    assert!(lines[3].ends_with(" of 80 GiB") && lines[5].contains("4023"), "{text}");
    assert!(!text.contains('│') && lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("`--all` shows each series"), "{text}");
    let all = text::format(&logs, true, style(80));
    assert_eq!((all.lines().next(), all.matches(" samples in ").count()), (Some(lines[0]), 30), "{all}");
    // Few series have their details at once.
    let text = text::format(&[(Text::new("log"), processes(4))], false, style(80));
    assert!(text.starts_with("GPU-00000003-") && text.matches(" samples in ").count() == 4, "{text}");
}
