//! Tests of fleets: names, silence, and that nothing of one host reaches another.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::base::units::{Bytes, Moment};
use crate::model::GpuOrProcess;
use crate::protocol::change::Change;
use crate::protocol::command::Signal;
use crate::protocol::reply::{Outcome, Reply};
use crate::protocol::snapshot::{Missing, ProcessId, Snapshot, example};

const A: HostKey = HostKey(0);
const B: HostKey = HostKey(1);

fn full(at: u64, boot_id: &str) -> Line {
    let mut snapshot = example::host(1);
    snapshot.at = Moment(at);
    snapshot.gpus[0].load.at = Moment(at);
    snapshot.host.facts.boot_id = boot_id.into();
    Line::Full(Box::new(snapshot))
}

/// Returns a fleet in which both hosts sent the same lines for 5 s: with the same GPU UUIDs, times
/// and boot.
fn twins() -> Fleet {
    let mut fleet = Fleet::of([B, A]);
    for second in 1..=5 {
        for host in [A, B] {
            fleet.apply(host, full(second * 1000, "first")).unwrap();
        }
    }
    fleet
}

/// The seconds, of the last ten, for which a host has a memory history of its GPU.
fn seconds_of_history(fleet: &Fleet, host: HostKey) -> usize {
    let model = fleet.host(host).unwrap();
    let gpu = model.latest().unwrap().gpus[0].uuid.clone();
    let series = model.series(&GpuOrProcess::Gpu(gpu)).unwrap();
    series
        .columns(model.now(), Duration::from_secs(10), 10)
        .iter()
        .flatten()
        .count()
}

#[test]
fn hosts_come_in_the_order_of_their_keys() {
    assert_eq!(
        twins().hosts().map(|(key, _)| key).collect::<Vec<_>>(),
        [A, B]
    );
    assert!(twins().host(HostKey(2)).is_none());
}

#[test]
fn each_host_has_a_name_of_its_own() {
    let mut fleet = Fleet::of([A, B]);
    let names = |fleet: &Fleet| [A, B].map(|host| fleet.name(host).to_owned());
    assert_eq!(names(&fleet), ["host 1", "host 2"]);
    let source = "ssh gpu-02 gputop agent";
    fleet.set_label(
        B,
        HostLabel {
            name: None,
            source: source.into(),
        },
    );
    assert_eq!(names(&fleet), ["host 1", source]);
    fleet.apply(A, full(1000, "first")).unwrap();
    fleet.apply(B, full(1000, "first")).unwrap();
    assert_eq!(names(&fleet), ["box", "box#2"]);
    fleet.set_label(
        A,
        HostLabel {
            name: Some("left".into()),
            source: source.into(),
        },
    );
    assert_eq!(names(&fleet), ["left", "box"]);
    // The name that the user typed is never the one with a number.
    fleet.set_label(
        B,
        HostLabel {
            name: Some("box".into()),
            source: source.into(),
        },
    );
    fleet.set_label(
        A,
        HostLabel {
            name: None,
            source: source.into(),
        },
    );
    assert_eq!(names(&fleet), ["box#2", "box"]);
    fleet.set_label(
        A,
        HostLabel {
            name: Some("left".into()),
            source: source.into(),
        },
    );
    fleet.set_label(
        B,
        HostLabel {
            name: Some("left".into()),
            source: source.into(),
        },
    );
    assert_eq!(names(&fleet), ["left", "left#2"]);
    for host in [A, B] {
        fleet.set_label(
            host,
            HostLabel {
                name: Some("x".repeat(5000).into()),
                source: source.into(),
            },
        );
    }
    assert_eq!(
        names(&fleet),
        ["x".repeat(64), format!("{}#2", "x".repeat(64))]
    );
}

#[test]
fn the_own_name_of_a_host_stands_beside_the_typed_one_and_cannot_pass_for_it() {
    let mut fleet = Fleet::of([A]);
    fleet.apply(A, full(1000, "first")).unwrap();
    assert_eq!(
        (fleet.both_names(A), fleet.must_be_named(A)),
        ("box".to_owned(), false)
    );
    fleet.set_label(
        A,
        HostLabel {
            name: Some("box".into()),
            source: "ssh".into(),
        },
    );
    assert_eq!(
        (fleet.both_names(A), fleet.must_be_named(A)),
        ("box".to_owned(), true)
    );
    fleet.set_label(
        A,
        HostLabel {
            name: Some("left".into()),
            source: "ssh".into(),
        },
    );
    assert_eq!(fleet.both_names(A), "left (box)");
    let mut snapshot = example::host(1);
    snapshot.host.facts.name = "gpu-01) on gpu-02 (\u{430}".into();
    fleet.apply(A, Line::Full(Box::new(snapshot))).unwrap();
    assert_eq!(fleet.both_names(A), "left (gpu-01??on?gpu-02???)");
}

