//! Files that hang or never end, and limits that leave no room: gputop says so in one sentence, and
//! quits at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::file_systems::{FrozenFileSystem, HungFileSystem};
use crate::host::Host;
use crate::process::{exit_code, run};
use crate::terminal::{CTRL_R, ESC, Terminal, count_frames};

/// The longest time that a user waits for the shell after `q`. gputop waits for a quarter of a
/// second at most.
const PROMPTLY: Duration = Duration::from_secs(5);

/// The escape sequence with which the screen begins.
const ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049h";

/// Types these keys, with which gputop writes its settings, and waits until it has waited for the
/// file long enough.
#[track_caller]
fn write_settings(terminal: &Terminal, keys: &str) {
    terminal.keys(keys);
    terminal.wait_for("does not respond: settings may not have been saved");
}

#[track_caller]
fn quit_promptly(mut terminal: Terminal) {
    let took = terminal.quit();
    assert!(took < PROMPTLY, "{took:?}");
}

#[test]
fn gputop_quits_at_once_while_its_settings_cannot_be_written() {
    let Some(frozen) = FrozenFileSystem::new() else {
        return;
    };
    for writes_settings in [true, false] {
        let mut command = frozen.host.gputop([]);
        command
            .env("XDG_CONFIG_HOME", frozen.path())
            .env("XDG_STATE_HOME", frozen.path());
        let terminal = Terminal::run(&mut command, 160, 24);
        terminal.wait_for("no process uses a GPU");
        if writes_settings {
            write_settings(&terminal, "W");
        }
        terminal.keys("s");
        quit_promptly(terminal);
    }
}

#[test]
fn gputop_starts_and_quits_while_its_home_directory_hangs() {
    for (folder, file) in [("config/gputop", "config.toml"), ("gputop", "screen.toml")] {
        let host = Host::with_jitter(["H100"]);
        let Some(_hung) = HungFileSystem::mount(&host.path(folder)) else {
            return;
        };
        let expected = format!("{folder}/{file} does not respond");
        let terminal = Terminal::start_at(&host, 160, 24, []);
        terminal.wait_for(&format!("{expected}: saved settings are not in use"));
        terminal.wait_for("no process uses a GPU");
        let output = host.run(["doctor"]);
        assert!(output.text().contains(&expected), "{}", output.text());
        let audit_log = output
            .text()
            .lines()
            .filter(|line| line.contains("kills.jsonl does not respond"))
            .count();
        assert_eq!(
            audit_log,
            usize::from(file == "screen.toml"),
            "{}",
            output.text()
        );
        assert!(
            output.text().contains("device-file holders"),
            "{}",
            output.text()
        );
        assert_eq!(output.code, 0, "{}", output.text());
        if file == "config.toml" {
            write_settings(&terminal, "W?");
            // The help was drawn before, so nothing waited for the file.
            let bytes = terminal.bytes();
            let first = |words: &str| {
                bytes
                    .windows(words.len())
                    .position(|window| window == words.as_bytes())
            };
            let help = first("In the lists").expect("the help was drawn");
            let notice = first("may not have been").expect("the notice was drawn");
            assert!(
                count_frames(&bytes[help.min(notice)..notice]) > 0,
                "{}",
                terminal.text()
            );
            terminal.keys(ESC);
            terminal.wait_for("no process uses a GPU");
            terminal.keys("W");
            terminal.wait_for("settings were not written: the last write has not ended yet");
        }
        terminal.keys("s");
        quit_promptly(terminal);
    }
}

#[test]
fn an_agent_starts_again_while_the_folder_of_the_program_hangs() {
    let host = Host::with_jitter(["H100"]);
    fs::create_dir(host.path("bin")).expect("/tmp has room");
    let program = host.install(Path::new(env!("CARGO_BIN_EXE_gputop")), "bin/gputop");
    let terminal = Terminal::run(host.set_environment(&mut Command::new(program)), 160, 24);
    terminal.wait_for("no process uses a GPU");
    let first = terminal.agent();
    let Some(_hung) = HungFileSystem::mount(&host.path("bin")) else {
        return;
    };
    first.kill();
    first.wait_for_end();
    terminal.wait_for("Ctrl-R starts a new one");
    terminal.keys(CTRL_R);
    terminal.wait_until_gone("Ctrl-R starts a new one");
    terminal.wait_for("no process uses a GPU");
    quit_promptly(terminal);
}

