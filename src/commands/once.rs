//! Reports without a screen: a table, sentences or lines of JSON, once or at an interval.
//!
//! Agents read the hosts, so a driver that hangs costs the timeout and no more: then the report has
//! what was read, says what is missing, and the exit code tells scripts that it is not complete.

mod plain;
mod table;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

pub use self::table::ChosenColumns;
use super::live::chosen_processes::ChosenProcesses;
use super::live::gpu_ids;
use super::live::read_hosts::{HostState, IsEnough, Watch, block_on, sentence_on};
use crate::base::terminal;
use crate::base::text::Text;
use crate::flags::ReadOptions;
use crate::model::HostModel;
use crate::output::judged;
use crate::output::table::{ascii, command};
use crate::output::{Exit, failed_readings, print, print_error};
use crate::protocol::host_tag::{HostTag, append_field};
use crate::protocol::line::Line;
use crate::protocol::snapshot::{ArgvDelay, Gpu, Identity, ProcessId, ProcessNames, Snapshot};

/// Returns a sentence that names the first failed readings; `None` if there are none.
fn sentence(failed: &[String]) -> Option<Text> {
    const NAMED: usize = 5;
    let more = failed.len().saturating_sub(NAMED);
    let mut named = failed[..failed.len() - more].join(", ");
    if more > 0 {
        named = format!("{named}, and {more} more");
    }
    (!failed.is_empty()).then(|| Text::new(format!("could not be read: {named}")))
}

/// Returns a sentence on the GPU processes whose arguments are not read yet; `None` if there are
/// none.
fn unread_arguments(snapshot: &Snapshot) -> Option<Text> {
    let ids: BTreeSet<ProcessId> = snapshot
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.processes)
        .map(|gpu_process| gpu_process.process)
        .collect();
    let is_unread = |id: &&ProcessId| {
        snapshot.process(**id).is_some_and(|process| {
            process.awaits_arguments() || process.facts.argv_delay == Some(ArgvDelay::NoReader)
        })
    };
    match ids.iter().filter(is_unread).count() {
        0 => None,
        1 => Some("the arguments of 1 process are not read yet".into()),
        count => Some(Text::new(format!(
            "the arguments of {count} processes are not read yet"
        ))),
    }
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// A table of GPUs and one of processes.
    Table,
    /// Sentences, for screen readers.
    Plain,
    /// One line of JSON.
    Json,
}

/// The content and interval of a report.
#[derive(Debug)]
pub struct ReportOptions {
    /// The hosts.
    pub read: ReadOptions,
    /// How the report is written.
    pub format: ReportFormat,
    /// The time from one report to the next; `None` for one report.
    pub every: Option<Duration>,
    /// Whether to write only ASCII.
    pub ascii: bool,
    /// The columns of the tables.
    pub columns: ChosenColumns,
    /// The GPUs to show, as index, UUID or PCI address; all if empty.
    pub ids: Vec<String>,
    /// The processes to show.
    pub processes: ChosenProcesses,
}

/// The report on one host.
#[derive(Debug)]
struct HostReport<'a> {
    name: &'a str,
    /// The name, and beside it the host's own name if that differs.
    both_names: &'a str,
    model: &'a HostModel,
    snapshot: &'a Snapshot,
    /// Why the report is not complete, in sentences.
    reasons: Vec<Text>,
    /// The GPUs to show, as index, UUID or PCI address; all if empty.
    ids: &'a [String],
    /// The processes that the snapshot still has.
    processes: &'a ChosenProcesses,
}

impl<'a> HostReport<'a> {
    /// Returns the GPUs to show, each with its place in the snapshot.
    fn gpus(&self) -> impl Iterator<Item = (usize, &'a Gpu)> {
        let Self { snapshot, ids, .. } = *self;
        snapshot
            .gpus
            .iter()
            .enumerate()
            .filter(|(_, gpu)| gpu_ids::is_chosen(snapshot, gpu, ids))
    }
}

/// Prints a report, or one at each interval until a signal ends the program.
///
/// # Errors
///
/// When no source can be started, or the standard output is closed.
pub fn run(options: &ReportOptions) -> anyhow::Result<ExitCode> {
    let read = &options.read;
    block_on(async {
        let mut watch = Watch::start(read.sources.clone())?;
        let mut timeout = read.timeout;
        loop {
            let start = Instant::now();
            watch.settle(timeout, |_| true).await;
            // The search for processes that the driver does not list, allocator stats and arguments
            // take milliseconds, more on a busy host; a report without them is complete. The table
            // has no column for the last two but the command.
            let is_bare_table = options.format == ReportFormat::Table && options.processes.is_all();
            let is_enough: IsEnough = if is_bare_table {
                HostModel::is_complete
            } else {
                has_slow_facts
            };
            if options.every.is_none() {
                let left = timeout.saturating_sub(start.elapsed());
                watch.settle(left, is_enough).await;
            }
            watch.wait_for_recorder();
            let exit = print_once(options, &watch, timeout)?;
            if options.every.is_none() {
                watch.close().await;
                return Ok(exit.into());
            }
            watch.next_report(read.interval).await;
            timeout = read.interval + read.timeout;
        }
    })
}

