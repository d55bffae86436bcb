//! The columns of a log, from its header or, without one, from its first rows.

use super::cells::{self, Cells};
use super::dates::LogTimes;
use crate::base::units::Bytes;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LogColumns {
    pub(super) time: usize,
    /// The unit of bare numbers in the time column, in milliseconds. `None` if the header has no
    /// unit.
    pub(super) time_unit: Option<f64>,
    pub(super) used: usize,
    /// The unit of bare numbers in the column of used memory, in bytes.
    pub(super) used_unit: u64,
    pub(super) is_free: bool,
    /// Columns and units of the memory that PyTorch reserved and allocated.
    pub(super) pytorch: Option<[(usize, u64); 2]>,
    pub(super) total: Option<usize>,
    pub(super) total_unit: u64,
    pub(super) host: Option<usize>,
    pub(super) index: Option<usize>,
    /// The column of the GPU's UUID, PCI address or serial number.
    pub(super) gpu: Option<usize>,
    pub(super) pid: Option<usize>,
    pub(super) name: Option<usize>,
    pub(super) count: usize,
    /// Whether nvidia-smi wrote the log: its times have milliseconds, and a moment has one row for
    /// each GPU.
    pub(super) is_nvidia_smi: bool,
    /// A note on assumptions about the columns, if there are any.
    pub(super) guess: Option<String>,
}

const MIB: u64 = 1 << 20;

/// Whether a line is a header. Before the first header, any line of names with a time and an amount
/// of memory is one.
pub(super) fn is_header(cells: &[&str], had_header: bool) -> bool {
    /// Cells with more words are sentences, not names, unless they end with a unit.
    const LONGEST_NAME: usize = 4;
    let names = [
        "timestamp",
        "time",
        "memory.used",
        "used_memory",
        "used_gpu_memory",
        "bytes",
        "seconds",
        "allocated_bytes",
    ];
    let is_value =
        |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    let has_unit = |cell: &str| {
        name_and_unit(cell).1.is_some() || cell.contains(['[', '(']) && time_unit(cell).is_some()
    };
    let is_name = |cell: &&str| {
        !is_value(cell) && (cell.split_whitespace().count() <= LONGEST_NAME || has_unit(cell))
    };
    cells
        .iter()
        .any(|cell| !is_value(cell) && names.contains(&name_and_unit(cell).0.as_str()))
        || !had_header && cells.iter().all(is_name) && LogColumns::of_header(cells).is_ok()
}

/// Returns the milliseconds of the unit in the name of a time column: `elapsed_ms`, `time (min)`,
/// `hours`.
fn time_unit(cell: &str) -> Option<f64> {
    let cell = cell.to_ascii_lowercase();
    let unit = match cell.split_once(['[', '(']) {
        Some((_, unit)) => unit.trim_end_matches([']', ')']).trim(),
        None => cell.rsplit(['_', ' ', '.']).next()?,
    };
    Some(match unit {
        "ns" | "nanoseconds" => 1e-6,
        "us" | "µs" | "microseconds" => 1e-3,
        "ms" | "msec" | "millis" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "seconds" => 1e3,
        "min" | "mins" | "minutes" => 60e3,
        "h" | "hr" | "hrs" | "hours" => 3600e3,
        "d" | "days" => 86_400e3,
        _ => return None,
    })
}

/// Splits a header cell into its name and the bytes of its unit: `memory.used [MiB]`,
/// `memory_used_mib`, `Memory (MiB)`.
fn name_and_unit(cell: &str) -> (String, Option<u64>) {
    let cell = cell.to_ascii_lowercase();
    match cell.split_once(['[', '(']) {
        Some((name, unit)) => (
            name.trim().to_owned(),
            Bytes::unit(unit.trim_end_matches([']', ')']).trim()),
        ),
        None => {
            // The header `time,GiB` has only the unit.
            let alone = Some(cell.as_str()).filter(|cell| cell.len() > 1);
            let unit = cell
                .rsplit_once('_')
                .map(|(_, suffix)| suffix)
                .or(alone)
                .and_then(Bytes::unit);
            (cell, unit)
        }
    }
}

