//! Scans processes, within limits of CPU time:
//!
//! | when | what is read |
//! |---|---|
//! | each request, within [`ALLOWANCE`] | processes that have just started, or if these are too many, new children of processes that use a GPU; the files of related processes, every [`FILES_INTERVAL`]; the next processes in turn |
//! | a request with a wider [`ScanScope`] | `stat` of all processes, then the files of related or of all processes, in pieces of [`PIECE`] |

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;

use super::process_table::{DeviceFileState, ProcessRow, ProcessTable, RowChange};
use super::related::RelatedSet;
use super::{ScanRequest, ScanResult, ScanScope};
use crate::agent::clock;
use crate::agent::procfs::device_files::{DeviceFiles, OpenDeviceFiles};
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{HostScan, Missing, ProcessId, Reading};

/// The CPU time that reading processes in turn may take, in nanoseconds for each millisecond that
/// passes.
const ALLOWANCE: i64 = 150;
/// The most CPU time that is saved up or owed, in nanoseconds.
const MOST_CREDIT: i64 = 1_000_000;
/// The CPU time of one piece of a full scan. Requests are taken between pieces.
const PIECE: Duration = Duration::from_millis(100);
const FILES_INTERVAL: Duration = Duration::from_secs(10);
/// The time from the first to the second reading of the files: a new process may not have opened
/// its files yet.
const FIRST_FILES_INTERVAL: Duration = Duration::from_secs(1);
const COUNTS_INTERVAL: Duration = Duration::from_secs(5);
/// The pause between two full scans, as a multiple of the CPU time of the first. An earlier request
/// waits.
const PAUSE_FACTOR: u32 = 8;
/// The most new processes that are looked up by PID in one pass.
const MOST_NEW: u32 = 32;
/// How long a replacement may have started before the end of the process that it replaces was
/// noticed.
const REPLACEMENT_LEAD: Duration = Duration::from_secs(2);
/// A process this young may still call `exec`, and then has other arguments.
const YOUNG: Duration = Duration::from_secs(3);
/// The most possible replacements whose arguments are read after one scan. The youngest come first.
const MOST_REPLACEMENTS: usize = 64;
/// The shortest time between two collections of related processes because of a change of
/// device-file holders.
const COLLECT_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Scanner {
    devices: Option<DeviceFiles>,
    table: ProcessTable,
    related: RelatedSet,
    gpu_users: BTreeSet<ProcessId>,
    /// Processes whose new children are still to be looked up, because too many processes and
    /// threads have started.
    parents_due: Vec<ProcessId>,
    /// The PIDs of the processes that have a GPU's device file open.
    holders: BTreeSet<u32>,
    /// Processes that only ask NVML, although they have CUDA's device file open.
    monitors: BTreeSet<ProcessId>,
    /// The CPU time that may be spent, in nanoseconds. Negative after more was spent than was
    /// allowed.
    credit: i64,
    credited: Moment,
    /// The scope of the full scan that was requested and has not begun.
    wanted: ScanScope,
    /// The PIDs whose files the running full scan has still to read. `None` when no full scan is
    /// running.
    unscanned: Option<Vec<u32>>,
    /// The CPU time of the last full scan.
    cost: Duration,
    full_scan_due: Moment,
    /// Whether device-file holders have changed since related processes were collected.
    have_holders_changed: bool,
    /// When a change of device-file holders may next cause a collection of related processes.
    collect_due: Moment,
    ended: Option<Moment>,
    /// Whether the result may differ from the last one.
    has_changed: bool,
    /// Whether a related process may have ended since [`Scanner::forget_ended`].
    has_related_ended: bool,
    counts_due: Moment,
    /// When all processes were last read. `None` before the first time.
    complete: Option<Moment>,
    last_result: Option<ScanResult>,
}

impl Scanner {
    pub(super) fn new(devices: Option<DeviceFiles>) -> Self {
        let related = RelatedSet::new(own_pids(), devices.is_some());
        Self {
            devices,
            related,
            credited: clock::now(),
            ..Self::default()
        }
    }

