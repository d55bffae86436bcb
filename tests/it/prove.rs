//! `tests/gpu/prove.py`, which proves gputop on a real GPU, on the fake driver: here it runs without
//! a GPU, so that it keeps working.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::host::Host;
use crate::process::is_skipped_in_container;

/// The checks that need neither a GPU, nor nvidia-smi, nor PyTorch.
const ON_THE_STAND_IN: [&str; 15] = [
    "calm",
    "cost",
    "deaf",
    "doctor",
    "end_process",
    "forked_context",
    "free",
    "leak",
    "listed",
    "nvml_calls",
    "orphan_workers",
    "replay",
    "stats_native",
    "warm_up",
    "zombie",
];

/// Runs the checks, and returns the results by name; the script must end with 0.
fn prove(host: &Host, more: &[&str]) -> Vec<(String, String, String)> {
    let out = host.path("proof");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/prove.py");
    // Each check has a limit of its own, and all together take some minutes.
    let output = Command::new("python3")
        .args(["-B", script, env!("CARGO_BIN_EXE_gputop"), "--out"])
        .arg(&out)
        .arg("--stand-in")
        .arg(&host.library)
        .args(more)
        .output()
        .expect("python3 is installed");
    let report = fs::read_to_string(out.join("report.json")).expect("the script writes a report");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{report}\n{errors}");
    let report: Value = serde_json::from_str(&report).expect("the report is JSON");
    let word = |check: &Value, key: &str| check[key].as_str().expect("a text").to_owned();
    let mut results: Vec<_> = report["checks"]
        .as_object()
        .expect("the results by name")
        .iter()
        .map(|(name, check)| (name.clone(), word(check, "result"), word(check, "reason")))
        .collect();
    results.sort();
    results
}

#[test]
fn the_checks_for_real_gpus_pass_on_the_fake_driver() {
    if is_skipped_in_container() {
        return;
    }
    let results = prove(&Host::new(["H100"]), &[]);
    let passed: Vec<&str> = results
        .iter()
        .filter(|(_, result, _)| result == "passed")
        .map(|(name, ..)| name.as_str())
        .collect();
    assert_eq!(passed, ON_THE_STAND_IN);
    for (name, result, reason) in &results {
        assert!(
            result == "passed" || result == "skipped" && !reason.is_empty(),
            "{name}: {result} {reason}"
        );
    }
}

/// A check that cannot fail proves nothing. Each of these begins with another kind of comparison: of
/// a condition, of equal values and of near values.
#[test]
fn a_check_for_real_gpus_fails_when_gputop_says_a_wrong_value() {
    const KINDS: [&str; 3] = ["doctor", "free", "listed"];
    if is_skipped_in_container() {
        return;
    }
    let only = KINDS.join(",");
    let results = prove(&Host::new(["H100"]), &["--inject", "--only", &only]);
    let failed: Vec<&str> = results
        .iter()
        .filter(|(_, _, reason)| reason.contains("a wrong value was injected"))
        .map(|(name, ..)| name.as_str())
        .collect();
    assert_eq!(failed, KINDS);
}
