//! Starts the probe in a Python program that runs already, for `gputop attach`.
//!
//! Python 3.14 and later let another process of the same interpreter name a file, which the main
//! thread then runs between two bytecodes (`sys.remote_exec`). gputop runs the target's own
//! interpreter for that, and therefore only as the owner of the target.

mod refusal;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, getuid, pidfd_open};
use uzers::get_user_by_uid;

pub(crate) use self::refusal::AttachRefusal;
use super::procfs::{ProbeSetup, read_cut, stat};
use super::{clock, diagnostics, probe};
use crate::base::text::Text;
use crate::protocol::snapshot::{ProbeMissing, ProbeReport, ProcessId, State};

/// The time that the interpreter may take to start and to name the file.
const INJECTION_LIMIT: Duration = Duration::from_secs(20);
/// The time between two looks for the probe.
const LOOK: Duration = Duration::from_millis(50);

/// A process in which the probe can be started.
#[derive(Debug)]
pub(crate) struct AttachTarget {
    id: ProcessId,
    pidfd: OwnedFd,
    interpreter: Interpreter,
    environ: Vec<u8>,
}

/// The program that a process runs, which is called like a Python interpreter.
#[derive(Debug)]
struct Interpreter {
    /// The open file. The process may run another program meanwhile, which must not be started.
    file: OwnedFd,
    /// The name that the kernel knows.
    path: PathBuf,
}

/// The state of the probe in a process to which it was attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttachState {
    /// The probe has published a report.
    Attached,
    /// The probe is there, and waits for the program to use a GPU through PyTorch.
    Waiting,
    /// The probe could not start, and says why.
    Failed(Text),
    /// The main thread has not returned to Python since.
    Queued,
    /// The process has ended.
    Ended,
}

