//! The viewer's own history: a session begins with what the one before it saw.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use gputop::base::units::{Bytes, Moment};
use gputop::model::HostModel;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;

use rustix::process::Signal;

use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::wait_until;
use crate::terminal::Terminal;

/// A PID that no process has: it is larger than `PID_MAX_LIMIT` of Linux.
const GONE: u32 = 5_000_000;

const ENDING: &str = ".jsonl.zst";

/// The histories of a host.
fn histories(host: &Host) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.path("gputop/history"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(ENDING))
        .collect()
}

/// Waits until a host has this many histories: a process that the session left behind writes them.
#[track_caller]
fn wait_for_histories(host: &Host, count: usize) {
    wait_until(&format!("{count} histories"), || {
        histories(host).len() == count
    });
}

/// The snapshot of a host as its agent reports it.
fn snapshot(host: &Host) -> Snapshot {
    let output = host.run(["--json"]);
    match Line::parse(output.text().trim_end().as_bytes()).expect("a line") {
        Some(Line::Full(snapshot)) => *snapshot,
        other => panic!("{other:?}"),
    }
}

/// Writes a history of this host with these snapshots.
fn forge(host: &Host, snapshots: &[Snapshot]) {
    forge_of(host, "this host", snapshots);
}

/// Writes a history with these snapshots of a host that a source reads.
fn forge_of(host: &Host, source: &str, snapshots: &[Snapshot]) {
    let mut model = HostModel::default();
    for snapshot in snapshots {
        model.replace(snapshot.clone());
    }
    let mut lines = Vec::new();
    let last = snapshots.last().expect("a snapshot").clone();
    let name = format!(
        "{}-{:08x}-00000000-1{ENDING}",
        last.host.facts.name,
        crc32fast::hash(source.as_bytes())
    );
    Line::Full(Box::new(last))
        .write(&mut lines)
        .expect("memory");
    Line::Checkpoint(Box::new(model.checkpoint().expect("a snapshot")))
        .write(&mut lines)
        .expect("memory");
    fs::create_dir_all(host.path("gputop/history")).expect("/tmp has room");
    fs::write(host.path("gputop/history").join(name), lines).expect("/tmp has room");
}

/// Adds a process that is gone when the viewer looks.
fn add_gone_process(snapshot: &mut Snapshot) {
    let mut gpu_process = snapshot.gpus[0].processes[0].clone();
    let mut process = snapshot
        .process(gpu_process.process)
        .expect("the process is listed")
        .clone();
    process.id.pid = GONE;
    (gpu_process.process, gpu_process.memory) = (process.id, Ok(Bytes(GIB)));
    snapshot.processes.push(process);
    snapshot.gpus[0].processes.push(gpu_process);
}

/// Writes a history in which [`GONE`] was on the GPU a second ago. A session that shows its end has
/// read the history.
fn forge_gone_process(host: &Host, source: &str) {
    let mut snapshot = snapshot(host);
    snapshot.at = Moment(snapshot.at.0 - 1000);
    snapshot.gpus[0].load.at = snapshot.at;
    add_gone_process(&mut snapshot);
    forge_of(host, source, &[snapshot]);
}

#[test]
fn a_session_begins_with_the_news_of_the_one_before() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    forge_gone_process(&host, "this host");
    let mut terminal = Terminal::start_at(&host, 120, 45, ["--interval", "100ms"]);
    terminal.wait_for(&format!("▼ {GONE} sleep (root) exited"));
    let pid = host.start_sleep(0, 3 * GIB);
    let began = format!("▲ {pid} sleep (root) began on GPU 0");
    terminal.wait_for(&began);
    terminal.quit();
    wait_for_histories(&host, 2);
    host.process(pid).handle.kill();
    host.process(pid).wait();
    let mut terminal = Terminal::start_at(&host, 120, 45, ["--interval", "100ms"]);
    terminal.wait_for(&began);
    terminal.wait_for(&format!(
        "▼ {pid} sleep (root) exited, held 3.0 GiB on GPU 0"
    ));
    terminal.quit();
    wait_for_histories(&host, 3);
}

#[test]
fn a_leak_is_known_after_a_restart_and_the_time_that_nobody_saw_is_named() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 8 * GIB);
    let now = snapshot(&host);
    // Twenty minutes of a leak, which ended for the viewer an hour ago.
    let leak: Vec<Snapshot> = (0..1200)
        .map(|second| {
            let mut snapshot = now.clone();
            let ago = 1000 * (3600 + 1200 - second);
            snapshot.at = Moment(now.at.0.saturating_sub(ago));
            snapshot.unix_ms = now.unix_ms - ago;
            snapshot.gpus[0].load.at = snapshot.at;
            let memory = Bytes((7 << 30) + (second << 21));
            snapshot.gpus[0].load.memory_used = Ok(memory);
            snapshot.gpus[0].processes[0].memory = Ok(memory);
            add_gone_process(&mut snapshot);
            snapshot
        })
        .collect();
    if leak[0].at == Moment(0) {
        return print_note("skipped: the host was started less than two hours ago");
    }
    forge(&host, &leak);
    let mut terminal = Terminal::start_at(&host, 160, 45, []);
    terminal.wait_for("News since you last looked (1h00m ago): 1 ended");
    // The page of all news.
    terminal.keys("E");
    terminal.wait_for(&format!(" LEAK  {pid} sleep"));
    terminal.wait_for("nothing was read for 1h00m: no gputop ran");
    terminal.quit();
}

