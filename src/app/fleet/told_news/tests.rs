//! Tests of the news that a recorder tells, on snapshots of one host.

use super::*;
use crate::base::units::{Bytes, Percent};
use crate::protocol::line::Line;
use crate::protocol::snapshot::example::host;
use crate::protocol::snapshot::{Cause, State, Trouble};

const ALICE: u32 = 1000;
const BOB: u32 = 1001;

/// A recorder of alice that looks at one host.
struct OneRecorder {
    fleet: Fleet,
    told: ToldNews,
}

impl OneRecorder {
    fn new(scope: AlertScope) -> Self {
        let idle = Duration::from_hours(2);
        Self {
            fleet: Fleet::default(),
            told: ToldNews::new(TellOptions { scope, idle }),
        }
    }

    fn see(&mut self, snapshot: &Snapshot) -> Vec<Alert> {
        let line = Line::Full(Box::new(snapshot.clone()));
        self.fleet.apply(HostKey::FIRST, line).expect("a full line");
        self.told.see(HostKey::FIRST, &self.fleet);
        self.told.take(HostKey::FIRST, &self.fleet)
    }

    /// Looks at the host for this many seconds more. Returns the kinds and sentences.
    fn wait(&mut self, host: &mut Snapshot, seconds: u64) -> Vec<(AlertKind, String)> {
        let mut alerts = Vec::new();
        for _ in 0..seconds {
            *host = host.later(1);
            alerts.extend(self.see(host));
        }
        alerts
            .into_iter()
            .map(|alert| (alert.kind, alert.sentence))
            .collect()
    }
}

/// A process of alice on GPU 0, and one of bob on GPU 1.
fn of_two_users() -> Snapshot {
    let mut host = host(2);
    for (pid, gpu, uid, user) in [(100, 0, ALICE, "alice"), (101, 1, BOB, "bob")] {
        host = host.with(pid, "python train.py", gpu, Bytes::from_gib(1));
        let last = host.processes.len() - 1;
        let facts = host.processes[last].facts_mut();
        (facts.uid, facts.user) = (Ok(uid), Ok(user.into()));
    }
    host
}

#[test]
fn a_leak_is_told_once_with_its_end_and_not_again_by_a_recorder_that_is_started_again() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    let mut alerts = Vec::new();
    for second in 0..2400 {
        host = host.later(1);
        if (100..1000).contains(&second) {
            for gpu in &mut host.gpus {
                for bytes in [&mut gpu.processes[0].memory, &mut gpu.load.memory_used] {
                    bytes.as_mut().expect("known").0 += 10 << 20;
                }
            }
        }
        alerts.extend(watcher.see(&host));
        if second == 900 {
            let kinds: Vec<AlertKind> = alerts.iter().map(|alert| alert.kind).collect();
            assert_eq!(kinds, [AlertKind::Leak], "{alerts:#?}");
            // Another recorder reads the same lines.
            let options = watcher.told.options.clone();
            watcher.told = ToldNews::new(options);
            watcher.told.see(HostKey::FIRST, &watcher.fleet);
            watcher.told.forget(&watcher.fleet);
        }
    }
    let kinds: Vec<AlertKind> = alerts.iter().map(|alert| alert.kind).collect();
    assert_eq!(kinds, [AlertKind::Leak, AlertKind::LeakOver], "{alerts:#?}");
    let fact = |name: &str| {
        let mut facts = alerts[0].facts.iter();
        facts
            .find(|fact| fact.0 == name)
            .map(|fact| fact.1.as_str())
    };
    assert_eq!(
        [fact("PID"), fact("USER"), fact("GPU"), fact("JOB")],
        [Some("100"), Some("alice"), Some("0"), Some("train.py")]
    );
    assert!(fact("RATE_BYTES_PER_S").is_some() && fact("OOM_IN_S").is_some());
}

