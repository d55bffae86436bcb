//! PyTorch's allocator stats, which the shipped binary reads from the memory of a real process. The
//! process loads a stand-in library with PyTorch's symbol and its old and new layouts.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use fake_nvml::GpuProcess;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::{
    AllocatorStats, AllocatorUnreadable, DeviceAllocator, GpuUuid, Snapshot,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, run};

pub(crate) const MIB: u64 = 1 << 20;

/// The numbers in [`FakeTorch::expected_stats`] that are counts of allocations and segments;
/// amounts of memory follow.
const COUNTS: usize = 8;

/// The layout of PyTorch 2.15 in `stand_in.c`.
pub(crate) const NEWEST_LAYOUT: u32 = 215;

/// Compiles the program or the library of the stand-in.
fn compile(arguments: &[&str], to: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pytorch/stand_in.c");
    let mut command = Command::new("cc");
    command
        .args(["-Wall", "-Werror", "-O1", "-pthread"])
        .args(arguments)
        .arg(source)
        .arg("-o")
        .arg(to)
        .arg("-ldl");
    let output = run(&mut command);
    assert_eq!(output.code, 0, "{}", output.stderr);
}

/// A process with a stand-in for PyTorch's allocator.
pub(crate) struct FakeTorch {
    process: ChildProcess,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl FakeTorch {
    /// Starts a process whose library has this layout (see `stand_in.c`) and this number of
    /// devices.
    pub(crate) fn start(
        host: &Host,
        layout: u32,
        devices: u32,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_with("libc10_cuda.so", host, layout, devices, environment)
    }

    /// As `start`, with a library of this file name.
    pub(crate) fn start_with(
        name: &str,
        host: &Host,
        layout: u32,
        devices: u32,
        environment: &[(&str, &str)],
    ) -> Self {
        let program = host.path("torch");
        if !program.exists() {
            compile(&["-DPROGRAM"], &program);
        }
        let folder = host.path(&format!("{layout}"));
        let library = folder.join(name);
        if !library.exists() {
            fs::create_dir_all(&folder).expect("/tmp has room");
            compile(
                &["-shared", "-fPIC", &format!("-DLAYOUT={layout}")],
                &library,
            );
        }
        // In a container, gputop trusts a PID only if the process has a device file open.
        let files = ["nvidia0", "nvidia-uvm"].map(|name| host.path(name));
        for file in &files {
            fs::write(file, "").expect("/tmp has room");
        }
        let mut command = Command::new(program);
        command
            .arg(library)
            .arg(devices.to_string())
            .args(files)
            .env_clear()
            .envs(environment.iter().copied());
        let mut process = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        Self {
            process,
            stdin,
            stdout,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the process reads its stdin");
    }

    /// Sends a command of `stand_in.c`, and returns the answer.
    pub(crate) fn request(&mut self, line: &str) -> String {
        self.send(line);
        let mut answer = String::new();
        self.stdout
            .read_line(&mut answer)
            .expect("the process answers");
        answer.trim_end().to_owned()
    }

    /// Allocates in all pools, frees blocks, and leaves a pending block and a cache.
    pub(crate) fn allocate(&mut self, device: u32) {
        for work in [
            "2 20971520 15728640 15000000 5242880 0",
            "1 2097152 1024 700 2096128 0",
            "2 41943040 41943040 41943040 0 0",
        ] {
            assert_eq!(self.request(&format!("work {device} {work}")), "done");
        }
        // One block is freed while another stream uses it; another becomes cache.
        assert_eq!(
            self.request(&format!("work {device} 1 0 -1024 -700 0 1")),
            "done"
        );
        assert_eq!(
            self.request(&format!("work {device} 2 0 -41943040 -41943040 0 0")),
            "done"
        );
    }

    /// The true stats in the order of `stand_in.c`: for each, the current value and the peak.
    pub(crate) fn expected_stats(&mut self, device: u32) -> Vec<u64> {
        let answer = self.request(&format!("stats {device}"));
        answer
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect()
    }
}

pub(crate) fn host_with_gpus(gpus: usize) -> Host {
    Host::new(vec!["H100"; gpus])
}

pub(crate) fn start_agent(host: &Host) -> Agent {
    let mut command = host.gputop(["agent", "--interval", "100ms"]);
    Agent::spawn(command.env("GPUTOP_DEVICES", host.path("nvidia")))
}

/// Reads lines until a condition holds for the allocator stats of a process, and returns the stats.
#[track_caller]
pub(crate) fn wait_for_stats(
    agent: &Agent,
    received: &mut ReceivedLines,
    pid: u32,
    description: &str,
    is_true: impl Fn(&AllocatorStats) -> bool,
) -> AllocatorStats {
    let started = crate::process::now();
    loop {
        received.apply(agent.next_line());
        let processes = &received
            .snapshot
            .as_ref()
            .expect("a line was read")
            .processes;
        let stats = processes
            .iter()
            .find(|process| process.id.pid == pid)
            .and_then(|process| process.allocator.as_deref());
        if let Some(stats) = stats.filter(|stats| is_true(stats)) {
            return stats.clone();
        }
        assert!(
            started.elapsed() < crate::DEADLINE,
            "never {description}: {stats:?}"
        );
    }
}

/// The amounts of memory in the stats of a device, in the order of [`FakeTorch::expected_stats`]
/// from [`COUNTS`] on.
pub(crate) fn amounts(stats: &DeviceAllocator) -> Vec<u64> {
    let pairs = [
        (stats.allocated, stats.allocated_peak),
        (stats.reserved, stats.reserved_peak),
        (stats.active, stats.active_peak),
        (stats.inactive_split, stats.inactive_split_peak),
        (stats.requested, stats.requested_peak),
    ];
    let readings = pairs
        .into_iter()
        .flat_map(|(current, peak)| [current, peak]);
    readings
        .map(|reading| reading.expect("the value was read").0)
        .collect()
}

/// Whether the stats of a device have these amounts.
pub(crate) fn has_amounts(expected: &[u64]) -> impl Fn(&AllocatorStats) -> bool {
    move |stats| {
        stats
            .devices
            .iter()
            .any(|device| amounts(device) == expected[COUNTS..])
    }
}

pub(crate) fn uuid(received: &ReceivedLines, gpu: usize) -> Option<GpuUuid> {
    Some(received.snapshot.as_ref()?.gpus[gpu].uuid.clone())
}

#[test]
fn every_layout_is_read_to_the_byte_and_follows_changes() {
    let mut host = host_with_gpus(2);
    for layout in [21, 25, NEWEST_LAYOUT] {
        let mut torch = FakeTorch::start(&host, layout, 1, &[]);
        torch.allocate(0);
        host.add_process(1, GpuProcess::new(torch.pid(), 500 * MIB));
        let agent = start_agent(&host);
        let mut received = ReceivedLines::default();
        for _ in 0..3 {
            let expected = torch.expected_stats(0);
            let stats = wait_for_stats(
                &agent,
                &mut received,
                torch.pid(),
                "the same amounts",
                has_amounts(&expected),
            );
            let [allocator] = stats.devices.as_slice() else {
                panic!("{stats:?}")
            };
            assert_eq!((allocator.device, &allocator.gpu), (0, &uuid(&received, 1)));
            assert_eq!(
                (allocator.allocations, allocator.segments),
                (Ok(expected[0]), Ok(expected[2]))
            );
            torch.allocate(0);
        }
        host.change(|world| world.gpus[1].processes.clear());
    }
}

#[test]
fn stats_of_a_busy_process_are_of_one_state() {
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]);
    torch.allocate(0);
    // `spin` allocates a block for a request of 1000 bytes from a segment that exists, and frees
    // it, without end. Each stat has one of two values, and all must be of the same state.
    let free = torch.expected_stats(0)[COUNTS..].to_vec();
    let mut allocated = free.clone();
    for (place, more) in [(0, 1024), (4, 1024), (6, -1024), (8, 1000)] {
        allocated[place] = allocated[place].strict_add_signed(more);
    }
    assert_eq!(torch.request("spin 0"), "0");
    host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    for _ in 0..20 {
        let stats = wait_for_stats(&agent, &mut received, torch.pid(), "stats", |stats| {
            !stats.devices.is_empty()
        });
        let found = amounts(&stats.devices[0]);
        assert!(
            found == free || found == allocated,
            "{found:?} is neither {free:?} nor {allocated:?}"
        );
    }
}

