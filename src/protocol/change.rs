//! What became of a snapshot: the lanes that differ, whole.
//!
//! GPUs and facts of the host come and go so seldom that a change cannot say it: then the agent
//! sends a snapshot. So a change only ever replaces lanes, and adds and removes processes.

use std::collections::HashSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{
    AllocatorStats, Failure, GpuDetail, GpuHealth, GpuLoad, GpuProcess, GpuUuid, HostLoad, HostScan, Process,
    ProcessFacts, ProcessId, ProcessLoad, Reading, Snapshot,
};

/// From one snapshot to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The number of the snapshot that this leads to: one more than the one it starts from.
    pub sequence: u64,
    /// When the pass ended, in milliseconds since boot.
    #[serde(rename = "at_ms")]
    pub at: Moment,
    /// The same by the host's wall clock: milliseconds since 1970 (UTC).
    pub unix_ms: u64,
    /// What changed about the host.
    #[serde(default, skip_serializing_if = "HostChange::is_empty")]
    pub host: HostChange,
    /// What changed about GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuChange>,
    /// Processes that are new, with both lanes, or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessChange>,
    /// Processes that ended, or that are of no interest any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ProcessId>,
}

/// What changed about the host; a lane that did not is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostChange {
    /// What changes each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<HostLoad>,
    /// The last look at every process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<HostScan>,
}

impl HostChange {
    fn is_empty(&self) -> bool {
        self.load.is_none() && self.scan.is_none()
    }
}

/// What changed about a GPU; a lane that did not is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuChange {
    /// Its id.
    pub uuid: GpuUuid,
    /// What changes each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<GpuLoad>,
    /// What changes now and then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<GpuHealth>,
    /// What few ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<GpuDetail>>,
    /// All of its GPU processes, when `held` cannot say what changed about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<GpuProcess>>,
    /// What its GPU processes hold, when they are the same, in the same order, and all that changed is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Who had its device file open, when that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_file_holders: Option<Vec<ProcessId>>,
    /// What fails while the rest goes on, when that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Vec<Failure>>,
}

impl GpuChange {
    fn is_empty(&self) -> bool {
        self.load.is_none()
            && self.health.is_none()
            && self.detail.is_none()
            && self.processes.is_none()
            && self.held.is_none()
            && self.device_file_holders.is_none()
            && self.failures.is_none()
    }
}

/// What each GPU process of a GPU holds, in their order: of a thousand that compute, it changes each second, and who they are
/// does not. A column in which nothing changed is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// Device memory that the driver gave each.
    #[serde(rename = "memory_used_bytes", default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Vec<Bytes>>,
    /// Share of the last second in which the kernels of each ran.
    #[serde(rename = "sm_utilization_percent", default, skip_serializing_if = "Option::is_none")]
    pub sm: Option<Vec<Percent>>,
}

impl Held {
    /// What leads from the one to the other; absent when there is more to say.
    fn between(old: &[GpuProcess], new: &[GpuProcess]) -> Option<Self> {
        let is_same = |(old, new): (&GpuProcess, &GpuProcess)| {
            // A reading that is new in the lane needs a column.
            let GpuProcess { process, usage, memory: _, sm: _ } = new;
            (process, usage) == (&old.process, &old.usage)
        };
        if old.len() != new.len() || !old.iter().zip(new).all(is_same) {
            return None;
        }
        let memory = column(old, new, |it| it.memory).ok()?;
        Some(Self { memory, sm: column(old, new, |it| it.sm).ok()? })
    }

    /// Whether there is something for each of so many GPU processes.
    fn fits(&self, gpu_processes: usize) -> bool {
        self.memory.as_ref().is_none_or(|it| it.len() == gpu_processes)
            && self.sm.as_ref().is_none_or(|it| it.len() == gpu_processes)
    }

    fn apply(self, gpu_processes: &mut [GpuProcess]) {
        for (gpu_process, memory) in gpu_processes.iter_mut().zip(self.memory.into_iter().flatten()) {
            gpu_process.memory = Ok(memory);
        }
        for (gpu_process, sm) in gpu_processes.iter_mut().zip(self.sm.into_iter().flatten()) {
            gpu_process.sm = Ok(sm);
        }
    }
}

