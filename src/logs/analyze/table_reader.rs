//! Reads the lines of a table: a header, rows, or rows without a header, whose columns are guessed.

use std::borrow::Cow;
use std::rc::Rc;

use super::cells::{self, CellSplitter, Cells};
use super::columns::{self, AmountKind, LogAxis, LogColumns};
use super::dates::LogTimes;
use super::log_options::LogOptions;
use super::log_samples::LogSamples;
use super::series::LogSeries;
use super::unreadable::UnreadableReason;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::snapshot::{Missing, Reading};

#[derive(Debug, Default)]
pub(super) struct TableReader {
    options: LogOptions,
    pub(super) columns: Option<Rc<LogColumns>>,
    /// The latest header, and the number of its line.
    header: Option<(u64, Vec<String>)>,
    /// The character between two cells, known from the header or the first row.
    separator: Option<char>,
    splitter: CellSplitter,
    pub(super) times: LogTimes,
    /// Lines with their numbers, kept until there are enough of them to know the columns.
    pending: Vec<(u64, String)>,
    /// The lines of a cell in quotes that goes on.
    open_cell: Vec<(u64, String)>,
    /// The room for the key of a row.
    key: String,
    /// Why the last header cannot be used. Its rows must not be guessed.
    pub(super) header_error: Option<String>,
    /// The columns of memory that were read, by name.
    pub(super) memory_names: Vec<Text>,
    /// Whether a row was read whose columns have no unit of memory.
    pub(super) has_no_unit: bool,
    pub(super) axis: LogAxis,
    /// Whether a header tells the unit of times.
    pub(super) has_time_unit: bool,
    /// The highest bare number of memory in the first rows.
    pub(super) highest_number: f64,
    pub(super) doubts: Vec<String>,
}

/// The result of reading a line.
pub(super) enum TextOutcome {
    /// The line was read, or waits.
    Read,
    /// These lines are of no table.
    NotTable(Vec<(u64, String)>),
}

