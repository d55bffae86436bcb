//! Ways to end: no process is left behind, and the terminal is restored.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use ratatui::widgets::Widget;
use rustix::process::Signal;

use crate::host::Host;
use crate::process::{ChildProcess, exit_code, now};
use crate::terminal::{CTRL_C, CTRL_R, CTRL_Z, ESC, Terminal};
use crate::{DEADLINE, print_note};

/// A shell that runs `script` with gputop as `$0`.
fn shell(host: &Host, script: &str) -> Command {
    let mut command = Command::new("bash");
    host.set_environment(&mut command).args([
        "--norc",
        "--noprofile",
        "-c",
        script,
        env!("CARGO_BIN_EXE_gputop"),
    ]);
    command
}

/// Hangs up, and checks that viewer and agent end. That takes some milliseconds, or half a second
/// where no SIGHUP comes.
#[track_caller]
fn check_end_with_terminal(mut terminal: Terminal) {
    terminal.wait_for("H100");
    let agent = terminal.agent();
    let hung_up = now();
    terminal.hang_up();
    terminal.wait_for_exit();
    agent.wait_for_end();
    print_note(format_args!(
        "ended {} ms after the terminal",
        hung_up.elapsed().as_millis()
    ));
}

#[test]
fn gputop_ends_with_its_terminal() {
    let host = Host::with_jitter(["H100"]);
    check_end_with_terminal(Terminal::start(&host, []));
}

#[test]
fn gputop_ends_with_its_terminal_though_sighup_is_ignored() {
    let host = Host::with_jitter(["H100"]);
    check_end_with_terminal(Terminal::run(
        &mut shell(&host, "trap '' HUP; exec \"$0\""),
        80,
        24,
    ));
}

#[test]
fn gputop_ends_with_a_terminal_that_is_not_its_controlling_one() {
    let host = Host::with_jitter(["H100"]);
    // In a session of its own, as under setsid(1), the terminal controls no process: no SIGHUP
    // comes.
    check_end_with_terminal(Terminal::run_uncontrolled(&mut host.gputop([]), 80, 24));
}

#[test]
fn gputop_ends_with_its_terminal_during_a_hung_call() {
    let mut host = Host::with_jitter(["H100", "H100"]);
    host.change(|world| {
        world
            .faults
            .push(fake_nvml::Fault::hang("nvmlDeviceGetPowerUsage").on(0));
    });
    let terminal = Terminal::start(&host, []);
    terminal.wait_for("hung");
    check_end_with_terminal(terminal);
}

#[test]
fn a_signal_ends_gputop_and_the_terminal_is_restored() {
    let host = Host::with_jitter(["H100"]);
    let usual = [
        (Signal::TERM, 15),
        (Signal::INT, 2),
        (Signal::HUP, 1),
        (Signal::QUIT, 3),
    ];
    let of_schedulers = [
        (Signal::USR1, 10),
        (Signal::USR2, 12),
        (Signal::ALARM, 14),
        (Signal::XCPU, 24),
    ];
    for (signal, number) in usual.into_iter().chain(of_schedulers) {
        let mut terminal = Terminal::start(&host, []);
        terminal.wait_for("H100");
        let agent = terminal.agent();
        terminal.handle().signal(signal);
        assert_eq!(exit_code(terminal.wait_for_exit()), 128 + number);
        terminal.wait_until_restored();
        agent.wait_for_end();
    }
}

#[test]
fn control_c_quits() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("H100");
    terminal.keys(CTRL_C);
    assert_eq!(exit_code(terminal.wait_for_exit()), 0);
    terminal.wait_until_restored();
}

