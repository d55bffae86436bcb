//! Reads a log line by line. A line is a header, a row, a JSON line of gputop, or unreadable for a reason.

use std::borrow::Cow;
use std::collections::HashMap;

use super::columns::{self, LogColumns};
use super::gputop_lines::{GputopLines, SnapshotSample};
use super::series::{JudgedSeries, LogSample, LogSeries};
use super::{cells, time_order};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::host_tag::HostTag;
use crate::protocol::snapshot::{Missing, Reading};

#[derive(Debug, Default)]
pub(super) struct LogReader {
    capacity: Option<Bytes>,
    lines: u64,
    columns: Option<LogColumns>,
    /// The character between two cells, known from the header or the first row.
    separator: Option<char>,
    /// Rows with their line numbers, kept until there are enough of them to guess the columns.
    pending: Vec<(u64, Vec<String>)>,
    /// The time of each row in milliseconds, and its line number.
    times: Vec<i64>,
    line_numbers: Vec<u64>,
    /// Whether the latest time was a date and time of day, not a time since the start.
    has_dates: bool,
    series: Vec<LogSeries>,
    series_by_key: HashMap<(String, Option<u32>), usize>,
    unreadable: UnreadableLines,
    missing: u64,
    gputop_lines: GputopLines,
}

#[derive(Debug, Default)]
pub(super) struct UnreadableLines {
    pub(super) count: u64,
    /// Line number and reason of the first unreadable lines.
    pub(super) first: Vec<(u64, Text)>,
}

#[derive(Debug)]
pub(super) struct AnalyzedLog {
    pub(super) lines: u64,
    pub(super) unreadable: UnreadableLines,
    /// The number of missing readings: rows with a cell such as `[N/A]`, and samples of gputop's lines without a value.
    pub(super) missing: u64,
    pub(super) notes: Vec<String>,
    pub(super) series: Vec<JudgedSeries>,
}

impl LogReader {
    pub(super) fn new(capacity: Option<Bytes>) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(super) fn line(&mut self, line: &str) {
        /// The number of rows from which the columns are guessed when there is no header.
        const ROWS_TO_GUESS: usize = 64;
        self.lines += 1;
        // Byte order marks of UTF-8, and of UTF-16 after lossy decoding.
        let line = line.trim_start_matches(['\u{feff}', '\u{fffd}']).trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if line.starts_with('{') {
            return self.gputop_line(line);
        }
        let own_separator = cells::separator(line);
        let cells = cells::split(line, own_separator);
        if columns::is_header(&cells, self.columns.is_some()) {
            match LogColumns::of_header(&cells) {
                Ok(columns) => {
                    self.columns = Some(columns);
                    self.separator = Some(own_separator);
                }
                Err(reason) => self.add_unreadable(self.lines, reason),
            }
            return;
        }
        let separator = self.separator.unwrap_or(own_separator);
        let with_points = if separator == ';' { cells::with_decimal_points(line) } else { Cow::Borrowed(line) };
        let is_split = separator == own_separator && matches!(with_points, Cow::Borrowed(_));
        let cells = if is_split { cells } else { cells::split(&with_points, separator) };
        // Only a row shows the separator: text before the first row has no time.
        if self.separator.is_none() && cells.iter().any(|cell| cells::time(cell, None).is_some()) {
            self.separator = Some(separator);
        }
        if self.columns.is_some() {
            return self.row(self.lines, &cells);
        }
        self.pending.push((self.lines, cells.iter().map(|cell| (*cell).to_owned()).collect()));
        if self.pending.len() >= ROWS_TO_GUESS {
            self.guess_columns();
        }
    }

    fn gputop_line(&mut self, line: &str) {
        let mut gputop_lines = std::mem::take(&mut self.gputop_lines);
        let tag = if line.contains("\"source\":{") { HostTag::of(line.as_bytes()) } else { None };
        match gputop_lines.apply(tag.as_ref().map_or(0, |tag| tag.host_key), line) {
            Ok((time, samples)) => {
                for sample in samples {
                    let Some(used) = sample.used else {
                        self.missing += 1;
                        continue;
                    };
                    let at = self.series_of_sample(tag.as_ref(), &sample);
                    let pytorch = sample.reserved.map(|reserved| [reserved.sum(), reserved.allocated]);
                    self.add_sample(self.lines, time, at, used, pytorch, sample.limit);
                    let allocator = &mut self.series[at].allocator;
                    *allocator = sample.reserved.or(*allocator);
                }
            }
            Err(reason) => self.add_unreadable(self.lines, reason),
        }
        self.gputop_lines = gputop_lines;
    }

