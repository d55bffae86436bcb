//! What to think of a GPU, in a word.

use std::time::Duration;

use crate::snapshot::{Gpu, Missing, Throttle};
use crate::units::{Elapsed, Moment};

/// How much a person should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing to see.
    Fine,
    /// It may explain a slow job.
    Notable,
    /// Something is wrong.
    Bad,
}

/// A word on a GPU, and its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// As in `ok`, `power cap`, `Xid 79`.
    pub word: String,
    /// How bad that is.
    pub weight: Weight,
}

impl Health {
    fn new(weight: Weight, word: impl Into<String>) -> Self {
        Self { word: word.into(), weight }
    }
}

/// An Xid is news for so long.
const NEWS: Duration = Duration::from_hours(1);

/// The first that holds, worst first:
///
/// 1. it does not answer: lost, hung and how long, refused;
/// 2. an Xid error came within the last hour;
/// 3. its memory has errors that ECC could not mend;
/// 4. hardware slowed it down, or heat did, or it is as hot as where it slows down;
/// 5. software holds its clocks at a limit of power;
/// 6. something that should be read cannot be, or a call fails;
/// 7. nothing of that can be told, or nothing of that is so.
pub(super) fn judge(gpu: &Gpu, now: Moment) -> Health {
    use Weight::{Bad, Fine, Notable};
    if let Some(trouble) = &gpu.trouble {
        return Health::new(Bad, format!("{} {}", trouble.cause, Elapsed(now.since(trouble.since))));
    }
    if let Some(xid) = gpu.health.xids.last().filter(|xid| now.since(xid.at) < NEWS) {
        return Health::new(Bad, format!("Xid {}", xid.code));
    }
    if let Ok(errors @ 1..) = gpu.health.ecc_uncorrected {
        return Health::new(Bad, format!("ECC {errors}"));
    }
    let throttle = gpu.load.throttle.as_deref().unwrap_or_default();
    if let Some(reason) = throttle.iter().find(|it| **it != Throttle::PowerCap && **it != Throttle::SyncBoost) {
        return Health::new(Bad, reason.to_string());
    }
    if let (Ok(is), Ok(limit)) = (gpu.load.temperature, gpu.facts.slowdown_temperature)
        && is >= limit
    {
        return Health::new(Bad, "hot");
    }
    let load = &gpu.load;
    let reasons = [
        load.memory_used.err(),
        load.sm.err(),
        load.temperature.err(),
        load.power.err(),
        load.throttle.as_ref().err().copied(),
    ];
    match throttle.first() {
        Some(reason) => Health::new(Notable, reason.to_string()),
        None if !gpu.failures.is_empty() || reasons.contains(&Some(Missing::Failed)) => Health::new(Notable, "ERR"),
        None if load.throttle.is_err() && load.temperature.is_err() && gpu.health.ecc_uncorrected.is_err() => {
            Health::new(Fine, "unknown")
        }
        None => Health::new(Fine, "ok"),
    }
}
