//! What PyTorch's allocator says, read out of a real process by the shipped binary. The process loads a
//! stand-in library with PyTorch's symbol and its layouts, old and new.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use fake_nvml::Tenant;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::{AllocatorStats, AllocatorUnreadable, DeviceAllocator, GpuUuid};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, run};

pub(crate) const MIB: u64 = 1 << 20;

/// Compiles a part of the stand-in.
fn compile(arguments: &[&str], to: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peek/stand_in.c");
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Werror", "-O1", "-pthread"]).args(arguments).arg(source).arg("-o").arg(to).arg("-ldl");
    let output = run(&mut command);
    assert_eq!(output.code, 0, "{}", output.stderr);
}

/// A process with a stand-in for PyTorch's allocator.
pub(crate) struct Torch {
    process: ChildProcess,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Torch {
    /// Of that layout, see the source, seeing so many devices.
    pub(crate) fn start(host: &Host, layout: u32, devices: u32, environment: &[(&str, &str)]) -> Self {
        let program = host.path("torch");
        if !program.exists() {
            compile(&["-DPROGRAM"], &program);
        }
        let folder = host.path(&format!("{layout}"));
        let library = folder.join("libc10_cuda.so");
        if !library.exists() {
            fs::create_dir(&folder).expect("/tmp has room");
            compile(&["-shared", "-fPIC", &format!("-DLAYOUT={layout}")], &library);
        }
        // In a container, only who has a device open is surely the one that the driver means.
        let files = ["nvidia0", "nvidia-uvm"].map(|name| host.path(name));
        for file in &files {
            fs::write(file, "").expect("/tmp has room");
        }
        let mut command = Command::new(program);
        command.arg(library).arg(devices.to_string()).args(files).env_clear().envs(environment.iter().copied());
        let mut process = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        Self { process, stdin, stdout }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("it reads");
    }

    /// Tells it something, and gives its answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }

    /// A trainer at work: three pools of each kind, blocks freed and awaited, and a cache.
    pub(crate) fn train(&mut self, device: u32) {
        for work in [
            "2 20971520 15728640 15000000 5242880 0",
            "1 2097152 1024 700 2096128 0",
            "2 41943040 41943040 41943040 0 0",
        ] {
            assert_eq!(self.ask(&format!("work {device} {work}")), "done");
        }
        // One that another stream still uses, and one that is cache now.
        assert_eq!(self.ask(&format!("work {device} 1 0 -1024 -700 0 1")), "done");
        assert_eq!(self.ask(&format!("work {device} 2 0 -41943040 -41943040 0 0")), "done");
    }

    /// Its books: of each, what is and what was at most.
    pub(crate) fn books(&mut self, device: u32) -> Vec<u64> {
        let answer = self.ask(&format!("books {device}"));
        answer.split_whitespace().map(|it| it.parse().expect("a number")).collect()
    }
}

pub(crate) fn host(gpus: usize) -> Host {
    Host::new(vec!["H100"; gpus])
}

pub(crate) fn agent(host: &Host) -> Agent {
    let mut command = host.gputop(["agent", "--interval", "100ms"]);
    Agent::spawn(command.env("GPUTOP_DEVICES", host.path("nvidia")))
}

/// What the agent says of a process, when it says what is asked for.
#[track_caller]
pub(crate) fn wait(
    agent: &Agent,
    received: &mut ReceivedLines,
    pid: u32,
    what: &str,
    is_it: impl Fn(&AllocatorStats) -> bool,
) -> AllocatorStats {
    let started = crate::process::now();
    loop {
        received.apply(agent.next_line());
        let processes = &received.snapshot.as_ref().expect("there was a line").processes;
        let peek = processes.iter().find(|it| it.id.pid == pid).and_then(|it| it.allocator.as_deref());
        if let Some(peek) = peek.filter(|it| is_it(it)) {
            return peek.clone();
        }
        assert!(started.elapsed() < crate::DEADLINE, "never {what}: {peek:?}");
    }
}

/// An allocator's figures, in the order of the books.
pub(crate) fn figures(it: &DeviceAllocator) -> Vec<u64> {
    let pairs = [
        (it.allocated, it.allocated_peak),
        (it.reserved, it.reserved_peak),
        (it.active, it.active_peak),
        (it.inactive_split, it.inactive_split_peak),
        (it.requested, it.requested_peak),
    ];
    pairs.into_iter().flat_map(|(is, peak)| [is.expect("it was read").0, peak.expect("it was read").0]).collect()
}

fn uuid(received: &ReceivedLines, gpu: usize) -> Option<GpuUuid> {
    Some(received.snapshot.as_ref()?.gpus[gpu].uuid.clone())
}

#[test]
fn every_layout_is_read_to_the_byte_and_follows_changes() {
    let mut host = host(2);
    for layout in [21, 25, 215] {
        let mut torch = Torch::start(&host, layout, 1, &[]);
        torch.train(0);
        host.add_process(1, Tenant::new(torch.pid(), 500 * MIB));
        let agent = agent(&host);
        let mut received = ReceivedLines::default();
        for _ in 0..3 {
            let books = torch.books(0);
            let is_it = |peek: &AllocatorStats| peek.devices.iter().any(|it| figures(it) == books[8..]);
            let peek = wait(&agent, &mut received, torch.pid(), "the same figures", is_it);
            let [allocator] = peek.devices.as_slice() else { panic!("{peek:?}") };
            assert_eq!((allocator.device, &allocator.gpu), (0, &uuid(&received, 1)));
            assert_eq!((allocator.allocations, allocator.segments), (Ok(books[0]), Ok(books[2])));
            torch.train(0);
        }
        host.change(|world| world.gpus[1].tenants.clear());
    }
}

#[test]
fn stats_of_a_busy_process_are_of_one_state() {
    let mut host = host(1);
    let mut torch = Torch::start(&host, 215, 1, &[]);
    torch.train(0);
    // What spins hands out a block of which 1000 bytes are asked for, of a segment that it has, and takes it back. Each
    // book is one of two, and all are of the same state.
    let rest = torch.books(0)[8..].to_vec();
    let mut handed_out = rest.clone();
    for (place, more) in [(0, 1024), (4, 1024), (6, -1024), (8, 1000)] {
        handed_out[place] = handed_out[place].strict_add_signed(more);
    }
    assert_eq!(torch.ask("spin 0"), "0");
    host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    for _ in 0..20 {
        let peek = wait(&agent, &mut received, torch.pid(), "figures", |it| !it.devices.is_empty());
        let is = figures(&peek.devices[0]);
        assert!(is == rest || is == handed_out, "{is:?} is neither {rest:?} nor {handed_out:?}");
    }
}

#[test]
fn forged_pointers_and_stats_are_rejected_and_harm_no_other_process() {
    let mut host = host(1);
    let mut hostile = Torch::start(&host, 25, 1, &[]);
    let mut torch = Torch::start(&host, 215, 1, &[]);
    for torch in [&mut hostile, &mut torch] {
        torch.train(0);
        host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    }
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    let has_figures = |it: &AllocatorStats| !it.devices.is_empty();
    wait(&agent, &mut received, hostile.pid(), "figures", has_figures);
    for how in 1..=7 {
        assert_eq!(hostile.ask(&format!("forge {how}")), "done");
        wait(&agent, &mut received, hostile.pid(), &format!("no figures of forgery {how}"), |it| {
            it.unreadable.is_some()
        });
        // The other one goes on.
        torch.train(0);
        let books = torch.books(0);
        let is_it = |peek: &AllocatorStats| peek.devices.iter().any(|it| figures(it) == books[8..]);
        wait(&agent, &mut received, torch.pid(), "the other's figures", is_it);
        assert_eq!(hostile.ask("forge 0"), "done");
        wait(&agent, &mut received, hostile.pid(), &format!("figures again after forgery {how}"), has_figures);
    }
    // One that is stopped is read as it stands.
    hostile.process.handle.signal(rustix::process::Signal::STOP);
    torch.train(0);
    let books = torch.books(0);
    let is_it = |peek: &AllocatorStats| peek.devices.iter().any(|it| figures(it) == books[8..]);
    wait(&agent, &mut received, torch.pid(), "the other's figures", is_it);
    wait(&agent, &mut received, hostile.pid(), "figures of one that is stopped", has_figures);
    hostile.process.handle.signal(rustix::process::Signal::CONT);
}

#[test]
fn a_read_that_hangs_is_reported_and_other_processes_are_read() {
    let mut host = host(1);
    let mut stuck = Torch::start(&host, 215, 1, &[]);
    let mut torch = Torch::start(&host, 215, 1, &[]);
    for torch in [&mut stuck, &mut torch] {
        torch.train(0);
        host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    }
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    wait(&agent, &mut received, stuck.pid(), "figures", |it| !it.devices.is_empty());
    if stuck.ask("hang 0") != "0" {
        return crate::print_note(
            "skipped: memory that hangs can be made by root, or where vm.unprivileged_userfaultfd is 1",
        );
    }
    wait(&agent, &mut received, stuck.pid(), "hung", |it| it.unreadable == Some(AllocatorUnreadable::Hung));
    torch.train(0);
    let books = torch.books(0);
    let is_it = |peek: &AllocatorStats| peek.devices.iter().any(|it| figures(it) == books[8..]);
    wait(&agent, &mut received, torch.pid(), "the other's figures", is_it);
}

#[test]
fn reads_that_hang_do_not_delay_a_report() {
    let mut host = host(1);
    let mut all: Vec<Torch> = (0..4).map(|_| Torch::start(&host, 215, 1, &[])).collect();
    for torch in &mut all {
        torch.train(0);
        host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    }
    // Those who are looked into first.
    all.sort_by_key(Torch::pid);
    for stuck in &mut all[..2] {
        if stuck.ask("hang 0") != "0" {
            return crate::print_note(
                "skipped: memory that hangs can be made by root, or where vm.unprivileged_userfaultfd is 1",
            );
        }
    }
    let output = run(host.gputop(["--json"]).env("GPUTOP_DEVICES", host.path("nvidia")));
    let Ok(Some(Line::Full(snapshot))) = Line::parse(&output.stdout) else { panic!("{}", output.text()) };
    let peek = |torch: &Torch| snapshot.processes.iter().find(|it| it.id.pid == torch.pid())?.allocator.clone();
    for torch in &mut all[2..] {
        let peek = peek(torch).expect("it was looked into");
        assert_eq!(peek.devices.iter().map(figures).collect::<Vec<_>>(), [torch.books(0)[8..].to_vec()]);
    }
}

#[test]
fn a_newly_used_device_is_found_within_five_driver_passes() {
    let mut host = host(8);
    let mut torch = Torch::start(&host, 215, 8, &[]);
    torch.train(2);
    // It has a context on each.
    (0..8).for_each(|gpu| host.add_process(gpu, Tenant::new(torch.pid(), 400 * MIB)));
    let mut command = host.gputop(["agent", "--interval", "500ms"]);
    let agent = Agent::spawn(command.env("GPUTOP_DEVICES", host.path("nvidia")));
    let mut received = ReceivedLines::default();
    wait(&agent, &mut received, torch.pid(), "one device", |it| it.devices.len() == 1);
    for (count, device) in [(2, 0), (3, 5)] {
        torch.train(device);
        host.change(|world| world.gpus[device as usize].tenants[0].memory = Some(500 * MIB));
        let figure =
            |received: &ReceivedLines| received.snapshot.as_ref()?.gpus[device as usize].processes.first()?.memory.ok();
        while figure(&received).is_none_or(|it| it.0 != 500 * MIB) {
            received.apply(agent.next_line());
        }
        // With one in turn it would take up to eight passes of the driver.
        let peek = |received: &ReceivedLines| {
            let process = received.snapshot.as_ref()?.processes.iter().find(|it| it.id.pid == torch.pid())?;
            process.allocator.clone()
        };
        let pass = |received: &ReceivedLines| received.snapshot.as_ref().map(|it| it.gpus[0].load.at);
        let mut passes = vec![pass(&received)];
        while peek(&received).is_none_or(|it| it.devices.len() != count) && passes.len() < 5 {
            received.apply(agent.next_line());
            passes.push(pass(&received));
            passes.dedup();
        }
        let peek = peek(&received).expect("it was looked into");
        assert_eq!(peek.devices.len(), count, "{peek:?}");
    }
}

#[test]
fn devices_that_are_used_later_are_found() {
    let mut host = host(4);
    let mut torch = Torch::start(&host, 215, 4, &[]);
    torch.train(2);
    host.add_process(2, Tenant::new(torch.pid(), 500 * MIB));
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    wait(&agent, &mut received, torch.pid(), "one device", |it| it.devices.len() == 1);
    // The driver names it on another GPU before anything is taken there, or as soon as it is.
    host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    torch.train(0);
    wait(&agent, &mut received, torch.pid(), "two devices", |it| it.devices.len() == 2);
    torch.train(3);
    let peek = wait(&agent, &mut received, torch.pid(), "three devices", |it| it.devices.len() == 3);
    assert_eq!(peek.devices.iter().map(|it| it.device).collect::<Vec<_>>(), [0, 2, 3]);
}

#[test]
fn stats_are_shown_only_while_the_pidfds_prove_that_the_process_lives() {
    let mut host = host(1);
    let mut all: Vec<Torch> = (0..3).map(|_| Torch::start(&host, 215, 1, &[])).collect();
    for torch in &mut all {
        torch.train(0);
        host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
        // Each has something new to say at each look: all of them are asked about in one call.
        assert_eq!(torch.ask("stir"), "0");
    }
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    for (limit, what, is_it) in [
        (1024, "figures", (|it| !it.devices.is_empty()) as fn(&AllocatorStats) -> bool),
        // The kernel waits for no more files at once than one may have open.
        (2, "no figures", |it| it.unreadable == Some(AllocatorUnreadable::NotYet)),
        (1024, "figures again", |it| !it.devices.is_empty()),
    ] {
        limit_files(agent.pid(), limit);
        for torch in &all {
            wait(&agent, &mut received, torch.pid(), what, is_it);
        }
    }
}

/// Has a process open no more files than so many. Those that it has open stay.
fn limit_files(pid: u32, most: u64) {
    let limits = Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) };
    prlimit(Pid::from_raw(pid.cast_signed()), Resource::Nofile, limits).expect("it is ours");
}

