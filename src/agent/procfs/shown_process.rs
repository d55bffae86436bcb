//! One process that is shown: reads its facts and load, and decides how certain its identity is.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::files;
use super::freezer::ControlGroup;
use super::host_procfs::HostProcfs;
use super::origin::{self, CudaEnvironment, Environment, Origin, ProbeSetup};
use super::read_pool::Priority;
use super::slow_files::{SlowFacts, SlowFiles};
use super::stat::{self, ProcStat, living_thread};
use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{
    Identity, Missing, Process, ProcessFacts, ProcessId, ProcessLoad, Reading, State,
};

/// How often the device files of an unverified process are checked: the process may have opened one
/// since.
const VERIFY_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest time over which CPU use is computed. The kernel counts CPU time in ticks, 100 a
/// second.
const SHORTEST_CPU_SPAN: Duration = Duration::from_millis(150);
/// The time between the start of a thread and the reading of thread names: a thread names itself
/// after its start.
const THREAD_NAME_DELAY: Duration = Duration::from_secs(5);
/// A sleeping process is at rest after this number of readings in a row without CPU time.
const RESTING_READINGS: u8 = 4;
/// The GPU memory that a process gains within [`GROWS_WITHIN`] passes when it loads something.
/// Memory that goes up and down a little gains less. The bytes that a process reads are counted
/// only while it grows so fast.
const CLEAR_GROWTH: Bytes = Bytes(64 << 20);
const GROWS_WITHIN: u64 = 8;
/// The number of passes after such a gain for which the process still counts as growing.
const GROWS_FOR: u64 = 16;
/// How often it is checked whether the process that a process serves has ended, in milliseconds.
const SERVED_INTERVAL_MS: u64 = 5000;
/// How often the control group of a sleeping or blocked GPU process is read, in milliseconds: the
/// process may have moved to a group that was then frozen, which only this shows.
const CGROUP_INTERVAL_MS: u64 = 2500;
/// How often arguments and environment are read again because they were empty. During an exec they
/// are, and a busy host may take long for that; some programs have none.
const MOST_REREADS: u8 = 5;

#[derive(Debug)]
pub(super) struct ShownProcess {
    pub(super) process: Process,
    /// The open `stat` file. `None` when descriptors are about to run out: the file is then opened
    /// for each reading.
    pub(super) stat: Option<OwnedFd>,
    /// The time of the last reading.
    pub(super) read: Moment,
    /// The time and CPU ticks of the reading from which the next CPU use is computed. `None` before
    /// the first.
    pub(super) cpu: Option<(Moment, u64)>,
    /// The last pass in which NVML listed the process; 0 for never.
    pub(super) listed_pass: u64,
    /// When it was found that the process has ended; `None` while it lives.
    pub(super) ended: Option<Moment>,
    /// The memory that NVML reported in the pass `listed_pass`.
    pub(super) nvml_memory: NvmlMemory,
    /// The memory that NVML reported some passes before; `None` if it did not.
    memory_before: Option<Bytes>,
    /// The last pass in which that memory was clearly more than some passes before; 0 for never.
    grown_pass: u64,
    pub(super) virtual_size: u64,
    /// The last pass in which the process was named as a device-file holder; 0 for never.
    pub(super) holder_pass: u64,
    /// The last pass that named the process. A process that the current pass does not name is no
    /// longer shown.
    pub(super) wanted_pass: u64,
    /// Whether NVML's PID certainly means this process, and not a process of another PID namespace.
    is_verified: bool,
    verify_due: Moment,
    group_origin: Option<Origin>,
    /// The open `cgroup` file of a GPU process, which is read often. `None` before, and when
    /// descriptors are about to run out.
    cgroup_file: Option<OwnedFd>,
    /// The contents of that file; empty before it is read.
    cgroup: Box<[u8]>,
    /// The control groups that can be frozen with the process; empty before they are read.
    control_groups: Vec<Rc<ControlGroup>>,
    environment_origin: Reading<Option<Origin>>,
    pub(super) cuda: CudaEnvironment,
    pub(super) probe_setup: Reading<ProbeSetup>,
    /// The PID that the process was started to serve.
    served: Reading<u32>,
    /// How often arguments and environment, which were empty, are still read again.
    rereads: u8,
    /// Whether they were empty when they were read last.
    has_empty_facts: bool,
    /// When to read the names of threads. `None` when no thread is new.
    threads_due: Option<Moment>,
    /// The number of readings in a row in which the process slept and used no CPU time.
    asleep: u8,
}

