//! A host with hundreds of processes on its GPUs, most of which wait.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use fake_nvml::Tenant;
use gputop::protocol::snapshot::{Process, Snapshot, State};
use rustix::process::Signal;

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, ProcessHandle};

/// More than so many are not all read each time.
const MANY: usize = 300;

/// Says their PIDs, and ends with each of them when its parent does.
const CROWD: &str = "import ctypes, os, signal, sys
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        while True:
            signal.pause()
    print(pid, flush=True)
signal.pause()
";

/// How often a process has read something.
fn reads(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("it is ours");
    let reads = io.lines().find_map(|line| line.strip_prefix("syscr: ")).expect("Linux counts them");
    reads.parse().expect("a number")
}

fn find(snapshot: &Snapshot, pid: u32) -> Option<&Process> {
    snapshot.processes.iter().find(|it| it.id.pid == pid)
}

#[test]
fn of_hundreds_of_sleeping_processes_few_are_read_per_pass_and_changes_are_seen_soon() {
    let mut host = Host::new(["H100"; 8]);
    let mut command = Command::new("python3");
    command.args(["-c", CROWD, &MANY.to_string()]).stdin(host.open_device(0)).stdout(Stdio::piped());
    let mut parent = ChildProcess::spawn(&mut command);
    let out = BufReader::new(parent.child().stdout.take().expect("stdout is piped"));
    let pids: Vec<u32> = out.lines().take(MANY).map(|it| it.expect("UTF-8").parse().expect("a PID")).collect();
    host.change(|world| {
        for (pid, gpu) in pids.iter().zip((0..8).cycle()) {
            world.gpus[gpu].tenants.push(Tenant::new(*pid, GIB));
        }
    });
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "all of them", |it| pids.iter().all(|pid| find(it, *pid).is_some()));

    // Once it is known that they wait, not even every second one is read for a line.
    let mut rounds = 0..30;
    let mut before = reads(agent.pid());
    loop {
        for _ in 0..8 {
            received.apply(agent.next_line());
        }
        let now = reads(agent.pid());
        let of_a_line = (now - std::mem::replace(&mut before, now)) / 8;
        if of_a_line < MANY as u64 / 2 {
            break;
        }
        assert!(rounds.next().is_some(), "{of_a_line} reads for a line");
    }

    // What becomes of one shows all the same, a few lines later.
    let state = |received: &ReceivedLines, pid| find(received.snapshot.as_ref()?, pid).map(|it| it.load.state);
    for pid in [pids[0], pids[1], pids[2], pids[3]] {
        ProcessHandle::open(pid).signal(Signal::STOP);
        let mut lines = 0;
        while state(&received, pid) != Some(Ok(State::Stopped)) {
            received.apply(agent.next_line());
            lines += 1;
            // Some may have been written before the signal.
            assert!(lines < 120, "{pid} is {:?}", state(&received, pid));
        }
    }
    ProcessHandle::open(pids[4]).signal(Signal::KILL);
    received.read_until(&agent, "the end of one", |it| it.gpus[4].processes.iter().all(|it| it.process.pid != pids[4]));
}
