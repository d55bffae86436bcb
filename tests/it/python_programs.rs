//! Python programs print and end the same with gputop's probe as without it.

use std::path::Path;
use std::process::Command;

use crate::process::run;

/// The script runs each program twice, and finds out in which processes the probe is active.
/// PyTorch is a stand-in.
#[test]
fn programs_behave_the_same_with_the_probe_as_without_it() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pytorch/probe_matrix.py");
    let output = run(Command::new("python3").arg(script));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.code, 0, "{text}{}", output.stderr);
    assert!(text.contains(" cases, 0 failed"), "{text}");
}
