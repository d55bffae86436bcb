//! One job over several hosts, each behind a command of `--via`, with real processes.

use std::process::Command;

use serde_json::Value;

use crate::host::{GIB, Host};
use crate::terminal::{ENTER, Terminal};
use crate::two_hosts::agent_of;

/// Starts a process with this environment on a GPU of a host. It leads a session of its own, as the
/// ranks of torchrun do. Returns its PID.
fn start_rank(host: &mut Host, gpu: usize, environment: &[(&str, String)]) -> u32 {
    let mut command = Command::new("setsid");
    command.args(["sleep", "1000"]);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    host.start(gpu, 59 * GIB, &mut command).pid()
}

/// The variables that torchrun sets for a rank.
fn of_torchrun(
    rank: usize,
    local: usize,
    hosts: usize,
    master: &str,
) -> Vec<(&'static str, String)> {
    vec![
        ("TORCHELASTIC_RUN_ID", "none".to_owned()),
        ("TORCHELASTIC_RESTART_COUNT", "0".to_owned()),
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", local.to_string()),
        ("WORLD_SIZE", (2 * hosts).to_string()),
        ("LOCAL_WORLD_SIZE", "2".to_owned()),
        ("GROUP_RANK", (rank / 2).to_string()),
        ("MASTER_ADDR", master.to_owned()),
        ("MASTER_PORT", "29500".to_owned()),
    ]
}

fn viewer(hosts: &[Host]) -> Command {
    let mut command = Host::new([]).gputop([]);
    for (number, host) in (1..).zip(hosts) {
        command.args(["--via", &format!("gpu-0{number}={}", agent_of(host))]);
    }
    command
}

#[test]
fn a_run_of_torchrun_on_four_hosts_is_one_job_whose_missing_rank_is_named() {
    let mut hosts: Vec<Host> = (0..4).map(|_| Host::new(["H100"; 2])).collect();
    let mut pids = Vec::new();
    for rank in 0..8 {
        let mut environment = of_torchrun(rank, rank % 2, 4, "gpu-01");
        environment.extend([
            ("SLURM_JOB_ID", "4242".to_owned()),
            ("SLURM_CLUSTER_NAME", "lab".to_owned()),
            ("SLURM_JOB_NAME", "llama".to_owned()),
        ]);
        pids.push(start_rank(&mut hosts[rank / 2], rank % 2, &environment));
    }
    let terminal = Terminal::run(&mut viewer(&hosts), 120, 40);
    terminal.wait_for("slurm 4242 llama");
    terminal.wait_for("8 ranks on 4 hosts: gpu-01, gpu-02, gpu-03, gpu-04");
    terminal.keys("J");
    terminal.keys(ENTER);
    terminal.wait_for("Job slurm 4242 llama");
    terminal.wait_for("no rank differs from the others");
    let child = hosts[2].process(pids[5]).child();
    child.kill().expect("the process is a child of the test");
    child.wait().expect("the process is a child of the test");
    hosts[2].change(|world| world.gpus[1].processes.clear());
    terminal.wait_for("5 gpu-03:1  missing since ");
    terminal.wait_for("8 ranks on 4 hosts, 7 seen");
    crate::print_note(terminal.text());
}

#[test]
fn torchrun_with_its_defaults_on_two_hosts_is_two_jobs() {
    let mut hosts: Vec<Host> = (0..2).map(|_| Host::new(["H100"; 2])).collect();
    for host in &mut hosts {
        for rank in 0..2 {
            start_rank(host, rank, &of_torchrun(rank, rank, 1, "127.0.0.1"));
        }
    }
    let terminal = Terminal::run(&mut viewer(&hosts), 120, 40);
    terminal.keys("f");
    terminal.wait_for("2 ranks on gpu-01");
    terminal.wait_for("2 ranks on gpu-02");
    assert!(
        !terminal.text().contains("on 2 hosts"),
        "{}",
        terminal.text()
    );
}

#[test]
fn json_has_the_facts_of_a_rank_and_nothing_for_other_processes() {
    let mut host = Host::new(["H100"; 2]);
    let rank = start_rank(&mut host, 0, &of_torchrun(9, 1, 8, "gpu-01"));
    let other = host.start_sleep(1, GIB);
    let output = host.run(["--json"]);
    let snapshot: Value = serde_json::from_str(&output.text()).expect("a line of JSON");
    let facts = |pid: u32| {
        let mut processes = snapshot["processes"].as_array().into_iter().flatten();
        let process = processes.find(|process| process["pid"] == pid);
        process.expect("the process is listed")["facts"].clone()
    };
    let distributed = &facts(rank)["distributed"];
    assert_eq!(
        (&distributed["rank"], &distributed["master_address"]),
        (&Value::from(9), &Value::from("gpu-01")),
        "{distributed}"
    );
    let keys = |facts: Value| {
        facts
            .as_object()
            .map(|facts| facts.contains_key("distributed"))
    };
    assert_eq!(keys(facts(other)), Some(false));
}
