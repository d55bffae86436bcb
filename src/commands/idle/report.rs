//! The report of `gputop idle`: the GPUs that are held idle, the totals of users and jobs, and what
//! is not known.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::NowHere;
use super::allocated::AllocatedJob;
use super::held_row::HeldRow;
use super::unknown_gpus::{self, UnknownGpus};
use crate::base::time::WallClock;
use crate::commands::live::read_hosts::HostState;
use crate::model::{GpuTime, HELD_IDLE_AFTER, HostModel, IdleHold};
use crate::output::Exit;
use crate::output::labels;
use crate::output::table::{self, Heading};
use crate::protocol::slurm_job::SlurmJob;
use crate::protocol::snapshot::{Gpu, Process, Snapshot, Use};

const COLUMNS: [Heading; 8] = [
    ("HOST", false),
    ("USER", false),
    ("GPUS", false),
    ("GPU-HOURS", true),
    ("IDLE", true),
    ("MEMORY", true),
    ("PID", true),
    ("JOB", false),
];

/// A host, and the GPUs of which nothing is known.
struct IdleHost<'a> {
    state: &'a HostState<'a>,
    unknown: Vec<UnknownGpus>,
}

/// The report on all hosts.
pub(super) struct IdleReport<'a> {
    hosts: Vec<IdleHost<'a>>,
    /// The job of `--slurm`; `None` without it.
    allocated: Option<AllocatedJob<'a>>,
    /// The user with the most GPU-hours first.
    rows: Vec<HeldRow<'a>>,
    /// How long the hosts were watched.
    watched: Duration,
    /// Whether a recording was read, which may have ended long ago.
    is_of_recording: bool,
    now: NowHere,
}

/// The GPUs and GPU-hours of a user, of a job or of all.
#[derive(Debug, Default)]
struct IdleTotals<'a> {
    gpus: BTreeSet<(&'a str, &'a str)>,
    time: GpuTime,
}

impl<'a> IdleTotals<'a> {
    /// Adds up rows. A GPU that several of them hold counts once, with its longest time.
    fn of<'r>(rows: impl Iterator<Item = &'r HeldRow<'a>> + Clone) -> Self
    where
        'a: 'r,
    {
        let mut totals = Self::default();
        let hosts: BTreeSet<&str> = rows.clone().map(|row| row.host).collect();
        let time = hosts.into_iter().map(|host| {
            let of_host = || rows.clone().filter(|row| row.host == host);
            let now = of_host().next().map(|row| row.model.now());
            let holds = of_host().flat_map(|row| &row.holds);
            GpuTime::of(holds, now.unwrap_or_default())
        });
        totals.time = time.sum();
        for row in rows {
            let places = row.holds.iter().map(|hold| hold.gpu);
            let gpus = places.filter_map(|place| row.snapshot.gpus.get(place));
            totals
                .gpus
                .extend(gpus.map(|gpu| (row.host, gpu.uuid.0.as_str())));
        }
        totals
    }

    /// `4 GPUs, ≥2.4 GPU-hours`
    fn words(&self) -> String {
        let count = self.gpus.len();
        let plural = if count == 1 { "" } else { "s" };
        format!(
            "{count} GPU{plural}, {} GPU-hours",
            labels::gpu_hours(self.time)
        )
    }

    fn json(&self) -> Value {
        json!({
            "gpu_count": self.gpus.len(),
            "gpu_seconds": self.time.time.as_secs(),
            "gpu_seconds_is_lower_bound": self.time.is_lower_bound,
        })
    }
}

