//! Tests of the reader with files of short lines.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::RecordingReader;
use super::part::older_path;

/// The time of the first line of a test.
pub(super) const START_MS: u64 = 1_784_016_758_000;

/// Returns lines of one minute: a full line, then a checkpoint if asked for, then a tick for each
/// further second.
pub(super) fn minute(number: u64, has_checkpoint: bool) -> String {
    let mut lines = String::new();
    for second in 0..60 {
        let time = START_MS + (number * 60 + second) * 1000;
        let kind = if second == 0 {
            "full\",\"schema\":1,\"x\":\""
        } else {
            "tick"
        };
        _ = writeln!(
            lines,
            "{{\"kind\":\"{kind}\",\"unix_time_ms\":{time},\"host\":{{\"n\":{}}}}}",
            time % 7919
        );
        if second == 0 && has_checkpoint {
            _ = writeln!(
                lines,
                "{{\"kind\":\"checkpoint\",\"unix_time_ms\":{time},\"state\":[]}}"
            );
        }
    }
    lines
}

pub(super) fn frame(lines: &str) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, lines.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A folder with a recording in it.
struct Files(tempfile::TempDir);

impl Files {
    fn new(bytes: &[u8]) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        fs::write(files.path(), bytes).unwrap();
        files
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("night.jsonl.zst")
    }
}

/// Reads all lines. Returns them, each with a line end, and what is wrong with the recording.
fn read(path: &Path) -> (String, Vec<String>) {
    rest_of(&mut RecordingReader::open(path).unwrap())
}

pub(super) fn rest_of(reader: &mut RecordingReader) -> (String, Vec<String>) {
    let mut text = String::new();
    while let Some(line) = reader.next_line().unwrap() {
        text.push_str(str::from_utf8(line).unwrap());
        text.push('\n');
    }
    (text, reader.problems())
}

#[track_caller]
fn check(bytes: &[u8], lines: &str, problems: &[&str]) {
    let (text, found) = read(&Files::new(bytes).path());
    assert!(
        text == lines,
        "{} lines instead of {}",
        text.lines().count(),
        lines.lines().count()
    );
    assert_eq!(found, problems);
}

#[test]
fn plain_lines_and_frames_are_read_alike() {
    let (first, second) = (minute(0, true), minute(1, false));
    let both = [&first[..], &second].concat();
    check(both.as_bytes(), &both, &[]);
    check(&[frame(&first), frame(&second)].concat(), &both, &[]);
    check(&frame(&both), &both, &[]);
    check(b"", "", &[]);
}

#[test]
fn a_line_may_continue_in_the_next_frame() {
    let text = minute(0, false);
    let (begin, end) = text.split_at(150);
    check(&[frame(begin), frame(end)].concat(), &text, &[]);
}

#[test]
fn older_parts_come_first() {
    let minutes = [
        minute(0, true),
        minute(1, false),
        minute(2, true),
        minute(3, false),
    ];
    let files = Files::new(&frame(&minutes[3]));
    fs::write(older_path(&files.path(), 1), frame(&minutes[2])).unwrap();
    // A plain file among them, without its last line end.
    fs::write(older_path(&files.path(), 2), minutes[1].trim_end()).unwrap();
    fs::write(older_path(&files.path(), 3), frame(&minutes[0])).unwrap();
    fs::write(older_path(&files.path(), 5), frame(&minutes[0])).unwrap();
    assert_eq!(read(&files.path()), (minutes.concat(), Vec::new()));
    fs::remove_file(files.path()).unwrap();
    assert_eq!(read(&files.path()), (minutes[..3].concat(), Vec::new()));
}

#[test]
fn a_recording_without_any_file_cannot_be_opened() {
    let files = Files::new(b"");
    fs::remove_file(files.path()).unwrap();
    let error = RecordingReader::open(&files.path()).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_file_that_is_cut_off_anywhere_gives_every_line_before() {
    let minutes = [minute(0, true), minute(1, false)];
    let frames = minutes.each_ref().map(|lines| frame(lines));
    let bytes = frames.concat();
    let files = Files::new(b"");
    for length in 0..=bytes.len() {
        fs::write(files.path(), &bytes[..length]).unwrap();
        let (text, problems) = read(&files.path());
        let whole = if length < frames[0].len() {
            0
        } else {
            1 + usize::from(length == bytes.len())
        };
        assert!(
            text.starts_with(&minutes[..whole].concat()),
            "{length} bytes"
        );
        assert!(minutes.concat().starts_with(&text), "{length} bytes");
        // The header of a frame is six bytes, and a frame of one block without its end has no
        // lines.
        let is_whole = |length: usize| length == 0 || length == 6;
        let is_cut_off = !is_whole(length)
            && length != bytes.len()
            && !length.checked_sub(frames[0].len()).is_some_and(is_whole);
        assert_eq!(
            problems.len(),
            usize::from(is_cut_off),
            "{length} bytes: {problems:?}"
        );
    }
    fs::write(files.path(), &bytes[..bytes.len() - 10]).unwrap();
    assert_eq!(
        read(&files.path()).1,
        ["the last line of the recording is cut off"]
    );
}

#[test]
fn a_frame_that_was_flushed_and_not_ended_gives_all_its_lines() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    let lines = minute(0, true);
    std::io::Write::write_all(&mut encoder, lines.as_bytes()).unwrap();
    std::io::Write::flush(&mut encoder).unwrap();
    check(encoder.get_ref(), &lines, &[]);
}

