//! Reports of the probe in Python programs, which the shipped binary reads from memory files of
//! real processes. A small Python program stands in for a training program with the probe.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use fake_nvml::GpuProcess;
use gputop::base::units::Bytes;
use gputop::protocol::snapshot::{ProbeMissing, ProbeReading};

use crate::agent::{Agent, ReceivedLines};
use crate::allocator_stats::{host_with_gpus, start_agent};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, now, run};

/// A report of a training program on one GPU.
pub(crate) const REPORT: &str = concat!(
    r#"{"version": 2, "torch": "2.5.1", "python": "3.11.7", "unix_time_seconds": 1700000000.0, "#,
    r#""steps": {"count": 120, "seconds": 0.21, "source": "optimizer"}, "#,
    r#""devices": [{"cuda_device": 0, "moment": "any", "allocated_bytes": 700, "reserved_bytes": 1000, "requested_bytes": 690, "#,
    r#""category_bytes": {"parameters": 400, "activations": 300, "cache": 300}, "#,
    r#""optimizer_state_bytes": {}, "floor_bytes": 500, "peak_bytes": 900}], "#,
    r#""groups": [{"cuda_device": 0, "category": "parameters", "shape": [512, 512, 3, 3], "dtype": "float32", "count": 7, "#,
    r#""bytes": 400, "age_steps": 120, "count_change": 7, "bytes_change": 400}], "#,
    r#""leaks": [], "recording": {"state": "off"}}"#
);

/// A process that runs `fake_probe.py`.
pub(crate) struct FakeProbe {
    process: ChildProcess,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl FakeProbe {
    /// Starts the process on the first GPU, with these variables in its environment. `options` are
    /// for Python.
    pub(crate) fn start(host: &mut Host, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let probe = Self::start_with(host, &["nvidia0", "nvidia-uvm"], options, environment);
        host.add_process(0, GpuProcess::new(probe.pid(), GIB));
        probe
    }

    /// Starts the process with these device files open; the driver does not list it.
    pub(crate) fn start_with(
        host: &Host,
        files: &[&str],
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/fake_probe.py");
        let files = files.iter().map(|name| host.path(name));
        let mut command = Command::new("python3");
        command
            .args(options)
            .arg(script)
            .args(files)
            .envs(environment.iter().copied());
        let mut process = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        let mut probe = Self {
            process,
            stdin,
            stdout,
        };
        // The program runs, and is no longer the test that called `fork`.
        probe.request("nothing");
        probe
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a command of `fake_probe.py`, and returns the answer.
    pub(crate) fn request(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").expect("the process reads its stdin");
        let mut answer = String::new();
        self.stdout
            .read_line(&mut answer)
            .expect("the process answers");
        answer.trim_end().to_owned()
    }

    /// Starts the probe in the process and publishes a report.
    pub(crate) fn publish(&mut self, report: &str) {
        self.request("start");
        assert_eq!(self.request(&format!("publish {report}")), "done");
    }
}

/// Reads lines until the reading of a process satisfies a condition, and returns the reading.
#[track_caller]
fn wait_for_reading(
    agent: &Agent,
    received: &mut ReceivedLines,
    pid: u32,
    description: &str,
    is_true: impl Fn(&ProbeReading) -> bool,
) -> ProbeReading {
    let started = now();
    loop {
        received.apply(agent.next_line());
        let processes = &received
            .snapshot
            .as_ref()
            .expect("a line was read")
            .processes;
        let probe = processes
            .iter()
            .find(|process| process.id.pid == pid)
            .and_then(|process| process.probe.as_deref());
        if let Some(probe) = probe.filter(|probe| is_true(probe)) {
            return probe.clone();
        }
        assert!(
            started.elapsed() < crate::DEADLINE,
            "never {description}: {probe:?}"
        );
    }
}

fn is_missing(why: ProbeMissing) -> impl Fn(&ProbeReading) -> bool {
    move |probe| probe.missing == Some(why)
}

fn has_steps(count: u64) -> impl Fn(&ProbeReading) -> bool {
    move |probe| {
        probe.report.as_ref().is_some_and(|report| {
            report
                .steps
                .as_ref()
                .is_some_and(|steps| steps.count == count)
        })
    }
}

#[test]
fn reports_are_read_and_followed_and_the_last_one_stays_while_others_are_damaged() {
    let mut host = host_with_gpus(2);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(REPORT);
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    let reading = wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        "the first report",
        has_steps(120),
    );
    assert_eq!(reading.missing, None);
    let report = reading.report.expect("there is a report");
    let gpu = &received.snapshot.as_ref().expect("a line was read").gpus[0].uuid;
    assert_eq!(
        (report.devices[0].gpu.as_ref(), report.devices[0].reserved),
        (Some(gpu), Some(Bytes(1000)))
    );
    assert_eq!(report.groups[0].count_change, Some(7));
    probe.request(&format!("publish {}", REPORT.replace("120", "121")));
    wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        "the next report",
        has_steps(121),
    );
    probe.request(&format!(
        "damage {}",
        REPORT.replace("120", "122").replace('2', "22")
    ));
    let reading = wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        "damaged",
        is_missing(ProbeMissing::Damaged),
    );
    assert!(has_steps(121)(&reading));
    probe.request(&format!("publish {}", REPORT.replace("120", "123")));
    let reading = wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        "whole again",
        has_steps(123),
    );
    assert_eq!(reading.missing, None);
}

