//! The verdicts on two runs in one sentence: did a change help?

use crate::logs::analyze::LogSummary;
use crate::logs::recorded_run::{ObservedGrowth, RecordedRun};
use crate::model::LeakVerdict;

/// The verdict on a run: that of its series with the fastest leak.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunVerdict {
    /// The rate in words, and the name of the series.
    Leaked {
        rate: String,
        name: String,
    },
    /// Memory grew at this rate, and was not called a leak.
    Grew {
        rate: String,
    },
    Suspect,
    /// Memory grew ever more slowly, up to a plateau.
    Filled,
    DoesNotLeak,
    TooSoon,
}

impl RunVerdict {
    /// The name in JSON, as that of a series in `gputop analyze`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Leaked { .. } => LeakVerdict::Leak.name(),
            Self::Suspect | Self::Grew { .. } => LeakVerdict::Suspect.name(),
            Self::Filled => LeakVerdict::Filling.name(),
            Self::DoesNotLeak => LeakVerdict::Steady.name(),
            Self::TooSoon => LeakVerdict::TooSoon.name(),
        }
    }

    pub(super) fn of_recording(run: &RecordedRun) -> Self {
        let leaks = run.hosts.iter().flat_map(|host| {
            host.leaks
                .iter()
                .map(move |leak| (leak.evidence.rate, host.subject_name(&leak.subject)))
        });
        let worst = leaks.max_by(|one, other| one.0.0.total_cmp(&other.0.0));
        let longest = run
            .hosts
            .iter()
            .map(|host| host.ended.saturating_sub(host.began))
            .max();
        match worst {
            Some((rate, name)) => Self::Leaked {
                rate: rate.to_string(),
                name,
            },
            None if longest.unwrap_or(0) < SHORTEST_MS => Self::TooSoon,
            None => fastest_growth(run).map_or(Self::DoesNotLeak, |growth| Self::Grew {
                rate: growth.to_string(),
            }),
        }
    }

    pub(super) fn of_log(log: &LogSummary) -> Self {
        let leaks = log.series.iter().filter_map(|series| {
            Some((
                series.leak_rate?,
                series.leak_words.clone()?,
                series.name.clone(),
            ))
        });
        if let Some((_, rate, name)) = leaks.max_by(|one, other| one.0.total_cmp(&other.0)) {
            return Self::Leaked { rate, name };
        }
        match log.series.iter().map(|series| series.verdict).max() {
            Some(LeakVerdict::TooSoon) | None => Self::TooSoon,
            Some(LeakVerdict::Suspect) => Self::Suspect,
            Some(LeakVerdict::Filling) => Self::Filled,
            _ => Self::DoesNotLeak,
        }
    }

    /// Returns the words behind the name of a side. `names` says whether to name the series.
    fn words(&self, names: bool) -> String {
        match self {
            Self::Leaked { rate, name } if names => {
                format!("leaked {} ({name})", rate.trim_start_matches('+'))
            }
            Self::Leaked { rate, .. } => format!("leaked {}", rate.trim_start_matches('+')),
            Self::Grew { rate } => {
                format!(
                    "grew {}, which is not called a leak yet",
                    rate.trim_start_matches('+')
                )
            }
            Self::Suspect => "is suspect".to_owned(),
            Self::Filled => "fills up, which is no leak".to_owned(),
            Self::DoesNotLeak => "does not".to_owned(),
            Self::TooSoon => "is too short to judge".to_owned(),
        }
    }
}

/// Returns the fastest growth of a GPU or process that is more than noise.
fn fastest_growth(run: &RecordedRun) -> Option<ObservedGrowth> {
    /// Bytes per hour that matter.
    const LEAST: f64 = 67_108_864.0;
    let is_sure = |(growth, error): &(ObservedGrowth, Option<f64>)| {
        growth.per_hour() > LEAST.max(2.0 * error.unwrap_or(0.0))
    };
    let growths = run.hosts.iter().flat_map(|host| {
        let gpus = host
            .gpus
            .iter()
            .map(|gpu| (gpu.curve.growth(), gpu.curve.growth_error()));
        let processes = host
            .processes
            .values()
            .map(|process| (process.curve.growth(), process.curve.growth_error()));
        gpus.chain(processes)
    });
    growths
        .filter_map(|(growth, error)| Some((growth?, error)))
        .filter(is_sure)
        .map(|(growth, _)| growth)
        .max_by(|one, other| one.per_hour().total_cmp(&other.per_hour()))
}

/// No leak is called in a shorter recording.
const SHORTEST_MS: u64 = 120_000;

/// Returns the verdicts on both runs: `A leaked 114 MiB/min, B does not`.
pub(super) fn sentence([a, b]: &[RunVerdict; 2]) -> String {
    use RunVerdict::{DoesNotLeak, Leaked};
    let named = |verdict: &RunVerdict| match verdict {
        Leaked { name, .. } => Some(name.clone()),
        _ => None,
    };
    let differ = named(a).zip(named(b)).is_some_and(|(a, b)| a != b);
    match (a, b) {
        (DoesNotLeak, DoesNotLeak) => "neither A nor B leaks".to_owned(),
        (Leaked { .. }, _) => format!("A {}, B {}", a.words(differ), b.words(differ)),
        (_, Leaked { .. }) => format!("B {}, A {}", b.words(differ), a.words(differ)),
        _ => {
            let words = |verdict: &RunVerdict| match verdict {
                DoesNotLeak => "does not leak".to_owned(),
                verdict => verdict.words(false),
            };
            format!("A {}, B {}", words(a), words(b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_tells_the_leak_first() {
        let leaked = |rate: &str, name: &str| RunVerdict::Leaked {
            rate: rate.to_owned(),
            name: name.to_owned(),
        };
        let both = |a: &RunVerdict, b: &RunVerdict| sentence(&[a.clone(), b.clone()]);
        let (fast, slow) = (
            leaked("+114 MiB/min", "GPU 0"),
            leaked("+2 MiB/min", "GPU 1"),
        );
        assert_eq!(
            both(&fast, &RunVerdict::DoesNotLeak),
            "A leaked 114 MiB/min, B does not"
        );
        assert_eq!(
            both(&RunVerdict::DoesNotLeak, &fast),
            "B leaked 114 MiB/min, A does not"
        );
        assert_eq!(
            both(&fast, &fast),
            "A leaked 114 MiB/min, B leaked 114 MiB/min"
        );
        assert_eq!(
            both(&fast, &slow),
            "A leaked 114 MiB/min (GPU 0), B leaked 2 MiB/min (GPU 1)"
        );
        assert_eq!(
            both(&RunVerdict::DoesNotLeak, &RunVerdict::DoesNotLeak),
            "neither A nor B leaks"
        );
        let grew = RunVerdict::Grew {
            rate: "+1 GiB/min".to_owned(),
        };
        assert_eq!(
            both(&fast, &grew),
            "A leaked 114 MiB/min, B grew 1 GiB/min, which is not called a leak yet"
        );
        assert_eq!(
            both(&RunVerdict::TooSoon, &RunVerdict::DoesNotLeak),
            "A is too short to judge, B does not leak"
        );
    }
}
