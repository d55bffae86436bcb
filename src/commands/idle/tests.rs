//! Tests of what the report says of hosts, and of its exit code.

use super::*;
use crate::base::text::Text;
use crate::base::units::{Bytes, Percent};
use crate::commands::live::read_hosts::HostState;
use crate::protocol::host_key::HostKey;
use crate::protocol::slurm_job::{SlurmJob, SlurmNode};
use crate::protocol::snapshot::{Snapshot, example};

/// A host that is read each ten seconds for so many minutes, without any use of its GPUs.
fn idle_for(mut at: Snapshot, minutes: u64) -> HostModel {
    at.host.facts.utc_offset = Ok(0);
    // 2026-07-14T08:00:00Z
    at.unix_ms = 1_784_016_000_000;
    let mut model = HostModel::default();
    for _ in 0..=6 * minutes {
        for gpu in &mut at.gpus {
            gpu.load.sm = Ok(Percent::new(0.0));
        }
        model.replace(at.clone());
        at = at.later(10);
    }
    model
}

/// The same with a quiet PCIe link.
fn quiet(mut at: Snapshot) -> Snapshot {
    for gpu in &mut at.gpus {
        gpu.health.pcie_quiet = Ok(true);
    }
    at
}

/// Two jobs of alice, and a process of bob.
fn three_jobs() -> Snapshot {
    let gib = Bytes::from_gib;
    let mut at = example::host(4)
        .with(7, "python train.py", 0, gib(30))
        .with(8, "python train.py", 1, gib(31))
        .with(9, "python notebook.py", 2, gib(9))
        .with(10, "python serve.py", 3, gib(50));
    for place in [0, 1] {
        at.processes[place].facts_mut().origin = Ok("slurm 4242".into());
    }
    let bob = at.processes[3].facts_mut();
    (bob.user, bob.uid) = (Ok("bob".into()), Ok(1001));
    quiet(at)
}

/// 2026-07-14T09:30:00Z, without a known time zone.
const NOW: NowHere = NowHere {
    unix_ms: 1_784_016_000_000 + 90 * 60_000,
    utc_offset: None,
};

fn state<'a>(key: u16, name: &'a str, model: &'a HostModel) -> HostState<'a> {
    HostState {
        key: HostKey(key),
        name,
        both_names: name.to_owned(),
        must_be_named: true,
        seen: Some((model, model.latest().expect("it was read"))),
        trouble: None,
        program: None,
        lacks_only_gpus: false,
    }
}