#[test]
fn the_past_before_a_boot_is_not_joined_but_named() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let mut before = snapshot(&host);
    before.host.facts.boot_id = "another".into();
    forge(&host, &[before]);
    let mut terminal = Terminal::start_at(&host, 250, 45, []);
    terminal.wait_for("the host has restarted; `gputop replay ");
    terminal.quit();
}

#[test]
fn two_viewers_have_a_file_each_and_a_signal_ends_a_session_with_a_history() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    forge_gone_process(&host, "this host");
    let terminals = [
        Terminal::start_at(&host, 120, 45, []),
        Terminal::start_at(&host, 120, 45, []),
    ];
    for terminal in &terminals {
        terminal.wait_for(&format!("▼ {GONE} sleep (root) exited"));
    }
    let [mut one, mut other] = terminals;
    one.quit();
    other.handle().signal(Signal::TERM);
    other.wait_for_exit();
    wait_for_histories(&host, 3);
}

#[test]
fn no_history_is_kept_where_the_user_wants_none() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    fs::create_dir_all(host.path("config/gputop")).expect("/tmp has room");
    for (config, flag) in [("", Some("--no-history")), ("history = false\n", None)] {
        fs::write(host.path("config/gputop/config.toml"), config).expect("/tmp has room");
        let mut terminal = Terminal::start(&host, flag);
        terminal.wait_for("sleep 1000");
        terminal.wait_for_frames(3);
        terminal.quit();
        assert!(!host.path("gputop/history").exists());
    }
}

#[test]
fn a_link_or_a_folder_of_another_user_is_refused_in_a_sentence() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    fs::create_dir_all(host.path("elsewhere")).expect("/tmp has room");
    fs::create_dir_all(host.path("gputop")).expect("/tmp has room");
    let folder = host.path("gputop/history");
    symlink(host.path("elsewhere"), &folder).expect("/tmp has room");
    let refused = |reason: &str| {
        let mut terminal = Terminal::start_at(&host, 160, 24, []);
        terminal.wait_for(reason);
        terminal.quit();
    };
    refused("gputop/history is no folder of its own");
    assert_eq!(
        fs::read_dir(host.path("elsewhere"))
            .expect("the folder")
            .count(),
        0
    );
    fs::remove_file(&folder).expect("the link is ours");
    fs::create_dir(&folder).expect("/tmp has room");
    let chown = Command::new("chown").arg("65534").arg(&folder).status();
    if !chown.is_ok_and(|status| status.success()) {
        return print_note("skipped: no folder can be given to another user here");
    }
    refused("gputop/history belongs to another user");
    assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 0);
}

#[test]
fn the_history_of_a_host_goes_on_after_a_line_of_another_version() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let lines = host.path("lines");
    let script = format!("cat {}; exec cat", lines.display());
    forge_gone_process(&host, &format!("sh -c {script}"));
    let full = host.run(["--json"]).text();
    let via = format!("far=sh -c {}", shell_words::quote(&script));
    fs::write(
        &lines,
        full.clone() + &full.replacen("\"schema\":1,", "\"schema\":2,", 1),
    )
    .expect("/tmp has room");
    let mut terminal = Terminal::run(&mut host.gputop(["--via", &via]), 120, 45);
    terminal.wait_for("far: the command: it writes version 2, this gputop reads version 1");
    // Only a session that has read the history writes one when it ends.
    terminal.wait_for(&format!("▼ {GONE} sleep (root) exited"));
    terminal.quit();
    wait_for_histories(&host, 2);
    // The next session knows the process of the one before.
    let Ok(Some(Line::Full(mut later))) = Line::parse(full.trim_end().as_bytes()) else {
        panic!("{full}")
    };
    (later.at, later.unix_ms) = (Moment(later.at.0 + 1000), later.unix_ms + 1000);
    later.gpus[0].processes.clear();
    later.processes.retain(|process| process.id.pid != pid);
    let mut line = Vec::new();
    Line::Full(later).write(&mut line).expect("memory");
    fs::write(&lines, line).expect("/tmp has room");
    let terminal = Terminal::run(&mut host.gputop(["--via", &via]), 120, 45);
    terminal.wait_for(&format!(
        "▼ {pid} sleep (root) exited, held 1.0 GiB on GPU 0"
    ));
}
