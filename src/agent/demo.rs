//! The simulated machine of `--demo`: GPUs that do not exist, and real, harmless processes on them.

use std::process::ExitCode;

/// Is one of the processes of the simulated machine, until the agent ends.
///
/// # Errors
///
/// When there is no such role.
pub fn be(role: &str) -> anyhow::Result<ExitCode> {
    anyhow::bail!("no such role: {role}")
}

/// The simulated machine.
#[derive(Debug)]
pub(super) struct Machine;

impl Machine {
    /// Starts it.
    pub(super) fn start() -> std::io::Result<Self> {
        Ok(Self)
    }

    /// What one pass over it brings.
    pub(super) fn pass(&mut self, _now: crate::units::Moment) -> super::Readings {
        let driver = crate::snapshot::Driver { version: None, cuda_version: None, trouble: None };
        super::Readings { driver, gpus: vec![] }
    }
}
