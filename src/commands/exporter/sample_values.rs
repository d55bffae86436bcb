//! Values of samples of GPUs and of processes alike.

use serde_json::Value;

use crate::base::units::{Bytes, Percent};
use crate::model::{GpuOrProcess, HostModel, LeakVerdict, Verdict};
use crate::protocol::judged::GrowthFigures;
use crate::protocol::snapshot::{Gpu, GpuProcess};

/// A share, of which 1 is all.
pub(super) fn ratio(percent: Percent) -> f64 {
    rounded(f64::from(percent.value()) / 100.0)
}

/// A share without the digits that binary fractions add.
pub(super) fn rounded(share: f64) -> f64 {
    (share * 1e5).round() / 1e5
}

/// The name of a value in JSON.
pub(super) fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Whether a growth is a leak. One of a process that merely loads is none.
pub(super) fn is_leak(model: &HostModel, subject: &GpuOrProcess, figures: &GrowthFigures) -> bool {
    let loads = model
        .growing()
        .iter()
        .any(|growing| growing.subject == *subject && growing.is_loading);
    figures.verdict == LeakVerdict::Leak.name() && !loads
}

/// The memory of a GPU that a leftover process holds: what the driver lists for it, or else what it
/// may keep. `None` where neither is known.
pub(super) fn held_by(
    verdict: &Verdict,
    listed: Option<&GpuProcess>,
    place: usize,
) -> Option<Bytes> {
    let kept = || {
        let here = verdict.kept.iter().filter(|kept| kept.gpu == place);
        // Several processes may keep it together: each has its share.
        here.map(|kept| Bytes(kept.memory.0 / kept.holders.max(1) as u64))
            .reduce(|sum, share| sum + share)
    };
    match listed {
        Some(listed) => listed.memory.ok(),
        None => kept(),
    }
}

/// The memory of a GPU that leftover processes hold; `None` where it is known of none of them.
pub(super) fn leftover_memory(model: &HostModel, gpu: &Gpu) -> Option<Bytes> {
    let place = model
        .latest()?
        .gpus
        .iter()
        .position(|other| other.uuid == gpu.uuid)?;
    let mut leftovers = model.leftovers_on(gpu).peekable();
    if leftovers.peek().is_none() {
        return Some(Bytes(0));
    }
    leftovers
        .filter_map(|verdict| held_by(verdict, gpu.process(verdict.process), place))
        .reduce(|sum, held| sum + held)
}
