//! `gputop explain`: explains why a GPU program died of memory, from its log in a file, a pipe or
//! an argument.
//!
//! In a pipe, every byte is passed on at once and unchanged, and the explanation follows the end of
//! the log. No GPU is needed; if a message names other processes, the caller says what those of
//! this host are.

mod after_failure;
mod breakdown;
mod claim;
mod error_finder;
mod events;
mod failure_line;
mod grammar;
mod json;
#[cfg(test)]
mod known_error_tests;
mod known_errors;
#[cfg(test)]
mod line_corpus_tests;
mod log_line;
mod message;
mod message_finder;
mod other_processes;
mod program;
mod reason_sentence;
#[cfg(test)]
mod reason_tests;
mod scan;
mod shortage;
#[cfg(test)]
mod tests;
mod text;

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use anyhow::{Context, bail};
use regex::bytes::{Regex, RegexBuilder};
use tokio::signal::unix::{SignalKind, signal};

use self::breakdown::MessageBreakdown;
use self::events::LogEvent;
use self::message::{MessageForm, OomMessage};
use self::message_finder::FoundMessage;
pub(crate) use self::other_processes::OtherProcesses;
use self::program::Program;
use self::scan::{LogScanner, ScannedLog};
use crate::base::terminal::{self, TerminalAbilities};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::flags::OutputArgs;
use crate::logs::compressed_log;
use crate::logs::compressed_log::OpenLog;
use crate::model::{Advice, AllocatorOptions, Shortage, on_error, on_shortage};
use crate::output::{self, Exit, TextStyle};
use crate::source::descriptors;

/// An event of a log with its explanation.
struct ExplainedEvent<'a> {
    event: &'a LogEvent,
    /// Whether another event caused this one.
    is_consequence: bool,
    /// The figures, if the event is a message of PyTorch.
    message: Option<ExplainedMessage<'a>>,
    advice: Vec<Advice>,
    log: &'a LogSource,
}

struct ExplainedMessage<'a> {
    found: &'a FoundMessage,
    breakdown: MessageBreakdown,
    /// The reasons, the main reason first.
    shortages: Vec<Shortage>,
}

struct LogSource {
    /// The file. `None` for a pipe or an argument, and if there is only one file.
    name: Option<Text>,
    /// When the file was last modified, in milliseconds since 1970: the latest time at which a
    /// message may have been written. `None` when that is not known, as for a pipe.
    written: Option<u64>,
    /// Why the end of a compressed log could not be read. `None` if all of it was read.
    unread: Option<Text>,
    log: ScannedLog,
}

impl LogSource {
    fn unnamed(log: ScannedLog) -> Self {
        Self {
            name: None,
            written: None,
            unread: None,
            log,
        }
    }

    fn explain(&self) -> impl Iterator<Item = ExplainedEvent<'_>> {
        self.log.events.iter().map(|(event, is_consequence)| {
            let message = match event {
                LogEvent::Message(found) => Some(ExplainedMessage::of(found)),
                LogEvent::Error(_) => None,
            };
            let advice = self.advice(event, message.as_ref());
            ExplainedEvent {
                event,
                is_consequence: *is_consequence,
                message,
                advice,
                log: self,
            }
        })
    }
}

