//! Finds the processes that are related to those that use a GPU, in the table of all processes.
//!
//! A process is related if it is an ancestor or descendant of one that uses a GPU, in the same
//! group or session, a helper of PyTorch by its name, or accepted by its arguments. It stays
//! related while it lives, so the processes that a dead job leaves behind are still recognized;
//! only where there are too many, those of an ended group or session are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::process_table::{ProcessRow, ProcessTable, RowChange};
use crate::base::units::Moment;
use crate::protocol::snapshot::ProcessId;

/// The most related processes in all. Each is read every few seconds, and nobody reads a longer
/// list.
const MOST: usize = 512;
/// The most related processes of one process that uses a GPU. Ancestors and descendants come first.
const MOST_EACH: usize = 128;

/// The most ancestors of a process that are followed: parents that change while they are read could
/// form a circle.
const MOST_ANCESTORS: usize = 64;

/// How long after the end of a process that used a GPU its group and session still count as
/// related.
const REMEMBERED: Duration = Duration::from_mins(1);

/// The names of PyTorch's helper processes, which are related whatever their parent is.
const HELPERS: [&[u8]; 2] = [b"pt_data_worker", b"pt_elastic"];

/// A process that uses a GPU, or did until a short while ago.
#[derive(Debug, Clone, Copy)]
struct GpuUser {
    id: ProcessId,
    group: u32,
    session: u32,
    /// When the scan noticed that the process had ended or no longer used a GPU. `None` while the
    /// process uses one.
    ended: Option<Moment>,
}

/// A process that is related to one that uses a GPU.
#[derive(Debug, Clone, Copy)]
struct RelatedProcess {
    id: ProcessId,
    /// The PID of the GPU user to which this process is related; that user may have ended. The own
    /// PID of a process that used a GPU itself, or that was found by its name or arguments.
    user: u32,
    /// Whether this process counts as a descendant: its children are then related too.
    is_descendant: bool,
}

/// The processes that use a GPU, and those related to them.
#[derive(Debug, Default)]
pub(super) struct RelatedSet {
    /// By PID.
    users: BTreeMap<u32, GpuUser>,
    /// By PID.
    related: BTreeMap<u32, RelatedProcess>,
    /// The number of related processes of each process that uses a GPU, by its PID.
    counts: BTreeMap<u32, usize>,
    /// Processes that are related by their arguments.
    accepted: BTreeSet<ProcessId>,
    /// The PIDs of the agent and its viewer, which are never related.
    own_pids: BTreeSet<u32>,
    /// Whether processes with the name of a PyTorch helper are related. False on the simulated
    /// machine.
    accepts_helpers: bool,
}

/// Returns key and PID of every process except kernel threads, sorted.
fn pids_by_key(table: &ProcessTable, key: fn(&ProcessRow) -> u32) -> Vec<(u32, u32)> {
    let processes = table.rows.iter().filter(|(_, row)| !row.is_kernel_thread);
    let mut pairs: Vec<_> = processes.map(|(pid, row)| (key(row), *pid)).collect();
    pairs.sort_unstable();
    pairs
}

fn pids_with_key(pairs: &[(u32, u32)], key: u32) -> impl Iterator<Item = u32> {
    let first = pairs.partition_point(|pair| pair.0 < key);
    pairs[first..]
        .iter()
        .take_while(move |pair| pair.0 == key)
        .map(|pair| pair.1)
}

impl RelatedSet {
    pub(super) fn new(own_pids: impl IntoIterator<Item = u32>, accepts_helpers: bool) -> Self {
        Self {
            own_pids: own_pids.into_iter().collect(),
            accepts_helpers,
            ..Self::default()
        }
    }

    fn is_helper(&self, row: &ProcessRow) -> bool {
        self.accepts_helpers && HELPERS.contains(&row.comm())
    }

    fn is_gpu_user(&self, pid: u32) -> bool {
        self.users
            .get(&pid)
            .is_some_and(|user| user.ended.is_none())
    }

