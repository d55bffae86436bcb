//! Searches the free GPUs of a host, from one snapshot to the next.

use std::collections::HashMap;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::gpu_locks::{GpuLock, LockFolder};
use super::inherited_gpus::InheritedGpus;
use super::is_lost;
use crate::app::lists::unknown_processes;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed, Moment, Percent};
use crate::commands::live::gpu_ids;
use crate::model::{self, HostModel, Total, TroubleRank};
use crate::output::{self, Exit};
use crate::protocol::snapshot::{
    Gpu, GpuUuid, Missing, Reading, SharedMemory, Snapshot, Trouble, Use,
};
use crate::source::Source;

/// How long a GPU may seem to compute with no process on it: its use is that of about the last
/// second.
const SETTLING: Duration = Duration::from_secs(2);

/// Which GPUs are wanted, and whether the search waits for them.
#[derive(Debug, Clone)]
pub(in crate::commands) struct WantedGpus {
    pub(in crate::commands) count: NonZeroUsize,
    /// The free memory that is enough, even if processes use the GPU; `None` for unused GPUs.
    pub(in crate::commands) memory: Option<Bytes>,
    /// The time for which no kernel ran there.
    pub(in crate::commands) idle: Option<Duration>,
    /// The only GPUs to take, as index, UUID or PCI address; all if empty.
    pub(in crate::commands) id: Vec<String>,
    pub(in crate::commands) waits: bool,
    /// Whether GPUs are named by UUID even where their indexes are certain.
    pub(in crate::commands) by_uuid: bool,
    /// Whether the GPUs stay locked. Else the search only skips those that another `gputop free`
    /// has locked.
    pub(in crate::commands) keeps_locks: bool,
}

/// The GPUs that were found.
pub(in crate::commands) struct FoundGpus {
    /// `HOST=NAME `, or empty if there is one host only.
    pub(in crate::commands) host: String,
    /// The command line that takes the GPUs on a host over ssh; `None` for another source.
    pub(in crate::commands) far_line: Option<String>,
    /// The indexes or UUIDs, separated by commas.
    pub(in crate::commands) gpus: String,
    pub(in crate::commands) uuids: Vec<GpuUuid>,
    /// The command inherits the locks.
    pub(super) _locks: Vec<GpuLock>,
}

/// The GPUs, or the reason why too few are free; `None` to wait for the next snapshot.
pub(in crate::commands) type SearchResult = Option<Result<FoundGpus, (Exit, String)>>;

/// Returns the reason why a snapshot has no GPU.
pub(in crate::commands) fn no_gpu_reason(snapshot: &Snapshot) -> String {
    snapshot.driver.trouble.as_ref().map_or_else(
        || "the NVIDIA driver finds no GPU on this host".to_owned(),
        |trouble| trouble.sentence.to_string(),
    )
}

/// The search on one host.
pub(in crate::commands) struct FreeGpuSearch<'a> {
    wanted: &'a WantedGpus,
    /// The GPUs that this process may use; `None` if it may use all.
    inherited: Option<InheritedGpus>,
    /// The time of the first snapshot; `None` before it.
    began: Option<Moment>,
    idle_since: HashMap<GpuUuid, Moment>,
    /// Whether the user knows that GPUs cannot be locked.
    has_warned: bool,
}

impl<'a> FreeGpuSearch<'a> {
    pub(in crate::commands) fn new(wanted: &'a WantedGpus, source: &Source) -> Self {
        // The variable concerns this host.
        let inherited = matches!(source, Source::LocalAgent(_))
            .then(InheritedGpus::from_env)
            .flatten();
        Self {
            wanted,
            inherited,
            began: None,
            idle_since: HashMap::new(),
            has_warned: false,
        }
    }

