//! The hosts of a cluster, as a Prometheus server knows them: the totals of all hosts, and the GPUs
//! of those that are on the screen.
//!
//! The server answers questions ([`mod@questions`]) about the series of several exporters
//! ([`mod@known_exporter`]). Processes are not among them, so nothing here says what a process does.

mod answers;
#[cfg(test)]
pub(crate) mod example;
mod host;
mod known_exporter;
mod questions;
mod rounds;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::host::span;
pub(crate) use self::host::{
    ClusterFigures, ClusterGpu, ClusterGpuKey, ClusterHost, ClusterHostId, ClusterOwner, HostPast,
    HostSelector,
};
pub(crate) use self::known_exporter::Figure;
use self::known_exporter::SeriesForm;
pub(crate) use self::rounds::{ClusterRound, RoundKind};
use super::UserHues;
use super::health::TroubleRank;
use crate::base::text::Text;

/// The hosts of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// The exporters whose series there are, the best first.
    forms: Vec<SeriesForm>,
    hosts: BTreeMap<ClusterHostId, ClusterHost>,
    /// The users or teams of all hosts, each with the number of GPUs, the most first.
    pub(crate) owners: Vec<(Text, usize)>,
    pub(crate) hues: UserHues,
    /// The time between two samples, as a rule; `None` before it is known.
    pub(crate) interval: Option<Duration>,
    /// The server's clock at its latest answer, in seconds since 1970.
    pub(crate) now: Option<f64>,
    /// The reasons why the latest answers are not complete, by the purpose of the questions.
    warnings: BTreeMap<RoundKind, Text>,
    pub(crate) trouble_knowledge: TroubleKnowledge,
    /// Whether there are more GPUs in trouble than the server was asked for.
    pub(crate) has_more_troubles: bool,
    /// The hosts of each exporter that a better one reads too, by the same name or by another.
    twins: BTreeMap<SeriesForm, BTreeSet<ClusterHostId>>,
    /// The twins with an error of the hardware that no better exporter tells of.
    sick_twins: BTreeMap<ClusterHostId, ClusterHost>,
}

/// Whether the lack of a trouble means that there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TroubleKnowledge {
    /// The server has not answered yet.
    #[default]
    NotAsked,
    /// The exporters tell of no troubles.
    NotExported,
    /// The server has refused a question about troubles.
    Refused,
    Known,
}

/// A trouble in a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClusterTrouble {
    pub(crate) host: ClusterHostId,
    /// The GPUs, by their indices; none for the whole host.
    pub(crate) gpus: Vec<String>,
    /// `None` for a GPU that is held idle, which is no trouble of the host.
    pub(crate) rank: Option<TroubleRank>,
    pub(crate) sentence: String,
}

/// The UUIDs of the GPUs of these hosts that have an error of the hardware.
fn sick_uuids<'a>(hosts: impl Iterator<Item = &'a ClusterHost>) -> BTreeSet<&'a str> {
    let flags = hosts.flat_map(|host| &host.flags);
    let uuids = flags
        .filter(|flag| flag.figure.is_of_hardware())
        .map(|flag| flag.gpu.bare_uuid());
    uuids.filter(|uuid| !uuid.is_empty()).collect()
}

