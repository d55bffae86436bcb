//! The hosts in short, for the page of `--page`: which GPUs are free, who is where, and the troubles.
//!
//! Names of users are told, and no commands.

use std::collections::BTreeMap;

use serde::Serialize;

use super::gauges::SeenHost;
use super::sample_values::leftover_memory;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::model::{
    GpuOrProcess, GpuOverview, GpuState, HostModel, RankedTrouble, Severity, Total, TroubleRank,
};
use crate::protocol::snapshot::{Gpu, Reading, Snapshot};

/// The hosts and their troubles.
#[derive(Debug, Default, Serialize)]
pub(super) struct FleetJson {
    /// In the order of the command line.
    hosts: Vec<HostJson>,
    /// The most urgent first.
    troubles: Vec<TroubleJson>,
}

#[derive(Debug, Serialize)]
struct HostJson {
    name: String,
    /// Whether readings come from it.
    up: bool,
    /// The time since the last ones; `None` before the first.
    since_seconds: Option<u64>,
    gpus: Vec<GpuJson>,
    /// The sum of the GPUs that answer.
    memory_used_bytes: Option<u64>,
    /// Whether a GPU does not say how much is in use, or does not answer.
    memory_is_lower_bound: bool,
    memory_total_bytes: Option<u64>,
    /// The mean of the GPUs.
    sm_percent: Option<f32>,
    power_watts: Option<f32>,
    users: Vec<UserJson>,
}

#[derive(Debug, Serialize)]
struct GpuJson {
    label: String,
    state: &'static str,
    users: Vec<Text>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct UserJson {
    name: Text,
    /// The number of GPUs that processes of the user are on.
    gpus: usize,
}

#[derive(Debug, Serialize)]
struct TroubleJson {
    host: String,
    /// `bad` or `notable`.
    severity: &'static str,
    sentence: String,
    #[serde(skip)]
    trouble: RankedTrouble,
}

impl FleetJson {
    /// Adds a host.
    pub(super) fn add(&mut self, host: &SeenHost<'_>) {
        let seen = host.model.and_then(|model| Some((model, model.latest()?)));
        let overview = host.model.and_then(HostModel::overview);
        let mut troubles = match seen {
            Some((model, _)) => model.troubles(),
            None => vec![RankedTrouble::of_silence()],
        };
        if host.model.is_some_and(HostModel::has_broken_driver) {
            troubles.push(RankedTrouble::of_driver());
        }
        for trouble in troubles {
            self.troubles.push(TroubleJson {
                host: host.name.to_owned(),
                severity: match trouble.rank.severity() {
                    Severity::Bad => "bad",
                    _ => "notable",
                },
                sentence: sentence(seen, &trouble),
                trouble,
            });
        }
        self.troubles.sort_by_key(|told| told.trouble.urgency());
        let gpus = overview.iter().flat_map(|overview| &overview.gpus);
        let gpu_count = gpus.clone().count();
        let gpu = |told: &GpuOverview| {
            let (model, snapshot) = seen?;
            let gpu = snapshot.gpu(&told.uuid)?;
            Some(GpuJson::of(model, snapshot, gpu, told.state))
        };
        let read: Vec<&Gpu> = seen.map_or_else(Vec::new, |(model, snapshot)| {
            let is_read = |gpu: &&Gpu| gpu.facts.parent.is_none() && model.age(gpu).is_none();
            snapshot.gpus.iter().filter(is_read).collect()
        });
        let whole =
            |bytes: fn(&&Gpu) -> Reading<Bytes>| Total::sum_bytes(read.iter().map(bytes)).ok();
        let used = whole(|gpu| gpu.load.memory_used);
        let all = whole(|gpu| gpu.load.memory_total);
        let shares = read
            .iter()
            .filter_map(|gpu| Some(gpu.load.sm.ok()?.value()));
        let (sum, count) =
            shares.fold((0.0, 0.0), |(sum, count), share| (sum + share, count + 1.0));
        let watts = read
            .iter()
            .filter_map(|gpu| Some(gpu.load.power.ok()?.value()));
        let bytes = |total: Option<Total>| {
            total
                .filter(|_| !read.is_empty())
                .map(|total| total.bytes.0)
        };
        let gpus: Vec<GpuJson> = gpus.filter_map(gpu).collect();
        self.hosts.push(HostJson {
            users: UserJson::of(&gpus),
            name: host.name.to_owned(),
            up: seen.is_some(),
            since_seconds: host.since_line.map(|since| since.as_secs()),
            gpus,
            memory_used_bytes: bytes(used),
            memory_is_lower_bound: read.len() < gpu_count
                || used.is_some_and(|used| used.is_lower_bound),
            memory_total_bytes: bytes(all),
            sm_percent: (count > 0.0).then(|| sum / count),
            power_watts: watts.reduce(|sum, watts| sum + watts),
        });
    }
}

impl UserJson {
    /// The users of these GPUs, those of the most first.
    fn of(gpus: &[GpuJson]) -> Vec<Self> {
        let mut users: BTreeMap<&Text, usize> = BTreeMap::new();
        for name in gpus.iter().flat_map(|gpu| &gpu.users) {
            *users.entry(name).or_default() += 1;
        }
        let user = |(name, gpus): (&Text, usize)| Self {
            name: name.clone(),
            gpus,
        };
        let mut users: Vec<Self> = users.into_iter().map(user).collect();
        users.sort_by_key(|user| std::cmp::Reverse(user.gpus));
        users
    }
}

impl GpuJson {
    fn of(model: &HostModel, snapshot: &Snapshot, gpu: &Gpu, state: GpuState) -> Self {
        let is_part = |part: &&Gpu| part.facts.parent.as_ref() == Some(&gpu.uuid);
        let parts = snapshot.gpus.iter().filter(is_part);
        let with_parts: Vec<&Gpu> = std::iter::once(gpu).chain(parts).collect();
        let listed = with_parts.iter().flat_map(|gpu| &gpu.processes);
        let leftovers = with_parts.iter().flat_map(|gpu| model.leftovers_on(gpu));
        let processes = listed
            .map(|listed| listed.process)
            .chain(leftovers.map(|verdict| verdict.process));
        let mut users: Vec<Text> = processes
            .filter_map(|id| snapshot.process(id)?.facts.user.clone().ok())
            .collect();
        users.sort_unstable();
        users.dedup();
        // Figures of a GPU that hangs are those of the time before.
        let is_read = model.age(gpu).is_none();
        let bytes = |reading: Reading<Bytes>| Some(reading.ok().filter(|_| is_read)?.0);
        Self {
            label: gpu.label(),
            state: state_name(state),
            users,
            memory_used_bytes: bytes(gpu.load.memory_used),
            memory_total_bytes: bytes(gpu.load.memory_total),
        }
    }
}

fn state_name(state: GpuState) -> &'static str {
    match state {
        GpuState::Sick => "sick",
        GpuState::Unknown => "unknown",
        GpuState::Leak => "leak",
        GpuState::Orphan => "orphan",
        GpuState::HeldIdle => "held_idle",
        GpuState::NearlyFull => "nearly_full",
        GpuState::Busy => "busy",
        GpuState::Free => "free",
    }
}

