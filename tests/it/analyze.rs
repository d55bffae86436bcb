//! `gputop analyze` on logs with known leaks: a small part of the labelled set of `benches/growth`.

use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use serde_json::Value;

use self::lab::random::Random;
use self::lab::{Case, Label, Sampling, Shape};
use crate::cli::json;
use crate::host::Host;
use crate::process::{Output, run};

#[path = "../../benches/growth/lab/mod.rs"]
mod lab;

const OK: i32 = 0;
const ERROR: i32 = 1;
const USAGE: i32 = 2;
const NOTHING_FOUND: i32 = 6;

/// One seed of each shape, without the hard and the slow ones.
const SEEDS: [(Shape, u64); 16] = [
    (Shape::Flat, 6),
    (Shape::SlowWarmUp, 10),
    (Shape::Checkpoints, 6),
    (Shape::Curriculum, 11),
    (Shape::Restarts, 4),
    (Shape::Recompiles, 1),
    (Shape::Neighbours, 10),
    (Shape::EmptiedCache, 0),
    (Shape::SortedEpoch, 8),
    (Shape::LargeSteps, 8),
    (Shape::EpochSteps, 4),
    (Shape::Sawtooth, 1),
    (Shape::LateOnset, 4),
    (Shape::InEvaluation, 4),
    (Shape::OneRank, 2),
    (Shape::Pausing, 0),
];

/// Returns the log that `nvidia-smi` would have written.
fn log(case: &Case, sampling: Sampling) -> String {
    let mut log = "timestamp, memory.total [MiB], index, memory.used [MiB]\n".to_owned();
    for (at, bytes) in sampling.read(case, &mut Random::seeded(1)) {
        let (second, total) = (at / 1000, case.capacity >> 20);
        let time = format!(
            "{:02}:{:02}:{:02}.{:03}",
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            at % 1000
        );
        let day = 1 + second / 86_400;
        let _infallible: std::fmt::Result = writeln!(
            log,
            "2026/11/{day:02} {time}, {total} MiB, 0, {} MiB",
            bytes >> 20
        );
    }
    log
}

fn analyze(host: &Host, log: &str, args: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().expect("/tmp has room");
    fs::write(file.path(), log).expect("/tmp has room");
    let path = file.path().to_str().expect("the path is UTF-8");
    run(&mut host.gputop(["analyze", path].iter().chain(args).copied()))
}

/// Returns the verdicts with their times.
fn timeline(series: &Value) -> Vec<(f64, String)> {
    let timeline = series["timeline"].as_array().expect("a list of verdicts");
    timeline
        .iter()
        .map(|verdict| {
            (
                verdict["at"].as_f64().expect("a time"),
                verdict["verdict"].as_str().expect("a word").to_owned(),
            )
        })
        .collect()
}

#[test]
fn each_shape_gets_its_verdict() {
    let host = Host::with_jitter(["H100"]);
    assert!(Shape::ALL.len() > SEEDS.len());
    for (shape, seed) in SEEDS {
        let case = shape.make(seed);
        let output = analyze(&host, &log(&case, Sampling::every(2.0)), &["--json"]);
        assert_eq!(output.code, OK, "{shape:?} {seed}: {}", output.stderr);
        let report = json(&output);
        let series = &report["series"][0];
        assert_eq!(
            (series["gpu"].as_u64(), series["pid"].as_u64()),
            (Some(0), None)
        );
        assert_eq!(report["files"][0]["bad_lines"], 0, "{report}");
        let timeline = timeline(series);
        let detected = timeline
            .iter()
            .find(|(_, verdict)| verdict == "leak")
            .map(|(at, _)| *at);
        let name = format!("{shape:?} {seed}: {timeline:?}");
        if shape.label() != Label::Leak {
            assert_eq!(detected, None, "{name}");
            let last = timeline
                .iter()
                .rfind(|(_, verdict)| verdict != "suspect")
                .expect("some verdict is not `suspect`");
            assert!(
                case.plateau.is_none_or(|plateau| last.0 < plateau + 120.0),
                "{name}"
            );
            continue;
        }
        let (onset, out_of_memory_at) = (
            case.onset.expect("a leak begins"),
            case.out_of_memory_at.expect("a leak ends"),
        );
        let detected = detected.expect(&name);
        assert!(onset <= detected, "{name}");
        assert!(
            detected - case.detectable_from() < 0.3 * (out_of_memory_at - onset),
            "{name}"
        );
        let forecasts = series["forecasts"].as_array().expect("a list");
        let half = forecasts
            .iter()
            .find(|forecast| forecast["at"].as_f64() > Some(f64::midpoint(onset, out_of_memory_at)))
            .expect(&name);
        let left = out_of_memory_at - half["at"].as_f64().expect("a time");
        let forecast = half["oom_in_s"].as_f64().expect("the capacity is known");
        assert!(
            (forecast - left).abs() < 0.35 * left,
            "{name}: {half}, but {left} s were left"
        );
        assert!(
            half["oom_low_s"].as_f64() < Some(forecast)
                && half["oom_high_s"].as_f64() > Some(forecast),
            "{half}"
        );
        assert!(half["rate_bytes_per_s"].as_f64() > Some(0.0), "{half}");
    }
}

