//! The news that a recorder tells to people who are not at the screen: each once, with its end.
//!
//! The model finds the news, and the checkpoints of a recording keep them: a recorder that was
//! started again does not tell what was told. Only a GPU that becomes free, and a process that has
//! not computed for long, are found here.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::alert_scope::AlertScope;
use super::alerts::{AlertFact, SURE, gpu_facts, growth_facts, is_free, process_facts};
use crate::app::event::{Alert, AlertKind};
use crate::base::text::Text;
use crate::base::units::{Elapsed, Moment};
use crate::model::{
    Fleet, GpuOrProcess, HostModel, Job, JobKey, NewsItem, NewsKind, Severity, VerdictKind,
};
use crate::output::labels;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Snapshot, Use};

/// How often the facts of a process are looked up again while it lives.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(30);

/// How long the facts of a process are kept after its end, for news about it.
const KEPT: Duration = Duration::from_mins(5);

/// An out-of-memory error, or a signal of gputop, this long before the end of a process is its
/// cause.
const CAUSE: Duration = Duration::from_mins(1);

/// Whose news are told, and after which time without computing a process is idle.
#[derive(Debug, Clone)]
pub(crate) struct TellOptions {
    pub(crate) scope: AlertScope,
    pub(crate) idle: Duration,
}

/// The news of all hosts that were told.
#[derive(Debug)]
pub(crate) struct ToldNews {
    options: TellOptions,
    hosts: BTreeMap<HostKey, HostNews>,
}

#[derive(Debug, Default)]
struct HostNews {
    boot_id: String,
    /// The number of the first item that was not told.
    next: u64,
    processes: BTreeMap<ProcessId, ProcessNews>,
    gpus: BTreeMap<GpuUuid, GpuNews>,
    /// The GPUs that became free and were not told.
    free: Vec<GpuUuid>,
    /// The labels of the GPUs that were told to be lost. A lost GPU has no UUID after a restart of
    /// the agent.
    lost_gpus: BTreeSet<String>,
    /// Whether it was told that the host is lost.
    is_lost: bool,
}

/// A process on a GPU. Its facts outlive it.
#[derive(Debug)]
struct ProcessNews {
    is_told: bool,
    facts: Vec<AlertFact>,
    job: Option<(ProcessId, String)>,
    parent: Option<u32>,
    looked_up: Moment,
    seen: Moment,
    /// Whether it was told that the process is idle.
    is_idle: bool,
}

#[derive(Debug, Default)]
struct GpuNews {
    /// Whether a process of those whose news are told used it last.
    is_told: bool,
    is_in_use: bool,
    /// The number of consecutive snapshots in which it was free.
    free: u8,
}

impl ToldNews {
    pub(crate) fn new(options: TellOptions) -> Self {
        Self {
            options,
            hosts: BTreeMap::new(),
        }
    }

    /// Looks at the latest snapshot of a host. Call it after each line.
    pub(crate) fn see(&mut self, host: HostKey, fleet: &Fleet) {
        let Some((model, snapshot)) = fleet
            .host(host)
            .and_then(|model| Some((model, model.latest()?)))
        else {
            return;
        };
        let news = self.hosts.entry(host).or_default();
        let boot_id = snapshot.host.facts.boot_id.as_str();
        if news.boot_id != boot_id {
            *news = HostNews {
                boot_id: boot_id.to_owned(),
                is_lost: news.is_lost,
                ..HostNews::default()
            };
        }
        news.see_processes(model, snapshot, &self.options.scope);
        news.see_gpus(model, snapshot);
    }

    /// Forgets what is known so far: it was told by an earlier recorder.
    pub(crate) fn forget(&mut self, fleet: &Fleet) {
        let hosts: Vec<HostKey> = self.hosts.keys().copied().collect();
        for host in hosts {
            self.take(host, fleet);
        }
    }

