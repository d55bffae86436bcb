//! The columns of a log, from its header and its first rows.

use super::cells::{self, Cells};
use super::column_names::{MemoryName, MemoryRole};
use super::dates::LogTimes;
use super::first_rows::FirstRows;
use super::log_options::LogOptions;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::Reading;

/// The axis along which a log tells memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum LogAxis {
    #[default]
    Time,
    /// The steps of a training, by the word for one: `step`, `epoch`.
    Steps(&'static str),
    /// Nothing: the samples are numbered.
    None,
}

/// The meaning of the amounts of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AmountKind {
    #[default]
    Used,
    /// The memory that is left.
    Free,
    /// The share of the memory in use, in hundredths.
    Share,
}

/// Memory of one series beside the first in each row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemoryColumn {
    pub(super) at: usize,
    pub(super) unit: u64,
    /// The GPU in the name of the column.
    pub(super) gpu: Option<Text>,
    pub(super) label: Text,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LogColumns {
    pub(super) axis: LogAxis,
    /// The column of the times or steps. Of no use without them.
    pub(super) time: usize,
    /// The column of the date, where the time has one of its own.
    pub(super) date: Option<usize>,
    /// The unit of bare numbers in the time column, in milliseconds. `None` if the header has no
    /// unit.
    pub(super) time_unit: Option<f64>,
    pub(super) used: usize,
    /// The unit of bare numbers in the column of used memory, in bytes.
    pub(super) used_unit: u64,
    /// The character between thousands in the columns of memory, where it would else be decimal.
    pub(super) thousands: Option<char>,
    pub(super) kind: AmountKind,
    /// More series in each row, by the names of their columns. Empty for most logs; else the first
    /// is that of `used`.
    pub(super) wide: Vec<MemoryColumn>,
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
    /// The name of the column of memory in the header. `None` without one.
    pub(super) memory_name: Option<Text>,
    /// The highest number of the first rows in the column of memory.
    pub(super) highest_number: Option<f64>,
    /// A sentence on columns that may be confused, with the option that settles it.
    pub(super) doubt: Option<String>,
    /// Whether neither the header nor a cell tells the unit of memory.
    pub(super) has_no_unit: bool,
}

/// Whether a line is a header. Before the first header, any line of names with a time and an amount
/// of memory may be one: the rows below it tell.
pub(super) fn is_header(cells: &[&str], had_header: bool) -> bool {
    /// Cells with more words are sentences, not names, unless they end with a unit.
    const LONGEST_NAME: usize = 5;
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
        MemoryName::new(cell).unit.is_some()
            || cell.contains(['[', '(']) && time_unit(cell).is_some()
    };
    let is_name = |cell: &&str| {
        !is_value(cell) && (cell.split_whitespace().count() <= LONGEST_NAME || has_unit(cell))
    };
    let is_known = |cell: &&str| !is_value(cell) && names.contains(&name_alone(cell).as_str());
    let is_axis = |cell: &&str| {
        let name = name_alone(cell);
        TIMES.contains(&name.as_str())
            || step_word(&name).is_some()
            || TIME_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
    };
    let is_memory = |cell: &&str| MemoryName::new(cell).role().is_some();
    cells.iter().any(is_known)
        || !had_header
            && cells.len() > 1
            && cells.iter().all(|cell| is_name(cell) && !cell.is_empty())
            && cells.iter().any(|cell| is_axis(cell) || is_memory(cell))
}

/// Names of columns of times, the best first.
const TIMES: [&str; 12] = [
    "timestamp",
    "time",
    "datetime",
    "seconds",
    "date",
    "t",
    "_timestamp",
    "query_time",
    "ts",
    "wall time",
    "relative time (process)",
    "_runtime",
];

/// Beginnings of names of columns of times.
const TIME_BEGINNINGS: [&str; 11] = [
    "time",
    "date",
    "elapsed",
    "second",
    "minute",
    "hour",
    "unix",
    "wall",
    "relative time",
    "epoch_s",
    "epoch_ms",
];

/// Returns the word for one step if a name is that of a counter of steps.
pub(super) fn step_word(name: &str) -> Option<&'static str> {
    Some(match name {
        "step" | "steps" | "global_step" | "_step" | "trainer/global_step" | "global step" => {
            "step"
        }
        "iteration" | "iterations" | "iter" | "iters" | "it" => "iteration",
        "epoch" | "epochs" => "epoch",
        "batch_idx" | "batch_index" => "batch",
        _ => return None,
    })
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

