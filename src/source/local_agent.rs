//! The agent of this host, started as a child process.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::connection::{Connection, ProcessKind, Reporter};
use crate::protocol::agent_options::AgentOptions;

/// Starts an agent and connects to it.
pub(super) fn connect(options: &AgentOptions, reporter: Reporter) -> io::Result<Connection> {
    // An update may have replaced the program file; the kernel still has the file that runs.
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
    command.arg("agent").arg("--interval-ms").arg(options.interval.as_millis().to_string());
    if let Some(library) = &options.nvml_lib {
        command.arg("--nvml-lib").arg(library);
    }
    if !options.only.is_empty() {
        command.arg("--only").arg(options.only.join(","));
    }
    let flags = [("--demo", options.demo), ("--detail", options.detail), ("--readonly", options.readonly)];
    command.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    Connection::to_process(command, ProcessKind::Agent, reporter)
}
