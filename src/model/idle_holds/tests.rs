//! Tests of who holds GPUs idle: what is used now and then is not, and nobody is blamed for the time
//! of another.

use super::*;
use crate::base::units::{Bytes, Percent};
use crate::protocol::snapshot::example;

/// The readings of a GPU at a second: its use in percent, and whether its PCIe link is quiet.
type ReadingsAt = fn(u64) -> (f32, bool);

fn gib(gib: u64) -> Bytes {
    Bytes::from_gib(gib)
}

/// A host whose processes are read each ten seconds, for so many minutes.
fn seen_for(mut at: Snapshot, minutes: u64, readings: ReadingsAt) -> (HostModel, Snapshot) {
    let mut model = HostModel::default();
    for pass in 0..=6 * minutes {
        let (sm, is_quiet) = readings(10 * pass);
        for gpu in &mut at.gpus {
            (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(sm)), Ok(is_quiet));
        }
        model.replace(at.clone());
        at = at.later(10);
    }
    (model, at)
}

fn idle(_second: u64) -> (f32, bool) {
    (0.0, true)
}

/// Holds as GPU, user, PID and seconds until now.
fn holds(model: &HostModel) -> Vec<(usize, Option<String>, u32, u64)> {
    let words = |hold: IdleHold| {
        let user = hold.user.as_ref().map(ToString::to_string);
        let seconds = model.now().since(hold.since).as_secs();
        (hold.gpu, user, hold.holder().pid, seconds)
    };
    model.idle_holds().into_iter().map(words).collect()
}

fn notebook() -> Snapshot {
    example::host(1).with(7, "jupyter-lab", 0, gib(30))
}

#[test]
fn an_evaluation_on_the_cpu_counts_after_half_an_hour_and_no_sooner() {
    let evaluation: ReadingsAt = |second| {
        if second < 60 {
            (97.0, false)
        } else {
            (0.0, true)
        }
    };
    for minutes in [2, 10, 30] {
        let (model, _) = seen_for(notebook(), minutes, evaluation);
        assert_eq!(holds(&model), [], "after {minutes} minutes");
    }
    let (model, _) = seen_for(notebook(), 31, evaluation);
    assert_eq!(holds(&model), [(0, Some("alice".to_owned()), 7, 1800)]);
    assert!(model.idle_holds()[0].was_seen);
}

#[test]
fn a_loader_that_waits_for_data_is_not_idle_while_a_batch_comes_now_and_then() {
    // One batch is copied each 20 minutes, and no kernel runs for hours.
    let (model, _) = seen_for(notebook(), 600, |second| (0.0, second % 1200 != 0));
    assert_eq!(holds(&model), []);
    // The same with small batches, of which only the kernel is seen.
    let small: ReadingsAt = |second| (f32::from(u8::from(second % 1200 == 0)), true);
    assert_eq!(holds(&seen_for(notebook(), 600, small).0), []);
}

#[test]
fn a_notebook_in_use_is_not_idle_and_one_that_is_left_open_is() {
    // A cell runs each 25 minutes until noon.
    let (model, _) = seen_for(notebook(), 240, |second| {
        let is_used = second <= 2 * 3600 && second % 1500 == 0;
        (if is_used { 30.0 } else { 0.0 }, !is_used)
    });
    let left = 240 * 60 - 6000 - 10;
    assert_eq!(holds(&model), [(0, Some("alice".to_owned()), 7, left)]);
    for minutes in (1..120).step_by(7) {
        let (model, _) = seen_for(notebook(), minutes, |second| {
            (if second % 1500 == 0 { 30.0 } else { 0.0 }, true)
        });
        assert_eq!(holds(&model), [], "after {minutes} minutes");
    }
}

#[test]
fn a_time_that_nobody_read_begins_the_idle_time_anew_as_a_lower_bound() {
    let (mut model, at) = seen_for(notebook(), 120, idle);
    assert_eq!(holds(&model).len(), 1);
    let mut at = at.later(120);
    model.replace(at.clone());
    assert_eq!(holds(&model), [], "it may have been used meanwhile");
    for _ in 0..180 {
        at = at.later(10);
        model.replace(at.clone());
    }
    assert_eq!(holds(&model), [(0, Some("alice".to_owned()), 7, 1800)]);
    assert!(!model.idle_holds()[0].was_seen);
}

#[test]
fn a_user_who_comes_to_an_idle_gpu_holds_it_from_then_on() {
    let (mut model, at) = seen_for(notebook(), 120, idle);
    // Bob's process has more memory, and begins now.
    let mut at = at.with(8, "python serve.py", 0, gib(40));
    let bob = at.processes.last_mut().expect("it is listed").facts_mut();
    (bob.user, bob.uid) = (Ok("bob".into()), Ok(1001));
    at.gpus[0].load.sm = Ok(Percent::new(0.0));
    for _ in 0..=180 {
        model.replace(at.clone());
        at = at.later(10);
    }
    let alice = (0, Some("alice".to_owned()), 7, 7200 + 1810);
    assert_eq!(holds(&model), [(0, Some("bob".to_owned()), 8, 1800), alice]);
    let holds = model.idle_holds();
    assert!(holds[0].was_seen && !holds[1].was_seen);
    // The GPU counts once.
    let time = GpuTime::of(holds.iter(), model.now());
    assert_eq!((time.time.as_secs(), time.is_lower_bound), (9010, true));
    let by_user = HeldGpus::by_user(&holds, model.now());
    assert_eq!(by_user.len(), 2);
}

#[test]
fn the_gpus_of_two_jobs_of_one_user_are_told_apart() {
    let mut at = example::host(3)
        .with(7, "python train.py", 0, gib(30))
        .with(8, "python train.py", 1, gib(30))
        .with(9, "python other.py", 2, gib(30));
    for place in [0, 1] {
        at.processes[place].facts_mut().origin = Ok("slurm 4242".into());
    }
    let (model, _) = seen_for(at, 60, idle);
    let holds = model.idle_holds();
    assert!(holds[0].is_of_same_job(&holds[1]));
    assert!(!holds[0].is_of_same_job(&holds[2]));
    let [all] = &HeldGpus::by_user(&holds, model.now())[..] else {
        panic!("they are of one user: {holds:?}");
    };
    assert_eq!(all.gpus, [0, 1, 2]);
    assert!((all.time.hours() - 3.0).abs() < 1e-9, "{all:?}");
}