/// A process of certain identity that NVML lists.
#[derive(Debug, Clone, Copy)]
pub(in crate::agent) struct ListedProcess {
    pub(in crate::agent) id: ProcessId,
    pub(in crate::agent) uid: Reading<u32>,
    pub(in crate::agent) nvml_memory: NvmlMemory,
    pub(in crate::agent) parent: Reading<u32>,
    /// The virtual size, in bytes.
    pub(in crate::agent) virtual_size: u64,
}

/// The memory that NVML reports for one process in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct NvmlMemory {
    /// The number of GPUs that listed the process.
    pub(in crate::agent) gpus: usize,
    /// The sum over these GPUs. Missing when one of them reports none.
    pub(in crate::agent) memory: Reading<Bytes>,
}

impl Default for NvmlMemory {
    fn default() -> Self {
        Self {
            gpus: 0,
            memory: Ok(Bytes(0)),
        }
    }
}

impl NvmlMemory {
    pub(super) fn add(&mut self, memory: Reading<Bytes>) {
        self.gpus += 1;
        self.memory = self
            .memory
            .and_then(|sum| Ok(Bytes(sum.0.saturating_add(memory?.0))));
    }
}

pub(super) struct ReadContext<'a> {
    pub(super) buffer: &'a mut [u8],
    pub(super) procfs: &'a HostProcfs,
    pub(super) slow_files: &'a mut SlowFiles,
    /// How soon the arguments are read.
    pub(super) priority: Priority,
    pub(super) now: Moment,
}

impl ShownProcess {
    /// Returns an entry for a PID that was not looked up in `/proc` yet.
    pub(super) fn unread(pid: u32) -> Self {
        Self {
            process: Process {
                id: ProcessId {
                    pid,
                    start_ticks: None,
                },
                facts: ProcessFacts::missing(Identity::Unverified, Missing::NotYet).into(),
                load: ProcessLoad::missing(Missing::NotYet),
                allocator: None,
                probe: None,
                bytes_read: None,
            },
            stat: None,
            read: Moment(0),
            cpu: None,
            listed_pass: 0,
            ended: None,
            nvml_memory: NvmlMemory::default(),
            memory_before: None,
            grown_pass: 0,
            virtual_size: 0,
            holder_pass: 0,
            wanted_pass: 0,
            is_verified: false,
            verify_due: Moment(0),
            group_origin: None,
            cgroup_file: None,
            cgroup: Box::default(),
            control_groups: vec![],
            environment_origin: Err(Missing::NotYet),
            cuda: CudaEnvironment::default(),
            probe_setup: Err(Missing::NotYet),
            served: Err(Missing::NotYet),
            rereads: MOST_REREADS,
            has_empty_facts: false,
            threads_due: Some(Moment(0)),
            asleep: 0,
        }
    }

    /// Whether the identity is certain and the process was asleep, without CPU time, in the last
    /// [`RESTING_READINGS`] readings or more.
    pub(super) fn is_resting(&self) -> bool {
        self.asleep >= RESTING_READINGS && self.process.facts.identity == Identity::Sure
    }

    pub(super) fn is_unread(&self) -> bool {
        self.process.id.start_ticks.is_none() && self.process.facts.comm == Err(Missing::NotYet)
    }

    /// Reads a process for the first time. `listed` is when NVML listed it; `None` if it was found
    /// in `/proc`.
    pub(super) fn open(pid: u32, context: &mut ReadContext<'_>, listed: Option<Moment>) -> Self {
        let mut shown = Self::unread(pid);
        if let Err(error) = shown.read_stat(context, listed) {
            let why = context.procfs.why_absent(error);
            shown.process.facts = ProcessFacts::missing(Identity::Unverified, why).into();
            shown.process.load = ProcessLoad::missing(why);
        }
        shown
    }

    /// Reads the process again. Returns false when the process has ended.
    pub(super) fn refresh(
        &mut self,
        context: &mut ReadContext<'_>,
        listed: Option<Moment>,
    ) -> bool {
        self.process.id.start_ticks.is_some() && self.read_stat(context, listed).is_ok()
    }

