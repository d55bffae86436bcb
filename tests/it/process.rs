//! Real processes, their ends and their outputs. What a test starts, ends with it.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::DEADLINE;

/// A process that can be waited for, whoever's child it is.
pub(crate) struct Life {
    pub(crate) pid: u32,
    pidfd: OwnedFd,
}

impl Life {
    pub(crate) fn of(pid: u32) -> Self {
        let number = pid.try_into().ok().and_then(Pid::from_raw).expect("a PID");
        let pidfd = rustix::process::pidfd_open(number, PidfdFlags::empty()).expect("the process is there");
        Self { pid, pidfd }
    }

    /// Whether it ends within that time.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        is_readable_within(&self.pidfd, time)
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    #[track_caller]
    pub(crate) fn wait_end(&self) {
        assert!(self.ends_within(DEADLINE), "{} is still there: {}", self.pid, stat(self.pid));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).expect("the process is there");
    }

    /// Ends it, if it is still there.
    pub(crate) fn end(&self) {
        let _ended = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until the kernel shows it in this state: a letter of `/proc/PID/stat`.
    #[track_caller]
    pub(crate) fn wait_state(&self, letter: char) {
        // The kernel tells nobody of such a change, so the only way is to look again.
        let started = now();
        while state(self.pid) != Some(letter) {
            assert!(started.elapsed() < DEADLINE, "{} is never {letter}: {}", self.pid, stat(self.pid));
            assert!(!self.ends_within(Duration::from_millis(2)) || letter == 'Z', "{} has ended", self.pid);
        }
    }
}

/// Waits for something that nobody tells of.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = now();
    while !is_so() {
        assert!(started.elapsed() < DEADLINE, "never: {what}");
        thread::yield_now();
    }
}

/// Whether it can be read within that time, or has hung up.
pub(crate) fn is_readable_within(fd: &impl AsFd, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs().try_into().expect("short"), tv_nsec: time.subsec_nanos().into() };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&timeout)).expect("poll waits") > 0
}

#[expect(clippy::disallowed_methods, reason = "tests say how long things took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn stat(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/stat"))
        .map_or_else(|error| error.to_string(), |it| String::from_utf8_lossy(&it).into_owned())
}

fn after_name(pid: u32) -> Option<String> {
    Some(stat(pid).rsplit_once(") ")?.1.to_owned())
}

/// The letter of its state; absent when it is gone.
pub(crate) fn state(pid: u32) -> Option<char> {
    after_name(pid)?.chars().next()
}

/// Who lives of a process group.
pub(crate) fn members_of_group(group: u32) -> Vec<u32> {
    let all =
        fs::read_dir("/proc").expect("there is /proc").filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    let is_member = |pid: &u32| {
        let stat = after_name(*pid).unwrap_or_default();
        let mut fields = stat.split(' ');
        fields.next().is_some_and(|it| !["Z", "X"].contains(&it)) && fields.nth(1) == Some(&group.to_string())
    };
    all.filter(is_member).collect()
}

/// Whether this is a container, where gputop cannot be sure whom NVML means unless it sees its device file open.
/// Says that a test is left out for it.
pub(crate) fn is_contained() -> bool {
    let is_contained = fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.as_os_str() != "pid:[4026531836]");
    if is_contained {
        crate::say("skipped: in a container gputop must see a process's files to be sure that NVML means it");
    }
    is_contained
}

/// Children of a process whose command line has this word.
pub(crate) fn children(parent: u32, word: &str) -> Vec<u32> {
    let all =
        fs::read_dir("/proc").expect("there is /proc").filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|pid| {
        let is_child = after_name(*pid).and_then(|it| it.split(' ').nth(1)?.parse().ok()) == Some(parent);
        is_child
            && fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|it| it.split(|b| *b == 0).any(|it| it == word.as_bytes()))
    })
    .collect()
}

/// Has the command end when the test's thread does, even if that panics or is killed.
pub(crate) fn ends_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

/// A child of the test.
pub(crate) struct Started {
    pub(crate) life: Life,
    child: Child,
}

impl Started {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = ends_with_us(command).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { life: Life::of(child.id()), child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.life.pid
    }

    /// Reaps it, so that it is no zombie.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.life.wait_end();
        self.child.wait().expect("it is our child")
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// What a program that ran to its end left behind.
pub(crate) struct Ran {
    /// Exit code; 128 and the signal's number for one that was killed.
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).expect("the output is UTF-8")
    }
}

/// Runs a program until it has ended and nobody holds its outputs any more. Who hangs fails: see [`crate::DEADLINE`].
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ran {
    let started = now();
    let mut program = Started::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.expect("it was asked for").read_to_end(&mut bytes).expect("a pipe can be read");
            bytes
        })
    };
    let out = read(program.child().stdout.take().map(|it| Box::new(it) as _));
    let err = read(program.child().stderr.take().map(|it| Box::new(it) as _));
    let status = program.wait();
    let took = started.elapsed();
    let bytes = |reader: thread::JoinHandle<Vec<u8>>| reader.join().expect("reading does not panic");
    Ran { code: code(status), out: bytes(out), err: String::from_utf8_lossy(&bytes(err)).into_owned(), took }
}

/// As a shell says it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|it| 128 + it)).expect("it has ended")
}
