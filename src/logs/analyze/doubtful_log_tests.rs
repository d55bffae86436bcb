//! Tests with logs that are easily misread: they are read rightly, with a note, or refused with a
//! sentence.

use std::fmt::Write;

use super::dates::LogTimes;
use super::log::LogProblem;
use super::tests::{check, read, to_json};
use crate::base::text::Text;

/// Returns the date of a moment in milliseconds since an hour began, as nvidia-smi writes it.
fn date(ms: u64) -> String {
    format!(
        "2026/11/21 13:{:02}:{:02}.{:03}",
        ms / 60_000,
        ms / 1000 % 60,
        ms % 1000
    )
}

/// Returns what `nvidia-smi --query-gpu=timestamp,memory.used -l 5` writes for GPUs that it reads
/// `apart` milliseconds after one another. `mib` returns the memory of a GPU in a sample, or `None`
/// if the GPU is lost.
fn without_index(
    samples: u64,
    gpus: u64,
    apart: u64,
    mib: impl Fn(u64, u64) -> Option<u64>,
) -> String {
    let mut text = "timestamp, memory.used [MiB]\n".to_owned();
    for sample in 0..samples {
        for gpu in 0..gpus {
            if let Some(mib) = mib(sample, gpu) {
                let _infallible: std::fmt::Result =
                    writeln!(text, "{}, {mib} MiB", date(sample * 5000 + gpu * apart));
            }
        }
    }
    text
}

fn mib_of(sample: u64, gpu: u64) -> u64 {
    1000 * (gpu + 1) + sample % 7
}

#[track_caller]
fn refused(text: &str) -> String {
    let log = read(text);
    assert!(
        log.series.is_empty() && log.notes.is_empty(),
        "{:?}",
        log.notes
    );
    match log.problem {
        Some(LogProblem::Mixed(sentence)) => sentence,
        problem => panic!("{problem:?}"),
    }
}

#[test]
fn gpus_without_an_index_are_told_apart_by_their_order() {
    for (gpus, apart) in [(8, 0), (8, 2), (2, 1), (3, 40)] {
        let log = read(&without_index(60, gpus, apart, |sample, gpu| {
            Some(mib_of(sample, gpu))
        }));
        let first: Vec<_> = log
            .series
            .iter()
            .map(|judged| (judged.samples, judged.points[0].1 >> 20))
            .collect();
        assert_eq!(
            first,
            (0..gpus)
                .map(|gpu| (60, 1000 * (gpu + 1)))
                .collect::<Vec<_>>(),
            "{:?}",
            log.notes
        );
        let expected = format!(
            "each sample has {gpus} rows, taken for GPU 0 to {} by their order",
            gpus - 1
        );
        assert!(
            log.notes[0].contains(&expected) && log.notes[0].contains("=timestamp,index,"),
            "{:?}",
            log.notes
        );
        let json = to_json(&[(Text::new("log"), log)]);
        assert_eq!(json["series"][1]["gpu"], 1, "{json}");
    }
    // The last sample of a log that was cut off is left out.
    let text = without_index(60, 4, 2, |sample, gpu| Some(mib_of(sample, gpu)));
    let cut = text.rsplitn(3, '\n').nth(2).expect("the log has lines");
    let log = read(cut);
    assert_eq!(
        log.series
            .iter()
            .map(|judged| judged.samples)
            .collect::<Vec<_>>(),
        [59; 4],
        "{:?}",
        log.notes
    );
    assert!(
        log.notes[0].contains("; 3 rows of incomplete samples are left out"),
        "{:?}",
        log.notes
    );
    // One GPU whose rows have times of their own is one series, with holes, too.
    let holes = |sample: u64, _| (sample % 10 != 3).then_some(1000);
    assert_eq!(read(&without_index(60, 1, 0, holes)).series.len(), 1);
}

