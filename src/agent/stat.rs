//! `/proc/PID/stat`: the file that says who a process is. Reading it never blocks.

use std::fs;
use std::io;
use std::path::Path;

use crate::snapshot::State;
use crate::untrusted::Text;

/// What gputop reads of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) comm: Text,
    pub(super) state: State,
    pub(super) parent: u32,
    pub(super) flags: u32,
    pub(super) start_ticks: u64,
}

impl Stat {
    /// Flag of a thread that belongs to the kernel (`PF_KTHREAD`).
    const KERNEL_THREAD: u32 = 0x0020_0000;

    /// Reads it for that PID.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        Self::read(format!("/proc/{pid}/stat").as_ref())
    }

    /// Reads the file of a process or of a thread.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&fs::read(path)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Takes the file apart.
    pub(super) fn parse(stat: &[u8]) -> Option<Self> {
        // A process may put spaces and parentheses in its own name, so the fields start
        // after the last `)`. See proc_pid_stat(5).
        let name = stat.iter().position(|&byte| byte == b'(')?;
        let end = stat.iter().rposition(|&byte| byte == b')')?;
        let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
        // What follows counts from field 3; `nth` counts from the one before.
        Some(Self {
            comm: Text::new(stat.get(name + 1..end)?),
            state: State::from(*fields.next()?.as_bytes().first()?),
            parent: fields.next()?.parse().ok()?,
            flags: fields.nth(4)?.parse().ok()?,
            start_ticks: fields.nth(12)?.parse().ok()?,
        })
    }

    /// Whether this is part of the kernel, which no signal ends.
    pub(super) fn is_kernel_thread(&self) -> bool {
        self.flags & Self::KERNEL_THREAD != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stat: &[u8], expected: Option<(&str, State, u32, u32, u64)>) {
        let parsed = Stat::parse(stat);
        let parsed = parsed.as_ref().map(|it| (it.comm.as_str(), it.state, it.parent, it.flags, it.start_ticks));
        assert_eq!(parsed, expected, "{}", String::from_utf8_lossy(stat));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let rest = b"S 3 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let stat = |comm: &[u8]| [b"7 (", comm, b") ", rest].concat();
        check(&stat(b"python"), Some(("python", State::Sleeping, 3, 4_194_560, 12_345)));
        check(&stat(b"a) R 1 (b"), Some(("a) R 1 (b", State::Sleeping, 3, 4_194_560, 12_345)));
        check(&stat(b"\x1b[2J\n"), Some(("\u{FFFD}[2J\u{FFFD}", State::Sleeping, 3, 4_194_560, 12_345)));
    }

    #[test]
    fn what_is_cut_off_is_nobody() {
        check(b"", None);
        check(b"7 (a", None);
        check(b"7 )a(", None);
        check(b"7 (a) S 3 7", None);
    }
}
