//! Plays a recording through the model, and collects what a page shows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use super::decimated::{AmountSample, Decimated, Extremes};
use super::findings::Findings;
use super::memory_layer::in_kib;
use super::process_run::{Pass, ProcessRun};
use super::range::{RangeEdge, RunRange};
use super::{GPU_BUCKETS, GpuRun, HostRun, LoadRange, ProcessKey, RecordedRun, RunMemory, lines};
use crate::base::text::Text;
use crate::base::units::{Moment, Percent, Watts};
use crate::model::UserHues;
use crate::model::{Fleet, HostLabel, HostModel};
use crate::protocol::host_key::HostKey;
use crate::protocol::line::Line;
use crate::protocol::snapshot::{Gpu, GpuUuid, ProbeReport, Snapshot};

/// The most processes that are kept for one host, and the most on one GPU at a moment.
const MOST_PROCESSES: usize = 256;
const MOST_ON_GPU: usize = 64;

/// The data time between two looks at the findings of the model, in milliseconds.
const LOOK_EVERY: u64 = 10_000;

/// Plays a recording through the model, and collects the part of it.
///
/// # Errors
///
/// When the file cannot be read, has no line of gputop, or has nothing in that part.
pub(crate) fn fold(range: &RunRange) -> anyhow::Result<RecordedRun> {
    fold_with(range, None)
}

/// As [`fold`], and adds a snapshot of the present to the host of the same boot.
pub(crate) fn fold_with(range: &RunRange, now: Option<Snapshot>) -> anyhow::Result<RecordedRun> {
    let mut fleet = Fleet::default();
    let mut folds: BTreeMap<HostKey, HostFold> = BTreeMap::new();
    let mut user_hues = UserHues::default();
    let problems = lines::read(&range.path, |recorded| {
        let host = recorded.host;
        if let Some(name) = recorded.host_name.filter(|_| !folds.contains_key(&host)) {
            fleet.set_label(
                host,
                HostLabel {
                    name: Some(name),
                    source: Text::default(),
                },
            );
        }
        let fold = folds.entry(host).or_default();
        match &recorded.line {
            Line::Tick(_) => fold.is_begun = true,
            // A checkpoint has the history before the recording. Later ones repeat what the lines
            // said.
            Line::Checkpoint(_) if fold.is_begun => return Ok(()),
            Line::Full(_) | Line::Reply(_) | Line::Checkpoint(_) => {}
        }
        if let Line::Full(snapshot) = &recorded.line
            && let Some(model) = fleet.host(host)
            && model
                .latest()
                .is_some_and(|old| old.host.facts.boot_id != snapshot.host.facts.boot_id)
        {
            fold.end_boot(model);
        }
        // A tick that does not follow the line before is left out, as on the screen: the next full
        // line has everything.
        if fleet.apply(host, recorded.line).is_ok()
            && let Some(model) = fleet.host(host)
        {
            // Before the part, too: a replay of the recording shows the same hues.
            user_hues.adopt(model.user_hues());
            fold.add(model, range);
        }
        Ok(())
    })?;
    if let Some(now) = now {
        let boot_of = |model: &HostModel| {
            model
                .latest()
                .map(|latest| latest.host.facts.boot_id.clone())
        };
        let is_same = |(_, model): &(HostKey, &HostModel)| {
            boot_of(model).as_ref() == Some(&now.host.facts.boot_id)
        };
        let host = fleet.hosts().find(is_same).map(|(host, _)| host);
        let name = Text::new(range.path.as_os_str().as_encoded_bytes());
        let host = host.with_context(|| format!("{name} is of another boot of this host"))?;
        if fleet.apply(host, Line::Full(Box::new(now))).is_ok()
            && let Some((model, fold)) = fleet.host(host).zip(folds.get_mut(&host))
        {
            user_hues.adopt(model.user_hues());
            fold.add(model, range);
        }
    }
    let mut hosts = Vec::new();
    let marks: Vec<String> = folds.values().flat_map(|fold| fold.marks.clone()).collect();
    for (key, fold) in folds {
        let Some(model) = fleet.host(key) else {
            continue;
        };
        hosts.extend(fold.finish(model, fleet.name(key)));
    }
    if hosts.is_empty() {
        let name = Text::new(range.path.as_os_str().as_encoded_bytes());
        let known = if marks.is_empty() {
            "it has no mark".to_owned()
        } else {
            format!("its marks: {}", marks.join(", "))
        };
        anyhow::ensure!(!range.is_part(), "{name} has nothing in that part; {known}");
        anyhow::bail!("{name} has no full line: a recording begins with one");
    }
    Ok(RecordedRun {
        hosts,
        problems,
        user_hues,
    })
}

/// The fold of one host.
#[derive(Debug, Default)]
struct HostFold {
    /// Whether there was a tick.
    is_begun: bool,
    boot: u32,
    /// A moment of this boot with its time in milliseconds since 1970; `None` before the first
    /// line.
    clock: Option<(Moment, u64)>,
    /// The times of the first and last line.
    span: Option<(u64, u64)>,
    gpus: Vec<(GpuRun, Moment, u64)>,
    processes: BTreeMap<ProcessKey, ProcessRun>,
    findings: Findings,
    next_look: u64,
    /// When the recording began, before the part that is collected.
    recording_began: Option<u64>,
    /// The names of the marks so far.
    marks: BTreeSet<String>,
    part: PartProgress,
}

