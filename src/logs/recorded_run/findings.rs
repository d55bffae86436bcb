//! Findings of the model during a recording, which remembers them after the model forgets: events,
//! leaks and suspects.

use std::collections::{BTreeMap, BTreeSet};

use super::process_run::Pass;
use super::{ProcessKey, RunSubject};
use crate::model::{
    Advice, Evidence, GpuOrProcess, HostModel, NewsKind, Severity, Total, Verdict, short_name,
};
use crate::protocol::snapshot::{GpuUuid, ProcessId};

/// The most events that are kept. When there are more, the oldest harmless ones are dropped.
const MOST_EVENTS: usize = 2000;

/// The most leaks, and the most suspects, that are kept.
const MOST_FOUND: usize = 200;

/// An event, as the news of the screen has it, or a mark of the program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunEvent {
    /// The time in milliseconds since 1970.
    pub(crate) at: u64,
    /// `None` for a mark.
    pub(crate) kind: Option<NewsKind>,
    pub(crate) severity: Severity,
    pub(crate) subject: RunSubject,
    pub(crate) sentence: String,
}

/// A leak, as it was last seen.
#[derive(Debug, Clone)]
pub(crate) struct LeakFound {
    pub(crate) subject: RunSubject,
    /// When the growth began, and when it was last seen.
    pub(crate) since: u64,
    pub(crate) until: u64,
    pub(crate) evidence: Evidence,
    /// The evidence as a sentence.
    pub(crate) reason: String,
    /// The titles of advice, the most likely first.
    pub(crate) advice: Vec<&'static str>,
    /// Whether it goes on at the end of the recording.
    pub(crate) is_current: bool,
}

/// A process that holds memory and should not, or may not need it.
#[derive(Debug, Clone)]
pub(crate) struct SuspectFound {
    pub(crate) process: ProcessKey,
    /// The name of the process with its PID.
    pub(crate) name: String,
    /// The word of the last verdict, as in `orphan`.
    pub(crate) word: &'static str,
    pub(crate) severity: Severity,
    pub(crate) sentence: String,
    /// The memory that it held then.
    pub(crate) held: HeldMemory,
    /// The GPUs whose memory the process kept without being listed there.
    pub(crate) kept_on: Vec<GpuUuid>,
    pub(crate) since: u64,
    pub(crate) until: u64,
    pub(crate) is_current: bool,
    /// In how many looks it was found. The first passes lack facts, so one does not count.
    looks: u32,
}

/// The memory of a suspect, as its verdict has it: listed, or kept without being listed.
#[derive(Debug, Clone)]
pub(crate) struct HeldMemory(Verdict);

impl HeldMemory {
    /// Returns the memory of some suspects together. Memory that several of them may keep counts
    /// once.
    pub(crate) fn total<'a>(held: impl Iterator<Item = &'a Self> + Clone) -> Total {
        Verdict::total(&held.map(|Self(verdict)| verdict))
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Events of earlier boots, and marks.
    finished: Vec<RunEvent>,
    /// Events of this boot, by their number among the news of the model.
    news: BTreeMap<u64, RunEvent>,
    leaks: Vec<LeakFound>,
    suspects: Vec<SuspectFound>,
    /// The names of the marks of each process.
    marks: BTreeSet<(ProcessKey, String)>,
}

impl Findings {
    /// Takes what the model found up to now.
    pub(super) fn add_pass(&mut self, model: &HostModel, pass: &Pass<'_>) {
        self.look_at_news(model, pass);
        self.look_at_leaks(model, pass);
        self.look_at_suspects(model, pass);
    }

    fn look_at_news(&mut self, model: &HostModel, pass: &Pass<'_>) {
        // The model replaces some news by better ones: those that it no longer has are dropped
        // here, too.
        if let Some(oldest) = model.news().map(|item| item.number).min() {
            let kept: BTreeSet<u64> = model.news().map(|item| item.number).collect();
            self.news
                .retain(|number, _| *number < oldest || kept.contains(number));
        }
        for item in model.news() {
            // A viewer adds these to its own history; a recording has a gap there.
            let Some(of) = &item.subject else { continue };
            let event = RunEvent {
                at: pass.unix(item.at),
                kind: Some(item.kind),
                severity: item.severity,
                subject: subject(of, pass.boot),
                sentence: item.sentence.clone(),
            };
            self.news.insert(item.number, event);
        }
        while self.news.len() > MOST_EVENTS {
            let harmless = self
                .news
                .iter()
                .find(|(_, event)| event.severity == Severity::Fine)
                .map(|(number, _)| *number);
            match harmless {
                Some(number) => self.news.remove(&number),
                None => self.news.pop_first().map(|(_, event)| event),
            };
        }
    }

