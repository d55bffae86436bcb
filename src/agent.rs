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
    Driver, Failure, GpuDetail, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Process, ProcessFacts, ProcessId, Reading,
    Trouble, Use,
};

/// What one pass over the driver brought.
#[derive(Debug, Clone)]
pub struct Readings {
    /// The driver itself.
    pub driver: Driver,
    /// Every GPU, by index; the instances of a split one right after it.
    pub gpus: Vec<GpuReadings>,
    /// Of the simulated machine, what PyTorch says in its processes, by PID. They have none.
    simulated: Vec<(u32, Vec<pytorch::Stats>)>,
}

/// What one pass brought of one GPU, or of one MIG instance.
#[derive(Debug, Clone)]
pub struct GpuReadings {
    /// Its id.
    pub uuid: GpuUuid,
    /// What does not change.
    pub facts: GpuFacts,
    /// What changes each second.
    pub load: GpuLoad,
    /// What changes now and then.
    pub health: GpuHealth,
    /// What few ask for; absent unless it was asked for.
    pub detail: Option<Box<GpuDetail>>,
    /// Who uses it, by PID, each once.
    pub holds: Vec<Hold>,
    /// Who holds it besides, by PID: on the simulated machine, which has no device files.
    pub device_file_holders: Vec<u32>,
    /// Why it does not answer; absent when all is well.
    pub trouble: Option<Trouble>,
    /// What fails while the rest goes on.
    pub failures: Vec<Failure>,
}

/// One entry of NVML's process lists: a PID that `/proc` was not asked about yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// As NVML says it; in a container it may be the host's.
    pub pid: u32,
    /// When the list that named it was asked for. A process that started later is another one.
    pub listed: Moment,
    /// In which of the lists it was.
    pub usage: Use,
    /// Device memory that the driver gave it.
    pub memory: Reading<Bytes>,
    /// Share of the time since the last pass in which its kernels ran.
    pub sm: Reading<Percent>,
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
