//! `gputop analyze`: whether memory leaks in a log that someone has, and when it runs out: for people, and for scripts.
//!
//! It reads what `nvidia-smi --query-gpu` and `--query-compute-apps` write as CSV, plain times and bytes, and the lines of
//! `gputop --json -l SECONDS`, and gives each series to the same judge that looks on live. It asks no driver and no agent.
//!
//! Where a log tells the parts of a process's memory, they are judged too: gputop's own lines do, and CSV with a header
//! that has `allocated_bytes` and `reserved_bytes`, as `torch.cuda.memory_allocated()` and `memory_reserved()` say them.

mod cells;
mod clock;
mod columns;
mod json;
mod log;
mod picture;
mod series;
mod stream;
#[cfg(test)]
mod tests;
mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;

use self::log::Log;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::cli::AnalyzeArgs;
use crate::commands::report::{self, Exit};
use crate::tui::terminal::{self, Abilities, Tty};

/// Reads the logs and prints what was found.
///
/// # Errors
///
/// When a log cannot be read, or the standard output takes no more.
pub fn run(args: &AnalyzeArgs) -> anyhow::Result<ExitCode> {
    terminal::end_on_panic(None);
    let mut logs = Vec::new();
    for path in &args.files {
        logs.push(if path.as_os_str() == "-" {
            let input = io::stdin();
            if input.is_terminal() {
                report::complain(&Text::new("paste the log, then press Enter and Ctrl-D"));
            }
            read(input.lock(), "standard input", 0, args).context("cannot read the standard input")?
        } else {
            let name = Text::new(path.to_string_lossy().as_bytes());
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            let size = file.metadata().map_or(0, |it| it.len());
            read(BufReader::with_capacity(1 << 16, file), name.as_str(), size, args)
                .with_context(|| format!("cannot read {name}"))?
        });
    }
    let found: Vec<_> = logs.into_iter().map(|(name, log)| (name, log.finish())).collect();
    if args.json {
        report::put(format!("{}\n", json::of(&found)).as_bytes())?;
    } else {
        let able = Abilities::from_env();
        let style = text::Style {
            width: if Tty::is_there() { usize::from(terminal::size().width) } else { 100 },
            ascii: args.ascii || able.ascii,
        };
        report::put(text::of(&found, style).as_bytes())?;
    }
    for (name, found) in found.iter().filter(|(_, it)| it.series.is_empty()) {
        report::complain(&Text::new(format!("no series of memory in {name} ({} lines)", found.lines)));
    }
    let is_nothing = found.iter().all(|(_, it)| it.series.is_empty());
    Ok(if is_nothing { Exit::Nothing } else { Exit::Success }.into())
}

/// Reads a log to its end. Says on a terminal how far it is.
fn read(mut input: impl BufRead, name: &str, size: u64, args: &AnalyzeArgs) -> io::Result<(Text, Log)> {
    /// Bytes from one word to the next, some tenths of a second.
    const PART: u64 = 16 << 20;
    /// No log has such a line; one without an end must not fill the memory.
    const LONGEST: u64 = 1 << 24;
    let mut log = Log::new(args.capacity);
    let (mut line, mut done, mut due) = (Vec::new(), 0, PART);
    let mut told = false;
    loop {
        line.clear();
        let length = io::Read::take(&mut input, LONGEST).read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        done += length as u64;
        // PowerShell writes UTF-16, and what stands in a log is ASCII.
        line.retain(|byte| *byte != 0);
        log.line(&String::from_utf8_lossy(&line));
        if done >= due && io::stderr().is_terminal() {
            due += PART;
            told = true;
            let whole = if size > 0 { format!(" of {}", Bytes(size)) } else { String::new() };
            let _closed: io::Result<()> = write!(io::stderr(), "\r{name}: {}{whole} read…", Bytes(done));
        }
    }
    if told {
        let _closed: io::Result<()> = write!(io::stderr(), "\r\x1b[K");
    }
    Ok((Text::new(name), log))
}