    /// Keeps the leaks. A growth that proves to level off was none.
    fn look_at_leaks(&mut self, model: &HostModel, pass: &Pass<'_>) {
        self.leaks
            .iter_mut()
            .for_each(|leak| leak.is_current = false);
        for growing in model.growing() {
            if growing.calm_plateau().is_some() {
                let filling = subject(&growing.subject, pass.boot);
                let since = pass.unix(growing.evidence.since);
                self.leaks
                    .retain(|known| known.subject != filling || known.until < since);
            }
        }
        for (leaking, evidence) in model.leaking() {
            let growth = model.growth(&leaking);
            let found = LeakFound {
                subject: subject(&leaking, pass.boot),
                since: pass.unix(evidence.since),
                until: pass.at,
                evidence,
                reason: growth
                    .and_then(|growth| growth.reason())
                    .unwrap_or_else(|| evidence.to_string()),
                advice: model.advice(&leaking).iter().map(Advice::title).collect(),
                is_current: true,
            };
            // A leak that stops and resumes has another beginning, and is the same.
            let has_room = self.leaks.len() < MOST_FOUND;
            match self
                .leaks
                .iter_mut()
                .rev()
                .find(|known| known.subject == found.subject)
            {
                Some(known) => {
                    *known = LeakFound {
                        since: known.since.min(found.since),
                        ..found
                    }
                }
                None if has_room => self.leaks.push(found),
                None => {}
            }
        }
    }

    fn look_at_suspects(&mut self, model: &HostModel, pass: &Pass<'_>) {
        self.suspects
            .iter_mut()
            .for_each(|suspect| suspect.is_current = false);
        for verdict in model
            .verdicts()
            .iter()
            .filter(|verdict| verdict.is_suspect() && verdict.is_on_gpu())
        {
            let process = ProcessKey {
                boot: pass.boot,
                id: verdict.process,
            };
            let held = HeldMemory(verdict.clone());
            let kept: Vec<usize> = verdict.kept.iter().map(|kept| kept.gpu).collect();
            let kept_on = model.latest().map_or_else(Vec::new, |latest| {
                let gpus = latest.gpus_at(&kept);
                gpus.map(|gpu| gpu.uuid.clone()).collect()
            });
            let found = SuspectFound {
                process,
                name: named(model, verdict.process),
                word: verdict.word(),
                severity: verdict.severity(),
                sentence: verdict.sentence(),
                held,
                kept_on,
                since: pass.at,
                until: pass.at,
                is_current: true,
                looks: 1,
            };
            let is_same = |known: &&mut SuspectFound| known.process == process;
            let has_room = self.suspects.len() < MOST_FOUND;
            match self.suspects.iter_mut().find(is_same) {
                Some(known) => {
                    *known = SuspectFound {
                        since: known.since,
                        looks: known.looks + 1,
                        ..found
                    }
                }
                None if has_room => self.suspects.push(found),
                None => {}
            }
        }
    }

    /// Adds a mark that the program set with `gputop_probe.mark`, the first time: a mark in a loop is
    /// set all the time.
    pub(super) fn mark(&mut self, process: ProcessKey, name: &str, step: Option<u64>, at: u64) {
        if self.finished.len() >= MOST_EVENTS || !self.marks.insert((process, name.to_owned())) {
            return;
        }
        let step = step.map_or_else(String::new, |step| format!(", step {step}"));
        self.finished.push(RunEvent {
            at,
            kind: None,
            severity: Severity::Fine,
            subject: RunSubject::Process(process),
            sentence: format!("mark {name}{step}"),
        });
    }

    /// Keeps the events of this boot; the model starts anew.
    pub(super) fn end_boot(&mut self) {
        self.finished
            .extend(std::mem::take(&mut self.news).into_values());
        self.leaks
            .iter_mut()
            .for_each(|leak| leak.is_current = false);
        self.suspects
            .iter_mut()
            .for_each(|suspect| suspect.is_current = false);
    }

    /// Returns events in the order of time, leaks and suspects: the worst first.
    pub(super) fn finish(mut self) -> (Vec<RunEvent>, Vec<LeakFound>, Vec<SuspectFound>) {
        self.finished.extend(self.news.into_values());
        self.finished.sort_by_key(|event| event.at);
        self.suspects
            .retain(|suspect| suspect.looks > 1 || suspect.is_current);
        self.leaks.sort_by(|a, b| {
            (b.is_current, b.evidence.rate)
                .partial_cmp(&(a.is_current, a.evidence.rate))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let held = |suspect: &SuspectFound| HeldMemory::total(std::iter::once(&suspect.held)).bytes;
        self.suspects.sort_by_key(|suspect| {
            (
                suspect.severity != Severity::Bad,
                std::cmp::Reverse(held(suspect)),
            )
        });
        (self.finished, self.leaks, self.suspects)
    }
}

/// Returns `train.py (PID 4711)`.
fn named(model: &HostModel, id: ProcessId) -> String {
    let process = model.latest().and_then(|latest| latest.process(id));
    let name = process.and_then(|process| short_name(&process.facts).ok());
    name.map_or_else(
        || format!("PID {}", id.pid),
        |name| format!("{name} (PID {})", id.pid),
    )
}

fn subject(subject: &GpuOrProcess, boot: u32) -> RunSubject {
    let process = |id: &ProcessId| RunSubject::Process(ProcessKey { boot, id: *id });
    match subject {
        GpuOrProcess::Gpu(uuid) => RunSubject::Gpu(uuid.clone()),
        GpuOrProcess::Process(id) => process(id),
    }
}
