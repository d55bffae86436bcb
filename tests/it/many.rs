//! A host with hundreds of processes on its GPUs, most of which sleep.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Command, Stdio};

use fake_nvml::GpuProcess;
use gputop::protocol::snapshot::{Process, Snapshot, State};
use rustix::process::Signal;
use serde_json::json as value;

use crate::agent::{Agent, ReceivedLines};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, ProcessHandle};
use crate::terminal::{DOWN, Terminal};

/// The number of processes, more than the 256 up to which the agent reads all of them in each pass.
const PROCESSES: usize = 300;

/// A Python program that starts processes and prints their PIDs. They end with their parent.
const PROGRAM: &str = "import ctypes, os, signal, sys
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        while True:
            signal.pause()
    print(pid, flush=True)
signal.pause()
";

/// The number of read system calls of a process.
fn read_calls(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("the process is ours");
    let reads = io
        .lines()
        .find_map(|line| line.strip_prefix("syscr: "))
        .expect("Linux counts reads");
    reads.parse().expect("a number")
}

fn find(snapshot: &Snapshot, pid: u32) -> Option<&Process> {
    snapshot
        .processes
        .iter()
        .find(|process| process.id.pid == pid)
}

#[test]
fn of_hundreds_of_sleeping_processes_few_are_read_per_pass_and_changes_are_seen_soon() {
    let mut host = Host::new(["H100"; 8]);
    let mut command = Command::new("python3");
    command
        .args(["-c", PROGRAM, &PROCESSES.to_string()])
        .stdin(host.open_device(0))
        .stdout(Stdio::piped());
    let mut parent = ChildProcess::spawn(&mut command);
    let out = BufReader::new(parent.child().stdout.take().expect("stdout is piped"));
    let pids: Vec<u32> = out
        .lines()
        .take(PROCESSES)
        .map(|line| line.expect("UTF-8").parse().expect("a PID"))
        .collect();
    host.change(|world| {
        for (pid, gpu) in pids.iter().zip((0..8).cycle()) {
            world.gpus[gpu].processes.push(GpuProcess::new(*pid, GIB));
        }
    });
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "all processes", |snapshot| {
        pids.iter().all(|pid| find(snapshot, *pid).is_some())
    });

    // Once the agent knows that they sleep, it reads less than half of them per line.
    let mut rounds = 0..30;
    let mut before = read_calls(agent.pid());
    loop {
        for _ in 0..8 {
            received.apply(agent.next_line());
        }
        let now = read_calls(agent.pid());
        let reads_per_line = (now - std::mem::replace(&mut before, now)) / 8;
        if reads_per_line < PROCESSES as u64 / 2 {
            break;
        }
        assert!(rounds.next().is_some(), "{reads_per_line} reads per line");
    }

    // A change of state is seen some lines later.
    let state = |received: &ReceivedLines, pid| {
        find(received.snapshot.as_ref()?, pid).map(|process| process.load.state)
    };
    for pid in [pids[0], pids[1], pids[2], pids[3]] {
        ProcessHandle::open(pid).signal(Signal::STOP);
        let mut lines = 0;
        while state(&received, pid) != Some(Ok(State::Stopped)) {
            received.apply(agent.next_line());
            lines += 1;
            // Some lines may have been written before the signal.
            assert!(lines < 120, "{pid} is {:?}", state(&received, pid));
        }
    }
    ProcessHandle::open(pids[4]).signal(Signal::KILL);
    received.read_until(&agent, "the end of a process", |snapshot| {
        snapshot.gpus[4]
            .processes
            .iter()
            .all(|gpu_process| gpu_process.process.pid != pids[4])
    });
}

#[test]
fn of_thousands_of_processes_those_with_the_most_memory_are_listed_and_the_others_are_counted() {
    let mut host = Host::new(["H100"; 2]);
    host.change(|world| {
        let processes =
            |pids: Range<u32>, memory| pids.map(|pid| GpuProcess::fictional(pid, memory)).collect();
        world.gpus[0].processes = processes(100_000..100_200, 1 << 20);
        world.gpus[1].processes = processes(110_000..112_100, 2 << 20);
    });
    let output = host.run(["--once", "--timeout", "1m"]);
    assert!(
        output
            .text()
            .contains("252 more GPU processes are not listed, those with the least memory"),
        "{}",
        output.text()
    );
    let report = json(&host.run(["--json", "--timeout", "1m"]));
    let count = |gpu: usize| {
        let gpu = &report["gpus"][gpu];
        let processes = gpu["processes"].as_array();
        processes.unwrap_or_else(|| panic!("{gpu:#}")).len()
    };
    assert_eq!((count(0), count(1)), (0, 2048));
    let health = |gpu: usize| &report["gpus"][gpu]["health"];
    assert_eq!(
        (
            &health(0)["omitted_processes"],
            &health(1)["omitted_processes"]
        ),
        (&value!(200), &value!(52))
    );
    assert_eq!(
        health(1)["omitted_process_memory_bytes"],
        value!(52_u64 << 21)
    );
    let mut terminal = Terminal::start_at(&host, 120, 40, ["--interval", "1s"]);
    terminal.wait_for("252 more GPU processes are not listed");
    terminal.keys(DOWN);
    terminal.quit();
}
