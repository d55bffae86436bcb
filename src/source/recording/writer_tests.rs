//! Tests of the writer with lines of a clock that the tests set.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::part::older_path;
use super::writer::{FrameStart, RecordingLimits, RecordingWriter};
use super::{RecordingReader, reader_tests::rest_of};
use crate::base::units::Bytes;
use crate::protocol::host_key::HostKey;

const LIMITS: RecordingLimits = RecordingLimits {
    max_size: Bytes(1 << 30),
    max_age: Duration::from_hours(24),
};

/// The time of the first line.
const START_MS: u64 = 1_784_016_758_000;

/// A recording in a folder of its own, and how many lines were given to its writer.
struct TestRecording {
    folder: tempfile::TempDir,
    second: u64,
    now: Instant,
}

impl TestRecording {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            second: 0,
            now: Instant::now(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("night.jsonl.zst")
    }

    fn open(&self, limits: RecordingLimits) -> RecordingWriter {
        RecordingWriter::open(&self.path(), limits).unwrap()
    }

    /// Adds a line for each second, a full one each minute.
    fn record(&mut self, writer: &mut RecordingWriter, seconds: u64) {
        for _ in 0..seconds {
            let unix_ms = START_MS + self.second * 1000;
            let is_full = self.second.is_multiple_of(60);
            match writer.next_frame(HostKey::FIRST, unix_ms, is_full, self.now) {
                None => writer.add(line("tick", self.second).as_bytes(), self.now),
                Some(start) => {
                    let kinds = if start.has_checkpoints {
                        &["full", "checkpoint"][..]
                    } else {
                        &["full"]
                    };
                    let lines: String = kinds.iter().map(|kind| line(kind, self.second)).collect();
                    writer.begin_frame(
                        start,
                        lines.as_bytes(),
                        BTreeMap::from([(HostKey::FIRST, unix_ms)]),
                        self.now,
                    );
                }
            }
            self.second += 1;
            self.now += Duration::from_secs(1);
        }
    }

    /// Returns the kinds and seconds of all lines, and what is wrong with the recording.
    fn read(&self) -> (Vec<(String, u64)>, Vec<String>) {
        let (text, problems) = rest_of(&mut RecordingReader::open(&self.path()).unwrap());
        let parsed = text.lines().map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let second = (value["unix_time_ms"].as_u64().unwrap() - START_MS) / 1000;
            (value["kind"].as_str().unwrap().to_owned(), second)
        });
        (parsed.collect(), problems)
    }

    /// Returns the seconds of the lines that are no checkpoints. Fails when the recording has a
    /// problem.
    #[track_caller]
    fn seconds(&self) -> Vec<u64> {
        let (lines, problems) = self.read();
        assert!(problems.is_empty(), "{problems:?}");
        lines
            .into_iter()
            .filter(|(kind, _)| kind != "checkpoint")
            .map(|(_, second)| second)
            .collect()
    }

    /// The sizes of FILE, FILE.1 and so on.
    fn sizes(&self) -> Vec<u64> {
        let size = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.len());
        let older = (1..).map_while(|number| size(&older_path(&self.path(), number)));
        size(&self.path()).into_iter().chain(older).collect()
    }
}

/// Returns a line that zstd cannot make much smaller than half of its 200 bytes.
fn line(kind: &str, second: u64) -> String {
    let mut noise = second;
    let mut digits = String::new();
    for _ in 0..20 {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        _ = write!(digits, "{:08x}", noise >> 32);
    }
    let time = START_MS + second * 1000;
    format!("{{\"kind\":\"{kind}\",\"unix_time_ms\":{time},\"host\":{{\"noise\":\"{digits}\"}}}}\n")
}

#[test]
fn a_recording_has_every_line_and_a_checkpoint_every_five_minutes() {
    let mut recording = TestRecording::new();
    let mut writer = recording.open(LIMITS);
    recording.record(&mut writer, 1500);
    assert!(writer.close(recording.now).is_empty());
    let (lines, problems) = recording.read();
    assert!(problems.is_empty(), "{problems:?}");
    let of_kind = |kind: &str| -> Vec<u64> {
        lines
            .iter()
            .filter(|line| line.0 == kind)
            .map(|line| line.1)
            .collect()
    };
    assert_eq!(of_kind("checkpoint"), [0, 300, 600, 900, 1200]);
    assert_eq!(
        of_kind("full"),
        (0..25).map(|minute| minute * 60).collect::<Vec<_>>()
    );
    assert_eq!(recording.seconds(), (0..1500).collect::<Vec<_>>());
    let mut part = super::part::Part::inspect(fs::File::open(recording.path()).unwrap()).unwrap();
    assert_eq!(part.frames().unwrap().len(), 25);
}

