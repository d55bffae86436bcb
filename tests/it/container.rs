//! Processes in a container: a PID namespace whose PID 1 is a program of the user, with gputop
//! inside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_nvml::GpuProcess;
use rustix::process::getuid;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::process::{ChildProcess, ProcessHandle, now, run};
use crate::ready_pipe::ReadyPipe;
use crate::stories::ObservedHost;
use crate::{DEADLINE, print_note};

/// A container whose processes have reported their roles.
struct Container {
    host: Host,
    /// The PIDs inside of the container, by role.
    pids: BTreeMap<String, u32>,
    /// PID 1 of the container, as the test sees it.
    init: ProcessHandle,
    _unshare: ChildProcess,
}

impl Container {
    /// Starts a container whose PID 1 runs `python3` with the first file, and waits for the roles.
    /// `None` without the permission to make a PID namespace.
    fn start(files: &[(&str, &str)], roles: &[&str]) -> Option<Self> {
        if !getuid().is_root() {
            print_note("skipped: only root can make a PID namespace");
            return None;
        }
        let host = Host::new(["H100"]);
        let pipe = ReadyPipe::create(&host);
        let words = [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "python3",
            files[0].0,
        ];
        let unshare =
            ChildProcess::spawn(&mut pipe.command(&host, 0, files.iter().copied(), &words));
        let mut pids = BTreeMap::new();
        while let Some(role) = roles.iter().find(|role| !pids.contains_key(**role)) {
            let process = pipe
                .next_within(DEADLINE)
                .unwrap_or_else(|| panic!("{role} is never ready"));
            pids.insert(process.role, process.pid);
        }
        let children = format!("/proc/{0}/task/{0}/children", unshare.pid());
        let init = fs::read_to_string(children).expect("unshare runs");
        let init = ProcessHandle::open(init.trim().parse().expect("unshare has one child"));
        Some(Self {
            host,
            pids,
            init,
            _unshare: unshare,
        })
    }

    /// Lists a process with this memory. The container's driver reports PIDs of the container.
    fn list(&mut self, role: &str, memory: u64) {
        self.host
            .add_process(0, GpuProcess::fictional(self.pids[role], memory));
    }