    /// Takes the latest snapshot. Returns the GPUs, locked, or the reason why there are too few.
    /// Returns `None` to wait for the next snapshot.
    pub(in crate::commands) fn update(
        &mut self,
        model: &HostModel,
        snapshot: &Snapshot,
    ) -> SearchResult {
        let began = *self.began.get_or_insert(snapshot.at);
        if snapshot.gpus.is_empty() {
            return Some(Err((
                Exit::of_snapshot(snapshot, true),
                no_gpu_reason(snapshot),
            )));
        }
        let visible = match self
            .inherited
            .as_ref()
            .map(|inherited| inherited.visible(&snapshot.gpus))
            .transpose()
        {
            // The names of all GPUs say in which order CUDA counts them.
            Err(_) if snapshot.gpus.iter().any(is_starting) => return None,
            Err(reason) => return Some(Err((Exit::Error, reason))),
            Ok(visible) => visible,
        };
        let is_candidate = |gpu: &&Gpu| {
            visible
                .as_ref()
                .is_none_or(|visible| visible.contains(&&gpu.uuid))
                && !is_split(snapshot, gpu)
                && gpu_ids::is_chosen(snapshot, gpu, &self.wanted.id)
        };
        let candidates: Vec<&Gpu> = snapshot.gpus.iter().filter(is_candidate).collect();
        self.note_idle(&candidates, snapshot.at);
        let suitable = candidates
            .iter()
            .filter(|gpu| self.is_suitable(gpu))
            .count();
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        for gpu in candidates {
            match self.objection(model, snapshot, gpu) {
                None => free.push(gpu),
                Some(reason) => taken.push((gpu, reason)),
            }
        }
        free.sort_by_key(|gpu| {
            (
                std::cmp::Reverse(free_memory(gpu).unwrap_or_default()),
                gpu.facts.index,
            )
        });
        let wanted = self.wanted.count.get();
        let (chosen, locks) = self.lock(free, &mut taken);
        if chosen.len() == wanted {
            return Some(Ok(FoundGpus {
                host: String::new(),
                far_line: None,
                gpus: self.ids(&chosen, snapshot),
                uuids: chosen.iter().map(|gpu| gpu.uuid.clone()).collect(),
                _locks: locks,
            }));
        }
        let is_possible = suitable >= wanted;
        // The use of a process that has just ended, or of the start of the driver, passes.
        let may_pass = |gpu: &Gpu| gpu.processes.is_empty() && model::computes(gpu);
        let is_early = snapshot.at.since(began) < SETTLING;
        if is_possible && is_early && taken.iter().any(|(gpu, _)| may_pass(gpu)) {
            return None;
        }
        // A GPU that was busy in the first snapshot is idle for the wanted time only after that
        // time.
        if is_possible
            && (self.wanted.waits
                || self
                    .wanted
                    .idle
                    .is_some_and(|idle| snapshot.at.since(began) < idle))
        {
            return None;
        }
        let reason = self.too_few_free(suitable, chosen.len(), &taken);
        Some(Err((Exit::NoneFree, reason)))
    }

    /// Returns the names of the chosen GPUs for `CUDA_VISIBLE_DEVICES`.
    fn ids(&self, chosen: &[&Gpu], snapshot: &Snapshot) -> String {
        let by_uuid = self.wanted.by_uuid || !are_indexes_certain(snapshot);
        let id = |gpu: &&Gpu| {
            if by_uuid {
                gpu.uuid.to_string()
            } else {
                gpu.facts.index.to_string()
            }
        };
        chosen.iter().map(id).collect::<Vec<_>>().join(",")
    }

    /// Returns the reason why there are fewer free GPUs than wanted. `taken` has the others, each
    /// with the reason why it is not free.
    fn too_few_free(&self, suitable: usize, free: usize, taken: &[(&Gpu, String)]) -> String {
        let wanted = self.wanted.count.get();
        let mut reason = if suitable < wanted {
            let within = self
                .inherited
                .as_ref()
                .map_or_else(String::new, InheritedGpus::sentence_start);
            format!("{within}this host has {suitable} of the {wanted} GPUs that are wanted")
        } else if wanted == 1 {
            "no GPU is free".to_owned()
        } else {
            format!("only {free} of the {wanted} GPUs that are wanted are free")
        };
        for (place, (gpu, objection)) in taken.iter().enumerate() {
            let separator = if place == 0 { ":" } else { "," };
            let _infallible: std::fmt::Result =
                write!(reason, "{separator} GPU {} {objection}", gpu.facts.index);
        }
        reason
    }

    /// Remembers since when each GPU is idle.
    fn note_idle(&mut self, gpus: &[&Gpu], now: Moment) {
        for gpu in gpus {
            if gpu.load.sm == Ok(Percent::new(0.0)) {
                self.idle_since.entry(gpu.uuid.clone()).or_insert(now);
            } else {
                self.idle_since.remove(&gpu.uuid);
            }
        }
    }

