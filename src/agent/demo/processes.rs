//! The processes of the simulated machine: this program, started again under other names.
//!
//! Each process ends when its standard input closes, which happens however the agent ends. No process ignores a signal or
//! uses more than 1 % of a CPU.

use std::ffi::CStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

use crate::agent::{clock, leave};

/// The environment variable that makes gputop run as a process of the simulated machine. Its value is the role.
pub const ROLE_VARIABLE: &str = "GPUTOP_DEMO_ROLE";

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
pub(super) enum DemoRole {
    /// Trains, and leaks memory.
    Growing,
    /// Trains with [`DemoRole::Rank1`] on two GPUs.
    Rank0,
    /// Trains with [`DemoRole::Rank0`] on two GPUs.
    Rank1,
    /// Answers a request from time to time.
    Server,
    /// Holds memory and is idle. Ends 3 seconds after SIGTERM.
    Notebook,
    /// Starts [`DemoRole::Worker`] and ends.
    Trainer,
    /// A data worker whose trainer has ended. The worker still holds the trainer's memory.
    Worker,
    /// Starts [`DemoRole::Hidden`] and ends.
    Forker,
    /// Holds memory of a trainer that has ended. The driver does not list this process.
    Hidden,
}

impl DemoRole {
    /// The roles that the agent starts itself. These start the others.
    const STARTED: [Self; 7] =
        [Self::Growing, Self::Rank0, Self::Rank1, Self::Server, Self::Notebook, Self::Trainer, Self::Forker];

    /// `None` for a role that starts no other.
    fn child(self) -> Option<Self> {
        match self {
            Self::Trainer => Some(Self::Worker),
            Self::Forker => Some(Self::Hidden),
            _ => None,
        }
    }

    fn arguments(self) -> &'static str {
        match self {
            Self::Growing => "train.py --model gpt2-xl --epochs 300",
            Self::Rank0 => "pretrain.py --nproc 2 --rank 0",
            Self::Rank1 => "pretrain.py --nproc 2 --rank 1",
            Self::Server => "serve.py --model llama-8b --port 8000",
            Self::Notebook => "-m ipykernel_launcher -f kernel-5f2c.json",
            Self::Trainer | Self::Worker => "finetune.py --model bert-base --workers 4",
            Self::Forker | Self::Hidden => "sweep.py --trial 17 --workers 8",
        }
    }

    fn comm(self) -> &'static CStr {
        match self {
            Self::Worker | Self::Hidden => c"pt_data_worker",
            _ => c"python",
        }
    }

    /// Returns the CPU time to use in each quarter of a second, so that the CPU column of trainers is not 0.
    fn cpu_time(self) -> Duration {
        match self {
            Self::Growing => Duration::from_millis(2),
            Self::Rank0 | Self::Rank1 => Duration::from_micros(1400),
            _ => Duration::ZERO,
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("python").args(self.arguments().split(' ')).arg("(gputop demo)");
        command.env(ROLE_VARIABLE, <&str>::from(self));
        // An inherited standard error would keep an ssh connection open.
        command.stderr(Stdio::null());
        command
    }
}

#[derive(Debug)]
pub(super) struct Actor {
    pub(super) role: DemoRole,
    pub(super) pid: u32,
    pidfd: OwnedFd,
    /// The standard input of the process. When the agent ends, the input closes, which ends the process.
    _stdin: ChildStdin,
}

impl Actor {
    pub(super) fn lives(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
    }

    /// Waits until the process has written a PID: its own, or that of the child that replaces it.
    fn ready(role: DemoRole, mut child: Child) -> io::Result<Self> {
        let gone = || io::Error::other("a process of the simulated machine did not start");
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or_else(gone)?).read_line(&mut line)?;
        // The child would otherwise stay a zombie after its end.
        thread::Builder::new().name("reaper".to_owned()).spawn(move || child.wait())?;
        let pid: Pid = line.trim().parse().ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let role = role.child().unwrap_or(role);
        Ok(Self { role, pid: pid.as_raw_nonzero().get().unsigned_abs(), pidfd, _stdin: stdin })
    }
}

pub(super) fn start() -> io::Result<Vec<Actor>> {
    let start = |role: DemoRole| {
        let mut command = role.command();
        // Like a shell, give each process its own group: the worker is an orphan because its group leader has ended.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok((role, command.spawn()?))
    };
    // Start all processes before waiting for the first.
    let children = DemoRole::STARTED.into_iter().map(start).collect::<io::Result<Vec<_>>>()?;
    children.into_iter().map(|(role, child)| Actor::ready(role, child)).collect()
}

/// Runs as a process of the simulated machine until the agent ends.
///
/// # Errors
///
/// When the role is unknown, or the process cannot be set up.
pub fn be(role: &str) -> anyhow::Result<ExitCode> {
    let Ok(role) = role.parse::<DemoRole>() else { anyhow::bail!("no such role: {role}") };
    rustix::thread::set_name(role.comm())?;
    if let Some(child) = role.child() {
        // The child inherits standard input and output, and writes its own PID.
        child.command().spawn()?;
        return Ok(ExitCode::SUCCESS);
    }
    match role {
        // These roles must outlive their parents.
        DemoRole::Worker | DemoRole::Hidden => (),
        // SIGKILL ends even a stopped process, which cannot notice that its standard input closed.
        _ => set_parent_process_death_signal(Some(Signal::KILL))?,
    }
    if role == DemoRole::Notebook {
        thread::Builder::new().name("shutdown".to_owned()).spawn(end_slowly)?;
    }
    writeln!(io::stdout(), "{}", std::process::id())?;
    live(role);
}

fn live(role: DemoRole) -> ! {
    let quarter = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
    let timeout = (!role.cpu_time().is_zero()).then_some(&quarter);
    loop {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, timeout) {
            Ok(0) => use_cpu(role.cpu_time()),
            Err(rustix::io::Errno::INTR) => (),
            // Nothing is ever written to standard input, so this event means that it was closed.
            _ => leave(),
        }
    }
}

fn use_cpu(span: Duration) {
    let begun = clock::thread_cpu_time();
    while clock::thread_cpu_time().saturating_sub(begun) < span {
        std::hint::spin_loop();
    }
}

fn end_slowly() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        signal(SignalKind::terminate())?.recv().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        leave();
    })
}
