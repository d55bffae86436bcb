//! Which processes a forced end includes, and in which order they end. Reads no process itself.
//!
//! The *members* are the processes that are to end: those that the user saw, and those that joined.
//! A process joins when a scan shows it as the child of a member.

use std::cmp::Reverse;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenProcess {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) start_ticks: u64,
}

/// The PIDs of the members, each with the PID of its parent.
pub(super) type Parents = BTreeMap<u32, u32>;

/// Returns the processes of a scan that are children of members, and no members themselves. Their
/// own children follow in a later call.
pub(super) fn joining(members: &Parents, scan: &[SeenProcess]) -> Vec<SeenProcess> {
    let is_joining = |seen: &&SeenProcess| {
        members.contains_key(&seen.parent) && !members.contains_key(&seen.pid)
    };
    scan.iter().filter(is_joining).copied().collect()
}

/// Returns the members, children before their parents. Parents that were read one by one could form
/// a circle: then the order no longer matters.
pub(super) fn leaves_first(members: &Parents) -> Vec<u32> {
    let depth = |member: &u32| {
        let above = std::iter::successors(members.get(member), |parent| members.get(parent));
        above.take(members.len() + 1).count()
    };
    let mut ordered: Vec<u32> = members.keys().copied().collect();
    ordered.sort_by_cached_key(|member| Reverse(depth(member)));
    ordered
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MOST: u32 = 40;

    /// Processes with random parents: other processes of the forest, or PID 1. A process may have a
    /// lower PID than its parent, since PIDs start again after the largest.
    fn forest() -> impl Strategy<Value = Vec<SeenProcess>> {
        let parents = proptest::collection::vec(any::<prop::sample::Index>(), 1..MOST as usize);
        let order = Just((2..2 + MOST).collect::<Vec<u32>>()).prop_shuffle();
        (parents, order).prop_map(|(parents, pids)| {
            let process = |(index, parent): (usize, &prop::sample::Index)| {
                let parent = parent
                    .index(index + 1)
                    .checked_sub(1)
                    .map_or(1, |above| pids[above]);
                SeenProcess {
                    pid: pids[index],
                    parent,
                    start_ticks: 7,
                }
            };
            parents.iter().enumerate().map(process).collect()
        })
    }

    /// The shown processes and all their descendants, computed in the simplest way.
    fn closure(shown: &BTreeSet<u32>, forest: &[SeenProcess]) -> BTreeSet<u32> {
        let parent_of = |pid: u32| {
            forest
                .iter()
                .find(|seen| seen.pid == pid)
                .map(|seen| seen.parent)
        };
        let is_below = |seen: &&SeenProcess| {
            std::iter::successors(Some(seen.pid), |pid| parent_of(*pid))
                .any(|pid| shown.contains(&pid))
        };
        forest
            .iter()
            .filter(is_below)
            .map(|seen| seen.pid)
            .collect()
    }

    fn members_of(shown: &BTreeSet<u32>, forest: &[SeenProcess]) -> Parents {
        let members = forest.iter().filter(|seen| shown.contains(&seen.pid));
        members.map(|seen| (seen.pid, seen.parent)).collect()
    }

    fn some_of(forest: &[SeenProcess], picks: &[prop::sample::Index]) -> BTreeSet<u32> {
        picks
            .iter()
            .map(|pick| forest[pick.index(forest.len())].pid)
            .collect()
    }

    proptest! {
        /// The shown processes and all their descendants end, no others, and none before its
        /// children.
        #[test]
        fn the_shown_processes_and_their_descendants_end(
            forest in forest(),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
        ) {
            let shown = some_of(&forest, &picks);
            let mut members = members_of(&shown, &forest);
            while let joining = joining(&members, &forest) && !joining.is_empty() {
                members.extend(joining.iter().map(|seen| (seen.pid, seen.parent)));
            }
            let order = leaves_first(&members);
            prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), closure(&shown, &forest));
            prop_assert_eq!(order.len(), members.len());
            let place = |pid: u32| order.iter().position(|member| *member == pid);
            for seen in &forest {
                if let (Some(child), Some(parent)) = (place(seen.pid), place(seen.parent)) {
                    prop_assert!(child < parent, "{} after its parent {}", seen.pid, seen.parent);
                }
            }
        }

        /// While processes start, end and get other parents, each process that joins was a child of
        /// a member in the same scan.
        #[test]
        fn a_joining_process_is_the_child_of_a_member_in_the_same_scan(
            scans in proptest::collection::vec(forest(), 1..5),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..4),
        ) {
            let mut members = members_of(&some_of(&scans[0], &picks), &scans[0]);
            for scan in &scans {
                for joining in joining(&members, scan) {
                    prop_assert!(scan.contains(&joining));
                    prop_assert!(members.contains_key(&joining.parent) && !members.contains_key(&joining.pid));
                    members.insert(joining.pid, joining.parent);
                }
            }
        }

        /// Parents that were read one by one may form a circle.
        #[test]
        fn parents_in_a_circle_have_an_order(pairs in proptest::collection::vec((2..20_u32, 2..20_u32), 1..30)) {
            let members: Parents = pairs.into_iter().collect();
            prop_assert_eq!(leaves_first(&members).len(), members.len());
        }
    }
}
