//! Finds ranks that may hold up the others of their job.
//!
//! A rank that waits for another one in NCCL keeps its GPU at 100 %, and the slow one may look idle:
//! use of the GPU alone proves nothing. A candidate has a slower GPU than the median of its job for a
//! minute: by its clock, by its power, by fewer PCIe lanes, or because its hardware slows it down.

use std::time::Duration;

use super::figures::{JobMedians, RankFigures};
use super::{FleetJob, JobRank};
use crate::base::units::{Hertz, Moment, Watts};
use crate::model::HostModel;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::Throttle;

/// How long a difference lasts before it counts: a step, an evaluation or a checkpoint is shorter.
const LASTING: Duration = Duration::from_mins(1);

/// The share of the median clock and of the median power below which a rank differs. Clocks of equal
/// GPUs differ by a few percent, and their power by the program's phase.
const LOW_CLOCK: f64 = 0.9;
const LOW_POWER: f32 = 0.75;

/// A way in which the GPU of a rank is slower than the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Lag {
    /// The clock, and the median.
    Clock(Hertz, Hertz),
    /// The reason why the hardware lowers the clock. Most other ranks have none.
    Slowdown(Throttle),
    /// The PCIe lanes in use, and the median.
    Link(u32, u32),
    /// The power, and the median.
    Power(Watts, Watts),
}

/// The number of ways.
const WAYS: usize = 4;

impl Lag {
    fn way(self) -> usize {
        match self {
            Self::Clock(..) => 0,
            Self::Slowdown(_) => 1,
            Self::Link(..) => 2,
            Self::Power(..) => 3,
        }
    }
}

/// Since when the GPU of a rank is slower than the others, by each way; the time of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaggingRank {
    rank: JobRank,
    since: [Option<Moment>; WAYS],
}

/// The ways in which a rank is slower now.
fn lags(
    figures: RankFigures,
    medians: JobMedians,
    is_whole_job_slow: bool,
) -> impl Iterator<Item = Lag> {
    #[expect(clippy::cast_precision_loss, reason = "a clock has ten digits")]
    let is_slow = |(clock, median): &(Hertz, Hertz)| (clock.0 as f64) < median.0 as f64 * LOW_CLOCK;
    let clock = figures.clock.zip(medians.clock).filter(is_slow);
    let slowdown = figures.slowdown.filter(|_| !is_whole_job_slow);
    let link = figures
        .link_width
        .zip(medians.link_width)
        .filter(|(width, median)| width < median);
    let power = figures
        .power
        .zip(medians.power)
        .filter(|(power, median)| power.value() < median.value() * LOW_POWER);
    [
        clock.map(|(clock, median)| Lag::Clock(clock, median)),
        slowdown.map(Lag::Slowdown),
        link.map(|(width, median)| Lag::Link(width, median)),
        power.map(|(power, median)| Lag::Power(power, median)),
    ]
    .into_iter()
    .flatten()
}

/// Whether most ranks are slowed down by their hardware: then none is the odd one.
fn is_whole_job_slow(figures: &[RankFigures]) -> bool {
    let slow = figures.iter().filter(|rank| rank.slowdown.is_some());
    2 * slow.count() >= figures.len()
}

impl FleetJob {
    /// Notes which ranks are slower than the others at the latest lines of their hosts. `is_new`:
    /// whether a host has sent a line since the last time.
    pub(super) fn note_lags<'a>(
        &mut self,
        model: impl Fn(HostKey) -> Option<&'a HostModel>,
        is_new: impl Fn(HostKey) -> bool,
    ) {
        if self.ranks.len() < 3 || !self.parts.iter().any(|part| is_new(part.host)) {
            return;
        }
        let figures = self.figures(&model);
        let medians = JobMedians::of(&figures);
        let is_whole_job_slow = is_whole_job_slow(&figures);
        let mut lagging = Vec::new();
        for (rank, figures) in self.ranks.iter().zip(&figures) {
            let known = self
                .lagging
                .iter()
                .find(|known| known.rank.process == rank.process && known.rank.host == rank.host);
            if !is_new(rank.host) {
                lagging.extend(known);
                continue;
            }
            let mut since = [None; WAYS];
            for lag in lags(*figures, medians, is_whole_job_slow) {
                let now = model(rank.host).map_or(Moment::default(), HostModel::now);
                since[lag.way()] = Some(
                    known
                        .and_then(|known| known.since[lag.way()])
                        .unwrap_or(now),
                );
            }
            if since.iter().any(Option::is_some) {
                lagging.push(LaggingRank { rank: *rank, since });
            }
        }
        self.lagging = lagging;
    }

    /// The ways in which a rank has been slower than the others for a minute, each with the time of
    /// its host since when; none for a rank that is no candidate for a straggler.
    pub(crate) fn straggles<'a>(
        &self,
        rank: JobRank,
        figures: &[RankFigures],
        model: impl Fn(HostKey) -> Option<&'a HostModel>,
    ) -> Vec<(Lag, Moment)> {
        let known = self.lagging.iter().find(|known| known.rank == rank);
        let place = self.ranks.iter().position(|other| *other == rank);
        let (Some(known), Some(place), Some(model)) = (known, place, model(rank.host)) else {
            return Vec::new();
        };
        let lags = lags(
            figures[place],
            JobMedians::of(figures),
            is_whole_job_slow(figures),
        );
        let lasting = lags.filter_map(|lag| {
            let since = known.since[lag.way()]?;
            (model.now().since(since) >= LASTING).then_some((lag, since))
        });
        lasting.collect()
    }
}