    /// Reads `stat`, for the first time or again. `None` as the error: the file was malformed, or
    /// is that of another process.
    fn read_stat(
        &mut self,
        context: &mut ReadContext<'_>,
        listed: Option<Moment>,
    ) -> Result<(), Option<Errno>> {
        let id = self.process.id;
        let file = match self.stat.take() {
            Some(file) => file,
            None => files::open(id.pid, "stat")?,
        };
        let stat = stat::parse(files::read(&file, context.buffer)?).ok_or(None)?;
        if id
            .start_ticks
            .is_some_and(|known| known != stat.start_ticks)
        {
            return Err(None);
        }
        self.stat = context.procfs.keep_open(file);
        self.process.id.start_ticks = Some(stat.start_ticks);
        self.update(
            &stat,
            context.procfs,
            (context.slow_files, context.priority),
            context.now,
        );
        self.identify(context.procfs, context.now, listed);
        Ok(())
    }

    /// Copies the values of `stat`. Facts are written only when they differ, since earlier
    /// snapshots share them.
    fn update(
        &mut self,
        stat: &ProcStat<'_>,
        procfs: &HostProcfs,
        (slow_files, priority): (&mut SlowFiles, Priority),
        now: Moment,
    ) {
        self.virtual_size = stat.virtual_size;
        let before = std::mem::replace(&mut self.read, now);
        let pid = u64::from(self.process.id.pid);
        // Offset by PID, so that the turns of many processes are spread over the passes.
        let turn = |at: Moment, interval_ms: u64| (at.0 + pid * 1000) / interval_ms;
        let is_turn = |interval_ms: u64| turn(before, interval_ms) != turn(now, interval_ms);
        if self.update_facts(stat) {
            // An exec means other arguments.
            self.process.facts_mut().argv = Err(Missing::NotYet);
            self.rereads = MOST_REREADS;
            slow_files.processes.push(self.process.id, priority, now);
        } else if self.has_empty_facts && self.rereads > 0 && stat.state != State::Zombie {
            self.rereads -= 1;
            self.has_empty_facts = false;
            slow_files.processes.push(self.process.id, priority, now);
        }
        let state = self.update_state(stat);
        self.update_threads(stat.threads, now);
        self.process.load.rss = Ok(Bytes(stat.rss_pages.saturating_mul(procfs.page_size)));
        if is_turn(SERVED_INTERVAL_MS) && self.served.is_ok() {
            self.update_served();
        }
        self.update_frozen(now);
        self.update_cpu(stat.cpu_ticks, state, procfs, now);
        let is_waiting = self.asleep > 0 || state == State::DiskSleep;
        if self.is_on_gpu() && is_waiting && is_turn(CGROUP_INTERVAL_MS) {
            self.read_cgroup(procfs);
        }
    }

    /// Updates the facts that `stat` has. Returns whether an exec has happened, as a new name usually
    /// means, and the first exec after a fork always.
    fn update_facts(&mut self, stat: &ProcStat<'_>) -> bool {
        let facts = &self.process.facts;
        let related = (Ok(stat.parent), Ok(stat.group), Ok(stat.session));
        if (facts.parent, facts.group, facts.session) != related {
            let facts = self.process.facts_mut();
            (facts.parent, facts.group, facts.session) = related;
        }
        let was_forked = self.process.facts.forked == Ok(true);
        if self.process.facts.forked != stat.is_forked() {
            self.process.facts_mut().forked = stat.is_forked();
        }
        let is_same_name =
            |comm: &Text| comm.as_str().as_bytes() == stat.comm || *comm == Text::new(stat.comm);
        let is_renamed = !self.process.facts.comm.as_ref().is_ok_and(is_same_name);
        if is_renamed {
            self.process.facts_mut().comm = Ok(Text::new(stat.comm));
        }
        is_renamed || was_forked && stat.is_forked() == Ok(false)
    }

    /// Updates the state, and where the kernel waits. Returns the state, which is that of a living
    /// thread if the first one has ended.
    fn update_state(&mut self, stat: &ProcStat<'_>) -> State {
        let pid = self.process.id.pid;
        let living = match stat.state {
            State::Zombie if stat.threads > 1 => living_thread(pid),
            _ => None,
        };
        let (thread, state) = match living {
            Some((thread, state)) => (Some(thread), state),
            None => (None, stat.state),
        };
        self.process.load.state = Ok(state);
        self.process.load.wchan = match state {
            State::DiskSleep => {
                files::wchan(&thread.unwrap_or_else(|| format!("/proc/{pid}").into()))
            }
            _ => Err(Missing::Unsupported),
        };
        state
    }

