//! Reads a line of `/proc/PID/stat`. Copies nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::snapshot::State;

/// What is used of it. See `proc_pid_stat(5)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct Stat<'a> {
    /// The kernel's short name, as it stands between the parentheses.
    pub(in crate::agent) comm: &'a [u8],
    /// What it was doing.
    pub(in crate::agent) state: State,
    /// Its parent's PID.
    pub(in crate::agent) parent: u32,
    /// Its process group.
    pub(in crate::agent) group: u32,
    /// Its session.
    pub(in crate::agent) session: u32,
    /// The kernel's flags of it.
    pub(in crate::agent) flags: u32,
    /// CPU time in clock ticks, by itself and by the kernel for it.
    pub(in crate::agent) cpu_ticks: u64,
    /// Its threads.
    pub(in crate::agent) threads: u32,
    /// Clock ticks from boot to its start.
    pub(in crate::agent) start_ticks: u64,
    /// Resident set in pages.
    pub(in crate::agent) rss_pages: u64,
}

impl Stat<'_> {
    /// Flag of a thread that belongs to the kernel (`PF_KTHREAD`).
    const KERNEL_THREAD: u32 = 0x0020_0000;
    /// Flag of who was forked and runs its parent's program still (`PF_FORKNOEXEC`).
    const FORKED: u32 = 0x40;

    /// Whether its memory began as a copy of its parent's: it has called no `exec` since it was forked.
    pub(in crate::agent) fn is_forked(&self) -> bool {
        self.flags & Self::FORKED != 0
    }

    /// Whether it is part of the kernel: no signal ends it.
    pub(in crate::agent) fn is_kernel_thread(&self) -> bool {
        self.flags & Self::KERNEL_THREAD != 0
    }
}

/// Reads the file of the process with that PID.
pub(in crate::agent) fn of(pid: u32, buffer: &mut Vec<u8>) -> io::Result<Stat<'_>> {
    read(format!("/proc/{pid}").as_ref(), buffer)
}

/// Reads the file in the folder of a process or of a thread.
pub(in crate::agent) fn read<'a>(folder: &Path, buffer: &'a mut Vec<u8>) -> io::Result<Stat<'a>> {
    *buffer = fs::read(folder.join("stat"))?;
    parse(buffer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A living thread of a process whose first thread has ended, by its folder, and what it is doing: one
/// that no signal reaches, if there is one.
pub(in crate::agent) fn living_thread(pid: u32) -> Option<(PathBuf, State)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    // The first few tell: all of hundreds would take long.
    let living = tasks.take(16).filter_map(|task| {
        let folder = task.ok()?.path();
        let state = read(&folder, &mut Vec::new()).ok()?.state;
        (!matches!(state, State::Zombie | State::Dead)).then_some((folder, state))
    });
    living.max_by_key(|(_, state)| *state == State::DiskSleep)
}

/// Reads the line; absent when it is none.
pub(in crate::agent) fn parse(line: &[u8]) -> Option<Stat<'_>> {
    // A process may put spaces and parentheses in its own name, so the fields start after the last `)`.
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let comm = line.get(open + 1..close)?;
    let mut fields = line[close + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let state = State::from(*fields.next()?.first()?);
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let session = number(fields.next()?)?;
    // Fields 7 and 8 lie between the session and the flags, 10 to 13 between these and the CPU times.
    let flags = number(fields.nth(2)?)?;
    let utime = number(fields.nth(4)?)?;
    let stime = number(fields.next()?)?;
    let threads = number(fields.nth(4)?)?;
    let start_ticks = number(fields.nth(1)?)?;
    let rss_pages = number(fields.nth(1)?)?;
    Some(Stat {
        comm,
        state,
        parent: u32::try_from(parent).ok()?,
        group: u32::try_from(group).ok()?,
        session: u32::try_from(session).ok()?,
        flags: u32::try_from(flags).ok()?,
        cpu_ticks: utime.saturating_add(stime),
        threads: u32::try_from(threads).ok()?,
        start_ticks,
        rss_pages,
    })
}

/// Whether the line is of a thread that is not the first of its process: `/proc` has a folder for each,
/// though it does not list them. Such a thread has no signal for its parent when it ends (field 38).
pub(in crate::agent) fn is_thread(line: &[u8]) -> bool {
    let Some(close) = line.iter().rposition(|byte| *byte == b')') else { return false };
    let mut fields = line[close + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    fields.nth(35).is_some_and(|field| field == b"-1")
}

fn number(field: &[u8]) -> Option<u64> {
    // A count that the kernel prints signed, as the resident set, can be below zero for an instant.
    if field.first() == Some(&b'-') {
        return Some(0);
    }
    field.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REST: &str = "S 1 7 7 0 -1 4194560 1 2 3 4 50 6 0 0 20 0 3 0 12345 1000000 99 18446744073709551615";

    #[track_caller]
    fn check(comm: &str) {
        let line = format!("7 ({comm}) {REST}\n");
        let expected = Stat {
            comm: comm.as_bytes(),
            state: State::Sleeping,
            parent: 1,
            group: 7,
            session: 7,
            flags: 4_194_560,
            cpu_ticks: 56,
            threads: 3,
            start_ticks: 12345,
            rss_pages: 99,
        };
        assert_eq!(parse(line.as_bytes()), Some(expected), "{line}");
    }

    #[test]
    fn a_name_may_hold_anything() {
        check("python");
        check("a) S 1 (b");
        check(") R 0");
        check("new\\nline");
        check("");
    }

    #[test]
    fn a_line_that_was_cut_is_none() {
        for line in ["", "7", "7 (a", "7 (a)", "7 )a(", "7 (a) S", "7 (a) S 1 7 7 0 -1 0 0 0"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        /// Whatever a process calls itself, its fields are read from behind its name.
        #[test]
        fn a_name_never_shifts_the_fields(comm in proptest::collection::vec(any::<u8>(), 0..16)) {
            let line = [b"7 (", comm.as_slice(), b") ", REST.as_bytes()].concat();
            let stat = parse(&line).unwrap();
            prop_assert_eq!((stat.comm, stat.start_ticks), (comm.as_slice(), 12345));
        }

        /// No line makes it panic.
        #[test]
        fn any_bytes_do(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _any = parse(&line);
        }
    }
}
