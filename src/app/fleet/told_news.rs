//! The news that a recorder tells to people who are not at the screen: each once, with its end.
//!
//! The model finds the news, and the checkpoints of a recording keep them: a recorder that was
//! started again does not tell what was told. Three things are found here: GPUs that are lost or
//! become free, processes that have not computed for long, and whether a process that the driver no
//! longer lists has ended.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::alert_scope::AlertScope;
use super::alerts::{AlertFact, SURE, gpu_facts, growth_facts, process_facts};
use crate::app::event::{Alert, AlertKind};
use crate::base::text::Text;
use crate::base::units::{Elapsed, Moment};
use crate::model::{
    Fleet, GpuOrProcess, HostModel, Job, JobKey, NewsItem, NewsKind, OrphanSign, Severity,
    VerdictKind, short_name,
};
use crate::output::labels;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Gpu, GpuUuid, ProcessId, Snapshot, Use};

/// How often the facts of a process are looked up again while it lives.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(5);

/// How long the facts of a process are kept after its end, for news about it.
const KEPT: Duration = Duration::from_mins(5);

/// A process that another process on a GPU started is a helper, such as one for each evaluation, if
/// it ends within this time.
const HELPER: Duration = Duration::from_mins(10);

/// An out-of-memory error, or a signal of gputop, this long before the end of a process is its
/// cause.
const CAUSE: Duration = Duration::from_mins(1);

/// The users whose news are told, and the time after which a process that does not compute is idle.
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
    /// Alerts on GPUs that were not told.
    of_gpus: Vec<Alert>,
    /// The orphans that were told: after a restart of the agent, another reason is known.
    orphans: BTreeSet<ProcessId>,
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
    gpus: Vec<GpuUuid>,
    began: Moment,
    /// The sentence on its end, while it is not known whether it has ended: it may only have
    /// released its memory, or its GPU may be lost.
    end: Option<String>,
    looked_up: Moment,
    seen: Moment,
    /// Whether it was told that the process is idle.
    is_idle: bool,
}

