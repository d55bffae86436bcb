//! What there is to see, without a screen: a table, or a line of JSON, once or again and again.
//!
//! It comes from an agent like everything else, so a driver that hangs costs the timeout and no more:
//! then what there is is printed, with the reason, and the exit code says that it is not all.

mod plain;
pub(crate) mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

pub use self::table::ChosenColumns;
use crate::base::terminal;
use crate::base::text::Text;
use crate::model::HostModel;
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Cause, Failure, Gpu, Identity, ProcessNames, Snapshot};
use crate::source::{Source, SourceEvent, Sources};

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
    /// There was nothing of what was asked about: `gputop explain` found no message.
    Nothing = 6,
    /// `gputop orphans` found some.
    Found = 10,
    /// `gputop free` found too few.
    NoneFree = 11,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// How a snapshot, and whether it is all there is, is said to a script.
    pub(crate) fn of(snapshot: &Snapshot, is_all: bool) -> Self {
        match snapshot.driver.trouble.as_ref().map(|trouble| trouble.cause) {
            Some(Cause::NoLibrary | Cause::NotLoading | Cause::NoDriver | Cause::Mismatch | Cause::Denied) => {
                Self::NoDriver
            }
            Some(Cause::NoGpu) => Self::NoGpu,
            Some(_) => Self::Partial,
            None if snapshot.gpus.is_empty() => Self::NoGpu,
            None if snapshot.gpus.iter().any(|gpu| gpu.trouble.is_some()) => Self::Partial,
            None if !is_all || !failed(snapshot).is_empty() => Self::Partial,
            None => Self::Success,
        }
    }
}

/// What should have been read and was not, and why, as in `fan_percent of GPU 0 (nvmlDeviceGetFanSpeed_v2:
/// an unknown error)`. A GPU in trouble has said so.
fn failed(snapshot: &Snapshot) -> Vec<String> {
    fn search(value: &Value, failed: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Value::Object(missing) if name == "missing" => {
                    failed.extend(missing.iter().filter(|(_, why)| *why == "failed").map(|(name, _)| name.clone()));
                }
                value => search(value, failed),
            }),
            Value::Array(values) => values.iter().for_each(|value| search(value, failed)),
            _ => {}
        }
    }
    // Every lane says what it misses in the same way in JSON, and only there.
    let host = ("the host".to_owned(), String::new(), serde_json::to_value(&snapshot.host));
    let driver = ("the driver".to_owned(), why(&snapshot.driver.failures), Ok(Value::Null));
    let gpus = snapshot.gpus.iter().filter(|gpu| gpu.trouble.is_none());
    let gpus = gpus.map(|gpu| (format!("GPU {}", gpu.facts.index), why(&gpu.failures), serde_json::to_value(gpu)));
    let processes = snapshot
        .processes
        .iter()
        .map(|process| (format!("process {}", process.id.pid), String::new(), serde_json::to_value(process)));
    let lanes = [host, driver].into_iter().chain(gpus).chain(processes);
    lanes
        .filter_map(|(whose, why, value)| {
            let mut failed = Vec::new();
            search(&value.ok()?, &mut failed);
            match failed.as_slice() {
                [] if why.is_empty() => None,
                // What that call tells is no figure.
                [] => Some(format!("{whose} in part{why}")),
                some @ ([_] | [_, _]) => Some(format!("{} of {whose}{why}", some.join(" and "))),
                many => Some(format!("{} readings of {whose}{why}", many.len())),
            }
        })
        .collect()
}

/// The calls that failed, in brackets; empty when there are none.
fn why(failures: &[Failure]) -> String {
    let failures = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if failures.is_empty() { failures } else { format!(" ({failures})") }
}

/// One sentence for a person on what failed.
fn sentence(failed: &[String]) -> Option<Text> {
    const NAMED: usize = 5;
    let more = failed.len().saturating_sub(NAMED);
    let mut named = failed[..failed.len() - more].join(", ");
    if more > 0 {
        named = format!("{named}, and {more} more");
    }
    (!failed.is_empty()).then(|| Text::new(format!("could not be read: {named}")))
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// A table of GPUs and one of processes.
    Table,
    /// Sentences, for screen readers.
    Plain,
    /// One line of JSON.
    Json,
}

/// What to report and how often.
#[derive(Debug)]
pub struct ReportOptions {
    /// How the agent is started.
    pub agent: AgentOptions,
    /// How long to wait for the driver.
    pub timeout: Duration,
    /// How the report is written.
    pub format: ReportFormat,
    /// The time from one report to the next; `None` for one report.
    pub every: Option<Duration>,
    /// Whether to write only ASCII.
    pub ascii: bool,
    /// The columns of the tables.
    pub columns: ChosenColumns,
}