impl TableReader {
    pub(super) fn new(options: LogOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Reads a line that is not empty. `is_text` says whether lines of text were read before:
    /// then a line is a row only below a header.
    pub(super) fn line(
        &mut self,
        number: u64,
        line: &str,
        is_text: bool,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        let mut splitter = std::mem::take(&mut self.splitter);
        let outcome = if self.open_cell.is_empty() && !line.contains('"') {
            self.whole_line(number, line, is_text, &mut splitter, samples)
        } else {
            self.quoted_line(number, line, is_text, &mut splitter, samples)
        };
        self.splitter = splitter;
        outcome
    }

    /// Joins the lines of a cell in quotes. A quote that is never closed is a character like others.
    fn quoted_line(
        &mut self,
        number: u64,
        line: &str,
        is_text: bool,
        splitter: &mut CellSplitter,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        /// Lines of one cell.
        const MOST: usize = 64;
        let has_odd_quotes = !line
            .bytes()
            .filter(|byte| *byte == b'"')
            .count()
            .is_multiple_of(2);
        if self.open_cell.is_empty() {
            if has_odd_quotes && self.ends_in_cell(line, splitter) {
                self.open_cell.push((number, line.to_owned()));
                return TextOutcome::Read;
            }
            return self.whole_line(number, line, is_text, splitter, samples);
        }
        self.open_cell.push((number, line.to_owned()));
        if !has_odd_quotes && self.open_cell.len() < MOST {
            return TextOutcome::Read;
        }
        let lines = std::mem::take(&mut self.open_cell);
        if has_odd_quotes {
            let joined: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
            let joined = joined.join(" ");
            return self.whole_line(number, &joined, is_text, splitter, samples);
        }
        self.each_alone(lines, is_text, splitter, samples)
    }

    fn each_alone(
        &mut self,
        lines: Vec<(u64, String)>,
        is_text: bool,
        splitter: &mut CellSplitter,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        let mut others = Vec::new();
        for (number, line) in lines {
            if let TextOutcome::NotTable(lines) =
                self.whole_line(number, &line, is_text, splitter, samples)
            {
                others.extend(lines);
            }
        }
        if others.is_empty() {
            TextOutcome::Read
        } else {
            TextOutcome::NotTable(others)
        }
    }

    /// Whether a line with an odd number of quotes ends within a cell: its last quote is at the
    /// beginning of one, and the row has too few cells.
    fn ends_in_cell(&self, line: &str, splitter: &mut CellSplitter) -> bool {
        let separator = self.separator.unwrap_or(',');
        let Some((before, _)) = line.rsplit_once('"') else {
            return false;
        };
        let is_at_begin = before.trim_end().ends_with(separator) || before.trim().is_empty();
        let count = match (&self.columns, &self.header) {
            (Some(columns), _) => columns.count,
            (None, Some((_, header))) => header.len(),
            (None, None) => return false,
        };
        is_at_begin && splitter.split(before, separator).len() < count.max(1) + 1
    }

    /// Reads a header or a row.
    fn whole_line(
        &mut self,
        number: u64,
        line: &str,
        is_text: bool,
        splitter: &mut CellSplitter,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        /// The number of rows from which the columns are known.
        const ROWS_TO_GUESS: usize = 64;
        if let (Some(columns), Some(separator)) = (self.columns.clone(), self.separator) {
            let cells = split(line, separator, columns.thousands, splitter);
            let time = columns.time(cells, &mut self.times);
            if time.is_some() {
                self.row(number, cells, &columns, time, samples);
                return TextOutcome::Read;
            }
        }
        let own_separator = cells::separator(line);
        let names = splitter.split(line, own_separator).to_vec();
        let had_header = self.columns.is_some() || self.header.is_some();
        let is_header = columns::is_header(&names, had_header)
            || !had_header && self.options.names_one_of(&names);
        if is_header && (!is_text || names.len() > 1) {
            return self.header_line(number, &names, own_separator, samples);
        }
        if is_text && self.columns.is_none() && self.header.is_none() {
            return TextOutcome::NotTable(vec![(number, line.to_owned())]);
        }
        let separator = self.separator.unwrap_or(own_separator);
        let cells = split(line, separator, None, splitter);
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
            self.row(number, cells, &columns, None, samples);
            return TextOutcome::Read;
        }
        self.pending.push((number, line.to_owned()));
        if self.pending.len() >= ROWS_TO_GUESS {
            return self.know_columns(splitter, samples);
        }
        TextOutcome::Read
    }

    /// Takes the header of `nvidia-smi dmon` or `pmon`, whose line begins with `#`.
    pub(super) fn marked_header(
        &mut self,
        number: u64,
        whole: &str,
        is_text: bool,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        let line = whole.trim_start_matches('#').trim();
        let separator = if line.contains(',') { ',' } else { ' ' };
        let names: Vec<&str> = if separator == ',' {
            line.split(',').map(str::trim).collect()
        } else {
            line.split_whitespace().collect()
        };
        let has = |name: &str| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        if !has("gpu") || !(has("fb") || has("pid") || has("sm") || has("pwr")) {
            // It may be the time of the lines below it.
            if is_text || self.columns.is_some() {
                return TextOutcome::NotTable(vec![(number, whole.to_owned())]);
            }
            self.pending.push((number, whole.to_owned()));
            return TextOutcome::Read;
        }
        if !has("fb") {
            self.header_error.get_or_insert_with(|| {
                "the table has no memory in use: record with `-s m` or `-s um`".to_owned()
            });
            return TextOutcome::Read;
        }
        self.header_line(number, &names, separator, samples)
    }

    fn header_line(
        &mut self,
        number: u64,
        names: &[&str],
        separator: char,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        let is_same = self
            .header
            .as_ref()
            .is_some_and(|(_, known)| known.iter().map(String::as_str).eq(names.iter().copied()));
        if is_same {
            return TextOutcome::Read;
        }
        let mut splitter = CellSplitter::default();
        let outcome = if self.pending.is_empty() && self.header.is_none() || self.columns.is_some()
        {
            TextOutcome::Read
        } else {
            self.know_columns(&mut splitter, samples)
        };
        self.header = Some((
            number,
            names.iter().map(|name| (*name).to_owned()).collect(),
        ));
        (self.columns, self.separator) = (None, Some(separator));
        outcome
    }

