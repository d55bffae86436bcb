//! The logic of the probe's diagnosis, in Python and without PyTorch.
//! `tests/pytorch/faults_check.py` has the rest.

use std::process::Command;

#[test]
fn the_diagnosis_of_the_probe_passes_its_own_tests() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probe");
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "-s", folder])
        .output()
        .expect("python3 starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
