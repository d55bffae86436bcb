//! A process that is frozen with its control group, as `docker pause` does it. Only root can do that.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ending_a_process::start_python;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::terminal::{ENTER, ESC, F9, Terminal};

/// Where groups are made, the file that freezes one, and what is written there to freeze it and to let it go on: the
/// first version, the second alone, and the second beside the first.
const WAYS: [[&str; 4]; 3] = [
    ["/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"],
    ["/sys/fs/cgroup", "cgroup.freeze", "1", "0"],
    ["/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"],
];

/// What ends a process at once reaches a frozen one of the second version; what it handles has to wait.
const PROGRAM: &str = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit()); print('ready', flush=True); \
    time.sleep(1000)";

/// A frozen group with one process in it.
struct Frozen {
    top: &'static Path,
    group: PathBuf,
    switch: PathBuf,
    thawed: &'static str,
    pid: u32,
}

impl Frozen {
    /// Freezes a process; absent where that cannot be done.
    fn of(pid: u32, [top, switch, frozen, thawed]: [&'static str; 4]) -> Option<Self> {
        let top = Path::new(top);
        let name = format!("gputop-test-{pid}");
        let group = top.join(&name);
        fs::create_dir(&group).ok()?;
        let it = Self { top, switch: group.join(switch), group, thawed, pid };
        let put = |file: &Path, text: &str| file.exists() && fs::write(file, text).is_ok();
        // Of a mount that is a part of the whole, the kernel may name the whole path, which leads nowhere here.
        let is_seen = || {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            groups.lines().any(|line| line.split(':').nth(2).is_some_and(|path| path == format!("/{name}")))
        };
        let is_there = put(&it.group.join("cgroup.procs"), &pid.to_string()) && is_seen();
        (is_there && put(&it.switch, frozen)).then_some(it)
    }

    fn thaw(&self) {
        // Where it cannot be written, it was never frozen.
        let _never = fs::write(&self.switch, self.thawed);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        // It may have ended.
        let _ended = fs::write(self.top.join("cgroup.procs"), self.pid.to_string());
        let _left = fs::remove_dir(&self.group);
    }
}

/// Computes, until it is ended.
const BUSY: &str = "print('ready', flush=True)\nwhile True: sum(range(10000))";

#[test]
fn a_process_that_freezes_while_gputop_runs_is_reported() {
    let mut ways = 0;
    for way in WAYS {
        let mut host = Host::with_jitter(["H100"]);
        let pid = start_python(&mut host, 11 * GIB, BUSY);
        let mut terminal = Terminal::start_at(&host, 180, 40, ["--interval", "100ms"]);
        terminal.wait_for(&format!(" {pid} "));
        let Some(frozen) = Frozen::of(pid, way) else { continue };
        ways += 1;
        terminal.wait_for("1 frozen process holds 11.0 GiB");
        frozen.thaw();
        terminal.wait_until_gone("frozen process");
        terminal.quit();
    }
    if ways == 0 {
        print_note("skipped: no control group can be frozen here");
    }
}

#[test]
fn a_frozen_process_is_reported_with_how_to_resume_it() {
    let mut ways = 0;
    for way in WAYS {
        let mut host = Host::with_jitter(["H100"]);
        let pid = start_python(&mut host, 11 * GIB, PROGRAM);
        let Some(frozen) = Frozen::of(pid, way) else { continue };
        ways += 1;
        let way_out = format!("write {} to {} to resume it", frozen.thawed, frozen.switch.display());
        let output = host.run(["orphans"]);
        assert!(output.text().contains(&way_out), "{}", output.text());
        let mut terminal = Terminal::start_at(&host, 180, 40, ["--interval", "100ms"]);
        terminal.wait_for("1 frozen process holds 11.0 GiB");
        terminal.keys(ENTER);
        terminal.wait_for("state            frozen with its control group");
        terminal.keys(ESC);
        terminal.wait_until_gone("control group");
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
    if ways == 0 {
        print_note("skipped: no control group can be frozen here");
    }
}
