//! `gputop analyze`: judges whether memory leaked in a log, and when it runs out; for people and
//! for scripts.
//!
//! Reads CSV of any columns, tables of `nvidia-smi` and of other monitors, JSON, lines of text of
//! trainers, the lines of `gputop --json -l SECONDS`, and recordings. Each series of memory goes to the leak
//! detector of the live view. No driver and no agent are used.
//!
//! The parts of a process's memory are judged as well if the log has them: in gputop's own lines,
//! and in CSV whose header has `allocated_bytes` and `reserved_bytes`, from
//! `torch.cuda.memory_allocated()` and `memory_reserved()`.
//!
//! A log that cannot be judged for sure is refused: its error says what it is, and what to record
//! instead.

mod cells;
mod column_names;
mod columns;
mod dates;
#[cfg(test)]
mod doubtful_log_tests;
mod doubts;
mod episodes;
mod falls;
mod first_rows;
mod full_end;
mod gputop_lines;
mod guessed_columns;
mod headline;
mod input;
mod interleaved;
mod json;
mod json_values;
mod judged;
mod limits;
mod log;
mod log_options;
mod log_samples;
mod log_span;
mod loose_samples;
mod next_steps;
mod other_formats;
mod picture;
#[cfg(test)]
mod post_mortem_tests;
mod rows;
mod series;
mod series_summary;
mod summary;
mod table_reader;
#[cfg(test)]
mod tests;
mod text;
mod text_lines;
mod time_order;
mod unreadable;

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

pub(crate) use self::input::is_log;
use self::log::{LogProblem, LogReader};
use self::log_options::LogOptions;
pub(crate) use self::series_summary::{LogSummary, SeriesSummary, summarize};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::flags::{OutputArgs, values};
use crate::output::{self, Exit, TextStyle};

#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct AnalyzeArgs {
    /// Recordings, and logs, plain or compressed with gzip or zstd: CSV with a time or a step and
    /// memory, in any order of columns; tables of `nvidia-smi -l`, `dmon`, `pmon`, gpustat, nvitop,
    /// nvtop and rocm-smi; exports of trackers, Grafana and Prometheus; lines of trainers;
    /// or lines of `gputop --json -l SECONDS`. Columns named `allocated_bytes` and
    /// `reserved_bytes` are PyTorch's figures. `-` for the standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Memory of the GPU, such as `80GiB`, if the log does not have it
    #[arg(long, value_name = "AMOUNT", value_parser = values::capacity)]
    capacity: Option<Bytes>,

    /// Time between two samples, such as `5` (seconds) or `1m`, for a log without times, or whose
    /// steps have an even length
    #[arg(long, value_name = "SPAN", value_parser = values::positive_span)]
    interval: Option<Duration>,

    /// The column of the times or steps [default: chosen by name and content]
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,

    /// The column of the memory in use, or the label in lines of text; repeatable [default: chosen
    /// by name and content, and named in the output]
    #[arg(long, value_name = "COLUMN")]
    memory: Vec<String>,

    /// The unit of memory, if the log does not tell it: `bytes`, `KiB`, `MiB`, `GiB`, `MB` or `GB`
    #[arg(long, value_name = "UNIT", value_parser = values::unit)]
    unit: Option<u64>,

    /// Describe the memory of each GPU and process, however many there are, and list all events.
    /// Without it, a table shows those of many that leaked or are suspect
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// The end of the help.
const EXIT_CODES: &str = "\
Exit codes:
    0  a log was judged, whether memory leaks or not: --json has the verdicts
    6  no log has memory over time
    1  a log cannot be read, its GPUs cannot be told apart, or its unit of memory is wrong";

impl AnalyzeArgs {
    fn options(&self) -> LogOptions {
        LogOptions {
            capacity: self.capacity,
            interval: self.interval,
            time: self.time.clone(),
            memory: self.memory.clone(),
            unit: self.unit,
        }
    }
}

pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<ExitCode> {
    let mut logs = Vec::new();
    for path in &args.files {
        let mut log = LogReader::new(args.options());
        let name = if path.as_os_str() == "-" {
            input::read_stdin(&mut log).context("cannot read the standard input")?;
            Text::new(next_steps::STANDARD_INPUT)
        } else {
            let name = Text::new(path.to_string_lossy().as_bytes());
            input::read_file(path, &name, &mut log)
                .with_context(|| format!("cannot read {name}"))?;
            name
        };
        logs.push((name, log.finish()));
    }
    if args.output.json {
        json::write(&logs, BufWriter::new(io::stdout().lock()))?;
    } else {
        output::print(
            text::format(
                &logs,
                args.all,
                TextStyle::of_explanation(args.output.is_ascii()),
            )
            .as_bytes(),
        )?;
    }
    for (name, problem) in logs
        .iter()
        .filter_map(|(name, log)| Some((name, log.problem.as_ref()?)))
    {
        output::print_error(&Text::new(format!(
            "cannot judge {name}: {}",
            problem.sentence()
        )));
    }
    let problems = || logs.iter().filter_map(|(_, log)| log.problem.as_ref());
    Ok(match () {
        () if problems()
            .any(|problem| matches!(problem, LogProblem::Mixed(_) | LogProblem::Unit(_))) =>
        {
            Exit::Error
        }
        () if problems().count() == logs.len() => Exit::Nothing,
        () => Exit::Success,
    }
    .into())
}

/// Analyzes a log of these bytes as text and as JSON. Returns whether it has a series of memory.
#[cfg(any(test, fuzzing))]
pub(crate) fn analyze_bytes(bytes: Vec<u8>) -> bool {
    let mut log = LogReader::new(LogOptions::default());
    if input::read(io::Cursor::new(bytes), "log", 0, &mut log).is_err() {
        return false;
    }
    let logs = [(Text::new("log"), log.finish())];
    let result = json::write(&logs, io::sink());
    assert!(result.is_ok(), "a log cannot be written: {result:?}");
    let text = text::format(&logs, true, TextStyle::of_explanation(false));
    let has_words = !text.is_empty() || logs[0].1.problem.is_some();
    assert!(has_words, "a log is described without a word");
    !logs[0].1.series.is_empty()
}