impl<'a> IdleReport<'a> {
    /// Reports on hosts, and on what `user` holds there, or all users. `me` is the user who runs
    /// gputop on the host. `job` is the job of `--slurm`.
    pub(super) fn of(
        hosts: &'a [HostState<'a>],
        user: Option<&str>,
        watched: Duration,
        now: NowHere,
        job: Option<&'a SlurmJob>,
    ) -> Self {
        let mut rows = Vec::new();
        let mut known = Vec::new();
        for state in hosts {
            let mut unknown = Vec::new();
            if let Some((model, snapshot)) = state.seen {
                unknown =
                    unknown_gpus::find(model, snapshot, |gpu| may_be_held_by(snapshot, gpu, user));
                let clock = now
                    .utc_offset
                    .map(|offset| WallClock::new(snapshot.at, snapshot.unix_ms, offset))
                    .or_else(|| model.wall_clock());
                rows.extend(
                    by_job(model, snapshot, user)
                        .into_iter()
                        .map(|holds| HeldRow {
                            host: state.name,
                            model,
                            snapshot,
                            clock,
                            holds,
                        }),
                );
            }
            known.push(IdleHost { state, unknown });
        }
        let mut report = Self {
            hosts: known,
            allocated: job.map(|job| AllocatedJob::find(job, hosts, now)),
            rows,
            watched,
            is_of_recording: false,
            now,
        };
        let times: Vec<Duration> = report
            .rows
            .iter()
            .map(|row| report.of_user(row.user()).time.time)
            .collect();
        let mut sorted: Vec<(Duration, HeldRow<'a>)> = times.into_iter().zip(report.rows).collect();
        sorted.sort_by_cached_key(|(of_user, row)| {
            let user = row.user().map(str::to_owned);
            (Reverse(*of_user), user, Reverse(row.time().time))
        });
        report.rows = sorted.into_iter().map(|(_, row)| row).collect();
        report
    }

    /// Makes it the report on the end of a recording.
    pub(super) fn of_recording(self) -> Self {
        Self {
            is_of_recording: true,
            ..self
        }
    }

    /// Says until when each host was recorded.
    fn recorded_until(&self) -> Vec<String> {
        let until = |host: &IdleHost<'_>| {
            let (model, snapshot) = host.state.seen?;
            let clock = match self.now.utc_offset {
                Some(offset) => WallClock::new(snapshot.at, snapshot.unix_ms, offset),
                None => model.wall_clock()?,
            };
            let local = clock.local_ms(snapshot.at);
            Some(format!(
                "{} was recorded until {} {}",
                host.state.name,
                WallClock::day(local),
                WallClock::hour_and_minute(local)
            ))
        };
        self.hosts.iter().filter_map(until).collect()
    }

    fn of_user(&self, user: Option<&str>) -> IdleTotals<'a> {
        IdleTotals::of(self.rows.iter().filter(move |row| row.user() == user))
    }

    /// The users in the order of their rows.
    fn users(&self) -> Vec<Option<&str>> {
        let mut users: Vec<Option<&str>> = self.rows.iter().map(HeldRow::user).collect();
        users.dedup();
        users
    }

    /// The jobs of a user, each with its totals. Only jobs of a scheduler are over several hosts.
    fn jobs(&self, user: Option<&str>) -> Vec<(String, IdleTotals<'a>)> {
        let of_user = || self.rows.iter().filter(move |row| row.user() == user);
        let key = |row: &HeldRow<'_>| match &row.holds[0].scheduled {
            Some(scheduled) => (scheduled.to_string(), None),
            None => (
                row.job(),
                Some((row.host.to_owned(), row.holds[0].job.clone())),
            ),
        };
        let mut keys = Vec::new();
        for row in of_user() {
            let key = key(row);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.into_iter()
            .map(|wanted| {
                let rows: Vec<&HeldRow<'a>> = of_user().filter(|row| key(row) == wanted).collect();
                (wanted.0, IdleTotals::of(rows.iter().copied()))
            })
            .collect()
    }

    pub(super) fn exit(&self) -> Exit {
        if !self.rows.is_empty() || self.allocated.as_ref().is_some_and(AllocatedJob::is_found) {
            return Exit::Found;
        }
        let exits: Vec<Exit> = self.hosts.iter().map(IdleHost::exit).collect();
        match Exit::combined(&exits) {
            Exit::Success if !self.is_complete() => Exit::Partial,
            exit => exit,
        }
    }

    fn is_complete(&self) -> bool {
        self.hosts.iter().all(IdleHost::is_complete)
            && self
                .allocated
                .as_ref()
                .is_none_or(AllocatedJob::is_complete)
    }

    pub(super) fn text(&self) -> String {
        let has_many = self.hosts.len() > 1;
        let mut lines = if !self.rows.is_empty() {
            self.table(has_many)
        } else if self.is_complete() {
            vec!["no GPU is held idle".to_owned()]
        } else {
            vec!["no GPU is known to be held idle".to_owned()]
        };
        lines.extend(self.allocated.iter().flat_map(AllocatedJob::lines));
        lines.extend(self.unknown_sentences(has_many));
        if self.is_of_recording {
            lines.extend(self.recorded_until());
        }
        lines.join("\n") + "\n"
    }

    /// Returns the rows, each followed by its evidence, and the totals.
    fn table(&self, has_many: bool) -> Vec<String> {
        // Without other hosts, the name of the host says nothing.
        let first = usize::from(!has_many);
        let mut rows = String::new();
        let cells = self.rows.iter().map(|row| row.cells()[first..].to_vec());
        table::rows(&mut rows, None, &COLUMNS[first..], cells);
        let evidence = self
            .rows
            .iter()
            .map(|row| format!("\n         {}", row.evidence()));
        let mut lines: Vec<String> = rows
            .lines()
            .zip(std::iter::once(String::new()).chain(evidence))
            .map(|(row, evidence)| row.to_owned() + &evidence)
            .collect();
        lines.push(String::new());
        let users = self.users();
        lines.extend(users.iter().map(|user| self.total_line(*user)));
        if users.len() > 1 {
            let all = IdleTotals::of(self.rows.iter());
            lines.push(format!("all: {}", all.words()));
        }
        lines
    }

    /// Returns the totals of a user, and of each job if there are several.
    fn total_line(&self, user: Option<&str>) -> String {
        let jobs: Vec<String> = self
            .jobs(user)
            .iter()
            .map(|(job, totals)| format!("{job}: {}", totals.words()))
            .collect();
        let jobs = match &jobs[..] {
            [_] => String::new(),
            jobs => format!(" ({})", jobs.join("; ")),
        };
        let name = user.unwrap_or("an unknown user");
        format!("{name}: {}{jobs}", self.of_user(user).words())
    }

    /// Says of which GPUs it is not known whether they are held idle, and what would help.
    fn unknown_sentences(&self, names_hosts: bool) -> Vec<String> {
        let mut sentences = Vec::new();
        for host in &self.hosts {
            let name = if names_hosts {
                format!("{}: ", host.state.name)
            } else {
                String::new()
            };
            for unknown in &host.unknown {
                sentences.push(format!(
                    "{name}not known for GPU {}: {}",
                    host.labels(unknown),
                    unknown.reason
                ));
            }
        }
        let without: Vec<&str> = self
            .hosts
            .iter()
            .filter(|host| host.needs_recorder())
            .map(|host| host.state.name)
            .collect();
        if !without.is_empty() && self.watched < HELD_IDLE_AFTER && !self.is_of_recording {
            let subject = if names_hosts {
                without.join(", ")
            } else {
                "this host".to_owned()
            };
            sentences.push(format!(
                "a GPU counts after {} minutes without use, and no recorder of yours on {subject} has seen them: run `gputop record` there, or add `--watch 30m`",
                HELD_IDLE_AFTER.as_secs() / 60
            ));
        }
        sentences
    }

    pub(super) fn json(&self) -> Value {
        let with = |mut json: Value, more: Value| {
            if let (Some(all), Value::Object(more)) = (json.as_object_mut(), more) {
                all.extend(more);
            }
            json
        };
        let users = self.users().into_iter().map(|user| {
            let jobs: Vec<Value> = self
                .jobs(user)
                .into_iter()
                .map(|(job, totals)| with(json!({ "job": job }), totals.json()))
                .collect();
            with(
                json!({ "user": user, "jobs": jobs }),
                self.of_user(user).json(),
            )
        });
        let json = json!({
            "schema": Snapshot::SCHEMA,
            "is_complete": self.is_complete(),
            "idle_after_seconds": HELD_IDLE_AFTER.as_secs(),
            "users": users.collect::<Vec<_>>(),
            "held": self.rows.iter().map(HeldRow::json).collect::<Vec<_>>(),
            "allocated": self.allocated.iter().map(AllocatedJob::json).collect::<Vec<_>>(),
            "unknown": self.hosts.iter().flat_map(IdleHost::unknown_json).collect::<Vec<_>>(),
            "hosts": self.hosts.iter().map(|host| host.json(self.is_of_recording)).collect::<Vec<_>>(),
        });
        with(json, IdleTotals::of(self.rows.iter()).json())
    }
}

