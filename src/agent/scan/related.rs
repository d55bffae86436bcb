//! Who belongs to whom: the related processes of those who hold a GPU, out of a table of all processes.
//!
//! Related processes are ancestors, descendants, and who shares the process group or the session. Once related processes, a process
//! stays so while it lives: what a dead job left behind is known by what it was before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::process_table::{News, Row, Table};
use crate::base::units::Moment;
use crate::protocol::snapshot::ProcessId;

/// So many related processes in all, and of one root. The rest is left out: a list of more helps nobody, and each is
/// read every few seconds. Ancestors and descendants come first.
const MOST: usize = 512;
const MOST_EACH: usize = 128;

/// For so long after a root has ended, members of its group and session are still found to be related processes.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Names by which PyTorch's helpers are known, whoever their parent is.
const HELPERS: [&[u8]; 2] = [b"pt_data_worker", b"pt_elastic"];

/// A process that holds a GPU, or did until a short while ago.
#[derive(Debug, Clone, Copy)]
struct Root {
    id: ProcessId,
    group: u32,
    session: u32,
    ended: Option<Moment>,
}

/// A process that belongs to a root.
#[derive(Debug, Clone, Copy)]
struct Member {
    id: ProcessId,
    /// The root that it was found by, or itself where it was found by its name.
    of: u32,
    /// It is a descendant, and its children are related processes too.
    descends: bool,
}

/// The related processes of those who hold a GPU.
#[derive(Debug, Default)]
pub(super) struct RelatedProcesses {
    roots: BTreeMap<u32, Root>,
    members: BTreeMap<u32, Member>,
    /// How many members each root has.
    counts: BTreeMap<u32, usize>,
    /// Whom others found to belong here: by their arguments.
    adopted: BTreeSet<ProcessId>,
    /// Who is none of anybody: the agent, and its viewer.
    ourselves: BTreeSet<u32>,
    /// Who goes by a helper's name is taken in. On the simulated machine those of the real one are not.
    helpers: bool,
}

/// PIDs by parent, group and session, so that those of one root are found at once.
struct Index {
    children: Vec<(u32, u32)>,
    groups: Vec<(u32, u32)>,
    sessions: Vec<(u32, u32)>,
}

impl Index {
    fn of(table: &Table) -> Self {
        let by = |key: fn(&Row) -> u32| {
            let people = table.rows().iter().filter(|(_, row)| !row.kernel);
            let mut pairs: Vec<_> = people.map(|(pid, row)| (key(row), *pid)).collect();
            pairs.sort_unstable();
            pairs
        };
        Self { children: by(|row| row.parent), groups: by(|row| row.group), sessions: by(|row| row.session) }
    }
}

/// Those of the pairs that have this key.
fn with(pairs: &[(u32, u32)], key: u32) -> impl Iterator<Item = u32> {
    let first = pairs.partition_point(|pair| pair.0 < key);
    pairs[first..].iter().take_while(move |pair| pair.0 == key).map(|pair| pair.1)
}

impl RelatedProcesses {
    pub(super) fn new(ourselves: impl IntoIterator<Item = u32>, helpers: bool) -> Self {
        Self { ourselves: ourselves.into_iter().collect(), helpers, ..Self::default() }
    }

    fn is_helper(&self, row: &Row) -> bool {
        self.helpers && HELPERS.contains(&row.comm())
    }

