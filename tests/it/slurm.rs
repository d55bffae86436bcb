//! Jobs of Slurm: `--slurm` and `--srun`, with stand-ins for the commands of Slurm.

use std::fs;

use serde_json::Value;

use crate::host::Host;
use crate::process::run;
use crate::ssh_hosts::{SshLab, far_environment};
use crate::terminal::Terminal;

/// Notes its arguments, and describes one job in the words of Slurm 22.05.
const SQUEUE: &str = r#"#!/bin/sh
echo asked >> "$SSH_LAB/squeue.calls"
cat "$SSH_LAB/refusal" >&2 2> /dev/null && exit 1
while [ "$1" != -o ]; do shift; done
printf "%s4242\t4242\tN/A\talice\tRUNNING\t2:06\tn[1-2]\tNone\tllama\n" "${2%%%A*}"
"#;

const SCONTROL: &str = r#"#!/bin/sh
echo "JobId=4242 JobName=llama"
echo "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:1)"
echo "     Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0)"
"#;

/// Notes its options, and runs the program in the environment of the node.
const SRUN: &str = r#"#!/bin/sh
options=
while [ "$1" != sh ]; do [ "$1" = -w ] && node=$2; options="$options $1"; shift; done
echo "$options" >> "$SSH_LAB/srun.calls"
if [ -e "$SSH_LAB/refuses-gpus" ] && [ "$options" = "${options#*--gres=gpu:0}" ]; then
    echo "srun: error: Unable to create step for job 4242: Invalid generic resource (gres) specification" >&2
    exit 1
fi
. "$SSH_LAB/$node.srun"
"#;

/// A cluster of two nodes, n1 with two GPUs and n2 with one, and a job that has one GPU of each.
pub(crate) struct SlurmLab {
    pub(crate) ssh: SshLab,
    _nodes: [Host; 2],
}

impl SlurmLab {
    pub(crate) fn new() -> Self {
        let ssh = SshLab::new();
        for (name, script) in [("squeue", SQUEUE), ("scontrol", SCONTROL), ("srun", SRUN)] {
            ssh.install_script(name, script);
        }
        let nodes = [Host::new(["H100"; 2]), Host::new(["A100"])];
        for (name, node) in ["n1", "n2"].into_iter().zip(&nodes) {
            ssh.add_agent(name, node, "");
            ssh.add(
                &format!("{name}.srun"),
                &format!("{} \"$@\"\n", far_environment(node)),
            );
        }
        Self { ssh, _nodes: nodes }
    }

    /// Lets the job have run for two days, and not for two minutes.
    pub(crate) fn let_the_job_run_for_days(&self) {
        let squeue = SQUEUE.replace("2:06", "2-06:00:00");
        self.ssh.install_script("squeue", &squeue);
    }

    fn calls(&self, program: &str) -> Vec<String> {
        let calls = self.ssh.calls(program);
        calls.lines().map(str::to_owned).collect()
    }
}

/// Returns the names of the hosts in lines of JSON.
fn names(lines: &str) -> Vec<String> {
    let name = |line| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        value["source"]["name"].as_str().expect("a name").to_owned()
    };
    lines.lines().map(name).collect()
}

#[test]
fn the_nodes_of_a_job_are_read_over_ssh_after_one_question() {
    let lab = SlurmLab::new();
    let output = run(&mut lab.ssh.gputop(["--json", "--slurm", "4242", "-H", "n2"]));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    assert_eq!(names(&output.text()), ["n2", "n1"]);
    assert_eq!(lab.calls("squeue").len(), 1);
    assert_eq!(lab.calls("srun").len(), 0);
}

#[test]
fn the_gpus_that_a_job_has_and_nobody_uses_are_known_after_half_an_hour() {
    let lab = SlurmLab::new();
    let idle = |args: &[&'static str]| {
        let args = ["idle", "--slurm", "4242"].iter().chain(args);
        run(&mut lab.ssh.gputop(args.copied()))
    };
    let output = idle(&[]);
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    let sentence = "slurm 4242 of alice: no GPU without a process for 30 minutes as of ";
    assert!(output.text().contains(sentence), "{}", output.text());

    lab.let_the_job_run_for_days();
    let output = idle(&["--json"]);
    assert_eq!(output.code, 5, "{}{}", output.text(), output.stderr);
    let report: Value = serde_json::from_str(&output.text()).expect("JSON");
    let job = &report["allocated"][0];
    assert_eq!(
        (&job["job"], &job["is_counted"]),
        (&"slurm 4242".into(), &true.into())
    );
    assert_eq!(job["allocated_gpu_count"], 2, "{report:#}");
    let hosts = [&job["unknown"][0]["host"], &job["unknown"][1]["host"]];
    assert_eq!(hosts, ["n1", "n2"], "{report:#}");
    let why = job["unknown"][0]["sentence"].as_str().expect("a sentence");
    assert!(why.starts_with("GPU 1: no process, but seen for "), "{why}");
}