impl IdleHost<'_> {
    fn is_complete(&self) -> bool {
        self.exit() == Exit::Success
    }

    /// The exit code of a host on which no GPU is known to be held idle.
    fn exit(&self) -> Exit {
        let Some((_, snapshot)) = self.state.seen else {
            return Exit::Error;
        };
        match Exit::of_snapshot(snapshot, true) {
            none @ (Exit::NoDriver | Exit::NoGpu) => none,
            // Readings of fans or clocks that failed do not matter here.
            _ if self.state.trouble.is_some() || !self.unknown.is_empty() => Exit::Partial,
            _ => Exit::Success,
        }
    }

    /// The labels of GPUs: `0-7`.
    fn labels(&self, unknown: &UnknownGpus) -> String {
        let snapshot = self.state.seen.map(|(_, snapshot)| snapshot);
        snapshot.map_or_else(String::new, |snapshot| {
            labels::gpu_labels(snapshot, &unknown.gpus)
        })
    }

    /// Whether a recorder would have seen what this report has not.
    fn needs_recorder(&self) -> bool {
        let is_recorded = self
            .state
            .seen
            .is_some_and(|(model, _)| model.is_recorded());
        !is_recorded && self.unknown.iter().any(|unknown| unknown.is_too_early)
    }

    fn unknown_json(&self) -> Vec<Value> {
        let Some((_, snapshot)) = self.state.seen else {
            return Vec::new();
        };
        let json = |unknown: &UnknownGpus| {
            let gpus = || snapshot.gpus_at(&unknown.gpus);
            json!({
                "host": self.state.name,
                "gpus": gpus().map(labels::gpu_label).collect::<Vec<_>>(),
                "gpu_uuids": gpus().map(|gpu| &gpu.uuid).collect::<Vec<_>>(),
                "sentence": unknown.reason,
            })
        };
        self.unknown.iter().map(json).collect()
    }

    fn json(&self, is_of_recording: bool) -> Value {
        let seen_for = self.state.seen.map(|(model, _)| {
            let began = model.history().began().unwrap_or(model.now());
            model.now().since(began).as_secs()
        });
        json!({
            "host": self.state.name,
            "is_complete": self.is_complete(),
            "trouble": self.state.trouble,
            "is_recorded": is_of_recording
                || self.state.seen.is_some_and(|(model, _)| model.is_recorded()),
            "read_at_unix_ms": self.state.seen.map(|(_, snapshot)| snapshot.unix_ms),
            "seen_seconds": seen_for,
        })
    }
}

