//! `gputop idle`: lists who holds GPUs idle, by user and job, with the GPU-hours and the evidence.
//!
//! A GPU must have been idle for half an hour, which a report that has just begun has not seen. So
//! it goes on from what a recorder of the same user has seen on the host, or watches the host first.
//! With `--slurm`, it also lists the GPUs that the job has and no process holds.

mod allocated;
mod held_row;
mod report;
#[cfg(test)]
mod tests;
mod unknown_gpus;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::report::IdleReport;
use super::live::read_hosts;
use crate::base::units::parse_span;
use crate::files::local_time::{unix_ms, utc_offset};
use crate::flags::{HostArgs, OutputArgs, ReadArgs, ReadOptions};
use crate::model::{HELD_IDLE_AFTER, HostModel};
use crate::output::{self, Exit, TextStyle, table};
use crate::protocol::playback::Speed;
use crate::protocol::snapshot::{Missing, Process, Use};
use crate::source::{Recording, Source};

/// Whose GPUs to list, and how to write them.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    read: ReadArgs,

    /// Watch the GPUs for this time first, such as `30m`, where no `gputop record` of yours has seen
    /// them
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_span)]
    watch: Duration,

    /// Report on the hosts at the end of this file, which `gputop record` has written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["other_hosts", "watch", "demo"])]
    recording: Option<PathBuf>,

    /// Show only what this user holds; `me` for yourself
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    pub(crate) hosts: HostArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
   10  a GPU is held idle
    0  no GPU is held idle
    5  no GPU is known to be held idle, and some could not be judged
    3  the host has no NVIDIA driver
    4  it has no GPU
    1  a host is lost, or another error";

/// How much longer a watch of half an hour takes: the traffic on a PCIe link is known from the second
/// reading of the driver's counters on, which are read every ten seconds.
const UNTIL_PCIE_IS_KNOWN: Duration = Duration::from_secs(25);

/// An agent that has written more lines than this began before this report.
const LINES_OF_A_NEW_AGENT: u64 = 10;

/// The time where gputop runs.
#[derive(Debug, Clone, Copy)]
struct NowHere {
    /// Milliseconds since 1970 (UTC).
    unix_ms: u64,
    /// Seconds ahead of UTC; `None` where the time zone is not known.
    utc_offset: Option<i32>,
}

/// Prints who holds GPUs idle. Fails if no agent can be started, or if the standard output cannot
/// be written.
pub(crate) fn run(args: &IdleArgs) -> anyhow::Result<ExitCode> {
    let watch = if args.watch >= HELD_IDLE_AFTER {
        args.watch + UNTIL_PCIE_IS_KNOWN
    } else {
        args.watch
    };
    let exit = read_hosts::read_once(
        &read_options(args),
        are_users_known,
        has_past,
        watch,
        |hosts| {
            for host in hosts {
                if let Some(trouble) = &host.trouble {
                    output::print_error(&read_hosts::sentence_on(host, trouble));
                }
            }
            let job = args.hosts.asked_job().map(|asked| asked.job);
            let now = NowHere {
                unix_ms: unix_ms(),
                utc_offset: utc_offset(),
            };
            let report = IdleReport::of(hosts, args.user.as_deref(), args.watch, now, job.as_ref());
            let report = if args.recording.is_some() {
                report.of_recording()
            } else {
                report
            };
            if args.output.json {
                output::print_json(&report.json())?;
            } else {
                let text = report.text();
                let text = if TextStyle::of_stdout(args.output.is_ascii()).ascii {
                    table::ascii(&text.replace('≥', ">="))
                } else {
                    text
                };
                output::print(text.as_bytes())?;
            }
            anyhow::Ok(report.exit())
        },
    )??;
    Ok(Exit::into(exit))
}

/// The hosts, of which this host shares the lines of a recorder.
fn read_options(args: &IdleArgs) -> ReadOptions {
    let mut read = args.read.hosts(&args.hosts, None);
    if let Some(path) = &args.recording {
        read.sources = vec![Source::Recording(Recording {
            path: path.clone(),
            speed: Speed::Max,
            from_end: true,
        })];
    }
    for source in &mut read.sources {
        if let Source::LocalAgent(agent) = source {
            agent.shares_lines = true;
        }
    }
    read
}

/// Whether the user, the job and the arguments of each process that may compute are known.
fn are_users_known(model: &HostModel) -> bool {
    let Some(snapshot) = model.latest() else {
        return false;
    };
    let is_known = |process: &Process| {
        process.facts.user != Err(Missing::NotYet)
            && process.facts.origin != Err(Missing::NotYet)
            && !process.awaits_arguments()
    };
    snapshot
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.processes)
        .filter(|listed| listed.usage != Use::Graphics)
        .filter_map(|listed| snapshot.process(listed.process))
        .all(is_known)
}

/// Whether no more is to come of what was seen before this report: a recorder tells it soon after
/// its first line.
fn has_past(model: &HostModel) -> bool {
    let is_new = |sequence| sequence <= LINES_OF_A_NEW_AGENT;
    model.is_recorded()
        || model
            .latest()
            .is_some_and(|snapshot| is_new(snapshot.sequence))
}
