//! Alerts: a leak, memory that runs out soon whatever the verdict, a watched GPU that becomes free,
//! a watched process that ends. Each is raised once.

use std::collections::HashMap;
use std::time::Duration;

use crate::app::AppOptions;
use crate::app::event::{Alert, AlertKind};
use crate::base::units::Moment;
use crate::model::{Fleet, GpuOrProcess, Growing, HostModel, HostSubject};
use crate::output::labels;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Gpu, Identity, ProcessId, Snapshot, State};

/// Growth that stops and starts again within this time is the same growth, and raises no second
/// alert.
const SAME: Duration = Duration::from_mins(10);

/// After memory was about to run out, the forecast must exceed the warning time by this factor
/// before it raises another alert.
const FARTHER: u32 = 2;

/// How many consecutive snapshots must show that a process has ended or a GPU is free: a single
/// list of the driver may lack a process.
pub(super) const SURE: u8 = 2;

/// The least time that an alert stays on the screen; then it stays until a key is pressed.
const READ: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct AlertedGrowth {
    /// Whether an alert said that memory runs out soon.
    is_soon: bool,
    /// Whether an alert said that it is a leak, or that it runs out of memory soon while it was
    /// one.
    is_leak: bool,
    /// The moment when the growth stopped; `None` while it continues.
    calm: Option<Moment>,
}

#[derive(Debug)]
struct Watched {
    subject: HostSubject,
    command: String,
    /// The number of consecutive snapshots in which the subject had ended or was free.
    agreeing: u8,
}

#[derive(Debug)]
struct News {
    sentence: String,
    host: HostKey,
    at: Moment,
}

#[derive(Debug, Default)]
pub(crate) struct Alerts {
    growths: HashMap<HostSubject, AlertedGrowth>,
    watched: Vec<Watched>,
    /// `None` once the user has read the news.
    news: Option<News>,
}

impl Alerts {
    /// Watches a process until it ends, or a GPU until it is free; or stops watching it. Returns a
    /// notice; `None` if the subject is gone.
    pub(in crate::app) fn watch(&mut self, subject: HostSubject, fleet: &Fleet) -> Option<String> {
        let model = fleet.host(subject.host)?;
        let snapshot = model.latest()?;
        let name = subject_name(&subject.subject, snapshot);
        if self
            .watched
            .extract_if(.., |watched| watched.subject == subject)
            .count()
            > 0
        {
            return Some(format!("{name} is no longer watched"));
        }
        let (command, aim) = match &subject.subject {
            GpuOrProcess::Process(id) => {
                let process = snapshot.process(*id)?;
                if process.facts.identity == Identity::Unverified
                    || process.load.state == Ok(State::Zombie)
                {
                    return Some(format!("the end of {name} cannot be seen from here"));
                }
                (command(snapshot, *id), "it ends")
            }
            GpuOrProcess::Gpu(uuid) if model.is_free(snapshot.gpu(uuid)?) => {
                return Some(format!("{name} is free now"));
            }
            GpuOrProcess::Gpu(_) => (String::new(), "nobody is on it"),
        };
        self.watched.push(Watched {
            subject,
            command,
            agreeing: 0,
        });
        Some(format!("{name} is watched: gputop says when {aim}"))
    }

    pub(crate) fn is_watched(&self, subject: &HostSubject) -> bool {
        self.watched
            .iter()
            .any(|watched| watched.subject == *subject)
    }

    pub(crate) fn news(&self) -> Option<&str> {
        self.news.as_ref().map(|news| news.sentence.as_str())
    }

    /// Forgets the news after a key press, if it was on the screen long enough: the user is there
    /// and has read it.
    pub(in crate::app) fn read(&mut self, fleet: &Fleet) {
        self.news.take_if(|news| {
            fleet
                .host(news.host)
                .is_none_or(|model| model.now().since(news.at) >= READ)
        });
    }

