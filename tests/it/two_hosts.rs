//! Two hosts at once: agents with drivers of their own, the same PIDs and GPU UUIDs on both,
//! connected by `--via`.

use std::fs;
use std::process::{Command, Stdio};

use fake_nvml::GpuProcess;
use gputop::protocol::line::Line;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::process::{Output, ProcessHandle, children_with_argument, run};
use crate::process_tree::sent_signals;
use crate::terminal::{ENTER, F9, Terminal};

/// The memory of the process on each host. Nothing else tells the two apart.
const LEFT_GIB: u64 = 3;
const RIGHT_GIB: u64 = 5;

/// Returns a command line that runs an agent of this host: a value of `--via`.
pub(crate) fn agent_of(host: &Host) -> String {
    let command = host.gputop(["agent", "--interval", "100ms"]);
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    let words = ["env".to_owned(), "-i".to_owned()]
        .into_iter()
        .chain(variables);
    let program = command
        .get_program()
        .to_str()
        .expect("the path is UTF-8")
        .to_owned();
    let arguments = command
        .get_args()
        .map(|argument| argument.to_str().expect("arguments are UTF-8").to_owned());
    let words: Vec<String> = words.chain([program]).chain(arguments).collect();
    shell_words::join(words)
}

/// Two hosts that share one process, which is on the first GPU of both. Both GPUs have the same
/// UUID.
struct Pair {
    left: Host,
    right: Host,
    pid: u32,
}

impl Pair {
    fn new() -> Self {
        let [mut left, mut right] = [Host::new(["H100"]), Host::new(["H100"])];
        right.change(|world| world.gpus[0].name = "NVIDIA A100-SXM4-80GB".into());
        left.change(|world| world.gpus[0].uuid = "GPU-the-same".into());
        right.change(|world| world.gpus[0].uuid = "GPU-the-same".into());
        // Both device files are open: in a container, gputop trusts a PID only then.
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .stdout(right.open_device(0))
            .stderr(Stdio::null());
        let pid = left.start(0, LEFT_GIB * GIB, &mut command).pid();
        right.add_process(0, GpuProcess::new(pid, RIGHT_GIB * GIB));
        Self { left, right, pid }
    }

    /// `gputop` with both hosts and these arguments.
    fn gputop<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let viewer = Host::new([]);
        let mut command = viewer.gputop([]);
        let via = |name: &str, host: &Host| format!("{name}={}", agent_of(host));
        command.args([
            "--via",
            &via("left", &self.left),
            "--via",
            &via("right", &self.right),
        ]);
        command.args(args);
        command
    }
}

/// The lines of a table, each as its words.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[track_caller]
fn check_row(text: &str, words: &[&str]) {
    let has_words = |row: &Vec<&str>| words.iter().all(|word| row.contains(word));
    assert_eq!(
        rows(text).into_iter().filter(has_words).count(),
        1,
        "{words:?} in\n{text}"
    );
}

#[test]
fn a_table_has_a_host_column_and_each_gpu_its_model() {
    let pair = Pair::new();
    let output = run(&mut pair.gputop(["--once"]));
    let text = output.text();
    assert_eq!(output.code, 0, "{text}{}", output.stderr);
    let pid = pair.pid.to_string();
    check_row(&text, &["left", "H100", "3.0/79.6G"]);
    check_row(&text, &["right", "A100-SXM4-80GB", "5.0/79.6G"]);
    check_row(&text, &["left", &pid, "3.0G"]);
    check_row(&text, &["right", &pid, "5.0G"]);
}