    /// Returns the index of the series of a GPU or process. A reused PID has a series of its own.
    fn series_of_sample(&mut self, tag: Option<&HostTag>, sample: &SnapshotSample<'_>) -> usize {
        let host_key = tag.map_or(0, |tag| tag.host_key);
        let (uuid, index) = (sample.gpu.uuid.0.as_str(), sample.gpu.facts.index);
        let id = sample.process.map(|(id, _)| id);
        let key = format!("{host_key} {uuid} {:?}", id.and_then(|id| id.start_ticks));
        *self.series_by_key.entry((key, id.map(|id| id.pid))).or_insert_with(|| {
            self.series.push(LogSeries {
                host: tag.and_then(|tag| tag.name.clone()),
                gpu: Some(Text::new(index.to_string())),
                is_index: true,
                uuid: Some(sample.gpu.uuid.0.clone()),
                pid: id.map(|id| id.pid),
                name: sample.process.and_then(|(_, process)| process?.facts.comm.clone().ok()),
                total: sample.gpu.load.memory_total.ok(),
                ..LogSeries::default()
            });
            self.series.len() - 1
        })
    }

    fn guess_columns(&mut self) {
        // Most lines with a time are rows, and rows have the same number of cells.
        let has_time = |cells: &&Vec<String>| cells.iter().any(|cell| cells::time(cell, None).is_some());
        let dated: Vec<&Vec<String>> = self.pending.iter().map(|(_, cells)| cells).filter(has_time).collect();
        let mut lengths: Vec<usize> = dated.iter().map(|cells| cells.len()).collect();
        lengths.sort_unstable();
        let usual = lengths.get(lengths.len() / 2);
        let rows: Vec<Vec<String>> = dated.into_iter().filter(|cells| Some(&cells.len()) == usual).cloned().collect();
        self.columns = LogColumns::guess(&rows);
        for (number, cells) in std::mem::take(&mut self.pending) {
            if self.columns.is_some() {
                let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
                self.row(number, &cells);
            } else {
                self.add_unreadable(number, "no column can be recognized as time and memory");
            }
        }
    }

    fn add_unreadable(&mut self, number: u64, reason: impl AsRef<str>) {
        /// Unreadable lines that are listed; the others are counted.
        const LISTED: usize = 5;
        self.unreadable.count += 1;
        if self.unreadable.first.len() < LISTED {
            self.unreadable.first.push((number, Text::new(reason.as_ref())));
        }
    }

    fn row(&mut self, number: u64, cells: &[&str]) {
        match self.read_row(cells) {
            Ok((time, Ok(used), at)) => {
                let pytorch = self.pytorch(cells);
                self.add_sample(number, time, at, used, pytorch, None);
            }
            Ok((_, Err(_), _)) => self.missing += 1,
            Err(reason) => self.add_unreadable(number, reason),
        }
    }

    /// Adds a sample to the series at that index. Without a `limit`, the limit follows from the other processes.
    fn add_sample(
        &mut self,
        number: u64,
        time: i64,
        at: usize,
        used: Bytes,
        pytorch: Option<[Bytes; 2]>,
        limit: Option<Bytes>,
    ) {
        let row = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        self.times.push(time);
        self.line_numbers.push(number);
        let limit = limit.or_else(|| self.limit(at));
        let series = &mut self.series[at];
        series.samples.push(LogSample { row, used, limit });
        series.pytorch.extend(pytorch.map(|parts| (row, parts)));
    }

    fn pytorch(&self, cells: &[&str]) -> Option<[Bytes; 2]> {
        let columns = self.columns.as_ref()?;
        let bytes = |(at, unit)| cells::amount(cells.get(columns.cell_index(at, cells.len()))?, unit)?.ok();
        let [reserved, allocated] = columns.pytorch?.map(bytes);
        reserved.zip(allocated).filter(|(reserved, allocated)| reserved >= allocated).map(<[Bytes; 2]>::from)
    }

