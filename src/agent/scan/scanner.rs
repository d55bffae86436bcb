//! The census's own side: how much to look at, and when.
//!
//! | when | whom |
//! |---|---|
//! | each order, within [`ALLOWANCE`] | who has just started, and where those are too many, whom GPU processes started; files of related processes, every [`FILES`]; the next of a round over all |
//! | an order of a wider [`Scope`] | everyone's `stat`, then files of related processes or of all, in pieces of [`PIECE`] |

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;

use super::process_table::{Files, News, Row, Table};
use super::related::RelatedProcesses;
use super::{Order, Scope, Sighting};
use crate::agent::clock;
use crate::agent::procfs::device_files::{DeviceFiles, OpenDeviceFiles};
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{HostScan, Missing, ProcessId, Reading};

/// What strolling may cost: computing time, in parts of a million of the time that goes by.
const ALLOWANCE: i64 = 150;
/// What was not used up is kept, and what was overdrawn is owed, to this limit: nanoseconds.
const SAVED: i64 = 1_000_000;
/// A scan is done in pieces, so that orders do not wait.
const PIECE: Duration = Duration::from_millis(100);
/// Files of a process are looked at again after so long.
const FILES: Duration = Duration::from_secs(10);
/// Those of one that is new, after so long: it has hardly begun.
const SOON: Duration = Duration::from_secs(1);
/// The figures about the scan itself are renewed so often.
const FIGURES: Duration = Duration::from_secs(5);
/// From one scan to the next, at least so many times what the last one took. One that is asked for earlier waits.
const REST: u32 = 8;
/// Of those who have just started, no more than this are looked for.
const NEWBORN: u32 = 32;
/// Who takes the place of another may start a moment before that one's end is seen.
const EARLY: Duration = Duration::from_secs(2);
/// One that is so young may be about to run another program, with other arguments.
const YOUNG: Duration = Duration::from_secs(3);
/// The arguments of so many newcomers are asked for after a scan: of the youngest.
const NEWCOMERS: usize = 64;
/// Related processes are not gathered anew more often than this for holders that come and go.
const GATHER: Duration = Duration::from_secs(5);

/// Everything that the census knows.
#[derive(Debug)]
pub(super) struct Stroll {
    devices: Option<DeviceFiles>,
    table: Table,
    related: RelatedProcesses,
    processes: BTreeSet<ProcessId>,
    /// Whose children are yet to be looked for, since more started than one could look at: one that is spawned
    /// starts tens of threads.
    unasked: Vec<ProcessId>,
    /// Who may hold memory by the device files it has open.
    process_total: BTreeSet<u32>,
    /// Nanoseconds; below 0 they are owed.
    credit: i64,
    since: Moment,
    /// The scan that was asked for, and is yet to begin.
    wanted: Scope,
    /// Whose files are yet to be looked at, of a scan that is under way.
    unscanned: Option<Vec<u32>>,
    /// What the last scan took, and when the next may begin.
    took: Duration,
    rested: Moment,
    /// Who holds a GPU has changed since related processes were gathered, and when they are gathered next for it.
    stale: bool,
    gather_due: Moment,
    /// One was ended then: who has started since may have taken its place.
    ended: Option<Moment>,
    /// There may be something new to say.
    changed: bool,
    figures_due: Moment,
    /// When everyone was looked at last.
    complete: Option<Moment>,
    said: Option<Sighting>,
}

impl Stroll {
    pub(super) fn new(devices: Option<DeviceFiles>) -> Self {
        let is_real = devices.is_some();
        Self {
            devices,
            table: Table::new(),
            related: RelatedProcesses::new(ourselves(), is_real),
            processes: BTreeSet::new(),
            unasked: vec![],
            process_total: BTreeSet::new(),
            credit: 0,
            since: clock::now(),
            wanted: Scope::Few,
            unscanned: None,
            took: Duration::ZERO,
            rested: Moment(0),
            stale: false,
            gather_due: Moment(0),
            ended: None,
            changed: false,
            figures_due: Moment(0),
            complete: None,
            said: None,
        }
    }

    /// How soon a scan begins, or goes on; absent when nobody asked for one.
    pub(super) fn next_scan(&self) -> Option<Duration> {
        match self.wanted {
            _ if self.is_busy() => Some(Duration::ZERO),
            Scope::Few => None,
            Scope::Everyone | Scope::Files => Some(self.rested.since(clock::now())),
        }
    }

    fn is_busy(&self) -> bool {
        self.unscanned.is_some()
    }

