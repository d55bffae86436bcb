//! Who descends from whom, among the processes of a snapshot.
//!
//! A parent is an older process that bears the parent's PID. Nothing here says what a process is for
//! ([`role`]) or what to think of it.

use std::collections::HashMap;

use crate::protocol::snapshot::{ProcessId, Snapshot};

/// The family ties of one snapshot. Processes go by their places in its list.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProcessTree {
    ids: Vec<ProcessId>,
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
}

impl ProcessTree {
    /// The ties of that snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let ids: Vec<ProcessId> = snapshot.processes.iter().map(|it| it.id).collect();
        let mut related = Self { parents: vec![None; ids.len()], children: vec![Vec::new(); ids.len()], ids };
        for (at, process) in snapshot.processes.iter().enumerate() {
            let parent = process.facts.parent.ok().and_then(|pid| related.living(pid));
            // A younger one has the number of a parent that is gone.
            related.parents[at] =
                parent.filter(|it| *it != at && related.ids[*it].start_ticks <= process.id.start_ticks);
        }
        related.cut_circles();
        for at in 0..related.ids.len() {
            if let Some(parent) = related.parents[at] {
                related.children[parent].push(at);
            }
        }
        related
    }

    /// Two of the same tick may name each other, in a recording that somebody made up.
    fn cut_circles(&mut self) {
        let mut seen = vec![usize::MAX; self.ids.len()];
        for from in 0..self.ids.len() {
            let mut at = from;
            while seen[at] == usize::MAX {
                seen[at] = from;
                match self.parents[at] {
                    Some(parent) if seen[parent] == from => self.parents[at] = None,
                    Some(parent) => at = parent,
                    None => break,
                }
            }
        }
    }

    /// The place of the living process with that PID; absent when it is not in the snapshot.
    pub(super) fn living(&self, pid: u32) -> Option<usize> {
        let at = self.ids.partition_point(|it| it.pid < pid);
        // Without start ticks it is not in `/proc`, and sorts before one that is.
        let found = self.ids[at..].iter().take_while(|it| it.pid == pid).position(|it| it.start_ticks.is_some());
        found.map(|after| at + after)
    }

    /// The place of a process.
    pub(super) fn place(&self, id: ProcessId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// The place of the parent.
    pub(super) fn up(&self, at: usize) -> Option<usize> {
        self.parents[at]
    }

    /// The places of the ancestors, parent first.
    pub(super) fn line(&self, at: usize) -> impl Iterator<Item = usize> + Clone {
        std::iter::successors(self.parents[at], |at| self.parents[*at])
    }

    /// The parent, when it is in the snapshot.
    pub fn parent(&self, id: ProcessId) -> Option<ProcessId> {
        self.up(self.place(id)?).map(|at| self.ids[at])
    }

    /// The children, by PID.
    pub fn children(&self, id: ProcessId) -> impl Iterator<Item = ProcessId> {
        let children = self.place(id).map_or(&[][..], |at| &self.children[at]);
        children.iter().map(|at| self.ids[*at])
    }

    /// The ancestors, parent first.
    pub fn ancestors(&self, id: ProcessId) -> impl Iterator<Item = ProcessId> {
        self.place(id).into_iter().flat_map(|at| self.line(at)).map(|at| self.ids[at])
    }

    /// The descendants, each after its parent.
    pub fn descendants(&self, id: ProcessId) -> Vec<ProcessId> {
        let mut found: Vec<usize> = self.place(id).into_iter().collect();
        let mut next = 0;
        while next < found.len() {
            found.extend(&self.children[found[next]]);
            next += 1;
        }
        found.into_iter().skip(1).map(|at| self.ids[at]).collect()
    }

    /// These processes as a forest: each with its depth, right after its nearest ancestor among them.
    /// Those with the same one keep the order in which they were given.
    pub fn forest(&self, ids: &[ProcessId]) -> Vec<(ProcessId, usize)> {
        let order: HashMap<usize, usize> =
            ids.iter().enumerate().filter_map(|(order, id)| Some((self.place(*id)?, order))).collect();
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); ids.len()];
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (at, id) in ids.iter().enumerate() {
            let above = self.place(*id).and_then(|place| self.line(place).find_map(|it| order.get(&it).copied()));
            match above {
                Some(above) => below[above].push(at),
                None => open.push((at, 0)),
            }
        }
        open.reverse();
        let mut tree = Vec::with_capacity(ids.len());
        while let Some((at, depth)) = open.pop() {
            tree.push((ids[at], depth));
            open.extend(below[at].iter().rev().map(|it| (*it, depth + 1)));
        }
        tree
    }
}
