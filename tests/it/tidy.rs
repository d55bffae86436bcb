//! The architecture as a test: who may use whom, and what may stand where. It reads the source as plain text.
//!
//! If the design changed, change ARCHITECTURE.md and the tables here together.

mod module_graph;
mod module_graph_tests;
mod module_paths;
mod modules;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// What may stand only in some modules: the words, where they are at home, and why nowhere else.
const AT_HOME: &[(&[&str], &[&str], &str)] = &[
    (&["ratatui"], &["tui", "view"], "facts and intent know no screen"),
    (&["nvml_wrapper", "nvml_sys", "libloading"], &["agent"], "the viewer never calls the driver"),
    (&["sysinfo", "\"/proc", "uzers"], &["agent", "source"], "the viewer never reads the host"),
    (&["pidfd_"], &["agent"], "the viewer never signals a process"),
    (&["tokio"], &["commands", "source", "tui"], "the loop is at the edge"),
    (&["anyhow"], &["agent", "cli", "commands", "lib", "main", "tui"], "in the core, trouble is data"),
    (
        &["unsafe"],
        &["agent", "main", "source", "tui"],
        "only C needs it: the driver's, the heap's, and of the system what has no other word",
    ),
];

/// What the folders without I/O do without.
const PURE: &[&str] = &["base", "protocol", "model", "app", "view"];
const WORLDLY: &[&str] =
    &["std::thread", "std::fs", "std::net", "std::process", "std::env", "Instant", "SystemTime", "rustix", "libc"];

/// What stands nowhere.
const NOWHERE: &[(&str, &str)] = &[
    ("#[allow", "an exception is an `expect` with a reason"),
    ("#![allow", "an exception is an `expect` with a reason"),
    ("TODO", "an unfinished thing is an issue"),
    ("FIXME", "an unfinished thing is an issue"),
    ("#[ignore", "a test runs"),
    ("#[should_panic", "trouble is data, also in tests"),
];

/// Calls that wait for time to go by. What ends them is not a reason to go on.
const SLEEPS: &[&str] = &["thread::sleep(", "time::sleep(", "nanosleep("];

/// A reading that is missing is not zero. Where readings are taken and judged, nothing may look as if it were.
const MADE_UP: &[&str] = &["unwrap_or(0)", "unwrap_or(0.0)", "unwrap_or_default()"];

/// What the C library has in a file of its own: one call, and each process has a fifth of a MiB of it.
const FROM_LIBM: &[&str] = &[".exp()", ".hypot(", ".ln()", ".ln_1p()", ".log10()", ".powf(", ".sin()", ".cos()"];

/// Lines that break a rule with reason: file, words of the line, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("tests/fake-nvml/src/gate.rs", "thread::sleep(", "the world file wants time to go by"),
    (
        "tests/fake-nvml/src/events.rs",
        "thread::sleep(",
        "NVML waits so for an event, and no file tells that it changed",
    ),
    ("src/base/terminal.rs", "rustix::", "the standard output is read by the screen and by reports"),
    ("src/base/terminal.rs", "std::env;", "the terminal and the locale are known from the environment"),
    ("src/agent/demo/processes.rs", "tokio", "a process of the simulated machine is no part of the agent"),
    ("src/agent/demo/processes.rs", "clock_gettime", "how long a simulated process works"),
    ("src/agent/clock.rs", "u64::try_from(time.", "the clock since boot is never negative"),
    ("src/agent/clock.rs", "ThreadCPUTime", "what a thread has computed is never negative"),
    ("src/agent/actions/audit.rs", "boot_id", "a text, and one that is empty belongs to no other boot"),
    ("src/agent/actions/audit/tests.rs", "self.book()", "where nothing was written, nothing stands"),
    ("src/agent/actions/force.rs", "held.parent()", "no process has the PID 0: one without a parent stands at the top"),
    ("src/agent/host.rs", "boot_id", "a text, and one that is empty belongs to no other boot"),
    ("src/agent/actions/inspect.rs", "lines.next()", "the head of an empty file is empty"),
    ("src/agent/procfs/host_procfs.rs", "as_raw_fd()", "a descriptor is never negative"),
    ("src/agent/procfs/files.rs", "path.split(", "what is before the first NUL of nothing is nothing"),
    ("src/agent/nvml/raw.rs", "bytes.split(", "what is before the first NUL of nothing is nothing"),
    ("src/agent/nvml/physical_gpu.rs", "0..count", "places to look at, not a figure"),
    ("src/model/history/curve.rs", "resolution.width <= window.part", "the finest resolution, not a figure"),
    ("src/model/health.rs", "throttle", "what is not known to slow it down is not called so"),
];

const LONGEST_FILE: usize = 500;

