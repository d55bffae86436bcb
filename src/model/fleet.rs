//! The hosts, each with its own model. One host is a fleet of one.

use std::collections::BTreeMap;

use super::{HostModel, HostProcess};
use crate::base::text::Text;
use crate::base::time::ViewerTime;
use crate::protocol::change::OutOfStep;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Process;

/// Every host's model, by its key.
///
/// A line changes only the model of the host it came from. A host that restarts, vanishes or lags leaves the others alone.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    models: BTreeMap<HostKey, HostModel>,
    labels: BTreeMap<HostKey, HostLabel>,
    /// The names of all hosts for people; no two are the same.
    names: BTreeMap<HostKey, Text>,
}

/// The number of characters of a host's name that are kept: `HOST_NAME_MAX` of Linux. A longer name would leave no room for
/// the number that makes it unique.
const LONGEST_NAME: usize = 64;

/// The name of a host and a description of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLabel {
    /// The name that the user gave to the host.
    pub name: Option<Text>,
    /// Where its lines come from, such as `ssh gpu-02 gputop agent`: stands for the name until the host says its own.
    pub source: Text,
}

impl Fleet {
    /// A fleet of these hosts, before any of their lines.
    pub fn of(hosts: impl IntoIterator<Item = HostKey>) -> Self {
        let models = hosts.into_iter().map(|host| (host, HostModel::default())).collect();
        let mut fleet = Self { models, ..Self::default() };
        fleet.find_names();
        fleet
    }

    /// Sets the label of a host, which joins the fleet if it is new.
    pub fn set_label(&mut self, host: HostKey, label: HostLabel) {
        self.models.entry(host).or_default();
        self.labels.insert(host, label);
        self.find_names();
    }

    /// Applies a line from a host, which joins the fleet with its first line.
    ///
    /// # Errors
    ///
    /// When the line starts from another snapshot of this host than the latest: a full line is needed.
    pub fn apply(&mut self, host: HostKey, line: Line) -> Result<(), OutOfStep> {
        let is_full = matches!(line, Line::Full(_));
        let applied = self.models.entry(host).or_default().apply(line);
        if is_full {
            self.find_names();
        }
        applied
    }

    /// The name of a host for people: the name that the user gave, else its own, else its source. Where two hosts have the
    /// same name, the later one has a number, as in `box#2`.
    pub fn name(&self, host: HostKey) -> &str {
        self.names.get(&host).map_or("", Text::as_str)
    }

    fn find_names(&mut self) {
        let mut names: BTreeMap<HostKey, Text> = BTreeMap::new();
        for (host, model) in &self.models {
            let label = self.labels.get(host);
            let own = || model.latest().map(|snapshot| snapshot.host.facts.name.clone());
            let name = label.and_then(|label| label.name.clone()).or_else(own);
            let name = name.or_else(|| label.map(|label| label.source.clone()));
            let name = name.unwrap_or_else(|| Text::new(format!("host {}", host.0 + 1)));
            let name: String = name.as_str().chars().take(LONGEST_NAME).collect();
            let is_taken = |name: &Text| names.values().any(|taken| taken == name);
            let mut numbered = Text::from(name.as_str());
            for number in 2.. {
                if !is_taken(&numbered) {
                    break;
                }
                numbered = Text::new(format!("{name}#{number}"));
            }
            names.insert(*host, numbered);
        }
        self.names = names;
    }

    /// Advances the clock of every host: this time passed without a line.
    pub fn pass(&mut self, time: ViewerTime) {
        for host in self.models.values_mut() {
            host.pass(time);
        }
    }

    /// The model of a host; `None` for a host that is not in the fleet.
    pub fn host(&self, host: HostKey) -> Option<&HostModel> {
        self.models.get(&host)
    }

    /// Whether lists and messages have to say which host they are about.
    pub fn has_many(&self) -> bool {
        self.models.len() > 1
    }

    /// The latest snapshot of a process, with the model of its host; `None` once the process or the host is gone.
    pub fn process(&self, id: HostProcess) -> Option<(&HostModel, &Process)> {
        let model = self.host(id.host)?;
        Some((model, model.latest()?.process(id.process)?))
    }