    /// How long to wait until a full scan begins or continues. `None` when none is requested.
    pub(super) fn next_full_scan(&self) -> Option<Duration> {
        match self.wanted {
            _ if self.unscanned.is_some() => Some(Duration::ZERO),
            ScanScope::Few => None,
            ScanScope::AllProcesses | ScanScope::AllFiles => {
                Some(self.full_scan_due.since(clock::now()))
            }
        }
    }

    /// Returns `None` when nothing has changed.
    pub(super) fn scan(&mut self, request: ScanRequest) -> Option<ScanResult> {
        let now = clock::now();
        // While a full scan is due, the request may come from a timeout. It then has no `ended`, so
        // keep the known one.
        self.ended = request
            .ended
            .or(self.ended.filter(|_| self.next_full_scan().is_some()));
        self.wanted = self.wanted.max(request.scope);
        let mut collect = !request.accepted.is_empty();
        request
            .accepted
            .iter()
            .for_each(|id| self.related.accept(*id));
        collect |= !request.monitors.is_empty();
        for id in request.monitors {
            self.related.forget(id);
            self.monitors.insert(id);
        }
        if let Some(gpu_users) = request.gpu_users {
            self.gpu_users = gpu_users.into_iter().collect();
            collect |= self.update_gpu_users(now);
        }
        let is_full = if self.unscanned.is_some()
            || self.wanted > ScanScope::Few && now >= self.full_scan_due
        {
            self.scan_all(now)
        } else {
            self.scan_few(now);
            false
        };
        // Changes of device-file holders wait: a user may run `nvidia-smi` every second.
        if collect || is_full || self.have_holders_changed && now >= self.collect_due {
            (self.have_holders_changed, self.collect_due) = (false, now.after(COLLECT_INTERVAL));
            self.update_gpu_users(now);
            self.related.collect(&self.table, now);
        }
        self.result(now, is_full)
    }

    /// Tells the related set which processes use a GPU: those that NVML lists, and device-file
    /// holders. Returns whether one is new.
    fn update_gpu_users(&mut self, now: Moment) -> bool {
        for id in &self.gpu_users {
            if self.table.get(*id).is_none() {
                self.table.read(id.pid);
            }
        }
        let holders = self.holders.iter().filter_map(|pid| self.table.id(*pid));
        let holders = holders.filter(|id| !self.monitors.contains(id));
        let users = holders.chain(self.gpu_users.iter().copied()).collect();
        self.has_changed = true;
        self.related.set_gpu_users(&users, &self.table, now)
    }

    /// Continues or begins a full scan. The first call reads `stat` of all processes; each call
    /// reads device files for up to [`PIECE`]. Returns whether the scan is complete.
    fn scan_all(&mut self, now: Moment) -> bool {
        let begun = clock::thread_cpu_time();
        let mut queue = self.unscanned.take().unwrap_or_else(|| {
            let scope = std::mem::take(&mut self.wanted);
            self.cost = Duration::ZERO;
            self.table.begin_round();
            while self.table.read_next().is_some() {}
            self.forget_ended(now);
            let is_due = |pid: u32, row: &ProcessRow| {
                scope == ScanScope::AllFiles
                    || row.files == DeviceFileState::NotRead
                    || self.related.contains(pid)
            };
            let due = self
                .table
                .rows
                .iter()
                .filter(|(pid, row)| is_due(**pid, row));
            let mut queue: Vec<u32> = due.map(|(pid, _)| *pid).collect();
            // The queue is taken from its end: related processes first, then those with the highest
            // PIDs.
            queue.sort_by_key(|pid| self.related.contains(*pid));
            queue
        });
        while let Some(pid) = queue.pop() {
            self.read_files(pid, now);
            if clock::thread_cpu_time().saturating_sub(begun) > PIECE {
                break;
            }
        }
        self.cost += clock::thread_cpu_time().saturating_sub(begun);
        let is_complete = queue.is_empty();
        self.unscanned = (!is_complete).then_some(queue);
        if is_complete {
            let now = clock::now();
            (self.complete, self.full_scan_due) = (Some(now), now.after(self.cost * PAUSE_FACTOR));
        }
        is_complete
    }

