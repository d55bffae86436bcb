//! Reads a log line by line. A line is a header, a row, a JSON line of gputop, a line of another
//! program, or unreadable for a reason.

use super::columns::{self, LogAxis};
use super::doubts::{self, BareNumbers};
use super::gputop_lines::{GputopLines, SnapshotSample};
use super::json_values::JsonDocuments;
use super::judged::{self, JudgedSeries};
use super::log_options::LogOptions;
use super::log_samples::LogSamples;
use super::log_span::{LogSpan, StepAxis};
use super::loose_samples::LooseSamples;
use super::other_formats::OtherFormat;
use super::rows::LogRow;
use super::series::LogSeries;
use super::table_reader::{TableReader, TextOutcome};
use super::text_lines::TextLines;
use super::time_order::LogClock;
use super::unreadable::{UnreadableLines, UnreadableReason};
use super::{interleaved, limits, time_order};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::protocol::host_tag::HostTag;

#[derive(Debug, Default)]
pub(super) struct LogReader {
    options: LogOptions,
    lines: u64,
    table: TableReader,
    samples: LogSamples,
    gputop_lines: GputopLines,
    text: TextLines,
    /// The samples of lines of text.
    text_samples: LooseSamples,
    /// The numbers of the first lines of text without an amount, and their number.
    plain_lines: UnreadableLines,
    json: JsonDocuments,
    json_samples: LooseSamples,
    other_format: Option<OtherFormat>,
    has_gputop_lines: bool,
}

#[derive(Debug)]
pub(crate) struct AnalyzedLog {
    pub(super) lines: u64,
    pub(super) unreadable: UnreadableLines,
    /// The number of missing readings: rows with a cell such as `[N/A]`, and samples of gputop's
    /// lines without a value.
    pub(super) missing: u64,
    pub(super) notes: Vec<String>,
    /// The columns of memory that were judged, by their names in the log.
    pub(super) memory_names: Vec<Text>,
    /// Sentences on units that may be wrong, each with the option that settles it.
    pub(super) doubts: Vec<String>,
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
    /// The amounts are no memory of a GPU in the unit that the log tells.
    Unit(String),
}

impl LogProblem {
    pub(super) fn sentence(&self) -> &str {
        match self {
            Self::Empty(sentence) | Self::Mixed(sentence) | Self::Unit(sentence) => sentence,
        }
    }
}

/// The axis of the samples, and what is to be said about them.
#[derive(Debug, Default)]
struct ReadSamples {
    axis: LogAxis,
    has_dates: bool,
    zone: i64,
    is_nvidia_smi: bool,
    /// Whether nothing tells the unit of memory.
    has_no_unit: bool,
    /// The bytes of bare numbers, and the highest of them.
    unit: u64,
    highest_number: f64,
    notes: Vec<String>,
}

impl LogReader {
    pub(super) fn new(options: LogOptions) -> Self {
        Self {
            table: TableReader::new(options.clone()),
            options,
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
        if self.samples.rows.is_empty() && self.other_format.is_none() {
            self.other_format = OtherFormat::of_line(line);
        }
        match line.as_bytes()[0] {
            b'#' => self.marked_line(line),
            b'{' if self.has_gputop_lines || line.contains("\"kind\":\"") => {
                self.has_gputop_lines = true;
                self.gputop_line(line);
            }
            _ if self.json.takes(line) => {
                if let Some(Err(reason)) = self.json.line(self.lines, line, &mut self.json_samples)
                {
                    self.samples
                        .unreadable
                        .add(self.lines, UnreadableReason::new(reason));
                }
            }
            _ => {
                let is_text = !self.text_samples.is_empty();
                let outcome = self
                    .table
                    .line(self.lines, line, is_text, &mut self.samples);
                self.read_text(outcome);
            }
        }
    }

    /// Reads a line that begins with `#`: the header of a table, or a time.
    fn marked_line(&mut self, line: &str) {
        let is_text = !self.text_samples.is_empty();
        let outcome = self
            .table
            .marked_header(self.lines, line, is_text, &mut self.samples);
        self.read_text(outcome);
    }

    /// Reads lines that are no rows of a table.
    fn read_text(&mut self, outcome: TextOutcome) {
        let TextOutcome::NotTable(lines) = outcome else {
            return;
        };
        for (number, line) in lines {
            if !self.text.line(number, &line, &mut self.text_samples) && !line.starts_with('#') {
                self.plain_lines.add(number, UnreadableReason::NO_COLUMNS);
            }
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
                self.table.times.has_date = true;
                for sample in samples {
                    let Some(used) = sample.used else {
                        self.samples.missing += 1;
                        continue;
                    };
                    let place = self.series_of_sample(tag.as_ref(), &sample);
                    self.samples
                        .add(time, self.lines, place, used, sample.limit);
                    let pytorch = sample
                        .reserved
                        .map(|reserved| [reserved.sum(), reserved.allocated]);
                    let series = &mut self.samples.series[place];
                    series
                        .pytorch
                        .extend(pytorch.map(|parts| (self.lines, parts)));
                    series.allocator = sample.reserved.or(series.allocator);
                }
            }
            Err(reason) => self
                .samples
                .unreadable
                .add(self.lines, UnreadableReason::new(reason)),
        }
        self.table.times.zone = gputop_lines
            .zone(tag.as_ref().map_or(0, |tag| tag.host_key))
            .unwrap_or(self.table.times.zone);
        self.gputop_lines = gputop_lines;
    }