#[test]
fn forged_pointers_and_stats_are_rejected_and_harm_no_other_process() {
    let mut host = host_with_gpus(1);
    let mut hostile = FakeTorch::start(&host, 25, 1, &[]);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]);
    for torch in [&mut hostile, &mut torch] {
        torch.allocate(0);
        host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    }
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    let has_stats = |stats: &AllocatorStats| !stats.devices.is_empty();
    wait_for_stats(&agent, &mut received, hostile.pid(), "stats", has_stats);
    for forgery in 1..=7 {
        assert_eq!(hostile.request(&format!("forge {forgery}")), "done");
        wait_for_stats(
            &agent,
            &mut received,
            hostile.pid(),
            &format!("no stats of forgery {forgery}"),
            |stats| stats.unreadable.is_some(),
        );
        // The other process is read as before.
        torch.allocate(0);
        let expected = torch.expected_stats(0);
        wait_for_stats(
            &agent,
            &mut received,
            torch.pid(),
            "the stats of the other process",
            has_amounts(&expected),
        );
        assert_eq!(hostile.request("forge 0"), "done");
        wait_for_stats(
            &agent,
            &mut received,
            hostile.pid(),
            &format!("stats again after forgery {forgery}"),
            has_stats,
        );
    }
    // A stopped process is read too.
    hostile.process.handle.signal(rustix::process::Signal::STOP);
    torch.allocate(0);
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &agent,
        &mut received,
        torch.pid(),
        "the stats of the other process",
        has_amounts(&expected),
    );
    wait_for_stats(
        &agent,
        &mut received,
        hostile.pid(),
        "stats of the stopped process",
        has_stats,
    );
    hostile.process.handle.signal(rustix::process::Signal::CONT);
}