impl LogSource {
    /// Returns the advice on an event. On a full GPU, the options of the program that the log shows
    /// come first.
    fn advice(&self, event: &LogEvent, message: Option<&ExplainedMessage<'_>>) -> Vec<Advice> {
        let is_full = |shortage: &Shortage| {
            matches!(
                shortage,
                Shortage::Full | Shortage::TooBig | Shortage::OutsidePytorch | Shortage::Unsaid
            )
        };
        let may_train = self.log.program.is_none_or(Program::may_train);
        let of_program = || on_error(self.log.program.map_or(&[], Program::advice));
        match (event, message) {
            (LogEvent::Error(found), _) if !found.error.full_gpu => on_error(&found.error.advice),
            (LogEvent::Error(_), _) if !may_train => {
                [of_program(), on_error(&["driver-out-of-memory"])].concat()
            }
            (LogEvent::Error(found), _) => [of_program(), on_error(&found.error.advice)].concat(),
            (LogEvent::Message(found), Some(ExplainedMessage { shortages, .. })) => {
                let on_shortage =
                    on_shortage(shortages, self.allocator_options(&found.message), may_train);
                if shortages.first().is_some_and(is_full) {
                    [of_program(), on_shortage].concat()
                } else if !may_train && shortages.iter().any(is_full) {
                    [on_shortage, of_program()].concat()
                } else {
                    on_shortage
                }
            }
            (LogEvent::Message(_), None) => Vec::new(),
        }
    }

    /// Returns the options of the version of PyTorch that wrote a message, which its form shows.
    fn allocator_options(&self, message: &OomMessage) -> AllocatorOptions {
        match (message.backend, message.form) {
            (Some("XPU"), _) => AllocatorOptions::Xpu,
            (Some("NPU"), _) => AllocatorOptions::Npu,
            (_, MessageForm::Brackets) if !self.log.advises_split_size => AllocatorOptions::None,
            (Some("HIP"), _) => AllocatorOptions::Hip,
            (_, MessageForm::Brackets) => AllocatorOptions::SplitSize,
            _ => AllocatorOptions::ExpandableSegments,
        }
    }
}

impl<'a> ExplainedMessage<'a> {
    fn of(found: &'a FoundMessage) -> Self {
        let breakdown = MessageBreakdown::of(&found.message);
        Self {
            shortages: shortage::shortages(&found.message, &breakdown),
            breakdown,
            found,
        }
    }
}

/// The logs that were read, with their events.
pub(crate) struct Explanation {
    sources: Vec<LogSource>,
    /// Whether the log was passed on to the standard output.
    passes_on: bool,
}

impl Explanation {
    /// Reads the logs, and passes the standard input on if that is the only one and the result is no
    /// JSON. `words` are log files, or those of a message; empty or `-` for the standard input.
    ///
    /// # Errors
    ///
    /// When a log cannot be read, or not be passed on.
    pub(crate) fn read(words: &[String], json: bool) -> anyhow::Result<Self> {
        let passes_on = words.is_empty() && !json && !io::stdin().is_terminal();
        Ok(Self {
            sources: sources(words, passes_on)?,
            passes_on,
        })
    }

    /// Whether a message names processes that hold memory beside the program.
    pub(crate) fn names_processes(&self) -> bool {
        let mut events = self.sources.iter().flat_map(LogSource::explain);
        let names =
            |message: ExplainedMessage<'_>| message.breakdown.other_processes().next().is_some();
        events.any(|event| event.message.is_some_and(names))
    }

