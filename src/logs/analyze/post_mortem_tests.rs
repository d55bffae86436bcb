//! Tests of the headline, the episodes and the table: what happened, not only how it ended.

use std::fmt::Write;

use super::headline::headline;
use super::log::{AnalyzedLog, LogReader};
use super::log_options::LogOptions;
use super::tests::{style, to_json, with_capacity};
use super::text;
use crate::base::text::Text;
use crate::base::units::Bytes;

/// Reads a log of a GPU of 80 GiB with a sample every two seconds, whose MiB `mib` returns.
fn read(seconds: u64, mib: impl Fn(u64) -> u64) -> AnalyzedLog {
    let mut log = LogReader::new(with_capacity(Bytes::from_gib(80)));
    (0..seconds)
        .step_by(2)
        .for_each(|second| log.line(&format!("{second},{}", mib(second) << 20)));
    log.finish()
}

/// Reads a log, and returns the headline, the last and the worst verdict, and the ends of the
/// episodes.
fn judge(seconds: u64, mib: impl Fn(u64) -> u64) -> (String, String, String, Vec<String>) {
    let log = read(seconds, mib);
    let sentence = headline(&log.series[0]);
    let json = to_json(&[(Text::new("log"), log)]);
    let series = &json["series"][0];
    assert_eq!(series["headline"], sentence.as_str());
    let word = |name: &str| series[name].as_str().unwrap_or_default().to_owned();
    let episodes = series["episodes"].as_array().into_iter().flatten();
    let ends = episodes
        .filter(|episode| episode["verdict"] == "leak")
        .map(|episode| episode["end"].to_string());
    (
        sentence,
        word("verdict"),
        word("worst_verdict"),
        ends.map(|end| end.replace('"', "")).collect(),
    )
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
        sentence.starts_with("FULL at 1h49m, +52.3 GiB in the last 1h29m; LEAKED from 10m")
            && sentence.contains(" to 1h49m, +")
            && sentence.ends_with(", ended at 78.1 of 80 GiB"),
        "{sentence}"
    );
    assert_eq!(
        (last, worst, ends),
        (leaks(), leaks(), vec!["series_ends".to_owned()])
    );
    // The job ran out of memory, and the GPU is idle since then.
    let (sentence, last, worst, ends) = judge(
        12_000,
        |second| if second < 6700 { leak(second) } else { 5 },
    );
    assert!(
        sentence.starts_with("LEAKED from 10m")
            && sentence.contains(" to 1h51m, +")
            && sentence.ends_with(", until the program ended at 79.1 of 80 GiB"),
        "{sentence}"
    );
    assert_eq!(
        (last, worst, ends),
        (leaks(), leaks(), vec!["program_ended".to_owned()])
    );
    // It stayed full.
    let (sentence, last, ..) = judge(12_000, |second| leak(second).min(81_000));
    assert!(sentence.contains("stopped at 79.1 of 80 GiB"), "{sentence}");
    assert_eq!(last, "leak");
    // Growth stopped far from the end.
    let (sentence, last, worst, ends) = judge(7200, |second| leak(second.min(3000)));
    assert!(
        sentence.contains(" to 49m") && sentence.ends_with("stopped at 43 of 80 GiB"),
        "{sentence}"
    );
    assert_eq!(
        (last.as_str(), worst, ends),
        ("steady", leaks(), vec!["stopped".to_owned()])
    );
    // The memory was given back.
    let (sentence, last, _, ends) = judge(
        7200,
        |second| if second < 3000 { leak(second) } else { 21_000 },
    );
    assert!(
        sentence.contains(" to 49m58s") && sentence.ends_with("released at 42.9 of 80 GiB"),
        "{sentence}"
    );
    assert_eq!(
        (last.as_str(), ends),
        ("steady", vec!["released".to_owned()])
    );
    // Nothing happened, or too little to tell.
    assert_eq!(
        judge(7200, |_| 20_480).0,
        "steady for 1h59m; 20 of 80 GiB at the end"
    );
    assert_eq!(judge(10, |_| 20_480).0, "too soon to say: 5 samples in 8s");
}

