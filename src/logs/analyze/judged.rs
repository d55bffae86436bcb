//! Judges each series of a log as the live view would have done, sample by sample.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::episodes::{Episode, EpisodeEnd, EpisodeRecorder, between};
use super::falls::MemoryFall;
use super::full_end::FullEnd;
use super::log_span::{self, LogSpan};
use super::rows::LogRow;
use super::series::LogSeries;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{
    Evidence, GrowthPattern, LeakVerdict, MemoryPart, PartedDetector, Rate, describe_evidence,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemorySplit {
    pub(super) reserved: Bytes,
    /// The part of `reserved` that tensors hold.
    pub(super) allocated: Bytes,
    /// Bytes in use outside PyTorch. Negative if the figures are of different moments, `None` if
    /// the log has no figures of the driver.
    pub(super) outside: Option<i64>,
}

impl MemorySplit {
    fn of(series: &LogSeries, sample: &LogRow, [reserved, allocated]: [Bytes; 2]) -> Self {
        let signed = |bytes: Bytes| bytes.0.min(1 << 60).cast_signed();
        Self {
            reserved,
            allocated,
            outside: (!series.is_pytorch_only).then(|| signed(sample.used()) - signed(reserved)),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimedVerdict {
    /// Seconds since the start of the series.
    pub(super) at: f64,
    pub(super) verdict: LeakVerdict,
    /// `None` unless the verdict is suspect or leak.
    pub(super) evidence: Option<Evidence>,
    pub(super) part: Option<MemoryPart>,
}

#[derive(Debug, Default)]
pub(super) struct JudgedSeries {
    pub(super) series: LogSeries,
    /// The name of the process.
    pub(super) name: Option<Text>,
    pub(super) capacity: Option<Bytes>,
    /// The time of the first sample, as [`LogRow::time`].
    pub(super) begin: i64,
    /// The times of the whole log.
    pub(super) times: LogSpan,
    /// Seconds from the first sample to the last.
    pub(super) span: f64,
    pub(super) samples: usize,
    /// The number of samples that were dropped, since another sample has the same time.
    pub(super) duplicates: u64,
    pub(super) timeline: Vec<TimedVerdict>,
    /// The verdict at least once a minute during a leak.
    pub(super) forecasts: Vec<TimedVerdict>,
    pub(super) last: TimedVerdict,
    pub(super) episodes: Vec<Episode>,
    /// How the memory grew in the latest growth. `None` unless the verdict on the end is suspect or
    /// leak.
    pub(super) pattern: Option<GrowthPattern>,
    pub(super) reason: Option<String>,
    pub(super) creep: Option<String>,
    /// The parts of memory in the last sample, if known.
    pub(super) split: Option<MemorySplit>,
    pub(super) falls: Vec<MemoryFall>,
    /// How memory became full. `None` if it is not full at the end.
    pub(super) full: Option<FullEnd>,
    /// The memory in use in the last sample.
    pub(super) held: Bytes,
    /// Whether the log goes on after the last sample: the process ended.
    pub(super) ends_early: bool,
    /// Seconds since the start, and bytes in use: of a long series, the lowest and highest of each
    /// part.
    pub(super) points: Vec<(f64, u64)>,
    /// Seconds since the start, and bytes allocated by PyTorch. Empty unless allocated memory is
    /// what grows.
    pub(super) allocated: Vec<(f64, u64)>,
}

/// Judges all series that have rows, on all processors. The rows are in the order of time.
pub(super) fn judge_all(
    mut rows: Vec<LogRow>,
    series: &[LogSeries],
    capacity: Option<Bytes>,
    log: LogSpan,
) -> Vec<JudgedSeries> {
    if series.len() > 1 {
        rows.sort_unstable_by_key(|row| (row.series, row.time, row.line));
    }
    let mut rows_of_series: Vec<&[LogRow]> = rows
        .chunk_by(|one, other| one.series == other.series)
        .collect();
    let judge = |rows: &[LogRow]| -> Vec<JudgedSeries> {
        let series = &series[rows[0].series as usize];
        let processes = series.processes(rows);
        processes
            .into_iter()
            .map(|rows| JudgedSeries::of(series, rows, capacity, log))
            .collect()
    };
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(rows_of_series.len());
    if workers < 2 {
        return rows_of_series.into_iter().flat_map(judge).collect();
    }
    rows_of_series.reverse();
    let work = Mutex::new(rows_of_series);
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let judge_some = || {
        let mut judged = Vec::new();
        while let Some(rows) = next() {
            judged.push((rows[0].series, judge(rows)));
        }
        judged
    };
    let mut judged: Vec<(u32, Vec<JudgedSeries>)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(judge_some)).collect();
        // A panic has ended the process.
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .flatten()
            .collect()
    });
    judged.sort_by_key(|(series, _)| *series);
    judged.into_iter().flat_map(|(_, judged)| judged).collect()
}

impl JudgedSeries {
    /// Feeds the rows of a series to the leak detector in the order of time.
    fn of(series: &LogSeries, rows: &[LogRow], capacity: Option<Bytes>, log: LogSpan) -> Self {
        /// Seconds between figures on growth: every minute has some if samples are at most 30 s
        /// apart.
        const EVIDENCE_INTERVAL: f64 = 30.0;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Self::default();
        };
        let mut judged = Self {
            capacity: capacity.or(series.total),
            name: series.name_at(last.line).cloned(),
            held: last.used(),
            begin: first.time,
            times: log,
            span: between(first, last),
            ..Self::default()
        };
        let mut used_before = Bytes(0);
        let mut detector = PartedDetector::default();
        let mut episodes = EpisodeRecorder::new(rows);
        let mut last_evidence = f64::NEG_INFINITY;
        let mut leak_pattern = None;
        let mut allocated = ThinnedCurve::new(rows.len());
        let mut points = ThinnedCurve::new(rows.len());
        let mut next_row = 0;
        for same_time in rows.chunk_by(|one, other| one.time == other.time) {
            next_row += same_time.len();
            judged.samples += 1;
            let sample = same_time
                .iter()
                .max_by_key(|row| row.used())
                .unwrap_or(&same_time[0]);
            let moment = Moment(sample.time.abs_diff(first.time));
            let parts = series.pytorch_at(sample.line);
            if let Some(parts) = parts {
                judged.split = Some(MemorySplit::of(series, sample, parts));
            }
            detector.push(moment, sample.used(), parts, sample.limit());
            let (at, verdict) = (between(first, sample), detector.verdict());
            let is_due = verdict.grows() && at - last_evidence >= EVIDENCE_INTERVAL;
            let timed = judged.add_verdict(&detector, at, is_due);
            if timed.is_some() {
                if verdict == LeakVerdict::Leak {
                    leak_pattern = detector.growth().pattern().or(leak_pattern);
                }
                last_evidence = at;
            }
            let evidence = timed.and_then(|timed| Some((timed.evidence?, timed.part)));
            episodes.push(at, next_row - 1, verdict, evidence);
            if let Some((when, fall)) = detector.held().last_drop()
                && when == moment
            {
                judged.falls.push(MemoryFall {
                    at,
                    kind: fall,
                    given_back: used_before.saturating_sub(sample.used()),
                    is_of_gpu: series.pid.is_none(),
                    has_pytorch: parts.is_some(),
                });
            }
            used_before = sample.used();
            points.push(at, sample.used().0);
            if let Some([_, bytes]) = parts {
                allocated.push(at, bytes.0);
            }
        }
        judged.duplicates = (rows.len() - judged.samples) as u64;
        judged.episodes = episodes.finish();
        judged.full = FullEnd::of(rows);
        judged.points = points.finish();
        judged.set_growth(&detector, leak_pattern);
        if detector.growth().part == Some(MemoryPart::Allocated) {
            judged.allocated = allocated.finish();
        }
        // The mean time between two samples.
        let interval =
            (last.time - first.time) / i64::try_from(judged.samples).unwrap_or(i64::MAX).max(1);
        judged.ends_early = log.end - last.time > (5 * interval).max(1000);
        judged.series = series.without_lines();
        judged
    }

    /// Adds the verdict so many seconds after the beginning, and returns it, if it is new, or due
    /// because a growth goes on.
    fn add_verdict(
        &mut self,
        detector: &PartedDetector,
        at: f64,
        is_due: bool,
    ) -> Option<TimedVerdict> {
        let verdict = detector.verdict();
        let last = self.timeline.last();
        let is_new = last.is_none_or(|last| last.verdict != verdict);
        let timed = (is_new || is_due).then(|| TimedVerdict::of(detector, at))?;
        self.timeline.extend(is_new.then_some(timed));
        if verdict == LeakVerdict::Leak {
            self.forecasts.push(timed);
        }
        Some(timed)
    }

    /// Sets how the memory grows at the end. `leak_pattern` is the pattern of the latest leak.
    fn set_growth(&mut self, detector: &PartedDetector, leak_pattern: Option<GrowthPattern>) {
        let growing = detector.growth();
        self.reason = growing.reason();
        self.creep = growing.detector.slow_growth();
        self.last = TimedVerdict::of(detector, self.span);
        if self.times.steps.is_some() {
            // The detector speaks of times.
            let evidence = self.last.evidence.filter(|_| self.reason.is_some());
            self.reason = evidence.map(|evidence| self.describe(self.last.part, &evidence));
            self.creep = None;
        }
        // A leak that ended with its program does not grow at the end of the log. Its advice depends
        // on the pattern that it had while it grew.
        self.pattern = growing
            .pattern()
            .or(leak_pattern.filter(|_| self.verdict() == LeakVerdict::Leak));
    }

    /// Returns a moment of the series in words, counted from the beginning of the series: `2h10m`,
    /// or `step 4,800`.
    pub(super) fn moment(&self, at: f64) -> String {
        match self.times.steps {
            Some(_) => self.times.at(self.since_log_began(at)),
            None => self.times.at(at),
        }
    }

    /// Returns the seconds since the beginning of the log, of a moment of the series.
    pub(super) fn since_log_began(&self, at: f64) -> f64 {
        at + between_times(self.times.begin, self.begin)
    }

    /// Returns a rate in bytes per second in words: `+1.5 GiB/min`, or `+10 MiB/step`.
    pub(super) fn rate(&self, rate: Rate) -> String {
        let Some(steps) = self.times.steps else {
            return rate.to_string();
        };
        let per_step = rate.0 * steps.seconds;
        let amount = Bytes::parse_number(&format!("{:.0}", per_step.abs()), 1).unwrap_or_default();
        let sign = if per_step < 0.0 { '-' } else { '+' };
        format!(
            "{sign}{}/{}",
            amount.to_string().replace(".0 ", " "),
            steps.word
        )
    }

    /// Describes evidence in the words of the log's axis.
    pub(super) fn describe(&self, part: Option<MemoryPart>, evidence: &Evidence) -> String {
        let Some(steps) = self.times.steps else {
            return describe_evidence(part, evidence);
        };
        let highs = if evidence.maxima == 1 {
            "high"
        } else {
            "highs"
        };
        let mut text = format!(
            "{} for {} ({} new {highs}, {:.0} expected by chance)",
            self.rate(evidence.rate),
            steps.words(steps.count(evidence.span)),
            evidence.maxima,
            evidence.chance.round().max(1.0)
        );
        if let Some(plateau) = evidence.plateau {
            let _infallible: std::fmt::Result = write!(text, "; {plateau}");
        }
        if let Some(forecast) = evidence.forecast {
            let count = |span: Duration| steps.count(span.as_secs_f64());
            let _infallible: std::fmt::Result = write!(
                text,
                "; full in {} ({} to {})",
                steps.words(count(forecast.likely)),
                log_span::number(count(forecast.low)),
                log_span::number(count(forecast.high))
            );
        }
        text
    }

    /// Returns the time of day so many seconds after the beginning; `None` if the log has no dates.
    pub(super) fn clock(&self, at: f64) -> Option<String> {
        self.times.clock(self.time(at))
    }

    /// Returns the time so many seconds after the beginning, as [`LogRow::time`].
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a log is shorter than 200,000 years"
    )]
    pub(super) fn time(&self, at: f64) -> i64 {
        self.begin + (at * 1000.0).round() as i64
    }

    /// The worst verdict at any time, as it is known at the end: growth that proved to level off
    /// counts as filling from its beginning.
    pub(super) fn worst_verdict(&self) -> LeakVerdict {
        let timeline = self.timeline.iter().map(|timed| timed.verdict);
        let episodes = self.episodes.iter().map(|episode| episode.verdict);
        timeline
            .filter(|verdict| !verdict.grows())
            .chain(episodes)
            .max()
            .unwrap_or(self.last.verdict)
    }

    /// The verdict on the end of the series. A leak that filled the memory, or that ended with its
    /// program, is a leak to the end, although the last samples do not grow.
    pub(super) fn verdict(&self) -> LeakVerdict {
        /// The share of the memory in hundredths that counts as full.
        const FULL: u64 = 95;
        let leaked = self
            .episodes
            .last()
            .filter(|episode| episode.verdict == LeakVerdict::Leak);
        let Some(episode) = leaked else {
            return self.last.verdict;
        };
        // The most memory in use after the episode. If it is little, the program's memory was
        // released when it ended.
        let later = self
            .points
            .iter()
            .filter(|(at, _)| Some(*at) >= episode.withdrawn_at)
            .map(|(_, bytes)| *bytes);
        let most_later = later.max().unwrap_or(0);
        let was_full = episode
            .limit
            .is_some_and(|limit| episode.held.0 >= limit.0 / 100 * FULL);
        let is_leak = match episode.end {
            EpisodeEnd::SeriesEnds => true,
            EpisodeEnd::ProgramEnded => most_later < episode.held.0 / 4,
            EpisodeEnd::Stopped => was_full,
            EpisodeEnd::Released => false,
        };
        if is_leak {
            LeakVerdict::Leak
        } else {
            self.last.verdict
        }
    }
}

