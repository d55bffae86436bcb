//! The GPUs that a job of Slurm has, and that no process holds.
//!
//! Slurm says it once, when gputop starts. After half an hour it may have given them to others, so
//! an answer of that age is shown and not counted.

use std::time::Duration;

use serde_json::{Value, json};

use super::NowHere;
use crate::base::time::WallClock;
use crate::base::units::Elapsed;
use crate::commands::live::read_hosts::HostState;
use crate::model::{GpuTime, HELD_IDLE_AFTER, HostModel};
use crate::output::labels;
use crate::protocol::slurm_job::{SlurmJob, SlurmNode};
use crate::protocol::snapshot::{Gpu, Snapshot, Use};

/// The age up to which an answer of Slurm counts.
const ANSWER_COUNTS_FOR: Duration = Duration::from_mins(30);

/// A job of Slurm, and what of it no process holds.
pub(super) struct AllocatedJob<'a> {
    job: &'a SlurmJob,
    now: NowHere,
    unused: Vec<UnusedGpus<'a>>,
    /// The nodes of which something is not known, each with a sentence.
    unknown: Vec<(&'a str, String)>,
}

/// GPUs of the job on one host that no process has held for half an hour.
struct UnusedGpus<'a> {
    host: &'a str,
    snapshot: &'a Snapshot,
    /// The places of the GPUs in [`Snapshot::gpus`].
    gpus: Vec<usize>,
    /// The least time for which one of them is not held.
    unused_for: Duration,
    time: GpuTime,
}

/// Whether a GPU of a job is held by nobody.
enum Held {
    Yes,
    /// The job has it for less than half an hour, or a process was seen on it in that time.
    UntilNow,
    No(GpuTime),
    Unknown(String),
}

