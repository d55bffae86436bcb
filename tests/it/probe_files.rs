//! The probe closes no file of the program, also where the program closed the probe's files and
//! uses their numbers again. PyTorch is a stand-in.

use std::fs;

use crate::host::Host;
use crate::process::{Output, run};
use crate::run_program::gputop_run;

/// Runs `closes_descriptors.py` with the probe. `method` says how the process that closes
/// descriptors is started.
fn run_program(host: &Host, method: &str) -> Output {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/pytorch/closes_descriptors.py"
    );
    let folder = host.path("files").display().to_string();
    fs::create_dir(&folder).expect("/tmp has room");
    let mut command = gputop_run(host, ["--", "python3", "-B", script, method, &folder]);
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in");
    run(command
        .env("PYTHONPATH", stand_in)
        .env("GPUTOP_PROBE_INTERVAL", "0.05")
        .env("PYTHONWARNINGS", "ignore"))
}

/// Checks that the probe came back after all descriptors were closed, and that each file of the
/// program has all its lines.
#[track_caller]
fn check_files(method: &str) {
    let host = Host::new(["H100"]);
    let output = run_program(&host, method);
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (0, ""),
        "{}",
        output.text()
    );
    let files = fs::read_dir(host.path("files")).expect("the folder exists");
    let contents: Vec<String> = files
        .map(|file| fs::read_to_string(file.expect("an entry").path()).expect("text"))
        .collect();
    assert_eq!(contents, ["line 0\nline 1\nline 2\n"; 8]);
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_the_files_that_it_opens_then() {
    check_files("none");
}

#[test]
fn a_worker_of_the_start_method_fork_keeps_its_files() {
    check_files("fork");
}

#[test]
fn a_worker_of_the_start_method_spawn_keeps_its_files() {
    check_files("spawn");
}

#[test]
fn a_worker_of_the_start_method_forkserver_keeps_its_files() {
    check_files("forkserver");
}

#[test]
fn a_forked_child_of_a_program_with_the_probe_keeps_its_files() {
    check_files("fork of the probe");
}

#[test]
fn a_probe_whose_files_are_closed_again_and_again_stops_and_says_so() {
    let output = run_program(&Host::new(["H100"]), "again and again");
    let expected =
        "the program closed the probe's memory files 17 times, so the probe has stopped\n";
    assert_eq!(
        (output.code, output.text().as_str()),
        (0, expected),
        "{}",
        output.stderr
    );
}
