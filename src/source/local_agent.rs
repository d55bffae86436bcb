//! The agent of this host, started as a child process.

use std::io;

use super::connection::{Connection, ProcessKind, Reporter};
use crate::base::detach::this_gputop;
use crate::protocol::agent_options::{
    AgentOptions, SHARED_LINES, SHARED_LINES_HERE, SimulatedMachine,
};
use crate::protocol::launchers;

/// Starts an agent and connects to it.
pub(super) fn connect(options: &AgentOptions, reporter: Reporter) -> io::Result<Connection> {
    let mut command = this_gputop();
    command
        .arg("agent")
        .arg("--interval-ms")
        .arg(options.interval.as_millis().to_string());
    if let Some(library) = &options.nvml_lib {
        command.arg("--nvml-lib").arg(library);
    }
    if !options.only.is_empty() {
        command.arg("--only").arg(options.only.join(","));
    }
    if let Some(lines) = launchers::user_lines() {
        command.env(launchers::VARIABLE, lines);
    }
    if options.shares_lines {
        command.env(SHARED_LINES, SHARED_LINES_HERE);
    }
    let flags = [
        ("--demo", options.demo != SimulatedMachine::None),
        ("--demo-past", options.demo == SimulatedMachine::WithPast),
        ("--detail", options.detail),
        ("--readonly", options.readonly),
    ];
    command.args(
        flags
            .iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(flag, _)| flag),
    );
    Connection::to_process(command, ProcessKind::Agent, None, reporter)
}
