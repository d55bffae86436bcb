//! The reports that the probe wrote when a program of the recording ran out of memory.

use super::table::{PageCell, PageTable};
use super::words;
use crate::logs::ooms::{OomSummary, summaries};
use crate::logs::recorded_run::HostRun;

/// How much earlier or later than the samples of a process its report may be, in milliseconds.
const TOLERANCE: u64 = 60_000;

/// The most parts of memory that are named.
const MOST_PARTS: usize = 4;

/// Returns the table of reports about the processes of a host. It is empty for a recording of
/// another host: the reports are on that.
pub(super) fn table(host: &HostRun) -> PageTable {
    let is_here = rustix::system::uname().nodename().to_bytes() == host.name.as_str().as_bytes();
    let reports = if is_here { summaries() } else { Vec::new() };
    let is_of_run = |report: &OomSummary| {
        host.processes.iter().any(|(key, process)| {
            key.id.pid == report.pid
                && (process.began.saturating_sub(TOLERANCE)..=process.ended + TOLERANCE)
                    .contains(&report.unix_ms)
        })
    };
    PageTable {
        title: "Memory that ran out",
        headings: vec![
            "Time",
            "Process",
            "Asked for",
            "Free",
            "At",
            "Most memory",
            "Why",
        ],
        rows: reports
            .into_iter()
            .filter(is_of_run)
            .map(|report| row(host, report))
            .collect(),
    }
}

fn row(host: &HostRun, report: OomSummary) -> Vec<PageCell> {
    let step = report
        .step
        .map_or_else(String::new, |step| format!(", step {step}"));
    let parts = report
        .parts
        .iter()
        .take(MOST_PARTS)
        .map(|(name, bytes)| format!("{name} {bytes}"));
    vec![
        PageCell::Number(words::time(host, report.unix_ms)),
        PageCell::Bad(format!(
            "{} (PID {}), cuda:{}{step}",
            report.program, report.pid, report.device
        )),
        PageCell::Number(report.requested.to_string()),
        PageCell::Number(words::amount(report.free)),
        PageCell::Code(
            report
                .line
                .map_or_else(|| "-".to_owned(), |line| line.to_string()),
        ),
        PageCell::Text(parts.collect::<Vec<_>>().join(", ")),
        PageCell::Text(report.why.unwrap_or_else(|| "-".to_owned())),
    ]
}
