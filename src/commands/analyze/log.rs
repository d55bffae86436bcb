//! A log, line by line: each is a row of known columns, a header, or bad, and then it is said why.

use std::borrow::Cow;
use std::collections::HashMap;

use super::cells::{self, Amount};
use super::clock;
use super::columns::{self, Columns};
use super::series::{Judged, Row, Series};
use super::stream::{Sample, Stream};
use crate::base::text::Text;
use crate::base::units::Bytes;

/// Lines that are read before columns without a header are guessed.
const ENOUGH: usize = 64;

/// Bad lines that are named; the others are counted.
const NAMED: usize = 5;

/// A log that is being read.
#[derive(Debug)]
pub(super) struct Log {
    capacity: Option<Bytes>,
    lines: u64,
    columns: Option<Columns>,
    /// What stands between two cells, as the header or the first row has it.
    separator: Option<char>,
    /// Rows of which nobody knows yet what is in them, with the numbers of their lines.
    held: Vec<(u64, Vec<String>)>,
    /// When each row was written, in milliseconds, and its line.
    times: Vec<i64>,
    numbers: Vec<u64>,
    /// The last time was a date, which has a zone that nobody named.
    has_dates: bool,
    series: Vec<Series>,
    places: HashMap<(String, Option<u32>), usize>,
    bad: Bad,
    missing: u64,
    guess: Option<String>,
    stream: Stream,
}

/// Lines that could not be read.
#[derive(Debug, Default)]
pub(super) struct Bad {
    pub(super) count: u64,
    /// The first of them: line and reason.
    pub(super) named: Vec<(u64, Text)>,
}

/// What was found in a log.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) lines: u64,
    pub(super) bad: Bad,
    /// Readings that the driver did not give.
    pub(super) missing: u64,
    /// What one should know of how it was read.
    pub(super) notes: Vec<String>,
    pub(super) series: Vec<Judged>,
}

impl Log {
    pub(super) fn new(capacity: Option<Bytes>) -> Self {
        Self {
            capacity,
            lines: 0,
            columns: None,
            separator: None,
            held: Vec::new(),
            times: Vec::new(),
            numbers: Vec::new(),
            has_dates: false,
            series: Vec::new(),
            places: HashMap::new(),
            bad: Bad::default(),
            missing: 0,
            guess: None,
            stream: Stream::default(),
        }
    }

    /// Takes the next line.
    pub(super) fn line(&mut self, line: &str) {
        self.lines += 1;
        // A mark of the byte order, and what UTF-8 makes of UTF-16's.
        let line = line.trim_start_matches(['\u{feff}', '\u{fffd}']).trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if line.starts_with('{') {
            return self.own(line);
        }
        let own = cells::separator(line);
        let cells = cells::split(line, own);
        if columns::is_header(&cells, self.columns.is_some()) {
            match Columns::of_header(&cells) {
                Ok(columns) => {
                    self.guess.clone_from(&columns.guess);
                    self.columns = Some(columns);
                    self.separator = Some(own);
                }
                Err(why) => self.is_bad(self.lines, why),
            }
            return;
        }
        let separator = self.separator.unwrap_or(own);
        let with_points = if separator == ';' { cells::with_points(line) } else { Cow::Borrowed(line) };
        let is_split = separator == own && matches!(with_points, Cow::Borrowed(_));
        let cells = if is_split { cells } else { cells::split(&with_points, separator) };
        // What stands before the first row says nothing of it.
        if self.separator.is_none() && cells.iter().any(|it| cells::time(it, None).is_some()) {
            self.separator = Some(separator);
        }
        if self.columns.is_some() {
            self.row(self.lines, &cells);
            return;
        }
        self.held.push((self.lines, cells.iter().map(|it| (*it).to_owned()).collect()));
        if self.held.len() >= ENOUGH {
            self.settle();
        }
    }

    /// Takes a line of gputop's own.
    fn own(&mut self, line: &str) {
        let mut stream = std::mem::take(&mut self.stream);
        match stream.line(line) {
            Ok((time, samples)) => {
                for sample in samples {
                    let Some(held) = sample.held else {
                        self.missing += 1;
                        continue;
                    };
                    let place = self.place_of(&sample);
                    let parts = sample.reserved.map(|it| [it.sum(), it.allocated]);
                    self.sample(self.lines, time, place, held, parts, sample.limit);
                    let allocator = &mut self.series[place].allocator;
                    *allocator = sample.reserved.or(*allocator);
                }
            }
            Err(why) => self.is_bad(self.lines, why),
        }
        self.stream = stream;
    }

