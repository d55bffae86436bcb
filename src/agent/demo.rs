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