/// Whether a process belongs to the user that the report is about; `None` where its user is not
/// known.
fn is_of_user(snapshot: &Snapshot, process: &Process, user: Option<&str>) -> Option<bool> {
    match user {
        None => Some(true),
        Some("me") => Some(process.facts.uid.ok()? == snapshot.host.facts.uid),
        Some(name) => Some(process.facts.user.as_ref().ok()?.as_str() == name),
    }
}

/// Whether a process that the report is about may hold the GPU.
fn may_be_held_by(snapshot: &Snapshot, gpu: &Gpu, user: Option<&str>) -> bool {
    let mut holders = gpu
        .processes
        .iter()
        .filter(|listed| listed.usage != Use::Graphics)
        .map(|listed| snapshot.process(listed.process));
    user.is_none()
        || gpu.missing.processes.is_some()
        || holders.any(|process| {
            process
                .and_then(|process| is_of_user(snapshot, process, user))
                .unwrap_or(true)
        })
}

/// The holds on a host, those of one user and one job together.
fn by_job(model: &HostModel, snapshot: &Snapshot, user: Option<&str>) -> Vec<Vec<IdleHold>> {
    let mut jobs: Vec<Vec<IdleHold>> = Vec::new();
    for hold in model.idle_holds() {
        let is_wanted = snapshot
            .process(hold.holder())
            .map_or(user.is_none(), |process| {
                is_of_user(snapshot, process, user) == Some(true)
            });
        if !is_wanted {
            continue;
        }
        match jobs.iter_mut().find(|job| job[0].is_of_same_job(&hold)) {
            Some(job) => job.push(hold),
            None => jobs.push(vec![hold]),
        }
    }
    jobs
}
