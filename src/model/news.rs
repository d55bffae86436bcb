//! The news of a host: processes that began and ended, leaks, suspects, memory that ran out, and
//! trouble of GPUs.
//!
//! Every word of the news stands here. The news follow from snapshots, so a replay has those of the
//! live run, and from the watches of the user.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::growth::Growing;
use super::health::{self, Severity};
use super::history::{History, HistoryEvent, HistoryEventKind};
use super::identity::GpuOrProcess;
use super::pairs;
use super::process_role;
use super::verdict::Verdict;
use crate::base::text::Text;
use crate::base::time::WallClock;
use crate::base::units::{Bytes, Elapsed, Moment};
use crate::protocol::snapshot::{GpuUuid, Missing, Process, ProcessFacts, ProcessId, Snapshot};

/// The most news that are remembered. The oldest is dropped for a new one.
const REMEMBERED: usize = 256;

/// The largest number of news that a checkpoint may count: more than there can be.
const MOST: u64 = 1 << 53;

/// The beginning of an alert about what the user watches.
const ALERT: &str = "ALERT ";

/// A leak that stops and starts again within this time is the same leak.
const SAME_LEAK: Duration = Duration::from_mins(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewsKind {
    Began,
    Ended,
    Signalled,
    Leak,
    LeakOver,
    /// Memory that grows will be full within a quarter of an hour.
    FullSoon,
    /// It no longer grows.
    FullNoMore,
    Suspect,
    OutOfMemory,
    Xid,
    GpuTrouble,
    GpuAnswers,
    /// A watched process ended, or a watched GPU is free.
    Watched,
    /// No viewer and no recorder read the host for some time.
    Unseen,
    /// No more data comes from the host.
    HostLost,
}

impl NewsKind {
    /// The word for several news of this kind in a summary; `None` for kinds that a summary leaves
    /// out.
    pub(crate) fn summary_word(self) -> Option<&'static str> {
        Some(match self {
            Self::Ended => "ended",
            Self::Leak => "leak",
            Self::FullSoon => "full soon",
            Self::Suspect => "suspect",
            Self::OutOfMemory => "out of memory",
            Self::Xid => "Xid",
            Self::GpuTrouble => "GPU trouble",
            Self::Watched => "alert",
            Self::HostLost => "host lost",
            Self::Began
            | Self::Signalled
            | Self::LeakOver
            | Self::FullNoMore
            | Self::GpuAnswers
            | Self::Unseen => {
                return None;
            }
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewsItem {
    /// The number of the item among all news of the host, from 0.
    pub number: u64,
    pub at: Moment,
    pub kind: NewsKind,
    pub severity: Severity,
    /// `None` for news of the whole host.
    pub subject: Option<GpuOrProcess>,
    #[serde(deserialize_with = "sanitized")]
    pub sentence: String,
}

/// Reads a sentence of a checkpoint, which may be forged.
fn sanitized<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Text::deserialize(deserializer)?.to_string())
}

/// The facts of one pass that news follow from.
pub(super) struct NewsSources<'a> {
    pub snapshot: &'a Snapshot,
    pub history: &'a History,
    pub verdicts: &'a [Verdict],
    /// The GPUs and processes whose memory grows now.
    pub growing: &'a [Growing],
    pub clock: Option<WallClock>,
}

/// The latest news, in the order of data time, and the facts that decide whether something is new.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct NewsLog {
    items: VecDeque<NewsItem>,
    /// The number of news so far, those that were dropped included.
    added: u64,
    /// The number of events of the history that are news already.
    events: u64,
    /// The last known facts of processes on GPUs, which outlive them.
    #[serde(with = "pairs")]
    known: BTreeMap<ProcessId, Arc<ProcessFacts>>,
    growths: Vec<ReportedGrowth>,
    suspects: Vec<FoundSuspect>,
    /// How often PyTorch ran out of memory.
    #[serde(with = "pairs")]
    ooms: BTreeMap<ProcessId, u64>,
    troubled: Vec<GpuUuid>,
}

/// A leak, or memory that will soon be full, that is news already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReportedGrowth {
    subject: GpuOrProcess,
    /// A leak. Otherwise memory that will soon be full.
    is_leak: bool,
    /// When it stopped; `None` while it continues.
    stopped: Option<Moment>,
}

/// A suspect verdict of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FoundSuspect {
    process: ProcessId,
    /// The name of the verdict.
    name: Cow<'static, str>,
    is_reported: bool,
}

