//! `gputop orphans` on processes that it cannot see or judge, and on a host where all is well.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use fake_nvml::GpuProcess;
use gputop::protocol::snapshot::Snapshot;

use crate::agent::{Agent, ReceivedLines};
use crate::cli::json;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::{ChildProcess, run};

/// The exit code of a report that could not see everything.
const NOT_COMPLETE: i32 = 5;

#[test]
fn a_hidden_process_on_a_gpu_makes_the_report_incomplete_unless_only_mine_are_asked_for() {
    let mut host = Host::new(["H100"]);
    let gputop = host.open_to_other_users();
    let pid = host.start_sleep(0, GIB);
    // A user without privileges, in a mount namespace whose /proc hides the processes of others.
    let script = "mount -t proc -o hidepid=2 proc /proc || exit 77; exec setpriv --reuid 12345 --regid 12345 --clear-groups \"$@\"";
    for (args, code) in [
        (&["orphans", "--json"][..], NOT_COMPLETE),
        (&["orphans", "--json", "--user", "me"], 0),
    ] {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(&gputop)
            .args(args);
        let output = run(host.set_environment(&mut command));
        if matches!(output.code, 1 | 77 | 126 | 127) {
            return print_note(format_args!(
                "skipped: only root can mount: {}",
                output.stderr
            ));
        }
        let report = json(&output);
        assert_eq!(output.code, code, "{report:#}{}", output.stderr);
        let hidden = report["hidden"].as_array().expect("a list");
        if code == 0 {
            assert!(hidden.is_empty(), "{report:#}");
        } else {
            assert_eq!(
                (&hidden[0]["pid"], hidden.len()),
                (&pid.into(), 1),
                "{report:#}"
            );
            assert_eq!(hidden[0]["memory_used_bytes"], GIB);
        }
    }
}

/// A process with the device files of a GPU and of CUDA open, as a program of CUDA has them. It maps
/// the files that are its further arguments, and has no parent that waits for it.
const WITH_LIBRARIES: &str = "
import mmap, sys, time
files = [open(path) for path in sys.argv[1:]]
mapped = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files[2:]]
print('ready', flush=True)
time.sleep(1000)
";

/// NVML of driver 580 opens `/dev/nvidia-uvm` and loads `libcuda.so`: on a real H100, other monitors
/// were listed as holders of the GPU's memory.
#[test]
fn a_monitor_that_has_the_file_of_cuda_open_holds_no_memory() {
    let host = Host::new(["H100-580"]);
    let libraries = ["libnvidia-ml.so.580.159.04", "libcuda.so.580.159.04"];
    for file in libraries.into_iter().chain(["nvidia0"]) {
        std::fs::write(host.path(file), "not empty, so that it can be mapped")
            .expect("/tmp has room");
    }
    let start = |mapped: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", WITH_LIBRARIES]);
        command.args([host.path("nvidia0"), host.path("nvidia-uvm")]);
        command.args(mapped.iter().map(|file| host.path(file)));
        let mut process = ChildProcess::spawn(command.stdout(Stdio::piped()));
        let output = process.child().stdout.take().expect("the output is piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        assert_eq!((read.ok(), line.as_str()), (Some(6), "ready\n"));
        process
    };
    let _monitor = start(&libraries);
    let [nvml, cuda] = libraries;
    let (trainer, worker) = (start(&[nvml, cuda, "nvidia0"]), start(&[]));
    let agent = Agent::start(&host);
    let mut lines = ReceivedLines::default();
    let holders = |snapshot: &Snapshot| -> Vec<u32> {
        let holders = snapshot.gpus[0].device_file_holders.iter();
        holders.map(|id| id.pid).collect()
    };
    let mut expected = [trainer.pid(), worker.pid()];
    expected.sort_unstable();
    lines.read_until(&agent, "without the monitor", |snapshot| {
        holders(snapshot) == expected
    });
    // A single look waits until it knows.
    for _ in 0..5 {
        let look = json(&host.run(["--json", "--timeout", "20s"]));
        let seen: Snapshot = serde_json::from_value(look).expect("a snapshot");
        assert_eq!(holders(&seen), expected);
    }
}

#[test]
fn twenty_reports_on_a_busy_host_where_all_is_well_find_nothing_and_miss_nothing() {
    const SLEEPER: &str = "import time; time.sleep(1000)";
    let mut host = Host::with_jitter(["H100"; 2]);
    // One computes, one waits for a disk, and two sleep.
    let pids = [
        (0, "while True: sum(range(10000))"),
        (1, WRITER),
        (0, SLEEPER),
        (1, SLEEPER),
    ]
    .map(|(gpu, program)| {
        let file = host.path("file");
        let mut command = Command::new("python3");
        let process = host.start(gpu, 11 * GIB, command.args(["-c", program]).arg(file));
        process.pid()
    });
    // Others end one after the other.
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "for time in $(seq 0.25 0.25 20); do sleep $time & echo $!; done; wait",
    ]);
    let mut shell = ChildProcess::spawn(shell.stdin(host.open_device(0)).stdout(Stdio::piped()));
    let output = BufReader::new(shell.child().stdout.take().expect("the output is piped"));
    for line in output.lines().take(80) {
        let pid = line.expect("the output is UTF-8").parse().expect("a PID");
        host.add_process(0, GpuProcess::new(pid, GIB));
    }
    for _ in 0..20 {
        let output = host.run(["orphans", "--json", "-i", "0,1", "--timeout", "20s"]);
        let report = json(&output);
        let all_pids = ["processes", "hidden", "unreadable", "undecided", "hung"].map(|list| {
            let processes = report[list].as_array().into_iter().flatten();
            processes
                .map(|process| process["pid"].clone())
                .collect::<Vec<_>>()
        });
        // A busy disk may take a second: then one more reading could show that the process is stuck.
        let is_waiting = all_pids.concat() == [pids[1]] && all_pids[3].len() == 1;
        let expected = if is_waiting { NOT_COMPLETE } else { 0 };
        assert_eq!(output.code, expected, "{report:#}{}", output.stderr);
    }
}

/// A program that computes and writes to a disk in turn, and waits for the disk.
const WRITER: &str = "
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, str(sum(range(1000000))).encode(), 0)
    os.fsync(file)
";