    /// Writes what the logs say. `processes` are those of this host, if a message names some.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    pub(crate) fn write(
        &self,
        args: &OutputArgs,
        processes: &OtherProcesses,
    ) -> anyhow::Result<ExitCode> {
        let Self { sources, passes_on } = self;
        let events: Vec<_> = sources.iter().flat_map(LogSource::explain).collect();
        let has_trouble =
            |source: &LogSource| !source.log.unknown.is_empty() || !source.log.aftermath.is_empty();
        // In a pipe, a program without trouble is a success.
        let is_well = *passes_on && !sources.iter().any(has_trouble);
        let exit = match () {
            () if !events.is_empty() || is_well => Exit::Success,
            () if sources.iter().any(|source| source.unread.is_some()) => Exit::Partial,
            () => Exit::Nothing,
        };
        if events.is_empty() && !args.json {
            output::print_error(&Text::new(text::nothing_found(sources)));
            for line in text::unknown_lines(sources) {
                output::print_error(&Text::new(line));
            }
            return Ok(exit.into());
        }
        if args.json {
            output::print_json(&json::to_json(&events, sources, processes))?;
            return Ok(exit.into());
        }
        // The standard output carries the log. If it is a terminal, the explanation follows there,
        // and otherwise on the standard error.
        let uses_stderr = *passes_on && !terminal::is_stdout();
        let mut style = TextStyle::of_explanation(args.is_ascii());
        if uses_stderr {
            style.bold = TerminalAbilities::from_env().has_colour() && io::stderr().is_terminal();
        }
        let mut text = text::format(&events, sources, processes, style);
        let left_out: u64 = sources.iter().map(|source| source.log.left_out).sum();
        if left_out > 0 {
            text = format!("{text}\n{left_out} more messages, all different, are left out.\n");
        }
        if *passes_on {
            text.insert(0, '\n');
        }
        if uses_stderr {
            io::stderr()
                .write_all(text.as_bytes())
                .context("cannot write to the standard error")?;
        } else {
            output::print(text.as_bytes())?;
        }
        Ok(exit.into())
    }
}

fn sources(args: &[String], passes_on: bool) -> anyhow::Result<Vec<LogSource>> {
    let is_file = |arg: &String| Path::new(arg).exists();
    match args {
        [] => Ok(vec![read_stdin(passes_on)?]),
        [dash] if dash == "-" => Ok(vec![read_stdin(passes_on)?]),
        files if files.iter().all(is_file) => files
            .iter()
            .map(|path| read_file(path, files.len() > 1))
            .collect(),
        // A message without quotes comes as many arguments.
        words
            if words
                .iter()
                .any(|word| word.contains("memory") || word.contains("allocate")) =>
        {
            Ok(vec![LogSource::unnamed(read(
                &mut words.join(" ").as_bytes(),
                |_| Ok(true),
            )?)])
        }
        files => {
            let missing = files
                .iter()
                .find(|arg| !is_file(arg))
                .map_or("", String::as_str);
            bail!(
                "{} is neither a file nor an out-of-memory message",
                Text::new(missing)
            )
        }
    }
}

fn read_file(path: &str, has_others: bool) -> anyhow::Result<LogSource> {
    let name = Text::new(path);
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let modified = file
        .metadata()
        .ok()
        .and_then(|metadata| metadata.modified().ok());
    let modified = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    let written = modified.and_then(|modified| u64::try_from(modified.as_millis()).ok());
    let source = read_compressed(file).with_context(|| format!("cannot read {name}"))?;
    if let Some(reason) = &source.unread {
        output::print_error(&Text::new(format!(
            "only the beginning of {name} could be read: {reason}"
        )));
    }
    Ok(LogSource {
        name: has_others.then_some(name),
        written,
        ..source
    })
}

/// Reads a log, which may be compressed. The beginning of a compressed log is read even if its rest
/// cannot be.
fn read_compressed(input: impl Read + 'static) -> io::Result<LogSource> {
    let OpenLog {
        mut text,
        is_compressed,
    } = compressed_log::open(input, "explain")?;
    let mut scanner = LogScanner::default();
    let result = scan(&mut *text, &mut scanner, |_| Ok(true));
    let log = scanner.finish();
    let unread = match result {
        Err(error) if is_compressed && log.lines > 0 => Some(Text::new(match error.kind() {
            ErrorKind::UnexpectedEof => "its end is missing".to_owned(),
            _ => error.to_string(),
        })),
        result => result.map(|()| None)?,
    };
    Ok(LogSource {
        unread,
        ..LogSource::unnamed(log)
    })
}

