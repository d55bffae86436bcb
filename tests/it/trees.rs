//! The end dialog on jobs of several processes, with real process trees: all processes of the job
//! end, no other does, and the screen names every outcome.

use std::collections::BTreeSet;
use std::process::Command;

use fake_nvml::GpuProcess;
use rustix::process::Signal;

use crate::ending_a_process::open_dialog;
use crate::file_systems::FrozenFileSystem;
use crate::host::{GIB, Host};
use crate::print_note;
use crate::process::{ChildProcess, living_members_of_group, process_state, wait_until};
use crate::process_tree::{Tree, close_and_quit, select_force, sent_signals};
use crate::terminal::{DOWN, ENTER, ESC, F9, TAB, Terminal};

const SUPERVISOR: [(&str, &str); 2] = [
    (
        "supervisor.py",
        "report_ready('supervisor')\nwhile True:\n    start_python('child.py').wait()\n",
    ),
    ("child.py", "open_device_files()\nsleep_as('child')\n"),
];

/// Ends only the child of a supervisor, and checks that the dialog names the child's successor.
/// `after_restart` runs once the successor is ready.
#[track_caller]
fn check_restart_is_reported(tree: &mut Tree, after_restart: impl FnOnce(&mut Tree)) {
    tree.put_on_gpu("child", 2 * GIB);
    let (supervisor, child) = (tree.pid("supervisor"), tree.pid("child"));
    let terminal = Terminal::start_at(&tree.host, 100, 40, ["--interval", "100ms"]);
    open_dialog(&terminal, child);
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    let successor = tree.wait_for_process();
    after_restart(tree);
    terminal.wait_for(&format!(
        "{child} was started again, as {successor} by {supervisor}: end that one first"
    ));
    close_and_quit(terminal);
}

#[test]
fn a_restarted_child_is_reported_and_the_whole_job_can_be_ended() {
    let mut tree = Tree::start(&SUPERVISOR, &["supervisor", "child"]);
    check_restart_is_reported(&mut tree, |tree| tree.put_on_gpu("child", 2 * GIB));
    let terminal = tree.open_dialog_on_job("child", "supervisor");
    terminal.wait_for("2 processes, 2.0 GiB expected back");
    select_force(&terminal);
    terminal.keys(ENTER);
    tree.wait_for_all_ends();
    terminal.wait_for("All ended within");
    terminal.wait_for("returned 2.0 GiB of 2.0 GiB");
    assert!(
        !terminal.text().contains("started again"),
        "{}",
        terminal.text()
    );
    close_and_quit(terminal);
}

#[test]
fn the_successor_of_an_ended_process_is_named_before_it_uses_a_gpu() {
    // The successor is in a session of its own, as under a service manager, and has not opened its
    // GPU yet.
    let supervisor = "report_ready('supervisor')\nwhile True:\n    start_python('child.py', start_new_session=True).wait()\n";
    let child = "if not os.path.exists('first'):\n    open('first', 'w').close()\n    open_device_files()\nsleep_as('child')\n";
    let mut tree = Tree::start(
        &[("supervisor.py", supervisor), ("child.py", child)],
        &["supervisor", "child"],
    );
    check_restart_is_reported(&mut tree, |_| {});
}

#[test]
fn enter_does_nothing_when_the_drawn_dialog_shows_another_target() {
    let mut tree = Tree::start(&SUPERVISOR, &["supervisor", "child"]);
    tree.put_on_gpu("child", 2 * GIB);
    let (supervisor, child) = (tree.pid("supervisor"), tree.pid("child"));
    let terminal = tree.open_dialog_on_job("child", "supervisor");
    terminal.keys(TAB);
    terminal.wait_for(&format!("End process {child}"));
    // One write, like a slip of the finger: Enter arrives while the screen still shows one process
    // as the target.
    terminal.keys(&format!("{TAB}{ENTER}"));
    terminal.wait_for(&format!("End the job of {supervisor}"));
    terminal.keys(TAB);
    terminal.wait_for(&format!("End process {child}"));
    // The same with another signal.
    terminal.keys(&format!("{DOWN}{ENTER}"));
    terminal.wait_for("● SIGKILL");
    terminal.wait_for("Verified: only");
    let audit_log = tree.host.path("gputop/kills.jsonl");
    close_and_quit(terminal);
    assert!(
        !audit_log.exists(),
        "no signal was sent, so the audit log does not exist"
    );
    assert_eq!(
        (process_state(supervisor), process_state(child)),
        (Some('S'), Some('S'))
    );
}