    fn update_threads(&mut self, threads: u32, now: Moment) {
        let load = &mut self.process.load;
        if load.threads != Ok(threads) && self.process.facts.trainer_threads != Ok(true) {
            self.threads_due.get_or_insert(now.after(THREAD_NAME_DELAY));
        }
        load.threads = Ok(threads);
    }

    fn update_cpu(&mut self, ticks: u64, state: State, procfs: &HostProcfs, now: Moment) {
        let before = self.cpu;
        if before.is_some_and(|(at, _)| now.since(at) < SHORTEST_CPU_SPAN) {
            return;
        }
        self.cpu = Some((now, ticks));
        self.process.load.cpu = match before {
            None => Err(Missing::NotYet),
            Some((at, before)) => {
                let slept = state == State::Sleeping && before == ticks;
                self.asleep = if slept {
                    self.asleep.saturating_add(1)
                } else {
                    0
                };
                Ok(procfs.cpu_percent(ticks.saturating_sub(before), now.since(at)))
            }
        };
    }

    /// Reads the user and the control group, which `stat` lacks. Either may change.
    pub(super) fn read_rarely(&mut self, procfs: &HostProcfs, slow_files: &mut SlowFiles) {
        let Some(_) = self.process.id.start_ticks else {
            return;
        };
        let uid = files::real_uid(self.process.id.pid);
        let known = self.process.facts.uid;
        // A process that has ended meanwhile keeps the user that was read before.
        if known != uid && (uid.is_ok() || known.is_err()) {
            let facts = self.process.facts_mut();
            facts.uid = uid;
            facts.user = uid.and_then(|uid| slow_files.user_name(uid).ok_or(Missing::NotYet));
        }
        self.read_cgroup(procfs);
    }

    /// Whether the process was listed by NVML, or had a GPU open.
    fn is_on_gpu(&self) -> bool {
        self.listed_pass > 0 || self.holder_pass > 0
    }

    /// The control group shows where the process was started, and whether it is frozen.
    fn read_cgroup(&mut self, procfs: &HostProcfs) {
        let mut buffer = [0; 4096];
        let file = self
            .cgroup_file
            .take()
            .map_or_else(|| files::open(self.process.id.pid, "cgroup"), Ok);
        let Ok(file) = file else { return };
        let Ok(group) = files::read(&file, &mut buffer) else {
            return;
        };
        self.cgroup_file = Some(file)
            .filter(|_| self.is_on_gpu())
            .and_then(|file| procfs.keep_open(file));
        if *self.cgroup == *group {
            return;
        }
        self.cgroup = group.into();
        self.control_groups = procfs.freezer.groups(group, |file| procfs.keep_open(file));
        self.group_origin = origin::from_cgroup(group);
        self.update_origin();
        self.update_frozen(self.read);
    }

    fn update_frozen(&mut self, now: Moment) {
        let frozen_by = self
            .control_groups
            .iter()
            .find_map(|group| group.frozen_by(now))
            .ok_or(Missing::Unsupported);
        if self.process.facts.frozen_by != frozen_by {
            self.process.facts_mut().frozen_by = frozen_by;
        }
    }

    pub(super) fn set_slow_facts(
        &mut self,
        SlowFacts {
            argv,
            environment,
            served,
            is_empty,
        }: SlowFacts,
    ) {
        self.has_empty_facts = is_empty;
        let facts = self.process.facts_mut();
        (facts.argv, facts.argv_delay) = (argv, None);
        let value = |get: fn(&Environment) -> &Option<Text>| match &environment {
            Ok(environment) => get(environment).clone().ok_or(Missing::Unsupported),
            Err(why) => Err(*why),
        };
        facts.elastic_run = value(|environment| &environment.elastic_run);
        facts.launcher = value(|environment| &environment.launcher);
        facts.rank = value(|environment| &environment.rank);
        facts.distributed = environment
            .as_ref()
            .ok()
            .and_then(|environment| environment.distributed.clone());
        self.probe_setup = environment
            .as_ref()
            .map_or_else(|why| Err(*why), |environment| Ok(environment.probe));
        self.environment_origin = environment.map(|environment| {
            self.cuda = environment.cuda;
            environment.origin
        });
        self.update_origin();
        self.served = served;
        self.update_served();
    }

