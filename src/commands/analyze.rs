//! `gputop analyze`: judges whether memory leaks in a log, and when it runs out; for people and for scripts.
//!
//! Reads the CSV of `nvidia-smi --query-gpu` and `--query-compute-apps`, plain times and bytes, and the lines of
//! `gputop --json -l SECONDS`, and recordings. Each series of memory goes to the leak detector of the live view. No driver and no agent
//! are used.
//!
//! The parts of a process's memory are judged as well if the log has them: in gputop's own lines, and in CSV whose
//! header has `allocated_bytes` and `reserved_bytes`, from `torch.cuda.memory_allocated()` and `memory_reserved()`.

mod cells;
mod columns;
mod gputop_lines;
mod json;
mod log;
mod picture;
mod series;
#[cfg(test)]
mod tests;
mod text;
mod time_order;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use self::log::{AnalyzedLog, LogReader};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::commands::output::{self, TextStyle};
use crate::commands::report::{self, Exit};
use crate::source::RecordingReader;

#[derive(Debug)]
pub(crate) struct AnalyzeOptions {
    /// The logs; `-` is the standard input.
    pub files: Vec<PathBuf>,
    /// The memory of the GPU. `None` for the amount in the log, if it has one.
    pub capacity: Option<Bytes>,
    pub json: bool,
    pub ascii: bool,
}

pub(crate) fn run(options: &AnalyzeOptions) -> anyhow::Result<ExitCode> {
    let mut logs = Vec::new();
    for path in &options.files {
        logs.push(if path.as_os_str() == "-" {
            let input = io::stdin();
            if input.is_terminal() {
                report::print_error(&Text::new("paste the log, then press Enter and Ctrl-D"));
            }
            read(input.lock(), "standard input", 0, options.capacity).context("cannot read the standard input")?
        } else {
            let name = Text::new(path.to_string_lossy().as_bytes());
            if is_zstd(path) {
                logs.push(
                    read_recording(path, &name, options.capacity).with_context(|| format!("cannot read {name}"))?,
                );
                continue;
            }
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            read(BufReader::with_capacity(1 << 16, file), name.as_str(), size, options.capacity)
                .with_context(|| format!("cannot read {name}"))?
        });
    }
    if options.json {
        output::print_json(&json::to_json(&logs))?;
    } else {
        report::print(text::format(&logs, TextStyle::of_stdout(options.ascii)).as_bytes())?;
    }
    let empty: Vec<_> = logs.iter().filter(|(_, log)| log.series.is_empty()).collect();
    for (name, log) in &empty {
        report::print_error(&Text::new(format!("no series of memory in {name} ({} lines)", log.lines)));
    }
    Ok(if empty.len() == logs.len() { Exit::Nothing } else { Exit::Success }.into())
}

/// Whether a file begins as a recording in zstd frames does.
fn is_zstd(path: &Path) -> bool {
    const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
    let mut bytes = [0; MAGIC.len()];
    // A pipe would lose these bytes.
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).is_ok()
        && bytes == MAGIC
}

/// Reads a recording in zstd frames, with its older parts.
fn read_recording(path: &Path, name: &Text, capacity: Option<Bytes>) -> io::Result<(Text, AnalyzedLog)> {
    let mut reader = RecordingReader::open(path)?;
    let mut log = LogReader::new(capacity);
    while let Some(line) = reader.next_line()? {
        log.line(&String::from_utf8_lossy(line));
    }
    for problem in reader.problems() {
        report::print_error(&Text::new(format!("{name}: {problem}")));
    }
    Ok((name.clone(), log.finish()))
}

/// Reads a log to its end, and shows the progress on a terminal. `size` is 0 if it is not known.
fn read(mut input: impl BufRead, name: &str, size: u64, capacity: Option<Bytes>) -> io::Result<(Text, AnalyzedLog)> {
    /// Bytes between two reports of progress: some tenths of a second.
    const PROGRESS_STEP: u64 = 16 << 20;
    /// Bytes after which a line is cut, so that a file without line ends does not fill the memory.
    const LONGEST_LINE: u64 = 1 << 24;
    let mut log = LogReader::new(capacity);
    let (mut line, mut bytes_read, mut next_report) = (Vec::new(), 0, PROGRESS_STEP);
    let shows_progress = io::stderr().is_terminal();
    loop {
        line.clear();
        let length = Read::take(&mut input, LONGEST_LINE).read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        bytes_read += length as u64;
        // PowerShell writes UTF-16. Without its zero bytes, that is ASCII.
        line.retain(|byte| *byte != 0);
        log.line(&String::from_utf8_lossy(&line));
        if bytes_read >= next_report && shows_progress {
            next_report += PROGRESS_STEP;
            let of_size = if size > 0 { format!(" of {}", Bytes(size)) } else { String::new() };
            let _closed: io::Result<()> = write!(io::stderr(), "\r{name}: {}{of_size} read…", Bytes(bytes_read));
        }
    }
    if shows_progress && bytes_read >= PROGRESS_STEP {
        let _closed: io::Result<()> = write!(io::stderr(), "\r\x1b[K");
    }
    Ok((Text::new(name), log.finish()))
}
