//! `gputop analyze`: judges whether memory leaked in a log, and when it runs out; for people and
//! for scripts.
//!
//! Reads the CSV of `nvidia-smi --query-gpu` and `--query-compute-apps`, plain times and bytes, and
//! the lines of `gputop --json -l SECONDS`, and recordings. Each series of memory goes to the leak
//! detector of the live view. No driver and no agent are used.
//!
//! The parts of a process's memory are judged as well if the log has them: in gputop's own lines,
//! and in CSV whose header has `allocated_bytes` and `reserved_bytes`, from
//! `torch.cuda.memory_allocated()` and `memory_reserved()`.
//!
//! A log that cannot be judged for sure is refused: its error says what it is, and what to record
//! instead.

mod cells;
mod columns;
mod dates;
#[cfg(test)]
mod doubtful_log_tests;
mod episodes;
mod gputop_lines;
mod headline;
mod input;
mod interleaved;
mod json;
mod judged;
mod limits;
mod log;
mod log_span;
mod next_steps;
mod other_formats;
mod picture;
#[cfg(test)]
mod post_mortem_tests;
mod rows;
mod series;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod time_order;
mod unreadable;

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use self::log::{LogProblem, LogReader};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::output::{self, Exit, TextStyle};

#[derive(Debug)]
pub(crate) struct AnalyzeOptions {
    /// The logs; `-` is the standard input.
    pub files: Vec<PathBuf>,
    /// The memory of the GPU. `None` for the amount in the log, if it has one.
    pub capacity: Option<Bytes>,
    /// Whether each of many series is described.
    pub all: bool,
    pub json: bool,
    pub ascii: bool,
}

pub(crate) fn run(options: &AnalyzeOptions) -> anyhow::Result<ExitCode> {
    let mut logs = Vec::new();
    for path in &options.files {
        let mut log = LogReader::new(options.capacity);
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
    if options.json {
        json::write(&logs, BufWriter::new(io::stdout().lock()))?;
    } else {
        output::print(
            text::format(&logs, options.all, TextStyle::of_explanation(options.ascii)).as_bytes(),
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
        () if problems().any(|problem| matches!(problem, LogProblem::Mixed(_))) => Exit::Error,
        () if problems().count() == logs.len() => Exit::Nothing,
        () => Exit::Success,
    }
    .into())
}