/// The names of a header's cells, and the bytes of their units.
struct HeaderNames(Vec<(String, Option<u64>)>);

impl HeaderNames {
    fn name(&self, column: usize) -> &str {
        &self.0[column].0
    }

    fn unit(&self, column: usize) -> Option<u64> {
        self.0[column].1
    }

    /// Finds the column with the first of these names that a column has.
    fn find(&self, wanted: &[&str]) -> Option<usize> {
        let place = |wanted: &&str| self.0.iter().position(|(name, _)| name == wanted);
        wanted.iter().find_map(place)
    }

    /// Finds the first column whose name begins with one of these prefixes.
    fn begins(&self, prefixes: &[&str]) -> Option<usize> {
        self.0
            .iter()
            .position(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// Finds the column of the time or of a counter that stands in for it, with a note on the
    /// latter.
    fn time(&self) -> (Option<usize>, Option<String>) {
        let time = self
            .find(&["timestamp", "time", "seconds", "date", "t"])
            .or_else(|| {
                self.begins(&[
                    "time", "date", "elapsed", "second", "minute", "hour", "unix", "wall",
                ])
            });
        if time.is_some() {
            return (time, None);
        }
        let steps = self.find(&["step", "steps", "global_step", "iteration", "iter"]);
        let guess = steps.map(|at| {
            let counter = self.name(at).trim_end_matches('s');
            format!("no time: one {counter} taken for a second")
        });
        (steps, guess)
    }

    fn used(&self) -> Option<usize> {
        let is_other = |name: &str| {
            ["free", "total", "capacity", "limit"]
                .iter()
                .any(|word| name.contains(word))
        };
        let with_unit = |is_wanted: &dyn Fn(&str) -> bool| {
            self.0
                .iter()
                .position(|(name, unit)| unit.is_some() && is_wanted(name))
        };
        self.find(&[
            "memory.used",
            "used_gpu_memory",
            "used_memory",
            "bytes",
            "memory",
            "used",
        ])
        .or_else(|| {
            self.begins(&["memory.used", "memory_used", "used_", "bytes", "mem"])
                .filter(|at| !is_other(self.name(*at)))
        })
        .or_else(|| with_unit(&|name| Bytes::unit(name).is_some()))
        .or_else(|| with_unit(&|name| name.contains("mem") && !is_other(name)))
    }

    fn total(&self) -> Option<usize> {
        self.find(&["memory.total", "total"])
            .or_else(|| self.begins(&["memory.total", "memory_total", "total_"]))
    }
}

impl LogColumns {
    pub(super) fn of_header(header: &[&str]) -> Result<Self, &'static str> {
        let names = HeaderNames(header.iter().map(|cell| name_and_unit(cell)).collect());
        let (time, guess) = names.time();
        let total = names.total();
        let find = |wanted: &[&str]| names.find(wanted);
        let part = |wanted: [&str; 3]| find(&wanted).map(|at| (at, names.unit(at).unwrap_or(1)));
        let allocated = part(["allocated_bytes", "memory_allocated", "allocated"]);
        let reserved = part(["reserved_bytes", "memory_reserved", "reserved"]);
        // The log may have PyTorch's figures without the driver's.
        let used = names
            .used()
            .or(reserved.map(|(at, _)| at))
            .or(allocated.map(|(at, _)| at));
        let free = find(&["memory.free", "memory_free", "free"])
            .filter(|_| used.is_none() && total.is_some());
        let used = used.or(free);
        let (Some(time), Some(used)) = (time, used) else {
            return Err(if time.is_none() {
                "the header has no timestamp"
            } else {
                "the header has no used memory"
            });
        };
        // With `nounits`, the numbers of nvidia-smi are MiB.
        let is_in_mib =
            |name: &str| name == "used" || name.contains("memory") && !name.starts_with("memory_");
        let default_unit = if is_in_mib(names.name(used)) { MIB } else { 1 };
        let of_nvidia_smi = [
            "memory.used",
            "memory.free",
            "used_gpu_memory",
            "used_memory",
        ];
        Ok(Self {
            time,
            time_unit: time_unit(header[time]),
            used,
            used_unit: names.unit(used).unwrap_or(default_unit),
            is_free: free.is_some(),
            pytorch: reserved.zip(allocated).map(<[_; 2]>::from),
            total,
            total_unit: total.and_then(|at| names.unit(at)).unwrap_or(default_unit),
            host: find(&["host", "hostname", "node"]),
            index: find(&["index", "gpu", "gpu_index"]),
            gpu: find(&[
                "gpu_uuid",
                "uuid",
                "gpu_bus_id",
                "pci.bus_id",
                "gpu_serial",
                "serial",
            ]),
            pid: find(&["pid"]),
            name: find(&["process_name", "name"]).filter(|_| find(&["pid"]).is_some()),
            count: header.len(),
            is_nvidia_smi: names.name(time) == "timestamp"
                && of_nvidia_smi.contains(&names.name(used)),
            guess,
        })
    }

    /// Returns a column's cell of a row. Commas in a process name add cells.
    pub(super) fn cell<'a>(&self, column: usize, cells: Cells<'a>) -> &'a str {
        let added = cells.len().saturating_sub(self.count);
        cells.get(if self.name.is_some_and(|name| column > name) {
            column + added
        } else {
            column
        })
    }

    /// Returns the memory that PyTorch reserved and allocated, if a row has both.
    pub(super) fn pytorch(&self, cells: Cells<'_>) -> Option<[Bytes; 2]> {
        let bytes = |(at, unit)| cells::amount(self.cell(at, cells), unit)?.ok();
        let [reserved, allocated] = self.pytorch?.map(bytes);
        reserved
            .zip(allocated)
            .filter(|(reserved, allocated)| reserved >= allocated)
            .map(<[Bytes; 2]>::from)
    }

    /// Guesses the columns of a log without a header from its first rows, which have the same
    /// length.
    pub(super) fn guess(rows: &[Vec<String>]) -> Option<Self> {
        let count = rows.first()?.len();
        let rows = Rows(rows);
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
            ..Self::default()
        })
    }

    /// Guesses the columns of a log without a header that has two, one of them of dates.
    fn guess_two(rows: Rows<'_>, time: usize) -> Option<Self> {
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

#[derive(Clone, Copy)]
struct Rows<'a>(&'a [Vec<String>]);

