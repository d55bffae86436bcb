//! `gputop leaks`: the leaks that the probe reports in programs.

use std::fs;

use serde_json::Value;

use crate::allocator_stats::host_with_gpus;
use crate::cli::json;
use crate::host::Host;
use crate::probe::{FakeProbe, REPORT};
use crate::probe_page::report;
use crate::terminal::Terminal;

const OK: i32 = 0;
const PARTIAL: i32 = 5;
const NOTHING: i32 = 6;
const FOUND: i32 = 10;

/// Publishes another report in the same memory file.
fn publish_again(probe: &mut FakeProbe, report: &str) {
    assert_eq!(probe.request(&format!("publish {report}")), "done");
}

#[test]
fn the_leaks_of_all_programs_are_listed_with_their_lines() {
    let mut host = host_with_gpus(1);
    let mut leaking = FakeProbe::start(&mut host, &[], &[]);
    leaking.publish(&report());
    let mut healthy = FakeProbe::start(&mut host, &[], &[]);
    healthy.publish(REPORT);
    let pid = leaking.pid().to_string();
    let output = host.run(["leaks"]);
    let text = output.text();
    assert_eq!(output.code, FOUND, "{text}{}", output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "1 likely in 2 programs with the probe", "{text}");
    let row: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(row[..4], [&pid, "likely", "train.py:41", "-"], "{text}");
    assert!(lines[2].contains("250 KiB per step"), "{text}");
    assert_eq!(
        lines[4],
        "         try: outputs.append(output.detach().cpu()) in train.py:41 keeps no GPU memory",
        "{text}"
    );
    let output = host.run(["leaks", "--json"]);
    assert_eq!(output.code, FOUND, "{}", output.stderr);
    let found = json(&output);
    let leaks = found["leaks"].as_array().expect("a list");
    assert_eq!(leaks.len(), 1, "{found}");
    assert_eq!(
        (&leaks[0]["pid"], &leaks[0]["line"], &leaks[0]["sure"]),
        (
            &Value::from(leaking.pid()),
            &Value::from("train.py:41"),
            &Value::from("likely")
        )
    );
    assert_eq!(found["programs"].as_array().map(Vec::len), Some(2));
    // The other program has none.
    let line = json(&host.run(["leaks", &healthy.pid().to_string(), "--json"]));
    assert_eq!(line["leaks"], Value::Array(Vec::new()));
    let output = host.run(["leaks", &pid]);
    assert_eq!(output.code, FOUND, "{}", output.stderr);
}

#[test]
fn a_likely_leak_is_a_leak_in_the_table_and_in_json_at_once() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let pid = probe.pid();
    let verdict_and_growth = |report: &str, probe: &mut FakeProbe, host: &Host| {
        publish_again(probe, report);
        let table = host.run(["--once"]).text();
        let row = table
            .lines()
            .find(|line| line.contains(&pid.to_string()))
            .unwrap_or_else(|| panic!("{pid} is not in\n{table}"));
        let line = json(&host.run(["--json"]));
        let processes = line["judged"]["processes"].as_array().expect("a list");
        let judged = processes.iter().find(|process| process["pid"] == pid);
        (row.to_owned(), judged.expect("it is judged").clone())
    };
    let (row, judged) = verdict_and_growth(&report(), &mut probe, &host);
    assert!(row.contains("LEAK"), "{row}");
    assert_eq!(judged["leak_line"], "train.py:41", "{judged}");
    let growth = &judged["growth"];
    assert_eq!(growth["verdict"], "leak", "{judged}");
    // 250 KiB in each step of 0.21 s.
    assert_eq!(growth["rate_bytes_per_s"], 1_219_048, "{judged}");
    let sentence = growth["sentence"].as_str().expect("a sentence");
    assert!(sentence.starts_with("LEAK: train.py:41, +"), "{sentence}");
    let maybe = report().replace("likely", "maybe");
    let (row, judged) = verdict_and_growth(&maybe, &mut probe, &host);
    assert!(!row.contains("LEAK") && row.contains("growing?"), "{row}");
    assert_eq!(judged["growth"]["verdict"], "suspect", "{judged}");
    let (row, judged) = verdict_and_growth(REPORT, &mut probe, &host);
    assert!(!row.contains("LEAK") && !row.contains("growing?"), "{row}");
    assert_eq!(judged["leak_line"], Value::Null, "{judged}");
}

#[test]
fn a_likely_leak_is_a_finding_of_the_report_with_its_line() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    let recording = host.path("run.jsonl");
    fs::write(&recording, host.run(["--json"]).text()).expect("/tmp has room");
    let path = recording.to_str().expect("a path in ASCII");
    let output = host.run(["report", path, "--md"]);
    let text = output.text();
    assert_eq!(output.code, OK, "{text}{}", output.stderr);
    let finding = text.lines().find(|line| line.contains("(by the probe)"));
    let finding = finding.unwrap_or_else(|| panic!("no finding in\n{text}"));
    assert!(
        finding.contains("leaks") && finding.contains("train.py:41, +"),
        "{finding}"
    );
}

#[test]
fn a_likely_leak_is_in_the_list_with_its_line_and_is_told_once() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(REPORT);
    let mut terminal = Terminal::start_at(&host, 160, 40, ["--interval", "100ms"]);
    terminal.wait_for(&probe.pid().to_string());
    publish_again(&mut probe, &report());
    terminal.wait_for("LEAK");
    terminal.wait_for("/min train.py:41");
    let name = format!("LEAK  {} fake_probe.py (", probe.pid());
    terminal.wait_for(&name);
    terminal.quit();
}

#[test]
fn a_leak_that_may_be_none_does_not_fail_and_neither_does_one_that_takes_no_memory() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(REPORT);
    for report in [
        report().replace("likely", "maybe"),
        report().replace(r#""bytes_per_step": 256000"#, r#""bytes_per_step": 0"#),
    ] {
        publish_again(&mut probe, &report);
        let output = host.run(["leaks"]);
        let text = output.text();
        assert_eq!(output.code, OK, "{text}{}", output.stderr);
        let summary = "1 possible in the program with the probe: no leak is likely\n";
        assert!(text.starts_with(summary), "{text}");
    }
}

#[test]
fn programs_without_a_report_are_named_with_the_reason() {
    let mut host = host_with_gpus(1);
    let without = FakeProbe::start(&mut host, &[], &[("GPUTOP_PROBE_FOLDER", "/probe")]);
    let output = host.run(["leaks"]);
    let unjudged = format!("{} ", without.pid());
    assert_eq!(output.code, PARTIAL, "{}", output.stderr);
    let text = output.text();
    assert!(
        text.lines().any(|line| line.starts_with(&unjudged)
            && line.contains("not judged: `gputop run` started it")),
        "{text}"
    );
    let output = host.run(["leaks", "999999999"]);
    assert_eq!(output.code, NOTHING);
    assert_eq!(
        output.stderr,
        "gputop: process 999999999 uses no GPU here, and is related to none that does\n"
    );
    let output = host_with_gpus(1).run(["leaks"]);
    assert_eq!(output.code, NOTHING, "{}", output.stderr);
}
