//! The figures of the ranks of a job, and their medians.

use super::{FleetJob, JobRank};
use crate::base::units::{Bytes, Hertz, Percent, Watts};
use crate::model::HostModel;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::{Gpu, ProcessId, Throttle};

/// The figures of a rank and of the GPU on which it holds most memory; `None` where a figure is not
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct RankFigures {
    /// The memory that the process of the rank holds, on all of its GPUs.
    pub(crate) memory: Option<Bytes>,
    /// The memory of PyTorch's tensors.
    pub(crate) allocated: Option<Bytes>,
    pub(crate) sm: Option<Percent>,
    pub(crate) power: Option<Watts>,
    pub(crate) clock: Option<Hertz>,
    /// The number of PCIe lanes.
    pub(crate) link_width: Option<u32>,
    /// Why the hardware or its temperature lowers the clock; `None` if neither does, or if that is
    /// not known.
    pub(crate) slowdown: Option<Throttle>,
}

impl RankFigures {
    /// Returns the figures of a rank by the latest line of its host.
    pub(crate) fn of(model: &HostModel, process: ProcessId) -> Self {
        let Some(snapshot) = model.latest() else {
            return Self::default();
        };
        let total = model.process_total(process);
        let allocator = snapshot
            .process(process)
            .and_then(|process| process.allocator.as_deref());
        let allocated = allocator.and_then(|stats| {
            let mut devices = stats.devices.iter();
            devices.try_fold(Bytes(0), |sum, device| {
                Some(Bytes(sum.0.saturating_add(device.allocated.ok()?.0)))
            })
        });
        let of_process = Self {
            memory: total.and_then(|total| Some(total.memory.ok()?.bytes)),
            allocated: allocated
                .filter(|_| allocator.is_some_and(|stats| !stats.devices.is_empty())),
            ..Self::default()
        };
        let Some(gpu) = main_gpu(model, process) else {
            return of_process;
        };
        let reasons = gpu.load.throttle.as_ref().ok();
        let is_slowdown =
            |reason: &&Throttle| !matches!(reason, Throttle::PowerCap | Throttle::SyncBoost);
        Self {
            sm: gpu.load.sm.ok(),
            power: gpu.load.power.ok(),
            clock: gpu.load.sm_clock.ok(),
            link_width: gpu.health.pcie_width.ok(),
            slowdown: reasons
                .and_then(|reasons| reasons.iter().copied().find(|reason| is_slowdown(&reason))),
            ..of_process
        }
    }
}

/// Returns the GPU on which a process holds most memory; `None` if it uses none.
pub(crate) fn main_gpu(model: &HostModel, process: ProcessId) -> Option<&Gpu> {
    let places = &model.process_total(process)?.gpus;
    let mut gpus = model.latest()?.gpus_at(places);
    if places.len() == 1 {
        return gpus.next();
    }
    gpus.max_by_key(|gpu| {
        let held = gpu.process(process).and_then(|held| held.memory.ok());
        (held, std::cmp::Reverse(gpu.facts.index))
    })
}

/// The medians of a job over the ranks whose figure is known; `None` with fewer than three of them,
/// where no rank is the odd one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct JobMedians {
    pub(crate) memory: Option<Bytes>,
    pub(crate) allocated: Option<Bytes>,
    pub(crate) sm: Option<Percent>,
    pub(crate) power: Option<Watts>,
    pub(crate) clock: Option<Hertz>,
    pub(crate) link_width: Option<u32>,
}

/// The fewest ranks that have a median.
const FEWEST: usize = 3;

impl JobMedians {
    pub(crate) fn of(ranks: &[RankFigures]) -> Self {
        Self {
            memory: median(ranks, |rank| rank.memory),
            allocated: median(ranks, |rank| rank.allocated),
            sm: median_by(ranks, |rank| rank.sm, Percent::value),
            power: median_by(ranks, |rank| rank.power, Watts::value),
            clock: median(ranks, |rank| rank.clock),
            link_width: median(ranks, |rank| rank.link_width),
        }
    }
}

/// Returns the median of an amount; the higher one of the two in the middle.
fn median<T: Ord + Copy>(
    ranks: &[RankFigures],
    figure: impl Fn(&RankFigures) -> Option<T>,
) -> Option<T> {
    let mut values: Vec<T> = ranks.iter().filter_map(figure).collect();
    let middle = values.len() / 2;
    (values.len() >= FEWEST).then(|| *values.select_nth_unstable(middle).1)
}

/// Returns the median of a figure by its value.
fn median_by<T: Copy>(
    ranks: &[RankFigures],
    figure: impl Fn(&RankFigures) -> Option<T>,
    value: impl Fn(T) -> f32,
) -> Option<T> {
    let mut values: Vec<T> = ranks.iter().filter_map(figure).collect();
    let middle = values.len() / 2;
    let order = |a: &T, b: &T| value(*a).total_cmp(&value(*b));
    (values.len() >= FEWEST).then(|| *values.select_nth_unstable_by(middle, order).1)
}

impl FleetJob {
    /// The figures of all ranks, in their order; none of a host without a model.
    pub(crate) fn figures<'a>(
        &self,
        model: impl Fn(HostKey) -> Option<&'a HostModel>,
    ) -> Vec<RankFigures> {
        let mut known: Option<(HostKey, Option<&HostModel>)> = None;
        let mut of_rank = |rank: &JobRank| {
            let model = match known {
                Some((host, model)) if host == rank.host => model,
                _ => model(rank.host),
            };
            known = Some((rank.host, model));
            model.map_or_else(RankFigures::default, |model| {
                RankFigures::of(model, rank.process)
            })
        };
        self.ranks.iter().map(&mut of_rank).collect()
    }
}
