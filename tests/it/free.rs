//! The GPUs that `gputop free` prints.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use fake_nvml::RemappedRows;

use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, ProcessHandle, exit_code, run, wait_until};

const NONE_FREE: i32 = 11;
const NO_SUCH_GPU: i32 = 6;
/// With this output, `env $(gputop free) python train.py` uses no GPU. With none, it would use all
/// of them.
const NO_GPU: &[u8] = b"CUDA_VISIBLE_DEVICES=\n";

/// Returns the printed GPUs, as in `0,3`.
#[track_caller]
fn printed(output: &Output) -> String {
    let text = output.text();
    let gpus = text.strip_prefix("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=");
    gpus.and_then(|gpus| gpus.strip_suffix('\n'))
        .unwrap_or_else(|| panic!("{text:?} {}", output.stderr))
        .to_owned()
}

/// Runs `gputop free` with a value of `CUDA_VISIBLE_DEVICES`.
fn free_within(host: &Host, visible: &str, arguments: &[&str]) -> Output {
    let mut command = host.gputop(["free"].iter().chain(arguments).copied());
    run(command.env("CUDA_VISIBLE_DEVICES", visible))
}

fn uuid(host: &mut Host, gpu: usize) -> String {
    let mut uuid = String::new();
    host.change(|world| uuid.clone_from(&world.gpus[gpu].uuid));
    uuid
}

/// Four idle GPUs, with a process on the first and on the third.
fn four_gpus() -> Host {
    let mut host = Host::idle(["H100"; 4]);
    host.start_sleep(0, 70 * GIB);
    host.start_sleep(2, 10 * GIB);
    host
}

#[test]
fn gpus_without_processes_are_free() {
    let host = four_gpus();
    let output = host.run(["free", "-n", "2"]);
    assert_eq!((output.code, printed(&output)), (0, "1,3".to_owned()));
    let output = host.run(["free", "-n", "3"]);
    assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, NO_GPU));
    assert!(
        output.stderr.contains("2 of the 3 GPUs"),
        "{}",
        output.stderr
    );
    assert!(
        output
            .stderr
            .contains("GPU 0 has 1 process on it with 70.0 GiB"),
        "{}",
        output.stderr
    );
}

#[test]
fn gpus_with_errors_of_the_hardware_are_not_free() {
    let mut host = four_gpus();
    host.change(|world| {
        world.gpus[1].recovery_action = Some(2);
        world.gpus[3].remapped_rows = Some(RemappedRows {
            failed: true,
            ..RemappedRows::default()
        });
    });
    for arguments in [&["free"][..], &["free", "--memory", "1GiB", "-i", "1,3"]] {
        let output = host.run(arguments.iter().copied());
        assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, NO_GPU));
        for words in [
            "GPU 1 has an error of the hardware (reboot the host)",
            "GPU 3 has an error of the hardware (row remap failed: ",
        ] {
            assert!(output.stderr.contains(words), "{}", output.stderr);
        }
    }
}

#[test]
fn only_gpus_with_the_given_ids_are_taken() {
    let mut host = four_gpus();
    let last = uuid(&mut host, 3);
    for ids in ["3", "0,3", &last] {
        let output = host.run(["free", "-i", ids]);
        assert_eq!(
            (output.code, printed(&output)),
            (0, "3".to_owned()),
            "{ids}: {}",
            output.stderr
        );
    }
    for (arguments, code, reason) in [
        (
            ["-i", "0"].as_slice(),
            NONE_FREE,
            "no GPU is free: GPU 0 has 1 process on it with 70.0 GiB\n",
        ),
        (
            &["-i", "1", "-n", "2"],
            NONE_FREE,
            "this host has 1 of the 2 GPUs that are wanted\n",
        ),
        (&["-i", "1,9"], NO_SUCH_GPU, "no such GPU here: 9\n"),
    ] {
        let output = host.run(["free"].iter().chain(arguments).copied());
        assert_eq!(
            (output.code, output.stdout.as_slice()),
            (code, NO_GPU),
            "{arguments:?}: {}",
            output.stderr
        );
        assert_eq!(output.stderr, format!("gputop: {reason}"));
    }
}

