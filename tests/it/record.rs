//! `gputop record`: what it writes can be replayed, whatever ended it.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::{ChildProcess, Output, exit_code, run, wait_until};
use crate::two_hosts::agent_of;

/// A recorder that runs.
pub(crate) struct RunningRecorder {
    process: ChildProcess,
    /// The file with its standard error.
    messages: PathBuf,
}

impl RunningRecorder {
    /// Starts a recorder on a host, and waits until the recording has lines.
    pub(crate) fn start(host: &Host, file: &Path, args: &[&str]) -> Self {
        Self::start_with(host, file, args, &[])
    }

    /// Starts a recorder with more variables in its environment.
    pub(crate) fn start_with(
        host: &Host,
        file: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let messages = host.path("messages");
        let mut command = host.gputop(["record", "--interval", "100ms"]);
        command
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(File::create(&messages).expect("/tmp has room"));
        let recorder = Self {
            process: ChildProcess::spawn(&mut command),
            messages,
        };
        // The end of the file is repaired before that.
        wait_until("the recorder is ready", || {
            recorder.messages().contains("gputop: recording to ")
        });
        let before = length(file);
        wait_until("the recording has lines", || length(file) > before);
        recorder
    }

    /// Ends the recorder with a signal. Returns its exit code and its standard error.
    pub(crate) fn end(mut self, signal: Signal) -> (i32, String) {
        self.process.handle.signal(signal);
        let code = exit_code(self.process.wait());
        (
            code,
            fs::read_to_string(&self.messages).expect("the file exists"),
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn messages(&self) -> String {
        fs::read_to_string(&self.messages).expect("the file exists")
    }
}

fn private_folder(host: &Host) -> PathBuf {
    let folder = host.path("recordings");
    fs::create_dir(&folder).expect("/tmp has room");
    folder
}

/// Prints the lines of a recording as the viewer reads them.
pub(crate) fn play(file: &Path) -> Output {
    run(Host::new([])
        .gputop(["file-action", "play", "--"])
        .arg(file))
}

/// Returns the lines of a recording without a problem.
#[track_caller]
pub(crate) fn lines(file: &Path) -> Vec<Value> {
    let played = play(file);
    assert_eq!((played.code, played.stderr.as_str()), (0, ""));
    played
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

/// Returns the table of `gputop replay --once`.
#[track_caller]
pub(crate) fn replayed(file: &Path) -> String {
    let table = run(Host::new([]).gputop(["replay", "--once"]).arg(file));
    assert_eq!(
        (table.code, table.stderr.as_str()),
        (0, ""),
        "{}",
        table.text()
    );
    table.text()
}

#[test]
fn every_signal_that_ends_programs_closes_the_recording() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 3 * GIB).to_string();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let file = host.path(&format!("recordings/{}.jsonl.zst", signal.as_raw()));
        let recorder = RunningRecorder::start(&host, &file, &["-o", &file.display().to_string()]);
        let (code, messages) = recorder.end(signal);
        let begin = format!(
            "gputop: recording to {}; Ctrl-C ends it\ngputop: ",
            file.display()
        );
        let end = format!(": gputop replay {}\n", file.display());
        assert!(
            code == 0
                && messages.starts_with(&begin)
                && messages.ends_with(&end)
                && messages.lines().count() == 2,
            "{messages}"
        );
        let table = replayed(&file);
        assert!(table.contains(&pid) && table.contains("3.0G"), "{table}");
        let kinds: Vec<String> = lines(&file)
            .iter()
            .map(|line| line["kind"].to_string())
            .collect();
        assert_eq!(kinds[..2], ["\"full\"", "\"checkpoint\""]);
        let sequence: Vec<u64> = lines(&file)
            .iter()
            .filter_map(|line| line["sequence"].as_u64())
            .collect();
        assert!(
            sequence.iter().copied().eq(1..=sequence.len() as u64),
            "{sequence:?}"
        );
        let mode =
            |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(
            (mode(&file), mode(&host.path("recordings"))),
            (0o600, 0o700)
        );
    }
}

#[test]
fn without_a_file_the_recording_is_in_the_state_directory() {
    let host = Host::new(["H100"]);
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let file = host.path(&format!("gputop/recordings/{name}.jsonl.zst"));
    let (code, messages) = RunningRecorder::start(&host, &file, &[]).end(Signal::INT);
    assert_eq!(code, 0);
    let last = messages.lines().last().expect("there is a line");
    assert!(
        last.starts_with("gputop: ")
            && last.contains(" KiB, ")
            && last.ends_with(&format!(": gputop replay {}", file.display())),
        "{messages}"
    );
    assert!(replayed(&file).contains("H100"));
}

