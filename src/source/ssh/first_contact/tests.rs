//! Tests of the first command on a host, with the shells that this machine has.

#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;

/// The login shells that the command is for, each with its arguments before the command.
const LOGIN_SHELLS: &[&[&str]] = &[
    &["bash", "-c"],
    &["dash", "-c"],
    &["zsh", "-c"],
    &["fish", "-c"],
    &["tcsh", "-c"],
    &["ksh", "-c"],
    &["mksh", "-c"],
    &["busybox", "ash", "-c"],
];

/// The programs that may be `sh` on a host, each with its arguments.
const SYSTEM_SHELLS: &[&[&str]] = &[
    &["dash", "-c"],
    &["bash", "--posix", "-c"],
    &["busybox", "sh", "-c"],
    &["ksh", "-c"],
    &["mksh", "-c"],
];

const NONCE: &str = "0123456789abcdef";

fn agent() -> AgentOptions {
    AgentOptions {
        interval: Duration::from_millis(1500),
        nvml_lib: None,
        demo: SimulatedMachine::None,
        readonly: true,
        detail: false,
        only: Vec::new(),
        shares_lines: false,
    }
}

fn command(uploaded: Option<&str>, gpu_fields: Option<&str>) -> String {
    let request = ContactRequest {
        agent: &agent(),
        uploaded,
        gpu_fields,
    };
    let words = contact_words(NONCE, &request);
    script::FIRST_CONTACT.command(&[], words.iter().map(String::as_str))
}

fn is_installed(program: &str) -> bool {
    let is_there = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).exists());
    if !is_there {
        println!("not tested with {program}, which is not installed");
    }
    is_there
}

/// Whether the system has no gputop, which the script would find first.
fn has_no_gputop() -> bool {
    let installed = ["/usr/bin/gputop", "/usr/local/bin/gputop"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    if let Some(path) = installed {
        println!("not tested, because {path} is installed");
    }
    installed.is_none()
}

/// Writes a program that is a shell script.
fn write_program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

/// A gputop that prints its arguments as an agent.
fn write_gputop(path: &Path) {
    write_program(
        path,
        r#"[ "$1" = --version ] && echo gputop 9.8.7 || echo "arguments: $*""#,
    );
}

/// Runs a command in a shell whose home is this folder. Returns the marker, and the text after it.
#[track_caller]
fn run(shell: &[&str], command: &str, home: &Path) -> (FirstContact, String) {
    let mut start = Command::new(shell[0]);
    start
        .args(&shell[1..])
        .arg(command)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null());
    let output = start.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let marker = lines
        .iter()
        .enumerate()
        .find_map(|(place, line)| Some((place, FirstContact::parse(line.as_bytes(), NONCE)?)));
    let Some((place, contact)) = marker else {
        panic!(
            "{shell:?} printed no marker: {text:?}, {:?}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    (contact, lines[place + 1..].join("\n"))
}

#[test]
fn every_login_shell_starts_the_gputop_of_the_home_directory() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".local/bin/gputop");
    write_gputop(&path);
    for shell in LOGIN_SHELLS.iter().filter(|shell| is_installed(shell[0])) {
        let (contact, rest) = run(shell, &command(None, None), home.path());
        assert_eq!(
            contact.found,
            Found::Gputop {
                path: Text::new(path.as_os_str().as_encoded_bytes()),
                version: "gputop 9.8.7".into()
            },
            "{shell:?}"
        );
        assert!(contact.system.as_str().starts_with("Linux "), "{contact:?}");
        assert_eq!(
            rest, "arguments: agent --interval-ms 1500 --readonly",
            "{shell:?}"
        );
    }
}

#[test]
fn every_system_shell_runs_the_script() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    write_gputop(&home.path().join(".cargo/bin/gputop"));
    for shell in SYSTEM_SHELLS.iter().filter(|shell| is_installed(shell[0])) {
        // This file is `sh` of the host.
        let system = tempfile::tempdir().unwrap();
        let words = [&shell[..shell.len() - 1], &["\"$@\""]].concat().join(" ");
        write_program(&system.path().join("sh"), &format!("exec {words}"));
        let command = format!(
            "PATH={}:$PATH; {}",
            system.path().display(),
            command(None, None)
        );
        let (contact, rest) = run(&["bash", "-c"], &command, home.path());
        assert!(
            matches!(contact.found, Found::Gputop { .. }),
            "{shell:?}: {contact:?}"
        );
        assert_eq!(
            rest, "arguments: agent --interval-ms 1500 --readonly",
            "{shell:?}"
        );
    }
}

#[test]
fn output_of_the_login_shell_comes_before_the_marker() {
    let home = tempfile::tempdir().unwrap();
    write_gputop(&home.path().join(".local/bin/gputop"));
    let noisy = format!(
        "printf 'Welcome\\ngputop-{NONCE}9\\tx\\nno line end'; {}",
        command(None, None)
    );
    let (contact, _) = run(&["bash", "-c"], &noisy, home.path());
    assert!(matches!(contact.found, Found::Gputop { .. }), "{contact:?}");
}

