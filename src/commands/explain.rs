//! `gputop explain`: an out-of-memory message of PyTorch taken apart, from a file, a pipe or an argument.
//!
//! In a pipe it is no more than a wire until the log is over: every byte goes on at once and as it came. It needs no
//! GPU; where a message names other processes, an agent is asked who they are.

mod anatomy;
mod find;
mod grammar;
mod json;
mod judge;
mod lookup;
mod message;
#[cfg(test)]
mod tests;
mod text;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use self::find::{Finder, Found, Log};
use self::lookup::Neighbours;
use self::text::Style;
use crate::base::terminal::{self, TerminalAbilities};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::commands::report::{self, Exit};
use crate::protocol::agent_options::AgentOptions;

/// What to explain, and how to write the result.
#[derive(Debug)]
pub struct ExplainOptions {
    /// Log files, or the words of a message; empty or `-` for the standard input.
    pub words: Vec<String>,
    /// How the agent is started that identifies the processes in a message.
    pub agent: AgentOptions,
    /// How long to wait for that agent.
    pub timeout: Duration,
    /// Whether to write JSON.
    pub json: bool,
    /// Whether to write only ASCII.
    pub ascii: bool,
}

/// A message, and where it is from.
struct Story<'a> {
    found: &'a Found,
    /// The file; absent for a pipe or an argument, or when there is one file only.
    source: Option<&'a Text>,
    /// When it was written, at the latest: milliseconds since 1970.
    written: Option<u64>,
    /// There is more than the one line.
    has_lines: bool,
}

/// A log that was read.
struct Source {
    name: Option<Text>,
    written: Option<u64>,
    log: Log,
}

/// Explains what was given, or what comes in.
///
/// # Errors
///
/// When a file cannot be read, or the standard output takes no more.
pub fn run(options: &ExplainOptions) -> anyhow::Result<ExitCode> {
    let passes = options.words.is_empty() && !options.json && !io::stdin().is_terminal();
    let sources = match Given::of(&options.words)? {
        Given::Input => vec![Source { name: None, written: None, log: pipe(passes)? }],
        Given::Message(text) => {
            vec![Source { name: None, written: None, log: read(&mut text.as_bytes(), |_| Ok(true))? }]
        }
        Given::Files(paths) => paths.iter().map(|path| file(path)).collect::<anyhow::Result<_>>()?,
    };
    let is_one = sources.len() == 1;
    let stories: Vec<Story<'_>> = sources
        .iter()
        .flat_map(|source| {
            let name = source.name.as_ref().filter(|_| !is_one);
            let (written, has_lines) = (source.written, source.log.lines > 1);
            source.log.found.iter().map(move |found| Story { found, source: name, written, has_lines })
        })
        .collect();
    let lines: u64 = sources.iter().map(|it| it.log.lines).sum();
    if stories.is_empty() {
        let many = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
        report::complain(&Text::new(format!("no out-of-memory message of PyTorch in {many}")));
        // At the end of a pipe, a job that went well is a pipe that went well: a shell with `pipefail` goes on.
        return Ok(if passes { Exit::Success } else { Exit::Nothing }.into());
    }
    let neighbours = if text::needs_neighbours(&stories) {
        Neighbours::look(&options.agent, options.timeout)
    } else {
        Neighbours::default()
    };
    let more: u64 = sources.iter().map(|it| it.log.more).sum();
    if options.json {
        report::put(format!("{}\n", json::of(&stories, more, &neighbours)).as_bytes())?;
        return Ok(Exit::Success.into());
    }
    // What is passed on stays as it came: the words on it go beside it.
    let beside = passes && !terminal::is_stdout();
    let is_terminal = if beside { io::stderr().is_terminal() } else { terminal::is_stdout() };
    let style = Style {
        width: terminal::width().unwrap_or(100),
        ascii: options.ascii,
        bold: is_terminal && TerminalAbilities::from_env().colour,
    };
    let mut text = text::of(&stories, &neighbours, style);
    if more > 0 {
        text = format!("{text}\n{more} more messages, each unlike these, are left out.\n");
    }
    if passes {
        text.insert(0, '\n');
    }
    if beside {
        io::stderr().write_all(text.as_bytes()).context("cannot write to the standard error")?;
    } else {
        report::put(text.as_bytes())?;
    }
    Ok(Exit::Success.into())
}

/// What is to be explained.
enum Given {
    /// What comes in.
    Input,
    /// The message itself.
    Message(String),
    /// Logs.
    Files(Vec<String>),
}

impl Given {
    fn of(what: &[String]) -> anyhow::Result<Self> {
        let is_file = |it: &String| Path::new(it).exists();
        match what {
            [] => Ok(Self::Input),
            [dash] if dash == "-" => Ok(Self::Input),
            files if files.iter().all(is_file) => Ok(Self::Files(files.to_vec())),
            // Nobody calls a file so; and who forgets the quotes gives many words.
            words if words.iter().any(|it| it.contains("memory") || it.contains("allocate")) => {
                Ok(Self::Message(words.join(" ")))
            }
            files => match files.iter().find(|it| !is_file(it)) {
                Some(missing) => bail!("{} is neither a file nor an out-of-memory message", Text::new(missing)),
                None => Ok(Self::Files(files.to_vec())),
            },
        }
    }
}

fn file(path: &str) -> anyhow::Result<Source> {
    let name = Text::new(path);
    let mut file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let written = file.metadata().ok().and_then(|it| it.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    let written = written.and_then(|it| u64::try_from(it.as_millis()).ok());
    let log = read(&mut file, |_| Ok(true)).with_context(|| format!("cannot read {name}"))?;
    Ok(Source { name: Some(name), written, log })
}

/// Reads the standard input to its end. What comes in goes out at once, where it is passed on.
fn pipe(passes: bool) -> anyhow::Result<Log> {
    let input = io::stdin();
    if !passes {
        if input.is_terminal() {
            report::complain(&Text::new("paste the message, then press Enter and Ctrl-D"));
        }
        return read(&mut input.lock(), |_| Ok(true)).context("cannot read the standard input");
    }
    // Ctrl-C is for the one who writes: what that says at its end is still to be passed on.
    ignore_interrupt().context("cannot catch an interrupt")?;
    let log = read(&mut input.lock(), |bytes| match terminal::write_unbuffered(bytes) {
        Ok(()) => Ok(true),
        // Who reads has had enough. The writer shall learn that as if we were not there.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    });
    log.context("cannot pass the standard input on")
}

/// Makes SIGINT end other processes of the pipe, not this one.
fn ignore_interrupt() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // tokio's handler stays installed; nobody has to listen.
    signal(SignalKind::interrupt()).map(drop)
}

/// Finds messages in all that can be read, or until `pass` says no.
fn read(input: &mut dyn Read, mut pass: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<Log> {
    let mut finder = Finder::default();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let length = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let goes_on = pass(&chunk[..length])?;
        finder.take(&chunk[..length]);
        if !goes_on {
            break;
        }
    }
    Ok(finder.finish())
}

/// An amount as PyTorch prints it, with two decimals, so that it can be compared with the message.
fn exact(bytes: Bytes) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let of = |unit: u64, name: &str| format!("{:.2} {name}", bytes.0 as f64 / unit as f64);
    match bytes.0 {
        0..0x400 => format!("{} bytes", bytes.0),
        0x400..0x10_0000 => of(1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => of(1 << 20, "MiB"),
        _ => of(1 << 30, "GiB"),
    }
}