#[test]
fn the_end_of_a_process_and_a_free_gpu_are_told_to_the_user_of_them() {
    let ended = (
        AlertKind::ProcessEnded,
        "100 train.py (alice) exited, held 1.0 GiB on GPU 0".to_owned(),
    );
    let free = |gpu| (AlertKind::GpuFree, format!("GPU {gpu} is free"));
    for (scope, expected) in [
        (AlertScope::Mine, vec![ended.clone(), free(0)]),
        (
            AlertScope::Everyone,
            vec![
                ended,
                (
                    AlertKind::ProcessEnded,
                    "101 train.py (bob) exited, held 1.0 GiB on GPU 1".to_owned(),
                ),
                (AlertKind::GpuFree, "GPUs 0, 1 are free".to_owned()),
            ],
        ),
    ] {
        let mut watcher = OneRecorder::new(scope);
        let mut host = of_two_users();
        assert_eq!(watcher.wait(&mut host, 5), []);
        host = host.without(100).without(101);
        for gpu in &mut host.gpus {
            gpu.load.memory_used = Ok(Bytes(0));
        }
        assert_eq!(watcher.wait(&mut host, 5), expected);
    }
}

#[test]
fn the_processes_of_a_job_end_as_one_and_helpers_of_a_living_process_end_in_silence() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = host(2);
    for (pid, parent) in [(100, 1), (101, 100), (102, 100)] {
        host = host.with(pid, "python train.py", 0, Bytes::from_gib(1));
        let last = host.processes.len() - 1;
        host.processes[last].facts_mut().parent = Ok(parent);
    }
    // They have only just begun.
    let ticks = host.at.0 * host.host.facts.ticks_per_second / 1000;
    let listed = host.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes);
    let ids = listed.map(|listed| &mut listed.process);
    for id in ids.chain(host.processes.iter_mut().map(|process| &mut process.id)) {
        id.start_ticks = Some(ticks);
    }
    assert_eq!(watcher.wait(&mut host, 5), []);
    host = host.without(102);
    assert_eq!(watcher.wait(&mut host, 5), []);
    host = host.without(100).without(101);
    host.gpus[0].load.memory_used = Ok(Bytes(0));
    let told = watcher.wait(&mut host, 5);
    assert_eq!(
        told[0],
        (
            AlertKind::ProcessEnded,
            "2 processes of the job train.py (100) exited".to_owned()
        ),
        "{told:#?}"
    );
    assert_eq!(told.len(), 2, "the GPU is free: {told:#?}");
}

#[test]
fn a_process_whose_memory_is_released_after_its_end_ends_once() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    watcher.wait(&mut host, 5);
    let place = host
        .processes
        .iter()
        .position(|process| process.id.pid == 100)
        .expect("alice's process");
    // The driver lists the PID, and `/proc` knows it no longer.
    host.processes[place].id.start_ticks = None;
    host.gpus[0].processes[0].process.start_ticks = None;
    let mut told = watcher.wait(&mut host, 1);
    host = host.without(100);
    host.gpus[0].load.memory_used = Ok(Bytes(0));
    told.extend(watcher.wait(&mut host, 5));
    let exited = "100 train.py (alice) exited, held 1.0 GiB on GPU 0".to_owned();
    assert_eq!(
        told,
        [
            (AlertKind::ProcessEnded, exited),
            (AlertKind::GpuFree, "GPU 0 is free".to_owned()),
        ]
    );
}

#[test]
fn a_gpu_that_is_lost_and_answers_again_is_told() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    watcher.wait(&mut host, 5);
    host.gpus[0].trouble = Some(Trouble {
        cause: Cause::Lost,
        sentence: "GPU 0 is lost".into(),
        call: None,
        since: host.at,
    });
    host.gpus[1].trouble = host.gpus[0].trouble.clone();
    let told = watcher.wait(&mut host, 5);
    assert_eq!(told.len(), 1, "GPU 1 is used by bob: {told:#?}");
    assert_eq!(told[0].0, AlertKind::GpuLost);
    host.gpus[0].trouble = None;
    let kinds: Vec<AlertKind> = watcher
        .wait(&mut host, 5)
        .iter()
        .map(|told| told.0)
        .collect();
    assert_eq!(kinds, [AlertKind::GpuAnswers]);
}

#[test]
fn a_lost_host_is_told_once_and_again_after_it_answered() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    watcher.wait(&mut host, 2);
    let lose = |watcher: &mut OneRecorder| {
        let reason = Text::from("no line for 30 s");
        watcher
            .told
            .lose(HostKey::FIRST, &reason, &watcher.fleet)
            .len()
    };
    assert_eq!([lose(&mut watcher), lose(&mut watcher)], [1, 0]);
    let told = watcher.wait(&mut host, 2);
    assert!(
        told.len() == 1 && told[0].0 == AlertKind::HostAnswers,
        "{told:?}"
    );
    assert!(told[0].1.ends_with(" reports again"), "{told:?}");
    assert_eq!(lose(&mut watcher), 1);
}

