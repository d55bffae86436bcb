//! `gputop wait`: what it waits for, what it says, and its exit codes.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::process::{
    ChildProcess, ProcessHandle, children_with_argument, exit_code, run, wait_until,
};
use crate::replay::Recorder;
use crate::two_hosts::agent_of;

const HAPPENED: i32 = 0;
const ERROR: i32 = 1;
const USAGE: i32 = 2;
const NO_DRIVER: i32 = 3;
const NOT_FOUND: i32 = 6;
const NONE_FREE: i32 = 11;
const LEAK: i32 = 12;
const FULL_SOON: i32 = 14;
const TIMED_OUT: i32 = 124;

/// A `gputop wait` that runs.
struct Waiting {
    gputop: ChildProcess,
}

impl Waiting {
    fn start(host: &Host, arguments: &[&str]) -> Self {
        let mut command = host.gputop(["wait"].iter().chain(arguments).copied());
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            gputop: ChildProcess::spawn(command),
        }
    }

    /// The PID of its agent.
    fn agent(&self) -> u32 {
        let mut agents = Vec::new();
        wait_until("gputop has an agent", || {
            agents = children_with_argument(self.gputop.pid(), "agent");
            !agents.is_empty()
        });
        agents[0]
    }

    /// Waits until the agent watches this number of processes. No process may be on a GPU: the
    /// agent may have a pidfd of such a process anyway.
    fn until_watching(&self, count: usize) {
        let folder = format!("/proc/{}/fd", self.agent());
        let pidfds = || {
            let files = fs::read_dir(&folder).into_iter().flatten();
            let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
            links
                .filter(|link| link.to_string_lossy().contains("pidfd"))
                .count()
        };
        wait_until("the agent watches the processes", || pidfds() >= count);
    }

    /// Returns the exit code, the standard output and the standard error.
    #[track_caller]
    fn end(mut self) -> (i32, String, String) {
        let code = exit_code(self.gputop.wait());
        let child = self.gputop.child();
        let read = |pipe: Option<&mut dyn Read>| {
            let mut text = String::new();
            pipe.expect("it is piped")
                .read_to_string(&mut text)
                .expect("a pipe can be read");
            text
        };
        let stdout = read(child.stdout.as_mut().map(|pipe| pipe as _));
        let stderr = read(child.stderr.as_mut().map(|pipe| pipe as _));
        (code, stdout, stderr)
    }

    #[track_caller]
    fn json(self) -> Value {
        let (code, stdout, stderr) = self.end();
        let value: Value =
            serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{code} {stdout}{stderr}"));
        assert_eq!(value["exit_code"], code, "{stdout}");
        value
    }
}

fn sleeper() -> ChildProcess {
    ChildProcess::spawn(Command::new("sleep").arg("1000"))
}

/// Waits until the agent has read the GPUs in several more passes.
fn several_passes(host: &Host) {
    let passes = || {
        let counts = fake_nvml::counts(host.path("counts")).unwrap_or_default();
        let calls = counts
            .iter()
            .filter(|(name, _)| name.starts_with("nvmlDeviceGetComputeRunningProcesses"));
        calls.map(|(_, calls)| *calls).max().unwrap_or_default()
    };
    let before = passes();
    wait_until("several passes", || passes() > before + 5);
}

#[test]
fn the_end_of_a_process_without_a_gpu_is_told_though_nobody_reaps_it() {
    let host = Host::new(["H100"]);
    let process = sleeper();
    let pid = process.pid().to_string();
    // No pass comes in between: the agent tells the end at once.
    let waiting = Waiting::start(&host, &[&pid, "--interval", "1h"]);
    waiting.until_watching(1);
    process.handle.kill();
    process.handle.wait_for_end();
    let expected = format!("{pid} (sleep) has ended\n");
    assert_eq!(waiting.end(), (HAPPENED, expected, String::new()));
    // It is a zombie now, and that has ended.
    let waiting = Waiting::start(&host, &[&pid]);
    assert_eq!(waiting.end().0, HAPPENED);
    drop(process);
    let (code, stdout, stderr) = Waiting::start(&host, &[&pid]).end();
    let expected =
        format!("gputop: no process has the PID {pid}: it has ended before, or never ran here\n");
    assert_eq!((code, stdout, stderr), (NOT_FOUND, String::new(), expected));
}

