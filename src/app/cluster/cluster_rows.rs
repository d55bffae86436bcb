//! The rows of the cluster view: hosts and GPUs in their order, those that the filter lets through,
//! and the totals.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{ClusterApp, ClusterList};
use crate::app::fleet::host_sort::{HostSort, natural_order};
use crate::base::text::Text;
use crate::model::cluster::{ClusterFigures, ClusterGpu, ClusterHost, ClusterHostId, Figure};
use crate::model::{GpuState, UserHue};

/// The row of a host.
#[derive(Debug)]
pub(crate) struct ClusterRow<'a> {
    pub(crate) name: &'a str,
    /// The state of each GPU, and the hue of its user. None before they were asked for.
    pub(crate) cells: Vec<(GpuState, Option<UserHue>)>,
    pub(crate) figures: &'a ClusterFigures,
    /// The time without samples; `None` while there are some.
    pub(crate) silence: Option<Duration>,
    /// The users or teams, each with the number of GPUs and the hue.
    pub(crate) users: Vec<(Text, usize, Option<UserHue>)>,
    pub(crate) jobs: Vec<Text>,
}

/// The row of a GPU in the list of all GPUs.
#[derive(Debug)]
pub(crate) struct ClusterGpuRow<'a> {
    pub(crate) host: &'a str,
    pub(crate) gpu: &'a ClusterGpu,
}

/// Figures over all hosts that have samples.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterTotals {
    pub(crate) hosts: usize,
    pub(crate) silent: usize,
    pub(crate) gpus: usize,
    pub(crate) free: usize,
    /// The GPUs of which it is not known whether they are free.
    pub(crate) unknown: usize,
    pub(crate) sick: usize,
    pub(crate) leaks: usize,
    pub(crate) orphans: usize,
    pub(crate) held: usize,
    /// The age of the oldest sample.
    pub(crate) age: Option<Duration>,
}

impl ClusterApp {
    /// The row of a host; `None` if it is not known.
    pub(crate) fn row<'a>(&'a self, id: &'a ClusterHostId) -> Option<ClusterRow<'a>> {
        let host = self.cluster.host(id)?;
        let silence = self.cluster.silence(host);
        let cell = |gpu: &ClusterGpu| {
            let user = gpu.owners.first().and_then(|owner| owner.user.as_ref());
            let hue = user.and_then(|user| self.cluster.hues.hue(user));
            if silence.is_some() || self.is_outdated() {
                (GpuState::Unknown, None)
            } else {
                (gpu.state, hue)
            }
        };
        let mut users: BTreeMap<&Text, usize> = BTreeMap::new();
        let mut jobs: Vec<Text> = Vec::new();
        for owner in host.gpus.iter().flat_map(|gpu| &gpu.owners) {
            if let Some(job) = owner.job.as_ref().filter(|job| !jobs.contains(*job)) {
                jobs.push(job.clone());
            }
        }
        for gpu in &host.gpus {
            let mut of_gpu: Vec<&Text> = Vec::new();
            for user in gpu.owners.iter().filter_map(|owner| owner.user.as_ref()) {
                if !of_gpu.contains(&user) {
                    of_gpu.push(user);
                    *users.entry(user).or_default() += 1;
                }
            }
        }
        let mut users: Vec<(Text, usize, Option<UserHue>)> = users
            .into_iter()
            .map(|(user, gpus)| (user.clone(), gpus, self.cluster.hues.hue(user)))
            .collect();
        users.sort_by_key(|(_, gpus, _)| Reverse(*gpus));
        Some(ClusterRow {
            name: self.cluster.shown_name(id),
            cells: host.gpus.iter().map(cell).collect(),
            figures: &host.figures,
            silence,
            users,
            jobs,
        })
    }

