//! Tests with logs of many kinds: the series that are read from them, and the verdicts.

mod filling;
mod formats;

use std::fmt::Write;

use super::dates::LogTimes;
use super::judged::MemorySplit;
use super::log::{AnalyzedLog, LogReader};
use super::log_options::LogOptions;
use super::{json, text};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{LeakVerdict, MemoryPart};
use crate::output::TextStyle;
use crate::protocol::change::Change;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Snapshot;
use crate::protocol::snapshot::example::{allocator_stats, host};

pub(super) fn style(width: usize) -> TextStyle {
    TextStyle {
        width,
        ascii: false,
        bold: false,
    }
}

pub(super) fn with_capacity(capacity: Bytes) -> LogOptions {
    LogOptions {
        capacity: Some(capacity),
        ..LogOptions::default()
    }
}

pub(super) fn read(text: &str) -> AnalyzedLog {
    let mut log = LogReader::new(LogOptions::default());
    text.lines().for_each(|line| log.line(line));
    log.finish()
}

pub(super) fn to_json(logs: &[(Text, AnalyzedLog)]) -> serde_json::Value {
    let mut bytes = Vec::new();
    json::write(logs, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Checks the series: GPU, PID, capacity in MiB, and the samples as seconds and MiB.
#[track_caller]
pub(super) fn check(text: &str, expected: &[impl AsRef<str>]) -> AnalyzedLog {
    let found = read(text);
    let found_series: Vec<String> = found
        .series
        .iter()
        .map(|judged| {
            let gpu = judged.series.gpu.as_ref().map_or("-", |gpu| gpu.as_str());
            let pid = judged
                .series
                .pid
                .map_or("-".to_owned(), |pid| pid.to_string());
            let whole = judged
                .capacity
                .map_or("-".to_owned(), |capacity| (capacity.0 >> 20).to_string());
            let points: Vec<String> = judged
                .points
                .iter()
                .map(|(at, bytes)| format!("{at}:{}", bytes >> 20))
                .collect();
            format!("{gpu} {pid} {whole} {}", points.join(" "))
        })
        .collect();
    let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
    assert_eq!(
        found_series, expected,
        "{:?} {:?}",
        found.unreadable.first, found.notes
    );
    found
}

#[test]
fn a_leak_has_a_forecast_every_minute_at_any_interval() {
    for (samples, step) in [(1200_u64, 1), (600, 7), (300, 25)] {
        let rows = (0..samples)
            .map(|sample| format!("{},{}\n", sample * step, (8192 + 2 * sample * step) << 20));
        let mut log = LogReader::new(with_capacity(Bytes::from_gib(80)));
        rows.for_each(|row| log.line(&row));
        let found = log.finish();
        let [judged] = found.series.as_slice() else {
            panic!("{:?}", found.unreadable.first)
        };
        assert_eq!(judged.last.verdict, LeakVerdict::Leak);
        let gaps = judged
            .forecasts
            .windows(2)
            .map(|pair| pair[1].at - pair[0].at);
        assert!(
            gaps.clone().all(|gap| gap <= 60.0),
            "{step}: {:?}",
            gaps.collect::<Vec<_>>()
        );
        assert!(judged.forecasts.len() > 2);
    }
}

#[test]
fn unreadable_lines_are_counted_and_listed() {
    let found = check(
        "time,bytes\n1,1048576\nhello\n2,many\n\n,3\n# a remark\n3,2097152\n",
        &["- - - 0:1 2:2"],
    );
    let named: Vec<String> = found
        .unreadable
        .first
        .iter()
        .map(|(line, why)| format!("{line} {why}"))
        .collect();
    assert_eq!(found.unreadable.count, 3);
    assert_eq!(
        named,
        [
            "3 1 cell instead of 2: hello",
            "4 no amount of memory: many",
            "6 no time: "
        ]
    );
    assert_eq!(read("nothing\nof use\n").unreadable.count, 2);
    assert!(read("").series.is_empty());
    // A PCI address is not a time.
    let found = read("00000000:17:00.0, 100 MiB\n00000000:65:00.0, 200 MiB\n");
    assert_eq!((found.unreadable.count, found.series.len()), (2, 0));
    assert_eq!(
        found.unreadable.first[0].1.as_str(),
        "no column can be recognized as time and memory"
    );
    let found = read("time,bytes\n1,99999999999999999999999\n1e400,1\nNaN,2\n-5,3\n");
    assert_eq!(
        (found.unreadable.count, found.series.len()),
        (3, 1),
        "{:?}",
        found.unreadable.first
    );
}

#[test]
fn clock_steps_and_late_lines_are_straightened_with_a_note() {
    let log = |times: &[i64]| {
        let rows: Vec<String> = times
            .iter()
            .map(|time| format!("{time},{}", (time + 100) << 20))
            .collect();
        format!("time,bytes\n{}\n", rows.join("\n"))
    };
    let ends = |text: &str| {
        let found = read(text);
        (
            found.series[0].span.to_string(),
            found.series[0].samples,
            found.notes.first().cloned().unwrap_or_default(),
        )
    };
    let forth: Vec<i64> = (0..50).collect();
    assert_eq!(ends(&log(&forth)).0, "49");
    let back: Vec<i64> = (5000..5050).chain(1400..1450).collect();
    let (span, samples, note) = ends(&log(&back));
    assert_eq!((span.as_str(), samples), ("99", 100), "{note}");
    assert!(
        note.contains("line 52") && note.contains("set back by 3649 s (daylight saving?)"),
        "{note}"
    );
    let mut late = forth.clone();
    late.swap(10, 11);
    late.swap(30, 31);
    let (span, samples, note) = ends(&log(&late));
    assert_eq!((span.as_str(), samples), ("49", 50));
    assert_eq!(note, "2 lines are out of order: sorted by time");
    let twice: Vec<i64> = forth.iter().flat_map(|time| [*time, *time]).collect();
    assert_eq!(ends(&log(&twice)).1, 50);
    let night = |hour: u32, minute: u32, second: u32| {
        format!("2026/03/29 {hour:02}:{minute:02}:{second:02}, 5 MiB\n")
    };
    let mut spring = "timestamp, memory.used [MiB]\n".to_owned();
    (40..60).for_each(|second| spring += &night(1, 59, second));
    (0..20).for_each(|second| spring += &night(3, 0, second));
    let (span, _, note) = ends(&spring);
    assert_eq!(span, "39", "{note}");
    assert!(note.contains("set ahead by 3600 s"), "{note}");
    // In times since the start, an hour is a gap, not a clock step.
    let elapsed = |hour: u32, minute: u32| {
        (0..60).map(move |second| format!("{hour}:{minute:02}:{second:02},{}\n", 5 << 20))
    };
    let hole: String = elapsed(0, 30).chain(elapsed(1, 31)).collect();
    let (span, _, note) = ends(&format!("t,bytes\n{hole}"));
    assert_eq!(span, "3719", "{note}");
    assert!(!note.contains("set"), "{note}");
    let nights: String = (0..3)
        .flat_map(|_| elapsed(0, 0).chain(elapsed(12, 0)).chain(elapsed(23, 59)))
        .collect();
    let (span, _, note) = ends(&format!("t,bytes\n{nights}"));
    assert_eq!(span, "259199", "{note}");
    assert_eq!(
        note,
        "at line 182 the time starts again after a day, and 1 times more: taken as the next day"
    );
}

#[test]
fn a_reused_pid_is_another_process() {
    let log = |name: &str, at: u32, mib: u32| {
        format!(
            "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
             2026/11/21 13:05:42.000, GPU-1, 7, python, 900 MiB\n2026/11/21 13:05:43.000, GPU-1, 7, python, 910 MiB\n\
             2026/11/21 13:{at:02}:43.000, GPU-1, 7, {name}, {mib} MiB\n"
        )
    };
    let two = ["GPU-1 7 - 0:900 1:910", "GPU-1 7 - 0:400"];
    check(&log("python", 35, 400), &two);
    check(&log("jupyter", 10, 400), &two);
    // The name was unknown at first, or the process has renamed itself.
    for first in ["[Not Found]", "py"] {
        let named = log("python", 10, 400).replacen("7, python,", &format!("7, {first},"), 1);
        let found = check(&named, &["GPU-1 7 - 0:900 1:910 301:400"]);
        assert_eq!(found.series[0].name, Some(Text::new("python")));
    }
    // A gap in the log alone, or freed memory alone, is no new process.
    check(&log("python", 35, 950), &["GPU-1 7 - 0:900 1:910 1801:950"]);
    check(&log("python", 10, 400), &["GPU-1 7 - 0:900 1:910 301:400"]);
}

#[test]
fn a_process_runs_out_of_what_others_leave() {
    let mut text = "timestamp, gpu_uuid, pid, used_gpu_memory [MiB]\n".to_owned();
    for at in 0..900 {
        let time = format!("2026/11/21 13:{:02}:{:02}.000", at / 60, at % 60);
        let _infallible: std::fmt::Result = write!(
            text,
            "{time}, GPU-1, 1, 20000 MiB\n{time}, GPU-1, 2, {} MiB\n",
            4000 + at / 2 * 2
        );
    }
    let mut log = LogReader::new(with_capacity(Bytes(40_000 << 20)));
    text.lines().for_each(|line| log.line(line));
    let found = log.finish();
    assert_eq!(found.series[0].last.verdict, LeakVerdict::Steady);
    assert_eq!(found.series[1].last.verdict, LeakVerdict::Leak);
    let end = found.series[1]
        .last
        .evidence
        .and_then(|evidence| evidence.forecast)
        .expect("the capacity is known");
    // The other process leaves 20,000 MiB. 4,900 MiB are in use, and they grow by 1 MiB/s.
    assert!(
        (end.likely.as_secs_f64() - 15_100.0).abs() < 300.0,
        "{end:?}"
    );
}

/// Used, reserved and allocated bytes of a process that always uses 30 GiB, while its tensors grow.
fn leak_below(second: u64) -> [u64; 3] {
    [30_720, 30_208, 10_240 + 5 * second].map(|mib| mib << 20)
}

#[test]
fn a_leak_inside_reserved_memory_is_found_in_pytorchs_columns() {
    let row = |second: u64| {
        let [held, reserved, allocated] = leak_below(second);
        format!(
            "{second},7,{},{allocated},{reserved},85899345920\n",
            held >> 20
        )
    };
    let head = "seconds,pid,used_memory [MiB],allocated_bytes,reserved_bytes,memory.total [B]\n";
    let found = read(&(head.to_owned() + &(0..900).map(row).collect::<String>()));
    let [judged] = found.series.as_slice() else {
        panic!("{:?}", found.unreadable.first)
    };
    let reason = judged.reason.clone().unwrap_or_default();
    assert_eq!(
        (judged.last.verdict, judged.last.part),
        (LeakVerdict::Leak, Some(MemoryPart::Allocated)),
        "{reason}"
    );
    assert!(
        reason.starts_with("allocated +") && reason.ends_with("; reserved has not moved yet"),
        "{reason}"
    );
    let (reserved, allocated) = (Bytes(30_208 << 20), Bytes((10_240 + 5 * 899) << 20));
    assert_eq!(
        judged.split,
        Some(MemorySplit {
            reserved,
            allocated,
            outside: Some(512 << 20)
        })
    );
    // The text and the graph show the allocated memory, not the driver's figure, which does not
    // move.
    let text = text::format(&[(Text::new("log"), found)], false, style(100));
    for words in [
        "LEAK: allocated +300 MiB/min for ",
        "memory allocated by tensors:\n   14.4 GiB │",
        "1. A loss or metric",
    ] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    // A log of PyTorch's figures alone.
    let alone = "time,allocated_bytes,reserved_bytes\n0,1048576,2097152\n1,1048576,2097152\n";
    check(alone, &["- - - 0:2 1:2"]);
    assert_eq!(
        read(alone).series[0].split.and_then(|split| split.outside),
        None
    );
}

#[test]
fn each_way_of_growing_has_its_own_advice() {
    let row = |second: u64| {
        let [held, reserved, allocated] = leak_below(second);
        let more = (10 * second) << 20;
        format!(
            "{second},7,{held},{reserved},{allocated}\n{second},8,{},{},{}\n",
            more + held,
            more + reserved,
            20 << 30
        )
    };
    let head = "seconds,pid,used_memory [B],reserved_bytes,allocated_bytes\n";
    let found = read(&(head.to_owned() + &(0..900).map(row).collect::<String>()));
    let text = text::format(&[(Text::new("log"), found)], false, style(100));
    let (tensors, cache) = text
        .split_once("What to try for memory, process 8")
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        tensors.contains("What to try for memory, process 7, the most likely first"),
        "{text}"
    );
    assert!(
        tensors.contains("1. A loss or metric") && !tensors.contains("1. PyTorch's cache"),
        "{text}"
    );
    assert!(
        cache.contains("1. PyTorch's cache grows, not the memory of tensors\n   Sizes that change"),
        "{text}"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let head = "seconds,pid,used_memory [B],allocated_bytes,reserved_bytes,memory.total [B]\n";
    let row = |second: u64| {
        let [memory, reserved, allocated] = leak_below(second);
        format!("{second},7,{memory},{allocated},{reserved},85899345920\n")
    };
    let log = head.to_owned() + &(0..900).map(row).collect::<String>();
    for width in [80, 100, 200] {
        let text = text::format(&[(Text::new("log"), read(&log))], false, style(width));
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}\n{text}");
        }
        // On wide terminals, the graph stays readable.
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(
            widest >= Some(width.min(160)),
            "{widest:?} of {width}\n{text}"
        );
    }
    let text = text::format(&[(Text::new("log"), read(&log))], false, style(40));
    let breaks = text
        .lines()
        .zip(text.lines().skip(1))
        .filter(|(_, next)| next.starts_with("    "));
    for (line, next) in breaks.take_while(|(line, _)| !line.starts_with("What to try")) {
        let unit = next
            .trim_start()
            .split([' ', ',', ';', ')'])
            .next()
            .unwrap_or_default();
        assert!(
            !["MiB", "GiB", "s", "min", "h", "d"].contains(&unit),
            "{line}\n{next}"
        );
    }
}

