//! Tests of the scan with real children. A directory of plain files replaces `/dev/nvidia*`.

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

/// How long a test waits for a result before it fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// Plain files in place of device files, in a directory that is removed after the test.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("gputop-scan-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for file in ["nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"] {
            File::create(directory.join(file)).unwrap();
        }
        Self(directory)
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
        // A directory that cannot be removed is no reason to fail.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// A process that leads a session, with its descendants. Dropping the family ends all of them.
struct Family(Child);

impl Family {
    /// Starts a script, and waits until it prints the PIDs of `children`.
    fn start(script: &str, children: usize) -> (Self, Vec<u32>) {
        let mut command = Command::new("setsid");
        command
            .args(["sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pids = lines
            .take(children)
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
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
        // The processes may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
        let group = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

fn id(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: Some(
            stat::read_process(pid, &mut Vec::new())
                .unwrap()
                .start_ticks,
        ),
    }
}

struct TestScan {
    requests: mpsc::Sender<ScanRequest>,
    events: Receiver<AgentEvent>,
}

impl TestScan {
    fn new(fixture: &Fixture) -> Self {
        let (sender, events) = mpsc::channel();
        Self {
            requests: spawn(Some(fixture.devices()), sender).unwrap(),
            events,
        }
    }

    fn scan(&self, gpu_users: &[ProcessId]) {
        let request = ScanRequest {
            gpu_users: Some(gpu_users.to_vec()),
            scope: ScanScope::AllFiles,
            ..ScanRequest::default()
        };
        self.requests.send(request).unwrap();
    }

    /// Waits for a result with this property. Requests so often that all of `/proc` is read soon.
    #[track_caller]
    fn until(&self, matches: impl Fn(&ScanResult) -> bool) -> ScanResult {
        self.until_at(Duration::from_millis(5), || (), matches)
    }

    /// Like [`TestScan::until`], with a request every `interval`. Calls `meanwhile` before each
    /// request.
    #[track_caller]
    fn until_at(
        &self,
        interval: Duration,
        meanwhile: impl Fn(),
        matches: impl Fn(&ScanResult) -> bool,
    ) -> ScanResult {
        let end = clock::now().after(DEADLINE);
        let mut last = None;
        while clock::now() < end {
            if let Ok(AgentEvent::Scanned(result)) = self.events.recv_timeout(interval) {
                if matches(&result) {
                    return *result;
                }
                last = Some(result);
            }
            meanwhile();
            self.requests.send(ScanRequest::default()).unwrap();
        }
        panic!("no such result; the last one is {last:?}");
    }
}

fn holds(result: &ScanResult, pid: u32) -> Option<&OpenDeviceFiles> {
    result
        .device_file_holders
        .iter()
        .find(|(id, _)| id.pid == pid)
        .map(|(_, open)| open)
}

fn is_related(result: &ScanResult, pid: u32) -> bool {
    result.related.iter().any(|id| id.pid == pid)
}

#[test]
fn an_unlisted_worker_is_found_by_its_open_device_file() {
    let fixture = Fixture::new("holder");
    // The worker prints its PID once its files are open. If the scan read the files before that, it
    // would not read them again for a long time.
    let script = format!(
        "sh -c 'echo $$; exec sleep 1000' <{} 3<{} & wait",
        fixture.path("nvidia3"),
        fixture.path("nvidia-uvm")
    );
    let (family, workers) = Family::start(&script, 1);
    let scan = TestScan::new(&fixture);
    scan.scan(&[]);
    let result = scan.until(|result| holds(result, workers[0]).is_some());
    assert_eq!(
        holds(&result, workers[0]),
        Some(&OpenDeviceFiles {
            minors: vec![3],
            has_uvm: true,
            has_dxg: false,
        })
    );
    // The parent is related, but has no device file open.
    assert!(is_related(&result, family.0.id()) && holds(&result, family.0.id()).is_none());
    assert!(result.counts.processes > 2);
}

#[test]
fn workers_of_a_killed_trainer_stay_related() {
    let fixture = Fixture::new("orphan");
    let (mut trainer, workers) =
        Family::start("sleep 1000 & echo $!; sleep 1000 & echo $!; wait", 2);
    let scan = TestScan::new(&fixture);
    scan.scan(&[trainer.id()]);
    scan.until(|result| workers.iter().all(|pid| is_related(result, *pid)));
    let gone = trainer.0.id();
    trainer.kill();
    scan.scan(&[]);
    let result = scan.until(|result| !is_related(result, gone));
    assert!(
        workers.iter().all(|pid| is_related(&result, *pid)),
        "{result:?}"
    );
}

/// Waits for a file that a process creates.
#[track_caller]
fn wait_for_file(path: &str) {
    let end = clock::now().after(DEADLINE);
    while !fs::exists(path).unwrap() {
        assert!(clock::now() < end, "never: {path}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn a_later_worker_is_found_without_a_full_scan() {
    let fixture = Fixture::new("later");
    // The worker creates `ready` once its files are open. If the scan read the files before that,
    // it would not read them again for a long time.
    let script = format!(
        "echo $$; while [ ! -e {0} ]; do sleep 0.02; done; sh -c '>{2}; exec sleep 1000' <{0} 3<{1} & wait",
        fixture.path("nvidia9"),
        fixture.path("nvidia-uvm"),
        fixture.path("ready")
    );
    let (trainer, _) = Family::start(&script, 1);
    let scan = TestScan::new(&fixture);
    scan.scan(&[trainer.id()]);
    scan.until(|result| result.is_full);
    File::create(fixture.path("nvidia9")).unwrap();
    wait_for_file(&fixture.path("ready"));
    scan.until(|result| {
        result
            .device_file_holders
            .iter()
            .any(|(_, open)| open.minors == [9])
    });
}

#[test]
fn a_worker_that_opens_a_gpu_late_is_found_among_many_new_processes() {
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
    let scan = TestScan::new(&fixture);
    scan.scan(&[trainer.id()]);
    let result = scan.until(|result| result.is_full);
    assert!(is_related(&result, workers[0]) && holds(&result, workers[0]).is_none());
    File::create(fixture.path("go")).unwrap();
    wait_for_file(&fixture.path("ready"));
    // Each thread has an ID of its own, which the scan reads.
    let churn = || (0..64).for_each(|_| thread::spawn(|| ()).join().unwrap());
    let second = Duration::from_secs(1);
    scan.until_at(second, churn, |result| holds(result, workers[0]).is_some());
}

#[test]
fn the_files_of_a_dead_main_thread_are_found_at_living_threads() {
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
    while stat::read_process(leader[0], &mut Vec::new())
        .unwrap()
        .state
        != State::Zombie
    {
        assert!(clock::now() < end, "the main thread does not end");
        thread::park_timeout(Duration::from_millis(2));
    }
    let scan = TestScan::new(&fixture);
    scan.scan(&[]);
    let result = scan.until(|result| holds(result, leader[0]).is_some());
    assert!(holds(&result, family.0.id()).is_some_and(|open| open.may_hold_memory_of(Some(0))));
}

#[test]
fn a_python_that_lost_its_parent_is_a_candidate_and_can_be_accepted() {
    let fixture = Fixture::new("lost");
    // The parent of the process is a shell, not Python, so the process seems to have lost its
    // Python parent.
    let script = "setsid sh -c 'python3 -c \"import time; print(__import__(\\\"os\\\").getpid(), flush=True); time.sleep(1000)\" --multiprocessing-fork & wait' & sleep 1000";
    let (_family, lost) = Family::start(script, 1);
    let scan = TestScan::new(&fixture);
    scan.scan(&[]);
    let result = scan.until(|result| result.candidates.iter().any(|id| id.pid == lost[0]));
    assert!(!is_related(&result, lost[0]));
    scan.requests
        .send(ScanRequest {
            accepted: vec![id(lost[0])],
            ..ScanRequest::default()
        })
        .unwrap();
    scan.until(|result| is_related(result, lost[0]));
    let lost = rustix::process::Pid::from_raw(i32::try_from(lost[0]).unwrap()).unwrap();
    rustix::process::kill_process(lost, rustix::process::Signal::KILL).unwrap();
}
