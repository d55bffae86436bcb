//! A process that is frozen with its control group, as `docker pause` does it. Only root can do
//! that.

use std::fs;
use std::path::{Path, PathBuf};

use gputop::protocol::snapshot::Missing;

use crate::ending_a_process::start_python;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::wait_until;
use crate::stories::ObservedHost;
use crate::terminal::{ENTER, ESC, F9, Terminal};

/// How the control groups of a hierarchy are frozen.
#[derive(Clone, Copy)]
struct Freezer {
    /// The mount point of the hierarchy.
    top: &'static str,
    /// The file that freezes a group.
    switch: &'static str,
    /// The content that freezes the group.
    frozen: &'static str,
    /// The content that resumes the group.
    thawed: &'static str,
    /// The file that shows whether the group is frozen, and a part of it that means so.
    state: &'static str,
    is_frozen: &'static str,
}

/// Version 1; version 2 alone; version 2 beside version 1.
const FREEZERS: [Freezer; 3] = [
    Freezer {
        top: "/sys/fs/cgroup/freezer",
        switch: "freezer.state",
        frozen: "FROZEN",
        thawed: "THAWED",
        state: "freezer.state",
        is_frozen: "FROZEN",
    },
    Freezer {
        top: "/sys/fs/cgroup",
        switch: "cgroup.freeze",
        frozen: "1",
        thawed: "0",
        state: "cgroup.events",
        is_frozen: "frozen 1",
    },
    Freezer {
        top: "/sys/fs/cgroup/unified",
        switch: "cgroup.freeze",
        frozen: "1",
        thawed: "0",
        state: "cgroup.events",
        is_frozen: "frozen 1",
    },
];

/// A program that handles SIGTERM. In a frozen group of version 2, SIGKILL works at once, and a
/// handler runs only after the group is resumed.
const SIGTERM_HANDLER: &str = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit()); print('ready', flush=True); \
    time.sleep(1000)";

/// A frozen control group with one process.
struct FrozenGroup {
    freezer: Freezer,
    group: PathBuf,
    /// The file that freezes the group.
    switch: PathBuf,
    pid: u32,
}

impl FrozenGroup {
    /// Freezes a process; `None` where this hierarchy is not mounted or not writable.
    fn new(pid: u32, freezer: Freezer) -> Option<Self> {
        let top = Path::new(freezer.top);
        let name = format!("gputop-test-{pid}");
        let group = top.join(&name);
        fs::create_dir(&group).ok()?;
        let frozen = Self {
            freezer,
            switch: group.join(freezer.switch),
            group,
            pid,
        };
        let write = |file: &Path, text: &str| file.exists() && fs::write(file, text).is_ok();
        // When only a part of the hierarchy is mounted, the kernel names a path that does not exist
        // in the mount.
        let path_is_right = || {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            groups.lines().any(|line| {
                line.split(':')
                    .nth(2)
                    .is_some_and(|path| path == format!("/{name}"))
            })
        };
        let is_member =
            write(&frozen.group.join("cgroup.procs"), &pid.to_string()) && path_is_right();
        (is_member && write(&frozen.switch, freezer.frozen)).then_some(frozen)
    }

    /// Freezes the process again, and waits until the kernel has done it.
    fn freeze(&self) {
        fs::write(&self.switch, self.freezer.frozen).expect("the group was frozen before");
        let state = self.group.join(self.freezer.state);
        let is_frozen =
            || fs::read_to_string(&state).is_ok_and(|text| text.contains(self.freezer.is_frozen));
        wait_until("the group is frozen", is_frozen);
    }

    fn thaw(&self) {
        // If the write fails, the group was never frozen.
        let _never_frozen = fs::write(&self.switch, self.freezer.thawed);
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        self.thaw();
        // The process may have ended.
        let _ended = fs::write(
            Path::new(self.freezer.top).join("cgroup.procs"),
            self.pid.to_string(),
        );
        let _leftover = fs::remove_dir(&self.group);
    }
}

/// A program that computes without end.
const BUSY: &str = "print('ready', flush=True)\nwhile True: sum(range(10000))";

#[test]
fn a_process_that_freezes_while_gputop_runs_is_reported() {
    let mut tested = 0;
    for freezer in FREEZERS {
        let mut host = Host::with_jitter(["H100"]);
        let pid = start_python(&mut host, 11 * GIB, BUSY);
        let mut terminal = Terminal::start_at(&host, 180, 40, ["--interval", "100ms"]);
        terminal.wait_for(&format!(" {pid} "));
        let Some(frozen) = FrozenGroup::new(pid, freezer) else {
            continue;
        };
        tested += 1;
        terminal.wait_for("1 frozen process holds 11.0 GiB");
        frozen.thaw();
        terminal.wait_until_gone("frozen process");
        terminal.quit();
    }
    if tested == 0 {
        print_note("skipped: no control group can be frozen here");
    }
}