    /// Begins anew after a jump of a recording. Leaks that are known there raise no alert.
    pub(in crate::app) fn restart(&mut self, fleet: &mut Fleet, options: &AppOptions) {
        let watched = std::mem::take(&mut self.watched);
        *self = Self::default();
        let hosts: Vec<HostKey> = fleet.hosts().map(|(host, _)| host).collect();
        for host in hosts {
            self.update(host, fleet, options);
        }
        self.watched = watched;
    }

    pub(in crate::app) fn update(
        &mut self,
        host: HostKey,
        fleet: &mut Fleet,
        options: &AppOptions,
    ) -> Vec<Alert> {
        let Some(model) = fleet.host(host) else {
            return Vec::new();
        };
        let Some(snapshot) = model.latest() else {
            return Vec::new();
        };
        let mut alerts = self.growths(host, model, snapshot, options);
        let leaks = alerts.len();
        let (subjects, watched): (Vec<HostSubject>, Vec<Alert>) =
            self.ended_and_free(host, model, snapshot).unzip();
        let sentences: Vec<String> = watched.iter().map(|alert| alert.sentence.clone()).collect();
        alerts.extend(watched);
        let now = model.now();
        if fleet.has_many() {
            for alert in &mut alerts {
                alert.sentence = format!("{}: {}", fleet.name(host), alert.sentence);
                alert.facts.push(("HOST", fleet.name(host).to_owned()));
            }
        }
        // A leak is no news: the header names it for as long as it lasts.
        if let Some(alert) = alerts[leaks..].last() {
            self.news = Some(News {
                sentence: alert.sentence.clone(),
                host,
                at: now,
            });
        }
        for (subject, sentence) in subjects.into_iter().zip(sentences) {
            fleet.add_alert(subject, &sentence);
        }
        alerts
    }

