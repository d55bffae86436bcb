//! Which column of a log says what: from its header, or from what stands in it.

use super::cells::{self, Amount};
use crate::base::units::Bytes;

/// Columns by their places.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Columns {
    pub(super) time: usize,
    /// Milliseconds that a bare number there is of, where the header says it.
    pub(super) time_unit: Option<f64>,
    pub(super) used: usize,
    /// What a bare number there is of, in bytes.
    pub(super) used_unit: u64,
    /// PyTorch's own: `allocated_bytes` and `reserved_bytes`.
    pub(super) parts: Option<[(usize, u64); 2]>,
    /// What stands there for the memory in use is what is free of all.
    pub(super) is_free: bool,
    pub(super) total: Option<usize>,
    pub(super) total_unit: u64,
    pub(super) index: Option<usize>,
    /// UUID, or address on the bus.
    pub(super) gpu: Option<usize>,
    pub(super) pid: Option<usize>,
    pub(super) name: Option<usize>,
    pub(super) count: usize,
    /// What was taken for what, where no header says it.
    pub(super) guess: Option<String>,
}

const MIB: u64 = 1 << 20;

/// Whether a line is a header. Where there was none before, any that has a name for what is needed is one.
pub(super) fn is_header(cells: &[&str], had_one: bool) -> bool {
    let names =
        ["timestamp", "time", "memory.used", "used_memory", "used_gpu_memory", "bytes", "seconds", "allocated_bytes"];
    let is_value = |cell: &str| cell.starts_with(|it: char| it.is_ascii_digit() || it == '-');
    let has_unit = |cell: &str| name_of(cell).1.is_some() || cell.contains(['[', '(']) && time_unit(cell).is_some();
    // Without a unit, no name has as many words as a sentence.
    let is_name = |cell: &&str| !is_value(cell) && (cell.split_whitespace().count() <= 4 || has_unit(cell));
    cells.iter().any(|cell| !is_value(cell) && names.contains(&name_of(cell).0.as_str()))
        || !had_one && cells.iter().all(is_name) && Columns::of_header(cells).is_ok()
}

/// Names of what counts up without a clock.
const STEPS: [&str; 5] = ["step", "steps", "global_step", "iteration", "iter"];

/// The milliseconds of the unit that a column of times names: `elapsed_ms`, `time (min)`, `hours`.
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

/// A column's name, and the unit that is said with it: `memory.used [MiB]`, `memory_used_mib`, `Memory (MiB)`.
fn name_of(cell: &str) -> (String, Option<u64>) {
    let cell = cell.to_ascii_lowercase();
    match cell.split_once(['[', '(']) {
        Some((name, unit)) => (name.trim().to_owned(), Bytes::unit(unit.trim_end_matches([']', ')']).trim())),
        None => {
            // `time,GiB` names nothing else.
            let alone = Some(cell.as_str()).filter(|it| it.len() > 1);
            let unit = cell.rsplit_once('_').map(|it| it.1).or(alone).and_then(Bytes::unit);
            (cell, unit)
        }
    }
}

