//! The agent of one host: writes snapshots to the standard output and performs commands from the
//! standard input, until the standard input closes.
//!
//! ```text
//! nvml (NVML, may hang) ─────────────┐
//! scan (all of /proc) ───────────────┤
//! slow files and users (may hang) ───┤
//! pytorch (may hang) ────────────────┼─► main loop (/proc) ─► writer (may block) ─► standard output
//! actions (standard input) ──────────┘       ▲ never waits
//! ```
//!
//! The agent ends by `_exit`, whatever its threads do: destructors of the driver's library can
//! hang.

mod actions;
mod clock;
mod host;
mod line_writer;
mod main_loop;
mod nvml;
mod probe;
mod procfs;
mod pytorch;
mod reading_slots;
mod sampler;
mod scan;
mod shared_lines;
mod worker;

pub(crate) mod attach;
pub mod diagnostics;

pub mod demo;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};

use self::actions::{CommandInput, CommandReader};
use self::shared_lines::AfterShared;
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::agent_options::{
    AgentOptions, SHARED_LINES, SHARED_LINES_HERE, SimulatedMachine,
};
use crate::protocol::launchers;
use crate::protocol::snapshot::{
    Driver, EngineShares, Failure, GpuDetail, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Missing,
    Process, ProcessFacts, ProcessId, Reading, Trouble, Use,
};

/// The readings of one pass over the driver, or over the simulated machine.
#[derive(Debug, Clone)]
struct Readings {
    driver: Driver,
    /// Every GPU, by index. The instances of a split GPU come right after it.
    gpus: Vec<GpuReadings>,
    /// Facts that the simulated machine makes up about processes; `None` on a real machine.
    simulation: Option<demo::Simulation>,
}

/// The driver, or the simulated machine.
trait GpuSource {
    /// Returns the few readings that the first line needs, once. `None` if there are none.
    fn first_stage(&mut self, _now: Moment) -> Option<Readings> {
        None
    }

    fn pass(&mut self, now: Moment, request: PassRequest) -> Readings;

    /// Repeats the hung calls whose retry is due, after a pass.
    fn retry(&mut self, _now: Moment) {}
}

/// The work of a pass besides the readings of every pass.
#[derive(Debug, Default)]
struct PassRequest {
    /// Whether to read also the values that are otherwise read seldom.
    reads_slow: bool,
    /// Whether a hung call has returned, so that it can be made again.
    came_back: bool,
    /// The GPU whose detail to read, in this and later passes.
    detail: Option<GpuUuid>,
}

#[derive(Debug, Clone)]
struct GpuReadings {
    uuid: GpuUuid,
    facts: GpuFacts,
    load: GpuLoad,
    health: GpuHealth,
    /// Whether the GPU has no memory of its own, and uses that of the host.
    shares_memory: bool,
    /// `None` unless the page of the GPU is open, or the agent was started with `--detail`.
    detail: Option<Box<GpuDetail>>,
    /// The processes in NVML's lists, sorted by PID, each once.
    processes: Vec<NvmlProcess>,
    /// Why the processes could not be listed; `None` when they were.
    processes_missing: Option<Missing>,
    trouble: Option<Trouble>,
    failures: Vec<Failure>,
}

impl GpuReadings {
    fn missing(
        uuid: GpuUuid,
        index: u32,
        parent: Option<GpuUuid>,
        now: Moment,
        why: Missing,
    ) -> Self {
        Self {
            uuid,
            facts: GpuFacts::missing(index, parent, false, why),
            load: GpuLoad::missing(now, why),
            health: GpuHealth::missing(now, vec![], why),
            shares_memory: false,
            detail: None,
            processes: vec![],
            processes_missing: Some(why),
            trouble: None,
            failures: vec![],
        }
    }

    fn unknown(index: u32, now: Moment, why: Missing) -> Self {
        Self::missing(GpuUuid::unknown(index), index, None, now, why)
    }
}

/// A process in NVML's lists of one GPU, not yet looked up in `/proc`.
#[derive(Debug, Clone, PartialEq)]
struct NvmlProcess {
    /// The PID that NVML gives. In a container it may be a PID of the host.
    pid: u32,
    /// When NVML was asked for the list. A process with this PID that started later is another
    /// process.
    listed: Moment,
    usage: Use,
    memory: Reading<Bytes>,
    /// Share of the time since the last pass in which the process's kernels ran.
    sm: Reading<Percent>,
    /// Shares of the other engines, where an agent reads them.
    engines: Option<EngineShares>,
}

