//! `gputop cast`: an animated SVG of the screen, while keys are pressed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::host::{GIB, Host};
use crate::process::run;

/// Prints the seconds that a film lasts, and then the text of each frame. Fails if the file is no
/// XML, if a name that is used does not exist, or if anything outside of the file is named.
const READ_FILM: &str = r##"
import re, sys
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"
root = xml.parse(sys.argv[1]).getroot()
style = root.find(SVG + "style").text
named = {node.get("id"): node for node in root.iter() if node.get("id")}
height = float(root.get("height"))


def texts(node):
    assert node.tag.removeprefix(SVG) in ("g", "use", "text", "rect", "path"), node.tag
    if node.tag == SVG + "use":
        yield from texts(named[node.get("href").removeprefix("#")])
    if node.tag == SVG + "text":
        yield node.text
    for child in node:
        yield from texts(child)


assert "url(" not in style and "@import" not in style
film = next(node for node in root if node.get("class") == "film")
moves = [float(top) for top in re.findall(r"translateY\(-(\d+)px\)", style)]
assert moves == [place * height for place in range(len(film))], moves
print(re.search(r"animation:film ([\d.]+)s step-end infinite", style)[1])
for frame in film:
    print(" ".join(texts(frame)))
"##;

/// Returns the seconds that a film lasts, and the texts of its frames.
fn read_film(path: &Path) -> (String, Vec<String>) {
    let output = run(Command::new("python3").args(["-c", READ_FILM]).arg(path));
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.text();
    let (seconds, frames) = text.split_once('\n').expect("the film has a length");
    (
        seconds.to_owned(),
        frames.lines().map(str::to_owned).collect(),
    )
}

#[test]
fn a_cast_of_the_simulated_machine_shows_the_leak_its_line_and_the_end_of_an_orphan() {
    let host = Host::new([]);
    let file = host.path("demo.svg");
    let name = file.to_str().expect("a path of a test is text");
    let output = host.run([
        "cast",
        name,
        "--demo",
        "--keys",
        "i Esc o F9 Enter 3s",
        "--after",
        "4s",
        "--pause",
        "1s",
    ]);
    assert_eq!(
        (output.code, output.text().as_str(), output.stderr.as_str()),
        (0, "", "")
    );
    let size = file.metadata().expect("the file was written").len();
    assert!(size < 1 << 20, "{size}");
    let (seconds, frames) = read_film(&file);
    assert_eq!(seconds, "12.000");
    // The first frame, one a second later, one after each key, and one after the wait.
    assert!(frames.len() >= 7, "{frames:#?}");
    let first = |words: &str| {
        frames
            .iter()
            .position(|frame| frame.contains(words))
            .unwrap_or_else(|| panic!("no frame has {words}: {frames:#?}"))
    };
    let places = [
        first("LEAK"),
        first("held by list outputs, train.py:88"),
        first("orphans only"),
        first("End process"),
        first("ended"),
    ];
    assert!(places.is_sorted(), "{places:?}: {frames:#?}");
}

#[test]
fn a_cast_ends_no_process_of_a_real_host() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let file = host.path("live.svg");
    let name = file.to_str().expect("a path of a test is text");
    let keys = ["--after", "1s", "--pause", "1s", "--keys", "F9 Enter Enter"];
    let output = host.run(["cast", name].into_iter().chain(keys));
    assert_eq!(output.code, 0, "{}", output.stderr);
    let (_, frames) = read_film(&file);
    let last = frames.last().expect("there are frames");
    assert!(last.contains(&format!("End process {pid}")), "{last}");
    assert!(is_alive(&mut host, pid));

    // In a recording of the same process, the dialog has nothing to end.
    let recording = host.path("recording");
    fs::write(&recording, host.run(["--json"]).stdout).expect("/tmp has room");
    let recording = recording.to_str().expect("a path of a test is text");
    let file = host.path("replay.svg");
    let name = file.to_str().expect("a path of a test is text");
    let output = host.run(
        ["cast", name, "--replay", recording]
            .into_iter()
            .chain(keys),
    );
    assert_eq!(output.code, 0, "{}", output.stderr);
    let (_, frames) = read_film(&file);
    assert!(frames[0].contains(&pid.to_string()), "{frames:#?}");
    assert!(is_alive(&mut host, pid));
}