#[test]
fn a_read_that_hangs_is_reported_and_other_processes_are_read() {
    let mut host = host_with_gpus(1);
    let mut stuck = FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]);
    for torch in [&mut stuck, &mut torch] {
        torch.allocate(0);
        host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    }
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, stuck.pid(), "stats", |stats| {
        !stats.devices.is_empty()
    });
    if stuck.request("hang 0") != "0" {
        return crate::print_note(
            "skipped: memory that hangs can be made by root, or where vm.unprivileged_userfaultfd is 1",
        );
    }
    wait_for_stats(&agent, &mut received, stuck.pid(), "hung", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::Hung)
    });
    torch.allocate(0);
    let expected = torch.expected_stats(0);
    wait_for_stats(
        &agent,
        &mut received,
        torch.pid(),
        "the stats of the other process",
        has_amounts(&expected),
    );
}

#[test]
fn reads_that_hang_do_not_delay_a_report() {
    let mut host = host_with_gpus(1);
    let mut all: Vec<FakeTorch> = (0..4)
        .map(|_| FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]))
        .collect();
    for torch in &mut all {
        torch.allocate(0);
        host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    }
    // The two that are read first.
    all.sort_by_key(FakeTorch::pid);
    for stuck in &mut all[..2] {
        if stuck.request("hang 0") != "0" {
            return crate::print_note(
                "skipped: memory that hangs can be made by root, or where vm.unprivileged_userfaultfd is 1",
            );
        }
    }
    let output = run(host
        .gputop(["--json"])
        .env("GPUTOP_DEVICES", host.path("nvidia")));
    let Ok(Some(Line::Full(snapshot))) = Line::parse(&output.stdout) else {
        panic!("{}", output.text())
    };
    let stats_of = |torch: &FakeTorch| {
        snapshot
            .processes
            .iter()
            .find(|process| process.id.pid == torch.pid())?
            .allocator
            .clone()
    };
    for torch in &mut all[2..] {
        let stats = stats_of(torch).expect("the process was read");
        assert_eq!(
            stats.devices.iter().map(amounts).collect::<Vec<_>>(),
            [torch.expected_stats(0)[COUNTS..].to_vec()]
        );
    }
}

