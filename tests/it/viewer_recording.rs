//! `R` in the viewer records what the viewer receives.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::file_systems::FrozenFileSystem;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::wait_until;
use crate::record::{SmallFileSystem, lines, play, replayed};
use crate::replay::{lists, terminal};
use crate::terminal::Terminal;
use crate::two_hosts::agent_of;

/// The columns whose cells do not change from second to second.
const STEADY: [&str; 4] = [
    "--interval",
    "100ms",
    "--columns",
    "pid,user,memory,command",
];

/// The recordings in the state directory of a host.
fn recordings(host: &Host) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.path("gputop/recordings"))
        .into_iter()
        .flatten()
        .flatten();
    entries.map(|entry| entry.path()).collect()
}

#[track_caller]
fn only_recording(host: &Host) -> PathBuf {
    match recordings(host).as_slice() {
        [file] => file.clone(),
        others => panic!("there is not one recording: {others:?}"),
    }
}

/// Starts a recording of a viewer that shows this word.
#[track_caller]
fn start_recording(viewer: &Terminal, word: &str) {
    viewer.wait_for(word);
    viewer.keys("R");
    viewer.wait_for("recording, R stops: ");
    viewer.wait_for("gputop REC ");
}

#[track_caller]
fn stop_recording(viewer: &Terminal) {
    viewer.keys("R");
    viewer.wait_for("recorded ");
    viewer.wait_until_gone("gputop REC ");
}

#[test]
fn the_replay_of_a_recording_of_the_viewer_shows_what_the_viewer_showed() {
    let mut host = Host::new(["H100"]);
    let before = host.start_sleep(0, 3 * GIB).to_string();
    let viewer = Terminal::start_at(&host, 120, 24, STEADY);
    viewer.wait_for("sleep 1000");
    start_recording(&viewer, &before);
    let during = host.start_sleep(0, 5 * GIB).to_string();
    let is_listed = |line: &str| line.contains(&during) && line.contains("sleep 1000");
    viewer.wait_until("the second process", |screen| {
        screen.contents().lines().any(is_listed)
    });
    stop_recording(&viewer);
    let file = only_recording(&host);
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(
        (mode(&file), mode(&host.path("gputop/recordings"))),
        (0o600, 0o700)
    );
    let lines = lines(&file);
    let kinds: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["kind"].as_str())
        .collect();
    assert_eq!(
        (&kinds[..2], kinds[2..].contains(&"full")),
        (&["full", "checkpoint"][..], true),
        "{kinds:?}"
    );
    // After the state at the begin, each line is the one after the line before.
    let sequence: Vec<u64> = lines[2..]
        .iter()
        .filter_map(|line| line["sequence"].as_u64())
        .collect();
    assert!(
        sequence.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{sequence:?}"
    );
    let replay = terminal(&file, &["--speed", "max", "--columns", STEADY[3]]);
    replay.wait_for("RECORDING (ended)");
    // The time of the viewer has gone on, so the graph below the lists has moved.
    let rows =
        |terminal: &Terminal| -> Vec<String> { lists(terminal).into_iter().take(5).collect() };
    assert_eq!(rows(&replay), rows(&viewer));
    assert!(
        rows(&replay)[4].contains("sleep 1000"),
        "{:?}",
        rows(&replay)
    );
}

#[test]
fn a_second_recording_has_a_file_of_its_own_and_quitting_closes_it() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    let mut viewer = Terminal::start_at(&host, 120, 24, STEADY);
    start_recording(&viewer, "sleep 1000");
    stop_recording(&viewer);
    let first = only_recording(&host);
    let name = |file: &Path| {
        file.file_name()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned()
    };
    // The name has the second of the host's latest snapshot, and the first line shows the viewer's
    // clock, which may be a second ahead.
    let second_of = name(&first)[name(&first).len() - "23T034112.jsonl.zst".len()..].to_owned();
    viewer.wait_until("the next second", |screen| {
        !screen.contents().contains(&clock_of(&second_of))
    });
    let text = viewer.text();
    let next = text
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().last());
    let next = next.expect("the first line ends with the clock").to_owned();
    viewer.wait_until("the second after", |screen| {
        !screen.contents().contains(&next)
    });
    start_recording(&viewer, "sleep 1000");
    wait_until("the second recording", || recordings(&host).len() == 2);
    viewer.keys("q");
    viewer.wait_for_exit();
    let files = recordings(&host);
    let second = files
        .iter()
        .find(|file| **file != first)
        .expect("there are two files");
    wait_until("the end of the recording", || {
        let played = play(second);
        (played.code, played.stderr.as_str()) == (0, "") && played.text().lines().count() > 2
    });
    assert!(replayed(second).contains("3.0G"));
}