impl FoundSuspect {
    fn is(&self, verdict: &Verdict) -> bool {
        (self.process, &*self.name) == (verdict.process, verdict.name())
    }
}

impl NewsLog {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &NewsItem> {
        self.items.iter()
    }

    /// Whether a log of a checkpoint, which may be forged, keeps the rules that adding relies on.
    pub(super) fn is_sound(&self) -> bool {
        let numbers = self.items.iter().map(|item| item.number);
        self.items.len() <= REMEMBERED
            && numbers
                .chain([self.added, self.events])
                .all(|number| number <= MOST)
    }

    fn add(
        &mut self,
        at: Moment,
        kind: NewsKind,
        severity: Severity,
        subject: impl Into<Option<GpuOrProcess>>,
        sentence: String,
    ) {
        if self.items.len() == REMEMBERED {
            self.items.pop_front();
        }
        let place = self.items.partition_point(|item| item.at <= at);
        self.items.insert(
            place,
            NewsItem {
                number: self.added,
                at,
                kind,
                severity,
                subject: subject.into(),
                sentence,
            },
        );
        self.added += 1;
    }

    /// Adds an alert about a process or GPU that the user watches. The end of a process is news
    /// already.
    pub(super) fn add_alert(&mut self, at: Moment, subject: GpuOrProcess, sentence: &str) {
        let is_end = |item: &&mut NewsItem| {
            item.kind == NewsKind::Ended && item.subject.as_ref() == Some(&subject)
        };
        match self.items.iter_mut().rev().find(is_end) {
            Some(end) => {
                (end.kind, end.severity) = (NewsKind::Watched, Severity::Notable);
                end.sentence.insert_str(0, ALERT);
            }
            None => self.add(
                at,
                NewsKind::Watched,
                Severity::Notable,
                subject,
                format!("{ALERT}{sentence}"),
            ),
        }
    }

    /// Adds that the host was not read before `at`, where the history of an earlier viewer ends or
    /// another boot began.
    pub(super) fn add_unseen(&mut self, at: Moment, sentence: String) {
        self.add(at, NewsKind::Unseen, Severity::Fine, None, sentence);
    }

    /// Adds that no more data comes from the host, for this reason.
    pub(super) fn add_lost(&mut self, at: Moment, reason: &Text) {
        self.add(
            at,
            NewsKind::HostLost,
            Severity::Bad,
            None,
            format!("no more data: {reason}"),
        );
    }

    /// Remembers the name and user of a process for its news in the next snapshot, unless they are
    /// known.
    pub(super) fn remember(&mut self, process: &Process) {
        self.known
            .entry(process.id)
            .or_insert_with(|| process.facts.clone());
    }

    pub(super) fn add_snapshot(&mut self, sources: &NewsSources<'_>) {
        let snapshot = sources.snapshot;
        for gpu_process in snapshot.gpus.iter().flat_map(|gpu| &gpu.processes) {
            // A zombie has no arguments any more.
            if let Some(process) = snapshot.process(gpu_process.process)
                && (process
                    .facts
                    .argv
                    .as_ref()
                    .is_ok_and(|argv| !argv.is_empty())
                    || !self.known.contains_key(&process.id))
            {
                self.know(process.id, &process.facts);
            }
        }
        self.add_events(sources);
        self.add_growths(sources);
        self.add_suspects(sources);
        self.add_ooms(snapshot);
        self.add_gpu_trouble(snapshot);
        self.known
            .retain(|id, _| sources.history.process(*id).is_some());
    }

    /// Remembers the facts of a process. Its arguments and user are read after its first snapshot:
    /// older news get its name then.
    fn know(&mut self, id: ProcessId, facts: &Arc<ProcessFacts>) {
        if self
            .known
            .get(&id)
            .is_some_and(|known| Arc::ptr_eq(known, facts))
        {
            return;
        }
        let before = self.name(id);
        let is_new = self.known.insert(id, Arc::clone(facts)).is_none();
        let name = self.name(id);
        if is_new || name == before {
            return;
        }
        for item in self
            .items
            .iter_mut()
            .filter(|item| item.subject == Some(GpuOrProcess::Process(id)))
        {
            item.sentence = item.sentence.replacen(&before, &name, 1);
        }
    }

