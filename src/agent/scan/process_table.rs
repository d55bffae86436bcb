//! The table of all processes of the host: one row each with identity, parent, group, session and
//! device files.
//!
//! The directory `/proc` stays open, and each read continues where the last one ended, so that
//! reads can be as short as needed. Processes that have just started are found by the last PID that
//! the kernel assigned.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{RawDir, SeekFrom, seek};

use crate::agent::procfs::device_files::OpenDeviceFiles;
use crate::agent::procfs::{files, stat};
use crate::base::units::Moment;
use crate::protocol::snapshot::{ProcessId, State};

/// In bytes: about 9,000 PIDs.
const MOST_CHILDREN: u64 = 64 << 10;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProcessRow {
    pub(super) start_ticks: u64,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    /// The short name, padded with NUL. Cut at 16 bytes, which only kernel threads exceed.
    comm: [u8; 16],
    /// Whether the main thread has ended. If `threads` is more than 1, other threads still live.
    pub(super) is_zombie: bool,
    pub(super) threads: u32,
    pub(super) is_kernel_thread: bool,
    pub(super) files: DeviceFileState,
    pub(super) files_due: Moment,
    /// Whether the arguments were requested.
    pub(super) is_examined: bool,
    round: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum DeviceFileState {
    NotRead,
    /// No permission to see the open files.
    Denied,
    /// The process has not opened `/dev/nvidia-uvm`.
    NotOpen,
    Open(Box<OpenDeviceFiles>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowChange {
    /// No change that matters to other processes.
    Nothing,
    /// The process is new, or its parent, group, session or name changed.
    Changed,
    Gone,
}

impl ProcessRow {
    pub(super) fn comm(&self) -> &[u8] {
        let length = self
            .comm
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.comm.len());
        &self.comm[..length]
    }

    fn new(stat: &stat::ProcStat<'_>, round: u32) -> Self {
        let mut comm = [0; 16];
        comm.iter_mut()
            .zip(stat.comm)
            .for_each(|(to, from)| *to = *from);
        Self {
            start_ticks: stat.start_ticks,
            parent: stat.parent,
            group: stat.group,
            session: stat.session,
            comm,
            is_zombie: matches!(stat.state, State::Zombie | State::Dead),
            threads: stat.threads,
            is_kernel_thread: stat.is_kernel_thread(),
            files: DeviceFileState::NotRead,
            files_due: Moment(0),
            is_examined: false,
            round,
        }
    }

    /// `new` is a later reading of the same process.
    fn update(&mut self, new: Self) -> RowChange {
        let old = std::mem::replace(self, new);
        (self.files, self.files_due) = (old.files, old.files_due);
        // A new name usually means an exec, and so other arguments.
        self.is_examined = old.is_examined && self.comm == old.comm;
        let is_same = (self.parent, self.group, self.session, self.comm)
            == (old.parent, old.group, old.session, old.comm);
        if is_same {
            RowChange::Nothing
        } else {
            RowChange::Changed
        }
    }
}

#[derive(Debug)]
pub(super) struct ProcessTable {
    pub(super) rows: BTreeMap<u32, ProcessRow>,
    /// The open directory `/proc`. `None` when it cannot be opened.
    directory: Option<OwnedFd>,
    /// The listed PIDs whose processes were not read yet in this round.
    listed: VecDeque<u32>,
    round: u32,
    /// The PID that the kernel had assigned last when [`ProcessTable::new_pids`] was last called.
    last_pid: Option<u32>,
    /// Whether more PIDs had been assigned than [`ProcessTable::new_pids`] last returned.
    pub(super) has_skipped_pids: bool,
    buffer: Box<[u8; 1024]>,
}

impl Default for ProcessTable {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            directory: files::open_directory("/proc".as_ref()).ok(),
            listed: VecDeque::new(),
            round: 1,
            last_pid: None,
            has_skipped_pids: false,
            buffer: Box::new([0; 1024]),
        }
    }
}