#[test]
fn several_processes_are_waited_for_all_or_until_the_first_ends() {
    let host = Host::new(["H100"]);
    let processes = [sleeper(), sleeper()];
    let pids = [0, 1].map(|place| processes[place].pid().to_string());
    let all = Waiting::start(&host, &[&pids[0], &pids[1], "--json"]);
    let any = Waiting::start(&host, &[&pids[0], &pids[1], "--any", "--json"]);
    all.until_watching(2);
    any.until_watching(2);
    processes[1].handle.kill();
    let first = any.json();
    assert_eq!(first["kind"], "process_ended");
    assert_eq!(first["processes"][0]["pid"], processes[1].pid());
    assert!(first["processes"][0]["start_ticks"].is_u64(), "{first}");
    assert_eq!(first["sentence"], format!("{} (sleep) has ended", pids[1]));
    assert!(all.gputop.handle.is_alive());
    processes[0].handle.kill();
    let both = all.json();
    assert_eq!(
        both["processes"].as_array().map(Vec::len),
        Some(2),
        "{both}"
    );
}

#[test]
fn the_end_of_a_process_on_a_gpu_names_its_command_and_its_gpu() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let arguments = [&pid.to_string(), "--leak", "--json", "--interval", "100ms"];
    let waiting = Waiting::start(&host, &arguments);
    several_passes(&host);
    host.process(pid).handle.kill();
    host.process(pid).wait();
    // It has ended without a leak.
    let value = waiting.json();
    assert_eq!(value["kind"], "process_ended");
    assert_eq!(value["exit_code"], HAPPENED);
    assert_eq!(value["sentence"], format!("{pid} (sleep 1000) has ended"));
    host.change(|world| {
        assert_eq!(value["gpu_uuids"], serde_json::json!([world.gpus[0].uuid]));
    });
}

#[test]
fn the_time_is_up_with_a_code_of_its_own_and_a_sentence_on_what_did_not_happen() {
    let mut host = Host::new(["H100"]);
    let on_gpu = host.start_sleep(0, GIB);
    let pid = on_gpu.to_string();
    let conditions = ["--free", "1", "--leak", "--full-within", "10m"];
    let times = ["--timeout", "1500ms", "--interval", "100ms"];
    let arguments: Vec<&str> = [pid.as_str()]
        .into_iter()
        .chain(conditions)
        .chain(times)
        .collect();
    let (code, stdout, stderr) = Waiting::start(&host, &arguments).end();
    let expected = format!(
        "the time of 1s 500ms is up: {pid} (sleep 1000) still runs; fewer than 1 GPU is free; nothing leaks; \
         no memory will be full within 10m\n"
    );
    assert_eq!((code, stdout, stderr), (TIMED_OUT, expected, String::new()));
    assert!(host.process(on_gpu).handle.is_alive());
}

#[test]
fn a_signal_ends_the_wait_and_its_agent_and_not_the_process() {
    let host = Host::new(["H100"]);
    let process = sleeper();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let waiting = Waiting::start(&host, &[&process.pid().to_string()]);
        waiting.until_watching(1);
        let agent = ProcessHandle::open(waiting.agent());
        waiting.gputop.handle.signal(signal);
        assert_eq!(waiting.end(), (code, String::new(), String::new()));
        agent.wait_for_end();
    }
    assert!(process.handle.is_alive());
}

#[test]
fn a_job_ends_with_its_last_process() {
    let mut host = Host::new(["H100", "H100"]);
    let ranks = [0, 1].map(|gpu| {
        let mut sleep = Command::new("sleep");
        let command = sleep.arg("1000").env("SLURM_JOB_ID", "8101");
        host.start(gpu, GIB, command).pid()
    });
    let arguments = ["--job", "8101", "--json", "--interval", "100ms"];
    let waiting = Waiting::start(&host, &arguments);
    several_passes(&host);
    host.process(ranks[0]).handle.kill();
    host.process(ranks[0]).wait();
    several_passes(&host);
    assert!(waiting.gputop.handle.is_alive(), "one rank is left");
    host.process(ranks[1]).handle.kill();
    host.process(ranks[1]).wait();
    let value = waiting.json();
    assert_eq!(value["kind"], "job_ended");
    let sentence = "job 8101 has ended: no process of it is left";
    assert_eq!(value["sentence"], sentence);
    let processes = value["processes"].as_array().expect("a list");
    let pids: Vec<u64> = processes
        .iter()
        .filter_map(|process| process["pid"].as_u64())
        .collect();
    assert!(
        ranks.iter().all(|pid| pids.contains(&u64::from(*pid))),
        "{value}"
    );
    let (code, _, stderr) = Waiting::start(&host, &arguments).end();
    assert_eq!(code, NOT_FOUND, "{stderr}");
    assert!(
        stderr.starts_with("gputop: no process of job 8101 is seen here: "),
        "{stderr}"
    );
}

