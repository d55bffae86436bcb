//! The commands that name a program with the probe: `gputop tensors` and `gputop snapshot`.

use std::process::Stdio;

use serde_json::Value;

use crate::allocator_stats::host_with_gpus;
use crate::cli::json;
use crate::probe::FakeProbe;
use crate::probe_page::{on_one_line, report};
use crate::process::{ChildProcess, exit_code, run, wait_until};

const NOTHING: i32 = 6;

#[test]
fn tensors_are_listed_sorted_and_filtered() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let pid = probe.pid().to_string();
    let text = host.run(["tensors", &pid]).text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with(&pid) && lines[0].ends_with("step 120, 4.8 steps/s"),
        "{text}"
    );
    assert_eq!(
        lines[1..4],
        [
            "  MEMORY  SHARE  AGE    CHANGE  DEVICE  TENSORS                        CATEGORY",
            " 294 MiB   36 %    0         -  cuda:0  6 × (64, 256, 56, 56) float32  activations",
            "63.0 MiB    8 %  120         -  cuda:0  7 × (512, 512, 3, 3) float32   parameters",
        ],
        "{text}"
    );
    let last = "5 groups with 457 MiB; 12 smaller groups with 4.0 MiB are left out; CHANGE counts from step 119";
    assert_eq!(lines.last(), Some(&last), "{text}");
    let text = host
        .run(["tensors", &pid, "--sort", "change", "FLOAT32"])
        .text();
    assert!(
        text.lines()
            .nth(2)
            .is_some_and(|line| line.contains("+250 KiB  cuda:0  120 × (64, 1000)")),
        "{text}"
    );
    assert!(!text.contains("libraries"), "{text}");
    let line = json(&host.run(["tensors", &pid, "--json", "exp_avg"]));
    assert_eq!(line["pid"], probe.pid());
    let groups = line["report"]["groups"].as_array().expect("a list");
    assert_eq!(groups.len(), 1, "{line}");
    assert_eq!(
        (&groups[0]["kind"], &groups[0]["count"]),
        (&Value::from("exp_avg"), &Value::from(7))
    );
}

