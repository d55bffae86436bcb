//! gputop: every GPU of a host, the processes that hold its memory, and a safe way to end the right
//! process.
//!
//! The modules are in reading order. Facts flow one way: an agent reads a host and writes
//! snapshots; a source delivers them; the model interprets them; the app holds what the user wants;
//! the view draws.

use std::process::ExitCode;
use std::slice;
use std::time::Duration;

pub mod base;

pub mod protocol;

mod files;

pub mod agent;
pub mod source;

pub mod model;

pub mod output;

pub mod app;

pub mod view;

mod notify;

pub mod tui;

mod flags;

mod logs;

pub mod commands;

mod hidden_commands;

pub mod cli;
mod config;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

use cli::nvidia_smi_arguments::RefusedArguments;
use cli::{Cli, Subcommand};
use commands::once;
use files::action::FileAction;
use protocol::agent_options::Interval;
use source::prometheus::{PrometheusClient, PrometheusOptions};

/// Runs the subcommand, the report or the screen that the command line asks for.
///
/// # Errors
///
/// When the command fails. The error says what failed, on what, and what to do.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    // The agent and the screen replace this hook by their own.
    tui::terminal::end_on_panic(None);
    match config::host_tables::with_hosts(cli) {
        Ok(cli) => run_with_hosts(&cli),
        Err(why) => Ok(output::refuse(&why.into())),
    }
}

fn run_with_hosts(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.task {
        Some(Subcommand::Agent(args)) => agent::run(&args.into()),
        Some(Subcommand::Analyze(args)) => logs::analyze::run(args),
        Some(Subcommand::Attach(args)) => commands::attach::run(args),
        Some(Subcommand::Cast(args)) => match config::session_options(&cli.with_cast(args)) {
            Ok(options) => tui::session::cast::run(&options, &config::cast_options(args)),
            Err(why) => Ok(output::refuse(&why.into())),
        },
        Some(Subcommand::Clip(args)) => with_launchers(|| logs::clip::run(args)),
        Some(Subcommand::Completions(args)) => {
            commands::completions::run(args, cli::offered::command())
        }
        Some(Subcommand::DemoProcess { role }) => agent::demo::run_role(role),
        Some(Subcommand::Diff(args)) => with_launchers(|| logs::diff::run(args)),
        Some(Subcommand::Doctor(args)) if args.secrets => commands::doctor::list_secrets(),
        Some(Subcommand::Doctor(args)) => {
            commands::doctor::run(args, &config::state(cli), &config::audit_log())
        }
        Some(Subcommand::Estimate(args)) => commands::estimate::run(args),
        Some(Subcommand::Explain(args)) => {
            // In a pipe, the log must go through whatever is wrong with the lines.
            let _said = config::launcher_lines::add();
            commands::explain::run(args)
        }
        Some(Subcommand::Export(args)) => logs::export::run(args),
        Some(Subcommand::Exporter(args)) => with_launchers(|| commands::exporter::run(args)),
        Some(Subcommand::Free(args)) => commands::free::run(args),
        Some(Subcommand::Hosts(args)) => commands::hosts::run(args),
        Some(Subcommand::Man(args)) => commands::man::run(args, &cli::manual::pages()?),
        Some(Subcommand::Notify(args)) => {
            let chosen = config::notify_tables::load(cli, slice::from_ref(&args.name));
            commands::notify::run(args, chosen.destinations.first(), &chosen.refusals)
        }
        Some(Subcommand::NvidiaSmi(Ok(arguments))) => commands::query::run(&arguments.options(cli)),
        Some(Subcommand::NvidiaSmi(Err(RefusedArguments::Invalid(sentence)))) => {
            commands::query::refuse_as_nvidia_smi(sentence)
        }
        Some(Subcommand::NvidiaSmi(Err(RefusedArguments::OnlyNvidiaSmi(sentence)))) => {
            Ok(output::refuse(&sentence.as_str().into()))
        }
        Some(Subcommand::Idle(args)) => with_launchers(|| commands::idle::run(args)),
        Some(Subcommand::Leaks(args)) => commands::leaks::run(args),
        Some(Subcommand::Ooms(args)) => logs::ooms::run(args),
        Some(Subcommand::Orphans(args)) => with_launchers(|| commands::orphans::run(args)),
        Some(Subcommand::Record(args)) => {
            doubt(args.interval());
            // First of all: no other process may get the variables with secrets.
            let chosen = config::notify_tables::load(cli, &args.notify);
            for refusal in &chosen.refusals {
                output::print_error(refusal);
            }
            with_launchers(|| commands::record::run(args, chosen.destinations))
        }
        Some(Subcommand::Rest(args)) => commands::rest::run(args),
        Some(Subcommand::Report(args)) => with_launchers(|| commands::report::run(args)),
        Some(Subcommand::Run(args)) => commands::run::run(args),
        Some(Subcommand::Schema) => commands::schema::run(),
        Some(Subcommand::Snapshot(args)) => commands::snapshot::run(args),
        Some(Subcommand::Tensors(args)) => commands::tensors::run(args),
        Some(Subcommand::Wait(args)) => with_launchers(|| commands::wait::run(args)),
        Some(Subcommand::GroupWitness) => {
            commands::run::group_witness::wait_in_group();
            Ok(ExitCode::SUCCESS)
        }
        Some(Subcommand::ContinueStopped) => {
            agent::continue_stopped();
            Ok(ExitCode::SUCCESS)
        }
        Some(Subcommand::CloseCommands { commands }) => {
            source::close_commands(commands);
            Ok(ExitCode::SUCCESS)
        }
        Some(Subcommand::FileAction { action, from, path }) => {
            // The outline judges what was recorded. The program that asks for it says what is wrong
            // with the lines.
            if matches!(action, FileAction::Outline) {
                let _said = config::launcher_lines::add();
            }
            Ok(hidden_commands::file_action::act(*action, path, *from))
        }
        Some(Subcommand::Replay(replay)) => show(&cli.with_replay(&replay.with_file()?)),
        None => match cli.query() {
            Some(query) => commands::query::run(&query),
            None => show(cli),
        },
    }
}

