//! `gputop report`: a recording as a page, as Markdown and as a plot.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::process::{Output, run};
use crate::replay::Recorder;

/// Arguments that would be code in a page that does not escape them.
const HOSTILE: &str =
    r#"</title><script>alert(1)</script>"' onload='x' <img src=http://example.org/x> `|` @user"#;

/// Returns a recording of 40 minutes in which a process with hostile arguments leaks, and the PID
/// of that.
fn leaking() -> (Recorder, PathBuf) {
    let recorder = Recorder::new();
    let path = recorder.record("leak.jsonl", 241, 10_000);
    let lines = fs::read_to_string(&path).expect("the recording was written");
    let argument = serde_json::to_string(HOSTILE).expect("text is JSON");
    let hostile = lines.replace(r#""sleep","1000""#, &format!(r#""sleep",{argument}"#));
    assert_ne!(
        hostile, lines,
        "the process has the arguments of `sleep 1000`"
    );
    fs::write(&path, hostile).expect("/tmp has room");
    (recorder, path)
}

/// Runs `gputop report` on a host without a driver.
fn report(path: &Path, args: &[&str]) -> Output {
    run(Host::new([]).gputop(["report"]).arg(path).args(args))
}

/// The leak grows by 1.17 GiB a minute. How buckets of time divide its samples depends on the time
/// since boot.
const RATES: [&str; 2] = ["1.1", "1.2"];

#[test]
fn a_page_says_what_leaked_and_is_complete_without_network_and_script() {
    let (recorder, path) = leaking();
    let page_path = recorder.host.path("run.html");
    let output = report(&path, &["-o", page_path.to_str().expect("a path in ASCII")]);
    assert_eq!(
        (output.code, output.text().as_str(), output.stderr.as_str()),
        (0, "", "")
    );
    let page = fs::read_to_string(&page_path).expect("the page was written");
    let has_headline = |rate| {
        page.contains(&format!(
            "<h1><span class=\"badge bad\">LEAK</span> sleep (PID {}) on GPU 0 leaks +{rate} GiB/min: memory is full at about ",
            recorder.pid
        ))
    };
    assert!(RATES.into_iter().any(has_headline), "{}", &page[..3000]);
    for part in [
        "<b>GPU 0</b>",
        "<b>97% SM</b>",
        "<h2>Findings</h2>",
        "if it grows on: full at about",
        "<summary>Memory of each GPU by process (1)</summary>",
        "<summary>Processes (1)</summary>",
        "prefers-color-scheme",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    assert!(page.contains(r#"content="default-src 'none'; style-src 'unsafe-inline'""#));
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"),
        "the arguments are shown as text"
    );
    // The arguments are in the page as text: no element comes from them.
    let lower = page.to_lowercase();
    for part in [
        "<script",
        "<img",
        "<link",
        "<iframe",
        "javascript:",
        "url(",
        "@import",
        " href=",
    ] {
        assert!(!lower.contains(part), "{part} in the page");
    }
    let elements = page
        .split('<')
        .skip(1)
        .filter_map(|element| element.split('>').next());
    let requests: Vec<&str> = elements
        .filter(|element| element.contains("http"))
        .collect();
    let known = |element: &&str| {
        element.contains("xmlns=\"http://www.w3.org/2000/svg\"")
            || element.starts_with("meta http-equiv=")
    };
    assert!(requests.iter().all(known), "{requests:?}");
}

/// The leak of 1.17 GiB a minute would be 70 GiB in an hour, of which the recording shows 20 s.
#[test]
fn a_short_recording_has_no_rate() {
    let recorder = Recorder::new();
    let path = recorder.record("short.jsonl", 21, 1000);
    let page = report(&path, &["-o", "-"]).text();
    assert!(page.contains("<summary>Processes (1)</summary>"), "{page}");
    for unit in ["B/h", "B/min"] {
        assert!(!page.contains(unit), "{unit} in the page");
    }
}

#[test]
fn markdown_has_the_findings_in_tables() {
    let (recorder, path) = leaking();
    let text = report(&path, &["--md"]).text();
    let has_headline = |rate| {
        text.starts_with(&format!(
            "## LEAK: sleep (PID {}) on GPU 0 leaks +{rate} GiB/min: memory is full at about ",
            recorder.pid
        ))
    };
    assert!(RATES.into_iter().any(has_headline), "{text}");
    assert!(
        text.contains("### Leaks") && text.contains("| GPU | Name |"),
        "{text}"
    );
    // The arguments are code: no row has a cell more than the headings.
    assert!(
        !text.contains("### Processes\n\n") || text.contains("`` sleep </title><script>"),
        "{text}"
    );
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let table: Vec<usize> = text
        .split("### Processes\n\n")
        .nth(1)
        .expect("there is such a table")
        .lines()
        .map(cells)
        .collect();
    assert!(table.len() > 2 && table[0] == table[2], "{text}");
}

#[test]
fn a_plot_is_a_file_of_its_own() {
    let (recorder, path) = leaking();
    for args in [
        vec!["--svg"],
        vec!["--svg", "--gpu", "0"],
        vec!["--svg", "--pid", &recorder.pid.to_string()],
    ] {
        let svg = report(&path, &args).text();
        assert!(
            svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.contains("<style>"),
            "{args:?}: {svg}"
        );
    }
    let absent = report(&path, &["--svg", "--pid", "4000000"]);
    assert_eq!(
        absent.stderr,
        "gputop: the recording has no process 4000000 with GPU memory\n"
    );
    let absent = report(&path, &["--md", "--gpu", "7"]);
    assert_eq!(
        (absent.code, absent.stderr.as_str()),
        (1, "gputop: the recording has no GPU 7\n")
    );
}

#[test]
fn a_file_that_is_no_recording_is_an_error_in_one_sentence() {
    let host = Host::new([]);
    let path = host.path("notes.txt");
    fs::write(&path, "hello\n").expect("/tmp has room");
    let output = report(&path, &["--md"]);
    assert_eq!(output.code, 1);
    assert!(
        output
            .stderr
            .contains("notes.txt is no recording of gputop: line 1: its line is not understood"),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1);
    let output = report(&host.path("absent"), &["--md"]);
    assert!(
        output.stderr.contains("cannot open")
            && output.stderr.contains("`gputop record` writes recordings"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_pid_is_reported_from_the_newest_recording_of_the_host_and_a_look_now() {
    let recorder = Recorder::new();
    let (host, pid) = (&recorder.host, recorder.pid.to_string());
    let output = host.run(["report", &pid, "--md"]);
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("there is no recording of this host")
            && output.stderr.contains("start `gputop record`"),
        "{}",
        output.stderr
    );
    let lines = recorder.record("run.jsonl", 61, 1000);
    let recordings = host.path("gputop/recordings");
    fs::create_dir_all(&recordings).expect("/tmp has room");
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    // Plain lines are a recording whatever the name says.
    fs::copy(lines, recordings.join(format!("{name}.jsonl.zst"))).expect("/tmp has room");
    let text = host.run(["report", &pid, "--md"]).text();
    assert!(
        text.contains("### Processes") && text.contains(&format!("| {pid} | `sleep 1000` |")),
        "{text}"
    );
    let absent = host.run(["report", "4000000", "--md"]);
    assert_eq!(
        (absent.code, absent.stderr.as_str()),
        (6, "gputop: process 4000000 uses no GPU of this host\n")
    );
}
