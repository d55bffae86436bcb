//! Tests of changes between consecutive snapshots: applied to the earlier snapshot, a change gives
//! the later one, also after a way through JSON.

use proptest::prelude::*;

use super::*;
use crate::protocol::line::Line;
use crate::protocol::snapshot::Missing;
use crate::protocol::snapshot::arbitrary::consecutive_snapshots;
use crate::protocol::snapshot::example::host;

/// Writes the change as a tick line and reads it back.
fn over_the_wire(change: Change) -> Change {
    let mut line = Vec::new();
    Line::Tick(Box::new(change)).write(&mut line).unwrap();
    let Ok(Some(Line::Tick(change))) = Line::parse(&line) else {
        panic!("{}", String::from_utf8_lossy(&line))
    };
    *change
}

/// The memory and the SM utilization of a GPU process, where they are known.
type KnownReadings = (Option<u16>, Option<u16>);

/// Readings of five GPU processes.
fn any_readings() -> impl Strategy<Value = Vec<KnownReadings>> {
    let reading = || proptest::option::weighted(0.9, 0..3_u16);
    proptest::collection::vec((reading(), reading()), 5)
}

/// A host with one GPU and a GPU process for each of the readings.
fn host_with(readings: &[KnownReadings]) -> Snapshot {
    let mut host = (100..105).fold(host(1), |host, pid| {
        host.with(pid, "python train.py", 0, Bytes(0))
    });
    for (gpu_process, (memory, sm)) in host.gpus[0].processes.iter_mut().zip(readings) {
        gpu_process.memory = memory
            .map(|bytes| Bytes(bytes.into()))
            .ok_or(Missing::Denied);
        gpu_process.sm = sm
            .map(|percent| Percent::new(percent.into()))
            .ok_or(Missing::NotYet);
    }
    host
}

proptest! {
    #[test]
    fn a_tick_expresses_every_difference((old, new) in consecutive_snapshots()) {
        let mut viewed = old.clone();
        viewed.apply(over_the_wire(Change::between(&old, &new).unwrap())).unwrap();
        prop_assert_eq!(viewed, new);
    }

    #[test]
    fn known_readings_of_the_same_gpu_processes_are_sent_as_columns(old in any_readings(), new in any_readings()) {
        let is_known = |of: fn(&KnownReadings) -> Option<u16>| {
            let mut pairs = old.iter().map(of).zip(new.iter().map(of));
            pairs.clone().all(|(old, new)| old == new) || pairs.all(|(_, new)| new.is_some())
        };
        let is_known = is_known(|readings| readings.0) && is_known(|readings| readings.1);
        let (mut viewed, new) = (host_with(&old), Snapshot { sequence: 1, ..host_with(&new) });
        let change = Change::between(&viewed, &new).unwrap();
        if let Some(gpu) = change.gpus.first() {
            prop_assert_eq!((gpu.process_columns.is_some(), gpu.processes.is_some()), (is_known, !is_known));
        }
        viewed.apply(over_the_wire(change)).unwrap();
        prop_assert_eq!(viewed, new);
    }

    #[test]
    fn no_line_makes_the_parser_panic(line in ".*") {
        let _refused = Line::parse(line.as_bytes());
    }
}

#[test]
fn a_full_line_keeps_the_reasons_of_missing_readings() {
    let host = host(1).with(100, "python train.py", 0, Bytes::from_gib(1));
    let mut line = Vec::new();
    Line::Full(Box::new(host.clone())).write(&mut line).unwrap();
    assert_eq!(
        Line::parse(&line).unwrap(),
        Some(Line::Full(Box::new(host)))
    );
    let text = String::from_utf8(line).unwrap();
    assert!(
        text.contains(r#""fan_speed_percent":null"#)
            && text.contains(r#""fan_speed_percent":"unsupported""#),
        "{text}"
    );
}

#[test]
fn a_change_from_another_snapshot_is_refused_and_changes_nothing() {
    let old = host(1);
    let mut change = Change::between(&old, &old.later(1)).unwrap();
    change.sequence = 7;
    let mut viewed = old.clone();
    assert_eq!((viewed.apply(change), viewed), (Err(OutOfStep), old));

    let (old, new) = (
        host_with(&[(Some(1), Some(1)); 5]),
        Snapshot {
            sequence: 1,
            ..host_with(&[(Some(2), Some(1)); 5])
        },
    );
    let mut viewed = old.clone();
    let mut change = Change::between(&old, &new).unwrap();
    // A column for four of the five GPU processes.
    change.gpus[0]
        .process_columns
        .as_mut()
        .unwrap()
        .memory
        .as_mut()
        .unwrap()
        .pop();
    assert_eq!((viewed.apply(change), viewed), (Err(OutOfStep), old));
}

#[test]
fn only_a_full_line_expresses_other_gpus_another_boot_and_another_schema() {
    let old = host(2);
    let differences: [fn(&mut Snapshot); 5] = [
        |new| drop(new.gpus.remove(0)),
        |new| new.gpus.reverse(),
        |new| new.host.facts.boot_id = "another".into(),
        |new| new.schema += 1,
        |new| new.sequence += 1,
    ];
    for difference in differences {
        let mut new = old.later(1);
        assert!(Change::between(&old, &new).is_some());
        difference(&mut new);
        assert_eq!(Change::between(&old, &new), None);
    }
}