/// Runs a report with the lines that the user adds to the launch table.
fn with_launchers(report: impl FnOnce() -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match config::launcher_lines::add() {
        Ok(ignored) => {
            if let Some(sentence) = ignored {
                output::print_error(&sentence.into());
            }
            report()
        }
        Err(why) => Ok(output::refuse(&why.into())),
    }
}

/// Prints a sentence about an interval that may not be what the user means.
fn doubt(interval: Duration) {
    if let Some(sentence) = Interval(interval).interval_warning() {
        output::print_error(&sentence.into());
    }
}

/// Shows the hosts that a Prometheus server knows.
fn show_cluster(cli: &Cli, prometheus: &PrometheusOptions) -> anyhow::Result<ExitCode> {
    if cli.wants_report() || cli.is_picture() {
        let sentence = "`--prometheus` shows a screen, and needs a terminal: it prints no report";
        return Ok(output::refuse(&sentence.into()));
    }
    let client = PrometheusClient::new(prometheus);
    match client.and_then(|client| Ok((config::cluster_options(cli)?, client))) {
        Ok((options, client)) => tui::session::cluster::run(&options, client),
        Err(why) => Ok(output::refuse(&why.into())),
    }
}

/// Prints a report, draws a screenshot, or shows the screen.
fn show(cli: &Cli) -> anyhow::Result<ExitCode> {
    if let Some(prometheus) = cli.prometheus() {
        return show_cluster(cli, &prometheus);
    }
    let screenshot = config::screenshot_options(cli);
    match cli.report().filter(|_| screenshot.is_none()) {
        Some(report) => {
            doubt(report.read.interval);
            with_launchers(|| once::run(&report))
        }
        None => match config::session_options(cli) {
            Ok(options) => match screenshot {
                Some(screenshot) => tui::session::screenshot::run(&options, &screenshot),
                None => tui::session::run(&options),
            },
            Err(why) => Ok(output::refuse(&why.into())),
        },
    }
}
