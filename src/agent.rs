//! Eyes and hands of one host: writes snapshots to the standard output, obeys commands from the
//! standard input, and leaves when that closes.

mod clock;
pub mod demo;
mod hands;
mod inspect;
mod known;
mod stat;
mod writer;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use crate::cli::AgentArgs;
use crate::snapshot::line::Line;
use crate::snapshot::{Driver, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Reading, Trouble, Use};
use crate::units::{Bytes, Percent};

/// What one pass over the driver brought.
#[derive(Debug, Clone)]
pub struct Readings {
    /// The driver itself.
    pub driver: Driver,
    /// Every GPU, by index; the instances of a split one right after it.
    pub gpus: Vec<GpuReadings>,
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
    /// Who uses it, by PID, each once.
    pub holds: Vec<Hold>,
    /// Why it does not answer; absent when all is well.
    pub trouble: Option<Trouble>,
}

/// One entry of NVML's process lists: a PID that `/proc` was not asked about yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// As NVML says it; in a container it may be the host's.
    pub pid: u32,
    /// In which of the lists it was.
    pub usage: Use,
    /// Device memory that the driver gave it.
    pub memory: Reading<Bytes>,
    /// Share of the time since the last pass in which its kernels ran.
    pub sm: Reading<Percent>,
}

/// What makes the loop pass before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// Pass so often from now on.
    Interval(Duration),
    /// Pass now, and read what is otherwise read seldom.
    Scan,
}

/// Leaves at once. Destructors of the driver's library can hang, so none are run.
fn leave() -> ! {
    // SAFETY: `_exit` takes any status, and nothing of this process is used after it.
    unsafe { libc::_exit(0) }
}

/// Watches this host until the standard input closes.
///
/// # Errors
///
/// When it cannot start.
pub fn run(args: &AgentArgs) -> anyhow::Result<ExitCode> {
    let (wake, woken) = mpsc::channel();
    let (replies, lines) = mpsc::channel();
    hands::spawn(known::Known::default(), wake, writer::Replies(replies), args.readonly)?;
    for reply in lines {
        Line::Reply(reply).write(io::stdout())?;
    }
    drop(woken);
    Ok(ExitCode::SUCCESS)
}
