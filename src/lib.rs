//! gputop: every GPU of a host, who holds its memory, and a safe way to end the right process.
//!
//! The guided tour, in reading order. Facts flow one way: an agent sees a host and writes
//! snapshots; a link carries them; the model gives them meaning, the app intent, the ui a picture.

use std::io::{self, Write};
use std::process::ExitCode;

pub mod base;

pub mod protocol;

pub mod agent;
pub mod source;

pub mod model;

pub mod app;

pub mod view;

pub mod tui;

pub mod commands;

pub mod cli;
pub mod config;

use cli::{Cli, Task};

/// Does what the command line asks for.
///
/// # Errors
///
/// When it cannot be done; the error says what was being done, to what, and what to do about it.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.task {
        Some(Task::Agent(args)) => agent::run(args),
        Some(Task::Analyze(args)) => commands::analyze::run(args),
        Some(Task::DemoProcess { role }) => agent::demo::be(role),
        Some(Task::Doctor(args)) => commands::doctor::run(args, &config::Config::load(cli)),
        Some(Task::Explain(args)) => commands::explain::run(args),
        Some(Task::Free(args)) => commands::free::run(args),
        Some(Task::Orphans(args)) => commands::orphans::run(args),
        Some(Task::Schema) => {
            io::stdout().write_all(protocol::line::SCHEMA.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        None if commands::query::is_asked(cli) => commands::query::run(cli),
        None if commands::report::is_asked_for(cli) => commands::report::run(cli),
        None => tui::session::run(cli),
    }
}
