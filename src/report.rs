//! What there is to see, without a screen: a table, or a line of JSON, once or again and again.
//!
//! It comes from an agent like everything else, so a driver that hangs costs the timeout and no more:
//! then what there is is printed, with the reason, and the exit code says that it is not all.

mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cli::{Cli, SHORTEST_INTERVAL};
use crate::event::Event;
use crate::link::{Agent, Link};
use crate::snapshot::line::Line;
use crate::snapshot::{Cause, Snapshot};
use crate::terminal::{self, Abilities, Tty};
use crate::untrusted::Text;

/// What the program says to whoever started it. Signals end it with 128 and their number, a bug with 101.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything could be read.
    Success = 0,
    /// It could not be done; the standard error says why.
    Error = 1,
    /// The command line makes no sense. (The parser says so itself.)
    Usage = 2,
    /// No NVIDIA driver answers on this host, or there is none.
    NoDriver = 3,
    /// The driver knows of no GPU.
    NoGpu = 4,
    /// Something was read and something was not: a GPU or a reading is in trouble, or time was up.
    Partial = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// How a snapshot speaks of itself to a script.
    fn of(snapshot: &Snapshot) -> Self {
        match snapshot.driver.trouble.as_ref().map(|trouble| trouble.cause) {
            Some(Cause::NoLibrary | Cause::NotLoading | Cause::NoDriver | Cause::Mismatch) => Self::NoDriver,
            Some(_) => Self::Partial,
            None if snapshot.gpus.is_empty() => Self::NoGpu,
            None if snapshot.gpus.iter().any(|gpu| gpu.trouble.is_some()) || has_failed(snapshot) => Self::Partial,
            None => Self::Success,
        }
    }
}

/// Whether any reading should have worked and did not.
fn has_failed(snapshot: &Snapshot) -> bool {
    fn search(value: &Value) -> bool {
        match value {
            Value::Object(fields) => fields.iter().any(|(name, value)| match value {
                Value::Object(missing) if name == "missing" => missing.values().any(|why| why == "failed"),
                value => search(value),
            }),
            Value::Array(values) => values.iter().any(search),
            _ => false,
        }
    }
    // Every lane says what it misses in the same way in JSON, and only there.
    serde_json::to_value(snapshot).is_ok_and(|it| search(&it))
}

/// Whether the command line, or a standard output that is no terminal, asks for a report.
pub fn is_asked_for(cli: &Cli) -> bool {
    cli.once || cli.json || cli.every.is_some() || !Tty::is_there()
}

/// Prints a report, or one each so often until a signal ends the program.
///
/// # Errors
///
/// When no agent can be started, when it says nothing at all, or when nobody reads what is printed.
pub fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let mut args = cli.agent.clone();
    if let Some(every) = cli.every {
        args.interval = every.max(SHORTEST_INTERVAL);
    }
    let agent = Agent::start(&args).context("cannot start the agent")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = Watch::new(Link::to(agent)?);
        let mut patience = cli.timeout;
        loop {
            let reason = watch.settle(patience).await;
            let exit = match &watch.latest {
                Some(snapshot) => {
                    print(cli, snapshot, reason.as_ref())?;
                    if reason.is_some() { Exit::of(snapshot).max_partial() } else { Exit::of(snapshot) }
                }
                None => Exit::Error,
            };
            if let (Exit::Error, Some(reason)) = (exit, &reason) {
                complain(reason);
            }
            if cli.every.is_none() {
                return Ok(exit.into());
            }
            if watch.is_lost {
                sleep(args.interval).await;
                watch = Watch::new(Link::start(&args));
                patience = cli.timeout;
            } else {
                watch.passes = watch.passes.min(1);
                patience = args.interval + cli.timeout;
            }
        }
    })
}

impl Exit {
    /// The same, of a snapshot that is not all there is.
    fn max_partial(self) -> Self {
        if self == Self::Success { Self::Partial } else { self }
    }
}

fn print(cli: &Cli, snapshot: &Snapshot, reason: Option<&Text>) -> anyhow::Result<()> {
    let mut out = Vec::new();
    if cli.json {
        Line::Full(Box::new(snapshot.clone())).write(&mut out)?;
        if let Some(reason) = reason {
            complain(reason);
        }
    } else {
        let width = Tty::is_there().then(|| usize::from(terminal::size().width));
        let text = table::of(snapshot, reason, width);
        let ascii = cli.screen.ascii || Abilities::from_env().ascii;
        out = if ascii { table::ascii(&text).into_bytes() } else { text.into_bytes() };
        if cli.every.is_some() {
            out.push(b'\n');
        }
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&out)?;
    Ok(stdout.flush()?)
}

fn complain(reason: &Text) {
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop: {reason}");
}

/// What an agent has told up to now.
#[derive(Debug)]
struct Watch {
    link: Link,
    latest: Option<Snapshot>,
    /// Lines since the last report that came from passes with an answer from every GPU, or a reason.
    passes: u32,
    is_lost: bool,
}

impl Watch {
    fn new(link: Link) -> Self {
        Self { link, latest: None, passes: 0, is_lost: false }
    }

    /// Waits for two passes, because rates need two. Should they not come, says why.
    async fn settle(&mut self, patience: Duration) -> Option<Text> {
        let deadline = Instant::now() + patience;
        while self.passes < 2 {
            match timeout_at(deadline, self.link.next()).await {
                Ok(Event::Line(line)) => self.hear(*line),
                Ok(Event::LinkLost(reason)) => {
                    self.is_lost = true;
                    return Some(reason);
                }
                Ok(_) => {}
                Err(_) => return Some(self.excuse(patience)),
            }
        }
        None
    }

    fn hear(&mut self, line: Line) {
        let is_news = match (line, &mut self.latest) {
            (Line::Full(snapshot), latest) => {
                *latest = Some(*snapshot);
                true
            }
            (Line::Tick(change), Some(latest)) => latest.apply(change).is_ok(),
            (Line::Tick(_), None) | (Line::Reply(_), _) => false,
        };
        if is_news && self.latest.as_ref().is_some_and(|it| !is_starting(it)) {
            self.passes += 1;
        }
    }

    fn excuse(&self, patience: Duration) -> Text {
        let patience = humantime::format_duration(patience);
        Text::new(match &self.latest {
            None => format!("the agent said nothing for {patience}"),
            Some(latest) if is_starting(latest) => format!("the driver did not answer within {patience}"),
            Some(_) => format!("there was no second reading within {patience}, so rates are missing"),
        })
    }
}

/// Whether the driver, or a GPU, has neither answered nor failed yet.
fn is_starting(snapshot: &Snapshot) -> bool {
    let troubles = snapshot.gpus.iter().map(|gpu| &gpu.trouble).chain([&snapshot.driver.trouble]);
    troubles.flatten().any(|trouble| trouble.cause == Cause::Starting)
}