#[test]
fn a_report_contains_allocator_stats() {
    let mut host = host(1);
    let mut torch = Torch::start(&host, 215, 1, &[]);
    torch.train(0);
    host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    let output = run(host.gputop(["--json"]).env("GPUTOP_DEVICES", host.path("nvidia")));
    let Ok(Some(Line::Full(snapshot))) = Line::parse(&output.stdout) else { panic!("{}", output.text()) };
    let process = snapshot.processes.iter().find(|it| it.id.pid == torch.pid()).expect("it is a tenant");
    let peek = process.allocator.as_ref().expect("it was looked into");
    assert_eq!(peek.devices.iter().map(figures).collect::<Vec<_>>(), [torch.books(0)[8..].to_vec()]);
}

#[test]
fn after_an_exec_or_an_exit_there_are_no_stats() {
    let mut host = host(1);
    let mut torch = Torch::start(&host, 25, 1, &[]);
    torch.train(0);
    host.add_process(0, Tenant::new(torch.pid(), 500 * MIB));
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    wait(&agent, &mut received, torch.pid(), "figures", |it| it.devices.len() == 1);
    torch.tell("exec /bin/sleep");
    wait(&agent, &mut received, torch.pid(), "another program", |it| {
        it.unreadable == Some(AllocatorUnreadable::NoPytorch)
    });
    torch.process.handle.signal(rustix::process::Signal::KILL);
    torch.process.wait();
    while received.snapshot.as_ref().is_some_and(|it| it.processes.iter().any(|it| it.id.pid == torch.pid())) {
        received.apply(agent.next_line());
    }
}

