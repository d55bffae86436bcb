//! The GPUs that one user and one job hold idle on one host, as a row and as JSON.

use serde_json::{Value, json};

use crate::base::time::WallClock;
use crate::base::units::Elapsed;
use crate::model::{GpuTime, HostModel, IdleHold, Total};
use crate::output::{labels, table};
use crate::protocol::snapshot::{Reading, Snapshot};

/// GPUs that processes of one user and one job hold idle on one host.
#[derive(Debug)]
pub(super) struct HeldRow<'a> {
    pub(super) host: &'a str,
    pub(super) model: &'a HostModel,
    pub(super) snapshot: &'a Snapshot,
    /// The clock of the times; `None` where no time of day is known.
    pub(super) clock: Option<WallClock>,
    /// One for each GPU, in the order of the GPUs. There is at least one.
    pub(super) holds: Vec<IdleHold>,
}

impl HeldRow<'_> {
    fn first(&self) -> &IdleHold {
        &self.holds[0]
    }

    /// The name of the user; `None` where it is not known.
    pub(super) fn user(&self) -> Option<&str> {
        Some(self.first().user.as_ref()?.as_str())
    }

    /// `slurm 4242`, or the name of the program that started the processes.
    pub(super) fn job(&self) -> String {
        let hold = self.largest();
        match (&hold.scheduled, self.model.job(hold.holder())) {
            (Some(scheduled), _) => scheduled.to_string(),
            (None, Some(job)) => job.name.clone(),
            (None, None) => self.command(),
        }
    }

    /// The places of the GPUs.
    fn places(&self) -> Vec<usize> {
        self.holds.iter().map(|hold| hold.gpu).collect()
    }

    /// The GPUs times the time.
    pub(super) fn time(&self) -> GpuTime {
        GpuTime::of(self.holds.iter(), self.model.now())
    }

    fn memory(&self) -> Reading<Total> {
        Total::sum(self.holds.iter().map(|hold| hold.memory))
    }

    /// The hold with the most memory.
    fn largest(&self) -> &IdleHold {
        let bytes = |hold: &&IdleHold| hold.memory.map_or(0, |total| total.bytes.0);
        let largest = self.holds.iter().rev().max_by_key(bytes);
        largest.unwrap_or_else(|| self.first())
    }

    /// The hold that began last: since then all GPUs of the row are idle.
    fn latest(&self) -> &IdleHold {
        let latest = self.holds.iter().max_by_key(|hold| hold.since);
        latest.unwrap_or_else(|| self.first())
    }

    fn command(&self) -> String {
        let holder = self.largest().holder();
        self.snapshot
            .process(holder)
            .map_or_else(|| holder.pid.to_string(), table::command)
    }

    /// The cells of the table: host, user, GPUs, GPU-hours, time, memory, PID and program.
    pub(super) fn cells(&self) -> [String; 8] {
        let latest = self.latest();
        let idle = Elapsed(self.model.now().since(latest.since));
        let bound = if latest.was_seen { "" } else { "≥" };
        let command = self.command();
        let program = match &self.first().scheduled {
            Some(scheduled) => format!("{scheduled}: {command}"),
            None => command,
        };
        [
            self.host.to_owned(),
            self.user().unwrap_or("?").to_owned(),
            labels::gpu_labels(self.snapshot, &self.places()),
            labels::gpu_hours(self.time()),
            format!("{bound}{idle}"),
            labels::word(self.memory()).replace(' ', ""),
            self.largest().holder().pid.to_string(),
            program,
        ]
    }

    /// Says why the GPUs count as held idle.
    pub(super) fn evidence(&self) -> String {
        let (latest, now) = (self.latest(), self.model.now());
        let since = match self.clock {
            Some(clock) => format!("since {}", clock.near(latest.since, now)),
            None => format!("for {}", Elapsed(now.since(latest.since))),
        };
        let beginning = if latest.was_seen {
            "its beginning was seen"
        } else {
            "nothing was read before, so it may be longer"
        };
        format!("SM 0 % and less than 4 MB/s over PCIe {since}; {beginning}")
    }

    pub(super) fn json(&self) -> Value {
        let (latest, holder, now) = (self.latest(), self.largest().holder(), self.model.now());
        let (memory, time) = (self.memory().ok(), self.time());
        let ago = now.since(latest.since);
        let places = self.places();
        let gpus = || self.snapshot.gpus_at(&places);
        let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        json!({
            "host": self.host,
            "user": self.user(),
            "job": self.job(),
            "scheduled_as": self.first().scheduled,
            "gpus": gpus().map(labels::gpu_label).collect::<Vec<_>>(),
            "gpu_uuids": gpus().map(|gpu| &gpu.uuid).collect::<Vec<_>>(),
            "gpu_seconds": time.time.as_secs(),
            "gpu_seconds_is_lower_bound": time.is_lower_bound,
            "idle_seconds": ago.as_secs(),
            "idle_is_lower_bound": !latest.was_seen,
            "since_unix_ms": self.snapshot.unix_ms.saturating_sub(ago_ms),
            "memory_used_bytes": memory.map(|memory| memory.bytes),
            "memory_is_lower_bound": memory.is_none_or(|memory| memory.is_lower_bound),
            "pid": holder.pid,
            "start_ticks": holder.start_ticks,
            "command": self.command(),
            "sentence": self.evidence(),
        })
    }
}
