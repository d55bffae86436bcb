//! The GPUs that `gputop free` prints.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, ProcessHandle, exit_code, run, wait_until};

const NONE_FREE: i32 = 11;
const NO_SUCH_GPU: i32 = 6;
/// With this output, `env $(gputop free) python train.py` uses no GPU. With none, it would use all of them.
const NO_GPU: &[u8] = b"CUDA_VISIBLE_DEVICES=\n";

/// Returns the printed UUIDs.
#[track_caller]
fn printed_uuids(output: &Output) -> Vec<String> {
    let text = output.text();
    let uuids = text.strip_prefix("CUDA_VISIBLE_DEVICES=").and_then(|text| text.strip_suffix('\n'));
    let uuids = uuids.unwrap_or_else(|| panic!("{text:?} {}", output.stderr));
    uuids.split(',').map(str::to_owned).collect()
}

fn uuid(host: &mut Host, gpu: usize) -> String {
    let mut uuid = String::new();
    host.change(|world| uuid.clone_from(&world.gpus[gpu].uuid));
    uuid
}

/// Four idle GPUs, with a process on the first and on the third.
fn four_gpus() -> Host {
    let mut host = Host::new(["H100"; 4]);
    host.change(|world| {
        for gpu in &mut world.gpus {
            gpu.utilization.gpu = Some(0);
        }
    });
    host.start_sleep(0, 70 * GIB);
    host.start_sleep(2, 10 * GIB);
    host
}

#[test]
fn gpus_without_processes_are_free() {
    let mut host = four_gpus();
    let output = host.run(["free", "-n", "2"]);
    assert_eq!((output.code, printed_uuids(&output)), (0, vec![uuid(&mut host, 1), uuid(&mut host, 3)]));
    let output = host.run(["free", "-n", "3"]);
    assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, NO_GPU));
    assert!(output.stderr.contains("2 of the 3 GPUs"), "{}", output.stderr);
    assert!(output.stderr.contains("GPU 0 has 1 process on it with 70.0 GiB"), "{}", output.stderr);
}

#[test]
fn only_gpus_with_the_given_ids_are_taken() {
    let mut host = four_gpus();
    let last = uuid(&mut host, 3);
    for ids in ["3", "0,3", &last] {
        let output = host.run(["free", "-i", ids]);
        assert_eq!((output.code, printed_uuids(&output)), (0, vec![last.clone()]), "{ids}: {}", output.stderr);
    }
    for (arguments, code, reason) in [
        (["-i", "0"].as_slice(), NONE_FREE, "no GPU is free: GPU 0 has 1 process on it with 70.0 GiB\n"),
        (&["-i", "1", "-n", "2"], NONE_FREE, "this host has 1 of the 2 GPUs that are wanted\n"),
        (&["-i", "1,9"], NO_SUCH_GPU, "no such GPU here: 9\n"),
    ] {
        let output = host.run(["free"].iter().chain(arguments).copied());
        assert_eq!((output.code, output.stdout.as_slice()), (code, NO_GPU), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stderr, format!("gputop: {reason}"));
    }
}

#[test]
fn a_gpu_with_unaccounted_memory_is_not_free() {
    let mut host = four_gpus();
    host.change(|world| world.gpus[1].memory.unaccounted = 5 * GIB);
    let output = host.run(["free"]);
    assert_eq!((output.code, printed_uuids(&output)), (0, vec![uuid(&mut host, 3)]));
}

#[test]
fn with_memory_other_processes_do_not_matter() {
    let mut host = four_gpus();
    let output = host.run(["free", "-n", "3", "--memory", "20GiB"]);
    // The most free memory comes first.
    assert_eq!((output.code, printed_uuids(&output)), (0, [1, 3, 2].map(|gpu| uuid(&mut host, gpu)).to_vec()));
    let output = host.run(["free", "--memory", "20 parsec"]);
    assert!(output.code == 2 && output.stderr.contains("no unit of memory"), "{}", output.stderr);
}

#[test]
fn a_busy_gpu_is_not_idle() {
    let mut host = four_gpus();
    host.change(|world| {
        world.gpus[1].utilization.gpu = Some(3);
        world.gpus[3].utilization.gpu = None;
    });
    let output = host.run(["free", "--interval", "100ms", "--idle", "300ms"]);
    assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, NO_GPU));
    assert!(
        output.stderr.contains("GPU 1 is busy (3%)") && output.stderr.contains("GPU 3 does not report"),
        "{}",
        output.stderr
    );
    host.change(|world| world.gpus[1].utilization.gpu = Some(0));
    let output = host.run(["free", "--interval", "100ms", "--idle", "300ms"]);
    assert_eq!((output.code, printed_uuids(&output)), (0, vec![uuid(&mut host, 1)]));
}

#[test]
fn wait_waits_for_a_free_gpu() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut command = host.gputop(["free", "--wait", "--interval", "100ms"]);
    let mut waiting = ChildProcess::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    // Until the agent has read the GPU in several passes.
    let has_read = || {
        let counts = fake_nvml::counts(host.path("counts")).unwrap_or_default();
        counts.get("nvmlDeviceGetMemoryInfo_v2").is_some_and(|calls| *calls > 5)
    };
    wait_until("several passes", has_read);
    host.process(pid).child().kill().expect("the process is our child");
    host.process(pid).wait();
    assert_eq!(exit_code(waiting.wait()), 0);
    let mut text = String::new();
    let out = waiting.child().stdout.as_mut().expect("stdout is piped");
    out.read_to_string(&mut text).expect("a pipe can be read");
    assert_eq!(text, format!("CUDA_VISIBLE_DEVICES={}\n", uuid(&mut host, 0)));
}

