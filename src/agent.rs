//! Eyes and hands of one host: writes snapshots to the standard output, obeys commands from the
//! standard input, and leaves when that closes.

mod clock;
pub mod demo;
mod hands;
mod inspect;
mod stat;
mod writer;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::cli::AgentArgs;
use crate::snapshot::{
    Driver, GpuFacts, GpuHealth, GpuLoad, GpuUuid, Identity, Process, ProcessId, Reading, Trouble, Use,
};
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

/// Everything that wakes the loop.
#[derive(Debug)]
enum Wake {
    /// Pass so often from now on.
    Interval(Duration),
    /// Pass now, and read what is otherwise read seldom.
    Scan,
}

/// Who is a tenant, by PID, as the newest snapshot says: what a command may be about.
#[derive(Debug, Clone, Default)]
struct Known(Arc<Mutex<HashMap<u32, (ProcessId, Identity)>>>);

impl Known {
    /// Who has this PID, and how surely.
    fn get(&self, pid: u32) -> Option<(ProcessId, Identity)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied()
    }

    /// Takes the tenants of a snapshot.
    fn set(&self, processes: &[Process]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        known.extend(processes.iter().map(|process| (process.id.pid, (process.id, process.facts.identity))));
    }
}

/// Watches this host until the standard input closes.
///
/// # Errors
///
/// When it cannot start.
pub fn run(args: &AgentArgs) -> anyhow::Result<ExitCode> {
    let (wake, woken) = mpsc::channel();
    let known = Known::default();
    hands::spawn(known.clone(), wake, writer::Replies, args.readonly)?;
    let mut machine = args.demo.then(demo::Machine::start).transpose()?;
    let mut interval = args.interval;
    loop {
        if let Some(machine) = &mut machine {
            machine.pass(clock::now());
        }
        known.set(&[]);
        if let Ok(Wake::Interval(asked)) = woken.recv_timeout(interval) {
            interval = asked;
        }
    }
}

/// Ends the process now.
fn leave() -> ! {
    // SAFETY: it runs no code of this process, and that is the point: a destructor of a library could
    // hang in the driver.
    unsafe { libc::_exit(0) }
}
