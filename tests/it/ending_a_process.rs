//! The end dialog on real processes, from the key to the returned memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use fake_nvml::GpuProcess;
use rustix::process::Signal;

use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::{ChildProcess, ProcessHandle, is_skipped_in_container, process_state};
use crate::terminal::{CTRL_C, CTRL_R, DELETE, DOWN, ENTER, ESC, F9, Terminal, UP};

/// Starts gputop, and opens the end dialog on the only process.
#[track_caller]
fn start_with_dialog(host: &Host, pid: u32) -> Terminal {
    let terminal = Terminal::start(host, ["--interval", "100ms"]);
    open_dialog(&terminal, pid);
    terminal.wait_for("Verified: only");
    terminal
}

/// Opens the end dialog, once the process is old enough to be identified by its start time.
#[track_caller]
pub(crate) fn open_dialog(terminal: &Terminal, pid: u32) {
    terminal.wait_for(&format!(" {pid} "));
    terminal.keys(ENTER);
    terminal.wait_for("sure: PID and start time were read together");
    terminal.keys(ESC);
    terminal.wait_until_gone("identity");
    terminal.keys(F9);
    terminal.wait_for(&format!("End process {pid}"));
}

/// In the open end dialog, ends a process that uses 1 GiB, checks that the memory is returned, and
/// closes the dialog. Returns the text of the screen before that.
#[track_caller]
pub(crate) fn end(terminal: &Terminal, host: &mut Host, pid: u32) -> String {
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    host.process(pid).wait();
    terminal.wait_for("returned 1.0 GiB of 1.0 GiB");
    let text = terminal.text();
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    text
}

/// Closes the end dialog and quits.
#[track_caller]
fn close_and_quit(mut terminal: Terminal) {
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    terminal.quit();
}

/// A Python program, which prints a word when it is ready.
fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]).stdout(Stdio::piped());
    command
}

/// Starts a Python program on GPU 0, and waits for its word. Returns its PID.
pub(crate) fn start_python(host: &mut Host, memory: u64, program: &str) -> u32 {
    let process = host.start(0, memory, &mut python(program));
    read_word(process);
    process.pid()
}

/// Reads the first line that a program prints.
fn read_word(process: &mut ChildProcess) -> String {
    let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
    stdout
        .lines()
        .next()
        .expect("the program prints a line")
        .expect("the output is UTF-8")
}

#[test]
fn ending_a_process_returns_its_memory() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 38 * GIB);
    let terminal = start_with_dialog(&host, pid);
    terminal.wait_for("sleep 1000");
    terminal.wait_for("holds 38.0 GiB on GPU 0");
    assert_eq!(
        process_state(pid),
        Some('S'),
        "opening the dialog sends nothing"
    );
    terminal.keys(ENTER);
    let process = host.process(pid);
    process.handle.wait_for_end();
    // The parent is the test: until the test reaps it, the process is a zombie.
    terminal.wait_for("has not reaped it: a zombie");
    process.wait();
    terminal.wait_until_gone("zombie");
    terminal.wait_for("It ended after");
    terminal.wait_for("returned 38.0 GiB of 38.0 GiB");
    close_and_quit(terminal);
}

#[test]
fn each_of_its_keys_opens_the_end_dialog_and_escape_sends_nothing() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = start_with_dialog(&host, pid);
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    for keys in [F9, "x", DELETE] {
        terminal.keys(keys);
        terminal.wait_for("Verified: only");
        terminal.keys(ESC);
        terminal.wait_until_gone("End process");
    }
    terminal.quit();
    assert_eq!(process_state(pid), Some('S'));
}

