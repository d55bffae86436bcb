//! Reads the shown processes from `/proc`: those that NVML lists, and the device-file holders and
//! related processes that the scan finds.
//!
//! The descriptor of a process's `stat` stays open. Reading it fails once the process has ended,
//! also when another process has the PID. Only files that cannot block are read here;
//! [`slow_files`] reads the others on threads of their own.

pub(super) mod device_files;
mod distributed;
pub(super) mod files;
mod freezer;
mod host_procfs;
mod host_secrets;
mod monitors;
mod origin;
mod read_pool;
mod shown_process;
mod slow_files;
pub(super) mod stat;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use self::device_files::{DeviceFiles, OpenDeviceFiles};
pub(super) use self::files::{has_threads_named, is_initial_pid_namespace, read_cut};
use self::host_procfs::HostProcfs;
pub use self::host_secrets::HostSecrets;
use self::monitors::MonitorAnswer;
pub(super) use self::origin::{CudaEnvironment, Environment, ProbeSetup, slurm_job_of};
use self::read_pool::Priority;
pub(super) use self::shown_process::{ListedProcess, NvmlMemory};
use self::shown_process::{ReadContext, ShownProcess};
pub(super) use self::slow_files::SlowFilesMessage;
use self::slow_files::{SlowFacts, SlowFiles};
use super::{AgentEvent, clock};
use crate::base::text::Argv;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{
    ArgvDelay, Identity, Missing, Process, ProcessId, ProcessLoad, Reading, State,
};

/// The number of processes that the first pass reads: those with the most memory, which are at the
/// top of the list.
const FIRST_READS: usize = 64;
/// If more processes than this are shown, a resting process is read only in every fourth pass.
const MANY: usize = 256;
/// The most processes whose user is read in one pass: reading the users of a thousand new processes
/// would delay the line.
const USERS_PER_PASS: usize = 200;
/// The most processes whose thread names are read in one pass: each may have hundreds of threads.
const THREAD_READS_PER_PASS: usize = 4;
/// Related processes are read every five seconds. This is half a second less, since a pass may come
/// early.
const RELATED_INTERVAL: Duration = Duration::from_millis(4500);
/// When the arguments of a process count as hung. On a busy host, they may take a while.
const HUNG_AFTER: Duration = Duration::from_millis(500);

/// Parts of the arguments that only a child of Python's `multiprocessing` has.
const MULTIPROCESSING: [&str; 3] = [
    "--multiprocessing-fork",
    "multiprocessing.spawn",
    "multiprocessing.forkserver",
];

pub(super) struct Processes {
    /// Boxed, since half of the slots in a `BTreeMap` are empty.
    shown: BTreeMap<u32, Box<ShownProcess>>,
    procfs: HostProcfs,
    slow_files: SlowFiles,
    /// The number of the current pass, from 1.
    pass: u64,
    /// How many processes the first pass may still read. `None` in the other passes.
    reads_left: Option<usize>,
    /// The processes that the first pass did not read, each with the time of the list that named
    /// it.
    postponed: Vec<(u32, Moment)>,
    /// The lowest PID whose user is read again next. Each pass reads the user of one process again.
    next_user: u32,
    /// Processes whose arguments decide whether they are shown.
    candidates: BTreeSet<ProcessId>,
    /// Candidates whose arguments show that they are related. The main loop takes them.
    pub(super) accepted: Vec<ProcessId>,
    /// Whether each of the device-file holders that NVML does not list is a monitor.
    holders: BTreeMap<ProcessId, MonitorAnswer>,
    /// Device-file holders that turned out to be monitors. The main loop takes them.
    pub(super) monitors: Vec<ProcessId>,
    /// The arguments of processes that were ended recently. A candidate with the same arguments is
    /// accepted.
    pub(super) expected: Vec<Argv>,
    /// Whether a process that used a GPU has ended, or a process has another parent, since the main
    /// loop took this.
    pub(super) has_relation_changed: bool,
    buffer: Box<[u8; 1024]>,
}

