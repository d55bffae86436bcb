//! Reads and parses the `stat` file of a process or thread, and searches for a living thread of a
//! process whose main thread has ended. See `proc_pid_stat(5)`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::protocol::snapshot::{Missing, Reading, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct ProcStat<'a> {
    /// The kernel's short name of the process: the bytes between the parentheses.
    pub(in crate::agent) comm: &'a [u8],
    pub(in crate::agent) state: State,
    pub(in crate::agent) parent: u32,
    pub(in crate::agent) group: u32,
    pub(in crate::agent) session: u32,
    /// The kernel's `PF_*` flags.
    pub(in crate::agent) flags: u32,
    /// The CPU time of user and kernel mode, in clock ticks.
    pub(in crate::agent) cpu_ticks: u64,
    pub(in crate::agent) threads: u32,
    /// Clock ticks from boot to the start of the process.
    pub(in crate::agent) start_ticks: u64,
    /// The virtual size, in bytes.
    pub(in crate::agent) virtual_size: u64,
    /// The resident set, in pages.
    pub(in crate::agent) rss_pages: u64,
}

impl ProcStat<'_> {
    /// `PF_KTHREAD`: the flag of a kernel thread.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    /// `PF_FORKNOEXEC`: the flag of a process that was forked and has not called `exec` since.
    const FORKED: u32 = 0x40;

    /// Whether the memory of the process began as a copy of its parent's: no `exec` followed the
    /// fork. Unsupported on a kernel that shows no flags at all, such as gVisor's.
    pub(in crate::agent) fn is_forked(&self) -> Reading<bool> {
        if self.flags == 0 {
            Err(Missing::Unsupported)
        } else {
            Ok(self.flags & Self::FORKED != 0)
        }
    }

    pub(in crate::agent) fn is_kernel_thread(&self) -> bool {
        self.flags & Self::KERNEL_THREAD != 0
    }
}

pub(in crate::agent) fn read_process(pid: u32, buffer: &mut Vec<u8>) -> io::Result<ProcStat<'_>> {
    read(format!("/proc/{pid}").as_ref(), buffer)
}

/// Reads and parses the `stat` file in the directory of a process or thread.
pub(in crate::agent) fn read<'a>(
    directory: &Path,
    buffer: &'a mut Vec<u8>,
) -> io::Result<ProcStat<'a>> {
    *buffer = fs::read(directory.join("stat"))?;
    parse(buffer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the start ticks of the process that has this PID now. `None` when there is none.
pub(in crate::agent) fn start_ticks(pid: u32) -> Option<u64> {
    Some(read_process(pid, &mut Vec::new()).ok()?.start_ticks)
}

/// Whether no process lives that has this PID and started no later than at `start_ticks`.
pub(in crate::agent) fn has_ended(pid: u32, start_ticks: u64) -> bool {
    match read_process(pid, &mut Vec::new()) {
        Ok(stat) => {
            stat.start_ticks > start_ticks || stat.state == State::Zombie && stat.threads <= 1
        }
        // A process of another user may be hidden.
        Err(_) => Pid::from_raw(pid.cast_signed())
            .is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH)),
    }
}

/// Finds a living thread of a process whose main thread has ended: the thread's directory and
/// state. Prefers a thread in uninterruptible sleep. `None` when all threads that were looked at
/// have ended.
pub(in crate::agent) fn living_thread(pid: u32) -> Option<(PathBuf, State)> {
    // Reading hundreds of threads would take long.
    const MOST_THREADS: usize = 16;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let living = tasks.take(MOST_THREADS).filter_map(|task| {
        let directory = task.ok()?.path();
        let state = read(&directory, &mut Vec::new()).ok()?.state;
        (!matches!(state, State::Zombie | State::Dead)).then_some((directory, state))
    });
    living.max_by_key(|(_, state)| *state == State::DiskSleep)
}

pub(in crate::agent) fn parse(line: &[u8]) -> Option<ProcStat<'_>> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = fields_after_comm(line)?;
    let small = |field| u32::try_from(number(field)?).ok();
    // The order is that of the file. `nth` skips the fields between.
    Some(ProcStat {
        comm: line.get(open + 1..close)?,
        state: State::from(*fields.next()?.first()?),
        parent: small(fields.next()?)?,
        group: small(fields.next()?)?,
        session: small(fields.next()?)?,
        flags: small(fields.nth(2)?)?,
        cpu_ticks: number(fields.nth(4)?)?.saturating_add(number(fields.next()?)?),
        threads: small(fields.nth(4)?)?,
        start_ticks: number(fields.nth(1)?)?,
        virtual_size: number(fields.next()?)?,
        rss_pages: number(fields.next()?)?,
    })
}

/// Whether the line is of a thread other than the main thread: `/proc` has a directory for each
/// thread, though it does not list them. The exit signal (field 38) of such a thread is -1.
pub(in crate::agent) fn is_thread(line: &[u8]) -> bool {
    const EXIT_SIGNAL: usize = 38 - FIRST_FIELD;
    fields_after_comm(line)
        .and_then(|mut fields| fields.nth(EXIT_SIGNAL))
        .is_some_and(|field| field == b"-1")
}

/// Returns the address where the stack began, which a forked process has in common with its parent,
/// and hardly ever with another process: `exec` chooses it by chance. `None` when the kernel does
/// not show it to this user.
pub(in crate::agent) fn stack_start(pid: u32) -> Option<u64> {
    const STACK_START: usize = 28 - FIRST_FIELD;
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    number(fields_after_comm(&line)?.nth(STACK_START)?).filter(|address| *address != 0)
}

/// The number of the first field after the name, counted as `proc_pid_stat(5)` does.
const FIRST_FIELD: usize = 3;

/// Splits the fields after the name. The name may contain spaces and parentheses, so they start
/// after the last `)`.
fn fields_after_comm(line: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    Some(
        line[close + 1..]
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty()),
    )
}

fn number(field: &[u8]) -> Option<u64> {
    // The kernel prints some counts signed: the resident set can be below zero for an instant.
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

    const REST: &str =
        "S 1 7 7 0 -1 4194560 1 2 3 4 50 6 0 0 20 0 3 0 12345 1000000 99 18446744073709551615";

    #[track_caller]
    fn check_comm(comm: &str) {
        let line = format!("7 ({comm}) {REST}\n");
        let expected = ProcStat {
            comm: comm.as_bytes(),
            state: State::Sleeping,
            parent: 1,
            group: 7,
            session: 7,
            flags: 4_194_560,
            cpu_ticks: 56,
            threads: 3,
            start_ticks: 12345,
            virtual_size: 1_000_000,
            rss_pages: 99,
        };
        assert_eq!(parse(line.as_bytes()), Some(expected), "{line}");
    }

    #[test]
    fn a_name_may_contain_parentheses_and_spaces() {
        check_comm("python");
        check_comm("a) S 1 (b");
        check_comm(") R 0");
        check_comm("new\\nline");
        check_comm("");
    }

    #[test]
    fn a_truncated_line_is_rejected() {
        for line in [
            "",
            "7",
            "7 (a",
            "7 (a)",
            "7 )a(",
            "7 (a) S",
            "7 (a) S 1 7 7 0 -1 0 0 0",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_name_never_shifts_the_fields(comm in proptest::collection::vec(any::<u8>(), 0..16)) {
            let line = [b"7 (", comm.as_slice(), b") ", REST.as_bytes()].concat();
            let stat = parse(&line).unwrap();
            prop_assert_eq!((stat.comm, stat.start_ticks), (comm.as_slice(), 12345));
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _parsed = parse(&line);
        }
    }
}