#[test]
fn a_recording_begins_with_the_past_of_the_viewer() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let viewer = Terminal::start_at(&host, 120, 24, STEADY);
    viewer.wait_for("sleep 1000");
    // The viewer takes a process of its first two passes for an old one, which did not just begin.
    for (memory, shown) in [(5 * GIB, "5.0G"), (6 * GIB, "6.0G")] {
        host.change(|world| world.gpus[0].processes[0].memory = Some(memory));
        viewer.wait_for(shown);
    }
    let pid = host.start_sleep(0, 9 * GIB);
    // Below the graph.
    let began = format!("{pid} sleep began ▲");
    start_recording(&viewer, &began);
    stop_recording(&viewer);
    let replay = terminal(&only_recording(&host), &["--speed", "max"]);
    replay.wait_for("RECORDING (ended)");
    replay.wait_for(&began);
}

/// Returns the clock time in the name of a file: `23T034112.jsonl.zst` as `03:41:12`.
fn clock_of(name: &str) -> String {
    format!("{}:{}:{}", &name[3..5], &name[5..7], &name[7..9])
}

#[test]
fn a_file_that_cannot_be_written_is_named_in_one_sentence() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    let viewer = Terminal::start_at(&host, 200, 24, STEADY);
    viewer.wait_for("sleep 1000");
    let folder = host.path("gputop/recordings");
    fs::create_dir_all(host.path("gputop")).expect("/tmp has room");
    fs::write(&folder, "").expect("/tmp has room");
    let refused = |reason: &str| {
        viewer.keys("R");
        viewer.wait_until(reason, |screen| {
            screen
                .contents()
                .lines()
                .any(|line| line.starts_with("cannot record to /") && line.contains(reason))
        });
        viewer.wait_until_gone("gputop REC ");
    };
    refused(".jsonl.zst: File exists");
    fs::remove_file(&folder).expect("it exists");
    fs::create_dir(host.path("elsewhere")).expect("/tmp has room");
    symlink(host.path("elsewhere"), &folder).expect("/tmp has room");
    refused(".jsonl.zst: its folder is a symbolic link");
    assert_eq!(recordings(&host), Vec::<PathBuf>::new());
}

#[test]
fn the_recordings_of_several_hosts_are_one() {
    let [mut left, mut right] = [Host::new(["H100"]), Host::new(["H100"])];
    left.start_sleep(0, 3 * GIB);
    right.start_sleep(0, 5 * GIB);
    let via = [
        format!("left={}", agent_of(&left)),
        format!("right={}", agent_of(&right)),
    ];
    let viewer = Terminal::start_at(&left, 120, 24, ["--via", &via[0], "--via", &via[1]]);
    viewer.wait_for("3.0G");
    start_recording(&viewer, "5.0G");
    stop_recording(&viewer);
    let file = only_recording(&left);
    assert!(file.to_string_lossy().contains("/hosts-20"), "{file:?}");
    let table = replayed(&file);
    let has = |name: &str, memory: &str| {
        table
            .lines()
            .any(|line| line.contains(name) && line.contains(memory))
    };
    assert!(has("left", "3.0G") && has("right", "5.0G"), "{table}");
}

#[test]
fn a_full_disk_pauses_the_recording_of_the_viewer_until_there_is_room() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, 3 * GIB);
    fs::create_dir_all(host.path("gputop")).expect("/tmp has room");
    let Some(disk) = SmallFileSystem::mount(&host.path("gputop/recordings")) else {
        return print_note("skipped: only root can mount a file system");
    };
    let viewer = Terminal::start_at(&host, 200, 24, STEADY);
    start_recording(&viewer, "sleep 1000");
    let ballast = disk.0.join("ballast");
    // The last bytes of the disk are taken, too.
    let _full = fs::write(&ballast, vec![7; 256 << 10]);
    viewer.wait_for("recording is paused: No space left on device");
    viewer.wait_for("gputop REC paused");
    fs::remove_file(&ballast).expect("the file exists");
    viewer.wait_for("recording continues; it was paused for ");
    viewer.wait_until_gone("REC paused");
    stop_recording(&viewer);
    assert!(replayed(&only_recording(&host)).contains("3.0G"));
}

#[test]
fn a_disk_that_hangs_delays_neither_the_screen_nor_the_end_of_the_viewer() {
    let Some(mut frozen) = FrozenFileSystem::new() else {
        return;
    };
    frozen.host.start_sleep(0, 3 * GIB);
    let mut command = frozen.host.gputop(STEADY);
    command.env("XDG_STATE_HOME", frozen.path());
    let mut viewer = Terminal::run(&mut command, 120, 24);
    viewer.wait_for("sleep 1000");
    viewer.keys("R");
    viewer.wait_for("gputop REC ");
    viewer.wait_for_frames(5);
    viewer.keys("R");
    viewer.wait_for("gputop REC closing");
    viewer.keys("R");
    viewer.wait_for("the last recording is still being closed");
    viewer.wait_for_frames(5);
    viewer.keys("q");
    viewer.wait_for_exit();
    frozen.thaw();
}
