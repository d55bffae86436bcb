//! Memory that leaks, or that will be full soon.

use std::time::Duration;

use super::awaited_job::AwaitedJob;
use super::awaited_processes::AwaitedProcesses;
use super::gpus_of;
use super::happening::{Happening, HappeningKind};
use crate::app::fleet::alert_scope::AlertScope;
use crate::base::units::ExactSpan;
use crate::model::{GpuOrProcess, Growing, HostModel};
use crate::output::labels;
use crate::protocol::snapshot::{ProcessId, Snapshot};

/// Which growth is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AwaitedGrowth {
    pub(super) leak: bool,
    pub(super) full_within: Option<Duration>,
    /// Whether the growth of every user counts, where no process or job is named.
    pub(super) all: bool,
}

/// The processes whose growth counts; everything in the scope if none is named.
#[derive(Clone, Copy)]
pub(super) struct NamedProcesses<'a> {
    pub(super) processes: &'a AwaitedProcesses,
    pub(super) job: Option<&'a AwaitedJob>,
}

impl AwaitedGrowth {
    /// Returns the first leak, or the memory that is full first. With `is_patient`, the arguments of
    /// its process are waited for, which the sentence names.
    pub(super) fn find(
        self,
        model: &HostModel,
        snapshot: &Snapshot,
        named: NamedProcesses<'_>,
        is_patient: bool,
    ) -> Option<Happening> {
        let is_named = |growing: &Growing| match growing.subject {
            GpuOrProcess::Process(id) if is_patient => snapshot
                .process(id)
                .is_none_or(|process| !process.awaits_arguments()),
            _ => true,
        };
        let counts =
            |growing: &&Growing| self.counts(model, snapshot, named, growing) && is_named(growing);
        model.growing().iter().filter(counts).find_map(|growing| {
            let full = self
                .full_within
                .filter(|time| growing.is_full_within(*time));
            let (kind, does) = match full {
                // Memory that is full soon is the more urgent news.
                Some(time) => (
                    HappeningKind::OutOfMemorySoon,
                    format!("runs out of memory within {}", ExactSpan(time)),
                ),
                None if self.leak && growing.is_leak() => (HappeningKind::Leak, "leaks".to_owned()),
                None => return None,
            };
            Some(about(model, snapshot, growing, kind, &does))
        })
    }

    fn counts(
        self,
        model: &HostModel,
        snapshot: &Snapshot,
        named: NamedProcesses<'_>,
        growing: &Growing,
    ) -> bool {
        if named.processes.pids().is_empty() && named.job.is_none() {
            return self.all || AlertScope::Mine.includes(model, snapshot, &growing.subject);
        }
        let is_named = |id: ProcessId| {
            let of_job = |job: &AwaitedJob| {
                snapshot
                    .process(id)
                    .is_some_and(|process| job.contains(model, process))
            };
            descends_from(snapshot, id, |id| named.processes.contains(id))
                || named.job.is_some_and(of_job)
        };
        match &growing.subject {
            GpuOrProcess::Process(id) => is_named(*id),
            // A full GPU ends each process on it, whichever of them grows. A leak is that of a
            // process.
            GpuOrProcess::Gpu(uuid) => {
                let full = self.full_within;
                full.is_some_and(|time| growing.is_full_within(time))
                    && snapshot.gpu(uuid).is_some_and(|gpu| {
                        let mut processes = gpu.processes.iter();
                        processes.any(|gpu_process| is_named(gpu_process.process))
                    })
            }
        }
    }

    /// Returns clauses on the growth that did not come.
    pub(super) fn nothing_yet(self) -> impl Iterator<Item = String> {
        let leak = self.leak.then(|| "nothing leaks".to_owned());
        let full = self.full_within;
        let full = full.map(|time| format!("no memory will be full within {}", ExactSpan(time)));
        leak.into_iter().chain(full)
    }
}

/// Whether a process is one of these, or descends from one.
fn descends_from(snapshot: &Snapshot, id: ProcessId, is_one: impl Fn(ProcessId) -> bool) -> bool {
    /// A longer line of parents is a circle.
    const MOST: usize = 1024;
    let parent = |id: &ProcessId| {
        let parent = snapshot.process(*id)?.facts.parent.ok()?;
        let mut processes = snapshot.processes.iter();
        let is_parent = |id: ProcessId| id.pid == parent && id.start_ticks.is_some();
        let found = processes.find(|process| is_parent(process.id))?.id;
        // A younger process has only reused the PID of the parent.
        (found.start_ticks <= id.start_ticks).then_some(found)
    };
    std::iter::successors(Some(id), parent)
        .take(MOST)
        .any(is_one)
}