impl Columns {
    /// Reads a header; says what it lacks.
    pub(super) fn of_header(header: &[&str]) -> Result<Self, &'static str> {
        let names: Vec<(String, Option<u64>)> = header.iter().map(|it| name_of(it)).collect();
        let find = |of: &[&str]| of.iter().find_map(|name| names.iter().position(|it| it.0 == *name));
        let begins = |of: &[&str]| names.iter().position(|it| of.iter().any(|name| it.0.starts_with(name)));
        let time = find(&["timestamp", "time", "seconds", "date", "t"])
            .or_else(|| begins(&["time", "date", "elapsed", "second", "minute", "hour", "unix", "wall"]));
        let steps = find(&STEPS).filter(|_| time.is_none());
        let guess = steps.map(|it| format!("no time: one {} taken for a second", names[it].0.trim_end_matches('s')));
        let time = time.or(steps);
        let is_other = |name: &str| ["free", "total", "capacity", "limit"].iter().any(|it| name.contains(it));
        let used = find(&["memory.used", "used_gpu_memory", "used_memory", "bytes", "memory", "used"])
            .or_else(|| {
                begins(&["memory.used", "memory_used", "used_", "bytes", "mem"]).filter(|at| !is_other(&names[*at].0))
            })
            .or_else(|| names.iter().position(|it| it.1.is_some() && Bytes::unit(&it.0).is_some()))
            .or_else(|| names.iter().position(|it| it.1.is_some() && it.0.contains("mem") && !is_other(&it.0)));
        let total = find(&["memory.total", "total"]).or_else(|| begins(&["memory.total", "memory_total", "total_"]));
        let part = |of: [&str; 3]| find(&of).map(|at| (at, names[at].1.unwrap_or(1)));
        let allocated = part(["allocated_bytes", "memory_allocated", "allocated"]);
        let reserved = part(["reserved_bytes", "memory_reserved", "reserved"]);
        // Who logs what PyTorch says may not ask the driver.
        let used = used.or(reserved.map(|it| it.0)).or(allocated.map(|it| it.0));
        // What is in use is what is not free.
        let free = find(&["memory.free", "memory_free", "free"]).filter(|_| used.is_none() && total.is_some());
        let used = used.or(free);
        let (Some(time), Some(used)) = (time, used) else {
            return Err(if time.is_none() { "the header has no timestamp" } else { "the header has no used memory" });
        };
        // What nvidia-smi leaves out, with `nounits`, is MiB.
        let is_nvidia = |name: &str| name == "used" || name.contains("memory") && !name.starts_with("memory_");
        let plain = if is_nvidia(&names[used].0) { MIB } else { 1 };
        Ok(Self {
            time,
            time_unit: time_unit(header[time]),
            used,
            used_unit: names[used].1.unwrap_or(plain),
            is_free: free.is_some(),
            parts: reserved.zip(allocated).map(|(reserved, allocated)| [reserved, allocated]),
            total,
            total_unit: total.and_then(|it| names[it].1).unwrap_or(plain),
            index: find(&["index", "gpu", "gpu_index"]),
            gpu: find(&["gpu_uuid", "uuid", "gpu_bus_id", "pci.bus_id", "gpu_serial", "serial"]),
            pid: find(&["pid"]),
            name: find(&["process_name", "name"]).filter(|_| find(&["pid"]).is_some()),
            count: header.len(),
            guess,
        })
    }

    /// Where the cell of a column is in a row of so many: the name of a process may have commas in it.
    pub(super) fn place(&self, column: usize, cells: usize) -> usize {
        let more = cells.saturating_sub(self.count);
        if self.name.is_some_and(|name| column > name) { column + more } else { column }
    }

    /// Times and bytes.
    fn pair(time: usize, used: usize) -> Self {
        let guess = Some("no header: times and bytes".to_owned());
        Self { time, used, used_unit: 1, total_unit: 1, count: 2, guess, ..Self::default() }
    }

    /// Guesses from the first lines of a log without a header.
    pub(super) fn guess(rows: &[Vec<String>]) -> Option<Self> {
        let count = rows.first()?.len();
        let rows: Vec<&Vec<String>> = rows.iter().filter(|it| it.len() == count).collect();
        let all = |column: usize, is: &dyn Fn(&str) -> bool| {
            rows.iter().all(|row| is(&row[column]) || cells::is_missing(&row[column]))
                && rows.iter().any(|row| is(&row[column]))
        };
        let places = || 0..count;
        let whole = |cell: &str| cell.parse::<u64>().is_ok();
        let time = places().find(|at| all(*at, &|it| cells::date(it).is_some()));
        let gpu = places().find(|at| all(*at, &cells::is_gpu));
        let sized = |cell: &str| {
            !whole(cell) && matches!(cells::amount(cell, 1), Some(Amount::Bytes(_))) && cell.ends_with('B')
        };
        let mut memory: Vec<usize> = places().filter(|at| all(*at, &sized)).collect();
        let numbers: Vec<usize> = places().filter(|at| all(*at, &whole) && Some(*at) != time).collect();
        let is_plain = |at: usize| all(at, &|it| cells::amount(it, 1).is_some());
        let Some(time) = time else {
            let is_pair = count == 2 && all(0, &|it| cells::time(it, None).is_some()) && is_plain(1);
            return is_pair.then(|| Self::pair(0, 1));
        };
        if count == 2 && memory.is_empty() {
            let used = 1 - time;
            // With `nounits`, nvidia-smi writes such times, and leaves MiB out. No GPU has as little in bytes.
            let is_small = |it: &str| it.parse::<u64>().is_ok_and(|it| it < MIB);
            let is_nvidia = all(time, &|it| it.contains('/') && it.contains('.')) && all(used, &is_small);
            return is_plain(used).then(|| match Self::pair(time, used) {
                it if is_nvidia => Self { used_unit: MIB, guess: Some("no header: times and MiB".to_owned()), ..it },
                it => it,
            });
        }
        let value = |row: &[String], at: usize| match cells::amount(&row[at], 1) {
            Some(Amount::Bytes(bytes)) => Some(bytes.0),
            _ => None,
        };
        let highest = |at: usize| rows.iter().filter_map(|row| value(row, at)).max();
        let kinds = |at: usize| {
            let mut seen: Vec<u64> = rows.iter().filter_map(|row| value(row, at)).collect();
            seen.sort_unstable();
            seen.dedup();
            seen.len()
        };
        // One GPU after the other, over and over.
        let cycles = |at: usize| {
            let count = kinds(at) as u64;
            let mut values = rows.iter().map(|row| value(row, at)).enumerate();
            highest(at) < Some(16) && values.all(|(row, it)| count == 1 || it == Some(row as u64 % count))
        };
        let index = numbers.iter().copied().find(|at| cycles(*at));
        // Indices, shares and temperatures are small.
        let mut large = numbers.iter().copied().filter(|at| highest(*at) > Some(127));
        let mut pid = None;
        match memory.len() {
            // What an amount of memory has, and nvidia-smi's list of GPUs has no other large number without a unit.
            1 => pid = large.find(|at| stays(&rows, time, *at, &value)),
            0 => {
                memory = large.collect();
                let places = gpu.or(index);
                if let [first, second] = *memory
                    && index.is_none()
                    && let Some(at) = pid_of(&rows, [first, second], places, &value)
                    && stays(&rows, time, at, &value)
                {
                    memory.retain(|it| *it != at);
                    pid = Some(at);
                }
            }
            _ => {}
        }
        // The whole is never less than its parts, and does not change much.
        let total = memory
            .iter()
            .copied()
            .find(|at| memory.len() > 1 && memory.iter().all(|it| it == at || is_total(&rows, *at, *it, &value)));
        let used = memory.iter().copied().find(|it| Some(*it) != total)?;
        let index = index.filter(|it| pid.is_none() && *it != used);
        let column = |at: usize| at + 1;
        let mut guess = format!("no header: column {} taken for the memory in use", column(used));
        for (what, at) in [("in all", total), ("PID", pid), ("GPU", gpu.or(index))] {
            if let Some(at) = at {
                guess = format!("{guess}, {} for {what}", column(at));
            }
        }
        Some(Self {
            time,
            time_unit: None,
            used,
            used_unit: MIB,
            total,
            total_unit: MIB,
            index,
            gpu,
            pid,
            name: None,
            parts: None,
            is_free: false,
            count,
            guess: Some(guess),
        })
    }
}

