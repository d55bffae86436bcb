//! `gputop export` and `gputop diff`: the figures of recordings as tables.

use std::fs;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{Output, run};
use crate::replay::Recorder;

/// Runs a subcommand on a host without a driver.
fn gputop(args: &[&str]) -> Output {
    run(&mut Host::new([]).gputop(args.iter().copied()))
}

/// Returns the cells of CSV without quotes, by the names in the first line.
fn columns<'a>(csv: &'a str, names: &[&str]) -> Vec<Vec<&'a str>> {
    let mut lines = csv
        .lines()
        .map(|line| line.split(',').collect::<Vec<&str>>());
    let head = lines.next().expect("CSV has a head");
    let places: Vec<usize> = names
        .iter()
        .map(|name| {
            head.iter()
                .position(|known| known == name)
                .expect("there is such a column")
        })
        .collect();
    lines
        .map(|line| places.iter().map(|place| line[*place]).collect())
        .collect()
}

#[test]
fn each_sample_is_a_row_of_csv() {
    let recorder = Recorder::new();
    let path = recorder
        .record("run.jsonl", 3, 10_000)
        .display()
        .to_string();
    let text = gputop(&["export", &path, "--of", "processes"]).text();
    // The verdict and the growth follow the readings.
    let judged = columns(&text, &["verdict", "verdict_reason", "job", "growth"]);
    assert_eq!(
        judged[0],
        ["active", "no problem found; holds 1.0 GiB", "sleep", ""]
    );
    let names = ["pid", "command", "memory_used_bytes", "allocated_bytes"];
    let pid = recorder.pid.to_string();
    let amounts = [GIB, GIB + (200 << 20), GIB + (400 << 20)].map(|amount| amount.to_string());
    // A value that is not known is empty.
    let expected: Vec<Vec<&str>> = amounts
        .iter()
        .map(|amount| vec![&*pid, "sleep 1000", amount, ""])
        .collect();
    assert_eq!(columns(&text, &names), expected);
    let gpus = gputop(&["export", &path, "--csv"]).text();
    let rows = columns(
        &gpus,
        &["gpu_index", "memory_used_bytes", "temperature_celsius"],
    );
    assert_eq!(
        rows,
        [
            ["0", &*amounts[0], "60"],
            ["0", &*amounts[1], "60"],
            ["0", &*amounts[2], "77"]
        ]
    );
    let times: Vec<u64> = columns(&gpus, &["unix_time_ms"])
        .iter()
        .map(|row| row[0].parse().expect("a number"))
        .collect();
    assert_eq!((times[1] - times[0], times[2] - times[1]), (10_000, 10_000));
}

#[test]
fn a_dash_is_the_standard_output_and_no_file() {
    let recorder = Recorder::new();
    let path = recorder
        .record("run.jsonl", 3, 10_000)
        .display()
        .to_string();
    let folder = recorder.host.path("empty");
    fs::create_dir(&folder).expect("/tmp has room");
    let in_folder = |args: &[&str]| {
        run(recorder
            .host
            .gputop(args.iter().copied())
            .current_dir(&folder))
    };
    for (args, beginning) in [
        (["export", &path, "-o", "-"], "time,"),
        (["report", &path, "-o", "-"], "<!doctype html>"),
    ] {
        let output = in_folder(&args);
        let text = output.text();
        assert!(
            output.code == 0 && text.to_lowercase().starts_with(beginning),
            "{args:?}: {} {text}",
            output.stderr
        );
    }
    // A recording cannot be written there.
    for args in [
        &["clip", &path, "-o", "-"][..],
        &["record", "-o", "-"],
        &["snapshot", "1", "-o", "-"],
    ] {
        let output = in_folder(args);
        assert_eq!(output.code, 2, "{args:?}: {}", output.stderr);
        assert!(
            output
                .stderr
                .contains("the standard output cannot be chosen here: name a file"),
            "{}",
            output.stderr
        );
    }
    assert_eq!(fs::read_dir(&folder).expect("the folder exists").count(), 0);
}

/// A script reads such files with pandas and `DuckDB`; this test reads the frame of the file.
#[test]
fn parquet_has_its_metadata_at_the_end() {
    let recorder = Recorder::new();
    let path = recorder
        .record("run.jsonl", 31, 10_000)
        .display()
        .to_string();
    let table = recorder.host.path("run.parquet");
    let output = gputop(&["export", &path, "-o", &table.display().to_string()]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let bytes = fs::read(&table).expect("the table was written");
    let (magic, length) = (
        &bytes[bytes.len() - 4..],
        &bytes[bytes.len() - 8..bytes.len() - 4],
    );
    assert_eq!((&bytes[..4], magic), (&b"PAR1"[..], &b"PAR1"[..]));
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    let footer =
        String::from_utf8_lossy(&bytes[bytes.len() - 8 - length..bytes.len() - 8]).into_owned();
    for name in [
        "unix_time_ms",
        "memory_used_bytes",
        "power_watts",
        "gputop version",
    ] {
        assert!(footer.contains(name), "no {name}: {footer}");
    }
}

#[test]
fn two_recordings_are_compared_figure_by_figure() {
    let recorder = Recorder::new();
    let long = recorder
        .record("long.jsonl", 241, 10_000)
        .display()
        .to_string();
    let short = recorder
        .record("short.jsonl", 121, 10_000)
        .display()
        .to_string();
    let text = gputop(&["diff", &long, &short]).text();
    let line = |word: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(word))
            .unwrap_or_else(|| panic!("no {word}: {text}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(
        line("peak").starts_with("peak 47.9 GiB 24.4 GiB -23.4 GiB (-49 %) sleep 1000"),
        "{text}"
    );
    assert!(
        text.contains("the same in A and B: sleep 1000: growth +1.2 GiB/min"),
        "{text}"
    );
    let all = json(&gputop(&["diff", &long, &short, "--json"]));
    let peak = &all["processes"][0]["metrics"]["peak_bytes"];
    assert_eq!(
        peak["a"].as_f64().map(|bytes| bytes / 1_048_576.0),
        Some(1024.0 + 240.0 * 200.0)
    );
    assert_eq!(
        peak["change"].as_f64().map(|bytes| bytes / 1_048_576.0),
        Some(-120.0 * 200.0)
    );
}

#[test]
fn a_part_of_a_recording_is_compared_with_another_part() {
    let recorder = Recorder::new();
    let path = recorder
        .record("run.jsonl", 241, 10_000)
        .display()
        .to_string();
    let (first, second) = (format!("{path}@..+20m"), format!("{path}@+20m..+40m"));
    let all = json(&gputop(&["diff", &first, &second, "--json"]));
    let peak = &all["gpus"][0]["metrics"]["peak_bytes"];
    let in_mib = |value: &serde_json::Value| value.as_f64().map(|bytes| bytes / 1_048_576.0);
    assert_eq!(in_mib(&peak["a"]), Some(1024.0 + 119.0 * 200.0), "{all}");
    assert_eq!(in_mib(&peak["b"]), Some(1024.0 + 239.0 * 200.0), "{all}");
    let output = gputop(&["diff", &first, &format!("{path}@tuned")]);
    assert_eq!(output.code, 1);
    assert!(
        output
            .stderr
            .contains("run.jsonl has nothing in that part; it has no mark"),
        "{}",
        output.stderr
    );
    let page = gputop(&["report", &first, "--against", &second, "--md"]).text();
    assert!(
        page.contains("### Compared") && page.contains("| peak |"),
        "{page}"
    );
}