    /// Sets the processes that use a GPU now. A process that no longer uses a GPU becomes related.
    /// Returns whether `ids` contains a new process.
    pub(super) fn set_gpu_users(
        &mut self,
        ids: &BTreeSet<ProcessId>,
        table: &ProcessTable,
        now: Moment,
    ) -> bool {
        for user in self
            .users
            .values_mut()
            .filter(|user| user.ended.is_none() && !ids.contains(&user.id))
        {
            user.ended = Some(now);
            let (id, pid) = (user.id, user.id.pid);
            if table.get(id).is_some() {
                self.related.insert(
                    pid,
                    RelatedProcess {
                        id,
                        user: pid,
                        is_descendant: true,
                    },
                );
                *self.counts.entry(pid).or_default() += 1;
            }
        }
        let mut is_any_new = false;
        for id in ids.iter().filter(|id| !self.own_pids.contains(&id.pid)) {
            let Some(row) = table.get(*id) else { continue };
            let user = GpuUser {
                id: *id,
                group: row.group,
                session: row.session,
                ended: None,
            };
            let before = self.users.insert(id.pid, user);
            is_any_new |= before.is_none_or(|before| before.id != *id || before.ended.is_some());
        }
        if is_any_new {
            // Collected anew: a `BTreeMap` that grew in ascending order is half empty.
            self.users = std::mem::take(&mut self.users).into_iter().collect();
        }
        is_any_new
    }

    /// Treats a process as related from the next [`RelatedSet::collect`] on, although the table
    /// alone does not show it.
    pub(super) fn accept(&mut self, id: ProcessId) {
        self.accepted.insert(id);
    }

    /// Forgets a process that uses no GPU after all, and those that are related to it.
    pub(super) fn forget(&mut self, id: ProcessId) {
        self.users.retain(|_, user| user.id != id);
        self.related
            .retain(|_, related| related.user != id.pid && related.id != id);
        self.counts.remove(&id.pid);
    }

    /// Whether a process is related or uses a GPU.
    pub(super) fn contains(&self, pid: u32) -> bool {
        self.related.contains_key(&pid) || self.is_gpu_user(pid)
    }