    fn add_events(&mut self, sources: &NewsSources<'_>) {
        let events: Vec<&HistoryEvent> = sources.history.events_after(self.events).collect();
        self.events += events.len() as u64;
        // A process on several GPUs has an event on each.
        let is_same = |a: &&HistoryEvent, b: &&HistoryEvent| {
            a.process.is_some()
                && a.process == b.process
                && NewsKind::from_event(a.kind) == NewsKind::from_event(b.kind)
        };
        for same in events.chunk_by(is_same) {
            let Some((kind, first)) = same
                .first()
                .and_then(|event| Some((NewsKind::from_event(event.kind)?, *event)))
            else {
                continue;
            };
            let gpus: Vec<&GpuUuid> = same.iter().filter_map(|event| event.gpu.as_ref()).collect();
            let gpus = gpu_names(sources.snapshot, &gpus);
            let process = first.process.as_ref().map(|(id, _)| *id);
            let name = process.map_or_else(String::new, |id| self.name(id));
            let (severity, sentence) = match first.kind {
                HistoryEventKind::Began => (Severity::Fine, format!("{name} began on {gpus}")),
                HistoryEventKind::Ended(_) => {
                    let amount = |event: &&HistoryEvent| match event.kind {
                        HistoryEventKind::Ended(held) => held,
                        _ => None,
                    };
                    let held: Option<Bytes> = same.iter().map(amount).sum();
                    let held =
                        held.map_or_else(String::new, |held| format!(", held {held} on {gpus}"));
                    let lives = process.is_some_and(|id| sources.snapshot.lives(id));
                    let verb = if lives {
                        "released its GPU memory"
                    } else {
                        "exited"
                    };
                    let sentence = format!("{name} {verb}{held}");
                    if !lives && let Some(alert) = self.alert_about(process) {
                        alert.sentence = format!("{ALERT}{sentence}");
                        continue;
                    }
                    (Severity::Fine, sentence)
                }
                HistoryEventKind::Signalled(signal) => {
                    (Severity::Notable, format!("{signal} sent to {name}"))
                }
                HistoryEventKind::Xid(code) => {
                    let words = health::describe_xid(code)
                        .map_or_else(String::new, |words| format!(": {words}"));
                    let severity = if health::is_of_a_program(code) {
                        Severity::Notable
                    } else {
                        Severity::Bad
                    };
                    (severity, format!("Xid {code} on {gpus}{words}"))
                }
                HistoryEventKind::Dropped { .. } => continue,
            };
            let subject = process
                .map(GpuOrProcess::Process)
                .or(first.gpu.clone().map(GpuOrProcess::Gpu));
            let Some(subject) = subject else { continue };
            self.add(first.at, kind, severity, subject, sentence);
        }
    }

    /// Returns the alert about the end of a watched process. It comes before the event in the
    /// history where the list of the driver is older than the end.
    fn alert_about(&mut self, process: Option<ProcessId>) -> Option<&mut NewsItem> {
        let subject = GpuOrProcess::Process(process?);
        self.items
            .iter_mut()
            .rev()
            .find(|item| item.kind == NewsKind::Watched && item.subject.as_ref() == Some(&subject))
    }

    fn add_growths(&mut self, sources: &NewsSources<'_>) {
        self.note_stopped_growths(sources);
        self.add_growths_over(sources);
        for growing in sources.growing {
            self.add_growth(sources, growing, true);
            self.add_growth(sources, growing, false);
        }
    }

    /// Notes which of the reported growths have stopped and which go on again.
    fn note_stopped_growths(&mut self, sources: &NewsSources<'_>) {
        for known in &mut self.growths {
            let goes_on = |growing: &Growing| {
                growing.subject == known.subject && is_reportable(growing, known.is_leak)
            };
            if sources.growing.iter().any(goes_on) {
                known.stopped = None;
            } else {
                known.stopped.get_or_insert(sources.snapshot.at);
            }
        }
    }