#[test]
fn text_has_sentences_and_a_graph() {
    let host = Host::with_jitter(["H100"]);
    let case = Shape::OneRank.make(2);
    let log = log(&case, Sampling::every(1.0));
    let text = analyze(&host, &log, &["--ascii"]).text();
    for word in [
        "GPU 0: FULL at ",
        "LEAKED from ",
        "/min for ",
        " new highs, ",
        " expected by chance)",
        "out of memory in ",
        "!!!!",
        "###",
    ] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    assert!(text.is_ascii(), "{text}");
    let plain = "0,1073741824\nwhat\n1,1073741824\n2,1073741824\n";
    let text = analyze(&host, plain, &["--capacity", "80GiB"]).text();
    assert!(
        text.contains("too soon to say") && text.contains("line 2: "),
        "{text}"
    );
}

#[test]
fn unreadable_logs_are_reported_in_a_sentence() {
    let host = Host::with_jitter(["H100"]);
    let output = host.run(["analyze", "/nowhere/log.csv"]);
    assert_eq!(output.code, ERROR);
    assert!(
        output
            .stderr
            .starts_with("gputop: cannot read /nowhere/log.csv: "),
        "{}",
        output.stderr
    );
    let output = analyze(&host, "no log\nat all\n", &[]);
    assert_eq!(output.code, NOTHING_FOUND);
    assert!(
        output.stderr.contains("gputop: cannot judge "),
        "{}",
        output.stderr
    );
    assert_eq!(host.run(["analyze"]).code, USAGE);
    assert_eq!(host.run(["analyze", "x", "--capacity", "much"]).code, USAGE);
    let bare = host.run(["analyze", "x", "--capacity", "80"]);
    assert_eq!(bare.code, USAGE);
    assert!(
        bare.stderr
            .contains("`80` has no unit: write `80GiB` or `80MiB`"),
        "{}",
        bare.stderr
    );
    let nothing = host.run(["analyze", "x", "--capacity", "0GiB"]);
    assert_eq!(nothing.code, USAGE);
    assert!(
        nothing.stderr.contains("must be more than 0"),
        "{}",
        nothing.stderr
    );
}

#[test]
fn logs_of_other_programs_are_right_and_spoiled_ones_are_never_silently_wrong() {
    let done = run(Command::new("python3")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/formats/check.py"
        ))
        .arg(env!("CARGO_BIN_EXE_gputop")));
    assert_eq!(done.code, OK, "{}", done.text());
    let count = done
        .text()
        .lines()
        .filter(|line| line.contains(" right "))
        .count();
    assert!(count > 60, "{}", done.text());
}

