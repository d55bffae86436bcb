//! The GPUs of a process's CUDA devices, which the shipped binary finds from outside.

use std::time::Duration;

use fake_nvml::GpuProcess;
use gputop::protocol::snapshot::{AllocatorStats, GpuUuid};

use crate::agent::ReceivedLines;
use crate::allocator_stats::{
    FakeTorch, MIB, NEWEST_LAYOUT, host_with_gpus, start_agent, uuid, wait_for_stats,
};

/// The GPU of each device that is used.
fn gpus(stats: &AllocatorStats) -> Vec<Option<GpuUuid>> {
    stats
        .devices
        .iter()
        .map(|device| device.gpu.clone())
        .collect()
}

#[test]
fn cuda_devices_are_matched_to_gpus() {
    let mut host = host_with_gpus(3);
    let mut torch = FakeTorch::start(&host, 25, 2, &[("CUDA_VISIBLE_DEVICES", "2,0")]);
    torch.allocate(0);
    torch.allocate(1);
    // Both GPUs have the same memory in use, so only the environment can tell them apart.
    for gpu in [0, 2] {
        host.add_process(gpu, GpuProcess::new(torch.pid(), 500 * MIB));
    }
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    let are_on_gpus = |stats: &AllocatorStats| {
        stats.devices.len() == 2 && stats.devices.iter().all(|device| device.gpu.is_some())
    };
    let stats = wait_for_stats(
        &agent,
        &mut received,
        torch.pid(),
        "two devices on GPUs",
        are_on_gpus,
    );
    assert_eq!(gpus(&stats), [uuid(&received, 2), uuid(&received, 0)]);
}

#[test]
fn devices_that_a_program_permuted_are_told_apart_when_one_grows() {
    let mut host = host_with_gpus(3);
    // The program set `os.environ["CUDA_VISIBLE_DEVICES"] = "2,0,1"` after its start.
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 3, &[]);
    for device in 0..3 {
        torch.allocate(device);
        host.add_process(device as usize, GpuProcess::new(torch.pid(), 500 * MIB));
    }
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    let stats = wait_for_stats(&agent, &mut received, torch.pid(), "stats", |stats| {
        stats.devices.len() == 3
    });
    let [first, second, third] = [0, 1, 2].map(|gpu| uuid(&received, gpu));
    assert_eq!(gpus(&stats), [first.clone(), second, third.clone()]);
    // The proof begins with amounts that did not change for more than a second.
    let read_at = |received: &ReceivedLines| {
        received
            .snapshot
            .as_ref()
            .map(|snapshot| snapshot.gpus[0].load.at)
    };
    let start = read_at(&received).expect("a line was read");
    while read_at(&received).is_none_or(|at| at.since(start) < Duration::from_secs(2)) {
        received.apply(agent.next_line());
    }
    for (device, gpu, expected) in [
        (0, 2, [third.clone(), None, None]),
        (1, 0, [third, first, None]),
    ] {
        assert_eq!(
            torch.request(&format!(
                "work {device} 2 104857600 104857600 104857600 0 0"
            )),
            "done"
        );
        host.change(|world| world.gpus[gpu].processes[0].memory = Some(600 * MIB));
        let are_expected = |stats: &AllocatorStats| gpus(stats) == expected;
        wait_for_stats(
            &agent,
            &mut received,
            torch.pid(),
            &format!("device {device} on GPU {gpu}"),
            are_expected,
        );
    }
}
