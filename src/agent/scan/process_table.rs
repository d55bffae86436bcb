//! Every process of the host, a line each: who it is, whose child, in which group and session.
//!
//! The folder `/proc` stays open and is read on from where the last look ended, so a look may be as
//! short as one likes. Whoever started since is found by the last PID that the kernel gave out.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{RawDir, SeekFrom, seek};

use crate::agent::procfs::device_files::OpenDeviceFiles;
use crate::agent::procfs::{self, files, stat};
use crate::base::units::Moment;
use crate::protocol::snapshot::{ProcessId, State};

/// Of a list of children, so many bytes are read: those of nine thousand.
const CHILDREN: u64 = 64 << 10;

/// What is known of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) start_ticks: u64,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    /// The kernel's short name for it, cut at 16 bytes, which only threads of the kernel pass.
    comm: ([u8; 16], u8),
    /// Its first thread has ended; `threads` tells whether others live on.
    pub(super) zombie: bool,
    pub(super) threads: u32,
    /// Part of the kernel.
    pub(super) kernel: bool,
    /// Which device files it had open, when that was looked at.
    pub(super) files: Files,
    /// When to look at its files again.
    pub(super) files_due: Moment,
    /// Whether its arguments were asked for.
    pub(super) asked: bool,
    /// The round that saw it last.
    round: u32,
}

/// What is known of the device files of a process.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Files {
    NotYet,
    /// We may not look.
    Denied,
    /// None is open that memory hangs on.
    None,
    Open(Box<OpenDeviceFiles>),
}

/// What a look at one process brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing that concerns anyone else.
    Nothing,
    /// It is new, or another one with the same PID.
    New,
    /// Its parent, group, session or name is another one.
    Changed,
    /// It is gone.
    Gone,
}

impl Row {
    pub(super) fn comm(&self) -> &[u8] {
        &self.comm.0[..usize::from(self.comm.1)]
    }

    fn new(stat: &stat::ProcStat<'_>, round: u32) -> Self {
        let mut comm = [0; 16];
        let length = stat.comm.len().min(16);
        comm[..length].copy_from_slice(&stat.comm[..length]);
        Self {
            start_ticks: stat.start_ticks,
            parent: stat.parent,
            group: stat.group,
            session: stat.session,
            comm: (comm, u8::try_from(length).unwrap_or(16)),
            zombie: matches!(stat.state, State::Zombie | State::Dead),
            threads: stat.threads,
            kernel: stat.is_kernel_thread(),
            files: Files::NotYet,
            files_due: Moment(0),
            asked: false,
            round,
        }
    }

    /// Takes what is new of the same process.
    fn update(&mut self, new: Self) -> News {
        let same = (self.parent, self.group, self.session) == (new.parent, new.group, new.session);
        let renamed = self.comm != new.comm;
        let news = if same && !renamed { News::Nothing } else { News::Changed };
        let old = std::mem::replace(self, new);
        (self.files, self.files_due) = (old.files, old.files_due);
        // Another name is another program, with other arguments.
        self.asked = old.asked && !renamed;
        news
    }
}