#[test]
fn a_viewer_that_was_stopped_redraws_the_whole_screen() {
    let mut host = Host::with_jitter(["H100"]);
    let pid = host.start_sleep(0, 1 << 30);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for(&pid.to_string());
    terminal.handle().signal(Signal::STOP);
    terminal.handle().wait_for_state('T');
    let before = terminal.bytes().len();
    terminal.handle().signal(Signal::CONT);
    // Output from before the stop may be read only now.
    terminal.wait_for_bytes("a whole redraw", |bytes| {
        let new_output = String::from_utf8_lossy(&bytes[before..]);
        new_output
            .rsplit_once("\x1b[2J")
            .is_some_and(|(_, redraw)| redraw.contains("H100"))
    });
    terminal.wait_for(&pid.to_string());
    terminal.quit();
}

#[test]
fn control_z_returns_to_the_shell_and_fg_redraws_the_screen() {
    let host = Host::with_jitter(["H100"]);
    let script = "set -m; \"$0\"; echo in the shell; read word; echo read \"$word\"; fg >/dev/null; echo exit code: $?";
    let mut terminal = Terminal::run(&mut shell(&host, script), 80, 24);
    terminal.wait_for("H100");
    let modes = terminal.modes();
    terminal.keys(CTRL_Z);
    terminal.wait_for("in the shell");
    let text = terminal.wait_for_main_screen();
    assert!(!text.contains("H100"), "{text}");
    terminal.keys("hello\r");
    terminal.wait_for("H100");
    terminal.wait_until("the alternate screen", |screen| {
        screen.alternate_screen() && screen.hide_cursor()
    });
    assert_eq!(terminal.modes(), modes);
    // Head and footer did not change, and are drawn again all the same.
    terminal.wait_for("WHO");
    terminal.wait_for("? help");
    terminal.keys("q");
    terminal.wait_for("exit code: 0");
    terminal.wait_for_exit();
    terminal.wait_for_main_screen();
}

#[test]
fn without_a_shell_control_z_does_nothing() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("H100");
    terminal.keys(CTRL_Z);
    terminal.keys("?");
    terminal.wait_for("In the lists");
    terminal.keys(ESC);
    terminal.wait_until_gone("In the lists");
    terminal.quit();
}

#[test]
fn gputop_quits_though_nobody_reads_the_terminal() {
    let host = Host::with_jitter(["H100"; 8]);
    let mut terminal = Terminal::start_at(&host, 200, 60, ["--interval", "100ms"]);
    terminal.wait_for("H100");
    terminal.stop_reading();
    // Each resize causes a whole redraw: together more than the pty holds.
    for height in 40..60 {
        terminal.resize(200, height);
        terminal.keys("?");
        assert!(!terminal.handle().ends_within(Duration::from_millis(30)));
    }
    terminal.keys(CTRL_C);
    let typed = now();
    terminal.handle().wait_for_end();
    print_note(format_args!(
        "ended {} ms after Ctrl-C, in a terminal that nobody reads",
        typed.elapsed().as_millis()
    ));
    assert_eq!(exit_code(terminal.wait_for_exit()), 0);
    assert_eq!(terminal.modes(), terminal.modes_before());
    terminal.resume_reading();
}

#[test]
fn a_killed_agent_is_reported_and_r_starts_another() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("H100");
    for signal in [Signal::KILL, Signal::ABORT] {
        let agent = terminal.agent();
        agent.signal(signal);
        agent.wait_for_end();
        terminal.wait_for("the agent ended");
        terminal.wait_for("Ctrl-R starts a new one");
        terminal.keys(CTRL_R);
        terminal.wait_until_gone("Ctrl-R starts a new one");
        terminal.wait_for("H100");
    }
    terminal.quit();
}

#[test]
fn a_stopped_agent_is_reported_and_r_starts_another() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("H100");
    let agent = terminal.agent();
    agent.signal(Signal::STOP);
    terminal.wait_for("no word from the agent for");
    terminal.keys(CTRL_R);
    terminal.wait_until_gone("no word from the agent");
    terminal.wait_for("H100");
    terminal.quit();
    agent.signal(Signal::CONT);
    agent.wait_for_end();
}