    /// The series of a GPU or a process. A PID that is used again is another's.
    fn place_of(&mut self, sample: &Sample<'_>) -> usize {
        let (uuid, index) = (sample.gpu.uuid.0.as_str(), sample.gpu.facts.index);
        let id = sample.process.map(|it| it.0);
        let since = id.and_then(|it| it.start_ticks);
        let name = sample.process.and_then(|(_, process)| process?.facts.comm.clone().ok());
        let key = (since.map_or_else(|| uuid.to_owned(), |since| format!("{uuid} {since}")), id.map(|it| it.pid));
        *self.places.entry(key).or_insert_with(|| {
            self.series.push(Series {
                gpu: Some(Text::new(index.to_string())),
                is_index: true,
                uuid: Some(sample.gpu.uuid.0.clone()),
                pid: id.map(|it| it.pid),
                name,
                total: sample.gpu.load.memory_total.ok(),
                rows: Vec::new(),
                parts: Vec::new(),
                is_drivers: true,
                allocator: None,
            });
            self.series.len() - 1
        })
    }

    /// Guesses what the columns are, and reads what was held back for that.
    fn settle(&mut self) {
        // Most lines with a time are good: those that are as long as most others.
        let is_dated = |(_, cells): &&(u64, Vec<String>)| cells.iter().any(|it| cells::time(it, None).is_some());
        let dated: Vec<&Vec<String>> = self.held.iter().filter(is_dated).map(|(_, cells)| cells).collect();
        let mut lengths: Vec<usize> = dated.iter().map(|it| it.len()).collect();
        lengths.sort_unstable();
        let usual = lengths.get(lengths.len() / 2);
        let rows: Vec<Vec<String>> = dated.into_iter().filter(|it| Some(&it.len()) == usual).cloned().collect();
        self.columns = Columns::guess(&rows);
        let held = std::mem::take(&mut self.held);
        match &self.columns {
            Some(columns) => self.guess.clone_from(&columns.guess),
            None => {
                for (number, _) in held {
                    self.is_bad(number, "nothing here says which column is time and which is memory");
                }
                return;
            }
        }
        for (number, cells) in &held {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            self.row(*number, &cells);
        }
    }

    fn is_bad(&mut self, number: u64, why: impl AsRef<str>) {
        self.bad.count += 1;
        if self.bad.named.len() < NAMED {
            self.bad.named.push((number, Text::new(why.as_ref())));
        }
    }

    fn row(&mut self, number: u64, cells: &[&str]) {
        match self.read(cells) {
            Ok((time, Amount::Bytes(bytes), place)) => {
                let parts = self.parts(cells);
                self.sample(number, time, place, bytes, parts, None);
            }
            Ok((_, Amount::Missing, _)) => self.missing += 1,
            Err(why) => self.is_bad(number, why),
        }
    }

    /// Takes a sample of a series. How much there could be is drawn from the neighbours where it is not said.
    fn sample(
        &mut self,
        number: u64,
        time: i64,
        place: usize,
        bytes: Bytes,
        parts: Option<[Bytes; 2]>,
        limit: Option<Bytes>,
    ) {
        let row = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        self.times.push(time);
        self.numbers.push(number);
        let limit = limit.or_else(|| self.limit(place));
        let series = &mut self.series[place];
        series.rows.push(Row { place: row, bytes, limit });
        series.parts.extend(parts.map(|it| (row, it)));
    }

    /// What PyTorch reserved, and what of that was allocated, where the row says so.
    fn parts(&self, cells: &[&str]) -> Option<[Bytes; 2]> {
        let columns = self.columns.as_ref()?;
        let [reserved, allocated] =
            columns.parts?.map(|(at, unit)| match cells::amount(cells.get(columns.place(at, cells.len()))?, unit) {
                Some(Amount::Bytes(bytes)) => Some(bytes),
                _ => None,
            });
        reserved.zip(allocated).filter(|(a, b)| a >= b).map(|(reserved, allocated)| [reserved, allocated])
    }

