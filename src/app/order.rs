//! The order of the list. Two that hold nearly the same pass each other every second, and whoever reads the list would lose
//! the line: so a line goes up when it clearly belongs higher, or has belonged higher for some seconds.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use super::columns::{Column, Sort};
use crate::snapshot::{ProcessId, State};
use crate::units::{Bytes, Moment, Percent};

/// For so long a line belongs higher before it goes there.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a line shows in the column that the list is sorted by.
#[derive(PartialEq, PartialOrd)]
pub(super) enum Key<'a> {
    Number(i64),
    Amount(Bytes),
    Share(Percent),
    Gpus(&'a [usize]),
    Word(Cow<'a, str>),
    State(State),
}

/// That, and what decides where it is the same; absent where the value is missing.
pub(super) type Keys<'a> = [Option<Key<'a>>; 2];

/// Who stood where when the list was last looked at.
#[derive(Debug, Default)]
pub(super) struct Order {
    sort: Option<Sort>,
    lines: Vec<Stood>,
}

#[derive(Debug, Clone, Copy)]
struct Stood {
    id: ProcessId,
    /// When it last stood where it belongs, or below.
    at: Moment,
    /// Whether its value was known.
    is_known: bool,
}

impl Order {
    /// The order of these lines now. Who is new, or was not known before, stands where it belongs at once.
    pub(super) fn settle(&mut self, now: Moment, sort: Sort, mut lines: Vec<(ProcessId, Keys<'_>)>) -> Vec<ProcessId> {
        if self.sort.replace(sort) != Some(sort) {
            self.lines.clear();
        }
        // Where most are new, nobody has a line to lose.
        let is_another = lines.len() > 2 * self.lines.len();
        let before = self.lines.iter().enumerate().filter(|_| !is_another);
        let before: HashMap<ProcessId, (usize, Stood)> = before.map(|(place, it)| (it.id, (place, *it))).collect();
        lines.sort_unstable_by(|a, b| compare(sort, &a.1, &b.1).then_with(|| a.0.cmp(&b.0)));
        let (mut settled, mut new) = (Vec::with_capacity(lines.len()), Vec::new());
        for (id, keys) in lines {
            let is_known = keys[0].is_some();
            match before.get(&id).filter(|(_, it)| it.is_known || !is_known) {
                Some((place, stood)) => settled.push((*place, Stood { is_known, ..*stood }, keys)),
                None => new.push((Stood { id, at: now, is_known }, keys)),
            }
        }
        settled.sort_unstable_by_key(|it| it.0);
        let mut settled: Vec<(Stood, Keys<'_>)> = settled.into_iter().map(|(_, stood, keys)| (stood, keys)).collect();
        if settled.is_empty() {
            settled = new;
        } else {
            for (stood, keys) in new {
                let place = settled.iter().position(|it| compare(sort, &keys, &it.1).is_lt());
                settled.insert(place.unwrap_or(settled.len()), (stood, keys));
            }
        }
        let mut lowest = 0;
        for at in 0..settled.len() {
            if compare(sort, &settled[at].1, &settled[lowest].1).is_ge() {
                (lowest, settled[at].0.at) = (at, now);
            }
        }
        for from in 1..settled.len() {
            let is_due = now.since(settled[from].0.at) >= PATIENCE;
            let above = |at: usize, it: &[(Stood, Keys<'_>)]| {
                let (above, this) = (&it[at - 1].1, &it[at].1);
                compare(sort, this, above).is_lt() && (is_due || is_clear(sort.column, this, above))
            };
            for at in (1..=from).rev() {
                if !above(at, &settled) {
                    break;
                }
                settled.swap(at, at - 1);
                // Where both stand now, they have not stood before.
                (settled[at - 1].0.at, settled[at].0.at) = (now, now);
            }
        }
        self.lines = settled.iter().map(|it| it.0).collect();
        self.lines.iter().map(|it| it.id).collect()
    }
}

/// Whether what these hold differs by more than a quarter: what a job takes and gives back with each step is less. Of
/// figures that jump as a rule, nothing is clear at once.
fn is_clear(column: Column, a: &Keys<'_>, b: &Keys<'_>) -> bool {
    match (column, &a[0], &b[0]) {
        (Column::Memory | Column::Rss, Some(Key::Amount(a)), Some(Key::Amount(b))) => {
            a.0.abs_diff(b.0) > a.0.max(b.0) / 4
        }
        _ => false,
    }
}

fn compare(sort: Sort, a: &Keys<'_>, b: &Keys<'_>) -> Ordering {
    let then_descending = sort.then.is_some_and(|(_, descending)| descending);
    let first = compare_one(a[0].as_ref(), b[0].as_ref(), sort.descending);
    first.then_with(|| compare_one(a[1].as_ref(), b[1].as_ref(), then_descending))
}

/// Missing values come last, whichever way the others go.
fn compare_one(a: Option<&Key<'_>>, b: Option<&Key<'_>>, descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => {
            let order = a.partial_cmp(b).unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        }
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: Some(1) }
    }

    /// The PIDs after each second, of processes 1, 2, … that hold so many MiB.
    fn orders(order: &mut Order, sort: Sort, seconds: &[&[Option<u64>]]) -> Vec<Vec<u32>> {
        let mut told = Vec::new();
        for (second, held) in (0..).zip(seconds) {
            let lines = (1..).zip(held.iter()).map(|(pid, held)| {
                let key = held.map(|mib| Key::Amount(Bytes(mib * MIB)));
                (id(pid), [key, None])
            });
            let now = Moment(second * 1000);
            told.push(order.settle(now, sort, lines.collect()).into_iter().map(|it| it.pid).collect());
        }
        told
    }

    #[test]
    fn two_that_pass_each_other_every_second_stay() {
        let (one, other): (&[_], &[_]) = (&[Some(10_000), Some(10_200)], &[Some(10_300), Some(10_100)]);
        let seconds: Vec<_> = (0..60).map(|at| if at % 2 == 0 { one } else { other }).collect();
        for sort in [Sort::by(Column::Memory), Sort { descending: false, ..Sort::by(Column::Memory) }] {
            let told = orders(&mut Order::default(), sort, &seconds);
            assert!(told.iter().all(|it| *it == told[0]), "{told:?}");
        }
    }

    #[test]
    fn two_that_changed_places_once_do_not_change_back_at_once() {
        let (one, other): (&[_], &[_]) = (&[Some(10_000), Some(10_200)], &[Some(10_300), Some(10_100)]);
        let mut seconds = vec![other; 8];
        seconds.extend([one; 5]);
        seconds.extend((0..20).map(|at| if at % 2 == 0 { other } else { one }));
        let told = orders(&mut Order::default(), Sort::by(Column::Memory), &seconds);
        assert_eq!((&told[0], &told[12]), (&vec![1, 2], &vec![2, 1]));
        assert!(told[12..].iter().all(|it| *it == [2, 1]), "{told:?}");
    }

    #[test]
    fn whoever_belongs_higher_for_five_seconds_goes_there() {
        let mut seconds: Vec<&[_]> = vec![&[Some(10_000), Some(9_900), Some(9_800)]; 3];
        seconds.extend([&[Some(10_000), Some(9_900), Some(10_100)][..]; 6]);
        let told = orders(&mut Order::default(), Sort::by(Column::Memory), &seconds);
        assert_eq!(told[..7], vec![[1, 2, 3]; 7]);
        assert_eq!(told[7..], vec![[3, 1, 2]; 2]);
    }

    #[test]
    fn whoever_clearly_belongs_higher_goes_there_at_once() {
        let seconds: [&[_]; 2] = [&[Some(10_000), Some(9_900), Some(500)], &[Some(10_000), Some(9_900), Some(15_000)]];
        assert_eq!(orders(&mut Order::default(), Sort::by(Column::Memory), &seconds), [[1, 2, 3], [3, 1, 2]]);
        // What comes and goes with each step of a training says less.
        assert_eq!(orders(&mut Order::default(), Sort::by(Column::Cache), &seconds), [[1, 2, 3], [1, 2, 3]]);
    }

    #[test]
    fn whoever_is_new_or_was_not_known_stands_where_it_belongs() {
        let seconds: [&[_]; 3] = [
            &[Some(10_000), None, Some(9_000)],
            &[Some(10_000), Some(9_500), Some(9_000)],
            &[Some(10_000), Some(9_500), Some(9_000), Some(9_600)],
        ];
        let told = orders(&mut Order::default(), Sort::by(Column::Memory), &seconds);
        assert_eq!(told, [vec![1, 3, 2], vec![1, 2, 3], vec![1, 4, 2, 3]]);
    }

    #[test]
    fn another_column_has_its_own_order_at_once() {
        let mut order = Order::default();
        let told = orders(&mut order, Sort::by(Column::Memory), &[&[Some(10_000), Some(9_900)]]);
        assert_eq!(told, [[1, 2]]);
        let told = orders(&mut order, Sort::by(Column::Rss), &[&[Some(9_900), Some(10_000)]]);
        assert_eq!(told, [[2, 1]]);
    }

    proptest! {
        /// Whatever happened before, what stands still is sorted in the end, and nobody is lost.
        #[test]
        fn what_stands_still_is_sorted_soon(
            seconds in proptest::collection::vec(
                proptest::collection::vec(proptest::option::of(9_000..13_000_u64), 1..12),
                1..20,
            ),
        ) {
            let last = seconds.last().unwrap();
            let still = seconds.iter().chain(std::iter::repeat_n(last, 80)).map(Vec::as_slice);
            let told = orders(&mut Order::default(), Sort::by(Column::Memory), &still.collect::<Vec<_>>());
            let held: Vec<_> = told.last().unwrap().iter().map(|pid| last[*pid as usize - 1]).collect();
            prop_assert!(held.is_sorted_by(|a, b| a >= b), "{held:?}");
            prop_assert_eq!(held.len(), last.len());
        }
    }
}
