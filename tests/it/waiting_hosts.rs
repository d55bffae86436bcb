//! Hosts from which no line comes, on the screen.

use std::process::Command;

use crate::host::{GIB, Host};
use crate::terminal::Terminal;
use crate::two_hosts::agent_of;

/// A viewer of these commands of `--via`, on the smallest usual screen.
fn viewer(commands: &[&str]) -> Command {
    let mut command = Host::new([]).gputop([]);
    command.args(commands.iter().flat_map(|via| ["--via", via]));
    command
}

#[test]
fn a_host_that_never_answers_is_named_with_its_age_in_the_first_line_and_on_its_row_beside_a_good_one()
 {
    let mut host = Host::new(["H100"; 2]);
    let pid = host.start_sleep(0, 3 * GIB);
    let good = format!("left={}", agent_of(&host));
    let terminal = Terminal::run(&mut viewer(&[&good, "sleep 1000"]), 80, 24);
    terminal.wait_until("a row and the first line", |screen| {
        let text = screen.contents();
        let mut lines = text.lines();
        let is_first = lines
            .next()
            .is_some_and(|line| line.starts_with("gputop   sleep 1000: no answer for "));
        is_first && lines.any(|line| line.starts_with(" sleep 1000 no answer for "))
    });
    // The other host is there.
    let text = terminal.text();
    assert!(
        text.contains("/79.6G") && text.contains(&pid.to_string()),
        "{text}"
    );
    crate::print_note(&text);
}

#[test]
fn one_host_that_never_answers_does_not_start_for_ever_and_its_row_has_what_its_command_said() {
    let terminal = Terminal::run(
        &mut viewer(&["far=sh -c 'echo no route to far >&2; exec sleep 1000'"]),
        80,
        24,
    );
    terminal.wait_for("starting…");
    terminal.wait_until("a row and the first line", |screen| {
        let text = screen.contents();
        let mut lines = text.lines();
        let is_first = lines
            .next()
            .is_some_and(|line| line.starts_with("gputop far: no answer for "));
        let is_row = |line: &str| line.starts_with(" far ") && line.contains("no answer for ");
        is_first && lines.any(|line| is_row(line) && line.ends_with("s: no route to far"))
    });
    crate::print_note(terminal.text());
}
