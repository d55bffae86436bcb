//! Checks that no file of a real run identifies its machine or a person. The rules go by shape, so
//! they hold for files that nobody has read.

use super::*;

/// Runs on real GPUs, one folder each.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/real")
}

/// Returns the text of each file below the folder, recordings without compression.
fn files_below(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            files.extend(files_below(&path));
            continue;
        }
        let mut bytes = fs::read(&path).expect("a file can be read");
        if path.extension().is_some_and(|ending| ending == "zst") {
            bytes = zstd::decode_all(&bytes[..]).expect("a recording is compressed");
        }
        let text = String::from_utf8(bytes).expect("the files are text");
        files.push((path, text));
    }
    files
}

/// Returns the words of a text that consist of these characters.
fn words(text: &str, is_part: fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |letter| !is_part(letter))
        .filter(|word| !word.is_empty())
}

/// Returns the lengths of the parts of a word.
fn lengths(word: &str, separators: &[char]) -> Vec<usize> {
    word.split(separators).map(str::len).collect()
}

/// Whether a word is a UUID; `GPU-` may stand before it.
fn is_uuid(word: &str) -> bool {
    let word = word.trim_start_matches("GPU-").trim_start_matches("MIG-");
    lengths(word, &['-']) == [8, 4, 4, 4, 12]
        && words(word, |letter| letter != '-')
            .all(|part| part.chars().all(|c| c.is_ascii_hexdigit()))
}

fn is_uuid_stand_in(word: &str) -> bool {
    let word = word.trim_start_matches("GPU-").trim_start_matches("MIG-");
    word.starts_with("000000") && word[8..].starts_with("-0000-4000-8000-0000000000")
}

/// Whether a word is a PCI address with its domain.
fn is_bus_id(word: &str) -> bool {
    [[8, 2, 2, 1], [4, 2, 2, 1]]
        .contains(&lengths(word, &[':', '.'])[..].try_into().unwrap_or([0; 4]))
}

/// Returns what a text says that only one machine or person has.
fn traces(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let uuids = words(text, |letter| {
        letter.is_ascii_alphanumeric() || letter == '-'
    });
    found.extend(
        uuids
            .filter(|word| is_uuid(word) && !is_uuid_stand_in(word))
            .map(|word| format!("UUID {word}")),
    );
    let addresses = words(text, |letter| {
        letter.is_ascii_hexdigit() || [':', '.'].contains(&letter)
    });
    found.extend(
        addresses
            .filter(|word| {
                is_bus_id(word) && !(word.starts_with("0000") && word.ends_with(":00.0"))
            })
            .map(|word| format!("bus id {word}")),
    );
    let numbers = words(text, |letter| letter.is_ascii_digit() || letter == '.');
    found.extend(
        numbers
            .filter(|word| {
                let parts: Vec<_> = word.split('.').map(str::parse::<u8>).collect();
                parts.len() == 4 && parts.iter().all(Result::is_ok) && !word.starts_with("192.0.2.")
            })
            .map(|word| format!("network address {word}")),
    );
    found.extend(
        paths(text)
            .filter(|path| !is_harmless(path))
            .map(|path| format!("path {path}")),
    );
    found.extend(
        words(text, |letter| letter.is_ascii_alphanumeric())
            .filter(|word| word.starts_with("0x") && word.len() == 18)
            .filter(|word| !word.starts_with("0x000000000000"))
            .map(|word| format!("device identity {word}")),
    );
    for word in ["@", "://", "/home/", "/Users/", "localhost"] {
        found.extend(text.contains(word).then(|| word.to_owned()));
    }
    found
}

/// Returns each absolute path of a text.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/._+-".contains(letter);
    words(text, is_part).filter(|word| word.starts_with('/') && word.len() > 2)
}

/// Whether a path has nothing but letters `x` for folders, and a stand-in or a known program.
fn is_harmless(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or_default();
    let has_stand_ins = folders.chars().all(|letter| ['x', '/'].contains(&letter));
    let is_program = [
        "name",
        "python",
        "gputop",
        "t1.py",
        "loader.py",
        "oomtest.py",
    ]
    .iter()
    .any(|known| name.starts_with(known));
    // `72W /  700W` and `KB/s` are no paths.
    has_stand_ins && is_program || path.starts_with("/dev/nvidia") || path == "/s"
}

#[test]
fn no_file_of_a_real_run_identifies_its_machine() {
    let files = files_below(&folder());
    assert!(files.len() > 10, "{files:?}");
    for (path, text) in files {
        let found = traces(&text);
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

/// Names and arguments of a recording are those of the run's own programs, or stand-ins.
#[test]
fn names_and_arguments_of_a_real_run_are_stand_ins() {
    let is_stand_in = |word: &str, kind: &str| {
        word.strip_prefix(kind).is_some_and(|number| {
            number
                .split('.')
                .next()
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
    };
    let mut commands = 0;
    for (path, text) in files_below(&folder()) {
        for line in text.lines().filter(|line| line.starts_with("{\"kind\"")) {
            let line: Value = serde_json::from_str(line).expect("lines are JSON");
            let name = &line["host"]["facts"]["name"];
            assert!(
                name.is_null() || name.as_str().is_some_and(|name| is_stand_in(name, "host")),
                "{}: {name}",
                path.display()
            );
            for process in line["processes"].as_array().into_iter().flatten() {
                let user = &process["facts"]["user"];
                assert!(
                    user.is_null()
                        || user == "root"
                        || user.as_str().is_some_and(|user| is_stand_in(user, "user")),
                    "{}: {user}",
                    path.display()
                );
                let words = process["facts"]["argv"].as_array();
                let words: Vec<&str> = words
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let Some((program, arguments)) = words.split_first() else {
                    continue;
                };
                commands += 1;
                let own = ["python3", "gputop", "nvidia-smi"];
                if !own.iter().any(|own| program.ends_with(own)) {
                    assert!(
                        arguments.iter().all(|argument| {
                            let name = argument.trim_start_matches(['x', '/']);
                            is_stand_in(name, "word") || is_stand_in(name, "name")
                        }),
                        "{}: {words:?}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(commands > 10, "only {commands} command lines were read");
}

#[test]
fn the_rules_find_what_they_look_for() {
    for (text, expected) in [
        ("GPU-12345678-1111-2222-3333-444455556666", "UUID"),
        ("| 00000000:1B:04.0 Off |", "bus id"),
        ("\"pci_bus_id\":\"0000:1b:04.1\"", "bus id"),
        ("--addr 10.20.30.40", "network address"),
        ("/opt/venv/bin/python3", "path"),
        ("/xxx/anna", "path"),
        ("GPU PDI : 0x1122334455667788", "device identity"),
        ("ssh anna@gpu-02", "@"),
    ] {
        let found = traces(text);
        assert!(
            found.iter().any(|trace| trace.starts_with(expected)),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn the_tool_replaces_what_its_tables_show() {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/anonymize.py");
    let output = run(Command::new("python3").arg(tool).arg("--check-examples"));
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output.text().ends_with("examples are right\n"),
        "{}",
        output.text()
    );
}