    /// Finds the columns by the header and the lines that wait, and reads these.
    fn know_columns(
        &mut self,
        splitter: &mut CellSplitter,
        samples: &mut LogSamples,
    ) -> TextOutcome {
        let separator = |line: &str| self.separator.unwrap_or_else(|| cells::separator(line));
        let split_rows: Vec<Vec<String>> = self
            .pending
            .iter()
            .map(|(_, line)| {
                let cells = split(line, separator(line), None, splitter).to_vec();
                cells.into_iter().map(str::to_owned).collect()
            })
            .collect();
        let columns = match self.columns_of_header(&split_rows) {
            Some(Ok(columns)) => Some(columns),
            Some(Err(reason)) => {
                if let Some((number, _)) = &self.header {
                    samples
                        .unreadable
                        .add(*number, UnreadableReason::new(reason.clone()));
                }
                self.header_error = Some(reason);
                None
            }
            None => {
                self.header = None;
                let needs_no_times = self.options.interval.is_some();
                let usual = if needs_no_times && split_rows.iter().all(|row| row.len() == 1) {
                    split_rows
                } else {
                    usual_rows(split_rows)
                };
                LogColumns::guess(&usual, &self.options).filter(|_| self.header_error.is_none())
            }
        };
        let pending = std::mem::take(&mut self.pending);
        let Some(columns) = columns else {
            self.separator = self.header.as_ref().and(self.separator);
            let Some(reason) = &self.header_error else {
                return TextOutcome::NotTable(pending);
            };
            for (number, _) in &pending {
                samples
                    .unreadable
                    .add(*number, UnreadableReason::new(reason.clone()));
            }
            return TextOutcome::Read;
        };
        let columns = Rc::new(columns);
        self.take_names(&columns);
        for (number, line) in pending {
            if line.starts_with('#') {
                continue;
            }
            let separator = self.separator.unwrap_or_else(|| cells::separator(&line));
            let cells = split(&line, separator, columns.thousands, splitter);
            let time = columns.time(cells, &mut self.times);
            self.row(number, cells, &columns, time, samples);
        }
        self.columns = Some(columns);
        TextOutcome::Read
    }

    /// Returns the columns of the header that waits; `None` if there is none, or the lines below
    /// it are no rows of it.
    fn columns_of_header(&self, split_rows: &[Vec<String>]) -> Option<Result<LogColumns, String>> {
        let (_, header) = self.header.as_ref()?;
        let names: Vec<&str> = header.iter().map(String::as_str).collect();
        let is_sure = columns::is_header(&names, true) || self.options.names_one_of(&names);
        let is_row = |row: &&Vec<String>| {
            row.len() >= names.len()
                && row
                    .iter()
                    .any(|cell| cell.starts_with(|first: char| first.is_ascii_digit()))
        };
        let rows: Vec<Vec<String>> = split_rows.iter().filter(is_row).cloned().collect();
        if rows.is_empty() && !is_sure {
            return None;
        }
        Some(LogColumns::of_header(&names, &rows, &self.options))
            .filter(|columns| is_sure || columns.is_ok() || rows.len() * 2 > split_rows.len())
    }

    fn take_names(&mut self, columns: &LogColumns) {
        let names = columns.wide.iter().map(|column| &column.label).chain(
            columns
                .memory_name
                .iter()
                .filter(|_| columns.wide.is_empty()),
        );
        for name in names {
            if !self.memory_names.contains(name) {
                self.memory_names.push(name.clone());
            }
        }
        self.has_no_unit |= columns.has_no_unit;
        if let Some(number) = columns.highest_number {
            self.highest_number = self.highest_number.max(number);
        }
        self.doubts.extend(columns.doubt.clone());
        self.axis = columns.axis;
        self.has_time_unit |= columns.time_unit.is_some();
    }