#[test]
fn json_has_one_line_per_host_with_its_key_and_name() {
    let pair = Pair::new();
    let output = run(&mut pair.gputop(["--json"]));
    let lines: Vec<Value> = output
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let seen: Vec<(&Value, &Value, &Value, &Value)> = lines
        .iter()
        .map(|line| {
            let gpu = &line["gpus"][0];
            (
                &line["source"]["host_key"],
                &line["source"]["name"],
                &gpu["uuid"],
                &gpu["processes"][0]["memory_used_bytes"],
            )
        })
        .collect();
    let uuid = Value::from("GPU-the-same");
    let expected = [
        (
            &Value::from(0),
            &Value::from("left"),
            &uuid,
            &Value::from(LEFT_GIB * GIB),
        ),
        (
            &Value::from(1),
            &Value::from("right"),
            &uuid,
            &Value::from(RIGHT_GIB * GIB),
        ),
    ];
    assert_eq!(seen, expected, "{}", output.stderr);
}

/// Returns a command that connects to the agent of a host as `ssh HOST` does, with a stand-in for
/// ssh.
fn ssh_to(name: &str, host: &Host) -> String {
    let ssh = host.install_script("ssh", "#!/bin/sh\nshift\nexec \"$@\"\n");
    format!("{} {name} {}", ssh.display(), agent_of(host))
}

/// The name by which this machine calls itself.
fn own_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("/proc is mounted");
    name.trim_end().to_owned()
}

#[test]
fn a_host_without_a_name_has_that_of_its_destination_and_a_number_where_another_has_it_too() {
    let pair = Pair::new();
    let mut command = Host::new([]).gputop(["--json"]);
    command.args([
        "--via",
        &ssh_to("alice@gpu-01", &pair.left),
        "--via",
        &ssh_to("gpu-01", &pair.right),
    ]);
    let output = run(&mut command);
    let lines: Vec<Value> = output
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let names: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["source"]["name"].as_str())
        .collect();
    assert_eq!(names, ["gpu-01", "gpu-01#2"], "{}", output.stderr);
    // The host's own name is where it was.
    let Ok(Some(Line::Full(snapshot))) =
        Line::parse(output.text().lines().next().expect("two lines").as_bytes())
    else {
        panic!("{}", output.text());
    };
    assert_eq!(snapshot.host.facts.name.as_str(), own_name());
}

#[test]
fn the_dialog_names_the_host_as_the_user_did_and_says_what_it_calls_itself() {
    let pair = Pair::new();
    let mut command = Host::new([]).gputop(["--via", &ssh_to("alice@gpu-01", &pair.left)]);
    let terminal = Terminal::run(&mut command, 120, 30);
    terminal.wait_for("3.0G");
    terminal.wait_for(&format!("gpu-01 ({})", own_name()));
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {} on gpu-01 ", pair.pid));
    terminal.wait_for(&format!("gpu-01 calls itself {}", own_name()));
}

#[test]
fn the_row_of_a_gpu_names_its_host_as_the_user_did_with_the_own_name_beside_it() {
    let pair = Pair::new();
    let terminal = Terminal::run(&mut pair.gputop([]), 140, 30);
    let own = own_name();
    terminal.wait_for(&format!("2 hosts: left ({own}), right ({own})"));
    terminal.wait_until("a row for each host", |screen| {
        let text = screen.contents();
        let is_row = |name: &str| {
            let names = format!("{name} ({own})");
            text.lines()
                .any(|line| line.contains(&names) && line.contains("/79.6G"))
        };
        is_row("left") && is_row("right")
    });
}

#[test]
fn a_line_of_another_version_is_refused_with_both_versions_and_the_name_of_the_host() {
    let host = Host::new(["H100"]);
    let full = host.run(["--json"]).text();
    let other = full.replacen("\"schema\":1,", "\"schema\":2,", 1);
    assert_ne!(full, other);
    fs::write(host.path("first"), &full).expect("/tmp has room");
    fs::write(host.path("second"), &other).expect("/tmp has room");
    let sentence = "far: the command: it writes version 2, this gputop reads version 1";
    let script = |files: &str| format!("cd {}; cat {files}; exec cat", host.path("").display());
    let via = |files: &str| format!("far=sh -c {}", shell_words::quote(&script(files)));
    let output = host.run(["--once", "--via", &via("second")]);
    assert_eq!(output.code, 1, "{}", output.text());
    assert!(
        output.stderr.contains(sentence),
        "{}{}",
        output.text(),
        output.stderr
    );
    let terminal = Terminal::run(&mut host.gputop(["--via", &via("first second")]), 80, 24);
    terminal.wait_for(sentence);
    // The figures from before stay.
    terminal.wait_for("H100");
}