#[test]
fn gpus_that_cannot_be_told_apart_are_refused() {
    let lost = |sample, gpu| (gpu != 5 || sample < 30).then(|| mib_of(sample, gpu));
    for apart in [0, 2] {
        let sentence = refused(&without_index(60, 8, apart, lost));
        let expected = "the rows are of several GPUs, and no column tells which: use `nvidia-smi \
            --query-gpu=timestamp,index,memory.used,memory.total --format=csv -l 5`";
        assert_eq!(sentence, expected);
    }
    // The rows have equal distances, so nothing shows where a sample begins.
    refused(&without_index(60, 8, 625, |sample, gpu| {
        Some(mib_of(sample, gpu))
    }));
    // Sorted from the end, the rows of one time have any order.
    let text = without_index(60, 4, 0, |sample, gpu| Some(mib_of(sample, gpu)));
    let (header, rows) = text.split_once('\n').expect("there is a header");
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.sort_unstable();
    rows.reverse();
    refused(&format!("{header}\n{}\n", rows.join("\n")));
    // Two capacities are two GPUs, also in rows of their own times.
    let two =
        |at: u64, total: u64| format!("{}, {} MiB, {total} MiB\n", date(at), 1000 + at / 5000);
    let rows: String = (0..60)
        .map(|at| two(at * 5000, [16_384, 81_559][usize::from(at % 3 == 0)]))
        .collect();
    refused(&format!(
        "timestamp, memory.used [MiB], memory.total [MiB]\n{rows}"
    ));
    // A process on two GPUs.
    for apart in [0, 3] {
        let mut processes = "timestamp, pid, used_gpu_memory [MiB]\n".to_owned();
        for at in (0..300_000).step_by(5000) {
            let (first, second) = (date(at), date(at + apart));
            let _infallible: std::fmt::Result =
                write!(processes, "{first}, 7, 100 MiB\n{second}, 7, 900 MiB\n");
        }
        let sentence = refused(&processes);
        assert!(
            sentence.contains("--query-compute-apps=timestamp,gpu_uuid,pid,"),
            "{sentence}"
        );
    }
}

#[test]
fn rows_of_one_time_in_other_logs_are_several_series_only_if_they_alternate() {
    let log = |other: u64| {
        let rows =
            (0..50).map(|at| format!("{at},{}\n{at},{}\n", (100 + at) << 20, (other + at) << 20));
        format!("time,bytes\n{}", rows.collect::<String>())
    };
    let samples = |text: &str| {
        read(text)
            .series
            .iter()
            .map(|judged| judged.samples)
            .collect::<Vec<_>>()
    };
    assert_eq!(samples(&log(100)), [50]);
    assert_eq!(samples(&log(9000)), [50, 50]);
}

#[test]
fn a_log_whose_times_descend_is_turned_around() {
    let rows: Vec<String> = (0..50)
        .map(|at| format!("{}, 0, {} MiB", date(at * 5000), 1000 + at))
        .collect();
    let backward: Vec<&str> = rows.iter().rev().map(String::as_str).collect();
    let header = "timestamp, index, memory.used [MiB]";
    let points: Vec<String> = (0..50)
        .map(|at| format!("{}:{}", at * 5, 1000 + at))
        .collect();
    let found = check(
        &format!("{header}\n{}", backward.join("\n")),
        &[format!("0 - - {}", points.join(" "))],
    );
    assert_eq!(
        found.notes[0],
        "the times descend: the log was read from its end to its beginning"
    );
    assert!(
        check(
            &format!("{header}\n{}", rows.join("\n")),
            &[format!("0 - - {}", points.join(" "))]
        )
        .notes
        .len()
            == 1
    );
}

#[test]
fn numbers_may_have_quotes_and_separators_between_thousands() {
    let header = "timestamp, index, memory.used [MiB]";
    for amount in [
        "\"12,345 MiB\"",
        "\"12,345\"",
        "12345",
        "12'345 MiB",
        "12 345 MiB",
        "12\u{a0}345",
        "\"12,345.0 MiB\"",
    ] {
        let rows = [0, 5].map(|second| format!("\"{}\", 0, {amount}", date(second * 1000)));
        let found = check(
            &format!("{header}\n{}\n", rows.join("\n")),
            &["0 - - 0:12345 5:12345"],
        );
        assert_eq!(found.unreadable.count, 0, "{amount}");
    }
    // Separators at other places are no number, and neither is a list of numbers.
    for amount in ["\"12,34 MiB\"", "\"1,2,3\"", "\"1234,567\""] {
        let found = read(&format!("{header}\n\"{}\", 0, {amount}\n", date(0)));
        assert_eq!(
            found.unreadable.first[0].1.as_str(),
            format!("no amount of memory: {}", amount.trim_matches('"'))
        );
    }
    // A quote that is never closed is part of a name.
    let names = "time,pid,name,used_memory [MiB]\n0,7,echo \"a,1\n1,7,\"a, b\",2\n";
    check(names, &["- 7 - 0:1 1:2"]);
}