/// Every process of the host, by PID.
#[derive(Debug)]
pub(super) struct Table {
    rows: BTreeMap<u32, Row>,
    folder: Option<OwnedFd>,
    /// PIDs that the folder named, and that were not looked at yet.
    listed: VecDeque<u32>,
    round: u32,
    /// The last PID that was given out when one last looked.
    last: Option<u32>,
    /// More were given out since the time before than one was ready to look at.
    crowded: bool,
    buffer: Box<[u8; 1024]>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            // Without `/proc` there is nobody.
            folder: procfs::open_directory("/proc".as_ref()).ok(),
            listed: VecDeque::new(),
            round: 1,
            last: None,
            crowded: false,
            buffer: Box::new([0; 1024]),
        }
    }

    pub(super) fn rows(&self) -> &BTreeMap<u32, Row> {
        &self.rows
    }

    pub(super) fn row_mut(&mut self, pid: u32) -> Option<&mut Row> {
        self.rows.get_mut(&pid)
    }

    /// The process, if it is still there.
    pub(super) fn get(&self, id: ProcessId) -> Option<&Row> {
        self.rows.get(&id.pid).filter(|row| Some(row.start_ticks) == id.start_ticks)
    }

    /// Who has this PID.
    pub(super) fn id(&self, pid: u32) -> Option<ProcessId> {
        self.rows.get(&pid).map(|row| ProcessId { pid, start_ticks: Some(row.start_ticks) })
    }

    /// Looks at one process.
    pub(super) fn look(&mut self, pid: u32) -> News {
        let line = files::open(pid, "stat").and_then(|file| files::read(file, &mut *self.buffer));
        let Some(stat) = line.ok().and_then(stat::parse) else {
            return if self.rows.remove(&pid).is_some() { News::Gone } else { News::Nothing };
        };
        let new = Row::new(&stat, self.round);
        match self.rows.get_mut(&pid) {
            Some(row) if row.start_ticks == new.start_ticks => row.update(new),
            _ => {
                self.rows.insert(pid, new);
                News::New
            }
        }
    }

    /// Looks at the next process of the round; absent when the round has ended.
    pub(super) fn step(&mut self) -> Option<(u32, News)> {
        if self.listed.is_empty() {
            self.list();
        }
        if let Some(pid) = self.listed.pop_front() {
            let news = self.look(pid);
            return Some((pid, news));
        }
        let round = self.round;
        // Anew, and not in place: a tree that grew in ascending order is half empty.
        let rows = std::mem::take(&mut self.rows);
        self.rows = rows.into_iter().filter(|(_, row)| row.round == round).collect();
        self.rewind();
        None
    }

    /// Begins a round.
    pub(super) fn rewind(&mut self) {
        self.listed.clear();
        self.round = self.round.wrapping_add(1);
        let Some(folder) = &self.folder else { return };
        // `/proc` can be read from the beginning at any time.
        let _start = seek(folder, SeekFrom::Start(0));
    }

    /// Lists some more of the folder.
    fn list(&mut self) {
        let Some(folder) = &self.folder else { return };
        // Some forty names: the kernel looks for each of them, which takes a microsecond.
        let mut buffer = [MaybeUninit::uninit(); 1024];
        // The first pieces may name only files that are no processes.
        while self.listed.is_empty() {
            let mut entries = RawDir::new(folder, &mut buffer);
            let mut any = false;
            while let Some(entry) = entries.next() {
                any = true;
                let Ok(entry) = entry else { return };
                self.listed.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
                if entries.is_buffer_empty() {
                    break;
                }
            }
            if !any {
                return;
            }
        }
    }

    /// The PIDs that were given out since one last asked, `most` of the latest.
    pub(super) fn newborn(&mut self, most: u32) -> Range<u32> {
        let last = std::fs::read("/proc/loadavg").ok().and_then(|line| last_pid(&line));
        let before = last.and_then(|last| self.last.replace(last));
        let (Some(last), Some(before)) = (last, before) else { return 0..0 };
        // After the largest PID they begin again; those between are found by the round.
        let first = if before <= last { before + 1 } else { 2 };
        self.crowded = before > last || first < last.saturating_sub(most);
        first.max(last.saturating_sub(most))..last.saturating_add(1)
    }

    /// Whether there were more than that.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whom the first thread of a process has started and nobody has looked at yet, the latest first; nobody where the
    /// kernel does not list them.
    pub(super) fn new_children(&self, pid: u32) -> Vec<u32> {
        let mut line = String::new();
        // When the process ends meanwhile, those who were read are as good as all.
        let _ended = files::open(pid, &format!("task/{pid}/children"))
            .map(|file| File::from(file).take(CHILDREN).read_to_string(&mut line));
        children(&line).rev().filter(|child| !self.rows.contains_key(child)).collect()
    }

    /// Looks at a PID that was given out: threads have some, too.
    pub(super) fn look_at_newborn(&mut self, pid: u32) -> News {
        let line = files::open(pid, "stat").and_then(|file| files::read(file, &mut *self.buffer));
        match line {
            Ok(line) if !stat::is_thread(line) => self.look(pid),
            _ => News::Nothing,
        }
    }
}

/// The PIDs of a list in which each is followed by a space: one that is not, was cut.
fn children(line: &str) -> impl DoubleEndedIterator<Item = u32> {
    let whole = line.rsplit_once(' ').map_or("", |(whole, _)| whole);
    whole.split(' ').filter_map(|pid| pid.parse().ok())
}

/// The last field of `/proc/loadavg`: the PID, or thread, that was started last.
fn last_pid(line: &[u8]) -> Option<u32> {
    str::from_utf8(line).ok()?.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
impl Table {
    /// One that nobody is in, and that never asks `/proc`.
    pub(super) fn empty() -> Self {
        Self { folder: None, ..Self::new() }
    }

    /// Puts a process in it, as its `stat` would.
    pub(super) fn put(&mut self, pid: u32, comm: &str, parent: u32, group: u32, session: u32) -> ProcessId {
        let line = format!("{pid} ({comm}) S {parent} {group} {session} 0 -1 0 1 2 3 4 0 0 0 0 20 0 1 0 {pid} 1 9 0");
        let row = Row::new(&stat::parse(line.as_bytes()).unwrap(), self.round);
        self.rows.insert(pid, row);
        ProcessId { pid, start_ticks: Some(u64::from(pid)) }
    }

    /// Takes a process out of it, as its end would; its children go to another parent.
    pub(super) fn end(&mut self, pid: u32, parent: u32) {
        self.rows.remove(&pid);
        self.rows.values_mut().filter(|row| row.parent == pid).for_each(|row| row.parent = parent);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn round(table: &mut Table) {
        table.rewind();
        while table.step().is_some() {}
    }

    #[test]
    fn a_round_sees_everyone_once_and_forgets_who_has_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut table = Table::new();
        round(&mut table);
        let me = &table.rows[&std::process::id()];
        assert!(me.threads > 1 && !me.zombie && !me.kernel, "{me:?}");
        assert_eq!(table.rows[&child.id()].parent, std::process::id());
        assert!(table.rows.contains_key(&1));
        child.kill().unwrap();
        child.wait().unwrap();
        round(&mut table);
        assert!(!table.rows.contains_key(&child.id()));
    }

    #[test]
    fn who_was_just_started_is_found_without_a_round() {
        let mut table = Table::new();
        // Other tests start processes too, though hardly a thousand. PIDs that begin anew do so once.
        let mut child = loop {
            table.newborn(64);
            let before = table.last;
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let newborn = table.newborn(1000);
            if before < table.last {
                assert!(newborn.contains(&child.id()) && !table.is_crowded());
                break child;
            }
            child.kill().unwrap();
            child.wait().unwrap();
        };
        assert_eq!(table.look_at_newborn(child.id()), News::New);
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        assert_eq!(table.look_at_newborn(thread.join().unwrap()), News::Nothing);
        std::thread::spawn(|| ()).join().unwrap();
        table.newborn(0);
        assert!(table.is_crowded());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_child_whose_pid_was_cut_is_none() {
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