#[test]
fn another_program_called_gputop_is_not_started() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    write_program(
        &home.path().join(".local/bin/gputop"),
        "echo unknown option >&2; exit 1",
    );
    write_gputop(&home.path().join(".cargo/bin/gputop"));
    let (contact, _) = run(&["bash", "-c"], &command(None, None), home.path());
    match contact.found {
        Found::Gputop { path, .. } => {
            assert!(path.as_str().ends_with(".cargo/bin/gputop"), "{path}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gputop_on_the_path_of_a_login_shell_is_found() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    write_gputop(&home.path().join("tools/gputop"));
    // The profile prints text and leaves a program in the background.
    fs::write(
        home.path().join(".profile"),
        "echo Welcome\nsleep 60 &\necho $! > $HOME/background\nPATH=$HOME/tools:$PATH\n",
    )
    .unwrap();
    let (contact, rest) = run(&["bash", "-c"], &command(None, None), home.path());
    let background = fs::read_to_string(home.path().join("background")).unwrap();
    let is_ended = Command::new("kill").arg(background.trim()).status();
    assert!(
        is_ended.unwrap().success(),
        "the program in the background runs on"
    );
    assert!(matches!(contact.found, Found::Gputop { .. }), "{contact:?}");
    assert_eq!(rest, "arguments: agent --interval-ms 1500 --readonly");
}

#[test]
fn a_host_without_gputop_says_where_a_copy_would_be() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (contact, rest) = run(
        &["bash", "-c"],
        &command(Some("0.1.0-00"), None),
        home.path(),
    );
    let Found::Nothing { folder, .. } = contact.found else {
        panic!("{contact:?}");
    };
    assert_eq!(
        folder.as_str(),
        format!("{}/.cache/gputop", home.path().display())
    );
    assert_eq!(rest, "");
    assert!(!home.path().join(".cache").exists(), "nothing is written");
}

#[test]
fn nvidia_smi_is_started_only_where_it_was_asked_for() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let tools = home.path().join("tools");
    write_program(&tools.join("nvidia-smi"), "echo \"arguments: $*\"");
    let with_tools = |command: &str| format!("PATH={}:$PATH; {command}", tools.display());
    let command_with = with_tools(&command(None, Some("index,uuid")));
    let (contact, rest) = run(&["bash", "-c"], &command_with, home.path());
    assert_eq!(contact.found, Found::NvidiaSmi);
    assert_eq!(
        rest,
        "arguments: --query-gpu=index,uuid --format=csv,noheader,nounits -l 1"
    );
    let command_without = with_tools(&command(None, None));
    let (contact, rest) = run(&["bash", "-c"], &command_without, home.path());
    assert!(
        matches!(
            contact.found,
            Found::Nothing {
                has_nvidia_smi: true,
                ..
            }
        ),
        "{contact:?}"
    );
    assert_eq!(rest, "");
}

/// Writes a copy that may have been uploaded. Returns its version and its hash.
fn write_copy(home: &Path) -> (String, std::path::PathBuf) {
    let folder = home.join(".cache/gputop");
    let first = folder.join("gputop");
    write_gputop(&first);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let sum = Command::new("sha256sum").arg(&first).output().unwrap();
    let hash = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
    let name = format!("0.1.0-{hash}");
    let path = folder.join(format!("gputop-{name}"));
    fs::rename(first, &path).unwrap();
    (name, path)
}

#[test]
fn a_copy_is_started_only_if_it_has_the_right_content_and_is_the_users_alone() {
    if !has_no_gputop() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (name, path) = write_copy(home.path());
    let folder = path.parent().unwrap().to_owned();
    let found = |shell: &[&str]| run(shell, &command(Some(&name), None), home.path()).0.found;
    let bash = &["bash", "-c"];
    for shell in LOGIN_SHELLS.iter().filter(|shell| is_installed(shell[0])) {
        assert!(
            matches!(found(shell), Found::Gputop { .. }),
            "{shell:?} does not start it"
        );
    }
    let is_refused = |why: &str| {
        assert!(matches!(found(bash), Found::Nothing { .. }), "{why}");
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o720)).unwrap();
    is_refused("a group may write the file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
    is_refused("a group may write the folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let moved = home.path().join("moved");
    fs::rename(&folder, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &folder).unwrap();
    is_refused("the folder is a link");
    fs::remove_file(&folder).unwrap();
    fs::rename(&moved, &folder).unwrap();
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    is_refused("the file is a link");
    fs::remove_file(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    assert!(matches!(found(bash), Found::Gputop { .. }));
    write_program(&path, "echo gputop 9.8.7; touch $HOME/ran");
    is_refused("the content is another");
    assert!(
        !home.path().join("ran").exists(),
        "the foreign content has run"
    );
}

#[test]
fn a_line_that_is_not_the_marker_is_none() {
    let marker = format!("gputop-{NONCE}\tLinux x86_64\tglibc 2.17\tnothing\t/usr/bin/x\t/h");
    assert!(FirstContact::parse(marker.as_bytes(), NONCE).is_some());
    for line in [
        "",
        "Welcome",
        &marker[1..],
        &marker.replace(NONCE, "0123"),
        &marker.replace("nothing", "something"),
        &marker[..marker.len() - 3],
    ] {
        assert_eq!(FirstContact::parse(line.as_bytes(), NONCE), None, "{line}");
    }
}

#[test]
fn the_version_of_glibc_ends_the_line() {
    for (line, version) in [
        ("glibc 2.36", Some((2, 36))),
        ("ldd (Debian GLIBC 2.31-13+deb11u5) 2.31", Some((2, 31))),
        ("ldd (GNU libc) 2.17", Some((2, 17))),
        ("glibc 2.41.9000", Some((2, 41))),
        ("musl libc (x86_64)", None),
        ("", None),
    ] {
        let expected = version.map(|(major, minor)| GlibcVersion { major, minor });
        assert_eq!(GlibcVersion::parse(line), expected, "{line}");
    }
}

#[test]
fn two_connections_have_different_nonces() {
    let (one, other) = (new_nonce(), new_nonce());
    assert_ne!(one, other);
    assert_eq!(one.len(), 32);
}
