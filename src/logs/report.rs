//! `gputop report`: a recording as one page, as Markdown for an issue, or as the plot of one GPU or
//! process.

mod badge;
mod black_boxes;
mod colours;
mod html;
mod mark_table;
mod markdown;
mod path;
mod plot;
mod plots;
mod summary;
mod table;
mod tiles;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use maud::{PreEscaped, html};

use self::plot::Plot;
use self::plots::PlotResolution;
use self::summary::Summary;
use self::table::PageTable;
use crate::base::terminal;
use crate::base::text::Text;
use crate::flags::values;
use crate::logs::diff::RunComparison;
use crate::logs::recorded_run::{HostRun, ProcessKey, RecordedRun, RunRange, RunSubject, fold};
use crate::model::UserHues;
use crate::output::{self, Exit};

/// The most processes of a host that have a plot of their own.
const MOST_PLOTS: usize = 64;

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunReportFormat {
    Html,
    Markdown,
    /// One plot.
    Svg,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// Compare with this recording, or this part of one
    #[arg(long, value_name = "B", conflicts_with = "svg")]
    against: Option<String>,

    /// Write to this file; `-` is the standard output. The ending `.md` or `.svg` chooses that form
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write Markdown with small tables, for an issue
    #[arg(long, conflicts_with = "svg")]
    md: bool,

    /// Write one plot as SVG: of the chosen process or GPU, else of the GPU with the highest memory
    #[arg(long)]
    svg: bool,

    /// Report on this process only
    #[arg(long, value_name = "PID", conflicts_with = "gpu")]
    pub(crate) pid: Option<u32>,

    /// Report on this GPU and its processes only
    #[arg(long, value_name = "INDEX")]
    gpu: Option<String>,
}

impl PageArgs {
    fn format(&self) -> RunReportFormat {
        let ending = self
            .output
            .as_ref()
            .and_then(|path| path.extension()?.to_str());
        match ending {
            _ if self.md => RunReportFormat::Markdown,
            _ if self.svg => RunReportFormat::Svg,
            Some("md") => RunReportFormat::Markdown,
            Some("svg") => RunReportFormat::Svg,
            _ => RunReportFormat::Html,
        }
    }

    /// Where to write; `None` for the standard output.
    fn file(&self) -> Option<&Path> {
        values::unless_stdout(self.output.as_deref())
    }
}

/// The plots of a host.
#[derive(Debug)]
struct HostPlots {
    /// GPUs that leak, although none of their processes does.
    leaking_gpus: Vec<Plot>,
    gpus: Vec<Plot>,
    processes: Vec<(ProcessKey, Plot)>,
    /// Reports of the probe on memory that ran out.
    ooms: PageTable,
}

/// Everything that a report shows.
#[derive(Debug)]
struct PageContent<'a> {
    summary: Summary,
    /// The name of the recording to compare with, and the figures of both.
    comparison: Option<(Text, PageTable)>,
    hosts: Vec<(&'a HostRun, HostPlots)>,
    hues: &'a UserHues,
}

/// Checks that the output can show the report, before a recording is read.
///
/// # Errors
///
/// When it is a page for a terminal.
pub(crate) fn check(args: &PageArgs) -> anyhow::Result<()> {
    let has_terminal = args.file().is_none() && terminal::is_stdout();
    ensure!(
        args.format() != RunReportFormat::Html || !has_terminal,
        "a page is not for a terminal: add -o run.html, or --md"
    );
    Ok(())
}

/// Writes the report on a run.
///
/// # Errors
///
/// When the run does not have what the report is on, the recording to compare with cannot be read,
/// or the output cannot be written.
pub(crate) fn write(mut run: RecordedRun, args: &PageArgs) -> anyhow::Result<ExitCode> {
    if let Some(pid) = args.pid {
        ensure!(
            run.keep_process(pid),
            "the recording has no process {pid} with GPU memory"
        );
    }
    if let Some(label) = &args.gpu {
        ensure!(
            run.keep_gpu(label),
            "the recording has no GPU {}",
            Text::new(label)
        );
    }
    let mut content = content(&run);
    if let Some(name) = &args.against {
        let comparison = RunComparison::compare(&run, &fold(&RunRange::parse(name))?);
        content.comparison = Some((Text::new(name), table::comparison(&comparison)));
        content.summary.compare(&comparison, name);
    }
    let written = match args.format() {
        RunReportFormat::Svg => svg(&run, args)?,
        RunReportFormat::Html => html::page(&content),
        RunReportFormat::Markdown => markdown::document(&content),
    };
    match args.file() {
        None => output::print(written.as_bytes())?,
        Some(path) => {
            let name = Text::new(path.as_os_str().as_encoded_bytes());
            fs::write(path, written).with_context(|| format!("cannot write {name}"))?;
        }
    }
    Ok(Exit::Success.into())
}

