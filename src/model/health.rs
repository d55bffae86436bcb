//! What to think of a GPU, in a word.

use std::time::Duration;

use crate::base::units::{Elapsed, Moment};
use crate::protocol::snapshot::{Gpu, Missing, Throttle};

/// How much a person should care.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is told, so nothing says that it is well.
    Untold,
    /// Nothing to see.
    Fine,
    /// It may explain a slow job.
    Notable,
    /// Something is wrong.
    Bad,
}

/// A word on a GPU, and its severity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthVerdict {
    /// As in `ok`, `power cap`, `Xid 79`, `hung`.
    pub word: String,
    /// The same for where there is room, as in `Xid 79: fell off the bus`, `row remap pending: reset when idle`, `hung 12s`.
    pub phrase: String,
    /// How bad that is.
    pub severity: Severity,
}

impl HealthVerdict {
    fn new(severity: Severity, word: impl Into<String>) -> Self {
        let word = word.into();
        Self { phrase: word.clone(), word, severity }
    }

    fn or(self, phrase: impl Into<String>) -> Self {
        Self { phrase: phrase.into(), ..self }
    }
}

/// An Xid is news for so long.
const NEWS: Duration = Duration::from_hours(1);

/// What NVIDIA's catalogue says of an Xid, in few words; absent for one that is seldom seen.
pub fn xid(code: u64) -> Option<&'static str> {
    Some(match code {
        13 => "graphics engine exception, mostly the program's",
        31 => "memory page fault, mostly the program's",
        32 => "corrupt push buffer",
        38 => "driver firmware error",
        43 => "a program's work was stopped",
        45 => "work cleaned up after another error",
        48 => "memory error that ECC could not mend",
        61 | 62 => "internal microcontroller error",
        63 => "a row remap or page retirement was noted",
        64 => "a row remap or page retirement failed",
        68 => "video processor exception, mostly the program's",
        69 => "graphics engine class error",
        74 => "NVLink error",
        79 => "fell off the bus",
        92 => "many memory errors that ECC mended",
        94 => "memory error, contained: one program ended",
        95 => "memory error, not contained: reset it",
        109 => "context switch timeout",
        119 => "GSP firmware does not answer",
        120 => "GSP firmware error",
        121 => "chip-to-chip link error",
        140 => "memory error that ECC could not mend",
        143 => "could not be initialized",
        154 => "it says that it wants to be mended",
        _ => return None,
    })
}

/// Whether an Xid comes from what a program did, far more often than from the GPU.
fn is_of_a_program(xid: u64) -> bool {
    matches!(xid, 13 | 31 | 43 | 45 | 68 | 69 | 109)
}

/// What the driver says should be done to mend a GPU, by NVML's number; absent for nothing.
pub fn recovery(action: u32) -> Option<(&'static str, &'static str)> {
    match action {
        0 => None,
        1 => Some(("needs reset", "reset it when nobody is on it")),
        2 => Some(("needs reboot", "reboot the host")),
        3 => Some(("drain P2P", "end what uses it together with other GPUs, then reset it")),
        4 => Some(("drain, reset", "let it do no new work, and reset it when nobody is on it")),
        5 => Some(("recover IMEX", "recover its IMEX domain")),
        6 => Some(("reset bus", "reset the bus that it is on")),
        7 => Some(("reboot all", "reboot the whole system that it is a part of")),
        _ => Some(("needs repair", "the driver asks for a repair that this gputop does not know")),
    }
}

