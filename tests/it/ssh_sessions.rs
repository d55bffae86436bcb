//! The user's other sessions of ssh go on when gputop quits or connects again, though a command of
//! `--via` has become their control master.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::host::Host;
use crate::print_note;
use crate::process::{ChildProcess, ProcessHandle, all_pids, run, wait_until};
use crate::terminal::Terminal;
use crate::two_hosts::agent_of;

const STAND_IN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/ssh_sessions/stand_in.py"
);

/// A session of the user. Its far command returns each line.
struct UserSession(ChildProcess);

impl UserSession {
    fn start(command: &mut Command) -> Self {
        Self(ChildProcess::spawn(
            command.stdin(Stdio::piped()).stdout(Stdio::piped()),
        ))
    }

    /// Checks that a line comes back.
    #[track_caller]
    fn check_works(&mut self) {
        let child = self.0.child();
        child
            .stdin
            .as_mut()
            .expect("the input is piped")
            .write_all(b"hello\n")
            .expect("the session lives");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("the output is piped");
        BufReader::with_capacity(1, output)
            .read_line(&mut line)
            .expect("a pipe can be read");
        assert_eq!(line, "hello\n", "the session has ended");
    }
}

/// Waits until the process that lets a command end, of the viewer on this host, has ended.
#[track_caller]
fn wait_until_commands_are_left(host: &Host) {
    let folder = host.path("").into_os_string().into_encoded_bytes();
    let contains = |path: String, words: &[u8]| {
        fs::read(path)
            .unwrap_or_default()
            .windows(words.len())
            .any(|part| part == words)
    };
    let lets_commands_end = |pid: u32| {
        contains(format!("/proc/{pid}/cmdline"), b"close-commands")
            && contains(format!("/proc/{pid}/environ"), &folder)
    };
    wait_until("the process `close-commands` ends", || {
        !all_pids().any(lets_commands_end)
    });
}

/// Quits a viewer whose `--via` is this command, and checks that a session of the user still works.
#[track_caller]
fn check_session_survives(host: &Host, via: &str, session: &mut Command) {
    let mut terminal = Terminal::start(host, ["--via", via]);
    terminal.wait_for("H100");
    let mut session = UserSession::start(session);
    session.check_works();
    let took = terminal.quit();
    wait_until_commands_are_left(host);
    session.check_works();
    print_note(format_args!("quit in {} ms", took.as_millis()));
}

/// Returns a command of the stand-in for ssh.
fn stand_in(mode: &str, socket: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args([STAND_IN, mode]).arg(socket);
    command
}

/// Returns a value of `--via`: the agent of this host, through the stand-in for ssh.
fn through_stand_in(mode: &str, socket: &Path, host: &Host) -> String {
    format!(
        "python3 {} {mode} {} {}",
        shell_words::quote(STAND_IN),
        socket.display(),
        agent_of(host)
    )
}

#[test]
fn a_master_in_the_foreground_goes_on_for_the_other_session() {
    let host = Host::with_jitter(["H100"]);
    let socket = host.path("socket");
    let via = through_stand_in("foreground", &socket, &host);
    check_session_survives(&host, &via, stand_in("session", &socket).arg("cat"));
}

#[test]
fn a_master_that_the_command_starts_in_the_background_goes_on() {
    let host = Host::with_jitter(["H100"]);
    let socket = host.path("socket");
    let via = through_stand_in("persist", &socket, &host);
    check_session_survives(&host, &via, stand_in("session", &socket).arg("cat"));
}

#[test]
fn a_master_that_ran_before_goes_on() {
    let host = Host::with_jitter(["H100"]);
    let socket = host.path("socket");
    assert_eq!(run(&mut stand_in("background", &socket)).code, 0);
    let via = through_stand_in("session", &socket, &host);
    check_session_survives(&host, &via, stand_in("session", &socket).arg("cat"));
}

#[test]
fn a_master_goes_on_when_gputop_closes_its_connection_for_another_reason() {
    let host = Host::with_jitter(["H100"]);
    let (socket, pipe) = (host.path("socket"), host.path("pipe"));
    assert_eq!(run(Command::new("mkfifo").arg(&pipe)).code, 0);
    let command = format!(
        "python3 {} foreground {} cat {}",
        shell_words::quote(STAND_IN),
        socket.display(),
        pipe.display()
    );
    let mut terminal = Terminal::start(&host, ["--via", &format!("far={command}")]);
    wait_until("the master listens", || socket.exists());
    let mut session = UserSession::start(stand_in("session", &socket).arg("cat"));
    session.check_works();
    fs::write(&pipe, "nonsense\n").expect("the command reads the pipe");
    terminal.wait_for("its line is not understood");
    wait_until_commands_are_left(&host);
    session.check_works();
    terminal.quit();
    session.check_works();
}