#[test]
fn a_writer_that_is_killed_loses_less_than_ten_seconds() {
    let mut recording = TestRecording::new();
    let mut writer = recording.open(LIMITS);
    let mut most = 0;
    for second in 0..150 {
        recording.record(&mut writer, 1);
        let read = recording.seconds().len() as u64;
        most = most.max(second + 1 - read);
    }
    assert!((1..10).contains(&most), "{most}");
}

#[test]
fn without_lines_the_last_ones_are_written_in_time() {
    let mut recording = TestRecording::new();
    let mut writer = recording.open(LIMITS);
    recording.record(&mut writer, 3);
    let due = writer.flush_due().unwrap();
    assert!(due <= recording.now + Duration::from_secs(8));
    writer.flush_if_due(due);
    assert_eq!(writer.flush_due(), None);
    assert_eq!(recording.seconds(), [0, 1, 2]);
}

#[test]
fn a_recording_that_is_cut_off_anywhere_can_be_continued() {
    let mut recording = TestRecording::new();
    let mut writer = recording.open(LIMITS);
    recording.record(&mut writer, 100);
    // Not closed, as after a kill.
    drop(writer);
    let bytes = fs::read(recording.path()).unwrap();
    let all = recording.seconds();
    for length in (0..bytes.len())
        .step_by(37)
        .chain([bytes.len() - 1, bytes.len()])
    {
        fs::write(recording.path(), &bytes[..length]).unwrap();
        let mut writer = recording.open(LIMITS);
        let notes = writer.take_notes();
        let kept = recording.seconds();
        assert!(all.starts_with(&kept), "{length} bytes");
        assert!(length < bytes.len() || kept == all, "{kept:?}");
        assert!(notes.len() <= 1, "{notes:?}");
        recording.second = 1000;
        recording.record(&mut writer, 2);
        writer.close(recording.now);
        assert_eq!(
            recording.seconds(),
            [&kept[..], &[1000, 1001]].concat(),
            "{length} bytes"
        );
    }
    // Zeros at the end, as after a power loss.
    fs::write(recording.path(), [&bytes[..], &[0; 4096]].concat()).unwrap();
    let notes = recording.open(LIMITS).take_notes();
    let sentence = format!(
        "the end of {} was damaged: 4 KiB were cut off; the lines before are kept",
        recording.path().display()
    );
    assert_eq!(notes, [sentence]);
    assert_eq!(recording.seconds(), all);
}

#[test]
fn the_largest_size_holds_while_recording() {
    let mut recording = TestRecording::new();
    let limits = RecordingLimits {
        max_size: Bytes(400_000),
        ..LIMITS
    };
    let mut writer = recording.open(limits);
    for _ in 0..100 {
        recording.record(&mut writer, 60);
        let sizes = recording.sizes();
        assert!(sizes.iter().sum::<u64>() <= 400_000, "{sizes:?}");
    }
    let sizes = recording.sizes();
    assert!((6..9).contains(&sizes.len()), "{sizes:?}");
    // The recording has the last lines without a gap, and each part begins with a checkpoint.
    writer.close(recording.now);
    let seconds = recording.seconds();
    let first = seconds[0];
    assert!(
        first > 0 && seconds.iter().copied().eq(first..6000),
        "{first}"
    );
    for number in 1..sizes.len() {
        let path = older_path(&recording.path(), u32::try_from(number).unwrap());
        let mut part = RecordingReader::open(&path).unwrap();
        let _full = part.next_line().unwrap().unwrap();
        assert!(
            part.next_line()
                .unwrap()
                .unwrap()
                .starts_with(b"{\"kind\":\"checkpoint\"")
        );
    }
}

