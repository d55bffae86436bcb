//! Eyes and hands of one host: writes snapshots to the standard output, obeys commands from the
//! standard input, and leaves when that closes.

pub mod demo;

use std::process::ExitCode;

use crate::cli::AgentArgs;
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

/// Watches this host until the standard input closes.
///
/// # Errors
///
/// When it cannot start.
pub fn run(_args: &AgentArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("no agent yet")
}
