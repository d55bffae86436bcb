//! Tests of the order, the sentences and the exit codes of the report.

use std::sync::Arc;

use super::*;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{ProbeReading, example};

/// A host with a program for each reading of the probe, from PID 101 on.
fn host(readings: Vec<ProbeReading>) -> Snapshot {
    let mut host = example::host(1);
    for (pid, reading) in (101..).zip(readings) {
        host = host.with(pid, "python train.py", 0, Bytes::from_gib(1));
        let process = host.processes.last_mut().expect("a process was added");
        process.probe = Some(Arc::new(reading));
    }
    host
}

fn reported(leaks: &Value) -> ProbeReading {
    let report = json!({"version": 2, "leaks": leaks});
    ProbeReading {
        report: Some(serde_json::from_value(report).expect("a report")),
        missing: None,
    }
}

fn unreported(why: ProbeMissing) -> ProbeReading {
    ProbeReading {
        report: None,
        missing: Some(why),
    }
}

fn leak(sure: &str, bytes_per_step: u64) -> Value {
    json!({
        "cuda_device": 0, "category": "named_tensors", "shape": [64], "dtype": "float32",
        "bytes_per_step": bytes_per_step, "bytes": 40 * bytes_per_step, "count_per_step": 1, "steps": 40,
        "held_by": ["list outputs, train.py:41 in main"], "cause": "kept_outputs", "sure": sure,
        "advice": "append output.detach().cpu()",
    })
}

#[test]
fn a_leak_has_its_line_and_what_to_try_and_the_likely_one_is_first() {
    let readings = vec![
        reported(&json!([leak("maybe", 8 << 20)])),
        reported(&json!([leak("likely", 1 << 20)])),
        unreported(ProbeMissing::TurnedOff),
    ];
    let found = FoundLeaks::in_all(&host(readings));
    let text = found.text();
    let evidence = "         1 × (64,) float32, named tensors, held by list outputs, train.py:41 in main, for 40 steps";
    let advice = "         try: append output.detach().cpu()";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "1 likely and 1 possible in 2 programs with the probe",
            "PID  SURE    LINE             KEPT  GROWTH            CAUSE         COMMAND",
            "102  likely  train.py:41  40.0 MiB  1.0 MiB per step  kept outputs  python train.py",
            evidence,
            advice,
            "101  maybe   train.py:41   320 MiB  8.0 MiB per step  kept outputs  python train.py",
            evidence,
            advice,
            "103 python train.py: not judged: GPUTOP_PROBE=0 turns the probe off there",
        ],
        "{text}"
    );
    let json = found.json();
    let pids: Vec<&Value> = json["leaks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|leak| &leak["pid"])
        .collect();
    assert_eq!(pids, [102, 101]);
    assert_eq!(json["leaks"][0]["line"], "train.py:41");
    assert_eq!(json["leaks"][0]["bytes"], 40 << 20);
    assert_eq!(json["unjudged"][0]["reason"], "turned_off");
}

#[test]
fn the_exit_code_is_that_of_a_likely_leak_before_that_of_a_program_that_could_not_be_judged() {
    let likely = || reported(&json!([leak("likely", 256)]));
    let maybe = || reported(&json!([leak("maybe", 256)]));
    let slower = || {
        reported(
            &json!([{ "cuda_device": 0, "category": "activations", "sure": "likely", "bytes_per_step": 0 }]),
        )
    };
    let none = || reported(&json!([]));
    for (readings, exit, summary) in [
        (
            vec![likely(), unreported(ProbeMissing::Damaged)],
            Exit::Found,
            "1 likely in the program with the probe",
        ),
        (
            vec![maybe(), unreported(ProbeMissing::NotStarted)],
            Exit::Success,
            "1 possible in the program with the probe: no leak is likely",
        ),
        (
            vec![maybe(), unreported(ProbeMissing::PathDropped)],
            Exit::Partial,
            "1 possible in the program with the probe: no leak is likely",
        ),
        (
            vec![slower()],
            Exit::Success,
            "1 possible in the program with the probe: no leak is likely",
        ),
        (
            vec![none(), none()],
            Exit::Success,
            "no leak in 2 programs with the probe",
        ),
        (
            vec![unreported(ProbeMissing::NotStarted)],
            Exit::Nothing,
            "no program on a GPU has a report of gputop's probe",
        ),
        (
            vec![],
            Exit::Nothing,
            "no program on a GPU has a report of gputop's probe",
        ),
    ] {
        let found = FoundLeaks::in_all(&host(readings));
        assert_eq!(found.exit(), exit, "{found:?}");
        assert_eq!(found.text().lines().next(), Some(summary));
    }
}

#[test]
fn a_report_that_is_not_new_says_so() {
    let mut readings = vec![reported(&json!([])), reported(&json!([]))];
    readings[1].missing = Some(ProbeMissing::Damaged);
    let mut snapshot = host(readings);
    let written = Duration::from_millis(snapshot.unix_ms).as_secs_f64();
    let process = &mut snapshot.processes[0];
    let reading = Arc::make_mut(process.probe.as_mut().expect("it has one"));
    reading.report.as_mut().expect("it has one").unix_time = Some(written);
    snapshot.unix_ms += 9_000;
    let text = |snapshot: &Snapshot| FoundLeaks::in_all(snapshot).text();
    let damaged = "102: no newer report: its report is damaged";
    assert!(!text(&snapshot).contains("101"), "{}", text(&snapshot));
    assert!(text(&snapshot).contains(damaged), "{}", text(&snapshot));
    snapshot.unix_ms += 51_000;
    let old = "101: the report is 1m00s old; the program may be in a long call";
    assert!(text(&snapshot).contains(old), "{}", text(&snapshot));
}
