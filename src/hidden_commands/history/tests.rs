//! Checks the folder of histories: limits, permissions, links, and the choice between histories.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::base::units::Bytes;
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Snapshot, example};

/// Returns the lines of a history, or of a recording, that ends with this snapshot.
fn lines(snapshots: &[Snapshot], has_checkpoint: bool) -> Vec<u8> {
    let mut model = HostModel::default();
    for snapshot in snapshots {
        model.replace(snapshot.clone());
    }
    let last = snapshots.last().unwrap();
    let mut lines = Vec::new();
    Line::Full(Box::new(last.clone()))
        .write(&mut lines)
        .unwrap();
    if has_checkpoint {
        Line::Checkpoint(Box::new(model.checkpoint().unwrap()))
            .write(&mut lines)
            .unwrap();
    }
    lines
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("gputop/history").join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }

    fn past(&self) -> Option<Past> {
        match read_here(&self.path("box-0a1b")) {
            Ok(text) => Some(serde_json::from_str(&text).unwrap()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn life() -> Vec<Snapshot> {
    let host = example::host(1).with(100, "python train.py", 0, Bytes::from_gib(4));
    (0..100).map(|second| host.later(second)).collect()
}

#[test]
fn a_history_is_read_as_it_was_written_and_only_its_owner_can_read_it() {
    let home = Home::new();
    assert_eq!(home.past(), None);
    let life = life();
    write_here(
        &home.path("box-0a1b-b007-1.jsonl.zst"),
        lines(&life, true).as_slice(),
    )
    .unwrap();
    let past = home.past().unwrap();
    let last = life.last().unwrap();
    assert_eq!(
        (past.unix_ms, past.last_look_ms),
        (last.unix_ms, Some(last.unix_ms))
    );
    assert_eq!(
        (past.boot_id.as_str(), past.checkpoint.at),
        ("b007", last.at)
    );
    assert!(
        past.path
            .as_str()
            .ends_with("gputop/history/box-0a1b-b007-1.jsonl.zst")
    );
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (
            mode(home.path("")),
            mode(home.path("box-0a1b-b007-1.jsonl.zst"))
        ),
        (0o700, 0o600)
    );
    assert_eq!(home.names(), ["box-0a1b-b007-1.jsonl.zst"]);
}

#[test]
fn the_newest_history_of_the_same_host_and_source_counts() {
    let home = Home::new();
    let life = life();
    for (name, length) in [
        ("box-0a1b-b007-1", 10),
        ("box-0a1b-b007-2", 30),
        ("box-ffff-b007-3", 40),
    ] {
        write_here(
            &home.path(&format!("{name}.jsonl.zst")),
            lines(&life[..length], true).as_slice(),
        )
        .unwrap();
    }
    assert_eq!(home.past().unwrap().checkpoint.at, life[29].at);
    // Another file with the name of this host's files hides no history.
    fs::write(home.path("box-0a1b-b007-4.jsonl.zst"), "nonsense\n").unwrap();
    assert_eq!(home.past().unwrap().checkpoint.at, life[29].at);
}

#[test]
fn a_newer_past_of_a_recorder_counts_and_the_last_look_stays_that_of_the_viewer() {
    let home = Home::new();
    let life = life();
    write_here(
        &home.path("box-0a1b-b007-1.jsonl.zst"),
        lines(&life[..10], true).as_slice(),
    )
    .unwrap();
    let recordings = home.0.path().join("gputop/recordings");
    fs::create_dir(&recordings).unwrap();
    let recorded: Vec<u8> = life[5..60]
        .chunks(1)
        .flat_map(|one| lines(one, false))
        .collect();
    fs::write(recordings.join("box.jsonl.zst"), recorded).unwrap();
    let past = home.past().unwrap();
    assert_eq!(
        (past.checkpoint.at, past.last_look_ms),
        (life[59].at, Some(life[9].unix_ms))
    );
    assert!(
        past.path.as_str().ends_with("recordings/box.jsonl.zst"),
        "{}",
        past.path
    );
    write_here(
        &home.path("box-0a1b-b007-2.jsonl.zst"),
        lines(&life[..70], true).as_slice(),
    )
    .unwrap();
    assert_eq!(
        home.past().unwrap().checkpoint.at,
        life[69].at,
        "the viewer saw more than the recorder"
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the age of a file")]
fn old_histories_are_neither_read_nor_kept_and_all_together_are_bounded() {
    let home = Home::new();
    let life = life();
    let write = |name: &str| write_here(&home.path(name), lines(&life, true).as_slice()).unwrap();
    write("box-0a1b-b007-1.jsonl.zst");
    let file = |name: &str| {
        File::options()
            .create(true)
            .append(true)
            .open(home.path(name))
            .unwrap()
    };
    file("box-0a1b-b007-1.jsonl.zst")
        .set_modified(SystemTime::now() - OLDEST - Duration::from_mins(1))
        .unwrap();
    assert_eq!(home.past(), None);
    for (number, minutes) in [(2, 3), (3, 2), (4, 1)] {
        let file = file(&format!("other-0a1b-b007-{number}.jsonl.zst"));
        file.set_len(30 << 20).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(minutes))
            .unwrap();
    }
    fs::write(home.path("notes.txt"), "not a history").unwrap();
    write("box-0a1b-b007-5.jsonl.zst");
    let kept = [
        "box-0a1b-b007-5.jsonl.zst",
        "notes.txt",
        "other-0a1b-b007-3.jsonl.zst",
        "other-0a1b-b007-4.jsonl.zst",
    ];
    assert_eq!(home.names(), kept);
}

#[test]
fn no_link_is_followed() {
    let (home, elsewhere) = (Home::new(), tempfile::tempdir().unwrap());
    fs::create_dir(home.0.path().join("gputop")).unwrap();
    symlink(
        elsewhere.path(),
        home.path("").to_str().unwrap().trim_end_matches('/'),
    )
    .unwrap();
    let life = life();
    let written = write_here(
        &home.path("box-0a1b-b007-1.jsonl.zst"),
        lines(&life, true).as_slice(),
    );
    assert!(
        written
            .unwrap_err()
            .to_string()
            .ends_with("history is no folder of its own")
    );
    assert!(
        read_here(&home.path("box-0a1b"))
            .unwrap_err()
            .to_string()
            .ends_with("history is no folder of its own")
    );
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);

    let home = Home::new();
    write_here(
        &home.path("box-0a1b-b007-1.jsonl.zst"),
        lines(&life[..9], true).as_slice(),
    )
    .unwrap();
    fs::write(elsewhere.path().join("file"), lines(&life, true)).unwrap();
    symlink(
        elsewhere.path().join("file"),
        home.path("box-0a1b-b007-2.jsonl.zst"),
    )
    .unwrap();
    assert_eq!(home.past().unwrap().checkpoint.at, life[8].at);
    write_here(
        &home.path("box-0a1b-b007-2.jsonl.zst"),
        lines(&life[..20], true).as_slice(),
    )
    .unwrap();
    assert_eq!(
        fs::read(elsewhere.path().join("file")).unwrap(),
        lines(&life, true),
        "the link is replaced"
    );
}

#[test]
fn a_name_of_a_host_leads_to_no_other_folder() {
    for (host, expected) in [
        ("gpu-02.example", "gpu-02.example"),
        ("../../etc", "_.._etc"),
        ("", ""),
        ("ü b", "__b"),
    ] {
        assert_eq!(file_name(host), expected);
    }
}
