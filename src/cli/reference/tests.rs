//! Tests that compare the tables with what the program reads, in its source, and the examples of the
//! help with what it takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use super::*;
use crate::app::settings::Settings;
use crate::cli::Cli;

/// The words in capitals of files that read variables which are no variable of gputop's.
const NO_VARIABLES: &[(&str, &str)] = &[
    ("CARGO_PKG_VERSION", "read by the compiler"),
    (
        "SLURMD_",
        "a beginning of variables, which a row of another one names",
    ),
    ("SLURM_", "the same"),
    ("SRUN_", "the same"),
];

/// Returns the files below a folder of the repository with one of these endings, and their text
/// without tests.
fn sources(folder: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut waiting = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_test = path.file_stem().is_some_and(|stem| {
            let stem = stem.to_string_lossy();
            stem == "tests" || stem.ends_with("_tests")
        }) || path.iter().any(|part| part == "tests");
        if !is_test && ending.is_some_and(|ending| endings.contains(&ending)) {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            found.push((path, code.to_owned()));
        }
    }
    found
}

/// The words between double quotes in a line of code.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// Whether a word may be the name of a variable.
fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.len() > 2
        && word
            .chars()
            .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
}

/// The variables that the program, the probe, and the scripts on other hosts read or set for another
/// process of gputop.
fn variables_in_source() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code = sources("src", &["rs"]);
    for (path, text) in &code {
        if path.ends_with("cli/reference.rs") {
            continue;
        }
        let reads_variables = text.contains("env::var");
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("//") {
                continue;
            }
            // clap's names of values are in capitals, too.
            let reads = reads_variables && !line.contains("value_name");
            let names_one = line.contains("VARIABLE: &str = ");
            let words = literals(line).filter(|word| is_name(word));
            let words = words.filter(|word| word.starts_with("GPUTOP_") || reads || names_one);
            found.extend(words.map(str::to_owned));
            if line.contains("temp_dir()") {
                found.insert("TMPDIR".to_owned());
            }
            // A variable whose name is a constant of another file.
            for call in ["env::var(", "env::var_os("] {
                let Some((_, argument)) = line.split_once(call) else {
                    continue;
                };
                let constant = argument.split([')', ',']).next().unwrap();
                let constant = constant.rsplit("::").next().unwrap();
                if is_name(constant) {
                    found.insert(constant_in(text, &code, constant));
                }
            }
        }
    }
    for (_, text) in sources("assets/probe", &["py"]) {
        for line in text.lines().filter(|line| line.contains("environ")) {
            let words = line.split(['"', '\'']).filter(|word| is_name(word));
            found.extend(words.map(str::to_owned));
        }
    }
    for (_, text) in sources("assets/remote", &["sh"]) {
        let code = text.lines().filter(|line| !line.starts_with('#'));
        for after in code.flat_map(|line| line.split('$').skip(1)) {
            let name = after.trim_start_matches('{');
            let end = name.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
            let name = &name[..end.unwrap_or(name.len())];
            if is_name(name) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// Returns the text of a constant: of the same file, else of any. A constant may be another one.
fn constant_in(text: &str, code: &[(PathBuf, String)], constant: &str) -> String {
    let declared = format!("const {constant}: &str = ");
    let others = code.iter().map(|(_, text)| text.as_str());
    let value = std::iter::once(text)
        .chain(others)
        .find_map(|text| text.split_once(&declared))
        .unwrap_or_else(|| panic!("{constant} is declared nowhere"))
        .1;
    match value.strip_prefix('"') {
        Some(value) => value.split('"').next().unwrap().to_owned(),
        None => {
            let path = value.split(';').next().unwrap();
            constant_in("", code, path.rsplit("::").next().unwrap())
        }
    }
}

/// All words of the first column of a table.
fn listed(table: &[(&'static str, &'static str)]) -> BTreeSet<String> {
    let names = table.iter().flat_map(|(names, _)| names.split(", "));
    names.map(str::to_owned).collect()
}

#[test]
fn the_variables_are_those_that_the_source_reads() {
    let mut read = variables_in_source();
    for (word, _) in NO_VARIABLES {
        assert!(read.remove(*word), "{word} is not in the source");
    }
    // Readers take both spellings of some.
    let spelled: BTreeSet<String> = listed(VARIABLES)
        .into_iter()
        .map(|name| name.to_uppercase())
        .collect();
    let unlisted: Vec<&String> = read.difference(&spelled).collect();
    assert_eq!(unlisted, [""; 0], "read and not listed in VARIABLES");
    // A crate reads the first two, and the probe the others, from a list.
    let elsewhere = [
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "PYTORCH_NO_HIP_MEMORY_CACHING",
    ]
    .map(str::to_owned);
    let is_unread = |name: &String| !name.starts_with(ALERT) && !elsewhere.contains(name);
    let unread: Vec<&String> = spelled
        .difference(&read)
        .filter(|name| is_unread(name))
        .collect();
    assert_eq!(unread, [""; 0], "listed in VARIABLES and read nowhere");
}

/// The beginning of the variables that describe an alert.
const ALERT: &str = "GPUTOP_ALERT_";

#[test]
fn the_variables_of_an_alert_are_those_that_the_source_sets() {
    let mut set =
        BTreeSet::from(["GPUTOP_ALERT_PHASE", "GPUTOP_ALERT_SENTENCE"].map(str::to_owned));
    let of_alerts = |(path, _): &&(PathBuf, String)| {
        path.ends_with("fleet/alerts.rs") || path.ends_with("fleet/told_news.rs")
    };
    let code = sources("src/app/fleet", &["rs"]);
    for (_, text) in code.iter().filter(of_alerts) {
        let facts = literals(text).filter(|word| is_name(word));
        set.extend(facts.map(|fact| format!("{ALERT}{fact}")));
    }
    let listed: BTreeSet<String> = listed(VARIABLES)
        .into_iter()
        .filter(|name| name.starts_with(ALERT))
        .collect();
    assert_eq!(set, listed);
}

#[test]
fn the_files_are_those_of_the_source() {
    let text = FILES
        .iter()
        .map(|(names, _)| *names)
        .collect::<Vec<_>>()
        .join("\n");
    let mut checked = 0;
    for (path, code) in sources("src", &["rs"]) {
        if path.ends_with("files/folders.rs") {
            for line in code.lines() {
                for variable in literals(line).filter(|word| word.starts_with("XDG_")) {
                    assert!(text.contains(variable), "{variable} of {}", path.display());
                    checked += 1;
                }
            }
            continue;
        }
        for call in ["state_file(", "recording_file("] {
            for after in code.split(call).skip(1) {
                let argument = after.split(')').next().unwrap();
                let name = match argument.trim_matches('"') {
                    "FILE" => constant_in(&code, &[], "FILE"),
                    name if argument.starts_with('"') => name.to_owned(),
                    _ => continue,
                };
                assert!(text.contains(&name), "{name} of {}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 8, "only {checked} files were found in the source");
}

/// Whether a table names a word, as a whole.
fn names(table: &[(&str, &str)], word: &str) -> bool {
    table
        .iter()
        .any(|(names, _)| names.split(", ").any(|name| name == word))
}

#[test]
fn every_variable_of_a_flag_is_listed() {
    let command = Cli::command();
    let variables = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str());
    let missing: Vec<&str> = variables
        .filter(|variable| !names(VARIABLES, variable))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// The tables of the settings file, and the file in `src/config/` with the constant that has their
/// keys.
const TABLES: &[(&str, &str, &str)] = &[
    ("[ssh]", "host_tables.rs", "SSH_KEYS"),
    ("[[launchers]]", "launcher_lines.rs", "KEYS"),
    ("[notify.NAME]", "notify_tables.rs", "KEYS"),
];

#[test]
fn every_key_of_a_table_of_the_settings_file_is_listed() {
    for (table, file, constant) in TABLES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/config")
            .join(file);
        let code = fs::read_to_string(path).unwrap();
        let (_, keys) = code.split_once(&format!("const {constant}: ")).unwrap();
        let (_, keys) = keys.split_once('=').unwrap();
        let (keys, _) = keys.split_once(';').unwrap();
        let (_, purpose) = SETTINGS.iter().find(|(names, _)| names == table).unwrap();
        let mut count = 0;
        for key in literals(keys) {
            assert!(
                purpose.contains(&format!("`{key}`")),
                "{key} of {table}: {purpose}"
            );
            count += 1;
        }
        assert!(count > 2, "{table} has {count} keys in {file}");
    }
}

#[test]
fn every_setting_is_listed_and_no_other_is() {
    let known = SETTINGS.iter().flat_map(|(names, _)| names.split(", "));
    let known: Vec<&str> = known
        .filter(|name| {
            ![
                "mouse",
                "ascii",
                "history",
                "[hosts]",
                "[host.NAME]",
                "[ssh]",
                "[colors]",
                "[[launchers]]",
                "[notify.NAME]",
            ]
            .contains(name)
        })
        .collect();
    assert!(
        known.iter().all(|name| Settings::form(name).is_some()),
        "{known:?}"
    );
    assert_eq!(known.len(), Settings::COUNT);
    // The help and the manual page are made of these rows.
    assert!(after_help().contains("[colors]"));
    assert!(after_help().contains("[[launchers]]"));
    assert!(after_help().contains("[notify.NAME]"));
}

/// Returns all subcommands that the help names, each with the words that call it.
fn subcommands(command: &Command, before: &str) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    for task in command.get_subcommands() {
        if task.is_hide_set() || task.get_name() == "help" {
            continue;
        }
        let words = format!("{before} {}", task.get_name());
        found.extend(subcommands(task, &words));
        found.push((words, task.clone()));
    }
    found
}

/// Splits a command line as a shell does, up to the first operator.
fn words_of(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            '|' | '>' | '&' if !is_quoted => break,
            ' ' if !is_quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn the_help_of_each_subcommand_ends_with_examples_that_are_right() {
    let tasks = subcommands(&Cli::command(), "gputop");
    assert!(tasks.len() > 25, "{} subcommands", tasks.len());
    for (words, mut task) in tasks {
        let help = task.render_long_help().to_string();
        let Some((before, examples)) = help.split_once("\nExamples:\n") else {
            panic!("the help of {words} has no examples: add `before_help` with `help_template`");
        };
        assert!(before.contains("Usage:"), "{words}: {help}");
        let mut count = 0;
        for example in examples.lines().filter(|line| !line.is_empty()) {
            // A pipe may begin with another program.
            let call = example.split(" | ").find(|call| call.contains(&words));
            let call = call.unwrap_or_else(|| panic!("{words}: {example}"));
            let parsed = Cli::try_parse_from(words_of(call.trim_start()));
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            count += 1;
        }
        assert!(count > 0, "{words}");
    }
}

#[test]
fn the_help_of_each_subcommand_with_codes_of_its_own_lists_them() {
    let listed: BTreeSet<String> = subcommands(&Cli::command(), "gputop")
        .into_iter()
        .filter(|(_, task)| {
            let end = task.get_after_help().map(ToString::to_string);
            end.is_some_and(|end| end.contains("Exit codes"))
        })
        .map(|(words, _)| words)
        .collect();
    let expected = [
        "analyze", "doctor", "explain", "free", "idle", "leaks", "ooms", "orphans", "report",
        "run", "snapshot", "tensors", "wait",
    ];
    let expected: BTreeSet<String> = expected.map(|name| format!("gputop {name}")).into();
    assert_eq!(listed, expected);
}

#[test]
fn only_the_flags_that_name_hosts_stand_under_other_hosts() {
    let named = [
        "host",
        "hosts",
        "slurm",
        "srun",
        "via",
        "no_upload",
        "local",
    ];
    let mut checked = 0;
    let mut tasks = subcommands(&Cli::command(), "gputop");
    tasks.push(("gputop".to_owned(), Cli::command()));
    for (words, task) in tasks {
        let under = task
            .get_arguments()
            .filter(|argument| argument.get_help_heading() == Some("Other hosts"));
        let under: Vec<&str> = under.map(|argument| argument.get_id().as_str()).collect();
        if !under.is_empty() {
            assert_eq!(under, named, "{words}");
            checked += 1;
        }
    }
    assert!(checked > 5, "{checked} commands take other hosts");
}
