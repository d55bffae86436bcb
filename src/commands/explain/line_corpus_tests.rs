//! Lines of many programs, each a log of its own: `tests/data/oom/lines/failing.txt` has lines that state a failure of memory, and
//! `silent.txt` lines that mention memory while nothing has failed.

use std::fs;
use std::path::Path;

use super::scan::ScannedLog;
use super::tests::{explained, find};

fn lines(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oom/lines").join(name);
    fs::read_to_string(path).expect("UTF-8").lines().map(str::to_owned).collect()
}

/// Returns the causes and unknown lines of a log, for a message.
fn named(log: &ScannedLog) -> Vec<String> {
    let causes = log.events.iter().map(|(event, _)| event.cause().to_owned());
    causes.chain(log.unknown.iter().map(|unknown| format!("unknown: {}", unknown.text))).collect()
}

#[test]
fn a_line_that_states_a_failure_is_named_or_shown() {
    let denied: Vec<String> =
        lines("failing.txt").into_iter().filter(|line| named(&find(line.as_bytes())).is_empty()).collect();
    assert!(denied.is_empty(), "{}", denied.join("\n"));
}

#[test]
fn a_line_that_only_mentions_memory_is_neither_named_nor_shown() {
    let silent = lines("silent.txt");
    assert!(silent.len() > 200, "{}", silent.len());
    let wrong = |line: &String| Some(named(&find(line.as_bytes()))).filter(|named| !named.is_empty());
    let wrong: Vec<String> =
        silent.iter().filter_map(|line| Some(format!("{}: {line}", wrong(line)?.join(", ")))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let whole = named(&find(silent.join("\n").as_bytes()));
    assert!(whole.is_empty(), "in one log: {}", whole.join("\n"));
}

#[test]
fn words_alone_count_only_before_an_end() {
    const WORDS: &str = "arena: cannot allocate 4096 MiB of device memory\n";
    let steps = "step loss 0.31\n".repeat(20);
    let shown = |log: String| explained(find(log.as_bytes()))["unrecognised_lines"].as_array().map_or(0, Vec::len);
    assert_eq!(shown(format!("{steps}{WORDS}{steps}")), 0, "the log goes on");
    assert_eq!(shown(format!("{steps}{WORDS}")), 1, "the log ends");
    assert_eq!(shown(format!("{steps}{WORDS}Aborted (core dumped)\n{steps}")), 1, "the program ends");
    assert_eq!(shown(format!("{steps}ERROR {WORDS}{steps}")), 1, "an error counts everywhere");
    assert_eq!(shown(format!("{steps}WARNING {WORDS}")), 0, "a warning is no failure");
    assert_eq!(shown(format!("{steps}RuntimeError: {WORDS}{steps}")), 1, "an exception counts everywhere");
}

#[test]
fn unknown_lines_have_their_numbers_and_no_copies() {
    let log = (0..9).fold("epoch 1\n".to_owned(), |log, number| {
        let letter = char::from(b'a' + number);
        format!("{log}[ERROR] pool {letter}: out of device memory\n[ERROR] pool {letter}: out of device memory\n")
    });
    let json = explained(find(log.as_bytes()));
    let lines: Vec<u64> = json["unrecognised_lines"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line["line"].as_u64())
        .collect();
    assert_eq!(lines, [2, 4, 6, 8, 10], "{json:#}");
    assert_eq!(json["unrecognised_lines"][0]["text"], "[ERROR] pool a: out of device memory");
    // Below a known cause, such a line says the same again.
    let json = explained(find(format!("RuntimeError: CUDA error: out of memory\n{log}").as_bytes()));
    assert_eq!(json["unrecognised_lines"].as_array().map(Vec::len), Some(0), "{json:#}");
}
