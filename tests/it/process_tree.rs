//! A tree of real processes, and the steps of a test that ends it in the end dialog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, iter};

use fake_nvml::GpuProcess;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::DEADLINE;
use crate::ending_a_process::open_dialog;
use crate::host::Host;
use crate::process::{ChildProcess, ProcessHandle};
use crate::ready_pipe::ReadyPipe;
use crate::terminal::{DOWN, ESC, TAB, Terminal};

/// A host with one GPU, and a tree of processes on it.
pub(crate) struct Tree {
    pub(crate) host: Host,
    pub(crate) pipe: ReadyPipe,
    /// The processes that reported a role.
    pub(crate) processes: BTreeMap<String, ProcessHandle>,
    pub(crate) root: ChildProcess,
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The root is not reaped yet, so no other process group can have its number.
        if let Some(group) = i32::try_from(self.root.pid()).ok().and_then(Pid::from_raw) {
            let _ended = kill_process_group(group, Signal::KILL);
        }
        self.processes.values().for_each(ProcessHandle::kill);
    }
}

impl Tree {
    /// Runs the first file, and waits until a process of each role is ready. A Python file gets a
    /// name that no other test has: the roots of all tests have the same parent, and gputop would
    /// take one for the successor of another.
    #[track_caller]
    pub(crate) fn start(files: &[(&str, &str)], roles: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let host = Host::new(["H100"]);
        let pipe = ReadyPipe::create(&host);
        let (first, others) = files.split_first().expect("a tree has a root");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = first
            .0
            .strip_suffix(".py")
            .map_or(first.0.to_owned(), |stem| format!("{stem}_{number}.py"));
        let files = iter::once((name.as_str(), first.1)).chain(others.iter().copied());
        let root = ChildProcess::spawn(&mut pipe.command(&host, 0, files, &["python3", &name]));
        let mut tree = Self {
            host,
            pipe,
            processes: BTreeMap::new(),
            root,
        };
        for _ in roles {
            tree.wait_for_process();
        }
        let ready: BTreeSet<&str> = tree.processes.keys().map(String::as_str).collect();
        assert_eq!(ready, roles.iter().copied().collect());
        tree
    }

    /// Waits for the next process that is ready. Returns its PID.
    #[track_caller]
    pub(crate) fn wait_for_process(&mut self) -> u32 {
        let process = self
            .pipe
            .next_within(DEADLINE)
            .expect("another process becomes ready");
        self.processes
            .insert(process.role, ProcessHandle::open(process.pid));
        process.pid
    }

    pub(crate) fn pid(&self, role: &str) -> u32 {
        self.processes[role].pid
    }

    /// Makes the driver list a process.
    pub(crate) fn put_on_gpu(&mut self, role: &str, memory: u64) {
        let pid = self.pid(role);
        self.host.add_process(0, GpuProcess::new(pid, memory));
    }

    /// Opens the end dialog on the whole job of a process.
    #[track_caller]
    pub(crate) fn open_dialog_on_job(&self, role: &str, root: &str) -> Terminal {
        let terminal = Terminal::start_at(&self.host, 100, 40, ["--interval", "100ms"]);
        let pid = self.pid(role);
        open_dialog(&terminal, pid);
        terminal.wait_for("Tab: its whole job");
        terminal.keys(TAB);
        terminal.wait_for(&format!("End the job of {}", self.pid(root)));
        terminal.wait_for("Verified: only these processes will be signalled");
        terminal
    }

    /// Waits until all processes have ended.
    #[track_caller]
    pub(crate) fn wait_for_all_ends(&mut self) {
        self.root.wait();
        self.processes
            .values()
            .for_each(ProcessHandle::wait_for_end);
    }

    /// The PIDs that a signal was sent to, according to the audit log.
    pub(crate) fn signalled(&self) -> Vec<u32> {
        let pid = |signal: Value| {
            signal["pid"]
                .as_u64()
                .and_then(|pid| pid.try_into().ok())
                .expect("a PID")
        };
        sent_signals(&self.host).into_iter().map(pid).collect()
    }
}

/// The lines of the audit log.
#[track_caller]
pub(crate) fn audit_lines(host: &Host) -> Vec<Value> {
    let text =
        fs::read_to_string(host.path("gputop/kills.jsonl")).expect("the audit log was written");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

/// The lines of the audit log that record a signal.
#[track_caller]
pub(crate) fn sent_signals(host: &Host) -> Vec<Value> {
    audit_lines(host)
        .into_iter()
        .filter(|line| line["signal"].is_string())
        .collect()
}

/// Selects the mode "by force" in the dialog.
pub(crate) fn select_force(terminal: &Terminal) {
    terminal.keys(&DOWN.repeat(3));
    terminal.wait_for("● by force");
    terminal.wait_for("Enter stops all and");
}

/// Closes the end dialog and quits.
#[track_caller]
pub(crate) fn close_and_quit(mut terminal: Terminal) {
    let agent = terminal.agent();
    terminal.keys(ESC);
    terminal.wait_until_gone("╭ End");
    terminal.quit();
    // The agent writes the audit log before it ends.
    agent.wait_for_end();
}