    /// Returns the index of the series of a GPU or process. A reused PID has a series of its own.
    fn series_of_sample(&mut self, tag: Option<&HostTag>, sample: &SnapshotSample<'_>) -> usize {
        let host_key = tag.map_or(0, |tag| tag.host_key);
        let (uuid, index) = (sample.gpu.uuid.0.as_str(), sample.gpu.facts.index);
        let id = sample.process.map(|(id, _)| id);
        let ids = id.map(|id| (id.pid, id.start_ticks));
        let key = format!("{host_key} {uuid} {ids:?}");
        self.samples.place(&key, || {
            let name = sample
                .process
                .and_then(|(_, process)| process?.facts.comm.clone().ok());
            LogSeries {
                host: tag.and_then(|tag| tag.name.clone()),
                gpu: Some(Text::new(index.to_string())),
                is_index: true,
                uuid: Some(sample.gpu.uuid.0.clone()),
                pid: id.map(|id| id.pid),
                names: name.into_iter().map(|name| (0, name)).collect(),
                total: sample.gpu.load.memory_total.ok(),
                ..LogSeries::default()
            }
        })
    }

    /// Ends the reading: the samples of tables count, else those of JSON or of text.
    fn end_reading(&mut self) -> ReadSamples {
        let is_text = !self.text_samples.is_empty();
        let outcome = self.table.finish(is_text, &mut self.samples);
        self.read_text(outcome);
        let columns = self.table.columns.clone();
        let (text, json) = (
            std::mem::take(&mut self.text_samples),
            std::mem::take(&mut self.json_samples),
        );
        let loose = if text.len() > json.len() {
            (text, 1 << 20)
        } else {
            (json, 1)
        };
        let plain = std::mem::take(&mut self.plain_lines);
        if loose.0.len() > self.samples.rows.len() {
            let (loose, default_unit) = loose;
            (self.samples.rows, self.samples.series) = (Vec::new(), Vec::new());
            let has_dates = loose.has_dates;
            let highest_number = loose.highest_number;
            let summary = loose.finish(&self.options, default_unit, &mut self.samples);
            self.samples.unreadable = UnreadableLines::default();
            let mut notes = summary.notes;
            if !summary.without_unit.is_empty() {
                let unit = columns::unit_name(default_unit);
                let names: Vec<String> = summary
                    .without_unit
                    .iter()
                    .map(|name| {
                        if name.is_empty() {
                            "memory".to_owned()
                        } else {
                            format!("`{name}`")
                        }
                    })
                    .collect();
                notes.push(format!(
                    "no unit of {}: taken for {unit}; another one is given with `--unit`",
                    names.join(", ")
                ));
            }
            return ReadSamples {
                axis: summary.axis,
                has_dates,
                has_no_unit: !summary.without_unit.is_empty(),
                unit: self.options.unit.unwrap_or(default_unit),
                highest_number,
                notes,
                ..ReadSamples::default()
            };
        }
        self.samples.unreadable.extend(plain);
        ReadSamples {
            axis: if self.has_gputop_lines {
                LogAxis::Time
            } else {
                self.table.axis
            },
            has_dates: self.table.times.has_date,
            zone: self.table.times.zone,
            is_nvidia_smi: columns
                .as_ref()
                .is_some_and(|columns| columns.is_nvidia_smi),
            has_no_unit: self.table.has_no_unit,
            unit: columns.as_ref().map_or(1, |columns| columns.used_unit),
            highest_number: self.table.highest_number,
            notes: columns
                .iter()
                .filter_map(|columns| columns.guess.clone())
                .collect(),
        }
    }