/// Prints a report, or one each so often until a signal ends the program.
///
/// # Errors
///
/// When no agent can be started, when it says nothing at all, or when nobody reads what is printed.
pub fn run(options: &ReportOptions) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = Watch::start(&options.agent)?;
        let mut patience = options.timeout;
        loop {
            let begun = Instant::now();
            let mut reason = watch.settle(patience, |_| true).await;
            // The table has no column for it.
            if reason.is_none() && options.every.is_none() && options.format != ReportFormat::Table {
                // Milliseconds, more on a busy host, and seconds where one hangs. Not to know it is no failure.
                let late = watch.settle(patience.saturating_sub(begun.elapsed()), were_looked_into).await;
                reason = late.filter(|_| watch.is_lost);
            }
            let exit = match watch.model.latest() {
                Some(snapshot) => {
                    print(options, &watch.model, snapshot, reason.as_ref())?;
                    Exit::of(snapshot, reason.is_none())
                }
                None => Exit::Error,
            };
            if let (Exit::Error, Some(reason)) = (exit, &reason) {
                complain(reason);
            }
            if options.every.is_none() {
                return Ok(exit.into());
            }
            if watch.is_lost {
                sleep(options.agent.interval).await;
                watch.sources.restart(HostKey::FIRST, options.agent.interval);
                (watch.model, watch.passes, watch.is_lost) = (HostModel::default(), 0, false);
                patience = options.timeout;
            } else {
                watch.passes = watch.passes.min(1);
                patience = options.agent.interval + options.timeout;
            }
        }
    })
}

/// What there is to know of this host after two passes and `enough`; should that not come, why.
///
/// # Errors
///
/// When no agent can be started.
pub(crate) fn look(
    agent_options: &AgentOptions,
    patience: Duration,
    enough: fn(&Snapshot) -> bool,
) -> anyhow::Result<(HostModel, Option<Text>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = Watch::start(agent_options)?;
        let reason = watch.settle(patience, enough).await;
        Ok((watch.model, reason))
    })
}

/// Shows `see` what there is after each pass, with `rates` from the second on, until it has seen enough; should the agent
/// fall silent for `patience` meanwhile, says so.
///
/// # Errors
///
/// When no agent can be started.
pub(crate) fn follow<T>(
    agent_options: &AgentOptions,
    patience: Duration,
    rates: bool,
    mut see: impl FnMut(&HostModel) -> Option<T>,
) -> anyhow::Result<Result<T, Text>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = Watch::start(agent_options)?;
        watch.passes = u32::from(!rates);
        loop {
            if let Some(reason) = watch.settle(agent_options.interval + patience, |_| true).await {
                return Ok(Err(reason));
            }
            if let Some(seen) = see(&watch.model) {
                return Ok(Ok(seen));
            }
            watch.passes = 1;
        }
    })
}

/// Writes a report to the standard output.
///
/// # Errors
///
/// When nobody reads it.
pub(crate) fn put(out: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(out)?;
    Ok(stdout.flush()?)
}

/// Writes the user and the command of each GPU process beside it, so that nobody has to join two lists.
fn with_names(mut snapshot: Snapshot) -> Snapshot {
    let mut gpus = std::mem::take(&mut snapshot.gpus);
    for gpu_process in gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
        gpu_process.names = snapshot.process(gpu_process.process).map(|process| {
            let user = process.facts.user.clone().ok();
            Box::new(ProcessNames { user, command: table::command(process).into() })
        });
    }
    snapshot.gpus = gpus;
    snapshot
}

fn print(options: &ReportOptions, model: &HostModel, snapshot: &Snapshot, reason: Option<&Text>) -> anyhow::Result<()> {
    let mut out = Vec::new();
    if options.format == ReportFormat::Json {
        Line::Full(Box::new(with_names(snapshot.clone()))).write(&mut out)?;
        if let Some(reason) = reason {
            complain(reason);
        }
    } else {
        let reasons: Vec<Text> = reason.cloned().into_iter().chain(sentence(&failed(snapshot))).collect();
        let text = match options.format {
            ReportFormat::Plain => plain::of(model, snapshot, &reasons),
            _ => table::of(model, snapshot, &reasons, terminal::width(), &options.columns),
        };
        out = if options.ascii { table::ascii(&text).into_bytes() } else { text.into_bytes() };
        if options.every.is_some() {
            out.push(b'\n');
        }
    }
    put(&out)
}

/// Says to a person, beside what is printed, why that is not all.
pub fn complain(reason: &Text) {
    let _closed: io::Result<()> = writeln!(io::stderr(), "gputop: {reason}");
}

/// What an agent has told up to now.
#[derive(Debug)]
struct Watch {
    sources: Sources,
    model: HostModel,
    /// Lines since the last report that came from passes with an answer from every GPU, or a reason.
    passes: u32,
    is_lost: bool,
}

impl Watch {
    /// Starts an agent of this host. The caller must be inside of the runtime.
    fn start(options: &AgentOptions) -> io::Result<Self> {
        let sources = Sources::start(vec![Source::LocalAgent(options.clone())], None)?;
        Ok(Self { sources, model: HostModel::default(), passes: 0, is_lost: false })
    }