/// Returns a header cell in lower case, without the unit in brackets.
fn name_alone(cell: &str) -> String {
    let cell = cell.trim().to_ascii_lowercase();
    if TIMES.contains(&cell.as_str()) {
        return cell;
    }
    cell.split(['[', '('])
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The cells of a header, and the first rows below it.
struct NamedRows<'a> {
    header: &'a [&'a str],
    names: Vec<String>,
    rows: FirstRows<'a>,
    options: &'a LogOptions,
}

impl NamedRows<'_> {
    /// Finds the column with the first of these names that a column has.
    fn find(&self, wanted: &[&str]) -> Option<usize> {
        let place = |wanted: &&str| self.names.iter().position(|name| name == wanted);
        wanted.iter().find_map(place)
    }

    fn chosen(&self, wanted: &str, option: &str) -> Result<usize, String> {
        let found = self
            .header
            .iter()
            .position(|name| LogOptions::is_name(wanted, name));
        found.ok_or_else(|| {
            format!(
                "no column has the name `{wanted}` of {option}: it has {}",
                self.listed(|_| true)
            )
        })
    }

    /// Returns the names of some columns for a person.
    fn listed(&self, is_listed: impl Fn(usize) -> bool) -> String {
        /// Names that are told.
        const MOST: usize = 8;
        let names: Vec<String> = (0..self.header.len())
            .filter(|at| is_listed(*at))
            .map(|at| format!("`{}`", self.header[at]))
            .collect();
        let more = if names.len() > MOST {
            format!(" and {} more", names.len() - MOST)
        } else {
            String::new()
        };
        format!("{}{more}", names[..names.len().min(MOST)].join(", "))
    }

    /// Returns the axis, and its column. Times go before steps. The cells of a column that is named
    /// like a time but does not go forward are durations, such as `time_per_step`.
    fn axis(&self) -> Result<(LogAxis, usize, Option<usize>), String> {
        if let Some(wanted) = &self.options.time {
            let at = self.chosen(wanted, "--time")?;
            let axis = step_word(&self.names[at]).map_or(LogAxis::Time, LogAxis::Steps);
            return Ok((axis, at, None));
        }
        if let Some((date, time)) = self.find(&["date"]).zip(self.find(&["time", "hour"]))
            && self
                .rows
                .all(time, |cell| cell.contains(':') && cell.len() < 16)
        {
            return Ok((LogAxis::Time, time, Some(date)));
        }
        let named = TIMES.iter().filter_map(|wanted| self.find(&[wanted]));
        let begun = (0..self.names.len()).filter(|at| {
            TIME_BEGINNINGS
                .iter()
                .any(|begin| self.names[*at].starts_with(begin))
        });
        let candidates: Vec<usize> = named.chain(begun).collect();
        let is_time = |at: &usize| {
            self.rows
                .is_axis(*at, |cell| LogTimes::default().time(cell, None))
        };
        // Dates are times in every language.
        let has_dates = |at: &usize| {
            self.rows
                .is_axis(*at, |cell| LogTimes::default().date(cell))
        };
        let times = candidates.iter().copied().find(is_time);
        if let Some(at) = times.or_else(|| (0..self.names.len()).find(has_dates)) {
            return Ok((LogAxis::Time, at, None));
        }
        let steps = (0..self.names.len()).filter_map(|at| Some((at, step_word(&self.names[at])?)));
        #[expect(clippy::cast_possible_truncation, reason = "a step")]
        let step = |cell: &str| cell.parse::<f64>().ok().map(|step| (step * 1000.0) as i64);
        let mut steps: Vec<_> = steps
            .filter(|(at, _)| self.rows.is_axis(*at, step))
            .collect();
        // The finest counter.
        steps.sort_by_key(|(at, word)| {
            (
                std::cmp::Reverse(self.rows.distinct_texts(*at)),
                *word == "epoch",
            )
        });
        if let Some((at, word)) = steps.first() {
            return Ok((LogAxis::Steps(word), *at, None));
        }
        // Unreadable times are a reason to say so, and no reason to count rows.
        Ok(match candidates.first() {
            Some(at) => (LogAxis::Time, *at, None),
            None => (LogAxis::None, usize::MAX, None),
        })
    }

    /// Returns the columns of the memory in use: several if their names differ in the series only.
    /// The role tells which memory it is, and is `None` where no name says so.
    fn memory(
        &self,
        axis: usize,
        has_total: bool,
    ) -> Result<(Vec<usize>, Option<MemoryRole>), String> {
        let role = |at: usize| MemoryName::new(self.header[at]).role();
        if !self.options.memory.is_empty() {
            let chosen = self
                .options
                .memory
                .iter()
                .map(|name| self.chosen(name, "--memory"));
            let chosen: Vec<usize> = chosen.collect::<Result<_, _>>()?;
            let role = role(chosen[0]);
            return Ok((chosen, role));
        }
        let others = (0..self.header.len()).filter(|at| *at != axis);
        let is_amount = |at: &usize| self.rows.has_amounts(*at) || self.rows.has_shares(*at);
        let named: Vec<(MemoryRole, usize)> = others
            .clone()
            .filter_map(|at| Some((self.role_of_cells(at, role(at)?), at)))
            .filter(|(role, _)| *role != MemoryRole::Total)
            .collect();
        let is_known = |role: MemoryRole| {
            role != MemoryRole::Free || has_total || self.options.capacity.is_some()
        };
        if let Some((_, free)) = named.first()
            && !named.iter().any(|(role, _)| is_known(*role))
        {
            return Err(format!(
                "`{}` is the memory that is free: give the memory of the GPU with `--capacity 80GiB`",
                self.header[*free]
            ));
        }
        let named: Vec<_> = named
            .into_iter()
            .filter(|(role, _)| is_known(*role))
            .collect();
        let readable: Vec<_> = named
            .iter()
            .copied()
            .filter(|(_, at)| is_amount(at))
            .collect();
        // The rows of a column without amounts say what is wrong with them.
        let named = if readable.is_empty() { named } else { readable };
        if let Some(best) = named.iter().map(|(role, _)| *role).min() {
            let of_role = named.iter().filter(|(role, _)| *role == best);
            return Ok((of_role.map(|(_, at)| *at).collect(), Some(best)));
        }
        // A column whose cells have units of bytes needs no name, and neither has `Value` one.
        let known = [
            "index",
            "gpu",
            "name",
            "uuid",
            "pid",
            "host",
            "hostname",
            "node",
            "device",
            "loss",
            "gpu_uuid",
            "gpu_index",
            "process_name",
            "command",
            "type",
        ];
        let is_free_of_name = |at: &usize| {
            !known.contains(&self.names[*at].as_str())
                && step_word(&self.names[*at]).is_none()
                && !TIMES.contains(&self.names[*at].as_str())
                && role(*at).is_none()
                && !MemoryName::new(self.header[*at]).is_other()
        };
        let sized: Vec<usize> = others
            .clone()
            .filter(|at| is_free_of_name(at) && self.rows.all(*at, is_sized))
            .collect();
        if !sized.is_empty() {
            return Ok((sized, None));
        }
        let bare: Vec<usize> = others
            .filter(|at| is_free_of_name(at) && self.rows.has_amounts(*at))
            .collect();
        let is_of_gpu = |at: &usize| MemoryName::new(self.header[*at]).gpu().is_some();
        match bare.as_slice() {
            [_] => Ok((bare, None)),
            [_, ..] if bare.iter().all(is_of_gpu) => Ok((bare, None)),
            [] => Err("the header has no used memory".to_owned()),
            _ => Err(format!(
                "no column is named as memory: choose one with `--memory COLUMN --unit MiB`, of {}",
                self.listed(|at| bare.contains(&at))
            )),
        }
    }

    /// Returns the role of a column whose name has this role, by its cells.
    fn role_of_cells(&self, at: usize, role: MemoryRole) -> MemoryRole {
        let name = MemoryName::new(self.header[at]);
        let is_share = self.rows.has_shares(at)
            || name.is_share_of_wandb() && self.rows.highest(at) <= Some(100);
        if is_share { MemoryRole::Percent } else { role }
    }

    fn total(&self) -> Option<usize> {
        let role = |at: usize| MemoryName::new(self.header[at]).role();
        let exact = self.find(&["memory.total", "total"]);
        exact.or_else(|| {
            (0..self.header.len())
                .find(|at| role(*at) == Some(MemoryRole::Total) && self.rows.has_amounts(*at))
        })
    }
}

