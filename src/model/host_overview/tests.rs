//! Tests of the line of one host.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::GpuState::{Busy, Free, NearlyFull, Sick, Unknown};
use super::*;
use crate::base::units::{Bytes, Percent};
use crate::model::HeldIdle;
use crate::protocol::snapshot::arbitrary::consecutive_snapshots;
use crate::protocol::snapshot::example::host;
use crate::protocol::snapshot::{Cause, Missing, Throttle, Trouble, Xid};

fn gib(gib: u64) -> Bytes {
    Bytes::from_gib(gib)
}

fn seen(snapshot: Snapshot) -> HostModel {
    let mut model = HostModel::default();
    model.replace(snapshot);
    model
}

/// The states of the GPUs of a host, in words.
fn states(model: &HostModel) -> Vec<GpuState> {
    let overview = model.overview().expect("there was a line");
    overview.gpus.iter().map(|gpu| gpu.state).collect()
}

/// A host with two processes, whose GPUs do nothing for so many minutes.
fn idle_for(minutes: u64) -> HostModel {
    let mut at = host(2)
        .with(7, "jupyter-lab", 0, gib(30))
        .with(8, "python serve.py", 1, gib(20));
    let mut model = HostModel::default();
    for _ in 0..=2 * minutes {
        for gpu in &mut at.gpus {
            (gpu.load.sm, gpu.health.pcie_quiet) = (Ok(Percent::new(0.0)), Ok(true));
        }
        // The second GPU serves a request now and then.
        at.gpus[1].load.sm = Ok(Percent::new(f32::from(u8::from(at.sequence % 20 == 19))));
        model.replace(at.clone());
        at = at.later(30);
    }
    model
}

#[test]
fn a_free_gpu_a_busy_one_and_one_that_is_nearly_full() {
    let mut at =
        host(3)
            .with(7, "python train.py", 1, gib(40))
            .with(8, "python train.py", 2, gib(73));
    // A process that the driver does not list computes on it.
    assert_eq!(states(&seen(at.clone())), [Busy, Busy, NearlyFull]);
    at.gpus[0].load.sm = Err(Missing::NotYet);
    assert_eq!(states(&seen(at.clone())), [Unknown, Busy, NearlyFull]);
    at.gpus[0].load.sm = Ok(Percent::new(0.0));
    let model = seen(at);
    assert_eq!(states(&model), [Free, Busy, NearlyFull]);
    let overview = model.overview().unwrap();
    assert_eq!(overview.users, [("alice".into(), 2)]);
    assert_eq!(overview.memory_used.map(|used| used.bytes), Ok(gib(113)));
    assert_eq!(overview.sm, Some(Percent::new(33.3)));
    assert_eq!(overview.power, Some(900.0));
}

#[test]
fn a_gpu_that_fails_is_sick_whatever_is_on_it_and_one_without_figures_is_unknown() {
    let mut at =
        host(4)
            .with(7, "python train.py", 0, gib(79))
            .with(8, "python train.py", 1, gib(40));
    at.gpus[0].health.xids.push(Xid {
        at: at.at,
        code: 79,
    });
    at.gpus[1].trouble = Some(Trouble {
        cause: Cause::Hung,
        call: None,
        since: at.at,
        sentence: "the driver hangs".into(),
    });
    at.gpus[2].load.memory_used = Err(Missing::Failed);
    at.gpus[3].missing.processes = Some(Missing::Denied);
    assert_eq!(states(&seen(at)), [Sick, Sick, Unknown, Unknown]);
}

#[test]
fn memory_that_somebody_holds_shows_that_a_gpu_with_unknown_processes_is_busy() {
    let mut at = host(1);
    at.gpus[0].missing.processes = Some(Missing::Denied);
    at.gpus[0].load.memory_used = Ok(gib(9));
    assert_eq!(states(&seen(at)), [Busy]);
}

#[test]
fn a_gpu_is_held_idle_after_half_an_hour_and_comes_before_one_that_is_nearly_full() {
    assert_eq!(states(&idle_for(29)), [Busy, Busy]);
    let model = idle_for(31);
    assert_eq!(states(&model), [GpuState::HeldIdle, Busy]);
    let [held] = &model.overview().unwrap().held[..] else {
        panic!("one user holds GPUs: {:?}", model.overview());
    };
    assert_eq!((held.gpus.as_slice(), held.holder.pid), (&[0][..], 7));
    assert_eq!(held.memory.map(|memory| memory.bytes), Ok(gib(30)));
    assert!(!held.was_seen);
    assert_eq!(model.now().since(held.since).as_secs(), 31 * 60);
}