/// Whether one column is never less than another.
fn is_total(rows: &[&Vec<String>], total: usize, part: usize, value: &dyn Fn(&[String], usize) -> Option<u64>) -> bool {
    rows.iter().all(|row| match (value(row, total), value(row, part)) {
        (Some(total), Some(part)) => total >= part,
        _ => true,
    })
}

/// Whether a column can be of PIDs: of many numbers most stand in several rows; and where each row has a time of its own, one
/// process follows another.
fn stays(rows: &[&Vec<String>], time: usize, at: usize, value: &dyn Fn(&[String], usize) -> Option<u64>) -> bool {
    let mut times: Vec<&String> = rows.iter().map(|row| &row[time]).collect();
    times.dedup();
    let mut runs: Vec<Option<u64>> = rows.iter().map(|row| value(row, at)).collect();
    runs.dedup();
    let count = runs.len();
    runs.sort_unstable();
    runs.dedup();
    (rows.len() <= 32 || runs.len() * 4 <= rows.len()) && (times.len() < rows.len() || count == runs.len())
}

/// Memory of GPUs, in GiB.
const GPUS: [u64; 26] =
    [2, 3, 4, 5, 6, 8, 10, 11, 12, 15, 16, 18, 20, 24, 32, 40, 47, 48, 64, 80, 94, 96, 141, 180, 192, 288];

/// Which of two columns of bare numbers has the PIDs of who has the memory that stands in the other; absent where one of
/// them is how much the GPU has. `gpu` is the column that tells GPUs apart.
fn pid_of(
    rows: &[&Vec<String>],
    [first, second]: [usize; 2],
    gpu: Option<usize>,
    value: &dyn Fn(&[String], usize) -> Option<u64>,
) -> Option<usize> {
    let kinds = |at: usize| {
        let mut seen: Vec<_> = rows.iter().filter_map(|row| Some((gpu.map(|it| &row[it]), value(row, at)?))).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len()
    };
    let gpus = gpu.map_or(1, |gpu| rows.iter().map(|row| &row[gpu]).collect::<std::collections::HashSet<_>>().len());
    // In thousandths: NVML says a little less than there is, or a sixteenth, where ECC takes that.
    let is_size = |mib: u64, parts: &[std::ops::RangeInclusive<u64>]| {
        GPUS.iter().any(|gib| parts.iter().any(|it| it.contains(&(mib * 1000 / (gib << 10)))))
    };
    let is_total = |whole: usize, part: usize, parts: &[_]| {
        kinds(whole) == gpus
            && is_total(rows, whole, part, value)
            && rows.iter().filter_map(|row| value(row, whole)).all(|mib| is_size(mib, parts))
    };
    // `nvidia-smi` is asked for the PID before the memory, as a rule, and for the whole after what is in use.
    if is_total(second, first, &[920..=1000]) || is_total(first, second, &[925..=938, 985..=1000]) {
        return None;
    }
    // A process has its PID for long, and its memory changes.
    Some(if kinds(second) < kinds(first) { second } else { first })
}