#[test]
fn a_script_inside_of_a_job_can_wait_for_the_rest_of_it() {
    let mut host = Host::new(["H100"]);
    let script = format!(
        "sleep 1000 <{} >/dev/null & echo $!; read line; exec {} wait --job 8102 --interval 100ms --timeout 50s",
        host.path("nvidia0").display(),
        env!("CARGO_BIN_EXE_gputop")
    );
    let mut shell = Command::new("sh");
    host.set_environment(shell.args(["-c", &script]));
    shell.env("SLURM_JOB_ID", "8102").stdin(Stdio::piped());
    let mut job = ChildProcess::spawn(shell.stdout(Stdio::piped()));
    let mut byte = [0];
    let mut line = String::new();
    let mut output = job.child().stdout.take().expect("stdout is piped");
    while output.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    let worker = ProcessHandle::open(line.parse().expect("sh prints the PID"));
    host.add_process(0, fake_nvml::GpuProcess::new(worker.pid, GIB));
    drop(job.child().stdin.take());
    several_passes(&host);
    assert!(job.handle.is_alive(), "the worker is left");
    worker.kill();
    let mut text = String::new();
    output
        .read_to_string(&mut text)
        .expect("a pipe can be read");
    assert_eq!(text, "job 8102 has ended: no process of it is left\n");
    assert_eq!(exit_code(job.wait()), HAPPENED);
}

#[test]
fn gpus_are_free_when_their_processes_have_left_and_no_gputop_free_has_them() {
    let mut host = Host::idle(["H100", "H100"]);
    let pid = host.start_sleep(1, GIB);
    let arguments = ["--free", "2", "--json", "--interval", "100ms"];
    let waiting = Waiting::start(&host, &arguments);
    several_passes(&host);
    assert!(waiting.gputop.handle.is_alive(), "one GPU is in use");
    host.process(pid).handle.kill();
    host.process(pid).wait();
    let value = waiting.json();
    assert_eq!(value["kind"], "gpu_free");
    assert_eq!(value["sentence"], "GPUs 0,1 are free");
    assert_eq!(value["gpu_uuids"].as_array().map(Vec::len), Some(2));

    // It took no lock, and sees that of another.
    let mut command = host.gputop(["free", "-n", "2", "--", "sh", "-c", "echo; read line"]);
    let mut job = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let started = job.child().stdout.as_mut().expect("stdout is piped");
    started.read_exact(&mut [0]).expect("the job has its GPUs");
    let waiting = Waiting::start(&host, &["--free", "1", "-i", "1", "--interval", "100ms"]);
    several_passes(&host);
    assert!(waiting.gputop.handle.is_alive(), "the GPU is taken");
    drop(job.child().stdin.take());
    assert_eq!(waiting.end().1, "GPU 1 is free\n");
}

#[test]
fn a_leak_and_memory_that_is_full_soon_have_codes_of_their_own() {
    let recorder = Recorder::new();
    let path = recorder.record("leak.jsonl", 241, 10_000);
    let via = format!("box=cat {}", path.display());
    let cat = |condition: &[&str]| {
        let host = &recorder.host;
        let arguments = ["--json", "--via", &via].into_iter();
        let arguments: Vec<&str> = arguments.chain(condition.iter().copied()).collect();
        Waiting::start(host, &arguments).json()
    };
    let leak = cat(&["--leak"]);
    assert_eq!(leak["kind"], "leak", "{leak}");
    assert_eq!(leak["exit_code"], LEAK);
    let help = recorder.host.run(["wait", "--help"]).text();
    assert!(help.contains(&format!("{LEAK}  memory leaks")), "{help}");
    assert_eq!(leak["host"], "box");
    assert_eq!(leak["processes"][0]["pid"], recorder.pid);
    let sentence = leak["sentence"].as_str().expect("a sentence");
    let beginning = format!("box: {} (sleep 1000) leaks: +1.", recorder.pid);
    assert!(sentence.starts_with(&beginning), "{sentence}");
    assert!(leak["rate_bytes_per_s"].as_f64() > Some(1e7), "{leak}");
    let full = cat(&["--full-within", "2h"]);
    assert_eq!(full["kind"], "out_of_memory_soon", "{full}");
    assert_eq!(full["exit_code"], FULL_SOON);
    assert!(full["oom_in_s"].as_f64() <= Some(7200.0), "{full}");
    // The lines end before memory is full so soon.
    let arguments = ["--full-within", "1s", "--via", &via];
    let (code, stdout, stderr) = Waiting::start(&recorder.host, &arguments).end();
    assert_eq!((code, stdout.as_str()), (ERROR, ""), "{stderr}");
    assert!(
        stderr.starts_with("gputop: the wait is over, because box: "),
        "{stderr}"
    );
}

