//! The columns of a log without a header, guessed from its first rows.

use super::cells;
use super::columns::{self, LogAxis, LogColumns};
use super::dates::LogTimes;
use super::first_rows::FirstRows;
use super::log_options::LogOptions;

const MIB: u64 = 1 << 20;

impl LogColumns {
    /// Guesses the columns of a log without a header from its first rows, which have the same
    /// length.
    pub(super) fn guess(rows: &[Vec<String>], options: &LogOptions) -> Option<Self> {
        let amounts_alone = || options.interval.and_then(|_| Self::amounts_alone(rows));
        let mut columns = Self::guess_by_cells(rows).or_else(amounts_alone)?;
        let first = FirstRows(rows);
        columns.has_no_unit = !first.all(columns.used, columns::is_sized);
        // A capacity tells its unit, and that of the memory in use.
        let of_capacity = columns
            .total
            .filter(|at| !first.all(*at, columns::is_sized))
            .and_then(|at| columns::unit_of_capacity(first.highest_number(at)?));
        if let Some(unit) = of_capacity {
            (columns.used_unit, columns.total_unit) = (unit, unit);
        }
        columns.highest_number = first.highest_number(columns.used);
        if let Some(unit) = options.unit {
            (columns.used_unit, columns.total_unit) = (unit, unit);
            columns.has_no_unit = false;
        }
        let chosen = |name: &String| {
            name.parse()
                .ok()
                .and_then(|number: usize| number.checked_sub(1))
        };
        if let Some(used) = options
            .memory
            .first()
            .and_then(chosen)
            .filter(|at| *at < columns.count)
        {
            (columns.used, columns.doubt) = (used, None);
            columns.guess = Some(format!(
                "no header: column {} taken for the memory in use",
                used + 1
            ));
        }
        if let Some(time) = options
            .time
            .as_ref()
            .and_then(chosen)
            .filter(|at| *at < columns.count)
        {
            columns.time = time;
        }
        if options.interval.is_some() {
            columns.axis = LogAxis::None;
        }
        Some(columns)
    }

    fn guess_by_cells(rows: &[Vec<String>]) -> Option<Self> {
        let count = rows.first()?.len();
        let rows = FirstRows(rows);
        let columns = || 0..count;
        let is_date = |cell: &str| LogTimes::default().date(cell).is_some();
        let Some(time) = columns().find(|at| rows.all(*at, is_date)) else {
            let is_time = |cell: &str| LogTimes::default().time(cell, None).is_some();
            let is_pair = count == 2 && rows.all(0, is_time) && rows.has_amounts(1);
            return is_pair.then(|| Self::times_and_amounts(0, "bytes", 1));
        };
        let is_bytes = |cell: &str| matches!(cells::amount(cell, 1), Some(Ok(_)));
        let is_sized = |cell: &str| !is_whole(cell) && is_bytes(cell) && cell.ends_with('B');
        let sized: Vec<usize> = columns().filter(|at| rows.all(*at, is_sized)).collect();
        if count == 2 && sized.is_empty() {
            return Self::guess_two(rows, time);
        }
        let gpu = columns().find(|at| rows.all(*at, cells::is_gpu));
        let numbers: Vec<usize> = columns()
            .filter(|at| rows.all(*at, is_whole) && *at != time)
            .collect();
        let index = numbers.iter().copied().find(|at| rows.is_index(*at));
        let (memory, pid) = rows.memory_and_pid(sized, &numbers, time, gpu);
        let is_total = |at: &usize| {
            memory
                .iter()
                .all(|part| part == at || rows.is_never_less(*at, *part))
        };
        let total = memory
            .iter()
            .copied()
            .find(|at| memory.len() > 1 && is_total(at));
        let used = memory.iter().copied().find(|at| Some(*at) != total)?;
        let index = index.filter(|at| pid.is_none() && *at != used);
        let others: Vec<usize> = memory
            .iter()
            .copied()
            .filter(|at| Some(*at) != total && *at != used && rows.is_confused(used, *at, total))
            .collect();
        let doubt = others.first().map(|other| {
            format!(
                "column {} is taken for the memory in use, and column {} may be it: choose with `--memory {}`",
                used + 1,
                other + 1,
                other + 1
            )
        });
        let mut guess = format!("no header: column {} taken for the memory in use", used + 1);
        for (name, at) in [
            ("total memory", total),
            ("PID", pid),
            ("GPU", gpu.or(index)),
        ] {
            guess += &at.map_or_else(String::new, |at| format!(", {} for {name}", at + 1));
        }
        Some(Self {
            time,
            used,
            used_unit: MIB,
            total,
            total_unit: MIB,
            index,
            gpu,
            pid,
            count,
            is_nvidia_smi: rows.all(time, is_date_of_nvidia_smi),
            guess: Some(guess),
            doubt,
            ..Self::default()
        })
    }

    /// Guesses the columns of a log without a header that has two, one of them of dates.
    fn guess_two(rows: FirstRows<'_>, time: usize) -> Option<Self> {
        let used = 1 - time;
        // The dates of nvidia-smi, and numbers that are too small for bytes: MiB without units.
        let is_small = |cell: &str| cell.parse::<u64>().is_ok_and(|number| number < MIB);
        let is_nvidia_smi = rows.all(time, is_date_of_nvidia_smi) && rows.all(used, is_small);
        let (name, unit) = if is_nvidia_smi {
            ("MiB", MIB)
        } else {
            ("bytes", 1)
        };
        rows.has_amounts(used).then(|| Self {
            is_nvidia_smi,
            ..Self::times_and_amounts(time, name, unit)
        })
    }

    /// Returns the column of a log of amounts alone, such as that of `nvidia-smi
    /// --query-gpu=memory.used --format=csv,noheader`. Its times are those of `--interval`.
    fn amounts_alone(rows: &[Vec<String>]) -> Option<Self> {
        let first = FirstRows(rows);
        let is_alone = rows.iter().all(|row| row.len() == 1) && first.has_amounts(0);
        let is_mib = first.highest(0) < Some(MIB);
        is_alone.then(|| Self {
            axis: LogAxis::None,
            time: usize::MAX,
            used_unit: if is_mib { MIB } else { 1 },
            total_unit: 1,
            count: 1,
            guess: Some("no header: the lines are taken for the memory in use".to_owned()),
            ..Self::default()
        })
    }

    /// Returns the columns of a log that has two, and no header.
    fn times_and_amounts(time: usize, unit_name: &str, unit: u64) -> Self {
        let guess = Some(format!("no header: times and {unit_name}"));
        Self {
            time,
            used: 1 - time,
            used_unit: unit,
            total_unit: 1,
            count: 2,
            guess,
            ..Self::default()
        }
    }
}

fn is_whole(cell: &str) -> bool {
    cell.parse::<u64>().is_ok()
}

/// Whether a date has the form of nvidia-smi's: `2026/07/14 10:12:38.696`.
fn is_date_of_nvidia_smi(cell: &str) -> bool {
    cell.contains('/') && cell.contains('.')
}
