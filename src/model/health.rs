//! Judges the health of a GPU.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::units::{Elapsed, Moment};
use crate::protocol::snapshot::{Cause, Gpu, Missing, Throttle, Trouble, Xid};

/// How much the user should care about a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// No reading shows whether there is a problem.
    Unknown,
    Fine,
    /// A condition that may explain a slow job.
    Notable,
    /// A problem that needs action, or slows the GPU down.
    Bad,
}

/// The kinds of trouble, the most urgent first. Power caps, sync boost and Xid errors that a
/// program causes are no trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TroubleRank {
    /// A GPU or the driver is lost, or does not answer.
    Lost,
    /// Memory will be full within a quarter of an hour.
    FullSoon,
    /// An Xid error of the hardware, or memory errors that ECC could not correct.
    HardwareError,
    /// Memory leaks.
    Leak,
    /// No data comes from a host.
    Silent,
    /// An orphan, or an ended process that holds memory. All of a host count as one trouble.
    Leftover,
    /// The hardware or its temperature slows a GPU down.
    Slowdown,
}

impl TroubleRank {
    /// How bad a trouble of this kind is.
    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::Slowdown => Severity::Notable,
            _ => Severity::Bad,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthVerdict {
    /// A word for the table: `ok`, `power cap`, `Xid 79`, `hung`.
    pub word: String,
    /// A longer phrase: `Xid 79: fell off the bus`, `row remap pending: reset when idle`, `hung
    /// 12s`.
    pub phrase: String,
    pub severity: Severity,
    /// The kind of trouble that it is; `None` for no trouble, and where the GPU does not answer.
    pub trouble: Option<TroubleRank>,
}

impl HealthVerdict {
    fn new(severity: Severity, word: impl Into<String>, phrase: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            phrase: phrase.into(),
            severity,
            trouble: None,
        }
    }

    fn with_trouble(self, rank: TroubleRank) -> Self {
        Self {
            trouble: Some(rank),
            ..self
        }
    }
}

/// How long an Xid error affects the health of its GPU.
const XID_SHOWN_FOR: Duration = Duration::from_hours(1);

/// Describes an Xid error after NVIDIA's catalogue; `None` for a rare one.
pub(crate) fn describe_xid(code: u64) -> Option<&'static str> {
    Some(match code {
        13 => "graphics engine exception, mostly the program's",
        31 => "memory page fault, mostly the program's",
        32 => "corrupt push buffer",
        38 => "driver firmware error",
        43 => "a program's work was stopped",
        45 => "work cleaned up after another error",
        48 => "memory error that ECC could not correct",
        61 | 62 => "internal microcontroller error",
        63 => "a row remap or page retirement was noted",
        64 => "a row remap or page retirement failed",
        68 => "video processor exception, mostly the program's",
        69 => "graphics engine class error",
        74 => "NVLink error",
        79 => "fell off the bus",
        92 => "many memory errors that ECC corrected",
        94 => "memory error, contained: one program ended",
        95 => "memory error, not contained: reset it",
        109 => "context switch timeout",
        119 => "GSP firmware does not answer",
        120 => "GSP firmware error",
        121 => "chip-to-chip link error",
        140 => "memory error that ECC could not correct",
        143 => "could not be initialized",
        154 => "the GPU asks for a recovery action",
        _ => return None,
    })
}

/// Whether an Xid is usually caused by a program and not by the GPU.
pub(super) fn is_of_a_program(xid: u64) -> bool {
    matches!(xid, 13 | 31 | 43 | 45 | 68 | 69 | 109)
}

/// Describes NVML's recovery action: a word and a phrase; `None` for no action.
pub(crate) fn recovery(action: u32) -> Option<(&'static str, &'static str)> {
    match action {
        0 => None,
        1 => Some(("needs reset", "reset it when idle")),
        2 => Some(("needs reboot", "reboot the host")),
        3 => Some((
            "drain P2P",
            "end the processes that use it together with other GPUs, then reset it",
        )),
        4 => Some((
            "drain, reset",
            "start no new work on it, and reset it when idle",
        )),
        5 => Some(("recover IMEX", "recover its IMEX domain")),
        6 => Some(("reset bus", "reset its bus")),
        7 => Some(("reboot all", "reboot the whole system that it belongs to")),
        _ => Some((
            "needs repair",
            "the driver asks for a repair that gputop does not know",
        )),
    }
}

/// Whether the GPU has figures, beside those of its memory.
pub(crate) fn has_figures(gpu: &Gpu) -> bool {
    gpu.load.sm.is_ok() || gpu.load.temperature.is_ok() || gpu.load.power.is_ok()
}

/// Whether the GPU answers in spite of its trouble: only some calls fail or are refused, such as
/// those that list its processes.
pub(super) fn is_partial(gpu: &Gpu, trouble: &Trouble) -> bool {
    matches!(trouble.cause, Cause::Failed | Cause::Denied) && has_figures(gpu)
}

