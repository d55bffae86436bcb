//! Out-of-memory reports that the probe left: `gputop ooms` and `gputop explain --last`.

use std::fs;

use crate::cli::json;
use crate::host::Host;

const NOTHING: i32 = 6;

/// Writes a report of the first version of the probe, with a snapshot beside it.
fn write_old_report(host: &Host, name: &str, time: u64, program: &str) {
    write_report(host, name, &old_report(name, time, program));
}

/// Writes a report of this version of the probe, with a snapshot beside it.
fn write_new_report(host: &Host, name: &str, time: u64, program: &str) {
    let mut report = old_report(name, time, program);
    for (old, new) in [
        (r#""version": 1"#, r#""version": 2"#),
        (r#"{"index""#, r#"{"cuda_device""#),
        (r#"{"device""#, r#"{"cuda_device""#),
        (r#""reserved""#, r#""reserved_bytes""#),
        (r#""categories""#, r#""category_bytes""#),
    ] {
        assert!(report.contains(old), "{old}");
        report = report.replace(old, new);
    }
    write_report(host, name, &report);
}

fn write_report(host: &Host, name: &str, report: &str) {
    let folder = host.path("gputop/ooms");
    fs::create_dir_all(&folder).expect("/tmp has room");
    fs::write(folder.join(format!("{name}.pickle")), "").expect("/tmp has room");
    fs::write(folder.join(format!("{name}.json")), report).expect("/tmp has room");
}

fn old_report(name: &str, time: u64, program: &str) -> String {
    format!(
        r#"{{"version": 1, "time": {time}.5, "pid": 4711, "start_ticks": 9, "program": "{program}", "torch": "2.5.1",
        "python": "3.11.7", "device": 0, "requested": 2147483648, "total": 85899345920, "free": 314572800,
        "stats": {{}}, "at": {{"user": "train.py:40 in step", "inner": "model.py:12 in forward"}},
        "stack": [["/x/model.py", 12, "forward"], ["/x/train.py", 40, "step"]], "steps": {{"count": 120}},
        "devices": [{{"index": 0, "reserved": 1000, "categories": {{"activations": 750, "parameters": 250}}}}],
        "groups": [{{"device": 0, "category": "parameters", "shape": [512, 3], "dtype": "float32", "count": 7, "bytes": 250}}],
        "leaks": [{{"device": 0, "category": "named_tensors", "shape": [64], "dtype": "float32", "bytes_per_step": 256,
            "held_by": ["list outputs, train.py:41 in main"], "cause": "kept_outputs", "title": "outputs are kept"}}],
        "why": {{"cause": "kept_outputs", "sentence": "memory leaks: outputs are kept", "advice": "keep output.detach().cpu()"}},
        "snapshot": "{name}.pickle"}}"#
    )
}

#[test]
fn reports_are_listed_latest_first_and_damaged_ones_left_out() {
    let host = Host::new(["H100"]);
    write_old_report(&host, "oom-0001700000000-4711-1", 1_700_000_000, "old.py");
    write_new_report(
        &host,
        "oom-0001800000000-4711-1",
        1_800_000_000,
        "new\\u001b[2J.py",
    );
    fs::write(host.path("gputop/ooms/oom-0001900000000-1-1.json"), "{").expect("/tmp has room");
    let text = host.run(["ooms"]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("TIME (UTC)            PID  PROGRAM"),
        "{text}"
    );
    assert!(
        lines[1].starts_with("2027-01-15 08:00:00  4711  new\u{FFFD}[2J.py"),
        "{text}"
    );
    assert!(
        lines[2].contains(
            "2.0 GiB  300 MiB   120  train.py:40 in step  memory leaks: outputs are kept"
        ),
        "{text}"
    );
    assert_eq!(lines.len(), 4, "{text}");
    let all = json(&host.run(["ooms", "--json"]));
    assert_eq!(all[1]["report"]["program"], "old.py");
    let parts = |place: usize| &all[place]["report"]["devices"][0]["category_bytes"];
    assert_eq!(parts(0)["activations"], 750, "{all}");
    assert_eq!(parts(0), parts(1));
    let text = host.run(["explain", "--last"]).text();
    for words in [
        "ran out of memory on cuda:0 in step 120",
        "It asked for 2.0 GiB; 300 MiB of 80.0 GiB were free.",
        "allocated at train.py:40 in step",
        "memory leaks: outputs are kept",
        "try: keep output.detach().cpu()",
        "held by list outputs, train.py:41 in main",
        "activations        750 B  75 %",
        "7 × (512, 3) float32  250 B  parameters",
        "  /x/model.py:12 in forward",
        "memory_viz: ",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let one = json(&host.run(["explain", "--last", "--json"]));
    assert!(
        one["snapshot_file"]
            .as_str()
            .is_some_and(|path| path.ends_with("oom-0001800000000-4711-1.pickle")),
        "{one}"
    );
}

#[test]
fn without_a_report_a_sentence_says_so() {
    let host = Host::new(["H100"]);
    for arguments in [["ooms"].as_slice(), &["explain", "--last"]] {
        let output = host.run(arguments.iter().copied());
        assert_eq!((output.code, output.text().as_str()), (NOTHING, ""));
        assert!(
            output
                .stderr
                .contains("no program of `gputop run` has run out of GPU memory"),
            "{}",
            output.stderr
        );
    }
}
