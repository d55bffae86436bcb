//! Recordings that are made to do harm, and recordings of earlier versions, which must stay
//! readable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::host::Host;
use crate::process::{Output, now, run};

/// The most address space that a process may have that plays a recording, in KiB: a line may have
/// 64 MiB.
const MOST_MEMORY_KIB: u32 = 300_000;

/// A frame with this descriptor has a window of 2 MiB, and neither a checksum nor the length of its
/// content.
const FRAME_HEADER: [u8; 6] = [0x28, 0xB5, 0x2F, 0xFD, 0, 11 << 3];

/// Returns a block of 128 KiB that repeats one byte.
fn repeated(byte: u8, is_last: bool) -> [u8; 4] {
    let header = (128 << 10 << 3) | (1 << 1) | u32::from(is_last);
    let [first, second, third, _] = header.to_le_bytes();
    [first, second, third, byte]
}

/// Returns a frame of this many MiB of one byte.
fn bomb(byte: u8, mib: usize) -> Vec<u8> {
    let blocks = (1..=mib * 8).flat_map(|number| repeated(byte, number == mib * 8));
    FRAME_HEADER.into_iter().chain(blocks).collect()
}

/// Plays a recording in a process with little memory.
fn play(host: &Host, bytes: &[u8]) -> Output {
    let path = host.path("bomb");
    fs::write(&path, bytes).expect("/tmp has room");
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {MOST_MEMORY_KIB}; exec \"$0\" file-action play -- \"$1\"");
    host.set_environment(command.args(["-c", &script, env!("CARGO_BIN_EXE_gputop")]))
        .arg(path);
    run(&mut command)
}

/// A recording of the frame that a recorder wrote of one line.
fn good_frame() -> Vec<u8> {
    let line = b"{\"kind\":\"full\",\"schema\":1,\"unix_time_ms\":1784016758000,\"host\":{}}\n";
    zstd::encode_all(&line[..], 3).expect("compressing into memory succeeds")
}

#[test]
fn a_line_of_a_gigabyte_takes_little_memory() {
    let host = Host::new([]);
    let bytes = [good_frame(), bomb(0, 1024), good_frame()].concat();
    assert!(bytes.len() < 100_000);
    let played = play(&host, &bytes);
    assert_eq!(played.text().lines().count(), 2);
    assert!(
        played
            .stderr
            .starts_with("gputop: the recording is damaged: 1 place is skipped; "),
        "{}",
        played.stderr
    );
}

#[test]
fn a_gigabyte_of_line_ends_takes_little_memory() {
    let played = play(
        &Host::new([]),
        &[good_frame(), bomb(b'\n', 16), good_frame()].concat(),
    );
    assert_eq!(
        (
            played.code,
            played
                .text()
                .lines()
                .filter(|line| !line.is_empty())
                .count()
        ),
        (0, 2)
    );
    let played = play(
        &Host::new([]),
        &[good_frame(), bomb(b'\n', 1025), good_frame()].concat(),
    );
    assert_eq!(played.text().lines().count(), 2, "{}", played.stderr);
}

#[test]
fn fifty_megabytes_of_line_ends_take_little_time() {
    /// Ten times what it takes, without compiler optimizations.
    const MOST: Duration = Duration::from_secs(20);
    let host = Host::new([]);
    let path = host.path("line-ends.jsonl").display().to_string();
    fs::write(&path, vec![b'\n'; 50_000_000]).expect("/tmp has room");
    let picture = host.path("picture.svg").display().to_string();
    let replay = ["replay", &path, "--screenshot", &picture];
    for (arguments, reason) in [
        (&["export", &path][..], "it is empty"),
        (&replay, "there is no line in it"),
    ] {
        let started = now();
        let output = host.run(arguments.iter().copied());
        let elapsed = started.elapsed();
        assert!(
            output.stderr.contains(reason) && elapsed < MOST,
            "{elapsed:?}: {}",
            output.stderr
        );
    }
}

#[test]
fn many_tiny_frames_take_little_memory() {
    let empty = [&FRAME_HEADER[..], &[1, 0, 0]].concat();
    let bytes = [good_frame(), empty.repeat(20_000), good_frame()].concat();
    let played = play(&Host::new([]), &bytes);
    assert_eq!(
        (played.code, played.text().lines().count()),
        (0, 2),
        "{}",
        played.stderr
    );
}

#[test]
fn a_plain_line_without_an_end_takes_little_memory() {
    let played = play(&Host::new([]), &vec![b'{'; 70 << 20]);
    assert_eq!((played.code, played.stdout.len()), (1, 0));
    assert!(
        played.stderr.ends_with("a line is longer than 64 MiB\n"),
        "{}",
        played.stderr
    );
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/recordings")
        .join(name)
}

/// Returns the table at the end of a recording, which is read without a problem.
#[track_caller]
fn table(name: &str) -> String {
    let table = run(Host::new([]).gputop(["replay", "--once"]).arg(data(name)));
    assert_eq!(
        (table.code, table.stderr.as_str()),
        (0, ""),
        "{}",
        table.text()
    );
    table.text()
}

#[test]
fn recordings_of_earlier_versions_can_be_replayed() {
    let compressed = table("0.1.0.jsonl.zst");
    assert!(
        compressed.contains("python -u pretrain.py --config llama-3b.yaml (gputop demo)"),
        "{compressed}"
    );
    assert!(table("0.1.0.jsonl").contains("H100"));
    let played = run(Host::new([])
        .gputop(["file-action", "play", "--"])
        .arg(data("0.1.0.jsonl.zst")));
    let kinds = |kind: &str| {
        played
            .text()
            .matches(&format!("{{\"kind\":\"{kind}\""))
            .count()
    };
    assert_eq!((kinds("full"), kinds("checkpoint")), (FULL_LINES, 1));
}

/// The full lines in the recording of version 0.1.0.
const FULL_LINES: usize = 2;