fn report<'a>(hosts: &'a [HostState<'a>], user: Option<&str>) -> IdleReport<'a> {
    IdleReport::of(hosts, user, Duration::ZERO, NOW, None)
}

#[track_caller]
fn check(hosts: &[HostState<'_>], user: Option<&str>, exit: Exit, expected: &[&str]) {
    let report = report(hosts, user);
    let text = report.text();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "\n{text}");
    assert_eq!(report.exit(), exit);
}

#[test]
fn each_user_and_job_has_a_row_with_the_evidence_and_its_gpu_hours() {
    let model = idle_for(three_jobs(), 90);
    let hosts = [state(0, "gpu-01", &model)];
    let evidence = "         SM 0 % and less than 4 MB/s over PCIe since 08:00; nothing was read before, so it may be longer";
    check(
        &hosts,
        None,
        Exit::Found,
        &[
            "USER   GPUS  GPU-HOURS    IDLE   MEMORY  PID  JOB",
            "alice  0,1        ≥3.0  ≥1h30m  61.0GiB    8  slurm 4242: python train.py",
            evidence,
            "alice  2          ≥1.5  ≥1h30m   9.0GiB    9  python notebook.py",
            evidence,
            "bob    3          ≥1.5  ≥1h30m  50.0GiB   10  python serve.py",
            evidence,
            "",
            "alice: 3 GPUs, ≥4.5 GPU-hours (slurm 4242: 2 GPUs, ≥3.0 GPU-hours; notebook.py: 1 GPU, ≥1.5 GPU-hours)",
            "bob: 1 GPU, ≥1.5 GPU-hours",
            "all: 4 GPUs, ≥6.0 GPU-hours",
        ],
    );
}

#[test]
fn a_job_on_two_hosts_is_added_up_and_each_row_names_its_host() {
    let one = idle_for(three_jobs(), 90);
    let other = idle_for(three_jobs(), 60);
    let hosts = [state(0, "gpu-01", &one), state(1, "gpu-02", &other)];
    let report = report(&hosts, Some("alice"));
    let text = report.text();
    assert!(text.starts_with("HOST    USER   GPUS"), "{text}");
    let total = "alice: 6 GPUs, ≥7.5 GPU-hours (slurm 4242: 4 GPUs, ≥5.0 GPU-hours; ";
    assert!(text.contains(total), "{text}");
    assert!(!text.contains("bob"), "{text}");
    let json = report.json();
    assert_eq!(json["users"][0]["jobs"][0]["job"], "slurm 4242");
    assert_eq!(json["users"][0]["jobs"][0]["gpu_seconds"], 5 * 3600);
    assert_eq!(
        (&json["gpu_count"], &json["gpu_seconds"]),
        (&6.into(), &27_000.into())
    );
    assert_eq!(json["held"][0]["host"], "gpu-01");
    assert_eq!(json["held"][0]["gpus"], serde_json::json!(["0", "1"]));
    assert_eq!(json["held"][0]["idle_is_lower_bound"], true);
}

#[test]
fn a_host_that_was_seen_for_a_short_time_is_unknown_and_the_report_says_what_helps() {
    let model = idle_for(three_jobs(), 2);
    let hosts = [state(0, "gpu-01", &model)];
    let help = "a GPU counts after 30 minutes without use, and no recorder of yours on this host has seen them: run `gputop record` there, or add `--watch 30m`";
    check(
        &hosts,
        None,
        Exit::Partial,
        &[
            "no GPU is known to be held idle",
            "not known for GPU 0-3: idle, but seen for 2m00s only",
            help,
        ],
    );
    check(
        &hosts,
        Some("bob"),
        Exit::Partial,
        &[
            "no GPU is known to be held idle",
            "not known for GPU 3: idle, but seen for 2m00s only",
            help,
        ],
    );
    check(
        &hosts,
        Some("carol"),
        Exit::Success,
        &["no GPU is held idle"],
    );
}

#[test]
fn a_gpu_whose_traffic_cannot_be_read_is_unknown_for_good() {
    let at = example::host(2).with(7, "python train.py", 1, Bytes::from_gib(30));
    let model = idle_for(at, 90);
    let hosts = [state(0, "gpu-01", &model), state(1, "gpu-02", &model)];
    let sentence = |host: &str| {
        format!(
            "{host}: not known for GPU 1: the traffic on its PCIe link is not known (the driver does not tell it)"
        )
    };
    check(
        &hosts,
        None,
        Exit::Partial,
        &[
            "no GPU is known to be held idle",
            &sentence("gpu-01"),
            &sentence("gpu-02"),
        ],
    );
}

#[test]
fn gpus_in_use_and_free_ones_are_not_held_idle() {
    let mut at = quiet(example::host(2).with(7, "python train.py", 0, Bytes::from_gib(30)));
    at.gpus[0].load.sm = Ok(Percent::new(90.0));
    let mut model = HostModel::default();
    model.replace(at.clone());
    model.replace(at.later(10));
    check(
        &[state(0, "gpu-01", &model)],
        None,
        Exit::Success,
        &["no GPU is held idle"],
    );
}

#[test]
fn a_host_that_could_not_be_read_is_an_error_unless_another_has_something() {
    let model = idle_for(three_jobs(), 90);
    let mut lost = state(1, "gpu-02", &model);
    (lost.seen, lost.trouble) = (None, Some(Text::from("no route to host")));
    let hosts = [lost];
    assert_eq!(report(&hosts, None).exit(), Exit::Error);
    let [lost] = hosts;
    let hosts = [state(0, "gpu-01", &model), lost];
    let found = report(&hosts, None);
    assert_eq!(found.exit(), Exit::Found);
    let json = found.json();
    assert_eq!(json["is_complete"], false);
    assert_eq!(json["hosts"][1]["trouble"], "no route to host");
}

/// A job on nodes with these GPUs, which has run for so many minutes, and of which Slurm was asked
/// so many minutes ago.
fn slurm_job(nodes: &[(&str, &[u32])], run_minutes: u64, asked_minutes_ago: u64) -> SlurmJob {
    SlurmJob {
        number: 4242,
        task: None,
        name: "llama".into(),
        user: "alice".into(),
        state: "RUNNING".into(),
        run_time: Some(Duration::from_mins(run_minutes)),
        nodes: nodes
            .iter()
            .map(|(name, gpus)| SlurmNode {
                name: (*name).into(),
                gpus: Some(gpus.to_vec()),
            })
            .collect(),
        asked_at: NOW.unix_ms - asked_minutes_ago * 60_000,
    }
}

/// A host with a process on the first of four GPUs, which was read for so many minutes.
fn one_in_use(minutes: u64) -> HostModel {
    let mut at = example::host(4).with(7, "python train.py", 0, Bytes::from_gib(30));
    for (minor, gpu) in (0..).zip(&mut at.gpus) {
        gpu.facts.minor = Ok(minor);
        // The first GPU is in use over PCIe.
        gpu.health.pcie_quiet = Ok(false);
    }
    idle_for(at, minutes)
}

#[track_caller]
fn check_slurm(job: &SlurmJob, hosts: &[HostState<'_>], exit: Exit, expected: &[&str]) {
    let now = NowHere {
        utc_offset: Some(0),
        ..NOW
    };
    let report = IdleReport::of(hosts, None, Duration::ZERO, now, Some(job));
    let text = report.text();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "\n{text}");
    assert_eq!(report.exit(), exit);
    let json = report.json();
    assert_eq!(
        json["is_complete"],
        exit == Exit::Success || exit == Exit::Found
    );
}

#[test]
fn gpus_of_a_job_without_any_process_count_for_the_time_that_the_job_has_them() {
    let model = one_in_use(90);
    let hosts = [state(0, "gpu-01", &model), state(1, "gpu-02", &model)];
    // Another job has the other GPUs of gpu-02.
    let nodes: &[(&str, &[u32])] = &[("gpu-01", &[0, 1, 2]), ("gpu-02", &[0])];
    check_slurm(
        &slurm_job(nodes, 50, 10),
        &hosts,
        Exit::Found,
        &[
            "no GPU is held idle",
            "slurm 4242 of alice: no process on 2 of 4 GPUs as of 09:20: 2.0 GPU-hours",
            "         gpu-01: GPU 1,2 for 1h00m",
        ],
    );
    // The job is older than the first look.
    check_slurm(
        &slurm_job(nodes, 500, 10),
        &hosts,
        Exit::Found,
        &[
            "no GPU is held idle",
            "slurm 4242 of alice: no process on 2 of 4 GPUs as of 09:20: ≥3.0 GPU-hours",
            "         gpu-01: GPU 1,2 for ≥1h30m",
        ],
    );
    // A job that has just begun has no process yet.
    check_slurm(
        &slurm_job(nodes, 19, 10),
        &hosts,
        Exit::Success,
        &[
            "no GPU is held idle",
            "slurm 4242 of alice: no GPU without a process for 30 minutes as of 09:20",
        ],
    );
}

#[test]
fn an_answer_of_slurm_that_is_older_than_half_an_hour_is_shown_and_not_counted() {
    let model = one_in_use(90);
    let hosts = [state(0, "gpu-01", &model)];
    check_slurm(
        &slurm_job(&[("gpu-01", &[0, 1])], 50, 31),
        &hosts,
        Exit::Partial,
        &[
            "no GPU is known to be held idle",
            "slurm 4242 of alice: no process on 1 of 2 GPUs as of 08:59: not counted, since Slurm was asked more than 30 minutes ago",
            "         gpu-01: GPU 1 for 1h21m",
        ],
    );
}

#[test]
fn a_job_whose_gpus_were_seen_for_a_short_time_or_not_at_all_is_unknown() {
    let model = one_in_use(2);
    let hosts = [state(0, "gpu-01", &model)];
    let mut job = slurm_job(&[("gpu-01", &[1, 9]), ("gpu-02", &[0])], 50, 0);
    job.nodes.push(SlurmNode {
        name: "gpu-01".into(),
        gpus: None,
    });
    check_slurm(
        &job,
        &hosts,
        Exit::Partial,
        &[
            "no GPU is known to be held idle",
            "slurm 4242 of alice: not known on gpu-01: GPU 1: no process, but seen for 2m00s only",
            "slurm 4242 of alice: not known on gpu-01: GPU 9: no GPU has this number there",
            "slurm 4242 of alice: not known on gpu-02: it was not read",
            "slurm 4242 of alice: not known on gpu-01: Slurm does not say which GPUs the job has there",
        ],
    );
}