    /// Updates whether the process that this one was started to serve has ended.
    fn update_served(&mut self) {
        let start_ticks = self.process.id.start_ticks.unwrap_or(u64::MAX);
        let ended = self.served.and_then(|served| {
            stat::has_ended(served, start_ticks)
                .then_some(served)
                .ok_or(Missing::Unsupported)
        });
        if self.process.facts.ended_served != ended {
            self.process.facts_mut().ended_served = ended;
        }
    }

    fn update_origin(&mut self) {
        let environment = self
            .environment_origin
            .as_ref()
            .ok()
            .and_then(Option::as_ref);
        self.cuda.is_confined = self
            .group_origin
            .iter()
            .chain(environment)
            .any(Origin::is_confined);
        let origin = origin::origin(self.group_origin.as_ref(), &self.environment_origin);
        if self.process.facts.origin != origin {
            self.process.facts_mut().origin = origin;
        }
    }

    /// Whether the GPU memory of the process grows. Then the bytes that it reads from files show
    /// whether it loads a model.
    pub(super) fn grows(&mut self, pass: u64) -> bool {
        if pass.is_multiple_of(GROWS_WITHIN) {
            let memory = self.nvml_memory.memory.ok();
            let grown = self
                .memory_before
                .zip(memory)
                .map(|(before, now)| now.saturating_sub(before));
            if grown.is_some_and(|grown| grown >= CLEAR_GROWTH) {
                self.grown_pass = pass;
            }
            self.memory_before = memory;
        }
        self.has_grown(pass) && self.process.facts.identity == Identity::Sure
    }

    fn has_grown(&self, pass: u64) -> bool {
        self.grown_pass > 0 && pass - self.grown_pass < GROWS_FOR
    }

    /// Takes the bytes that the process has read, unless its memory has stopped growing meanwhile.
    pub(super) fn set_bytes_read(&mut self, bytes: Option<Bytes>, pass: u64) {
        self.process.bytes_read = bytes.filter(|_| self.has_grown(pass));
    }

    /// Marks that thread names are not read: they identify trainers, and NVML lists a trainer, but
    /// not this process.
    pub(super) fn skip_thread_names(&mut self) {
        if matches!(self.process.facts.trainer_threads, Err(why) if why != Missing::Unsupported) {
            self.process.facts_mut().trainer_threads = Err(Missing::Unsupported);
        }
    }

    pub(super) fn has_new_threads(&self, now: Moment) -> bool {
        self.threads_due.is_some_and(|due| now >= due)
    }

    pub(super) fn read_threads(&mut self) {
        self.threads_due = None;
        if self.process.id.start_ticks.is_some() {
            self.process.facts_mut().trainer_threads =
                files::has_trainer_threads(self.process.id.pid);
        }
    }

    /// Decides how certain it is that this is the process that NVML means. See [`Identity`]. The
    /// identity of a process that was found in `/proc` (`listed` is `None`) is uncertain only while
    /// the process is too young.
    pub(super) fn identify(&mut self, procfs: &HostProcfs, now: Moment, listed: Option<Moment>) {
        /// The fewest clock ticks from start to reading: then one tick has passed in full.
        const WHOLE_TICK: u64 = 2;
        if self.process.facts.identity == Identity::Sure && (listed.is_none() || self.is_verified) {
            return;
        }
        if listed.is_some() && !self.is_verified && now >= self.verify_due {
            self.verify_due = now.after(VERIFY_INTERVAL);
            self.is_verified = procfs.is_nvml_pid_certain(self.process.id.pid);
        }
        let start = self
            .process
            .id
            .start_ticks
            .map_or(now, |ticks| procfs.moment(ticks));
        let whole_tick = procfs.moment(WHOLE_TICK).since(Moment(0));
        // A process that started after the list was read is not the listed one.
        let identity = if listed.is_some() && !self.is_verified {
            Identity::Unverified
        } else if listed.unwrap_or(now).min(now) >= start.after(whole_tick) {
            Identity::Sure
        } else {
            Identity::Fresh
        };
        if self.process.facts.identity != identity {
            self.process.facts_mut().identity = identity;
        }
    }
}