    /// Returns the time, the memory in use and the index of the series, or why the row cannot be read.
    fn read_row(&mut self, cells: &[&str]) -> Result<(i64, Reading<Bytes>, usize), String> {
        let Some(columns) = &self.columns else { return Err("no columns are known".to_owned()) };
        let quote = |cell: &str| Text::new(cell.chars().take(40).collect::<String>());
        // A process name may contain commas.
        let has_too_many = cells.len() > columns.count && columns.name.is_none();
        if cells.len() < columns.count || has_too_many {
            let plural = if cells.len() == 1 { "" } else { "s" };
            let row = quote(&cells.join(", "));
            return Err(format!("{} cell{plural} instead of {}: {row}", cells.len(), columns.count));
        }
        let cell = |at: usize| cells[columns.cell_index(at, cells.len())];
        let time = cells::time(cell(columns.time), columns.time_unit);
        let time = time.ok_or_else(|| format!("no time: {}", quote(cell(columns.time))))?;
        self.has_dates = cell(columns.time).contains([' ', 'T']);
        let used = cells::amount(cell(columns.used), columns.used_unit);
        let used = used.ok_or_else(|| format!("no amount of memory: {}", quote(cell(columns.used))))?;
        let pid = columns.pid.map(|at| cell(at).parse().map_err(|_| format!("no PID: {}", quote(cell(at)))));
        let pid = pid.transpose()?;
        let gpu = columns.index.or(columns.gpu).map(cell);
        let total = columns.total.and_then(|at| cells::amount(cell(at), columns.total_unit)?.ok());
        let used = match (columns.is_free, used, total) {
            (true, Ok(free), Some(total)) => Ok(total.saturating_sub(free)),
            (true, ..) => Err(Missing::Unsupported),
            (false, used, _) => used,
        };
        let name = columns.name.map(cell);
        let key = (gpu.unwrap_or_default().to_owned(), pid);
        if let (Some(_), Ok(used), Some(at)) = (pid, used, self.series_by_key.get(&key))
            && self.series[*at].is_other_process(&self.times, time, used, name)
        {
            self.series_by_key.remove(&key);
        }
        let at = *self.series_by_key.entry(key).or_insert_with(|| {
            self.series.push(LogSeries {
                gpu: gpu.map(Text::new),
                is_index: columns.index.is_some(),
                uuid: columns.gpu.map(|at| Text::new(cell(at))),
                pid,
                name: name.map(Text::new),
                is_pytorch_only: columns.pytorch.is_some_and(|[(reserved, _), _]| reserved == columns.used),
                ..LogSeries::default()
            });
            self.series.len() - 1
        });
        if let Some(name) = name {
            self.series[at].rename(name);
        }
        self.series[at].total = total.or(self.series[at].total);
        Ok((time, used, at))
    }

    /// Returns the amount at which a series runs out of memory: the capacity, less the memory of other processes.
    fn limit(&self, at: usize) -> Option<Bytes> {
        /// Milliseconds after which the latest sample of a process no longer counts.
        const STALE: u64 = 60_000;
        let own = &self.series[at];
        let capacity = self.capacity.or(own.total)?;
        if own.pid.is_none() {
            return Some(capacity);
        }
        let now = self.times.last()?;
        let is_recent = |sample: &&LogSample| now.abs_diff(self.times[sample.row as usize]) < STALE;
        let others = self.series.iter().enumerate().filter(|(other, series)| *other != at && series.gpu == own.gpu);
        let used = others.filter_map(|(_, series)| Some(series.samples.last().filter(is_recent)?.used));
        Some(capacity.saturating_sub(used.sum()))
    }

    pub(super) fn finish(mut self) -> AnalyzedLog {
        if !self.pending.is_empty() {
            self.guess_columns();
        }
        let mut notes: Vec<String> = self.columns.and_then(|columns| columns.guess).into_iter().collect();
        notes.extend(time_order::straighten(&mut self.times, &self.line_numbers, self.has_dates));
        let has_capacity = self.capacity.is_some() || self.series.iter().any(|series| series.total.is_some());
        if !has_capacity && !self.series.is_empty() {
            notes.push("the log has no memory capacity, so there is no forecast without --capacity".to_owned());
        }
        // A log of one host need not name it.
        if self.series.iter().all(|series| series.host == self.series[0].host) {
            self.series.iter_mut().for_each(|series| series.host = None);
        }
        let series = self.series.into_iter().filter(|series| !series.samples.is_empty());
        let series: Vec<_> = series.map(|series| series.judge(&self.times, self.capacity)).collect();
        let duplicates: u64 = series.iter().map(|judged| judged.duplicates).sum();
        if duplicates > 0 {
            notes.push(format!("{duplicates} samples have the time of another one: the highest of each time counts"));
        }
        AnalyzedLog { lines: self.lines, unreadable: self.unreadable, missing: self.missing, notes, series }
    }
}