#[test]
fn replay_report_and_diff_take_the_newest_recordings_of_this_host() {
    let host = Host::new(["H100"]);
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    for args in [&["replay", "--once"][..], &["report", "--md"], &["diff"]] {
        let output = host.run(args.iter().copied());
        assert!(
            output.code == 1
                && output
                    .stderr
                    .starts_with("gputop: no recording of this host is in "),
            "{args:?}: {}",
            output.stderr
        );
    }
    // That of the simulated machine is of no host, and the sentence names it.
    let demo = host.path("gputop/recordings/demo.jsonl.zst");
    fs::create_dir_all(demo.parent().expect("it is in a folder")).expect("/tmp has room");
    fs::write(&demo, "").expect("/tmp has room");
    for args in [&["replay", "--once"][..], &["diff"]] {
        let stderr = host.run(args.iter().copied()).stderr;
        let named = format!("; {} is that of the simulated machine", demo.display());
        assert!(stderr.contains(&named), "{args:?}: {stderr}");
    }
    let file = host.path(&format!("gputop/recordings/{name}.jsonl.zst"));
    RunningRecorder::start(&host, &file, &[]).end(Signal::INT);
    let taken = format!("gputop: taking {}\n", file.display());
    for args in [&["replay", "--once"][..], &["report", "--md"]] {
        let output = host.run(args.iter().copied());
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (0, taken.as_str()),
            "{args:?}"
        );
        assert!(output.text().contains("H100"), "{args:?}");
    }
    let output = host.run(["diff"]);
    assert!(
        output.code == 1
            && output
                .stderr
                .contains("only one recording of this host is in "),
        "{}",
        output.stderr
    );
    let plain = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    let second = file.with_file_name(format!("{plain}-2026-11-23T034112.jsonl.zst"));
    fs::copy(&file, &second).expect("/tmp has room");
    let output = host.run(["diff"]);
    let both = format!("{taken}gputop: taking {}\n", second.display());
    assert_eq!((output.code, output.stderr.as_str()), (0, both.as_str()));
    assert!(output.text().contains(&format!("\nA: {}", file.display())));
}

#[test]
fn a_recorder_that_was_killed_can_be_started_again() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    let file = private_folder(&host).join("night.jsonl.zst");
    let args = ["-o", &file.display().to_string()];
    let (code, messages) = RunningRecorder::start(&host, &file, &args).end(Signal::KILL);
    assert_eq!(code, 128 + 9, "{messages}");
    let before = lines(&file);
    let (code, messages) = RunningRecorder::start(&host, &file, &args).end(Signal::TERM);
    assert_eq!(code, 0);
    assert!(
        messages.contains("the end of ") && messages.contains("; the lines before are kept\n"),
        "{messages}"
    );
    let after = lines(&file);
    assert_eq!(after[..before.len()], before[..]);
    assert!(after.len() > before.len() && replayed(&file).contains("3.0G"));
}

#[test]
fn only_one_recorder_writes_a_file() {
    let host = Host::new(["H100"]);
    let file = private_folder(&host).join("night.jsonl.zst");
    let args = ["-o", &file.display().to_string()];
    let first = RunningRecorder::start(&host, &file, &args);
    let second = run(host.gputop(["record"]).args(args));
    let sentence = format!(
        "cannot record to {}: another gputop records to it: choose another file with -o",
        file.display()
    );
    assert_eq!(
        (second.code, second.stderr),
        (1, format!("gputop: {sentence}\n"))
    );
    assert_eq!(first.end(Signal::INT).0, 0);
}

#[test]
fn several_hosts_are_in_one_recording() {
    let [mut left, mut right] = [Host::new(["H100"]), Host::new(["H100"])];
    left.start_sleep(0, 3 * GIB);
    right.start_sleep(0, 5 * GIB);
    let file = private_folder(&left).join("two.jsonl.zst");
    let via = [
        format!("left={}", agent_of(&left)),
        format!("right={}", agent_of(&right)),
    ];
    let args = [
        "-o",
        &file.display().to_string(),
        "--via",
        &via[0],
        "--via",
        &via[1],
    ];
    let recorder = RunningRecorder::start(&left, &file, &args);
    wait_until("both hosts", || {
        let text = play(&file).text();
        ["left", "right"]
            .iter()
            .all(|name| text.contains(&format!("\"name\":\"{name}\"}}}}")))
    });
    assert_eq!(recorder.end(Signal::INT).0, 0);
    let table = replayed(&file);
    let has = |name: &str, memory: &str| {
        table
            .lines()
            .any(|line| line.contains(name) && line.contains(memory))
    };
    assert!(has("left", "3.0G") && has("right", "5.0G"), "{table}");
}