impl<'a> AllocatedJob<'a> {
    /// Looks at the GPUs of a job on the hosts of the report.
    pub(super) fn find(job: &'a SlurmJob, hosts: &'a [HostState<'a>], now: NowHere) -> Self {
        let mut found = Self {
            job,
            now,
            unused: Vec::new(),
            unknown: Vec::new(),
        };
        for node in &job.nodes {
            let host = hosts.iter().find(|host| host.name == node.name.as_str());
            match host.and_then(|host| Some((host.name, host.seen?))) {
                Some((host, (model, snapshot))) => found.look_at(node, host, model, snapshot),
                None => found
                    .unknown
                    .push((node.name.as_str(), "it was not read".to_owned())),
            }
        }
        found
    }

    fn look_at(
        &mut self,
        node: &'a SlurmNode,
        host: &'a str,
        model: &'a HostModel,
        snapshot: &'a Snapshot,
    ) {
        let Some(allocated) = &node.gpus else {
            let sentence = "Slurm does not say which GPUs the job has there";
            return self.unknown.push((host, sentence.to_owned()));
        };
        let mut gpus: Vec<(usize, GpuTime)> = Vec::new();
        for minor in allocated {
            let is_meant = |gpu: &Gpu| gpu.facts.parent.is_none() && gpu.facts.minor == Ok(*minor);
            let place = snapshot.gpus.iter().position(is_meant);
            let held = place.map_or_else(
                || Held::Unknown("no GPU has this number there".to_owned()),
                |place| self.held(model, snapshot, &snapshot.gpus[place]),
            );
            match (held, place) {
                (Held::No(time), Some(place)) => gpus.push((place, time)),
                (Held::Unknown(why), _) => {
                    self.unknown.push((host, format!("GPU {minor}: {why}")));
                }
                _ => {}
            }
        }
        if let Some(unused_for) = gpus.iter().map(|(_, time)| time.time).min() {
            self.unused.push(UnusedGpus {
                host,
                snapshot,
                time: gpus.iter().map(|(_, time)| *time).sum(),
                gpus: gpus.into_iter().map(|(place, _)| place).collect(),
                unused_for,
            });
        }
    }

    fn held(&self, model: &HostModel, snapshot: &Snapshot, gpu: &Gpu) -> Held {
        if let Some(trouble) = &gpu.trouble {
            return Held::Unknown(trouble.sentence.to_string());
        }
        let parts = snapshot
            .gpus
            .iter()
            .filter(|part| part.facts.parent.as_ref() == Some(&gpu.uuid));
        let mut listed = parts.chain([gpu]).flat_map(|part| &part.processes);
        if listed.any(|listed| listed.usage != Use::Graphics) {
            return Held::Yes;
        }
        let Some((since, was_seen)) = model.unheld_since(gpu) else {
            return Held::Unknown("its processes are not known".to_owned());
        };
        let seen = model.now().since(since);
        // The job has it since it began. Between Slurm's answer and now, it went on.
        let asked_ago = self.now.unix_ms.saturating_sub(self.job.asked_at);
        let has_it_for = self
            .job
            .run_time
            .map(|run_time| run_time.saturating_add(Duration::from_millis(asked_ago)));
        if has_it_for.is_some_and(|has_it_for| has_it_for < HELD_IDLE_AFTER) {
            return Held::UntilNow;
        }
        let time = match has_it_for {
            Some(has_it_for) if has_it_for <= seen => GpuTime {
                time: has_it_for,
                is_lower_bound: false,
            },
            _ => GpuTime {
                time: seen,
                is_lower_bound: !was_seen,
            },
        };
        if time.time >= HELD_IDLE_AFTER {
            Held::No(time)
        } else if time.is_lower_bound {
            Held::Unknown(format!("no process, but seen for {} only", Elapsed(seen)))
        } else {
            Held::UntilNow
        }
    }

    fn is_counted(&self) -> bool {
        let age = self.now.unix_ms.saturating_sub(self.job.asked_at);
        u128::from(age) <= ANSWER_COUNTS_FOR.as_millis()
    }

    /// Whether the job has GPUs that no process holds, and Slurm's answer counts.
    pub(super) fn is_found(&self) -> bool {
        self.is_counted() && !self.unused.is_empty()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_counted() && self.unknown.is_empty()
    }

    fn gpus(&self) -> usize {
        self.unused.iter().map(|unused| unused.gpus.len()).sum()
    }

    fn time(&self) -> GpuTime {
        self.unused.iter().map(|unused| unused.time).sum()
    }

    /// The time of the day at which Slurm was asked; empty where the time zone is not known.
    fn as_of(&self) -> String {
        let local = |offset: i32| {
            let asked_at = self.job.asked_at;
            asked_at.saturating_add_signed(i64::from(offset) * 1000)
        };
        self.now.utc_offset.map_or_else(String::new, |offset| {
            format!(" as of {}", WallClock::hour_and_minute(local(offset)))
        })
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let (job, as_of) = (self.job, self.as_of());
        let name = format!("slurm {} of {}", job.id(), job.user);
        let of_all = job
            .gpus()
            .map_or_else(String::new, |count| format!(" of {count}"));
        let mut lines = Vec::new();
        if !self.unused.is_empty() {
            let hours = if self.is_counted() {
                format!("{} GPU-hours", labels::gpu_hours(self.time()))
            } else {
                "not counted, since Slurm was asked more than 30 minutes ago".to_owned()
            };
            lines.push(format!(
                "{name}: no process on {}{of_all} GPUs{as_of}: {hours}",
                self.gpus()
            ));
        } else if self.is_complete() {
            lines.push(format!(
                "{name}: no GPU without a process for 30 minutes{as_of}"
            ));
        }
        lines.extend(self.unused.iter().map(|unused| {
            let gpus = labels::gpu_labels(unused.snapshot, &unused.gpus);
            let bound = if unused.time.is_lower_bound {
                "≥"
            } else {
                ""
            };
            let unused_for = Elapsed(unused.unused_for);
            format!(
                "         {}: GPU {gpus} for {bound}{unused_for}",
                unused.host
            )
        }));
        lines.extend(
            self.unknown
                .iter()
                .map(|(host, why)| format!("{name}: not known on {host}: {why}")),
        );
        lines
    }

    pub(super) fn json(&self) -> Value {
        let unused = self.unused.iter().map(|unused| {
            let gpus = || unused.snapshot.gpus_at(&unused.gpus);
            json!({
                "host": unused.host,
                "gpus": gpus().map(labels::gpu_label).collect::<Vec<_>>(),
                "gpu_uuids": gpus().map(|gpu| &gpu.uuid).collect::<Vec<_>>(),
                "unused_seconds": unused.unused_for.as_secs(),
                "gpu_seconds": unused.time.time.as_secs(),
                "gpu_seconds_is_lower_bound": unused.time.is_lower_bound,
            })
        });
        let unknown = self
            .unknown
            .iter()
            .map(|(host, why)| json!({ "host": host, "sentence": why }));
        json!({
            "job": format!("slurm {}", self.job.id()),
            "name": self.job.name,
            "user": self.job.user,
            "asked_at_unix_ms": self.job.asked_at,
            "is_counted": self.is_counted(),
            "allocated_gpu_count": self.job.gpus(),
            "gpu_count": self.gpus(),
            "gpu_seconds": self.time().time.as_secs(),
            "gpu_seconds_is_lower_bound": self.time().is_lower_bound,
            "unused": unused.collect::<Vec<_>>(),
            "unknown": unknown.collect::<Vec<_>>(),
        })
    }
}
