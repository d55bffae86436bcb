//! Reads sources until there is enough for a report: once, or again for each report of `-l`.
//! Restarts sources that ended.

mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::base::text::Text;
use crate::base::units::ExactSpan;
use crate::flags::ReadOptions;
use crate::model::{Fleet, HostLabel, HostModel, Past};
use crate::protocol::agent_options::SimulatedMachine;
use crate::protocol::command::Command;
use crate::protocol::connection_state::ConnectionState;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::reply::Reply;
use crate::protocol::snapshot::{Cause, Gpu, Snapshot};
use crate::source::{Source, SourceEvent, Sources, descriptors};

/// The number of passes that rates need.
const PASSES_FOR_RATES: u32 = 2;

/// How long a host is read again whose processes are not all decided.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Decides whether a host was read well enough for a report.
pub(in crate::commands) type IsEnough = fn(&HostModel) -> bool;

/// The state of a host after a pass of all hosts.
pub(crate) struct HostState<'a> {
    pub(crate) key: HostKey,
    /// The name of the host.
    pub(crate) name: &'a str,
    /// The name, and beside it the host's own name if that differs.
    pub(in crate::commands) both_names: String,
    /// Whether a sentence on the host must name it: it is not simply this host.
    pub(in crate::commands) must_be_named: bool,
    /// The model of the host and its snapshot; `None` if nothing was read since its source was
    /// started.
    pub(crate) seen: Option<(&'a HostModel, &'a Snapshot)>,
    /// Why the snapshot is not complete; `None` if it is.
    pub(crate) trouble: Option<Text>,
    /// The path of gputop on a host over ssh, as it says; `None` before it has answered.
    pub(in crate::commands) program: Option<&'a Text>,
    /// Whether the snapshot is new, and lacks only GPUs that have not answered in time.
    pub(crate) lacks_only_gpus: bool,
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    descriptors::check()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// Reads each host until it had two passes and `is_enough` accepts it, or until the time is up.
/// Then reads the hosts for up to a second more until `is_decided` accepts each, and watches them
/// for `observed` after that; recordings are read to their end. Then calls `see` with the hosts.
///
/// # Errors
///
/// When no source can be started.
pub(crate) fn read_once<T>(
    read: &ReadOptions,
    is_enough: IsEnough,
    is_decided: IsEnough,
    observed: Duration,
    see: impl FnOnce(&[HostState<'_>]) -> T,
) -> anyhow::Result<T> {
    block_on(async {
        let mut watch = Watch::start(read.sources.clone())?;
        watch.settle(read.timeout, is_enough).await;
        let has_enough = watch.keep_enough(is_enough);
        // A process that the recorder did not see dead is undecided again, until the next pass.
        watch.wait_for_recorder();
        if has_enough {
            watch.settle(SECOND_LOOK, is_decided).await;
        }
        watch.observe(observed).await;
        let seen = see(&watch.states(read.timeout, is_enough));
        watch.close().await;
        Ok(seen)
    })
}

/// Calls `see` with the hosts after each pass until it returns a value. With `rates`, the first
/// call follows the second pass. When a GPU does not answer in time, calls `see` with the others.
/// Returns a sentence when no agent is left, or when none writes anything for the interval and the
/// timeout.
///
/// # Errors
///
/// When no source can be started.
pub(crate) fn read_until<T>(
    read: &ReadOptions,
    rates: bool,
    mut see: impl FnMut(&[HostState<'_>]) -> Option<T>,
) -> anyhow::Result<Result<T, Text>> {
    converse(read, rates, |hosts, _, _| see(hosts))
}

/// As [`read_until`], and lets `see` send a command to the first host. It also gets the replies
/// since its last call.
pub(crate) fn converse<T>(
    read: &ReadOptions,
    rates: bool,
    mut see: impl FnMut(&[HostState<'_>], &[Reply], &mut Option<Command>) -> Option<T>,
) -> anyhow::Result<Result<T, Text>> {
    let mut timeout = read.timeout;
    block_on(async {
        let mut watch = Watch::start(read.sources.clone())?;
        if !rates {
            watch
                .hosts
                .values_mut()
                .for_each(|progress| progress.passes = PASSES_FOR_RATES - 1);
        }
        loop {
            watch.settle(timeout, |_| true).await;
            let states = watch.states(timeout, |_| true);
            let troubles: Vec<Text> = states
                .iter()
                .filter(|state| !state.lacks_only_gpus)
                .filter_map(|state| Some(sentence_on(state, state.trouble.as_ref()?)))
                .collect();
            if troubles.len() == states.len() {
                let reason = Text::new(
                    troubles
                        .iter()
                        .map(Text::as_str)
                        .collect::<Vec<_>>()
                        .join("; "),
                );
                watch.close().await;
                return Ok(Err(reason));
            }
            let mut command = None;
            if let Some(seen) = see(&states, &watch.replies, &mut command) {
                watch.close().await;
                return Ok(Ok(seen));
            }
            watch.replies.clear();
            if let Some(command) = command {
                watch.sources.send(HostKey::FIRST, command);
            }
            watch.next_report(read.interval).await;
            timeout = read.interval + read.timeout;
        }
    })
}

/// Returns a sentence on a host, which names the host unless it is this host alone.
pub(crate) fn sentence_on(host: &HostState<'_>, sentence: &Text) -> Text {
    if host.must_be_named {
        Text::new(format!("{}: {sentence}", host.name))
    } else {
        sentence.clone()
    }
}

/// The state of all sources so far.
#[derive(Debug)]
pub(in crate::commands) struct Watch {
    pub(in crate::commands) sources: Sources,
    fleet: Fleet,
    hosts: BTreeMap<HostKey, HostProgress>,
    has_recording_ended: bool,
    /// The hosts of which the report needs no more, whatever the next lines lack.
    had_enough: BTreeSet<HostKey>,
    /// The hosts to which ssh connects for the first time.
    connecting: BTreeSet<HostKey>,
    /// When the latest of them was connected.
    connected: Instant,
    /// The replies that came since the last report.
    replies: Vec<Reply>,
    /// The past of this host, which a recorder has seen. `None` without a recorder, and once the
    /// past is in use.
    recorded: Option<Receiver<Past>>,
    started: Instant,
}

/// How far one host has come since its source was started.
#[derive(Debug, Default)]
struct HostProgress {
    has_snapshot: bool,
    /// Lines since the last report from passes in which every GPU answered or failed.
    passes: u32,
    /// Whether a line of a new pass came since the last report.
    has_new_line: bool,
    /// Whether the host did not come in time for the last report. The next report does not wait for
    /// it.
    is_late: bool,
    /// Why no more lines come, or what is wrong with the recording.
    ended: Option<Text>,
    /// The path of gputop on a host over ssh; `None` before it has answered.
    program: Option<Text>,
}

impl Watch {
    /// Starts the sources. The caller must be inside of the runtime.
    pub(in crate::commands) fn start(sources: Vec<Source>) -> io::Result<Self> {
        // An agent that shares the lines of the recorder gets its past, too.
        let is_local = |source: &Source| {
            matches!(source, Source::LocalAgent(agent)
            if agent.demo == SimulatedMachine::None && !agent.shares_lines)
        };
        let recorded = sources
            .iter()
            .any(is_local)
            .then(recorder::read_past)
            .flatten();
        let sources = Sources::start(sources, None)?;
        let mut fleet = Fleet::default();
        let mut hosts = BTreeMap::new();
        for (host, source) in sources.hosts() {
            fleet.set_label(
                host,
                HostLabel {
                    name: source.name(),
                    source: source.description(),
                },
            );
            hosts.insert(host, HostProgress::default());
        }
        let (replies, started) = (Vec::new(), Instant::now());
        let had_enough = BTreeSet::new();
        Ok(Self {
            sources,
            fleet,
            hosts,
            has_recording_ended: false,
            had_enough,
            connecting: BTreeSet::new(),
            connected: started,
            replies,
            recorded,
            started,
        })
    }

    /// Waits until each host that is not late had two passes and `is_enough` accepts it, or the
    /// host has ended, or the time is up. Reads a recording to its end, however long that takes. The
    /// time counts from when all hosts over ssh are connected: they wait for each other, and ssh has
    /// limits of its own.
    pub(in crate::commands) async fn settle(&mut self, timeout: Duration, is_enough: IsEnough) {
        let deadline = Instant::now() + timeout;
        while !self.is_settled(is_enough) {
            let deadline = deadline.max(self.connected + timeout);
            let event = if self.sources.is_recording() || !self.connecting.is_empty() {
                self.sources.next().await
            } else if let Ok(event) = timeout_at(deadline, self.sources.next()).await {
                event
            } else {
                return;
            };
            self.receive(event);
        }
    }

    /// Waits for the next event of any host, and applies it. Returns the host if a line came.
    pub(in crate::commands) async fn next_event(&mut self) -> Option<HostKey> {
        let event = self.sources.next().await;
        let host = match &event {
            SourceEvent::Line(host, _) => Some(*host),
            _ => None,
        };
        self.receive(event);
        host
    }

    /// Takes the replies that have come since the last call.
    pub(in crate::commands) fn take_replies(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.replies)
    }

    /// Why no more lines come from a host; `None` while it is read.
    pub(in crate::commands) fn ended(&self, host: HostKey) -> Option<&Text> {
        self.hosts.get(&host)?.ended.as_ref()
    }

    /// The hosts, in their order.
    pub(in crate::commands) fn host_keys(&self) -> impl Iterator<Item = HostKey> {
        self.hosts.keys().copied()
    }

    /// The name of a host that the user sees.
    pub(in crate::commands) fn name(&self, host: HostKey) -> &str {
        self.fleet.name(host)
    }

    /// The model of a host; `None` before its first line, and after its end.
    pub(in crate::commands) fn model(&self, host: HostKey) -> Option<&HostModel> {
        let progress = self.hosts.get(&host)?;
        let is_read = progress.has_snapshot && progress.ended.is_none();
        self.fleet.host(host).filter(|_| is_read)
    }

    /// Starts the agents of this host and of commands again that have ended. Hosts over ssh are connected
    /// again by themselves.
    pub(in crate::commands) fn restart_ended(&mut self, interval: Duration) {
        let ended: Vec<HostKey> = self
            .sources
            .hosts()
            .filter(|(host, source)| !source.is_remote() && self.ended(*host).is_some())
            .map(|(host, _)| host)
            .collect();
        for host in ended {
            self.sources.restart(host, interval);
            self.hosts.insert(host, HostProgress::default());
        }
        self.sources.reap();
    }

    /// Remembers which hosts had all that the report needs: a later line may name a process that
    /// was not looked at yet. Returns whether all had.
    fn keep_enough(&mut self, is_enough: IsEnough) -> bool {
        let has_enough = |(host, progress): &(&HostKey, &HostProgress)| {
            self.has_enough(**host, progress, is_enough)
        };
        self.had_enough = self
            .hosts
            .iter()
            .filter(has_enough)
            .map(|(host, _)| *host)
            .collect();
        self.had_enough.len() == self.hosts.len()
    }

    /// Closes the sources. Waits for the process that reads the recorder's checkpoint, but not
    /// long: it would be left to PID 1, which may reap no processes.
    pub(in crate::commands) async fn close(&mut self) {
        let left = recorder::PATIENCE.saturating_sub(self.started.elapsed());
        if let Some(recorded) = self.recorded.take() {
            let _unused: Result<Past, RecvTimeoutError> = recorded.recv_timeout(left);
        }
        self.sources.close().await;
    }

    /// Waits until the recorder's checkpoint is read, but not long, and goes on from it.
    pub(in crate::commands) fn wait_for_recorder(&mut self) {
        let left = recorder::PATIENCE.saturating_sub(self.started.elapsed());
        let Some(past) = self
            .recorded
            .take()
            .and_then(|recorded| recorded.recv_timeout(left).ok())
        else {
            return;
        };
        let is_here = |host: &HostKey| {
            self.snapshot(*host)
                .is_some_and(|latest| latest.host.facts.boot_id == past.boot_id)
        };
        let hosts: Vec<HostKey> = self.hosts.keys().copied().filter(is_here).collect();
        for host in hosts {
            self.fleet.continue_from_recorder(host, &past.checkpoint);
        }
    }

    /// Applies the lines of this time.
    async fn observe(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while !self.sources.is_recording()
            && let Ok(event) = timeout_at(deadline, self.sources.next()).await
        {
            self.receive(event);
        }
    }

    fn is_settled(&self, is_enough: IsEnough) -> bool {
        if self.sources.is_recording() {
            return self.has_recording_ended
                || self.hosts.values().any(|progress| progress.ended.is_some());
        }
        let is_in_time = |progress: &HostProgress| !progress.is_late;
        self.hosts.values().any(is_in_time)
            && self.hosts.iter().all(|(host, progress)| {
                progress.is_late || self.has_enough(*host, progress, is_enough)
            })
    }

    fn has_enough(&self, host: HostKey, progress: &HostProgress, is_enough: IsEnough) -> bool {
        progress.ended.is_some()
            || progress.passes >= PASSES_FOR_RATES && self.fleet.host(host).is_some_and(is_enough)
    }

    fn receive(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Line(host, line) => self.apply(host, *line),
            SourceEvent::Past(host, past) => self.fleet.continue_from_recorder(host, &past),
            SourceEvent::Named(host, name) => {
                self.fleet.set_label(
                    host,
                    HostLabel {
                        name: Some(name.clone()),
                        source: name,
                    },
                );
            }
            SourceEvent::Ended(host, reason) => {
                let progress = self.hosts.entry(host).or_default();
                (progress.ended, progress.is_late) = (Some(reason), false);
            }
            SourceEvent::RecordingEnded(problem) => {
                self.has_recording_ended = true;
                self.hosts.entry(HostKey::FIRST).or_default().ended = problem;
            }
            SourceEvent::Program(host, path) => {
                self.hosts.entry(host).or_default().program = Some(path);
            }
            SourceEvent::Connection(host, state) => self.note_connection(host, state),
            SourceEvent::Note(..) | SourceEvent::Player(_) => {}
        }
    }

    fn note_connection(&mut self, host: HostKey, state: ConnectionState) {
        let is_first = self
            .hosts
            .get(&host)
            .is_none_or(|progress| progress.ended.is_none());
        match state {
            ConnectionState::Waiting | ConnectionState::Connecting if is_first => {
                self.connecting.insert(host);
            }
            _ => {
                if self.connecting.remove(&host) {
                    self.connected = Instant::now();
                }
            }
        }
    }

    fn apply(&mut self, host: HostKey, line: Line) {
        let before = self.snapshot(host).map(|snapshot| snapshot.sequence);
        let is_full = matches!(line, Line::Full(_));
        if let Line::Reply(reply) = line {
            return self.replies.push(reply);
        }
        if self.fleet.apply(host, line).is_err() {
            self.sources.send(host, Command::Full);
            return;
        }
        let is_new = self
            .snapshot(host)
            .is_some_and(|snapshot| Some(snapshot.sequence) != before);
        let is_pass = is_new
            && self
                .snapshot(host)
                .is_some_and(|snapshot| !is_starting(snapshot) && lists_all_gpus(snapshot));
        let progress = self.hosts.entry(host).or_default();
        if progress.ended.is_some() {
            // It was connected again by itself.
            *progress = HostProgress {
                program: progress.program.take(),
                ..HostProgress::default()
            };
        }
        progress.has_snapshot |= is_full;
        progress.has_new_line |= is_new;
        progress.passes += u32::from(is_pass);
        progress.is_late &= !is_pass;
    }

    /// The latest snapshot of a host; `None` before its first line.
    fn snapshot(&self, host: HostKey) -> Option<&Snapshot> {
        self.fleet.host(host)?.latest()
    }

    /// Returns the state of each host.
    pub(in crate::commands) fn states(
        &self,
        timeout: Duration,
        is_enough: IsEnough,
    ) -> Vec<HostState<'_>> {
        let state = |(host, progress): (&HostKey, &HostProgress)| {
            let model = self.fleet.host(*host).filter(|_| progress.has_snapshot);
            HostState {
                key: *host,
                name: self.fleet.name(*host),
                both_names: self.fleet.both_names(*host),
                must_be_named: self.fleet.must_be_named(*host),
                seen: model.and_then(|model| Some((model, model.latest()?))),
                trouble: self.trouble(*host, timeout, is_enough),
                program: self.hosts.get(host).and_then(|host| host.program.as_ref()),
                lacks_only_gpus: progress.ended.is_none()
                    && progress.has_new_line
                    && self
                        .snapshot(*host)
                        .is_some_and(|snapshot| !snapshot.gpus.is_empty()),
            }
        };
        self.hosts.iter().map(state).collect()
    }

    /// Why a report on a host is not complete; `None` when it is.
    fn trouble(&self, host: HostKey, timeout: Duration, is_enough: IsEnough) -> Option<Text> {
        let progress = self.hosts.get(&host)?;
        if progress.ended.is_some() || self.has_recording_ended {
            return progress.ended.clone();
        }
        if self.had_enough.contains(&host) || self.has_enough(host, progress, is_enough) {
            return None;
        }
        let timeout = ExactSpan(timeout);
        Some(Text::new(
            match self.snapshot(host).filter(|_| progress.has_snapshot) {
                None => format!("the agent said nothing for {timeout}"),
                Some(latest) if is_starting(latest) => {
                    format!("the driver did not answer within {timeout}; --timeout waits longer")
                }
                Some(_) if progress.passes >= PASSES_FOR_RATES => {
                    format!("not every process was looked at within {timeout}")
                }
                Some(_) => {
                    format!("there was no second reading within {timeout}, so rates are missing")
                }
            },
        ))
    }

    /// Prepares for the next report, which needs one more pass of each host. Restarts an agent of this
    /// host that has ended, not more often than the interval. Other hosts are connected again by
    /// themselves; until then their reports say why there are no lines.
    pub(in crate::commands) async fn next_report(&mut self, interval: Duration) {
        if self.hosts.values().any(|progress| progress.ended.is_some()) {
            sleep_until(Instant::now() + interval).await;
        }
        let is_only_one = self.hosts.len() == 1;
        let remote: BTreeSet<HostKey> = self
            .sources
            .hosts()
            .filter(|(_, source)| source.is_remote())
            .map(|(host, _)| host)
            .collect();
        for (host, progress) in &mut self.hosts {
            if progress.ended.is_some() && remote.contains(host) {
                continue;
            }
            if progress.ended.is_some() {
                self.sources.restart(*host, interval);
                *progress = HostProgress {
                    is_late: !is_only_one,
                    ..HostProgress::default()
                };
            } else {
                progress.is_late = progress.passes < PASSES_FOR_RATES;
                progress.passes = progress.passes.min(PASSES_FOR_RATES - 1);
                progress.has_new_line = false;
            }
        }
    }
}

/// Returns whether the driver or a GPU has neither answered nor failed yet, or a GPU was only
/// partly read.
fn is_starting(snapshot: &Snapshot) -> bool {
    let troubles = snapshot
        .gpus
        .iter()
        .map(|gpu| &gpu.trouble)
        .chain([&snapshot.driver.trouble]);
    snapshot.gpus.iter().any(Gpu::is_partly_read)
        || troubles
            .flatten()
            .any(|trouble| trouble.cause == Cause::Starting)
}

/// Returns whether every GPU is listed. If the first pass hangs at a GPU, the GPUs before it come
/// only with the next line.
fn lists_all_gpus(snapshot: &Snapshot) -> bool {
    let whole_gpus = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.facts.parent.is_none());
    let indexes: Vec<u32> = whole_gpus.map(|gpu| gpu.facts.index).collect();
    indexes
        .iter()
        .all(|index| (*index as usize) < indexes.len())
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