/// On a real H100, 583 tensors in a list stood under "activations" for 29 s: the probe looks at all
/// objects of a program only now and then.
#[test]
fn tensors_are_read_anew_for_the_list() {
    let later = report().replace("\"activations\"", "\"named_tensors\"");
    assert_ne!(later, report());
    let (code, stdout, stderr, request) =
        answered_with(&[], "tensors", &report(), &later, r#""ok": true"#);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(request["request"], "tensors");
    let line = stdout.lines().nth(2);
    assert!(
        line.is_some_and(|line| line.ends_with("float32  named tensors")),
        "{stdout}"
    );
}

#[test]
fn without_an_answer_the_last_report_is_listed_with_the_reason() {
    let error = r#""ok": false, "error": "the program runs long outside of Python: try again""#;
    let (code, stdout, stderr, _) = answered_with(&[], "tensors", &report(), &report(), error);
    assert_eq!(code, 0);
    assert_eq!(
        stderr,
        "gputop: the last report of the probe, since the program runs long outside of Python: try again\n"
    );
    assert!(stdout.contains("activations"), "{stdout}");
}

#[test]
fn a_process_without_a_report_gets_a_sentence() {
    let mut host = host_with_gpus(1);
    let probe = FakeProbe::start(&mut host, &[], &[("GPUTOP_PROBE_FOLDER", "/probe")]);
    let sleep = host.start_sleep(0, 1 << 30).to_string();
    for (pid, words) in [
        (
            probe.pid().to_string(),
            "has no report of gputop's probe: `gputop run` started it, but something changed",
        ),
        (sleep, "does not run Python on a GPU, so it has no probe"),
        (
            "999999999".to_owned(),
            "uses no GPU here, and is related to none that does",
        ),
    ] {
        let output = host.run(["tensors", &pid]);
        assert_eq!(
            (output.code, output.stderr.lines().count()),
            (NOTHING, 1),
            "{}",
            output.stderr
        );
        assert!(output.stderr.contains(words), "{}", output.stderr);
        let snapshot = host.run(["snapshot", &pid]);
        assert_eq!(snapshot.code, NOTHING, "{}", snapshot.stderr);
        assert!(snapshot.stderr.contains(words), "{}", snapshot.stderr);
    }
}

#[test]
fn a_probe_of_a_later_version_gets_a_sentence_that_says_what_to_restart() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(r#"{"version": 3, "devices": "in another form"}"#);
    let output = host.run(["tensors", &probe.pid().to_string()]);
    let words =
        "its probe is of a newer gputop than the one that reads it: restart the reading one";
    assert!(output.stderr.contains(words), "{}", output.stderr);
    // The first line says so too, and a recording has the same lines.
    let line = json(&host.run(["--json"]));
    let processes = line["processes"].as_array().expect("a list");
    let process = processes
        .iter()
        .find(|process| process["pid"] == probe.pid());
    let missing = process.map(|process| &process["probe"]["missing"]);
    assert_eq!(missing, Some(&Value::from("other_version")), "{line}");
}

/// An answer of the probe to `gputop tensors --since eval --until "eval end"`.
const COMPARED: &str = r#""ok": true, "request": "compare", "compared": {"since": {"name": "eval", "step": 118, "at": "train.py:40 in main"}, "until": {"name": "eval end", "step": 118, "at": "train.py:40 in main"}, "seconds": 1.5, "devices": [{"cuda_device": 0, "allocated_bytes": 790626304, "bytes_change": 2097152}], "groups": [{"cuda_device": 0, "category": "named_tensors", "shape": [64, 1000], "dtype": "float32", "count": 120, "bytes": 30720000, "count_change": 9, "bytes_change": 2304000, "allocated_at": {"user": "train.py:41 in main", "inner": "model.py:12 in forward"}}, {"cuda_device": 0, "category": "libraries", "block_bytes": 206848, "count": 0, "bytes": 0, "count_change": -1, "bytes_change": -206848}], "groups_left_out": {"count": 3, "bytes_change": 0}}"#;

#[test]
fn tensors_that_came_and_went_between_two_marks_are_listed_with_their_lines() {
    let answered =
        |args: &[&str], answer| answered_with(args, "tensors", &report(), &report(), answer);
    let (code, stdout, stderr, request) =
        answered(&["--since", "eval", "--until", "eval end"], COMPARED);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(
        (&request["request"], &request["since"], &request["until"]),
        (
            &Value::from("compare"),
            &Value::from("eval"),
            &Value::from("eval end")
        )
    );
    let lines: Vec<&str> = stdout.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "from eval (train.py:40 in main, step 118) to eval end (train.py:40 in main, step 118), 1.5 s: \
             +2.0 MiB of tensors, 754 MiB then",
            "  CHANGE       NOW  DEVICE  TENSORS                   CATEGORY       LINE",
            "+2.2 MiB  29.3 MiB  cuda:0  + 9 × (64, 1000) float32  named tensors  train.py:41 in main, model.py:12 in forward",
            "-202 KiB       0 B  cuda:0  - 1 × blocks of 202 KiB   libraries      -",
            "came 2.2 MiB, went 202 KiB; 3 smaller changes with +0 are left out",
        ],
        "{stdout}"
    );
    let (_, stdout, _, request) = answered(&["--since", "eval", "--json", "libraries"], COMPARED);
    assert_eq!(request.get("until"), None);
    let line: Value = serde_json::from_str(&stdout).expect("one line of JSON");
    let groups = line["compared"]["groups"].as_array().expect("a list");
    assert_eq!(groups.len(), 1, "{line}");
    assert_eq!(groups[0]["bytes_change"], -206_848);
}

