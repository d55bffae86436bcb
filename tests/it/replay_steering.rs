//! A replay can be paused, stepped, sped up, and moved to another time. The screens are those of
//! playing up to there.

use std::fs;
use std::path::{Path, PathBuf};

use gputop::base::time::local_time;
use gputop::protocol::snapshot::Snapshot;

use crate::host::Host;
use crate::replay::{GROWTH, Recorder, final_lists, lists, terminal};
use crate::screenshot::rows;
use crate::terminal::Terminal;

/// The data time between two passes of the recordings here.
const STEP_MS: u64 = 20_000;

const PASSES: u64 = 181;

/// Returns the clock time of a pass, as the user types it.
fn time_of(first: &Snapshot, pass: u64) -> String {
    let offset = first
        .host
        .facts
        .utc_offset
        .expect("the agent knows the time zone");
    local_time(first.unix_ms + pass * STEP_MS, offset)[..19].to_owned()
}

/// Returns a recording that ends with this pass of another one.
fn up_to(path: &Path, pass: u64) -> PathBuf {
    let text = fs::read_to_string(path).expect("the recording exists");
    let lines: Vec<&str> = text
        .lines()
        .take(usize::try_from(pass).expect("few passes") + 1)
        .collect();
    let shorter = path.with_extension(format!("{pass}.jsonl"));
    fs::write(&shorter, lines.join("\n") + "\n").expect("/tmp has room");
    shorter
}

/// The memory of the process in a pass, as the list shows it.
fn memory(pass: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few GiB")]
    let gib = ((1 << 30) + GROWTH * pass) as f64 / f64::from(1 << 30);
    format!(" {gib:.1}G ")
}

pub(crate) fn wait_for_end(terminal: &Terminal) {
    terminal.wait_for("RECORDING (ended)");
}

#[test]
fn the_screen_after_a_jump_is_that_of_playing_up_to_there() {
    let recorder = Recorder::new();
    let path = recorder.record("long.jsonl", PASSES, STEP_MS);
    let jumping = terminal(&path, &["--speed", "max"]);
    let end = final_lists(&jumping);
    wait_for_end(&jumping);
    jumping.keys("p");
    jumping.wait_for("the recording is at its end");
    // Far back, ahead, and to the first pass. The pause holds after each jump.
    for pass in [120, 30, 150, 0, 60] {
        jumping.keys(&format!("J{}\r", time_of(&recorder.snapshot, pass)));
        jumping.wait_for(&memory(pass));
        let played = terminal(&up_to(&path, pass), &["--speed", "max"]);
        wait_for_end(&played);
        assert_eq!(lists(&jumping), lists(&played), "pass {pass}");
    }
    jumping.keys("J+9d\r");
    wait_for_end(&jumping);
    assert_eq!(lists(&jumping), end);
}

#[test]
fn a_replay_goes_to_the_next_event_and_its_timeline_says_where_it_is() {
    let recorder = Recorder::new();
    let path = recorder.record("long.jsonl", PASSES, STEP_MS);
    let replay = terminal(&path, &[]);
    let begin = &time_of(&recorder.snapshot, 0)[11..];
    let end = &time_of(&recorder.snapshot, PASSES - 1)[11..16];
    replay.wait_for(&format!(
        " {end}  {begin}  nothing here acts on the machine"
    ));
    replay.wait_until("the leak on the timeline", |screen| {
        screen.contents().contains("─!─")
    });
    // The leak is serious, so both keys lead to it.
    let leak = format!(" LEAK  {} sleep", recorder.pid);
    replay.keys(" }");
    replay.wait_for(&leak);
    replay.wait_for(" LEAK: ");
    let found = lists(&replay);
    replay.keys("}");
    replay.wait_for("there is no event after this moment");
    replay.keys("J-1h\r");
    replay.wait_until_gone(" LEAK: ");
    assert!(
        !replay.text().contains("was a LEAK"),
        "a jump ends nothing: {}",
        replay.text()
    );
    replay.keys("!");
    replay.wait_for(" LEAK: ");
    assert_eq!(lists(&replay), found);
    replay.keys("{");
    replay.wait_for("there is no event before this moment");
}

#[test]
fn a_replay_is_stepped_pass_by_pass_in_both_directions() {
    let recorder = Recorder::new();
    let path = recorder.record("long.jsonl", 20, STEP_MS);
    let replay = terminal(&path, &[]);
    replay.wait_for(&memory(0));
    for pass in [1, 2, 3] {
        replay.keys(".");
        replay.wait_for(&memory(pass));
    }
    for pass in [2, 1] {
        replay.keys(",");
        replay.wait_for(&memory(pass));
    }
    replay.wait_for("RECORDING paused");
    // A high speed ends the pause only with the key that plays.
    replay.keys("+++++++++");
    replay.wait_for("plays at ×1000");
    replay.wait_for("RECORDING paused");
    replay.keys(" ");
    wait_for_end(&replay);
}

/// Returns the text of a picture of a replay after some keys.
#[track_caller]
fn picture(path: &Path, args: &[&str]) -> String {
    let path = path.to_str().expect("a path of a test is text");
    let replay = ["replay", path, "--screenshot", "-", "--size", "120x25"];
    let output = Host::new([]).run([&replay, args].concat());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    rows(&output.text()).join("\n")
}

#[test]
fn the_keys_of_a_replay_lead_a_screenshot_to_another_moment() {
    let recorder = Recorder::new();
    let path = recorder.record("long.jsonl", PASSES, STEP_MS);
    let has_pass = |picture: &str, pass: u64| picture.contains(memory(pass).trim());
    for (keys, pass) in [
        (". .", 2),
        (". . . ,", 2),
        ("J + 4 m Enter", 12),
        ("J + 4 m Enter . -", 13),
        (") (", 0),
    ] {
        let found = picture(&path, &["--after", "0s", "--keys", keys]);
        assert!(has_pass(&found, pass), "{keys}: {found}");
    }
    // The recording is at its end before the first key.
    let back = picture(&path, &["--keys", "J - 1 0 m Enter ."]);
    assert!(has_pass(&back, PASSES - 1 - 30 + 1), "{back}");
    let leak = format!(" LEAK {} sleep", recorder.pid);
    for keys in ["}", "!", "J + 5 0 m Enter {"] {
        let found = picture(&path, &["--after", "0s", "--keys", keys]);
        assert!(
            found.contains(&leak) && found.contains(" LEAK: "),
            "{keys}: {found}"
        );
    }
}