/// Files that are longer still: shorten them and take them out. None may be added.
const KNOWN_LONG_FILES: &[&str] = &["src/agent/nvml.rs"];
const NAMELESS: &[&str] = &["utils", "util", "helpers", "common", "manager", "types", "misc", "traits"];

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The module at the top that the file belongs to.
    fn module(&self) -> &str {
        let below = self.path.strip_prefix("src").expect("it is one of ours");
        let first = below.iter().next().and_then(|it| it.to_str()).expect("names are UTF-8");
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Lines of code, with their numbers. Comments say what they like.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
        (1..).zip(lines).filter(|(_, line)| !line.trim().is_empty())
    }

    /// Lines of code that hold one of these words as a word.
    fn naming<'a>(&'a self, words: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
        let is_excused = |line: &str| {
            let here = |(path, words, _): &&(&str, &str, &str)| Path::new(path) == self.path && line.contains(words);
            EXCEPTIONS.iter().any(|it| here(&it))
        };
        self.code()
            .filter(move |(_, line)| words.iter().any(|word| names(line, word)) && !is_excused(line))
            .map(|(number, line)| format!("{}:{number}: {}", self.path.display(), line.trim()))
    }
}

/// Whether the line holds that word, not as a part of a longer one.
fn names(line: &str, word: &str) -> bool {
    let is_part = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
    let (first, last) = (word.chars().next(), word.chars().next_back());
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        !(is_part(first) && is_part(before) || is_part(last) && last != Some('_') && is_part(after))
    })
}

/// Every file of Rust below these directories, relative to the package.
fn sources(below: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = below.iter().map(|it| root.join(it)).collect();
    let mut sources = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).expect("it is a directory").map(|it| it.expect("it can be read").path()));
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).expect("source is UTF-8");
            sources.push(Source { path: path.strip_prefix(root).expect("it is below").to_owned(), text });
        }
    }
    assert!(!sources.is_empty());
    sources
}

fn product() -> Vec<Source> {
    sources(&["src"])
}

fn all() -> Vec<Source> {
    sources(&["src", "tests"])
}

#[track_caller]
fn check(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}\n{}\n", broken.join("\n"));
}

#[test]
fn things_stand_where_they_are_at_home() {
    for (words, homes, reason) in AT_HOME {
        let sources = product();
        let broken = sources.iter().filter(|it| !homes.contains(&it.module())).flat_map(|it| it.naming(words));
        check(&format!("only {homes:?} may name {words:?}: {reason}"), &broken.collect::<Vec<_>>());
    }
}

#[test]
fn the_core_names_no_thread_clock_or_file() {
    let sources = product();
    let broken = sources.iter().filter(|it| PURE.contains(&it.module())).flat_map(|it| it.naming(WORLDLY));
    check("time and facts come in with the data", &broken.collect::<Vec<_>>());
}

#[test]
fn nobody_sleeps() {
    let sources = all();
    let broken = sources.iter().filter(|it| !it.path.ends_with("tidy.rs")).flat_map(|it| it.naming(SLEEPS));
    check("wait for a condition: nothing is ready because time went by", &broken.collect::<Vec<_>>());
}

#[test]
fn what_could_not_be_read_is_never_made_up() {
    let sources = product();
    let reading = ["agent", "protocol", "model"];
    let broken = sources.iter().filter(|it| reading.contains(&it.module())).flat_map(|it| it.naming(MADE_UP));
    check("missing is never 0; where it is no reading, add an exception with its reason", &broken.collect::<Vec<_>>());
}

#[test]
fn the_program_does_without_the_mathematical_library() {
    let broken: Vec<_> = product()
        .iter()
        .filter(|it| !it.path.ends_with("tests.rs"))
        .flat_map(|it| it.naming(FROM_LIBM).collect::<Vec<_>>())
        .collect();
    check("the crate `libm` has the functions that are in `libm.so` otherwise", &broken);
}

#[test]
fn nothing_stands_that_should_stand_nowhere() {
    for (word, reason) in NOWHERE {
        let sources = all();
        let broken = sources.iter().filter(|it| !it.path.ends_with("tidy.rs")).flat_map(|source| {
            let lines = (1..).zip(source.text.lines()).filter(|(_, line)| line.contains(word));
            lines
                .map(|(number, line)| format!("{}:{number}: {}", source.path.display(), line.trim()))
                .collect::<Vec<_>>()
        });
        check(&format!("`{word}`: {reason}"), &broken.collect::<Vec<_>>());
    }
}

#[test]
fn each_file_has_a_head_a_name_and_a_length_that_one_can_read() {
    let mut broken = Vec::new();
    for source in all() {
        let path = source.path.display();
        if !source.text.starts_with("//! ") {
            broken.push(format!("{path} does not begin with a sentence on what it is"));
        }
        if source.text.lines().count() > LONGEST_FILE
            && !KNOWN_LONG_FILES.iter().any(|known| source.path == Path::new(known))
        {
            broken.push(format!("{path} has {} lines: split it by subject", source.text.lines().count()));
        }
        if source.path.iter().any(|it| NAMELESS.iter().any(|name| it == *name || it == format!("{name}.rs").as_str())) {
            broken.push(format!("{path}: a thing lives with its subject"));
        }
    }
    check("files", &broken);
}

#[test]
fn every_exception_is_needed_and_has_a_reason() {
    let needed = |(path, words, reason): &(&str, &str, &str)| {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default();
        text.contains(words) && !reason.is_empty()
    };
    let stale: Vec<String> = EXCEPTIONS.iter().filter(|it| !needed(it)).map(|it| format!("{it:?}")).collect();
    check("exceptions that nobody needs", &stale);
}