#[test]
fn a_freeze_is_noticed_in_the_next_pass() {
    let mut tested = 0;
    for freezer in FREEZERS {
        let mut host = Host::new(["H100"]);
        let pid = start_python(&mut host, 11 * GIB, SIGTERM_HANDLER);
        let Some(frozen) = FrozenGroup::new(pid, freezer) else {
            continue;
        };
        tested += 1;
        frozen.thaw();
        let mut observed = ObservedHost::start(host.gputop(["agent", "--interval", "100ms"]));
        let frozen_by = |observed: &ObservedHost| {
            let process = observed
                .model()
                .latest()?
                .processes
                .iter()
                .find(|process| process.id.pid == pid)?;
            Some(process.facts.frozen_by.clone())
        };
        // Once the process is seen to sleep for long, nothing but the group's file shows the
        // freeze.
        for _ in 0..20 {
            observed.apply_next_line();
        }
        assert_eq!(frozen_by(&observed), Some(Err(Missing::Unsupported)));
        frozen.freeze();
        // The first line may have been written before the freeze.
        observed.apply_next_line();
        observed.apply_next_line();
        observed.apply_next_line();
        let file = frozen_by(&observed)
            .expect("the process is listed")
            .expect("the process is frozen");
        assert_eq!(
            file.as_str(),
            frozen.switch.to_str().expect("the path is ASCII")
        );
    }
    if tested == 0 {
        print_note("skipped: no control group can be frozen here");
    }
}

#[test]
fn a_process_that_moves_to_a_frozen_group_is_noticed_within_four_seconds() {
    /// In seconds of the agent's clock.
    const LATEST: u64 = 4;
    let mut tested = 0;
    for freezer in FREEZERS {
        let mut host = Host::new(["H100"]);
        let pid = start_python(&mut host, 11 * GIB, SIGTERM_HANDLER);
        // The control groups of all processes are also read in turn, one in each pass.
        (0..60).for_each(|_| _ = host.start_sleep(0, GIB));
        let mut observed = ObservedHost::start(host.gputop(["agent", "--interval", "100ms"]));
        // The process is seen to sleep.
        for _ in 0..20 {
            observed.apply_next_line();
        }
        let Some(_frozen) = FrozenGroup::new(pid, freezer) else {
            continue;
        };
        tested += 1;
        let moved = observed.model().now();
        let is_frozen = |observed: &ObservedHost| {
            let processes = &observed
                .model()
                .latest()
                .expect("lines were read")
                .processes;
            processes
                .iter()
                .any(|process| process.id.pid == pid && process.facts.frozen_by.is_ok())
        };
        while !is_frozen(&observed) {
            let elapsed = observed.model().now().since(moved).as_secs();
            assert!(
                elapsed < LATEST,
                "{}: not seen after {elapsed} s",
                freezer.top
            );
            observed.apply_next_line();
        }
    }
    if tested == 0 {
        print_note("skipped: no control group can be frozen here");
    }
}

#[test]
fn a_frozen_process_is_reported_with_how_to_resume_it() {
    let mut tested = 0;
    for freezer in FREEZERS {
        let mut host = Host::with_jitter(["H100"]);
        let pid = start_python(&mut host, 11 * GIB, SIGTERM_HANDLER);
        let Some(frozen) = FrozenGroup::new(pid, freezer) else {
            continue;
        };
        tested += 1;
        let suggestion = format!(
            "write {} to {} to resume it",
            freezer.thawed,
            frozen.switch.display()
        );
        let output = host.run(["orphans"]);
        assert!(output.text().contains(&suggestion), "{}", output.text());
        let mut terminal = Terminal::start_at(&host, 180, 40, ["--interval", "100ms"]);
        terminal.wait_for("1 frozen process holds 11.0 GiB");
        terminal.keys(ENTER);
        terminal.wait_for("state            frozen with its control group");
        terminal.keys(ESC);
        terminal.wait_until_gone("state            frozen");
        terminal.keys(F9);
        terminal.wait_for("Verified: only");
        terminal.wait_for("frozen with its control group");
        terminal.keys(ENTER);
        terminal.wait_for("It is frozen with its control group");
        frozen.thaw();
        host.process(pid).wait();
        terminal.wait_for("returned 11.0 GiB");
        terminal.keys(ENTER);
        terminal.wait_until_gone("End process");
        terminal.quit();
    }
    if tested == 0 {
        print_note("skipped: no control group can be frozen here");
    }
}
