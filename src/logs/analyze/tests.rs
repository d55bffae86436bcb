//! Tests with logs of many kinds: the series that are read from them, and the verdicts.

use std::fmt::Write;

use super::dates::LogTimes;
use super::judged::MemorySplit;
use super::log::{AnalyzedLog, LogReader};
use super::{json, text};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{LeakVerdict, MemoryPart};
use crate::output::TextStyle;
use crate::protocol::change::Change;
use crate::protocol::host_tag::HostTag;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Snapshot;
use crate::protocol::snapshot::example::{host, peek};

pub(super) fn style(width: usize) -> TextStyle {
    TextStyle {
        width,
        ascii: false,
        bold: false,
    }
}

pub(super) fn read(text: &str) -> AnalyzedLog {
    let mut log = LogReader::new(None);
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
fn any_header_with_a_time_and_an_amount_is_read_as_are_the_numbers_of_numpy() {
    for header in [
        "time,bytes",
        "t,bytes",
        "elapsed_s,mem",
        "Time (s),Memory (bytes)",
        "\"seconds\",\"used_bytes\"",
    ] {
        let found = check(
            &format!("{header}\n0,1.048576e+06\n1.000e+00,2097152.0\n"),
            &["- - - 0:1 1:2"],
        );
        assert_eq!(
            found.unreadable.count, 0,
            "{header}: {:?}",
            found.unreadable.first
        );
    }
    for text in [
        "Time (s),Memory (MiB)\n0,1\n1,2\n",
        "elapsed_ms,MiB\n0,1\n1000,2\n",
        "time [min],memory_gb\n0,0.001048576\n0.0166666667,0.002097152\n",
        "hours,used_mib\n0,1\n0.000277777778,2\n",
        "timestamp_ms,MiB\n1795266342123,1\n1795266343123,2\n",
        "time_ns;MiB\n0;1\n1000000000;2\n",
        "elapsed (s),memory used by the whole job (MiB)\n0,1\n1,2\n",
        "time since the whole job began [s],MiB\n0,1\n1,2\n",
        "t\tbytes\n0:00:00\t1048576\n0:00:01\t2097152\n",
        "What was held, and when it was held there\n0,1048576\n1,2097152\n",
    ] {
        check(text, &["- - - 0:1 1:2"]);
    }
    let found = check(
        "step,loss,memory_allocated\n0,3.5,1048576\n1,3.4,2097152\n",
        &["- - - 0:1 1:2"],
    );
    assert_eq!(found.notes[0], "no time: one step taken for a second");
    check("0,1.048576e+06\n1,2.097152e+06\n", &["- - - 0:1 1:2"]);
}

#[test]
fn a_leak_has_a_forecast_every_minute_at_any_interval() {
    for (samples, step) in [(1200_u64, 1), (600, 7), (300, 25)] {
        let rows = (0..samples)
            .map(|sample| format!("{},{}\n", sample * step, (8192 + 2 * sample * step) << 20));
        let mut log = LogReader::new(Some(Bytes::from_gib(80)));
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
fn columns_are_found_by_name_in_any_order() {
    let header = "timestamp, index, memory.used [MiB], memory.total [MiB]";
    let row = "2026/11/21 13:05:42.000, 0, 100 MiB, 8192 MiB\n2026/11/21 13:05:43.500, 0, 120 MiB, 8192 MiB";
    check(&format!("{header}\n{row}\n"), &["0 - 8192 0:100 1.5:120"]);
    check(
        "memory.total [MiB], utilization.gpu [%], memory.used [MiB], timestamp\n\
         8192, 7, 100, 2026/11/21 13:05:42.000\n8192, 8, 120, 2026/11/21 13:05:44.000\n",
        &["- - 8192 0:100 2:120"],
    );
    check(
        "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n\
         2026/11/21 13:05:42.000, GPU-1, 7, python a,b.py, 100 MiB\n\
         2026/11/21 13:05:42.000, GPU-1, 8, python, [N/A]\n\
         2026/11/21 13:05:43.000, GPU-1, 7, python a,b.py, 110 MiB\n",
        &["GPU-1 7 - 0:100 1:110"],
    );
}

#[test]
fn all_rows_have_the_separator_of_the_header() {
    check("time,bytes\n0,\t1048576\n1,\t2097152\n", &["- - - 0:1 1:2"]);
    check(
        "time,pid,name,used_memory [MiB]\n0,7,a;b,1\n1,7,a\tb,2\n",
        &["- 7 - 0:1 1:2"],
    );
    check(
        "time\tname\tpid\tMiB\n0\ta,b\t7\t1\n1\ta\t7\t2\n",
        &["- 7 - 0:1 1:2"],
    );
    // Decimal commas, with and without a header.
    check(
        "time (s);memory (MiB)\n0,5;1,5 MiB\n1,75;2,5\n2;3\n",
        &["- - - 0:1 1.25:2 1.5:3"],
    );
    check(
        "a remark, and one more\n0,5;1048576,5\n1,5;2097152\n",
        &["- - - 0:1 1:2"],
    );
}

#[test]
fn columns_without_a_header_are_guessed() {
    let time = |second: u32| format!("2026/11/21 13:05:{second:02}.000");
    let rows = |row: &dyn Fn(u32) -> String| (0..20).map(row).collect::<Vec<_>>().join("\n");
    let expected = |head: &str, samples: &dyn Fn(u32) -> u32| {
        let samples: Vec<String> = (0..20)
            .map(|second| format!("{second}:{}", samples(second)))
            .collect();
        format!("{head} {}", samples.join(" "))
    };
    let grows = |second: u32| 1000 + second;
    let units = rows(&|second| {
        format!(
            "{}, 0, 81559 MiB, {} MiB, 33 %",
            time(second),
            grows(second)
        )
    });
    check(&units, &[&expected("0 - 81559", &grows)]);
    let bare = rows(&|second| format!("{}, {}, 81559, 45", time(second), grows(second)));
    let found = check(&bare, &[&expected("- - 81559", &grows)]);
    assert!(
        found.notes[0].starts_with("no header: column 2 taken for the memory in use"),
        "{:?}",
        found.notes
    );
    let apps = rows(&|second| format!("{}, GPU-5ac8, 4242, {} MiB", time(second), grows(second)));
    check(&apps, &[&expected("GPU-5ac8 4242 -", &grows)]);
    let bare_apps = rows(&|second| format!("{}, GPU-5ac8, 4242, {}", time(second), grows(second)));
    check(&bare_apps, &[&expected("GPU-5ac8 4242 -", &grows)]);
    // The PID may be smaller or larger than the amounts, and its column may be before or after
    // theirs.
    for pid in [300, 2_424_242] {
        for first in [true, false] {
            let row = |second: u32| {
                let (time, memory) = (time(second), grows(second));
                let two = if first {
                    format!("{pid}, {memory}")
                } else {
                    format!("{memory}, {pid}")
                };
                format!(
                    "{time}, GPU-5ac8, {two}\n{time}, GPU-5ac8, {}",
                    two.replace(&pid.to_string(), "77777")
                )
            };
            check(
                &rows(&row),
                &[pid, 77777].map(|pid| expected(&format!("GPU-5ac8 {pid} -"), &grows)),
            );
        }
    }
    let whole_first =
        rows(&|second| format!("{}, GPU-5ac8, 81559, {}", time(second), grows(second)));
    check(&whole_first, &[&expected("GPU-5ac8 - 81559", &grows)]);
    // Indexes and temperatures are not PIDs.
    let warm = rows(&|second| format!("{}, 1, GPU-5ac8, 41, {} MiB", time(second), grows(second)));
    check(&warm, &[&expected("1 - -", &grows)]);
    // Neither are clock rates, which return to earlier values, nor free memory, which differs in
    // each row.
    let clocks = rows(&|second| {
        format!(
            "{}, {}, {}",
            time(second),
            grows(second),
            if second % 3 == 0 { 1965 } else { 1980 }
        )
    });
    assert_eq!(read(&clocks).series.len(), 1);
    let free = (0..60).map(|second| {
        format!(
            "{}, {}, {}",
            time(second),
            grows(second),
            81_559 - grows(second)
        )
    });
    assert_eq!(read(&free.collect::<Vec<_>>().join("\n")).series.len(), 1);
    let plain = rows(&|second| format!("{second}.0,{}", u64::from(grows(second)) << 20));
    check(&plain, &[&expected("- - -", &grows)]);
    check("time,bytes\n5,1048576\n7.5,2097152\n", &["- - - 0:1 2.5:2"]);
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
fn times_of_many_formats_are_parsed() {
    for (text, expected) in [
        ("1970/01/01 00:00:00.000", Some(0)),
        ("2026/11/21 13:05:42.123", Some(1_795_266_342_123)),
        ("2026-11-21T13:05:42Z", Some(1_795_266_342_000)),
        ("2026-11-21T13:05:42.5+02:00", Some(1_795_259_142_500)),
        ("2000-02-29 00:00:00", Some(951_782_400_000)),
        ("12.5", Some(12_500)),
        ("1795266342", Some(1_795_266_342_000)),
        ("1795266342123", Some(1_795_266_342_123)),
        ("27:05:42.5", Some(97_542_500)),
        ("9999:00:00", Some(35_996_400_000)),
        ("9223372036854775807:00:00", None),
        ("1:60:00", None),
        ("1:00:1e1", None),
        ("00000000:17:00.0", None),
        ("0000:17:00.0", None),
        ("2026/13/21 13:05:42", None),
        ("inf", None),
        ("", None),
    ] {
        assert_eq!(LogTimes::default().time(text, None), expected, "{text}");
    }
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
    let mut log = LogReader::new(Some(Bytes(40_000 << 20)));
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
fn homemade_logs_are_read() {
    let mib = |amount: u64| amount << 20;
    check("time,gpu_mem_GiB\n0,1.5\n1,2.0\n", &["- - - 0:1536 1:2048"]);
    check(
        &format!("0 {}\n1.5   {}.0e0\n", mib(10), mib(20)),
        &["- - - 0:10 1.5:20"],
    );
    let of_nvidia = "2026/11/21 13:05:00.000, 20480\n2026/11/21 13:05:01.000, 20484\n";
    check(of_nvidia, &["- - - 0:20480 1:20484"]);
    let free = "timestamp, index, memory.free [MiB], memory.total [MiB]\n\
        2026/11/21 13:05:00.000, 0, 60 MiB, 100 MiB\n2026/11/21 13:05:01.000, 0, [N/A], 100 MiB\n";
    assert_eq!(check(free, &["0 - 100 0:40"]).missing, 1);
    // The log has more lines of text than rows, and all lines of text have the same number of
    // cells.
    let noise = "starting, wait\nloading, wait\nloaded, done\n";
    let rows = "2026/11/21 13:05:00.000, 0, 10 MiB, 100 MiB\n2026/11/21 13:05:01.000, 0, 20 MiB, 100 MiB\n";
    assert_eq!(
        check(&format!("{noise}{rows}"), &["0 - 100 0:10 1:20"])
            .unreadable
            .count,
        3
    );
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
fn gputops_full_lines_and_ticks_are_read() {
    let mut host = host(1).with(7, "python train.py", 0, Bytes(0));
    let mut text = String::new();
    let mut before: Option<Snapshot> = None;
    for second in 0..900 {
        host = host.later(1);
        (host.sequence, host.unix_ms) = (second, 1_700_000_000_000 + second * 1000);
        let [held, reserved, allocated] = leak_below(second).map(Bytes);
        host.gpus[0].processes[0].memory = Ok(held);
        host.gpus[0].load.memory_used = Ok(held);
        host.processes[0].allocator =
            Some(peek(Some(host.gpus[0].uuid.clone()), reserved, allocated).into());
        let change = before
            .filter(|_| second % 100 != 0)
            .and_then(|before| Change::between(&before, &host));
        let line = change.map_or_else(
            || Line::Full(Box::new(host.clone())),
            |change| Line::Tick(Box::new(change)),
        );
        let mut bytes = Vec::new();
        line.write(&mut bytes).unwrap();
        text += str::from_utf8(&bytes).unwrap();
        before = Some(host.clone());
    }
    let found = read(&text);
    let found_series: Vec<_> = found
        .series
        .iter()
        .map(|judged| {
            (
                judged.series.pid,
                judged.samples,
                judged.last.verdict,
                judged.last.part,
            )
        })
        .collect();
    let expected = [
        (None, 900, LeakVerdict::Steady, None),
        (Some(7), 900, LeakVerdict::Leak, Some(MemoryPart::Allocated)),
    ];
    assert_eq!(found_series, expected, "{:?}", found.unreadable.first);
    // The JSON has all figures of the allocator.
    let series = &to_json(&[(Text::new("log"), found)])["series"][1];
    let mib = |name: &str| series[name].as_i64().map(|bytes| bytes >> 20);
    let names = [
        "reserved",
        "allocated",
        "not_pytorch",
        "active",
        "inactive_split",
        "requested",
    ];
    let allocated = 10_240 + 5 * 899;
    let expected = [30_208, allocated, 512, allocated, 0, allocated].map(Some);
    assert_eq!(
        names.map(|name| mib(&format!("{name}_bytes"))),
        expected,
        "{series}"
    );
    // A tick without a full line, and JSON objects that are not gputop's, are unreadable.
    let tick = text.lines().nth(1).unwrap();
    assert_eq!(
        read(&format!("{tick}\n{{}}\n{{\"kind\":\"later\"}}\n"))
            .unreadable
            .count,
        2
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