#[test]
fn the_agent_of_a_killed_viewer_ends() {
    let host = Host::with_jitter(["H100"]);
    let mut terminal = Terminal::start(&host, []);
    terminal.wait_for("H100");
    let agent = terminal.agent();
    terminal.handle().signal(Signal::KILL);
    terminal.wait_for_exit();
    agent.wait_for_end();
}

#[test]
fn a_closed_output_is_no_error() {
    let host = Host::with_jitter(["H100"]);
    for args in [
        ["--once"].as_slice(),
        &["--json"],
        &["schema"],
        &["--json", "-l", "0.2"],
        &["--help"],
    ] {
        let mut command = host.gputop(args.iter().copied());
        let mut gputop = ChildProcess::spawn(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        drop(gputop.child().stdout.take());
        let status = gputop.wait();
        let mut stderr = String::new();
        gputop
            .child()
            .stderr
            .take()
            .expect("stderr is piped")
            .read_to_string(&mut stderr)
            .expect("stderr is UTF-8");
        assert_eq!((exit_code(status), stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn an_agent_without_a_viewer_ends() {
    let host = Host::with_jitter(["H100"]);
    // The agent's input is closed from the start.
    let output = host.run(["agent"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    // The agent's output is closed, and its input is open.
    let mut command = host.gputop(["agent"]);
    let mut agent = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    drop(agent.child().stdout.take());
    assert!(agent.handle.ends_within(DEADLINE));
}

const AGENT_PANIC: &str = "endings::a_panic_in_a_thread_of_the_agent_ends_it_with_one_line";

#[test]
fn a_panic_in_a_thread_of_the_agent_ends_it_with_one_line() {
    if std::env::var_os(PANICS).is_some() {
        gputop::agent::end_on_panic();
        let thread = std::thread::spawn(|| panic!("spilled\n\x1b[2J"));
        return thread.join().expect("the panic ends the process");
    }
    let program = std::env::current_exe().expect("the test runs from a file");
    let output = Command::new(program)
        .args([AGENT_PANIC, "--exact", "--nocapture"])
        .env(PANICS, "")
        .output();
    let output = output.expect("the test runs as a program");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let message = stderr
        .lines()
        .find(|line| line.starts_with("gputop agent: "))
        .expect("a message of the agent");
    assert!(
        message.contains("spilled") && !stderr.contains('\x1b'),
        "{stderr:?}"
    );
}

/// The test below, which a test runs as a program with this variable: then the test panics as a
/// viewer does.
const VIEWER_PANIC: &str = "endings::a_panic_in_a_thread_restores_the_terminal_and_prints_one_line";
const PANICS: &str = "GPUTOP_TEST_PANICS";

#[test]
fn a_panic_in_a_thread_restores_the_terminal_and_prints_one_line() {
    if std::env::var_os(PANICS).is_some() {
        let mut screen = gputop::tui::terminal::Screen::enter(true).expect("there is a terminal");
        gputop::tui::terminal::end_on_panic(Some(screen.tty()));
        screen.draw(|buffer| "drawn by the viewer".render(buffer.area, buffer));
        let thread = std::thread::spawn(|| panic!("spilled\n\x1b[2J"));
        return thread.join().expect("the panic ends the process");
    }
    // Nothing makes the shipped binary panic, so the test runs itself as the viewer.
    let program = std::env::current_exe().expect("the test runs from a file");
    let mut terminal = Terminal::run(
        Command::new(program)
            .args([VIEWER_PANIC, "--exact", "--nocapture"])
            .env(PANICS, ""),
        80,
        24,
    );
    assert_eq!(exit_code(terminal.wait_for_exit()), 101);
    terminal.wait_for("this is a bug in gputop");
    terminal.wait_for("spilled");
    let text = terminal.wait_for_main_screen();
    assert!(!text.contains("drawn by the viewer"), "{text}");
    let bytes = terminal.bytes();
    let output = String::from_utf8_lossy(&bytes);
    let after_screen = output
        .rsplit("\x1b[?1049l")
        .next()
        .expect("split yields a text");
    assert!(!after_screen.contains("\x1b[2J"), "{after_screen:?}");
}