impl Processes {
    /// `pids_are_local`: NVML's PIDs are those of this PID namespace.
    pub(super) fn new(
        pids_are_local: bool,
        devices: DeviceFiles,
        events: mpsc::Sender<AgentEvent>,
    ) -> Self {
        Self {
            shown: BTreeMap::new(),
            procfs: HostProcfs::new(pids_are_local, devices),
            slow_files: SlowFiles::new(events),
            pass: 0,
            reads_left: None,
            postponed: Vec::new(),
            next_user: 0,
            candidates: BTreeSet::new(),
            accepted: vec![],
            holders: BTreeMap::new(),
            monitors: vec![],
            expected: vec![],
            has_relation_changed: false,
            buffer: Box::new([0; 1024]),
        }
    }

    pub(super) fn begin_pass(&mut self) {
        self.pass += 1;
        self.reads_left = None;
        self.postponed.clear();
    }

    /// Begins the first pass, which must be short: it reads [`FIRST_READS`] processes in part, and
    /// postpones the others.
    pub(super) fn begin_first_pass(&mut self) {
        self.begin_pass();
        self.reads_left = Some(FIRST_READS);
    }

    /// Reads the processes that the first pass postponed, so that the next pass can compute their
    /// rates.
    pub(super) fn read_postponed(&mut self) {
        let postponed = std::mem::take(&mut self.postponed);
        self.begin_pass();
        for (pid, listed) in postponed {
            self.read_listed(pid, listed, Err(Missing::NotYet));
        }
        self.read_rarely(clock::now());
    }

    /// Reads a process that NVML listed at `listed` with `memory` on one GPU. If several GPUs list
    /// the process in a pass, it is read only once.
    pub(super) fn read_listed(
        &mut self,
        pid: u32,
        listed: Moment,
        memory: Reading<Bytes>,
    ) -> ProcessId {
        let read = self
            .shown
            .get_mut(&pid)
            .filter(|shown| shown.listed_pass == self.pass);
        if let Some(shown) = read {
            shown.nvml_memory.add(memory);
            return shown.process.id;
        }
        // Most of a thousand processes are at rest, and reading them would be most of the cost of
        // gputop.
        let is_turn = (u64::from(pid) + self.pass).is_multiple_of(4);
        if self.shown.len() > MANY
            && !is_turn
            && self.shown.get(&pid).is_some_and(|shown| shown.is_resting())
        {
            // Keep the last reading.
        } else if self.reads_left != Some(0) || self.shown.contains_key(&pid) {
            self.read(pid, Some(listed), Priority::High);
        } else {
            self.postponed.push((pid, listed));
            self.shown.insert(pid, ShownProcess::unread(pid).into());
        }
        self.shown.get_mut(&pid).map_or(
            ProcessId {
                pid,
                start_ticks: None,
            },
            |shown| {
                (shown.listed_pass, shown.wanted_pass, shown.nvml_memory) =
                    (self.pass, self.pass, NvmlMemory::default());
                shown.nvml_memory.add(memory);
                shown.process.id
            },
        )
    }

    /// Reads a device-file holder that NVML does not list. Returns `None` when the process has
    /// ended.
    pub(super) fn read_holder(&mut self, pid: u32) -> Option<ProcessId> {
        self.read(pid, None, Priority::High);
        let shown = self
            .shown
            .get_mut(&pid)
            .filter(|shown| shown.process.id.start_ticks.is_some())?;
        (shown.holder_pass, shown.wanted_pass) = (self.pass, self.pass);
        shown.skip_thread_names();
        Some(shown.process.id)
    }

    /// Reads a process. If it has ended, reads the process that has its PID now. `priority` is that
    /// of its arguments.
    fn read(&mut self, pid: u32, listed: Option<Moment>, priority: Priority) {
        let (now, pass) = (clock::now(), self.pass);
        let Self {
            shown,
            procfs,
            slow_files,
            buffer,
            has_relation_changed,
            reads_left,
            ..
        } = self;
        let mut context = ReadContext {
            buffer: &mut **buffer,
            procfs,
            slow_files,
            priority,
            now,
        };
        let Some(old) = shown.get_mut(&pid) else {
            *reads_left = reads_left.map(|left| left.saturating_sub(1));
            shown.insert(pid, ShownProcess::open(pid, &mut context, listed).into());
            return;
        };
        let parent = old.process.facts.parent;
        if old.refresh(&mut context, listed) {
            *has_relation_changed |= parent != old.process.facts.parent;
            return;
        }
        // NVML may list a process long after its end. Only the first pass after the end counts.
        *has_relation_changed |=
            old.ended.is_none() && old.listed_pass + 1 == pass && parent.is_ok();
        let new = ShownProcess::open(pid, &mut context, listed);
        let ended = *old.ended.get_or_insert(now);
        if old.process.id.start_ticks.is_some()
            && new.process.load.state == Err(Missing::Gone)
            && listed.is_some_and(|listed| listed <= ended)
        {
            // NVML listed it before it ended. As a mere PID, it would be another process, which
            // began and ended.
            old.process.load = ProcessLoad::missing(Missing::Gone);
        } else {
            **old = new;
        }
    }

