//! The hosts of the fleet view: their rows, the filter, and the totals of all of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::fleet_view::FleetView;
use super::host_sort::natural_order;
use super::host_trouble::DataTrouble;
use crate::app::App;
use crate::base::text::Text;
use crate::model::{FleetJob, GpuState, GpuTime, HostModel, HostOverview, UserHue};
use crate::output::labels::visible_gpus::sees_some;
use crate::protocol::host_key::HostKey;

/// The row of a host.
#[derive(Debug)]
pub(crate) struct HostRow<'a> {
    pub(crate) host: HostKey,
    pub(crate) name: &'a str,
    /// The state of each GPU, and the hue of its user. None where no line has come.
    pub(crate) cells: Vec<(GpuState, Option<UserHue>)>,
    /// The reason why no data comes, in place of the figures; `None` while data comes.
    pub(crate) state: Option<DataTrouble>,
    /// `None` before the first line.
    pub(crate) overview: Option<&'a HostOverview>,
    /// The clock time of the latest line of a host whose data does not come: `12:02`.
    pub(crate) last_seen: Option<String>,
    /// `clock 5h00m behind`; `None` where the clock is right.
    pub(crate) clock: Option<String>,
    /// `sees 4 of 8 GPUs: the cgroup of job 4242`; `None` where all GPUs are seen.
    pub(crate) sees_some: Option<String>,
}

/// Figures over all hosts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetTotals {
    pub(crate) hosts: usize,
    /// The hosts from which no line ever came.
    pub(crate) unread: usize,
    pub(crate) gpus: usize,
    pub(crate) busy: usize,
    pub(crate) held: usize,
    /// The held GPUs times the time for which they have been idle.
    pub(crate) held_time: GpuTime,
    pub(crate) leaks: usize,
    pub(crate) orphans: usize,
    pub(crate) free: usize,
    pub(crate) sick: usize,
    pub(crate) unknown: usize,
}

/// A job in the list of jobs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JobLine<'a> {
    /// The scheduler or launcher and the name of the job: `slurm 4242 llama`.
    pub(crate) title: String,
    pub(crate) user: Option<&'a Text>,
    /// `64 ranks on 8 hosts, 63 seen`.
    pub(crate) size: String,
    /// `rank 42 is missing`; `None` while none is known to be.
    pub(crate) missing: Option<String>,
    pub(crate) hosts: Vec<&'a str>,
}

