//! Finds which part of a process's memory grows, where allocator stats show the parts.
//!
//! When tensors leak, allocated memory grows from the first training step on. PyTorch's reserved
//! memory, and NVML's figure with it, grows only once the cache is used up: minutes or hours later.

use std::time::Duration;

use super::leak_detectors::{LeakDetectors, ProcessDetectors};
use super::probe_leak::ProbeLeak;
use super::{Evidence, LeakDetector, LeakVerdict};
use crate::base::units::{Bytes, Moment};
use crate::model::history::{AllocatorHistory, MemoryHistory, ProcessHistory, Window};
use crate::model::{GrowthPattern, MemoryPart};
use crate::protocol::snapshot::ProcessId;

impl LeakDetectors {
    /// Returns the growth of a process, as a whole or of a part; `None` when no detector knows the
    /// process.
    pub(in crate::model) fn growth<'a>(
        &'a self,
        process: ProcessId,
        history: Option<&ProcessHistory>,
        now: Moment,
    ) -> Option<MemoryGrowth<'a>> {
        let mut chosen = more_telling(self.process(process), self.tensors(process))?;
        // One cause has one verdict: the process that fills a GPU is judged at least like that GPU.
        if let Some(gpu) = self.gpus_filled_by(process).max_by_key(|gpu| gpu.verdict())
            && gpu.verdict() > chosen.0.verdict()
        {
            chosen = (gpu, false);
        }
        let series =
            history.and_then(|history| Some((history.memory()?, history.allocator.as_deref()?)));
        Some(MemoryGrowth::with_parts(chosen, series, now))
    }
}

/// Returns the detector of tensor memory if that grows, and its verdict is no better than that of
/// the whole, else the detector of the whole. Also returns whether the tensor detector was
/// chosen. What tensors hold grows evenly where the whole takes one large step after another.
fn more_telling<'a>(
    held: Option<&'a LeakDetector>,
    allocated: Option<&'a LeakDetector>,
) -> Option<(&'a LeakDetector, bool)> {
    let verdict = held.map(LeakDetector::verdict);
    let grows = |detector: &&LeakDetector| {
        detector.verdict().grows() && Some(detector.verdict()) >= verdict
    };
    let allocated = allocated.filter(grows).map(|detector| (detector, true));
    allocated.or(held.map(|detector| (detector, false)))
}

/// Judges the memory growth of a process on one GPU, and the growth of its parts, from plain
/// figures instead of snapshots.
#[derive(Debug, Default)]
pub struct PartedDetector {
    detectors: ProcessDetectors,
    memory: MemoryHistory,
    allocator: AllocatorHistory,
    now: Moment,
}

impl PartedDetector {
    /// Adds a sample: the memory held; the parts of it that PyTorch reserved and that tensors hold,
    /// where known; and the amount at which memory runs out, where known.
    pub fn push(
        &mut self,
        at: Moment,
        held: Bytes,
        parts: Option<[Bytes; 2]>,
        limit: Option<Bytes>,
    ) {
        self.now = at;
        self.detectors.held.push(at, held, limit);
        self.memory.push(at, Some(held), Duration::MAX);
        if let Some([reserved, allocated]) = parts {
            // Tensors cannot use the memory outside PyTorch.
            let limit = limit.map(|limit| limit.saturating_sub(held.saturating_sub(reserved)));
            self.detectors
                .tensors
                .get_or_insert_default()
                .push(at, allocated, limit);
            self.allocator
                .allocated
                .push(at, Some(allocated), Duration::MAX);
            self.allocator
                .reserved
                .push(at, Some(reserved), Duration::MAX);
        }
    }

    /// Returns the detector with the worse verdict, and whether it is that of tensor memory.
    fn detector(&self) -> (&LeakDetector, bool) {
        let ProcessDetectors { held, tensors, .. } = &self.detectors;
        more_telling(Some(held), tensors.as_deref()).unwrap_or((held, false))
    }