#[test]
fn a_process_that_rests_for_hours_is_idle_until_it_computes() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    let rest = |host: &mut Snapshot, sm: f32| {
        for process in &mut host.processes {
            process.load.state = Ok(State::Sleeping);
            process.load.cpu = Ok(Percent::new(sm));
        }
        for gpu_process in host.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
            gpu_process.memory = Ok(Bytes::from_gib(20));
            gpu_process.sm = Ok(Percent::new(sm));
        }
    };
    let mut told = Vec::new();
    for minute in 0..200 {
        host = host.later(60);
        rest(
            &mut host,
            if (5..=190).contains(&minute) {
                0.0
            } else {
                90.0
            },
        );
        told.extend(watcher.see(&host));
    }
    let kinds: Vec<AlertKind> = told.iter().map(|alert| alert.kind).collect();
    assert_eq!(kinds, [AlertKind::Idle, AlertKind::IdleOver], "{told:#?}");
    assert!(
        told[0].sentence.contains("has not computed for 2h"),
        "{told:#?}"
    );
}

#[test]
fn a_process_that_only_released_its_memory_has_not_ended() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    watcher.wait(&mut host, 5);
    let listed = host.gpus[0].processes.clone();
    host.gpus[0].processes.clear();
    let told = watcher.wait(&mut host, 5);
    assert!(
        told.iter().all(|told| told.0 != AlertKind::ProcessEnded),
        "{told:?}"
    );
    let mut again = host.clone();
    again.gpus[0].processes = listed;
    watcher.wait(&mut again, 5);
    host = again.without(100);
    let told = watcher.wait(&mut host, 5);
    assert_eq!(told[0].0, AlertKind::ProcessEnded, "{told:?}");
}

#[test]
fn a_lost_gpu_ends_no_process_and_its_return_under_another_uuid_is_told() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    watcher.wait(&mut host, 5);
    let healthy = host.clone();
    // As after a restart of the agent: neither the UUID nor the processes are known.
    host = host.without(100);
    host.gpus[0].uuid = GpuUuid::unknown(0);
    host.gpus[0].trouble = Some(Trouble {
        cause: Cause::Lost,
        sentence: "GPU 0 is lost".into(),
        call: None,
        since: host.at,
    });
    let kinds = |told: Vec<(AlertKind, String)>| -> Vec<AlertKind> {
        told.into_iter().map(|told| told.0).collect()
    };
    assert_eq!(kinds(watcher.wait(&mut host, 5)), [AlertKind::GpuLost]);
    let mut back = healthy.later(host.at.since(healthy.at).as_secs());
    assert_eq!(kinds(watcher.wait(&mut back, 5)), [AlertKind::GpuAnswers]);
    let mut lost = host.later(10);
    assert_eq!(kinds(watcher.wait(&mut lost, 5)), [AlertKind::GpuLost]);
}

#[test]
fn another_gpu_with_the_index_of_a_lost_one_is_not_its_return() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = host(2);
    watcher.wait(&mut host, 5);
    host.gpus[0].trouble = Some(Trouble {
        cause: Cause::Lost,
        sentence: "GPU 0 is lost".into(),
        call: None,
        since: host.at,
    });
    let told = watcher.wait(&mut host, 5);
    assert_eq!(told, [(AlertKind::GpuLost, "GPU 0: lost".to_owned())]);
    // The driver numbers the others anew, while the lost one keeps its place.
    host.gpus[1].facts.index = 0;
    assert_eq!(watcher.wait(&mut host, 5), []);
    host.gpus.remove(0);
    assert_eq!(watcher.wait(&mut host, 5), []);
}

#[test]
fn a_process_that_released_its_memory_has_not_ended_when_a_new_agent_has_not_seen_it_yet() {
    let mut watcher = OneRecorder::new(AlertScope::Mine);
    let mut host = of_two_users();
    watcher.wait(&mut host, 5);
    host.gpus[0].processes.clear();
    watcher.wait(&mut host, 5);
    // The first snapshot of an agent, before its first scan.
    let mut first = host.clone().without(100);
    let scan = std::mem::replace(&mut first.host.scan.at, Moment(0));
    assert_eq!(watcher.wait(&mut first, 1), []);
    first.host.scan.at = scan;
    let told = watcher.wait(&mut first, 1);
    assert_eq!(told[0].0, AlertKind::ProcessEnded, "{told:?}");
}
