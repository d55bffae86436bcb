//! Tests with messages of every version of PyTorch, in the logs that contain them.
//!
//! Each file in `tests/data/oom` has lines of `path value` up to `---`, then a log. A path names a
//! field in the JSON of the first message, or of the message whose index comes first. `.#` is the
//! length of a list, and `messages` the number of messages. Amounts are written as PyTorch writes
//! them.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::events::LogEvent;
use super::message_finder::FoundMessage;
use super::other_processes::OtherProcesses;
use super::scan::{LogScanner, ScannedLog};
use super::{LogSource, exact, json, text};
use crate::base::units::Bytes;
use crate::output::TextStyle;

pub(super) fn find(bytes: &[u8]) -> ScannedLog {
    let mut finder = LogScanner::default();
    finder.scan(bytes);
    finder.finish()
}

pub(super) fn explained(log: ScannedLog) -> Value {
    let source = LogSource::unnamed(log);
    let sources = [source];
    let events: Vec<_> = sources[0].explain().collect();
    json::to_json(&events, &sources, &OtherProcesses::default())
}

pub(super) fn explained_text(log: ScannedLog, style: TextStyle) -> String {
    let source = LogSource::unnamed(log);
    let sources = [source];
    let events: Vec<_> = sources[0].explain().collect();
    text::format(&events, &sources, &OtherProcesses::default(), style)
}

/// Returns the value at a path of the JSON, as text.
fn value(whole: &Value, path: &str) -> String {
    let messages = whole["messages"].as_array().expect("a list");
    if path == "messages" {
        return messages.len().to_string();
    }
    let mut steps = path.split('.').peekable();
    let number = steps
        .next_if(|step| step.parse::<usize>().is_ok())
        .map_or(0, |step| step.parse().expect("a number"));
    let Some(mut value) = messages.get(number) else {
        return format!("in none of {} messages", messages.len());
    };
    for step in steps {
        match step.parse::<usize>() {
            Ok(place) => value = &value[place],
            Err(_) if step == "#" => return value.as_array().expect("a list").len().to_string(),
            Err(_) => match value.get(step) {
                Some(inner) => value = inner,
                None => return "no field".to_owned(),
            },
        }
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Number(amount) if path.ends_with("_bytes") => {
            exact(Bytes(amount.as_u64().expect("an amount")))
        }
        Value::Array(list) if path.ends_with("advice") => list
            .iter()
            .map(|advice| advice["name"].as_str().expect("a name"))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Array(list) => list
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    }
}

/// The name, the paths with expected values, and the log.
type File = (String, Vec<(String, String)>, Vec<u8>);

fn files() -> Vec<File> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oom");
    let mut files = Vec::new();
    let folders = ["", "found", "silent"].map(|folder| directory.join(folder));
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    for path in entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.is_file())
    {
        let text = fs::read_to_string(&path).expect("UTF-8");
        let (head, log) = text
            .split_once("---\n")
            .unwrap_or_else(|| panic!("{} has no ---", path.display()));
        let lines = head.lines().filter(|line| !line.starts_with('#'));
        let expected = lines.map(|line| {
            let (path, value) = line.split_once(' ').unwrap_or((line, ""));
            // Bare numbers are bytes.
            let is_amount = path.ends_with("_bytes") && value.parse::<u64>().is_ok();
            (
                path.to_owned(),
                if is_amount {
                    format!("{value} bytes")
                } else {
                    value.to_owned()
                },
            )
        });
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("a name")
            .to_owned();
        files.push((name, expected.collect(), log.as_bytes().to_vec()));
    }
    files.sort();
    files
}

