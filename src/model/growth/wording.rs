//! The wording of leak verdicts and their evidence: a word for the table, a name for JSON, and a
//! sentence with the figures.

use std::fmt;
use std::time::Duration;

use super::buckets::BucketLevels;
use super::limits::LIMITS;
use super::watched_growth::WatchedGrowth;
use super::{Evidence, LeakDetector, LeakVerdict, Plateau, Rate, to_bytes};
use crate::base::units::Bytes;
use crate::model::Severity;

/// The least slow growth in KiB that the sentence mentions: less takes days to matter.
const LEAST_GROWTH: f64 = 65_536.0;

/// The rate in bytes per minute below which the sentence gives the rate per hour.
const LEAST_PER_MINUTE: f64 = 1_048_576.0;

const MONTH: f64 = 30.0 * 86_400.0;

impl LeakVerdict {
    /// The word for the table, at most 8 columns wide.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::TooSoon => "…",
            Self::Steady => "steady",
            Self::WarmingUp => "warm-up",
            Self::Filling => "filling",
            Self::Suspect => "growing?",
            Self::Leak => "LEAK",
        }
    }

    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Leak => Severity::Bad,
            Self::Suspect => Severity::Notable,
            Self::TooSoon | Self::Steady | Self::WarmingUp | Self::Filling => Severity::Fine,
        }
    }

    /// Whether memory grows, leak or not.
    pub(crate) fn grows(self) -> bool {
        self >= Self::Filling
    }

    /// The name in JSON; never changes.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Rate {
    /// The gain in a minute or an hour, and the word for that time. A slow growth is easier to read
    /// per hour.
    pub(crate) fn per_unit(self) -> (Bytes, &'static str) {
        let (seconds, unit) = if self.0 * 60.0 >= LEAST_PER_MINUTE {
            (60.0, "min")
        } else {
            (3600.0, "h")
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a growth has a positive rate"
        )]
        let amount = Bytes((self.0 * seconds).max(0.0) as u64);
        (amount, unit)
    }
}

/// `+30 MiB/min`
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (amount, unit) = self.per_unit();
        write!(f, "+{}/{unit}", amount.to_string().replace(".0 ", " "))
    }
}

/// `levels off near 81.0 GiB (79.5 GiB to 83.0 GiB)`
impl fmt::Display for Plateau {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            likely, low, high, ..
        } = self;
        match (self.is_known, self.is_above_limit) {
            (false, _) => write!(f, "may level off near {likely}"),
            (true, false) => write!(f, "levels off near {likely} ({low} to {high})"),
            (true, true) => write!(
                f,
                "would level off near {likely}, which is more than there is"
            ),
        }
    }
}

/// `+30 MiB/min for 12 min (38 new highs, 1 expected by chance); out of memory in 3 h 10 min (2 h
/// 50 to 3 h 40)`
impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = RoughSpan(Duration::try_from_secs_f64(self.span).unwrap_or(Duration::ZERO));
        let highs = if self.maxima == 1 { "high" } else { "highs" };
        let chance = self.chance.round().max(1.0);
        write!(
            f,
            "{} for {span} ({} new {highs}, {chance} expected by chance)",
            self.rate, self.maxima
        )?;
        if let Some(plateau) = self.plateau {
            write!(f, "; {plateau}")?;
        }
        if let Some(end) = self.forecast {
            let (likely, low, high) = (
                RoughSpan(end.likely),
                RoughSpan(end.low),
                RoughSpan(end.high),
            );
            write!(f, "; out of memory in {likely} ({low:#} to {high:#})")?;
            if self.speeds_up {
                f.write_str("; speeding up: could be much sooner")?;
            }
        }
        Ok(())
    }
}

impl LeakDetector {
    /// The verdict and its evidence: `LEAK: +30 MiB/min for …`.
    pub(crate) fn sentence(&self) -> String {
        match (self.verdict(), self.evidence()) {
            (LeakVerdict::TooSoon, _) => "not seen long enough to say".to_owned(),
            (verdict, None) => match self.slow_growth() {
                Some(creep) => format!("{}, though {creep}", verdict.word()),
                None => verdict.word().to_owned(),
            },
            (verdict, Some(evidence)) => format!("{}: {evidence}", verdict.word()),
        }
    }

    /// The growth of a series that is steady because it would take days to fill memory: `+1.8 GiB
    /// in 58 min; at this pace memory lasts 3 d 4 h`. `None` where there is no even growth, or
    /// memory lasts more than a month.
    pub(crate) fn slow_growth(&self) -> Option<String> {
        if self.verdict() != LeakVerdict::Steady || self.levels.is_constant() {
            return None;
        }
        let slow = |level: usize| {
            let grown = self
                .growths(level)
                .filter(|growth| growth.is_even && growth.gained >= LEAST_GROWTH);
            grown.max_by(|one, other| one.span.total_cmp(&other.span))
        };
        let growth = (0..BucketLevels::COUNT).rev().find_map(slow)?;
        // Coarse buckets show late that it has stopped.
        WatchedGrowth::new(growth, &self.levels, None)
            .has_stopped(&self.levels)
            .is_none()
            .then_some(())?;
        let span = |seconds: f64| Duration::try_from_secs_f64(seconds).ok().map(RoughSpan);
        let grown = format!(
            "+{} in {}",
            Bytes(to_bytes(growth.gained)),
            span(growth.span)?
        );
        let Some(limit) = self.limit() else {
            return Some(grown);
        };
        // Growth that fills memory sooner is not slow, although it is not called a leak yet.
        let lasts = Some((limit - self.held()) / growth.rate())
            .filter(|seconds| (LIMITS.gates.longest_left..MONTH).contains(seconds))?;
        Some(format!(
            "{grown}; at this pace memory lasts {}",
            span(lasts)?
        ))
    }
}

/// A rounded span: `45 s`, `12 min`, `3 h 10 min`, `2 d 4 h`; short (`{:#}`): `3 h 10`.
struct RoughSpan(Duration);

impl fmt::Display for RoughSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let minutes = (seconds + 30) / 60;
        // Minutes would be false precision for an end that is hours away.
        let tens = (minutes + 5) / 10 * 10;
        let hours = (minutes + 30) / 60;
        match () {
            () if seconds < 100 => write!(f, "{seconds} s"),
            () if minutes < 100 => write!(f, "{minutes} min"),
            () if hours >= 48 => write!(f, "{} d {} h", hours / 24, hours % 24),
            () if f.alternate() => write!(f, "{} h {:02}", tens / 60, tens % 60),
            () if tens.is_multiple_of(60) => write!(f, "{} h", tens / 60),
            () => write!(f, "{} h {} min", tens / 60, tens % 60),
        }
    }
}