impl AttachTarget {
    /// Opens a process, or returns why no probe can be started in it. Runs nothing.
    pub(crate) fn open(pid: u32) -> Result<Self, AttachRefusal> {
        let number = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(AttachRefusal::Gone(pid))?;
        let line = fs::read(format!("/proc/{pid}/stat")).map_err(|_| AttachRefusal::Gone(pid))?;
        if stat::is_thread(&line) {
            let process = status_numbers(pid, "Tgid:")
                .first()
                .copied()
                .ok_or(AttachRefusal::Gone(pid))?;
            return Err(AttachRefusal::Thread(pid, process));
        }
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => AttachRefusal::Gone(pid),
            Errno::NOSYS | Errno::PERM => AttachRefusal::NoPidfd(pid),
            other => AttachRefusal::Unreadable(pid, other),
        })?;
        // Readings below are about the process of the pidfd, unless that has ended.
        let line = fs::read(format!("/proc/{pid}/stat")).map_err(|_| AttachRefusal::Gone(pid))?;
        let stat = stat::parse(&line).ok_or(AttachRefusal::Gone(pid))?;
        let id = ProcessId {
            pid,
            start_ticks: Some(stat.start_ticks),
        };
        if stat.is_kernel_thread() {
            return Err(AttachRefusal::NotPython(
                pid,
                "a thread of the kernel".into(),
            ));
        }
        if matches!(stat.state, State::Zombie | State::Dead) {
            return Err(if stat.threads > 1 {
                AttachRefusal::NoMainThread(pid)
            } else {
                AttachRefusal::Gone(pid)
            });
        }
        check_owner(pid)?;
        check_namespaces(pid)?;
        let interpreter = Interpreter::open(pid)?;
        match stat.state {
            State::Stopped => return Err(AttachRefusal::Stopped(pid)),
            State::Traced => return Err(AttachRefusal::Traced(pid)),
            _ => {}
        }
        match probe::latest_report(id) {
            Some(Err(ProbeMissing::NotYet)) => return Err(AttachRefusal::HasWaitingProbe(pid)),
            Some(_) => return Err(AttachRefusal::HasProbe(pid)),
            None => {}
        }
        let environ =
            read_cut(&format!("/proc/{pid}/environ")).map_err(|error| unreadable(pid, &error))?;
        match ProbeSetup::parse(&environ) {
            ProbeSetup::TurnedOff => return Err(AttachRefusal::TurnedOff(pid)),
            ProbeSetup::OnPath => {
                let line = read_cut(&format!("/proc/{pid}/cmdline"))
                    .map_err(|error| unreadable(pid, &error))?;
                let arguments: Vec<Text> = line.split(|byte| *byte == 0).map(Text::new).collect();
                if !probe::is_isolated(arguments.iter().map(Text::as_str)) {
                    return Err(AttachRefusal::HasWaitingProbe(pid));
                }
            }
            ProbeSetup::PathDropped | ProbeSetup::Absent => {}
        }
        let target = Self {
            id,
            pidfd,
            interpreter,
            environ,
        };
        if target.has_ended() {
            Err(AttachRefusal::Gone(pid))
        } else {
            Ok(target)
        }
    }

    /// Makes the main thread of the process run `attach.py` of this folder soon.
    pub(crate) fn inject(&self, folder: &Path) -> Result<(), AttachRefusal> {
        let pid = self.id.pid;
        let script = folder.join("attach.py");
        if !is_same_file(
            &script,
            &Path::new(&format!("/proc/{pid}/root"))
                .join(script.strip_prefix("/").unwrap_or(&script)),
        ) {
            return Err(AttachRefusal::OtherRoot(pid));
        }
        let answer = self
            .run_injector(folder, &script)
            .map_err(|why| AttachRefusal::Failed(pid, why))?;
        let (word, details) = answer.split_once(' ').unwrap_or((&answer, ""));
        // The PID was that of this process all the time if it still is.
        if word == "ended" || self.has_ended() {
            return Err(AttachRefusal::Gone(pid));
        }
        Err(match word {
            "done" => return Ok(()),
            "old" => AttachRefusal::UnsuitablePython(pid, Text::new(format!("Python {details}"))),
            "other" => AttachRefusal::UnsuitablePython(pid, Text::new(details)),
            "built_without" => AttachRefusal::BuiltWithout(pid),
            "disabled" => AttachRefusal::RemoteDebugOff(pid),
            "denied" => match diagnostics::ptrace_scope() {
                Some(scope) if scope > 0 => AttachRefusal::Yama(pid, scope),
                _ => AttachRefusal::Denied(pid),
            },
            "failed" => AttachRefusal::Failed(pid, Text::new(details)),
            _ => AttachRefusal::Failed(pid, Text::new(answer)),
        })
    }

    /// Runs `inject.py` with the interpreter of the process. Returns its first line.
    fn run_injector(&self, folder: &Path, script: &Path) -> Result<String, Text> {
        /// The interpreter may find its shared library only with this.
        const LIBRARIES: &str = "LD_LIBRARY_PATH";
        let mut command = Command::new(format!(
            "/proc/self/fd/{}",
            self.interpreter.file.as_raw_fd()
        ));
        // Python finds its modules by this name.
        command.arg0(&self.interpreter.path);
        command
            .args(["-I", "-S"])
            .arg(folder.join("inject.py"))
            .arg(self.id.pid.to_string());
        command
            .arg(
                self.id
                    .start_ticks
                    .map_or_else(String::new, |ticks| ticks.to_string()),
            )
            .arg(script);
        command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(path) = variable(&self.environ, LIBRARIES.as_bytes()) {
            command.env(LIBRARIES, OsString::from_vec(path.to_vec()));
        }
        let child = command
            .spawn()
            .map_err(|error| Text::new(format!("it does not start: {error}")))?;
        wait_for_line(child)
    }

    /// Waits until the probe has published a report, at most for this time.
    pub(crate) fn wait(&self, limit: Duration) -> AttachState {
        let started = clock::now();
        loop {
            let state = match probe::latest_report(self.id) {
                Some(Ok(report)) => return Self::started(report),
                Some(Err(_)) => AttachState::Waiting,
                None => AttachState::Queued,
            };
            let left = limit.saturating_sub(clock::now().since(started));
            if left.is_zero() {
                return state;
            }
            if is_readable_within(self.pidfd.as_fd(), LOOK.min(left)) {
                return AttachState::Ended;
            }
        }
    }

    /// A probe that could not start publishes a report without PyTorch's version.
    fn started(report: ProbeReport) -> AttachState {
        match report.trouble.into_iter().next() {
            Some(trouble) if report.torch.is_none() => AttachState::Failed(trouble),
            _ => AttachState::Attached,
        }
    }

    fn has_ended(&self) -> bool {
        is_readable_within(self.pidfd.as_fd(), Duration::ZERO)
    }
}

/// Whether a file descriptor becomes readable within this time. A pidfd does when its process ends.
fn is_readable_within(file: BorrowedFd<'_>, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    poll(
        &mut [PollFd::from_borrowed_fd(file, PollFlags::IN)],
        limit.as_ref(),
    )
    .is_ok_and(|ready| ready > 0)
}

