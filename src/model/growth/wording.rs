//! What is thought of a growth, in words: for a table, for a program, and as a sentence with its numbers.

use std::fmt;
use std::time::Duration;

use super::{Evidence, Fall, LeakDetector, Outlook};
use crate::model::Weight;
use crate::units::Bytes;

impl Outlook {
    /// For the table, 8 columns at most.
    pub fn word(self) -> &'static str {
        match self {
            Self::TooSoon => "…",
            Self::Steady => "steady",
            Self::WarmingUp => "warm-up",
            Self::Suspect => "grows?",
            Self::Leak => "LEAK",
        }
    }

    /// How much a person should care.
    pub fn weight(self) -> Weight {
        match self {
            Self::Leak => Weight::Bad,
            Self::Suspect => Weight::Notable,
            Self::TooSoon | Self::Steady | Self::WarmingUp => Weight::Fine,
        }
    }

    /// The same for a program; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooSoon => "too_soon",
            Self::Steady => "steady",
            Self::WarmingUp => "warming_up",
            Self::Suspect => "suspect",
            Self::Leak => "leak",
        }
    }
}

/// `restarted`, as in "12 min ago it restarted".
impl fmt::Display for Fall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restarted => "restarted",
            Self::ContextGone => "context gone",
            Self::CacheEmptied => "cache emptied",
        })
    }
}

/// `+50 MiB per 100 s for 12 min, 38 new maxima where chance gives 1; out of memory in 3 h 10 min (2 h 50 to 3 h 40)`
impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what grows has a positive rate")]
        let part = Bytes((self.rate.0 * 100.0).max(0.0) as u64).to_string().replace(".0 ", " ");
        let span = Span(Duration::try_from_secs_f64(self.span).unwrap_or(Duration::ZERO));
        let maxima = if self.maxima == 1 { "maximum" } else { "maxima" };
        let chance = self.chance.round().max(1.0);
        write!(f, "+{part} per 100 s for {span}, {} new {maxima} where chance gives {chance}", self.maxima)?;
        if let Some(end) = self.forecast {
            let (likely, low, high) = (Span(end.likely), Span(end.low), Span(end.high));
            write!(f, "; out of memory in {likely} ({low:#} to {high:#})")?;
        }
        Ok(())
    }
}

impl LeakDetector {
    /// What is thought of it, and why: `LEAK: +50 MiB per 100 s for …`.
    pub fn sentence(&self) -> String {
        match (self.outlook(), self.evidence()) {
            (Outlook::TooSoon, _) => "not seen long enough to say".to_owned(),
            (outlook, None) => outlook.word().to_owned(),
            (outlook, Some(evidence)) => format!("{}: {evidence}", outlook.word()),
        }
    }
}

/// A span as one says it of the future: `45 s`, `12 min`, `3 h 10 min`, `2 d 4 h`; short (`{:#}`), `3 h 10`.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let minutes = (seconds + 30) / 60;
        // Of what is hours away, nobody knows the minute.
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