const TORCHRUN: [(&str, &str); 2] = [
    (
        "torchrun",
        "set_comm('pt_elastic')
run = {**os.environ, 'TORCHELASTIC_RUN_ID': '7f'}
for rank in '01':
    start_python('train.py', env={**run, 'RANK': rank}, start_new_session=True)
sleep_as('agent')
",
    ),
    (
        "train.py",
        "open_device_files()
if not os.fork():
    sleep_as('worker' + os.environ['RANK'])
sleep_as('rank' + os.environ['RANK'])
",
    ),
];

#[test]
fn a_job_of_several_sessions_ends_completely_and_its_neighbours_live() {
    let mut tree = Tree::start(
        &TORCHRUN,
        &["agent", "rank0", "rank1", "worker0", "worker1"],
    );
    // Neighbours: in the process group and session of the agent, with the next PIDs, but with
    // another parent.
    let group = i32::try_from(tree.pid("agent")).expect("a PID");
    let mut neighbours: Vec<ChildProcess> = Vec::new();
    for _ in 0..3 {
        let mut command = Command::new("sleep");
        std::os::unix::process::CommandExt::process_group(&mut command, group);
        neighbours.push(ChildProcess::spawn(
            command.arg("1000").stdin(tree.host.open_device(0)),
        ));
    }
    tree.put_on_gpu("rank0", 20 * GIB);
    tree.put_on_gpu("rank1", 10 * GIB);
    tree.host
        .add_process(0, GpuProcess::new(neighbours[0].pid(), GIB));
    let terminal = tree.open_dialog_on_job("rank0", "agent");
    terminal.wait_for("5 processes, 30.0 GiB expected back");
    for process in tree.processes.values() {
        terminal.wait_for(&process.pid.to_string());
    }
    select_force(&terminal);
    terminal.keys(ENTER);
    tree.wait_for_all_ends();
    terminal.wait_for("All ended within");
    terminal.wait_for("returned 30.0 GiB of 30.0 GiB");
    close_and_quit(terminal);
    for neighbour in &neighbours {
        assert_eq!(process_state(neighbour.pid()), Some('S'));
    }
    assert_eq!(
        tree.signalled().into_iter().collect::<BTreeSet<_>>(),
        tree.processes.values().map(|process| process.pid).collect()
    );
}

#[test]
fn a_process_that_joined_the_job_since_the_last_pass_is_in_the_end_dialog() {
    let program = "open_device_files()
def grow(*_):
    if not os.fork():
        sleep_as('late')
signal.signal(signal.SIGUSR1, grow)
sleep_as('trainer')
";
    let mut tree = Tree::start(&[("train.py", program)], &["trainer"]);
    tree.put_on_gpu("trainer", GIB);
    let pid = tree.pid("trainer");
    // An interval so long that no further pass happens by itself.
    let terminal = Terminal::start_at(&tree.host, 100, 30, ["--interval", "1m"]);
    open_dialog(&terminal, pid);
    terminal.wait_for("Verified: only");
    terminal.keys(ESC);
    terminal.wait_until_gone("End process");
    // `…` stands for rates, which need two passes.
    terminal.wait_until_gone("…");
    tree.processes["trainer"].signal(Signal::USR1);
    let late = tree.wait_for_process();
    terminal.keys(F9);
    terminal.wait_for("Tab: its whole job, 1 more");
    terminal.keys(TAB);
    terminal.wait_for("2 processes, 1.0 GiB expected back");
    terminal.wait_for(&format!(" {late} "));
    close_and_quit(terminal);
}

#[test]
fn processes_that_ignore_gentle_signals_are_ended_only_by_force() {
    let program = "open_device_files()
for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, signal.SIG_IGN)
if not os.fork():
    sleep_as('child')
sleep_as('root')
";
    let mut tree = Tree::start(&[("train.py", program)], &["root", "child"]);
    tree.put_on_gpu("root", 4 * GIB);
    let (root, child) = (tree.pid("root"), tree.pid("child"));
    let terminal = tree.open_dialog_on_job("root", "root");
    terminal.wait_for(&format!(
        "● gently    SIGINT to {root}, after 10 s SIGTERM to all that are left"
    ));
    terminal.wait_for(&format!("Enter sends SIGINT to {root}"));
    terminal.keys(ENTER);
    terminal.wait_for("SIGTERM follows in");
    terminal.wait_for("SIGTERM sent");
    terminal.wait_for("it has not ended yet");
    assert!(
        !terminal.text().contains("follows in"),
        "{}",
        terminal.text()
    );
    wait_until("three signals in the audit log", || {
        tree.signalled() == [root, root, child]
    });
    select_force(&terminal);
    terminal.keys(ENTER);
    tree.wait_for_all_ends();
    terminal.wait_for("All ended within");
    terminal.wait_for("returned 4.0 GiB of 4.0 GiB");
    close_and_quit(terminal);
}