fn content(run: &RecordedRun) -> PageContent<'_> {
    let plotted: Vec<Vec<ProcessKey>> = run.hosts.iter().map(plotted_processes).collect();
    let gpus = run.hosts.iter().map(|host| host.gpus.len()).sum();
    let resolution = PlotResolution::for_page(gpus, plotted.iter().map(Vec::len).sum());
    let hosts = run
        .hosts
        .iter()
        .zip(plotted)
        .enumerate()
        .map(|(number, (host, processes))| {
            let gpus = host.gpus.iter().enumerate();
            let gpus = gpus.filter_map(|(gpu, one)| {
                plots::of_gpu(host, one, format!("h{number}g{gpu}"), resolution)
            });
            let processes = processes.into_iter().enumerate();
            let processes = processes.filter_map(|(process, key)| {
                let id = format!("h{number}p{process}");
                Some((key, plots::of_process(host, key, id, resolution)?))
            });
            let leaking = host.gpus.iter().enumerate().filter(|(_, gpu)| {
                let is_it = |subject: &RunSubject| *subject == RunSubject::Gpu(gpu.uuid.clone());
                host.leaks.iter().any(|leak| is_it(&leak.subject))
            });
            let leaking = leaking.filter_map(|(gpu, one)| {
                plots::of_gpu(host, one, format!("h{number}l{gpu}"), resolution)
            });
            (
                host,
                HostPlots {
                    leaking_gpus: leaking.collect(),
                    gpus: gpus.collect(),
                    processes: processes.collect(),
                    ooms: black_boxes::table(host),
                },
            )
        });
    PageContent {
        summary: Summary::of(run),
        comparison: None,
        hosts: hosts.collect(),
        hues: &run.user_hues,
    }
}

/// Returns the processes that have a plot: those with a finding first, then the largest.
fn plotted_processes(host: &HostRun) -> Vec<ProcessKey> {
    let has_finding = |key: ProcessKey| {
        host.leaks
            .iter()
            .any(|leak| leak.subject == RunSubject::Process(key))
            || host
                .processes
                .get(&key)
                .is_some_and(|process| process.ooms.is_some_and(|ooms| ooms > 0))
    };
    let mut processes: Vec<ProcessKey> = host
        .largest_processes()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    processes.sort_by_key(|key| !has_finding(*key));
    processes.truncate(MOST_PLOTS);
    processes
}

/// Returns the plot of the chosen process or GPU; without a choice, that of the GPU with the
/// highest memory.
fn svg(run: &RecordedRun, args: &PageArgs) -> anyhow::Result<String> {
    let resolution = PlotResolution::for_page(1, 1);
    let id = || "plot".to_owned();
    let plot = if let Some(pid) = args.pid {
        let found = run
            .hosts
            .iter()
            .find_map(|host| Some((host, host.process_by_pid(pid)?)));
        found.and_then(|(host, key)| plots::of_process(host, key, id(), resolution))
    } else {
        let gpus = run
            .hosts
            .iter()
            .flat_map(|host| host.gpus.iter().map(move |gpu| (host, gpu)));
        let fullest = gpus.max_by_key(|(_, gpu)| gpu.memory.peak.map(|(_, peak)| peak));
        fullest.and_then(|(host, gpu)| plots::of_gpu(host, gpu, id(), resolution))
    };
    let plot = plot.context("the recording has no memory figure to draw")?;
    let style =
        html! { style { (PreEscaped(colours::style_sheet())) "svg{background:var(--bg)}" } };
    Ok(plot.draw_alone(&style).into_string())
}
