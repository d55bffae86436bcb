//! Logs of several GPUs whose rows do not name the GPU. They are told apart by their order, if that
//! is certain.
//!
//! `nvidia-smi -l` writes one row for each GPU, always in the same order, within some milliseconds;
//! then it waits. Rows of such a *burst* that has as many rows as the others have their GPUs in the
//! same places.

use super::other_formats::{GPU_COMMAND, PROCESS_COMMAND};
use super::rows::LogRow;
use super::series::LogSeries;

/// The longest time in milliseconds between two rows of a burst.
const LONGEST_IN_BURST: i64 = 500;
/// A host has at most this many GPUs.
const MOST_GPUS: usize = 32;

/// The rows that name neither GPU nor process, in the order of the log.
struct UnnamedRows<'a> {
    rows: &'a [LogRow],
    /// The indexes of these rows.
    places: Vec<usize>,
}

/// The result of a look at the times of unnamed rows.
enum Bursts {
    /// Each row has a time of its own: one GPU.
    None,
    /// Bursts of so many rows, and the index of the first row of each. Other bursts are left out.
    Fixed {
        size: usize,
        begins: Vec<usize>,
        rows_left_out: usize,
    },
    /// The bursts have different numbers of rows.
    Irregular,
}

/// Gives the rows of each GPU a series of their own. Returns a note if the rows were told apart by
/// their order, and an error if the rows are of several GPUs and cannot be told apart.
/// `is_nvidia_smi` says whether nvidia-smi wrote the log, where two rows with one time are two
/// GPUs; in other logs they may be two samples. The rows are in the order of the log.
pub(super) fn separate(
    rows: &mut Vec<LogRow>,
    series: &mut Vec<LogSeries>,
    is_nvidia_smi: bool,
    is_turned_around: bool,
) -> Result<Option<String>, String> {
    if is_nvidia_smi {
        check_processes(rows, series)?;
    }
    let is_unnamed = |row: &LogRow| {
        let series = &series[row.series as usize];
        series.gpu.is_none() && series.pid.is_none() && series.label.is_none()
    };
    let places: Vec<usize> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| is_unnamed(row))
        .map(|(place, _)| place)
        .collect();
    let Some(first) = places.first().map(|place| rows[*place].series) else {
        return Ok(None);
    };
    let unnamed = UnnamedRows { rows, places };
    let refused = || {
        Err(format!(
            "the rows are of several GPUs, and no column tells which: use `{GPU_COMMAND}`"
        ))
    };
    let has_one_total = unnamed
        .places
        .iter()
        .all(|place| unnamed.rows[*place].series == first);
    let (size, begins, rows_left_out) = match unnamed.bursts() {
        Bursts::Fixed {
            size,
            begins,
            rows_left_out,
        } if is_nvidia_smi || !has_one_total || unnamed.is_smoother_by(size) => {
            (size, begins, rows_left_out)
        }
        Bursts::Irregular if is_nvidia_smi => return refused(),
        _ if !has_one_total || is_nvidia_smi && unnamed.alternates() => return refused(),
        _ => return Ok(None),
    };
    // A program that sorted the log from its end put rows with one time in any order.
    if is_turned_around {
        return refused();
    }
    let mut moved = Vec::with_capacity(begins.len() * size);
    let count = series.len();
    for place in 0..size {
        let of_place = begins.iter().map(|begin| unnamed.places[begin + place]);
        let original = unnamed.rows[unnamed.places[begins[0] + place]].series;
        // In one place of all bursts, the capacity is the same.
        if of_place
            .clone()
            .any(|place| unnamed.rows[place].series != original)
        {
            return refused();
        }
        let number = u32::try_from(count + place).unwrap_or(u32::MAX);
        moved.extend(of_place.map(|row| LogRow {
            series: number,
            ..unnamed.rows[row]
        }));
        series.push(series[original as usize].of_place(place));
    }
    moved.sort_by_key(|row| row.line);
    rows.retain(|row| {
        let series = &series[row.series as usize];
        series.gpu.is_some() || series.pid.is_some() || series.label.is_some()
    });
    rows.extend(moved);
    rows.sort_by_key(|row| row.line);
    let left_out = match rows_left_out {
        0 => String::new(),
        1 => "; 1 row between them is left out".to_owned(),
        count => format!("; {count} rows of incomplete samples are left out"),
    };
    Ok(Some(format!(
        "no column names the GPU: each sample has {size} rows, taken for GPU 0 to {} by their order{left_out}. `{GPU_COMMAND}` \
         names them",
        size - 1
    )))
}