#[test]
fn marks_that_cannot_be_compared_get_the_reason() {
    for (error, words) in [
        (
            "there is no mark b; the last ones are a",
            "there is no mark b; the last ones are a",
        ),
        (
            "unknown request",
            "its probe is of an older gputop: start the program again",
        ),
    ] {
        let answer = format!(r#""ok": false, "error": "{error}""#);
        let (code, stdout, stderr, _) =
            answered_with(&["--since", "b"], "tensors", &report(), &report(), &answer);
        assert_eq!((code, stdout.as_str()), (1, ""));
        assert!(
            stderr.ends_with(&format!("cannot compare marks: {words}\n")),
            "{stderr}"
        );
    }
}

/// Runs `gputop snapshot` on a program with this report, answers its request with these fields, and
/// returns the exit code, the output and the request.
fn answered(report: &str, answer: &str) -> (i32, String, String, Value) {
    answered_with(&["-o", "new.pickle"], "snapshot", report, report, answer)
}

/// Runs a command on a program with a report, answers its request with these fields in a later
/// report, and returns the exit code, the output and the request.
pub(crate) fn answered_with(
    args: &[&str],
    subcommand: &str,
    report: &str,
    later: &str,
    answer: &str,
) -> (i32, String, String, Value) {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(report);
    let pid = probe.pid().to_string();
    let mut command = host.gputop([subcommand, &pid].into_iter().chain(args.iter().copied()));
    command
        .current_dir(host.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut gputop = ChildProcess::spawn(&mut command);
    let mut request = Value::Null;
    wait_until("the probe is asked", || {
        request = serde_json::from_str(&probe.request("request")).expect("the answer is JSON");
        request != Value::Null
    });
    let answer = format!(
        r#""answer": {{"id": {}, {answer}}}, "trouble": []}}"#,
        request["id"]
    );
    let later = later.strip_suffix('}').expect("a report is an object");
    probe.request(&format!("publish {later}, {answer}"));
    let code = exit_code(gputop.wait());
    let mut texts = [String::new(), String::new()];
    let child = gputop.child();
    std::io::Read::read_to_string(
        &mut child.stdout.take().expect("stdout is piped"),
        &mut texts[0],
    )
    .expect("text");
    std::io::Read::read_to_string(
        &mut child.stderr.take().expect("stderr is piped"),
        &mut texts[1],
    )
    .expect("text");
    let [stdout, stderr] = texts;
    (code, stdout, stderr, request)
}

#[test]
fn the_probe_writes_a_snapshot_where_gputop_was_called() {
    let (code, stdout, stderr, request) = answered(
        &report(),
        r#""ok": true, "path": "/x/new.pickle", "bytes": 2048"#,
    );
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.starts_with("/x/new.pickle (2 KiB): open it"),
        "{stdout}"
    );
    assert_eq!(request["request"], "snapshot");
    let path = request["path"].as_str().expect("a path");
    assert!(
        path.starts_with('/') && path.ends_with("/new.pickle"),
        "{path}"
    );
}

#[test]
fn a_snapshot_with_steps_has_their_traces_or_a_sentence_why_not() {
    let answered = |answer| {
        let args = ["--steps", "3", "-o", "new.pickle"];
        answered_with(&args, "snapshot", &report(), &report(), answer)
    };
    let (code, stdout, stderr, request) =
        answered(r#""ok": true, "path": "/x/new.pickle", "bytes": 2048, "steps": 3"#);
    assert_eq!(
        (code, stderr.as_str(), &request["steps"]),
        (0, "", &Value::from(3))
    );
    assert!(
        stdout.starts_with("/x/new.pickle (2 KiB), with 3 steps: open it"),
        "{stdout}"
    );
    let (code, _, stderr, _) = answered(r#""ok": true, "path": "/x/new.pickle""#);
    assert_eq!(code, 0);
    assert!(
        stderr.starts_with("gputop: the probe recorded no steps"),
        "{stderr}"
    );
}

/// A program that started before an upgrade of gputop has the probe of the version before.
#[test]
fn a_probe_of_the_first_version_is_read_and_asked() {
    let report = on_one_line(include_str!("../data/probe-report-1.json"));
    let (code, stdout, stderr, request) = answered(&report, r#""ok": true, "path": "/x/a""#);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("/x/a: open it"), "{stdout}");
    let request = request.as_object().expect("a request is an object");
    let names: Vec<&str> = request.keys().map(String::as_str).collect();
    assert_eq!(names, ["id", "path", "request"]);
    assert!(request["id"].is_u64() && request["request"] == "snapshot");
}

#[test]
fn a_snapshot_that_the_probe_cannot_write_fails_with_its_reason() {
    let (code, stdout, stderr, _) = answered(
        &report(),
        r#""ok": false, "error": "FileExistsError: new.pickle""#,
    );
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (1, "", "gputop: no snapshot: FileExistsError: new.pickle\n")
    );
    let mut host = host_with_gpus(1);
    let pid = host.start_sleep(0, 1 << 30).to_string();
    let output = run(&mut host.gputop(["snapshot", &pid]));
    assert_eq!(output.code, NOTHING, "{}", output.stderr);
}
