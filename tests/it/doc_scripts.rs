//! The scripts of `docs/ci.md` and `docs/admins.md` run, and do what the pages say.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use crate::host::{GIB, Host};
use crate::orphans::HostWithOrphan;
use crate::print_note;
use crate::process::{Output, run};
use crate::readme::page;

/// The pages whose `sh` blocks are whole scripts; on the others each line is a command.
pub(crate) const PAGES: [&str; 2] = ["docs/ci.md", "docs/admins.md"];

/// The `sh` blocks of the pages, each with its heading.
fn scripts() -> Vec<(String, String)> {
    let pages = PAGES.map(page);
    let sections = pages
        .iter()
        .flat_map(|page| page.split("\n## ").skip(1).map(str::to_owned));
    let blocks = sections.flat_map(|section| {
        let heading = section.lines().next().unwrap_or_default().to_owned();
        let blocks: Vec<String> = section
            .split("```sh\n")
            .skip(1)
            .filter_map(|block| block.split("\n```").next())
            .map(str::to_owned)
            .collect();
        blocks
            .into_iter()
            .map(move |block| (heading.clone(), block))
    });
    blocks.collect()
}

/// Runs a script on a host, as a person who has gputop in the PATH.
fn run_script(host: &Host, script: &str) -> Output {
    let gputop = host.path("gputop");
    if !gputop.exists() {
        symlink(env!("CARGO_BIN_EXE_gputop"), &gputop).expect("/tmp has room");
    }
    // A test that uses CUDA, with the stand-in for PyTorch.
    host.install_script(
        "pytest",
        "#!/usr/bin/env python3\nimport torch\n\ntorch.empty(1)\n",
    );
    // Programs by which an administrator's script acts on the node.
    host.install_script("scontrol", "#!/bin/sh\necho \"$0 $*\" >> \"$0.calls\"\n");
    host.install_script("logger", "#!/bin/sh\nsed \"s/^/$2: /\" >> \"$0.calls\"\n");
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    let shell = host.set_environment(shell.args(["-ec", script]));
    run(shell
        .env("PATH", format!("{}:{path}", host.path("").display()))
        .env("SLURM_JOB_ID", "42")
        .env("SLURM_JOB_GPUS", "1")
        .env("SLURMD_NODENAME", "n1")
        .env("PYTHONPATH", stand_in)
        .env("XDG_CACHE_HOME", host.path(""))
        .current_dir(host.path("")))
}

fn has_jq() -> bool {
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    if !has_jq {
        print_note("skipped: the scripts need jq, which is not installed");
    }
    has_jq
}

#[test]
fn each_script_succeeds_on_a_host_where_all_is_well() {
    if !has_jq() {
        return;
    }
    let mut host = Host::idle(["H100", "H100"]);
    host.start_sleep(0, 3 * GIB);
    let scripts = scripts();
    assert!(scripts.len() >= 8, "{scripts:?}");
    for (heading, script) in scripts {
        // Other tests leave orphans on this host; the next test has one of its own.
        if script.contains("gputop orphans") {
            continue;
        }
        let output = run_script(&host, &script);
        let said = format!("{}{}", output.text(), output.stderr);
        assert_eq!(output.code, 0, "{heading}: {script}\n{said}");
        if heading == "OpenTelemetry" {
            check_metrics(&host);
        }
    }
    assert!(!host.path("scontrol.calls").exists(), "a node was drained");
}

/// Checks the metrics that the script wrote.
fn check_metrics(host: &Host) {
    let text = fs::read_to_string(host.path("metrics.json")).expect("the script wrote it");
    let metrics: Value = serde_json::from_str(&text).expect("JSON");
    let scope = &metrics["resourceMetrics"][0]["scopeMetrics"][0];
    let points = &scope["metrics"][0]["gauge"]["dataPoints"];
    assert_eq!(points.as_array().map(Vec::len), Some(2), "{text}");
    // OTLP writes 64-bit integers as strings.
    let used = points[0]["asInt"]
        .as_str()
        .and_then(|used| used.parse().ok());
    assert!(used >= Some(3 * GIB), "{text}");
    assert_eq!(scope["metrics"][1]["gauge"]["dataPoints"][0]["asInt"], "0");
}

#[test]
fn the_epilog_of_slurm_names_an_orphan_and_a_test_in_ci_fails() {
    if !has_jq() {
        return;
    }
    let orphaned = HostWithOrphan::new();
    let worker = orphaned.worker_pid();
    let scripts = scripts();
    let script = |heading: &str, words: &str| {
        let mut scripts = scripts.iter();
        let found = scripts.find(|(of, script)| of == heading && script.contains(words));
        found
            .map(|(_, script)| script.as_str())
            .expect("the page has it")
    };
    let output = run_script(
        &orphaned.host,
        script("Slurm: what a job leaves on the GPUs", "orphans"),
    );
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    let log = fs::read_to_string(orphaned.host.path("logger.calls")).expect("the epilog logs");
    let line = format!("gputop after job 42: {worker} root orphan, {}", 11 * GIB);
    assert!(log.contains(&line), "{log}");
    let output = run_script(
        &orphaned.host,
        script("What is left on the GPUs", "orphans"),
    );
    assert_eq!(output.code, 10, "{}{}", output.text(), output.stderr);
}
