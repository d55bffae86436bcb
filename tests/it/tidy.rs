//! The rules of ARCHITECTURE.md that a program can check. Its tables and those here change
//! together.
//!
//! `modules` checks which module uses which, on the module graph; `words` checks names and
//! comments; the rest of the rules are about words in lines of code.

mod module_graph;
mod module_graph_tests;
mod module_paths;
mod modules;
mod words;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that only some modules may name: the words, the modules, and the reason.
const RESTRICTED: &[(&[&str], &[&str], &str)] = &[
    (
        &["ratatui"],
        &["tui", "view"],
        "facts and intents are independent of the screen",
    ),
    (
        &["nvml_wrapper", "nvml_sys", "libloading"],
        &["agent"],
        "the viewer never calls the driver",
    ),
    (
        &["sysinfo", "\"/proc", "uzers"],
        &["agent", "files", "source"],
        "the viewer reads no facts of the host itself",
    ),
    (
        &["pidfd_"],
        &["agent", "source"],
        "the viewer itself never signals a process",
    ),
    (
        &["tokio"],
        &["commands", "logs", "source", "tui"],
        "only the edges have an event loop",
    ),
    (
        &["anyhow"],
        &["agent", "cli", "commands", "lib", "logs", "main", "tui"],
        "in the core, trouble is data, not an error",
    ),
    (
        &["clap"],
        &["cli", "commands", "flags", "logs"],
        "the flags of a subcommand are in its file; the rest gets plain options",
    ),
    (
        &["unsafe"],
        &["agent", "main", "source", "tui"],
        "only calls of C functions need it: of the driver, the allocator and the kernel",
    ),
];

/// Folders without I/O, and the words that they may not name.
const PURE: &[&str] = &["base", "protocol", "model", "app", "view"];
const IO_WORDS: &[&str] = &[
    "std::thread",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "Instant",
    "SystemTime",
    "rustix",
    "libc",
];

/// Texts that no file may contain, with the reason.
const FORBIDDEN: &[(&str, &str)] = &[
    ("#[allow", "write `expect` with a reason"),
    ("#![allow", "write `expect` with a reason"),
    ("TODO", "open an issue for unfinished work"),
    ("FIXME", "open an issue for unfinished work"),
    ("#[ignore", "every test runs"),
    ("#[should_panic", "tests check results, not panics"),
];

/// Calls that only wait for time to pass.
const SLEEPS: &[&str] = &["thread::sleep(", "time::sleep(", "nanosleep("];

/// Calls that would turn a missing reading into zero, in the folders that take and judge readings.
const ZERO_FOR_MISSING: &[&str] = &["unwrap_or(0)", "unwrap_or(0.0)", "unwrap_or_default()"];

/// Calls of `libm.so`: one of them maps that library into each process, which costs 0.2 MiB. The
/// crate `libm` does not.
const FROM_LIBM: &[&str] = &[
    ".exp()", ".hypot(", ".ln()", ".ln_1p()", ".log10()", ".powf(", ".sin()", ".cos()",
];

/// Lines that may break a rule: the file, words of the line, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "tests/fake-nvml/src/calls.rs",
        "thread::sleep(",
        "the world file asks for a delay",
    ),
    (
        "tests/fake-nvml/src/events.rs",
        "thread::sleep(",
        "NVML waits for events, and no call reports a change of the world file",
    ),
    (
        "src/logs/report/html.rs",
        "'unsafe-inline'",
        "a word of the content security policy of a page",
    ),
    (
        "src/base/terminal.rs",
        "rustix::",
        "screen and reports share the size of the terminal and the writes to it",
    ),
    (
        "src/base/terminal.rs",
        "std::env;",
        "the environment describes the terminal and the locale",
    ),
    (
        "src/base/detach.rs",
        "/proc",
        "every folder that starts gputop again needs its path",
    ),
    (
        "src/base/detach.rs",
        "Command",
        "the start of a process, which waits for nothing",
    ),
    (
        "src/base/detach.rs",
        "rustix::process",
        "the start of a process, which waits for nothing",
    ),
    (
        "src/base/detach.rs",
        "unsafe",
        "the start of a process, which waits for nothing",
    ),
    (
        "src/files/local_time.rs",
        "unsafe",
        "the time zone, which only the C library knows",
    ),
    (
        "src/notify/secret.rs",
        "unsafe",
        "the removal of a variable from the environment, before other threads run",
    ),
    (
        "src/commands/run/signals.rs",
        "unsafe",
        "the signal mask, the default actions of signals, and their delivery to a child",
    ),
    (
        "src/commands/run/group_witness.rs",
        "/proc",
        "the pending signals of a process that gputop started for that",
    ),
    (
        "src/agent/demo/processes.rs",
        "tokio",
        "a process of the simulated machine is not part of the agent",
    ),
    (
        "src/agent/clock.rs",
        "u64::try_from(time.",
        "the clock since boot is never negative",
    ),
    (
        "src/agent/clock.rs",
        "ThreadCPUTime",
        "the CPU time of a thread is never negative",
    ),
    (
        "src/agent/actions/audit.rs",
        "boot_id",
        "an empty boot ID equals no other boot ID",
    ),
    (
        "src/agent/host.rs",
        "boot_id",
        "an empty boot ID equals no other boot ID",
    ),
    (
        "src/agent/procfs/host_procfs.rs",
        "as_raw_fd()",
        "a descriptor is never negative",
    ),
    (
        "src/agent/procfs/files.rs",
        "path.split(",
        "the text before the first NUL of no bytes is empty",
    ),
    (
        "src/agent/nvml/raw.rs",
        "bytes.split(",
        "the text before the first NUL of no bytes is empty",
    ),
    (
        "src/agent/nvml/mig_instances.rs",
        "0..count",
        "the number of slots to try, not a reading",
    ),
    (
        "src/model/history/curve.rs",
        ".unwrap_or(0)",
        "the index of the finest resolution, not a reading",
    ),
    (
        "src/model/recorded_clock.rs",
        ".unwrap_or(0)",
        "without a time zone, times are UTC",
    ),
    (
        "src/model/health.rs",
        "throttle",
        "an unknown throttle reason is not shown",
    ),
];