impl ProcessTable {
    /// Returns the row of a process. `None` when it has ended.
    pub(super) fn get(&self, id: ProcessId) -> Option<&ProcessRow> {
        self.rows
            .get(&id.pid)
            .filter(|row| Some(row.start_ticks) == id.start_ticks)
    }

    pub(super) fn id(&self, pid: u32) -> Option<ProcessId> {
        self.rows.get(&pid).map(|row| ProcessId {
            pid,
            start_ticks: Some(row.start_ticks),
        })
    }

    pub(super) fn read(&mut self, pid: u32) -> RowChange {
        self.read_unless(pid, |_| false)
    }

    /// Reads a PID that the kernel has just assigned, unless it is that of a thread.
    pub(super) fn read_new_pid(&mut self, pid: u32) -> RowChange {
        self.read_unless(pid, stat::is_thread)
    }

    fn read_unless(&mut self, pid: u32, is_ignored: fn(&[u8]) -> bool) -> RowChange {
        let line = files::open(pid, "stat").and_then(|file| files::read(file, &mut *self.buffer));
        if line.is_ok_and(is_ignored) {
            return RowChange::Nothing;
        }
        let Some(stat) = line.ok().and_then(stat::parse) else {
            return if self.rows.remove(&pid).is_some() {
                RowChange::Gone
            } else {
                RowChange::Nothing
            };
        };
        let new = ProcessRow::new(&stat, self.round);
        match self.rows.get_mut(&pid) {
            Some(row) if row.start_ticks == new.start_ticks => row.update(new),
            _ => {
                self.rows.insert(pid, new);
                RowChange::Changed
            }
        }
    }

    /// Reads the next process of the round. Returns `None` when the round is complete.
    pub(super) fn read_next(&mut self) -> Option<(u32, RowChange)> {
        if self.listed.is_empty() {
            self.list_more();
        }
        if let Some(pid) = self.listed.pop_front() {
            let change = self.read(pid);
            return Some((pid, change));
        }
        let round = self.round;
        // Collected anew: a `BTreeMap` that grew in ascending order is half empty.
        let rows = std::mem::take(&mut self.rows);
        self.rows = rows
            .into_iter()
            .filter(|(_, row)| row.round == round)
            .collect();
        self.begin_round();
        None
    }

    pub(super) fn begin_round(&mut self) {
        self.listed.clear();
        self.round = self.round.wrapping_add(1);
        let Some(directory) = &self.directory else {
            return;
        };
        // Seeking to the start of `/proc` cannot fail.
        let _start = seek(directory, SeekFrom::Start(0));
    }

    fn list_more(&mut self) {
        let Some(directory) = &self.directory else {
            return;
        };
        // Room for about forty names. The kernel takes about a microsecond for each.
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            self.listed.extend(
                entry
                    .file_name()
                    .to_str()
                    .ok()
                    .and_then(|name| name.parse::<u32>().ok()),
            );
            // The first entries may all be files that do not belong to a process.
            if entries.is_buffer_empty() && !self.listed.is_empty() {
                return;
            }
        }
    }

    /// Returns the PIDs that were assigned since the last call, at most the last `most`.
    pub(super) fn new_pids(&mut self, most: u32) -> Range<u32> {
        let last = std::fs::read("/proc/loadavg")
            .ok()
            .and_then(|line| last_pid(&line));
        let before = last.and_then(|last| self.last_pid.replace(last));
        let (Some(last), Some(before)) = (last, before) else {
            return 0..0;
        };
        // After the largest PID, the kernel starts again at small PIDs. The round finds large PIDs
        // that are missed here.
        let first = if before <= last { before + 1 } else { 2 };
        self.has_skipped_pids = before > last || first < last.saturating_sub(most);
        first.max(last.saturating_sub(most))..last.saturating_add(1)
    }

    /// Returns the children of a main thread that have no row yet, the latest first. Some kernels
    /// list no children.
    pub(super) fn new_children(&self, pid: u32) -> Vec<u32> {
        let mut line = String::new();
        // If the process ends while being read, the part that was read counts.
        let _ended = files::open(pid, &format!("task/{pid}/children")).map(|file| {
            File::from(file)
                .take(MOST_CHILDREN)
                .read_to_string(&mut line)
        });
        children(&line)
            .rev()
            .filter(|child| !self.rows.contains_key(child))
            .collect()
    }
}

