//! The contents of packages beside the program, and `install.sh`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::host::Host;
use crate::process::{Output, run};

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

/// The value of a key in Cargo.toml.
fn cargo_value(key: &str) -> String {
    let manifest = repository_file("Cargo.toml");
    let found = manifest
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{key} = \"")))
        .expect("the key has a value");
    found.trim_end_matches('"').to_owned()
}

/// The text of `install.sh` for a release at an address.
fn install_script(repository: &str) -> String {
    repository_file("packaging/install.sh")
        .replace("@REPOSITORY@", repository)
        .replace("@VERSION@", "0.1.0")
}

/// Runs `install.sh` on a host whose `curl` takes files from the host's folder `release`.
fn run_install_script(host: &Host, text: &str) -> Output {
    let script = host.install_script("install.sh", text);
    host.install_script(
        "curl",
        "#!/bin/sh\nwhile [ \"$1\" != --output ]; do shift; done\n\
         case $3 in https://example.org/gputop/releases/download/0.1.0/*) ;; *) exit 22 ;; esac\n\
         exec cp \"$(dirname \"$0\")/release/${3##*/}\" \"$2\"\n",
    );
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    host.set_environment(command.arg(script))
        .env("PATH", format!("{}:{path}", host.path("").display()))
        .env("HOME", host.path("home"));
    run(&mut command)
}

/// Writes a release with this program to the host's folder `release`.
fn make_release(host: &Host) {
    let script = "name=gputop-0.1.0-$(uname -m)-unknown-linux-gnu\n\
         mkdir -p $name/bin $name/lib/systemd/user $name/share/man/man1 release\n\
         ln -s \"$GPUTOP\" $name/bin/gputop\n\
         touch $name/lib/systemd/user/gputop-record.service $name/share/man/man1/gputop.1.gz\n\
         tar -czf release/$name.tar.gz $name\n\
         cd release; sha256sum *.tar.gz > SHA256SUMS";
    let output = run(Command::new("sh")
        .args(["-ec", script])
        .current_dir(host.path(""))
        .env("GPUTOP", env!("CARGO_BIN_EXE_gputop")));
    assert_eq!(output.code, 0, "{}", output.stderr);
}

#[test]
fn install_script_refuses_to_run_before_the_project_has_an_address() {
    let host = Host::new([]);
    let unfilled = repository_file("packaging/install.sh");
    let mut texts = vec![unfilled, install_script("https://example.invalid/gputop")];
    let address = cargo_value("repository");
    if address.contains(".invalid") {
        texts.push(install_script(&address));
    }
    for text in texts {
        let output = run_install_script(&host, &text);
        assert_eq!(output.code, 1, "{}", output.text());
        assert!(
            output.stderr.contains("no address to download from yet"),
            "{}",
            output.stderr
        );
    }
    assert!(!host.path("home").exists());
}

#[test]
fn install_script_says_where_gputop_is_and_its_last_lines_remove_it() {
    let host = Host::new([]);
    make_release(&host);
    let output = run_install_script(&host, &install_script("https://example.org/gputop"));
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    let program = host.path("home/.local/bin/gputop");
    let text = output.text();
    assert!(
        text.contains(&format!("is in {}", program.display())),
        "{text}"
    );
    assert!(text.contains("is not in PATH"), "{text}");
    let version = run(Command::new(&program).arg("--version"));
    assert!(version.text().starts_with("gputop "), "{}", version.text());
    let (_, remove) = text.split_once("To remove it:\n").expect("it says how");
    // This release has fewer files than a real one.
    let remove = remove.replace("rm -r", "rm -rf");
    let removed = run(Command::new("sh").args(["-c", &remove]));
    assert_eq!(removed.code, 0, "{}", removed.stderr);
    let left = run(Command::new("find")
        .arg(host.path("home"))
        .args(["-type", "f,l"]));
    assert_eq!(left.text(), "");
}

#[test]
fn install_script_installs_nothing_whose_hash_is_another() {
    let host = Host::new([]);
    make_release(&host);
    let sums = host.path("release/SHA256SUMS");
    let name = fs::read_to_string(&sums).expect("the release has hashes");
    let name = name.split("  ").last().unwrap_or_default().to_owned();
    fs::write(&sums, format!("{}  {name}", "0".repeat(64))).expect("/tmp has room");
    let output = run_install_script(&host, &install_script("https://example.org/gputop"));
    assert_eq!(output.code, 1, "{}", output.text());
    assert!(
        output.stderr.contains("nothing was installed"),
        "{}",
        output.stderr
    );
    fs::write(&sums, "").expect("/tmp has room");
    let output = run_install_script(&host, &install_script("https://example.org/gputop"));
    assert!(output.stderr.contains("does not name"), "{}", output.stderr);
    assert!(!host.path("home").exists());
}

#[test]
fn systemd_unit_starts_the_gputop_that_the_install_script_installs() {
    let host = Host::new([]);
    fs::create_dir_all(host.path("home/.local/bin")).expect("/tmp has room");
    let program = host.install_script("home/.local/bin/gputop", "#!/bin/sh\necho \"$0 $*\"\n");
    let unit = repository_file("assets/gputop-record.service");
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .expect("the unit starts a program")
        .replace("%h", &host.path("home").display().to_string())
        .replace("${PATH}", "/usr/local/bin:/usr/bin");
    let mut words = command.split(' ');
    let output = run(Command::new(words.next().unwrap_or_default()).args(words));
    assert_eq!(
        output.text().trim(),
        format!("{} record", program.display()),
        "{}",
        output.stderr
    );
}

#[test]
fn only_cargo_toml_names_the_home_of_the_project() {
    let placeholder = ["gputop", ".invalid"].concat();
    let address = cargo_value("repository");
    assert_eq!(cargo_value("homepage"), address);
    let output = run(Command::new("grep")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "--recursive",
            "--files-with-matches",
            "--binary-files=without-match",
        ])
        .args([
            "--exclude-dir=target",
            "--exclude-dir=.git",
            "--fixed-strings",
        ])
        .args(["-e", &placeholder, "-e", &address, "."]));
    let text = output.text();
    let files: Vec<&str> = text.lines().collect();
    assert_eq!(files, ["./Cargo.toml"], "{}", output.stderr);

    // `.ci/source` and `.ci/release` fill these in.
    let output = run(Command::new("grep")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["-rhoE", "@[A-Z0-9_]+@", "packaging"]));
    let words: BTreeSet<String> = output.text().lines().map(str::to_owned).collect();
    let known = ["@REPOSITORY@", "@SHA256@", "@VERSION@"].map(str::to_owned);
    assert_eq!(words, BTreeSet::from(known));
}

#[test]
fn python_module_reads_gputop_and_says_what_is_wrong_with_it() {
    let host = Host::new(["H100"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/module_check.py");
    let mut command = Command::new("python3");
    host.set_environment(command.arg(script))
        .env("GPUTOP", env!("CARGO_BIN_EXE_gputop"));
    let output = run(&mut command);
    let text = output.text();
    assert_eq!(output.code, 0, "{text}{}", output.stderr);
    assert!(text.contains(" checks, 0 failed"), "{text}");
}
