//! The order of the process list, with hysteresis: rows with nearly equal values do not swap on
//! every refresh. A row moves above another when all values that it showed recently belong there,
//! or when the difference is large.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use super::process_columns::{ProcessColumn, Sort};
use crate::base::units::{Bytes, Moment, Percent};
use crate::model::HostProcess;
use crate::protocol::snapshot::State;

/// Values of the last 5 to 10 seconds count as recent.
const RECENT: Duration = Duration::from_secs(5);

/// When the values before are from longer ago, nothing that was shown is recent: after a jump in a
/// recording, or a burst of lines of the past.
const JUMP: Duration = Duration::from_mins(1);

/// The value of a row in a column that the list is sorted by.
#[derive(PartialEq, PartialOrd)]
pub(in crate::app) enum SortKey<'a> {
    Number(i64),
    Amount(Bytes),
    Share(Percent),
    Gpus(&'a [usize]),
    Word(Cow<'a, str>),
    State(State),
}

/// The values that decide first and second; `None` where the value is missing or there is no second
/// column.
pub(in crate::app) type SortKeys<'a> = [Option<SortKey<'a>>; 2];

/// The order of the rows at the last refresh.
#[derive(Debug, Default)]
pub(in crate::app) struct RowOrder {
    sort: Option<Sort>,
    lines: Vec<RowHistory>,
}

/// The smallest and the largest of some numbers; `None` if there are none.
type ValueRange = Option<(i64, i64)>;

#[derive(Debug, Clone, Copy)]
struct RowHistory {
    id: HostProcess,
    /// The moment when the later of the two ranges of each key begins.
    since: Moment,
    /// The range of each key before that moment, and since.
    ranges: [[ValueRange; 2]; 2],
}

impl RowHistory {
    fn new(id: HostProcess, now: Moment) -> Self {
        Self {
            id,
            since: now,
            ranges: [[None; 2]; 2],
        }
    }

    fn show(&mut self, now: Moment, keys: &SortKeys<'_>) {
        let age = now.since(self.since);
        let is_old = age >= RECENT;
        if is_old {
            self.since = now;
        }
        if age >= JUMP {
            self.ranges = [[None; 2]; 2];
        }
        for (ranges, key) in self.ranges.iter_mut().zip(keys) {
            if is_old {
                *ranges = [ranges[1], None];
            }
            ranges[1] = join(
                ranges[1],
                key.as_ref()
                    .and_then(SortKey::number)
                    .map(|number| (number, number)),
            );
        }
    }

    fn range(&self, key: usize) -> ValueRange {
        join(self.ranges[key][0], self.ranges[key][1])
    }
}

fn join(a: ValueRange, b: ValueRange) -> ValueRange {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        _ => a.or(b),
    }
}

impl SortKey<'_> {
    /// The key as a number; `None` for words, which do not go up and down.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "thousandths of a percent are not that many"
    )]
    fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Amount(bytes) => i64::try_from(bytes.0).ok(),
            Self::Share(percent) => Some((percent.value() * 1000.0) as i64),
            Self::Gpus(_) | Self::Word(_) | Self::State(_) => None,
        }
    }
}