impl Cluster {
    /// The hosts, in the order of their names.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&ClusterHostId, &ClusterHost)> {
        self.hosts.iter()
    }

    pub(crate) fn host(&self, id: &ClusterHostId) -> Option<&ClusterHost> {
        self.hosts.get(id)
    }

    /// The reason why an answer is not complete; `None` where all are.
    pub(crate) fn warning(&self) -> Option<&Text> {
        self.warnings.values().next()
    }

    /// The exporters that are read, the best first.
    pub(crate) fn exporters(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.forms.iter().map(|form| form.exporter().name).collect();
        names.dedup();
        names
    }

    /// The domain that the names of most hosts end with, as in `.cluster.example.org`; empty where they
    /// have none.
    fn most_common_domain(&self) -> &str {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for id in self.hosts.keys() {
            let name = id.name.as_str();
            let is_address = name.parse::<IpAddr>().is_ok();
            if let Some(dot) = name.find('.').filter(|_| !is_address) {
                *counts.entry(&name[dot..]).or_default() += 1;
            }
        }
        let most = counts.into_iter().max_by_key(|(_, hosts)| *hosts);
        most.map_or("", |(domain, _)| domain)
    }

    /// The name of a host on the screen: without the domain that most hosts have, if no other host has
    /// the rest as its name, and with the cluster where there are several.
    pub(crate) fn shown_name<'a>(&'a self, id: &'a ClusterHostId) -> &'a str {
        let host = self.host(id);
        host.map_or_else(|| id.name.as_str(), |host| host.shown_name.as_str())
    }

    /// Names the hosts anew, since others may have come.
    fn name_hosts(&mut self) {
        let domain = self.most_common_domain().to_owned();
        let (domain, has_clusters) = (Some(domain), self.are_in_clusters());
        let domain = domain.filter(|domain| !domain.is_empty());
        let name_of = |id: &ClusterHostId| {
            let name = id.name.as_str();
            let is_taken = |short: &&str| {
                let other = ClusterHostId {
                    cluster: id.cluster.clone(),
                    name: (*short).into(),
                };
                self.hosts.contains_key(&other)
            };
            let short = domain
                .as_ref()
                .and_then(|domain| name.strip_suffix(domain.as_str()));
            let name = short.filter(|short| !is_taken(short)).unwrap_or(name);
            match &id.cluster {
                Some(cluster) if has_clusters => format!("{cluster}/{name}"),
                _ => name.to_owned(),
            }
        };
        let names: Vec<String> = self.hosts.keys().map(name_of).collect();
        for (host, name) in self.hosts.values_mut().zip(names) {
            host.shown_name = name;
        }
    }

    /// Whether the hosts belong to several clusters, so that a name needs the cluster beside it.
    fn are_in_clusters(&self) -> bool {
        let mut clusters = self.hosts.keys().map(|id| &id.cluster);
        let first = clusters.next();
        clusters.any(|cluster| Some(cluster) != first)
    }

    /// The number of GPUs with an error of the hardware that only an exporter tells of whose name of
    /// the host is not listed.
    pub(crate) fn sick_elsewhere(&self) -> usize {
        let listed = sick_uuids(self.hosts.values());
        let elsewhere = sick_uuids(self.sick_twins.values());
        elsewhere.difference(&listed).count()
    }

    /// Whether some hosts have no samples now.
    pub(crate) fn has_silent_hosts(&self) -> bool {
        self.hosts.values().any(|host| host.is_silent)
    }

    /// The time for which a host has had no samples; `None` while it has some. Zero where they ended
    /// before gputop first asked.
    pub(crate) fn silence(&self, host: &ClusterHost) -> Option<Duration> {
        if !host.is_silent {
            return None;
        }
        let silence = self
            .now
            .zip(host.last_seen)
            .and_then(|(now, seen)| span(now - seen));
        Some(silence.unwrap_or(Duration::ZERO))
    }

    /// The rank of the most urgent trouble of a host; `None` without one.
    pub(crate) fn worst_of(&self, host: &ClusterHost) -> Option<TroubleRank> {
        host.worst(self.silence(host))
    }

    /// The troubles of all hosts, the most urgent first; GPUs that are held idle come last.
    pub(crate) fn troubles(&self) -> Vec<ClusterTrouble> {
        let mut troubles: Vec<ClusterTrouble> = self
            .hosts
            .iter()
            .chain(&self.sick_twins)
            .flat_map(|(id, host)| host.troubles(id, self.silence(host)))
            .collect();
        troubles.sort_by_key(|trouble| (trouble.rank.is_none(), trouble.rank));
        troubles
    }
}

#[cfg(test)]
mod tests;
