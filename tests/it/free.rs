//! The GPUs that `gputop free` prints.

use std::process::Stdio;

use crate::process::{Ran, Started, code, wait_until};
use crate::world::{GIB, Host};

const NONE_FREE: i32 = 11;

/// Returns the printed UUIDs.
#[track_caller]
fn given(ran: &Ran) -> Vec<String> {
    let text = ran.text();
    let uuids = text.strip_prefix("CUDA_VISIBLE_DEVICES=").and_then(|text| text.strip_suffix('\n'));
    let uuids = uuids.unwrap_or_else(|| panic!("{text:?} {}", ran.err));
    uuids.split(',').map(str::to_owned).collect()
}

fn uuid(host: &mut Host, gpu: usize) -> String {
    let mut uuid = String::new();
    host.change(|world| uuid.clone_from(&world.gpus[gpu].uuid));
    uuid
}

/// Four idle GPUs, with a process on the first and on the third.
fn four() -> Host {
    let mut host = Host::still(["H100"; 4]);
    host.change(|world| {
        for gpu in &mut world.gpus {
            gpu.utilization.gpu = Some(0);
        }
    });
    host.sleeper(0, 70 * GIB);
    host.sleeper(2, 10 * GIB);
    host
}

#[test]
fn gpus_without_processes_are_free() {
    let mut host = four();
    let ran = host.run(["free", "-n", "2"]);
    assert_eq!((ran.code, given(&ran)), (0, vec![uuid(&mut host, 1), uuid(&mut host, 3)]));
    let ran = host.run(["free", "-n", "3"]);
    assert_eq!((ran.code, ran.out.as_slice()), (NONE_FREE, b"".as_slice()));
    assert!(ran.err.contains("2 of the 3 GPUs"), "{}", ran.err);
    assert!(ran.err.contains("GPU 0 has 1 process on it with 70.0 GiB"), "{}", ran.err);
}

#[test]
fn a_gpu_with_unaccounted_memory_is_not_free() {
    let mut host = four();
    host.change(|world| world.gpus[1].memory.unaccounted = 5 * GIB);
    let ran = host.run(["free"]);
    assert_eq!((ran.code, given(&ran)), (0, vec![uuid(&mut host, 3)]));
}

#[test]
fn with_memory_other_processes_do_not_matter() {
    let mut host = four();
    let ran = host.run(["free", "-n", "3", "--memory", "20GiB"]);
    // The most free memory comes first.
    assert_eq!((ran.code, given(&ran)), (0, [1, 3, 2].map(|gpu| uuid(&mut host, gpu)).to_vec()));
    let ran = host.run(["free", "--memory", "20 parsec"]);
    assert!(ran.code == 2 && ran.err.contains("no unit of memory"), "{}", ran.err);
}

#[test]
fn a_busy_gpu_is_not_idle() {
    let mut host = four();
    host.change(|world| {
        world.gpus[1].utilization.gpu = Some(3);
        world.gpus[3].utilization.gpu = None;
    });
    let ran = host.run(["free", "--interval", "100ms", "--idle", "300ms"]);
    assert_eq!((ran.code, ran.out.as_slice()), (NONE_FREE, b"".as_slice()));
    assert!(ran.err.contains("GPU 1 is busy (3%)") && ran.err.contains("GPU 3 does not report"), "{}", ran.err);
    host.change(|world| world.gpus[1].utilization.gpu = Some(0));
    let ran = host.run(["free", "--interval", "100ms", "--idle", "300ms"]);
    assert_eq!((ran.code, given(&ran)), (0, vec![uuid(&mut host, 1)]));
}

#[test]
fn wait_waits_for_a_free_gpu() {
    let mut host = Host::still(["H100"]);
    let pid = host.sleeper(0, GIB);
    let mut command = host.gputop(["free", "--wait", "--interval", "100ms"]);
    let mut waiting = Started::start(command.stdin(Stdio::null()).stdout(Stdio::piped()));
    // The agent reads the GPU again and again.
    let is_looking = || {
        let counts = fake_nvml::counts(host.path("counts")).unwrap_or_default();
        counts.get("nvmlDeviceGetMemoryInfo_v2").is_some_and(|calls| *calls > 5)
    };
    wait_until("it looks", is_looking);
    host.process(pid).child().kill().expect("it is ours");
    host.process(pid).wait();
    assert_eq!(code(waiting.wait()), 0);
    let mut text = String::new();
    let out = waiting.child().stdout.as_mut().expect("it was asked for");
    std::io::Read::read_to_string(out, &mut text).expect("a pipe can be read");
    assert_eq!(text, format!("CUDA_VISIBLE_DEVICES={}\n", uuid(&mut host, 0)));
}

#[test]
fn without_a_driver_no_gpu_is_free() {
    let mut host = Host::with(["H100"]);
    host.change(|world| world.faults.push(fake_nvml::Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED")));
    let ran = host.run(["free"]);
    assert!(ran.code == 3 && ran.err.contains("driver is not running"), "{} {}", ran.code, ran.err);
}