    /// Locks as many of the free GPUs as are wanted. Adds those that cannot be had to `taken`, with
    /// the reason.
    fn lock<'g>(
        &mut self,
        free: Vec<&'g Gpu>,
        taken: &mut Vec<(&'g Gpu, String)>,
    ) -> (Vec<&'g Gpu>, Vec<GpuLock>) {
        let (mut chosen, mut locks) = (Vec::new(), Vec::new());
        let folder = LockFolder::open()
            .inspect_err(|reason| self.warn(reason))
            .ok();
        for gpu in free {
            if chosen.len() == self.wanted.count.get() {
                break;
            }
            match folder
                .as_ref()
                .map(|folder| folder.lock(&gpu.uuid))
                .transpose()
            {
                Ok(Some(None)) => taken.push((gpu, "is taken by another gputop free".to_owned())),
                Ok(lock) => {
                    chosen.push(gpu);
                    locks.extend(lock.flatten());
                }
                Err(error) => taken.push((gpu, format!("cannot be locked ({error})"))),
            }
        }
        if !self.wanted.keeps_locks {
            // The folder is still open, so no other `gputop free` has seen these locks.
            locks.clear();
        }
        (chosen, locks)
    }

    /// Says once that GPUs cannot be locked. The GPUs are free nevertheless, and a job must not
    /// wait for a folder.
    fn warn(&mut self, reason: &str) {
        if self.wanted.keeps_locks && !std::mem::replace(&mut self.has_warned, true) {
            let words = "no GPU is locked, so another gputop free may choose the same one";
            output::print_error(&Text::new(format!("{words}: {reason}")));
        }
    }

    /// Whether the job could take the GPU once no other job uses it.
    fn is_suitable(&self, gpu: &Gpu) -> bool {
        let total = gpu.load.memory_total.or(gpu
            .shared_memory
            .map(|shared| shared.total)
            .ok_or(Missing::Unsupported));
        let is_too_small = total.is_ok_and(|total| total < self.wanted.memory.unwrap_or_default());
        !is_too_small && (gpu.facts.parent.is_none() || self.wanted.count.get() == 1)
    }

    /// Returns why a job should not take a GPU.
    fn objection(&self, model: &HostModel, snapshot: &Snapshot, gpu: &Gpu) -> Option<String> {
        if let Some(trouble) = &gpu.trouble {
            return Some(format!("cannot be used ({})", trouble.cause));
        }
        // An instance of MIG is as ill as its GPU.
        let whole = gpu.facts.parent.as_ref();
        let whole = whole.and_then(|parent| snapshot.gpu(parent)).unwrap_or(gpu);
        if let Some(sick) = [gpu, whole]
            .into_iter()
            .find(|gpu| model.rank_of(gpu) == Some(TroubleRank::HardwareError))
        {
            let phrase = model.health(sick).phrase;
            return Some(format!("has an error of the hardware ({phrase})"));
        }
        if gpu.facts.parent.is_some() && self.wanted.count.get() > 1 {
            return Some(
                "is a MIG instance, and CUDA gives a process only one of these".to_owned(),
            );
        }
        if let Some(memory) = self.wanted.memory {
            match free_memory(gpu) {
                Ok(free) if free < memory => return Some(format!("has {free} free")),
                Ok(_) => {}
                Err(reason) => return Some(format!("does not report its free memory ({reason})")),
            }
        } else {
            // A GPU is judged by its processes and by its memory, or by what is known of the two.
            match (unknown_processes::reason(gpu), gpu.load.memory_used) {
                (None, _) => {}
                (Some(_), Err(_)) => {
                    return Some("reports neither its processes nor its memory".to_owned());
                }
                (Some(reason), Ok(used))
                    if model::idle_memory(gpu).is_none_or(|idle| used > idle) =>
                {
                    return Some(format!(
                        "has {used} in use by processes that are not known: {reason}"
                    ));
                }
                (Some(reason), Ok(_)) if model::computes(gpu) => {
                    return Some(format!(
                        "is busy, by processes that are not known: {reason}"
                    ));
                }
                (Some(_), Ok(_)) => {}
            }
            // Graphics processes do not count: a desktop stays on its GPU, and leaves room for
            // jobs.
            let computing = gpu
                .processes
                .iter()
                .filter(|gpu_process| gpu_process.usage != Use::Graphics);
            let used: Vec<_> = computing.map(|gpu_process| gpu_process.memory).collect();
            if !used.is_empty() {
                let amount = match Total::sum_bytes(used.iter().copied()) {
                    Ok(Total {
                        bytes,
                        is_lower_bound: lower_bound,
                    }) => {
                        format!(" with {bytes}{}", if lower_bound { " or more" } else { "" })
                    }
                    Err(_) => String::new(),
                };
                let plural = if used.len() == 1 { "" } else { "es" };
                return Some(format!("has {} process{plural} on it{amount}", used.len()));
            }
            if let Some(sm) = gpu
                .load
                .sm
                .ok()
                .filter(|_| model::is_busy_without_process(gpu))
            {
                return Some(format!("is busy ({sm}), and no process is seen"));
            }
            if let Some(unaccounted) = model
                .unaccounted()
                .iter()
                .find(|memory| memory.gpu == gpu.uuid)
            {
                return Some(format!(
                    "has {} in use that no process accounts for",
                    unaccounted.memory
                ));
            }
        }
        let idle = self.wanted.idle?;
        match (
            gpu.load.sm,
            self.idle_since
                .get(&gpu.uuid)
                .map(|since| snapshot.at.since(*since)),
        ) {
            (_, Some(span)) if span >= idle => None,
            (_, Some(span)) => Some(format!("has been idle for only {}", Elapsed(span))),
            (Ok(sm), None) => Some(format!("is busy ({sm})")),
            (Err(reason), None) => Some(format!("does not report whether it is busy ({reason})")),
        }
    }
}

