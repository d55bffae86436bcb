//! `gputop report`: the report on a recording, or on a running process: then the newest recording
//! of this host, and a look at the process now.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::anyhow;
use clap::Args;

use super::live::read_hosts;
use crate::base::text::Text;
use crate::files::folders::state_folder;
use crate::flags::{ReadArgs, ReadOptions};
use crate::logs::recent_recordings;
use crate::logs::recorded_run::{RecordedRun, RunRange, fold, fold_with};
use crate::logs::report::{self, PageArgs};
use crate::output::{Exit, print_error};
use crate::protocol::snapshot::Snapshot;

/// After this number of passes, the allocator stats of the process will not come soon.
const MOST_PASSES: u32 = 5;

#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ReportArgs {
    /// A recording, or a part of it as in `gputop diff --help`; `-` for lines from the standard
    /// input. The PID of a process of this host: the newest recording that `gputop record` or the
    /// screen keeps of it, and a look at it now [default: the newest recording of this host]
    #[arg(value_name = "FILE|PID")]
    subject: Option<String>,

    #[command(flatten)]
    page: PageArgs,

    #[command(flatten)]
    read: ReadArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  the report was written
    6  no process with the PID uses a GPU of this host
    1  there is no recording, or another error";

/// Writes the report.
///
/// # Errors
///
/// When the recording or process cannot be read, or the output cannot be written.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let ReportArgs {
        subject,
        page,
        read,
    } = args;
    report::check(page)?;
    let Some(subject) = subject else {
        let recording = RunRange::whole_recording(&recent_recordings::newest()?);
        return report::write(fold(&recording)?, page);
    };
    match subject.parse() {
        Ok(pid) if !Path::new(subject).exists() => {
            let Some(snapshot) = look(pid, &read.this_host(None))? else {
                print_error(&Text::new(format!(
                    "process {pid} uses no GPU of this host"
                )));
                return Ok(Exit::Nothing.into());
            };
            let run = run_of(pid, snapshot)?;
            let mut page = page.clone();
            page.pid = Some(pid);
            report::write(run, &page)
        }
        _ => report::write(fold(&RunRange::parse(subject))?, page),
    }
}

/// Reads the newest recording of this host, and adds a snapshot of the process as it is now.
///
/// # Errors
///
/// When there is no recording of this host, or it cannot be read.
fn run_of(pid: u32, snapshot: Snapshot) -> anyhow::Result<RecordedRun> {
    let host = snapshot.host.facts.name.clone();
    let path = newest_recording(&host).ok_or_else(|| {
        let words = "start `gputop record`, or name a recording instead of the PID";
        anyhow!(
            "there is no recording of this host that shows what process {pid} did before: {words}"
        )
    })?;
    fold_with(&RunRange::whole_recording(&path), Some(snapshot))
}

/// Returns a snapshot of this host with the process; `None` if no process with this PID uses a GPU.
///
/// # Errors
///
/// When no agent can be started, or the GPUs cannot be read.
fn look(pid: u32, options: &ReadOptions) -> anyhow::Result<Option<Snapshot>> {
    let mut passes = 0;
    let found = read_hosts::read_until(options, true, |hosts| {
        passes += 1;
        let (_, snapshot) = hosts.first()?.seen?;
        let process = snapshot
            .processes
            .iter()
            .find(|process| process.id.pid == pid);
        let is_read = process
            .is_some_and(|process| process.facts.argv.is_ok() && process.allocator.is_some());
        (is_read || passes >= MOST_PASSES).then(|| snapshot.clone())
    })?;
    let snapshot = found.map_err(|why| anyhow!("{why}"))?;
    let mut on_gpus = snapshot.gpus.iter().flat_map(|gpu| &gpu.processes);
    let is_on_gpu = on_gpus.any(|gpu_process| gpu_process.process.pid == pid);
    Ok(is_on_gpu.then_some(snapshot))
}

/// Returns the recording of a host that was written to last, of `gputop record` or of the screen.
fn newest_recording(host: &Text) -> Option<PathBuf> {
    let state = state_folder()?;
    let files = ["recordings", "history"]
        .into_iter()
        .filter_map(|folder| fs::read_dir(state.join(folder)).ok());
    let recordings = files.flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let is_recording = Path::new(&name)
            .extension()
            .is_some_and(|ending| ending == "zst");
        let is_of_host = is_recording && name.to_str()?.starts_with(host.as_str());
        let metadata = entry
            .metadata()
            .ok()
            .filter(|metadata| is_of_host && metadata.is_file())?;
        Some((
            metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            entry.path(),
        ))
    });
    recordings.max().map(|(_, path)| path)
}