/// Explains a log of these bytes as text and as JSON. Returns whether it has a memory failure.
#[cfg(any(test, fuzzing))]
pub(crate) fn explain_bytes(bytes: Vec<u8>) -> bool {
    let Ok(source) = read_compressed(io::Cursor::new(bytes)) else {
        return false;
    };
    let sources = [source];
    let events: Vec<_> = sources.iter().flat_map(LogSource::explain).collect();
    let processes = OtherProcesses {
        model: None,
        reason: None,
    };
    let style = TextStyle::of_explanation(false);
    let text = text::format(&events, &sources, &processes, style);
    assert!(
        events.is_empty() || !text.is_empty(),
        "an event is described without a word"
    );
    json::to_json(&events, &sources, &processes);
    text::nothing_found(&sources);
    text::unknown_lines(&sources);
    !events.is_empty()
}

/// Reads the standard input to its end. With `passes_on`, each byte goes to the standard output at
/// once.
fn read_stdin(passes_on: bool) -> anyhow::Result<LogSource> {
    let input = io::stdin();
    if !passes_on {
        if input.is_terminal() {
            output::print_error(&Text::new("paste the message, then press Enter and Ctrl-D"));
        }
        return read_compressed(input.lock()).context("cannot read the standard input");
    }
    // Ctrl-C ends the program that writes the log. The last lines of that program are still passed
    // on.
    ignore_interrupt().context("cannot catch an interrupt")?;
    let log = read(
        &mut input.lock(),
        |bytes| match terminal::write_unbuffered(bytes) {
            Ok(()) => Ok(true),
            // The reader has closed the pipe. Once the input is closed too, the program that writes
            // the log gets an error.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        },
    );
    log.map(LogSource::unnamed)
        .context("cannot pass the standard input on")
}

/// Makes this process ignore SIGINT, which still ends the other processes of the pipe.
fn ignore_interrupt() -> io::Result<()> {
    descriptors::check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    // tokio's handler stays installed after the stream is dropped.
    signal(SignalKind::interrupt()).map(drop)
}

/// Scans `input` for messages until its end, or until `pass_on` returns `false`.
fn read(
    input: &mut dyn Read,
    pass_on: impl FnMut(&[u8]) -> io::Result<bool>,
) -> io::Result<ScannedLog> {
    let mut scanner = LogScanner::default();
    scan(input, &mut scanner, pass_on)?;
    Ok(scanner.finish())
}

/// Scans `input` to its end, or until `pass_on` returns `false`.
fn scan(
    input: &mut dyn Read,
    scanner: &mut LogScanner,
    mut pass_on: impl FnMut(&[u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let mut chunk = vec![0; 1 << 16];
    loop {
        let length = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let continues = pass_on(&chunk[..length])?;
        scanner.scan(&chunk[..length]);
        if !continues {
            break;
        }
    }
    Ok(())
}

/// Compiles a pattern for the bytes of a log, which may not be UTF-8.
#[expect(clippy::expect_used, reason = "a test compiles every pattern")]
fn log_pattern(pattern: &str) -> Regex {
    RegexBuilder::new(pattern)
        .unicode(false)
        .build()
        .expect("the pattern is valid")
}

/// Compiles a search for texts in the bytes of a log. An alternation in a [`Regex`] of more than
/// 250 texts takes 20 times as long.
#[expect(clippy::expect_used, reason = "a test compiles every search")]
fn literal_search(
    texts: impl IntoIterator<Item = &'static str>,
    kind: AhoCorasickKind,
) -> AhoCorasick {
    AhoCorasick::builder()
        .kind(Some(kind))
        .build(texts)
        .expect("the texts are few")
}

/// Formats an amount as PyTorch does, with two decimals, so that it can be compared with the
/// message.
fn exact(bytes: Bytes) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let in_unit = |unit: u64, name: &str| format!("{:.2} {name}", bytes.0 as f64 / unit as f64);
    match bytes.0 {
        1 => "1 byte".to_owned(),
        0..0x400 => format!("{} bytes", bytes.0),
        0x400..0x10_0000 => in_unit(1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => in_unit(1 << 20, "MiB"),
        _ => in_unit(1 << 30, "GiB"),
    }
}