    /// Adds the news of the growths that stopped long enough ago, and forgets those growths.
    fn add_growths_over(&mut self, sources: &NewsSources<'_>) {
        let now = sources.snapshot.at;
        let is_over = |stopped: Option<Moment>| {
            stopped.is_some_and(|stopped| now.since(stopped) >= SAME_LEAK)
        };
        let over: Vec<_> = self
            .growths
            .extract_if(.., |known| is_over(known.stopped))
            .collect();
        let leaks_over: Vec<GpuOrProcess> = over
            .iter()
            .filter(|known| known.is_leak)
            .map(|known| known.subject.clone())
            .collect();
        for ReportedGrowth {
            subject, is_leak, ..
        } in over
        {
            let is_there = match &subject {
                GpuOrProcess::Process(id) => sources.snapshot.lives(*id),
                GpuOrProcess::Gpu(uuid) => sources.snapshot.gpu(uuid).is_some(),
            };
            // A process that grows on as a leak is no news, and the end of its leak says enough.
            let is_leak_known = || {
                leaks_over.contains(&subject)
                    || self.growths.iter().any(|known| known.subject == subject)
            };
            if is_there && (is_leak || !is_leak_known()) {
                let name = self.subject(&subject, sources.snapshot);
                let grows = sources
                    .growing
                    .iter()
                    .find(|growing| growing.subject == subject);
                let plateau = grows.and_then(Growing::calm_plateau);
                let kind = if is_leak {
                    NewsKind::LeakOver
                } else {
                    NewsKind::FullNoMore
                };
                let words = match (plateau, is_leak, grows) {
                    (Some(plateau), ..) => format!("fills up and levels off near {plateau}"),
                    (None, true, _) => "no longer leaks".to_owned(),
                    (None, false, None) => "no longer grows".to_owned(),
                    (None, false, Some(_)) => "grows more slowly now".to_owned(),
                };
                let sentence = format!("{name} {words}");
                self.add(now, kind, Severity::Fine, subject, sentence);
            }
        }
    }

    /// Adds the news of a leak, or of memory that is soon full, unless it is known.
    fn add_growth(&mut self, sources: &NewsSources<'_>, growing: &Growing, is_leak: bool) {
        let now = sources.snapshot.at;
        let is_known = |is_leak: bool| {
            self.growths
                .iter()
                .any(|known| known.subject == growing.subject && known.is_leak == is_leak)
        };
        // The news of a leak says when memory is full.
        if !is_reportable(growing, is_leak) || is_known(is_leak) || !is_leak && is_known(true) {
            return;
        }
        let full = match (growing.left(), sources.clock) {
            (Some(left), Some(clock)) => {
                format!(", full {}", clock.ahead(now.after(left), now))
            }
            (Some(left), None) => format!(", full in {}", Elapsed(left)),
            (None, _) => String::new(),
        };
        let name = self.subject(&growing.subject, sources.snapshot);
        let (kind, word) = if is_leak {
            (NewsKind::Leak, "LEAK")
        } else {
            (NewsKind::FullSoon, "FULL SOON")
        };
        let line = growing
            .line
            .as_ref()
            .filter(|_| is_leak)
            .map_or_else(String::new, |line| format!(" at {line}"));
        let sentence = format!("{word} {name}{line} {}{full}", growing.evidence.rate);
        self.add(now, kind, Severity::Bad, growing.subject.clone(), sentence);
        self.growths.push(ReportedGrowth {
            subject: growing.subject.clone(),
            is_leak,
            stopped: None,
        });
    }

    fn add_suspects(&mut self, sources: &NewsSources<'_>) {
        let suspects: Vec<&Verdict> = sources
            .verdicts
            .iter()
            .filter(|verdict| verdict.is_suspect() && verdict.is_on_gpu())
            .collect();
        let is_now = |found: &FoundSuspect| suspects.iter().any(|verdict| found.is(verdict));
        let is_there = |found: &FoundSuspect| sources.snapshot.process(found.process).is_some();
        self.suspects.retain(|found| {
            if found.is_reported {
                is_there(found)
            } else {
                is_now(found)
            }
        });
        for verdict in suspects {
            match self.suspects.iter_mut().find(|found| found.is(verdict)) {
                Some(found) if found.is_reported => continue,
                // The first passes lack facts, so a verdict must hold for two passes.
                Some(found) => found.is_reported = true,
                None => {
                    let found = FoundSuspect {
                        process: verdict.process,
                        name: verdict.name().into(),
                        is_reported: false,
                    };
                    self.suspects.push(found);
                    continue;
                }
            }
            // A process that has a GPU open without being listed for it is not known yet.
            if let Some(process) = sources.snapshot.process(verdict.process) {
                self.remember(process);
            }
            let subject = GpuOrProcess::Process(verdict.process);
            let is_known = |item: &NewsItem, word: &str| {
                item.kind == NewsKind::Suspect
                    && item.subject.as_ref() == Some(&subject)
                    && item.sentence.starts_with(word)
            };
            match verdict.word() {
                "orphan" => self.items.retain(|item| !is_known(item, "orphan? ")),
                "orphan?" if self.items.iter().any(|item| is_known(item, "orphan ")) => continue,
                _ => {}
            }
            let sentence = verdict.news(&self.name(verdict.process));
            self.add(
                sources.snapshot.at,
                NewsKind::Suspect,
                verdict.severity(),
                subject,
                sentence,
            );
        }
    }