/// Prints one report on all hosts. Returns the exit code.
fn print_once(options: &ReportOptions, watch: &Watch, timeout: Duration) -> anyhow::Result<Exit> {
    let (mut reports, mut unreached, mut exits, mut out) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let hosts = watch.states(timeout, |_| true);
    let has_unknown_ids = gpu_ids::print_unknown(&hosts, &options.ids);
    let chosen = hosts.iter().map(|host| {
        let (model, snapshot) = host.seen?;
        Some(
            options
                .processes
                .filter(host.name, model, snapshot, hosts.len() > 1),
        )
    });
    let chosen: Vec<Option<Cow<'_, Snapshot>>> = chosen.collect();
    for (host, chosen) in hosts.iter().zip(&chosen) {
        let trouble = host.trouble.as_ref();
        let reason = trouble.map(|trouble| sentence_on(host, trouble));
        let (Some((model, _)), Some(snapshot)) = (host.seen, chosen.as_deref()) else {
            exits.push(Exit::Error);
            unreached.extend(reason);
            continue;
        };
        let mut shown = snapshot.clone();
        shown
            .gpus
            .retain(|gpu| gpu_ids::is_chosen(snapshot, gpu, &options.ids));
        exits.push(if shown.gpus.is_empty() && !snapshot.gpus.is_empty() {
            Exit::Nothing
        } else {
            Exit::of_snapshot(&shown, trouble.is_none())
        });
        if options.format == ReportFormat::Json {
            append_json(host, model, shown, &mut out)?;
            reason.iter().for_each(print_error);
        } else {
            let reasons = reason
                .into_iter()
                .chain(sentence(&failed_readings(&shown)))
                .chain(unread_arguments(&shown))
                .collect();
            reports.push(HostReport {
                name: host.name,
                both_names: &host.both_names,
                model,
                snapshot,
                reasons,
                ids: &options.ids,
                processes: &options.processes,
            });
        }
    }
    if reports.is_empty() {
        unreached.iter().for_each(print_error);
    } else {
        out = text(options, &reports, &unreached).into_bytes();
        if options.every.is_some() {
            out.push(b'\n');
        }
    }
    if !out.is_empty() {
        print(&out)?;
    }
    let exit = Exit::combined(&exits);
    Ok(if exit == Exit::Success && has_unknown_ids {
        Exit::Nothing
    } else {
        exit
    })
}

/// Appends the line of a host for `--json`.
fn append_json(
    host: &HostState<'_>,
    model: &HostModel,
    shown: Snapshot,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    let judged = judged::judged(model, &shown);
    Line::Full(Box::new(with_names(shown))).write(&mut line)?;
    HostTag {
        host_key: host.key.0.into(),
        name: Some(host.name.into()),
    }
    .append_to(&mut line);
    append_field(&mut line, "judged", &judged);
    out.append(&mut line);
    Ok(())
}

fn text(options: &ReportOptions, reports: &[HostReport<'_>], unreached: &[Text]) -> String {
    let text = match options.format {
        ReportFormat::Plain => plain::format(reports, unreached),
        _ => table::format(reports, unreached, terminal::width(), &options.columns),
    };
    if options.ascii { ascii(&text) } else { text }
}

/// Adds the user, the command and the origin to each GPU process, so that `jq` needs no join.
fn with_names(mut snapshot: Snapshot) -> Snapshot {
    let mut gpus = std::mem::take(&mut snapshot.gpus);
    for gpu_process in gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
        gpu_process.names = snapshot.process(gpu_process.process).map(|process| {
            let user = process.facts.user.clone().ok();
            Box::new(ProcessNames {
                user,
                command: command(process).into(),
                origin: process.facts.origin.clone().ok(),
            })
        });
    }
    snapshot.gpus = gpus;
    snapshot
}

/// Returns whether the allocator stats and arguments of all GPU processes were read, or failed to
/// be read, and device-file holders were looked for.
fn has_slow_facts(model: &HostModel) -> bool {
    let Some(snapshot) = model.latest().filter(|_| model.is_complete()) else {
        return false;
    };
    let real_gpus = snapshot.gpus.iter().filter(|gpu| !gpu.facts.simulated);
    let processes = real_gpus
        .flat_map(|gpu| &gpu.processes)
        .filter_map(|user| snapshot.process(user.process));
    let mut verified = processes.filter(|process| process.facts.identity == Identity::Sure);
    verified.all(|process| process.allocator.is_some() && !process.awaits_arguments())
}