impl LogColumns {
    /// Finds the columns by a header and the first rows below it.
    ///
    /// # Errors
    ///
    /// A sentence that says what is missing, and the option that settles it.
    pub(super) fn of_header(
        header: &[&str],
        rows: &[Vec<String>],
        options: &LogOptions,
    ) -> Result<Self, String> {
        let named = NamedRows {
            header,
            names: header.iter().map(|cell| name_alone(cell)).collect(),
            rows: FirstRows(rows),
            options,
        };
        let find = |wanted: &[&str]| named.find(wanted);
        let (mut axis, time, date) = named.axis()?;
        let total = named.total();
        let (memory, role) = named.memory(time, total.is_some())?;
        if options.interval.is_some() {
            axis = LogAxis::None;
        } else if axis == LogAxis::None && total.is_none() && role.is_none() {
            return Err("the header has no timestamp".to_owned());
        }
        let used = memory[0];
        let name = MemoryName::new(header[used]);
        let part = |wanted: [&str; 3]| {
            let at = find(&wanted)?;
            Some((at, MemoryName::new(header[at]).unit.unwrap_or(1)))
        };
        let allocated = part(["allocated_bytes", "memory_allocated", "allocated"]);
        let reserved = part(["reserved_bytes", "memory_reserved", "reserved"]);
        let pid = find(&["pid"]).filter(|at| *at != used);
        let of_nvidia_smi = [
            "memory.used",
            "memory.free",
            "used_gpu_memory",
            "used_memory",
        ];
        let mut columns = Self {
            axis,
            time,
            date,
            time_unit: header.get(time).and_then(|name| time_unit(name)),
            used,
            kind: match role {
                Some(MemoryRole::Free) => AmountKind::Free,
                Some(MemoryRole::Percent) => AmountKind::Share,
                _ => AmountKind::Used,
            },
            pytorch: reserved.zip(allocated).map(<[_; 2]>::from),
            total: total.filter(|at| *at != used),
            host: find(&["host", "hostname", "node"]),
            index: find(&[
                "index",
                "gpu",
                "gpu_index",
                "gpu_id",
                "device",
                "device_id",
                "card",
                "rank",
                "local_rank",
                "series",
                "metric",
            ])
            .filter(|at| !memory.contains(at)),
            gpu: find(&[
                "gpu_uuid",
                "uuid",
                "gpu_bus_id",
                "pci.bus_id",
                "gpu_serial",
                "serial",
            ]),
            pid,
            name: find(&["process_name", "name", "command"]).filter(|_| pid.is_some()),
            count: header.len(),
            is_nvidia_smi: find(&["timestamp"]) == Some(time)
                && of_nvidia_smi.contains(&named.names[used].as_str()),
            memory_name: Some(Text::new(header[used])),
            ..Self::default()
        };
        if columns.kind == AmountKind::Share
            && columns.total.is_none()
            && options.capacity.is_none()
        {
            return Err(format!(
                "`{}` is a share of the memory: give the memory of the GPU with `--capacity 80GiB`",
                header[used]
            ));
        }
        columns.set_units(&named, &name, options);
        if memory.len() > 1 {
            columns.wide = memory
                .iter()
                .map(|at| columns.series_column(header, *at, options))
                .collect();
        }
        Ok(columns)
    }

