//! `gputop run --fail-on-leak`: judges the processes of a command at its end, and else changes
//! nothing. PyTorch is a stand-in; the probe is the shipped one.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use fake_nvml::GpuProcess;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::allocator_stats::host_with_gpus;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, ProcessHandle, exit_code, run, wait_until};
use crate::run_program::gputop_run;
use crate::terminal::{CTRL_C, CTRL_Z, Terminal};

const OK: i32 = 0;
const USAGE: i32 = 2;
const LEAK: i32 = 12;
const NOT_JUDGED: i32 = 13;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/gate_program.py");

/// Runs parts of `gate_program.py` with the gate.
fn gate(host: &Host, options: &[&str], parts: &[&str]) -> Command {
    let program = ["--", "python3", "-B", PROGRAM];
    let arguments = ["--fail-on-leak"].iter().chain(options).chain(&program);
    let mut command = gputop_run(host, arguments.chain(parts).copied());
    command
        .env(
            "PYTHONPATH",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in"),
        )
        .env("GPUTOP_PROBE_INTERVAL", "0.05")
        .env("TMPDIR", host.path(""));
    command
}

#[track_caller]
fn check(options: &[&str], parts: &[&str], code: i32) -> Output {
    let host = Host::new(["H100"]);
    let output = run(&mut gate(&host, options, parts));
    assert_eq!(output.code, code, "{}{}", output.text(), output.stderr);
    output
}

