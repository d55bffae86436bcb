//! Finds a process on this host and the report of the probe in it, for the commands that name a
//! PID.

use std::time::Duration;

use super::read_hosts::{self, HostState};
use crate::base::text::Text;
use crate::flags::ReadArgs;
use crate::protocol::command::Command;
use crate::protocol::reply::Reply;
use crate::protocol::snapshot::{ProbeReport, Process, Snapshot};
use crate::source::Source;

/// The interval of an agent that is asked once.
pub(in crate::commands) const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// After this number of snapshots, a process without a report will have none soon.
const MOST_PASSES: u32 = 8;

/// The process with a PID, as a snapshot shows it.
pub(in crate::commands) struct ProbedProcess<'a> {
    pub(in crate::commands) process: &'a Process,
    pub(in crate::commands) report: &'a ProbeReport,
    /// The snapshot that has both.
    pub(in crate::commands) snapshot: &'a Snapshot,
}

/// Calls `see` with the process that has this PID, after each pass, until it returns a result.
/// `see` also gets the replies since its last call, and may send a command. With `all`, reports have
/// all groups of tensors. Returns a sentence when the process has no report.
///
/// # Errors
///
/// When no agent can be started.
pub(in crate::commands) fn converse<T>(
    args: &ReadArgs,
    all: bool,
    pid: u32,
    mut see: impl FnMut(ProbedProcess<'_>, &[Reply], &mut Option<Command>) -> Option<Result<T, Text>>,
) -> anyhow::Result<Result<T, Text>> {
    let mut read = args.this_host(Some(PROBE_INTERVAL));
    for source in &mut read.sources {
        if let Source::LocalAgent(agent) = source {
            // Only the processes of GPUs matter, also those that have the file of a GPU open.
            let only = ["processes", "facts.minor_number"];
            (agent.detail, agent.only) = (all, only.map(str::to_owned).to_vec());
        }
    }
    let mut passes = 0;
    let found = read_hosts::converse(&read, true, |hosts, replies, command| {
        passes += 1;
        let snapshot = snapshot(hosts);
        let process = snapshot.and_then(|snapshot| process(snapshot, pid));
        let probe = process.and_then(|process| process.probe.as_ref());
        let report = probe.and_then(|probe| probe.report.as_ref());
        match (snapshot, process, report) {
            (Some(snapshot), Some(process), Some(report)) => {
                let found = ProbedProcess {
                    process,
                    report,
                    snapshot,
                };
                see(found, replies, command)
            }
            _ if passes < MOST_PASSES => None,
            (_, Some(process), _) => Some(Err(why_missing(process))),
            (_, None, _) => Some(Err(Text::new(format!(
                "process {pid} uses no GPU here, and is related to none that does"
            )))),
        }
    })?;
    Ok(found.unwrap_or_else(Err))
}

fn snapshot<'a>(hosts: &[HostState<'a>]) -> Option<&'a Snapshot> {
    let (_, snapshot) = hosts.first()?.seen?;
    Some(snapshot)
}

fn process(snapshot: &Snapshot, pid: u32) -> Option<&Process> {
    snapshot
        .processes
        .iter()
        .find(|process| process.id.pid == pid)
}

fn why_missing(process: &Process) -> Text {
    let pid = process.id.pid;
    match process.probe.as_ref().and_then(|probe| probe.missing) {
        Some(why) => Text::new(format!(
            "process {pid} has no report of gputop's probe: {why}"
        )),
        None => Text::new(format!(
            "process {pid} does not run Python on a GPU, so it has no probe"
        )),
    }
}
