//! One host: its latest snapshot, and what the model derives from that and earlier snapshots.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint::{self, DerivedState};
use super::growth::{Evidence, Growing, LeakDetector, LeakDetectors, MemoryGrowth, ProbeLeak};
use super::health::{self, HealthVerdict};
use super::history::{AllocatorHistory, History, MemoryHistory, TensorHistory};
use super::identity::GpuOrProcess;
use super::job::{Job, Jobs};
use super::news::{NewsItem, NewsLog, NewsSources};
use super::past::Past;
use super::process_total::{ProcessTotal, process_totals};
use super::process_tree::ProcessTree;
use super::unaccounted::{self, UnaccountedMemory};
use super::user_hues::{UserHue, UserHues};
use super::verdict::process_records::{ProcessRecords, ProcessView, RecordedTime};
use super::verdict::{self, Verdict};
use crate::base::text::Text;
use crate::base::time::{ViewerTime, WallClock};
use crate::base::units::{Bytes, Elapsed, Moment};
use crate::protocol::change::{Change, OutOfStep};
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::line::Line;
use crate::protocol::reply::Outcome;
use crate::protocol::snapshot::{Gpu, Missing, ProcessFacts, ProcessId, Reading, Snapshot};

/// The model of one host.
#[derive(Debug, Clone, Default)]
pub struct HostModel {
    pub(super) latest: Option<Snapshot>,
    pub(super) process_totals: Vec<ProcessTotal>,
    pub(super) tree: ProcessTree,
    unaccounted: Vec<UnaccountedMemory>,
    pub(super) jobs: Jobs,
    /// Counts how often the jobs were found anew.
    jobs_revision: u64,
    pub(super) records: ProcessRecords,
    verdicts: Vec<Verdict>,
    history: History,
    leaks: LeakDetectors,
    growing: Vec<Growing>,
    news: NewsLog,
    user_hues: UserHues,
    /// The viewer time since the latest line.
    silence: ViewerTime,
}

/// The shortest time without data that counts as overdue: the first passes may take longer than a
/// short interval.
const SHORTEST_OVERDUE: Duration = Duration::from_millis(500);

/// The longest time that the first line of a host takes: a login over a slow network, and the start
/// of the driver.
const FIRST_LINE: Duration = Duration::from_secs(8);

/// The shortest time between two viewers that is news.
const UNSEEN: Duration = Duration::from_mins(1);

impl HostModel {
    /// Applies a line of this host. Fails like [`HostModel::change`].
    pub fn apply(&mut self, line: Line) -> Result<(), OutOfStep> {
        match line {
            Line::Full(snapshot) => self.replace(*snapshot),
            Line::Tick(change) => return self.change(*change),
            Line::Reply(reply) => {
                if let Outcome::Sent { signal, at } = reply.outcome {
                    self.history.signalled(reply.process, signal, at);
                    // The process may be gone in the next snapshot.
                    if let Some(process) = self
                        .latest
                        .as_ref()
                        .and_then(|snapshot| snapshot.process(reply.process))
                    {
                        self.news.remember(process);
                    }
                }
            }
            Line::Checkpoint(checkpoint) => self.restore(&checkpoint, None),
        }
        Ok(())
    }

    /// Takes a whole snapshot in the place of the last one. A snapshot of another boot begins a new
    /// history: PIDs and times of the boot before mean other processes and moments.
    pub fn replace(&mut self, mut snapshot: Snapshot) {
        if self
            .latest
            .as_ref()
            .is_some_and(|old| old.host.facts.boot_id != snapshot.host.facts.boot_id)
        {
            *self = Self {
                user_hues: std::mem::take(&mut self.user_hues),
                jobs_revision: self.jobs_revision,
                ..Self::default()
            };
        }
        // Lookups search a sorted list, and a far agent may send an unsorted one.
        snapshot.processes.sort_by_key(|process| process.id);
        let mut before: Option<Arc<ProcessFacts>> = None;
        for process in &mut snapshot.processes {
            // Equal facts share one allocation with those that the history remembers.
            let old = self.latest.as_ref().and_then(|old| old.process(process.id));
            if let Some(old) = old.filter(|old| old.facts == process.facts) {
                process.facts = old.facts.clone();
            } else if let Some(before) = &before {
                process.facts_mut().share(before);
            }
            before = Some(process.facts.clone());
        }
        self.latest = Some(snapshot);
        self.derive();
    }

