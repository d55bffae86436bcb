//! Real processes, their ends and their output. A process that a test starts ends with the test.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::DEADLINE;

/// A pidfd: waits for a process and signals it, also when it is no child of the test.
pub(crate) struct ProcessHandle {
    pub(crate) pid: u32,
    pidfd: OwnedFd,
}

impl ProcessHandle {
    pub(crate) fn open(pid: u32) -> Self {
        let number = pid
            .try_into()
            .ok()
            .and_then(Pid::from_raw)
            .expect("a PID is positive");
        let pidfd =
            rustix::process::pidfd_open(number, PidfdFlags::empty()).expect("the process exists");
        Self { pid, pidfd }
    }

    /// Whether the process ends within this time.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        is_readable_within(&self.pidfd, time)
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    #[track_caller]
    pub(crate) fn wait_for_end(&self) {
        assert!(
            self.ends_within(DEADLINE),
            "process {} does not end: {}",
            self.pid,
            stat(self.pid)
        );
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).expect("the process is alive");
    }

    /// Kills the process if it is alive.
    pub(crate) fn kill(&self) {
        let _ended = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until the kernel shows the process in this state: a letter of `/proc/PID/stat`.
    #[track_caller]
    pub(crate) fn wait_for_state(&self, letter: char) {
        // The kernel reports no change of state, so the state is polled.
        let started = now();
        while process_state(self.pid) != Some(letter) {
            assert!(
                started.elapsed() < DEADLINE,
                "process {} is never {letter}: {}",
                self.pid,
                stat(self.pid)
            );
            assert!(
                !self.ends_within(Duration::from_millis(2)) || letter == 'Z',
                "process {} has ended",
                self.pid
            );
        }
    }
}

/// The time between two looks at a condition of which no event reports the change. Tests that look
/// all the time take the processors from the others.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls a condition of which no event reports the change. `description` completes "never: …" when
/// it does not come true.
#[track_caller]
pub(crate) fn wait_until(description: &str, mut is_true: impl FnMut() -> bool) {
    let started = now();
    while !is_true() {
        assert!(started.elapsed() < DEADLINE, "never: {description}");
        thread::park_timeout(POLL_INTERVAL);
    }
}

/// Whether a file descriptor becomes readable or hangs up within this time.
fn is_readable_within(fd: &impl AsFd, time: Duration) -> bool {
    let seconds = time.as_secs().try_into().expect("deadlines are short");
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&timeout)).expect("poll waits") > 0
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests have deadlines, and print how long things took"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The content of `/proc/PID/stat`, or the error of reading it.
fn stat(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/stat")).map_or_else(
        |error| error.to_string(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// The fields of `/proc/PID/stat` from the state on; `None` when the process is gone.
fn stat_fields(pid: u32) -> Option<String> {
    Some(stat(pid).rsplit_once(") ")?.1.to_owned())
}

/// The state letter of `/proc/PID/stat`; `None` when the process is gone.
pub(crate) fn process_state(pid: u32) -> Option<char> {
    stat_fields(pid)?.chars().next()
}

/// The PIDs in `/proc`.
pub(crate) fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The members of a process group that are no zombies.
pub(crate) fn living_members_of_group(group: u32) -> Vec<u32> {
    let is_member = |pid: &u32| {
        let stat = stat_fields(*pid).unwrap_or_default();
        let mut fields = stat.split(' ');
        fields
            .next()
            .is_some_and(|state| !["Z", "X"].contains(&state))
            && fields.nth(1) == Some(&group.to_string())
    };
    all_pids().filter(is_member).collect()
}

/// Whether the test runs in a container, where gputop trusts a PID of NVML only if the process has
/// a device file open. Prints that the test is skipped.
pub(crate) fn is_skipped_in_container() -> bool {
    /// The link of the initial PID namespace.
    const INITIAL_NAMESPACE: &str = "pid:[4026531836]";
    let is_contained =
        fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() != INITIAL_NAMESPACE);
    if is_contained {
        crate::print_note(
            "skipped: in a container, gputop trusts no PID of a process whose files it cannot see",
        );
    }
    is_contained
}

/// The children of a process that have this argument.
pub(crate) fn children_with_argument(parent: u32, argument: &str) -> Vec<u32> {
    let is_child = |pid: &u32| {
        stat_fields(*pid).and_then(|fields| fields.split(' ').nth(1)?.parse().ok()) == Some(parent)
    };
    let has_argument = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == argument.as_bytes())
        })
    };
    all_pids().filter(is_child).filter(has_argument).collect()
}

/// Makes the kernel kill the started process when the test's thread ends, even if that panics or is
/// killed. SIGINT ends the process, even if the shell that started the tests in the background made
/// them ignore it.
fn kill_with_this_thread(command: &mut Command) -> &mut Command {
    let prepare = || {
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(rustix::process::set_parent_process_death_signal(Some(
            Signal::KILL,
        ))?)
    };
    // SAFETY: two system calls, which allocate nothing and take no lock.
    unsafe { command.pre_exec(prepare) }
}

/// A child of the test. Dropping it kills and reaps it.
pub(crate) struct ChildProcess {
    pub(crate) handle: ProcessHandle,
    child: Child,
}

impl ChildProcess {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = kill_with_this_thread(command)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            handle: ProcessHandle::open(child.id()),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.handle.pid
    }

    /// Waits for the end and reaps the process.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.handle.wait_for_end();
        self.child.wait().expect("the process is our child")
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The result of a program that ran to its end.
pub(crate) struct Output {
    /// The exit code; 128 plus the number of the signal that killed the program.
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Output {
    /// The standard output.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("the output is UTF-8")
    }
}

/// Runs a program until it has ended and all writers of its output are gone. Fails after
/// [`crate::DEADLINE`].
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let mut program = ChildProcess::spawn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.expect("the output is piped")
                .read_to_end(&mut bytes)
                .expect("a pipe can be read");
            bytes
        })
    };
    let stdout = read(
        program
            .child()
            .stdout
            .take()
            .map(|pipe| Box::new(pipe) as _),
    );
    let stderr = read(
        program
            .child()
            .stderr
            .take()
            .map(|pipe| Box::new(pipe) as _),
    );
    let status = program.wait();
    let bytes =
        |reader: thread::JoinHandle<Vec<u8>>| reader.join().expect("reading does not panic");
    let stderr = String::from_utf8_lossy(&bytes(stderr)).into_owned();
    Output {
        code: exit_code(status),
        stdout: bytes(stdout),
        stderr,
    }
}

/// The exit code as a shell gives it: 128 plus the number of the signal that ended the program.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|number| 128 + number))
        .expect("the program has ended")
}
