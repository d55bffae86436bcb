//! The memory of one GPU or process in a log, and the verdicts that the live view would have given, sample by sample.

use super::cells::is_missing;
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::model::{Evidence, GrowthPattern, LeakVerdict, MemoryDrop, MemoryPart, PartedDetector, ReservedMemory};

#[derive(Debug, Clone, Copy)]
pub(super) struct LogSample {
    /// The index of the sample's row in the log, and of its time among the times of all rows.
    pub(super) row: u32,
    pub(super) used: Bytes,
    /// The amount at which memory runs out, if known.
    pub(super) limit: Option<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct LogSeries {
    /// The name of the host in a log of several hosts.
    pub(super) host: Option<Text>,
    /// The GPU as the log names it.
    pub(super) gpu: Option<Text>,
    pub(super) is_index: bool,
    pub(super) uuid: Option<Text>,
    pub(super) pid: Option<u32>,
    pub(super) name: Option<Text>,
    pub(super) total: Option<Bytes>,
    pub(super) samples: Vec<LogSample>,
    /// Index of the row, and the memory that PyTorch reserved and allocated, in the order of rows. Empty if the log does not
    /// have both.
    pub(super) pytorch: Vec<(u32, [Bytes; 2])>,
    /// Whether the samples are PyTorch's figures, because the log has none of the driver.
    pub(super) is_pytorch_only: bool,
    /// The latest allocator figures in gputop's own lines.
    pub(super) allocator: Option<ReservedMemory>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemorySplit {
    pub(super) reserved: Bytes,
    /// The part of `reserved` that tensors hold.
    pub(super) allocated: Bytes,
    /// Bytes in use outside PyTorch. Negative if the figures are of different moments, `None` if the log has no figures
    /// of the driver.
    pub(super) outside: Option<i64>,
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
    pub(super) capacity: Option<Bytes>,
    /// Seconds from the first sample to the last.
    pub(super) span: f64,
    pub(super) samples: usize,
    /// The number of samples that were dropped, since another sample has the same time.
    pub(super) duplicates: u64,
    pub(super) timeline: Vec<TimedVerdict>,
    /// The verdict at least once a minute during a leak.
    pub(super) forecasts: Vec<TimedVerdict>,
    pub(super) last: TimedVerdict,
    /// How the memory grows at the end. `None` unless the verdict is suspect or leak.
    pub(super) pattern: Option<GrowthPattern>,
    pub(super) reason: Option<String>,
    pub(super) creep: Option<String>,
    /// The parts of memory in the last sample, if known.
    pub(super) split: Option<MemorySplit>,
    /// Sudden falls, with seconds since the start.
    pub(super) falls: Vec<(f64, MemoryDrop)>,
    /// Seconds since the start, and bytes in use.
    pub(super) points: Vec<(f64, u64)>,
    /// Seconds since the start, and bytes allocated by PyTorch. Empty unless allocated memory is what grows.
    pub(super) allocated: Vec<(f64, u64)>,
}

impl LogSeries {
    /// Whether the next sample belongs to another process with the same PID: it uses less than half as much memory, and
    /// has another name or follows a long gap. A new name alone proves nothing, because programs can rename themselves.
    /// `times` are those of all rows, in milliseconds.
    pub(super) fn is_other_process(&self, times: &[i64], now: i64, used: Bytes, name: Option<&str>) -> bool {
        /// The shortest gap, in milliseconds, after which a PID may have been reused.
        const LONG_GAP: i64 = 15 * 60_000;
        let [.., before, last] = self.samples.as_slice() else { return false };
        let ours = self.name.as_ref().filter(|name| !is_missing(name.as_str()));
        let theirs = name.filter(|name| !is_missing(name));
        let is_renamed = ours.zip(theirs).is_some_and(|(ours, theirs)| *ours != Text::new(theirs));
        let gap = now - times[last.row as usize];
        let interval = times[last.row as usize] - times[before.row as usize];
        used.0 < last.used.0 / 2 && (is_renamed || gap > LONG_GAP.max(4 * interval))
    }

    pub(super) fn rename(&mut self, name: &str) {
        if !is_missing(name) && self.name.as_ref().is_none_or(|known| known.as_str() != name) {
            self.name = Some(Text::new(name));
        }
    }

    /// Feeds the samples to the leak detector in the order of time. `times` are those of all rows, in milliseconds.
    pub(super) fn judge(mut self, times: &[i64], capacity: Option<Bytes>) -> JudgedSeries {
        /// Seconds between forecasts: every minute has one if samples are at most 30 s apart.
        const FORECAST_INTERVAL: f64 = 30.0;
        let mut samples = std::mem::take(&mut self.samples);
        let time = |sample: &LogSample| times[sample.row as usize];
        if !samples.is_sorted_by_key(time) {
            samples.sort_by_key(time);
        }
        let with_duplicates = samples.len();
        samples.dedup_by(|next, kept| {
            let is_duplicate = time(next) == time(kept);
            if is_duplicate {
                kept.used = kept.used.max(next.used);
            }
            is_duplicate
        });
        let began = samples.first().map_or(0, time);
        let pytorch = std::mem::take(&mut self.pytorch);
        let mut judged = JudgedSeries {
            capacity: capacity.or(self.total),
            series: self,
            samples: samples.len(),
            duplicates: (with_duplicates - samples.len()) as u64,
            points: Vec::with_capacity(samples.len()),
            ..JudgedSeries::default()
        };
        let mut detector = PartedDetector::default();
        let mut last_forecast = f64::NEG_INFINITY;
        for sample in &samples {
            let moment = Moment(time(sample).abs_diff(began));
            let parts = pytorch.binary_search_by_key(&sample.row, |(row, _)| *row).ok().map(|at| pytorch[at].1);
            if let Some([reserved, allocated]) = parts {
                let signed = |bytes: Bytes| bytes.0.min(1 << 60).cast_signed();
                let outside = (!judged.series.is_pytorch_only).then(|| signed(sample.used) - signed(reserved));
                judged.split = Some(MemorySplit { reserved, allocated, outside });
            }
            detector.push(moment, sample.used, parts, sample.limit);
            let (at, verdict) = (moment.since(Moment(0)).as_secs_f64(), detector.verdict());
            if judged.timeline.last().is_none_or(|last| last.verdict != verdict) {
                judged.timeline.push(TimedVerdict::of(&detector, at));
            }
            if verdict != LeakVerdict::Leak {
                last_forecast = f64::NEG_INFINITY;
            } else if at - last_forecast >= FORECAST_INTERVAL {
                last_forecast = at;
                judged.forecasts.push(TimedVerdict::of(&detector, at));
            }
            if let Some((when, fall)) = detector.held().last_drop()
                && when == moment
            {
                judged.falls.push((at, fall));
            }
            judged.points.push((at, sample.used.0));
            judged.allocated.extend(parts.map(|[_, allocated]| (at, allocated.0)));
            judged.span = at;
        }
        let growing = detector.growth();
        (judged.pattern, judged.reason, judged.creep) =
            (growing.pattern(), growing.reason(), growing.detector.slow_growth());
        judged.last = TimedVerdict::of(&detector, judged.span);
        if growing.part != Some(MemoryPart::Allocated) {
            judged.allocated = Vec::new();
        }
        judged
    }
}

impl TimedVerdict {
    fn of(detector: &PartedDetector, at: f64) -> Self {
        let growing = detector.growth();
        Self { at, verdict: growing.verdict(), evidence: growing.detector.evidence().copied(), part: growing.part }
    }
}