#[test]
fn a_gpu_with_unaccounted_memory_is_not_free() {
    let mut host = four_gpus();
    host.change(|world| world.gpus[1].memory.unaccounted = 5 * GIB);
    let output = host.run(["free"]);
    assert_eq!((output.code, printed(&output)), (0, "3".to_owned()));
}

#[test]
fn with_memory_other_processes_do_not_matter() {
    let host = four_gpus();
    let output = host.run(["free", "-n", "3", "--memory", "20GiB"]);
    // The most free memory comes first.
    assert_eq!((output.code, printed(&output)), (0, "1,3,2".to_owned()));
    let output = host.run(["free", "--memory", "20 parsec"]);
    assert!(
        output.code == 2 && output.stderr.contains("no unit of memory"),
        "{}",
        output.stderr
    );
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
        output.stderr.contains("GPU 1 is busy (3%)")
            && output.stderr.contains("GPU 3 does not report"),
        "{}",
        output.stderr
    );
    host.change(|world| world.gpus[1].utilization.gpu = Some(0));
    let output = host.run(["free", "--interval", "100ms", "--idle", "300ms"]);
    assert_eq!((output.code, printed(&output)), (0, "1".to_owned()));
}

#[test]
fn wait_waits_for_a_free_gpu() {
    let mut host = Host::idle(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut command = host.gputop(["free", "--wait", "--interval", "100ms"]);
    let mut waiting = ChildProcess::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    // Until the agent has read the GPU in several passes.
    let has_read = || {
        let counts = fake_nvml::counts(host.path("counts")).unwrap_or_default();
        counts
            .get("nvmlDeviceGetMemoryInfo_v2")
            .is_some_and(|calls| *calls > 5)
    };
    wait_until("several passes", has_read);
    host.process(pid)
        .child()
        .kill()
        .expect("the process is our child");
    host.process(pid).wait();
    assert_eq!(exit_code(waiting.wait()), 0);
    let mut text = String::new();
    let out = waiting.child().stdout.as_mut().expect("stdout is piped");
    out.read_to_string(&mut text).expect("a pipe can be read");
    assert_eq!(
        text,
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0\n"
    );
}

#[test]
fn without_a_driver_no_gpu_is_free() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| {
        world
            .faults
            .push(fake_nvml::Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED"));
    });
    let output = host.run(["free"]);
    assert_eq!(output.stdout, NO_GPU);
    assert!(
        output.code == 3 && output.stderr.contains("driver is not running"),
        "{} {}",
        output.code,
        output.stderr
    );
}

#[test]
fn a_command_runs_on_the_free_gpus_and_its_exit_code_is_the_result() {
    let host = four_gpus();
    let script =
        "echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES; cat /proc/$$/task/$$/children; exit 7";
    let output = host.run(["free", "-n", "2", "--", "sh", "-c", script]);
    // The command has no child that it did not start, such as the agent.
    let expected = "PCI_BUS_ID 1,3\n".to_owned();
    let text = output.text();
    let (line, children) = text.split_once('\n').expect("sh printed a line");
    assert_eq!(
        (output.code, format!("{line}\n"), output.stderr.as_str()),
        (7, expected, "")
    );
    assert_eq!(
        children.split_whitespace().count(),
        1,
        "only cat: {children:?}"
    );
    let output = host.run(["free", "--", "/nowhere/python", "train.py"]);
    assert_eq!((output.code, output.text().as_str()), (127, ""));
    assert!(
        output.stderr.contains("cannot run /nowhere/python"),
        "{}",
        output.stderr
    );
}