/// The words for a trouble: `memory of GPU 1 leaks (alice): full in 0h12`.
fn sentence(seen: Option<(&HostModel, &Snapshot)>, trouble: &RankedTrouble) -> String {
    let Some((model, snapshot)) = seen else {
        return "no readings come from it".to_owned();
    };
    let (place, who, gpu) = subject(model, snapshot, trouble);
    let left = trouble
        .left
        .map_or_else(String::new, |left| format!(": full in {}", Elapsed(left)));
    match (trouble.rank, gpu) {
        (TroubleRank::Lost, None) => "the driver does not answer, or does not run".to_owned(),
        (TroubleRank::Lost, Some(_)) => format!("{place} is lost, or does not answer{who}"),
        (TroubleRank::FullSoon, _) => format!("memory of {place} will soon be full{who}{left}"),
        (TroubleRank::Leak, _) => format!("memory of {place} leaks{who}{left}"),
        (TroubleRank::HardwareError | TroubleRank::Slowdown, Some(gpu)) => {
            format!("{place}: {}{who}", model.health(gpu).phrase)
        }
        (TroubleRank::Leftover, _) => leftovers(model, snapshot),
        (TroubleRank::HardwareError | TroubleRank::Slowdown | TroubleRank::Silent, _) => place,
    }
}

/// The GPUs of a trouble, its users in brackets, and the GPU where it is one.
fn subject<'a>(
    model: &HostModel,
    snapshot: &'a Snapshot,
    trouble: &RankedTrouble,
) -> (String, String, Option<&'a Gpu>) {
    let (gpus, processes): (Vec<&Gpu>, Vec<_>) = match &trouble.subject {
        None => (Vec::new(), Vec::new()),
        Some(GpuOrProcess::Gpu(uuid)) => {
            let gpus: Vec<&Gpu> = snapshot.gpu(uuid).into_iter().collect();
            let listed = gpus.iter().flat_map(|gpu| &gpu.processes);
            let processes = listed.map(|listed| listed.process).collect();
            (gpus, processes)
        }
        Some(GpuOrProcess::Process(id)) => {
            let total = model.process_total(*id);
            let places = total.iter().flat_map(|total| &total.gpus);
            let gpus = places
                .filter_map(|place| snapshot.gpus.get(*place))
                .collect();
            (gpus, vec![*id])
        }
    };
    let users: Vec<&str> = processes
        .iter()
        .filter_map(|id| Some(snapshot.process(*id)?.facts.user.as_ref().ok()?.as_str()))
        .collect();
    let who = in_brackets(users);
    let labels: Vec<String> = gpus.iter().map(|gpu| gpu.label()).collect();
    let noun = if labels.len() > 1 { "GPUs" } else { "GPU" };
    (
        format!("{noun} {}", labels.join(", ")),
        who,
        gpus.first().copied(),
    )
}

/// The memory of all leftover processes of a host, and whose they are.
fn leftovers(model: &HostModel, snapshot: &Snapshot) -> String {
    let memory: u64 = snapshot
        .gpus
        .iter()
        .filter_map(|gpu| leftover_memory(model, gpu))
        .fold(0, |sum, bytes| sum.saturating_add(bytes.0));
    let users: Vec<&str> = model
        .leftovers()
        .filter_map(|verdict| {
            Some(
                snapshot
                    .process(verdict.process)?
                    .facts
                    .user
                    .as_ref()
                    .ok()?
                    .as_str(),
            )
        })
        .collect();
    let whose = in_brackets(users);
    let held = match memory {
        0 => "an unknown amount of memory".to_owned(),
        memory => Bytes(memory).to_string(),
    };
    format!("processes that should have ended hold {held}{whose}")
}

/// Each name once, as in ` (alice, bob)`; an empty text without names.
fn in_brackets(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(", "))
    }
}