#[test]
fn lines_that_are_too_old_are_deleted_while_recording() {
    let mut recording = TestRecording::new();
    let mut writer = recording.open(RecordingLimits {
        max_age: Duration::from_mins(80),
        ..LIMITS
    });
    recording.record(&mut writer, 1200);
    assert_eq!(
        recording.sizes().len(),
        2,
        "a part has an eighth of the age"
    );
    let oldest = fs::File::options()
        .write(true)
        .open(older_path(&recording.path(), 1))
        .unwrap();
    let modified = oldest.metadata().unwrap().modified().unwrap();
    oldest
        .set_modified(modified - Duration::from_mins(81))
        .unwrap();
    recording.record(&mut writer, 61);
    assert_eq!(recording.seconds()[0], 600);
}

#[test]
fn a_file_that_is_removed_is_made_anew() {
    let mut recording = TestRecording::new();
    let mut writer = recording.open(LIMITS);
    recording.record(&mut writer, 60);
    fs::remove_file(recording.path()).unwrap();
    recording.record(&mut writer, 60);
    assert_eq!(
        writer.take_notes(),
        ["the file of the recording was removed; a new one begins"]
    );
    writer.close(recording.now);
    assert_eq!(recording.seconds(), (60..120).collect::<Vec<_>>());
}

#[test]
fn when_the_clock_is_set_back_a_new_frame_begins() {
    let recording = TestRecording::new();
    let mut writer = recording.open(LIMITS);
    let start = FrameStart {
        has_checkpoints: true,
    };
    assert_eq!(
        writer.next_frame(HostKey::FIRST, START_MS, true, recording.now),
        Some(start)
    );
    writer.begin_frame(
        start,
        line("full", 0).as_bytes(),
        BTreeMap::from([(HostKey::FIRST, START_MS)]),
        recording.now,
    );
    assert_eq!(
        writer.next_frame(HostKey::FIRST, START_MS + 30_000, true, recording.now),
        None
    );
    assert!(
        writer
            .next_frame(HostKey::FIRST, START_MS - 3_600_000, false, recording.now)
            .is_some()
    );
}

#[track_caller]
fn check_refused(path: &Path, words: &str) {
    let error = RecordingWriter::open(path, LIMITS).err().unwrap();
    assert!(
        error.starts_with(&format!("cannot record to {}: ", path.display()))
            && error.contains(words),
        "{error}"
    );
}

#[test]
fn only_one_writer_can_open_a_recording() {
    let recording = TestRecording::new();
    let writer = recording.open(LIMITS);
    check_refused(&recording.path(), "another gputop records to it");
    drop(writer);
    drop(recording.open(LIMITS));
}

#[test]
fn files_and_new_folders_are_private() {
    let recording = TestRecording::new();
    let path = recording.folder.path().join("new/deep/night.jsonl.zst");
    drop(RecordingWriter::open(&path, LIMITS).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(mode(&recording.folder.path().join("new")), 0o700);
}

#[test]
fn links_foreign_folders_and_other_files_are_refused() {
    let recording = TestRecording::new();
    let file = |name: &str| recording.folder.path().join(name);
    fs::write(file("target"), "").unwrap();
    symlink(file("target"), file("link")).unwrap();
    check_refused(&file("link"), "it is a symbolic link");
    fs::create_dir(file("folder")).unwrap();
    symlink(file("folder"), file("other")).unwrap();
    check_refused(&file("other/night"), "its folder is a symbolic link");
    fs::hard_link(file("target"), file("second")).unwrap();
    check_refused(&file("second"), "it has a second name");
    fs::write(file("notes.txt"), "not a recording").unwrap();
    check_refused(&file("notes.txt"), "it is another kind of file");
    assert_eq!(
        fs::read_to_string(file("notes.txt")).unwrap(),
        "not a recording"
    );
    check_refused(&file("folder"), "Is a directory");
    fs::set_permissions(file("folder"), Permissions::from_mode(0o777)).unwrap();
    check_refused(&file("folder/night"), "every user may write to its folder");
    fs::set_permissions(file("folder"), Permissions::from_mode(0o1777)).unwrap();
    assert!(
        RecordingWriter::open(&file("folder/night"), LIMITS).is_ok(),
        "a sticky folder, as /tmp"
    );
}