/// The readings of all; absent when none of them changed, missing when one of them is, of which a column cannot say why.
fn column<T: PartialEq>(
    old: &[GpuProcess],
    new: &[GpuProcess],
    of: impl Fn(&GpuProcess) -> Reading<T>,
) -> Reading<Option<Vec<T>>> {
    if old.iter().map(&of).eq(new.iter().map(&of)) {
        return Ok(None);
    }
    new.iter().map(of).collect::<Reading<_>>().map(Some)
}

/// What changed about a process; a lane that did not is absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessChange {
    /// Who it is.
    pub id: ProcessId,
    /// What hardly changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Arc<ProcessFacts>>,
    /// What changes each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ProcessLoad>,
    /// What its PyTorch says; an empty one where nobody looks any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<Box<AllocatorStats>>,
}

/// The new value, where it differs.
fn changed<T: PartialEq + Clone>(old: &T, new: &T) -> Option<T> {
    (old != new).then(|| new.clone())
}

impl Change {
    /// What leads from `old` to `new`; absent when only a whole snapshot can say it.
    pub fn between(old: &Snapshot, new: &Snapshot) -> Option<Self> {
        let same = old.sequence + 1 == new.sequence
            && old.schema == new.schema
            && old.interval_ms == new.interval_ms
            && old.driver == new.driver
            && old.host.facts == new.host.facts
            && old.gpus.len() == new.gpus.len()
            && old
                .gpus
                .iter()
                .zip(&new.gpus)
                .all(|(old, new)| old.uuid == new.uuid && old.facts == new.facts && old.trouble == new.trouble);
        same.then(|| Self {
            sequence: new.sequence,
            at: new.at,
            unix_ms: new.unix_ms,
            host: HostChange {
                load: changed(&old.host.load, &new.host.load),
                scan: changed(&old.host.scan, &new.host.scan),
            },
            gpus: gpus_between(old, new),
            processes: processes_between(old, new),
            gone: old.processes.iter().map(|it| it.id).filter(|id| new.process(*id).is_none()).collect(),
        })
    }
}

fn gpus_between(old: &Snapshot, new: &Snapshot) -> Vec<GpuChange> {
    let changes = old.gpus.iter().zip(&new.gpus).map(|(old, new)| {
        let gpu_processes = changed(&old.processes, &new.processes);
        let held = gpu_processes.as_ref().and_then(|new| Held::between(&old.processes, new));
        GpuChange {
            uuid: new.uuid.clone(),
            load: changed(&old.load, &new.load),
            health: changed(&old.health, &new.health),
            detail: if old.detail == new.detail { None } else { new.detail.clone() },
            processes: gpu_processes.filter(|_| held.is_none()),
            held,
            device_file_holders: changed(&old.device_file_holders, &new.device_file_holders),
            failures: changed(&old.failures, &new.failures),
        }
    });
    changes.filter(|it| !it.is_empty()).collect()
}

fn processes_between(old: &Snapshot, new: &Snapshot) -> Vec<ProcessChange> {
    let changes = new.processes.iter().map(|new| match old.process(new.id) {
        None => ProcessChange {
            id: new.id,
            facts: Some(new.facts.clone()),
            load: Some(new.load.clone()),
            allocator: new.allocator.clone(),
        },
        Some(old) => ProcessChange {
            id: new.id,
            facts: changed(&old.facts, &new.facts),
            load: changed(&old.load, &new.load),
            allocator: (old.allocator != new.allocator).then(|| new.allocator.clone().unwrap_or_else(Box::default)),
        },
    });
    changes.filter(|it| it.facts.is_some() || it.load.is_some() || it.allocator.is_some()).collect()
}

/// A change that does not start from this snapshot: a line was lost, or there are two writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfStep;