#[test]
fn a_host_that_restarts_loses_only_its_own_history() {
    let mut fleet = twins();
    let before = seconds_of_history(&fleet, A);
    assert!(before >= 4, "{before}");
    fleet.apply(B, full(1000, "second")).unwrap();
    assert_eq!(
        (seconds_of_history(&fleet, A), seconds_of_history(&fleet, B)),
        (before, 1)
    );
}

#[test]
fn a_silent_host_is_overdue_and_the_other_is_not() {
    let mut fleet = twins();
    fleet.advance(ViewerTime::new(Duration::from_mins(1)));
    fleet.apply(B, full(65_000, "first")).unwrap();
    let silence = |host| fleet.host(host).unwrap().silence();
    assert_eq!(
        (silence(A), silence(B)),
        (Some(Duration::from_mins(1)), None)
    );
    // Viewer time does not move data time, and shows how old the readings are.
    let model = fleet.host(A).unwrap();
    assert_eq!(model.now(), Moment(5000));
    assert_eq!(
        model.age(&model.latest().unwrap().gpus[0]),
        Some(Duration::from_mins(1))
    );
}

/// The agent of a host that has the same PIDs, start ticks and GPU UUIDs as every other host.
struct TwinAgent {
    latest: Snapshot,
}

impl TwinAgent {
    fn new() -> Self {
        Self {
            latest: example::host(2).with(100, "python train.py", 0, Bytes::from_gib(1)),
        }
    }

    fn full(&self) -> Line {
        Line::Full(Box::new(self.latest.clone()))
    }

    /// Passes once, and returns the line that reaches the viewer; `None` when the line is lost.
    /// Each argument may be any number, which chooses what happens.
    fn pass(&mut self, change: u8, delivery: u8, choice: u8) -> Option<Line> {
        let old = self.latest.clone();
        let mut new = old.later(1 + u64::from(choice % 5));
        let (pid, gpu) = (100 + u32::from(choice % 3), usize::from(choice / 3 % 2));
        let process = ProcessId {
            pid,
            start_ticks: Some(u64::from(pid)),
        };
        match change % 5 {
            0 if new.gpus[gpu].process(process).is_none() => {
                new = new.with(
                    pid,
                    "python train.py",
                    gpu,
                    Bytes::from_mib(u64::from(choice) * 64),
                );
            }
            1 => new = new.without(pid),
            2 => new.gpus[gpu]
                .processes
                .iter_mut()
                .for_each(|listed| listed.memory = Err(Missing::Failed)),
            _ => {
                let memory = Ok(Bytes::from_mib(1024 + u64::from(choice) * 100));
                new.gpus[gpu]
                    .processes
                    .iter_mut()
                    .for_each(|listed| listed.memory = memory);
                new.gpus[gpu].load.memory_used = memory;
            }
        }
        let tick = Change::between(&old, &new).map(|change| Line::Tick(Box::new(change)));
        self.latest = new;
        match delivery % 12 {
            0..6 => tick,
            6 => None,
            // The agent starts again.
            7 => {
                self.latest.sequence = 0;
                Some(self.full())
            }
            // The host starts again.
            8 => {
                self.latest = Self::new().latest;
                self.latest.at = Moment(u64::from(choice) * 1000);
                self.latest
                    .gpus
                    .iter_mut()
                    .for_each(|gpu| gpu.load.at = Moment(u64::from(choice) * 1000));
                self.latest.host.facts.boot_id = format!("boot {choice}").into();
                Some(self.full())
            }
            9 => {
                let outcome = Outcome::Sent {
                    signal: Signal::Term,
                    at: self.latest.at,
                };
                Some(Line::Reply(Reply { process, outcome }))
            }
            _ => Some(self.full()),
        }
    }
}

proptest! {
    /// Lists, graphs, verdicts and signals of a host come from its own lines: each host is in the
    /// state of a fleet that has only this host, whatever the other host with the same PIDs and GPU
    /// UUIDs sends in between.
    #[test]
    fn hosts_with_the_same_pids_and_gpus_are_not_mixed_up(
        passes in proptest::collection::vec((any::<bool>(), any::<[u8; 3]>()), 1..40),
    ) {
        let mut agents = [TwinAgent::new(), TwinAgent::new()];
        let mut together = Fleet::of([A, B]);
        let mut alone = [A, B].map(|host| Fleet::of([host]));
        for (is_second, [change, delivery, choice]) in passes {
            let (place, host) = if is_second { (1, B) } else { (0, A) };
            if let Some(line) = agents[place].pass(change, delivery, choice) {
                prop_assert_eq!(together.apply(host, line.clone()), alone[place].apply(host, line));
            }
            if choice == 0 {
                let second = ViewerTime::new(Duration::from_secs(1));
                together.advance(second);
                for fleet in &mut alone {
                    fleet.advance(second);
                }
            }
        }
        for (host, alone) in [A, B].into_iter().zip(&alone) {
            prop_assert_eq!(format!("{:?}", together.host(host)), format!("{:?}", alone.host(host)));
        }
    }
}