/// Whether the part of the recording that is collected has begun and ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PartProgress {
    #[default]
    Before,
    Within,
    After,
}

impl HostFold {
    fn add(&mut self, model: &HostModel, range: &RunRange) {
        let Some(latest) = model.latest() else { return };
        let gpus: Vec<&GpuUuid> = latest.gpus.iter().map(|gpu| &gpu.uuid).collect();
        let pass = self.pass(latest, &gpus);
        self.find_part(latest, &pass, range);
        if self.part != PartProgress::Within {
            return;
        }
        let (began, ended) = self.span.unwrap_or((pass.at, pass.at));
        self.span = Some((began.min(pass.at), ended.max(pass.at)));
        for gpu in &latest.gpus {
            self.add_gpu(gpu, &pass);
        }
        for process in self.processes.values_mut() {
            process.is_there = false;
        }
        for total in model.process_totals() {
            let Some(process) = latest.process(total.process) else {
                continue;
            };
            let key = ProcessKey {
                boot: pass.boot,
                id: process.id,
            };
            let run = self
                .processes
                .entry(key)
                .or_insert_with(|| ProcessRun::new(process, pass.at));
            run.add(model, process, total, &pass);
            for (name, step) in run.report().into_iter().flat_map(marks) {
                self.findings.mark(key, name, step, pass.at);
            }
        }
        self.forget();
        if pass.at >= self.next_look {
            self.next_look = pass.at + LOOK_EVERY;
            self.findings.add_pass(model, &pass);
        }
    }

    /// Finds out whether a pass is in the part that is collected.
    fn find_part(&mut self, latest: &Snapshot, pass: &Pass<'_>, range: &RunRange) {
        let began = *self.recording_began.get_or_insert(pass.at);
        if !range.is_part() {
            self.part = PartProgress::Within;
            return;
        }
        let mut set = Vec::new();
        for process in &latest.processes {
            let report = process
                .probe
                .as_ref()
                .and_then(|probe| probe.report.as_ref());
            for (name, _) in report.into_iter().flat_map(marks) {
                if !self.marks.contains(name) {
                    self.marks.insert(name.to_owned());
                    set.push(name);
                }
            }
        }
        let utc_offset = latest.host.facts.utc_offset.unwrap_or(0);
        let is_reached = |edge: &RangeEdge| {
            edge.time(began, utc_offset)
                .is_some_and(|time| pass.at >= time)
                || set.iter().any(|mark| edge.is_mark(mark))
        };
        if self.part == PartProgress::Before && range.from.as_ref().is_none_or(is_reached) {
            self.part = PartProgress::Within;
        }
        if self.part == PartProgress::Within && range.to.as_ref().is_some_and(is_reached) {
            self.part = PartProgress::After;
        }
    }

