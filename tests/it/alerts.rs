//! Alerts: the bell, and the program of `--on-alert`.

use std::fs;

use crate::host::{GIB, Host};
use crate::process::wait_until;
use crate::terminal::{TAB, Terminal};

/// Installs an alert program that logs its argument and environment, and prints text that must not
/// reach the screen.
fn install_alert_program(host: &Host) -> String {
    let script = "#!/bin/sh\necho NOISE; echo NOISE >&2; (echo NOISE >/dev/tty) 2>/dev/null\n\
                  { echo \"argument=$1\"; env | grep ^GPUTOP_ALERT; echo; } >>\"$(dirname \"$0\")/alerts.log\"\n";
    host.install_script("alert", script).display().to_string()
}

#[test]
fn the_end_of_a_watched_process_rings_the_bell_once_and_runs_the_alert_program() {
    const BELL: u8 = 7;
    let mut host = Host::idle(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let program = format!("{} hello", install_alert_program(&host));
    let mut terminal = Terminal::start(
        &host,
        ["--interval", "100ms", "--bell", "--on-alert", &program],
    );
    terminal.wait_for(&format!(" {pid} "));
    terminal.wait_for("sleep 1000");
    terminal.keys("w");
    terminal.wait_for(&format!("{pid} is watched"));
    terminal.keys(TAB);
    terminal.keys("w");
    terminal.wait_for("GPU 0 is watched");
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.wait_for("GPU 0 is free");
    let log = || fs::read_to_string(host.path("alerts.log")).unwrap_or_default();
    for expected in [
        "argument=hello",
        "GPUTOP_ALERT=process_ended",
        &format!("GPUTOP_ALERT_SENTENCE={pid} (sleep 1000) has ended"),
        &format!("GPUTOP_ALERT_PID={pid}"),
        "GPUTOP_ALERT=gpu_free",
        "GPUTOP_ALERT_SENTENCE=GPU 0 is free",
    ] {
        wait_until(expected, || log().lines().any(|line| line == expected));
    }
    assert!(!terminal.text().contains("NOISE"), "{}", terminal.text());
    let rings = terminal
        .bytes()
        .into_iter()
        .filter(|byte| *byte == BELL)
        .count();
    assert!(
        (1..=2).contains(&rings),
        "two alerts ring once each, or once if they come together: {rings}"
    );
    terminal.quit();
}

#[test]
fn alert_options_without_a_screen_are_refused_in_one_sentence() {
    const USAGE: i32 = 2;
    let host = Host::new(["H100"]);
    for option in [
        ["--on-alert", "true"].as_slice(),
        &["--bell"],
        &["--warn-before", "2h"],
    ] {
        for (output, name) in [
            (["--once"].as_slice(), "--once"),
            (&["--plain"], "--plain"),
            (&["--json"], "--json"),
            (&["--csv"], "--csv"),
            (&["--csv=processes"], "--csv"),
            (&["--query-gpu=index", "--format=csv"], "a query"),
            (&["-L"], "a query"),
            (&["-l", "1"], "-l"),
            (&[], "an output that is no terminal"),
            (&["replay", "/nowhere", "--once"], "--once"),
        ] {
            let args = if output.contains(&"replay") {
                [output, option].concat()
            } else {
                [option, output].concat()
            };
            let result = host.run(args.iter().copied());
            let expected = format!(
                "error: {} has no effect with {name}: only the screen raises alerts\n",
                option[0]
            );
            assert_eq!(
                (result.code, &result.stderr, result.text().as_str()),
                (USAGE, &expected, ""),
                "{args:?}"
            );
        }
    }
    // The other options of the screen are part of people's aliases.
    let aliased = [
        "--once",
        "--no-mouse",
        "--theme",
        "mono",
        "--group",
        "user",
        "--gpu-view",
        "rows",
        "--no-history",
    ];
    assert_eq!(host.run(aliased).code, 0);
}

#[test]
fn an_alert_program_that_cannot_be_run_is_named() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = Terminal::start(
        &host,
        ["--interval", "100ms", "--on-alert", "/nowhere/tell"],
    );
    terminal.wait_for("sleep 1000");
    terminal.keys("w");
    terminal.wait_for(&format!("{pid} is watched"));
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.wait_for(&format!("{pid} (sleep 1000) has ended"));
    terminal.wait_for("cannot run /nowhere/tell to pass on an alert: No such file");
    terminal.quit();
}
