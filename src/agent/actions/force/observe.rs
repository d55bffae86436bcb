//! Reads whether processes are stopped, and which processes exist.
//!
//! Reads only `stat`, which never waits for the process that it describes.

use std::io;
use std::path::Path;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::plan::SeenProcess;
use crate::agent::procfs::files;
use crate::agent::procfs::stat::{self, ProcStat};
use crate::protocol::snapshot::State;

/// Whether a process can still run its program, from the least active to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopActivity {
    /// All its threads are stopped, are about to end, or have ended.
    Still,
    /// A thread is in the kernel, where no signal reaches it. It stops before it returns to the
    /// program, but completes a `fork` that has begun.
    Blocked,
    Moving,
}

impl StopActivity {
    /// `PF_EXITING`: the flag of a thread that is about to end and runs no program any more.
    const EXITING: u32 = 0x4;

    /// Reads the activity of the most active thread of a process.
    pub(super) fn read(pid: u32) -> Self {
        Self::read_threads(pid).unwrap_or_else(|error| Self::of_unreadable(&error))
    }

    fn read_threads(pid: u32) -> io::Result<Self> {
        let mut line = Vec::new();
        let stat = stat::read_process(pid, &mut line)?;
        let leader = Self::of_stat(&stat);
        if stat.threads <= 1 || leader == Self::Moving {
            return Ok(leader);
        }
        // A stop signal reaches one thread after the other.
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
        let activity =
            |path: &Path| stat::read(path, &mut Vec::new()).map(|stat| Self::of_stat(&stat));
        let threads = tasks.map(|task| task.and_then(|task| activity(&task.path())));
        Ok(threads
            .map(|thread| thread.unwrap_or_else(|error| Self::of_unreadable(&error)))
            .fold(leader, Self::max))
    }

    fn of_stat(stat: &ProcStat<'_>) -> Self {
        match stat.state {
            State::Stopped | State::Traced | State::Zombie | State::Dead => Self::Still,
            _ if stat.flags & Self::EXITING != 0 => Self::Still,
            State::DiskSleep => Self::Blocked,
            State::Running | State::Sleeping | State::Idle | State::Other => Self::Moving,
        }
    }

    /// Returns the activity of a process or thread whose `stat` cannot be read: if the file exists,
    /// the thread may run.
    fn of_unreadable(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::SRCH) => Self::Still,
            _ => Self::Moving,
        }
    }
}

/// A process that exists but cannot be read is an error, since its parent would be unknown.
pub(super) fn all_processes() -> io::Result<Vec<SeenProcess>> {
    let mut seen = Vec::new();
    let mut line = [0; 1024];
    for entry in Dir::read_from(files::open_directory("/proc".as_ref())?)? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .ok()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        match files::open(pid, "stat").and_then(|file| files::read(file, &mut line)) {
            Ok(line) => {
                let stat = stat::parse(line).ok_or(io::ErrorKind::InvalidData)?;
                seen.push(SeenProcess {
                    pid,
                    parent: stat.parent,
                    start_ticks: stat.start_ticks,
                });
            }
            Err(Errno::NOENT | Errno::SRCH) => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(seen)
}