#[test]
fn a_process_that_changes_its_user_while_the_dialog_is_open_is_shown_with_a_caution() {
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can change the user of a process");
    }
    let mut host = Host::new(["H100"]);
    let program = "import os, signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: os.setuid(54321))\nprint('ready', flush=True)\nwhile True: time.sleep(1000)";
    let pid = start_python(&mut host, GIB, program);
    let terminal = start_with_dialog(&host, pid);
    terminal.wait_for("of root, started");
    host.process(pid).handle.signal(Signal::USR1);
    terminal.wait_for(&format!("{pid}: it belongs to uid 54321"));
    terminal.wait_for(&format!("Type {pid} to confirm:"));
    terminal.wait_for("of 54321, started");
    terminal.keys(ENTER);
    terminal.keys(&pid.to_string());
    terminal.wait_for(&format!("confirm: {pid}_"));
    assert_eq!(process_state(pid), Some('S'), "Enter alone sent nothing");
    // The user has time to read the caution.
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    host.process(pid).wait();
    terminal.wait_for("It ended after");
    close_and_quit(terminal);
}

#[test]
fn a_paste_is_text_for_the_filter_and_never_a_key() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = start_with_dialog(&host, pid);
    terminal.keys("\x1b[200~\r\r\x1b[201~\x1b[B");
    terminal.wait_for("● SIGKILL");
    terminal.wait_for("Verified: only");
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    terminal.keys("/\x1b[200~sle\rep\x1b[201~");
    terminal.wait_for("filter: sleep");
    terminal.keys(ENTER);
    terminal.quit();
    assert_eq!(process_state(pid), Some('S'));
}

#[test]
fn sigint_lets_python_clean_up() {
    let mut host = Host::new(["H100"]);
    let program = "import time\ntry:\n print('ready', flush=True); time.sleep(1000)\nexcept KeyboardInterrupt:\n raise SystemExit(7)";
    let pid = start_python(&mut host, GIB, program);
    let terminal = start_with_dialog(&host, pid);
    terminal.keys(UP);
    terminal.wait_for("Enter sends SIGINT");
    terminal.keys(ENTER);
    assert_eq!(host.process(pid).wait().code(), Some(7));
    terminal.wait_for("It ended after");
    close_and_quit(terminal);
}

#[test]
fn a_process_that_ignores_sigterm_is_reported_alive_and_sigkill_ends_it() {
    let mut host = Host::new(["H100"]);
    let program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(1000)";
    let pid = start_python(&mut host, 2 * GIB, program);
    let terminal = start_with_dialog(&host, pid);
    terminal.keys(ENTER);
    terminal.wait_for("it has not ended yet");
    terminal.wait_for("It is sleeping");
    terminal.keys(DOWN);
    terminal.wait_for("Enter sends SIGKILL");
    terminal.keys(ENTER);
    host.process(pid).wait();
    terminal.wait_for("returned 2.0 GiB of 2.0 GiB");
    close_and_quit(terminal);
}

#[test]
fn a_stopped_process_is_reported_and_only_sigkill_reaches_it() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    host.process(pid).handle.signal(Signal::STOP);
    host.process(pid).handle.wait_for_state('T');
    let terminal = start_with_dialog(&host, pid);
    terminal.wait_for("stopped");
    terminal.keys(ENTER);
    terminal.wait_for("It is stopped: only SIGKILL and SIGCONT reach it");
    assert_eq!(process_state(pid), Some('T'));
    terminal.keys(DOWN);
    terminal.wait_for("Enter sends SIGKILL");
    terminal.keys(ENTER);
    host.process(pid).wait();
    terminal.wait_for("It ended after");
    close_and_quit(terminal);
}

#[test]
fn a_zombie_is_reported_with_its_parent() {
    let mut host = Host::new(["H100"]);
    // A parent that never reaps its child.
    let program = "import os, time\npid = os.fork()\nif pid == 0:\n time.sleep(1000)\nprint(pid, flush=True)\ntime.sleep(1000)";
    // Parent and child have the device file open, as GPU processes have.
    let mut parent = ChildProcess::spawn(python(program).stdin(host.open_device(0)));
    let pid: u32 = read_word(&mut parent).parse().expect("a PID");
    let child = ProcessHandle::open(pid);
    host.add_process(0, GpuProcess::new(pid, GIB));
    let terminal = start_with_dialog(&host, pid);
    terminal.keys(ENTER);
    terminal.wait_for(&format!("Its parent {} has not reaped it", parent.pid()));
    assert_eq!(process_state(pid), Some('Z'));
    terminal.wait_for("returned 1.0 GiB of 1.0 GiB");
    close_and_quit(terminal);
    drop(parent);
    drop(child);
}

