//! `gputop replay`: a recording gives the same screens and verdicts at any speed as the lines gave
//! live.

use std::fs;
use std::path::{Path, PathBuf};

use gputop::base::units::{Bytes, Celsius, Moment, Percent};
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;
use rustix::process::Signal;

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};
use crate::process::{Output, exit_code, run};
use crate::terminal::{ESC, F9, Terminal};
use crate::two_hosts::agent_of;

/// The bytes by which the process grows from one pass to the next.
pub(crate) const GROWTH: u64 = 200 << 20;

/// The temperature of the GPU in the last pass of a recording, which no other pass has.
pub(crate) const LAST_TEMPERATURE: &str = "77°C";

/// A host with one process, which its agent has read once.
pub(crate) struct Recorder {
    pub(crate) host: Host,
    /// The first pass of each recording.
    pub(crate) snapshot: Snapshot,
    pub(crate) pid: u32,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let mut host = Host::new(["H100"]);
        let pid = host.start_sleep(0, GIB);
        let agent = Agent::start(&host);
        let mut received = ReceivedLines::default();
        received.read_until(&agent, "the process", |snapshot| {
            snapshot.host.scan.at != Moment(0)
                && snapshot
                    .processes
                    .iter()
                    .any(|process| process.facts.argv.is_ok())
        });
        let mut snapshot = received.snapshot.expect("lines were read");
        // A viewer shows data as stale after some intervals; the live lines of `cat` stop at the
        // end of the file.
        snapshot.interval_ms = 24 * 3600 * 1000;
        // The first passes may lack it. A process that computes is neither loading nor idle.
        snapshot.gpus[0].processes[0].sm = Ok(Percent::new(97.0));
        Self {
            host,
            snapshot,
            pid,
        }
    }

    /// Returns this many passes with this data time between them, in which the process leaks.
    /// `change` changes a pass and those after it.
    pub(crate) fn passes(
        &self,
        count: u64,
        step_ms: u64,
        change: impl Fn(u64, &mut Snapshot),
    ) -> Vec<Snapshot> {
        let mut snapshot = self.snapshot.clone();
        let mut passes = Vec::new();
        for pass in 0..count {
            change(pass, &mut snapshot);
            let gpu = &mut snapshot.gpus[0];
            let memory = Ok(Bytes(GIB + GROWTH * pass));
            gpu.processes[0].memory = memory;
            gpu.load.memory_used = memory;
            gpu.load.at = snapshot.at;
            gpu.load.temperature = Ok(Celsius(if pass + 1 == count { 77 } else { 60 }));
            passes.push(snapshot.clone());
            snapshot.sequence += 1;
            snapshot.at = Moment(snapshot.at.0 + step_ms);
            snapshot.unix_ms += step_ms;
        }
        passes
    }

    /// Writes a recording of this many passes with this data time between them, in which the
    /// process leaks.
    pub(crate) fn record(&self, name: &str, passes: u64, step_ms: u64) -> PathBuf {
        let mut bytes = Vec::new();
        for snapshot in self.passes(passes, step_ms, |_, _| {}) {
            Line::Full(Box::new(snapshot))
                .write(&mut bytes)
                .expect("writing to memory succeeds");
        }
        let path = self.host.path(name);
        fs::write(&path, bytes).expect("/tmp has room");
        path
    }
}

/// Runs `gputop replay` without a driver.
fn replay(path: &Path, args: &[&str]) -> Output {
    let mut command = Host::new([]).gputop(["replay"]);
    run(command.arg(path).args(args))
}

pub(crate) fn terminal(path: &Path, args: &[&str]) -> Terminal {
    let mut command = Host::new([]).gputop(["replay"]);
    // One row more than live: the timeline.
    Terminal::run(command.arg(path).args(args), 120, 25)
}

/// The lists of the screen: without the first lines, which name the source, the timeline of a
/// replay, and the last line, which shows notices.
pub(crate) fn lists(terminal: &Terminal) -> Vec<String> {
    let text = terminal.text();
    // The emulator omits cells at the end of a line that were never drawn.
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    let first = lines
        .iter()
        .position(|line| line.contains("WHO"))
        .expect("there is a list of GPUs");
    let is_timeline = |line: &String| line.ends_with("nothing here acts on the machine");
    lines[first..lines.len() - 1]
        .iter()
        .filter(|line| !is_timeline(line))
        .cloned()
        .collect()
}

/// Waits until the last pass of the recording is on the screen, then returns its lists.
pub(crate) fn final_lists(terminal: &Terminal) -> Vec<String> {
    terminal.wait_for(LAST_TEMPERATURE);
    lists(terminal)
}

/// Returns the lists after the same lines came from an agent. They contain this word.
fn live_lists(path: &Path, word: &str) -> Vec<String> {
    let script = format!("cat {}; while read command; do :; done", path.display());
    let mut command = Host::new([]).gputop(["--via", &shell_words::join(["sh", "-c", &script])]);
    let live = Terminal::run(&mut command, 120, 24);
    // The GPU's last temperature is drawn before the process.
    live.wait_for(word);
    final_lists(&live)
}

/// Returns the lists after a replay at this speed whose screen was paused for a while.
fn lists_after_a_pause(path: &Path, speed: &str) -> Vec<String> {
    let paused = terminal(path, &["--speed", speed]);
    paused.wait_for("sleep 1000");
    paused.keys("p");
    paused.wait_until("a paused screen", |screen| {
        screen.contents().to_lowercase().contains("paused")
    });
    paused.keys("p");
    final_lists(&paused)
}