#[test]
fn a_job_that_leaks_until_each_restart_leaked_several_times() {
    let (sentence, _, worst, ends) = judge(14_400, |second| {
        if second % 3600 < 10 {
            5
        } else {
            20_000 + second % 3600 * 10
        }
    });
    assert!(
        sentence.starts_with("LEAKED 4 times, last from 3h") && sentence.contains(", ended at "),
        "{sentence}"
    );
    assert_eq!(worst, "leak");
    assert_eq!(
        ends,
        [
            "program_ended",
            "program_ended",
            "program_ended",
            "series_ends"
        ]
    );
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
    let events: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("  after "))
        .collect();
    let places: Vec<Option<usize>> = ["LEAK: ", "gave back 42.9 GiB: nearly all", "steady"]
        .iter()
        .map(|word| events.iter().position(|event| event.contains(word)))
        .collect();
    assert!(
        places.is_sorted() && places.iter().all(Option::is_some),
        "{places:?}\n{text}"
    );
    // Falls of a fifth of that do not bury the leak.
    assert!(
        !events.iter().any(|event| event.contains("gave back 8.8")),
        "{text}"
    );
}

/// Returns a log of so many processes. Each tenth leaks.
fn processes(count: u64) -> AnalyzedLog {
    let mut text = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n".to_owned();
    for second in (0..1800_u64).step_by(10) {
        let time = format!("2026/11/21 13:{:02}:{:02}.000", second / 60, second % 60);
        for process in 0..count {
            let leaked = if process % 10 == 3 {
                second * (process + 1) / 4
            } else {
                0
            };
            let _infallible: std::fmt::Result = writeln!(
                text,
                "{time}, GPU-{:08x}-aaaa-bbbb-cccc-0123456789ab, {}, /usr/bin/python3, {} MiB",
                process % 8,
                4000 + process,
                500 + leaked
            );
        }
    }
    let mut log = LogReader::new(with_capacity(Bytes::from_gib(80)));
    text.lines().for_each(|line| log.line(line));
    log.finish()
}

#[test]
fn many_series_begin_with_a_table_of_those_that_leaked() {
    let logs = [(Text::new("log"), processes(30))];
    let text = text::format(&logs, false, style(80));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "30 processes: 3 leaked, 27 steady");
    let columns: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(
        columns,
        [
            "GPU", "PID", "NAME", "VERDICT", "FROM", "UNTIL", "RATE", "REACHED"
        ]
    );
    let row: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(
        row[..4],
        ["GPU-00000003", "4003", "python3", "LEAKED"],
        "{text}"
    );
    assert!(
        lines[3].ends_with(" of 80 GiB") && lines[5].contains("4023"),
        "{text}"
    );
    assert!(
        !text.contains('│') && lines.iter().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        text.contains("`gputop analyze --all --capacity 80GiB log` shows each"),
        "{text}"
    );
    let all = text::format(&logs, true, style(80));
    assert_eq!(
        (all.lines().next(), all.matches(" samples in ").count()),
        (Some(lines[0]), 30),
        "{all}"
    );
    // Few series have their details at once.
    let text = text::format(&[(Text::new("log"), processes(4))], false, style(80));
    assert!(
        text.starts_with("GPU-00000003-") && text.matches(" samples in ").count() == 4,
        "{text}"
    );
}

#[test]
fn a_table_without_all_has_at_most_forty_rows_and_counts_the_others() {
    let logs = [(Text::new("log"), processes(430))];
    let text = text::format(&logs, false, style(80));
    let rows = |text: &str| {
        text.lines()
            .filter(|line| line.contains("  LEAKED  "))
            .count()
    };
    assert_eq!(rows(&text), 40, "{text}");
    assert!(
        text.starts_with("430 processes: 43 leaked, 387 steady\n")
            && text.contains("\nand 3 more\n"),
        "{text}"
    );
    let all = text::format(&logs, true, style(80));
    assert_eq!(rows(&all), 43, "{all}");
    assert!(!all.contains("\nand "), "{all}");
    // Exactly forty are all shown.
    let text = text::format(&[(Text::new("log"), processes(400))], false, style(80));
    assert_eq!(
        (rows(&text), text.contains("\nand ")),
        (40, false),
        "{text}"
    );
}