impl Snapshot {
    /// Makes of this snapshot the one that the change leads to.
    ///
    /// # Errors
    ///
    /// When the change starts from another snapshot. This one is then as it was, and the next whole
    /// snapshot mends it.
    pub fn apply(&mut self, change: Change) -> Result<(), OutOfStep> {
        let fits = |new: &GpuChange| {
            let gpu_processes = self.gpu(&new.uuid).map_or(0, |it| it.processes.len());
            new.held.as_ref().is_none_or(|it| it.fits(gpu_processes))
        };
        if self.sequence + 1 != change.sequence || !change.gpus.iter().all(fits) {
            return Err(OutOfStep);
        }
        self.sequence = change.sequence;
        self.at = change.at;
        self.unix_ms = change.unix_ms;
        replace(&mut self.host.load, change.host.load);
        replace(&mut self.host.scan, change.host.scan);
        for new in change.gpus {
            if let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.uuid == new.uuid) {
                replace(&mut gpu.load, new.load);
                replace(&mut gpu.health, new.health);
                gpu.detail = new.detail.or(gpu.detail.take());
                replace(&mut gpu.processes, new.processes);
                if let Some(held) = new.held {
                    held.apply(&mut gpu.processes);
                }
                replace(&mut gpu.device_file_holders, new.device_file_holders);
                replace(&mut gpu.failures, new.failures);
            }
        }
        if !change.gone.is_empty() {
            let gone: HashSet<ProcessId> = change.gone.into_iter().collect();
            self.processes.retain(|process| !gone.contains(&process.id));
        }
        let known = self.processes.len();
        for mut new in change.processes {
            let found = self.processes[..known].binary_search_by_key(&new.id, |process| process.id);
            if let (Some(facts), Some(other)) = (&mut new.facts, self.beside(found.ok())) {
                Arc::make_mut(facts).share(other);
            }
            match found {
                Ok(at) => {
                    let process = &mut self.processes[at];
                    replace(&mut process.facts, new.facts);
                    replace(&mut process.load, new.load);
                    if let Some(peek) = new.allocator {
                        process.allocator = Some(peek).filter(|it| !it.is_empty());
                    }
                }
                Err(_) => {
                    if let (Some(facts), Some(load)) = (new.facts, new.load) {
                        self.processes.push(Process { id: new.id, facts, load, allocator: new.allocator });
                    }
                }
            }
        }
        if self.processes.len() > known {
            self.processes.sort_by_key(|process| process.id);
            self.processes.dedup_by_key(|process| process.id);
        }
        Ok(())
    }

    /// The facts of the process before that place, or of the last one: as a rule, of one of the same job.
    fn beside(&self, at: Option<usize>) -> Option<&ProcessFacts> {
        self.processes[..at.unwrap_or(self.processes.len())].last().map(|it| it.facts.as_ref())
    }
}

