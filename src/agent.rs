//! Eyes and hands of one host: writes snapshots to the standard output, obeys commands from the
//! standard input, and leaves when that closes.
//!
//! ```text
//! sampler (NVML, may hang) ──┐
//! census (all of /proc) ─────┤
//! argv, users (may hang) ────┤
//! peek (PyTorch; may hang) ──┼─► loop (/proc, join) ─► writer (may block) ─► standard output
//! hands (standard input) ────┘          ▲ never waits
//! ```
//!
//! It leaves by `_exit`, whatever its threads are at: destructors of the driver's library can hang.

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
    /// The driver itself.
    driver: Driver,
    /// Every GPU, by index. The instances of a split GPU come right after it.
    gpus: Vec<GpuReadings>,
    /// Allocator stats of the simulated machine's processes, by PID. These processes have no PyTorch.
    simulated: Vec<(u32, Vec<pytorch::Stats>)>,
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
    /// The lists that name it.
    usage: Use,
    /// Device memory that it uses.
    memory: Reading<Bytes>,
    /// Share of the time since the last pass in which its kernels ran.
    sm: Reading<Percent>,
}

/// Everything that wakes the loop.
#[derive(Debug)]
enum Wake {
    /// A pass over the driver ended, or an abandoned thread came back from its call.
    Read(worker::WorkerMessage<Box<Readings>>),
    /// Something was read aside.
    Found(procfs::SlowFilesMessage),
    /// The census has news.
    Sighted(Box<scan::Sighting>),
    /// The thread of this number looked into these processes.
    Peeked(u64, Vec<(ProcessId, pytorch::Outcome)>),
    /// The first line was written.
    Written,
    /// Pass so often from now on.
    Interval(Duration),
    /// Pass now, and read what is otherwise read seldom.
    Scan,
    /// Pass now, and write a full line.
    Full,
    /// One that was held has ended. It ran this: whoever runs the same soon may have taken its place.
    Ended(Argv),
    /// Read all that there is to know of this GPU, or of none.
    Detail(Option<GpuUuid>),
}

/// Whom the newest snapshot shows, by PID: whom a command may be about.
#[derive(Debug, Clone, Default)]
struct Known(Arc<Mutex<Vec<Acquaintance>>>);

/// What the hands need to know of a process before they take hold of it.
#[derive(Debug, Clone)]
struct Acquaintance {
    process: ProcessId,
    facts: Arc<ProcessFacts>,
}

impl Known {
    /// Who has this PID.
    fn get(&self, pid: u32) -> Option<Acquaintance> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.binary_search_by_key(&pid, |it| it.process.pid).ok().map(|at| known[at].clone())
    }

    /// Takes the processes of a snapshot, which are by PID.
    fn set(&self, processes: &[Process]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        known.reserve_exact(processes.len());
        known.extend(processes.iter().map(|it| Acquaintance { process: it.id, facts: it.facts.clone() }));
    }
}

/// Watches this host until the standard input closes, or nobody reads the standard output.
///
/// # Errors
///
/// When it cannot start.
pub fn run(options: &AgentOptions) -> anyhow::Result<ExitCode> {
    // Its own session: a Ctrl-C in the viewer's terminal is the viewer's affair. A process that leads
    // its group already, started by hand in a terminal, cannot leave it, and a Ctrl-C should end that one.
    let _leader = setsid();
    // A descriptor stays open for each GPU process. Without more of them, files are opened for each reading.
    let limit = getrlimit(Resource::Nofile);
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // The kernel's table of descriptors doubles as it fills, and with threads each time waits some 10 ms
    // for the other processors. While there are none it grows at once, to what a large host needs.
    let _grown = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 2047);
    end_on_panic();
    main_loop::run(options).context("cannot start a thread of the agent")?;
    Ok(ExitCode::SUCCESS)
}

/// From now on a panic in any thread is said in one sentence and ends the process.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        say(&panic.to_string());
        // That one has nobody to wait for: what it stopped goes on. No other thread stops anyone.
        if std::thread::current().name() == Some(actions::THREAD) {
            actions::break_off_act();
        } else {
            actions::finish_act();
        }
        exit_now(1);
    }));
}

/// Ends the process, as soon as no one is stopped that should go on.
fn leave() -> ! {
    actions::finish_act();
    exit_now(0)
}

/// Says one sentence and ends the process now.
fn leave_with(sentence: &str) -> ! {
    say(sentence);
    exit_now(1)
}

fn say(sentence: &str) {
    // Nobody may be there to read it.
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop agent: {}", Text::from(sentence));
}

fn exit_now(code: i32) -> ! {
    // SAFETY: it runs no code of this process, and that is the point: a destructor of a library could
    // hang in the driver.
    unsafe { libc::_exit(code) }
}
