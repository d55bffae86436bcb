//! Processes whose `/proc/PID/cmdline` hangs, because a thread that waits for a file system holds a
//! lock of the process. A frozen file system stands for a dead NFS server. Only root can freeze
//! one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::cli::json;
use crate::file_systems::FrozenFileSystem;
use crate::host::GIB;
use crate::process::wait_until;
use crate::terminal::Terminal;

/// In a session of its own, so that it concerns no other test. After SIGUSR1, one thread writes to
/// a page of a file in memory, and waits in the kernel for the file system. Then another one
/// changes the page's protection, and waits for the first one with the lock of the process.
const PROGRAM: &str = "
import ctypes, mmap, os, pathlib, signal, sys, threading
os.setsid()
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
file = open(sys.argv[1], 'r+b')
memory = mmap.mmap(file.fileno(), 4096)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
memory[0]
go = threading.Event()
def write():
    go.wait()
    libc.memset(address, 1, 1)
def protect():
    go.wait()
    stat = pathlib.Path(f'/proc/self/task/{writer.native_id}/stat')
    while ' D ' not in stat.read_text(): pass
    libc.mprotect(address, 4096, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
writer = threading.Thread(target=write, daemon=True)
protector = threading.Thread(target=protect, daemon=True)
writer.start(), protector.start()
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
go.set()
signal.pause()
";

/// The number of threads of a process that wait in the kernel.
fn waiting_threads(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let stats =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(") D ")).count()
}

/// A host with processes whose arguments hang, before a process that sleeps. They hold more GPU
/// memory, so they are read first.
struct HungHost {
    frozen: FrozenFileSystem,
    hung: Vec<u32>,
    sleep: u32,
}

impl HungHost {
    /// `None` where no file system can be frozen, with a note.
    fn with_hung(count: usize) -> Option<Self> {
        let mut frozen = FrozenFileSystem::new()?;
        frozen.thaw();
        let mut hung = Vec::new();
        for number in 0..count {
            let file = frozen.path().join(number.to_string());
            fs::write(&file, [0; 4096]).expect("the file system has room");
            let mut command = Command::new("python3");
            command
                .args(["-c", PROGRAM])
                .arg(file)
                .stdout(Stdio::piped());
            let process = frozen.host.start(0, 9 * GIB, &mut command);
            let mut line = String::new();
            let output = process.child().stdout.take().expect("the output is piped");
            BufReader::new(output)
                .read_line(&mut line)
                .expect("a pipe can be read");
            assert_eq!(line, "ready\n");
            hung.push(process.pid());
        }
        let sleep = frozen.host.start_sleep(0, GIB);
        frozen.freeze();
        for pid in &hung {
            frozen.host.process(*pid).handle.signal(Signal::USR1);
            wait_until("two threads of the process hang", || {
                waiting_threads(*pid) == 2
            });
        }
        Some(Self {
            frozen,
            hung,
            sleep,
        })
    }

    /// Runs `gputop orphans` on the GPU, and returns its exit code and report.
    fn orphans(&self, args: &[&str]) -> (i32, Value) {
        let output = self.frozen.host.run(
            ["orphans", "-i", "0", "--json", "--timeout", "1h"]
                .iter()
                .chain(args)
                .copied(),
        );
        (output.code, json(&output))
    }
}

/// The exit code of a report that could not see everything.
const NOT_COMPLETE: i32 = 5;

fn pids(list: &Value) -> Vec<u64> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|process| process["pid"].as_u64().expect("a number"))
        .collect()
}

/// The facts about a process in a line of JSON.
fn facts(line: &Value, pid: u32) -> &Value {
    let processes = line["processes"].as_array().expect("a list");
    &processes
        .iter()
        .find(|process| process["pid"] == pid)
        .expect("the process is listed")["facts"]
}

