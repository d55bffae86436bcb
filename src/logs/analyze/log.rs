//! Reads a log line by line. A line is a header, a row, a JSON line of gputop, or unreadable for a
//! reason.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use super::cells::{self, CellSplitter, Cells};
use super::columns::{self, LogColumns};
use super::dates::LogTimes;
use super::gputop_lines::{GputopLines, SnapshotSample};
use super::judged::{self, JudgedSeries};
use super::log_span::LogSpan;
use super::other_formats::OtherFormat;
use super::rows::LogRow;
use super::series::LogSeries;
use super::unreadable::{UnreadableLines, UnreadableReason};
use super::{interleaved, limits, time_order};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::host_tag::HostTag;
use crate::protocol::snapshot::{Missing, Reading};

#[derive(Debug, Default)]
pub(super) struct LogReader {
    capacity: Option<Bytes>,
    lines: u64,
    columns: Option<Rc<LogColumns>>,
    /// The character between two cells, known from the header or the first row.
    separator: Option<char>,
    splitter: CellSplitter,
    times: LogTimes,
    /// Rows with their line numbers, kept until there are enough of them to guess the columns.
    pending: Vec<(u64, String)>,
    rows: Vec<LogRow>,
    series: Vec<LogSeries>,
    series_by_key: HashMap<String, usize>,
    /// The room for the key of a row.
    key: String,
    unreadable: UnreadableLines,
    missing: u64,
    gputop_lines: GputopLines,
    other_format: Option<OtherFormat>,
    /// Why the last header cannot be used. Its rows must not be guessed.
    header_error: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct AnalyzedLog {
    pub(super) lines: u64,
    pub(super) unreadable: UnreadableLines,
    /// The number of missing readings: rows with a cell such as `[N/A]`, and samples of gputop's
    /// lines without a value.
    pub(super) missing: u64,
    pub(super) notes: Vec<String>,
    pub(super) times: LogSpan,
    /// The memory of the GPU that the user gave.
    pub(super) given_capacity: Option<Bytes>,
    pub(super) series: Vec<JudgedSeries>,
    /// Why there is no series, and what to do about it.
    pub(super) problem: Option<LogProblem>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogProblem {
    /// The log has no memory over time.
    Empty(String),
    /// The rows are of several GPUs that cannot be told apart.
    Mixed(String),
}

impl LogProblem {
    pub(super) fn sentence(&self) -> &str {
        match self {
            Self::Empty(sentence) | Self::Mixed(sentence) => sentence,
        }
    }
}

impl LogReader {
    pub(super) fn new(capacity: Option<Bytes>) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.lines += 1;
        // Byte order marks of UTF-8, and of UTF-16 after lossy decoding.
        let line = line.trim_start_matches(['\u{feff}', '\u{fffd}']).trim();
        if line.is_empty() {
            return;
        }
        if self.rows.is_empty() && self.other_format.is_none() {
            self.other_format = OtherFormat::of_line(line);
        }
        match line.as_bytes()[0] {
            b'#' => {}
            b'{' => self.gputop_line(line),
            _ => {
                let mut splitter = std::mem::take(&mut self.splitter);
                self.text_line(line, &mut splitter);
                self.splitter = splitter;
            }
        }
    }

    /// Reads a header or a row.
    fn text_line(&mut self, line: &str, splitter: &mut CellSplitter) {
        /// The number of rows from which the columns are guessed when there is no header.
        const ROWS_TO_GUESS: usize = 64;
        let number = self.lines;
        if let (Some(columns), Some(separator)) = (self.columns.clone(), self.separator) {
            let cells = split(line, separator, splitter);
            let time = self
                .times
                .time(columns.cell(columns.time, cells), columns.time_unit);
            if time.is_some() {
                return self.row(number, cells, &columns, time);
            }
        }
        let own_separator = cells::separator(line);
        let header = splitter.split(line, own_separator).to_vec();
        if columns::is_header(&header, self.columns.is_some()) {
            match LogColumns::of_header(&header) {
                Ok(columns) => {
                    self.columns = Some(columns.into());
                    self.separator = Some(own_separator);
                }
                Err(reason) => {
                    self.header_error = Some(reason);
                    self.unreadable.add(number, UnreadableReason::new(reason));
                }
            }
            return;
        }
        let separator = self.separator.unwrap_or(own_separator);
        let cells = split(line, separator, splitter);
        // Only a row shows the separator: text before the first row has no time.
        if self.separator.is_none()
            && cells
                .to_vec()
                .iter()
                .any(|cell| self.times.time(cell, None).is_some())
        {
            self.separator = Some(separator);
        }
        if let Some(columns) = self.columns.clone() {
            return self.row(number, cells, &columns, None);
        }
        self.pending.push((number, line.to_owned()));
        if self.pending.len() >= ROWS_TO_GUESS {
            self.guess_columns(splitter);
        }
    }

    fn gputop_line(&mut self, line: &str) {
        let mut gputop_lines = std::mem::take(&mut self.gputop_lines);
        let tag = if line.contains("\"source\":{") {
            HostTag::parse(line.as_bytes())
        } else {
            None
        };
        match gputop_lines.apply(tag.as_ref().map_or(0, |tag| tag.host_key), line) {
            Ok((time, samples)) => {
                self.times.has_date = true;
                for sample in samples {
                    let Some(used) = sample.used else {
                        self.missing += 1;
                        continue;
                    };
                    let place = self.series_of_sample(tag.as_ref(), &sample);
                    self.rows
                        .push(LogRow::new(time, self.lines, place, used, sample.limit));
                    let pytorch = sample
                        .reserved
                        .map(|reserved| [reserved.sum(), reserved.allocated]);
                    let series = &mut self.series[place];
                    series
                        .pytorch
                        .extend(pytorch.map(|parts| (self.lines, parts)));
                    series.allocator = sample.reserved.or(series.allocator);
                }
            }
            Err(reason) => self
                .unreadable
                .add(self.lines, UnreadableReason::new(reason)),
        }
        self.times.zone = gputop_lines
            .zone(tag.as_ref().map_or(0, |tag| tag.host_key))
            .unwrap_or(self.times.zone);
        self.gputop_lines = gputop_lines;
    }

    /// Returns the index of the series of a GPU or process. A reused PID has a series of its own.
    fn series_of_sample(&mut self, tag: Option<&HostTag>, sample: &SnapshotSample<'_>) -> usize {
        let host_key = tag.map_or(0, |tag| tag.host_key);
        let (uuid, index) = (sample.gpu.uuid.0.as_str(), sample.gpu.facts.index);
        let id = sample.process.map(|(id, _)| id);
        let ids = id.map(|id| (id.pid, id.start_ticks));
        *self
            .series_by_key
            .entry(format!("{host_key} {uuid} {ids:?}"))
            .or_insert_with(|| {
                let name = sample
                    .process
                    .and_then(|(_, process)| process?.facts.comm.clone().ok());
                self.series.push(LogSeries {
                    host: tag.and_then(|tag| tag.name.clone()),
                    gpu: Some(Text::new(index.to_string())),
                    is_index: true,
                    uuid: Some(sample.gpu.uuid.0.clone()),
                    pid: id.map(|id| id.pid),
                    names: name.into_iter().map(|name| (0, name)).collect(),
                    total: sample.gpu.load.memory_total.ok(),
                    ..LogSeries::default()
                });
                self.series.len() - 1
            })
    }

    fn guess_columns(&mut self, splitter: &mut CellSplitter) {
        let separator = |line: &str| self.separator.unwrap_or_else(|| cells::separator(line));
        let pending: Vec<Vec<String>> = self
            .pending
            .iter()
            .map(|(_, line)| {
                split(line, separator(line), splitter)
                    .to_vec()
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            })
            .collect();
        // Most lines with a time are rows, and rows have the same number of cells.
        let mut times = LogTimes::default();
        let dated: Vec<Vec<String>> = pending
            .into_iter()
            .filter(|cells| cells.iter().any(|cell| times.time(cell, None).is_some()))
            .collect();
        let mut lengths: Vec<usize> = dated.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        let usual = lengths.get(lengths.len() / 2).copied();
        let rows: Vec<Vec<String>> = dated
            .into_iter()
            .filter(|cells| Some(cells.len()) == usual)
            .collect();
        self.columns = LogColumns::guess(&rows)
            .filter(|_| self.header_error.is_none())
            .map(Rc::new);
        for (number, line) in std::mem::take(&mut self.pending) {
            match &self.columns {
                Some(columns) => {
                    let columns = Rc::clone(columns);
                    let separator = self.separator.unwrap_or_else(|| cells::separator(&line));
                    self.row(number, split(&line, separator, splitter), &columns, None);
                }
                None => {
                    let reason = self
                        .header_error
                        .map_or(UnreadableReason::NO_COLUMNS, UnreadableReason::new);
                    self.unreadable.add(number, reason);
                }
            }
        }
    }

    /// Reads a row. `time` is its time, if that was parsed before.
    fn row(&mut self, number: u64, cells: Cells<'_>, columns: &LogColumns, time: Option<i64>) {
        match self.read_row(number, cells, columns, time) {
            Ok((time, Ok(used), place)) => {
                self.rows.push(LogRow::new(time, number, place, used, None));
                self.series[place]
                    .pytorch
                    .extend(columns.pytorch(cells).map(|parts| (number, parts)));
            }
            Ok((_, Err(_), _)) => self.missing += 1,
            Err(reason) => self.unreadable.add(number, reason),
        }
    }

    /// Returns the time, the memory in use and the index of the series, or why the row cannot be
    /// read.
    fn read_row(
        &mut self,
        number: u64,
        cells: Cells<'_>,
        columns: &LogColumns,
        time: Option<i64>,
    ) -> Result<(i64, Reading<Bytes>, usize), UnreadableReason> {
        let cell = |column: usize| columns.cell(column, cells);
        // A process name may contain commas.
        let has_too_many = cells.len() > columns.count && columns.name.is_none();
        if cells.len() < columns.count || has_too_many {
            let plural = if cells.len() == 1 { "" } else { "s" };
            let reason = format!("{} cell{plural} instead of {}", cells.len(), columns.count);
            return Err(UnreadableReason::of_cell(
                reason,
                &cells.to_vec().join(", "),
            ));
        }
        let time = time.or_else(|| self.times.time(cell(columns.time), columns.time_unit));
        let time = time.ok_or_else(|| {
            UnreadableReason::of_cell(UnreadableReason::NO_TIME, cell(columns.time))
        })?;
        let used = cells::amount(cell(columns.used), columns.used_unit);
        let used = used
            .ok_or_else(|| UnreadableReason::of_cell("no amount of memory", cell(columns.used)))?;
        let pid = |column: usize| {
            cell(column)
                .parse()
                .map_err(|_| UnreadableReason::of_cell("no PID", cell(column)))
        };
        let pid: Option<u32> = columns.pid.map(pid).transpose()?;
        let total_cell = columns.total.map(cell);
        let total = total_cell.and_then(|cell| cells::amount(cell, columns.total_unit)?.ok());
        let used = match (columns.is_free, used, total) {
            (true, Ok(free), Some(total)) => Ok(total.saturating_sub(free)),
            (true, ..) => Err(Missing::Unsupported),
            (false, used, _) => used,
        };
        let place = self.series_of_row(columns, pid, cell);
        let series = &mut self.series[place];
        if let Some(name) = columns.name.map(cell) {
            series.rename(number, name);
        }
        series.total = total.or(series.total);
        Ok((time, used, place))
    }

    /// Returns the index of the series of a row. Without a column for the GPU, rows with different
    /// capacities are of different GPUs.
    fn series_of_row<'a>(
        &mut self,
        columns: &LogColumns,
        pid: Option<u32>,
        cell: impl Fn(usize) -> &'a str,
    ) -> usize {
        let host = columns.host.map(&cell);
        let gpu = columns.index.or(columns.gpu).map(&cell);
        let is_total_sure = gpu.is_none() && columns.guess.is_none();
        let total = columns
            .total
            .filter(|_| is_total_sure)
            .map(&cell)
            .filter(|total| !cells::is_missing(total));
        self.key.clear();
        for part in [gpu, host, total, columns.pid.map(&cell)] {
            self.key.push_str(part.unwrap_or(""));
            self.key.push('\0');
        }
        if let Some(place) = self.series_by_key.get(&self.key) {
            return *place;
        }
        self.series.push(LogSeries {
            host: host.map(Text::new),
            gpu: gpu.map(Text::new),
            is_index: columns.index.is_some(),
            uuid: columns.gpu.map(|column| Text::new(cell(column))),
            pid,
            is_pytorch_only: columns
                .pytorch
                .is_some_and(|[(reserved, _), _]| reserved == columns.used),
            ..LogSeries::default()
        });
        self.series_by_key
            .insert(self.key.clone(), self.series.len() - 1);
        self.series.len() - 1
    }