#[test]
fn messages_and_logs_are_read_as_their_files_expect() {
    let mut wrong = Vec::new();
    for (name, expected, log) in files() {
        let whole = explained(find(&log));
        for (path, expected) in expected {
            let value = value(&whole, &path);
            if value != expected {
                wrong.push(format!("{name}: {path} is {value}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn parts_without_contradictions_add_up_to_the_gpu() {
    for (name, _, log) in files() {
        for message in explained(find(&log))["messages"]
            .as_array()
            .expect("a list")
        {
            let (Some(total), Some(free), Some(true)) = (
                message["total_bytes"].as_u64(),
                message["free_bytes"].as_u64(),
                message["adds_up"].as_bool(),
            ) else {
                continue;
            };
            if message["allocated_bytes"].is_null() {
                continue;
            }
            let figure = |key: &str| message[key].as_u64().unwrap_or(0);
            let others: u64 = message["other_processes"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|other| other["memory_used_bytes"].as_u64())
                .sum();
            let own = figure("allocated_bytes")
                + figure("unallocated_bytes")
                + figure("not_pytorch_bytes");
            let sum = own + others + figure("unaccounted_bytes") + free;
            // The sum may be too large because of rounding.
            assert!(
                sum == total || sum.abs_diff(total) <= figure("rounding_bytes"),
                "{name}: {sum} of {total}"
            );
        }
    }
}

#[test]
fn an_explanation_has_a_bar_and_a_list() {
    let log = find(
        b"RuntimeError: CUDA out of memory. Tried to allocate 14.14 GiB (GPU 0; 11.00 GiB total capacity; 71.43 MiB already \
          allocated; 9.17 GiB free; 80.00 MiB reserved in total by PyTorch)",
    );
    let page = |width, ascii| {
        explained_text(
            log.clone(),
            TextStyle {
                width,
                ascii,
                bold: false,
            },
        )
    };
    let wide = page(100, false);
    let head: Vec<&str> = wide.lines().take(10).collect();
    assert_eq!(
        head,
        [
            "CUDA out of memory on GPU 0: 14.14 GiB requested",
            "  █▓╌╌╌╌╌╌╌╌╌╌╌···························································",
            "  █ 71.43 MiB   0.6%  this process: allocated by PyTorch",
            "  ▓  8.57 MiB   0.1%  this process: reserved by PyTorch, unallocated",
            "  ╌  1.75 GiB  15.9%  the rest: others, the driver, and this process's memory outside PyTorch, give",
            "                      or take 10.25 MiB by rounding",
            "  ·  9.17 GiB  83.4%  free",
            "    11.00 GiB         the whole GPU",
            "",
            "too big: 14.14 GiB were requested at once, and the whole GPU has 11.00 GiB.",
        ]
    );
    let narrow = page(40, true);
    assert_eq!(
        narrow.lines().nth(2),
        Some("  #=-----............................."),
        "{narrow}"
    );
    assert!(narrow.is_ascii());
}

#[test]
fn a_report_fits_80_columns() {
    let mut wide = Vec::new();
    for (name, _, log) in files() {
        let page = explained_text(
            find(&log),
            TextStyle {
                width: 80,
                ascii: true,
                bold: false,
            },
        );
        // A word that is longer than a line, such as a path, cannot be wrapped.
        let is_wide =
            |line: &&str| line.len() > 80 && line.split_whitespace().all(|word| word.len() < 60);
        wide.extend(
            page.lines()
                .filter(is_wide)
                .map(|line| format!("{name}: {line}")),
        );
        assert!(!page.contains(" 1 bytes"), "{name}: {page}");
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn advice_on_training_is_not_given_for_a_server() {
    const TRAINING: [&str; 5] = [
        "accumulation",
        "step 1000",
        "checkpoint(",
        "train.py",
        "drop_last",
    ];
    let mut servers = 0;
    for (name, _, log) in files() {
        let whole = explained(find(&log));
        for message in whole["messages"].as_array().expect("a list") {
            if !message["program"]
                .as_str()
                .is_some_and(|program| ["vllm", "sglang", "comfyui"].contains(&program))
            {
                continue;
            }
            servers += 1;
            let advice = message["advice"].to_string();
            let found: Vec<&&str> = TRAINING
                .iter()
                .filter(|words| advice.contains(**words))
                .collect();
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }
    assert!(servers > 10, "{servers}");
}

/// A message to be wrapped, cut and mixed with noise.
const MESSAGE: &str = "CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 31.36 GiB of which 471.69 \
    MiB is free. Process 19239 has 14.26 GiB memory in use. Including non-PyTorch memory, this process has 16.63 GiB memory \
    in use. Of the allocated memory 15.03 GiB is allocated by PyTorch, with 12.00 MiB allocated in private pools (e.g., \
    CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated.";

/// Returns the messages of PyTorch with figures.
fn messages(log: ScannedLog) -> Vec<FoundMessage> {
    let message = |event| match event {
        LogEvent::Message(found) => Some(*found),
        LogEvent::Error(_) => None,
    };
    log.events
        .into_iter()
        .filter_map(|(event, _)| message(event))
        .collect()
}

fn only(log: ScannedLog) -> FoundMessage {
    let found = messages(log);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().expect("there is one")
}

proptest! {
    /// Noise around a message, and the sizes of the pieces that are read, change nothing.
    #[test]
    fn noise_and_piece_sizes_do_not_matter(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        offset in 0..300_usize,
        cuts in proptest::collection::vec(0..1000_usize, 0..4),
        width in 1..200_usize,
    ) {
        let mut log = noise;
        let offset = offset.min(log.len());
        log.splice(offset..offset, MESSAGE.bytes());
        let whole = find(&log);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(log.len())).chain([0, log.len()]).collect();
        cuts.sort_unstable();
        let mut finder = LogScanner::default();
        for pair in cuts.windows(2) {
            finder.scan(&log[pair[0]..pair[1]]);
        }
        prop_assert_eq!(finder.finish(), whole.clone());
        let page = explained_text(whole.clone(), TextStyle { width, ascii: false, bold: true });
        prop_assert!(page.chars().all(|character| character != '\u{FFFD}'), "bytes that are no text are dropped");
        prop_assert_eq!(explained(whole.clone())["messages"].as_array().map(Vec::len), Some(whole.events.len()));
    }

    /// Line breaks inside a message change nothing.
    #[test]
    fn line_breaks_do_not_matter(breaks in proptest::collection::btree_set(1..MESSAGE.len(), 0..40), crlf in any::<bool>()) {
        let expected = only(find(MESSAGE.as_bytes())).message;
        let mut wrapped = MESSAGE.to_owned();
        for offset in breaks.iter().rev() {
            wrapped.insert_str(*offset, if crlf { "\r\n" } else { "\n" });
        }
        prop_assert_eq!(only(find(wrapped.as_bytes())).message, expected);
    }

    /// A message whose end is missing has some of the figures, and no others.
    #[test]
    fn a_cut_message_has_no_false_figures(end in 0..MESSAGE.len()) {
        let whole = only(find(MESSAGE.as_bytes())).message;
        for found in messages(find(&MESSAGE.as_bytes()[..end])) {
            let message = found.message;
            for (cut, whole) in [
                (message.requested, whole.requested),
                (message.total, whole.total),
                (message.free, whole.free),
                (message.allocated, whole.allocated),
                (message.unallocated, whole.unallocated),
            ] {
                prop_assert!(cut.is_none() || cut == whole);
            }
            prop_assert!(message.others.iter().all(|other| whole.others.contains(other)));
        }
    }
}