#[test]
fn a_damaged_frame_is_skipped_and_the_time_that_is_missing_is_named() {
    let minutes: Vec<String> = (0..4).map(|number| minute(number, true)).collect();
    let mut frames: Vec<Vec<u8>> = minutes.iter().map(|lines| frame(lines)).collect();
    let middle = frames[1].len() / 2;
    frames[1][middle] ^= 0x10;
    let problem = "the recording is damaged: 1 place is skipped; 1m01s are missing, from 2026-07-14T08:13:37.000Z to \
                   2026-07-14T08:14:38.000Z";
    check(
        &frames.concat(),
        &[&minutes[0][..], &minutes[2], &minutes[3]].concat(),
        &[problem],
    );
    // Without a part in the middle, the first half of a frame seems to be the whole rest of the
    // file.
    let spliced = [
        &frames[0][..],
        &frames[2][..frames[2].len() / 2],
        &frames[3],
    ]
    .concat();
    let problem = "the recording is damaged: 1 place is skipped; 2m01s are missing, from 2026-07-14T08:13:37.000Z to \
                   2026-07-14T08:15:38.000Z";
    check(
        &spliced,
        &[&minutes[0][..], &minutes[3]].concat(),
        &[problem],
    );
    let ending = [&frames[0][..], &[0; 5000]].concat();
    check(
        &ending,
        &minutes[0],
        &["the recording is damaged: its end cannot be read"],
    );
}

#[test]
fn another_version_of_the_format_is_refused() {
    let files = Files::new(&frame(
        "{\"kind\":\"full\",\"schema\":2,\"unix_time_ms\":7,\"host\":{}}\n",
    ));
    let error = RecordingReader::open(&files.path())
        .unwrap()
        .next_line()
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("it has version 2 of the format, and this gputop reads version 1: "),
        "{error}"
    );
}

#[test]
fn the_first_and_last_times_are_found() {
    let lines = [minute(0, true), minute(1, false), minute(2, false)];
    let span = Some((START_MS, START_MS + 179_000));
    let compressed = lines.each_ref().map(|lines| frame(lines)).concat();
    for bytes in [
        lines.concat().as_bytes(),
        &compressed,
        &compressed[..compressed.len() - 1],
    ] {
        assert_eq!(
            RecordingReader::open(&Files::new(bytes).path())
                .unwrap()
                .span()
                .unwrap(),
            span
        );
    }
    assert_eq!(
        RecordingReader::open(&Files::new(b"").path())
            .unwrap()
            .span()
            .unwrap(),
        None
    );
}

/// Returns the minute at which reading begins after a jump to this minute.
fn minute_after_jump(path: &Path, minute: u64) -> u64 {
    let mut reader = RecordingReader::open(path).unwrap();
    reader.seek(START_MS + minute * 60_000 + 500).unwrap();
    let line = String::from_utf8(reader.next_line().unwrap().unwrap().to_vec()).unwrap();
    let (_, rest) = line.split_once("unix_time_ms\":").unwrap();
    let time: u64 = rest.split([',', '}']).next().unwrap().parse().unwrap();
    (time - START_MS) / 60_000
}

#[test]
fn a_jump_goes_to_the_checkpoint_before_or_15_minutes_back() {
    let minutes: Vec<String> = (0..120)
        .map(|number| minute(number, number % 10 == 3))
        .collect();
    let mut frames: Vec<Vec<u8>> = minutes.iter().map(|lines| frame(lines)).collect();
    let files = Files::new(&frames.concat());
    for (to, expected) in [
        (0, 0),
        (2, 0),
        (3, 3),
        (12, 3),
        (13, 13),
        (119, 113),
        (100_000, 113),
    ] {
        assert_eq!(
            minute_after_jump(&files.path(), to),
            expected,
            "to minute {to}"
        );
    }
    // Damaged frames do not mislead.
    for frame in &mut frames[40..50] {
        frame.truncate(30);
    }
    fs::write(files.path(), frames.concat()).unwrap();
    for (to, expected) in [(33, 33), (45, 33), (52, 37), (53, 53)] {
        assert_eq!(
            minute_after_jump(&files.path(), to),
            expected,
            "to minute {to}, of a damaged recording"
        );
    }
    let plain: Vec<String> = (0..2000).map(|number| minute(number, false)).collect();
    fs::write(
        files.path(),
        plain[..120]
            .iter()
            .map(|lines| frame(lines))
            .collect::<Vec<_>>()
            .concat(),
    )
    .unwrap();
    assert_eq!(minute_after_jump(&files.path(), 60), 45);
    fs::write(files.path(), plain.concat()).unwrap();
    for (to, latest) in [(1800, 1785), (100_000, 1985)] {
        let begin = minute_after_jump(&files.path(), to);
        assert!((latest - 85..=latest).contains(&begin), "{begin}");
    }
    assert_eq!(minute_after_jump(&files.path(), 3), 0);
}

#[test]
fn a_jump_finds_the_older_part() {
    let minutes: Vec<String> = (0..4).map(|number| minute(number, true)).collect();
    let files = Files::new(&frame(&minutes[3]));
    for number in 1..=3 {
        fs::write(
            older_path(&files.path(), number),
            frame(&minutes[3 - number as usize]),
        )
        .unwrap();
    }
    for to in 0..4 {
        assert_eq!(minute_after_jump(&files.path(), to), to);
    }
}