    /// When, how much, and the place of the series.
    fn read(&mut self, cells: &[&str]) -> Result<(i64, Amount, usize), String> {
        let Some(columns) = &self.columns else { return Err("no columns are known".to_owned()) };
        let shown = |cell: &str| Text::new(cell.chars().take(40).collect::<String>());
        // The name of a process may have commas in it.
        let more = cells.len().saturating_sub(columns.count);
        let is_short = cells.len() < columns.count;
        if is_short || more > 0 && columns.name.is_none() {
            let said = shown(&cells.join(", "));
            let many = if cells.len() == 1 { "1 cell".to_owned() } else { format!("{} cells", cells.len()) };
            return Err(format!("{many} instead of {}: {said}", columns.count));
        }
        let cell = |at: usize| cells[columns.place(at, cells.len())];
        let time = cells::time(cell(columns.time), columns.time_unit);
        let time = time.ok_or_else(|| format!("no time: {}", shown(cell(columns.time))))?;
        self.has_dates = cell(columns.time).contains([' ', 'T']);
        let used = cells::amount(cell(columns.used), columns.used_unit);
        let used = used.ok_or_else(|| format!("no amount of memory: {}", shown(cell(columns.used))))?;
        let pid = match columns.pid {
            None => None,
            Some(at) => Some(cell(at).parse().map_err(|_| format!("no PID: {}", shown(cell(at))))?),
        };
        let gpu = columns.index.or(columns.gpu).map(cell);
        let total = columns.total.and_then(|at| cells::amount(cell(at), columns.total_unit));
        let used = match (columns.is_free, used, total) {
            (true, Amount::Bytes(free), Some(Amount::Bytes(total))) => Amount::Bytes(total.saturating_sub(free)),
            (true, ..) => Amount::Missing,
            (false, used, _) => used,
        };
        let name = columns.name.map(cell);
        let uuid = columns.gpu.map(cell);
        let key = (gpu.unwrap_or_default().to_owned(), pid);
        if let (Some(_), Amount::Bytes(bytes), Some(place)) = (pid, used, self.places.get(&key))
            && self.series[*place].is_other(&self.times, time, bytes, name)
        {
            self.places.remove(&key);
        }
        let place = *self.places.entry(key).or_insert_with_key(|(gpu, pid)| {
            self.series.push(Series {
                gpu: columns.index.or(columns.gpu).map(|_| Text::new(gpu)),
                is_index: columns.index.is_some(),
                uuid: uuid.map(Text::new),
                pid: *pid,
                name: name.map(Text::new),
                total: None,
                rows: Vec::new(),
                parts: Vec::new(),
                is_drivers: columns.parts.is_none_or(|[reserved, _]| reserved.0 != columns.used),
                allocator: None,
            });
            self.series.len() - 1
        });
        if let Some(name) = name {
            self.series[place].rename(name);
        }
        if let Some(Amount::Bytes(total)) = total {
            self.series[place].total = Some(total);
        }
        Ok((time, used, place))
    }

    /// The amount at which a series runs out of memory: of a process, what its neighbours leave.
    fn limit(&self, place: usize) -> Option<Bytes> {
        let own = &self.series[place];
        let whole = self.capacity.or(own.total)?;
        if own.pid.is_none() {
            return Some(whole);
        }
        let now = self.times.last()?;
        let is_there = |it: &&Row| now.abs_diff(self.times[it.place as usize]) < 60_000;
        let neighbours = self.series.iter().enumerate().filter(|(at, it)| *at != place && it.gpu == own.gpu);
        let others: Bytes = neighbours.filter_map(|(_, it)| it.rows.last().filter(is_there).map(|it| it.bytes)).sum();
        Some(whole.saturating_sub(others))
    }

    /// There are no more lines.
    pub(super) fn finish(mut self) -> Found {
        if !self.held.is_empty() {
            self.settle();
        }
        let mut notes: Vec<String> = self.guess.take().into_iter().collect();
        let dates = self.has_dates;
        notes.extend(clock::straighten(&mut self.times, &self.numbers, dates));
        let has_limit = self.capacity.is_some() || self.series.iter().any(|it| it.total.is_some());
        if !has_limit && !self.series.is_empty() {
            notes.push(
                "how much memory there is, the log does not say: without --capacity no end is foretold".to_owned(),
            );
        }
        let judged: Vec<Judged> = self
            .series
            .into_iter()
            .filter(|it| !it.rows.is_empty())
            .map(|it| it.judge(&self.times, self.capacity))
            .collect();
        let same: u64 = judged.iter().map(|it| it.same).sum();
        if same > 0 {
            notes.push(format!("{same} samples of a time that was there already: the highest of each counts"));
        }
        Found { lines: self.lines, bad: self.bad, missing: self.missing, notes, series: judged }
    }
}