#[test]
fn a_host_without_a_driver_has_ends_and_nothing_else() {
    let mut host = Host::new(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(fake_nvml::Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED"));
    });
    for condition in [
        ["--free", "1"].as_slice(),
        &["--leak"],
        &["--full-within", "1h"],
    ] {
        let (code, stdout, stderr) = Waiting::start(&host, condition).end();
        assert_eq!((code, stdout.as_str()), (NO_DRIVER, ""), "{stderr}");
        assert!(stderr.contains("driver is not running"), "{stderr}");
    }
    let process = sleeper();
    let waiting = Waiting::start(&host, &[&process.pid().to_string()]);
    waiting.until_watching(1);
    process.handle.kill();
    assert_eq!(waiting.end().0, HAPPENED);
}

#[test]
fn a_driver_that_hangs_delays_no_end() {
    let mut host = Host::new(["H100"]);
    host.change(|world| world.faults.push(fake_nvml::Fault::hang("nvmlInit_v2")));
    let process = sleeper();
    let waiting = Waiting::start(&host, &[&process.pid().to_string()]);
    waiting.until_watching(1);
    process.handle.kill();
    assert_eq!(waiting.end().0, HAPPENED);
}

#[test]
fn a_lost_agent_ends_the_wait_with_an_error() {
    let host = Host::new(["H100"]);
    let process = sleeper();
    let waiting = Waiting::start(&host, &[&process.pid().to_string()]);
    waiting.until_watching(1);
    ProcessHandle::open(waiting.agent()).kill();
    let (code, stdout, stderr) = waiting.end();
    assert_eq!((code, stdout.as_str()), (ERROR, ""), "{stderr}");
    assert!(
        stderr.starts_with("gputop: the wait is over, because "),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_process_and_a_job_of_another_host_are_waited_for() {
    let (near, mut far) = (Host::new(["H100"]), Host::new(["H100"]));
    let mut sleep = Command::new("sleep");
    let command = sleep.arg("1000").env("SLURM_JOB_ID", "8103");
    let pid = far.start(0, GIB, command).pid();
    let via = format!("box={}", agent_of(&far));
    let process = Waiting::start(&near, &[&pid.to_string(), "--via", &via]);
    let job = Waiting::start(&near, &["--job", "8103", "--via", &via, "--local"]);
    several_passes(&far);
    several_passes(&far);
    far.process(pid).handle.kill();
    far.process(pid).wait();
    let (code, stdout, stderr) = process.end();
    let expected = format!("box: {pid} (sleep 1000) has ended\n");
    assert_eq!((code, stdout), (HAPPENED, expected), "{stderr}");
    let (code, stdout, stderr) = job.end();
    let expected = "job 8103 has ended: no process of it is left\n";
    assert_eq!((code, stdout.as_str()), (HAPPENED, expected), "{stderr}");
}

#[test]
fn what_can_never_happen_is_refused_at_once() {
    let mut host = Host::new(["H100", "H100"]);
    host.start_sleep(0, GIB);
    for (arguments, code, reason) in [
        (
            ["--free", "3"].as_slice(),
            NONE_FREE,
            "this host has 2 of the 3 GPUs that are wanted",
        ),
        (
            &["--free", "1", "-i", "7"],
            NOT_FOUND,
            "no such GPU here: 7",
        ),
        (&[], USAGE, "required arguments were not provided"),
        (&["1", "-i", "1"], USAGE, "--free <COUNT>"),
        (&["1", "--all"], USAGE, "cannot be used with '--all'"),
        (
            &["--free", "1", "--all"],
            USAGE,
            "--all says whose leaks count",
        ),
        (&["--any", "--leak"], USAGE, "PID"),
        (
            &["1", "--local", "--via", "true"],
            USAGE,
            "a PID is that of one host",
        ),
        (&["--full-within", "0s"], USAGE, "must be more than 0"),
        (&["python"], USAGE, "invalid value 'python'"),
    ] {
        let output = run(&mut host.gputop(["wait"].iter().chain(arguments).copied()));
        assert_eq!(
            (output.code, output.text().as_str()),
            (code, ""),
            "{arguments:?}: {}",
            output.stderr
        );
        assert!(
            output.stderr.contains(reason),
            "{arguments:?}: {}",
            output.stderr
        );
    }
}