#[test]
fn gputop_and_its_ancestors_are_refused() {
    let mut host = Host::new(["H100"]);
    let us = std::process::id();
    let _device = host.open_device(0);
    host.add_process(0, GpuProcess::new(us, GIB));
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    open_dialog(&terminal, us);
    terminal.wait_for(&format!("gputop runs inside {us}"));
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    // The viewer and its agent.
    let agent = terminal.agent();
    for (pid, word) in [
        (terminal.pid(), "is gputop itself"),
        (agent.pid, "is gputop itself"),
    ] {
        host.change(|world| world.gpus[0].processes = vec![GpuProcess::new(pid, GIB)]);
        terminal.wait_for(&format!(" {pid} "));
        terminal.keys(F9);
        terminal.wait_for(word);
        terminal.keys(ENTER);
        terminal.wait_until_gone("End process");
    }
    terminal.quit();
    agent.wait_for_end();
}

#[test]
fn a_process_that_is_not_in_proc_is_refused() {
    let mut host = Host::new(["H100"]);
    host.add_process(0, GpuProcess::fictional(4_111_222, GIB));
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for(" 4111222 ");
    terminal.keys(F9);
    terminal.wait_for("no process 4111222 is seen here");
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    terminal.quit();
}

#[test]
fn in_its_own_pid_namespace_gputop_signals_nobody() {
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can make a PID namespace");
    }
    let mut host = Host::new(["H100"]);
    // NVML names a PID, which in gputop's own PID namespace may be another process.
    let stranger = ChildProcess::spawn(Command::new("sleep").arg("1000"));
    let pid = stranger.pid();
    host.add_process(0, GpuProcess::fictional(pid, GIB));
    let mut command = Command::new("unshare");
    host.set_environment(&mut command).args([
        "--pid",
        "--fork",
        "--kill-child",
        env!("CARGO_BIN_EXE_gputop"),
    ]);
    let mut terminal = Terminal::run(&mut command, 80, 24);
    terminal.wait_for(&format!(" {pid} "));
    terminal.keys(F9);
    terminal.wait_for("NVML may mean a process of another PID namespace");
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    terminal.quit();
    assert_eq!(process_state(pid), Some('S'));
}

#[test]
fn pid_one_is_refused() {
    let mut host = Host::new(["H100"]);
    host.add_process(0, GpuProcess::new(1, GIB));
    let mut terminal = Terminal::start(&host, ["--interval", "100ms"]);
    // A process list with PID 1 may be rejected as garbage, so several texts are right.
    terminal.wait_for("H100");
    terminal.keys(F9);
    terminal.wait_until("the refusal", |screen| {
        let text = screen.contents();
        [
            "no process under the cursor",
            "is not a process to signal",
            "gputop runs inside 1",
        ]
        .iter()
        .any(|words| text.contains(words))
    });
    terminal.keys(CTRL_C);
    terminal.wait_for_exit();
}

#[test]
fn with_readonly_nobody_is_signalled() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = Terminal::start(&host, ["--readonly"]);
    terminal.wait_for(&pid.to_string());
    for keys in [F9, "x", DELETE] {
        terminal.keys(keys);
        terminal.wait_for("it signals nobody");
        terminal.keys(ENTER);
        terminal.wait_for("identity");
        terminal.keys(&format!("{F9}{F9}"));
        terminal.keys(ESC);
        terminal.wait_until_gone("identity");
    }
    assert!(
        !terminal.text().contains("End process"),
        "{}",
        terminal.text()
    );
    terminal.quit();
    assert_eq!(process_state(pid), Some('S'));
}