/// A file system in memory with little room. Dropping it unmounts it.
pub(crate) struct SmallFileSystem(pub(crate) PathBuf);

impl SmallFileSystem {
    /// Returns `None` where this user may not mount file systems.
    pub(crate) fn mount(folder: &Path) -> Option<Self> {
        fs::create_dir(folder).expect("/tmp has room");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"])
            .arg(folder);
        mount
            .output()
            .is_ok_and(|output| output.status.success())
            .then(|| Self(folder.to_owned()))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_pauses_the_recording_until_there_is_room() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    let Some(disk) = SmallFileSystem::mount(&host.path("disk")) else {
        return print_note("skipped: only root can mount a file system");
    };
    let file = disk.0.join("night.jsonl.zst");
    let recorder = RunningRecorder::start(&host, &file, &["-o", &file.display().to_string()]);
    let ballast = disk.0.join("ballast");
    // The last bytes of the disk are taken, too.
    let _full = fs::write(&ballast, vec![7; 256 << 10]);
    let paused = "recording is paused: No space left on device (os error 28); it continues when writing succeeds again\n";
    wait_until("the pause", || recorder.messages().contains(paused));
    fs::remove_file(&ballast).expect("the file exists");
    wait_until("the end of the pause", || {
        recorder
            .messages()
            .contains("recording continues; it was paused for ")
    });
    let (code, messages) = recorder.end(Signal::INT);
    assert_eq!((code, messages.lines().count()), (0, 4), "{messages}");
    assert!(replayed(&file).contains("3.0G"));
}

#[test]
fn a_clip_is_a_recording_of_the_time_between_two_moments() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    let folder = private_folder(&host);
    let file = folder.join("night.jsonl.zst");
    let recorder = RunningRecorder::start(&host, &file, &["-o", &file.display().to_string()]);
    wait_until("two seconds of lines", || {
        play(&file).text().lines().count() > 20
    });
    assert_eq!(recorder.end(Signal::INT).0, 0);
    let clip = |args: &[&str]| {
        run(host
            .gputop(["clip"])
            .arg(&file)
            .args(args)
            .current_dir(&folder))
    };
    let made = clip(&["--from", "-1s", "--to", "-0.3"]);
    assert_eq!((made.code, made.stderr.as_str()), (0, ""));
    assert!(
        made.text().starts_with("wrote night-clip.jsonl.zst: ") && made.text().contains(" (0s, "),
        "{}",
        made.text()
    );
    let found = lines(&folder.join("night-clip.jsonl.zst"));
    assert_eq!(
        (&found[0]["kind"], &found[1]["kind"]),
        (&"full".into(), &"checkpoint".into())
    );
    let times = |lines: &[Value]| -> Vec<u64> {
        lines
            .iter()
            .filter(|line| line["kind"] == "tick")
            .filter_map(|line| line["unix_time_ms"].as_u64())
            .collect()
    };
    let (all, found) = (times(&lines(&file)), times(&found));
    let end = all[all.len() - 1];
    let expected: Vec<u64> = all
        .into_iter()
        .filter(|time| (end - 1000..=end - 300).contains(time))
        .collect();
    assert_eq!(found, expected);
    assert!(replayed(&folder.join("night-clip.jsonl.zst")).contains("3.0G"));
    for (args, sentence) in [
        (
            &["--from", "-1s"][..],
            "night-clip.jsonl.zst exists: choose another file with -o",
        ),
        (
            &[
                "--from",
                "2001-01-01 00:00",
                "--to",
                "2001-01-01 00:01",
                "-o",
                "x",
            ],
            " has no lines between 2001-01-01 00:00:",
        ),
        (&["--from", "-1s", "--to", "-2s"], " is after --to "),
        (&["--from", "noon"], "noon is no time: try 03:10"),
    ] {
        let refused = clip(args);
        assert!(
            refused.code == 1 && refused.stderr.contains(sentence),
            "{}",
            refused.stderr
        );
    }
}