    /// Those who hold a GPU now. One that does no more, and lives, stays as related processes. Says whether anyone is new.
    pub(super) fn set_roots(&mut self, ids: &BTreeSet<ProcessId>, table: &Table, now: Moment) -> bool {
        for root in self.roots.values_mut().filter(|root| root.ended.is_none() && !ids.contains(&root.id)) {
            root.ended = Some(now);
            if table.get(root.id).is_some() {
                self.members.insert(root.id.pid, Member { id: root.id, of: root.id.pid, descends: true });
                *self.counts.entry(root.id.pid).or_default() += 1;
            }
        }
        let mut any = false;
        for id in ids.iter().filter(|id| !self.ourselves.contains(&id.pid)) {
            let Some(row) = table.get(*id) else { continue };
            let known = self.roots.get(&id.pid).is_some_and(|root| root.id == *id && root.ended.is_none());
            any |= !known;
            let root = Root { id: *id, group: row.group, session: row.session, ended: None };
            self.roots.insert(id.pid, root);
        }
        if any {
            // A tree that grew in ascending order is half empty.
            self.roots = std::mem::take(&mut self.roots).into_iter().collect();
        }
        any
    }

    /// Takes one in who is related processes for a reason that the table does not know.
    pub(super) fn adopt(&mut self, id: ProcessId) {
        self.adopted.insert(id);
    }

