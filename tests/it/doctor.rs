//! The checks of `gputop doctor`.

use std::fs;
use std::process::Command;

use fake_nvml::Fault;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::process::{Ran, run};
use crate::say;
use crate::terminal::{ESC, Terminal, frames};
use crate::world::Host;

/// Returns the line on a subject, and the suggested command below it.
#[track_caller]
fn on(ran: &Ran, subject: &str) -> String {
    let text = ran.text();
    let mut lines = text.lines().skip_while(|line| !line[9..].starts_with(subject));
    let found = lines.next().unwrap_or_else(|| panic!("nothing on {subject} in\n{text}{}", ran.err));
    let remedy = lines.next().filter(|line| line.trim_start().starts_with("try: ")).unwrap_or_default();
    format!("{found}\n{remedy}")
}

#[test]
fn a_good_setup_has_no_errors() {
    let host = Host::with(["H100", "A100-MIG"]);
    let ran = host.run(["doctor"]);
    assert_eq!(ran.code, 0, "{}{}", ran.text(), ran.err);
    assert!(on(&ran, "driver").starts_with("ok"), "{}", ran.text());
    assert!(on(&ran, "GPUs").contains("2, split into"), "{}", ran.text());
    assert!(!ran.text().contains("error"), "{}", ran.text());
}

#[test]
fn errors_have_a_reason_and_a_command() {
    for (error, code, reason, remedy) in [
        ("DRIVER_NOT_LOADED", 3, "not running", "modprobe"),
        ("LIB_RM_VERSION_MISMATCH", 3, "different versions", "rmmod"),
        ("NO_PERMISSION", 3, "refused", "ls -l /dev/nvidia*"),
    ] {
        let mut host = Host::with(["H100"]);
        host.change(|world| world.faults.push(Fault::error("nvmlInit_v2", error)));
        let ran = host.run(["doctor"]);
        let found = on(&ran, "driver");
        assert_eq!(ran.code, code, "{}", ran.text());
        assert!(found.starts_with("error") && found.contains(reason), "{found}");
        // In a container without GPUs, the suggestion is to start it with GPUs.
        let container = error != "LIB_RM_VERSION_MISMATCH" && found.contains("docker run --gpus");
        assert!(found.contains(remedy) || container, "{found}");
    }
}

#[test]
fn a_gpu_that_fails_in_part_is_named_with_the_call() {
    let mut host = Host::with(["H100", "H100"]);
    host.change(|world| world.faults.push(Fault::error("nvmlDeviceGetTemperature", "UNKNOWN").on(1)));
    let ran = host.run(["doctor"]);
    let found = on(&ran, "GPU ");
    assert!(found.starts_with("warning") && found.contains("GPU 1"), "{found}");
    assert!(found.contains("nvmlDeviceGetTemperature") && found.contains("dmesg"), "{found}");
    host.change(|world| world.gpus[0].falls_off_the_bus());
    assert!(on(&host.run(["doctor"]), "GPU ").contains("fell off the bus"));
}

#[test]
fn wrong_settings_are_reported_as_at_the_start() {
    let host = Host::with(["H100"]);
    let settings = |text: &str| {
        fs::create_dir_all(host.path("config/gputop")).expect("there is room in /tmp");
        fs::write(host.path("config/gputop/config.toml"), text).expect("there is room in /tmp");
        let ran = host.run(["doctor"]);
        (on(&ran, "settings"), ran.code)
    };
    assert!(on(&host.run(["doctor"]), "settings").contains("none: there is no"));
    let (found, code) = settings("theme = 'light'\n");
    assert!(found.starts_with("ok") && found.contains("config.toml") && code == 0, "{found}");
    let (found, code) = settings("host = true\nthme = 'light'\n");
    assert!(found.starts_with("warning") && found.contains("`thme` (line 2)") && code == 0, "{found}");
    let (found, code) = settings("theme = 'dark'\n");
    assert!(found.starts_with("error") && found.contains("config.toml:1: theme: `dark` is no theme"), "{found}");
    assert_eq!(code, 1);
}

#[test]
fn a_home_directory_that_hangs_is_named_without_delay() {
    let host = Host::with(["H100"]);
    for (file, is_settings) in [("config/gputop/config.toml", true), ("gputop/screen.toml", false)] {
        // Opening a pipe without a writer blocks.
        let path = host.path(file);
        fs::create_dir_all(path.parent().expect("it has one")).expect("there is room in /tmp");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room in /tmp");
        let ran = host.run(["doctor"]);
        let found = on(&ran, "settings");
        assert!(found.starts_with("warning") && found.contains(&format!("{file} does not respond")), "{found}");
        assert_eq!(ran.code, 0, "{}", ran.text());
        let mut terminal = Terminal::start_at(&host, 160, 24, []);
        terminal.wait_for(&format!("{file} does not respond: saved settings are not in use"));
        terminal.wait_for("no process uses a GPU");
        if is_settings {
            terminal.keys("W?");
            terminal.wait_for("does not respond: settings may not have been saved");
            // The help was drawn before, so nothing waited for the file.
            let bytes = terminal.bytes();
            let first = |words: &str| bytes.windows(words.len()).position(|window| window == words.as_bytes());
            let (help, late) =
                (first("a screen up").expect("it is there"), first("may not have been").expect("it is there"));
            assert!(frames(&bytes[help.min(late)..late]) > 0, "{}", terminal.text());
            terminal.keys(ESC);
            terminal.wait_for("no process uses a GPU");
            terminal.keys("W");
            terminal.wait_for("settings were not written: the last write has not ended yet");
        }
        terminal.keys("s");
        terminal.quit();
        fs::remove_file(&path).expect("it is there");
    }
}

#[test]
fn a_driver_that_hangs_does_not_hang_the_command() {
    let mut host = Host::with(["H100"]);
    host.change(|world| world.faults.push(Fault::hang("nvmlInit_v2")));
    let ran = host.run(["doctor"]);
    let found = on(&ran, "driver");
    assert!(ran.code == 1 && found.starts_with("error") && found.contains("nvmlInit_v2"), "{}", ran.text());
}

#[test]
fn an_old_driver_and_an_ascii_locale_are_warnings() {
    let mut host = Host::with(["H100"]);
    host.change(|world| world.driver = "470.256.02".into());
    let ran = run(host.gputop(["doctor"]).env("LANG", "C"));
    assert!(on(&ran, "old driver").starts_with("warning"), "{}", ran.text());
    assert!(on(&ran, "locale").contains("export LANG"), "{}", ran.text());
    assert!(ran.text().is_ascii(), "{}", ran.text());
    assert_eq!(ran.code, 0);
}

#[test]
fn a_pid_namespace_and_hidden_processes_are_reported() {
    let host = Host::with(["H100"]);
    // New namespaces with a /proc that hides processes.
    let script = "mount -t proc -o hidepid=2 proc /proc || exit 77; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "sh", "-c", script, "sh"]);
    let gputop = host.gputop(["doctor"]);
    let ran = run(host.dress(command.arg(gputop.get_program()).args(gputop.get_args())));
    if matches!(ran.code, 1 | 77 | 127) {
        return say(format_args!("skipped: only root can make namespaces: {}", ran.err));
    }
    assert!(on(&ran, "processes").contains("PID namespace of its own"), "{}", ran.text());
    assert!(on(&ran, "hidden processes").contains("hidepid"), "{}", ran.text());
}
