//! A forked worker has a copy of its parent's books, and nothing of the GPU.

use fake_nvml::Tenant;
use gputop::protocol::snapshot::{AllocatorStats, AllocatorUnreadable};

use crate::agent::ReceivedLines;
use crate::host::{GIB, Host};
use crate::peek::{MIB, Torch, agent, figures, host, wait};
use crate::print_note;

/// Whether the kernel tells who has one open file with another; in containers it may not.
fn compares_files() -> bool {
    let own = std::process::id();
    // SAFETY: it takes numbers, and touches no memory.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, 0, 0, 0) == 0 }
}

/// One that has trained for a while.
fn trainer(host: &Host) -> Torch {
    let mut torch = Torch::start(host, 25, 1, &[]);
    for _ in 0..40 {
        torch.train(0);
    }
    torch
}

#[test]
fn a_forked_worker_has_no_allocator_stats_of_its_own() {
    let mut host = host(1);
    let mut torch = trainer(&host);
    let worker: u32 = torch.ask("fork").parse().expect("its PID");
    host.add_process(0, Tenant::new(torch.pid(), 4 * GIB));
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    wait(&agent, &mut received, torch.pid(), "figures", |it| it.devices.len() == 1);
    // It is kin, of whom the driver says nothing.
    let worker_is =
        |received: &ReceivedLines| received.snapshot.as_ref()?.processes.iter().find(|it| it.id.pid == worker).cloned();
    while worker_is(&received).is_none() {
        received.apply(agent.next_line());
    }
    assert_eq!(worker_is(&received).and_then(|it| it.allocator), None);
    // Now the driver names it, with less than its copy of the books says; then with more, for something else.
    host.add_process(0, Tenant::new(worker, 100 * MIB));
    wait(&agent, &mut received, worker, "a copy", |it| it.unreadable == Some(AllocatorUnreadable::Copied));
    if !compares_files() {
        return print_note("skipped: the kernel compares no open files here");
    }
    host.change(|world| world.gpus[0].tenants[1].memory = Some(8 * GIB));
    let held = |received: &ReceivedLines| {
        received.snapshot.as_ref()?.gpus[0].processes.iter().find(|it| it.process.pid == worker)?.memory.ok()
    };
    while held(&received).is_none_or(|it| it.0 != 8 * GIB) {
        received.apply(agent.next_line());
    }
    torch.train(0);
    let books = torch.books(0);
    let is_it = |peek: &AllocatorStats| peek.devices.iter().any(|it| figures(it) == books[8..]);
    wait(&agent, &mut received, torch.pid(), "the next figures", is_it);
    wait(&agent, &mut received, worker, "a copy still", |it| it.unreadable == Some(AllocatorUnreadable::Copied));
}

#[test]
fn a_forked_worker_whose_parent_is_not_listed_has_no_allocator_stats() {
    let mut host = host(1);
    let mut torch = trainer(&host);
    let worker: u32 = torch.ask("fork").parse().expect("its PID");
    host.add_process(0, Tenant::new(worker, 100 * MIB));
    wait(&agent(&host), &mut ReceivedLines::default(), worker, "a copy", |it| {
        it.unreadable == Some(AllocatorUnreadable::Copied)
    });
}

#[test]
fn a_forked_child_that_initialised_cuda_itself_has_its_own_allocator_stats() {
    let mut host = host(1);
    let mut torch = trainer(&host);
    if !compares_files() {
        return print_note("skipped: the kernel compares no open files here");
    }
    let file = host.path("nvidia-uvm");
    let sibling: u32 = torch.ask(&format!("serve {}", file.display())).parse().expect("its PID");
    host.add_process(0, Tenant::new(torch.pid(), 4 * GIB));
    // As much as a driver says that does not tell all: no copy, and a difference that is shown.
    host.add_process(0, Tenant::new(sibling, 100 * MIB));
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    for pid in [torch.pid(), sibling] {
        wait(&agent, &mut received, pid, "figures", |it| it.devices.len() == 1);
    }
}