#[test]
fn the_local_host_is_there_only_with_local() {
    let pair = Pair::new();
    let via = format!("right={}", agent_of(&pair.right));
    for (args, hosts) in [(&["--json"][..], 1), (&["--json", "--local"], 2)] {
        let mut command = pair.left.gputop(args.iter().copied());
        let output = run(command.args(["--via", &via]));
        assert_eq!(output.text().lines().count(), hosts, "{}", output.stderr);
        assert!(
            output
                .text()
                .lines()
                .last()
                .is_some_and(|line| line.contains("\"right\"")),
            "{}",
            output.text()
        );
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_the_reason_and_the_other_is_reported() {
    let pair = Pair::new();
    let good = format!("left={}", agent_of(&pair.left));
    let cases = [
        (
            "gone=/does/not/exist",
            "gone: cannot start /does/not/exist: No such file or directory",
        ),
        ("silent=true", "silent: the command ended without a word"),
        (
            "refused=sh -c 'echo \"ssh: connect to host x port 22: Connection refused\" >&2; exit 255'",
            "refused: the command ended: ssh: connect to host x port 22: Connection refused",
        ),
        (
            "talks=echo 'Welcome to gpu-02!'",
            "talks: the command: its line is not understood",
        ),
        (
            "tty=sh -c 'read password < /dev/tty'",
            "/dev/tty: No such device or address",
        ),
        (
            "endless=sh -c 'tr \"\\\\0\" x < /dev/zero'",
            "endless: cannot read from the command: a line is longer than 64 MiB",
        ),
    ];
    for (bad, reason) in cases {
        let mut command = Host::new([]).gputop(["--once"]);
        let output = run(command.args(["--via", bad, "--via", &good]));
        assert_eq!(output.code, 5, "{bad}: {}{}", output.text(), output.stderr);
        assert!(
            output.text().contains(reason),
            "{bad}: {}{}",
            output.text(),
            output.stderr
        );
        check_row(&output.text(), &["left", &pair.pid.to_string(), "3.0G"]);
    }
}

#[test]
fn a_via_command_that_cannot_be_split_is_a_usage_error() {
    for bad in ["", "name=", "ssh 'gpu"] {
        let output = Host::new([]).run(["--once", "--via", bad]);
        assert_eq!(output.code, 2, "{bad}: {}", output.stderr);
    }
}

/// The agent of this host among the children of a viewer.
#[track_caller]
fn agent_process(viewer: &Terminal, host: &Host) -> ProcessHandle {
    let folder = host.path("").into_os_string().into_encoded_bytes();
    let is_of_host = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(folder.len()).any(|part| part == folder)
    };
    ProcessHandle::open(
        children_with_argument(viewer.pid(), "agent")
            .into_iter()
            .find(is_of_host)
            .expect("each host has an agent"),
    )
}

#[test]
fn a_signal_goes_through_the_agent_of_its_host() {
    let mut pair = Pair::new();
    let terminal = Terminal::run(&mut pair.gputop(["--sort", "memory"]), 140, 30);
    terminal.wait_for("3.0G");
    terminal.wait_for("5.0G");
    // The process on the right is the first row: it uses more memory.
    terminal.keys(F9);
    terminal.wait_for("on right");
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    pair.left.process(pair.pid).wait();
    terminal.wait_for("It ended after");
    let signals = sent_signals(&pair.right);
    assert_eq!(signals.len(), 1, "{signals:?}");
    assert!(
        !pair.left.path("gputop/kills.jsonl").exists(),
        "the left agent was asked too"
    );
}

#[test]
fn a_lost_host_is_named_with_the_reason_and_the_other_continues() {
    let mut pair = Pair::new();
    let terminal = Terminal::run(&mut pair.gputop([]), 140, 30);
    terminal.wait_for("3.0G");
    terminal.wait_for("5.0G");
    agent_process(&terminal, &pair.left).kill();
    terminal.wait_for("left: the command ended");
    pair.right
        .change(|world| world.gpus[0].processes[0].memory = Some(9 * GIB));
    terminal.wait_for("9.0G");
}

/// Runs a subcommand over both hosts.
fn run_subcommand<'a>(pair: &Pair, args: impl IntoIterator<Item = &'a str>) -> Output {
    let viewer = Host::new([]);
    let mut command = viewer.gputop(args);
    for (name, host) in [("left", &pair.left), ("right", &pair.right)] {
        command.args(["--via", &format!("{name}={}", agent_of(host))]);
    }
    run(&mut command)
}

