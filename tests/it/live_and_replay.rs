//! A host shows the same lists live, in a replay of its recording, and after a jump to a
//! checkpoint: also where nothing was recorded for a while, a clock was set, or an agent or the
//! host was restarted.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use gputop::base::time::local_time;
use gputop::base::units::{Bytes, Moment};
use gputop::protocol::change::Change;
use gputop::protocol::host_tag::HostTag;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;

use crate::host::Host;
use crate::process::{ChildProcess, exit_code};
use crate::record;
use crate::replay::{LAST_TEMPERATURE, Recorder, terminal};
use crate::replay_steering::wait_for_end;
use crate::terminal::Terminal;

/// The data time between two passes.
const STEP_MS: u64 = 20_000;

/// The number of the last pass.
const LAST: usize = 180;

const HOUR_MS: u64 = 3_600_000;

/// The lists of GPUs and processes. The scale of the graph below depends on the screens before.
fn lists(terminal: &Terminal) -> Vec<String> {
    crate::replay::lists(terminal)
        .into_iter()
        .take_while(|line| !line.contains(" memory  now "))
        .collect()
}

/// A leaking process on some hosts, in the order in which its passes were recorded.
struct Recorded {
    /// Keeps the process and the folder.
    recorder: Recorder,
    hosts: Vec<RecordedLines>,
}

/// The passes of a host, and their lines.
struct RecordedLines {
    name: &'static str,
    passes: Vec<Snapshot>,
    lines: Vec<Vec<u8>>,
}

impl RecordedLines {
    /// A full line, then ticks with a full line each minute, as an agent writes them.
    fn new(name: &'static str, passes: Vec<Snapshot>) -> Self {
        let mut lines = Vec::new();
        for (number, pass) in passes.iter().enumerate() {
            let before = number.checked_sub(1).filter(|_| number % 3 != 0);
            let change = before.and_then(|before| Change::between(&passes[before], pass));
            let line = change.map_or_else(
                || Line::Full(Box::new(pass.clone())),
                |change| Line::Tick(Box::new(change)),
            );
            let mut bytes = Vec::new();
            line.write(&mut bytes).expect("writing to memory succeeds");
            lines.push(bytes);
        }
        Self {
            name,
            passes,
            lines,
        }
    }
}

impl Recorded {
    fn new(change: impl Fn(u64, &mut Snapshot)) -> Self {
        let recorder = Recorder::new();
        let passes = recorder.passes(LAST as u64 + 1, STEP_MS, change);
        Self {
            recorder,
            hosts: vec![RecordedLines::new("host", passes)],
        }
    }

    /// Returns the lines up to a pass, with tags if there are several hosts.
    fn lines(&self, last: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for pass in 0..=last {
            for (host_key, host) in (0..).zip(&self.hosts) {
                let Some(mut line) = host.lines.get(pass).cloned() else {
                    continue;
                };
                if self.hosts.len() > 1 {
                    HostTag {
                        host_key,
                        name: Some(host.name.into()),
                    }
                    .append_to(&mut line);
                }
                bytes.append(&mut line);
            }
        }
        bytes
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.recorder.host.path(name);
        fs::write(&path, bytes).expect("/tmp has room");
        path
    }

    /// Returns the last lists of a viewer that the lines reach from agents.
    fn live(&self) -> Vec<String> {
        let mut command = Host::new([]).gputop([]);
        for host in &self.hosts {
            let path = self.write(host.name, &host.lines.concat());
            let script = format!("cat {}; while read command; do :; done", path.display());
            let source = shell_words::join(["sh", "-c", &script]);
            command.args(["--via", &format!("{}={source}", host.name)]);
        }
        let live = Terminal::run(&mut command, 120, 24);
        live.wait_until("the last pass of each host", |screen| {
            let has_all = |text: &str| screen.contents().matches(text).count() == self.hosts.len();
            has_all(LAST_TEMPERATURE) && has_all("sleep 1000")
        });
        lists(&live)
    }

    /// Records the lines as the viewer's `R` does: in frames, with checkpoints.
    fn compress(&self) -> PathBuf {
        let folder = self.recorder.host.path("private");
        let path = folder.join("night.jsonl.zst");
        let mut command = Host::new([]).gputop(["record", "--from-viewer", "-o"]);
        command
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut process = ChildProcess::spawn(&mut command);
        let mut stdin = process.child().stdin.take().expect("it is a pipe");
        let lines = [b"\n", &self.lines(LAST)[..]].concat();
        stdin.write_all(&lines).expect("the recorder reads");
        drop(stdin);
        assert_eq!(exit_code(process.wait()), 0);
        path
    }

    /// Checks that the replays end with the lists of the live lines, and [`Self::check_jumps`].
    #[track_caller]
    fn check(&self, passes: &[usize]) {
        let live = self.live();
        let plain = self.write("plain.jsonl", &self.lines(LAST));
        for path in [plain, self.check_jumps(passes)] {
            let replay = terminal(&path, &["--speed", "max"]);
            wait_for_end(&replay);
            assert_eq!(lists(&replay), live, "{}", path.display());
        }
    }

