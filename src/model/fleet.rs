//! The hosts, each with its own model. One host is a fleet of one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::HostModel;
use crate::protocol::change::OutOfStep;
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;

/// Every host's model, by its key.
///
/// A line changes only the model of the host it came from. A host that restarts, vanishes or lags leaves the others alone.
#[derive(Debug, Clone, Default)]
pub struct Fleet(BTreeMap<HostKey, HostModel>);

impl Fleet {
    /// A fleet of these hosts, before any of their lines.
    pub fn of(hosts: impl IntoIterator<Item = HostKey>) -> Self {
        Self(hosts.into_iter().map(|host| (host, HostModel::default())).collect())
    }

    /// Applies a line from a host, which joins the fleet with its first line.
    ///
    /// # Errors
    ///
    /// When the line starts from another snapshot of this host than the latest: a full line is needed.
    pub fn apply(&mut self, host: HostKey, line: Line) -> Result<(), OutOfStep> {
        self.0.entry(host).or_default().apply(line)
    }

    /// Advances the clock of every host: this time passed without a line.
    pub fn pass(&mut self, time: Duration) {
        for host in self.0.values_mut() {
            host.pass(time);
        }
    }

    /// The model of a host; `None` for a host that is not in the fleet.
    pub fn host(&self, host: HostKey) -> Option<&HostModel> {
        self.0.get(&host)
    }

    /// All hosts, in the order of their keys.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = (HostKey, &HostModel)> {
        self.0.iter().map(|(key, host)| (*key, host))
    }
}

#[cfg(test)]
mod tests {
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
        fleet.pass(Duration::from_mins(1));
        fleet.apply(B, full(65_000, "first")).unwrap();
        let silence = |host| fleet.host(host).unwrap().silence();
        assert_eq!((silence(A), silence(B)), (Some(Duration::from_mins(1)), None));
    }
}
