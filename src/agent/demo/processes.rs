//! The processes of the simulated machine: this program, started again under other names.
//!
//! Each process ends when its standard input closes, which happens when the agent ends in whatever way. None ignores a
//! signal, and none takes more than a hundredth of a processor.

use std::ffi::CStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

use crate::agent::leave;

/// The environment variable that makes a process one of the simulated machine.
pub const ROLE_VARIABLE: &str = "GPUTOP_DEMO_ROLE";

/// The role that a process of the simulated machine plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
pub(super) enum DemoRole {
    /// Trains, and leaks memory.
    Growing,
    /// Trains with [`DemoRole::Rank1`] on two GPUs.
    Rank0,
    /// Trains with [`DemoRole::Rank0`] on two GPUs.
    Rank1,
    /// Answers now and then.
    Server,
    /// Holds memory, does nothing, and takes its time to end.
    Notebook,
    /// Starts [`DemoRole::Worker`] and ends.
    Trainer,
    /// Loaded data for a trainer that has ended, and holds its memory.
    Worker,
    /// Starts [`DemoRole::Hidden`] and ends.
    Forker,
    /// Holds memory of a dead trainer; the driver does not list it.
    Hidden,
}

impl DemoRole {
    /// The roles that the agent starts.
    const STARTED: [Self; 7] =
        [Self::Growing, Self::Rank0, Self::Rank1, Self::Server, Self::Notebook, Self::Trainer, Self::Forker];

    /// The role that this role starts before it ends.
    fn leaves(self) -> Option<Self> {
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

    /// The CPU time in each quarter of a second, so that the CPU column is not 0.
    fn work(self) -> Duration {
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
        // An inherited standard error would keep a connection of ssh open.
        command.stderr(Stdio::null());
        command
    }
}

/// A process of the simulated machine, seen from the agent.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) role: DemoRole,
    pub(super) pid: u32,
    pidfd: OwnedFd,
    /// The process's standard input. It closes when the agent ends, which ends the process.
    _agent_lives: ChildStdin,
}

impl Actor {
    pub(super) fn lives(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
    }

    /// Waits until the process is ready and has written its PID: its own or that of its child.
    fn ready(role: DemoRole, mut child: Child) -> io::Result<Self> {
        let gone = || io::Error::other("a process of the simulated machine did not start");
        let agent_lives = child.stdin.take().ok_or_else(gone)?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or_else(gone)?).read_line(&mut line)?;
        // Without a thread that waits for it, an ended child stays a zombie.
        thread::Builder::new().name("reaper".to_owned()).spawn(move || child.wait())?;
        let pid: Pid = line.trim().parse().ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let role = role.leaves().unwrap_or(role);
        Ok(Self { role, pid: pid.as_raw_nonzero().get().unsigned_abs(), pidfd, _agent_lives: agent_lives })
    }
}

pub(super) fn start() -> io::Result<Vec<Actor>> {
    let start = |role: DemoRole| {
        let mut command = role.command();
        // A process group of its own, as from a shell: without its leader, the worker is recognised as an orphan.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok((role, command.spawn()?))
    };
    // All processes start before the first is waited for.
    let children = DemoRole::STARTED.into_iter().map(start).collect::<io::Result<Vec<_>>>()?;
    children.into_iter().map(|(role, child)| Actor::ready(role, child)).collect()
}

/// Runs as a process of the simulated machine until the agent ends.
///
/// # Errors
///
/// When there is no such role.
pub fn be(role: &str) -> anyhow::Result<ExitCode> {
    let Ok(role) = role.parse::<DemoRole>() else { anyhow::bail!("no such role: {role}") };
    rustix::thread::set_name(role.comm())?;
    if let Some(child) = role.leaves() {
        // It has our input and output, and speaks for itself.
        child.command().spawn()?;
        return Ok(ExitCode::SUCCESS);
    }
    match role {
        // They must outlive their parents.
        DemoRole::Worker | DemoRole::Hidden => (),
        // This reaches it even while it is stopped.
        _ => set_parent_process_death_signal(Some(Signal::KILL))?,
    }
    if role == DemoRole::Notebook {
        thread::Builder::new().name("shutdown".to_owned()).spawn(end_slowly)?;
    }
    writeln!(io::stdout(), "{}", std::process::id())?;
    live(role);
}

/// Uses a little CPU until the agent ends.
fn live(role: DemoRole) -> ! {
    let quarter = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
    let timeout = (!role.work().is_zero()).then_some(&quarter);
    loop {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, timeout) {
            Ok(0) => work(role.work()),
            Err(rustix::io::Errno::INTR) => (),
            // Nothing is ever written to the standard input, so it was closed.
            _ => leave(),
        }
    }
}

fn work(span: Duration) {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let begun = now();
    while now().saturating_sub(begun) < span {
        std::hint::spin_loop();
    }
}

/// Ends 3 seconds after SIGTERM, as a notebook that saves its state.
fn end_slowly() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        signal(SignalKind::terminate())?.recv().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        leave();
    })
}
