//! gputop: every GPU of a host, who holds its memory, and a safe way to end the right process.
//!
//! The guided tour, in reading order. Facts flow one way: an agent sees a host and writes
//! snapshots; a link carries them; the model gives them meaning, the app intent, the ui a picture.

use std::io::{self, Write};
use std::process::ExitCode;

pub mod units;
pub mod untrusted;

pub mod control;
pub mod snapshot;

pub mod agent;
pub mod link;

pub mod model;

pub mod app;
pub mod event;

pub mod ui;

pub mod session;
pub mod terminal;

pub mod analyze;
pub mod doctor;
pub mod explain;
pub mod free;
pub mod orphans;
pub mod query;
pub mod report;

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
        Some(Task::Analyze(args)) => analyze::run(args),
        Some(Task::DemoProcess { role }) => agent::demo::be(role),
        Some(Task::Doctor(args)) => doctor::run(args, &config::Config::load(cli)),
        Some(Task::Explain(args)) => explain::run(args),
        Some(Task::Free(args)) => free::run(args),
        Some(Task::Orphans(args)) => orphans::run(args),
        Some(Task::Schema) => {
            io::stdout().write_all(snapshot::line::SCHEMA.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        None if query::is_asked(cli) => query::run(cli),
        None if report::is_asked_for(cli) => report::run(cli),
        None => session::run(cli),
    }
}
