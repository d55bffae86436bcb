//! `gputop ooms`: lists the out-of-memory reports that the probe left, and `gputop explain --last`
//! describes the latest.
//!
//! The probe writes each report when a program runs out of memory, into a folder of the user,
//! without an agent.

use std::fs;
use std::io;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::terminal;
use crate::base::text::Text;
use crate::base::time::local_time;
use crate::base::units::Bytes;
use crate::files::folders::state_file;
use crate::flags::OutputArgs;
use crate::output::labels::tensors;
use crate::output::table::{self, Heading};
use crate::output::{self, Exit, StyledText, TextStyle};
use crate::protocol::snapshot::{
    AllocationLines, ProbeDevice, TensorGroup, TensorLeak, TrainingSteps, probe_version_1,
};

/// The most reports that are read, and the most bytes of one: the probe keeps 50 of a quarter MiB.
const MOST_REPORTS: usize = 200;
const MOST_BYTES: u64 = 1 << 20;

/// A report of the probe, as it stands in its file. Amounts are bytes; absent ones are unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OomReport {
    /// Seconds since 1970.
    time: f64,
    pid: u32,
    #[serde(default)]
    program: Text,
    device: u32,
    requested: Bytes,
    total: Option<Bytes>,
    free: Option<Bytes>,
    at: Option<AllocationLines>,
    steps: Option<TrainingSteps>,
    #[serde(default)]
    devices: Vec<ProbeDevice>,
    #[serde(default)]
    groups: Vec<TensorGroup>,
    #[serde(default)]
    leaks: Vec<TensorLeak>,
    /// The frames of the program, innermost first: file, line and function.
    #[serde(default)]
    stack: Vec<(Text, u32, Text)>,
    why: Option<OomCause>,
    /// The name of the snapshot beside the report.
    snapshot: Option<Text>,
}

/// The most likely cause, by the probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OomCause {
    cause: Option<Text>,
    sentence: Text,
    advice: Option<Text>,
}

/// A report in short, for the page of a recording.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OomSummary {
    pub(crate) unix_ms: u64,
    pub(crate) pid: u32,
    pub(crate) program: Text,
    pub(crate) device: u32,
    pub(crate) step: Option<u64>,
    pub(crate) requested: Bytes,
    pub(crate) free: Option<Bytes>,
    /// The line of the program that asked for memory.
    pub(crate) line: Option<Text>,
    /// The parts of the memory of the device, the largest first.
    pub(crate) parts: Vec<(String, Bytes)>,
    /// The cause and what to try.
    pub(crate) why: Option<String>,
}

/// Returns the reports of this user on this host, the earliest first.
pub(crate) fn summaries() -> Vec<OomSummary> {
    read(folder().as_deref())
        .into_iter()
        .rev()
        .map(|(_, report)| summary(&report))
        .collect()
}