    fn series_column(&self, header: &[&str], at: usize, options: &LogOptions) -> MemoryColumn {
        let name = MemoryName::new(header[at]);
        MemoryColumn {
            at,
            unit: options.unit.or(name.unit).unwrap_or(self.used_unit),
            gpu: name.gpu().map(Text::new),
            label: Text::new(header[at]),
        }
    }

    /// Sets the units of bare numbers. Where nothing tells one, a capacity does: each unit makes
    /// another amount of it, and only one is that of a GPU.
    fn set_units(&mut self, named: &NamedRows<'_>, name: &MemoryName, options: &LogOptions) {
        let rows = named.rows;
        let total_name = self.total.map(|at| MemoryName::new(named.header[at]));
        let own = options.unit.or(name.unit);
        let total_unit = options
            .unit
            .or(total_name.as_ref().and_then(|name| name.unit));
        let of_capacity = self
            .total
            .filter(|_| total_unit.is_none())
            .and_then(|at| unit_of_capacity(rows.highest_number(at)?));
        let is_short = named.names[self.used] == "used";
        let usual = name.usual_unit();
        let is_sized = rows.all(self.used, is_sized);
        self.has_no_unit = own.is_none()
            && usual.is_none()
            && !is_sized
            && of_capacity.or(total_unit).is_none()
            && self.kind != AmountKind::Share;
        let guessed = own.or(of_capacity).or(total_unit).or(usual);
        // nvidia-smi's own short name is in MiB, but others write it too.
        let default_unit = if is_short { 1 << 20 } else { 1 };
        self.used_unit = guessed.unwrap_or(default_unit);
        self.total_unit = total_unit.or(of_capacity).or(own).or(usual).unwrap_or(1);
        if let (None, Some(unit), Some(total)) = (own, of_capacity, self.total)
            && usual != Some(unit)
        {
            self.guess = Some(format!(
                "`{}` has no unit: taken for {}, because `{}` is the memory of a GPU then",
                named.header[self.used],
                unit_name(unit),
                named.header[total]
            ));
        }
        self.thousands = rows.thousands(self.used, self.used_unit);
        self.highest_number = rows.highest_number(self.used);
    }
}

