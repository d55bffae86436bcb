//! The checks of `gputop doctor`.

use std::fs;
use std::process::Command;

use fake_nvml::Fault;

use crate::host::Host;
use crate::print_note;
use crate::process::{Output, run};

/// Returns the line about a subject, and the suggested command below it.
#[track_caller]
fn line_about(output: &Output, subject: &str) -> String {
    let text = output.text();
    let mut lines = text
        .lines()
        .skip_while(|line| !line[9..].starts_with(subject));
    let found = lines
        .next()
        .unwrap_or_else(|| panic!("nothing on {subject} in\n{text}{}", output.stderr));
    let remedy = lines
        .next()
        .filter(|line| line.trim_start().starts_with("try: "))
        .unwrap_or_default();
    format!("{found}\n{remedy}")
}

#[test]
fn a_good_setup_has_no_errors() {
    let host = Host::with_jitter(["H100", "A100-MIG"]);
    let output = host.run(["doctor"]);
    assert_eq!(output.code, 0, "{}{}", output.text(), output.stderr);
    assert!(
        line_about(&output, "driver").starts_with("ok"),
        "{}",
        output.text()
    );
    assert!(
        line_about(&output, "GPUs").contains("2, split into"),
        "{}",
        output.text()
    );
    assert!(!output.text().contains("error"), "{}", output.text());
}

#[test]
fn errors_have_a_reason_and_a_command() {
    for (error, code, reason, remedy) in [
        ("DRIVER_NOT_LOADED", 3, "not running", "modprobe"),
        ("LIB_RM_VERSION_MISMATCH", 3, "different versions", "rmmod"),
        ("NO_PERMISSION", 3, "refused", "ls -l /dev/nvidia*"),
    ] {
        let mut host = Host::with_jitter(["H100"]);
        host.change(|world| world.faults.push(Fault::error("nvmlInit_v2", error)));
        let output = host.run(["doctor"]);
        let found = line_about(&output, "driver");
        assert_eq!(output.code, code, "{}", output.text());
        assert!(
            found.starts_with("error") && found.contains(reason),
            "{found}"
        );
        // In a container without GPUs, the suggestion is to start it with GPUs.
        let container = error != "LIB_RM_VERSION_MISMATCH" && found.contains("docker run --gpus");
        assert!(found.contains(remedy) || container, "{found}");
    }
}

#[test]
fn a_gpu_that_fails_in_part_is_named_with_the_call() {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.change(|world| {
        world
            .faults
            .push(Fault::error("nvmlDeviceGetTemperature", "UNKNOWN").on(1));
    });
    let output = host.run(["doctor"]);
    let found = line_about(&output, "GPU ");
    assert!(
        found.starts_with("warning") && found.contains("GPU 1"),
        "{found}"
    );
    assert!(
        found.contains("nvmlDeviceGetTemperature") && found.contains("dmesg"),
        "{found}"
    );
    host.change(|world| world.gpus[0].falls_off_the_bus());
    assert!(line_about(&host.run(["doctor"]), "GPU ").contains("fell off the bus"));
}

#[test]
fn wrong_settings_are_reported_as_at_the_start() {
    let host = Host::with_jitter(["H100"]);
    let settings = |text: &str| {
        fs::create_dir_all(host.path("config/gputop")).expect("/tmp has room");
        fs::write(host.path("config/gputop/config.toml"), text).expect("/tmp has room");
        let output = host.run(["doctor"]);
        (line_about(&output, "settings"), output.code)
    };
    assert!(line_about(&host.run(["doctor"]), "settings").contains("none: there is no"));
    let (found, code) = settings("theme = 'light'\n");
    assert!(
        found.starts_with("ok") && found.contains("config.toml") && code == 0,
        "{found}"
    );
    let (found, code) = settings("host = true\nthme = 'light'\n");
    assert!(
        found.starts_with("warning") && found.contains("`thme` (line 2)") && code == 0,
        "{found}"
    );
    let (found, code) = settings("theme = 'pink'\n");
    assert!(
        found.starts_with("error") && found.contains("config.toml:1: theme: `pink` is no theme"),
        "{found}"
    );
    assert_eq!(code, 1);
}

#[test]
fn a_driver_that_hangs_does_not_hang_the_command() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| world.faults.push(Fault::hang("nvmlInit_v2")));
    let output = host.run(["doctor"]);
    let found = line_about(&output, "driver");
    assert!(
        output.code == 1 && found.starts_with("error") && found.contains("nvmlInit_v2"),
        "{}",
        output.text()
    );
}

#[test]
fn an_old_driver_and_an_ascii_locale_are_warnings() {
    let mut host = Host::with_jitter(["H100"]);
    host.change(|world| world.driver = "470.256.02".into());
    let output = run(host.gputop(["doctor"]).env("LANG", "C"));
    assert!(
        line_about(&output, "old driver").starts_with("warning"),
        "{}",
        output.text()
    );
    assert!(
        line_about(&output, "locale").contains("export LANG"),
        "{}",
        output.text()
    );
    assert!(output.text().is_ascii(), "{}", output.text());
    assert_eq!(output.code, 0);
}

#[test]
fn a_pid_namespace_and_hidden_processes_are_reported() {
    let host = Host::with_jitter(["H100"]);
    // New namespaces with a /proc that hides processes.
    let script = "mount -t proc -o hidepid=2 proc /proc || exit 77; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "sh", "-c", script, "sh"]);
    let gputop = host.gputop(["doctor"]);
    let output =
        run(host.set_environment(command.arg(gputop.get_program()).args(gputop.get_args())));
    if matches!(output.code, 1 | 77 | 127) {
        return print_note(format_args!(
            "skipped: only root can make namespaces: {}",
            output.stderr
        ));
    }
    assert!(
        line_about(&output, "processes").contains("PID namespace of its own"),
        "{}",
        output.text()
    );
    assert!(
        line_about(&output, "hidden processes").contains("hidepid"),
        "{}",
        output.text()
    );
}
