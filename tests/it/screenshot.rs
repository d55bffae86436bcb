//! `gputop --screenshot`: the screen as SVG, without a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::host::{GIB, Host};
use crate::terminal::Terminal;

/// The text of an SVG file, row by row.
pub(crate) fn rows(svg: &str) -> Vec<String> {
    let rows = svg.split("<g transform=").skip(1);
    let text_of = |row: &str| {
        let spans = row
            .split("</tspan>")
            .filter_map(|span| span.rsplit_once('>'));
        spans
            .map(|(_, text)| text.to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    rows.map(text_of).collect()
}

#[test]
fn a_screenshot_needs_no_terminal_and_has_a_group_for_each_row() {
    let mut host = Host::new(["H100", "H100"]);
    let pid = host.start_sleep(0, 3 * GIB).to_string();
    let file = host.path("screen.svg");
    let file = file.to_str().expect("a path of a test is text");
    let output = host.run(["--screenshot", file, "--size", "110x33", "--after", "2s"]);
    assert_eq!(
        (output.code, output.text().as_str(), output.stderr.as_str()),
        (0, "", "")
    );
    let svg = fs::read_to_string(file).expect("the file was written");
    let rows = rows(&svg);
    assert_eq!(rows.len(), 33);
    assert!(rows[0].starts_with("gputop"), "{rows:?}");
    assert!(
        rows.iter()
            .any(|row| row.contains(&pid) && row.contains("sleep 1000")),
        "{rows:?}"
    );
    assert!(rows[32].contains("quit"), "{rows:?}");
    // The memory bar is drawn, not written, in 24-bit colours.
    assert!(!svg.contains('▇') && svg.contains("<rect") && !svg.contains('\x1b'));
}

#[test]
fn a_screenshot_goes_to_the_standard_output_after_keys_were_pressed() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let output = host.run([
        "--screenshot",
        "-",
        "--after",
        "1s",
        "--keys",
        "Enter",
        "--theme",
        "light",
    ]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.text();
    assert!(
        rows(&text).iter().any(|row| row.contains("identity")),
        "{text}"
    );
    assert!(
        text.contains("fill=\"#fafafa\"/>"),
        "the background is not that of the light theme"
    );
}

#[test]
fn a_screenshot_sends_no_signal() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let output = host.run(["--screenshot", "-", "--after", "1s", "--keys", "F9 Enter"]);
    assert!(
        rows(&output.text())
            .iter()
            .any(|row| row.contains(&format!("End process {pid}"))),
        "{}",
        output.text()
    );
    assert_eq!(
        host.process(pid).child().try_wait().expect("it is a child"),
        None
    );
}

#[test]
fn a_screenshot_records_nothing() {
    let host = Host::new(["H100"]);
    let output = host.run(["--screenshot", "-", "--after", "1s", "--keys", "R"]);
    let rows = rows(&output.text());
    assert!(
        rows.iter()
            .any(|row| row.contains("a screenshot records nothing")),
        "{rows:?}"
    );
    assert!(
        !rows[0].contains("REC ") && !host.path("gputop/recordings").exists(),
        "{rows:?}"
    );
}

#[test]
fn a_screenshot_of_a_recording_shows_its_end() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB).to_string();
    let recording = host.path("recording");
    fs::write(&recording, host.run(["--json"]).stdout).expect("/tmp has room");
    let recording = recording.to_str().expect("a path of a test is text");
    let output = host.run([
        "replay",
        recording,
        "--screenshot",
        "-",
        "--theme",
        "mono",
        "--size",
        "80x24",
    ]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.text();
    assert!(
        rows(&text)[0].contains("RECORDING (ended)") && text.contains(&pid),
        "{text}"
    );
    let colours: Vec<&str> = text
        .split("fill=\"#")
        .skip(1)
        .map(|rest| &rest[..6])
        .collect();
    assert!(
        colours
            .iter()
            .all(|colour| ["16181d", "d4d7dd", "888a90"].contains(colour)),
        "{colours:?}"
    );
}

#[test]
fn a_screenshot_that_cannot_be_drawn_is_an_error_in_one_sentence() {
    let host = Host::new(["H100"]);
    let folder = host.path("");
    let fails = |args: &[&str], code: i32, words: &str| {
        let output = host.run(args.iter().copied());
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(words), "{args:?}: {}", output.stderr);
    };
    fails(
        &["--screenshot", "-", "--size", "160"],
        2,
        "a size has columns and rows, such as 160x50",
    );
    fails(
        &["--screenshot", "-", "--size", "20x5"],
        2,
        "the smallest screen is 40x10",
    );
    fails(
        &["--screenshot", "-", "--size", "9000x50"],
        2,
        "the largest picture is 1000x1000",
    );
    fails(&["--size", "160x50"], 2, "--screenshot <FILE>");
    fails(
        &["--screenshot", "-", "--keys", "F9 nonsense"],
        2,
        "`nonsense` is no key",
    );
    fails(
        &["--screenshot", folder.to_str().expect("it is text")],
        1,
        "cannot write ",
    );
    fails(
        &["--screenshot", "/no/such/folder/a.svg"],
        1,
        "cannot write /no/such/folder/a.svg: No such file",
    );
}

#[test]
fn a_key_saves_the_screen_and_its_series_in_new_files() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    let folder = host.path("pictures");
    fs::create_dir(&folder).expect("/tmp has room");
    let mut gputop = host.gputop([]);
    let mut terminal = Terminal::run(gputop.current_dir(&folder), 120, 40);
    terminal.wait_for("sleep 1000");
    terminal.wait_for("memory  now");
    terminal.keys("\x13");
    terminal.wait_for("saved ");
    terminal.quit();
    let files = |ending: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(&folder)
            .expect("it exists")
            .map(|entry| entry.expect("it can be read").path());
        entries
            .filter(|path| path.extension() == Some(ending.as_ref()))
            .collect()
    };
    let (svgs, csvs) = (files("svg"), files("csv"));
    let ([svg], [csv]) = (svgs.as_slice(), csvs.as_slice()) else {
        panic!("{svgs:?} {csvs:?}")
    };
    assert_eq!(svg.with_extension("csv"), *csv);
    assert!(
        svg.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("gputop-")),
        "{svg:?}"
    );
    for file in [svg, csv] {
        assert_eq!(
            file.metadata().expect("it exists").permissions().mode() & 0o777,
            0o600
        );
    }
    let rows = rows(&fs::read_to_string(svg).expect("it is text"));
    assert!(
        rows.iter().any(|row| row.contains("sleep 1000")),
        "{rows:#?}"
    );
    let csv = fs::read_to_string(csv).expect("it is text");
    let series: Vec<&str> = csv
        .lines()
        .filter(|line| line.contains(&format!(",process {pid},{},", 3 * GIB)))
        .collect();
    assert!(
        !series.is_empty() && series[0].starts_with("20") && series[0].contains('T'),
        "{csv}"
    );
    assert!(
        csv.lines()
            .any(|line| line.contains(",GPU 0,") && line.ends_with(char::is_numeric)),
        "{csv}"
    );
}

#[test]
fn a_screen_is_saved_in_the_state_directory_where_the_current_one_is_not_writable() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut gputop = host.gputop([]);
    let mut terminal = Terminal::run(gputop.current_dir("/proc"), 160, 40);
    terminal.wait_for(&pid.to_string());
    terminal.keys("\x13");
    terminal.wait_for("gputop/gputop-");
    terminal.quit();
}
