//! The fleet: all hosts, each with its own model. One host is a fleet of one.

use std::collections::{BTreeMap, HashSet};

use super::fleet_job::FleetJobs;
use super::{FleetJob, HostModel, HostProcess, HostSubject, Past};
use crate::base::text::Text;
use crate::base::time::ViewerTime;
use crate::protocol::change::OutOfStep;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Process;

#[derive(Debug, Clone, Default)]
pub struct Fleet {
    hosts: BTreeMap<HostKey, FleetHost>,
    jobs: FleetJobs,
}

#[derive(Debug, Clone, Default)]
struct FleetHost {
    model: HostModel,
    label: Option<HostLabel>,
    /// The name that the user sees; no two hosts have the same.
    name: Text,
}

/// The number of characters of a host's name that are kept: `HOST_NAME_MAX` of Linux. A longer name
/// would leave no room for the number that makes it unique.
const LONGEST_NAME: usize = 64;

/// The name of a host and a description of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLabel {
    /// The name by what the user typed, or in a recording the name that the host had for the
    /// recorder. `None` for a host that is called by its own name.
    pub name: Option<Text>,
    /// Where the lines of the host come from, such as `this host`: shown as the name until the host
    /// reports its own.
    pub source: Text,
}

impl Fleet {
    pub fn of(hosts: impl IntoIterator<Item = HostKey>) -> Self {
        let mut fleet = Self {
            hosts: hosts
                .into_iter()
                .map(|host| (host, FleetHost::default()))
                .collect(),
            jobs: FleetJobs::default(),
        };
        fleet.find_names();
        fleet
    }

    /// Sets the label of a host, which joins the fleet if it is new.
    pub fn set_label(&mut self, host: HostKey, label: HostLabel) {
        self.hosts.entry(host).or_default().label = Some(label);
        self.find_names();
    }

    /// Applies a line from a host, which joins the fleet with its first line. Returns an error when
    /// the line starts from another snapshot of this host than the latest one: a full line is
    /// needed.
    pub fn apply(&mut self, host: HostKey, line: Line) -> Result<(), OutOfStep> {
        let entry = self.hosts.entry(host).or_default();
        let reported = |host: &FleetHost| {
            host.model
                .latest()
                .map(|latest| latest.host.facts.name.clone())
        };
        let before = matches!(line, Line::Full(_)).then(|| reported(entry));
        let applied = entry.model.apply(line);
        if before.is_some_and(|before| before != reported(entry)) {
            self.find_names();
        }
        applied
    }

