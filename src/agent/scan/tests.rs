//! The census on real children: a fixture folder stands in for `/dev/nvidia*`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::*;
use crate::agent::clock;
use crate::agent::procfs::stat;
use crate::protocol::snapshot::State;

/// How long anything may take here before the test has failed.
const DEADLINE: Duration = Duration::from_secs(20);

/// Device files that are none, in a folder that goes with the test.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gputop-census-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for file in ["nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"] {
            File::create(folder.join(file)).unwrap();
        }
        Self(folder)
    }

    fn devices(&self) -> DeviceFiles {
        DeviceFiles::with_prefix(&self.0.join("nvidia"))
    }

    fn path(&self, device: &str) -> String {
        self.0.join(device).display().to_string()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // What is left of a test is no reason to fail it.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// A process that leads a session, and what it started, which all end with the test.
struct Family(Child);

impl Family {
    /// Starts a script, and waits until it says the PIDs of `children`.
    fn start(script: &str, children: usize) -> (Self, Vec<u32>) {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pids = lines.take(children).map(|line| line.unwrap().parse().unwrap()).collect();
        (Self(child), pids)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn id(&self) -> ProcessId {
        id(self.0.id())
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // They may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
        let group = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

fn id(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: Some(stat::of(pid, &mut Vec::new()).unwrap().start_ticks) }
}

struct Watched {
    census: Census,
    events: Receiver<AgentEvent>,
}

impl Watched {
    fn new(fixture: &Fixture) -> Self {
        let (sender, events) = mpsc::channel();
        Self { census: Census::spawn(Some(fixture.devices()), sender).unwrap(), events }
    }

    fn scan(&self, gpu_processes: &[ProcessId]) {
        self.census.order(Order {
            gpu_processes: Some(gpu_processes.to_vec()),
            scope: Scope::Files,
            ..Order::default()
        });
    }

    /// Waits for a sighting that shows it. Orders come so often that all of `/proc` is gone through soon, by one a time.
    #[track_caller]
    fn until(&self, shows: impl Fn(&Sighting) -> bool) -> Sighting {
        self.until_at(Duration::from_millis(5), || (), shows)
    }

    /// The same with an order each `interval`, and something that happens before each.
    #[track_caller]
    fn until_at(&self, interval: Duration, meanwhile: impl Fn(), shows: impl Fn(&Sighting) -> bool) -> Sighting {
        let end = clock::now().after(DEADLINE);
        let mut last = None;
        while clock::now() < end {
            if let Ok(AgentEvent::Sighted(sighting)) = self.events.recv_timeout(interval) {
                if shows(&sighting) {
                    return *sighting;
                }
                last = Some(sighting);
            }
            meanwhile();
            self.census.order(Order::default());
        }
        panic!("not seen; the last sighting is {last:?}");
    }
}

fn holds(sighting: &Sighting, pid: u32) -> Option<&OpenDeviceFiles> {
    sighting.device_file_holders.iter().find(|(id, _)| id.pid == pid).map(|(_, open)| open)
}

fn is_kin(sighting: &Sighting, pid: u32) -> bool {
    sighting.related.iter().any(|id| id.pid == pid)
}

#[test]
fn a_worker_that_nobody_lists_is_found_by_the_file_it_has_open() {
    let fixture = Fixture::new("holder");
    // It says who it is when it has the file: a look before that would be the only one for long.
    let script = format!(
        "sh -c 'echo $$; exec sleep 1000' <{} 3<{} & wait",
        fixture.path("nvidia3"),
        fixture.path("nvidia-uvm")
    );
    let (family, workers) = Family::start(&script, 1);
    let watched = Watched::new(&fixture);
    watched.scan(&[]);
    let sighting = watched.until(|it| holds(it, workers[0]).is_some());
    assert_eq!(holds(&sighting, workers[0]), Some(&OpenDeviceFiles { minors: vec![3], uvm: true }));
    // Its parent is related processes, and holds nothing.
    assert!(is_kin(&sighting, family.0.id()) && holds(&sighting, family.0.id()).is_none());
    assert!(sighting.scan.processes > 2);
}

#[test]
fn what_a_killed_trainer_leaves_stays_in_sight() {
    let fixture = Fixture::new("orphan");
    let (mut trainer, workers) = Family::start("sleep 1000 & echo $!; sleep 1000 & echo $!; wait", 2);
    let watched = Watched::new(&fixture);
    watched.scan(&[trainer.id()]);
    watched.until(|it| workers.iter().all(|pid| is_kin(it, *pid)));
    let gone = trainer.0.id();
    trainer.kill();
    watched.scan(&[]);
    let sighting = watched.until(|it| !is_kin(it, gone));
    assert!(workers.iter().all(|pid| is_kin(&sighting, *pid)), "{sighting:?}");
}

/// Waits for a file that a process makes.
#[track_caller]
fn wait_for_file(path: &str) {
    let end = clock::now().after(DEADLINE);
    while !fs::exists(path).unwrap() {
        assert!(clock::now() < end, "never: {path}");
        thread::yield_now();
    }
}

#[test]
fn a_worker_that_was_started_later_is_found_without_a_scan() {
    let fixture = Fixture::new("later");
    // A look at a worker that has yet to open its files would be the only one for long: it says when it has them.
    let script = format!(
        "echo $$; while [ ! -e {0} ]; do sleep 0.02; done; sh -c '>{2}; exec sleep 1000' <{0} 3<{1} & wait",
        fixture.path("nvidia9"),
        fixture.path("nvidia-uvm"),
        fixture.path("ready")
    );
    let (trainer, _) = Family::start(&script, 1);
    let watched = Watched::new(&fixture);
    watched.scan(&[trainer.id()]);
    watched.until(|it| it.is_full);
    File::create(fixture.path("nvidia9")).unwrap();
    wait_for_file(&fixture.path("ready"));
    watched.until(|it| it.device_file_holders.iter().any(|(_, open)| open.minors == [9]));
}

#[test]
fn a_worker_that_opens_the_gpu_late_is_found_where_others_start_all_the_time() {
    let fixture = Fixture::new("busy");
    let script = format!(
        "python3 -c 'import os, time
print(os.getpid(), flush=True)
while not os.path.exists(\"{0}\"): time.sleep(0.02)
files = open(\"{1}\"), open(\"{2}\"), open(\"{3}\", \"w\")
time.sleep(1000)' & wait",
        fixture.path("go"),
        fixture.path("nvidia3"),
        fixture.path("nvidia-uvm"),
        fixture.path("ready")
    );
    let (trainer, workers) = Family::start(&script, 1);
    let watched = Watched::new(&fixture);
    watched.scan(&[trainer.id()]);
    let sighting = watched.until(|it| it.is_full);
    assert!(is_kin(&sighting, workers[0]) && holds(&sighting, workers[0]).is_none());
    File::create(fixture.path("go")).unwrap();
    wait_for_file(&fixture.path("ready"));
    // Each thread has a number of its own, at which the census looks.
    let churn = || (0..64).for_each(|_| thread::spawn(|| ()).join().unwrap());
    let second = Duration::from_secs(1);
    watched.until_at(second, churn, |it| holds(it, workers[0]).is_some());
}

#[test]
fn the_files_of_a_dead_leader_are_those_of_its_living_threads() {
    let fixture = Fixture::new("leader");
    let script = format!(
        "exec python3 -c 'import ctypes, os, threading, time
files = open(\"{}\"), open(\"{}\")
threading.Thread(target=time.sleep, args=(1000,)).start()
print(os.getpid(), flush=True)
ctypes.CDLL(None).pthread_exit(None)'",
        fixture.path("nvidia0"),
        fixture.path("nvidia-uvm")
    );
    let (family, leader) = Family::start(&script, 1);
    let end = clock::now().after(DEADLINE);
    while stat::of(leader[0], &mut Vec::new()).unwrap().state != State::Zombie {
        assert!(clock::now() < end, "its first thread lives on");
        thread::yield_now();
    }
    let watched = Watched::new(&fixture);
    watched.scan(&[]);
    let sighting = watched.until(|it| holds(it, leader[0]).is_some());
    assert!(holds(&sighting, family.0.id()).is_some_and(|open| open.may_hold_memory_of(0)));
}

#[test]
fn a_python_that_lost_its_parent_is_asked_for_its_arguments_and_taken_in() {
    let fixture = Fixture::new("stray");
    // The parent of the stray leads no group that lives, and goes.
    let script = "setsid sh -c 'python3 -c \"import time; print(__import__(\\\"os\\\").getpid(), flush=True); time.sleep(1000)\" --multiprocessing-fork & wait' & sleep 1000";
    let (_family, stray) = Family::start(script, 1);
    let watched = Watched::new(&fixture);
    watched.scan(&[]);
    let sighting = watched.until(|it| it.strays.iter().any(|id| id.pid == stray[0]));
    assert!(!is_kin(&sighting, stray[0]));
    watched.census.order(Order { adopted: vec![id(stray[0])], ..Order::default() });
    watched.until(|it| is_kin(it, stray[0]));
    let stray = rustix::process::Pid::from_raw(i32::try_from(stray[0]).unwrap()).unwrap();
    rustix::process::kill_process(stray, rustix::process::Signal::KILL).unwrap();
}
