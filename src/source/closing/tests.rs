//! Tests of closing, with shell scripts and Python programs in place of ssh.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::{kill_process, test_kill_process};

use super::*;

/// Long enough for everything that is to happen in a test.
const LONG: Duration = Duration::from_mins(1);

const SHORT: Duration = Duration::from_millis(50);

/// A Python program that does as a control master of ssh does: another process can connect to it.
const MASTER: &str = r#"exec python3 -c '
import signal, socket
master = socket.socket(socket.AF_UNIX)
master.bind("")
master.listen()
print("ready", flush=True)
signal.pause()'"#;

/// A shell script whose input is closed. Dropping it kills it.
struct Script {
    child: Child,
    /// The first line of the output.
    line: String,
    closing: Option<ClosingCommand>,
}

impl Script {
    /// Starts the script, and waits until it has written a line.
    fn start(text: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", text])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::with_capacity(1, child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let closing = ClosingCommand::new(&child, output.into_inner().into());
        Self {
            child,
            line: line.trim_end().to_owned(),
            closing,
        }
    }

    /// Closes the command, and then ends it by another signal. Returns whether it got SIGTERM
    /// before.
    fn gets_sigterm(&mut self, patience: Duration) -> bool {
        close(self.closing.take().into_iter().collect(), patience);
        // The kernel delivers the signal with the lower number first, so SIGTERM is never late.
        kill_process(Pid::from_child(&self.child), Signal::POWER).unwrap();
        let signal = self
            .child
            .wait()
            .unwrap()
            .signal()
            .and_then(Signal::from_named_raw);
        assert!(
            [Some(Signal::TERM), Some(Signal::POWER)].contains(&signal),
            "{signal:?}"
        );
        signal == Some(Signal::TERM)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ended: io::Result<()> = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_command_that_keeps_its_output_open_gets_sigterm_and_its_group_gets_none() {
    let mut script = Script::start("sleep 1000 & echo $!; exec sleep 1000");
    let other = Pid::from_raw(script.line.parse().unwrap()).unwrap();
    assert!(script.gets_sigterm(SHORT));
    assert_eq!(test_kill_process(other), Ok(()));
    kill_process(other, Signal::KILL).unwrap();
}

#[test]
fn a_command_that_writes_without_end_gets_sigterm() {
    assert!(Script::start("exec yes").gets_sigterm(SHORT));
}

#[test]
fn a_command_whose_output_ends_gets_no_signal() {
    // Output that nobody reads must not delay the end.
    let mut script =
        Script::start("echo ready; head -c 1000000 /dev/zero; exec >&-; exec sleep 1000");
    assert!(!script.gets_sigterm(LONG));
}

#[test]
fn a_control_master_gets_no_signal() {
    assert!(!Script::start(MASTER).gets_sigterm(SHORT));
}

#[test]
fn a_wrapper_of_a_control_master_gets_no_signal() {
    let mut script = Script::start(&format!(
        "sh -c {} & wait",
        shell_words::quote(&format!("({MASTER}) & wait"))
    ));
    let descendants =
        listening_socket::descendants(Pid::from_child(&script.child).as_raw_pid()).unwrap();
    assert!(!script.gets_sigterm(SHORT));
    for descendant in descendants {
        kill_process(Pid::from_raw(descendant).unwrap(), Signal::KILL).unwrap();
    }
}

#[test]
fn a_command_that_cannot_be_read_gets_no_signal() {
    assert!(may_be_master(Pid::from_raw(i32::MAX).unwrap()));
}

#[test]
fn arguments_that_name_no_command_are_ignored() {
    for argument in [
        "",
        "1",
        "1:2",
        "1:0:1",
        "1:100000:100001",
        "1:3:4:5",
        "a:b:c",
    ] {
        assert!(
            ClosingCommand::from_argument(argument).is_none(),
            "{argument}"
        );
    }
}
