//! The processes of the simulated machine: this program, started again under other names.
//!
//! Each process ends when its standard input closes, which happens however the agent ends. No
//! process ignores a signal or uses more than 1 % of a CPU.

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
use crate::protocol::launchers;

/// The environment variable that makes gputop run as a process of the simulated machine. Its value
/// is the role.
pub const ROLE_VARIABLE: &str = launchers::DEMO_VARIABLE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemoRole {
    /// Trains, and leaks memory.
    Growing,
    /// Starts the ranks of a distributed job, as torchrun does.
    Launcher,
    /// Trains with the other ranks, each on its own GPU.
    Rank(u32),
    /// Loads data for a rank.
    DataWorker(u32),
    /// Answers a request from time to time.
    Server,
    /// Holds memory and is idle. Ends 3 seconds after SIGTERM.
    Notebook,
    /// Starts [`DemoRole::Orphan`] and ends.
    Trainer,
    /// A data worker whose trainer has ended. The worker still holds the trainer's memory.
    Orphan,
    /// Starts [`DemoRole::Hidden`] and ends.
    Forker,
    /// Holds memory of a trainer that has ended. The driver does not list this process.
    Hidden,
}

/// The ranks of the distributed job, and the data workers of each.
pub(super) const RANKS: u32 = 4;
const WORKERS: usize = 2;

impl DemoRole {
    /// The roles that the agent starts itself. These start the others.
    const STARTED: [Self; 6] = [
        Self::Growing,
        Self::Launcher,
        Self::Server,
        Self::Notebook,
        Self::Trainer,
        Self::Forker,
    ];

    /// The roles that a process of this role starts.
    fn children(self) -> Vec<Self> {
        match self {
            Self::Launcher => (0..RANKS).map(Self::Rank).collect(),
            Self::Rank(rank) => vec![Self::DataWorker(rank); WORKERS],
            Self::Trainer => vec![Self::Orphan],
            Self::Forker => vec![Self::Hidden],
            _ => Vec::new(),
        }
    }

    /// This role and those of its descendants.
    fn with_descendants(self) -> Vec<Self> {
        std::iter::once(self)
            .chain(self.children().into_iter().flat_map(Self::with_descendants))
            .collect()
    }

    /// Parses the `Debug` text of a role.
    fn parse(text: &str) -> Option<Self> {
        let roles = Self::STARTED.into_iter().flat_map(Self::with_descendants);
        roles.into_iter().find(|role| format!("{role:?}") == text)
    }

    /// Whether a process of this role ends as soon as its children have started.
    fn leaves_children(self) -> bool {
        matches!(self, Self::Trainer | Self::Forker)
    }

    /// Whether it has the GPU open without being listed by the driver.
    pub(super) fn is_holder(self) -> bool {
        matches!(self, Self::Hidden | Self::DataWorker(_))
    }

