//! `gputop idle`: who holds GPUs idle, from what a recorder has seen, and how its link is read where
//! the driver has no counters.

use std::fs;
use std::path::PathBuf;

use gputop::base::units::{Bytes, Moment, Percent};
use gputop::model::HostModel;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::{Missing, Snapshot};
use rustix::process::Signal;
use serde_json::Value;

use crate::DEADLINE;
use crate::agent::{Agent, ReceivedLines};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{now, run};
use crate::record::RunningRecorder;
use crate::replay::Recorder;

const FOUND: i32 = 10;
const NONE: i32 = 0;
const NOT_KNOWN: i32 = 5;

/// A host with a process on an idle GPU, over whose link so many KB per second move each way. The
/// driver has no counters of that.
fn host_with_notebook(kilobytes: u32) -> Host {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 9 * GIB);
    host.change(|world| {
        let gpu = &mut world.gpus[0];
        gpu.utilization.gpu = Some(0);
        let pcie = gpu.pcie.as_mut().expect("a persona with PCIe");
        (pcie.tx, pcie.rx) = (Some(kilobytes), Some(kilobytes));
    });
    host
}

/// Writes the lines of a recorder's agent on a host that was idle for so many minutes: a full line,
/// what the recorder knows, and two lines more. Returns the path.
pub(crate) fn lines_after(recorder: &Recorder, minutes: u64) -> PathBuf {
    let mut model = HostModel::default();
    let passes = recorder.passes(6 * minutes + 4, 10_000, |_, snapshot| {
        let gpu = &mut snapshot.gpus[0];
        (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(0.0)), Ok(true));
    });
    let passes = passes.into_iter().map(|mut snapshot| {
        let gpu = &mut snapshot.gpus[0];
        gpu.processes[0].memory = Ok(Bytes(9 * GIB));
        gpu.load.memory_used = Ok(Bytes(9 * GIB));
        snapshot
    });
    let passes: Vec<Snapshot> = passes.collect();
    let (before, after) = passes.split_at(passes.len() - 3);
    for snapshot in before {
        model.replace(snapshot.clone());
    }
    let mut lines = Vec::new();
    let full = |snapshot: &Snapshot| Line::Full(Box::new(snapshot.clone()));
    let past = model.checkpoint().expect("a snapshot");
    for line in [
        full(&after[0]),
        Line::Checkpoint(Box::new(past)),
        full(&after[1]),
        full(&after[2]),
    ] {
        line.write(&mut lines).expect("writing to memory succeeds");
    }
    let path = recorder.host.path(&format!("idle-{minutes}.jsonl"));
    fs::write(&path, lines).expect("/tmp has room");
    path
}

/// The command of `--via` that prints these lines as a host with this name.
pub(crate) fn via(name: &str, lines: &std::path::Path) -> String {
    format!("{name}=cat {}", lines.display())
}

