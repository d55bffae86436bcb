//! Reads sources until there is enough for a report.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::base::text::Text;
use crate::model::{Fleet, HostLabel, HostModel};
use crate::protocol::agent_options::AgentOptions;
use crate::protocol::command::Command;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Cause, Gpu, Snapshot};
use crate::source::{Source, SourceEvent, Sources};

/// The number of passes that rates need.
const PASSES_FOR_RATES: u32 = 2;

/// Decides whether a snapshot has all that a report needs.
pub(super) type IsEnough = fn(&Snapshot) -> bool;

/// Reads this host until two passes and `is_enough`. Returns its model, and why the report is not complete.
///
/// # Errors
///
/// When no agent can be started.
pub(crate) fn look(
    agent_options: &AgentOptions,
    timeout: Duration,
    is_enough: IsEnough,
) -> anyhow::Result<(HostModel, Option<Text>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = Watch::start(vec![Source::LocalAgent(agent_options.clone())])?;
        watch.settle(timeout, is_enough).await;
        let model = watch.fleet.host(HostKey::FIRST).cloned().unwrap_or_default();
        Ok((model, watch.trouble(HostKey::FIRST, timeout, is_enough)))
    })
}

/// Calls `see` after each pass, with `rates` from the second pass on, until it returns a value. Returns a sentence when the
/// agent ends, or writes nothing for the interval and `timeout`.
///
/// # Errors
///
/// When no agent can be started.
pub(crate) fn follow<T>(
    agent_options: &AgentOptions,
    timeout: Duration,
    rates: bool,
    mut see: impl FnMut(&HostModel) -> Option<T>,
) -> anyhow::Result<Result<T, Text>> {
    let timeout = agent_options.interval + timeout;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = Watch::start(vec![Source::LocalAgent(agent_options.clone())])?;
        if !rates {
            watch.hosts.entry(HostKey::FIRST).or_default().passes = PASSES_FOR_RATES - 1;
        }
        loop {
            watch.settle(timeout, |_| true).await;
            if let Some(reason) = watch.trouble(HostKey::FIRST, timeout, |_| true) {
                return Ok(Err(reason));
            }
            if let Some(seen) = watch.fleet.host(HostKey::FIRST).and_then(&mut see) {
                return Ok(Ok(seen));
            }
            watch.next_report(agent_options.interval).await;
        }
    })
}

/// The state of all sources so far.
#[derive(Debug)]
pub(super) struct Watch {
    sources: Sources,
    pub(super) fleet: Fleet,
    hosts: BTreeMap<HostKey, HostProgress>,
    has_recording_ended: bool,
}

/// How far one host has come since its source was started.
#[derive(Debug, Default)]
struct HostProgress {
    has_snapshot: bool,
    /// Lines since the last report from passes in which every GPU answered or failed.
    passes: u32,
    /// Whether the host did not come in time for the last report. The next report does not wait for it.
    is_late: bool,
    /// Why no more lines come, or what is wrong with the recording.
    ended: Option<Text>,
}

impl Watch {
    /// Starts the sources. The caller must be inside of the runtime.
    pub(super) fn start(sources: Vec<Source>) -> io::Result<Self> {
        let sources = Sources::start(sources, None)?;
        let mut fleet = Fleet::default();
        let mut hosts = BTreeMap::new();
        for (host, source) in sources.hosts() {
            fleet.set_label(host, HostLabel { name: source.name().cloned(), source: source.description() });
            hosts.insert(host, HostProgress::default());
        }
        Ok(Self { sources, fleet, hosts, has_recording_ended: false })
    }

    /// Waits until each host that is not late has two passes and `is_enough`, or has ended, or the time is up. Reads a
    /// recording to its end, however long that takes.
    pub(super) async fn settle(&mut self, timeout: Duration, is_enough: IsEnough) {
        let deadline = Instant::now() + timeout;
        while !self.is_settled(is_enough) {
            let event = if self.sources.is_recording() {
                self.sources.next().await
            } else if let Ok(event) = timeout_at(deadline, self.sources.next()).await {
                event
            } else {
                return;
            };
            self.receive(event);
        }
    }

    fn is_settled(&self, is_enough: IsEnough) -> bool {
        if self.sources.is_recording() {
            return self.has_recording_ended || self.hosts.values().any(|progress| progress.ended.is_some());
        }
        let is_in_time = |progress: &HostProgress| !progress.is_late;
        self.hosts.values().any(is_in_time)
            && self.hosts.iter().all(|(host, progress)| progress.is_late || self.has_enough(*host, progress, is_enough))
    }

    fn has_enough(&self, host: HostKey, progress: &HostProgress, is_enough: IsEnough) -> bool {
        progress.ended.is_some() || progress.passes >= PASSES_FOR_RATES && self.snapshot(host).is_some_and(is_enough)
    }