/// Returns the unit that a number of memory in use may have, by its size.
pub(super) fn unit_by_size(number: f64) -> u64 {
    match number {
        ..1e3 => 1 << 30,
        ..1e6 => 1 << 20,
        ..1e9 => 1 << 10,
        _ => 1,
    }
}

/// Returns the unit of a number that is the memory of a GPU: 81,559 is in MiB.
pub(super) fn unit_of_capacity(number: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "powers of two")]
    let is_capacity = |unit: &u64| CAPACITIES.contains(&(number * *unit as f64));
    [1 << 30, 1 << 20, 1 << 10, 1].into_iter().find(is_capacity)
}

/// The bytes that a GPU has: from 512 MiB, below which a unit is wrong, to 512 GiB.
pub(super) const CAPACITIES: std::ops::Range<f64> = 536_870_912.0..549_755_813_888.0;

pub(super) fn unit_name(unit: u64) -> &'static str {
    match unit {
        1 => "bytes",
        0x400 => "KiB",
        0x10_0000 => "MiB",
        0x4000_0000 => "GiB",
        1_000_000 => "MB",
        1_000_000_000 => "GB",
        _ => "its unit",
    }
}

impl LogColumns {
    /// Returns a column's cell of a row. Commas in a process name add cells.
    pub(super) fn cell<'a>(&self, column: usize, cells: Cells<'a>) -> &'a str {
        let added = cells.len().saturating_sub(self.count);
        cells.get(if self.name.is_some_and(|name| column > name) {
            column.saturating_add(added)
        } else {
            column
        })
    }

    /// Returns the time of a row, in milliseconds; of steps, a thousand for each.
    pub(super) fn time(&self, cells: Cells<'_>, times: &mut LogTimes) -> Option<i64> {
        let cell = self.cell(self.time, cells);
        match (self.axis, self.date) {
            (LogAxis::Time, None) => times.time(cell, self.time_unit),
            (LogAxis::Time, Some(date)) => times.time(
                &format!("{} {cell}", self.cell(date, cells)),
                self.time_unit,
            ),
            (LogAxis::Steps(_), _) => step_time(cell.parse().ok()?),
            (LogAxis::None, _) => self.amount(self.used, self.used_unit, cells).map(|_| 0),
        }
    }

    /// Returns the amount in a cell of memory.
    pub(super) fn amount(
        &self,
        column: usize,
        unit: u64,
        cells: Cells<'_>,
    ) -> Option<Reading<Bytes>> {
        let cell = self.cell(column, cells);
        match self.thousands {
            None => cells::amount(cell, unit),
            Some(separator) => cells::amount(&cell.replace(separator, ""), unit),
        }
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
}

/// Returns the place of a step on the axis: a thousand for each step.
pub(super) fn step_time(step: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "the step is small")]
    (step.abs() < 1e13).then(|| (step * 1000.0).round() as i64)
}

/// Whether a cell is an amount with a unit of bytes.
pub(super) fn is_sized(cell: &str) -> bool {
    let is_bytes = |cell: &str| matches!(cells::amount(cell, 1), Some(Ok(_)));
    let ends_with_unit = cell.ends_with(['B', 'G', 'M', 'K', 'T', 'b']) || cell.ends_with("bytes");
    ends_with_unit && is_bytes(cell)
}