    /// Reads the lines that wait at the end of the log.
    pub(super) fn finish(&mut self, is_text: bool, samples: &mut LogSamples) -> TextOutcome {
        let mut splitter = std::mem::take(&mut self.splitter);
        let mut others = Vec::new();
        let open = std::mem::take(&mut self.open_cell);
        if let TextOutcome::NotTable(lines) = self.each_alone(open, is_text, &mut splitter, samples)
        {
            others.extend(lines);
        }
        let waits = !self.pending.is_empty() || self.header.is_some() && self.columns.is_none();
        if waits && let TextOutcome::NotTable(lines) = self.know_columns(&mut splitter, samples) {
            others.extend(lines);
        }
        TextOutcome::NotTable(others)
    }

    /// Reads a row. `time` is its time, if that was parsed before.
    fn row(
        &mut self,
        number: u64,
        cells: Cells<'_>,
        columns: &LogColumns,
        time: Option<i64>,
        samples: &mut LogSamples,
    ) {
        if let Err(reason) = self.read_row(number, cells, columns, time, samples) {
            samples.unreadable.add(number, reason);
        }
    }

    /// Adds the sample of a row, or returns why it cannot be read.
    fn read_row(
        &mut self,
        number: u64,
        cells: Cells<'_>,
        columns: &LogColumns,
        time: Option<i64>,
        samples: &mut LogSamples,
    ) -> Result<(), UnreadableReason> {
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
        let time = time.or_else(|| columns.time(cells, &mut self.times));
        let time = time.ok_or_else(|| {
            UnreadableReason::of_cell(UnreadableReason::NO_TIME, cell(columns.time))
        })?;
        if !columns.wide.is_empty() {
            return self.read_wide_row(number, cells, columns, time, samples);
        }
        let used = if columns.kind == AmountKind::Share {
            self.share(columns, columns.used, cells)
        } else {
            columns.amount(columns.used, columns.used_unit, cells)
        };
        let used = used
            .ok_or_else(|| UnreadableReason::of_cell("no amount of memory", cell(columns.used)))?;
        let pid = |column: usize| {
            cell(column)
                .parse()
                .map_err(|_| UnreadableReason::of_cell("no PID", cell(column)))
        };
        let pid: Option<u32> = columns.pid.map(pid).transpose()?;
        let total = columns
            .total
            .and_then(|at| columns.amount(at, columns.total_unit, cells)?.ok());
        let capacity = total.or(self.options.capacity);
        let used = match (columns.kind, used, capacity) {
            (AmountKind::Free, Ok(free), Some(total)) => Ok(total.saturating_sub(free)),
            (AmountKind::Free, ..) => Err(Missing::Unsupported),
            (_, used, _) => used,
        };
        let place = self.series_of_row(columns, pid, cell, samples);
        let series = &mut samples.series[place];
        if let Some(name) = columns.name.map(cell) {
            series.rename(number, name);
        }
        series.total = total.or(series.total);
        let Ok(used) = used else {
            samples.missing += 1;
            return Ok(());
        };
        series
            .pytorch
            .extend(columns.pytorch(cells).map(|parts| (number, parts)));
        let time = if columns.axis == LogAxis::None {
            i64::from(samples.number(place)) * 1000
        } else {
            time
        };
        samples.add(time, number, place, used, None);
        Ok(())
    }

    /// Returns the memory in use of a row that tells its share.
    fn share(
        &self,
        columns: &LogColumns,
        column: usize,
        cells: Cells<'_>,
    ) -> Option<Reading<Bytes>> {
        let cell = columns.cell(column, cells);
        if cells::is_missing(cell) {
            return Some(Err(Missing::Unsupported));
        }
        let share: f64 = cell.trim_end_matches('%').trim_end().parse().ok()?;
        let total = columns
            .total
            .and_then(|at| columns.amount(at, columns.total_unit, cells)?.ok());
        let capacity = self.options.capacity.or(total)?;
        #[expect(clippy::cast_precision_loss, reason = "an amount of memory")]
        let bytes = share / 100.0 * capacity.0 as f64;
        (0.0..=100.5)
            .contains(&share)
            .then(|| Bytes::parse_number(&format!("{bytes:.0}"), 1).ok_or(Missing::Unsupported))
    }