    /// Takes the news of a checkpoint in, and nothing else of it. That takes a tenth of the time.
    pub(crate) fn apply_news(&mut self, host: HostKey, checkpoint: &Checkpoint) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.model.restore_news(checkpoint);
        }
    }

    /// The name of a host that the user sees: the name by what the user typed, else the host's own,
    /// else its source. Where two hosts have the same name, the later one gets a number, as in
    /// `box#2`.
    pub fn name(&self, host: HostKey) -> &str {
        self.hosts.get(&host).map_or("", |host| host.name.as_str())
    }

    /// The name by which a host calls itself, whatever the user sees; `None` before its first line.
    /// The host may choose any name, so letters that no host name has become `?`: the name cannot
    /// pass for the words around it.
    pub fn own_name(&self, host: HostKey) -> Option<String> {
        let facts = &self.host(host)?.latest()?.host.facts;
        let plain = |letter: char| {
            if letter.is_ascii_alphanumeric() || "._-".contains(letter) {
                letter
            } else {
                '?'
            }
        };
        Some(
            facts
                .name
                .as_str()
                .chars()
                .take(LONGEST_NAME)
                .map(plain)
                .collect(),
        )
    }

    /// The name by which a host calls itself, if the user sees another one.
    pub fn differing_own_name(&self, host: HostKey) -> Option<String> {
        let label = self.hosts.get(&host)?.label.as_ref()?.name.as_ref()?;
        self.own_name(host).filter(|own| own != label.as_str())
    }

    /// The name of a host, and beside it the host's own name if that differs: `gpu-01 (node17)`.
    pub fn both_names(&self, host: HostKey) -> String {
        match self.differing_own_name(host) {
            Some(own) => format!("{} ({own})", self.name(host)),
            None => self.name(host).to_owned(),
        }
    }

    /// Whether the user called the host by this name, or it is one of several: it is not simply
    /// this host.
    pub fn must_be_named(&self, host: HostKey) -> bool {
        self.has_many()
            || self
                .hosts
                .get(&host)
                .and_then(|host| host.label.as_ref())
                .is_some_and(|label| label.name.is_some())
    }

    fn find_names(&mut self) {
        let mut taken: HashSet<Text> = HashSet::new();
        let typed = |host: &FleetHost| host.label.as_ref().and_then(|label| label.name.clone());
        // A host that is called by its own name cannot take the name that the user typed for
        // another.
        let mut hosts: Vec<(&HostKey, &mut FleetHost)> = self.hosts.iter_mut().collect();
        hosts.sort_by_key(|(_, host)| typed(host).is_none());
        for (key, host) in hosts {
            let own = || {
                host.model
                    .latest()
                    .map(|snapshot| snapshot.host.facts.name.clone())
            };
            let source = || host.label.as_ref().map(|label| label.source.clone());
            let name = typed(host).or_else(own).or_else(source);
            let name = name.unwrap_or_else(|| Text::new(format!("host {}", key.0 + 1)));
            let name: String = name.as_str().chars().take(LONGEST_NAME).collect();
            host.name = Text::from(name.as_str());
            for number in 2.. {
                if !taken.contains(&host.name) {
                    break;
                }
                host.name = Text::new(format!("{name}#{number}"));
            }
            taken.insert(host.name.clone());
        }
    }

    /// Lets a host go on from its past.
    pub(crate) fn begin_after(&mut self, host: HostKey, past: &Past) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.model.begin_after(past);
        }
    }

    /// Lets a host go on from what a recorder saw on it.
    pub(crate) fn continue_from_recorder(&mut self, host: HostKey, past: &Checkpoint) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.model.continue_from_recorder(past);
        }
    }

    pub fn advance(&mut self, time: ViewerTime) {
        for host in self.hosts.values_mut() {
            host.model.advance(time);
        }
    }

    /// Adds to the news of a host that no more data comes from it, for this reason.
    pub(crate) fn add_lost(&mut self, host: HostKey, reason: &Text) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.model.add_lost(reason);
        }
    }

    /// Adds an alert about a process or GPU that the user watches to the news of its host.
    pub(crate) fn add_alert(&mut self, subject: HostSubject, sentence: &str) {
        if let Some(host) = self.hosts.get_mut(&subject.host) {
            host.model.add_alert(subject.subject, sentence);
        }
    }

    /// The model of a host; `None` for a host that is not in the fleet.
    pub fn host(&self, host: HostKey) -> Option<&HostModel> {
        self.hosts.get(&host).map(|host| &host.model)
    }

    /// Whether lists and messages must name the host.
    pub fn has_many(&self) -> bool {
        self.hosts.len() > 1
    }

    /// The latest snapshot of a process, with the model of its host; `None` once the process or the
    /// host is gone.
    pub fn process(&self, id: HostProcess) -> Option<(&HostModel, &Process)> {
        let model = self.host(id.host)?;
        Some((model, model.latest()?.process(id.process)?))
    }

    /// Brings the jobs over all hosts up to date with the latest lines. Costs little while no process
    /// comes or ends.
    pub fn update_jobs(&mut self) {
        let hosts = &self.hosts;
        self.jobs.update(hosts.keys().copied(), |host| {
            hosts.get(&host).map(|host| &host.model)
        });
    }

    /// The jobs over all hosts that have a scheduler, a launcher or a container, as of the last
    /// [`Fleet::update_jobs`]; those with the most GPUs first.
    pub fn jobs(&self) -> &[FleetJob] {
        self.jobs.list()
    }

    /// The job over all hosts that a process belongs to; `None` for a program that was started by
    /// hand.
    pub fn job_of(&self, process: HostProcess) -> Option<&FleetJob> {
        self.jobs().iter().find(|job| job.contains(process))
    }

    pub fn hosts(&self) -> impl ExactSizeIterator<Item = (HostKey, &HostModel)> {
        self.hosts.iter().map(|(key, host)| (*key, &host.model))
    }
}

#[cfg(test)]
mod tests;