#[test]
fn gpus_that_a_recorder_saw_idle_for_half_an_hour_are_listed_by_user_and_have_an_exit_code() {
    let recorder = Recorder::new();
    let (long, short) = (lines_after(&recorder, 95), lines_after(&recorder, 20));
    let hosts = [via("gpu-01", &long), via("gpu-02", &short)];
    let args = ["idle", "--via", &hosts[0], "--via", &hosts[1]];
    let output = Host::new([]).run(args);
    let text = output.text();
    assert_eq!(output.code, FOUND, "{text}{}", output.stderr);
    let user = recorder.snapshot.processes[0].facts.user.as_ref();
    let user = user.expect("the user is known").to_string();
    let row = text
        .lines()
        .find(|line| line.starts_with("gpu-01  "))
        .unwrap_or_else(|| panic!("no row of gpu-01:\n{text}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    let pid = recorder.pid.to_string();
    let expected = [
        "gpu-01", &user, "0", "≥1.6", "≥1h35m", "9.0GiB", &pid, "sleep", "1000",
    ];
    assert_eq!(cells, expected, "{text}");
    for words in [
        "SM 0 % and less than 4 MB/s over PCIe since ",
        "; nothing was read before, so it may be longer",
        &format!("{user}: 1 GPU, ≥1.6 GPU-hours"),
        "gpu-02: not known for GPU 0: idle, but seen for 20m30s only",
    ] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    assert!(
        !text.contains("run `gputop record`"),
        "recorders run there:\n{text}"
    );
    let output = Host::new([]).run(["idle", "--json", "--via", &hosts[0]]);
    let report = json(&output);
    assert_eq!(
        report["held"][0]["idle_seconds"],
        95 * 60 + 30,
        "{report:#}"
    );
    assert_eq!(report["hosts"][0]["is_recorded"], true, "{report:#}");
    let output = Host::new([]).run(["idle", "--user", "nobody", "--via", &hosts[0]]);
    assert!(!output.text().contains("GPU-hours"), "{}", output.text());
}

#[test]
fn the_end_of_a_recording_tells_who_held_gpus_idle_then() {
    let recorder = Recorder::new();
    let passes = recorder.passes(6 * 95 + 1, 10_000, |_, snapshot| {
        let gpu = &mut snapshot.gpus[0];
        (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(0.0)), Ok(true));
    });
    let mut lines = Vec::new();
    for mut snapshot in passes {
        snapshot.gpus[0].processes[0].memory = Ok(Bytes(9 * GIB));
        Line::Full(Box::new(snapshot))
            .write(&mut lines)
            .expect("writing to memory succeeds");
    }
    let (plain, clip) = (
        recorder.host.path("all.jsonl"),
        recorder.host.path("all.zst"),
    );
    fs::write(&plain, lines).expect("/tmp has room");
    let [plain, clip] = [plain, clip].map(|path| path.display().to_string());
    let made = recorder.host.run(["clip", &plain, "-o", &clip]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let output = Host::new([]).run(["idle", "--recording", &clip]);
    let text = output.text();
    assert_eq!(output.code, FOUND, "{text}{}", output.stderr);
    assert!(text.contains("  ≥1h35m  9.0GiB"), "{text}");
    assert!(text.contains(" was recorded until "), "{text}");
    let missing = Host::new([]).run(["idle", "--recording", "/nowhere/file"]);
    assert_eq!(missing.code, 1, "{}", missing.stderr);
    assert!(
        missing.stderr.contains("/nowhere/file"),
        "{}",
        missing.stderr
    );
}

#[test]
fn a_report_on_this_host_goes_on_from_what_the_recorder_has_seen() {
    let host = host_with_notebook(100);
    let report = |args: &[&str]| {
        let args = ["idle", "--json", "--timeout", "20s"].iter().chain(args);
        let output = host.run(args.copied());
        (output.code, json(&output))
    };
    let (code, without) = report(&[]);
    assert_eq!(code, NOT_KNOWN, "{without:#}");
    assert_eq!(without["hosts"][0]["is_recorded"], false, "{without:#}");

    let file = host.path("recording.jsonl.zst");
    let file_name = file.to_str().expect("the path is UTF-8").to_owned();
    let recorder = RunningRecorder::start(&host, &file, &["-o", &file_name]);
    let seen = |report: &Value| report["hosts"][0]["seen_seconds"].as_u64();
    // A report without a recorder sees two passes, a second apart.
    let began = now();
    loop {
        let (_, report) = report(&[]);
        if report["hosts"][0]["is_recorded"] == true && seen(&report) >= Some(8) {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{report:#}");
    }
    let (code, with) = report(&[]);
    assert_eq!(code, NOT_KNOWN, "half an hour is not over: {with:#}");
    let sentence = with["unknown"][0]["sentence"].as_str();
    assert!(
        sentence.is_some_and(|words| words.starts_with("idle, but seen for ")),
        "{with:#}"
    );
    recorder.end(Signal::TERM);
}

#[test]
fn a_report_that_has_seen_nothing_says_what_it_needs() {
    let host = host_with_notebook(100);
    let output = host.run(["idle", "--timeout", "20s"]);
    let text = output.text();
    assert_eq!(output.code, NOT_KNOWN, "{text}{}", output.stderr);
    let help = "a GPU counts after 30 minutes without use, and no recorder of yours on this host has seen them: run `gputop record` there, or add `--watch 30m`";
    assert!(text.contains(help), "{text}");
    assert!(
        text.starts_with("no GPU is known to be held idle\n"),
        "{text}"
    );

    let free = Host::new(["H100"]);
    let output = free.run(["idle", "--timeout", "20s"]);
    assert_eq!(output.code, NONE, "{}{}", output.text(), output.stderr);
    assert_eq!(output.text(), "no GPU is held idle\n");
}

#[test]
fn a_busy_gpu_is_not_held_idle_at_the_first_look() {
    let mut host = host_with_notebook(100);
    host.change(|world| world.gpus[0].utilization.gpu = Some(80));
    let output = host.run(["idle", "--timeout", "20s"]);
    assert_eq!(output.code, NONE, "{}{}", output.text(), output.stderr);
}

#[test]
fn the_link_of_a_gpu_without_counters_is_sampled_while_it_is_held_without_use() {
    let read = |host: &Host, is_read: fn(&Snapshot) -> bool| {
        let agent = Agent::start(host);
        let mut received = ReceivedLines::default();
        received.read_until(&agent, "the link", is_read);
        received.snapshot.expect("lines were read").gpus[0]
            .health
            .pcie_quiet
    };
    let is_sampled = |snapshot: &Snapshot| snapshot.gpus[0].health.pcie_quiet.is_ok();
    assert_eq!(read(&host_with_notebook(100), is_sampled), Ok(true));
    assert_eq!(read(&host_with_notebook(9000), is_sampled), Ok(false));

    // Nothing is sampled on a GPU that is in use, or that no process holds.
    let has_health = |snapshot: &Snapshot| {
        snapshot.gpus[0].health.at > Moment(0) && snapshot.gpus[0].health.pcie_width.is_ok()
    };
    let mut busy = host_with_notebook(100);
    busy.change(|world| world.gpus[0].utilization.gpu = Some(80));
    assert_eq!(read(&busy, has_health), Err(Missing::NotYet));
    let free = Host::new(["H100"]);
    assert_eq!(read(&free, has_health), Err(Missing::NotYet));
    for host in [&busy, &free] {
        let counts = host.call_counts();
        assert_eq!(
            counts.get("nvmlDeviceGetPcieThroughput"),
            None,
            "{counts:?}"
        );
    }

    // Counters are preferred.
    let mut counting = host_with_notebook(9000);
    counting.change(|world| world.gpus[0].fields.extend([(197, 7), (198, 7)]));
    assert_eq!(read(&counting, is_sampled), Ok(true));
    let counts = counting.call_counts();
    assert_eq!(
        counts.get("nvmlDeviceGetPcieThroughput"),
        None,
        "{counts:?}"
    );
}

#[test]
fn idle_refuses_a_time_that_is_none() {
    let mut command = Host::new(["H100"]).gputop(["idle", "--watch", "long"]);
    let output = run(&mut command);
    assert_eq!(output.code, 2, "{}", output.stderr);
}