impl App {
    /// The overview of a host whose data comes.
    pub(super) fn current_overview<'a>(
        &self,
        view: &'a FleetView,
        host: HostKey,
    ) -> Option<&'a HostOverview> {
        view.overview(host).filter(|_| self.trouble(host).is_none())
    }

    pub(super) fn host_row(&self, host: HostKey) -> HostRow<'_> {
        let overview = self.fleet_view.overview(host);
        let is_read = self.trouble(host).is_none();
        let cells = overview.map_or_else(Vec::new, |overview| {
            let cell = |state, hue: Option<UserHue>| {
                if is_read {
                    (state, hue)
                } else {
                    (GpuState::Unknown, None)
                }
            };
            overview
                .gpus
                .iter()
                .map(|gpu| cell(gpu.state, gpu.hue))
                .collect()
        });
        HostRow {
            host,
            name: self.fleet().name(host),
            cells,
            state: self.host_state(host),
            overview: overview.filter(|_| is_read),
            last_seen: self.last_seen(host).filter(|_| !is_read),
            clock: self.clock_difference(host),
            sees_some: self
                .fleet()
                .host(host)
                .and_then(|model| sees_some(model.latest()?)),
        }
    }

    /// The figures of all hosts.
    pub(crate) fn fleet_totals(&self) -> FleetTotals {
        let mut totals = FleetTotals::default();
        for (host, _) in self.fleet().hosts() {
            totals.hosts += 1;
            let Some(overview) = self.fleet_view.overview(host) else {
                totals.unread += 1;
                continue;
            };
            let is_read = self.trouble(host).is_none();
            totals.gpus += overview.gpus.len();
            if is_read {
                totals.held_time = [totals.held_time, overview.held_time].into_iter().sum();
            }
            for gpu in &overview.gpus {
                let state = if is_read {
                    gpu.state
                } else {
                    GpuState::Unknown
                };
                totals.busy += usize::from(state.is_busy());
                match state {
                    GpuState::HeldIdle => totals.held += 1,
                    GpuState::Leak => totals.leaks += 1,
                    GpuState::Orphan => totals.orphans += 1,
                    GpuState::Free => totals.free += 1,
                    GpuState::Sick => totals.sick += 1,
                    GpuState::Unknown => totals.unknown += 1,
                    GpuState::Busy | GpuState::NearlyFull => {}
                }
            }
        }
        totals
    }

    /// The hosts with free GPUs and their number, the most first.
    pub(crate) fn free_gpus(&self) -> Vec<(&str, usize)> {
        let view = &self.fleet_view;
        let free = |(host, _): (HostKey, &HostModel)| {
            let free = self.current_overview(view, host)?.count(GpuState::Free);
            (free > 0).then_some((self.fleet().name(host), free))
        };
        let mut hosts: Vec<(&str, usize)> = self.fleet().hosts().filter_map(free).collect();
        hosts.sort_by_cached_key(|(name, free)| (Reverse(*free), natural_order(name)));
        hosts
    }

    /// The users of GPUs and the number of their GPUs over all hosts, the most first.
    pub(crate) fn fleet_users(&self) -> Vec<(&Text, usize)> {
        let mut users: BTreeMap<&Text, usize> = BTreeMap::new();
        for (host, _) in self.fleet().hosts() {
            let overview = self.current_overview(&self.fleet_view, host);
            for (name, gpus) in overview.iter().flat_map(|overview| &overview.users) {
                *users.entry(name).or_default() += gpus;
            }
        }
        let mut users: Vec<(&Text, usize)> = users.into_iter().collect();
        users.sort_by_key(|(_, gpus)| Reverse(*gpus));
        users
    }

    /// The jobs over all hosts, those with the most GPUs first.
    pub(crate) fn job_lines(&self) -> impl Iterator<Item = JobLine<'_>> {
        self.fleet().jobs().iter().map(|job| JobLine {
            title: job.title(),
            user: job.user.as_ref(),
            size: self.size_of_job(job),
            missing: self.missing_ranks(job),
            hosts: job
                .hosts()
                .into_iter()
                .map(|host| self.fleet().name(host))
                .collect(),
        })
    }

    /// Says which ranks of a job are missing, while the others may wait for them.
    fn missing_ranks(&self, job: &FleetJob) -> Option<String> {
        let missing = job.missing(|host| self.trouble(host).is_none())?;
        match missing.as_slice() {
            [] => None,
            [only] => Some(format!("rank {} is missing", only.rank)),
            several => Some(format!("{} ranks are missing", several.len())),
        }
    }

    /// Says how many ranks a job has, on how many hosts, and how many of them are seen: those that a
    /// host shows that answers. Of a job without ranks, the number of GPUs.
    pub(crate) fn size_of_job(&self, job: &FleetJob) -> String {
        let answers = |host: HostKey| self.trouble(host).is_none();
        let seen = job.ranks.iter().filter(|rank| answers(rank.host)).count();
        let hosts = if job.has_only_leftovers() {
            job.hosts_of_parts()
        } else {
            job.hosts()
        };
        let silent: Vec<HostKey> = hosts
            .iter()
            .copied()
            .filter(|host| !answers(*host))
            .collect();
        let place = match hosts[..] {
            [host] => self.fleet().name(host).to_owned(),
            _ => format!("{} hosts", hosts.len()),
        };
        let count = |count: usize, noun: &str| {
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {noun}{plural} on {place}")
        };
        let all = job.world_size.map(|size| size as usize);
        let words = match all.filter(|all| *all >= job.ranks.len()) {
            _ if job.has_only_leftovers() => {
                let left = job.members().count();
                let noun = if left == 1 { "process" } else { "processes" };
                format!("no rank runs, {left} {noun} left on {place}")
            }
            _ if job.ranks.is_empty() => count(job.gpu_count(), "GPU"),
            Some(all) if all > seen => format!("{}, {seen} seen", count(all, "rank")),
            Some(all) => count(all, "rank"),
            None if silent.is_empty() => count(job.ranks.len(), "rank"),
            None => format!("{}, {seen} seen", count(job.ranks.len(), "rank")),
        };
        match silent[..] {
            [] => words,
            [host] => format!("{words}, {} does not answer", self.fleet().name(host)),
            _ => format!("{words}, {} hosts do not answer", silent.len()),
        }
    }

    /// The width of the widest of these hosts' names.
    pub(super) fn widest_name(&self, hosts: &[HostKey]) -> usize {
        let names = hosts.iter().map(|host| self.fleet().name(*host).width());
        names.max().unwrap_or(0)
    }

    /// Whether a host has all words of a filter: in its names, its users, its jobs, the names of its
    /// GPUs, and the words about its state.
    pub(super) fn matches_host(
        &self,
        host: HostKey,
        overview: Option<&HostOverview>,
        filter: &str,
    ) -> bool {
        if filter.trim().is_empty() {
            return true;
        }
        let fleet = self.fleet();
        let mut words = vec![fleet.both_names(host)];
        let users = || overview.iter().flat_map(|overview| &overview.users);
        words.extend(users().map(|(name, _)| name.to_string()));
        let jobs = overview.iter().flat_map(|overview| &overview.jobs);
        words.extend(jobs.map(|job| job.origin.to_string()));
        let gpus = fleet.host(host).and_then(HostModel::latest);
        let models = gpus.iter().flat_map(|snapshot| &snapshot.gpus);
        words.extend(models.filter_map(|gpu| Some(gpu.facts.name.as_ref().ok()?.to_string())));
        words.extend(self.host_state(host).map(|state| state.words));
        let text = words.join(" ").to_lowercase();
        let is_user = |name: &str| users().any(|(user, _)| user.as_str().to_lowercase() == name);
        let mut terms = filter.split_whitespace().map(str::to_lowercase);
        terms.all(|term| match term.split_once(':') {
            Some(("user", name)) => is_user(name),
            _ => text.contains(&term),
        })
    }
}