impl<'a> Rows<'a> {
    /// Whether a column has at least one cell of a kind, and otherwise only missing values.
    fn all(self, column: usize, is_of_kind: impl Fn(&str) -> bool) -> bool {
        let cells = || self.0.iter().map(|row| row[column].as_str());
        cells().all(|cell| is_of_kind(cell) || cells::is_missing(cell)) && cells().any(&is_of_kind)
    }

    fn has_amounts(self, column: usize) -> bool {
        self.all(column, |cell| cells::amount(cell, 1).is_some())
    }

    /// Returns the columns of memory, and the column of PIDs if there is one. `sized` are the
    /// columns whose cells have a unit of bytes, and `numbers` those with bare numbers.
    fn memory_and_pid(
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
            .map(move |row| Some(cells::amount(&row[column], 1)?.ok()?.0))
    }

    fn highest(self, column: usize) -> Option<u64> {
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
    fn is_index(self, column: usize) -> bool {
        /// A host has at most this many GPUs.
        const MOST_GPUS: u64 = 16;
        let count = self.distinct(column, None) as u64;
        let mut numbers = (0..).zip(self.numbers(column));
        self.highest(column) < Some(MOST_GPUS)
            && numbers.all(|(row, number)| count == 1 || number == Some(row % count))
    }

    fn is_never_less(self, column: usize, than: usize) -> bool {
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

/// Whether a date has the form of nvidia-smi's: `2026/07/14 10:12:38.696`.
fn is_date_of_nvidia_smi(cell: &str) -> bool {
    cell.contains('/') && cell.contains('.')
}