/// The most lines of a file.
const LONGEST_FILE: usize = 700;

/// Names that do not say what is in a file or folder.
const VAGUE_NAMES: &[&str] = &[
    "utils", "util", "helpers", "common", "manager", "types", "misc", "traits",
];

/// A file of Rust, with its path in the package.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// Returns the folder in `src` that the file belongs to, or the name of a file in `src`.
    fn module(&self) -> &str {
        let path = self.path.strip_prefix("src").expect("a file of src");
        let first = path
            .iter()
            .next()
            .and_then(|name| name.to_str())
            .expect("names are UTF-8");
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Returns whether this is the file with the tables of forbidden words.
    fn is_this(&self) -> bool {
        self.path.ends_with("tidy.rs")
    }

    /// Returns the lines of code without comments, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
        (1..).zip(lines).filter(|(_, line)| !line.trim().is_empty())
    }

    /// Returns the lines that name one of these words and are no exception, for a message.
    fn naming<'a>(&'a self, words: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
        let is_exception = |line: &str| {
            let here = |(path, words, _): &&(&str, &str, &str)| {
                Path::new(path) == self.path && line.contains(words)
            };
            EXCEPTIONS.iter().any(|exception| here(&exception))
        };
        self.code()
            .filter(move |(_, line)| {
                words.iter().any(|word| names(line, word)) && !is_exception(line)
            })
            .map(|(number, line)| format!("{}:{number}: {}", self.path.display(), line.trim()))
    }
}

/// Returns whether a line has a word that is not part of a longer word.
fn names(line: &str, word: &str) -> bool {
    let is_part = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    let (first, last) = (word.chars().next(), word.chars().next_back());
    line.match_indices(word).any(|(offset, _)| {
        let (before, after) = (
            line[..offset].chars().next_back(),
            line[offset + word.len()..].chars().next(),
        );
        !(is_part(first) && is_part(before) || is_part(last) && last != Some('_') && is_part(after))
    })
}

/// Returns every file of Rust in these directories of the package and their subdirectories.
fn sources(directories: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = directories
        .iter()
        .map(|directory| root.join(directory))
        .collect();
    let mut sources = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("the directory can be read");
            paths.extend(entries.map(|entry| entry.expect("the directory can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("source is UTF-8");
            sources.push(Source {
                path: path
                    .strip_prefix(root)
                    .expect("a file of the package")
                    .to_owned(),
                text,
            });
        }
    }
    assert!(!sources.is_empty());
    sources
}

fn product() -> Vec<Source> {
    sources(&["src"])
}

fn all() -> Vec<Source> {
    sources(&["src", "tests", "benches"])
}

#[track_caller]
fn check(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}\n{}\n", broken.join("\n"));
}

#[test]
fn restricted_words_are_named_only_where_they_may() {
    for (words, modules, reason) in RESTRICTED {
        let sources = product();
        let broken = sources
            .iter()
            .filter(|source| !modules.contains(&source.module()));
        let broken = broken.flat_map(|source| source.naming(words));
        check(
            &format!("only {modules:?} may name {words:?}: {reason}"),
            &broken.collect::<Vec<_>>(),
        );
    }
}

#[test]
fn folders_without_io_name_no_thread_clock_or_file() {
    let sources = product();
    let broken = sources
        .iter()
        .filter(|source| PURE.contains(&source.module()));
    let broken = broken.flat_map(|source| source.naming(IO_WORDS));
    check(
        "time and facts arrive with the data",
        &broken.collect::<Vec<_>>(),
    );
}