    /// Returns an alert for each watched process of a host that has ended, and each watched GPU
    /// that is free. Stops watching these.
    fn ended_and_free(
        &mut self,
        host: HostKey,
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> impl Iterator<Item = (HostSubject, Alert)> {
        for watched in self
            .watched
            .iter_mut()
            .filter(|watched| watched.subject.host == host)
        {
            let is_over = match &watched.subject.subject {
                // The first snapshots of a new agent lack processes.
                GpuOrProcess::Process(id) => !snapshot.lives(*id) && model.is_complete(),
                GpuOrProcess::Gpu(uuid) => snapshot.gpu(uuid).is_some_and(|gpu| model.is_free(gpu)),
            };
            watched.agreeing = if is_over { watched.agreeing + 1 } else { 0 };
        }
        let over = self
            .watched
            .extract_if(.., |watched| watched.agreeing >= SURE);
        over.map(
            |Watched {
                 subject, command, ..
             }| {
                let alert = match &subject.subject {
                    GpuOrProcess::Process(id) => Alert {
                        kind: AlertKind::ProcessEnded,
                        sentence: format!("{} ({command}) has ended", id.pid),
                        facts: vec![("PID", id.pid.to_string()), ("COMMAND", command)],
                    },
                    GpuOrProcess::Gpu(uuid) => Alert {
                        kind: AlertKind::GpuFree,
                        sentence: format!("{} is free", subject_name(&subject.subject, snapshot)),
                        facts: snapshot.gpu(uuid).map(gpu_facts).unwrap_or_default(),
                    },
                };
                (subject, alert)
            },
        )
    }

    fn growths(
        &mut self,
        host: HostKey,
        model: &HostModel,
        snapshot: &Snapshot,
        options: &AppOptions,
    ) -> Vec<Alert> {
        let AppOptions {
            warn_before,
            alert_scope,
            ..
        } = options;
        let now = snapshot.at;
        let is_calm =
            |growth: &AlertedGrowth| growth.calm.is_some_and(|calm| now.since(calm) >= SAME);
        self.growths
            .retain(|subject, growth| subject.host != host || !is_calm(growth));
        for (_, growth) in self
            .growths
            .iter_mut()
            .filter(|(subject, _)| subject.host == host)
        {
            growth.calm.get_or_insert(now);
        }
        let mut alerts = Vec::new();
        for growing in model.growing().iter().filter(|growing| {
            (growing.is_leak() || growing.is_urgent())
                && alert_scope.includes(model, snapshot, &growing.subject)
        }) {
            // Growth that is no leak counts once it is urgent.
            let left = growing.left().filter(|_| growing.is_leak());
            let is_soon = growing.is_urgent() || left.is_some_and(|left| left <= *warn_before);
            let key = HostSubject {
                host,
                subject: growing.subject.clone(),
            };
            let growth = self.growths.entry(key.clone()).or_default();
            growth.calm = None;
            if left.is_some_and(|left| left > warn_before.saturating_mul(FARTHER)) {
                growth.is_soon = false;
            }
            let is_sooner = is_soon && !growth.is_soon;
            let is_new_leak = growing.is_leak() && !growth.is_leak;
            growth.is_soon |= is_soon;
            growth.is_leak |= growing.is_leak();
            if is_new_leak || is_sooner {
                let kind = if is_sooner {
                    AlertKind::OutOfMemorySoon
                } else {
                    AlertKind::Leak
                };
                alerts.push(about_growth(model, snapshot, &key.subject, growing, kind));
            }
        }
        alerts
    }
}

fn about_growth(
    model: &HostModel,
    snapshot: &Snapshot,
    subject: &GpuOrProcess,
    growing: &Growing,
    kind: AlertKind,
) -> Alert {
    let (who, mut facts) = match subject {
        GpuOrProcess::Process(id) => (
            format!("{} ({})", id.pid, command(snapshot, *id)),
            process_facts(model, snapshot, *id),
        ),
        GpuOrProcess::Gpu(uuid) => {
            let facts = snapshot.gpu(uuid).map(gpu_facts).unwrap_or_default();
            (
                format!("what is on {}", subject_name(subject, snapshot)),
                facts,
            )
        }
    };
    facts.extend(growth_facts(growing));
    let does = if kind == AlertKind::Leak {
        "leaks"
    } else {
        "runs out of memory soon"
    };
    Alert {
        kind,
        sentence: format!("{who} {does}: {}", growing.reason()),
        facts,
    }
}

/// A name in capitals, and a value.
pub(super) type AlertFact = (&'static str, String);

/// Returns the PID, command, user and GPUs of a process.
pub(super) fn process_facts(
    model: &HostModel,
    snapshot: &Snapshot,
    id: ProcessId,
) -> Vec<AlertFact> {
    let mut facts = vec![
        ("PID", id.pid.to_string()),
        ("COMMAND", command(snapshot, id)),
    ];
    facts.extend(
        id.start_ticks
            .map(|ticks| ("START_TICKS", ticks.to_string())),
    );
    if let Some(Ok(user)) = snapshot.process(id).map(|process| &process.facts.user) {
        facts.push(("USER", user.to_string()));
    }
    let places = model
        .process_total(id)
        .map(|total| total.gpus.as_slice())
        .unwrap_or_default();
    match places {
        [one] => facts.extend(snapshot.gpus.get(*one).map(gpu_facts).unwrap_or_default()),
        more => facts.push(("GPU", labels::gpu_labels(snapshot, more))),
    }
    facts
}

pub(super) fn growth_facts(growing: &Growing) -> Vec<AlertFact> {
    let evidence = &growing.evidence;
    let mut facts = vec![("RATE_BYTES_PER_S", format!("{:.0}", evidence.rate.0))];
    if let Some(forecast) = evidence.forecast {
        facts.push(("OOM_IN_S", forecast.likely.as_secs().to_string()));
    }
    if let Some(line) = &growing.line {
        facts.push(("LEAK_LINE", line.clone()));
    }
    facts
}

pub(super) fn gpu_facts(gpu: &Gpu) -> Vec<AlertFact> {
    vec![
        ("GPU", labels::gpu_label(gpu)),
        ("GPU_UUID", gpu.uuid.0.to_string()),
    ]
}

/// The name of a subject in a sentence: `4711`, or `GPU 0`.
fn subject_name(subject: &GpuOrProcess, snapshot: &Snapshot) -> String {
    match subject {
        GpuOrProcess::Process(id) => id.pid.to_string(),
        GpuOrProcess::Gpu(uuid) => format!(
            "GPU {}",
            snapshot
                .gpu(uuid)
                .map(labels::gpu_label)
                .unwrap_or_default()
        ),
    }
}

fn command(snapshot: &Snapshot, id: ProcessId) -> String {
    snapshot
        .process(id)
        .and_then(|process| labels::command(process).ok())
        .unwrap_or_else(|| "?".to_owned())
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent};

    use super::*;
    use crate::app::App;
    use crate::app::event::{Effect, Event};
    use crate::base::units::{Bytes, Percent};
    use crate::protocol::host_key::HostKey;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::ProbeReading;
    use crate::protocol::snapshot::example::host;

    fn see(app: &mut App, host: &Snapshot) -> Vec<Alert> {
        match app.update(Event::Line(
            HostKey::FIRST,
            Box::new(Line::Full(Box::new(host.clone()))),
        )) {
            Some(Effect::Alert(alerts)) => alerts,
            None => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    fn app() -> App {
        let mut app = App::new(AppOptions::default());
        app.update(Event::Resized(100, 30));
        app
    }

    fn key(app: &mut App, code: KeyCode) {
        app.update(Event::Key(KeyEvent::from(code)));
    }

    #[test]
    fn a_likely_leak_of_the_probe_raises_an_alert_with_its_line_and_a_possible_one_none() {
        let reported = |sure: &str| {
            let leak = serde_json::json!({
                "cuda_device": 0, "category": "activations", "sure": sure, "bytes_per_second": 1 << 20,
                "held_by": ["list outputs, train.py:41 in main"],
            });
            let report = serde_json::json!({"version": 2, "leaks": [leak]});
            Some(std::sync::Arc::new(ProbeReading {
                report: Some(serde_json::from_value(report).expect("a report")),
                missing: None,
            }))
        };
        let (mut app, mut host) = (
            app(),
            host(1).with(101, "python train.py", 0, Bytes::from_gib(10)),
        );
        host.processes[0].probe = reported("maybe");
        assert_eq!(see(&mut app, &host).len(), 0);
        host = host.later(2);
        host.processes[0].probe = reported("likely");
        let alerts = see(&mut app, &host);
        let sentences: Vec<&str> = alerts.iter().map(|alert| alert.sentence.as_str()).collect();
        assert_eq!(
            sentences,
            ["101 (python train.py) leaks: train.py:41, +60 MiB/min (by the probe)"]
        );
        let line = ("LEAK_LINE", "train.py:41".to_owned());
        assert!(alerts[0].facts.contains(&line), "{alerts:#?}");
        assert_eq!(see(&mut app, &host.later(2)).len(), 0, "it is told once");
    }

    #[test]
    fn a_leak_raises_an_alert_once_and_again_when_memory_runs_out_soon() {
        let (mut app, mut alerts) = (app(), Vec::new());
        let mut host = host(1).with(101, "python train.py", 0, Bytes::from_gib(10));
        // At 8 MiB per second, memory is full after two and a half hours.
        for _ in 0..800 {
            host = host.later(10);
            let gpu_processes = host.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes);
            gpu_processes
                .filter_map(|process| process.memory.as_mut().ok())
                .for_each(|memory| memory.0 += 80 << 20);
            host.gpus[0].load.memory_used = host.gpus[0].processes[0].memory;
            alerts.extend(see(&mut app, &host));
        }
        assert_eq!(
            alerts.iter().map(|alert| alert.kind).collect::<Vec<_>>(),
            [AlertKind::Leak, AlertKind::OutOfMemorySoon],
            "{alerts:#?}"
        );
        let sentence = &alerts[0].sentence;
        assert!(
            ["+4", "+50"]
                .iter()
                .any(|rate| sentence.starts_with(&format!("101 (python train.py) leaks: {rate}")))
                && sentence.contains(" MiB/min "),
            "{sentence}"
        );
        let fact = |name| {
            alerts[1]
                .facts
                .iter()
                .find(|fact| fact.0 == name)
                .map(|fact| fact.1.as_str())
        };
        assert_eq!(
            (fact("PID"), fact("USER"), fact("GPU"), fact("GPU_UUID")),
            (Some("101"), Some("alice"), Some("0"), Some("GPU-0"))
        );
        let left: u64 = fact("OOM_IN_S").unwrap().parse().unwrap();
        assert!((3000..=3600).contains(&left), "{left}");
        let named = app.named_trouble();
        assert!(
            named
                .as_ref()
                .is_some_and(|named| named.text == "LEAK: 101 train.py"),
            "{named:?}"
        );
    }

    #[test]
    fn the_end_of_a_watched_process_raises_one_alert_that_stays_until_read() {
        let mut app = app();
        let host = host(1).with(101, "python train.py", 0, Bytes::from_gib(10));
        see(&mut app, &host);
        key(&mut app, KeyCode::Char('w'));
        assert!(
            app.notice
                .text()
                .is_some_and(|notice| notice.contains("101 is watched"))
        );
        assert_eq!(see(&mut app, &host.later(1)), []);
        let without = host.clone().without(101);
        assert_eq!(
            see(&mut app, &without.later(2)),
            [],
            "a list may have a hole"
        );
        let alerts = see(&mut app, &without.later(3));
        assert_eq!(
            alerts
                .iter()
                .map(|alert| alert.sentence.as_str())
                .collect::<Vec<_>>(),
            ["101 (python train.py) has ended"]
        );
        assert_eq!(see(&mut app, &without.later(4)), []);
        key(&mut app, KeyCode::Right);
        assert_eq!(
            app.alerts.news(),
            Some("101 (python train.py) has ended"),
            "nobody reads that fast"
        );
        see(&mut app, &without.later(20));
        key(&mut app, KeyCode::Right);
        assert_eq!(app.alerts.news(), None);
    }

    #[test]
    fn a_watched_gpu_raises_an_alert_when_it_is_free() {
        let mut app = app();
        let mut host = host(2).with(101, "python train.py", 1, Bytes::from_gib(10));
        host.gpus[0].load.sm = Ok(Percent::new(0.0));
        see(&mut app, &host);
        key(&mut app, KeyCode::Tab);
        key(&mut app, KeyCode::Char('w'));
        assert!(
            app.notice
                .text()
                .is_some_and(|notice| notice.contains("GPU 0 is free now")),
            "{:?}",
            app.notice.text()
        );
        key(&mut app, KeyCode::Right);
        key(&mut app, KeyCode::Char('w'));
        let without = host.clone().without(101);
        let alerts: Vec<_> = (1..5)
            .flat_map(|second| see(&mut app, &without.later(second)))
            .collect();
        assert_eq!(
            alerts
                .iter()
                .map(|alert| (alert.kind, alert.sentence.as_str()))
                .collect::<Vec<_>>(),
            [(AlertKind::GpuFree, "GPU 1 is free")]
        );
        // Nothing is reported about a GPU that is no longer watched.
        see(&mut app, &host.later(10));
        key(&mut app, KeyCode::Char('w'));
        key(&mut app, KeyCode::Char('w'));
        assert_eq!(
            (11..14)
                .flat_map(|second| see(&mut app, &without.later(second)))
                .count(),
            0
        );
    }
}