    /// Checks that a jump to each of these passes leads to the lists of playing up to there.
    /// Returns the recording.
    #[track_caller]
    fn check_jumps(&self, passes: &[usize]) -> PathBuf {
        let path = self.compress();
        let jumping = terminal(&path, &["--speed", "max"]);
        wait_for_end(&jumping);
        jumping.keys("p");
        jumping.wait_for("the recording is at its end");
        for pass in passes {
            let played = terminal(
                &self.write("short.jsonl", &self.lines(*pass)),
                &["--speed", "max"],
            );
            wait_for_end(&played);
            let time = self.time_of(*pass);
            jumping.keys(&format!("J{time}\r"));
            jumping.wait_until(&format!("pass {pass} at {time}"), |screen| {
                let text = screen.contents();
                text.contains("RECORDING paused")
                    && text.contains(&format!("{}  nothing here acts", &time[11..]))
            });
            assert_eq!(lists(&jumping), lists(&played), "pass {pass}");
        }
        path
    }

    /// The clock time of a pass of the host whose lines go on to the end, as the user types it.
    fn time_of(&self, pass: usize) -> String {
        let host = self
            .hosts
            .iter()
            .find(|host| host.lines.len() > LAST)
            .expect("a host has all passes");
        let pass = &host.passes[pass];
        let offset = pass
            .host
            .facts
            .utc_offset
            .expect("the agent knows the time zone");
        local_time(pass.unix_ms, offset)[..19].to_owned()
    }
}

#[test]
fn after_an_hour_without_lines() {
    let recorded = Recorded::new(|pass, snapshot| {
        if pass == 90 {
            snapshot.at = Moment(snapshot.at.0 + HOUR_MS);
            snapshot.unix_ms += HOUR_MS;
        }
    });
    recorded.check(&[170, 89, 90, 100, 30]);
}

#[test]
fn after_the_clock_was_set_forward() {
    let recorded = Recorded::new(|pass, snapshot| {
        if pass == 90 {
            snapshot.unix_ms += 2 * HOUR_MS;
        }
    });
    recorded.check(&[170, 89, 90, 100, 30]);
}

#[test]
fn after_the_clock_was_set_back() {
    let recorded = Recorded::new(|pass, snapshot| {
        if pass == 90 {
            snapshot.unix_ms -= 2 * HOUR_MS;
        }
    });
    recorded.check(&[170, 89, 90, 100, 30]);
}

#[test]
fn after_a_restart_of_the_agent_and_of_the_host() {
    let recorded = Recorded::new(|pass, snapshot| match pass {
        60 => snapshot.sequence = 1,
        120 => {
            snapshot.sequence = 1;
            snapshot.host.facts.boot_id = "another boot".into();
            snapshot.at = Moment(50_000);
            snapshot.host.scan.at = snapshot.at;
        }
        _ => {}
    });
    recorded.check(&[170, 30, 60, 59, 119, 120, 130]);
}

/// Records two hosts; the clock of the second differs by this time.
fn two_hosts(clock_difference: impl Fn(u64) -> u64) -> Recorded {
    let mut recorded = Recorded::new(|_, _| {});
    recorded.hosts[0].name = "left";
    let mut other = recorded
        .recorder
        .passes(LAST as u64 + 1, STEP_MS, |pass, snapshot| {
            if pass == 0 {
                snapshot.host.facts.boot_id = "the right one".into();
                snapshot.unix_ms = clock_difference(snapshot.unix_ms);
            }
        });
    for gpu in other.iter_mut().map(|pass| &mut pass.gpus[0]) {
        let double = gpu.load.memory_used.map(|bytes| Bytes(bytes.0 * 2));
        gpu.processes[0].memory = double;
        gpu.load.memory_used = double;
    }
    recorded.hosts.push(RecordedLines::new("right", other));
    recorded
}

#[test]
fn of_two_hosts() {
    two_hosts(|unix_ms| unix_ms).check(&[170, 30, 90, 150]);
}

#[test]
fn of_two_hosts_whose_clocks_differ() {
    for difference in [HOUR_MS.cast_signed(), -HOUR_MS.cast_signed()] {
        let recorded = two_hosts(|unix_ms| unix_ms.saturating_add_signed(difference));
        recorded.check(if difference < 0 {
            &[170, 30, 90, 150]
        } else {
            &[]
        });
        let file = recorded.recorder.host.path("private/night.jsonl.zst");
        let checkpoints = record::lines(&file)
            .iter()
            .filter(|line| line["kind"] == "checkpoint")
            .count();
        assert_eq!(checkpoints, 2 * 12 + 1);
    }
}

#[test]
fn of_two_hosts_after_the_end_of_the_first() {
    let mut recorded = two_hosts(|unix_ms| unix_ms);
    recorded.hosts[0].lines.truncate(60);
    recorded.check_jumps(&[170, 30, 59, 90, 150]);
}