#[test]
fn stats_that_exceed_the_driver_s_memory_are_shown() {
    let mut host = host(1);
    let mut torch = Torch::start(&host, 215, 1, &[]);
    for _ in 0..40 {
        torch.train(0);
    }
    // As a driver does that looks a container's process up by its PID there.
    host.add_process(0, Tenant::new(torch.pid(), 0));
    let mut received = ReceivedLines::default();
    let books = torch.books(0);
    let is_it = |peek: &AllocatorStats| peek.devices.iter().any(|it| figures(it) == books[8..] && it.gpu.is_some());
    wait(&agent(&host), &mut received, torch.pid(), "its figures", is_it);
}

#[test]
fn cuda_devices_are_matched_to_gpus() {
    let mut host = host(3);
    let mut torch = Torch::start(&host, 25, 2, &[("CUDA_VISIBLE_DEVICES", "2,0")]);
    torch.train(0);
    torch.train(1);
    // Both hold the same: only the environment tells.
    for gpu in [0, 2] {
        host.add_process(gpu, Tenant::new(torch.pid(), 500 * MIB));
    }
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    let is_it = |it: &AllocatorStats| it.devices.len() == 2 && it.devices.iter().all(|it| it.gpu.is_some());
    let peek = wait(&agent, &mut received, torch.pid(), "two devices on GPUs", is_it);
    let gpus: Vec<_> = peek.devices.iter().map(|it| it.gpu.clone()).collect();
    assert_eq!(gpus, [uuid(&received, 2), uuid(&received, 0)]);
}