/// Returns the verdict for the first of these conditions that applies:
/// 1. the GPU does not answer: lost, hung, refused, in need of a reset;
/// 2. an Xid error of the hardware within the last hour;
/// 3. a failed row remap, uncorrected ECC errors, or a recovery action of the driver;
/// 4. a hardware or thermal slowdown, or a temperature at the slowdown limit;
/// 5. the GPU answers, but not to every call;
/// 6. a repair that waits for a reset or reboot;
/// 7. an Xid error of a program within the last hour;
/// 8. clocks limited by software: a power cap;
/// 9. a failed reading or call;
/// 10. nothing known, or no problem.
pub(super) fn judge(gpu: &Gpu, now: Moment) -> HealthVerdict {
    judge_hardware(gpu, now)
        .or_else(|| judge_repairs_and_limits(gpu, now))
        .unwrap_or_else(|| judge_readings(gpu))
}

/// Checks the conditions 1 to 4 of [`judge`]: the GPU cannot be used, or is damaged or too hot.
fn judge_hardware(gpu: &Gpu, now: Moment) -> Option<HealthVerdict> {
    use Severity::Bad;
    let (load, health) = (&gpu.load, &gpu.health);
    let is_hard = |reason: &&Throttle| !matches!(reason, Throttle::PowerCap | Throttle::SyncBoost);
    let is_hot = load
        .temperature
        .ok()
        .zip(gpu.facts.slowdown_temperature.ok())
        .is_some_and(|(is, limit)| is >= limit);
    let trouble = gpu.trouble.as_ref();
    Some(
        if let Some(trouble) = trouble.filter(|trouble| !is_partial(gpu, trouble)) {
            of_trouble(trouble, now)
        } else if let Some(code) = recent_xids(gpu, now).find(|code| !is_of_a_program(*code)) {
            of_xid(Bad, code).with_trouble(TroubleRank::HardwareError)
        } else if health.remap_failed == Ok(true) {
            let phrase = "row remap failed: no spare row is left, replace the board";
            HealthVerdict::new(Bad, "remap failed", phrase).with_trouble(TroubleRank::HardwareError)
        } else if let Ok(errors @ 1..) = health.ecc_uncorrected {
            let phrase = format!("ECC: {errors} uncorrected errors");
            HealthVerdict::new(Bad, format!("ECC {errors}"), phrase)
                .with_trouble(TroubleRank::HardwareError)
        } else if let Some((word, phrase)) = health.recovery_action.ok().and_then(recovery) {
            HealthVerdict::new(Bad, word, phrase).with_trouble(TroubleRank::HardwareError)
        } else if let Some(reason) = throttle_reasons(gpu).iter().find(is_hard) {
            throttled(Bad, *reason).with_trouble(TroubleRank::Slowdown)
        } else if is_hot {
            HealthVerdict::new(Bad, "hot", "at its slowdown temperature")
                .with_trouble(TroubleRank::Slowdown)
        } else {
            return None;
        },
    )
}

/// Checks the conditions 5 to 8 of [`judge`].
fn judge_repairs_and_limits(gpu: &Gpu, now: Moment) -> Option<HealthVerdict> {
    use Severity::Notable;
    let health = &gpu.health;
    Some(if let Some(trouble) = &gpu.trouble {
        of_trouble(trouble, now)
    } else if health.remap_pending == Ok(true) {
        HealthVerdict::new(Notable, "row remap", "row remap pending: reset when idle")
    } else if health.retired_pending == Ok(true) {
        let phrase = "page retirement pending: reboot when idle";
        HealthVerdict::new(Notable, "page retire", phrase)
    } else if let Some(code) = recent_xids(gpu, now).next() {
        of_xid(Notable, code)
    } else if let Some(reason) = throttle_reasons(gpu).first() {
        throttled(Notable, *reason)
    } else {
        return None;
    })
}

/// Returns the verdict on a GPU without a known problem: whether its readings are known.
fn judge_readings(gpu: &Gpu) -> HealthVerdict {
    use Severity::{Fine, Notable, Unknown};
    let load = &gpu.load;
    let missing = [
        load.memory_used.err(),
        load.sm.err(),
        load.temperature.err(),
        load.power.err(),
    ];
    let has_failed = !gpu.failures.is_empty()
        || missing.contains(&Some(Missing::Failed))
        || load.throttle == Err(Missing::Failed);
    let knows_nothing =
        load.throttle.is_err() && load.temperature.is_err() && gpu.health.ecc_uncorrected.is_err();
    match () {
        () if has_failed => HealthVerdict::new(Notable, "ERR", "ERR"),
        () if load.throttle == Err(Missing::NotYet) => {
            HealthVerdict::new(Unknown, "…", "not read yet")
        }
        () if knows_nothing => HealthVerdict::new(Unknown, "unknown", "unknown"),
        () => HealthVerdict::new(Fine, "ok", "ok"),
    }
}