    /// All hosts, in the order of their keys.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = (HostKey, &HostModel)> {
        self.models.iter().map(|(key, host)| (*key, host))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::units::Moment;
    use crate::model::GpuOrProcess;
    use crate::protocol::snapshot::example;

    const A: HostKey = HostKey(0);
    const B: HostKey = HostKey(1);

    fn full(at: u64, boot_id: &str) -> Line {
        let mut snapshot = example::host(1);
        snapshot.at = Moment(at);
        snapshot.gpus[0].load.at = Moment(at);
        snapshot.host.facts.boot_id = boot_id.into();
        Line::Full(Box::new(snapshot))
    }

    /// A fleet in which both hosts sent the same lines, for 5 s: the same GPU UUIDs, times and boot.
    fn twins() -> Fleet {
        let mut fleet = Fleet::of([B, A]);
        for second in 1..=5 {
            for host in [A, B] {
                fleet.apply(host, full(second * 1000, "first")).unwrap();
            }
        }
        fleet
    }

    /// The seconds for which a host has a memory history of its GPU.
    fn seconds_of_history(fleet: &Fleet, host: HostKey) -> usize {
        let model = fleet.host(host).unwrap();
        let gpu = model.latest().unwrap().gpus[0].uuid.clone();
        let series = model.series(&GpuOrProcess::Gpu(gpu)).unwrap();
        series.columns(model.now(), Duration::from_secs(10), 10).iter().flatten().count()
    }

    #[test]
    fn hosts_come_in_the_order_of_their_keys() {
        assert_eq!(twins().hosts().map(|(key, _)| key).collect::<Vec<_>>(), [A, B]);
        assert!(twins().host(HostKey(2)).is_none());
    }

    #[test]
    fn each_host_has_a_name_of_its_own() {
        let mut fleet = Fleet::of([A, B]);
        let names = |fleet: &Fleet| [A, B].map(|host| fleet.name(host).to_owned());
        assert_eq!(names(&fleet), ["host 1", "host 2"]);
        let source = "ssh gpu-02 gputop agent";
        fleet.set_label(B, HostLabel { name: None, source: source.into() });
        assert_eq!(names(&fleet), ["host 1", source]);
        fleet.apply(A, full(1000, "first")).unwrap();
        fleet.apply(B, full(1000, "first")).unwrap();
        assert_eq!(names(&fleet), ["box", "box#2"]);
        fleet.set_label(A, HostLabel { name: Some("left".into()), source: source.into() });
        assert_eq!(names(&fleet), ["left", "box"]);
        fleet.set_label(B, HostLabel { name: Some("left".into()), source: source.into() });
        assert_eq!(names(&fleet), ["left", "left#2"]);
        for host in [A, B] {
            fleet.set_label(host, HostLabel { name: Some("x".repeat(5000).into()), source: source.into() });
        }
        assert_eq!(names(&fleet), ["x".repeat(64), format!("{}#2", "x".repeat(64))]);
    }

    #[test]
    fn a_host_that_restarts_loses_only_its_own_history() {
        let mut fleet = twins();
        let before = seconds_of_history(&fleet, A);
        assert!(before >= 4, "{before}");
        fleet.apply(B, full(1000, "second")).unwrap();
        assert_eq!((seconds_of_history(&fleet, A), seconds_of_history(&fleet, B)), (before, 1));
    }

    #[test]
    fn a_silent_host_is_overdue_and_the_other_is_not() {
        let mut fleet = twins();
        fleet.pass(ViewerTime::new(Duration::from_mins(1)));
        fleet.apply(B, full(65_000, "first")).unwrap();
        let silence = |host| fleet.host(host).unwrap().silence();
        assert_eq!((silence(A), silence(B)), (Some(Duration::from_mins(1)), None));
        // Viewer time does not move data time, and shows how old the readings are.
        let model = fleet.host(A).unwrap();
        assert_eq!(model.now(), Moment(5000));
        assert_eq!(model.age(&model.latest().unwrap().gpus[0]), Some(Duration::from_mins(1)));
    }
}