#[test]
fn without_enough_gpus_the_command_does_not_run_and_a_script_gets_no_gpu() {
    let host = four_gpus();
    let output = host.run(["free", "-n", "3", "--", "echo", "trains"]);
    assert_eq!((output.code, output.text().as_str()), (NONE_FREE, ""));
    assert!(
        output.stderr.contains("2 of the 3 GPUs"),
        "{}",
        output.stderr
    );
    for arguments in ["-n 3", "-n two", "--nvml-lib /nowhere/libnvidia-ml.so.1"] {
        let line = format!(
            "env $({} free {arguments}) sh -c 'echo [$CUDA_VISIBLE_DEVICES]'",
            env!("CARGO_BIN_EXE_gputop")
        );
        let output = run(host
            .set_environment(&mut Command::new("sh"))
            .env("CUDA_VISIBLE_DEVICES", "0")
            .args(["-c", &line]));
        assert_eq!(output.text(), "[]\n", "{arguments}: {}", output.stderr);
    }
}

#[test]
fn more_gpus_than_the_host_has_are_never_waited_for() {
    let host = four_gpus();
    for arguments in [["-n", "5"], ["--memory", "200GiB"]] {
        let output = host.run(["free", "--wait"].iter().chain(&arguments).copied());
        assert_eq!(
            (output.code, output.stdout.as_slice()),
            (NONE_FREE, NO_GPU),
            "{}",
            output.stderr
        );
        assert!(
            output.stderr.contains("this host has "),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn a_gpu_stays_taken_until_the_command_and_its_children_have_ended() {
    let host = four_gpus();
    // The child keeps the lock after the command has ended. No memory shows up.
    let script = "sleep 1000 >/dev/null & echo $!; read line";
    let mut command = host.gputop(["free", "--", "sh", "-c", script]);
    let mut job = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(job.child().stdout.take().expect("stdout is piped"))
        .read_line(&mut line)
        .expect("a pipe can be read");
    let child = ProcessHandle::open(line.trim().parse().expect("sh prints the PID"));
    assert_eq!(printed(&host.run(["free"])), "3");
    drop(job.child().stdin.take());
    assert_eq!(exit_code(job.wait()), 1);
    let output = host.run(["free", "-n", "2"]);
    assert_eq!(output.code, NONE_FREE, "{}", output.text());
    assert!(
        output
            .stderr
            .contains("GPU 1 is taken by another gputop free"),
        "{}",
        output.stderr
    );
    child.kill();
    child.wait_for_end();
    assert_eq!(printed(&host.run(["free", "-n", "2"])), "1,3");
}

#[test]
fn without_a_folder_for_locks_the_command_runs_and_the_user_is_told() {
    let host = four_gpus();
    let mut command = host.gputop(["free", "--", "echo", "trains"]);
    fs::write(host.path("nvidia-locks"), "").expect("/tmp has room");
    let output = run(&mut command);
    assert_eq!(
        (output.code, output.text().as_str()),
        (0, "trains\n"),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("another gputop free may choose the same"),
        "{}",
        output.stderr
    );
}

#[test]
fn sessions_with_other_variables_have_the_same_locks() {
    let mut host = four_gpus();
    // The folder of the locks is that of all hosts.
    let uuids = [1, 3].map(|gpu| format!("GPU-gputop-test-{}-{gpu}", std::process::id()));
    host.change(|world| (world.gpus[1].uuid, world.gpus[3].uuid) = uuids.clone().into());
    let mut command = host.gputop(["free", "--", "sh", "-c", "echo; read line"]);
    command
        .env_remove("GPUTOP_DEVICES")
        .env("XDG_RUNTIME_DIR", host.path(""))
        .env("TMPDIR", host.path(""));
    let mut job = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let started = job
        .child()
        .stdout
        .as_mut()
        .expect("stdout is piped")
        .read_exact(&mut [0]);
    started.expect("the job has its GPU");
    let output = run(host.gputop(["free"]).env_remove("GPUTOP_DEVICES"));
    assert_eq!(printed(&output), "3", "{}", output.stderr);
    for uuid in uuids {
        let folder = format!("/tmp/gputop-{}", rustix::process::geteuid().as_raw());
        fs::remove_file(format!("{folder}/{uuid}.lock")).expect("both GPUs were locked");
    }
}

#[test]
fn only_gpus_of_the_inherited_variable_are_taken() {
    let mut host = four_gpus();
    let [first, last] = [0, 3].map(|gpu| uuid(&mut host, gpu));
    for (visible, gpus) in [
        ("0,3", "3"),
        ("3,1", "1"),
        // The list ends at the first entry that names no GPU.
        ("3,-1,1", "3"),
        ("3,x,1", "3"),
        (&last[..12], "3"),
        (&format!("{first},{last}"), "3"),
    ] {
        let output = free_within(&host, visible, &[]);
        assert_eq!(
            (output.code, printed(&output).as_str()),
            (0, gpus),
            "{visible}: {}",
            output.stderr
        );
    }
    // A person who was given GPU 0 gets no other.
    let output = free_within(&host, "0", &[]);
    assert_eq!(
        (output.code, output.stdout.as_slice()),
        (NONE_FREE, NO_GPU),
        "{}",
        output.stderr
    );
    assert_eq!(
        output.stderr,
        "gputop: no GPU is free: GPU 0 has 1 process on it with 70.0 GiB\n"
    );
    for visible in ["", "-1", "NoDevFiles", "1,1", "9", "GPU-ff", "GPU-0"] {
        // No wait for a GPU that the variable will never show.
        let output = free_within(&host, visible, &["--wait"]);
        assert_eq!(
            (output.code, output.stdout.as_slice()),
            (NONE_FREE, NO_GPU),
            "{visible}: {}",
            output.stderr
        );
        let reason = "this host has 0 of the 1 GPUs that are wanted";
        assert_eq!(
            output.stderr,
            format!("gputop: within CUDA_VISIBLE_DEVICES={visible}, {reason}\n")
        );
    }
    let output = free_within(&host, "0,2", &["-i", "1"]);
    assert_eq!(
        (output.code, output.stdout.as_slice()),
        (NONE_FREE, NO_GPU),
        "{}",
        output.stderr
    );
}

#[test]
fn numbers_whose_meaning_is_not_certain_are_refused() {
    let mut host = Host::idle(["H100", "A100"]);
    let last = uuid(&mut host, 1);
    let output = free_within(&host, "1", &["--wait"]);
    assert_eq!(
        (output.code, output.stdout.as_slice()),
        (1, NO_GPU),
        "{}",
        output.stderr
    );
    assert!(
        output
            .stderr
            .contains("CUDA_VISIBLE_DEVICES=1 means is not certain"),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    let output = free_within(&host, "1", &["--", "echo", "trains"]);
    assert_eq!((output.code, output.text().as_str()), (1, ""));
    assert_eq!(printed(&free_within(&host, &last, &[])), "1");
    let mut command = host.gputop(["free"]);
    command
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        .env("CUDA_VISIBLE_DEVICES", "1");
    assert_eq!(printed(&run(&mut command)), "1");

    // A GPU that was lost may have changed the numbers of others.
    let mut host = Host::idle(["H100"; 3]);
    host.change(|world| world.gpus[0].falls_off_the_bus());
    let output = free_within(&host, "1", &[]);
    assert_eq!(
        (output.code, output.stdout.as_slice()),
        (1, NO_GPU),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("because GPU 0 is lost"),
        "{}",
        output.stderr
    );
}

#[test]
fn gpus_are_named_by_uuid_where_their_numbers_are_not_certain_and_on_request() {
    let mut host = Host::idle(["H100"; 2]);
    let last = uuid(&mut host, 1);
    assert_eq!(printed(&host.run(["free", "-i", "1", "--uuid"])), last);
    host.change(|world| world.gpus[0].falls_off_the_bus());
    assert_eq!(printed(&host.run(["free"])), last);

    let mut host = Host::idle(["A100-MIG", "A100"]);
    let [instance, whole] = {
        let mut uuids = [String::new(), String::new()];
        host.change(|world| {
            uuids = [
                world.gpus[0].instances()[1].uuid.clone(),
                world.gpus[1].uuid.clone(),
            ];
        });
        uuids
    };
    assert_eq!(printed(&host.run(["free", "-i", "1"])), whole);
    // An instance, by a part of its UUID that no other has.
    assert_eq!(printed(&free_within(&host, &instance, &[])), instance);
}

#[test]
fn with_ids_only_the_ids_are_printed_and_nothing_on_failure() {
    let host = four_gpus();
    let output = host.run(["free", "-n", "2", "--ids"]);
    assert_eq!((output.code, output.text().as_str()), (0, "1,3\n"));
    for arguments in [
        ["-n", "3"],
        ["-n", "two"],
        ["--nvml-lib", "/nowhere/libnvidia-ml.so.1"],
        ["--via", "a"],
    ] {
        let output = host.run(["free", "--ids"].iter().chain(&arguments).copied());
        assert_eq!(
            (output.text().as_str(), output.stderr.is_empty()),
            ("", false),
            "{arguments:?}"
        );
        assert_ne!(output.code, 0, "{arguments:?}");
    }
    // A script that ends at the first error never starts its program.
    let script = format!(
        "set -e; gpus=$({} free --ids -n 3); echo [$gpus]",
        env!("CARGO_BIN_EXE_gputop")
    );
    let output = run(host
        .set_environment(&mut Command::new("sh"))
        .args(["-c", &script]));
    assert_eq!(
        (output.code, output.text().as_str()),
        (NONE_FREE, ""),
        "{}",
        output.stderr
    );
}

#[test]
fn a_gpu_is_judged_by_what_is_known_of_its_processes_and_memory() {
    let free = |host: &Host| {
        let output = host.run(["free", "--ids"]);
        (output.code, output.text(), output.stderr)
    };
    // Without a reading of memory: by the processes.
    let mut host = Host::idle(["GB10"]);
    assert_eq!(free(&host), (0, "0\n".to_owned(), String::new()));
    // The host's memory, which the GPU shares.
    assert_eq!(
        host.run(["free", "--memory", "1MiB", "--ids"]).text(),
        "0\n"
    );
    assert_eq!(
        host.run(["free", "--memory", "900TiB", "--ids"]).code,
        NONE_FREE
    );
    // In a container, the driver may not list the process that computes.
    host.change(|world| world.gpus[0].utilization.gpu = Some(80));
    let (code, _, reason) = free(&host);
    assert!(
        code == NONE_FREE && reason.contains("GPU 0 is busy (80%), and no process is seen"),
        "{reason}"
    );
    host.start_sleep(0, GIB);
    let (code, _, reason) = free(&host);
    assert!(
        code == NONE_FREE && reason.contains("GPU 0 has 1 process on it with 1.0 GiB"),
        "{reason}"
    );
    // Without both: never.
    let mut host = Host::idle(["GB10"]);
    host.change(|world| world.gpus[0].no_process_lists = true);
    let (code, _, reason) = free(&host);
    assert!(
        code == NONE_FREE && reason.contains("reports neither its processes nor its memory"),
        "{reason}"
    );
    // Without a list of processes: by the memory.
    let mut host = Host::idle(["H100"]);
    host.change(|world| world.gpus[0].no_process_lists = true);
    assert_eq!(free(&host), (0, "0\n".to_owned(), String::new()));
    host.change(|world| world.gpus[0].memory.unaccounted = 20 * GIB);
    let (code, _, reason) = free(&host);
    assert!(
        code == NONE_FREE && reason.contains("has 20.0 GiB in use by processes that are not known"),
        "{reason}"
    );
}
