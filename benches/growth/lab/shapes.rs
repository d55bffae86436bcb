//! The shapes of memory over time, healthy and leaking, each simulated by a job on the model
//! allocator.
//!
//! Sizes, rates, lengths of epochs and noise are drawn anew for each seed, over wide ranges.

mod healthy;
mod leaks;

use super::job::{Job, Lengths, Plan};
use super::random::Random;
use super::{Case, Label};

/// The shape of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Flat,
    WarmUp,
    SlowWarmUp,
    VariableLengths,
    Evaluation,
    Checkpoints,
    Curriculum,
    Restarts,
    Recompiles,
    Neighbours,
    EmptiedCache,
    Garbage,
    Serving,
    SortedEpoch,
    ReplayBuffer,
    SmallSteps,
    LargeSteps,
    EpochSteps,
    Sawtooth,
    Accelerating,
    LateOnset,
    InEvaluation,
    OneRank,
    Pausing,
    UnderHighWater,
    SlowerThanNoise,
}

const HOUR: f64 = 3600.0;

impl Shape {
    pub(crate) const ALL: [Self; 26] = [
        Self::Flat,
        Self::WarmUp,
        Self::SlowWarmUp,
        Self::VariableLengths,
        Self::Evaluation,
        Self::Checkpoints,
        Self::Curriculum,
        Self::Restarts,
        Self::Recompiles,
        Self::Neighbours,
        Self::EmptiedCache,
        Self::Garbage,
        Self::Serving,
        Self::SortedEpoch,
        Self::ReplayBuffer,
        Self::SmallSteps,
        Self::LargeSteps,
        Self::EpochSteps,
        Self::Sawtooth,
        Self::Accelerating,
        Self::LateOnset,
        Self::InEvaluation,
        Self::OneRank,
        Self::Pausing,
        Self::UnderHighWater,
        Self::SlowerThanNoise,
    ];

    pub(crate) fn label(self) -> Label {
        match self {
            Self::SortedEpoch | Self::ReplayBuffer => Label::AtMostSuspect,
            Self::UnderHighWater | Self::SlowerThanNoise => Label::HardLeak,
            _ if self >= Self::SmallSteps => Label::Leak,
            _ => Label::Healthy,
        }
    }

    /// Returns the case of a seed. Draws again if it ends before anything could be detected.
    pub(crate) fn make(self, seed: u64) -> Case {
        let mut random = Random::seeded(seed ^ ((self as u64) << 40));
        loop {
            let case = self.draw(&mut random);
            let is_some = match case.onset {
                None => case.out_of_memory_at.is_none() && case.end > 1800.0,
                Some(_) => {
                    case.out_of_memory_at.is_some() && case.end - case.detectable_from() > 600.0
                }
            };
            if is_some {
                return case;
            }
        }
    }

    fn draw(self, random: &mut Random) -> Case {
        let mut case = match self {
            Self::Flat => healthy::flat(random),
            Self::WarmUp => healthy::warm_up(random),
            Self::SlowWarmUp => healthy::slow_warm_up(random),
            Self::VariableLengths => healthy::variable_lengths(random),
            Self::Evaluation => healthy::evaluation(random),
            Self::Checkpoints => healthy::checkpoints(random),
            Self::Curriculum => healthy::curriculum(random),
            Self::Restarts => healthy::restarts(random),
            Self::Recompiles => healthy::recompiles(random),
            Self::Neighbours => healthy::neighbours(random),
            Self::EmptiedCache => healthy::emptied_cache(random),
            Self::Garbage => healthy::garbage(random),
            Self::Serving => healthy::serving(random),
            Self::SortedEpoch => healthy::sorted_epoch(random),
            Self::ReplayBuffer => healthy::replay_buffer(random),
            Self::SmallSteps => leaks::steady(random, false, &leaks::Onset::Early),
            Self::LargeSteps => leaks::steady(random, true, &leaks::Onset::Early),
            Self::LateOnset => {
                let large = random.chance(0.5);
                leaks::steady(random, large, &leaks::Onset::Late)
            }
            Self::OneRank => leaks::one_rank(random),
            Self::EpochSteps => leaks::epoch_steps(random),
            Self::Sawtooth => leaks::sawtooth(random),
            Self::Accelerating => leaks::accelerating(random),
            Self::InEvaluation => leaks::in_evaluation(random),
            Self::Pausing => leaks::pausing(random),
            Self::UnderHighWater => leaks::under_high_water(random),
            Self::SlowerThanNoise => leaks::slower_than_noise(random),
        };
        case.shape = self;
        // The observer may start late: the series then begins in the middle of the job.
        let first = case.onset.or(case.plateau.map(|_| 0.0)).unwrap_or(HOUR);
        if random.chance(0.2) && first > 0.0 {
            case.drop_before(random.uniform(0.0, first));
        }
        case
    }
}

/// The seconds for which healthy jobs are observed.
fn hours(random: &mut Random) -> f64 {
    random.log_uniform(2.0 * HOUR, 16.0 * HOUR)
}

fn mild(random: &mut Random) -> Lengths {
    match random.whole(0, 2) {
        0 => Lengths::Fixed,
        1 => Lengths::Buckets(4),
        _ => Lengths::Uniform(0.9),
    }
}

fn varied(random: &mut Random) -> Lengths {
    match random.whole(0, 4) {
        0 => Lengths::Uniform(0.1),
        1 => Lengths::LogNormal(random.uniform(0.2, 0.8)),
        2 => Lengths::Buckets(random.whole(3, 40)),
        3 => Lengths::HeavyTail,
        _ => Lengths::Uniform(0.7),
    }
}

fn random_job(random: &mut Random, low: f64, high: f64, lengths: Lengths) -> Job {
    let plan = Plan {
        lengths,
        ..Plan::random(random, low, high)
    };
    Job::start(plan, random.clone())
}