    /// Waits for two passes, because rates need two, and until there is enough. Should that not come, says why.
    async fn settle(&mut self, patience: Duration, enough: fn(&Snapshot) -> bool) -> Option<Text> {
        let deadline = Instant::now() + patience;
        while self.passes < 2 || !self.model.latest().is_some_and(enough) {
            match timeout_at(deadline, self.sources.next()).await {
                Ok(SourceEvent::Line(_, line)) => self.hear(*line),
                Ok(SourceEvent::Note(..) | SourceEvent::Named(..) | SourceEvent::RecordingEnded(_)) => {}
                Ok(SourceEvent::Ended(_, reason)) => {
                    self.is_lost = true;
                    return Some(reason);
                }
                Err(_) => return Some(self.excuse(patience)),
            }
        }
        None
    }

    fn hear(&mut self, line: Line) {
        let before = self.model.latest().map(|latest| latest.sequence);
        match line {
            Line::Full(snapshot) => self.model.replace(*snapshot),
            // Out of step: the next full line mends it.
            Line::Tick(change) => drop(self.model.change(change)),
            Line::Reply(_) => {}
        }
        if self.model.latest().is_some_and(|it| Some(it.sequence) != before && !is_starting(it) && lists_all(it)) {
            self.passes += 1;
        }
    }

    fn excuse(&self, patience: Duration) -> Text {
        let patience = humantime::format_duration(patience);
        Text::new(match self.model.latest() {
            None => format!("the agent said nothing for {patience}"),
            Some(latest) if is_starting(latest) => {
                format!("the driver did not answer within {patience}; --timeout waits longer")
            }
            Some(_) if self.passes >= 2 => format!("not every process was looked at within {patience}"),
            Some(_) => format!("there was no second reading within {patience}, so rates are missing"),
        })
    }
}

/// Whether it is known of all GPU processes what PyTorch holds in them, or why not. A host that is busy takes a while.
fn were_looked_into(snapshot: &Snapshot) -> bool {
    let gpus = snapshot.gpus.iter().filter(|gpu| !gpu.facts.simulated);
    let gpu_processes =
        gpus.flat_map(|gpu| &gpu.processes).filter_map(|gpu_process| snapshot.process(gpu_process.process));
    gpu_processes.filter(|it| it.facts.identity == Identity::Sure).all(|it| it.allocator.is_some())
}

/// Whether the driver or a GPU has neither answered nor failed yet, or a GPU was only partly read.
fn is_starting(snapshot: &Snapshot) -> bool {
    if snapshot.gpus.iter().any(Gpu::is_partly_read) {
        return true;
    }
    let troubles = snapshot.gpus.iter().map(|gpu| &gpu.trouble).chain([&snapshot.driver.trouble]);
    troubles.flatten().any(|trouble| trouble.cause == Cause::Starting)
}

/// Whether every GPU is there: when the first pass hangs at one, those before it come with the next.
fn lists_all(snapshot: &Snapshot) -> bool {
    let indexes: Vec<u32> =
        snapshot.gpus.iter().filter(|it| it.facts.parent.is_none()).map(|it| it.facts.index).collect();
    indexes.iter().all(|it| (*it as usize) < indexes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Moment;
    use crate::protocol::snapshot::{Missing, Trouble, example};

    fn trouble(cause: Cause) -> Trouble {
        Trouble { cause, sentence: "no luck".into(), call: None, since: Moment(0) }
    }

    #[test]
    fn a_line_without_the_gpus_before_one_that_hangs_is_not_all_there_is() {
        let mut host = example::host(3);
        assert!(lists_all(&host));
        host.gpus.drain(..2);
        assert!(!lists_all(&host));
    }

    #[test]
    fn the_exit_code_says_what_is_wrong_with_the_whole() {
        let well = example::host(2);
        assert_eq!(Exit::of(&well, true), Exit::Success);
        assert_eq!(Exit::of(&well, false), Exit::Partial);
        assert_eq!(Exit::of(&example::host(0), true), Exit::NoGpu);

        for (cause, exit) in
            [(Cause::NoLibrary, Exit::NoDriver), (Cause::Mismatch, Exit::NoDriver), (Cause::Hung, Exit::Partial)]
        {
            let mut sick = example::host(0);
            sick.driver.trouble = Some(trouble(cause));
            assert_eq!(Exit::of(&sick, true), exit, "{cause}");
        }
    }

    #[test]
    fn one_gpu_or_reading_in_trouble_makes_it_partial() {
        let mut lost = example::host(2);
        lost.gpus[1].trouble = Some(trouble(Cause::Lost));
        assert_eq!(Exit::of(&lost, true), Exit::Partial);

        let mut reading = example::host(2);
        reading.gpus[1].load.power = Err(Missing::Unsupported);
        assert_eq!(Exit::of(&reading, true), Exit::Success);
        reading.gpus[1].load.power = Err(Missing::Failed);
        assert_eq!(Exit::of(&reading, true), Exit::Partial);
    }
}