#[test]
fn gputop_quits_at_once_while_its_recording_hangs() {
    let host = Host::new([]);
    let hung = host.path("hung");
    let Some(_hung) = HungFileSystem::mount(&hung) else {
        return;
    };
    let path = hung.join("lines.jsonl");
    let terminal = Terminal::start_at(
        &host,
        160,
        24,
        ["replay", path.to_str().expect("the path is UTF-8")],
    );
    terminal.wait_for("RECORDING");
    terminal.keys("?");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_until_gone("In the lists");
    quit_promptly(terminal);
}

#[test]
fn a_configuration_file_that_hangs_or_never_ends_is_refused_before_the_screen() {
    let host = Host::with_jitter(["H100"]);
    let pipe = host.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("/tmp has room");
    let large = host.path("large.toml");
    File::create(&large)
        .and_then(|file| file.set_len((1 << 20) + 1))
        .expect("/tmp has room");
    let fitting = host.path("fitting.toml");
    fs::write(&fitting, "#".repeat(1 << 20)).expect("/tmp has room");
    let hung = host.path("hung");
    let is_hung = HungFileSystem::mount(&hung);
    let hung = is_hung.is_some().then(|| hung.join("config.toml"));
    let refusals = [
        (Some(PathBuf::from("/dev/zero")), "it is not a regular file"),
        (Some(pipe), "it is not a regular file"),
        (Some(host.path("")), "it is not a regular file"),
        (Some(large), "it is larger than 1 MiB"),
        (Some(host.path("absent.toml")), "No such file or directory"),
        (hung, "it does not respond"),
    ];
    for (path, why) in refusals {
        let Some(path) = path else { continue };
        let path = path.to_str().expect("the path is UTF-8");
        let mut terminal = Terminal::run(&mut host.gputop(["--config", path]), 160, 24);
        let code = exit_code(terminal.wait_for_exit());
        terminal.wait_for(why);
        assert_eq!(code, 2, "{}", terminal.text());
        let text = terminal.text();
        let (_, sentence) = text
            .split_once(&format!("gputop: cannot read {path}: "))
            .expect(&text);
        assert_eq!(sentence.trim_end().lines().count(), 1, "{text}");
        let has_screen = terminal
            .bytes()
            .windows(ALTERNATE_SCREEN.len())
            .any(|window| window == ALTERNATE_SCREEN);
        assert!(!has_screen, "{text}");
    }
    let fitting = fitting.to_str().expect("the path is UTF-8");
    let mut terminal = Terminal::start_at(&host, 160, 24, ["--config", fitting]);
    terminal.wait_for("no process uses a GPU");
    terminal.quit();
}

#[test]
fn a_limit_on_open_files_that_is_too_low_is_named() {
    let host = Host::with_jitter(["H100"]);
    let limited = |limit: u32, args: &[&str]| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n $0 && exec \"$@\""])
            .arg(limit.to_string());
        command.arg(env!("CARGO_BIN_EXE_gputop")).args(args);
        run(host.set_environment(&mut command))
    };
    let commands: [&[&str]; 7] = [
        &["--once"],
        &["--json"],
        &["doctor"],
        &["orphans"],
        &["free"],
        &["--query-gpu=name", "--format=csv"],
        &["--once", "--demo"],
    ];
    // Below 4, the C library itself cannot be opened.
    for limit in 4..=20 {
        for args in commands {
            let output = limited(limit, args);
            let sentence = format!("free file descriptors; the limit `ulimit -n` is {limit}");
            assert!(
                output.stderr.contains(&sentence),
                "{limit} {args:?}: {}",
                output.stderr
            );
            assert_eq!(
                output.stderr.lines().count(),
                1,
                "{limit} {args:?}: {}",
                output.stderr
            );
            assert_eq!(output.code, 1, "{limit} {args:?}: {}", output.text());
        }
    }
    // An agent reports each of its failures by itself.
    for limit in 4..=20 {
        let output = limited(limit, &["agent"]);
        assert!(
            output.code <= 1 && !output.stderr.contains("panicked"),
            "{limit}: {} {}",
            output.code,
            output.stderr
        );
    }
    let output = limited(32, &["--once"]);
    assert!(
        output.code == 0 && output.text().contains("H100"),
        "{}",
        output.text()
    );
}