#[test]
fn a_newly_used_device_is_found_within_five_driver_passes() {
    let mut host = host_with_gpus(8);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 8, &[]);
    torch.allocate(2);
    // The process has a context on each GPU.
    (0..8).for_each(|gpu| host.add_process(gpu, GpuProcess::new(torch.pid(), 400 * MIB)));
    let mut command = host.gputop(["agent", "--interval", "500ms"]);
    let agent = Agent::spawn(command.env("GPUTOP_DEVICES", host.path("nvidia")));
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, torch.pid(), "one device", |stats| {
        stats.devices.len() == 1
    });
    for (count, device) in [(2, 0), (3, 5)] {
        torch.allocate(device);
        host.change(|world| world.gpus[device as usize].processes[0].memory = Some(500 * MIB));
        let memory = |received: &ReceivedLines| {
            received.snapshot.as_ref()?.gpus[device as usize]
                .processes
                .first()?
                .memory
                .ok()
        };
        while memory(&received).is_none_or(|memory| memory.0 != 500 * MIB) {
            received.apply(agent.next_line());
        }
        // If each pass checked only one device, finding it would take up to eight passes of the
        // driver.
        let stats_in = |received: &ReceivedLines| {
            let process = received
                .snapshot
                .as_ref()?
                .processes
                .iter()
                .find(|process| process.id.pid == torch.pid())?;
            process.allocator.clone()
        };
        let pass = |received: &ReceivedLines| {
            received
                .snapshot
                .as_ref()
                .map(|snapshot| snapshot.gpus[0].load.at)
        };
        let mut passes = vec![pass(&received)];
        while stats_in(&received).is_none_or(|stats| stats.devices.len() != count)
            && passes.len() < 5
        {
            received.apply(agent.next_line());
            passes.push(pass(&received));
            passes.dedup();
        }
        let stats = stats_in(&received).expect("the process was read");
        assert_eq!(stats.devices.len(), count, "{stats:?}");
    }
}

#[test]
fn devices_that_are_used_later_are_found() {
    let mut host = host_with_gpus(4);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 4, &[]);
    torch.allocate(2);
    host.add_process(2, GpuProcess::new(torch.pid(), 500 * MIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, torch.pid(), "one device", |stats| {
        stats.devices.len() == 1
    });
    // The driver may list the process on another GPU before or after it allocates there.
    host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    torch.allocate(0);
    wait_for_stats(&agent, &mut received, torch.pid(), "two devices", |stats| {
        stats.devices.len() == 2
    });
    torch.allocate(3);
    let stats = wait_for_stats(
        &agent,
        &mut received,
        torch.pid(),
        "three devices",
        |stats| stats.devices.len() == 3,
    );
    assert_eq!(
        stats
            .devices
            .iter()
            .map(|device| device.device)
            .collect::<Vec<_>>(),
        [0, 2, 3]
    );
}

#[test]
fn stats_are_shown_only_while_the_pidfds_prove_that_the_process_lives() {
    let mut host = host_with_gpus(1);
    let mut all: Vec<FakeTorch> = (0..3)
        .map(|_| FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]))
        .collect();
    for torch in &mut all {
        torch.allocate(0);
        host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
        // The stats change in every pass, so the identity of all processes is checked, in one call.
        assert_eq!(torch.request("stir"), "0");
    }
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    for (limit, description, is_true) in [
        (
            1024,
            "stats",
            (|stats| !stats.devices.is_empty()) as fn(&AllocatorStats) -> bool,
        ),
        // poll(2) accepts no more file descriptors than the limit of open files.
        (2, "no stats", |stats| {
            stats.unreadable == Some(AllocatorUnreadable::NotYet)
        }),
        (1024, "stats again", |stats| !stats.devices.is_empty()),
    ] {
        limit_files(agent.pid(), limit);
        for torch in &all {
            wait_for_stats(&agent, &mut received, torch.pid(), description, is_true);
        }
    }
}

/// Limits the number of files that a process may have open. Files that are open stay open.
fn limit_files(pid: u32, most: u64) {
    let limits = Rlimit {
        current: Some(most),
        ..getrlimit(Resource::Nofile)
    };
    prlimit(Pid::from_raw(pid.cast_signed()), Resource::Nofile, limits)
        .expect("the process is ours");
}