#[test]
fn arguments_that_hang_cost_no_other_process_its_arguments() {
    let Some(host) = HungHost::with_hung(1) else {
        return;
    };
    let [hung] = host.hung[..] else {
        panic!("one process hangs")
    };
    let row = |text: &str, pid: u32| {
        let line = text
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(&pid.to_string()));
        line.unwrap_or_else(|| panic!("no row of {pid} in\n{text}"))
            .to_owned()
    };
    let output = host.frozen.host.run(["--once"]);
    let text = output.text();
    assert!(row(&text, host.sleep).ends_with("sleep 1000"), "{text}");
    // It depends on the load whether the report already knows that they hang.
    let row_of_hung = row(&text, hung);
    let is_awaited = row_of_hung.ends_with("[python3] …");
    let hangs = row_of_hung.ends_with("[python3] (arguments hang)");
    assert!(is_awaited || hangs, "{text}");
    assert_eq!(
        text.contains("the arguments of 1 process are not read yet"),
        is_awaited,
        "{text}"
    );
    // With this timeout, the test fails if a report waits for the process that hangs.
    let output = host.frozen.host.run(["--json", "--timeout", "1h"]);
    let line = json(&output);
    assert_eq!(facts(&line, host.sleep)["argv"][0], "sleep");
    let facts = facts(&line, hung);
    assert_eq!(
        (&facts["missing"]["argv"], &facts["argv_delay"]),
        (&"failed".into(), &"hung".into()),
        "{facts:#}"
    );
    let output = host.frozen.host.run([
        "--query-compute-apps=pid,name",
        "--format=csv,noheader",
        "--timeout",
        "1h",
    ]);
    assert!(
        output.text().contains(&format!("{}, sleep", host.sleep)),
        "{}",
        output.text()
    );
    let (code, report) = host.orphans(&[]);
    assert_eq!(
        (code, &report["is_complete"]),
        (NOT_COMPLETE, &false.into()),
        "{report:#}"
    );
    assert_eq!(pids(&report["hung"]), [u64::from(hung)]);
    assert!(
        [&report["hidden"], &report["unreadable"]]
            .iter()
            .all(|list| pids(list).is_empty()),
        "{report:#}"
    );
    let (code, report) = host.orphans(&["--user", "nobody"]);
    assert_eq!(
        (code, &report["is_complete"]),
        (0, &true.into()),
        "the process is not asked for: {report:#}"
    );
    let mut terminal = Terminal::start_at(&host.frozen.host, 120, 24, []);
    terminal.wait_for("sleep 1000");
    terminal.wait_for("[python3] (arguments hang)");
    host.frozen.thaw();
    terminal.wait_for("python3 -c");
    terminal.quit();
}

#[test]
fn arguments_behind_eight_that_hang_are_not_read_yet() {
    let Some(host) = HungHost::with_hung(8) else {
        return;
    };
    let output = host.frozen.host.run(["--json", "--timeout", "1h"]);
    let line = json(&output);
    let delays: Vec<&Value> = host
        .hung
        .iter()
        .map(|pid| &facts(&line, *pid)["argv_delay"])
        .collect();
    assert_eq!(delays, [&Value::from("hung"); 8]);
    let facts = facts(&line, host.sleep);
    assert_eq!(
        (&facts["missing"]["argv"], &facts["argv_delay"]),
        (&"not_yet".into(), &"no_reader".into()),
        "{facts:#}"
    );
    let (code, report) = host.orphans(&[]);
    assert_eq!(
        (code, &report["is_complete"]),
        (NOT_COMPLETE, &false.into()),
        "{report:#}"
    );
    assert_eq!(pids(&report["unreadable"]), [u64::from(host.sleep)]);
    assert_eq!(pids(&report["hung"]).len(), 8);
    let mut terminal = Terminal::start_at(&host.frozen.host, 120, 24, []);
    terminal.wait_for("[sleep] (not read yet)");
    host.frozen.thaw();
    terminal.wait_for("sleep 1000");
    terminal.quit();
}