    /// Returns what is to be told of a host since the last call.
    pub(crate) fn take(&mut self, host: HostKey, fleet: &Fleet) -> Vec<Alert> {
        let Some((model, snapshot)) = fleet
            .host(host)
            .and_then(|model| Some((model, model.latest()?)))
        else {
            return Vec::new();
        };
        let Some(news) = self.hosts.get_mut(&host) else {
            return Vec::new();
        };
        let mut alerts = news.take_items(model, snapshot, &self.options.scope);
        alerts.extend(news.take_free(snapshot));
        alerts.extend(news.take_idle(model, self.options.idle));
        if std::mem::take(&mut news.is_lost) {
            alerts.insert(
                0,
                of_host(AlertKind::HostAnswers, "data comes again".to_owned()),
            );
        }
        name_host(&mut alerts, host, fleet);
        alerts
    }

    /// Returns the alert that no more data comes from a host, unless it was told.
    pub(crate) fn lose(&mut self, host: HostKey, reason: &Text, fleet: &Fleet) -> Vec<Alert> {
        let news = self.hosts.entry(host).or_default();
        if std::mem::replace(&mut news.is_lost, true) {
            return Vec::new();
        }
        let sentence = format!("no more data: {reason}");
        let mut alerts = vec![of_host(AlertKind::HostLost, sentence)];
        name_host(&mut alerts, host, fleet);
        alerts
    }
}

fn of_host(kind: AlertKind, sentence: String) -> Alert {
    Alert {
        kind,
        sentence,
        facts: Vec::new(),
    }
}

/// Adds the name and the boot of the host; to the sentence, where it could be another.
fn name_host(alerts: &mut [Alert], host: HostKey, fleet: &Fleet) {
    let latest = fleet.host(host).and_then(HostModel::latest);
    for alert in alerts {
        let boot_id = latest.map(|latest| latest.host.facts.boot_id.to_string());
        alert.facts.extend(boot_id.map(|id| ("BOOT_ID", id)));
        let name = fleet.name(host);
        if fleet.has_many() {
            alert.sentence = format!("{name}: {}", alert.sentence);
        }
        alert.facts.push(("HOST", name.to_owned()));
    }
}

impl HostNews {
    fn see_processes(&mut self, model: &HostModel, snapshot: &Snapshot, scope: &AlertScope) {
        let now = snapshot.at;
        let on_gpus = snapshot.gpus.iter().flat_map(|gpu| &gpu.processes);
        for id in on_gpus.map(|gpu_process| gpu_process.process) {
            let known = self.processes.get(&id);
            let process = snapshot.process(id);
            // A zombie has no arguments any more.
            let has_arguments = process
                .and_then(|process| process.facts.argv.as_ref().ok())
                .is_some_and(|argv| !argv.is_empty());
            if known
                .is_some_and(|known| !has_arguments || now.since(known.looked_up) < LOOK_UP_AGAIN)
            {
                continue;
            }
            let is_idle = known.is_some_and(|known| known.is_idle);
            let job = model.job(id);
            let mut facts = process_facts(model, snapshot, id);
            facts.extend(job.into_iter().flat_map(job_facts));
            let news = ProcessNews {
                is_told: scope.includes(model, snapshot, &GpuOrProcess::Process(id)),
                facts,
                job: job.and_then(|job| Some((root(&job.key)?, job.name.clone()))),
                parent: process.and_then(|process| process.facts.parent.ok()),
                // The user may be read after the first snapshot.
                looked_up: if known.is_some() { now } else { Moment(0) },
                seen: now,
                is_idle,
            };
            self.processes.insert(id, news);
        }
        self.processes.retain(|id, news| {
            if snapshot.process(*id).is_some() {
                news.seen = now;
            }
            now.since(news.seen) < KEPT
        });
    }