#[test]
fn a_report_contains_allocator_stats() {
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]);
    torch.allocate(0);
    host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    let output = run(host
        .gputop(["--json"])
        .env("GPUTOP_DEVICES", host.path("nvidia")));
    let Ok(Some(Line::Full(snapshot))) = Line::parse(&output.stdout) else {
        panic!("{}", output.text())
    };
    let process = snapshot
        .processes
        .iter()
        .find(|process| process.id.pid == torch.pid())
        .expect("the process is listed");
    let stats = process.allocator.as_ref().expect("the process was read");
    assert_eq!(
        stats.devices.iter().map(amounts).collect::<Vec<_>>(),
        [torch.expected_stats(0)[COUNTS..].to_vec()]
    );
}

#[test]
fn after_an_exec_or_an_exit_there_are_no_stats() {
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start(&host, 25, 1, &[]);
    torch.allocate(0);
    host.add_process(0, GpuProcess::new(torch.pid(), 500 * MIB));
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, torch.pid(), "stats", |stats| {
        stats.devices.len() == 1
    });
    torch.send("exec /bin/sleep");
    wait_for_stats(
        &agent,
        &mut received,
        torch.pid(),
        "another program",
        |stats| stats.unreadable == Some(AllocatorUnreadable::NoPytorch),
    );
    torch.process.handle.signal(rustix::process::Signal::KILL);
    torch.process.wait();
    let is_listed = |snapshot: &Snapshot| {
        snapshot
            .processes
            .iter()
            .any(|process| process.id.pid == torch.pid())
    };
    while received.snapshot.as_ref().is_some_and(is_listed) {
        received.apply(agent.next_line());
    }
}

#[test]
fn stats_that_exceed_the_driver_s_memory_are_shown() {
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start(&host, NEWEST_LAYOUT, 1, &[]);
    for _ in 0..40 {
        torch.allocate(0);
    }
    // As a driver reports that looks up the process of a container by its PID in there.
    host.add_process(0, GpuProcess::new(torch.pid(), 0));
    let mut received = ReceivedLines::default();
    let expected = torch.expected_stats(0);
    let has_stats_on_gpu = |stats: &AllocatorStats| {
        stats
            .devices
            .iter()
            .any(|device| amounts(device) == expected[COUNTS..] && device.gpu.is_some())
    };
    wait_for_stats(
        &start_agent(&host),
        &mut received,
        torch.pid(),
        "its stats",
        has_stats_on_gpu,
    );
}

#[test]
fn unreadable_stats_have_a_reason() {
    let mut host = host_with_gpus(1);
    let old = FakeTorch::start(&host, 0, 1, &[]);
    let new = FakeTorch::start(&host, 25, 1, &[]);
    let sleeper = host.start_sleep(0, GIB);
    for pid in [old.pid(), new.pid()] {
        host.add_process(0, GpuProcess::new(pid, GIB));
    }
    let agent = start_agent(&host);
    let mut received = ReceivedLines::default();
    wait_for_stats(&agent, &mut received, old.pid(), "too old", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::OldPytorch)
    });
    wait_for_stats(&agent, &mut received, new.pid(), "nothing yet", |stats| {
        stats.unreadable == Some(AllocatorUnreadable::NotYet)
    });
    if !crate::process::is_skipped_in_container() {
        wait_for_stats(&agent, &mut received, sleeper, "no PyTorch", |stats| {
            stats.unreadable == Some(AllocatorUnreadable::NoPytorch)
        });
    }
}

#[test]
fn stats_of_another_user_s_process_are_not_readable() {
    if !rustix::process::getuid().is_root() || crate::process::is_skipped_in_container() {
        return crate::print_note("skipped: only root can start gputop as someone else");
    }
    let mut host = host_with_gpus(1);
    let mut torch = FakeTorch::start(&host, 25, 1, &[]);
    torch.allocate(0);
    host.add_process(0, GpuProcess::new(torch.pid(), GIB));
    let gputop: PathBuf = host.open_to_other_users();
    let mut command = Command::new("setpriv");
    host.set_environment(&mut command)
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([
        gputop.to_str().expect("the path is UTF-8"),
        "agent",
        "--interval",
        "100ms",
    ]);
    let agent = Agent::spawn(&mut command);
    wait_for_stats(
        &agent,
        &mut ReceivedLines::default(),
        torch.pid(),
        "another user's",
        |stats| stats.unreadable == Some(AllocatorUnreadable::OtherUser),
    );
}