#[test]
fn no_code_sleeps() {
    let sources = all();
    let broken = sources
        .iter()
        .filter(|source| !source.is_this())
        .flat_map(|source| source.naming(SLEEPS));
    check(
        "wait for a condition: nothing is ready because time passed",
        &broken.collect::<Vec<_>>(),
    );
}

#[test]
fn a_missing_reading_is_never_zero() {
    let sources = product();
    let folders = ["agent", "protocol", "model"];
    let broken = sources
        .iter()
        .filter(|source| folders.contains(&source.module()));
    let broken = broken.flat_map(|source| source.naming(ZERO_FOR_MISSING));
    check(
        "a missing reading is never 0; for other values, add an exception with its reason",
        &broken.collect::<Vec<_>>(),
    );
}

#[test]
fn the_program_does_not_call_libm_so() {
    let broken: Vec<_> = product()
        .iter()
        .filter(|source| !source.path.ends_with("tests.rs"))
        .flat_map(|source| source.naming(FROM_LIBM).collect::<Vec<_>>())
        .collect();
    check("call the function of the crate `libm`", &broken);
}

#[test]
fn no_file_contains_a_forbidden_text() {
    for (word, reason) in FORBIDDEN {
        let sources = all();
        let broken = sources
            .iter()
            .filter(|source| !source.is_this())
            .flat_map(|source| {
                let lines = (1..)
                    .zip(source.text.lines())
                    .filter(|(_, line)| line.contains(word));
                lines
                    .map(|(number, line)| {
                        format!("{}:{number}: {}", source.path.display(), line.trim())
                    })
                    .collect::<Vec<_>>()
            });
        check(&format!("`{word}`: {reason}"), &broken.collect::<Vec<_>>());
    }
}

#[test]
fn each_file_begins_with_its_purpose_and_is_short_and_well_named() {
    let mut broken = Vec::new();
    for source in all() {
        let path = source.path.display();
        if !source.text.starts_with("//! ") {
            broken.push(format!("{path} does not begin with `//! ` and its purpose"));
        }
        if source.text.lines().count() > LONGEST_FILE {
            broken.push(format!(
                "{path} has {} lines: split it by subject",
                source.text.lines().count()
            ));
        }
        let is_vague = |part: &OsStr| {
            VAGUE_NAMES
                .iter()
                .any(|name| part == *name || part == format!("{name}.rs").as_str())
        };
        if source.path.iter().any(is_vague) {
            broken.push(format!("{path}: name it after its subject"));
        }
    }
    check(
        "every file states its purpose, is short, and is named after its subject",
        &broken,
    );
}

#[test]
fn every_python_file_of_the_probe_is_in_the_binary() {
    const LIST: &str = "src/files/probe_files.rs";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join(LIST)).expect("the list exists");
    let probe = root.join("assets/probe");
    let mut folders = vec![probe.clone()];
    let mut missing = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
        {
            let path = entry.path();
            let is_python = path.extension().is_some_and(|extension| extension == "py");
            let name = path
                .strip_prefix(&probe)
                .expect("a file of the probe")
                .display()
                .to_string();
            if path.is_dir() {
                folders.push(path);
            } else if is_python && !list.contains(&format!("\"{name}\"")) {
                missing.push(name);
            }
        }
    }
    check(
        &format!("add these files of assets/probe to `probe_files!` in {LIST}, without commas"),
        &missing,
    );
}

/// A file without a folder is in the folder that was named before it.
#[test]
fn every_path_that_the_architecture_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page exists");
    let (mut missing, mut folder) = (Vec::new(), root.to_owned());
    // Every second part stands between backticks.
    for name in text.split('`').skip(1).step_by(2) {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if name.starts_with('/') || !name.bytes().all(is_letter) {
            continue;
        }
        let endings = [".rs", ".txt", ".md", ".toml", ".css", ".py", "/"];
        let is_path = endings.iter().any(|ending| name.ends_with(ending));
        let places = [root.join("src").join(name), root.join(name)];
        match places.iter().find(|place| place.exists()) {
            Some(place) if place.is_dir() => folder.clone_from(place),
            Some(place) => folder = place.parent().expect("a file has a folder").to_owned(),
            None if folder.join(name).exists() => {}
            None if is_path => missing.push(name.to_owned()),
            None => {}
        }
    }
    check(
        "ARCHITECTURE.md names these paths, and nothing is there",
        &missing,
    );
}

#[test]
fn every_exception_is_needed_and_has_a_reason() {
    let is_needed = |(path, words, reason): &(&str, &str, &str)| {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
            .unwrap_or_default();
        text.contains(words) && !reason.is_empty()
    };
    let stale: Vec<String> = EXCEPTIONS
        .iter()
        .filter(|exception| !is_needed(exception))
        .map(|exception| format!("{exception:?}"))
        .collect();
    check("these exceptions are not needed", &stale);
}
