//! The command line of the subcommands that read recordings without a screen.

use std::path::PathBuf;

use clap::Args;

use super::options::is_ascii;
use super::{OutputArgs, values};
use crate::base::units::Bytes;
use crate::commands::analyze::AnalyzeOptions;
use crate::commands::run_report::{RunReportFormat, RunReportOptions};

#[derive(Debug, Clone, Args)]
pub(crate) struct AnalyzeArgs {
    /// Recordings, and logs: CSV of `nvidia-smi --query-gpu` or `--query-compute-apps` with timestamps, in any order of
    /// columns, with or without header and units; plain `time,bytes`; or lines of `gputop --json -l SECONDS`. Columns named
    /// `allocated_bytes` and `reserved_bytes` are PyTorch's figures. `-` for the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Memory of the GPU, such as `80GiB`, if the log does not have it
    #[arg(long, value_name = "AMOUNT", value_parser = values::capacity)]
    capacity: Option<Bytes>,

    #[command(flatten)]
    output: OutputArgs,
}

impl From<&AnalyzeArgs> for AnalyzeOptions {
    fn from(args: &AnalyzeArgs) -> Self {
        Self {
            files: args.files.clone(),
            capacity: args.capacity,
            json: args.output.json,
            ascii: is_ascii(args.output.ascii),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// A recording; `-` for lines from the standard input
    #[arg(value_name = "FILE")]
    recording: PathBuf,

    /// Write to this file. The ending `.md` or `.svg` chooses that form
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
    pid: Option<u32>,

    /// Report on this GPU and its processes only
    #[arg(long, value_name = "INDEX")]
    gpu: Option<String>,
}

impl From<&ReportArgs> for RunReportOptions {
    fn from(args: &ReportArgs) -> Self {
        let ending = args.output.as_ref().and_then(|path| path.extension()?.to_str());
        let format = match ending {
            _ if args.md => RunReportFormat::Markdown,
            _ if args.svg => RunReportFormat::Svg,
            Some("md") => RunReportFormat::Markdown,
            Some("svg") => RunReportFormat::Svg,
            _ => RunReportFormat::Html,
        };
        Self {
            recording: args.recording.clone(),
            format,
            output: args.output.clone(),
            pid: args.pid,
            gpu: args.gpu.clone(),
        }
    }
}
