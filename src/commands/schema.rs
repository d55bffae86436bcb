//! `gputop schema`: the JSON Schema of the lines of an agent.

use std::process::ExitCode;

use crate::output::{self, Exit};
use crate::protocol::line::SCHEMA;

/// Prints the schema.
///
/// # Errors
///
/// When the standard output cannot be written.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    output::print(SCHEMA.as_bytes())?;
    Ok(Exit::Success.into())
}