    /// Adds the samples of a row with a column for each series.
    fn read_wide_row(
        &mut self,
        number: u64,
        cells: Cells<'_>,
        columns: &LogColumns,
        time: i64,
        samples: &mut LogSamples,
    ) -> Result<(), UnreadableReason> {
        let (mut read, mut bad) = (0, None);
        for column in &columns.wide {
            let used = if columns.kind == AmountKind::Share {
                self.share(columns, column.at, cells)
            } else {
                columns.amount(column.at, column.unit, cells)
            };
            let Some(used) = used else {
                bad.get_or_insert(column.at);
                continue;
            };
            read += 1;
            let Ok(used) = used else {
                samples.missing += 1;
                continue;
            };
            let place = samples.place(column.label.as_str(), || LogSeries {
                gpu: column.gpu.clone(),
                is_index: column.gpu.is_some(),
                label: Some(column.label.clone()).filter(|_| column.gpu.is_none()),
                ..LogSeries::default()
            });
            let time = if columns.axis == LogAxis::None {
                i64::from(samples.number(place)) * 1000
            } else {
                time
            };
            samples.add(time, number, place, used, None);
        }
        match bad {
            Some(at) if read == 0 => Err(UnreadableReason::of_cell(
                "no amount of memory",
                columns.cell(at, cells),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the index of the series of a row. Without a column for the GPU, rows with different
    /// capacities are of different GPUs.
    fn series_of_row<'a>(
        &mut self,
        columns: &LogColumns,
        pid: Option<u32>,
        cell: impl Fn(usize) -> &'a str,
        samples: &mut LogSamples,
    ) -> usize {
        let host = columns.host.map(&cell);
        let gpu = columns.index.or(columns.gpu).map(&cell);
        let is_total_sure = gpu.is_none() && columns.memory_name.is_some();
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
        samples.place(&self.key, || LogSeries {
            host: host.map(Text::new),
            gpu: gpu.map(|gpu| Text::new(gpu_index(gpu))),
            is_index: columns.index.is_some()
                && gpu.is_some_and(|gpu| gpu_index(gpu).bytes().all(|byte| byte.is_ascii_digit())),
            uuid: columns.gpu.map(|column| Text::new(cell(column))),
            pid,
            is_pytorch_only: columns
                .pytorch
                .is_some_and(|[(reserved, _), _]| reserved == columns.used),
            ..LogSeries::default()
        })
    }
}

/// Returns the number of a GPU that rocm-smi names `card0`.
fn gpu_index(gpu: &str) -> &str {
    ["card", "gpu", "cuda:", "GPU"]
        .iter()
        .filter_map(|prefix| gpu.strip_prefix(prefix))
        .find(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
        .unwrap_or(gpu)
}

/// Returns the rows with a time that have as many cells as most of them: most lines with a time are
/// rows.
fn usual_rows(split_rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let mut times = LogTimes::default();
    let dated: Vec<Vec<String>> = split_rows
        .into_iter()
        .filter(|cells| cells.iter().any(|cell| times.time(cell, None).is_some()))
        .collect();
    let mut lengths: Vec<usize> = dated.iter().map(Vec::len).collect();
    lengths.sort_unstable();
    let usual = lengths.get(lengths.len() / 2).copied();
    dated
        .into_iter()
        .filter(|cells| Some(cells.len()) == usual)
        .collect()
}

/// Splits a line into cells. Commas are decimal between semicolons.
fn split<'a>(
    line: &str,
    separator: char,
    thousands: Option<char>,
    splitter: &'a mut CellSplitter,
) -> Cells<'a> {
    let line = if separator == ';' && thousands != Some(',') {
        cells::with_decimal_points(line)
    } else {
        Cow::Borrowed(line)
    };
    splitter.split(&line, separator)
}