    /// Keeps showing related processes. Reads those that are due; all of them with `read_all`, or
    /// when a process has ended or has another parent. `is_holder` tells which of them have a GPU
    /// open.
    pub(super) fn read_related(
        &mut self,
        related: &[ProcessId],
        read_all: bool,
        is_holder: impl Fn(ProcessId) -> bool,
    ) {
        let pass = self.pass;
        let has_left = |shown: &ShownProcess| {
            shown.listed_pass + 1 == pass && shown.process.id.start_ticks.is_some()
        };
        self.has_relation_changed |= self.shown.values().any(|shown| has_left(shown));
        let read_all = read_all || self.has_relation_changed;
        let now = clock::now();
        for id in related {
            let shown = self.shown.get(&id.pid);
            if shown.is_some_and(|shown| shown.wanted_pass == pass) {
                continue;
            }
            let known = shown.filter(|shown| shown.process.id == *id);
            // A rate needs a second reading, which does not wait for the turn of the process.
            let lacks_rate =
                known.is_none_or(|shown| shown.process.load.cpu == Err(Missing::NotYet));
            if lacks_rate
                || known.is_some_and(|shown| read_all || now.since(shown.read) >= RELATED_INTERVAL)
            {
                let priority = if known.is_none() && is_holder(*id) {
                    Priority::High
                } else {
                    Priority::Normal
                };
                self.read(id.pid, None, priority);
                if let Some(shown) = self.shown.get_mut(&id.pid).filter(|_| lacks_rate) {
                    // Spreads the turns of many processes over five seconds.
                    shown.read = Moment(now.0.saturating_sub(u64::from(id.pid % 5) * 1000));
                }
            }
            // If another process has the PID now, the scan will notice.
            if let Some(shown) = self
                .shown
                .get_mut(&id.pid)
                .filter(|shown| shown.process.id == *id)
            {
                shown.wanted_pass = pass;
                shown.skip_thread_names();
            }
        }
    }

    /// Asks which of the device-file holders that NVML does not list are monitors, each once.
    pub(super) fn examine_holders(&mut self, holders: &[(ProcessId, OpenDeviceFiles)]) {
        let now = clock::now();
        let is_holder = |id: &ProcessId| {
            holders
                .binary_search_by_key(id, |(holder, _)| *holder)
                .is_ok()
        };
        self.holders.retain(|id, _| is_holder(id));
        let listed: BTreeSet<ProcessId> = self.gpu_users().collect();
        for (id, _) in holders.iter().filter(|(id, _)| !listed.contains(id)) {
            self.holders.entry(*id).or_insert_with(|| {
                self.slow_files.monitors.push(*id, Priority::Normal, now);
                MonitorAnswer::AskedAt(now)
            });
        }
    }

    /// Whether a device-file holder only asks NVML, and allocates nothing.
    pub(super) fn is_monitor(&self, id: ProcessId) -> bool {
        self.holders.get(&id) == Some(&MonitorAnswer::Is(true))
    }

    /// Whether it is not known yet of some device-file holder whether it is a monitor.
    pub(super) fn awaits_holders(&self, now: Moment) -> bool {
        self.holders.values().any(|answer| answer.is_awaited(now))
    }

