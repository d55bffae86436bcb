//! Tests of what the report finds, waits for and says.

use super::*;
use crate::base::text::Argv;
use crate::base::units::Percent;
use crate::protocol::snapshot::{ProcessLoad, example};

/// A host with a data loader worker that keeps a GPU open after its trainer ended, and a trainer of
/// another user.
fn left_behind() -> HostModel {
    let mut host = example::host(2)
        .with(101, "python train.py", 0, Bytes::from_gib(11))
        .with(200, "python eval.py", 0, Bytes::from_gib(2));
    host.host.scan.at = host.at;
    let worker = host.processes[0].facts_mut();
    (worker.comm, worker.group) = (Ok("pt_data_worker".into()), Ok(100));
    let other = host.processes[1].facts_mut();
    (other.uid, other.user) = (Ok(1001), Ok("bob".into()));
    let mut model = HostModel::default();
    model.replace(host);
    model
}

#[track_caller]
fn check(user: Option<&str>, exit: Exit, expected: &[&str]) {
    check_on(&[], user, exit, expected);
}

#[track_caller]
fn check_on(ids: &[&str], user: Option<&str>, exit: Exit, expected: &[&str]) {
    let model = left_behind();
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let found = FoundOrphans::select(
        &model,
        model.latest().expect("it has one"),
        user,
        &ids,
        true,
    );
    assert_eq!(found.text(false).lines().collect::<Vec<_>>(), expected);
    assert_eq!(found.exit(), exit);
    assert_eq!(
        found.json()["processes"].as_array().map(Vec::len),
        Some(found.suspects.len())
    );
}

#[test]
fn an_orphan_is_listed_with_the_evidence() {
    let lines = [
        "1 orphan holds 11.0 GiB",
        "VERDICT  GPU  PID  USER    MEMORY     RSS  S  COMMAND",
        "orphan     0  101  alice  11.0GiB  3.0GiB  S  [pt_data_worker] python train.py",
        "         its parent exited (now under PID 1); its process group leader 100 is gone, but it still computes; still \
         holds 11.0 GiB",
    ];
    check(None, Exit::Found, &lines);
    check(Some("me"), Exit::Found, &lines);
    check(Some("alice"), Exit::Found, &lines);
    check_on(&["0"], None, Exit::Found, &lines);
    check_on(&["1"], None, Exit::Success, &["no orphans on these GPUs"]);
}

/// Returns the exit code of a report on this host, and the PIDs that it lists as undecided.
fn exit_and_undecided(model: &HostModel) -> (Exit, Vec<u32>) {
    let found = FoundOrphans::select(model, model.latest().expect("it has one"), None, &[], true);
    let json = found.json();
    let pids = json["undecided"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|process| process["pid"].as_u64());
    (
        found.exit(),
        pids.filter_map(|pid| u32::try_from(pid).ok()).collect(),
    )
}

#[track_caller]
fn check_first_and_second_reading(
    change: impl Fn(&mut Process),
    is_decided_at_first: bool,
    exit: Exit,
    undecided: &[u32],
) {
    let mut host = example::host(1).with(101, "python train.py", 0, Bytes::from_gib(11));
    host.host.scan.at = host.at;
    host.gpus[0].processes[0].sm = Ok(Percent::new(0.0));
    change(&mut host.processes[0]);
    let mut model = HostModel::default();
    model.replace(host.clone());
    assert_eq!(
        exit_and_undecided(&model),
        (Exit::Success, vec![]),
        "the everyday is not reported"
    );
    assert_eq!(is_decided(&model), is_decided_at_first);
    model.replace(host.later(1));
    assert_eq!(exit_and_undecided(&model), (exit, undecided.to_vec()));
}

#[test]
fn a_process_that_ended_or_waits_is_read_once_more_before_it_is_reported() {
    check_first_and_second_reading(|_| (), true, Exit::Success, &[]);
    let ends = |process: &mut Process| {
        (process.load.state, process.load.threads) = (Ok(State::Zombie), Ok(1));
    };
    check_first_and_second_reading(ends, false, Exit::Found, &[]);
    // It ended after the driver listed it, and the driver was not asked since.
    let ended = |process: &mut Process| process.load = ProcessLoad::missing(Missing::Gone);
    check_first_and_second_reading(ended, false, Exit::Success, &[]);
    let waits = |process: &mut Process| process.load.state = Ok(State::DiskSleep);
    check_first_and_second_reading(waits, true, Exit::Success, &[]);
    let hangs = |process: &mut Process| {
        (process.load.state, process.load.cpu) = (Ok(State::DiskSleep), Ok(Percent::new(0.0)));
    };
    check_first_and_second_reading(hangs, false, Exit::Partial, &[101]);
}

/// Whether a report is complete on a host with a process of this name that began a second ago on no
/// GPU. `change` is applied after that.
fn is_complete_with(comm: &str, change: impl FnOnce(&mut Process)) -> bool {
    let mut host = example::host(1).with(101, "python finetune.py", 0, Bytes(0));
    host.gpus[0].processes.clear();
    host.gpus[0].device_file_holders.clear();
    host.host.scan.at = host.at;
    let process = &mut host.processes[0];
    process.id.start_ticks = Some((host.at.0 - 1000) / 10);
    let facts = process.facts_mut();
    (facts.comm, facts.argv, facts.parent) = (Ok(comm.into()), Err(Missing::NotYet), Ok(1));
    change(process);
    let mut model = HostModel::default();
    model.replace(host);
    is_complete(&model)
}

#[test]
fn the_environment_of_a_young_process_is_waited_for_if_it_decides_whether_the_process_is_an_orphan()
{
    // It may belong to a demo that began just now.
    assert!(!is_complete_with("pt_data_worker", |_| ()));
    assert!(is_complete_with("pt_data_worker", |process| process
        .facts_mut()
        .argv =
        Ok(Argv::default())));
    assert!(is_complete_with("make", |_| ()));
}

#[test]
fn a_user_without_orphans_is_told_so() {
    check(Some("bob"), Exit::Success, &["no orphans on these GPUs"]);
}