    /// The worse of the verdicts on the whole memory and on tensor memory.
    pub fn verdict(&self) -> LeakVerdict {
        self.detector().0.verdict()
    }

    /// The detector of all memory that the process holds.
    pub fn held(&self) -> &LeakDetector {
        &self.detectors.held
    }

    /// The growth of the whole or, where tensors grow worse, of their memory.
    pub fn growth(&self) -> MemoryGrowth<'_> {
        let series = self
            .detectors
            .tensors
            .is_some()
            .then_some((&self.memory, &self.allocator));
        MemoryGrowth::with_parts(self.detector(), series, self.now)
    }
}

/// The growth of a GPU's or process's memory, and the part that grows.
#[derive(Debug, Clone, Copy)]
pub struct MemoryGrowth<'a> {
    /// The detector of the tensor memory where that part grows, else of the whole.
    pub detector: &'a LeakDetector,
    /// The part that grows: allocated, cache or outside; `None` where the parts are unknown, or
    /// nothing grows.
    pub part: Option<MemoryPart>,
    /// The change of reserved memory since the growth began, in bytes; `None` where unknown.
    reserved: Option<i64>,
    /// The leak that the probe reports; `None` without one, and for a GPU.
    probe: Option<ProbeLeak<'a>>,
}

impl<'a> MemoryGrowth<'a> {
    /// The growth of a series without parts.
    pub fn without_parts(detector: &'a LeakDetector) -> Self {
        Self {
            detector,
            part: None,
            reserved: None,
            probe: None,
        }
    }

    /// The same growth, judged by what the probe reports as well.
    pub(in crate::model) fn with_probe(self, probe: Option<ProbeLeak<'a>>) -> Self {
        Self { probe, ..self }
    }

    /// The growth of a series with parts; with `is_part`, the detector is that of tensor memory.
    fn with_parts(
        (detector, is_part): (&'a LeakDetector, bool),
        series: Option<(&MemoryHistory, &AllocatorHistory)>,
        now: Moment,
    ) -> Self {
        let mut growth = Self {
            part: is_part.then_some(MemoryPart::Allocated),
            ..Self::without_parts(detector)
        };
        if let Some(((memory, allocator), evidence)) = series.zip(detector.evidence()) {
            growth.part = growth
                .part
                .or_else(|| largest_gain(memory, allocator, evidence.since, now));
            growth.reserved = reserved_gain(&allocator.reserved, evidence.since, now);
        }
        growth
    }

    /// The worse of the verdicts of the detector and of the probe: neither lowers the other.
    pub fn verdict(&self) -> LeakVerdict {
        let probe = self.probe.map(ProbeLeak::verdict);
        probe.map_or(self.detector.verdict(), |probe| {
            probe.max(self.detector.verdict())
        })
    }

    /// The leak that the probe reports, if its verdict is worse than that of the detector.
    fn worse_by_probe(&self) -> Option<ProbeLeak<'a>> {
        self.probe
            .filter(|probe| probe.verdict() > self.detector.verdict())
    }

    /// Why the probe judges worse than the detector; `None` where it does not.
    pub(in crate::model) fn reason_of_probe(&self) -> Option<String> {
        Some(format!(
            "{} (by the probe)",
            self.worse_by_probe()?.reason()
        ))
    }