#[test]
fn orphans_of_each_host_are_listed_below_its_name() {
    let pair = Pair::new();
    // Other tests may leave orphans that are on no GPU.
    let output = run_subcommand(&pair, ["orphans", "-i", "0", "--timeout", "20s"]);
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    // A line counts the processes of simulated machines, which other tests may run now.
    let text = output.text();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("of gputop's demo"))
        .collect();
    let none = "no orphans on these GPUs";
    assert_eq!(lines, ["left:", none, "right:", none]);
    let output = run_subcommand(&pair, ["orphans", "--json", "--timeout", "20s"]);
    let lines: Vec<Value> = output
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        lines.iter().map(|line| &line["host"]).collect::<Vec<_>>(),
        ["left", "right"]
    );
}

#[test]
fn free_gpus_are_those_of_the_first_host_that_has_enough() {
    let mut pair = Pair::new();
    let output = run_subcommand(&pair, ["free"]);
    assert_eq!(
        (output.code, output.text().as_str()),
        (11, "CUDA_VISIBLE_DEVICES=\n"),
        "{}",
        output.stderr
    );
    assert!(
        output
            .stderr
            .contains("left: no GPU is free: GPU 0 has 1 process"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("; right: no GPU is free"),
        "{}",
        output.stderr
    );
    pair.right.change(|world| {
        world.gpus[0].processes.clear();
        world.gpus[0].utilization.gpu = Some(0);
    });
    let output = run_subcommand(&pair, ["free"]);
    let line = "HOST=right CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0\n";
    assert_eq!((output.code, output.text().as_str()), (0, line));
    // An id alone would not say on which host.
    let output = run_subcommand(&pair, ["free", "--ids"]);
    assert_eq!(
        (output.code, output.text().as_str()),
        (2, ""),
        "{}",
        output.stderr
    );
}

#[test]
fn the_other_subcommands_refuse_other_hosts() {
    for subcommand in ["doctor", "explain", "analyze"] {
        let output = Host::new([]).run([subcommand, "--via", "true"]);
        assert_eq!(output.code, 2, "{subcommand}");
        assert!(
            output.stderr.contains("unexpected argument '--via'"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn a_command_of_gputop_free_is_refused_with_other_hosts() {
    let host = Host::new(["H100"]);
    for other in [
        ["--via", "true"],
        ["-H", "box"],
        ["--hosts", "lab.txt"],
        ["--slurm", "4242"],
    ] {
        let output = host.run(["free", other[0], other[1], "--", "echo", "ran"]);
        // `env $(gputop free …) python train.py` must not use all GPUs then.
        let printed = (output.code, output.text());
        assert_eq!(
            printed,
            (2, "CUDA_VISIBLE_DEVICES=\n".to_owned()),
            "{other:?}"
        );
        assert!(
            output.stderr.contains("cannot be used with"),
            "{}",
            output.stderr
        );
    }
}