/// Whether the GPU is split into MIG instances, which have its memory.
fn is_split(snapshot: &Snapshot, gpu: &Gpu) -> bool {
    gpu.health.mig == Ok(true)
        || snapshot
            .gpus
            .iter()
            .any(|instance| instance.facts.parent.as_ref() == Some(&gpu.uuid))
}

/// The free memory of a GPU, or the free memory of the host that the GPU shares.
fn free_memory(gpu: &Gpu) -> Reading<Bytes> {
    let of_shared = |shared: SharedMemory| shared.total.saturating_sub(shared.used);
    gpu.load
        .memory_free
        .or_else(|reason| gpu.shared_memory.map(of_shared).ok_or(reason))
}

/// Whether CUDA, in the order of the PCI bus, gives each GPU the index that NVML gives it. A GPU
/// that is split by MIG may have none, and a lost one may still have one.
fn are_indexes_certain(snapshot: &Snapshot) -> bool {
    let is_whole = |gpu: &Gpu| matches!(gpu.health.mig, Ok(false) | Err(Missing::Unsupported));
    snapshot
        .gpus
        .iter()
        .all(|gpu| gpu.facts.parent.is_none() && is_whole(gpu) && !is_lost(gpu))
}

fn is_starting(gpu: &Gpu) -> bool {
    gpu.facts.name == Err(Missing::NotYet) && gpu.trouble.as_ref().is_none_or(Trouble::is_starting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::snapshot::example::host;

    #[test]
    fn a_gpu_whose_use_passes_is_taken_and_one_that_goes_on_computing_is_not() {
        let wanted = WantedGpus {
            count: NonZeroUsize::MIN,
            memory: None,
            idle: None,
            id: Vec::new(),
            waits: false,
            by_uuid: false,
            keeps_locks: false,
        };
        // The result of each second of use in percent: GPUs, a refusal, or one more reading.
        let search = |uses: &[f32]| -> Vec<String> {
            let mut search = FreeGpuSearch {
                wanted: &wanted,
                inherited: None,
                began: None,
                idle_since: HashMap::new(),
                has_warned: false,
            };
            let (mut model, mut at) = (HostModel::default(), host(1));
            let results = uses.iter().map(|sm| {
                at.gpus[0].load.sm = Ok(Percent::new(*sm));
                model.replace(at.clone());
                let result = match search.update(&model, &at) {
                    None => "reads again".to_owned(),
                    Some(Ok(found)) => found.gpus,
                    Some(Err((_, reason))) => reason,
                };
                at = at.clone().later(1);
                result
            });
            results.collect()
        };
        assert_eq!(search(&[100.0, 0.0]), ["reads again", "0"]);
        let refusal = "no GPU is free: GPU 0 is busy (100%), and no process is seen";
        let goes_on = search(&[100.0, 100.0, 100.0]);
        assert_eq!(goes_on, ["reads again", "reads again", refusal]);
    }
}