    /// The line of the leak that the probe reports, as in `train.py:41`; `None` where it knows none.
    pub(crate) fn leak_line(&self) -> Option<&'a str> {
        self.probe?.line()
    }

    /// The figures of the growth; `None` where nothing grows.
    pub(crate) fn evidence(&self, now: Moment) -> Option<Evidence> {
        let measured = self.detector.evidence().copied();
        measured.or_else(|| Some(self.worse_by_probe()?.evidence(now)))
    }

    /// The figures of the growth that goes on now; `None` when nothing grows.
    pub(in crate::model) fn growing(&self, now: Moment) -> Option<Evidence> {
        let measured = self.detector.growing().copied();
        measured.or_else(|| Some(self.worse_by_probe()?.evidence(now)))
    }

    /// The evidence: `allocated +30 MiB/min for …; reserved has not moved yet`. `None` where
    /// nothing grows.
    pub fn reason(&self) -> Option<String> {
        if let Some(reason) = self.reason_of_probe() {
            return Some(reason);
        }
        let reason = describe_evidence(self.part, self.detector.evidence()?);
        let more = self
            .reserved
            .filter(|_| self.part == Some(MemoryPart::Allocated));
        let more = more.map(|gain| Bytes(gain.max(0).unsigned_abs()));
        Some(match more {
            Some(more) if more >= SMALLEST_SEGMENT => format!("{reason}; reserved +{more} since"),
            Some(_) => format!("{reason}; reserved has not moved yet"),
            None => reason,
        })
    }

    /// The verdict and its evidence: `LEAK: allocated +30 MiB/min for …; reserved has not moved
    /// yet`.
    pub fn sentence(&self) -> String {
        match self.reason() {
            Some(reason) => format!("{}: {reason}", self.verdict().word()),
            None => self.detector.sentence(),
        }
    }

    /// The pattern of growth, for advice; `None` where nothing grows.
    pub fn pattern(&self) -> Option<GrowthPattern> {
        let pattern = self.detector.pattern()?;
        Some(match self.part {
            Some(MemoryPart::Allocated) if pattern == GrowthPattern::Steady => {
                GrowthPattern::Tensors
            }
            Some(MemoryPart::Cache) => GrowthPattern::Cache,
            Some(MemoryPart::Outside) => GrowthPattern::NotPyTorch,
            _ => pattern,
        })
    }
}

/// The name of a part in `--json`; never changes.
pub(crate) fn part_name(part: MemoryPart) -> &'static str {
    match part {
        MemoryPart::Allocated => "allocated",
        MemoryPart::Cache => "cache",
        _ => "not_pytorch",
    }
}

/// Returns the evidence after the name of the part, where that is known: `allocated +30 MiB/min for
/// …`.
pub(crate) fn describe_evidence(part: Option<MemoryPart>, evidence: &Evidence) -> String {
    let part = match part {
        Some(MemoryPart::Allocated) => "allocated ",
        // This part is all reserved memory that is not allocated: more than the cache.
        Some(MemoryPart::Cache) => "unallocated ",
        Some(MemoryPart::Outside) => "not PyTorch's ",
        _ => "",
    };
    format!("{part}{evidence}")
}

/// The smallest segment that PyTorch takes from CUDA.
const SMALLEST_SEGMENT: Bytes = Bytes(2 << 20);

/// The span over which extremes are compared: long enough for some training steps.
const MINUTE: Duration = Duration::from_mins(1);

/// Returns the change of reserved memory since a time, in bytes; `None` where it was not read.
/// Compares maxima, as PyTorch keeps the memory that a training step releases.
fn reserved_gain(reserved: &MemoryHistory, since: Moment, now: Moment) -> Option<i64> {
    let most = |until| {
        let extent = reserved
            .over(&Window::until(until, MINUTE, 1), now)
            .into_iter()
            .next()??;
        Some(signed(extent.high))
    };
    Some(most(now)? - most(since.max(reserved.began()?).after(MINUTE).min(now))?)
}

fn signed(bytes: Bytes) -> i64 {
    bytes.0.min(1 << 60).cast_signed()
}

