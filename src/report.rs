//! Placeholder
use std::process::ExitCode;

use crate::cli::Cli;

/// Whether.
pub fn is_asked_for(cli: &Cli) -> bool {
    cli.once || cli.json || cli.every.is_some() || !crate::terminal::Tty::is_there()
}

/// Prints.
///
/// # Errors
///
/// When.
pub fn run(_cli: &Cli) -> anyhow::Result<ExitCode> {
    anyhow::bail!("no report yet")
}
