//! How gputop finds PyTorch's allocator in a process, and what it says when there is none to find.

use fake_nvml::GpuProcess;
use gputop::protocol::snapshot::AllocatorUnreadable;

use crate::agent::ReceivedLines;
use crate::allocator_stats::{
    FakeTorch, MIB, has_amounts, host_with_gpus, start_agent, wait_for_stats,
};
use crate::host::GIB;

#[test]
fn a_process_that_loads_pytorch_later_is_searched_soon_after() {
    /// The passes, of 100 ms, until the stats have to be there: less than the first wait of a
    /// process that has not changed.
    const PASSES: u32 = 50;
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start(&host, 25, 1, &[("LOAD_LATER", "1")]);
    host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, torch.pid(), "no PyTorch", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::NoPytorch)
    });
    torch.send("load");
    torch.allocate(0);
    let passes = std::cell::Cell::new(0);
    wait_for_stats(&agent, &mut received, torch.pid(), "its stats", |stats| {
        passes.set(passes.get() + 1);
        assert!(
            passes.get() < PASSES,
            "not within {PASSES} passes: {stats:?}"
        );
        !stats.devices.is_empty()
    });
}

#[test]
fn a_library_under_another_file_name_is_found_by_its_symbol() {
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start_with("_bundle.7f.so", &host, 25, 1, &[]);
    torch.allocate(0);
    host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &start_agent(&host),
        &mut ReceivedLines::default(),
        torch.pid(),
        "its stats",
        has_amounts(&expected),
    );
}

#[test]
fn an_allocator_without_its_cache_is_named_as_the_reason() {
    let mut host = host_with_gpus(1);
    let torch = FakeTorch::start(&host, 25, 1, &[("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")]);
    host.add_process(0, GpuProcess::new(torch.pid(), GIB));
    wait_for_stats(
        &start_agent(&host),
        &mut ReceivedLines::default(),
        torch.pid(),
        "no cache",
        |stats| stats.unreadable == Some(AllocatorUnreadable::Uncached),
    );
}

#[test]
fn an_order_that_the_amounts_contradict_is_not_shown() {
    let mut host = host_with_gpus(2);
    let mut torch = FakeTorch::start(&host, 25, 2, &[]);
    (0..100).for_each(|_| torch.allocate(0));
    torch.allocate(1);
    // The script numbered the GPUs anew, so the second GPU has the memory of the first device.
    let reserved = 100 * 62 * MIB;
    for (gpu, memory) in [(0, reserved - GIB / 2), (1, reserved + GIB / 2)] {
        host.add_process(gpu, GpuProcess::new(torch.pid(), memory));
    }
    let stats = wait_for_stats(
        &start_agent(&host),
        &mut ReceivedLines::default(),
        torch.pid(),
        "two devices",
        |stats| stats.devices.len() == 2,
    );
    assert!(
        stats.devices.iter().all(|device| device.gpu.is_none()),
        "{stats:?}"
    );
}