#[test]
fn a_process_of_another_user_is_refused_with_a_suggestion() {
    if is_skipped_in_container() {
        return;
    }
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can start gputop as someone else");
    }
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let gputop = host.open_to_other_users();
    let mut command = Command::new("setpriv");
    host.set_environment(&mut command)
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([
        gputop.to_str().expect("the path is UTF-8"),
        "--interval",
        "100ms",
    ]);
    let mut terminal = Terminal::run(&mut command, 110, 30);
    open_dialog(&terminal, pid);
    terminal.wait_for("no permission to signal");
    terminal.wait_for("owned by root");
    terminal.wait_for("sudo gputop");
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    terminal.quit();
    assert_eq!(process_state(pid), Some('S'));
}

#[test]
fn an_end_dialog_whose_agent_is_gone_says_so_and_sends_nothing() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let mut terminal = start_with_dialog(&host, pid);
    let agent = terminal.agent();
    agent.signal(Signal::KILL);
    agent.wait_for_end();
    terminal.wait_for("the agent is gone, and with it the hold on this process");
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    assert_eq!(process_state(pid), Some('S'));
    terminal.keys(CTRL_R);
    terminal.wait_until_gone("Ctrl-R starts a new one");
    open_dialog(&terminal, pid);
    end(&terminal, &mut host, pid);
    terminal.quit();
}

#[test]
fn a_process_can_be_ended_while_the_driver_hangs() {
    let mut host = Host::new(["H100", "H100"]);
    let pid = host.start_sleep(0, GIB);
    let terminal = start_with_dialog(&host, pid);
    host.change(|world| world.faults.push(fake_nvml::Fault::hang("*")));
    terminal.keys(ENTER);
    host.process(pid).wait();
    terminal.wait_for("It ended after");
    close_and_quit(terminal);
}

#[test]
fn a_process_of_the_simulated_machine_can_be_ended() {
    let host = Host::new([]);
    let last_run = host.path("gputop/screen.toml");
    fs::create_dir(host.path("gputop")).expect("/tmp has room");
    fs::write(&last_run, "group = \"user\"\n").expect("/tmp has room");
    let mut terminal = Terminal::start_at(&host, 120, 40, ["--demo", "--interval", "100ms"]);
    terminal.wait_for("SIMULATED MACHINE");
    terminal.wait_for("alice");
    // Every simulated process ends at once.
    terminal.wait_for("train.py");
    terminal.keys(ENTER);
    terminal.wait_for("sure: PID and start time were read together");
    terminal.wait_for("the process is real; its user, GPU, PyTorch");
    terminal.keys(F9);
    terminal.wait_for("Verified: only");
    let agent = terminal.agent();
    terminal.keys(DOWN);
    terminal.wait_for("Enter sends SIGKILL");
    terminal.keys(ENTER);
    terminal.wait_for("It ended after");
    terminal.wait_for("returned");
    terminal.keys(ENTER);
    terminal.wait_until_gone("End process");
    terminal.keys(ESC);
    terminal.wait_for("WHO");
    assert!(
        !terminal.text().contains("by user"),
        "the demo does not begin with the settings of a real run"
    );
    terminal.keys("M");
    terminal.keys("b");
    terminal.wait_for("by GPU");
    terminal.quit();
    agent.wait_for_end();
    let files: Vec<_> = fs::read_dir(host.path("gputop"))
        .expect("it exists")
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(
        files,
        [last_run.as_path()],
        "the demo leaves no log of ended processes"
    );
    assert_eq!(
        fs::read_to_string(last_run).expect("it exists"),
        "group = \"user\"\n"
    );
}

/// As a real driver does while a forked child has the device files open.
#[test]
fn the_dialog_of_a_dead_pid_says_that_no_signal_reaches_it() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 2 * GIB);
    let terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for(&format!(" {pid} "));
    host.change(|world| world.gpus[0].processes[0].fictional = true);
    let process = host.process(pid);
    process.handle.signal(Signal::KILL);
    process.wait();
    terminal.wait_for("1 ended process holds 2.0 GiB");
    terminal.keys(F9);
    terminal.wait_for("It has ended: no signal reaches it.");
    close_and_quit(terminal);
}
