//! Whom a forced end takes with it, and in which order. Knows no process, only what looks at `/proc` said.
//!
//! *Members* are to be ended: those that the person was shown, and who joined them. Who joins is a child
//! of a member in one and the same look; a look is asked only when the members it is asked about stand still.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A process, as one look saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenProcess {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) start_ticks: u64,
}

/// One look at every process, by parent.
#[derive(Debug, Default)]
pub(super) struct ProcessSnapshot(BTreeMap<u32, Vec<SeenProcess>>);

impl FromIterator<SeenProcess> for ProcessSnapshot {
    fn from_iter<T: IntoIterator<Item = SeenProcess>>(all: T) -> Self {
        let mut look = Self::default();
        for seen in all {
            look.0.entry(seen.parent).or_default().push(seen);
        }
        look
    }
}

/// The members, by PID, each with its parent.
#[derive(Debug, Default)]
pub(super) struct EndPlan(BTreeMap<u32, u32>);

impl EndPlan {
    /// Makes a member of it.
    pub(super) fn add(&mut self, pid: u32, parent: u32) {
        self.0.insert(pid, parent);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Who is to join next: the children of members that are none themselves. Their own children come
    /// when they are members.
    pub(super) fn joining(&self, look: &ProcessSnapshot) -> Vec<SeenProcess> {
        let children = self.0.keys().filter_map(|member| look.0.get(member)).flatten();
        children.filter(|seen| !self.0.contains_key(&seen.pid)).copied().collect()
    }

    /// The members, children before their parents.
    pub(super) fn leaves_first(&self) -> Vec<u32> {
        let mut members: Vec<u32> = self.0.keys().copied().collect();
        members.sort_by_cached_key(|member| Reverse(self.depth(*member)));
        members
    }

    /// How many members are above this one. Parents that were read one by one could make a circle; the
    /// count ends there, and the order no longer matters.
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

    /// A forest: the parent of 2, 3, 4…; 0 and 1 are outside. A process may be older than its parent, as PIDs
    /// begin anew after the largest.
    fn forest() -> impl Strategy<Value = Vec<SeenProcess>> {
        let parents = proptest::collection::vec(any::<prop::sample::Index>(), 1..MOST as usize);
        let order = Just((2..2 + MOST).collect::<Vec<u32>>()).prop_shuffle();
        (parents, order).prop_map(|(parents, pids)| {
            let of = |(at, parent): (usize, &prop::sample::Index)| {
                let parent = parent.index(at + 1).checked_sub(1).map_or(1, |above| pids[above]);
                SeenProcess { pid: pids[at], parent, start_ticks: 7 }
            };
            parents.iter().enumerate().map(of).collect()
        })
    }

    /// The shown ones and all below them, by the plainest means.
    fn closure(shown: &BTreeSet<u32>, forest: &[SeenProcess]) -> BTreeSet<u32> {
        let parent_of = |pid: u32| forest.iter().find(|it| it.pid == pid).map(|it| it.parent);
        let is_below = |seen: &&SeenProcess| {
            std::iter::successors(Some(seen.pid), |pid| parent_of(*pid)).any(|it| shown.contains(&it))
        };
        forest.iter().filter(is_below).map(|seen| seen.pid).collect()
    }

    fn plan_of(shown: &BTreeSet<u32>, forest: &[SeenProcess]) -> EndPlan {
        let mut plan = EndPlan::default();
        for it in forest.iter().filter(|it| shown.contains(&it.pid)) {
            plan.add(it.pid, it.parent);
        }
        plan
    }

    fn some_of(forest: &[SeenProcess], picks: &[prop::sample::Index]) -> BTreeSet<u32> {
        picks.iter().map(|it| forest[it.index(forest.len())].pid).collect()
    }

    proptest! {
        /// Those shown and all below them end, nobody else, and nobody before a child of theirs.
        #[test]
        fn what_ends_is_what_was_shown_and_what_descends_from_it(
            forest in forest(),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
        ) {
            let shown = some_of(&forest, &picks);
            let (mut plan, look) = (plan_of(&shown, &forest), forest.iter().copied().collect::<ProcessSnapshot>());
            while let joining = plan.joining(&look) && !joining.is_empty() {
                for it in joining {
                    plan.add(it.pid, it.parent);
                }
            }
            let order = plan.leaves_first();
            prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), closure(&shown, &forest));
            prop_assert_eq!(order.len(), plan.len());
            let place = |pid: u32| order.iter().position(|it| *it == pid);
            for seen in &forest {
                if let (Some(child), Some(parent)) = (place(seen.pid), place(seen.parent)) {
                    prop_assert!(child < parent, "{} after its parent {}", seen.pid, seen.parent);
                }
            }
        }

        /// While processes come, go and get other parents, each that joins was a child of a member when it was
        /// looked at: no guess of an earlier look outlives it.
        #[test]
        fn who_joins_was_a_member_s_child_in_the_same_look(
            looks in proptest::collection::vec(forest(), 1..5),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..4),
        ) {
            let mut plan = plan_of(&some_of(&looks[0], &picks), &looks[0]);
            for seen in &looks {
                let look = seen.iter().copied().collect::<ProcessSnapshot>();
                for joining in plan.joining(&look) {
                    prop_assert!(seen.contains(&joining));
                    prop_assert!(plan.0.contains_key(&joining.parent) && !plan.0.contains_key(&joining.pid));
                    plan.add(joining.pid, joining.parent);
                }
            }
        }

        /// Parents read one by one may make a circle: there is an order all the same.
        #[test]
        fn a_circle_has_an_end(pairs in proptest::collection::vec((2..20_u32, 2..20_u32), 1..30)) {
            let mut plan = EndPlan::default();
            for (pid, parent) in &pairs {
                plan.add(*pid, *parent);
            }
            prop_assert_eq!(plan.leaves_first().len(), plan.len());
        }
    }
}