#[test]
fn at_every_speed_and_after_a_pause_the_last_screen_is_that_of_the_live_lines() {
    let recorder = Recorder::new();
    let path = recorder.record("short.jsonl", 31, 100);
    let live = live_lists(&path, "sleep 1000");
    for speed in ["1", "10", "max"] {
        assert_eq!(
            final_lists(&terminal(&path, &["--speed", speed])),
            live,
            "at {speed}"
        );
    }
    assert_eq!(lists_after_a_pause(&path, "10"), live, "after a pause");
}

#[test]
fn a_leak_is_reported_at_the_same_data_time_at_any_speed_after_a_pause_and_live() {
    let recorder = Recorder::new();
    let path = recorder.record("long.jsonl", 241, 10_000);
    let live = live_lists(&path, "LEAK");
    for speed in ["1000", "max"] {
        assert_eq!(
            final_lists(&terminal(&path, &["--speed", speed])),
            live,
            "at {speed}"
        );
    }
    assert_eq!(lists_after_a_pause(&path, "500"), live, "after a pause");
    // On a larger screen the news name the leak and when it was found.
    let mut command = Host::new([]).gputop(["replay"]);
    let large = Terminal::run(command.arg(&path).args(["--speed", "max"]), 120, 40);
    large.wait_for(LAST_TEMPERATURE);
    // It grows by 1.17 GiB a minute. How buckets of time divide the samples depends on the time
    // since boot.
    large.wait_until("the news of the leak", |screen| {
        ["1.1", "1.2"].iter().any(|rate| {
            screen.contents().contains(&format!(
                "!  LEAK  {} sleep (root) +{rate} GiB/min, full ",
                recorder.pid
            ))
        })
    });
}

#[test]
fn a_replay_says_where_it_ends_and_acts_on_nothing() {
    let mut recorder = Recorder::new();
    let path = recorder.record("short.jsonl", 3, 100);
    let mut terminal = terminal(&path, &["--speed", "max"]);
    terminal.wait_for("RECORDING (ended)");
    terminal.keys(F9);
    terminal.wait_for("this is a recording");
    terminal.keys(ESC);
    terminal.wait_until_gone("this is a recording");
    terminal.quit();
    assert!(recorder.host.process(recorder.pid).handle.is_alive());
}

#[test]
fn once_and_json_print_the_state_at_the_end_of_the_recording() {
    let recorder = Recorder::new();
    let path = recorder.record("short.jsonl", 3, 3_600_000);
    let memory = GIB + 2 * GROWTH;
    let table = replay(&path, &["--once"]);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(
        table.text().contains(LAST_TEMPERATURE) && table.text().contains(" 1.4G "),
        "{}",
        table.text()
    );
    assert_eq!(table.stderr, "");
    let json: serde_json::Value =
        serde_json::from_str(&replay(&path, &["--json"]).text()).expect("one line of JSON");
    assert_eq!(json["gpus"][0]["processes"][0]["memory_used_bytes"], memory);
}

#[test]
fn a_recording_with_a_truncated_last_line_is_shown_with_a_warning() {
    let recorder = Recorder::new();
    let path = recorder.record("cut.jsonl", 3, 100);
    let bytes = fs::read(&path).expect("the recording exists");
    fs::write(&path, &bytes[..bytes.len() - 20]).expect("/tmp has room");
    let table = replay(&path, &["--once"]);
    assert!(table.text().contains(" 1.2G "), "{}", table.text());
    assert!(
        table
            .text()
            .contains("the last line of the recording is cut off"),
        "{}",
        table.text()
    );
}

#[test]
fn a_file_that_is_missing_or_no_recording_is_an_error() {
    let missing = replay(Path::new("/does/not/exist"), &["--once"]);
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (
            1,
            "gputop: cannot read /does/not/exist: No such file or directory (os error 2)\n"
        )
    );
    let mut missing = terminal(Path::new("/does/not/exist"), &[]);
    assert_eq!(exit_code(missing.wait_for_exit()), 1);
    missing.wait_for("gputop: cannot read /does/not/exist: No such file or directory");
    let folder = replay(Path::new("/"), &["--once"]);
    assert_eq!(
        (folder.code, folder.stderr.as_str()),
        (1, "gputop: cannot read /: Is a directory (os error 21)\n")
    );
    let text = replay(Path::new(env!("CARGO_MANIFEST_PATH")), &["--once"]);
    assert_eq!(text.code, 1);
    assert!(
        text.stderr.contains("the recording cannot be replayed"),
        "{}",
        text.stderr
    );
}

#[test]
fn looped_json_of_two_hosts_can_be_replayed() {
    let [mut left, mut right] = [Host::new(["H100"]), Host::new(["H100"])];
    left.start_sleep(0, 3 * GIB);
    right.start_sleep(0, 5 * GIB);
    let mut command = Host::new([]).gputop(["--json", "-l", "1"]);
    command.args([
        "--via",
        &format!("left={}", agent_of(&left)),
        "--via",
        &format!("right={}", agent_of(&right)),
    ]);
    let path = left.path("two.jsonl");
    let file = fs::File::create(&path).expect("/tmp has room");
    let gputop = crate::process::ChildProcess::spawn(command.stdout(file));
    crate::process::wait_until("two reports", || {
        fs::read_to_string(&path)
            .is_ok_and(|text| text.lines().count() >= 4 && text.ends_with('\n'))
    });
    gputop.handle.signal(Signal::KILL);
    let table = replay(&path, &["--once"]);
    let has = |name: &str, memory: &str| {
        table
            .text()
            .lines()
            .any(|line| line.contains(name) && line.contains(memory))
    };
    assert!(
        has("left", "3.0G") && has("right", "5.0G"),
        "{}{}",
        table.text(),
        table.stderr
    );
}