    /// Waits until an agent in the container gives these verdicts, by role: one of the words
    /// between the bars.
    #[track_caller]
    fn check(&self, expected: &[(&str, &str)]) {
        let mut command = Command::new("nsenter");
        let init = self.init.pid.to_string();
        let agent = [env!("CARGO_BIN_EXE_gputop"), "agent", "--interval", "100ms"];
        self.host
            .set_environment(&mut command)
            .args(["--target", &init, "--pid", "--mount"])
            .args(agent);
        let mut observed = ObservedHost::start(command);
        let began = now();
        loop {
            observed.apply_next_line();
            let verdict_on = |role: &str| {
                let mut verdicts = observed.model().verdicts().iter();
                verdicts.find(|verdict| verdict.process.pid == self.pids[role])
            };
            let wrong: Vec<String> = expected
                .iter()
                .filter_map(|(role, words)| match verdict_on(role) {
                    None => Some(format!("{role} is not listed")),
                    Some(verdict) if words.split('|').any(|word| word == verdict.word()) => None,
                    Some(verdict) => Some(format!(
                        "{role} => {}: {}",
                        verdict.word(),
                        verdict.sentence()
                    )),
                })
                .collect();
            if wrong.is_empty() {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{wrong:?}");
        }
    }
}

#[test]
fn the_ranks_of_a_launcher_that_is_pid_1_are_no_orphans() {
    let torchrun = r#"set_comm("pt_elastic")
run = {**os.environ, "TORCHELASTIC_RUN_ID": "7f"}
for rank in "01":
    start_python("train.py", env={**run, "RANK": rank}, start_new_session=True)
sleep_as("agent")
"#;
    let train = r#"open_device_files()
loader = DataLoader(Stuck(), 1)
loader.request_items()
sleep_as("rank" + os.environ["RANK"])
"#;
    let files = [("torchrun", torchrun), ("train.py", train)];
    let Some(mut container) = Container::start(&files, &["agent", "rank0", "rank1", "worker0"])
    else {
        return;
    };
    assert_eq!(container.pids["agent"], 1);
    container.list("rank0", 20 * GIB);
    container.list("rank1", 20 * GIB);
    container.check(&[
        ("agent", "launcher"),
        ("rank0", "ok|…"),
        ("rank1", "ok|…"),
        ("worker0", "ok"),
    ]);
}

#[test]
fn the_engine_of_a_server_that_is_pid_1_is_no_orphan() {
    let server = r#"
def engine():
    open_device_files()
    sleep_as("engine")
if __name__ == "__main__":
    get_context("spawn").Process(target=engine).start()
    sleep_as("server")
"#;
    let Some(mut container) = Container::start(&[("server.py", server)], &["server", "engine"])
    else {
        return;
    };
    assert_eq!(container.pids["server"], 1);
    container.list("engine", 60 * GIB);
    container.check(&[("server", "ok|…"), ("engine", "ok")]);
}

#[test]
fn a_worker_that_pid_1_has_adopted_is_an_orphan() {
    let server = r#"start_python("train.py")
sleep_as("server")
"#;
    let train = r#"open_device_files()
get_ready, ready = os.pipe()
if not os.fork():
    set_comm("pt_data_worker")
    os.write(ready, b"!")
    sleep_as("worker0")
os.read(get_ready, 1)
os._exit(1)
"#;
    let files = [("server.py", server), ("train.py", train)];
    let Some(mut container) = Container::start(&files, &["server", "worker0"]) else {
        return;
    };
    container.list("worker0", 11 * GIB);
    container.check(&[("server", "ok|…"), ("worker0", "orphan")]);
}

/// PID 1 of a container, which runs a command twice and reaps no other process, as a training
/// program. Prints the names of the zombies that are left.
const REAPS_NOTHING: &str = "
import os, subprocess, sys
for _ in range(2):
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
for pid in filter(str.isdigit, os.listdir('/proc')):
    name, state = open(f'/proc/{pid}/stat').read().split('(')[1].rsplit(')', 1)
    if state.split()[0] == 'Z':
        print(name)
print('done')
";

#[test]
fn a_report_leaves_no_zombie_where_pid_1_reaps_none() {
    if !getuid().is_root() {
        return print_note("skipped: only root can make a PID namespace");
    }
    let host = Host::new(["H100"]);
    for args in [vec!["--once"], vec!["-L"], vec!["orphans", "--json"]] {
        let mut command = Command::new("unshare");
        let words = ["--pid", "--fork", "--kill-child", "--mount-proc", "python3"];
        host.set_environment(&mut command)
            .args(words)
            .args(["-c", REAPS_NOTHING, env!("CARGO_BIN_EXE_gputop")])
            .args(&args);
        assert_eq!(run(&mut command).text(), "done\n", "{args:?}");
    }
}

/// A process in control groups that are named like those of a Slurm job.
struct SlurmStep {
    mount: &'static Path,
    /// The groups, the innermost first.
    groups: Vec<PathBuf>,
    pid: u32,
}

impl SlurmStep {
    /// Moves a process into `slurmstepd-PID/JOB/step_0`. `None` where no control groups of version
    /// 2 can be made.
    fn new(pid: u32, job: &str) -> Option<Self> {
        ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .into_iter()
            .find_map(|mount| {
                let mount = Path::new(mount);
                let top = mount.join(format!("slurmstepd-{pid}"));
                let groups = vec![top.join(job).join("step_0"), top.join(job), top];
                let step = Self { mount, groups, pid };
                step.groups.iter().rev().try_for_each(fs::create_dir).ok()?;
                // A folder that is no control group has no such file.
                let members = step.groups[0].join("cgroup.procs");
                (members.exists() && fs::write(members, pid.to_string()).is_ok()).then_some(step)
            })
    }
}

impl Drop for SlurmStep {
    fn drop(&mut self) {
        // The process may have ended.
        let _ended = fs::write(self.mount.join("cgroup.procs"), self.pid.to_string());
        for group in &self.groups {
            let _leftover = fs::remove_dir(group);
        }
    }
}

#[test]
fn a_slurm_job_is_named_by_its_sluid() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let Some(_step) = SlurmStep::new(pid, "s0123456789ABC") else {
        return print_note("skipped: no control group can be made here");
    };
    let report = json(&host.run(["--json"]));
    let found = report["processes"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|process| process["pid"] == pid);
    assert_eq!(
        found.expect("it is listed")["facts"]["origin"],
        "slurm s0123456789ABC"
    );
}
