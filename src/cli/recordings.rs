//! The command line of the subcommands that read recordings without a screen.

use std::path::{Path, PathBuf};

use clap::Args;

use super::options::is_ascii;
use super::{HostArgs, OutputArgs, ReadArgs, values};
use crate::base::units::Bytes;
use crate::commands::report::ReportSubject;
use crate::logs::analyze::AnalyzeOptions;
use crate::logs::diff::DiffOptions;
use crate::logs::export::{ExportFormat, ExportOptions, ExportSubject};
use crate::logs::recorded_run::RunRange;
use crate::logs::report::{RunReportFormat, RunReportOptions};

#[derive(Debug, Clone, Args)]
pub(crate) struct AnalyzeArgs {
    /// Recordings, and logs, plain or compressed with gzip or zstd: CSV of `nvidia-smi --query-gpu`
    /// or `--query-compute-apps` with timestamps, in any order of columns, with or without header
    /// and units; plain `time,bytes`; or lines of `gputop --json -l SECONDS`. Columns named
    /// `allocated_bytes` and `reserved_bytes` are PyTorch's figures. `-` for the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Memory of the GPU, such as `80GiB`, if the log does not have it
    #[arg(long, value_name = "AMOUNT", value_parser = values::capacity)]
    capacity: Option<Bytes>,

    /// Describe the memory of each GPU and process, however many there are, and list all events.
    /// Without it, a table shows those of many that leaked or are suspect
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    output: OutputArgs,
}

impl From<&AnalyzeArgs> for AnalyzeOptions {
    fn from(args: &AnalyzeArgs) -> Self {
        Self {
            files: args.files.clone(),
            capacity: args.capacity,
            all: args.all,
            json: args.output.json,
            ascii: is_ascii(args.output.ascii),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    /// The recording before the change. `FILE@FROM..TO` is a part of it: from and to a local time
    /// (`10:15`), a time after its beginning (`+5m`), or a mark that the program set with
    /// `gputop_probe.mark`
    #[arg(value_name = "A")]
    a: String,

    /// The recording after the change, or a part of it
    #[arg(value_name = "B")]
    b: String,

    #[command(flatten)]
    output: OutputArgs,
}

impl From<&DiffArgs> for DiffOptions {
    fn from(args: &DiffArgs) -> Self {
        Self {
            runs: [&args.a, &args.b].map(|run| (RunRange::parse(run), run.clone())),
            json: args.output.json,
            ascii: is_ascii(args.output.ascii),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
    /// A recording; `-` for lines from the standard input
    #[arg(value_name = "FILE")]
    recording: PathBuf,

    /// Write CSV (default): a row of text for each sample, empty where a value is not known
    #[arg(long, conflicts_with = "parquet")]
    csv: bool,

    /// Write Parquet; also chosen by an output file that ends in `.parquet`
    #[arg(long)]
    parquet: bool,

    /// One row for each GPU, or for each process on a GPU
    #[arg(long, value_name = "gpus|processes", default_value = "gpus", value_parser = ["gpus", "processes"])]
    #[arg(hide_possible_values = true)]
    of: String,

    /// Write to this file instead of the standard output, which is `-`
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl From<&ExportArgs> for ExportOptions {
    fn from(args: &ExportArgs) -> Self {
        let by_name = args
            .output
            .as_ref()
            .and_then(|path| path.extension())
            .is_some_and(|ending| ending == "parquet");
        let is_parquet = args.parquet || by_name && !args.csv;
        Self {
            recording: args.recording.clone(),
            format: if is_parquet {
                ExportFormat::Parquet
            } else {
                ExportFormat::Csv
            },
            subject: if args.of == "processes" {
                ExportSubject::Processes
            } else {
                ExportSubject::Gpus
            },
            output: values::unless_stdout(args.output.as_ref()),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// A recording, or a part of it as in `gputop diff --help`; `-` for lines from the standard
    /// input. The PID of a process of this host: the newest recording that `gputop record` or the
    /// screen keeps of it, and a look at it now
    #[arg(value_name = "FILE|PID")]
    subject: String,

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
    pid: Option<u32>,

    /// Report on this GPU and its processes only
    #[arg(long, value_name = "INDEX")]
    gpu: Option<String>,

    #[command(flatten)]
    read: ReadArgs,
}

impl From<&ReportArgs> for RunReportOptions {
    fn from(args: &ReportArgs) -> Self {
        let ending = args
            .output
            .as_ref()
            .and_then(|path| path.extension()?.to_str());
        let format = match ending {
            _ if args.md => RunReportFormat::Markdown,
            _ if args.svg => RunReportFormat::Svg,
            Some("md") => RunReportFormat::Markdown,
            Some("svg") => RunReportFormat::Svg,
            _ => RunReportFormat::Html,
        };
        Self {
            against: args
                .against
                .as_ref()
                .map(|other| (RunRange::parse(other), other.clone())),
            format,
            output: values::unless_stdout(args.output.as_ref()),
            pid: args.named_process().or(args.pid),
            gpu: args.gpu.clone(),
        }
    }
}

impl ReportArgs {
    /// Returns the PID if the subject is a process and no file.
    fn named_process(&self) -> Option<u32> {
        self.subject
            .parse()
            .ok()
            .filter(|_| !Path::new(&self.subject).exists())
    }

    pub(crate) fn subject(&self) -> ReportSubject {
        match self.named_process() {
            Some(pid) => ReportSubject::Process(pid, self.read.options(&HostArgs::default(), None)),
            None => ReportSubject::Recording(RunRange::parse(&self.subject)),
        }
    }
}