    /// Looks around. Absent when there is nothing new to say.
    pub(super) fn go(&mut self, order: Order) -> Option<Sighting> {
        let now = clock::now();
        // An order that the loop did not give says nothing of this.
        self.ended = order.ended.or(self.ended.filter(|_| self.next_scan().is_some()));
        self.wanted = self.wanted.max(order.scope);
        let mut gather = !order.adopted.is_empty();
        order.adopted.iter().for_each(|id| self.related.adopt(*id));
        if let Some(gpu_processes) = order.gpu_processes {
            self.processes = gpu_processes.into_iter().collect();
            gather |= self.take_roots(now);
        }
        let is_full = if self.is_busy() || self.wanted > Scope::Few && now >= self.rested {
            self.scan(now)
        } else {
            self.stroll(now);
            false
        };
        // Someone may run `nvidia-smi` each second: what all that has changed can wait for some seconds.
        if gather || is_full || self.stale && now >= self.gather_due {
            (self.stale, self.gather_due, self.changed) = (false, now.after(GATHER), true);
            self.take_roots(now);
            self.related.gather(&self.table, now);
        }
        self.say(now, is_full)
    }

    /// Takes those as roots who hold a GPU. Says whether there is a new one.
    fn take_roots(&mut self, now: Moment) -> bool {
        for id in &self.processes {
            if self.table.get(*id).is_none() {
                self.table.look(id.pid);
            }
        }
        let holders = self.process_total.iter().filter_map(|pid| self.table.id(*pid));
        let roots = holders.chain(self.processes.iter().copied()).collect();
        self.changed = true;
        self.related.set_roots(&roots, &self.table, now)
    }

    /// Looks at everyone, in pieces. Says whether that is done.
    fn scan(&mut self, now: Moment) -> bool {
        let begun = clock::computed();
        let mut queue = match self.unscanned.take() {
            Some(queue) => queue,
            None => {
                let scope = std::mem::take(&mut self.wanted);
                self.took = Duration::ZERO;
                self.table.rewind();
                while self.table.step().is_some() {}
                self.forget(now);
                // From the end: those who are related processes already, and then the youngest.
                let rows = self.table.rows().iter();
                let due = rows.filter(|(pid, row)| {
                    scope == Scope::Files || row.files == Files::NotYet || self.related.knows(**pid)
                });
                let mut queue: Vec<u32> = due.map(|(pid, _)| *pid).collect();
                queue.sort_by_key(|pid| self.related.knows(*pid));
                queue
            }
        };
        while let Some(pid) = queue.pop() {
            self.look_at_files(pid, now);
            if clock::computed().saturating_sub(begun) > PIECE {
                break;
            }
        }
        self.took += clock::computed().saturating_sub(begun);
        let is_over = queue.is_empty();
        self.unscanned = (!is_over).then_some(queue);
        if is_over {
            let now = clock::now();
            (self.complete, self.rested) = (Some(now), now.after(self.took * REST));
        }
        is_over
    }

    /// Looks at a few.
    fn stroll(&mut self, now: Moment) {
        let begun = clock::computed();
        let spent = || nanoseconds(clock::computed().saturating_sub(begun));
        let earned = nanoseconds(now.since(self.since)) / 1_000_000 * ALLOWANCE;
        self.credit = self.credit.saturating_add(earned).min(SAVED);
        self.since = now;
        let credit = self.credit;
        let mut due = self.due(now);
        let mut any_gone = false;
        // Where hundreds start each second, most are gone before they matter: half is for those who stay.
        for pid in self.table.newborn(NEWBORN).rev() {
            if spent() >= credit / 2 {
                break;
            }
            let news = self.table.look_at_newborn(pid);
            any_gone |= self.settle(pid, news, now);
        }
        if self.table.is_crowded() && self.unasked.is_empty() {
            self.unasked.extend(&self.processes);
        }
        // Where others start all the time, this still goes on, by one a time.
        loop {
            if let Some(id) = self.unasked.pop() {
                any_gone |= self.meet_children(id.pid, now, || spent() >= credit);
            }
            if let Some(pid) = due.pop() {
                let news = self.table.look(pid);
                any_gone |= self.settle(pid, news, now);
                self.look_at_files(pid, now);
            }
            let Some((pid, news)) = self.table.step() else {
                self.complete = self.complete.map(|_| now);
                any_gone = true;
                break;
            };
            any_gone |= self.settle(pid, news, now);
            if self.table.rows().get(&pid).is_some_and(|row| now >= row.files_due) {
                self.look_at_files(pid, now);
            }
            if spent() >= credit {
                break;
            }
        }
        if any_gone {
            self.forget(now);
        }
        self.credit = self.credit.saturating_sub(spent()).max(-SAVED);
    }

    fn forget(&mut self, now: Moment) {
        self.related.forget(&self.table, now);
        self.process_total
            .retain(|pid| self.table.rows().get(pid).is_some_and(|row| matches!(row.files, Files::Open(_))));
        self.changed = true;
    }