/// Returns the codes of the Xid errors within the last hour, the latest first.
fn recent_xids(gpu: &Gpu, now: Moment) -> impl Iterator<Item = u64> {
    let latest_first = gpu.health.xids.iter().rev();
    latest_first
        .filter(move |xid| now.since(xid.at) < XID_SHOWN_FOR)
        .map(|xid| xid.code)
}

/// The latest Xid error of the hardware in the last hour; the latest of all without one.
pub(crate) fn telling_xid(gpu: &Gpu, now: Moment) -> Option<&Xid> {
    let xids = &gpu.health.xids;
    let mut latest_first = xids.iter().rev();
    latest_first
        .find(|xid| now.since(xid.at) < XID_SHOWN_FOR && !is_of_a_program(xid.code))
        .or(xids.last())
}

fn throttle_reasons(gpu: &Gpu) -> &[Throttle] {
    gpu.load.throttle.as_deref().unwrap_or_default()
}

fn of_trouble(trouble: &Trouble, now: Moment) -> HealthVerdict {
    let word = trouble.cause.to_string();
    let phrase = format!("{word} {}", Elapsed(now.since(trouble.since)));
    HealthVerdict::new(Severity::Bad, word, phrase)
}

fn of_xid(severity: Severity, code: u64) -> HealthVerdict {
    let word = format!("Xid {code}");
    let phrase =
        describe_xid(code).map_or_else(|| word.clone(), |words| format!("{word}: {words}"));
    HealthVerdict::new(severity, word, phrase)
}

fn throttled(severity: Severity, reason: Throttle) -> HealthVerdict {
    HealthVerdict::new(severity, reason.to_string(), format!("throttled: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{GpuHealth, GpuLoad, Xid};

    fn judged(
        change: impl FnOnce(&mut GpuLoad, &mut GpuHealth, Moment),
    ) -> (String, String, Severity) {
        let mut host = host(1);
        let gpu = &mut host.gpus[0];
        change(&mut gpu.load, &mut gpu.health, host.at);
        let HealthVerdict {
            word,
            phrase,
            severity,
            ..
        } = judge(gpu, host.at);
        (word, phrase, severity)
    }

    #[track_caller]
    fn says(
        phrase: &str,
        severity: Severity,
        change: impl FnOnce(&mut GpuLoad, &mut GpuHealth, Moment),
    ) {
        let (word, said, heavy) = judged(change);
        assert_eq!((said.as_str(), heavy), (phrase, severity));
        assert!(word.len() <= 12, "{word} does not fit its column");
    }

    #[test]
    fn each_problem_has_its_words_and_severity() {
        use Severity::{Bad, Fine, Notable, Unknown};
        says("ok", Fine, |_, _, _| {});
        says("not read yet", Unknown, |load, _, _| {
            load.throttle = Err(Missing::NotYet);
        });
        says("unknown", Unknown, |load, health, _| {
            load.throttle = Err(Missing::Unsupported);
            load.temperature = Err(Missing::Unsupported);
            health.ecc_uncorrected = Err(Missing::Unsupported);
        });
        says("throttled: power cap", Notable, |load, _, _| {
            load.throttle = Ok(vec![Throttle::PowerCap]);
        });
        says("throttled: thermal", Bad, |load, _, _| {
            load.throttle = Ok(vec![Throttle::PowerCap, Throttle::Thermal]);
        });
        says(
            "row remap pending: reset when idle",
            Notable,
            |_, health, _| health.remap_pending = Ok(true),
        );
        says(
            "page retirement pending: reboot when idle",
            Notable,
            |_, health, _| health.retired_pending = Ok(true),
        );
        says("reboot the host", Bad, |_, health, _| {
            health.recovery_action = Ok(2);
        });
        says("Xid 79: fell off the bus", Bad, |_, health, at| {
            health.xids.push(Xid { at, code: 79 });
        });
        says(
            "Xid 31: memory page fault, mostly the program's",
            Notable,
            |_, health, at| {
                health.xids.push(Xid { at, code: 31 });
            },
        );
    }

    #[test]
    fn the_xid_that_tells_is_one_of_the_hardware_for_an_hour() {
        let mut host = host(1);
        let at = host.at;
        let gpu = &mut host.gpus[0];
        let code = |gpu: &Gpu, now: Moment| telling_xid(gpu, now).map(|xid| xid.code);
        assert_eq!(code(gpu, at), None);
        gpu.health
            .xids
            .extend([79, 45].map(|code| Xid { at, code }));
        assert_eq!(code(gpu, at), Some(79));
        assert_eq!(code(gpu, at.after(XID_SHOWN_FOR)), Some(45));
    }

    #[test]
    fn a_hardware_error_is_not_hidden_by_a_later_error_of_a_program() {
        says("Xid 74: NVLink error", Severity::Bad, |_, health, at| {
            health.xids.extend([74, 43].map(|code| Xid { at, code }));
            health.remap_pending = Ok(true);
        });
    }
}