    /// The made-up name of its user.
    pub(super) fn user(self) -> &'static str {
        match self {
            Self::Growing | Self::Notebook => "alice",
            Self::Launcher | Self::Rank(_) | Self::DataWorker(_) => "bob",
            Self::Server => "carol",
            Self::Trainer | Self::Orphan | Self::Forker | Self::Hidden => "dave",
        }
    }

    /// How long before its start the process pretends to have begun. Its history is at least as
    /// long as that of the scene.
    pub(super) fn past(self) -> Duration {
        const MINUTE: Duration = Duration::from_mins(1);
        match self {
            // Its memory has grown since its first step, when the scene began.
            Self::Growing => 15 * MINUTE + Duration::from_secs(40),
            Self::Launcher | Self::Rank(_) | Self::DataWorker(_) => 12 * 60 * MINUTE,
            Self::Server => 2 * 24 * 60 * MINUTE,
            Self::Notebook => 27 * 60 * MINUTE,
            Self::Trainer | Self::Orphan => 5 * 60 * MINUTE,
            Self::Forker | Self::Hidden => 3 * 60 * MINUTE,
        }
    }

    fn arguments(self) -> &'static str {
        match self {
            Self::Growing => "train.py --model gpt2-xl --epochs 300",
            Self::Launcher => {
                "-m torch.distributed.run --nproc-per-node 4 pretrain.py --config llama-3b.yaml"
            }
            Self::Rank(_) | Self::DataWorker(_) => "-u pretrain.py --config llama-3b.yaml",
            Self::Server => "serve.py --model llama-8b --port 8000",
            Self::Notebook => "-m ipykernel_launcher -f kernel-5f2c.json",
            Self::Trainer | Self::Orphan => "finetune.py --model bert-base --workers 4",
            Self::Forker | Self::Hidden => "sweep.py --trial 17 --workers 8",
        }
    }

    fn comm(self) -> &'static CStr {
        match self {
            Self::Launcher => c"torchrun",
            Self::Orphan | Self::Hidden | Self::DataWorker(_) => c"pt_data_worker",
            _ => c"python",
        }
    }

    /// Returns the CPU time to use in each quarter of a second, so that the CPU column of trainers
    /// is not 0.
    fn cpu_time(self) -> Duration {
        match self {
            Self::Growing => Duration::from_millis(2),
            Self::Rank(_) => Duration::from_micros(1400),
            _ => Duration::ZERO,
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("python")
            .args(self.arguments().split(' '))
            .arg("(gputop demo)");
        command.env(ROLE_VARIABLE, format!("{self:?}"));
        if let Self::Rank(rank) = self {
            command.envs(
                [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", RANKS)]
                    .map(|(name, at)| (name, at.to_string())),
            );
        }
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
}

/// The processes of the simulated machine.
#[derive(Debug)]
pub(super) struct Actors {
    list: Vec<Actor>,
    /// The PID and role of each process that has ended.
    ended: Vec<(u32, DemoRole)>,
    /// The standard inputs of the processes. When the agent ends, they close, which ends the
    /// processes.
    _inputs: Vec<ChildStdin>,
}

impl Actors {
    pub(super) fn start() -> io::Result<Self> {
        let start = |role: DemoRole| {
            let mut command = role.command();
            // Like a shell, give each process its own group: the worker is an orphan because its
            // group leader has ended.
            command
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            Ok((role, command.spawn()?))
        };
        // Start all processes before waiting for the first.
        let children = DemoRole::STARTED
            .into_iter()
            .map(start)
            .collect::<io::Result<Vec<_>>>()?;
        let (mut list, mut inputs) = (Vec::new(), Vec::new());
        for (role, mut child) in children {
            inputs.extend(child.stdin.take());
            list.extend(actors(role, child)?);
        }
        Ok(Self {
            list,
            ended: Vec::new(),
            _inputs: inputs,
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Actor> {
        self.list.iter()
    }

    pub(super) fn ended(&self) -> &[(u32, DemoRole)] {
        &self.ended
    }

    pub(super) fn forget_ended(&mut self) {
        let ended = self.list.extract_if(.., |actor| {
            let mut fds = [PollFd::new(&actor.pidfd, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())) != Ok(0)
        });
        self.ended
            .extend(ended.map(|actor| (actor.pid, actor.role)));
    }
}

/// Waits until a process and its descendants have written their PIDs, unless they are to end at
/// once.
fn actors(role: DemoRole, mut child: Child) -> io::Result<Vec<Actor>> {
    let gone = || io::Error::other("a process of the simulated machine did not start");
    let mut lines = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
    reap(child)?;
    let actor = |_: &DemoRole| {
        let line = lines.next().ok_or_else(gone)??;
        let (role, pid) = line.split_once(' ').ok_or_else(gone)?;
        let pid: Pid = pid.parse().ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let (role, pidfd) = (
            DemoRole::parse(role).ok_or_else(gone)?,
            pidfd_open(pid, PidfdFlags::empty())?,
        );
        Ok(Actor {
            role,
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            pidfd,
        })
    };
    role.with_descendants()
        .iter()
        .filter(|role| !role.leaves_children())
        .map(actor)
        .collect()
}

/// Waits for the end of a child on a thread of its own. The child would otherwise stay a zombie
/// after its end.
fn reap(mut child: Child) -> io::Result<()> {
    thread::Builder::new()
        .name("reaper".to_owned())
        .spawn(move || child.wait())
        .map(drop)
}

/// Runs as a process of the simulated machine until the agent ends.
///
/// # Errors
///
/// When the role is unknown, or the process cannot be set up.
pub fn run_role(role: &str) -> anyhow::Result<ExitCode> {
    let Some(role) = DemoRole::parse(role) else {
        anyhow::bail!("no such role: {role}")
    };
    rustix::thread::set_name(role.comm())?;
    // These roles must outlive their parents.
    if !matches!(role, DemoRole::Orphan | DemoRole::Hidden) {
        // SIGKILL ends even a stopped process, which cannot notice that its standard input closed.
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    for child in role.children() {
        // The child inherits standard input and output, and writes its own PID.
        let child = child.command().spawn()?;
        if !role.leaves_children() {
            reap(child)?;
        }
    }
    if role.leaves_children() {
        return Ok(ExitCode::SUCCESS);
    }
    if role == DemoRole::Notebook {
        thread::Builder::new()
            .name("shutdown".to_owned())
            .spawn(end_slowly)?;
    }
    // One write, since its relatives write into the same pipe.
    io::stdout().write_all(format!("{role:?} {}\n", std::process::id()).as_bytes())?;
    live(role);
}

fn live(role: DemoRole) -> ! {
    let quarter = Timespec {
        tv_sec: 0,
        tv_nsec: 250_000_000,
    };
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        signal(SignalKind::terminate())?.recv().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        leave();
    })
}