#[test]
fn a_login_host_asks_slurm_and_starts_the_steps() {
    let lab = SlurmLab::new();
    lab.ssh.add("login", "exec sh -c \"$remote\"\n");
    let args = ["--json", "--slurm", "login:4242", "--srun"];
    let output = run(&mut lab.ssh.gputop(args));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    assert_eq!(names(&output.text()), ["n1", "n2"]);
    let mut steps = lab.calls("srun");
    steps.sort();
    assert_eq!(
        steps,
        ["n1", "n2"].map(|node| format!(" --overlap --jobid=4242 -N1 -n1 --mem=0 -w {node}"))
    );
    let sessions = lab.ssh.calls("login");
    assert!(
        sessions.contains("-- login exec 'srun' '--overlap' '--jobid=4242'"),
        "{sessions}"
    );
    assert_eq!(lab.ssh.calls("n1"), "", "no ssh to a node");
}

#[test]
fn a_step_that_slurm_refuses_because_of_its_gpus_is_given_none_and_its_row_says_so() {
    let lab = SlurmLab::new();
    lab.ssh.add("refuses-gpus", "");
    let mut command = lab.ssh.gputop(["--slurm", "4242", "--srun"]);
    let terminal = Terminal::run(&mut command, 120, 40);
    terminal.wait_for("Slurm gave the step no GPU, since it refused one with GPUs");
    terminal.wait_for("A100");
    terminal.wait_for("H100");
    let steps = lab.calls("srun");
    let without = steps.iter().filter(|step| step.contains("--gres=gpu:0"));
    assert_eq!((without.count(), steps.len()), (2, 4), "{steps:?}");
}

#[test]
fn the_gpus_of_the_job_come_first_and_ctrl_r_asks_again() {
    let lab = SlurmLab::new();
    let terminal = Terminal::run(&mut lab.ssh.gputop(["--slurm", "4242"]), 120, 40);
    terminal.wait_for("slurm 4242 llama of alice has 2 GPUs on 2 nodes; other GPUs there are dim");
    terminal.wait_until("the GPUs of the job before the other one of n1", |screen| {
        let text = screen.contents();
        let place = |gpu: &str| text.find(gpu);
        let (first, second) = (place("1 H100"), place("0 A100"));
        first.is_some() && first < second && second < place("0 H100")
    });
    lab.ssh.add(
        "refusal",
        "slurm_load_jobs error: Invalid job id specified\n",
    );
    terminal.keys("\x12");
    terminal
        .wait_for("cannot ask Slurm for job 4242: there is no such job, or it ended a while ago");
    assert_eq!(lab.calls("squeue").len(), 2);
}

#[test]
fn a_job_that_cannot_be_found_is_one_sentence() {
    let lab = SlurmLab::new();
    lab.ssh.add(
        "refusal",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    );
    for (job, sentence) in [
        (
            "4242",
            "cannot ask Slurm for job 4242: slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        ),
        (
            "nowhere:4242",
            "cannot ask Slurm for job 4242 on nowhere: Could not resolve hostname nowhere",
        ),
    ] {
        let output = run(&mut lab.ssh.gputop(["--once", "--slurm", job]));
        assert_eq!(output.code, 2, "{}", output.stderr);
        assert!(output.stderr.contains(sentence), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    let output = run(&mut lab.ssh.gputop(["--once", "--slurm", "llama"]));
    assert!(
        output
            .stderr
            .contains("`llama` is no job of Slurm, such as 4242 or 4242_3"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_host_whose_driver_has_more_gpus_than_the_agent_sees_says_so() {
    let host = Host::new(["H100"; 2]);
    let sentence = "sees 2 of 4 GPUs";
    assert!(!host.run(["--once"]).text().contains("sees"));
    for gpu in 0..4 {
        let folder = host.path(&format!("nvidia-gpus/0000:0{gpu}:00.0"));
        fs::create_dir_all(folder).expect("/tmp has room");
    }
    for format in ["--once", "--plain"] {
        let text = host.run([format]).text();
        assert!(text.contains(sentence), "{text}");
    }
    Terminal::start_at(&host, 120, 40, []).wait_for(sentence);
}