    fn see_gpus(&mut self, model: &HostModel, snapshot: &Snapshot) {
        self.gpus.retain(|uuid, _| snapshot.gpu(uuid).is_some());
        for gpu in &snapshot.gpus {
            let news = self.gpus.entry(gpu.uuid.clone()).or_default();
            let mut computing = gpu
                .processes
                .iter()
                .filter(|gpu_process| gpu_process.usage != Use::Graphics)
                .peekable();
            if computing.peek().is_some() {
                news.is_in_use = true;
                news.free = 0;
                news.is_told = computing.any(|gpu_process| {
                    let known = self.processes.get(&gpu_process.process);
                    known.is_some_and(|known| known.is_told)
                });
            } else if news.is_in_use && is_free(model, gpu) {
                news.free += 1;
                if news.free >= SURE {
                    (news.is_in_use, news.free) = (false, 0);
                    if news.is_told {
                        self.free.push(gpu.uuid.clone());
                    }
                }
            } else {
                news.free = 0;
            }
        }
    }

    /// Returns the alerts on the items of the news that were not told.
    fn take_items(
        &mut self,
        model: &HostModel,
        snapshot: &Snapshot,
        scope: &AlertScope,
    ) -> Vec<Alert> {
        let mut items: Vec<&NewsItem> = model
            .news()
            .filter(|item| item.number >= self.next)
            .collect();
        items.sort_unstable_by_key(|item| item.number);
        let Some(last) = items.last() else {
            return Vec::new();
        };
        self.next = last.number + 1;
        let ended = |item: &&NewsItem| item.kind == NewsKind::Ended;
        let (ends, others): (Vec<&NewsItem>, Vec<&NewsItem>) = items
            .into_iter()
            .filter(|item| self.is_told(item, model, snapshot, scope))
            .partition(ended);
        let mut alerts = Vec::new();
        for item in others {
            let Some(kind) = alert_kind(item, model) else {
                continue;
            };
            let mut facts = self.facts(item.subject.as_ref(), model, snapshot);
            let gpu = facts.iter().find(|(name, _)| *name == "GPU");
            let is_known = gpu.is_some_and(|(_, gpu)| match kind {
                AlertKind::GpuLost => !self.lost_gpus.insert(gpu.clone()),
                AlertKind::GpuAnswers => !self.lost_gpus.remove(gpu),
                _ => false,
            });
            if is_known {
                continue;
            }
            let growing = model
                .growing()
                .iter()
                .find(|growing| Some(&growing.subject) == item.subject.as_ref());
            facts.extend(
                growing
                    .into_iter()
                    .flat_map(|growing| growth_facts(&growing.evidence)),
            );
            alerts.push(Alert {
                kind,
                sentence: item.sentence.clone(),
                facts,
            });
        }
        alerts.extend(self.ends(&ends, model, snapshot));
        alerts
    }

    fn is_told(
        &self,
        item: &NewsItem,
        model: &HostModel,
        snapshot: &Snapshot,
        scope: &AlertScope,
    ) -> bool {
        match &item.subject {
            None => true,
            Some(GpuOrProcess::Process(id)) => self.processes.get(id).map_or_else(
                || {
                    let is_known = snapshot.process(*id).is_some();
                    let subject = GpuOrProcess::Process(*id);
                    *scope == AlertScope::Everyone
                        || is_known && scope.includes(model, snapshot, &subject)
                },
                |known| known.is_told,
            ),
            // A GPU that is lost has no list of processes any more.
            Some(subject @ GpuOrProcess::Gpu(uuid)) => match self.gpus.get(uuid) {
                Some(known) if known.is_in_use => known.is_told,
                _ => scope.includes(model, snapshot, subject),
            },
        }
    }