    /// Returns the pass of the latest snapshot.
    fn pass<'a>(&mut self, latest: &Snapshot, gpus: &'a [&'a GpuUuid]) -> Pass<'a> {
        // The time since boot never jumps: a step of the wall clock moves no sample.
        let after_last = |unix: u64| self.span.map_or(unix, |(_, ended)| unix.max(ended));
        let (moment, unix) = *self.clock.get_or_insert_with(|| {
            (
                latest.at,
                after_last(latest.unix_ms.min(Moment::LATEST.0 * 1000)),
            )
        });
        let at = (unix + latest.at.0).saturating_sub(moment.0);
        let patience = latest.interval_ms.clamp(1000, 3_600_000) * u64::from(Snapshot::STALE_AFTER);
        Pass {
            at,
            now: latest.at,
            boot: self.boot,
            patience,
            gpus,
        }
    }

    fn add_gpu(&mut self, gpu: &Gpu, pass: &Pass<'_>) {
        let place = self
            .gpus
            .iter()
            .position(|(known, ..)| known.uuid == gpu.uuid);
        let place = place.unwrap_or_else(|| {
            self.gpus.push((new_gpu(gpu), Moment::default(), 0));
            self.gpus.len() - 1
        });
        let (run, last_reading, last_known) = &mut self.gpus[place];
        run.label = gpu.label();
        run.name = gpu.facts.name.as_ref().ok().cloned().or(run.name.take());
        run.capacity = gpu.load.memory_total.ok().or(run.capacity);
        run.power_limit = gpu
            .health
            .power_limit
            .ok()
            .map(Watts::value)
            .or(run.power_limit);
        // A GPU that does not answer keeps its last readings.
        if gpu.load.at == *last_reading {
            return;
        }
        *last_reading = gpu.load.at;
        let load = &gpu.load;
        if let Ok(used) = load.memory_used {
            let known = gpu
                .processes
                .iter()
                .filter_map(|process| Some((process.process, process.memory.ok()?)));
            let mut parts: Vec<(ProcessKey, u32)> = known
                .map(|(id, memory)| {
                    (
                        ProcessKey {
                            boot: pass.boot,
                            id,
                        },
                        in_kib(memory.0),
                    )
                })
                .collect();
            if parts.len() > MOST_ON_GPU {
                parts.sort_unstable_by_key(|(_, kib)| std::cmp::Reverse(*kib));
                parts.truncate(MOST_ON_GPU);
            }
            let after_gap =
                run.curve.is_empty() || pass.at.saturating_sub(*last_known) > pass.patience;
            let kib = in_kib(used.0);
            let sample = AmountSample {
                at: pass.at,
                kib,
                inner_kib: kib,
                parts,
            };
            run.curve.push(pass.at, Extremes::new(sample, after_gap));
            run.memory.add(pass.at, used);
            *last_known = pass.at;
        }
        run.sm.add(pass.at, load.sm.ok().map(Percent::value));
        run.power.add(pass.at, load.power.ok().map(Watts::value));
        #[expect(clippy::cast_precision_loss, reason = "degrees have few digits")]
        run.temperature.add(
            pass.at,
            load.temperature
                .ok()
                .map(|temperature| temperature.0 as f32),
        );
    }

    /// Forgets the processes that matter least, if there are too many.
    fn forget(&mut self) {
        while self.processes.len() > MOST_PROCESSES {
            let gone = self
                .processes
                .iter()
                .filter(|(_, process)| !process.is_there);
            let least = gone
                .min_by_key(|(_, process)| process.weight())
                .map(|(key, _)| *key);
            // With more processes at once, those with the least memory so far are left out.
            let least = least.or_else(|| {
                self.processes
                    .iter()
                    .min_by_key(|(_, process)| process.memory.peak.map(|(_, peak)| peak))
                    .map(|(key, _)| *key)
            });
            let Some(least) = least else { return };
            self.processes.remove(&least);
        }
    }

    /// Takes the last findings before the host boots anew.
    fn end_boot(&mut self, model: &HostModel) {
        self.look(model);
        self.findings.end_boot();
        self.boot += 1;
        self.clock = None;
        self.next_look = 0;
        for (_, last_reading, _) in &mut self.gpus {
            *last_reading = Moment::default();
        }
    }

    fn look(&mut self, model: &HostModel) {
        if self.part != PartProgress::Within {
            return;
        }
        if let Some(latest) = model.latest() {
            let pass = self.pass(latest, &[]);
            self.findings.add_pass(model, &pass);
        }
    }

    /// Returns the run of the host; `None` if there was no full line.
    fn finish(mut self, model: &HostModel, name: &str) -> Option<HostRun> {
        self.look(model);
        let (began, ended) = self.span?;
        let facts = model
            .latest()
            .map(|latest| (&latest.host.facts, &latest.driver))?;
        let (events, leaks, suspects) = self.findings.finish();
        Some(HostRun {
            name: Text::new(name),
            utc_offset: facts.0.utc_offset.ok(),
            driver: facts.1.version.clone(),
            began,
            ended,
            gpus: self.gpus.into_iter().map(|(gpu, ..)| gpu).collect(),
            processes: self.processes,
            events,
            leaks,
            suspects,
        })
    }
}

/// Returns the marks in a report with their steps. Recordings of earlier versions have only the one
/// that changes are counted from.
fn marks(report: &ProbeReport) -> impl Iterator<Item = (&str, Option<u64>)> {
    let since = report.changes_since.as_ref();
    let last = since.and_then(|since| Some((since.mark.as_ref()?.as_str(), since.step)));
    let all = report.marks.iter();
    all.map(|mark| (mark.name.as_str(), mark.step)).chain(last)
}

fn new_gpu(gpu: &Gpu) -> GpuRun {
    GpuRun {
        uuid: gpu.uuid.clone(),
        label: gpu.label(),
        name: None,
        capacity: None,
        power_limit: None,
        memory: RunMemory::default(),
        curve: Decimated::new(GPU_BUCKETS),
        sm: LoadRange::new(),
        power: LoadRange::new(),
        temperature: LoadRange::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::{Missing, example};

    #[test]
    fn a_sum_with_an_unknown_part_is_neither_a_peak_nor_a_low() {
        let gib = Bytes::from_gib;
        let first = example::host(2).with(101, "python a.py", 0, gib(8)).with(
            101,
            "python a.py",
            1,
            gib(4),
        );
        let mut second = first.later(1);
        second.gpus[1].processes[0].memory = Err(Missing::Failed);
        let third = second.later(1);
        let mut fourth = third.later(1);
        fourth.gpus[1].processes[0].memory = Ok(gib(5));
        let mut lines = Vec::new();
        for snapshot in [first, second, third, fourth] {
            Line::Full(Box::new(snapshot)).write(&mut lines).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines).unwrap();
        let run = fold(&RunRange::whole_recording(file.path())).unwrap();
        let process = run.hosts[0].processes.values().next().unwrap();
        let amounts = [process.memory.lowest, process.memory.peak]
            .map(|amount| amount.map(|(_, bytes)| bytes));
        assert_eq!(amounts, [Some(gib(12)), Some(gib(13))]);
    }
}
