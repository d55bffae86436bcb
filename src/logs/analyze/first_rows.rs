//! The first rows of a log: the kinds of their columns.

use super::cells;

#[derive(Clone, Copy)]
pub(super) struct FirstRows<'a>(pub(super) &'a [Vec<String>]);

impl<'a> FirstRows<'a> {
    /// Returns the cells of a column; an empty one for a row that is too short.
    fn cells(self, column: usize) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .map(move |row| row.get(column).map_or("", String::as_str))
    }

    /// Whether the cells of a column are shares: `45 %`.
    pub(super) fn has_shares(self, column: usize) -> bool {
        let is_share = |cell: &str| {
            cell.strip_suffix('%')
                .is_some_and(|number| number.trim_end().parse::<f64>().is_ok())
        };
        self.all(column, is_share)
    }

    /// Whether a column goes forward, or back, and can be the axis of the log. Some lines may be
    /// late, and others may be no rows.
    pub(super) fn is_axis(self, column: usize, parse: impl Fn(&str) -> Option<i64>) -> bool {
        let places: Vec<i64> = self.cells(column).filter_map(parse).collect();
        let count = |is_step: fn(i64, i64) -> bool| {
            places
                .windows(2)
                .filter(|pair| is_step(pair[0], pair[1]))
                .count()
        };
        let (ahead, back) = (count(|one, next| next > one), count(|one, next| next < one));
        !places.is_empty()
            && places.len() * 2 >= self.0.len()
            && (back * 4 <= ahead || ahead * 4 <= back)
    }

    /// Returns how many different texts a column has.
    pub(super) fn distinct_texts(self, column: usize) -> usize {
        self.cells(column)
            .collect::<std::collections::HashSet<_>>()
            .len()
    }

    /// Returns the highest number of a column, which may have decimals.
    pub(super) fn highest_number(self, column: usize) -> Option<f64> {
        self.cells(column)
            .filter_map(|cell| cell.parse::<f64>().ok())
            .reduce(f64::max)
    }

    /// Returns the point if it stands between thousands in a column of memory: `20.480 MiB` is no
    /// memory of a GPU, and 20,480 MiB is. Commas between semicolons are points here.
    pub(super) fn thousands(self, column: usize, unit: u64) -> Option<char> {
        /// Less than this is little for the memory of a GPU.
        const LITTLE: u64 = 64 << 20;
        let has_group = |cell: &str| {
            let number = cell
                .trim_end_matches(|letter: char| letter.is_alphabetic())
                .trim_end();
            number
                .split_once('.')
                .is_some_and(|(whole, group)| (1..=3).contains(&whole.len()) && group.len() == 3)
        };
        let is_small = |cell: &str| !cell.contains('.') && cell.len() <= 3;
        let is_grouped = |cell: &str| has_group(cell) || is_small(cell);
        if !self.all(column, is_grouped) || !self.cells(column).any(has_group) {
            return None;
        }
        let amounts = |text: fn(&str) -> String| {
            self.cells(column)
                .filter_map(move |cell| Some(cells::amount(&text(cell), unit)?.ok()?.0))
                .max()
        };
        let (decimal, grouped) = (
            amounts(str::to_owned)?,
            amounts(|cell| cell.replace('.', ""))?,
        );
        (decimal < LITTLE && grouped >= LITTLE).then_some('.')
    }

    /// Whether a column has at least one cell of a kind, and otherwise only missing values.
    pub(super) fn all(self, column: usize, is_of_kind: impl Fn(&str) -> bool) -> bool {
        let cells = || self.cells(column);
        cells().all(|cell| is_of_kind(cell) || cells::is_missing(cell)) && cells().any(&is_of_kind)
    }

    pub(super) fn has_amounts(self, column: usize) -> bool {
        self.all(column, |cell| cells::amount(cell, 1).is_some())
    }

    /// Returns the columns of memory, and the column of PIDs if there is one. `sized` are the
    /// columns whose cells have a unit of bytes, and `numbers` those with bare numbers.
    pub(super) fn memory_and_pid(
        self,
        sized: Vec<usize>,
        numbers: &[usize],
        time: usize,
        gpu: Option<usize>,
    ) -> (Vec<usize>, Option<usize>) {
        /// Indexes, percentages and temperatures are at most this.
        const SMALL: u64 = 127;
        let mut large = numbers
            .iter()
            .copied()
            .filter(|at| self.highest(*at) > Some(SMALL));
        match sized.len() {
            // Besides memory with its unit, nvidia-smi's list of processes has one large number:
            // the PID.
            1 => {
                let pid = large.find(|at| self.may_be_pid(*at, time));
                (sized, pid)
            }
            0 => {
                let mut memory: Vec<usize> = large.collect();
                let mut pid = None;
                if let [first, second] = *memory
                    && !numbers.iter().any(|at| self.is_index(*at))
                {
                    pid = self
                        .pid_of([first, second], gpu)
                        .filter(|at| self.may_be_pid(*at, time));
                    memory.retain(|column| Some(*column) != pid);
                }
                (memory, pid)
            }
            _ => (sized, None),
        }
    }

    fn numbers(self, column: usize) -> impl Iterator<Item = Option<u64>> + 'a {
        self.0
            .iter()
            .map(move |row| Some(cells::amount(row.get(column)?, 1)?.ok()?.0))
    }

    pub(super) fn highest(self, column: usize) -> Option<u64> {
        self.numbers(column).flatten().max()
    }

    /// Returns how many different numbers a column has, counted separately for each value of the
    /// column `by`.
    fn distinct(self, column: usize, by: Option<usize>) -> usize {
        let keys = self
            .0
            .iter()
            .zip(self.numbers(column))
            .filter_map(|(row, number)| Some((by.map(|by| &row[by]), number?)));
        keys.collect::<std::collections::HashSet<_>>().len()
    }

    /// Whether a column may be the index of the GPU: it counts up from 0 again and again, or is
    /// constant.
    pub(super) fn is_index(self, column: usize) -> bool {
        /// A host has at most this many GPUs.
        const MOST_GPUS: u64 = 16;
        let count = self.distinct(column, None) as u64;
        let mut numbers = (0..).zip(self.numbers(column));
        self.highest(column) < Some(MOST_GPUS)
            && numbers.all(|(row, number)| count == 1 || number == Some(row % count))
    }

    /// Whether two columns may be confused: one is the memory in use, and the other what is free.
    pub(super) fn is_confused(self, used: usize, other: usize, total: Option<usize>) -> bool {
        let Some(total) = total else { return false };
        let sums = self
            .numbers(used)
            .zip(self.numbers(other))
            .zip(self.numbers(total));
        let is_sum = |((used, other), total): ((Option<u64>, Option<u64>), Option<u64>)| {
            matches!((used, other, total), (Some(used), Some(other), Some(total))
                if used.saturating_add(other).abs_diff(total) <= total / 20)
        };
        let mut sums = sums.peekable();
        sums.peek().is_some() && sums.all(is_sum)
    }

    pub(super) fn is_never_less(self, column: usize, than: usize) -> bool {
        let mut pairs = self.numbers(column).zip(self.numbers(than));
        pairs.all(|(number, than)| number.zip(than).is_none_or(|(number, than)| number >= than))
    }

    /// Whether a column may have PIDs. PIDs repeat in many rows, and in a log of one process at a
    /// time, an earlier PID does not return.
    fn may_be_pid(self, column: usize, time: usize) -> bool {
        /// With at most this many rows, PIDs need not repeat.
        const FEW_ROWS: usize = 32;
        let rows = self.0.len();
        let mut times: Vec<&String> = self.0.iter().map(|row| &row[time]).collect();
        times.dedup();
        let mut runs: Vec<Option<u64>> = self.numbers(column).collect();
        runs.dedup();
        let run_count = runs.len();
        runs.sort_unstable();
        runs.dedup();
        (rows <= FEW_ROWS || runs.len() * 4 <= rows)
            && (times.len() < rows || run_count == runs.len())
    }

    /// Returns which of two columns of bare numbers has the PIDs, if the other one has their
    /// memory. Returns `None` if one of them is the memory of the GPU. `gpu` is the column that
    /// tells GPUs apart.
    fn pid_of(self, [first, second]: [usize; 2], gpu: Option<usize>) -> Option<usize> {
        /// Memory of NVIDIA's GPUs, in GiB.
        const CAPACITIES: [u64; 26] = [
            2, 3, 4, 5, 6, 8, 10, 11, 12, 15, 16, 18, 20, 24, 32, 40, 47, 48, 64, 80, 94, 96, 141,
            180, 192, 288,
        ];
        let gpus = gpu.map_or(1, |gpu| {
            self.0
                .iter()
                .map(|row| &row[gpu])
                .collect::<std::collections::HashSet<_>>()
                .len()
        });
        // In thousandths: NVML reports a little less than the nominal capacity, and 1/16 less with
        // ECC on some boards.
        let is_capacity = |mib: u64, thousandths: &[std::ops::RangeInclusive<u64>]| {
            let share = |gib: &u64| mib * 1000 / (gib << 10);
            CAPACITIES
                .iter()
                .any(|gib| thousandths.iter().any(|range| range.contains(&share(gib))))
        };
        let is_total = |total: usize, part: usize, thousandths: &[_]| {
            self.distinct(total, gpu) == gpus
                && self.is_never_less(total, part)
                && self
                    .numbers(total)
                    .flatten()
                    .all(|mib| is_capacity(mib, thousandths))
        };
        // The total usually follows the memory in use. The PID usually comes before its memory, so
        // the first column counts as the total only if it matches more closely.
        if is_total(second, first, &[920..=1000])
            || is_total(first, second, &[925..=938, 985..=1000])
        {
            return None;
        }
        // The PID changes less often than the memory.
        Some(if self.distinct(second, gpu) < self.distinct(first, gpu) {
            second
        } else {
            first
        })
    }
}