    fn scan_few(&mut self, now: Moment) {
        let begun = clock::thread_cpu_time();
        let spent = || nanoseconds(clock::thread_cpu_time().saturating_sub(begun));
        let earned = nanoseconds(now.since(self.credited)) / 1_000_000 * ALLOWANCE;
        self.credit = self.credit.saturating_add(earned).min(MOST_CREDIT);
        self.credited = now;
        let credit = self.credit;
        let mut files_due = self.files_due(now);
        // If hundreds of processes start each second, most end before they matter. So half of the
        // credit is for older ones.
        for pid in self.table.new_pids(MOST_NEW).rev() {
            if spent() >= credit / 2 {
                break;
            }
            let change = self.table.read_new_pid(pid);
            self.apply(pid, change, now);
        }
        if self.table.has_skipped_pids && self.parents_due.is_empty() {
            self.parents_due.extend(&self.gpu_users);
        }
        // Each of the three queues advances by at least one process, however many processes start.
        loop {
            if let Some(id) = self.parents_due.pop() {
                for child in self
                    .table
                    .new_children(id.pid)
                    .into_iter()
                    .take(MOST_NEW as usize)
                {
                    let change = self.table.read_new_pid(child);
                    self.apply(child, change, now);
                    if spent() >= credit {
                        break;
                    }
                }
            }
            if let Some(pid) = files_due.pop() {
                let change = self.table.read(pid);
                self.apply(pid, change, now);
                self.read_files(pid, now);
            }
            let Some((pid, change)) = self.table.read_next() else {
                self.complete = self.complete.map(|_| now);
                self.has_related_ended = true;
                break;
            };
            self.apply(pid, change, now);
            if self
                .table
                .rows
                .get(&pid)
                .is_some_and(|row| now >= row.files_due)
            {
                self.read_files(pid, now);
            }
            if spent() >= credit {
                break;
            }
        }
        if std::mem::take(&mut self.has_related_ended) {
            self.forget_ended(now);
        }
        self.credit = self.credit.saturating_sub(spent()).max(-MOST_CREDIT);
    }

    fn forget_ended(&mut self, now: Moment) {
        self.related.forget_ended(&self.table, now);
        self.monitors.retain(|id| self.table.get(*id).is_some());
        let rows = &self.table.rows;
        self.holders.retain(|pid| {
            rows.get(pid)
                .is_some_and(|row| matches!(row.files, DeviceFileState::Open(_)))
        });
        self.has_changed = true;
    }

    /// Returns holders and related processes whose files are due to be read again. The one that has
    /// waited longest is last.
    fn files_due(&self, now: Moment) -> Vec<u32> {
        if self.devices.is_none() {
            return vec![];
        }
        let due = |pid: u32| Some((Reverse(self.table.rows.get(&pid)?.files_due), pid));
        let candidates = self
            .holders
            .iter()
            .copied()
            .chain(self.related.pids())
            .filter_map(due);
        let mut due: Vec<_> = candidates.filter(|(Reverse(due), _)| now >= *due).collect();
        due.sort_unstable();
        due.dedup();
        due.into_iter().map(|(_, pid)| pid).collect()
    }

    fn apply(&mut self, pid: u32, change: RowChange, now: Moment) {
        if self.related.update(&self.table, pid, change) {
            self.has_changed = true;
            // A child inherits the open files of its parent.
            self.read_files(pid, now);
        }
        self.has_related_ended |= change == RowChange::Gone && self.related.contains(pid);
    }