fn about(
    model: &HostModel,
    snapshot: &Snapshot,
    growing: &Growing,
    kind: HappeningKind,
    does: &str,
) -> Happening {
    let (subject, processes, gpus) = match &growing.subject {
        GpuOrProcess::Process(id) => {
            let command = snapshot.process(*id).map(labels::command);
            let command = command.and_then(Result::ok).unwrap_or_else(|| "?".into());
            let gpus = gpus_of(model, snapshot, &[*id]);
            (format!("{} ({command})", id.pid), vec![*id], gpus)
        }
        GpuOrProcess::Gpu(uuid) => {
            let label = snapshot
                .gpu(uuid)
                .map(labels::gpu_label)
                .unwrap_or_default();
            let subject = format!("what is on GPU {label}");
            (subject, Vec::new(), vec![uuid.clone()])
        }
    };
    Happening {
        processes,
        gpus,
        evidence: Some(growing.evidence),
        ..Happening::new(kind, format!("{subject} {does}: {}", growing.reason()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::reply::{Outcome, Reply};
    use crate::protocol::snapshot::example::host;

    const LEAK: AwaitedGrowth = AwaitedGrowth {
        leak: true,
        full_within: None,
        all: false,
    };

    /// A model in which process 8 leaks on GPU 0, and process 7 holds its memory there.
    fn leaking() -> HostModel {
        let mut snapshot = host(1)
            .with(7, "python serve.py", 0, Bytes::from_gib(3))
            .with(8, "python train.py", 0, Bytes::from_gib(3));
        let mut model = HostModel::default();
        for _ in 0..900 {
            snapshot = snapshot.later(1);
            let gpu = &mut snapshot.gpus[0];
            for bytes in [&mut gpu.processes[1].memory, &mut gpu.load.memory_used] {
                bytes.as_mut().expect("known").0 += 40 << 20;
            }
            model.replace(snapshot.clone());
        }
        model
    }

    fn find(model: &HostModel, growth: AwaitedGrowth, pids: &[u32]) -> Option<Happening> {
        let snapshot = model.latest().expect("a snapshot");
        let mut processes = AwaitedProcesses::new(pids, false);
        for pid in pids {
            let mut listed = snapshot.processes.iter();
            let process = listed.find(|process| process.id.pid == *pid);
            let reply = Reply {
                process: process.expect("it is listed").id,
                outcome: Outcome::Watched { name: None },
            };
            processes.receive(&reply).expect("it is watched");
        }
        let named = NamedProcesses {
            processes: &processes,
            job: None,
        };
        growth.find(model, snapshot, named, false)
    }

    #[test]
    fn a_leak_of_a_named_process_counts_and_that_of_another_does_not() {
        let model = leaking();
        let found = find(&model, LEAK, &[8]).expect("8 leaks");
        assert_eq!(found.kind, HappeningKind::Leak);
        assert_eq!(found.processes[0].pid, 8);
        assert_eq!(found.gpus[0].0.as_str(), "GPU-0");
        assert!(
            found.sentence.starts_with("8 (python train.py) leaks: +"),
            "{found:?}"
        );
        assert_eq!(find(&model, LEAK, &[7]), None);
        let mut snapshot = model.latest().expect("a snapshot").clone();
        let place = snapshot.processes.iter().position(|p| p.id.pid == 8);
        snapshot.processes[place.expect("it is listed")]
            .facts_mut()
            .parent = Ok(7);
        let mut model = model;
        model.replace(snapshot.later(1));
        assert!(find(&model, LEAK, &[7]).is_some(), "8 is a child of 7");
    }

    #[test]
    fn without_a_name_the_leaks_of_the_user_count_or_all() {
        let mut model = leaking();
        assert!(find(&model, LEAK, &[]).is_some());
        // The user of the agent has no process on the GPU.
        let mut snapshot = model.latest().expect("a snapshot").clone().later(1);
        snapshot.host.facts.uid = 4242;
        model.replace(snapshot);
        assert_eq!(find(&model, LEAK, &[]), None);
        let all = AwaitedGrowth { all: true, ..LEAK };
        assert!(find(&model, all, &[]).is_some());
    }

    #[test]
    fn memory_is_full_within_a_time_that_is_longer_than_the_forecast() {
        let model = leaking();
        let within = |minutes| AwaitedGrowth {
            leak: false,
            full_within: Some(Duration::from_mins(minutes)),
            all: false,
        };
        // 38 GiB are in use, and 2.3 GiB more each minute.
        assert_eq!(find(&model, within(5), &[8]), None);
        let found = find(&model, within(60), &[8]).expect("80 GiB are soon full");
        assert_eq!(found.kind, HappeningKind::OutOfMemorySoon);
        assert!(
            found
                .sentence
                .starts_with("8 (python train.py) runs out of memory within 1h: +"),
            "{found:?}"
        );
        let json = found.json();
        assert!(json["oom_in_s"].as_f64().is_some_and(|left| left < 3600.0));
        assert_eq!(json["kind"], "out_of_memory_soon");
        assert_eq!(json["exit_code"], 14);
        let both = AwaitedGrowth {
            leak: true,
            ..within(60)
        };
        let kind = find(&model, both, &[8]).expect("both happened").kind;
        assert_eq!(kind, HappeningKind::OutOfMemorySoon, "the more urgent news");
    }
}
