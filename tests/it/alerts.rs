//! What a person hears of without looking: the bell, and a program that is told.

use std::fs;

use crate::host::{GIB, Host};
use crate::process::wait_until;
use crate::terminal::{TAB, Terminal};

/// A program that writes down what it is told, and says much that nobody wants to see.
fn teller(host: &Host) -> String {
    let script = "#!/bin/sh\necho NOISE; echo NOISE >&2; (echo NOISE >/dev/tty) 2>/dev/null\n\
                  { echo \"argument=$1\"; env | grep ^GPUTOP_ALERT; echo; } >>\"$(dirname \"$0\")/told\"\n";
    host.install_script("tell", script).display().to_string()
}

#[test]
fn the_end_of_a_watched_process_rings_once_and_a_program_is_told() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let program = format!("{} hello", teller(&host));
    let mut terminal = Terminal::start(&host, ["--interval", "100ms", "--bell", "--on-alert", &program]);
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
    let told = || fs::read_to_string(host.path("told")).unwrap_or_default();
    for line in [
        "argument=hello",
        "GPUTOP_ALERT=process_ended",
        &format!("GPUTOP_ALERT_SENTENCE={pid} (sleep 1000) has ended"),
        &format!("GPUTOP_ALERT_PID={pid}"),
        "GPUTOP_ALERT=gpu_free",
        "GPUTOP_ALERT_SENTENCE=GPU 0 is free",
    ] {
        wait_until(line, || told().lines().any(|it| it == line));
    }
    assert!(!terminal.text().contains("NOISE"), "{}", terminal.text());
    let bytes = terminal.bytes();
    let rung = bytes.split(|it| *it == 7).count() - 1;
    assert!((1..=2).contains(&rung), "once for each, and two that come together are one: {rung}");
    terminal.quit();
}

#[test]
fn a_program_that_cannot_be_told_is_named_once() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms", "--on-alert", "/nowhere/tell"]);
    terminal.wait_for("sleep 1000");
    terminal.keys("w");
    terminal.wait_for(&format!("{pid} is watched"));
    host.process(pid).handle.kill();
    host.process(pid).wait();
    terminal.wait_for(&format!("{pid} (sleep 1000) has ended"));
    terminal.wait_for("cannot run /nowhere/tell to pass on an alert: No such file");
    terminal.quit();
}