#[test]
fn dates_of_many_programs_are_read() {
    for text in [
        "2026/11/21 13:05:42.5",
        "2026-11-21T13:05:42.5Z",
        "2026-11-21 14:05:42.5 +0100",
        "20261121 13:05:42.5",
        "21.11.2026 13:05:42.5",
        "21 Nov 2026 13:05:42.5",
        "21-Nov-2026 13:05:42.5",
        "21/Nov/2026:13:05:42.5 +0000",
        "Sat Nov 21 13:05:42.5 2026",
        "Sat Nov 21 13:05:42.5 UTC 2026",
        "Sat, 21 Nov 2026 14:05:42.5 +0100",
        "11/21/2026 1:05:42.5 PM",
    ] {
        assert_eq!(
            LogTimes::default().date(text),
            Some(1_795_266_342_500),
            "{text}"
        );
    }
    // Day and month could be exchanged.
    for text in [
        "04/03/2026 13:05:42",
        "2026-13-01 13:05:42",
        "yesterday 13:05:42",
        "21 Nov 2026",
    ] {
        assert_eq!(LogTimes::default().date(text), None, "{text}");
    }
    let found = read(
        "timestamp, index, memory.used [MiB]\n04/03/2026 13:05:42, 0, 5 MiB\n04/03/2026 13:05:43, 0, 5 MiB\n",
    );
    let sentence = found
        .problem
        .as_ref()
        .map(LogProblem::sentence)
        .unwrap_or_default();
    assert!(
        sentence.starts_with(
            "line 2: no time: 04/03/2026 13:05:42; accepted are `2026/11/21 13:05:42.123`"
        ),
        "{sentence}"
    );
}

#[test]
fn each_reason_why_lines_are_unreadable_is_given_once() {
    let rows = (0..40)
        .map(|at| format!("{at},many\nsoon,5\n{at},1048576"))
        .collect::<Vec<_>>()
        .join("\n");
    let found = read(&format!("time,bytes\n{rows}"));
    assert_eq!((found.unreadable.count, found.series[0].samples), (80, 40));
    let sentences = found.unreadable.sentences();
    assert_eq!(sentences.len(), 2);
    assert_eq!(
        sentences[0],
        "line 2 and 39 more: no amount of memory: many"
    );
    assert!(
        sentences[1].starts_with("line 3 and 39 more: no time: soon; accepted are "),
        "{sentences:?}"
    );
}

#[test]
fn other_formats_are_named_with_the_command_to_run() {
    let table = "Fri Nov 20 13:05:42 2026\n+-----------+\n| NVIDIA-SMI 570.1   Driver Version: 570.1 |\n|====+====|\n| 0 |\n";
    for (text, name, command) in [
        (
            table,
            "the table of `nvidia-smi` has no times",
            "--query-gpu=timestamp,index,",
        ),
        (
            "==============NVSMI LOG==============\n\nTimestamp : x\n",
            "the text of `nvidia-smi -q`",
            "--query-gpu=",
        ),
        (
            "# gpu    pwr  gtemp\n# Idx      W      C\n    0     72     35\n",
            "`nvidia-smi dmon`",
            "--query-gpu=",
        ),
        (
            "# gpu   pid   type   sm  mem\n    0   123     C    9\n",
            "`nvidia-smi pmon`",
            "--query-compute-apps=",
        ),
        (
            "# HELP DCGM_FI_DEV_FB_USED Used.\nDCGM_FI_DEV_FB_USED{gpu=\"0\"} 12\n",
            "metrics of Prometheus",
            "--query-gpu=",
        ),
        (
            "host\n#  GPU  MEMORY  SM  TEMP\n0  H100  61.6/79.6G  94%  63C\n",
            "the table of `gputop --once`",
            "gputop record",
        ),
        (
            "See every GPU\n\nUsage: gputop [OPTIONS]\n",
            "the help of gputop",
            "gputop record",
        ),
        (
            "[0] NVIDIA H100 | 45'C,  0 % |  1234 / 81559 MB | me(1M)\n",
            "gpustat",
            "--query-gpu=",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n",
            "out-of-memory message",
            "gputop explain",
        ),
        (
            "memory.used [MiB]\n5 MiB\n6 MiB\n",
            "the log has no times: if its samples are 5 seconds apart, add `--interval 5`",
            "--query-gpu=timestamp,index,",
        ),
        (
            "timestamp, index\n2026/11/21 13:05:42.0, 0\n",
            "the header has no used memory",
            "--query-gpu=timestamp,index,",
        ),
        (
            "timestamp, memory.used [MiB]\n2026/11/21 13:05:42.0, [N/A]\n",
            "all readings are missing (1)",
            "",
        ),
        ("", "it is empty", ""),
    ] {
        let Some(LogProblem::Empty(sentence)) = read(text).problem else {
            panic!("{text}")
        };
        assert!(
            sentence.contains(name) && sentence.contains(command),
            "{text}: {sentence}"
        );
    }
}