    /// Forgets the processes that this pass did not name. Returns the others, sorted by PID.
    pub(super) fn end_pass(&mut self) -> impl Iterator<Item = &Process> {
        let pass = self.pass;
        self.shown.retain(|_, shown| shown.wanted_pass == pass);
        let now = clock::now();
        if self.reads_left.is_none() {
            self.read_rarely(now);
        }
        self.note_argv_delays(now);
        for shown in self
            .shown
            .values_mut()
            .filter(|shown| shown.listed_pass == pass)
        {
            if shown.grows(pass) {
                self.slow_files
                    .bytes_read
                    .push(shown.process.id, Priority::Normal, now);
            } else {
                shown.process.bytes_read = None;
            }
        }
        self.shown
            .values()
            .filter(|shown| !shown.is_unread())
            .map(|shown| &shown.process)
    }

    /// Notes which arguments take long, and why.
    fn note_argv_delays(&mut self, now: Moment) {
        self.slow_files.read_waiting(now);
        let Self {
            shown,
            slow_files,
            candidates,
            ..
        } = self;
        for id in slow_files.processes.slower_than(HUNG_AFTER, now) {
            let shown = shown
                .get_mut(&id.pid)
                .filter(|shown| shown.process.id == id);
            if let Some(shown) =
                shown.filter(|shown| shown.process.facts.argv == Err(Missing::NotYet))
            {
                shown.set_slow_facts(SlowFacts::missing(Missing::Failed));
                shown.process.facts_mut().argv_delay = Some(ArgvDelay::Hung);
            }
        }
        let stuck = slow_files.processes.delayed_keys(HUNG_AFTER, now);
        for shown in shown
            .values_mut()
            .filter(|shown| shown.process.facts.argv == Err(Missing::NotYet))
        {
            let is_stuck =
                shown.process.load.state != Ok(State::Zombie) && stuck.contains(&shown.process.id);
            let delay = is_stuck.then_some(ArgvDelay::NoReader);
            if shown.process.facts.argv_delay != delay {
                shown.process.facts_mut().argv_delay = delay;
            }
        }
        if !stuck.is_empty() {
            // Otherwise, what waits would grow as long as the reads hang.
            candidates.clear();
            slow_files.processes.retain(|id| {
                shown
                    .get(&id.pid)
                    .is_some_and(|shown| shown.process.id == *id)
            });
        }
    }

    /// When to call [`Self::read_waiting_files`] although nothing else happens. `None` if nothing
    /// waits behind a slow read.
    pub(super) fn deadline(&self, now: Moment) -> Option<Moment> {
        self.slow_files.deadline(now)
    }

    /// Reads the arguments that wait behind a slow read.
    pub(super) fn read_waiting_files(&mut self, now: Moment) {
        self.slow_files.read_waiting(now);
    }

    /// Reads user, control group and thread names of a few processes: they rarely change, or take
    /// long to read.
    fn read_rarely(&mut self, now: Moment) {
        // `stat` does not show that a process has changed its user ID, so the user is read again in
        // turn.
        let turn = self
            .shown
            .range(self.next_user..)
            .next()
            .map(|(pid, _)| *pid);
        self.next_user = turn.map_or(0, |pid| pid + 1);
        let is_unread = |shown: &ShownProcess| shown.process.facts.uid == Err(Missing::NotYet);
        let due = self
            .shown
            .iter_mut()
            .filter(|(pid, shown)| Some(**pid) == turn || is_unread(shown));
        for (_, shown) in due.take(USERS_PER_PASS) {
            shown.read_rarely(&self.procfs, &mut self.slow_files);
        }
        let pass = self.pass;
        let due = self
            .shown
            .values_mut()
            .filter(|shown| shown.listed_pass == pass && shown.has_new_threads(now));
        due.take(THREAD_READS_PER_PASS)
            .for_each(|shown| shown.read_threads());
    }

    /// Lets the next pass read the user of a process again.
    pub(super) fn forget_user(&mut self, id: ProcessId) {
        if let Some(shown) = self
            .shown
            .get_mut(&id.pid)
            .filter(|shown| shown.process.id == id)
        {
            shown.process.facts_mut().uid = Err(Missing::NotYet);
        }
    }

    /// Returns the processes that use a GPU in this pass, except those with an unverified PID.
    pub(super) fn gpu_users(&self) -> impl Iterator<Item = ProcessId> {
        let users = self
            .shown
            .values()
            .filter(|shown| shown.listed_pass == self.pass || shown.holder_pass == self.pass);
        let verified = users.filter(|shown| shown.process.facts.identity != Identity::Unverified);
        verified.map(|shown| shown.process.id)
    }

