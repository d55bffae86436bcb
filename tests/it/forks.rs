//! A forked worker has a copy of its parent's allocator stats, and no memory of the GPU.

use fake_nvml::GpuProcess;
use gputop::protocol::snapshot::AllocatorUnreadable;

use crate::agent::ReceivedLines;
use crate::allocator_stats::{
    FakeTorch, MIB, has_amounts, host_with_gpus, start_agent, wait_for_stats,
};
use crate::host::{GIB, Host};
use crate::print_note;

/// Whether kcmp(2) is permitted, by which gputop compares open files. In containers it may not be.
fn kcmp_is_permitted() -> bool {
    let own = std::process::id();
    // SAFETY: kcmp takes numbers, and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, 0, 0, 0) == 0 }
}

/// Starts a process that has allocated some memory.
fn start_trainer(host: &Host) -> FakeTorch {
    let mut torch = FakeTorch::start(host, 25, 1, &[]);
    for _ in 0..40 {
        torch.allocate(0);
    }
    torch
}

#[test]
fn a_forked_worker_has_no_allocator_stats_of_its_own() {
    let mut host = host_with_gpus(1);
    let mut torch = start_trainer(&host);
    let worker: u32 = torch.request("fork").parse().expect("a PID");
    host.add_process(0, GpuProcess::new(torch.pid(), 4 * GIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, torch.pid(), "stats", |stats| {
        stats.devices.len() == 1
    });
    // The worker is a related process, which the driver does not list.
    let worker_process = |received: &ReceivedLines| {
        received
            .snapshot
            .as_ref()?
            .processes
            .iter()
            .find(|process| process.id.pid == worker)
            .cloned()
    };
    while worker_process(&received).is_none() {
        received.apply(agent.next_line());
    }
    assert_eq!(
        worker_process(&received).and_then(|process| process.allocator),
        None
    );
    // Now the driver lists the worker, first with less memory than its copy of the stats, then with
    // more.
    host.add_process(0, GpuProcess::new(worker, 100 * MIB));
    wait_for_stats(&agent, &mut received, worker, "a copy", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::Copied)
    });
    if !kcmp_is_permitted() {
        return print_note("skipped: kcmp is not permitted here");
    }
    host.change(|world| world.gpus[0].processes[1].memory = Some(8 * GIB));
    let memory = |received: &ReceivedLines| {
        received.snapshot.as_ref()?.gpus[0]
            .processes
            .iter()
            .find(|gpu_process| gpu_process.process.pid == worker)?
            .memory
            .ok()
    };
    while memory(&received).is_none_or(|memory| memory.0 != 8 * GIB) {
        received.apply(agent.next_line());
    }
    torch.allocate(0);
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &agent,
        &mut received,
        torch.pid(),
        "the next stats",
        has_amounts(&expected),
    );
    wait_for_stats(&agent, &mut received, worker, "a copy still", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::Copied)
    });
}

#[test]
fn a_forked_worker_whose_parent_is_not_listed_has_no_allocator_stats() {
    let mut host = host_with_gpus(1);
    let mut torch = start_trainer(&host);
    let worker: u32 = torch.request("fork").parse().expect("a PID");
    host.add_process(0, GpuProcess::new(worker, 100 * MIB));
    wait_for_stats(
        &start_agent(&host),
        &mut ReceivedLines::default(),
        worker,
        "a copy",
        |stats| stats.unreadable == Some(AllocatorUnreadable::Copied),
    );
}

#[test]
fn a_forked_child_that_initialised_cuda_itself_has_its_own_allocator_stats() {
    let mut host = host_with_gpus(1);
    let mut torch = start_trainer(&host);
    if !kcmp_is_permitted() {
        return print_note("skipped: kcmp is not permitted here");
    }
    let file = host.path("nvidia-uvm");
    let sibling: u32 = torch
        .request(&format!("serve {}", file.display()))
        .parse()
        .expect("a PID");
    host.add_process(0, GpuProcess::new(torch.pid(), 4 * GIB));
    // The driver reports less memory than the stats: they are no copy, and the difference is shown.
    host.add_process(0, GpuProcess::new(sibling, 100 * MIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    for pid in [torch.pid(), sibling] {
        wait_for_stats(&agent, &mut received, pid, "stats", |stats| {
            stats.devices.len() == 1
        });
    }
}

#[test]
fn after_the_parent_died_a_forked_worker_has_no_stats_until_it_allocates() {
    let mut host = host_with_gpus(1);
    let mut torch = start_trainer(&host);
    let worker: u32 = torch.request("orphan").parse().expect("a PID");
    // The driver lists the worker with more memory than its copy of the stats.
    host.add_process(0, GpuProcess::new(worker, 8 * GIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, worker, "perhaps a copy", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::MaybeCopied)
    });
    torch.allocate(0);
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &agent,
        &mut received,
        worker,
        "its own stats",
        has_amounts(&expected),
    );
}

#[test]
fn a_worker_that_the_launcher_of_its_trainer_adopted_has_no_stats_until_it_allocates() {
    let mut host = host_with_gpus(1);
    // The launcher forked the trainer, and adopts its worker: all three are one program.
    let mut torch = FakeTorch::start(&host, 25, 1, &[("LAUNCHER", "1")]);
    torch.allocate(0);
    let launcher = torch.pid();
    let worker: u32 = torch.request("orphan").parse().expect("a PID");
    host.add_process(0, GpuProcess::new(worker, GIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, worker, "perhaps a copy", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::MaybeCopied)
    });
    let processes = &received
        .snapshot
        .as_ref()
        .expect("a line was read")
        .processes;
    let parent = processes
        .iter()
        .find(|process| process.id.pid == worker)
        .map(|process| process.facts.parent);
    assert_eq!(parent, Some(Ok(launcher)));
    torch.allocate(0);
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &agent,
        &mut received,
        worker,
        "its own stats",
        has_amounts(&expected),
    );
}

#[test]
fn after_the_parent_died_a_forked_server_with_a_thread_of_cuda_has_its_own_stats() {
    let mut host = host_with_gpus(1);
    let mut torch = start_trainer(&host);
    let server: u32 = torch.request("orphan").parse().expect("a PID");
    assert_eq!(torch.request("thread cuda-EvtHandlr"), "0");
    host.add_process(0, GpuProcess::new(server, 8 * GIB));
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &start_agent(&host),
        &mut ReceivedLines::default(),
        server,
        "its own",
        has_amounts(&expected),
    );
}