    /// Whether it is related processes, or holds a GPU.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.members.contains_key(&pid) || self.roots.get(&pid).is_some_and(|root| root.ended.is_none())
    }

    /// Related processes that hold no GPU.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> {
        self.members.keys().copied()
    }

    /// Those who hold a GPU, and their related processes, by PID.
    pub(super) fn ids(&self) -> Vec<ProcessId> {
        let roots = self.roots.values().filter(|root| root.ended.is_none()).map(|root| root.id);
        let ids: BTreeSet<_> = self.members.values().map(|member| member.id).chain(roots).collect();
        ids.into_iter().collect()
    }

    /// Forgets who has ended.
    pub(super) fn forget(&mut self, table: &Table, now: Moment) {
        self.members.retain(|_, member| table.get(member.id).is_some());
        self.adopted.retain(|id| table.get(*id).is_some());
        for root in self.roots.values_mut().filter(|root| root.ended.is_none() && table.get(root.id).is_none()) {
            root.ended = Some(now);
        }
        self.roots.retain(|_, root| root.ended.is_none_or(|ended| now.since(ended) < REMEMBERED));
        if self.members.len() >= MOST {
            // There is no room for anyone new: whose root has gone, and who only shared its session, goes.
            let roots = &self.roots;
            self.members.retain(|_, member| member.descends || roots.contains_key(&member.of));
        }
        self.counts.clear();
        for member in self.members.values() {
            *self.counts.entry(member.of).or_default() += 1;
        }
    }

    /// Finds all related processes of all roots.
    pub(super) fn gather(&mut self, table: &Table, now: Moment) {
        self.forget(table, now);
        let index = Index::of(table);
        let roots: Vec<Root> = self.roots.values().copied().collect();
        let living: Vec<&Root> = roots.iter().filter(|root| root.ended.is_none()).collect();
        for root in &living {
            // A parent that changes while it is read can make a circle.
            let mut next = table.rows().get(&root.id.pid).map_or(0, |row| row.parent);
            for _ in 0..64 {
                let Some(row) = table.rows().get(&next).filter(|_| next > 1) else { break };
                if self.ourselves.contains(&next) {
                    break;
                }
                let parent = row.parent;
                self.add(table, next, root.id.pid, false);
                next = parent;
            }
        }
        // Descendants of members too: of the launcher's left-over workers, when a job is dead.
        let above = self.members.values().filter(|member| member.descends).map(|member| (member.id.pid, member.of));
        let mut above: Vec<_> = living.iter().map(|root| (root.id.pid, root.id.pid)).chain(above).collect();
        let mut been = BTreeSet::new();
        while let Some((pid, of)) = above.pop() {
            if been.insert(pid) {
                for child in with(&index.children, pid) {
                    self.add(table, child, of, true);
                    above.push((child, of));
                }
            }
        }
        for id in self.adopted.clone() {
            self.add(table, id.pid, id.pid, true);
        }
        for (pid, row) in table.rows() {
            if self.is_helper(row) {
                self.add(table, *pid, *pid, true);
            }
        }
        // Roots that share a group or session find the same ones there: once is enough.
        let (mut been_groups, mut been_sessions) = (BTreeSet::new(), BTreeSet::new());
        for root in &roots {
            if been_groups.insert(root.group) {
                with(&index.groups, root.group).for_each(|pid| self.add(table, pid, root.id.pid, false));
            }
        }
        for root in &roots {
            if been_sessions.insert(root.session) {
                with(&index.sessions, root.session).for_each(|pid| self.add(table, pid, root.id.pid, false));
            }
        }
    }

    /// Finds out whether one is related processes who is new or has changed. This misses who became an ancestor.
    pub(super) fn meet(&mut self, table: &Table, pid: u32, news: News) -> bool {
        let Some(row) = table.rows().get(&pid).filter(|_| news != News::Nothing && !self.knows(pid)) else {
            return false;
        };
        let is_root = |root: &&Root| root.id.pid == row.parent && root.ended.is_none();
        let parent = self.roots.get(&row.parent).filter(is_root).map(|root| root.id.pid);
        let parent = parent.or_else(|| self.members.get(&row.parent).filter(|it| it.descends).map(|it| it.of));
        let mate = |root: &&Root| root.group == row.group || root.session == row.session;
        if let Some(of) = parent {
            self.add(table, pid, of, true);
        } else if self.is_helper(row) {
            self.add(table, pid, pid, true);
        } else if let Some(root) = self.roots.values().find(mate).map(|root| root.id.pid) {
            self.add(table, pid, root, false);
        }
        self.members.contains_key(&pid)
    }

    fn add(&mut self, table: &Table, pid: u32, of: u32, descends: bool) {
        let is_root = self.roots.get(&pid).is_some_and(|root| root.ended.is_none());
        if pid <= 1 || is_root || self.ourselves.contains(&pid) {
            return;
        }
        let (Some(id), Some(row)) = (table.id(pid), table.rows().get(&pid)) else { return };
        if row.kernel {
            return;
        }
        if let Some(member) = self.members.get_mut(&pid).filter(|member| member.id == id) {
            member.descends |= descends;
            return;
        }
        let count = self.counts.entry(of).or_default();
        if self.members.len() < MOST && *count < MOST_EACH {
            *count += 1;
            self.members.insert(pid, Member { id, of, descends });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher in a terminal (10 is its shell), two ranks in sessions of their own, a worker of each.
    fn torchrun() -> (Table, RelatedProcesses) {
        let mut table = Table::empty();
        table.put(1, "systemd", 0, 1, 1);
        table.put(2, "kthreadd", 0, 0, 0);
        table.put(10, "bash", 1, 10, 10);
        table.put(11, "vim", 10, 11, 10);
        table.put(20, "torchrun", 10, 20, 10);
        for rank in [30, 40] {
            table.put(rank, "python", 20, rank, rank);
            table.put(rank + 1, "python", rank, rank, rank);
        }
        table.put(90, "sshd", 1, 90, 90);
        let mut related = RelatedProcesses::new([], true);
        hold(&mut related, &table, &[30, 40], 0);
        (table, related)
    }

    fn hold(related: &mut RelatedProcesses, table: &Table, pids: &[u32], now: u64) {
        let ids = pids.iter().filter_map(|pid| table.id(*pid)).collect();
        related.set_roots(&ids, table, Moment(now));
        related.gather(table, Moment(now));
    }

    #[track_caller]
    fn check(related: &RelatedProcesses, expected: &[u32]) {
        let pids: Vec<u32> = related.ids().iter().map(|id| id.pid).collect();
        assert_eq!(pids, expected);
    }

    #[test]
    fn kin_are_ancestors_descendants_and_who_shares_the_session() {
        let (table, mut related) = torchrun();
        check(&related, &[10, 20, 30, 31, 40, 41]);
        // A trainer without a launcher shares its shell's session.
        hold(&mut related, &table, &[11, 30, 40], 0);
        check(&related, &[10, 11, 20, 30, 31, 40, 41]);
    }

    #[test]
    fn what_a_dead_job_leaves_behind_stays_while_it_lives() {
        let (mut table, mut related) = torchrun();
        for pid in [20, 30, 40] {
            table.end(pid, 1);
        }
        hold(&mut related, &table, &[], 1);
        check(&related, &[10, 31, 41]);
        // Years later too, and with children of their own.
        table.put(50, "python", 31, 30, 30);
        hold(&mut related, &table, &[], 1 << 40);
        check(&related, &[10, 31, 41, 50]);
        table.end(31, 1);
        table.end(41, 1);
        hold(&mut related, &table, &[], 1 << 40);
        check(&related, &[10, 50]);
    }

    #[test]
    fn who_was_never_seen_beside_the_dead_is_known_groups_for_a_while() {
        let (mut table, mut related) = torchrun();
        table.put(32, "python", 30, 30, 30);
        table.end(30, 1);
        hold(&mut related, &table, &[40], 1000);
        check(&related, &[10, 20, 31, 32, 40, 41]);
        let (mut table, mut related) = torchrun();
        table.end(30, 1);
        hold(&mut related, &table, &[40], 0);
        table.put(32, "python", 1, 30, 30);
        hold(&mut related, &table, &[40], 60_000);
        check(&related, &[10, 20, 31, 40, 41]);
    }

    #[test]
    fn who_lost_its_gpu_and_lives_is_kin() {
        let (table, mut related) = torchrun();
        hold(&mut related, &table, &[40], 0);
        check(&related, &[10, 20, 30, 31, 40, 41]);
    }

    #[test]
    fn pytorchs_helpers_and_the_adopted_need_no_relation() {
        let (mut table, mut related) = torchrun();
        table.put(60, "pt_data_worker", 1, 59, 59);
        let stray = table.put(61, "python", 1, 59, 59);
        table.put(62, "python", 1, 59, 59);
        related.adopt(stray);
        hold(&mut related, &table, &[30, 40], 0);
        check(&related, &[10, 20, 30, 31, 40, 41, 60, 61]);
    }

    #[test]
    fn a_newcomer_is_met_without_a_look_at_the_others() {
        let (mut table, mut related) = torchrun();
        let mut meet = |pid, comm, parent, group, session| {
            table.put(pid, comm, parent, group, session);
            related.meet(&table, pid, News::New)
        };
        assert!(meet(32, "python", 30, 30, 30));
        assert!(meet(33, "sh", 32, 33, 33));
        assert!(meet(34, "pt_data_worker", 1, 34, 34));
        assert!(meet(35, "python", 1, 30, 30));
        // A child of the shell, or of a stranger, is nobody's related processes.
        assert!(!meet(36, "vim", 10, 36, 10));
        assert!(!meet(37, "sh", 90, 37, 37));
    }

    #[test]
    fn kin_have_a_limit_and_the_nearest_come_first() {
        let (mut table, _) = torchrun();
        (1000..2000).for_each(|pid| _ = table.put(pid, "make", 10, 10, 10));
        (2000..2100).for_each(|pid| _ = table.put(pid, "python", 20, 20, 10));
        let mut related = RelatedProcesses::new([], true);
        hold(&mut related, &table, &[20], 0);
        let ids: Vec<u32> = related.ids().iter().map(|id| id.pid).collect();
        assert_eq!(ids.len(), MOST_EACH + 1);
        assert!(ids.contains(&10) && (2000..2100).all(|pid| ids.contains(&pid)));
    }

    #[test]
    fn the_agent_is_nobodys_kin_nor_is_who_started_it() {
        let (mut table, _) = torchrun();
        let mut related = RelatedProcesses::new([20], true);
        table.put(70, "python", 20, 20, 10);
        hold(&mut related, &table, &[70], 0);
        // Its parent is the agent; the shell's session is still shared.
        check(&related, &[10, 11, 70]);
    }
}