/// Parses a list of PIDs with a space after each. Without a space, the last PID was cut off.
fn children(line: &str) -> impl DoubleEndedIterator<Item = u32> {
    let complete = line.rsplit_once(' ').map_or("", |(complete, _)| complete);
    complete.split(' ').filter_map(|pid| pid.parse().ok())
}

/// Parses the last field of `/proc/loadavg`: the PID or thread ID that was assigned last.
fn last_pid(line: &[u8]) -> Option<u32> {
    str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .last()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    impl ProcessTable {
        /// A table without processes that never reads `/proc`.
        pub(in crate::agent::scan) fn empty() -> Self {
            Self {
                directory: None,
                ..Self::default()
            }
        }

        /// Adds a process, as reading its `stat` would.
        pub(in crate::agent::scan) fn add(
            &mut self,
            pid: u32,
            comm: &str,
            parent: u32,
            group: u32,
            session: u32,
        ) -> ProcessId {
            let line = format!(
                "{pid} ({comm}) S {parent} {group} {session} 0 -1 0 1 2 3 4 0 0 0 0 20 0 1 0 {pid} 1 9 0"
            );
            let row = ProcessRow::new(&stat::parse(line.as_bytes()).unwrap(), self.round);
            self.rows.insert(pid, row);
            ProcessId {
                pid,
                start_ticks: Some(u64::from(pid)),
            }
        }

        /// Removes a process, as its end would; its children get another parent.
        pub(in crate::agent::scan) fn end(&mut self, pid: u32, parent: u32) {
            self.rows.remove(&pid);
            self.rows
                .values_mut()
                .filter(|row| row.parent == pid)
                .for_each(|row| row.parent = parent);
        }
    }

    fn round(table: &mut ProcessTable) {
        table.begin_round();
        while table.read_next().is_some() {}
    }

    #[test]
    fn a_round_reads_all_processes_and_forgets_ended_ones() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut table = ProcessTable::default();
        round(&mut table);
        let me = &table.rows[&std::process::id()];
        assert!(
            me.threads > 1 && !me.is_zombie && !me.is_kernel_thread,
            "{me:?}"
        );
        assert_eq!(table.rows[&child.id()].parent, std::process::id());
        assert!(table.rows.contains_key(&1));
        child.kill().unwrap();
        child.wait().unwrap();
        round(&mut table);
        assert!(!table.rows.contains_key(&child.id()));
    }

    #[test]
    fn a_new_process_is_found_without_a_round() {
        let mut table = ProcessTable::default();
        // Tries again if the PIDs wrapped around, which happens at most once. Others start
        // processes, too, maybe many between the two calls.
        let mut child = loop {
            table.new_pids(64);
            let before = table.last_pid;
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let new_pids = table.new_pids(u32::MAX);
            if before < table.last_pid {
                assert!(new_pids.contains(&child.id()) && !table.has_skipped_pids);
                break child;
            }
            child.kill().unwrap();
            child.wait().unwrap();
        };
        assert_eq!(table.read_new_pid(child.id()), RowChange::Changed);
        let thread = std::thread::spawn(|| {
            rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .unsigned_abs()
        });
        assert_eq!(
            table.read_new_pid(thread.join().unwrap()),
            RowChange::Nothing
        );
        std::thread::spawn(|| ()).join().unwrap();
        table.new_pids(0);
        assert!(table.has_skipped_pids);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_pid_that_was_cut_off_is_ignored() {
        assert_eq!(children("12 345 ").collect::<Vec<_>>(), [12, 345]);
        assert_eq!(children("12 345 67").collect::<Vec<_>>(), [12, 345]);
        assert_eq!(children("12").count() + children("").count(), 0);
    }

    #[test]
    fn the_last_pid_is_the_last_field() {
        assert_eq!(last_pid(b"0.15 0.22 0.18 3/1151 24793\n"), Some(24793));
        assert_eq!(last_pid(b""), None);
    }
}
