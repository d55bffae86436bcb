//! Which processes a forced end includes, and in which order they end. Reads no process itself.
//!
//! The *members* are the processes that are to end: those that the user saw, and those that joined. A process joins when it
//! is the child of a member in one scan that began after the member was stopped.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A process, as a scan saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenProcess {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) start_ticks: u64,
}

/// The members, by PID, each with the PID of its parent.
#[derive(Debug, Default)]
pub(super) struct EndPlan(pub(super) BTreeMap<u32, u32>);

impl EndPlan {
    /// Returns the children of members in a scan that are no members themselves. Their own children come when they are
    /// members.
    pub(super) fn joining(&self, scan: &[SeenProcess]) -> Vec<SeenProcess> {
        let is_joining = |seen: &&SeenProcess| self.0.contains_key(&seen.parent) && !self.0.contains_key(&seen.pid);
        scan.iter().filter(is_joining).copied().collect()
    }

    /// Returns the members, children before their parents.
    pub(super) fn leaves_first(&self) -> Vec<u32> {
        let mut members: Vec<u32> = self.0.keys().copied().collect();
        members.sort_by_cached_key(|member| Reverse(self.depth(*member)));
        members
    }

    /// Counts the members above this one. Parents that were read one by one could form a circle: the count ends there, and
    /// the order no longer matters.
    fn depth(&self, member: u32) -> usize {
        let above = std::iter::successors(self.0.get(&member), |parent| self.0.get(parent));
        above.take(self.0.len() + 1).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MOST: u32 = 40;

    /// Processes with random parents, which are processes or 1. A process may have a lower PID than its parent, since PIDs
    /// start again after the largest.
    fn forest() -> impl Strategy<Value = Vec<SeenProcess>> {
        let parents = proptest::collection::vec(any::<prop::sample::Index>(), 1..MOST as usize);
        let order = Just((2..2 + MOST).collect::<Vec<u32>>()).prop_shuffle();
        (parents, order).prop_map(|(parents, pids)| {
            let process = |(at, parent): (usize, &prop::sample::Index)| {
                let parent = parent.index(at + 1).checked_sub(1).map_or(1, |above| pids[above]);
                SeenProcess { pid: pids[at], parent, start_ticks: 7 }
            };
            parents.iter().enumerate().map(process).collect()
        })
    }

    /// The shown processes and all their descendants, computed in the simplest way.
    fn closure(shown: &BTreeSet<u32>, forest: &[SeenProcess]) -> BTreeSet<u32> {
        let parent_of = |pid: u32| forest.iter().find(|seen| seen.pid == pid).map(|seen| seen.parent);
        let is_below = |seen: &&SeenProcess| {
            std::iter::successors(Some(seen.pid), |pid| parent_of(*pid)).any(|pid| shown.contains(&pid))
        };
        forest.iter().filter(is_below).map(|seen| seen.pid).collect()
    }

    fn plan_of(shown: &BTreeSet<u32>, forest: &[SeenProcess]) -> EndPlan {
        let members = forest.iter().filter(|seen| shown.contains(&seen.pid));
        EndPlan(members.map(|seen| (seen.pid, seen.parent)).collect())
    }

    fn some_of(forest: &[SeenProcess], picks: &[prop::sample::Index]) -> BTreeSet<u32> {
        picks.iter().map(|pick| forest[pick.index(forest.len())].pid).collect()
    }

    proptest! {
        /// The shown processes and all their descendants end, no others, and none before its children.
        #[test]
        fn the_shown_processes_and_their_descendants_end(
            forest in forest(),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
        ) {
            let shown = some_of(&forest, &picks);
            let mut plan = plan_of(&shown, &forest);
            while let joining = plan.joining(&forest) && !joining.is_empty() {
                plan.0.extend(joining.iter().map(|seen| (seen.pid, seen.parent)));
            }
            let order = plan.leaves_first();
            prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), closure(&shown, &forest));
            prop_assert_eq!(order.len(), plan.0.len());
            let place = |pid: u32| order.iter().position(|member| *member == pid);
            for seen in &forest {
                if let (Some(child), Some(parent)) = (place(seen.pid), place(seen.parent)) {
                    prop_assert!(child < parent, "{} after its parent {}", seen.pid, seen.parent);
                }
            }
        }

        /// While processes start, end and get other parents, each process that joins was a child of a member in the same scan.
        #[test]
        fn a_joining_process_is_the_child_of_a_member_in_the_same_scan(
            scans in proptest::collection::vec(forest(), 1..5),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..4),
        ) {
            let mut plan = plan_of(&some_of(&scans[0], &picks), &scans[0]);
            for scan in &scans {
                for joining in plan.joining(scan) {
                    prop_assert!(scan.contains(&joining));
                    prop_assert!(plan.0.contains_key(&joining.parent) && !plan.0.contains_key(&joining.pid));
                    plan.0.insert(joining.pid, joining.parent);
                }
            }
        }

        /// Parents that were read one by one may form a circle.
        #[test]
        fn parents_in_a_circle_have_an_order(pairs in proptest::collection::vec((2..20_u32, 2..20_u32), 1..30)) {
            let plan = EndPlan(pairs.into_iter().collect());
            prop_assert_eq!(plan.leaves_first().len(), plan.0.len());
        }
    }
}
