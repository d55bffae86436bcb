//! Marks that a program sets with `gputop_probe.mark` and `gputop_probe.phase`: on its page, in
//! recordings, reports and comparisons.

use std::fs;

use crate::allocator_stats::host_with_gpus;
use crate::cli::json;
use crate::probe::FakeProbe;
use crate::probe_page::{open_page, report};

/// A report of a program that has set the marks `eval` and `eval end` some times, with this change
/// in bytes each time.
fn marked(times: u32, change: i64) -> String {
    let total = i64::from(times) * change;
    let count = change / 1024;
    let report = report();
    let report = report.strip_suffix('}').expect("a report is an object");
    format!(
        r#"{report}, "marks": [{{"name": "begin"}}, {{"name": "eval", "step": 118}}, {{"name": "eval end", "step": 118}}], "mark_pairs": [{{"since": {{"name": "eval", "step": 118, "at": "train.py:40 in main"}}, "until": {{"name": "eval end", "step": 118}}, "seconds": 0.5, "times": {times}, "groups_from": {times}, "devices": [{{"cuda_device": 0, "allocated_bytes": 790626304, "bytes_change": {change}, "total_bytes_change": {total}}}], "groups": [{{"cuda_device": 0, "category": "named_tensors", "shape": [16, 16], "dtype": "float32", "count": 200, "bytes": 204800, "count_change": {count}, "bytes_change": {change}, "allocated_at": {{"user": "train.py:41 in main"}}}}], "groups_left_out": {{"count": 2, "bytes_change": 0}}}}]}}"#
    )
}

#[test]
fn the_page_shows_what_came_and_went_between_marks() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&marked(12, 8192));
    let mut terminal = open_page(&host, &probe);
    for words in [
        "Between marks of the program",
        "+8 KiB           eval → eval end, 12 times, +96 KiB in all",
        "+ 8 × (16, 16) float32  +8 KiB  named tensors  train.py:41 in main",
        "and 2 more groups: gputop tensors PID --since 'eval'",
    ] {
        terminal.wait_for(words);
    }
    terminal.quit();
    let pid = probe.pid().to_string();
    let text = host.run(["tensors", &pid]).text();
    let marks = "marks for --since: begin, eval, eval end";
    assert_eq!(text.lines().last(), Some(marks), "{text}");
}

#[test]
fn a_recording_has_the_marks_for_the_report_and_the_comparison() {
    let mut host = host_with_gpus(1);
    let mut probe = FakeProbe::start(&mut host, &[], &[]);
    probe.publish(&report());
    for (name, times, change) in [("a.jsonl", 2, 8192), ("b.jsonl", 4, -4096)] {
        let published = probe.request(&format!("publish {}", marked(times, change)));
        assert_eq!(published, "done");
        fs::write(host.path(name), host.run(["--json"]).stdout).expect("/tmp has room");
    }
    let [a, b] = ["a.jsonl", "b.jsonl"].map(|name| host.path(name).display().to_string());
    let page = host.run(["report", &a, "--md"]).text();
    assert!(page.contains("### Between marks of the program"), "{page}");
    let row = page.lines().find(|line| line.contains("eval → eval end"));
    let row = row.unwrap_or_else(|| panic!("{page}"));
    for words in [
        "| 2 |",
        "| +8 KiB |",
        "| +16 KiB |",
        "+ 8 × (16, 16) float32  +8 KiB  named tensors  train.py:41 in main; and 2 more",
    ] {
        assert!(row.contains(words), "{row}");
    }
    assert!(
        page.contains("mark begin") && page.contains("mark eval end, step 118"),
        "{page}"
    );
    let text = host.run(["diff", &a, &b]).text();
    let row = text.lines().find(|line| line.contains("eval → eval end"));
    let row = row.unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = row.split_whitespace().take(9).collect();
    assert_eq!(
        words.join(" "),
        "change of tensors +8 KiB -4 KiB -12 KiB",
        "{text}"
    );
    let compared = json(&host.run(["diff", &a, &b, "--json"]));
    let metric = &compared["marks"][0]["metrics"]["bytes_between_marks"];
    assert_eq!(
        (&metric["a"], &metric["b"]),
        (&8192.0.into(), &(-4096.0).into())
    );
    // A part of a recording may begin at any mark, also at one that was not the last.
    let part = host.run(["report", &format!("{a}@begin.."), "--md"]);
    assert_eq!(part.code, 0, "{}", part.stderr);
    let part = host.run(["report", &format!("{a}@none.."), "--md"]);
    assert!(
        part.stderr.contains("its marks: begin, eval, eval end"),
        "{}",
        part.stderr
    );
}