#[test]
fn a_checkpoint_keeps_since_when_a_gpu_is_held_idle() {
    let before = idle_for(31);
    let mut after = seen(before.latest().unwrap().later(20));
    after
        .apply(crate::protocol::line::Line::Checkpoint(Box::new(
            before.checkpoint().unwrap(),
        )))
        .unwrap();
    assert_eq!(states(&after)[0], GpuState::HeldIdle);
}

#[test]
fn a_gpu_whose_pcie_traffic_is_not_known_is_never_held_idle() {
    let mut at = host(1).with(7, "jupyter-lab", 0, gib(30));
    let mut model = HostModel::default();
    for _ in 0..80 {
        at.gpus[0].load.sm = Ok(Percent::new(0.0));
        model.replace(at.clone());
        at = at.later(30);
    }
    assert_eq!(states(&model), [Busy]);
    assert_eq!(
        model.held_idle(&model.latest().unwrap().gpus[0]),
        HeldIdle::Unknown
    );
}

#[test]
fn a_repair_that_the_driver_asks_for_is_told_before_a_pending_remap_and_a_slowdown() {
    let mut at = host(1);
    let health = &mut at.gpus[0].health;
    (health.recovery_action, health.remap_pending) = (Ok(4), Ok(true));
    at.gpus[0].load.throttle = Ok(vec![Throttle::HardwareThermal]);
    assert_eq!(states(&seen(at)), [Sick]);
}

#[test]
fn a_gpu_that_mig_splits_is_one_gpu_with_the_users_of_its_instances() {
    let mut at = host(4)
        .with(7, "python a.py", 1, gib(5))
        .with(8, "python b.py", 2, gib(9));
    for instance in [1, 2] {
        at.gpus[instance].facts.parent = Some(at.gpus[0].uuid.clone());
    }
    at.gpus[3].load.sm = Ok(Percent::new(0.0));
    let model = seen(at);
    assert_eq!(states(&model), [Busy, Free]);
    assert_eq!(model.overview().unwrap().users, [("alice".into(), 1)]);
}

#[test]
fn jobs_are_those_of_schedulers_and_containers_with_the_number_of_their_gpus() {
    let mut at = (0..3).fold(host(3), |at, gpu| {
        at.with(7, "python train.py", gpu, gib(9))
    });
    at = at.with(8, "python x.py", 2, gib(1));
    at.processes[0].facts_mut().origin = Ok("slurm 4242".into());
    at.processes[1].facts_mut().origin = Ok("tmux".into());
    let jobs = seen(at).overview().unwrap().jobs;
    assert_eq!(
        jobs,
        [JobOverview {
            origin: "slurm 4242".into(),
            user: Some("alice".into()),
            gpus: 3,
        }]
    );
}

proptest! {
    #[test]
    fn each_whole_gpu_counts_once_whatever_a_host_reports(
        (old, new) in consecutive_snapshots()
    ) {
        let mut model = seen(old);
        model.replace(new);
        let snapshot = model.latest().unwrap();
        let whole = snapshot.gpus.iter().filter(|gpu| gpu.facts.parent.is_none()).count();
        let overview = model.overview().unwrap();
        prop_assert_eq!(overview.gpus.len(), whole);
        let busy = overview.gpus.iter().filter(|gpu| gpu.state.is_busy()).count();
        let others: usize = [Free, Sick, Unknown]
            .into_iter()
            .map(|state| overview.count(state))
            .sum();
        prop_assert_eq!(busy + others, whole);
        prop_assert!(overview.users.iter().all(|(_, gpus)| (1..=whole).contains(gpus)));
        prop_assert!(overview.jobs.iter().all(|job| (1..=whole).contains(&job.gpus)));
        for held in &overview.held {
            prop_assert_eq!(held.gpus.iter().collect::<BTreeSet<_>>().len(), held.gpus.len());
        }
    }
}