#[test]
fn one_snapshot_as_json_has_the_report() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(REPORT);
    let output = run(&mut host.gputop(["--json"]));
    let line = json(&output);
    let processes = line["processes"].as_array().expect("a list");
    let process = processes
        .iter()
        .find(|process| process["pid"] == probe.pid())
        .expect("the process is listed");
    let report = &process["probe"]["report"];
    assert_eq!(
        report["devices"][0]["category_bytes"]["parameters"], 400,
        "{process}"
    );
    assert_eq!(report["devices"][0]["gpu_uuid"], line["gpus"][0]["uuid"]);
}

#[test]
fn a_forked_copy_of_the_parents_file_is_ignored() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(REPORT);
    let child: u32 = probe.request("fork").parse().expect("a PID");
    host.add_process(0, GpuProcess::new(child, GIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        "the report of the parent",
        has_steps(120),
    );
    let reading = wait_for_reading(
        &agent,
        &mut received,
        child,
        "the reason",
        is_missing(ProbeMissing::NotStarted),
    );
    assert_eq!(reading.report, None);
}

#[test]
fn the_reason_says_why_there_is_no_report() {
    let folder = [("GPUTOP_PROBE_FOLDER", "/probe"), ("PYTHONPATH", "/probe")];
    check_reason(&[], &[], ProbeMissing::NotStarted);
    check_reason(&[], &folder, ProbeMissing::NotYet);
    check_reason(&["-sE"], &folder, ProbeMissing::Isolated);
    check_reason(&[], &folder[..1], ProbeMissing::PathDropped);
    check_reason(
        &[],
        &[folder[0], folder[1], ("GPUTOP_PROBE", "0")],
        ProbeMissing::TurnedOff,
    );
}

#[track_caller]
fn check_reason(options: &[&str], environment: &[(&str, &str)], why: ProbeMissing) {
    let mut host = host_with_gpus(1);
    let probe = FakeProbe::start(&mut host, options, environment);
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        &format!("{why:?}"),
        is_missing(why),
    );
}

#[test]
fn a_process_that_hides_is_named_with_its_reason() {
    // Nothing hides from root.
    if rustix::process::geteuid().is_root() {
        crate::print_note("skipped: run as another user than root");
        return;
    }
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(REPORT);
    probe.request("hide");
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_reading(
        &agent,
        &mut received,
        probe.pid(),
        "refused",
        is_missing(ProbeMissing::Protected),
    );
}