    fn add_ooms(&mut self, snapshot: &Snapshot) {
        self.ooms.retain(|id, _| snapshot.process(*id).is_some());
        for process in &snapshot.processes {
            let Some(allocator) = process
                .allocator
                .as_ref()
                .filter(|allocator| !allocator.devices.is_empty())
            else {
                continue;
            };
            // A hostile agent may send any numbers.
            let mut counts = allocator.devices.iter().map(|device| device.ooms);
            let ooms = counts.try_fold(0_u64, |sum, count| {
                Ok::<_, Missing>(sum.saturating_add(count?))
            });
            let Ok(ooms) = ooms else { continue };
            if self
                .ooms
                .insert(process.id, ooms)
                .is_some_and(|before| ooms > before)
            {
                let times = if ooms == 1 {
                    "once"
                } else {
                    &format!("{ooms} times")
                };
                let sentence =
                    format!("OUT OF MEMORY in {}, {times} so far", self.name(process.id));
                let subject = GpuOrProcess::Process(process.id);
                self.add(
                    snapshot.at,
                    NewsKind::OutOfMemory,
                    Severity::Bad,
                    subject,
                    sentence,
                );
            }
        }
    }

    fn add_gpu_trouble(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            let place = self.troubled.iter().position(|uuid| *uuid == gpu.uuid);
            let name = gpu_names(snapshot, &[&gpu.uuid]);
            let subject = GpuOrProcess::Gpu(gpu.uuid.clone());
            match (&gpu.trouble, place) {
                (Some(trouble), None) if !trouble.is_starting() => {
                    self.troubled.push(gpu.uuid.clone());
                    let sentence = format!("{name}: {}", trouble.cause);
                    self.add(
                        snapshot.at,
                        NewsKind::GpuTrouble,
                        Severity::Bad,
                        subject,
                        sentence,
                    );
                }
                (None, Some(place)) => {
                    self.troubled.remove(place);
                    let sentence = format!("{name} answers again");
                    self.add(
                        snapshot.at,
                        NewsKind::GpuAnswers,
                        Severity::Fine,
                        subject,
                        sentence,
                    );
                }
                _ => {}
            }
        }
    }

    fn subject(&self, subject: &GpuOrProcess, snapshot: &Snapshot) -> String {
        match subject {
            GpuOrProcess::Process(id) => self.name(*id),
            GpuOrProcess::Gpu(uuid) => gpu_names(snapshot, &[uuid]),
        }
    }

    /// Returns `2885 train.py (alice)`.
    fn name(&self, id: ProcessId) -> String {
        let Some(facts) = self.known.get(&id) else {
            return id.pid.to_string();
        };
        let user = facts
            .user
            .as_ref()
            .map_or_else(|_| String::new(), |user| format!(" ({user})"));
        let name = process_role::short_name(facts)
            .map_or_else(|_| String::new(), |name| format!(" {name}"));
        format!("{}{name}{user}", id.pid)
    }
}

impl NewsKind {
    /// The kind of news that an event of the history is; `None` if it is none.
    fn from_event(event: HistoryEventKind) -> Option<Self> {
        match event {
            HistoryEventKind::Began => Some(Self::Began),
            HistoryEventKind::Ended(_) => Some(Self::Ended),
            HistoryEventKind::Signalled(_) => Some(Self::Signalled),
            HistoryEventKind::Xid(_) => Some(Self::Xid),
            HistoryEventKind::Dropped { .. } => None,
        }
    }
}

/// Whether a growth has news of a leak, or of memory that is soon full.
fn is_reportable(growing: &Growing, is_leak: bool) -> bool {
    if is_leak {
        growing.is_leak()
    } else {
        growing.is_urgent()
    }
}

/// Returns `GPU 0` or `GPU 0,2`.
fn gpu_names(snapshot: &Snapshot, gpus: &[&GpuUuid]) -> String {
    let labels: Vec<String> = gpus
        .iter()
        .filter_map(|uuid| Some(snapshot.gpu(uuid)?.label()))
        .collect();
    if labels.is_empty() {
        "a GPU that is gone".to_owned()
    } else {
        format!("GPU {}", labels.join(","))
    }
}

#[cfg(test)]
mod tests;