#[test]
fn times_are_those_of_the_log_and_the_last_lines_say_what_to_do() {
    // A log with dates in a zone shows its times of day.
    let row = |second: u64, gpu: u64| {
        let leaked = if gpu == 3 {
            second.saturating_sub(600) * 10
        } else {
            0
        };
        let mib = if second < 3600 { 20_000 + leaked } else { 5 };
        format!(
            "2026-11-21T23:{:02}:{:02}+01:00,{gpu},{mib} MiB\n",
            second / 60,
            second % 60
        )
    };
    let rows = || {
        (0..3600_u64)
            .step_by(5)
            .flat_map(|second| (0..8).map(move |gpu| row(second, gpu)))
    };
    let head = "timestamp,index,memory.used [MiB]\n";
    let read = |text: &str| {
        let mut log = LogReader::new(LogOptions::default());
        text.lines().for_each(|line| log.line(line));
        text::format(&[(Text::new("a log.csv"), log.finish())], false, style(80))
    };
    let text = read(&(head.to_owned() + &rows().collect::<String>()));
    let row = text.lines().nth(3).unwrap_or_default();
    assert!(row.starts_with("GPU 3  LEAKED   23:10  23:59 "), "{text}");
    assert!(
        text.contains("FROM and UNTIL are times of day; the log begins at 2026-11-21 23:00:00."),
        "{text}"
    );
    assert!(
        text.contains("`gputop analyze --all 'a log.csv'` shows each"),
        "{text}"
    );
    let (_, next) = text
        .split_once("\nNext:\n")
        .unwrap_or_else(|| panic!("{text}"));
    for command in [
        "gputop explain OUTPUT.log",
        "gputop record -o run.zst",
        "gputop run -- python train.py",
    ] {
        assert!(next.contains(&format!("\n      {command}\n")), "{text}");
    }
    // A log without dates counts from its beginning, also for a process that begins later.
    let row = |second: u64| {
        let late = second
            .checked_sub(1000)
            .map(|since| format!("{second},8,{} MiB\n", 500 + since * 10));
        let others = (1..6).map(|pid| format!("{second},{pid},500 MiB\n"));
        others.chain(late).collect::<Vec<_>>().concat()
    };
    let rows: String = (0..3000).step_by(5).map(row).collect();
    let text = read(&(format!("seconds,pid,used_memory [MiB]\n{rows}")));
    let cells: Vec<&str> = text
        .lines()
        .nth(3)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert!(
        cells[3].starts_with("16m") || cells[3].starts_with("17m"),
        "{text}"
    );
    assert!(
        text.contains("FROM and UNTIL count from the beginning of the log."),
        "{text}"
    );
    assert!(!text.contains("does not name processes"), "{text}");
    // Nothing grew, so there is nothing to do.
    assert!(!read("0,1073741824\n1,1073741824\n").contains("Next:"));
}

#[test]
fn a_leak_that_ended_with_its_program_gets_advice() {
    let text = text::format(
        &[(
            Text::new("log"),
            read(
                12_000,
                |second| if second < 6700 { leak(second) } else { 5 },
            ),
        )],
        false,
        style(80),
    );
    assert!(
        text.contains("until the program ended") && text.contains("\nWhat to try"),
        "{text}"
    );
    let stopped = text::format(
        &[(
            Text::new("log"),
            read(7200, |second| leak(second.min(3000))),
        )],
        false,
        style(80),
    );
    assert!(!stopped.contains("What to try"), "{stopped}");
}