    /// Returns the PIDs of related processes that use no GPU.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.related.keys().copied()
    }

    /// Returns the processes that use a GPU and those related to them, sorted by PID.
    pub(super) fn ids(&self) -> Vec<ProcessId> {
        let users = self
            .users
            .values()
            .filter(|user| user.ended.is_none())
            .map(|user| user.id);
        let ids: BTreeSet<_> = self
            .related
            .values()
            .map(|related| related.id)
            .chain(users)
            .collect();
        ids.into_iter().collect()
    }

    pub(super) fn forget_ended(&mut self, table: &ProcessTable, now: Moment) {
        self.related
            .retain(|_, related| table.get(related.id).is_some());
        self.accepted.retain(|id| table.get(*id).is_some());
        for user in self
            .users
            .values_mut()
            .filter(|user| user.ended.is_none() && table.get(user.id).is_none())
        {
            user.ended = Some(now);
        }
        self.users
            .retain(|_, user| user.ended.is_none_or(|ended| now.since(ended) < REMEMBERED));
        if self.related.len() >= MOST {
            // To make room, drop processes that only shared the group or session of a process that
            // has ended.
            let users = &self.users;
            self.related
                .retain(|_, related| related.is_descendant || users.contains_key(&related.user));
        }
        self.counts.clear();
        for related in self.related.values() {
            *self.counts.entry(related.user).or_default() += 1;
        }
    }

    pub(super) fn collect(&mut self, table: &ProcessTable, now: Moment) {
        self.forget_ended(table, now);
        let users: Vec<GpuUser> = self.users.values().copied().collect();
        let living: Vec<&GpuUser> = users.iter().filter(|user| user.ended.is_none()).collect();
        for user in &living {
            let mut next = table.rows.get(&user.id.pid).map_or(0, |row| row.parent);
            for _ in 0..MOST_ANCESTORS {
                let Some(row) = table.rows.get(&next) else {
                    break;
                };
                if self.own_pids.contains(&next) {
                    break;
                }
                self.add(table, next, user.id.pid, false);
                next = row.parent;
            }
        }
        // Children of related descendants count too, such as those of workers that a dead launcher
        // left behind.
        let children = pids_by_key(table, |row| row.parent);
        let related = self
            .related
            .values()
            .filter(|related| related.is_descendant);
        let related = related.map(|related| (related.id.pid, related.user));
        let mut parents: Vec<_> = living
            .iter()
            .map(|user| (user.id.pid, user.id.pid))
            .chain(related)
            .collect();
        let mut visited = BTreeSet::new();
        while let Some((pid, user)) = parents.pop() {
            if visited.insert(pid) {
                for child in pids_with_key(&children, pid) {
                    self.add(table, child, user, true);
                    parents.push((child, user));
                }
            }
        }
        for id in self.accepted.clone() {
            self.add(table, id.pid, id.pid, true);
        }
        for (pid, row) in &table.rows {
            if self.is_helper(row) {
                self.add(table, *pid, *pid, true);
            }
        }
        self.add_processes_with_key(table, &users, |row| row.group, |user| user.group);
        self.add_processes_with_key(table, &users, |row| row.session, |user| user.session);
    }

    fn add_processes_with_key(
        &mut self,
        table: &ProcessTable,
        users: &[GpuUser],
        key: fn(&ProcessRow) -> u32,
        key_of: fn(&GpuUser) -> u32,
    ) {
        let pids = pids_by_key(table, key);
        let mut visited = BTreeSet::new();
        for user in users.iter().filter(|user| visited.insert(key_of(user))) {
            pids_with_key(&pids, key_of(user))
                .for_each(|pid| self.add(table, pid, user.id.pid, false));
        }
    }

    /// Adds a new or changed process if it is related, without reading the rest of the table. Does
    /// not notice that a process has become an ancestor. Returns whether the process was added.
    pub(super) fn update(&mut self, table: &ProcessTable, pid: u32, change: RowChange) -> bool {
        let Some(row) = table
            .rows
            .get(&pid)
            .filter(|_| change != RowChange::Nothing && !self.contains(pid))
        else {
            return false;
        };
        let parent = self
            .related
            .get(&row.parent)
            .filter(|parent| parent.is_descendant)
            .map(|parent| parent.user);
        let parent = if self.is_gpu_user(row.parent) {
            Some(row.parent)
        } else {
            parent
        };
        let shares_group_or_session =
            |user: &&GpuUser| user.group == row.group || user.session == row.session;
        if let Some(user) = parent {
            self.add(table, pid, user, true);
        } else if self.is_helper(row) {
            self.add(table, pid, pid, true);
        } else if let Some(user) = self
            .users
            .values()
            .find(shares_group_or_session)
            .map(|user| user.id.pid)
        {
            self.add(table, pid, user, false);
        }
        self.related.contains_key(&pid)
    }

    fn add(&mut self, table: &ProcessTable, pid: u32, user: u32, is_descendant: bool) {
        if self.is_gpu_user(pid) || self.own_pids.contains(&pid) {
            return;
        }
        let (Some(id), Some(row)) = (table.id(pid), table.rows.get(&pid)) else {
            return;
        };
        if row.is_kernel_thread {
            return;
        }
        if let Some(related) = self
            .related
            .get_mut(&pid)
            .filter(|related| related.id == id)
        {
            related.is_descendant |= is_descendant;
            return;
        }
        let count = self.counts.entry(user).or_default();
        if self.related.len() < MOST && *count < MOST_EACH {
            *count += 1;
            self.related.insert(
                pid,
                RelatedProcess {
                    id,
                    user,
                    is_descendant,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher (20) in a terminal (its shell is 10), two ranks (30, 40) in their own sessions,
    /// and one worker of each rank.
    fn torchrun() -> (ProcessTable, RelatedSet) {
        let mut table = ProcessTable::empty();
        table.add(1, "systemd", 0, 1, 1);
        table.add(2, "kthreadd", 0, 0, 0);
        table.add(10, "bash", 1, 10, 10);
        table.add(11, "vim", 10, 11, 10);
        table.add(20, "torchrun", 10, 20, 10);
        for rank in [30, 40] {
            table.add(rank, "python", 20, rank, rank);
            table.add(rank + 1, "python", rank, rank, rank);
        }
        table.add(90, "sshd", 1, 90, 90);
        let mut related = RelatedSet::new([], true);
        use_gpus(&mut related, &table, &[30, 40], 0);
        (table, related)
    }

    fn use_gpus(related: &mut RelatedSet, table: &ProcessTable, pids: &[u32], now: u64) {
        let ids = pids.iter().filter_map(|pid| table.id(*pid)).collect();
        related.set_gpu_users(&ids, table, Moment(now));
        related.collect(table, Moment(now));
    }

    #[track_caller]
    fn check(related: &RelatedSet, expected: &[u32]) {
        let pids: Vec<u32> = related.ids().iter().map(|id| id.pid).collect();
        assert_eq!(pids, expected);
    }

    #[test]
    fn ancestors_descendants_and_the_session_are_related() {
        let (table, mut related) = torchrun();
        check(&related, &[1, 10, 20, 30, 31, 40, 41]);
        // A trainer without a launcher is in its shell's session.
        use_gpus(&mut related, &table, &[11, 30, 40], 0);
        check(&related, &[1, 10, 11, 20, 30, 31, 40, 41]);
    }

    #[test]
    fn processes_of_a_dead_job_stay_related_while_they_live() {
        let (mut table, mut related) = torchrun();
        for pid in [20, 30, 40] {
            table.end(pid, 1);
        }
        use_gpus(&mut related, &table, &[], 1);
        check(&related, &[1, 10, 31, 41]);
        // The workers stay related years later, and their new children are related too.
        table.add(50, "python", 31, 30, 30);
        use_gpus(&mut related, &table, &[], 1 << 40);
        check(&related, &[1, 10, 31, 41, 50]);
        table.end(31, 1);
        table.end(41, 1);
        use_gpus(&mut related, &table, &[], 1 << 40);
        check(&related, &[1, 10, 50]);
    }

    #[test]
    fn the_group_of_an_ended_process_counts_for_a_while() {
        let (mut table, mut related) = torchrun();
        table.add(32, "python", 30, 30, 30);
        table.end(30, 1);
        use_gpus(&mut related, &table, &[40], 1000);
        check(&related, &[1, 10, 20, 31, 32, 40, 41]);
        let (mut table, mut related) = torchrun();
        table.end(30, 1);
        use_gpus(&mut related, &table, &[40], 0);
        table.add(32, "python", 1, 30, 30);
        use_gpus(&mut related, &table, &[40], 60_000);
        check(&related, &[1, 10, 20, 31, 40, 41]);
    }

    #[test]
    fn a_process_that_stops_using_its_gpu_is_related() {
        let (table, mut related) = torchrun();
        use_gpus(&mut related, &table, &[40], 0);
        check(&related, &[1, 10, 20, 30, 31, 40, 41]);
    }

    #[test]
    fn helpers_of_pytorch_and_accepted_processes_are_related() {
        let (mut table, mut related) = torchrun();
        table.add(60, "pt_data_worker", 1, 59, 59);
        let accepted = table.add(61, "python", 1, 59, 59);
        table.add(62, "python", 1, 59, 59);
        related.accept(accepted);
        use_gpus(&mut related, &table, &[30, 40], 0);
        check(&related, &[1, 10, 20, 30, 31, 40, 41, 60, 61]);
    }

    #[test]
    fn a_new_process_is_related_without_a_look_at_the_others() {
        let (mut table, mut related) = torchrun();
        let mut is_related = |pid, comm, parent, group, session| {
            table.add(pid, comm, parent, group, session);
            related.update(&table, pid, RowChange::Changed)
        };
        assert!(is_related(32, "python", 30, 30, 30));
        assert!(is_related(33, "sh", 32, 33, 33));
        assert!(is_related(34, "pt_data_worker", 1, 34, 34));
        assert!(is_related(35, "python", 1, 30, 30));
        // A child of the shell or of an unrelated process is not related.
        assert!(!is_related(36, "vim", 10, 36, 10));
        assert!(!is_related(37, "sh", 90, 37, 37));
    }

    #[test]
    fn related_processes_are_limited_and_the_nearest_come_first() {
        let (mut table, _) = torchrun();
        (1000..2000).for_each(|pid| _ = table.add(pid, "make", 10, 10, 10));
        (2000..2100).for_each(|pid| _ = table.add(pid, "python", 20, 20, 10));
        let mut related = RelatedSet::new([], true);
        use_gpus(&mut related, &table, &[20], 0);
        let ids: Vec<u32> = related.ids().iter().map(|id| id.pid).collect();
        assert_eq!(ids.len(), MOST_EACH + 1);
        assert!(ids.contains(&10) && (2000..2100).all(|pid| ids.contains(&pid)));
    }

    #[test]
    fn the_agent_and_its_viewer_are_not_related() {
        let (mut table, _) = torchrun();
        let mut related = RelatedSet::new([20], true);
        table.add(70, "python", 20, 20, 10);
        use_gpus(&mut related, &table, &[70], 0);
        // The parent of 70 is the agent, which is left out. The shell's session still counts.
        check(&related, &[10, 11, 70]);
    }
}
