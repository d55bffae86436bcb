//! Notes on a GPU in a few words: its troubles in their one order, then what is
//! no trouble.

use super::gpu_users::{self, growth_note};
use crate::base::units::Elapsed;
use crate::model::{self, HostModel, Severity, TroubleRank, Verdict};
use crate::output::labels::growth::when_full;
use crate::output::labels::short_amount;
use crate::protocol::snapshot::{Gpu, Missing};

/// A few words about a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuNote {
    pub text: String,
    /// The same in fewer words.
    pub short: String,
    /// How bad the trouble is; `None` for what is no trouble.
    pub trouble: Option<Severity>,
}

/// Returns the notes on a GPU, the worst first: troubles in the order of [`TroubleRank`], then what
/// is no trouble.
pub(crate) fn notes(model: &HostModel, gpu: &Gpu) -> Vec<GpuNote> {
    let mut ranked = troubles(model, gpu);
    ranked.sort_by_key(|(rank, _)| *rank);
    let remarks = remarks(model, gpu).into_iter().map(|text| (None, text));
    let troubles = ranked.into_iter().map(|(rank, text)| (Some(rank), text));
    let health = model.health(gpu);
    let note = |(rank, text): (Option<TroubleRank>, String)| GpuNote {
        short: if text == health.phrase {
            health.word.clone()
        } else {
            text.clone()
        },
        text,
        trouble: rank.map(TroubleRank::severity),
    };
    troubles.chain(remarks).map(note).collect()
}

/// How bad the worst trouble of a GPU is; `None` when it has none.
pub(crate) fn worst(model: &HostModel, gpu: &Gpu) -> Option<Severity> {
    troubles(model, gpu)
        .into_iter()
        .map(|(rank, _)| rank.severity())
        .max()
}

fn troubles(model: &HostModel, gpu: &Gpu) -> Vec<(TroubleRank, String)> {
    let mut troubles = Vec::new();
    if let Some(rank) = model.rank_of(gpu) {
        troubles.push((rank, model.health(gpu).phrase));
    }
    if let Some(growing) = gpu_users::growing(model, gpu) {
        let full = || when_full(model, growing).unwrap_or_else(|| growth_note(model, growing).text);
        if growing.is_urgent() {
            troubles.push((TroubleRank::FullSoon, full()));
        } else if growing.is_leak() {
            troubles.push((TroubleRank::Leak, "LEAK".to_owned()));
        }
    }
    if let Some(words) = leftovers(model, gpu) {
        troubles.push((TroubleRank::Leftover, words));
    }
    troubles
}

/// Names the processes that are left on a GPU, and their memory: `orphan 11.0G`, `2 orphans`.
fn leftovers(model: &HostModel, gpu: &Gpu) -> Option<String> {
    let left: Vec<&Verdict> = model.leftovers_on(gpu).collect();
    let [first, others @ ..] = left.as_slice() else {
        return None;
    };
    if !others.is_empty() {
        return Some(format!("{} left", left.len()));
    }
    let listed = gpu
        .process(first.process)
        .and_then(|listed| listed.memory.ok());
    let memory = listed.or_else(|| {
        let unaccounted = model
            .unaccounted()
            .iter()
            .find(|unaccounted| unaccounted.gpu == gpu.uuid);
        Some(unaccounted?.memory)
    });
    let amount = memory.map_or_else(String::new, |memory| format!(" {}", short_amount(memory)));
    Some(format!("{}{amount}", first.word()))
}

/// Returns remarks that are no trouble: growth that is no leak, figures that are old, clocks that
/// the user's own limit holds down.
fn remarks(model: &HostModel, gpu: &Gpu) -> Vec<String> {
    let mut remarks = Vec::new();
    let health = model.health(gpu);
    let limits = gpu.load.throttle.as_deref().unwrap_or_default();
    let is_limit = limits.iter().any(|limit| limit.to_string() == health.word);
    let is_told = model.rank_of(gpu).is_none()
        && model.age(gpu).is_none()
        && health.severity > Severity::Fine;
    // Damage, and since when the driver fails, with what to do.
    if is_told && !is_limit {
        remarks.push(health.phrase.clone());
    }
    if model::is_busy_without_process(gpu) {
        remarks.push("busy, no process seen".to_owned());
    }
    let growing = gpu_users::growing(model, gpu);
    if let Some(growing) = growing.filter(|growing| !growing.is_urgent() && !growing.is_leak()) {
        remarks.push(growth_note(model, growing).text);
    }
    if model.rank_of(gpu).is_some() {
        return remarks;
    }
    if let Some(age) = model.age(gpu) {
        remarks.push(format!("figures {} old", Elapsed(age)));
    }
    if is_told && is_limit {
        remarks.push(health.word.clone());
    }
    remarks.extend(gpu.failures.first().map(ToString::to_string));
    // A virtual machine may give no figure that tells whether the GPU is healthy.
    let is_unread = gpu.load.throttle == Err(Missing::NotYet);
    if health.severity == Severity::Unknown && !is_unread && model.age(gpu).is_none() {
        remarks.push(format!("health {}", health.phrase));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::example::host;
    use crate::protocol::snapshot::{Snapshot, Throttle, Xid};

    /// The notes on the GPU of a host after it was seen.
    fn notes_on(host: &Snapshot) -> Vec<GpuNote> {
        let mut model = HostModel::default();
        let line = Line::Full(Box::new(host.clone()));
        model.apply(line).unwrap();
        let gpu = &model.latest().unwrap().gpus[0];
        let notes = notes(&model, gpu);
        assert_eq!(
            worst(&model, gpu),
            notes.first().and_then(|note| note.trouble),
            "the frame has the colour of the first note"
        );
        notes
    }

    #[test]
    fn of_two_notes_the_worse_is_first() {
        let mut host = host(1);
        host.gpus[0].load.throttle = Ok(vec![Throttle::PowerCap]);
        let texts = |host: &Snapshot| -> Vec<String> {
            notes_on(host).into_iter().map(|note| note.text).collect()
        };
        assert_eq!(texts(&host), ["busy, no process seen", "power cap"]);
        host.gpus[0].load.throttle = Ok(vec![Throttle::Thermal]);
        host.gpus[0].health.xids = vec![Xid {
            at: host.at,
            code: 79,
        }];
        let notes = notes_on(&host);
        assert_eq!(notes[0].trouble, Some(Severity::Bad));
        assert!(notes[0].text.starts_with("Xid 79"), "{notes:?}");
        assert_eq!(notes.last().map(|note| note.trouble), Some(None));
        // Damage is worse than a GPU that computes without a process.
        host.gpus[0].load.throttle = Ok(Vec::new());
        host.gpus[0].health.xids.clear();
        host.gpus[0].health.remap_pending = Ok(true);
        let damaged = notes_on(&host);
        assert_eq!(
            (damaged[0].text.as_str(), damaged[0].short.as_str()),
            ("row remap pending: reset when idle", "row remap")
        );
        assert_eq!(damaged[1].text, "busy, no process seen");
        host.gpus[0].health.remap_pending = Ok(false);
        // A healthy GPU with a process has nothing to say, and is not called ok.
        let host = host.with(7, "python train.py", 0, Bytes::from_gib(9));
        assert_eq!(notes_on(&host), []);
    }
}
