//! The verdicts on two runs in one sentence: did a change help?

use crate::logs::analyze::LogSummary;
use crate::logs::recorded_run::RecordedRun;
use crate::model::LeakVerdict;

/// The verdict on a run: that of its series with the fastest leak.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunVerdict {
    /// The rate in words, and the name of the series.
    Leaked {
        rate: String,
        name: String,
    },
    Suspect,
    DoesNotLeak,
    TooSoon,
}

impl RunVerdict {
    /// The name in JSON, as that of a series in `gputop analyze`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Leaked { .. } => LeakVerdict::Leak.name(),
            Self::Suspect => LeakVerdict::Suspect.name(),
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
            None => Self::DoesNotLeak,
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
            Self::Suspect => "is suspect".to_owned(),
            Self::DoesNotLeak => "does not".to_owned(),
            Self::TooSoon => "is too short to judge".to_owned(),
        }
    }
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
        assert_eq!(
            both(&RunVerdict::TooSoon, &RunVerdict::DoesNotLeak),
            "A is too short to judge, B does not leak"
        );
    }
}
