//! The process tree of a snapshot: which process descends from which.
//!
//! A parent is an older process with the parent's PID. The roles of processes are in
//! [`process_role`](super::process_role).

use std::collections::HashMap;

use crate::protocol::snapshot::{ProcessId, Snapshot};

/// The parents of all processes. Processes are identified by their index in the snapshot's list.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ProcessTree {
    ids: Vec<ProcessId>,
    parents: Vec<Option<usize>>,
}

impl ProcessTree {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let ids: Vec<ProcessId> = snapshot
            .processes
            .iter()
            .map(|process| process.id)
            .collect();
        let mut tree = Self {
            parents: vec![None; ids.len()],
            ids,
        };
        for (place, process) in snapshot.processes.iter().enumerate() {
            let parent = process.facts.parent.ok().and_then(|pid| tree.living(pid));
            // A younger process has only reused the PID of the parent.
            tree.parents[place] = parent.filter(|parent| {
                *parent != place && tree.ids[*parent].start_ticks <= process.id.start_ticks
            });
        }
        tree.cut_cycles();
        tree
    }

    /// Removes parents until no process is its own ancestor: in an invalid recording, processes
    /// that started in the same tick may name each other as parents.
    fn cut_cycles(&mut self) {
        let mut seen = vec![usize::MAX; self.ids.len()];
        for from in 0..self.ids.len() {
            let mut place = from;
            while seen[place] == usize::MAX {
                seen[place] = from;
                match self.parents[place] {
                    Some(parent) if seen[parent] == from => self.parents[place] = None,
                    Some(parent) => place = parent,
                    None => break,
                }
            }
        }
    }

    /// Returns the index of the process with this PID that is in `/proc`; `None` when the snapshot
    /// has none, or knows only its PID.
    pub(super) fn living(&self, pid: u32) -> Option<usize> {
        let place = self.ids.partition_point(|id| id.pid < pid);
        // A PID without start ticks is not in `/proc`, and sorts before the same PID with start
        // ticks.
        let found = self.ids[place..]
            .iter()
            .take_while(|id| id.pid == pid)
            .position(|id| id.start_ticks.is_some());
        found.map(|after| place + after)
    }

    pub(super) fn place(&self, id: ProcessId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    pub(super) fn parent_of(&self, place: usize) -> Option<usize> {
        self.parents[place]
    }

    /// Returns the indices of the ancestors, parent first.
    pub(super) fn ancestors_of(&self, place: usize) -> impl Iterator<Item = usize> + Clone {
        std::iter::successors(self.parents[place], |place| self.parents[*place])
    }

    /// Returns these processes as a forest: each with its depth, after its nearest ancestor among
    /// them. Siblings keep the given order.
    pub(crate) fn forest(&self, ids: &[ProcessId]) -> Vec<(ProcessId, usize)> {
        let order: HashMap<usize, usize> = ids
            .iter()
            .enumerate()
            .filter_map(|(order, id)| Some((self.place(*id)?, order)))
            .collect();
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); ids.len()];
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            let above = self.place(*id).and_then(|above| {
                self.ancestors_of(above)
                    .find_map(|place| order.get(&place).copied())
            });
            match above {
                Some(above) => below[above].push(place),
                None => open.push((place, 0)),
            }
        }
        open.reverse();
        let mut tree = Vec::with_capacity(ids.len());
        while let Some((place, depth)) = open.pop() {
            tree.push((ids[place], depth));
            open.extend(below[place].iter().rev().map(|child| (*child, depth + 1)));
        }
        tree
    }
}
