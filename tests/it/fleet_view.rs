//! The fleet view of several hosts, each behind a command of `--via`.

use std::process::Command;

use crate::host::{GIB, Host};
use crate::terminal::{DOWN, ENTER, ESC, Terminal};
use crate::two_hosts::agent_of;

/// A viewer of these commands of `--via`.
fn viewer(commands: &[String]) -> Command {
    let mut command = Host::new([]).gputop([]);
    command.args(commands.iter().flat_map(|via| ["--via", via.as_str()]));
    command
}

#[test]
fn four_hosts_of_which_one_has_no_driver_and_one_does_not_answer_are_shown_at_a_glance() {
    let mut busy = Host::idle(["H100"; 8]);
    let pid = busy.start_sleep(2, 78 * GIB);
    let free = Host::idle(["H100"; 4]);
    let mut without_driver = Host::idle(["H100"]);
    without_driver.change(|world| {
        let fault = fake_nvml::Fault::error("nvmlInit_v2", "DRIVER_NOT_LOADED");
        world.faults.push(fault);
    });
    let commands = [
        format!("busy={}", agent_of(&busy)),
        format!("free={}", agent_of(&free)),
        format!("bare={}", agent_of(&without_driver)),
        "gone=sh -c 'echo no route to host >&2; exit 1'".to_owned(),
    ];
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let terminal = Terminal::run(&mut viewer(&commands), width, height);
        let rows = [
            ("busy ", "··▓·····"),
            ("free ", "····"),
            ("bare ", "driver is not running"),
            ("gone ", "no route to host"),
        ];
        terminal.wait_until("a row for each host", |screen| {
            let text = screen.contents();
            let is_there = |(name, words): &(&str, &str)| {
                text.lines()
                    .any(|line| line.starts_with(name) && line.contains(words))
            };
            rows.iter().all(is_there)
        });
        let text = terminal.text();
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.contains("4 hosts")
                && first.contains("12 GPUs: 1 busy")
                && first.contains("11 free"),
            "{text}"
        );
        assert!(text.contains("FREE  11 GPUs: busy 7, free 4"), "{text}");
        // The hosts are in the order of their names: bare, busy, free, gone.
        terminal.keys(DOWN);
        terminal.keys(ENTER);
        terminal.wait_until("the lists of one host", |screen| {
            let text = screen.contents();
            text.contains("host busy") && text.contains(&pid.to_string())
        });
        terminal.keys(ESC);
        terminal.wait_for("FREE  11 GPUs");
        crate::print_note(terminal.text());
    }
}