#[test]
fn a_gentle_end_goes_on_with_all_that_the_root_leaves() {
    let program = "open_device_files()
for role in 'one', 'two':
    if not os.fork():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sleep_as(role)
sleep_as('root')
";
    let mut tree = Tree::start(&[("train.py", program)], &["root", "one", "two"]);
    tree.put_on_gpu("root", 4 * GIB);
    let (root, one, two) = (tree.pid("root"), tree.pid("one"), tree.pid("two"));
    let terminal = tree.open_dialog_on_job("root", "root");
    terminal.keys(ENTER);
    tree.processes["root"].wait_for_end();
    terminal.wait_for("Enter sends SIGINT to the 2 left, then SIGTERM to those left");
    terminal.wait_for("● gently    SIGINT to the 2 left, after 10 s SIGTERM to all that are left");
    terminal.wait_for("Enter sends SIGINT to the 2 left");
    terminal.keys(ENTER);
    wait_until("three signals in the audit log", || {
        tree.signalled() == [root, one, two]
    });
    terminal.wait_for("SIGTERM follows in");
    tree.wait_for_all_ends();
    terminal.wait_for("All ended within");
    wait_until("five signals in the audit log", || {
        tree.signalled() == [root, one, two, one, two]
    });
    close_and_quit(terminal);
}

/// The number of processes that the dialog names.
fn shown_count(terminal: &Terminal) -> usize {
    let text = terminal.text();
    let digits = |text: &str| {
        text.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
    };
    let head = text
        .lines()
        .find_map(|line| digits(line.split_once(" processes")?.0).parse().ok());
    head.unwrap_or_else(|| panic!("no number of processes in\n{text}"))
}

#[test]
fn a_job_that_forks_without_end_is_ended_completely() {
    // The process starts 24 children. On SIGUSR1 it starts more without end, each of which forks
    // once.
    let program = "open_device_files()
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(24):
    if not os.fork():
        sleep_as('drop')
report_ready('storm')
signal.pause()
while True:
    if not os.fork():
        os.fork()
        while True:
            signal.pause()
    time.sleep(0.005)
";
    let mut tree = Tree::start(
        &[("storm.py", program)],
        &vec!["drop"; 24]
            .into_iter()
            .chain(["storm"])
            .collect::<Vec<_>>(),
    );
    tree.put_on_gpu("storm", GIB);
    let storm = tree.pid("storm");
    let terminal = tree.open_dialog_on_job("storm", "storm");
    terminal.wait_for("25 processes, 1.0 GiB expected back");
    terminal.wait_for(&format!("Type {storm} to confirm:"));
    select_force(&terminal);
    // For this many processes, Enter alone does nothing.
    terminal.keys(ENTER);
    tree.processes["storm"].signal(Signal::USR1);
    let has_grown = || living_members_of_group(storm).len() > 40;
    while !has_grown() {
        assert!(
            !tree.processes["storm"].ends_within(std::time::Duration::from_millis(5)),
            "the process ends too early"
        );
    }
    terminal.keys(&storm.to_string());
    terminal.wait_for(&format!("confirm: {storm}_"));
    terminal.keys(ENTER);
    tree.wait_for_all_ends();
    terminal.wait_for("All ended within");
    terminal.wait_for("returned 1.0 GiB of 1.0 GiB");
    let ended = shown_count(&terminal);
    assert!(ended > 40, "{ended} ended");
    assert_eq!(
        living_members_of_group(storm),
        Vec::<u32>::new(),
        "all {ended} ended"
    );
    print_note(format_args!(
        "{ended} processes ended; the job had 25 when the dialog opened"
    ));
    close_and_quit(terminal);
}

#[test]
fn tagged_processes_that_are_not_reaped_are_reported_as_zombies() {
    let program = "for role in 'one', 'two':
    if not os.fork():
        open_device_files()
        sleep_as(role)
sleep_as('parent')
";
    let mut tree = Tree::start(&[("launch.py", program)], &["one", "two", "parent"]);
    tree.put_on_gpu("one", 2 * GIB);
    tree.put_on_gpu("two", GIB);
    let terminal = Terminal::start_at(&tree.host, 100, 40, ["--interval", "100ms"]);
    let (one, two, parent) = (tree.pid("one"), tree.pid("two"), tree.pid("parent"));
    open_dialog(&terminal, one);
    terminal.keys(ESC);
    terminal.wait_until_gone("╭ End");
    terminal.keys("  ");
    terminal.wait_until("two tags", |screen| {
        screen.contents().matches(" tagged python3").count() == 2
    });
    terminal.keys(F9);
    terminal.wait_for("End the tagged processes");
    terminal.wait_for("2 processes, 3.0 GiB expected back");
    terminal.wait_for("Verified: only");
    // The smallest screen shows the targets too.
    terminal.resize(40, 10);
    terminal.wait_for(&format!("2 processes: {one} {two}"));
    terminal.resize(100, 40);
    terminal.wait_for("2 processes, 3.0 GiB expected back");
    terminal.keys(ENTER);
    terminal.wait_until("two zombies", |screen| {
        screen
            .contents()
            .matches(&format!("zombie of {parent}"))
            .count()
            == 2
    });
    terminal.wait_for("returned 3.0 GiB of 3.0 GiB");
    assert_eq!(
        (
            process_state(one),
            process_state(two),
            process_state(parent)
        ),
        (Some('Z'), Some('Z'), Some('S'))
    );
    close_and_quit(terminal);
}