    fn receive(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Line(host, line) => self.apply(host, *line),
            SourceEvent::Named(host, name) => {
                self.fleet.set_label(host, HostLabel { name: Some(name.clone()), source: name });
            }
            SourceEvent::Ended(host, reason) => {
                let progress = self.hosts.entry(host).or_default();
                (progress.ended, progress.is_late) = (Some(reason), false);
            }
            SourceEvent::RecordingEnded(problem) => {
                self.has_recording_ended = true;
                self.hosts.entry(HostKey::FIRST).or_default().ended = problem;
            }
            SourceEvent::Note(..) => {}
        }
    }

    fn apply(&mut self, host: HostKey, line: Line) {
        let before = self.snapshot(host).map(|snapshot| snapshot.sequence);
        let is_full = matches!(line, Line::Full(_));
        if self.fleet.apply(host, line).is_err() {
            self.sources.send(host, Command::Full);
            return;
        }
        let is_pass = self.snapshot(host).is_some_and(|snapshot| {
            Some(snapshot.sequence) != before && !is_starting(snapshot) && lists_all_gpus(snapshot)
        });
        let progress = self.hosts.entry(host).or_default();
        progress.has_snapshot |= is_full;
        progress.passes += u32::from(is_pass);
        progress.is_late &= !is_pass;
    }

    /// The latest snapshot of a host; `None` before its first line.
    fn snapshot(&self, host: HostKey) -> Option<&Snapshot> {
        self.fleet.host(host)?.latest()
    }

    /// The hosts, each with its snapshot; `None` for a host without one since its source was started.
    pub(super) fn hosts(&self) -> impl Iterator<Item = (HostKey, Option<(&HostModel, &Snapshot)>)> {
        self.hosts.iter().map(|(host, progress)| {
            let model = self.fleet.host(*host).filter(|_| progress.has_snapshot);
            (*host, model.and_then(|model| Some((model, model.latest()?))))
        })
    }

    /// Why a report on a host is not complete; `None` when it is.
    pub(super) fn trouble(&self, host: HostKey, timeout: Duration, is_enough: IsEnough) -> Option<Text> {
        let progress = self.hosts.get(&host)?;
        if progress.ended.is_some() || self.has_recording_ended {
            return progress.ended.clone();
        }
        if self.has_enough(host, progress, is_enough) {
            return None;
        }
        let timeout = humantime::format_duration(timeout);
        Some(Text::new(match self.snapshot(host).filter(|_| progress.has_snapshot) {
            None => format!("the agent said nothing for {timeout}"),
            Some(latest) if is_starting(latest) => {
                format!("the driver did not answer within {timeout}; --timeout waits longer")
            }
            Some(_) if progress.passes >= PASSES_FOR_RATES => {
                format!("not every process was looked at within {timeout}")
            }
            Some(_) => format!("there was no second reading within {timeout}, so rates are missing"),
        }))
    }

    /// Prepares for the next report, which needs one more pass of each host. Restarts the sources that have ended, not
    /// more often than the interval.
    pub(super) async fn next_report(&mut self, interval: Duration) {
        if self.hosts.values().any(|progress| progress.ended.is_some()) {
            sleep_until(Instant::now() + interval).await;
        }
        let is_only_one = self.hosts.len() == 1;
        for (host, progress) in &mut self.hosts {
            if progress.ended.is_some() {
                self.sources.restart(*host, interval);
                *progress = HostProgress { is_late: !is_only_one, ..HostProgress::default() };
            } else {
                progress.is_late = progress.passes < PASSES_FOR_RATES;
                progress.passes = progress.passes.min(PASSES_FOR_RATES - 1);
            }
        }
    }
}

/// Returns whether the driver or a GPU has neither answered nor failed yet, or a GPU was only partly read.
fn is_starting(snapshot: &Snapshot) -> bool {
    let troubles = snapshot.gpus.iter().map(|gpu| &gpu.trouble).chain([&snapshot.driver.trouble]);
    snapshot.gpus.iter().any(Gpu::is_partly_read) || troubles.flatten().any(|trouble| trouble.cause == Cause::Starting)
}

/// Returns whether every GPU is listed: when the first pass hangs at one GPU, those before it come with the next line.
fn lists_all_gpus(snapshot: &Snapshot) -> bool {
    let whole_gpus = snapshot.gpus.iter().filter(|gpu| gpu.facts.parent.is_none());
    let indexes: Vec<u32> = whole_gpus.map(|gpu| gpu.facts.index).collect();
    indexes.iter().all(|index| (*index as usize) < indexes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example;

    #[test]
    fn a_line_without_the_gpus_before_one_that_hangs_is_not_complete() {
        let mut host = example::host(3);
        assert!(lists_all_gpus(&host));
        host.gpus.drain(..2);
        assert!(!lists_all_gpus(&host));
    }
}