    /// Applies a change to the snapshot. Returns an error when the change starts from another
    /// snapshot; the model then stays as it is until the next full line.
    pub fn change(&mut self, change: Change) -> Result<(), OutOfStep> {
        self.latest.as_mut().ok_or(OutOfStep)?.apply(change)?;
        self.derive();
        Ok(())
    }

    /// Returns the state of the model as a line, with which a reader can go on from here; `None`
    /// before the first line.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let latest = self.latest.as_ref()?;
        let state = DerivedState {
            boot_id: Cow::Borrowed(&latest.host.facts.boot_id),
            history: Cow::Borrowed(&self.history),
            leaks: Cow::Borrowed(&self.leaks),
            records: Cow::Borrowed(&self.records),
            news: Cow::Borrowed(&self.news),
            user_hues: Cow::Borrowed(&self.user_hues),
        };
        state.to_checkpoint(latest)
    }

    /// Replaces everything derived from earlier lines by that of a checkpoint of this boot, and
    /// then adds the latest snapshot. Ignores a checkpoint that is later than the latest snapshot,
    /// is not understood or is unsound. `recorded` is what a recorder saw.
    fn restore(&mut self, checkpoint: &Checkpoint, recorded: Option<RecordedTime>) {
        let Some(latest) = &self.latest else { return };
        let Some(state) = DerivedState::parse(checkpoint, latest) else {
            return;
        };
        self.history = state.history.into_owned();
        self.leaks = state.leaks.into_owned();
        self.records = state.records.into_owned();
        self.records.recorded = recorded;
        self.news = state.news.into_owned();
        self.user_hues = state.user_hues.into_owned();
        self.judge(false);
        // A jump in a recording goes to the snapshot that the checkpoint is from.
        if checkpoint.at < self.now() {
            self.remember();
        } else {
            self.growing = self.find_growing(&[]);
        }
    }

    pub(crate) fn user_hues(&self) -> &UserHues {
        &self.user_hues
    }

    /// Returns the hue of a user; `None` for a user whom no hue was left for.
    pub(crate) fn user_hue(&self, name: &Text) -> Option<UserHue> {
        self.user_hues.hue(name)
    }

    /// Replaces the news by those of a checkpoint, which is ignored as in [`HostModel::apply`].
    pub(super) fn restore_news(&mut self, checkpoint: &Checkpoint) {
        if let Some(news) = self
            .latest
            .as_ref()
            .and_then(|latest| checkpoint::news(checkpoint, latest))
        {
            self.news = news;
        }
    }

    /// Goes on from what a recorder saw, which runs on the same host. Evidence then names the
    /// recorder.
    pub(crate) fn continue_from_recorder(&mut self, past: &Checkpoint) {
        let Some(latest) = &self.latest else { return };
        let recorded = RecordedTime {
            until: past.at,
            resumed: latest.at,
        };
        self.restore(past, Some(recorded));
    }

    /// Whether the model went on from what a recorder saw.
    pub(crate) fn is_recorded(&self) -> bool {
        self.records.recorded.is_some()
    }

    /// Goes on from what an earlier viewer or a recorder saw, and adds news of the time that nobody
    /// saw. Of a past before the last boot, the news only name the file.
    pub(crate) fn begin_after(&mut self, past: &Past) {
        let Some(latest) = &self.latest else { return };
        // A recorder knows all that an earlier viewer saw, and the time between.
        if self.records.recorded.is_some() {
            return;
        }
        let (now, unix_ms) = (latest.at, latest.unix_ms);
        if past.boot_id != latest.host.facts.boot_id {
            let sentence = format!(
                "the host has restarted; `gputop replay {}` shows the time before",
                past.path
            );
            return self.news.add_unseen(now, sentence);
        }
        self.restore(&past.checkpoint, None);
        let unseen = Duration::from_millis(unix_ms.saturating_sub(past.unix_ms));
        if unseen >= UNSEEN && past.checkpoint.at <= now {
            let sentence = format!("nothing was read for {}: no gputop ran", Elapsed(unseen));
            self.news.add_unseen(past.checkpoint.at, sentence);
        }
    }

    pub(crate) fn advance(&mut self, time: ViewerTime) {
        self.silence += time;
    }

    /// The latest snapshot; `None` before the first line.
    pub fn latest(&self) -> Option<&Snapshot> {
        self.latest.as_ref()
    }

    pub(crate) fn process_totals(&self) -> &[ProcessTotal] {
        &self.process_totals
    }

    pub(crate) fn process_total(&self, process: ProcessId) -> Option<&ProcessTotal> {
        self.process_totals
            .binary_search_by_key(&process, |total| total.process)
            .ok()
            .map(|place| &self.process_totals[place])
    }

    pub(crate) fn process_tree(&self) -> &ProcessTree {
        &self.tree
    }

    /// The GPUs with unaccounted memory.
    pub fn unaccounted(&self) -> &[UnaccountedMemory] {
        &self.unaccounted
    }

    /// The unaccounted memory of a GPU, which is 0 where there is less than a driver may use for
    /// itself. Missing where it cannot be known. A split GPU has none of its own, but its instances.
    pub(crate) fn unaccounted_memory(&self, gpu: &Gpu) -> Reading<Bytes> {
        let latest = self.latest.as_ref().ok_or(Missing::NotYet)?;
        if gpu.trouble.is_some() {
            return Err(Missing::Failed);
        }
        let found = unaccounted::find(gpu, latest)?;
        Ok(found.map_or(Bytes(0), |found| found.memory))
    }

    /// The verdicts on all processes, in the order of the snapshot's processes.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The number of processes of other gputops' simulated machines. They are no orphans.
    pub(crate) fn stand_ins(&self) -> usize {
        let Some(latest) = &self.latest else { return 0 };
        let view = ProcessView {
            snapshot: latest,
            tree: &self.tree,
            records: &self.records,
        };
        (0..latest.processes.len())
            .filter(|place| view.is_stand_in(*place))
            .count()
    }

    /// The verdict on one process; `None` when it is not in the latest snapshot.
    pub(crate) fn verdict(&self, process: ProcessId) -> Option<&Verdict> {
        self.verdicts
            .binary_search_by_key(&process, |verdict| verdict.process)
            .ok()
            .map(|place| &self.verdicts[place])
    }

    /// The job of a process; `None` when the process is not in the latest snapshot.
    pub fn job(&self, process: ProcessId) -> Option<&Job> {
        self.jobs.at(self.tree.place(process)?)
    }

    /// All jobs by the process tree.
    pub(super) fn job_list(&self) -> &[Job] {
        &self.jobs.list
    }

    /// Another number than before if processes, their jobs or their facts changed since then.
    pub(super) fn jobs_revision(&self) -> u64 {
        self.jobs_revision
    }

    /// Whether the agent has scanned every process once. Until then, members of a job may be
    /// missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.latest
            .as_ref()
            .is_some_and(|latest| latest.host.scan.at != Moment(0))
    }

    pub(crate) fn series(&self, subject: &GpuOrProcess) -> Option<&MemoryHistory> {
        match subject {
            GpuOrProcess::Gpu(uuid) => self.history.gpu(uuid).map(|gpu| &gpu.memory),
            GpuOrProcess::Process(id) => self.history.process(*id)?.memory(),
        }
    }

    /// The history of a process's allocator stats; `None` for a GPU, and where there are none.
    pub(crate) fn allocator_history(&self, subject: &GpuOrProcess) -> Option<&AllocatorHistory> {
        let GpuOrProcess::Process(id) = subject else {
            return None;
        };
        self.history.process(*id)?.allocator.as_deref()
    }

    /// The history of the categories in a process's memory; `None` for a GPU, and without reports
    /// of the probe.
    pub(crate) fn tensor_history(&self, subject: &GpuOrProcess) -> Option<&TensorHistory> {
        let GpuOrProcess::Process(id) = subject else {
            return None;
        };
        self.history.process(*id)?.tensors.as_deref()
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The growth of the memory of a GPU or process; where allocator stats show that a part leaks,
    /// the growth of that part. A leak that the probe of a process reports counts as well.
    pub(crate) fn growth(&self, subject: &GpuOrProcess) -> Option<MemoryGrowth<'_>> {
        match subject {
            GpuOrProcess::Gpu(gpu) => self.leaks.gpu(gpu).map(MemoryGrowth::without_parts),
            GpuOrProcess::Process(id) => {
                let growth = self
                    .leaks
                    .growth(*id, self.history.process(*id), self.now())?;
                let process = self.latest.as_ref().and_then(|latest| latest.process(*id));
                Some(growth.with_probe(process.and_then(ProbeLeak::of)))
            }
        }
    }

    /// The processes that hold GPU memory and take ever more of it, by PID.
    pub(crate) fn suspects(&self) -> Vec<ProcessId> {
        let processes = self.latest.iter().flat_map(|latest| &latest.processes);
        let by_probe = processes.filter(|process| ProbeLeak::of(process).is_some());
        let mut suspects: Vec<ProcessId> = self
            .leaks
            .suspects()
            .chain(by_probe.map(|process| process.id))
            .collect();
        suspects.retain(|id| self.process_total(*id).is_some());
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }

    /// The processes and GPUs whose memory grows now, the one that is full first before the others.
    /// A GPU counts only if no process on it has its verdict or a worse one, and if no process that
    /// has ended is the cause: its memory returns after its end.
    pub(crate) fn growing(&self) -> &[Growing] {
        &self.growing
    }

    /// Returns what grows now. `grew` is what grew at the last snapshot.
    fn find_growing(&self, grew: &[Growing]) -> Vec<Growing> {
        let Some(latest) = &self.latest else {
            return Vec::new();
        };
        let growing = |subject: GpuOrProcess| {
            let growth = self.growth(&subject)?;
            let evidence = growth.growing(latest.at)?;
            let rises = growth.detector.rises();
            let growing = Growing {
                subject,
                verdict: growth.verdict(),
                evidence,
                is_soon: false,
                is_loading: false,
                line: growth.leak_line().map(str::to_owned),
                by_probe: growth.reason_of_probe(),
            };
            Some(growing.with_urgency(rises, grew, &self.leaks, latest))
        };
        let suspects = self.suspects();
        let verdict = |subject: &GpuOrProcess| self.growth(subject).map(|growth| growth.verdict());
        let is_whole = |gpu: &&Gpu| {
            let whole = verdict(&GpuOrProcess::Gpu(gpu.uuid.clone()));
            let has_ended =
                |id: ProcessId| gpu.missing.processes.is_none() && gpu.process(id).is_none();
            if self.leaks.cause(&gpu.uuid).is_some_and(has_ended) {
                return false;
            }
            let on_gpu = gpu.processes.iter().map(|process| process.process);
            let mut growing = on_gpu.filter(|id| suspects.binary_search(id).is_ok());
            !growing.any(|id| verdict(&GpuOrProcess::Process(id)) >= whole)
        };
        let gpus = latest.gpus.iter().filter(is_whole);
        let gpus = gpus.map(|gpu| GpuOrProcess::Gpu(gpu.uuid.clone()));
        let subjects = suspects
            .iter()
            .map(|id| GpuOrProcess::Process(*id))
            .chain(gpus);
        let mut growing: Vec<Growing> = subjects.filter_map(growing).collect();
        growing.sort_by_key(|growing| growing.left().unwrap_or(Duration::MAX));
        growing
    }

    /// The processes and GPUs that leak now, as in [`HostModel::growing`].
    pub(crate) fn leaking(&self) -> Vec<(GpuOrProcess, Evidence)> {
        let leaks = self.growing.iter().filter(|growing| growing.is_leak());
        leaks
            .map(|growing| (growing.subject.clone(), growing.evidence))
            .collect()
    }

    /// The news of the host, oldest first.
    pub(crate) fn news(&self) -> impl DoubleEndedIterator<Item = &NewsItem> {
        self.news.iter()
    }

    /// Adds that no more data comes from the host, for this reason.
    pub(super) fn add_lost(&mut self, reason: &Text) {
        // The news of a host that never answered would have no time.
        if self.latest.is_some() {
            self.news.add_lost(self.now(), reason);
        }
    }

    pub(super) fn add_alert(&mut self, subject: GpuOrProcess, sentence: &str) {
        self.news.add_alert(self.now(), subject, sentence);
    }

    /// The leak detector of the memory that NVML reports; for a process on several GPUs, the
    /// detector with the worst verdict.
    pub(crate) fn leak_detector(&self, subject: &GpuOrProcess) -> Option<&LeakDetector> {
        match subject {
            GpuOrProcess::Gpu(gpu) => self.leaks.gpu(gpu),
            GpuOrProcess::Process(process) => self.leaks.process(*process),
        }
    }

    /// The longest span that a graph shows: as much as the history has, in steps.
    pub(crate) fn span(&self) -> Duration {
        self.history.span(self.now())
    }

    /// The wall clock of the host; `None` before the first line, and if its time zone is not known.
    pub(crate) fn wall_clock(&self) -> Option<WallClock> {
        let latest = self.latest()?;
        Some(WallClock::new(
            latest.at,
            latest.unix_ms,
            latest.host.facts.utc_offset.ok()?,
        ))
    }

    /// The present in data time: the time of the latest line. It does not advance while no line
    /// arrives.
    pub fn now(&self) -> Moment {
        self.latest
            .as_ref()
            .map_or(Moment::default(), |latest| latest.at)
    }

    /// The viewer time since the latest line.
    pub(crate) fn since_latest_line(&self) -> Duration {
        self.silence.duration()
    }

    /// The viewer time since the latest line; `None` unless the next one is overdue.
    pub(crate) fn silence(&self) -> Option<Duration> {
        Some(self.silence.duration()).filter(|silence| self.is_overdue(*silence))
    }

    /// The age of a GPU's readings; `None` unless the next ones are overdue. While lines arrive,
    /// this is the data time since the driver answered; while none arrive, the viewer time since
    /// the last line, if that is longer.
    pub(crate) fn age(&self, gpu: &Gpu) -> Option<Duration> {
        // A GPU that was never read has no readings that could be old.
        let was_read = gpu.load.at != Moment::default();
        let by_agent = Some(self.now().since(gpu.load.at)).filter(|age| self.is_overdue(*age));
        by_agent.max(self.silence()).filter(|_| was_read)
    }

    /// The health of a GPU. A MIG instance has the health of its GPU.
    pub(crate) fn health(&self, gpu: &Gpu) -> HealthVerdict {
        let parent = gpu.facts.parent.as_ref().filter(|_| gpu.trouble.is_none());
        let whole = parent.and_then(|uuid| self.latest.as_ref()?.gpu(uuid));
        health::judge(whole.unwrap_or(gpu), self.now())
    }

    fn is_overdue(&self, age: Duration) -> bool {
        let Some(latest) = &self.latest else {
            return age > FIRST_LINE;
        };
        age > (Snapshot::STALE_AFTER * Duration::from_millis(latest.interval_ms))
            .max(SHORTEST_OVERDUE)
    }

    /// Updates totals, process tree, jobs, verdicts, leaks and history from the latest snapshot,
    /// and restarts the silence.
    fn derive(&mut self) {
        self.silence = ViewerTime::ZERO;
        // The process tree and the jobs are most of the cost on a large host, and most passes do
        // not change them.
        let is_settled = self
            .latest
            .as_ref()
            .is_some_and(|latest| self.records.is_settled(latest));
        self.judge(is_settled);
        self.remember();
    }

    /// Adds the latest snapshot to leaks, history and news.
    fn remember(&mut self) {
        let Some(latest) = &self.latest else { return };
        self.leaks.add_snapshot(latest);
        self.history.add_snapshot(latest, &self.process_totals);
        let before = std::mem::take(&mut self.growing);
        self.growing = self.find_growing(&before);
        let Some(latest) = &self.latest else { return };
        let sources = NewsSources {
            snapshot: latest,
            history: &self.history,
            verdicts: &self.verdicts,
            growing: &self.growing,
            clock: self.wall_clock(),
        };
        self.news.add_snapshot(&sources);
    }

    /// Updates everything that depends on the latest snapshot and the records alone. `is_settled`:
    /// the process tree and the jobs are those of the snapshot before.
    fn judge(&mut self, is_settled: bool) {
        let Some(latest) = &self.latest else { return };
        self.process_totals = process_totals(latest);
        if !is_settled {
            self.tree = ProcessTree::of(latest);
            self.user_hues.learn(latest);
        }
        self.unaccounted = latest
            .gpus
            .iter()
            .filter_map(|gpu| unaccounted::find(gpu, latest).ok()?)
            .collect();
        self.records
            .add_snapshot(latest, &self.tree, &self.process_totals);
        if !is_settled {
            self.jobs_revision += 1;
            self.jobs = Jobs::of(ProcessView {
                snapshot: latest,
                tree: &self.tree,
                records: &self.records,
            });
            self.records
                .set_roots(&self.tree, |place| self.jobs.at(place)?.root);
        }
        self.jobs.update_memory(&self.process_totals);
        let view = ProcessView {
            snapshot: latest,
            tree: &self.tree,
            records: &self.records,
        };
        verdict::judge::judge(
            &mut self.verdicts,
            view,
            &self.process_totals,
            &self.unaccounted,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Bytes;
    use crate::protocol::snapshot::example;

    /// A program that starts to read in the middle of a stream gets other lines than one that reads
    /// from the beginning.
    #[test]
    fn full_lines_and_ticks_lead_to_the_same_history_and_verdicts() {
        let mut old = example::host(2).with(100, "python train.py", 0, Bytes::from_gib(1));
        let mut models = [HostModel::default(), HostModel::default()];
        for model in &mut models {
            model.replace(old.clone());
        }
        for pass in 1..300 {
            let mut new = old.later(10);
            new.gpus[0].processes[0].memory = Ok(Bytes::from_mib(1024 + 80 * pass));
            new.gpus[0].load.memory_used = new.gpus[0].processes[0].memory;
            let change = Change::between(&old, &new).unwrap();
            models[0].change(change.clone()).unwrap();
            models[1].replace(new.clone());
            if pass == 100 {
                assert_eq!(
                    models[0].change(change),
                    Err(OutOfStep),
                    "it is applied once"
                );
            }
            old = new;
        }
        let [ticks, full] = &models;
        assert!(!ticks.suspects().is_empty());
        assert_eq!(
            (ticks.suspects(), ticks.verdicts()),
            (full.suspects(), full.verdicts())
        );
        let process = GpuOrProcess::Process(old.processes[0].id);
        for subject in [GpuOrProcess::Gpu(old.gpus[0].uuid.clone()), process] {
            assert_eq!(
                format!("{:?}", ticks.series(&subject)),
                format!("{:?}", full.series(&subject))
            );
        }
    }
}