/// Returns the first line of a program that prints little, or why there is none.
fn wait_for_line(mut child: Child) -> Result<String, Text> {
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let ended = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
    if ended.is_none_or(|ended| !is_readable_within(ended.as_fd(), INJECTION_LIMIT)) {
        let _ended_meanwhile: io::Result<()> = child.kill();
        let _reaped = child.wait();
        return Err(Text::new(format!(
            "its interpreter did not answer within {} s",
            INJECTION_LIMIT.as_secs()
        )));
    }
    let output = child
        .wait_with_output()
        .map_err(|error| Text::new(error.to_string()))?;
    let first = |bytes: &[u8]| {
        Some(Text::new(bytes.lines().next()?.ok()?)).filter(|line| !line.as_str().is_empty())
    };
    match first(&output.stdout) {
        Some(line) => Ok(line.as_str().to_owned()),
        None => Err(first(&output.stderr).unwrap_or_else(|| Text::new(output.status.to_string()))),
    }
}

/// Refuses a process unless all its user IDs and all those of gputop are the same.
fn check_owner(pid: u32) -> Result<(), AttachRefusal> {
    let own = geteuid().as_raw();
    let owners = status_numbers(pid, "Uid:");
    let other = owners.iter().copied().find(|uid| *uid != own);
    match (
        owners.is_empty(),
        other.or_else(|| Some(getuid().as_raw()).filter(|uid| *uid != own)),
    ) {
        (true, _) => Err(AttachRefusal::Gone(pid)),
        (false, Some(owner)) => Err(AttachRefusal::OtherUser {
            pid,
            owner: user_name(owner),
        }),
        (false, None) => Ok(()),
    }
}

fn user_name(uid: u32) -> Text {
    get_user_by_uid(uid).map_or_else(
        || Text::new(format!("#{uid}")),
        |user| Text::new(user.name().as_bytes()),
    )
}

/// Refuses a process whose PIDs or files are not those of gputop.
fn check_namespaces(pid: u32) -> Result<(), AttachRefusal> {
    for kind in ["pid", "mnt"] {
        let name = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}"));
        let theirs = name(&pid.to_string()).map_err(|error| unreadable(pid, &error))?;
        if name("self").ok() != Some(theirs) {
            let inner = status_numbers(pid, "NSpid:").last().copied().unwrap_or(pid);
            return Err(AttachRefusal::OtherNamespace { pid, inner });
        }
    }
    Ok(())
}

impl Interpreter {
    /// Opens the program of a process. Refuses it unless it is called like a Python interpreter.
    fn open(pid: u32) -> Result<Self, AttachRefusal> {
        let unreadable = |error: Errno| unreadable(pid, &error.into());
        let link = format!("/proc/{pid}/exe");
        let file = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(unreadable)?;
        let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let name = name.map_err(|error| self::unreadable(pid, &error))?;
        // The kernel adds words to the name of a file that was deleted.
        let name = name.into_os_string().into_vec();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(&name);
        if is_interpreter(name) {
            return Ok(Self {
                file,
                path: PathBuf::from(OsStr::from_bytes(name)),
            });
        }
        Err(AttachRefusal::NotPython(pid, Text::new(name)))
    }
}

fn is_interpreter(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let version = name
        .strip_prefix(b"python")
        .or_else(|| name.strip_prefix(b"pypy"));
    // The letters mean builds: for debugging, without the lock of the interpreter, and others of
    // old versions.
    let is_version = |rest: &[u8]| {
        rest.iter()
            .all(|letter| letter.is_ascii_digit() || b".dtmu".contains(letter))
    };
    version.is_some_and(is_version)
}

/// Returns the reason for an error at reading a file of a process.
fn unreadable(pid: u32, error: &io::Error) -> AttachRefusal {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::SRCH) | None => AttachRefusal::Gone(pid),
        Some(Errno::ACCESS | Errno::PERM) => AttachRefusal::Protected(pid),
        Some(other) => AttachRefusal::Unreadable(pid, other),
    }
}

/// Returns the numbers in a line of `/proc/PID/status`. Empty if there is no such line or process.
fn status_numbers(pid: u32, line: &str) -> Vec<u32> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return Vec::new();
    };
    let numbers = status
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .into_iter();
    numbers
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// Returns the value of a variable in an environment block.
fn variable<'a>(environ: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut variables = environ.split(|byte| *byte == 0);
    variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix(b"="))
}

fn is_same_file(first: &Path, second: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(first).is_some_and(|first| identity(second) == Some(first))
}
