//! GPUs of which nobody knows whether they are held idle, and why.

use crate::base::units::Elapsed;
use crate::model::{HELD_IDLE_AFTER, HeldIdle, HostModel};
use crate::protocol::snapshot::{Gpu, Missing, Snapshot, Use};

/// GPUs of one host that are not known for the same reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownGpus {
    /// The places of the GPUs in [`Snapshot::gpus`].
    pub(super) gpus: Vec<usize>,
    /// Why it is not known: `not enough was seen yet`.
    pub(super) reason: String,
    /// Whether a longer look would show it.
    pub(super) is_too_early: bool,
}

/// Returns the GPUs of a host that are not known. `is_wanted` says whether a GPU may be held by a
/// process that the report is about.
pub(super) fn find(
    model: &HostModel,
    snapshot: &Snapshot,
    is_wanted: impl Fn(&Gpu) -> bool,
) -> Vec<UnknownGpus> {
    let mut found: Vec<UnknownGpus> = Vec::new();
    for (place, gpu) in snapshot.gpus.iter().enumerate() {
        let Some((reason, is_too_early)) = why_unknown(model, gpu).filter(|_| is_wanted(gpu))
        else {
            continue;
        };
        match found.iter_mut().find(|known| known.reason == reason) {
            Some(known) => known.gpus.push(place),
            None => found.push(UnknownGpus {
                gpus: vec![place],
                reason,
                is_too_early,
            }),
        }
    }
    found
}

/// Why it is not known whether a GPU is held idle, and whether a longer look would show it; `None`
/// where it is known.
fn why_unknown(model: &HostModel, gpu: &Gpu) -> Option<(String, bool)> {
    if let Some(trouble) = &gpu.trouble {
        return Some((trouble.sentence.to_string(), false));
    }
    if let Some(why) = gpu.missing.processes {
        let reason = format!("its processes are not known ({})", words(why));
        return Some((reason, false));
    }
    // A GPU that no process holds is not held idle, whatever is known of its use.
    if gpu
        .processes
        .iter()
        .all(|listed| listed.usage == Use::Graphics)
    {
        return None;
    }
    match model.held_idle(gpu) {
        HeldIdle::No => None,
        HeldIdle::Unknown => {
            let unknown = [
                ("its use", gpu.load.sm.err()),
                ("the traffic on its PCIe link", gpu.health.pcie_quiet.err()),
            ];
            let unknown: Vec<(&str, Missing)> = unknown
                .into_iter()
                .filter_map(|(name, why)| Some((name, why?)))
                .collect();
            let reasons: Vec<String> = unknown
                .iter()
                .map(|(name, why)| format!("{name} is not known ({})", words(*why)))
                .collect();
            let is_too_early = unknown.iter().all(|(_, why)| *why == Missing::NotYet);
            Some((reasons.join(", and "), is_too_early))
        }
        HeldIdle::Since { since, was_seen } => {
            let idle_for = gpu.load.at.since(since);
            (!was_seen && idle_for < HELD_IDLE_AFTER).then(|| {
                let seen = Elapsed(idle_for);
                (format!("idle, but seen for {seen} only"), true)
            })
        }
    }
}

fn words(why: Missing) -> String {
    match why {
        Missing::Unsupported => "the driver does not tell it".to_owned(),
        why => why.to_string(),
    }
}