#[test]
fn root_ends_another_user_s_process_only_after_typing_its_pid() {
    if !rustix::process::getuid().is_root() {
        return print_note("skipped: only root can start a process as someone else");
    }
    let mut host = Host::new(["H100"]);
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sleep",
        "1000",
    ]);
    let pid = host.start(0, GIB, &mut command).pid();
    let terminal = Terminal::start(&host, ["--interval", "100ms"]);
    terminal.wait_for("sleep 1000");
    open_dialog(&terminal, pid);
    terminal.wait_for("it belongs to nobody");
    terminal.wait_for(&format!("Type {pid} to confirm:"));
    // Neither Enter alone nor another number sends a signal.
    terminal.keys(ENTER);
    terminal.keys("0");
    terminal.wait_for("confirm: 0_");
    terminal.keys(ENTER);
    terminal.keys("\x7f");
    terminal.wait_for("confirm: _");
    terminal.keys(&pid.to_string());
    terminal.wait_for(&format!("confirm: {pid}_"));
    assert_eq!(process_state(pid), Some('S'));
    // The user has time to read the caution.
    terminal.wait_for("Verified: only");
    terminal.keys(ENTER);
    host.process(pid).wait();
    terminal.wait_for("returned 1.0 GiB of 1.0 GiB");
    close_and_quit(terminal);
    let signals = sent_signals(&host);
    assert_eq!(signals.len(), 1, "{signals:?}");
    assert_eq!(
        (&signals[0]["owner"], &signals[0]["signal"]),
        (&"nobody".into(), &"TERM".into())
    );
}

#[test]
fn a_process_that_hangs_in_the_kernel_is_reported_and_ends_later() {
    let Some(mut frozen) = FrozenFileSystem::new() else {
        return;
    };
    let file = frozen.path().join("file");
    let pid = frozen
        .host
        .start(
            0,
            3 * GIB,
            Command::new("sh").args(["-c", "echo x > $0"]).arg(&file),
        )
        .pid();
    frozen.host.process(pid).handle.wait_for_state('D');
    let terminal = Terminal::start(&frozen.host, ["--interval", "100ms"]);
    terminal.wait_for(&pid.to_string());
    open_dialog(&terminal, pid);
    terminal.wait_for("Verified: only");
    terminal.keys(DOWN);
    terminal.wait_for("Enter sends SIGKILL");
    terminal.keys(ENTER);
    terminal.wait_for("SIGKILL sent");
    terminal.wait_for("it has not ended yet");
    terminal.wait_for("in the kernel");
    assert_eq!(process_state(pid), Some('D'));
    frozen.thaw();
    frozen.host.process(pid).wait();
    terminal.wait_for("It ended after");
    terminal.wait_for("returned 3.0 GiB of 3.0 GiB");
    close_and_quit(terminal);
}

#[test]
fn a_job_goes_on_when_the_agent_is_killed_in_the_middle_of_a_forced_end() {
    // After vfork, the root hangs in the kernel until its child ends. A forced end waits a moment
    // for it, while the others are stopped.
    let program = "import ctypes
open_device_files()
for role in 'one', 'two':
    if not os.fork():
        sleep_as(role)
report_ready('root')
if not ctypes.CDLL(None).vfork():
    sleep_as('three')
";
    let mut tree = Tree::start(&[("train.py", program)], &["root", "one", "two", "three"]);
    tree.put_on_gpu("one", GIB);
    let terminal = tree.open_dialog_on_job("one", "root");
    select_force(&terminal);
    let agent = terminal.agent();
    let are_all = |state| {
        ["one", "two", "three"]
            .iter()
            .all(|role| process_state(tree.pid(role)) == Some(state))
    };
    terminal.keys(ENTER);
    wait_until("all are stopped", || are_all('T'));
    agent.kill();
    agent.wait_for_end();
    wait_until("all go on", || are_all('S'));
}