/// Returns a command that ignores the end of its input, and that writes its PID to this file and
/// then performs this action.
fn stuck_command(file: &Path, action: &str) -> String {
    let script = format!("echo $$ > {}; {action}; exec sleep 1000", file.display());
    format!("far=sh -c {}", shell_words::quote(&script))
}

/// Waits until the stuck command has written its PID to this file.
fn stuck_process(file: &Path) -> ProcessHandle {
    let pid = || {
        fs::read_to_string(file)
            .ok()?
            .strip_suffix('\n')?
            .parse()
            .ok()
    };
    wait_until("the command starts", || pid().is_some());
    ProcessHandle::open(pid().expect("the file was written"))
}

#[test]
fn quitting_does_not_wait_for_a_stuck_command_which_ends_later() {
    let host = Host::new([]);
    let file = host.path("pid");
    let mut terminal = Terminal::start(&host, ["--via", &stuck_command(&file, "true")]);
    let stuck = stuck_process(&file);
    terminal.wait_for("starting");
    let took = terminal.quit();
    assert!(
        stuck.is_alive() || took > Duration::from_secs(1),
        "gputop waited {took:?} for the command"
    );
    stuck.wait_for_end();
}

#[test]
fn a_stuck_command_ends_while_the_viewer_runs_once_its_connection_is_closed() {
    let host = Host::new([]);
    let file = host.path("pid");
    let mut terminal = Terminal::start(&host, ["--via", &stuck_command(&file, "echo nonsense")]);
    terminal.wait_for("its line is not understood");
    stuck_process(&file).wait_for_end();
    terminal.quit();
}

/// An ssh server, started anew by each connection, for the user of the test.
struct SshServer<'a>(&'a Host);

impl<'a> SshServer<'a> {
    /// Returns `None`, and prints why, if there is no ssh or it does not work here.
    fn new(host: &'a Host) -> Option<Self> {
        let sshd = ["/usr/sbin/sshd", "/usr/bin/sshd"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let Some(sshd) = sshd else {
            print_note("skipped: there is no sshd");
            return None;
        };
        let path = |name: &str| host.path(name).display().to_string();
        for key in ["host-key", "user-key"] {
            let mut command = Command::new("ssh-keygen");
            assert_eq!(
                run(command.args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)])).code,
                0
            );
        }
        let server = [
            ("HostKey", path("host-key")),
            ("AuthorizedKeysFile", path("user-key.pub")),
            ("StrictModes", "no".to_owned()),
            ("PidFile", "none".to_owned()),
        ];
        let client = [
            (
                "ProxyCommand",
                format!("{sshd} -i -f {}", path("sshd_config")),
            ),
            ("IdentityFile", path("user-key")),
            ("IdentitiesOnly", "yes".to_owned()),
            ("UserKnownHostsFile", path("known_hosts")),
            ("StrictHostKeyChecking", "no".to_owned()),
            ("BatchMode", "yes".to_owned()),
            ("ControlPath", path("%C")),
        ];
        for (file, settings) in [("sshd_config", &server[..]), ("ssh_config", &client[..])] {
            let lines: Vec<String> = settings
                .iter()
                .map(|(name, value)| format!("{name} {value}\n"))
                .collect();
            fs::write(host.path(file), lines.concat()).expect("/tmp has room");
        }
        let server = Self(host);
        let output = run(server.ssh().args(["far", "true"]));
        if output.code != 0 {
            print_note(format_args!(
                "skipped: ssh does not work here: {}",
                output.stderr
            ));
            return None;
        }
        Some(server)
    }

    fn ssh(&self) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(self.0.path("ssh_config"));
        command
    }

    #[track_caller]
    fn check_master_survives(&self, options: &str) {
        let agent = agent_of(self.0);
        let config = self.0.path("ssh_config");
        let via = format!(
            "ssh -F {} {options} far {}",
            config.display(),
            shell_words::quote(&agent)
        );
        let mut session = self.ssh();
        check_session_survives(self.0, &via, session.args(["far", "cat"]));
        // A master in the foreground may have ended with its last session.
        run(self.ssh().args(["-O", "exit", "far"]));
    }
}

#[test]
fn sessions_of_the_real_ssh_go_on() {
    let host = Host::with_jitter(["H100"]);
    let Some(server) = SshServer::new(&host) else {
        return;
    };
    server.check_master_survives("-o ControlMaster=auto");
    server.check_master_survives("-o ControlMaster=auto -o ControlPersist=60");
    run(server.ssh().args([
        "-o",
        "ControlMaster=yes",
        "-o",
        "ControlPersist=60",
        "far",
        "true",
    ]));
    server.check_master_survives("");
}