    fn read_files(&mut self, pid: u32, now: Moment) {
        let Some(devices) = &self.devices else { return };
        let is_gpu_user = self
            .table
            .id(pid)
            .is_some_and(|id| self.gpu_users.contains(&id));
        let Some(row) = self
            .table
            .rows
            .get_mut(&pid)
            .filter(|row| !row.is_kernel_thread)
        else {
            return;
        };
        let is_first = row.files == DeviceFileState::NotRead;
        row.files_due = now.after(if is_first {
            FIRST_FILES_INTERVAL
        } else {
            FILES_INTERVAL
        });
        // NVML lists the process, so its open files need not show that it uses a GPU.
        if is_gpu_user && !is_first {
            return;
        }
        let files = match (row.is_zombie, row.threads) {
            (true, 0 | 1) => Ok(OpenDeviceFiles::default()),
            (true, _) => devices.open_by_threads(pid),
            (false, _) => devices.open_by(pid),
        };
        let files = match files {
            Ok(open) if open.may_hold_memory() => DeviceFileState::Open(Box::new(open)),
            Err(Errno::ACCESS | Errno::PERM) => DeviceFileState::Denied,
            // The process has no such file open, or has ended.
            Ok(_) | Err(_) => DeviceFileState::NotOpen,
        };
        if files != row.files {
            self.has_changed = true;
            row.files = files;
            let is_holder = matches!(row.files, DeviceFileState::Open(_));
            self.have_holders_changed |= if is_holder {
                self.holders.insert(pid)
            } else {
                self.holders.remove(&pid)
            };
        }
    }

    fn result(&mut self, now: Moment, is_full: bool) -> Option<ScanResult> {
        let complete = self.complete?;
        let renew_counts = is_full || now >= self.counts_due;
        if !renew_counts && !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let related: Arc<[_]> = self.related.ids().into();
        let device_file_holders: Arc<[_]> = self.device_file_holders().collect();
        // Only full scans look for candidates, since that costs too much for every request.
        let candidates = if is_full && self.devices.is_some() {
            self.candidates(now)
        } else {
            vec![]
        };
        let counts = match self.last_result.as_ref().filter(|_| !renew_counts) {
            Some(old)
                if old.related == related && old.device_file_holders == device_file_holders =>
            {
                return None;
            }
            Some(old) => old.counts.clone(),
            None => {
                self.counts_due = now.after(COUNTS_INTERVAL);
                self.counts(complete)
            }
        };
        let result = ScanResult {
            counts,
            related,
            device_file_holders,
            candidates,
            is_full,
        };
        self.last_result = Some(result.clone());
        Some(result)
    }

    fn device_file_holders(&self) -> impl Iterator<Item = (ProcessId, OpenDeviceFiles)> {
        self.holders
            .iter()
            .filter_map(|pid| match &self.table.rows.get(pid)?.files {
                DeviceFileState::Open(open) if self.related.contains(*pid) => {
                    Some((self.table.id(*pid)?, (**open).clone()))
                }
                _ => None,
            })
            .filter(|(id, _)| !self.monitors.contains(id))
    }

    fn counts(&self, at: Moment) -> HostScan {
        let count = |is: fn(&ProcessRow) -> bool| {
            u32::try_from(self.table.rows.values().filter(|row| is(row)).count())
                .unwrap_or(u32::MAX)
        };
        HostScan {
            at,
            processes: count(|_| true),
            unreadable: count(|row| row.files == DeviceFileState::Denied),
            shm_used: shm_used(),
        }
    }