#[derive(Debug, Default)]
struct GpuNews {
    label: String,
    /// Whether a process of those whose news are told used it last.
    is_told: bool,
    is_in_use: bool,
    is_lost: bool,
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
        news.see_gpus(model, snapshot, &self.options.scope);
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
        alerts.append(&mut news.of_gpus);
        alerts.extend(news.take_free(snapshot));
        alerts.extend(news.take_idle(model, self.options.idle));
        if std::mem::take(&mut news.is_lost) {
            alerts.insert(
                0,
                of_host(AlertKind::HostAnswers, "reports again".to_owned()),
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
        let sentence = format!("no longer reports: {reason}");
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
        if matches!(alert.kind, AlertKind::HostLost | AlertKind::HostAnswers) {
            alert.sentence = format!("{name} {}", alert.sentence);
        } else if fleet.has_many() {
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
            let age = process.and_then(|process| labels::elapsed(snapshot, process).ok());
            let gpus = snapshot.gpus.iter().filter(|gpu| gpu.process(id).is_some());
            let gpus = gpus.map(|gpu| gpu.uuid.clone()).collect();
            let has_user = process.is_some_and(|process| process.facts.user.is_ok());
            let job = model.job(id);
            let mut facts = process_facts(model, snapshot, id);
            facts.extend(job.into_iter().flat_map(job_facts));
            let news = ProcessNews {
                is_told: scope.includes(model, snapshot, &GpuOrProcess::Process(id)),
                facts,
                job: job.and_then(|job| Some((root(&job.key)?, job.name.clone()))),
                parent: process.and_then(|process| process.facts.parent.ok()),
                gpus,
                began: now.before(age.unwrap_or_default()),
                end: None,
                // Both are read after the first snapshot.
                looked_up: if has_arguments && has_user {
                    now
                } else {
                    Moment(0)
                },
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

    /// Whether the driver still lists a PID whose process has ended. It releases the memory a moment
    /// later; that is not the end of another process.
    fn is_rest(&self, id: ProcessId) -> bool {
        id.start_ticks.is_none()
            && self
                .processes
                .keys()
                .any(|known| known.pid == id.pid && known.start_ticks.is_some())
    }

    fn see_gpus(&mut self, model: &HostModel, snapshot: &Snapshot, scope: &AlertScope) {
        for gpu in &snapshot.gpus {
            self.find_renamed(gpu, snapshot);
            let news = self.gpus.entry(gpu.uuid.clone()).or_default();
            news.label = labels::gpu_label(gpu);
            let is_lost = match &gpu.trouble {
                Some(trouble) if trouble.is_starting() => news.is_lost,
                trouble => trouble.is_some(),
            };
            if std::mem::replace(&mut news.is_lost, is_lost) != is_lost
                && (news.is_told || !news.is_in_use)
                && scope.includes(model, snapshot, &GpuOrProcess::Gpu(gpu.uuid.clone()))
            {
                let (kind, words) = match &gpu.trouble {
                    Some(trouble) => (AlertKind::GpuLost, format!(": {}", trouble.cause)),
                    None => (AlertKind::GpuAnswers, " answers again".to_owned()),
                };
                self.of_gpus.push(Alert {
                    kind,
                    sentence: format!("GPU {}{words}", news.label),
                    facts: gpu_facts(gpu),
                });
            }
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
            } else if news.is_in_use && model.is_free(gpu) {
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

    /// Finds what is known of a GPU under its other name: a GPU that is lost when the agent starts
    /// has no UUID, and has one again when it answers. Its index is all that it keeps.
    fn find_renamed(&mut self, gpu: &Gpu, snapshot: &Snapshot) {
        if self.gpus.contains_key(&gpu.uuid) {
            return;
        }
        let label = labels::gpu_label(gpu);
        let is_other_name = |(uuid, news): &(&GpuUuid, &GpuNews)| {
            news.label == label
                && (uuid.is_unknown() || gpu.uuid.is_unknown())
                && snapshot.gpu(uuid).is_none()
        };
        let known = self.gpus.iter().find(is_other_name);
        if let Some(uuid) = known.map(|(uuid, _)| uuid.clone())
            && let Some(news) = self.gpus.remove(&uuid)
        {
            self.gpus.insert(gpu.uuid.clone(), news);
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
        self.next = items.last().map_or(self.next, |last| last.number + 1);
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
            let mut sentence = item.sentence.clone();
            if kind == AlertKind::Orphan
                && let Some(GpuOrProcess::Process(id)) = item.subject
            {
                if !self.orphans.insert(id) {
                    continue;
                }
                sentence = without_commands(sentence, model, id);
            }
            let growing = model
                .growing()
                .iter()
                .find(|growing| Some(&growing.subject) == item.subject.as_ref());
            facts.extend(growing.into_iter().flat_map(growth_facts));
            alerts.push(Alert {
                kind,
                sentence,
                facts,
            });
        }
        if model.is_complete() {
            self.orphans.retain(|id| snapshot.process(*id).is_some());
        }
        let ends = self.certain_ends(&ends, model, snapshot);
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

    /// Returns the processes that have ended, and what the news say of it. News of an end only say
    /// that the driver lists the process no longer. The first snapshots of an agent lack processes.
    fn certain_ends(
        &mut self,
        ends: &[&NewsItem],
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> Vec<(ProcessId, String)> {
        let mut certain = Vec::new();
        for item in ends {
            let id = match item.subject {
                Some(GpuOrProcess::Process(id)) if !self.is_rest(id) => id,
                _ => continue,
            };
            match self.processes.get_mut(&id) {
                Some(known) => known.end = Some(item.sentence.clone()),
                None if model.is_complete() && !snapshot.lives(id) => {
                    certain.push((id, item.sentence.clone()));
                }
                None => {}
            }
        }
        let gpus = &self.gpus;
        let is_lost = |gpu: &GpuUuid| gpus.get(gpu).is_none_or(|gpu| gpu.is_lost);
        let open = self
            .processes
            .iter_mut()
            .filter(|(_, known)| known.end.is_some());
        for (id, known) in open {
            let is_listed = snapshot.gpus.iter().any(|gpu| gpu.process(*id).is_some());
            if is_listed {
                known.end = None;
            } else if model.is_complete() && !snapshot.lives(*id) && !known.gpus.iter().any(is_lost)
            {
                certain.extend(known.end.take().map(|sentence| (*id, sentence)));
            }
        }
        certain
    }

    /// Returns one alert for the processes of each job that have ended.
    fn ends(
        &self,
        ends: &[(ProcessId, String)],
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> Vec<Alert> {
        let mut of_jobs: BTreeMap<ProcessId, Vec<(ProcessId, &str)>> = BTreeMap::new();
        for (id, sentence) in ends {
            let id = *id;
            if self.is_helper(id, snapshot) {
                continue;
            }
            let job = self.processes.get(&id).and_then(|known| known.job.as_ref());
            let root = job.map_or(id, |(root, _)| *root);
            of_jobs.entry(root).or_default().push((id, sentence));
        }
        let alerts = of_jobs.into_iter().map(|(root, ended)| {
            let (id, sentence) = ended[0];
            let cause = ended
                .iter()
                .find_map(|(id, _)| cause(model, *id, snapshot.at))
                .map_or_else(String::new, |cause| format!("; {cause}"));
            let go_on = self
                .processes
                .iter()
                .filter(|(id, known)| {
                    known.job.as_ref().is_some_and(|(of, _)| *of == root)
                        && snapshot.lives(**id)
                        && !self.is_rest(**id)
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
                _ => sentence.replace("released its GPU memory", "exited"),
            };
            let mut facts = self.facts(Some(&GpuOrProcess::Process(id)), model, snapshot);
            self.add_gpus(&ended, &mut facts);
            Alert {
                kind: AlertKind::ProcessEnded,
                sentence: format!("{sentence}{go_on}{cause}"),
                facts,
            }
        });
        alerts.collect()
    }

    /// Puts the GPUs of all of these processes in place of those of the first.
    fn add_gpus(&self, ended: &[(ProcessId, &str)], facts: &mut Vec<AlertFact>) {
        if ended.len() == 1 {
            return;
        }
        facts.retain(|(name, _)| !["GPU", "GPU_UUID"].contains(name));
        let known = ended.iter().filter_map(|(id, _)| self.processes.get(id));
        let gpus: BTreeSet<&str> = known
            .flat_map(|known| &known.gpus)
            .filter_map(|uuid| Some(self.gpus.get(uuid)?.label.as_str()))
            .collect();
        let gpus: Vec<&str> = gpus.into_iter().collect();
        facts.push(("GPU", gpus.join(", ")));
    }

    /// Whether the process was started by another process on a GPU that lives on, and soon ended.
    fn is_helper(&self, id: ProcessId, snapshot: &Snapshot) -> bool {
        let known = self.processes.get(&id);
        let known = known.filter(|known| snapshot.at.since(known.began) < HELPER);
        let parent = known.and_then(|known| known.parent);
        // A later process has the PID of a parent that has ended.
        let mut others = self
            .processes
            .keys()
            .filter(|other| other.start_ticks <= id.start_ticks && snapshot.lives(**other));
        parent.is_some_and(|parent| others.any(|other| other.pid == parent))
    }

    fn take_free(&mut self, snapshot: &Snapshot) -> Option<Alert> {
        let free = std::mem::take(&mut self.free);
        let free: Vec<&Gpu> = free.iter().filter_map(|uuid| snapshot.gpu(uuid)).collect();
        let labels: Vec<String> = free.iter().map(|gpu| labels::gpu_label(gpu)).collect();
        let (sentence, facts) = match free.as_slice() {
            [] => return None,
            [one] => (format!("GPU {} is free", labels[0]), gpu_facts(one)),
            _ => {
                let labels = labels.join(", ");
                (format!("GPUs {labels} are free"), vec![("GPU", labels)])
            }
        };
        Some(Alert {
            kind: AlertKind::GpuFree,
            sentence,
            facts,
        })
    }

    fn take_idle(&mut self, model: &HostModel, idle: Duration) -> Vec<Alert> {
        let mut alerts = Vec::new();
        for (id, news) in self.processes.iter_mut().filter(|(_, news)| news.is_told) {
            let span = match model.verdict(*id).map(|verdict| &verdict.kind) {
                Some(VerdictKind::Idle { span, .. }) => Some(*span),
                _ => None,
            };
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
                let process = model.latest().and_then(|latest| latest.process(*id));
                let name = process.and_then(|process| short_name(&process.facts).ok());
                let name = name.unwrap_or_default();
                alerts.push(Alert {
                    kind,
                    sentence: format!("{} {name} {words}", id.pid),
                    facts: news.facts.clone(),
                });
            }
        }
        alerts
    }
}

/// Puts short names in place of the command lines in the sentence on an orphan: these are sent only
/// on request.
fn without_commands(sentence: String, model: &HostModel, id: ProcessId) -> String {
    let kind = model.verdict(id).map(|verdict| &verdict.kind);
    let Some(VerdictKind::Orphan(orphaned) | VerdictKind::MaybeOrphan(orphaned)) = kind else {
        return sentence;
    };
    let others = orphaned.signs.iter().filter_map(|sign| match sign {
        OrphanSign::CreatorEnded(ended) => Some(&ended.process),
        OrphanSign::StarterIsOrphan(starter) => Some(starter),
        _ => None,
    });
    others.fold(sentence, |sentence, other| {
        let short = format!("{}, {}", other.id.pid, other.program());
        sentence.replace(&other.to_string(), &short)
    })
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
        // A lost GPU has another UUID in the next run of the agent.
        | NewsKind::GpuTrouble
        | NewsKind::GpuAnswers
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