    /// The GPU at this place of the list of all GPUs.
    pub(crate) fn gpu_row(&self, place: usize) -> Option<ClusterGpuRow<'_>> {
        let (id, gpu) = self.gpus.get(place)?;
        Some(ClusterGpuRow {
            host: self.cluster.shown_name(id),
            gpu: self.cluster.host(id)?.gpus.get(*gpu)?,
        })
    }

    /// The hosts with free GPUs, the most first.
    pub(crate) fn free_gpus(&self) -> impl ExactSizeIterator<Item = (&str, usize)> + Clone {
        let free = self.free.iter();
        free.map(|(id, gpus)| (self.cluster.shown_name(id), *gpus))
    }

    /// Adds up the figures of all hosts, and lists those with free GPUs.
    pub(super) fn add_up(&mut self) {
        let mut totals = ClusterTotals::default();
        let mut free: Vec<(ClusterHostId, usize)> = Vec::new();
        for (id, host) in self.cluster.hosts() {
            totals.hosts += 1;
            if host.is_silent {
                totals.silent += 1;
                continue;
            }
            let figures = &host.figures;
            totals.gpus += figures.gpus;
            match figures.free {
                Some(count) => {
                    totals.free += count;
                    totals.unknown += figures.unknown();
                    if count > 0 {
                        free.push((id.clone(), count));
                    }
                }
                None => totals.unknown += figures.gpus,
            }
            totals.sick += host.sick();
            totals.leaks += host.count(Figure::Leak);
            totals.orphans += host.count(Figure::Leftover);
            totals.held += host.count(Figure::HeldIdle);
            totals.age = totals.age.max(figures.age);
        }
        free.sort_by_key(|(_, gpus)| Reverse(*gpus));
        (self.totals, self.free) = (totals, free);
    }

    pub(super) fn sort_hosts(&mut self) {
        let filter = self.filter.value().to_lowercase();
        let shown = self
            .cluster
            .hosts()
            .filter(|(id, host)| matches(id, host, &filter));
        let mut hosts: Vec<ClusterHostId> = shown.map(|(id, _)| id.clone()).collect();
        hosts.sort_by_cached_key(|id| natural_order(self.cluster.shown_name(id)));
        if self.sort != HostSort::Name {
            let ranks: BTreeMap<&ClusterHostId, u64> = self
                .cluster
                .hosts()
                .filter_map(|(id, host)| Some((id, self.order_of(host)?)))
                .collect();
            hosts.sort_by_cached_key(|id| {
                let rank = ranks.get(id);
                (rank.is_none(), Reverse(rank.copied()))
            });
        }
        if self.is_inverted {
            hosts.reverse();
        }
        self.hosts = hosts;
        // The cursor stays on its host.
        let selected = self.selected.as_ref();
        if let Some(place) = selected.and_then(|id| self.hosts.iter().position(|shown| shown == id))
        {
            self.host_place.cursor = place;
        }
    }

    /// The figure of a host that the hosts are sorted by, the largest first.
    fn order_of(&self, host: &ClusterHost) -> Option<u64> {
        let figures = &host.figures;
        if self.sort == HostSort::Trouble {
            let worst = self.cluster.worst_of(host)?;
            return Some(u64::MAX - worst as u64);
        }
        if host.is_silent {
            return None;
        }
        match self.sort {
            HostSort::Name | HostSort::Trouble => None,
            HostSort::Free => figures.free.map(|free| free as u64),
            HostSort::Memory => figures.memory_used.map(|used| used.0),
            HostSort::Sm => figures.sm.map(|sm| tenths(sm.value())),
            HostSort::Power => figures.power.map(tenths),
        }
    }

    pub(super) fn sort_gpus(&mut self) {
        if self.list != ClusterList::AllGpus {
            self.gpus.clear();
            return;
        }
        let filter = self.filter.value().to_lowercase();
        let mut gpus: Vec<(ClusterHostId, usize)> = Vec::new();
        let mut hosts: Vec<(&ClusterHostId, &ClusterHost)> = self
            .cluster
            .hosts()
            .filter(|(_, host)| !host.is_silent)
            .collect();
        hosts.sort_by_cached_key(|(id, _)| natural_order(self.cluster.shown_name(id)));
        for (id, host) in hosts {
            let name = self.cluster.shown_name(id).to_lowercase();
            for (place, gpu) in host.gpus.iter().enumerate() {
                let has_words = || {
                    let text = format!("{name} {}", gpu_words(gpu)).to_lowercase();
                    filter.split_whitespace().all(|word| text.contains(word))
                };
                if filter.is_empty() || has_words() {
                    gpus.push((id.clone(), place));
                }
            }
        }
        if self.sort != HostSort::Name {
            gpus.sort_by_cached_key(|(id, place)| {
                let host = self.cluster.host(id);
                let gpu = host.and_then(|host| host.gpus.get(*place));
                let rank = gpu.and_then(|gpu| self.order_of_gpu(gpu));
                (rank.is_none(), Reverse(rank))
            });
        }
        if self.is_inverted {
            gpus.reverse();
        }
        self.gpus = gpus;
    }

    fn order_of_gpu(&self, gpu: &ClusterGpu) -> Option<u64> {
        match self.sort {
            HostSort::Name => None,
            HostSort::Free => (gpu.state == GpuState::Free).then_some(1),
            HostSort::Memory => gpu.memory_used.map(|used| used.0),
            HostSort::Sm => gpu.sm.map(|sm| tenths(sm.value())),
            HostSort::Power => gpu.power.map(tenths),
            HostSort::Trouble => Some(u64::MAX - gpu.state as u64),
        }
    }
}

/// Whether a host has all words of a filter: in its name, and in what is known of its GPUs.
fn matches(id: &ClusterHostId, host: &ClusterHost, filter: &str) -> bool {
    if filter.trim().is_empty() {
        return true;
    }
    let mut words = vec![id.name.to_string()];
    words.extend(id.cluster.iter().map(ToString::to_string));
    words.extend(host.words.iter().map(ToString::to_string));
    words.extend(host.gpus.iter().map(gpu_words));
    if host.is_silent {
        words.push("no samples".to_owned());
    }
    if host.figures.free > Some(0) {
        words.push(state_word(GpuState::Free).to_owned());
    }
    if host.sick() > 0 {
        words.push(state_word(GpuState::Sick).to_owned());
    }
    for (figure, state) in [
        (Figure::Leak, GpuState::Leak),
        (Figure::Leftover, GpuState::Orphan),
        (Figure::HeldIdle, GpuState::HeldIdle),
    ] {
        if host.count(figure) > 0 {
            words.push(state_word(state).to_owned());
        }
    }
    let text = words.join(" ").to_lowercase();
    filter.split_whitespace().all(|word| text.contains(word))
}
/// The words of a GPU that a filter finds.
fn gpu_words(gpu: &ClusterGpu) -> String {
    let mut words: Vec<&str> = Vec::new();
    words.extend(gpu.model.as_ref().map(Text::as_str));
    for owner in &gpu.owners {
        words.extend(owner.user.as_ref().map(Text::as_str));
        words.extend(owner.job.as_ref().map(Text::as_str));
    }
    words.push(state_word(gpu.state));
    words.join(" ")
}

/// The word for a state.
fn state_word(state: GpuState) -> &'static str {
    match state {
        GpuState::Sick => "sick",
        GpuState::Unknown => "unknown",
        GpuState::Leak => "leak",
        GpuState::Orphan => "orphan",
        GpuState::HeldIdle => "idle",
        GpuState::NearlyFull => "full",
        GpuState::Busy => "busy",
        GpuState::Free => "free",
    }
}

/// A percentage or watts in tenths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and the value is 0 at least"
)]
fn tenths(value: f32) -> u64 {
    (value * 10.0).round() as u64
}