#[test]
fn without_a_driver_no_gpu_is_free() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| world.faults.push(fake_nvml::Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED")));
    let output = host.run(["free"]);
    assert_eq!(output.stdout, NO_GPU);
    assert!(output.code == 3 && output.stderr.contains("driver is not running"), "{} {}", output.code, output.stderr);
}

#[test]
fn a_command_runs_on_the_free_gpus_and_its_exit_code_is_the_result() {
    let mut host = four_gpus();
    let script = "echo $CUDA_VISIBLE_DEVICES; cat /proc/$$/task/$$/children; exit 7";
    let output = host.run(["free", "-n", "2", "--", "sh", "-c", script]);
    // The command has no child that it did not start, such as the agent.
    let expected = format!("{},{}\n", uuid(&mut host, 1), uuid(&mut host, 3));
    let text = output.text();
    let (line, children) = text.split_once('\n').expect("sh printed a line");
    assert_eq!((output.code, format!("{line}\n"), output.stderr.as_str()), (7, expected, ""));
    assert_eq!(children.split_whitespace().count(), 1, "only cat: {children:?}");
    let output = host.run(["free", "--", "/nowhere/python", "train.py"]);
    assert_eq!((output.code, output.text().as_str()), (127, ""));
    assert!(output.stderr.contains("cannot run /nowhere/python"), "{}", output.stderr);
}

#[test]
fn without_enough_gpus_the_command_does_not_run_and_a_script_gets_no_gpu() {
    let host = four_gpus();
    let output = host.run(["free", "-n", "3", "--", "echo", "trains"]);
    assert_eq!((output.code, output.text().as_str()), (NONE_FREE, ""));
    assert!(output.stderr.contains("2 of the 3 GPUs"), "{}", output.stderr);
    for arguments in ["-n 3", "-n two", "--nvml-lib /nowhere/libnvidia-ml.so.1"] {
        let line =
            format!("env $({} free {arguments}) sh -c 'echo [$CUDA_VISIBLE_DEVICES]'", env!("CARGO_BIN_EXE_gputop"));
        let output =
            run(host.set_environment(&mut Command::new("sh")).env("CUDA_VISIBLE_DEVICES", "0").args(["-c", &line]));
        assert_eq!(output.text(), "[]\n", "{arguments}: {}", output.stderr);
    }
}

#[test]
fn more_gpus_than_the_host_has_are_never_waited_for() {
    let host = four_gpus();
    for arguments in [["-n", "5"], ["--memory", "200GiB"]] {
        let output = host.run(["free", "--wait"].iter().chain(&arguments).copied());
        assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, NO_GPU), "{}", output.stderr);
        assert!(output.stderr.contains("this host has "), "{}", output.stderr);
    }
}

#[test]
fn a_gpu_stays_taken_until_the_command_and_its_children_have_ended() {
    let mut host = four_gpus();
    // The child keeps the lock after the command has ended. No memory shows up.
    let script = "sleep 1000 >/dev/null & echo $!; read line";
    let mut command = host.gputop(["free", "--", "sh", "-c", script]);
    let mut job = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(job.child().stdout.take().expect("stdout is piped"))
        .read_line(&mut line)
        .expect("a pipe can be read");
    let child = ProcessHandle::open(line.trim().parse().expect("sh prints the PID"));
    let other = uuid(&mut host, 3);
    assert_eq!(printed_uuids(&host.run(["free"])), [other.as_str()]);
    drop(job.child().stdin.take());
    assert_eq!(exit_code(job.wait()), 1);
    let output = host.run(["free", "-n", "2"]);
    assert_eq!(output.code, NONE_FREE, "{}", output.text());
    assert!(output.stderr.contains("GPU 1 is taken by another gputop free"), "{}", output.stderr);
    child.kill();
    child.wait_for_end();
    assert_eq!(printed_uuids(&host.run(["free", "-n", "2"])), [uuid(&mut host, 1), other]);
}

#[test]
fn without_a_folder_for_locks_the_command_runs_and_the_user_is_told() {
    let host = four_gpus();
    let mut command = host.gputop(["free", "--", "echo", "trains"]);
    fs::write(host.path("nvidia-locks"), "").expect("/tmp has room");
    let output = run(&mut command);
    assert_eq!((output.code, output.text().as_str()), (0, "trains\n"), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("another gputop free may choose the same"), "{}", output.stderr);
}

#[test]
fn sessions_with_other_variables_have_the_same_locks() {
    let mut host = four_gpus();
    // The folder of the locks is that of all hosts.
    let uuids = [1, 3].map(|gpu| format!("GPU-gputop-test-{}-{gpu}", std::process::id()));
    host.change(|world| (world.gpus[1].uuid, world.gpus[3].uuid) = uuids.clone().into());
    let mut command = host.gputop(["free", "--", "sh", "-c", "echo; read line"]);
    command.env_remove("GPUTOP_DEVICES").env("XDG_RUNTIME_DIR", host.path("")).env("TMPDIR", host.path(""));
    let mut job = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let started = job.child().stdout.as_mut().expect("stdout is piped").read_exact(&mut [0]);
    started.expect("the job has its GPU");
    let output = run(host.gputop(["free"]).env_remove("GPUTOP_DEVICES"));
    assert_eq!(printed_uuids(&output), [uuids[1].as_str()], "{}", output.stderr);
    for uuid in uuids {
        let folder = format!("/tmp/gputop-{}", rustix::process::geteuid().as_raw());
        fs::remove_file(format!("{folder}/{uuid}.lock")).expect("both GPUs were locked");
    }
}