    /// Whose files it is time to look at again, of those who matter; last who waits longest.
    fn due(&self, now: Moment) -> Vec<u32> {
        if self.devices.is_none() {
            return vec![];
        }
        let due = |pid: u32| Some((Reverse(self.table.rows().get(&pid)?.files_due), pid));
        let those = self.process_total.iter().copied().chain(self.related.members()).filter_map(due);
        let mut due: Vec<_> = those.filter(|(Reverse(due), _)| now >= *due).collect();
        due.sort_unstable();
        due.dedup();
        due.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Looks at those whom a process has started and nobody has looked at yet, until it is enough. Says whether one was
    /// related processes and has gone.
    fn meet_children(&mut self, pid: u32, now: Moment, is_enough: impl Fn() -> bool) -> bool {
        let mut any_gone = false;
        for child in self.table.new_children(pid).into_iter().take(NEWBORN as usize) {
            let news = self.table.look_at_newborn(child);
            any_gone |= self.settle(child, news, now);
            if is_enough() {
                break;
            }
        }
        any_gone
    }

    /// Takes note of what a look at a process brought. Says whether it was related processes and has gone.
    fn settle(&mut self, pid: u32, news: News, now: Moment) -> bool {
        if self.related.meet(&self.table, pid, news) {
            self.changed = true;
            // A child has the files of its parent from the beginning.
            self.look_at_files(pid, now);
        }
        news == News::Gone && self.related.knows(pid)
    }

    /// Looks at the files of a process.
    fn look_at_files(&mut self, pid: u32, now: Moment) {
        let Some(devices) = &self.devices else { return };
        let is_gpu_process = self.table.id(pid).is_some_and(|id| self.processes.contains(&id));
        let Some(row) = self.table.row_mut(pid).filter(|row| !row.kernel) else { return };
        row.files_due = now.after(if row.files == Files::NotYet { SOON } else { FILES });
        // The driver lists it, which is proof enough.
        if is_gpu_process && row.files != Files::NotYet {
            return;
        }
        let files = match (row.zombie, row.threads) {
            (true, 0 | 1) => Ok(OpenDeviceFiles::default()),
            (true, _) => devices.open_by_threads(pid),
            (false, _) => devices.open_by(pid),
        };
        let files = match files {
            Ok(open) if !open.uvm => Files::None,
            Ok(open) => Files::Open(Box::new(open)),
            Err(Errno::ACCESS | Errno::PERM) => Files::Denied,
            // It has gone.
            Err(_) => Files::None,
        };
        if files != row.files {
            self.changed = true;
            row.files = files;
            let holds = matches!(row.files, Files::Open(_));
            self.stale |= if holds { self.process_total.insert(pid) } else { self.process_total.remove(&pid) };
        }
    }

    fn say(&mut self, now: Moment, is_full: bool) -> Option<Sighting> {
        let complete = self.complete?;
        let figures = is_full || now >= self.figures_due;
        if !figures && !std::mem::take(&mut self.changed) {
            return None;
        }
        let related = self.related.ids();
        let device_file_holders: Vec<_> = self.device_file_holders().collect();
        // Who has lost its parent is seen by a scan; to look for such each time would cost too much.
        let strays = if is_full && self.devices.is_some() { self.strays(now) } else { vec![] };
        let old = self.said.as_ref();
        if !figures
            && old.is_some_and(|old| *old.related == *related && *old.device_file_holders == *device_file_holders)
        {
            return None;
        }
        let scan = match old.filter(|_| !figures) {
            Some(old) => old.scan.clone(),
            None => {
                self.figures_due = now.after(FIGURES);
                self.figures(complete)
            }
        };
        let sighting = Sighting {
            scan,
            related: related.into(),
            device_file_holders: device_file_holders.into(),
            strays,
            is_full,
        };
        self.said = Some(sighting.clone());
        Some(sighting)
    }

    fn device_file_holders(&self) -> impl Iterator<Item = (ProcessId, OpenDeviceFiles)> {
        self.process_total.iter().filter_map(|pid| match &self.table.rows().get(pid)?.files {
            Files::Open(open) if self.related.knows(*pid) => Some((self.table.id(*pid)?, (**open).clone())),
            _ => None,
        })
    }

    fn figures(&self, at: Moment) -> HostScan {
        let count = |is: fn(&Row) -> bool| {
            u32::try_from(self.table.rows().values().filter(|row| is(row)).count()).unwrap_or(u32::MAX)
        };
        HostScan {
            at,
            processes: count(|_| true),
            unreadable: count(|row| row.files == Files::Denied),
            shm_used: shm_used(),
        }
    }

    /// Python processes that are nobody's related processes and seem to have lost their parent: children of
    /// `multiprocessing` are known by their arguments, which are read elsewhere. Each is named once. So is whoever
    /// started after one was ended: a supervisor's next child runs what the last one ran.
    fn strays(&mut self, now: Moment) -> Vec<ProcessId> {
        let is_python = |row: &Row| row.comm().starts_with(b"python") || row.comm().starts_with(b"pt_");
        let rows = self.table.rows();
        let strays = rows.iter().filter(|(pid, row)| {
            let parent = rows.get(&row.parent).filter(|_| row.parent > 1);
            // Such a child leads no group. That it has lost its parent shows by the group's leader, who has
            // gone too, or by the parent: it is younger than its child, or no Python.
            let is_lost = !rows.contains_key(&row.group)
                || parent.is_none_or(|parent| parent.start_ticks > row.start_ticks || !is_python(parent));
            is_python(row) && row.group != **pid && is_lost && !row.asked && !self.related.knows(**pid)
        });
        let mut pids: Vec<u32> = strays.map(|(pid, _)| *pid).collect();
        if let Some(ended) = self.ended {
            let per_second = clock_ticks_per_second();
            let started = |row: &Row| Moment(row.start_ticks.saturating_mul(1000) / per_second);
            let is_new = |row: &Row| {
                let is_due = !row.asked || now.since(started(row)) < YOUNG;
                is_due && !row.kernel && started(row) >= Moment(ended.0.saturating_sub(millis(EARLY)))
            };
            let newcomers = rows.iter().filter(|(pid, row)| is_new(row) && !self.related.knows(**pid));
            let mut newcomers: Vec<_> = newcomers.map(|(pid, row)| (Reverse(row.start_ticks), *pid)).collect();
            newcomers.sort_unstable();
            pids.extend(newcomers.into_iter().take(NEWCOMERS).map(|(_, pid)| pid));
            pids.sort_unstable();
            pids.dedup();
        }
        let mut ask = |pid| {
            self.table.row_mut(pid)?.asked = true;
            self.table.id(pid)
        };
        pids.into_iter().filter_map(&mut ask).collect()
    }
}

/// The agent, and the viewer that started it: they would be related processes of all that runs in their terminal.
fn ourselves() -> Vec<u32> {
    let agent = std::process::id();
    let exe = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let viewer = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    let viewer = viewer.filter(|viewer| exe(*viewer).is_some_and(|it| Some(it) == exe(agent)));
    [agent].into_iter().chain(viewer).collect()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// What is in use of `/dev/shm`, which is memory and never hangs.
fn shm_used() -> Reading<Bytes> {
    let shm = statvfs("/dev/shm").map_err(|error| match error {
        Errno::NOENT => Missing::Unsupported,
        Errno::ACCESS => Missing::Denied,
        _ => Missing::Failed,
    })?;
    Ok(Bytes(shm.f_blocks.saturating_sub(shm.f_bfree).saturating_mul(shm.f_frsize)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process_group};

    use super::*;

    /// A process that leads a group, which ends with the test.
    struct Leader(Child);

    impl Drop for Leader {
        fn drop(&mut self) {
            // They may have ended.
            let _ended = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _reaped = self.0.wait();
        }
    }

    #[test]
    fn whom_a_tenant_starts_among_many_is_found_by_that_tenant() {
        if !std::fs::exists(format!("/proc/self/task/{}/children", std::process::id())).unwrap() {
            // This kernel lists no children.
            return;
        }
        let script = "read go; sleep 1000 & echo $!; wait";
        let mut sh = Command::new("sh");
        let sh = sh.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut leader = Leader(sh.spawn().unwrap());
        let gpu_process = &mut leader.0;
        let mut stroll = Stroll::new(None);
        stroll.table.look(gpu_process.id());
        let id = stroll.table.id(gpu_process.id()).unwrap();
        stroll.go(Order { gpu_processes: Some(vec![id]), ..Order::default() });
        gpu_process.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(gpu_process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let child: u32 = line.trim().parse().unwrap();
        // So many have started since that it is not among the latest.
        stroll.table.newborn(0);
        stroll.unasked.push(id);
        stroll.stroll(clock::now());
        assert!(stroll.related.knows(child));
    }

    #[test]
    fn whose_files_wait_longest_are_looked_at_first() {
        let mut stroll = Stroll { table: Table::empty(), ..Stroll::new(Some(DeviceFiles::of_host())) };
        for (pid, due) in [(30, 5), (10, 9), (20, 1), (40, 99)] {
            stroll.table.put(pid, "python", 1, pid, pid);
            stroll.table.row_mut(pid).unwrap().files_due = Moment(due);
            stroll.process_total.insert(pid);
        }
        let mut due = stroll.due(Moment(10));
        assert_eq!([due.pop(), due.pop(), due.pop(), due.pop()], [Some(20), Some(30), Some(10), None]);
    }
}