impl TimedVerdict {
    fn of(detector: &PartedDetector, at: f64) -> Self {
        let growing = detector.growth();
        Self {
            at,
            verdict: growing.verdict(),
            evidence: growing.detector.evidence().copied(),
            part: growing.part,
        }
    }
}

/// The points of a graph. Of a long series, the lowest and the highest of each part.
struct ThinnedCurve {
    /// Samples of one part.
    stride: usize,
    /// The lowest and the highest point of the part that is not complete, and the number of its
    /// samples.
    part: Option<([(f64, u64); 2], usize)>,
    points: Vec<(f64, u64)>,
}

impl ThinnedCurve {
    /// Returns an empty curve for at most `most` samples.
    fn new(most: usize) -> Self {
        /// Parts of a long series. A graph has at most 160 columns.
        const PARTS: usize = 640;
        Self {
            stride: most.div_ceil(PARTS).max(1),
            part: None,
            points: Vec::new(),
        }
    }

    fn push(&mut self, at: f64, bytes: u64) {
        let point = (at, bytes);
        let ([low, high], count) = self.part.get_or_insert(([point; 2], 0));
        *count += 1;
        if bytes < low.1 {
            *low = point;
        }
        if bytes > high.1 {
            *high = point;
        }
        if *count == self.stride {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        let Some(([low, high], _)) = self.part.take() else {
            return;
        };
        let (first, second) = if low.0 <= high.0 {
            (low, high)
        } else {
            (high, low)
        };
        self.points.push(first);
        if second.0 > first.0 {
            self.points.push(second);
        }
    }

    fn finish(mut self) -> Vec<(f64, u64)> {
        self.end_part();
        self.points
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a log is shorter than 200,000 years"
)]
fn between_times(from: i64, to: i64) -> f64 {
    (to - from) as f64 / 1000.0
}