    fn facts(
        &self,
        subject: Option<&GpuOrProcess>,
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> Vec<AlertFact> {
        match subject {
            Some(GpuOrProcess::Process(id)) => self.processes.get(id).map_or_else(
                || holder_facts(model, snapshot, *id),
                |known| known.facts.clone(),
            ),
            Some(GpuOrProcess::Gpu(uuid)) => snapshot.gpu(uuid).map(gpu_facts).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Returns one alert for the processes of each job that have ended.
    fn ends(&self, ends: &[&NewsItem], model: &HostModel, snapshot: &Snapshot) -> Vec<Alert> {
        let mut of_jobs: BTreeMap<ProcessId, Vec<(ProcessId, &NewsItem)>> = BTreeMap::new();
        for item in ends {
            let Some(GpuOrProcess::Process(id)) = item.subject else {
                continue;
            };
            if self.is_helper(id, snapshot) {
                continue;
            }
            let job = self.processes.get(&id).and_then(|known| known.job.as_ref());
            let root = job.map_or(id, |(root, _)| *root);
            of_jobs.entry(root).or_default().push((id, item));
        }
        let alerts = of_jobs.into_iter().map(|(root, ended)| {
            let (id, item) = ended[0];
            let cause = ended
                .iter()
                .find_map(|(id, item)| cause(model, *id, item.at))
                .map_or_else(String::new, |cause| format!("; {cause}"));
            let go_on = self
                .processes
                .iter()
                .filter(|(id, known)| {
                    known.job.as_ref().is_some_and(|(of, _)| *of == root) && snapshot.lives(**id)
                })
                .count();
            let go_on = match go_on {
                0 => String::new(),
                1 => "; 1 process of its job goes on".to_owned(),
                more => format!("; {more} processes of its job go on"),
            };
            let job = self.processes.get(&id).and_then(|known| known.job.as_ref());
            let sentence = match (ended.len(), job) {
                (2.., Some((root, name))) => format!(
                    "{} processes of the job {name} ({}) exited",
                    ended.len(),
                    root.pid
                ),
                _ => item.sentence.clone(),
            };
            Alert {
                kind: AlertKind::ProcessEnded,
                sentence: format!("{sentence}{go_on}{cause}"),
                facts: self.facts(Some(&GpuOrProcess::Process(id)), model, snapshot),
            }
        });
        alerts.collect()
    }

    /// Whether the process was started by another process on a GPU that lives on: programs start
    /// and end helpers, such as one for each evaluation.
    fn is_helper(&self, id: ProcessId, snapshot: &Snapshot) -> bool {
        let parent = self.processes.get(&id).and_then(|known| known.parent);
        let mut others = self
            .processes
            .keys()
            .filter(|other| snapshot.lives(**other));
        parent.is_some_and(|parent| others.any(|other| other.pid == parent))
    }

    fn take_free(&mut self, snapshot: &Snapshot) -> Vec<Alert> {
        let free = std::mem::take(&mut self.free);
        let free = free.iter().filter_map(|uuid| snapshot.gpu(uuid));
        free.map(|gpu| Alert {
            kind: AlertKind::GpuFree,
            sentence: format!("GPU {} is free", labels::gpu_label(gpu)),
            facts: gpu_facts(gpu),
        })
        .collect()
    }

    fn take_idle(&mut self, model: &HostModel, idle: Duration) -> Vec<Alert> {
        let mut alerts = Vec::new();
        for (id, news) in self.processes.iter_mut().filter(|(_, news)| news.is_told) {
            let span = match model.verdict(*id).map(|verdict| &verdict.kind) {
                Some(VerdictKind::Idle { span, .. }) => Some(*span),
                _ => None,
            };
            let name = news.facts.iter().find(|(name, _)| *name == "COMMAND");
            let name = name.map_or("", |(_, command)| command.as_str());
            let (kind, words) = match span {
                Some(span) if span >= idle && !news.is_idle => {
                    let words = format!("has not computed for {} and holds memory", Elapsed(span));
                    (AlertKind::Idle, words)
                }
                None if news.is_idle => (AlertKind::IdleOver, "is no longer idle".to_owned()),
                _ => continue,
            };
            news.is_idle = kind == AlertKind::Idle;
            // The news tell the end of a process.
            if kind == AlertKind::Idle || model.latest().is_some_and(|it| it.lives(*id)) {
                alerts.push(Alert {
                    kind,
                    sentence: format!("{} ({name}) {words}", id.pid),
                    facts: news.facts.clone(),
                });
            }
        }
        alerts
    }
}

/// Returns the facts of a process that has GPUs open without being listed for them.
fn holder_facts(model: &HostModel, snapshot: &Snapshot, id: ProcessId) -> Vec<AlertFact> {
    let mut facts = process_facts(model, snapshot, id);
    facts.retain(|(name, _)| *name != "GPU");
    let open = model.verdict(id).map(|verdict| verdict.open.as_slice());
    match open.unwrap_or_default() {
        [] => {}
        [one] => facts.extend(snapshot.gpus.get(*one).map(gpu_facts).unwrap_or_default()),
        more => facts.push(("GPU", labels::gpu_labels(snapshot, more))),
    }
    facts.extend(model.job(id).into_iter().flat_map(job_facts));
    facts
}

/// Returns the name of a job, and its scheduler or container.
fn job_facts(job: &Job) -> impl Iterator<Item = AlertFact> {
    let origin = job
        .origin
        .as_ref()
        .ok()
        .map(|origin| ("JOB_ORIGIN", origin.to_string()));
    std::iter::once(("JOB", job.name.clone())).chain(origin)
}

/// The kind of alert that an item of the news is; `None` for those that are not told.
fn alert_kind(item: &NewsItem, model: &HostModel) -> Option<AlertKind> {
    Some(match item.kind {
        NewsKind::Leak => AlertKind::Leak,
        NewsKind::FullSoon => AlertKind::OutOfMemorySoon,
        NewsKind::LeakOver | NewsKind::FullNoMore => AlertKind::LeakOver,
        NewsKind::OutOfMemory => AlertKind::OutOfMemory,
        NewsKind::GpuTrouble => AlertKind::GpuLost,
        NewsKind::GpuAnswers => AlertKind::GpuAnswers,
        // Others are errors of a program.
        NewsKind::Xid if item.severity == Severity::Bad => AlertKind::Xid,
        NewsKind::Suspect => {
            let Some(GpuOrProcess::Process(id)) = item.subject else {
                return None;
            };
            return match model.verdict(id)?.kind {
                VerdictKind::Orphan(_) | VerdictKind::MaybeOrphan(_) | VerdictKind::Ghost { .. } => {
                    Some(AlertKind::Orphan)
                }
                _ => None,
            };
        }
        // These ends are told for each job; a lost host by the recorder, which knows the reason.
        NewsKind::Ended
        | NewsKind::HostLost
        // People see or do these at a screen.
        | NewsKind::Xid
        | NewsKind::Began
        | NewsKind::Signalled
        | NewsKind::Watched
        | NewsKind::Unseen => return None,
    })
}

/// Returns why a process ended, if that is known.
fn cause(model: &HostModel, id: ProcessId, ended: Moment) -> Option<String> {
    let subject = GpuOrProcess::Process(id);
    let before = model.news().rev().find(|item| {
        matches!(item.kind, NewsKind::OutOfMemory | NewsKind::Signalled)
            && item.subject.as_ref() == Some(&subject)
            && ended.since(item.at) < CAUSE
    })?;
    Some(if before.kind == NewsKind::OutOfMemory {
        "it had run out of GPU memory".to_owned()
    } else {
        format!("gputop: {}", before.sentence)
    })
}

/// The root of a job, living or not; `None` where it was never seen.
fn root(key: &JobKey) -> Option<ProcessId> {
    match key {
        JobKey::Root(root) | JobKey::Ended(root) => Some(*root),
        JobKey::Run(..) | JobKey::Group(..) => None,
    }
}