#[test]
fn compressed_logs_are_read() {
    let host = Host::new([]);
    let plain = (0..200)
        .map(|second| format!("{second},{}", (1000 + second) << 20))
        .collect::<Vec<_>>()
        .join("\n");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(plain.as_bytes()).expect("memory has room");
    let gzip = gzip.finish().expect("memory has room");
    let zstd = zstd::encode_all(plain.as_bytes(), 1).expect("memory has room");
    let whole = analyze(&host, &plain, &["--json"]);
    let path = host.path("log");
    for bytes in [&gzip, &zstd] {
        fs::write(&path, bytes).expect("/tmp has room");
        let path = path.to_str().expect("the path is UTF-8");
        let output = host.run(["analyze", "--json", path]);
        assert_eq!(
            json(&output)["series"],
            json(&whole)["series"],
            "{}",
            output.stderr
        );
        assert_eq!(output.stderr, "");
    }
    // As much as is there is read, and the rest is missed.
    fs::write(&path, &gzip[..gzip.len() - 9]).expect("/tmp has room");
    let output = host.run([
        "analyze",
        "--json",
        path.to_str().expect("the path is UTF-8"),
    ]);
    assert!(json(&output)["series"][0]["samples"].as_u64() > Some(100));
    assert!(
        output.stderr.contains("is cut off: its end is missing"),
        "{}",
        output.stderr
    );
    fs::write(&path, b"\x04\x22\x4D\x18\0").expect("/tmp has room");
    let output = host.run(["analyze", path.to_str().expect("the path is UTF-8")]);
    assert_eq!(output.code, ERROR);
    assert!(
        output
            .stderr
            .contains("it is compressed with lz4: use `lz4 -dc FILE | gputop analyze -`"),
        "{}",
        output.stderr
    );
}

/// The log of `nvidia-smi` with a row for each of eight GPUs, and nothing that names the GPU.
#[test]
fn gpus_without_an_index_are_told_apart_or_refused() {
    let host = Host::new([]);
    let mut log = "timestamp, memory.used [MiB]\n".to_owned();
    for second in 0..900 {
        for gpu in 0..8 {
            let leaked = if gpu == 3 { second * 20 } else { 0 };
            let time = format!(
                "2026/11/21 13:{:02}:{:02}.00{gpu}",
                second / 60,
                second % 60
            );
            writeln!(log, "{time}, {} MiB", 1000 * (gpu + 1) + leaked).expect("memory has room");
        }
    }
    let text = analyze(&host, &log, &[]).text();
    assert!(text.starts_with("8 GPUs: 1 leaked, 7 steady\n"), "{text}");
    assert!(
        text.contains("GPU 3 (by order)  LEAKED") && text.contains("note: no column names the GPU"),
        "{text}"
    );
    let without_one = log
        .lines()
        .enumerate()
        .filter(|(line, _)| line % 100 != 7)
        .map(|(_, line)| line);
    let output = analyze(&host, &without_one.collect::<Vec<_>>().join("\n"), &[]);
    assert_eq!((output.code, output.stdout.len()), (ERROR, 0));
    assert!(
        output
            .stderr
            .contains("--query-gpu=timestamp,index,memory.used"),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}

/// The memory of two real training loops, recorded by `tests/leak/run.py`.
#[test]
fn a_real_leak_gets_advice_and_the_same_loop_without_it_does_not() {
    let host = Host::new([]);
    let analyze = |name: &str| {
        let log = format!(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/memory/{}.csv"),
            name
        );
        let args = ["analyze", "--capacity", "24GiB", &log];
        let report = host.run(args.into_iter().chain(["--json"]));
        (json(&report)["series"][0].clone(), host.run(args).text())
    };
    let verdicts = |series: &Value| -> Vec<String> {
        let timeline = series["timeline"].as_array().expect("a list of verdicts");
        timeline
            .iter()
            .map(|verdict| verdict["verdict"].as_str().expect("a word").to_owned())
            .collect()
    };
    let (leak, text) = analyze("leak");
    assert_eq!(leak["verdict"], "leak", "{leak:#}");
    // The loop leaks half a megabyte per step, at eight steps per second.
    let rate = leak["timeline"]
        .as_array()
        .and_then(|timeline| timeline.last()?["rate_bytes_per_s"].as_f64())
        .expect("a rate");
    assert!((2e6..6e6).contains(&rate), "{rate}");
    assert_eq!(leak["advice"][0]["name"], "loss-history", "{leak:#}");
    assert!(
        text.contains("1. A loss or metric is summed together with its history"),
        "{text}"
    );
    assert!(
        text.contains("    total += loss.item()"),
        "code is not wrapped: {text}"
    );
    let (twin, text) = analyze("twin");
    assert!(
        verdicts(&twin).iter().all(|verdict| verdict != "leak"),
        "{twin:#}"
    );
    assert!(
        twin["advice"].as_array().is_some_and(Vec::is_empty) && !text.contains("What to try"),
        "{text}"
    );
}