fn summary(report: &OomReport) -> OomSummary {
    let devices = report
        .devices
        .iter()
        .filter(|device| device.device == report.device);
    let parts = devices
        .flat_map(|device| &device.categories)
        .filter(|(_, bytes)| **bytes > Bytes(0));
    let mut parts: Vec<(String, Bytes)> = parts
        .map(|(category, bytes)| (category.to_string(), *bytes))
        .collect();
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    OomSummary {
        unix_ms: unix_ms(report),
        pid: report.pid,
        program: report.program.clone(),
        device: report.device,
        step: report.steps.as_ref().map(|steps| steps.count),
        requested: report.requested,
        free: report.free,
        line: line(report).cloned(),
        parts,
        why: report.why.as_ref().map(|why| match &why.advice {
            Some(advice) => format!("{}; try: {advice}", why.sentence),
            None => why.sentence.to_string(),
        }),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
fn unix_ms(report: &OomReport) -> u64 {
    (report.time * 1000.0) as u64
}

/// The end of the help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
    0  there are reports; with --json also where the list is empty
    6  there is none
    1  another error";

/// Prints one line for each report, the latest first. Fails if the standard output cannot be
/// written.
pub(crate) fn run(args: &OutputArgs) -> anyhow::Result<ExitCode> {
    let reports = read(folder().as_deref());
    if args.json {
        let all: Vec<Value> = reports
            .iter()
            .map(|(path, report)| to_json(path, report))
            .collect();
        output::print_json(&Value::from(all))?;
        return Ok(Exit::Success.into());
    }
    if reports.is_empty() {
        return Ok(none());
    }
    let mut text = String::new();
    let cells = reports.iter().map(|(_, report)| {
        [
            time(report),
            report.pid.to_string(),
            report.program.to_string(),
            format!("cuda:{}", report.device),
            report.requested.to_string(),
            report
                .free
                .map_or_else(|| "-".to_owned(), |free| free.to_string()),
            report
                .steps
                .as_ref()
                .map_or_else(|| "-".to_owned(), |steps| steps.count.to_string()),
            line(report).map_or_else(|| "-".to_owned(), Text::to_string),
            report
                .why
                .as_ref()
                .map_or_else(|| "-".to_owned(), |why| why.sentence.to_string()),
        ]
    });
    table::rows(&mut text, terminal::width(), &COLUMNS, cells);
    text.push_str("gputop explain --last describes the latest\n");
    output::print_text(&text, args.is_ascii())?;
    Ok(Exit::Success.into())
}

const COLUMNS: [Heading; 9] = [
    ("TIME (UTC)", false),
    ("PID", true),
    ("PROGRAM", false),
    ("DEVICE", false),
    ("REQUESTED", true),
    ("FREE", true),
    ("STEP", true),
    ("AT", false),
    ("CAUSE", false),
];

/// Describes the latest report. Fails if the standard output cannot be written.
pub(crate) fn explain_last(args: &OutputArgs) -> anyhow::Result<ExitCode> {
    let Some((path, report)) = read(folder().as_deref()).into_iter().next() else {
        return Ok(none());
    };
    if args.json {
        output::print_json(&to_json(&path, &report))?;
    } else {
        output::print(describe(&path, &report, TextStyle::of_stdout(args.is_ascii())).as_bytes())?;
    }
    Ok(Exit::Success.into())
}

fn none() -> ExitCode {
    let place = folder().map_or_else(String::new, |folder| format!(" in {}", folder.display()));
    let words =
        format!("no program of `gputop run` has run out of GPU memory: there is no report{place}");
    output::print_error(&Text::new(words));
    Exit::Nothing.into()
}

fn to_json(path: &Path, report: &OomReport) -> Value {
    let snapshot = snapshot(path, report).map(|snapshot| snapshot.display().to_string());
    json!({ "file": path.display().to_string(), "snapshot_file": snapshot, "report": report })
}

fn describe(path: &Path, report: &OomReport, style: TextStyle) -> String {
    const INDENT: usize = 2;
    let mut text = StyledText::new(style);
    let step = report
        .steps
        .as_ref()
        .map_or_else(String::new, |steps| format!(" in step {}", steps.count));
    text.heading(&format!(
        "{} UTC: {} (PID {}) ran out of memory on cuda:{}{step}",
        time(report),
        report.program,
        report.pid,
        report.device
    ));
    let amount = |bytes: Option<Bytes>| {
        bytes.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string())
    };
    let (free, total) = (amount(report.free), amount(report.total));
    text.paragraph(
        0,
        format_args!(
            "It asked for {}; {free} of {total} were free.",
            report.requested
        ),
    );
    if let Some(line) = line(report) {
        text.paragraph(INDENT, format_args!("allocated at {line}"));
    }
    if let Some(why) = &report.why {
        text.line("");
        text.heading("Why");
        text.paragraph(0, &why.sentence);
        why.advice
            .iter()
            .for_each(|advice| text.paragraph(INDENT, format_args!("try: {advice}")));
    }
    for leak in &report.leaks {
        text.paragraph(INDENT, format_args!("leak: {}", tensors::leak(leak)));
        leak.held_by
            .iter()
            .for_each(|holder| text.paragraph(INDENT, format_args!("  held by {holder}")));
    }
    let rows = memory_rows(report) + "\n" + &tensor_rows(report) + "\n" + &stack_rows(report);
    let mut out = text.finish();
    out.push('\n');
    out.push_str(&if style.ascii {
        table::ascii(&rows)
    } else {
        rows
    });
    if let Some(snapshot) = snapshot(path, report) {
        out.push_str("\nsnapshot for https://docs.pytorch.org/memory_viz: ");
        out.push_str(&snapshot.display().to_string());
        out.push('\n');
    }
    out
}

/// A table of the memory of PyTorch on the device that was full.
fn memory_rows(report: &OomReport) -> String {
    let mut rows = String::new();
    for device in report
        .devices
        .iter()
        .filter(|device| device.device == report.device)
    {
        let whole = device
            .reserved
            .unwrap_or_else(|| device.categories.values().copied().sum());
        let parts = device
            .categories
            .iter()
            .filter(|(_, bytes)| **bytes > Bytes(0));
        let cells = parts.map(|(category, bytes)| {
            [
                category.to_string(),
                bytes.to_string(),
                tensors::share(*bytes, whole),
            ]
        });
        table::rows(
            &mut rows,
            None,
            &[("MEMORY OF PYTORCH", false), ("", true), ("", true)],
            cells,
        );
    }
    rows
}

/// A table of the largest groups of tensors.
fn tensor_rows(report: &OomReport) -> String {
    let cells = report.groups.iter().take(10).map(|group| {
        [
            tensors::tensors(group),
            group.bytes.to_string(),
            tensors::category(group),
        ]
    });
    let mut rows = String::new();
    table::rows(
        &mut rows,
        None,
        &[("LARGEST TENSORS", false), ("", true), ("", false)],
        cells,
    );
    rows
}

fn stack_rows(report: &OomReport) -> String {
    let frames = report.stack.iter().take(12);
    let frames = frames.map(|(file, line, function)| format!("  {file}:{line} in {function}\n"));
    std::iter::once("STACK, innermost first\n".to_owned())
        .chain(frames)
        .collect()
}

fn line(report: &OomReport) -> Option<&Text> {
    let lines = report.at.as_ref()?;
    lines.user.as_ref().or(lines.inner.as_ref())
}

fn time(report: &OomReport) -> String {
    /// Length of `2026-07-14T10:12:38`.
    const SECONDS: usize = 19;
    let time = local_time(unix_ms(report), 0);
    time.get(..SECONDS).unwrap_or(&time).replace('T', " ")
}

/// Returns the path of the snapshot beside a report; `None` if there is none.
fn snapshot(path: &Path, report: &OomReport) -> Option<PathBuf> {
    let name = report.snapshot.as_ref()?.as_str();
    let is_plain = !name.contains('/') && !name.starts_with('.');
    is_plain
        .then(|| path.with_file_name(name))
        .filter(|snapshot| snapshot.exists())
}

fn folder() -> Option<PathBuf> {
    state_file("ooms")
}

/// Reads the reports in a folder, the latest first. A file that is no report is left out.
fn read(folder: Option<&Path>) -> Vec<(PathBuf, OomReport)> {
    let Some(entries) = folder.and_then(|folder| fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let is_report = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(is_report)
        .collect();
    // The names begin with the time.
    paths.sort_unstable_by(|a, b| b.cmp(a));
    paths.truncate(MOST_REPORTS);
    paths
        .into_iter()
        .filter_map(|path| read_report(&path).ok().map(|report| (path, report)))
        .collect()
}

fn read_report(path: &Path) -> io::Result<OomReport> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let mut report: Value = serde_json::from_slice(&bytes)?;
    if report["version"] == 1 {
        probe_version_1::rename_parts(&mut report);
    }
    Ok(serde_json::from_value(report)?)
}