/// Checks that no process is on several GPUs in a log without a column for the GPU.
fn check_processes(rows: &[LogRow], series: &[LogSeries]) -> Result<(), String> {
    if !series
        .iter()
        .any(|series| series.gpu.is_none() && series.pid.is_some())
    {
        return Ok(());
    }
    let mut places = vec![Vec::new(); series.len()];
    for (place, row) in rows
        .iter()
        .enumerate()
        .filter(|(_, row)| series[row.series as usize].gpu.is_none())
    {
        places[row.series as usize].push(place);
    }
    let is_on_several =
        |places: Vec<usize>| !matches!(UnnamedRows { rows, places }.bursts(), Bursts::None);
    if places.into_iter().any(is_on_several) {
        return Err(format!(
            "processes are on several GPUs, and no column tells which: use `{PROCESS_COMMAND}`"
        ));
    }
    Ok(())
}

impl UnnamedRows<'_> {
    fn gaps(&self) -> impl Iterator<Item = i64> {
        self.places
            .windows(2)
            .map(|pair| self.rows[pair[1]].time - self.rows[pair[0]].time)
    }

    fn used(&self, place: usize) -> u64 {
        u64::from(self.rows[self.places[place]].used_kib)
    }

    /// Finds the bursts: rows within a fifth of the time between two samples, and within half a
    /// second.
    fn bursts(&self) -> Bursts {
        let mut sorted: Vec<i64> = self.gaps().collect();
        sorted.sort_unstable();
        // With up to 32 GPUs, one gap of 64 is surely one between two samples.
        let Some(long) = sorted
            .len()
            .checked_sub(1 + sorted.len() / 64)
            .map(|place| sorted[place])
        else {
            return Bursts::None;
        };
        let most = (long / 5).min(LONGEST_IN_BURST);
        let short = sorted.partition_point(|gap| *gap <= most);
        if short * 5 < sorted.len() * 2 {
            return Bursts::None;
        }
        let has_equal_times = sorted.partition_point(|gap| *gap <= 0) * 5 >= sorted.len() * 2;
        let later = self
            .gaps()
            .enumerate()
            .filter(|(_, gap)| *gap > most)
            .map(|(place, _)| place + 1);
        let begins: Vec<usize> = std::iter::once(0).chain(later).collect();
        let ends = begins.iter().skip(1).copied().chain([self.places.len()]);
        let sizes: Vec<usize> = begins
            .iter()
            .zip(ends)
            .map(|(begin, end)| end - begin)
            .collect();
        let mut ordered = sizes.clone();
        ordered.sort_unstable();
        let size = ordered[ordered.len() / 2];
        let whole = sizes.iter().filter(|other| **other == size).count();
        // A log may be cut off in its last sample, and where it was started again.
        let is_fixed = size > 1 && size <= MOST_GPUS && (whole + 1) * 100 >= sizes.len() * 99;
        if is_fixed && (has_equal_times || whole > 2) {
            let rows_left_out = sizes.iter().filter(|other| **other != size).sum();
            let begins = begins
                .into_iter()
                .zip(&sizes)
                .filter(|(_, other)| **other == size)
                .map(|(begin, _)| begin);
            return Bursts::Fixed {
                size,
                begins: begins.collect(),
                rows_left_out,
            };
        }
        // A GPU that is read often, with some holes, has few and long bursts.
        if has_equal_times || sizes.len() >= 4 && self.places.len() <= sizes.len() * MOST_GPUS {
            return Bursts::Irregular;
        }
        Bursts::None
    }

    /// The mean difference in KiB between two rows that are so many rows apart.
    fn difference(&self, apart: usize) -> u64 {
        let count = self.places.len().saturating_sub(apart).max(1);
        (apart..self.places.len())
            .map(|place| self.used(place).abs_diff(self.used(place - apart)))
            .sum::<u64>()
            / count as u64
    }

    /// Whether rows that are a burst apart are much more alike than neighbours.
    fn is_smoother_by(&self, size: usize) -> bool {
        self.difference(size) * 2 < self.difference(1)
    }

    /// Whether the amounts go up and down from row to row, and repeat themselves after some rows:
    /// the GPUs were read at equal distances.
    fn alternates(&self) -> bool {
        /// The least mean change from row to row in KiB: less does not spoil a verdict.
        const LEAST_CHANGE: u64 = 64 << 10;
        const LEAST_ROWS: usize = 100;
        let change = self.difference(1);
        let repeats = |apart: usize| self.difference(apart) * 50 < change;
        self.places.len() >= LEAST_ROWS
            && change >= LEAST_CHANGE
            && (2..=MOST_GPUS.min(self.places.len() / 4)).any(repeats)
    }
}