impl RowOrder {
    /// Returns the order of these rows now. A new row is sorted in at once.
    pub(in crate::app) fn settle(
        &mut self,
        sort: Sort,
        lines: Vec<(HostProcess, Moment, SortKeys<'_>)>,
    ) -> Vec<HostProcess> {
        if self.sort.replace(sort) != Some(sort) {
            self.lines.clear();
        }
        // When most rows are new, all are sorted: there is no order that the reader could remember.
        let is_mostly_new = lines.len() > 2 * self.lines.len();
        let known = self
            .lines
            .iter()
            .map(|line| line.id)
            .zip(0..)
            .filter(|_| !is_mostly_new);
        let known: HashMap<HostProcess, usize> = known.collect();
        let (mut settled, mut new): (Vec<_>, Vec<(RowHistory, SortKeys<'_>)>) =
            (Vec::with_capacity(lines.len()), Vec::new());
        for (id, now, keys) in lines {
            let place = known.get(&id);
            let mut history =
                place.map_or_else(|| RowHistory::new(id, now), |place| self.lines[*place]);
            history.show(now, &keys);
            match place {
                Some(place) => settled.push((*place, (history, keys))),
                None => new.push((history, keys)),
            }
        }
        settled.sort_unstable_by_key(|(place, _)| *place);
        new.sort_unstable_by(|a, b| compare(sort, &a.1, &b.1).then_with(|| a.0.id.cmp(&b.0.id)));
        let mut settled: Vec<(RowHistory, SortKeys<'_>)> =
            settled.into_iter().map(|(_, row)| row).collect();
        if settled.is_empty() {
            settled = new;
        } else {
            for (history, keys) in new {
                let place = settled
                    .iter()
                    .position(|(_, other)| compare(sort, &keys, other).is_lt());
                settled.insert(place.unwrap_or(settled.len()), (history, keys));
            }
        }
        for from in 1..settled.len() {
            let goes_up =
                |place: &usize| is_surely_above(sort, &settled[from], &settled[*place - 1]);
            let to = from - (1..=from).rev().take_while(goes_up).count();
            settled[to..=from].rotate_right(1);
        }
        self.lines = settled.iter().map(|(row, _)| *row).collect();
        self.lines.iter().map(|line| line.id).collect()
    }
}

/// Whether a row belongs above another by all recent values of both, or by a large difference now.
fn is_surely_above(
    sort: Sort,
    (history, keys): &(RowHistory, SortKeys<'_>),
    (other_history, other_keys): &(RowHistory, SortKeys<'_>),
) -> bool {
    let descending = [
        sort.descending,
        sort.then.is_some_and(|(_, descending)| descending),
    ];
    for (place, descending) in descending.into_iter().enumerate() {
        let order = compare_one(keys[place].as_ref(), other_keys[place].as_ref(), descending);
        match (history.range(place), other_history.range(place)) {
            // Both rows showed one and the same number: the second key decides.
            (Some(a), Some(b)) if a == b && a.0 == a.1 => (),
            (Some(a), Some(b)) => {
                let is_all = if descending { a.0 > b.1 } else { a.1 < b.0 };
                return is_all
                    || place == 0 && order.is_lt() && is_clear(sort.column, keys, other_keys);
            }
            (None, None) if order.is_eq() => (),
            (None, None) => return order.is_lt(),
            (a, _) => return a.is_some(),
        }
    }
    false
}

/// Whether two amounts of memory differ by more than a quarter, which is more than a job allocates
/// and frees with each step. Values of other columns jump, so no single difference counts.
fn is_clear(column: ProcessColumn, a: &SortKeys<'_>, b: &SortKeys<'_>) -> bool {
    match (column, &a[0], &b[0]) {
        (
            ProcessColumn::Memory | ProcessColumn::Rss,
            Some(SortKey::Amount(a)),
            Some(SortKey::Amount(b)),
        ) => a.0.abs_diff(b.0) > a.0.max(b.0) / 4,
        _ => false,
    }
}

/// Compares the values of two rows.
pub(in crate::app) fn compare(sort: Sort, a: &SortKeys<'_>, b: &SortKeys<'_>) -> Ordering {
    let then_descending = sort.then.is_some_and(|(_, descending)| descending);
    let first = compare_one(a[0].as_ref(), b[0].as_ref(), sort.descending);
    first.then_with(|| compare_one(a[1].as_ref(), b[1].as_ref(), then_descending))
}

/// Compares two values in this direction. Missing values come last in both directions.
fn compare_one(a: Option<&SortKey<'_>>, b: Option<&SortKey<'_>>, descending: bool) -> Ordering {
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
    use crate::protocol::host_key::HostKey;
    use crate::protocol::snapshot::ProcessId;

    const MIB: u64 = 1 << 20;

    fn id(pid: u32) -> HostProcess {
        HostProcess {
            host: HostKey::FIRST,
            process: ProcessId {
                pid,
                start_ticks: Some(1),
            },
        }
    }

    /// Returns the order of the PIDs after each second. `seconds` holds, for each second, the
    /// memory of processes 1, 2, … in MiB; `None` where it is unknown.
    fn orders(order: &mut RowOrder, sort: Sort, seconds: &[&[Option<u64>]]) -> Vec<Vec<u32>> {
        let mut pids = Vec::new();
        for (second, held) in (0..).zip(seconds) {
            let lines = (1..).zip(held.iter()).map(|(pid, held)| {
                let key = held.map(|mib| SortKey::Amount(Bytes(mib * MIB)));
                (id(pid), Moment(second * 1000), [key, None])
            });
            pids.push(
                order
                    .settle(sort, lines.collect())
                    .into_iter()
                    .map(|id| id.process.pid)
                    .collect(),
            );
        }
        pids
    }

    #[test]
    fn rows_that_alternate_every_second_stay() {
        let (one, other): (&[_], &[_]) =
            (&[Some(10_000), Some(10_200)], &[Some(10_300), Some(10_100)]);
        let seconds: Vec<_> = (0..60)
            .map(|second| if second % 2 == 0 { one } else { other })
            .collect();
        for sort in [
            Sort::by(ProcessColumn::Memory),
            Sort {
                descending: false,
                ..Sort::by(ProcessColumn::Memory)
            },
        ] {
            let pids = orders(&mut RowOrder::default(), sort, &seconds);
            assert!(pids.iter().all(|it| *it == pids[0]), "{pids:?}");
        }
    }

    #[test]
    fn rows_that_swapped_do_not_swap_back_at_once() {
        let (one, other): (&[_], &[_]) =
            (&[Some(10_000), Some(10_200)], &[Some(10_300), Some(10_100)]);
        let mut seconds = vec![other; 8];
        seconds.extend([one; 11]);
        seconds.extend((0..20).map(|second| if second % 2 == 0 { other } else { one }));
        let pids = orders(
            &mut RowOrder::default(),
            Sort::by(ProcessColumn::Memory),
            &seconds,
        );
        assert_eq!((&pids[0], &pids[18]), (&vec![1, 2], &vec![2, 1]));
        assert!(pids[18..].iter().all(|pids| *pids == [2, 1]), "{pids:?}");
    }

    #[test]
    fn rows_that_rise_and_fall_together_keep_their_places() {
        // Eight ranks of one job, whose memory changes at different speeds.
        let held = |rank: u64, second: u64| {
            Some(40_000 + (second * (7 + 2 * rank) + rank * 13) % 41 * 100)
        };
        let seconds: Vec<Vec<_>> = (0..600)
            .map(|second| (0..8).map(|rank| held(rank, second)).collect())
            .collect();
        let seconds: Vec<&[_]> = seconds.iter().map(Vec::as_slice).collect();
        let pids = orders(
            &mut RowOrder::default(),
            Sort::by(ProcessColumn::Memory),
            &seconds,
        );
        let changes = pids.windows(2).filter(|pids| pids[0] != pids[1]).count();
        assert!(changes < 6, "{changes}");
    }

    #[test]
    fn rows_that_are_read_every_ten_seconds_stay_too() {
        let mut order = RowOrder::default();
        let mut settle = |at: u64| {
            let held = if at.is_multiple_of(2) {
                [10_000, 10_200]
            } else {
                [10_300, 10_100]
            };
            let now = Moment(at * 10_000);
            let lines = (1..).zip(held).map(|(pid, mib)| {
                (
                    id(pid),
                    now,
                    [Some(SortKey::Amount(Bytes(mib * MIB))), None],
                )
            });
            order.settle(Sort::by(ProcessColumn::Memory), lines.collect())
        };
        let first = settle(0);
        assert!((1..60).all(|second| settle(second) == first));
    }

    #[test]
    fn a_row_that_is_larger_for_some_seconds_moves_up() {
        let mut seconds: Vec<&[_]> = vec![&[Some(10_000), Some(9_900), Some(9_800)]; 3];
        seconds.extend([&[Some(10_000), Some(9_900), Some(10_100)][..]; 11]);
        let pids = orders(
            &mut RowOrder::default(),
            Sort::by(ProcessColumn::Memory),
            &seconds,
        );
        assert_eq!(pids[..7], vec![[1, 2, 3]; 7]);
        assert_eq!(pids.last(), Some(&vec![3, 1, 2]));
        let changes = pids.windows(2).filter(|pids| pids[0] != pids[1]).count();
        assert_eq!(changes, 1, "{pids:?}");
    }

    #[test]
    fn after_a_jump_the_values_before_it_count_no_more() {
        let sort = Sort::by(ProcessColumn::Memory);
        let mut order = RowOrder::default();
        let mut settle = |at: u64, held: [u64; 2]| {
            let lines = (1..).zip(held).map(|(pid, mib)| {
                let key = SortKey::Amount(Bytes(mib * MIB));
                (id(pid), Moment(at), [Some(key), None])
            });
            order.settle(sort, lines.collect())[0].process.pid
        };
        assert_eq!(settle(0, [10_000, 10_100]), 2);
        assert_eq!(settle(1000, [10_200, 10_100]), 2, "it may swap back");
        assert_eq!(settle(900_000, [10_200, 10_100]), 1);
    }

    #[test]
    fn rows_sorted_by_words_move_at_once() {
        let lines = |first: &'static str| {
            [first, "java", "perl"]
                .map(|it| Some(SortKey::Word(it.into())))
                .into_iter()
                .zip(1..)
                .map(|(key, pid)| (id(pid), Moment(0), [key, None]))
                .collect()
        };
        let mut order = RowOrder::default();
        let sort = Sort {
            descending: false,
            ..Sort::by(ProcessColumn::Command)
        };
        let pids = ["[python]", "python train.py"].map(|first| order.settle(sort, lines(first)));
        assert_eq!(pids, [[1, 2, 3].map(id), [2, 3, 1].map(id)]);
    }

    #[test]
    fn a_row_that_is_much_larger_moves_up_at_once() {
        let seconds: [&[_]; 2] = [
            &[Some(10_000), Some(9_900), Some(500)],
            &[Some(10_000), Some(9_900), Some(15_000)],
        ];
        assert_eq!(
            orders(
                &mut RowOrder::default(),
                Sort::by(ProcessColumn::Memory),
                &seconds
            ),
            [[1, 2, 3], [3, 1, 2]]
        );
        // The cache rises and falls with each training step, so a large difference does not count.
        assert_eq!(
            orders(
                &mut RowOrder::default(),
                Sort::by(ProcessColumn::Cache),
                &seconds
            ),
            [[1, 2, 3], [1, 2, 3]]
        );
    }

    #[test]
    fn a_new_or_unknown_row_is_sorted_in_at_once() {
        let seconds: [&[_]; 3] = [
            &[Some(10_000), None, Some(9_000)],
            &[Some(10_000), Some(9_500), Some(9_000)],
            &[Some(10_000), Some(9_500), Some(9_000), Some(9_600)],
        ];
        let pids = orders(
            &mut RowOrder::default(),
            Sort::by(ProcessColumn::Memory),
            &seconds,
        );
        assert_eq!(pids, [vec![1, 3, 2], vec![1, 2, 3], vec![1, 4, 2, 3]]);
    }

    #[test]
    fn another_column_has_its_own_order_at_once() {
        let mut order = RowOrder::default();
        let pids = orders(
            &mut order,
            Sort::by(ProcessColumn::Memory),
            &[&[Some(10_000), Some(9_900)]],
        );
        assert_eq!(pids, [[1, 2]]);
        let pids = orders(
            &mut order,
            Sort::by(ProcessColumn::Rss),
            &[&[Some(9_900), Some(10_000)]],
        );
        assert_eq!(pids, [[2, 1]]);
    }

    proptest! {
        /// Rows whose values stay the same end up sorted, whatever the values were before, and no
        /// row is lost.
        #[test]
        fn constant_rows_are_sorted_soon(
            seconds in proptest::collection::vec(
                proptest::collection::vec(proptest::option::of(9_000..13_000_u64), 1..12),
                1..20,
            ),
        ) {
            let last = seconds.last().unwrap();
            let still = seconds.iter().chain(std::iter::repeat_n(last, 80)).map(Vec::as_slice);
            let pids = orders(&mut RowOrder::default(), Sort::by(ProcessColumn::Memory), &still.collect::<Vec<_>>());
            let held: Vec<_> = pids.last().unwrap().iter().map(|pid| last[*pid as usize - 1]).collect();
            prop_assert!(held.is_sorted_by(|a, b| a >= b), "{held:?}");
            prop_assert_eq!(held.len(), last.len());
        }
    }
}
