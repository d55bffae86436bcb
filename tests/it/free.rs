//! The GPUs that `gputop free` prints.

use std::process::Stdio;

use crate::host::{GIB, Host};
use crate::process::{ChildProcess, Output, exit_code, wait_until};

const NONE_FREE: i32 = 11;

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
    assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, b"".as_slice()));
    assert!(output.stderr.contains("2 of the 3 GPUs"), "{}", output.stderr);
    assert!(output.stderr.contains("GPU 0 has 1 process on it with 70.0 GiB"), "{}", output.stderr);
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
    assert_eq!((output.code, output.stdout.as_slice()), (NONE_FREE, b"".as_slice()));
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
    std::io::Read::read_to_string(out, &mut text).expect("a pipe can be read");
    assert_eq!(text, format!("CUDA_VISIBLE_DEVICES={}\n", uuid(&mut host, 0)));
}

#[test]
fn without_a_driver_no_gpu_is_free() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| world.faults.push(fake_nvml::Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED")));
    let output = host.run(["free"]);
    assert!(output.code == 3 && output.stderr.contains("driver is not running"), "{} {}", output.code, output.stderr);
}