    pub(super) fn finish(mut self) -> AnalyzedLog {
        if !self.pending.is_empty() {
            let mut splitter = std::mem::take(&mut self.splitter);
            self.guess_columns(&mut splitter);
        }
        let columns = self.columns.take();
        let mut notes: Vec<String> = columns
            .iter()
            .filter_map(|columns| columns.guess.clone())
            .collect();
        let turned_around = time_order::turn_around(&mut self.rows);
        let is_turned_around = turned_around.is_some();
        notes.extend(turned_around);
        notes.extend(time_order::straighten(&mut self.rows, self.times.has_date));
        let is_nvidia_smi = columns.is_some_and(|columns| columns.is_nvidia_smi);
        let mut problem = None;
        match interleaved::separate(
            &mut self.rows,
            &mut self.series,
            is_nvidia_smi,
            is_turned_around,
        ) {
            Ok(note) => notes.extend(note),
            Err(sentence) => {
                problem = Some(LogProblem::Mixed(sentence));
                (self.rows, notes) = (Vec::new(), Vec::new());
            }
        }
        if problem.is_none() && self.rows.is_empty() {
            problem = Some(LogProblem::Empty(self.why_empty()));
        }
        if !self.rows.is_sorted_by_key(|row| row.time) {
            self.rows.sort_by_key(|row| row.time);
        }
        limits::add_limits(&mut self.rows, &self.series, self.capacity);
        let has_capacity =
            self.capacity.is_some() || self.series.iter().any(|series| series.total.is_some());
        if !has_capacity && problem.is_none() {
            notes.push(
                "the log has no memory capacity, so there is no forecast without --capacity"
                    .to_owned(),
            );
        }
        // A log of one host need not name it.
        if self
            .series
            .iter()
            .all(|series| series.host == self.series[0].host)
        {
            self.series.iter_mut().for_each(|series| series.host = None);
        }
        let times = LogSpan::new(&self.rows, self.times.has_date.then_some(self.times.zone));
        let series = judged::judge_all(
            std::mem::take(&mut self.rows),
            &self.series,
            self.capacity,
            times,
        );
        let duplicates: u64 = series.iter().map(|judged| judged.duplicates).sum();
        if duplicates > 0 {
            notes.push(format!(
                "{duplicates} samples have the time of another one: the highest of each time counts"
            ));
        }
        let Self {
            lines,
            unreadable,
            missing,
            ..
        } = self;
        AnalyzedLog {
            lines,
            unreadable,
            missing,
            notes,
            times,
            given_capacity: self.capacity,
            series,
            problem,
        }
    }

    /// Says why the log has no rows, and what to record.
    fn why_empty(&self) -> String {
        match self.other_format {
            Some(format) => format.advice(),
            None if self.lines == 0 => "it is empty".to_owned(),
            None => self.unreadable.advice(self.missing),
        }
    }
}

/// Splits a line into cells. Commas are decimal between semicolons.
fn split<'a>(line: &str, separator: char, splitter: &'a mut CellSplitter) -> Cells<'a> {
    let line = if separator == ';' {
        cells::with_decimal_points(line)
    } else {
        Cow::Borrowed(line)
    };
    splitter.split(&line, separator)
}