#[test]
fn hosts_with_the_same_gpu_and_pid_have_series_of_their_own() {
    let mut host = host(1).with(7, "python train.py", 0, Bytes(0));
    let mut text = String::new();
    for second in 0..3 {
        host = host.later(1);
        (host.sequence, host.unix_ms) = (second, 1_700_000_000_000 + second * 1000);
        for (host_key, name) in [(0, "left"), (1, "right")] {
            host.gpus[0].processes[0].memory = Ok(Bytes::from_gib(host_key + 1));
            let mut line = Vec::new();
            Line::Full(Box::new(host.clone())).write(&mut line).unwrap();
            HostTag {
                host_key,
                name: Some(name.into()),
            }
            .append_to(&mut line);
            text += str::from_utf8(&line).unwrap();
        }
    }
    let logs = [(Text::new("log"), read(&text))];
    let json = to_json(&logs);
    let series: Vec<_> = json["series"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|series| series["pid"] == 7)
        .collect();
    let hosts: Vec<_> = series
        .iter()
        .map(|series| (series["host"].as_str(), series["samples"].as_u64()))
        .collect();
    assert_eq!(hosts, [(Some("left"), Some(3)), (Some("right"), Some(3))]);
    let lasts: Vec<_> = logs[0]
        .1
        .series
        .iter()
        .filter(|judged| judged.series.pid.is_some())
        .collect();
    assert_eq!(
        lasts
            .iter()
            .map(|judged| judged.points[2].1 >> 30)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(text::format(&logs, false, style(80)).contains("right, GPU 0, process 7"));
    // The name of the only host is left out.
    let one = text.lines().step_by(2).collect::<Vec<_>>().join("\n");
    assert_eq!(
        to_json(&[(Text::new("log"), read(&one))])["series"][0]["host"],
        serde_json::Value::Null
    );
}

#[test]
fn memory_that_does_not_move_has_no_graph() {
    let graph = |mib: fn(u64) -> u64| {
        let rows: Vec<String> = (0..900)
            .map(|second| format!("{second},{}\n", mib(second) << 20))
            .collect();
        text::format(
            &[(Text::new("log"), read(&rows.concat()))],
            false,
            style(80),
        )
    };
    let flat = graph(|_| 2000);
    assert!(
        flat.starts_with("memory: steady for 14m59s; 2 GiB at the end\n  900 samples in 14m59s\n"),
        "{flat}"
    );
    assert!(!flat.contains('│') && !flat.contains("--all"), "{flat}");
    assert!(graph(|second| 2000 + second % 7 * 50).contains('│'));
}

#[test]
fn a_log_of_one_column_is_read_with_the_options_that_the_message_suggests() {
    let read_with = |text: &str, options: LogOptions| {
        let mut log = LogReader::new(options);
        text.lines().for_each(|line| log.line(line));
        log.finish()
    };
    let problem = read("mem\n100\n200\n300\n").problem.unwrap();
    let sentence = problem.sentence();
    assert!(
        sentence.contains("--memory COLUMN") && sentence.contains("--interval 5"),
        "{sentence}"
    );
    let every_5s = LogOptions {
        interval: Some(std::time::Duration::from_secs(5)),
        ..LogOptions::default()
    };
    let named = LogOptions {
        memory: vec!["mem".to_owned()],
        unit: Some(1 << 20),
        ..every_5s.clone()
    };
    for (text, options) in [
        ("mem\n100\n200\n300\n", named),
        ("100\n200\n300\n", every_5s.clone()),
        ("100 MiB\n200 MiB\n300 MiB\n", every_5s),
    ] {
        let found = read_with(text, options);
        assert_eq!(found.problem, None, "{text}");
        let points: Vec<u64> = found.series[0]
            .points
            .iter()
            .map(|(_, bytes)| bytes >> 20)
            .collect();
        assert_eq!(points, [100, 200, 300], "{text}");
    }
}