fn replace<T>(lane: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *lane = new;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::line::Line;
    use crate::protocol::snapshot::Missing;
    use crate::protocol::snapshot::example::host;

    /// A host of two GPUs with some of six processes on it.
    fn any_host() -> impl Strategy<Value = Snapshot> {
        proptest::collection::vec((0..6u32, 0..2usize, 0..4u64), 0..8).prop_map(|holds| {
            let mut host = host(2);
            for (pid, gpu, gib) in holds {
                host = host.with(100 + pid, "python train.py", gpu, Bytes::from_gib(gib));
            }
            host
        })
    }

    /// What a GPU process holds and computes, where that is known.
    type Load = (Option<u16>, Option<u16>);

    /// Those of five.
    fn any_load() -> impl Strategy<Value = Vec<Load>> {
        proptest::collection::vec(
            (proptest::option::weighted(0.9, 0..3_u16), proptest::option::weighted(0.9, 0..3_u16)),
            5,
        )
    }

    /// A host on whose only GPU they do.
    fn loaded(load: &[Load]) -> Snapshot {
        let mut host = (100..105).fold(host(1), |host, pid| host.with(pid, "python train.py", 0, Bytes(0)));
        for (gpu_process, (memory, sm)) in host.gpus[0].processes.iter_mut().zip(load) {
            gpu_process.memory = memory.map(|it| Bytes(it.into())).ok_or(Missing::Denied);
            gpu_process.sm = sm.map(|it| Percent::new(it.into())).ok_or(Missing::NotYet);
        }
        host
    }

    proptest! {
        /// What the same GPU processes hold is said by itself, as long as all that changed of it is known.
        #[test]
        fn what_tenants_hold_is_said_without_saying_who_they_are(old in any_load(), new in any_load()) {
            let is_known = |of: fn(&Load) -> Option<u16>| {
                let mut pairs = old.iter().map(of).zip(new.iter().map(of));
                pairs.clone().all(|(old, new)| old == new) || pairs.all(|(_, new)| new.is_some())
            };
            let is_known = is_known(|it| it.0) && is_known(|it| it.1);
            let (mut seen, new) = (loaded(&old), Snapshot { sequence: 1, ..loaded(&new) });
            let change = Change::between(&seen, &new).unwrap();
            if let Some(gpu) = change.gpus.first() {
                prop_assert_eq!((gpu.held.is_some(), gpu.processes.is_some()), (is_known, !is_known));
            }
            let mut line = Vec::new();
            Line::Tick(change).write(&mut line).unwrap();
            let Ok(Some(Line::Tick(change))) = Line::parse(&line) else { panic!("{}", String::from_utf8_lossy(&line)) };
            seen.apply(change).unwrap();
            prop_assert_eq!(seen, new);
        }

        /// Whatever happens to a host, the change says all of it, also after it went over a wire.
        #[test]
        fn a_change_leads_from_the_old_to_the_new(old in any_host(), new in any_host()) {
            let mut seen = old.clone();
            let new = Snapshot { sequence: 1, ..new };
            let mut line = Vec::new();
            Line::Tick(Change::between(&old, &new).unwrap()).write(&mut line).unwrap();
            let Ok(Some(Line::Tick(change))) = Line::parse(&line) else { panic!("{}", String::from_utf8_lossy(&line)) };
            seen.apply(change).unwrap();
            prop_assert_eq!(seen, new);
        }

        /// No line makes the parser panic.
        #[test]
        fn any_line_is_read_or_refused(line in ".*") {
            let _refused = Line::parse(line.as_bytes());
        }
    }

    #[test]
    fn a_snapshot_survives_the_wire_with_the_reasons_of_what_is_missing() {
        let host = host(1).with(100, "python train.py", 0, Bytes::from_gib(1));
        let mut line = Vec::new();
        Line::Full(Box::new(host.clone())).write(&mut line).unwrap();
        assert_eq!(Line::parse(&line).unwrap(), Some(Line::Full(Box::new(host))));
        let text = String::from_utf8(line).unwrap();
        assert!(text.contains(r#""fan_percent":null"#) && text.contains(r#""fan_percent":"unsupported""#), "{text}");
    }

    #[test]
    fn a_change_from_another_snapshot_is_refused_whole() {
        let old = host(1);
        let mut change = Change::between(&old, &old.later(1)).unwrap();
        change.sequence = 7;
        let mut seen = old.clone();
        assert_eq!((seen.apply(change), seen), (Err(OutOfStep), old));

        let (old, new) =
            (loaded(&[(Some(1), Some(1)); 5]), Snapshot { sequence: 1, ..loaded(&[(Some(2), Some(1)); 5]) });
        let mut seen = old.clone();
        let mut change = Change::between(&old, &new).unwrap();
        // Who made up this line did not know how many they are.
        change.gpus[0].held.as_mut().unwrap().memory.as_mut().unwrap().pop();
        assert_eq!((seen.apply(change), seen), (Err(OutOfStep), old));
    }

    #[test]
    fn a_gpu_that_is_lost_needs_a_whole_snapshot() {
        let (old, mut new) = (host(2), host(2).later(1));
        new.gpus.remove(0);
        assert_eq!(Change::between(&old, &new), None);
    }
}