    pub(super) fn finish(mut self) -> AnalyzedLog {
        let mut read = self.end_reading();
        let mut notes = std::mem::take(&mut read.notes);
        let mut rows = std::mem::take(&mut self.samples.rows);
        let mut series = std::mem::take(&mut self.samples.series);
        let mut problem = self.order(&mut rows, &mut series, &read, &mut notes);
        let step_axis = self.scale(&mut rows, read.axis);
        limits::add_limits(&mut rows, &series, self.options.capacity);
        let has_capacity =
            self.options.capacity.is_some() || series.iter().any(|series| series.total.is_some());
        if !has_capacity && problem.is_none() {
            notes.push(
                "the log has no memory capacity, so there is no forecast without --capacity"
                    .to_owned(),
            );
        }
        // A log of one host need not name it.
        if series.iter().all(|one| one.host == series[0].host) {
            for one in &mut series {
                one.host = None;
            }
        }
        let has_dates = read.has_dates && read.axis == LogAxis::Time;
        let times = LogSpan::new(&rows, has_dates.then_some(read.zone), step_axis);
        let mut series = judged::judge_all(rows, &series, self.options.capacity, times);
        let duplicates: u64 = series.iter().map(|judged| judged.duplicates).sum();
        if duplicates > 0 {
            let place = if step_axis.is_some() { "step" } else { "time" };
            notes.push(format!(
                "{duplicates} samples have the {place} of another one: the highest of each {place} counts"
            ));
        }
        let mut doubts = Vec::new();
        if problem.is_none() {
            problem = doubts::error_of_capacity(&series, read.unit).map(LogProblem::Unit);
            let bare = BareNumbers {
                has_no_unit: read.has_no_unit,
                unit: read.unit,
                highest: read.highest_number,
            };
            doubts = doubts::of(&series, &bare);
            doubts.extend(self.table.doubts);
            let has_unit =
                read.has_dates || self.table.has_time_unit || self.options.interval.is_some();
            if read.axis == LogAxis::Time && !has_unit {
                doubts.extend(doubts::of_times(&series));
            }
        }
        if problem.is_some() {
            (series, notes, doubts) = (Vec::new(), Vec::new(), Vec::new());
        }
        AnalyzedLog {
            lines: self.lines,
            unreadable: self.samples.unreadable,
            missing: self.samples.missing,
            notes,
            memory_names: self.table.memory_names,
            doubts,
            times,
            given_capacity: self.options.capacity,
            series,
            problem,
        }
    }

    /// Brings the rows into the order of time. Returns why they cannot be judged.
    fn order(
        &self,
        rows: &mut Vec<LogRow>,
        series: &mut Vec<LogSeries>,
        read: &ReadSamples,
        notes: &mut Vec<String>,
    ) -> Option<LogProblem> {
        let turned_around = time_order::turn_around(rows);
        let is_turned_around = turned_around.is_some();
        notes.extend(turned_around);
        let clock = match read.axis {
            LogAxis::Time if read.has_dates => LogClock::Dates,
            LogAxis::Time => LogClock::TimesOfDay,
            LogAxis::Steps(word) => LogClock::Steps(word),
            LogAxis::None => LogClock::Numbers,
        };
        notes.extend(time_order::straighten(rows, clock));
        let mut problem = None;
        if read.axis != LogAxis::None {
            match interleaved::separate(rows, series, read.is_nvidia_smi, is_turned_around) {
                Ok(note) => notes.extend(note),
                Err(sentence) => problem = Some(LogProblem::Mixed(sentence)),
            }
        }
        if problem.is_none() && rows.is_empty() {
            problem = Some(LogProblem::Empty(self.why_empty()));
        } else if read.axis == LogAxis::None && self.options.interval.is_none() {
            problem = Some(LogProblem::Empty(self.why_without_times(rows)));
        }
        if problem.is_some() {
            rows.clear();
        }
        if !rows.is_sorted_by_key(|row| row.time) {
            rows.sort_by_key(|row| row.time);
        }
        problem
    }

    /// Gives the rows of a log without times the times that the detector needs.
    fn scale(&self, rows: &mut [LogRow], axis: LogAxis) -> Option<StepAxis> {
        match (axis, self.options.interval) {
            (_, Some(interval)) => {
                let ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
                for row in rows {
                    row.time = (row.time / 1000).saturating_mul(ms);
                }
                None
            }
            (LogAxis::Steps(word), None) => Some(StepAxis::scale(rows, word)),
            _ => None,
        }
    }

    /// Says that a log has no times, and the option that gives them.
    fn why_without_times(&self, rows: &[LogRow]) -> String {
        let format = self.other_format;
        let name = format.and_then(OtherFormat::name).unwrap_or("the log");
        let last = rows.iter().map(|row| row.time).max().unwrap_or(0);
        if let Some(format) = format.filter(|format| last == 0 && format.name().is_none()) {
            return format.advice();
        }
        if last == 0 {
            return format!(
                "{name} shows one moment: record with `{}`",
                super::other_formats::GPU_COMMAND
            );
        }
        format!(
            "{name} has no times: if its samples are 5 seconds apart, add `--interval 5`; or record with `{}`",
            super::other_formats::GPU_COMMAND
        )
    }

    /// Says why the log has no rows, and what to record.
    fn why_empty(&self) -> String {
        if let Some(reason) = self
            .table
            .header_error
            .as_ref()
            .filter(|reason| reason.contains("--"))
        {
            return reason.clone();
        }
        match self.other_format {
            Some(format) => format.advice(),
            None if self.lines == 0 => "it is empty".to_owned(),
            None => self.samples.unreadable.advice(self.samples.missing),
        }
    }
}