#[test]
fn a_cast_ends_no_real_process_that_is_called_simulated() {
    let mut host = Host::new(["H100"]);
    let mut command = Command::new("tail");
    command
        .args(["-f", "/dev/null", "--pid=1", "(gputop demo)"])
        .stderr(Stdio::null());
    let pid = host.start(0, GIB, &mut command).pid();
    let file = host.path("marked.svg");
    let name = file.to_str().expect("a path of a test is text");
    let keys = ["--after", "1s", "--pause", "1s", "--keys", "F9 Enter"];
    let output = host.run(["cast", name].into_iter().chain(keys));
    assert_eq!(output.code, 0, "{}", output.stderr);
    let (_, frames) = read_film(&file);
    let last = frames.last().expect("there are frames");
    assert!(last.contains(&format!("End process {pid}")), "{last}");
    assert!(is_alive(&mut host, pid));
}

fn is_alive(host: &mut Host, pid: u32) -> bool {
    let child = host.process(pid).child();
    child.try_wait().expect("it is a child").is_none()
}

#[test]
fn a_cast_of_a_recording_plays_at_its_speed_without_waiting() {
    let recorder = crate::replay::Recorder::new();
    // 20 s from one pass to the next: at a speed of 20, one pass a second.
    let recording = recorder.record("long.jsonl", 100, 20_000);
    let recording = recording.to_str().expect("a path of a test is text");
    let host = Host::new(["H100"]);
    let film = |args: &[&str]| {
        let file = host.path(&format!("{}.svg", args.len()));
        let name = file.to_str().expect("a path of a test is text");
        let all = ["cast", name, "--replay", recording, "--after", "30s"];
        let output = host.run(all.into_iter().chain(args.iter().copied()));
        assert_eq!(output.code, 0, "{}", output.stderr);
        read_film(&file)
    };
    let (seconds, frames) = film(&["--speed", "20"]);
    assert_eq!(
        (seconds.as_str(), frames.len()),
        ("30.000", 30),
        "{frames:#?}"
    );
    let memory = |pass: u64| format!("{:.1}G", gib(GIB + crate::replay::GROWTH * pass));
    for pass in [0, 10, 29] {
        let frame = &frames[usize::try_from(pass).expect("few passes")];
        assert!(frame.contains(&memory(pass)), "{pass}: {frame}");
    }
    // A paused replay stands still, so there is nothing new to show.
    let (seconds, frames) = film(&["--speed", "20", "--keys", "Space 60s", "--pause", "1s"]);
    assert_eq!(seconds, "91.000");
    assert!(frames.len() < 40, "{frames:#?}");
    assert!(
        frames
            .last()
            .is_some_and(|frame| frame.contains("RECORDING paused")),
        "{frames:#?}"
    );
}

#[expect(clippy::cast_precision_loss, reason = "a few GiB")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB as f64
}

#[test]
fn a_cast_that_cannot_be_made_is_an_error_in_one_sentence() {
    let host = Host::new(["H100"]);
    let fails = |args: &[&str], code: i32, words: &str| {
        let output = host.run(["cast"].into_iter().chain(args.iter().copied()));
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(words), "{args:?}: {}", output.stderr);
    };
    let new = host.path("new.svg");
    let new = new.to_str().expect("a path of a test is text");
    fails(
        &[new, "--demo", "--keys", "i nonsense"],
        2,
        "`nonsense` is no key",
    );
    fails(
        &[new, "--demo", "--size", "160"],
        2,
        "a size has columns and rows",
    );
    fails(
        &[new, "--after", "2h"],
        2,
        "a picture waits for 10 minutes at most",
    );
    fails(&[new, "--demo", "--replay", "a"], 2, "cannot be used with");
    fails(
        &["/no/such/folder/a.svg", "--demo"],
        1,
        "cannot write /no/such/folder/a.svg: No such file",
    );
    fails(
        &[new, "--replay", "/no/such/recording"],
        1,
        "/no/such/recording",
    );
    assert!(!Path::new(new).exists(), "a cast that failed leaves a file");
    fs::write(new, "mine").expect("/tmp has room");
    fails(
        &[new, "--demo"],
        1,
        "new.svg exists: delete it first, or choose another file",
    );
    assert_eq!(fs::read_to_string(new).expect("it exists"), "mine");
}