#[test]
fn unreadable_stats_have_a_reason() {
    let mut host = host(1);
    let old = Torch::start(&host, 0, 1, &[]);
    let new = Torch::start(&host, 25, 1, &[]);
    let sleeper = host.start_sleep(0, GIB);
    for pid in [old.pid(), new.pid()] {
        host.add_process(0, Tenant::new(pid, GIB));
    }
    let agent = agent(&host);
    let mut received = ReceivedLines::default();
    wait(&agent, &mut received, old.pid(), "too old", |it| it.unreadable == Some(AllocatorUnreadable::OldPytorch));
    wait(&agent, &mut received, new.pid(), "nothing yet", |it| it.unreadable == Some(AllocatorUnreadable::NotYet));
    if !crate::process::is_skipped_in_container() {
        wait(&agent, &mut received, sleeper, "no PyTorch", |it| it.unreadable == Some(AllocatorUnreadable::NoPytorch));
    }
}

#[test]
fn stats_of_another_user_s_process_are_not_readable() {
    if !rustix::process::getuid().is_root() || crate::process::is_skipped_in_container() {
        return crate::print_note("skipped: only root can start gputop as someone else");
    }
    let mut host = host(1);
    let mut torch = Torch::start(&host, 25, 1, &[]);
    torch.train(0);
    host.add_process(0, Tenant::new(torch.pid(), GIB));
    let gputop: PathBuf = host.open_to_other_users();
    let mut command = Command::new("setpriv");
    host.set_environment(&mut command).args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([gputop.to_str().expect("the path is UTF-8"), "agent", "--interval", "100ms"]);
    let agent = Agent::spawn(&mut command);
    wait(&agent, &mut ReceivedLines::default(), torch.pid(), "another user's", |it| {
        it.unreadable == Some(AllocatorUnreadable::OtherUser)
    });
}