#[test]
fn a_likely_leak_fails_with_its_line_and_nothing_stays_in_the_temporary_folder() {
    let host = Host::new(["H100"]);
    let output = run(&mut gate(&host, &[], &["print", "leak"]));
    assert_eq!(output.code, LEAK, "{}", output.stderr);
    assert_eq!(output.text(), "printed\n");
    let lines: Vec<&str> = output.stderr.lines().collect();
    let beginning = "gputop: LEAK in gate_program.py (PID ";
    assert!(lines[0].starts_with(beginning), "{}", output.stderr);
    assert!(lines[0].contains(", 40 KiB per step: tensors are kept"));
    assert!(lines[1].contains("held by list outputs, gate_program.py:"));
    assert!(lines[2].starts_with("  try: `outputs.append(output)`"));
    let summary = "gputop: 1 likely leak in 1 process with ";
    assert!(lines[3].starts_with(summary), "{}", output.stderr);
    let left: Vec<_> = fs::read_dir(host.path(""))
        .expect("the folder exists")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name.to_string_lossy().contains("last-states"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_healthy_program_succeeds() {
    let output = check(&[], &["healthy"], OK);
    let summary = "gputop: no likely leak in 1 process with ";
    assert!(output.stderr.starts_with(summary), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}

#[test]
fn the_commands_own_failure_wins() {
    let output = check(&[], &["leak", "fail"], 7);
    assert!(output.stderr.contains("LEAK in"), "{}", output.stderr);
    // It failed before it used CUDA.
    let output = check(&[], &["fail"], 7);
    assert_eq!(output.stderr, "");
    let output = check(&[], &["leak", "kill"], 128 + 9);
    assert!(output.stderr.contains("LEAK in"), "{}", output.stderr);
}

#[test]
fn a_forked_worker_that_ends_by_os_exit_counts() {
    let output = check(&[], &["leak in a child"], LEAK);
    assert!(output.stderr.contains("in 1 process"), "{}", output.stderr);
}

#[test]
fn under_pytest_the_end_of_a_test_counts_as_a_step() {
    let output = check(&[], &["leak over tests"], LEAK);
    let stderr = &output.stderr;
    assert!(
        stderr.contains(", 40 KiB per test: tensors are kept"),
        "{stderr}"
    );
    assert!(
        stderr.contains("held by global kept, gate_program.py:"),
        "{stderr}"
    );
    assert!(
        stderr.contains("with 0 training steps and 60 tests"),
        "{stderr}"
    );
    for part in ["healthy tests", "cycles over tests", "freed after tests"] {
        check(&[], &[part], OK);
    }
}

#[test]
fn a_command_that_uses_no_cuda_is_not_judged() {
    let output = check(&[], &["print"], NOT_JUDGED);
    let sentence = "gputop: no process of the command used CUDA through PyTorch";
    assert!(output.stderr.starts_with(sentence), "{}", output.stderr);
    check(&["--allow-unjudged"], &["print"], OK);
}

#[test]
fn a_process_that_cannot_be_judged_is_named_with_its_reason_and_a_leak_goes_first() {
    let output = check(&[], &["unjudged in a child"], NOT_JUDGED);
    let reason = "PYTORCH_NO_CUDA_MEMORY_CACHING is set";
    let named = |output: &Output| {
        let mut lines = output.stderr.lines();
        lines.any(|line| line.starts_with("gputop: not judged: ") && line.contains(reason))
    };
    assert!(named(&output), "{}", output.stderr);
    check(&["--allow-unjudged"], &["unjudged in a child"], OK);
    let output = check(&[], &["unjudged in a child", "leak"], LEAK);
    assert!(named(&output), "{}", output.stderr);
}

#[test]
fn known_leaks_do_not_fail_wherever_their_line_moves() {
    let host = Host::new(["H100"]);
    let path = host.path("known.txt");
    let file = path.to_str().expect("a path in ASCII");
    let output = run(&mut gate(&host, &["--write-baseline", file], &["leak"]));
    assert_eq!(output.code, OK, "{}", output.stderr);
    let written = fs::read_to_string(&path).expect("the file is written");
    let last = written.lines().last();
    assert_eq!(
        last,
        Some("kept_outputs: list outputs, gate_program.py in train")
    );
    let output = run(&mut gate(&host, &["--baseline", file], &["leak"]));
    assert_eq!(output.code, OK, "{}", output.stderr);
    let known = "1 known, in the baseline";
    assert!(output.stderr.contains(known), "{}", output.stderr);
    fs::write(
        &path,
        "kept_outputs: list other, gate_program.py in train\n",
    )
    .expect("it is ours");
    let output = run(&mut gate(&host, &["--baseline", file], &["leak"]));
    assert_eq!(output.code, LEAK, "{}", output.stderr);
    let output = run(&mut gate(&host, &["--baseline", "/nowhere"], &["print"]));
    assert_eq!(
        (output.code, output.text().as_str(), output.stderr.as_str()),
        (
            USAGE,
            "",
            "gputop: cannot read the baseline /nowhere: No such file or directory (os error 2)\n"
        )
    );
}

#[test]
fn the_result_is_written_for_junit_and_github() {
    let host = Host::new(["H100"]);
    let path = host.path("gputop.xml");
    let file = path.to_str().expect("a path in ASCII");
    let options = ["--junit", file, "--github"];
    let output = run(&mut gate(&host, &options, &["leak"]));
    assert_eq!(output.code, LEAK, "{}", output.stderr);
    let annotation = output.stderr.lines().last().expect("a line");
    // The path from the current folder.
    let beginning = "::error file=tests/pytorch/gate_program.py,line=";
    assert!(annotation.starts_with(beginning), "{annotation}");
    assert!(annotation.contains("%0Atry: `outputs.append(output)`"));
    let written = fs::read_to_string(&path).expect("the file is written");
    let counts = "tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\"";
    assert!(written.contains(counts), "{written}");
    assert!(written.contains("<failure message=\"gate_program.py:"));
    let output = run(&mut gate(&host, &options, &["print"]));
    assert_eq!(output.code, NOT_JUDGED, "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("\n::error title=Not judged by gputop::no process")
    );
    let written = fs::read_to_string(&path).expect("the file is written");
    let counts = "tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\"";
    assert!(written.contains(counts), "{written}");
}

/// A gate whose command prints the signals that it gets.
struct SignalledGate {
    gputop: ChildProcess,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    command: ProcessHandle,
}

impl SignalledGate {
    fn start(host: &Host) -> Self {
        Self::run(gate(host, &["--allow-unjudged"], &["signals"]))
    }

    /// Starts gputop as the leader of a process group, as a shell does with a job.
    fn run(mut command: Command) -> Self {
        command.process_group(0);
        let mut gputop = ChildProcess::spawn(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let stdin = gputop.child().stdin.take().expect("stdin is piped");
        let stdout = gputop.child().stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let ready = lines.next().expect("a line").expect("text");
        let pid = ready
            .strip_prefix("ready ")
            .and_then(|pid| pid.parse().ok());
        Self {
            gputop,
            stdin,
            lines,
            command: ProcessHandle::open(pid.expect("a PID")),
        }
    }

    fn signal_group(&self, signal: Signal) {
        let group = i32::try_from(self.gputop.pid())
            .ok()
            .and_then(Pid::from_raw);
        kill_process_group(group.expect("a PID"), signal).expect("the group exists");
    }

    /// The next line of the command.
    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }

    /// Writes a line for the command, and returns the lines that it prints until its end.
    fn last_lines(&mut self) -> Vec<String> {
        writeln!(self.stdin, "last").expect("the command reads");
        let lines = self.lines.by_ref().map(|line| line.expect("text"));
        lines.collect()
    }
}

#[test]
fn the_command_gets_each_signal_once_whether_it_was_sent_to_gputop_or_to_the_group() {
    let host = Host::new(["H100"]);
    let mut gate = SignalledGate::start(&host);
    for _ in 0..3 {
        gate.gputop.handle.signal(Signal::TERM);
        assert_eq!(gate.line(), "SIGTERM");
        gate.signal_group(Signal::HUP);
        assert_eq!(gate.line(), "SIGHUP");
        gate.gputop.handle.signal(Signal::USR1);
        assert_eq!(gate.line(), "SIGUSR1");
        gate.signal_group(Signal::INT);
        assert_eq!(gate.line(), "SIGINT");
    }
    assert_eq!(gate.last_lines(), ["read last"]);
    assert_eq!(exit_code(gate.gputop.wait()), OK);
}

#[test]
fn gputop_stops_and_continues_with_the_command() {
    let host = Host::new(["H100"]);
    let mut gate = SignalledGate::start(&host);
    // As Ctrl-Z and `fg`.
    gate.signal_group(Signal::TSTP);
    gate.command.wait_for_state('T');
    gate.gputop.handle.wait_for_state('T');
    gate.signal_group(Signal::CONT);
    gate.gputop.handle.signal(Signal::TERM);
    assert_eq!(gate.line(), "SIGTERM");
    // A command that stops itself; then gputop alone is continued.
    gate.command.signal(Signal::STOP);
    gate.gputop.handle.wait_for_state('T');
    gate.gputop.handle.signal(Signal::CONT);
    gate.gputop.handle.signal(Signal::USR1);
    assert_eq!(gate.line(), "SIGUSR1");
    assert_eq!(gate.last_lines(), ["read last"]);
    assert_eq!(exit_code(gate.gputop.wait()), OK);
}

#[test]
fn a_key_of_the_terminal_reaches_the_command_once() {
    let host = Host::new(["H100"]);
    let mut command = gate(&host, &["--allow-unjudged"], &["signals"]);
    let mut terminal = Terminal::run(&mut command, 80, 24);
    terminal.wait_for("ready");
    terminal.keys(CTRL_C);
    terminal.wait_for("SIGINT");
    terminal.keys("line\r");
    terminal.wait_for("read line");
    assert_eq!(exit_code(terminal.wait_for_exit()), OK);
    assert_eq!(terminal.text().matches("SIGINT").count(), 1);
}

#[test]
fn ctrl_z_and_fg_in_a_shell_are_as_without_gputop() {
    let host = Host::new(["H100"]);
    let mut shell = Command::new("bash");
    host.set_environment(&mut shell);
    shell.args(["--norc", "--noprofile", "-i"]);
    let mut terminal = Terminal::run(&mut shell, 200, 24);
    let gputop = env!("CARGO_BIN_EXE_gputop");
    terminal.keys(&format!(
        "{gputop} run --fail-on-leak --allow-unjudged -- python3 -B {PROGRAM} continued signals\r"
    ));
    terminal.wait_for("ready");
    terminal.keys(CTRL_Z);
    terminal.wait_for("Stopped");
    terminal.keys("fg\r");
    // The shell has given the terminal back by then: before, it would read the next line itself.
    terminal.wait_until("the command continues", |screen| {
        (screen.contents().lines()).any(|line| line.trim() == "continued")
    });
    terminal.keys("line\r");
    terminal.wait_for("read line");
    terminal.wait_for("nothing was judged");
    terminal.keys("exit\r");
    assert_eq!(exit_code(terminal.wait_for_exit()), OK);
}

#[test]
fn the_command_runs_on_if_gputop_is_killed() {
    let host = Host::new(["H100"]);
    let mut gate = SignalledGate::start(&host);
    gate.gputop.handle.kill();
    gate.gputop.handle.wait_for_end();
    assert_eq!(gate.last_lines(), ["read last"]);
    gate.command.wait_for_end();
}

#[test]
fn a_process_that_uses_a_gpu_without_the_probe_is_named_with_its_reason() {
    let mut host = host_with_gpus(1);
    let devices = ["nvidia0", "nvidia-uvm"].map(|name| host.path(name).display().to_string());
    let mut command = gate(&host, &[], &["devices", "signals"]);
    command
        .env("DEVICES", devices.join(" "))
        .env("GPUTOP_PROBE", "0");
    let mut gate = SignalledGate::run(command);
    host.add_process(0, GpuProcess::new(gate.command.pid, GIB));
    // After some passes of the agent, it has read the environment of the process.
    let passes = || {
        // No counts before the driver was loaded.
        let counts = fake_nvml::counts(host.path("counts")).unwrap_or_default();
        let lists = counts
            .iter()
            .filter(|(name, _)| name.contains("ComputeRunningProcesses"));
        lists.map(|(_, count)| *count).max().unwrap_or(0)
    };
    let before = passes();
    wait_until("six passes", || passes() >= before + 6);
    assert_eq!(gate.last_lines(), ["read last"]);
    let code = exit_code(gate.gputop.wait());
    let mut stderr = String::new();
    let pipe = gate.gputop.child().stderr.as_mut();
    pipe.expect("stderr is piped")
        .read_to_string(&mut stderr)
        .expect("text");
    assert_eq!(code, NOT_JUDGED, "{stderr}");
    let named = format!(
        "gate_program.py devices signals (PID {}): GPUTOP_PROBE=0",
        gate.command.pid
    );
    assert!(stderr.contains(&named), "{stderr}");
}