    /// Returns unrelated processes whose arguments decide whether they are related, each once:
    /// Python processes that seem to have lost their parent, which may be children of
    /// `multiprocessing`; and processes that started after a person ended one, since the
    /// replacement that a supervisor starts has the same arguments.
    fn candidates(&mut self, now: Moment) -> Vec<ProcessId> {
        let is_python =
            |row: &ProcessRow| row.comm().starts_with(b"python") || row.comm().starts_with(b"pt_");
        let rows = &self.table.rows;
        let lost = rows.iter().filter(|(pid, row)| {
            let parent = rows.get(&row.parent).filter(|_| row.parent > 1);
            // A child of `multiprocessing` leads no group. It has lost its parent if the leader of
            // the group has ended too, or if the parent is younger than the child, or no Python.
            let is_lost = !rows.contains_key(&row.group)
                || parent.is_none_or(|parent| {
                    parent.start_ticks > row.start_ticks || !is_python(parent)
                });
            is_python(row)
                && row.group != **pid
                && is_lost
                && !row.is_examined
                && !self.related.contains(**pid)
        });
        let mut pids: Vec<u32> = lost.map(|(pid, _)| *pid).collect();
        if let Some(ended) = self.ended {
            let per_second = clock_ticks_per_second();
            let started =
                |row: &ProcessRow| Moment(row.start_ticks.saturating_mul(1000) / per_second);
            let is_new = |row: &ProcessRow| {
                let is_due = !row.is_examined || now.since(started(row)) < YOUNG;
                is_due && !row.is_kernel_thread && started(row).after(REPLACEMENT_LEAD) >= ended
            };
            let replacements = rows
                .iter()
                .filter(|(pid, row)| is_new(row) && !self.related.contains(**pid));
            let mut replacements: Vec<_> = replacements
                .map(|(pid, row)| (Reverse(row.start_ticks), *pid))
                .collect();
            replacements.sort_unstable();
            pids.extend(
                replacements
                    .into_iter()
                    .take(MOST_REPLACEMENTS)
                    .map(|(_, pid)| pid),
            );
            pids.sort_unstable();
            pids.dedup();
        }
        let mut examine = |pid| {
            self.table.rows.get_mut(&pid)?.is_examined = true;
            self.table.id(pid)
        };
        pids.into_iter().filter_map(&mut examine).collect()
    }
}

/// Returns the PIDs of the agent and its viewer, which would be related to all processes of their
/// terminal.
fn own_pids() -> Vec<u32> {
    let agent = std::process::id();
    let exe = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let viewer =
        rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    let viewer = viewer.filter(|viewer| exe(*viewer).is_some_and(|path| Some(path) == exe(agent)));
    [agent].into_iter().chain(viewer).collect()
}

fn nanoseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Reads how much of `/dev/shm` is in use. This cannot hang: the file system is in memory.
fn shm_used() -> Reading<Bytes> {
    let shm = statvfs("/dev/shm").map_err(|error| match error {
        Errno::NOENT => Missing::Unsupported,
        Errno::ACCESS => Missing::Denied,
        _ => Missing::Failed,
    })?;
    Ok(Bytes(
        shm.f_blocks
            .saturating_sub(shm.f_bfree)
            .saturating_mul(shm.f_frsize),
    ))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process_group};

    use super::*;

    /// A process that leads a group. Dropping it ends the group.
    struct Leader(Child);

    impl Drop for Leader {
        fn drop(&mut self) {
            // The processes may have ended.
            let _ended = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _reaped = self.0.wait();
        }
    }

    #[test]
    fn a_child_among_many_new_processes_is_found_by_its_parent() {
        if !std::fs::exists(format!("/proc/self/task/{}/children", std::process::id())).unwrap() {
            // This kernel lists no children.
            return;
        }
        let script = "read go; sleep 1000 & echo $!; wait";
        let mut sh = Command::new("sh");
        let sh = sh
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut leader = Leader(sh.spawn().unwrap());
        let child = &mut leader.0;
        let mut scanner = Scanner::new(None);
        scanner.table.read(child.id());
        let id = scanner.table.id(child.id()).unwrap();
        scanner.scan(ScanRequest {
            gpu_users: Some(vec![id]),
            ..ScanRequest::default()
        });
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        // As if more processes had started than are looked up.
        scanner.table.new_pids(0);
        scanner.parents_due.push(id);
        scanner.scan_few(clock::now());
        assert!(scanner.related.contains(grandchild));
    }

    #[test]
    fn files_that_have_waited_longest_are_read_first() {
        let mut scanner = Scanner {
            table: ProcessTable::empty(),
            ..Scanner::new(Some(DeviceFiles::from_environment()))
        };
        for (pid, due) in [(30, 5), (10, 9), (20, 1), (40, 99)] {
            scanner.table.add(pid, "python", 1, pid, pid);
            scanner.table.rows.get_mut(&pid).unwrap().files_due = Moment(due);
            scanner.holders.insert(pid);
        }
        let mut due = scanner.files_due(Moment(10));
        assert_eq!(
            [due.pop(), due.pop(), due.pop(), due.pop()],
            [Some(20), Some(30), Some(10), None]
        );
    }
}
