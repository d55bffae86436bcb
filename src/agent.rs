//! The agent of one host: writes snapshots to the standard output and obeys commands from the standard input, until that
//! closes.
//!
//! ```text
//! nvml (NVML, may hang) ─────────────┐
//! scan (all of /proc) ───────────────┤
//! slow files and users (may hang) ───┤
//! pytorch (may hang) ────────────────┼─► main loop (/proc) ─► writer (may block) ─► standard output
//! actions (standard input) ──────────┘       ▲ never waits
//! ```
//!
//! The agent ends by `_exit`, whatever its threads do: destructors of the driver's library can hang.

mod actions;
mod clock;
mod host;
mod line_writer;
mod main_loop;
mod nvml;
mod procfs;
mod pytorch;
mod sampler;
mod scan;
mod worker;

pub mod diagnostics;

pub mod demo;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};

use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::snapshot::{
    Driver, Failure, GpuDetail, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Missing, Process, ProcessFacts, ProcessId,
    Reading, Trouble, Use,
};

/// The readings of one pass over the driver.
#[derive(Debug, Clone)]
struct Readings {
    driver: Driver,
    /// Every GPU, by index. The instances of a split GPU come right after it.
    gpus: Vec<GpuReadings>,
    /// Allocator stats of the simulated machine's processes, by PID. These processes have no PyTorch.
    simulated: Vec<(u32, pytorch::ReadOutcome)>,
}

/// The readings of one GPU or MIG instance.
#[derive(Debug, Clone)]
struct GpuReadings {
    uuid: GpuUuid,
    facts: GpuFacts,
    load: GpuLoad,
    health: GpuHealth,
    /// `None` unless it is asked for.
    detail: Option<Box<GpuDetail>>,
    /// The processes in NVML's lists, by PID, each once.
    processes: Vec<NvmlProcess>,
    /// PIDs of the simulated machine that hold the GPU without being listed: that machine has no device files.
    device_file_holders: Vec<u32>,
    /// The reason why the GPU does not answer; `None` when all is well.
    trouble: Option<Trouble>,
    /// Calls that fail while others succeed.
    failures: Vec<Failure>,
}

impl GpuReadings {
    /// A GPU of which no reading is known, and why.
    fn missing(uuid: GpuUuid, index: u32, parent: Option<GpuUuid>, now: Moment, why: Missing) -> Self {
        Self {
            uuid,
            facts: GpuFacts::missing(index, parent, false, why),
            load: GpuLoad::missing(now, why),
            health: GpuHealth::missing(now, vec![], why),
            detail: None,
            processes: vec![],
            device_file_holders: vec![],
            trouble: None,
            failures: vec![],
        }
    }

    /// A GPU that could not tell its UUID.
    fn unknown(index: u32, now: Moment, why: Missing) -> Self {
        Self::missing(Self::unknown_uuid(index), index, None, now, why)
    }

    /// The placeholder for the UUID of such a GPU.
    fn unknown_uuid(index: u32) -> GpuUuid {
        GpuUuid(format!("unknown-{index}").into())
    }
}

/// A process in NVML's lists of one GPU. Whether `/proc` knows its PID is not known yet.
#[derive(Debug, Clone, PartialEq)]
struct NvmlProcess {
    /// The PID that NVML gives. In a container it may be a PID of the host.
    pid: u32,
    /// The time when the list was asked for. A process that started later is another one.
    listed: Moment,
    usage: Use,
    memory: Reading<Bytes>,
    /// Share of the time since the last pass in which its kernels ran.
    sm: Reading<Percent>,
}

/// Everything that wakes the main loop.
#[derive(Debug)]
enum AgentEvent {
    /// A pass over the driver ended, or an abandoned thread came back from its call.
    Sampled(worker::WorkerMessage<Box<Readings>>),
    SlowFile(procfs::SlowFilesMessage),
    Scanned(Box<scan::ScanResult>),
    /// New allocator stats, or an abandoned thread came back from its process.
    Allocators(worker::WorkerMessage<Vec<(ProcessId, pytorch::ReadOutcome)>>),
    /// The first snapshot was written.
    Written,
    /// Start a pass at this interval from now on.
    Interval(Duration),
    /// Start a pass now, and read everything, also the values that are otherwise read seldom.
    Scan,
    /// Start a pass now, and write a full line.
    Full,
    /// A held process with these arguments has ended. A process that starts soon with the same arguments may be its
    /// replacement.
    Ended(Argv),
    /// Read the detail of this GPU, or of none.
    Detail(Option<GpuUuid>),
}

/// A process that commands may act on.
type CommandTarget = (ProcessId, Arc<ProcessFacts>);

/// The processes of the newest snapshot, sorted by PID. Commands act on these only.
#[derive(Debug, Clone, Default)]
struct CommandTargets(Arc<Mutex<Vec<CommandTarget>>>);

impl CommandTargets {
    fn get(&self, pid: u32) -> Option<CommandTarget> {
        let targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.binary_search_by_key(&pid, |(process, _)| process.pid).ok().map(|at| targets[at].clone())
    }

    /// Sets the processes of a snapshot, sorted by PID.
    fn set(&self, processes: &[Process]) {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        targets.clear();
        targets.extend(processes.iter().map(|process| (process.id, process.facts.clone())));
    }
}

/// The highest descriptor that the agent makes room for at its start.
const LAST_DESCRIPTOR: i32 = 2047;

/// Watches this host until the standard input closes, or nobody reads the standard output.
///
/// # Errors
///
/// When a thread cannot be started.
pub fn run(options: &AgentOptions) -> anyhow::Result<ExitCode> {
    // In a session of its own, the agent gets no Ctrl-C from the viewer's terminal. An agent that was started by hand in a
    // terminal leads its group and cannot leave it; a Ctrl-C should end that agent.
    let _leader = setsid();
    // One descriptor stays open for each GPU process. Where the limit is too low, files are opened for each reading.
    let limit = getrlimit(Resource::Nofile);
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // The kernel doubles the table of descriptors as it fills, and waits some 10 ms for the other processors each time if the
    // process has threads. Without threads it grows at once, here to what a large host needs.
    let _grown = fcntl_dupfd_cloexec(rustix::stdio::stdin(), LAST_DESCRIPTOR);
    end_on_panic();
    main_loop::run(options).context("cannot start a thread of the agent")?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a panic in any thread print one line and end the process.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        print_error(&panic.to_string());
        // The actions thread cannot wait for itself: the processes that it stopped are continued here.
        if std::thread::current().name() == Some(actions::THREAD) {
            actions::abort_forced_end();
        } else {
            actions::finish_forced_end();
        }
        exit_now(1);
    }));
}

/// Ends the process, after the end of a forced end in progress.
fn leave() -> ! {
    actions::finish_forced_end();
    exit_now(0)
}

/// Prints a line to the standard error.
fn print_error(line: &str) {
    // The reader may be gone.
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop agent: {}", Text::from(line));
}

fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` runs no more code of this process. A destructor of a library could hang in the driver.
    unsafe { libc::_exit(code) }
}
