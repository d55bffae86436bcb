//! Lines of many programs, each a log of its own: `tests/data/oom/lines/failing.txt` has lines that
//! state a failure of memory, and `silent.txt` lines that mention memory while nothing has failed.

use std::fs;
use std::path::Path;

use super::scan::ScannedLog;
use super::tests::{explained, find};

fn lines(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/oom/lines")
        .join(name);
    fs::read_to_string(path)
        .expect("UTF-8")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Returns the causes and unknown lines of a log, for a message.
fn named(log: &ScannedLog) -> Vec<String> {
    let causes = log.events.iter().map(|(event, _)| event.cause().to_owned());
    causes
        .chain(
            log.unknown
                .iter()
                .map(|unknown| format!("unknown: {}", unknown.text)),
        )
        .collect()
}

#[test]
fn a_line_that_states_a_failure_is_named_or_shown() {
    let denied: Vec<String> = lines("failing.txt")
        .into_iter()
        .filter(|line| named(&find(line.as_bytes())).is_empty())
        .collect();
    assert!(denied.is_empty(), "{}", denied.join("\n"));
}

#[test]
fn a_line_that_only_mentions_memory_is_neither_named_nor_shown() {
    let silent = lines("silent.txt");
    assert!(silent.len() > 200, "{}", silent.len());
    let wrong =
        |line: &String| Some(named(&find(line.as_bytes()))).filter(|named| !named.is_empty());
    let wrong: Vec<String> = silent
        .iter()
        .filter_map(|line| Some(format!("{}: {line}", wrong(line)?.join(", "))))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let whole = named(&find(silent.join("\n").as_bytes()));
    assert!(whole.is_empty(), "in one log: {}", whole.join("\n"));
}

/// Logs in the words of known forms, each with whether they report a failure that ended something.
const IN_KNOWN_WORDS: &[(&str, bool)] = &[
    (
        "Tip: getting \"RuntimeError: CUDA out of memory\"? Try --medvram.",
        false,
    ),
    (
        "Searching issues for \"torch.cuda.OutOfMemoryError: CUDA out of memory\"... 1204 results",
        false,
    ),
    (
        "perplexity on \"RuntimeError: CUDA out of memory\" = 3.1",
        false,
    ),
    (
        "tweet_id=12 text=\"java.lang.OutOfMemoryError: Java heap space is my life\" sentiment=neg",
        false,
    ),
    (
        "dataset sample: {'text': 'MemoryError: out of memory', 'label': 4}",
        false,
    ),
    (
        "comment: \"vLLM: ValueError: No available memory for the cache blocks\" closed as duplicate",
        false,
    ),
    (
        "If you see cudaHostAlloc failed: out of memory, lower num_workers",
        false,
    ),
    (
        "#812  OPEN  RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB  bug",
        false,
    ),
    (
        "XFAIL tests/test_mem.py::test_huge - MemoryError: Unable to allocate 1 TiB",
        false,
    ),
    (
        "FAILED tests/test_fit.py::test_huge - RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        true,
    ),
    (
        "INFO cudaMalloc failed: out of memory; freeing the cache and retrying: ok\nstep 4 loss 0.1",
        false,
    ),
    (
        "WARNING batch 88: CUDA out of memory, dropping the batch and continuing",
        false,
    ),
    (
        "Top search terms: \"gpu pods\", \"exit code 137\", \"killed\"",
        false,
    ),
    ("rule \"OutOfMemory\" evaluated: inactive", false),
    (
        "Previous exit: 137 (OOMKilled). Starting with memory limit 64Gi.",
        false,
    ),
    (
        "* feat: report CUDA out of memory with the batch size (#813)",
        false,
    ),
    (
        "distributed.nanny - INFO - Worker process 4123 was killed by signal 9",
        true,
    ),
    (
        "[I 2024-05-05] Trial 4 pruned: CUDA out of memory.\n[I 2024-05-05] Trial 5 finished with value: 0.91",
        false,
    ),
    (
        "An error occurred without a handler: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        true,
    ),
    (
        "[ERROR] No workers left: worker 3 exited with code 137",
        true,
    ),
    (
        "{\"level\":\"error\",\"msg\":\"inference failed\",\"error\":\"CUDA out of memory\"}",
        true,
    ),
    (
        "{\"text\":\"RuntimeError: CUDA error: out of memory\",\"level\":\"error\"}",
        true,
    ),
    (
        "Program hit cudaErrorMemoryAllocation (error 2) due to \"out of memory\" on CUDA API call to cudaMalloc.",
        true,
    ),
    (
        "systemd[1]: run-u812.scope: systemd-oomd killed 14 process(es) in this unit.",
        true,
    ),
    (
        "The command '/bin/sh -c pip install flash-attn' returned a non-zero code: 137",
        true,
    ),
    (
        "RuntimeError: test_data.bin: cudaHostAlloc failed: out of memory",
        true,
    ),
];

#[test]
fn known_words_pass_the_same_gate_as_others() {
    let is_wrong = |(log, fails): &&(&str, bool)| named(&find(log.as_bytes())).is_empty() == *fails;
    let wrong: Vec<_> = IN_KNOWN_WORDS.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_warning_in_known_words_counts_only_before_an_end() {
    const WARNING: &str = "WARNING trainer: CUDA out of memory. Tried to allocate 93.75 GiB (GPU 4; 79.17 GiB total capacity; 1.52 GiB \
        already allocated; 74.14 GiB free; 1.54 GiB reserved in total by PyTorch)\n";
    let steps = "step loss 0.31\n".repeat(20);
    let causes = |log: String| {
        explained(find(log.as_bytes()))["messages"]
            .as_array()
            .map_or(0, Vec::len)
    };
    assert_eq!(
        causes(format!("{steps}{WARNING}{steps}")),
        0,
        "the log goes on"
    );
    assert_eq!(causes(format!("{steps}{WARNING}")), 1, "the log ends");
    assert_eq!(
        causes(format!(
            "{steps}{WARNING}{steps}RuntimeError: CUDA error: out of memory\n"
        )),
        1,
        "an error follows"
    );
    assert_eq!(
        causes(format!("{steps}ERROR {WARNING}{steps}")),
        1,
        "an error counts everywhere"
    );
    let killed =
        "[W 10:11:12 elastic] failed (exitcode: -9) local_rank: 1 (pid: 332) of binary: python\n";
    assert_eq!(
        causes(format!("{steps}{killed}{steps}")),
        1,
        "nothing continues after a kill"
    );
}

#[test]
fn words_alone_count_only_before_an_end() {
    const WORDS: &str = "arena: cannot allocate 4096 MiB of device memory\n";
    let steps = "step loss 0.31\n".repeat(20);
    let shown = |log: String| {
        explained(find(log.as_bytes()))["unrecognised_lines"]
            .as_array()
            .map_or(0, Vec::len)
    };
    assert_eq!(
        shown(format!("{steps}{WORDS}{steps}")),
        0,
        "the log goes on"
    );
    assert_eq!(shown(format!("{steps}{WORDS}")), 1, "the log ends");
    assert_eq!(
        shown(format!("{steps}{WORDS}Aborted (core dumped)\n{steps}")),
        1,
        "the program ends"
    );
    assert_eq!(
        shown(format!("{steps}ERROR {WORDS}{steps}")),
        1,
        "an error counts everywhere"
    );
    assert_eq!(
        shown(format!("{steps}WARNING {WORDS}")),
        0,
        "a warning is no failure"
    );
    assert_eq!(
        shown(format!("{steps}RuntimeError: {WORDS}{steps}")),
        1,
        "an exception counts everywhere"
    );
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
    assert_eq!(
        json["unrecognised_lines"][0]["text"],
        "[ERROR] pool a: out of device memory"
    );
    // Below a known cause, such a line says the same again.
    let json = explained(find(
        format!("RuntimeError: CUDA error: out of memory\n{log}").as_bytes(),
    ));
    assert_eq!(
        json["unrecognised_lines"].as_array().map(Vec::len),
        Some(0),
        "{json:#}"
    );
}