/// Returns the part that gained most; `None` when no part gained, or the gains are not known.
/// Compares floors: temporary memory of a training step is no gain.
fn largest_gain(
    memory: &MemoryHistory,
    allocator: &AllocatorHistory,
    since: Moment,
    now: Moment,
) -> Option<MemoryPart> {
    let since = since.max(allocator.allocated.began()?);
    // The history keeps seconds for 15 minutes only. For older growth, take the first five-minute
    // bucket that is wholly in the growth: an earlier one may include the loading of the model.
    let (span, from) = if now.since(since) < Duration::from_mins(14) {
        (MINUTE, since)
    } else {
        let bucket = super::millis(MemoryHistory::COARSE.as_secs_f64());
        (
            MemoryHistory::COARSE,
            Moment(since.0.next_multiple_of(bucket)),
        )
    };
    // The last millisecond of the first span.
    let first = Moment(from.after(span).0 - 1).min(now);
    let floor = |series: &MemoryHistory, until| series.floor(until, span, now).map(signed);
    let gain = |series: &MemoryHistory| Some(floor(series, now)? - floor(series, first)?);
    let (allocated, reserved, held) = (
        gain(&allocator.allocated)?,
        gain(&allocator.reserved)?,
        gain(memory)?,
    );
    let gains = [
        (allocated, MemoryPart::Allocated),
        (reserved - allocated, MemoryPart::Cache),
        (held - reserved, MemoryPart::Outside),
    ];
    gains
        .into_iter()
        .filter(|(gain, _)| *gain > 0)
        .max_by_key(|(gain, _)| *gain)
        .map(|(_, part)| part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GpuOrProcess, HostModel};
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{AllocatorStats, DeviceAllocator, Missing};

    const MIB: u64 = 1 << 20;

    /// Returns the growth of a process after some seconds. The closures return the MiB of the
    /// driver's figure, and of PyTorch's reserved and allocated memory, at each second.
    fn watch(
        seconds: u64,
        held: [fn(u64) -> u64; 3],
    ) -> (
        LeakVerdict,
        Option<MemoryPart>,
        String,
        Option<GrowthPattern>,
    ) {
        let mut model = HostModel::default();
        let mut host = host(1).with(7, "python train.py", 0, Bytes::from_gib(30));
        let id = host.processes[0].id;
        for second in 0..seconds {
            host = host.later(1);
            let [whole, reserved, allocated] = held.map(|memory| memory(second) * MIB);
            host.gpus[0].processes[0].memory = Ok(Bytes(whole));
            host.gpus[0].load.memory_used = Ok(Bytes(whole));
            let figures = DeviceAllocator {
                allocated: Ok(Bytes(allocated)),
                active: Ok(Bytes(allocated)),
                requested: Ok(Bytes(allocated)),
                inactive_split: Ok(Bytes(0)),
                reserved: Ok(Bytes(reserved)),
                ..DeviceAllocator::missing(0, Some(host.gpus[0].uuid.clone()), Missing::NotYet)
            };
            host.processes[0].allocator = Some(
                AllocatorStats {
                    devices: vec![figures],
                    unreadable: None,
                }
                .into(),
            );
            model.replace(host.clone());
        }
        let growing = model
            .growth(&GpuOrProcess::Process(id))
            .expect("it is watched");
        (
            growing.verdict(),
            growing.part,
            growing.sentence(),
            growing.pattern(),
        )
    }

    /// The temporary memory of a training step in MiB.
    fn swing(second: u64) -> u64 {
        second * 37 % 5 * 512
    }

    #[test]
    fn a_leak_shows_in_allocated_memory_before_reserved_memory_grows() {
        let (verdict, part, sentence, pattern) = watch(
            900,
            [
                |_| 31_000,
                |_| 30_500,
                |second| 10_000 + 5 * second + swing(second),
            ],
        );
        assert_eq!(
            (verdict, part, pattern),
            (
                LeakVerdict::Leak,
                Some(MemoryPart::Allocated),
                Some(GrowthPattern::Tensors)
            ),
            "{sentence}"
        );
        assert!(sentence.starts_with("LEAK: allocated +"), "{sentence}");
        assert!(
            sentence.ends_with("; reserved has not moved yet"),
            "{sentence}"
        );
    }

    #[test]
    fn a_leak_that_reached_the_driver_s_figure_is_still_of_tensors() {
        let grown = |second: u64| 10_000 + second / 4 * 20 + swing(second);
        let held = [
            |second| 12_500 + second / 4 * 20,
            |second| 12_048 + second / 4 * 20,
            grown,
        ];
        let (verdict, part, sentence, _) = watch(900, held);
        assert_eq!(
            (verdict, part),
            (LeakVerdict::Leak, Some(MemoryPart::Allocated)),
            "{sentence}"
        );
        assert!(
            sentence.contains("; reserved +") && sentence.ends_with(" since"),
            "{sentence}"
        );
    }

    #[test]
    fn growth_of_cache_or_outside_memory_is_named() {
        let cache = [
            |second| 12_500 + second / 4 * 20,
            |second| 12_048 + second / 4 * 20,
            |second| 10_000 + swing(second),
        ];
        let (verdict, part, sentence, pattern) = watch(900, cache);
        assert_eq!(
            (verdict, part, pattern),
            (
                LeakVerdict::Leak,
                Some(MemoryPart::Cache),
                Some(GrowthPattern::Cache)
            ),
            "{sentence}"
        );
        assert!(sentence.starts_with("LEAK: unallocated +"), "{sentence}");
        let outside = [
            |second| 12_500 + second / 4 * 20,
            |_| 12_048,
            |second| 10_000 + swing(second),
        ];
        let (verdict, part, sentence, pattern) = watch(900, outside);
        assert_eq!(
            (verdict, part, pattern),
            (
                LeakVerdict::Leak,
                Some(MemoryPart::Outside),
                Some(GrowthPattern::NotPyTorch)
            ),
            "{sentence}"
        );
    }

    #[test]
    fn longer_batches_are_no_growth_of_allocated_memory() {
        // From 400 s on, a training step takes up to 4 GiB more than before, and releases it.
        let held = [
            |second| 18_500 + second,
            |second| 18_048 + second,
            |second| 10_000 + swing(second) * if second < 400 { 1 } else { 3 },
        ];
        for seconds in [800, 2400] {
            let (verdict, part, sentence, _) = watch(seconds, held);
            assert!(verdict >= LeakVerdict::Suspect, "{seconds} s: {sentence}");
            assert_eq!(part, Some(MemoryPart::Cache), "{seconds} s: {sentence}");
        }
    }

    #[test]
    fn steps_of_a_job_that_rests_are_no_growth() {
        let (verdict, part, sentence, pattern) = watch(
            900,
            [|_| 13_000, |_| 12_500, |second| 10_000 + swing(second)],
        );
        assert_eq!(
            (verdict, part, pattern),
            (LeakVerdict::Steady, None, None),
            "{sentence}"
        );
    }

    #[test]
    fn temporary_memory_counts_once_in_the_forecast() {
        let mut growth = PartedDetector::default();
        for second in 0..1200_u64 {
            let kept = 10_000 + 5 * second;
            let [held, reserved, allocated] =
                [kept + 2548, kept + 2048, kept + second * 37 % 5 * 512]
                    .map(|mib| Bytes(mib * MIB));
            growth.push(
                Moment(second * 1000),
                held,
                Some([reserved, allocated]),
                Some(Bytes::from_gib(40)),
            );
        }
        let forecast = growth
            .detector()
            .0
            .evidence()
            .and_then(|evidence| evidence.forecast)
            .expect("it leaks, and has an end");
        // PyTorch may take all but 500 MiB, and a training step needs 2 GiB of that.
        let truth = Duration::from_secs((40 * 1024 - 500 - 2048 - 16_000) / 5);
        assert!(
            forecast.low <= truth && truth <= forecast.high,
            "{forecast:?}, {truth:?}"
        );
        assert!(
            forecast.likely.abs_diff(truth) < truth / 20,
            "{forecast:?}, {truth:?}"
        );
    }
}
