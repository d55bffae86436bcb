//! Looks at processes that are to stand still: whether they do, and whose children there are.
//!
//! It reads `stat` only, which never waits for the process it is about.

use std::io;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::plan::{ProcessSnapshot, SeenProcess};
use crate::agent::procfs::stat::{self, ProcStat};
use crate::protocol::snapshot::State;

/// Whether a process can still run a line of its program. The further down, the more it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopActivity {
    /// It is stopped, or ends, or has ended: every thread of it.
    Still,
    /// A thread is in the kernel, where no signal reaches it. When it leaves that, it stops before
    /// anything else; but a `fork` that it was in the middle of, it ends first.
    Blocked,
    /// It runs.
    Moving,
}

impl StopActivity {
    /// Flag of a thread that is about to end (`PF_EXITING`): it runs no program any more.
    const EXITING: u32 = 0x4;

    /// What that process does now. The motion of a process is that of its liveliest thread.
    pub(super) fn of(pid: u32) -> Self {
        let mut line = Vec::new();
        let (leader, threads) = match stat::of(pid, &mut line) {
            Ok(stat) => (Self::judge(&stat), stat.threads),
            Err(error) => return Self::unseen(&error),
        };
        if threads <= 1 || leader == Self::Moving {
            return leader;
        }
        // A group stop reaches one thread after the other.
        let tasks = match std::fs::read_dir(format!("/proc/{pid}/task")) {
            Ok(tasks) => tasks,
            Err(error) => return Self::unseen(&error),
        };
        let motions = tasks.map(|task| match task.and_then(|it| Self::of_thread(&it.path())) {
            Ok(motion) => motion,
            Err(error) => Self::unseen(&error),
        });
        motions.fold(leader, Self::max)
    }

    fn of_thread(folder: &Path) -> io::Result<Self> {
        Ok(Self::judge(&stat::read(folder, &mut Vec::new())?))
    }

    fn judge(stat: &ProcStat<'_>) -> Self {
        match stat.state {
            State::Stopped | State::Traced | State::Zombie | State::Dead => Self::Still,
            _ if stat.flags & Self::EXITING != 0 => Self::Still,
            State::DiskSleep => Self::Blocked,
            State::Running | State::Sleeping | State::Idle | State::Other => Self::Moving,
        }
    }

    /// What is gone stands still; of what cannot be read, nothing is known.
    fn unseen(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::SRCH) => Self::Still,
            _ => Self::Moving,
        }
    }
}

/// Looks at every process there is.
///
/// # Errors
///
/// When one could not be read although it is there: the look would not be a whole one.
pub(super) fn look() -> io::Result<ProcessSnapshot> {
    let root = rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut all = Vec::new();
    for entry in Dir::read_from(&root)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let mut line = [0; 1024];
        let length = openat(&root, format!("{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| rustix::io::read(file, &mut line));
        match length {
            Ok(length) => {
                let stat = stat::parse(&line[..length]).ok_or(io::ErrorKind::InvalidData)?;
                all.push(SeenProcess { pid, parent: stat.parent, start_ticks: stat.start_ticks });
            }
            Err(Errno::NOENT | Errno::SRCH) => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all.into_iter().collect())
}