#[derive(Debug)]
enum AgentEvent {
    /// New readings of the driver, or the notice that an abandoned thread returned from a hung
    /// call.
    Sampled(worker::WorkerMessage<Box<Readings>>),
    SlowFile(procfs::SlowFilesMessage),
    Scanned(Box<scan::ScanResult>),
    /// New allocator stats, or the notice that an abandoned thread returned from a hung read.
    Allocators(worker::WorkerMessage<Vec<(ProcessId, pytorch::ReadOutcome)>>),
    /// A held process has another user than before.
    OwnerChanged(ProcessId),
    /// The writer has written the first snapshot.
    Written,
    /// Start passes at this interval from now on.
    Interval(Duration),
    /// Start a pass now that also reads the values that are otherwise read seldom, and a scan of
    /// all open files.
    Scan,
    /// Start a pass now, and write a full line.
    Full,
    /// A held process with these arguments has ended. A process that starts soon with the same
    /// arguments may be its replacement.
    Ended(Argv),
    /// Read the detail of this GPU in each pass; with `None`, of no GPU.
    Detail(Option<GpuUuid>),
}

type CommandTarget = (ProcessId, Arc<ProcessFacts>);

/// The processes of the newest snapshot, sorted by PID. Commands act on these only.
#[derive(Debug, Clone, Default)]
struct CommandTargets(Arc<Mutex<Vec<CommandTarget>>>);

impl CommandTargets {
    fn get(&self, pid: u32) -> Option<CommandTarget> {
        let targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets
            .binary_search_by_key(&pid, |(process, _)| process.pid)
            .ok()
            .map(|index| targets[index].clone())
    }

    fn set(&self, processes: &[Process]) {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.clear();
        targets.extend(
            processes
                .iter()
                .map(|process| (process.id, process.facts.clone())),
        );
    }
}

/// The highest file descriptor for which the agent makes room when it starts.
const LAST_DESCRIPTOR: i32 = 2047;

/// Watches this host until the standard input or the reader of the standard output closes.
///
/// # Errors
///
/// When a thread cannot be started.
pub fn run(options: &AgentOptions) -> anyhow::Result<ExitCode> {
    // In a session of its own, the agent gets no Ctrl-C from the viewer's terminal. An agent that
    // was started by hand in a terminal leads its group and cannot leave it; a Ctrl-C should end
    // that agent.
    let _leader = setsid();
    // One descriptor stays open for each GPU process. Where the limit is too low, files are opened
    // for each reading.
    let limit = getrlimit(Resource::Nofile);
    let _refused = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    // The kernel doubles the table of descriptors as it fills. In a process with threads, each
    // doubling waits some 10 ms for the other processors. So the table grows now, before the first
    // thread starts, to the size that a large host needs.
    let _grown = fcntl_dupfd_cloexec(rustix::stdio::stdin(), LAST_DESCRIPTOR);
    end_on_panic();
    if let Ok(lines) = std::env::var(launchers::VARIABLE) {
        launchers::add(launchers::parse(&lines));
    }
    let mut reader = CommandReader::new(rustix::stdio::stdin());
    let shares_lines =
        std::env::var_os(SHARED_LINES).filter(|_| options.demo == SimulatedMachine::None);
    let is_for_another_host = shares_lines
        .as_ref()
        .is_some_and(|value| value != SHARED_LINES_HERE);
    let after = if shares_lines.is_some() {
        shared_lines::pass_on(&mut reader)
    } else {
        AfterShared::ReadHost(Vec::new())
    };
    let AfterShared::ReadHost(first) = after else {
        return Ok(ExitCode::SUCCESS);
    };
    let _slot = if is_for_another_host {
        match reading_slots::take() {
            Ok(slot) => slot,
            Err(sentence) => {
                print_error(&sentence);
                return Ok(ExitCode::FAILURE);
            }
        }
    } else {
        None
    };
    main_loop::run(options, CommandInput { first, reader })
        .context("cannot start a thread of the agent")?;
    Ok(ExitCode::SUCCESS)
}

/// Continues the processes that an agent has stopped, if that agent is killed before it is done
/// with them. Reads their list from the standard input.
pub fn continue_stopped() {
    actions::continue_stopped(io::stdin().lock());
}

/// Makes a panic in any thread print one line and end the process.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        print_error(&panic.to_string());
        // The actions thread cannot wait for itself. Another process continues the processes that
        // it stopped.
        if std::thread::current().name() != Some(actions::THREAD) {
            actions::finish_forced_end();
        }
        exit_now(1);
    }));
}

/// Ends the process as soon as no forced end is in progress.
fn leave() -> ! {
    actions::finish_forced_end();
    exit_now(0)
}

fn print_error(line: &str) {
    // Writing fails when nobody reads the standard error.
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop agent: {}", Text::from(line));
}

fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` runs no more code of this process. A destructor of a library could hang in
    // the driver.
    unsafe { libc::_exit(code) }
}

/// Reads a memory file of the probe, or a report, of these bytes. Returns whether a report is read.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_probe_bytes(bytes: &[u8]) -> bool {
    probe::read_bytes(bytes)
}

/// Parses these bytes as those of `/proc/PID/stat`. Returns whether they are.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_proc_stat_bytes(bytes: &[u8]) -> bool {
    let is_thread = procfs::stat::is_thread(bytes);
    let stat = procfs::stat::parse(bytes);
    assert!(
        !is_thread || bytes.contains(&b')'),
        "a line without a name is of a thread"
    );
    stat.is_some()
}