/// The first that holds, worst first:
///
/// 1. it does not answer, or not to all: lost, hung and how long, refused, in need of a reset;
/// 2. an Xid error of the hardware came within the last hour;
/// 3. its memory has a row that could not be replaced, or errors that ECC could not mend;
/// 4. hardware slowed it down, or heat did, or it is as hot as where it slows down;
/// 5. its memory waits for a reset or a reboot to be mended, or the driver asks for a repair;
/// 6. an Xid error of a program came within the last hour;
/// 7. software holds its clocks at a limit of power;
/// 8. something that should be read cannot be, or a call fails;
/// 9. nothing of that can be told, or nothing of that is so.
pub(super) fn judge(gpu: &Gpu, now: Moment) -> HealthVerdict {
    use Severity::{Bad, Fine, Notable, Untold};
    if let Some(trouble) = &gpu.trouble {
        let word = trouble.cause.to_string();
        let phrase = format!("{word} {}", Elapsed(now.since(trouble.since)));
        return HealthVerdict::new(Bad, word).or(phrase);
    }
    let health = &gpu.health;
    let news = || health.xids.iter().rev().filter(|xid| now.since(xid.at) < NEWS).map(|xid| xid.code);
    let of_xid = |severity, code: u64| {
        let word = HealthVerdict::new(severity, format!("Xid {code}"));
        match xid(code) {
            Some(words) => word.or(format!("Xid {code}: {words}")),
            None => word,
        }
    };
    if let Some(code) = news().find(|code| !is_of_a_program(*code)) {
        return of_xid(Bad, code);
    }
    if health.remap_failed == Ok(true) {
        return HealthVerdict::new(Bad, "remap failed")
            .or("row remap failed: no spare row is left, have the board replaced");
    }
    if let Ok(errors @ 1..) = health.ecc_uncorrected {
        return HealthVerdict::new(Bad, format!("ECC {errors}"))
            .or(format!("ECC: {errors} errors that were not mended"));
    }
    let throttle = gpu.load.throttle.as_deref().unwrap_or_default();
    if let Some(reason) = throttle.iter().find(|it| **it != Throttle::PowerCap && **it != Throttle::SyncBoost) {
        return HealthVerdict::new(Bad, reason.to_string()).or(format!("throttled: {reason}"));
    }
    if let (Ok(is), Ok(limit)) = (gpu.load.temperature, gpu.facts.slowdown_temperature)
        && is >= limit
    {
        return HealthVerdict::new(Bad, "hot").or("as hot as where it slows down");
    }
    if health.remap_pending == Ok(true) {
        return HealthVerdict::new(Notable, "row remap").or("row remap pending: reset when idle");
    }
    if health.retired_pending == Ok(true) {
        return HealthVerdict::new(Notable, "page retire").or("page retirement pending: reboot when idle");
    }
    if let Some((word, phrase)) = health.recovery_action.ok().and_then(recovery) {
        return HealthVerdict::new(Bad, word).or(phrase);
    }
    if let Some(code) = news().next() {
        return of_xid(Notable, code);
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
        Some(reason) => HealthVerdict::new(Notable, reason.to_string()).or(format!("throttled: {reason}")),
        None if !gpu.failures.is_empty() || reasons.contains(&Some(Missing::Failed)) => {
            HealthVerdict::new(Notable, "ERR")
        }
        None if load.throttle == Err(Missing::NotYet) => HealthVerdict::new(Untold, "…").or("not read yet"),
        None if load.throttle.is_err() && load.temperature.is_err() && health.ecc_uncorrected.is_err() => {
            HealthVerdict::new(Untold, "unknown")
        }
        None => HealthVerdict::new(Fine, "ok"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{GpuHealth, GpuLoad, Xid};

    fn judged(change: impl FnOnce(&mut GpuLoad, &mut GpuHealth, Moment)) -> (String, String, Severity) {
        let mut host = host(1);
        let gpu = &mut host.gpus[0];
        change(&mut gpu.load, &mut gpu.health, host.at);
        let HealthVerdict { word, phrase, severity } = judge(gpu, host.at);
        (word, phrase, severity)
    }

    #[track_caller]
    fn says(phrase: &str, severity: Severity, change: impl FnOnce(&mut GpuLoad, &mut GpuHealth, Moment)) {
        let (word, said, heavy) = judged(change);
        assert_eq!((said.as_str(), heavy), (phrase, severity));
        assert!(word.len() <= 12, "{word} does not fit its column");
    }

    #[test]
    fn each_ailment_has_its_words_and_its_weight() {
        use Severity::{Bad, Fine, Notable, Untold};
        says("ok", Fine, |_, _, _| {});
        says("not read yet", Untold, |load, _, _| load.throttle = Err(Missing::NotYet));
        says("unknown", Untold, |load, health, _| {
            load.throttle = Err(Missing::Unsupported);
            load.temperature = Err(Missing::Unsupported);
            health.ecc_uncorrected = Err(Missing::Unsupported);
        });
        says("throttled: power cap", Notable, |load, _, _| load.throttle = Ok(vec![Throttle::PowerCap]));
        says("throttled: thermal", Bad, |load, _, _| load.throttle = Ok(vec![Throttle::PowerCap, Throttle::Thermal]));
        says("row remap pending: reset when idle", Notable, |_, health, _| health.remap_pending = Ok(true));
        says("page retirement pending: reboot when idle", Notable, |_, it, _| it.retired_pending = Ok(true));
        says("reboot the host", Bad, |_, health, _| health.recovery_action = Ok(2));
        says("Xid 79: fell off the bus", Bad, |_, it, at| it.xids.push(Xid { at, code: 79 }));
        says("Xid 31: memory page fault, mostly the program's", Notable, |_, it, at| {
            it.xids.push(Xid { at, code: 31 });
        });
    }

    #[test]
    fn the_hardware_s_error_is_not_hidden_by_a_program_s_that_came_later() {
        says("Xid 74: NVLink error", Severity::Bad, |_, health, at| {
            health.xids.extend([74, 43].map(|code| Xid { at, code }));
            health.remap_pending = Ok(true);
        });
    }
}
