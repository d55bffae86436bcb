//! The contents of packages beside the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::run;

fn repository_file(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The crates that `THIRD-PARTY-LICENSES` names, as `name version`.
fn licensed_crates() -> BTreeSet<String> {
    let text = repository_file("THIRD-PARTY-LICENSES");
    let list = text.split("====").next().unwrap_or_default();
    list.lines()
        .filter_map(|line| line.split_once(" ("))
        .filter(|(words, _)| words.split(' ').count() == 2)
        .map(|(words, _)| words.to_owned())
        .collect()
}

#[test]
fn third_party_licences_are_those_of_the_crates_that_are_linked() {
    const ADVICE: &str = "run python3 .ci/licenses.py";
    let licensed = licensed_crates();
    let output = run(Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges=normal",
            "--prefix=none",
        ]));
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.text();
    let linked: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with("gputop "))
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            Some(format!("{name} {version}"))
        })
        .collect();
    assert!(linked.len() > 100, "{text}");
    let without: Vec<&String> = linked.difference(&licensed).collect();
    assert!(without.is_empty(), "no licence of {without:?}: {ADVICE}");

    let lock = repository_file("Cargo.lock");
    let gone: Vec<&String> = licensed
        .iter()
        .filter(|entry| {
            let (name, version) = entry.split_once(' ').unwrap_or_default();
            !lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n"))
        })
        .collect();
    assert!(gone.is_empty(), "{gone:?} are no longer used: {ADVICE}");
}