    /// Returns the processes of certain identity that NVML listed in this pass or the one before.
    pub(super) fn listed(&self) -> impl Iterator<Item = ListedProcess> {
        // `read_postponed` is a pass of its own that names only some processes, so the pass before
        // counts too.
        let listed = self
            .shown
            .values()
            .filter(|shown| shown.listed_pass > 0 && shown.listed_pass + 1 >= self.pass);
        let certain = listed.filter(|shown| shown.process.facts.identity == Identity::Sure);
        certain.map(|shown| ListedProcess {
            id: shown.process.id,
            uid: shown.process.facts.uid,
            nvml_memory: shown.nvml_memory,
            parent: shown.process.facts.parent,
            virtual_size: shown.virtual_size,
        })
    }

    /// Returns the environment variables of a process that decide the order of CUDA's devices.
    /// `None` if it is not shown.
    pub(super) fn cuda_environment(&self, id: ProcessId) -> Option<&CudaEnvironment> {
        self.shown
            .get(&id.pid)
            .filter(|shown| shown.process.id == id)
            .map(|shown| &shown.cuda)
    }

    /// Returns whether a process was started with gputop's probe, by its environment. Missing if it
    /// is not shown.
    pub(super) fn probe_setup(&self, id: ProcessId) -> Reading<ProbeSetup> {
        let shown = self
            .shown
            .get(&id.pid)
            .filter(|shown| shown.process.id == id);
        shown.map_or(Err(Missing::NotYet), |shown| shown.probe_setup)
    }

    /// Starts reading the arguments of processes that only their arguments can show to be related.
    pub(super) fn examine(&mut self, candidates: &[ProcessId]) {
        for id in candidates {
            self.candidates.insert(*id);
            self.slow_files
                .processes
                .push(*id, Priority::Normal, clock::now());
        }
    }

    pub(super) fn expect_argv(&mut self, argv: Argv) {
        if !argv.is_empty() && !self.expected.contains(&argv) {
            self.expected.push(argv);
        }
    }

    pub(super) fn receive(&mut self, message: SlowFilesMessage) {
        match message {
            SlowFilesMessage::Process(answer) => {
                let (id, facts) = self.slow_files.processes.receive(answer, clock::now());
                self.set_slow_facts(id, facts);
            }
            SlowFilesMessage::BytesRead(answer) => {
                let (id, bytes) = self.slow_files.bytes_read.receive(answer, clock::now());
                if let Some(shown) = self
                    .shown
                    .get_mut(&id.pid)
                    .filter(|shown| shown.process.id == id)
                {
                    shown.set_bytes_read(bytes, self.pass);
                }
            }
            SlowFilesMessage::Monitor(answer) => {
                let (id, is_monitor) = self.slow_files.monitors.receive(answer, clock::now());
                if let Some(answer) = self.holders.get_mut(&id) {
                    *answer = MonitorAnswer::Is(is_monitor);
                    self.monitors.extend(is_monitor.then_some(id));
                }
            }
            SlowFilesMessage::User(answer) => {
                let (uid, name) = self.slow_files.receive_user(answer);
                for shown in self
                    .shown
                    .values_mut()
                    .filter(|shown| shown.process.facts.uid == Ok(uid))
                {
                    shown.process.facts_mut().user = Ok(name.clone());
                }
            }
        }
    }

    fn set_slow_facts(&mut self, id: ProcessId, facts: SlowFacts) {
        let is_child = |argument: &str| MULTIPROCESSING.iter().any(|part| argument.contains(part));
        let is_accepted = |argv: &Argv| argv.iter().any(is_child) || self.expected.contains(argv);
        if self.candidates.remove(&id) && facts.argv.as_ref().is_ok_and(is_accepted) {
            self.accepted.push(id);
        }
        let before = self
            .shown
            .range(..id.pid)
            .next_back()
            .map(|(_, shown)| shown.process.facts.clone());
        if let Some(shown) = self
            .shown
            .get_mut(&id.pid)
            .filter(|shown| shown.process.id == id)
        {
            shown.set_slow_facts(facts);
            // Processes of one job have neighbouring PIDs and mostly the same facts, so equal texts
            // are stored once.
            if let Some(before) = before {
                shown.process.facts_mut().share(&before);
            }
        }
    }
}
