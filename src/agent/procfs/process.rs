//! One process that is shown: reads what it does, and who it is.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::files::{self, Root};
use super::origin::{self, Cuda, Environment, Origin};
use super::slow_files::Aside;
use super::stat::{self, living_thread};
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Moment, Percent};
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessFacts, ProcessId, ProcessLoad, Reading, State};

/// An unverified process is looked at again so often: it may open the GPU's device file.
const VERIFY: Duration = Duration::from_secs(5);
/// A share of CPU over a shorter time says nothing: the clock ticks a hundred times a second.
const SHORT: Duration = Duration::from_millis(150);
/// Names of new threads are read so long after they were seen: a thread names itself.
const THREADS: Duration = Duration::from_secs(5);

/// A process rests that slept in so many readings in a row.
const RESTS: u8 = 4;
/// The control group of one that seems to be frozen is read so often, in milliseconds: of a thousand that hang in the
/// kernel, it is most of the work.
const GROUP: u64 = 5000;

/// A process that is shown.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) process: Process,
    /// Absent when there are no descriptors left: then it is opened for each reading.
    pub(super) stat: Option<OwnedFd>,
    /// When it was read last.
    pub(super) read: Moment,
    /// CPU ticks at an earlier reading.
    pub(super) cpu: Option<(Moment, u64)>,
    /// The pass in which NVML named it last; 0 for never.
    pub(super) named: u64,
    /// On how many GPUs it did then, and with how much.
    pub(super) nvml_memory: NvmlMemory,
    /// The pass in which it held a GPU by another's word; 0 for never.
    pub(super) held: u64,
    /// The pass that wanted it last.
    pub(super) pass: u64,
    /// Whether its PID is one of ours, and not of another PID namespace.
    verified: bool,
    verify_due: Moment,
    group: Option<Origin>,
    /// Where its environment says that it was started.
    environment: Reading<Option<Origin>>,
    /// What that says about CUDA's devices.
    pub(super) cuda: Cuda,
    /// When to read the names of its threads.
    threads_due: Option<Moment>,
    /// Readings in a row in which it slept, and had not run since the one before.
    asleep: u8,
}

/// A process that NVML listed in the last pass, and whose PID certainly is its own.
#[derive(Debug, Clone, Copy)]
pub(in crate::agent) struct ListedProcess {
    pub(in crate::agent) id: ProcessId,
    /// Its real user ID.
    pub(in crate::agent) uid: Reading<u32>,
    pub(in crate::agent) nvml_memory: NvmlMemory,
}

/// The number of GPUs that NVML listed a process on, and the process's memory on all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct NvmlMemory {
    pub(in crate::agent) gpus: usize,
    pub(in crate::agent) memory: Reading<Bytes>,
}

impl Default for NvmlMemory {
    fn default() -> Self {
        Self { gpus: 0, memory: Ok(Bytes(0)) }
    }
}

impl NvmlMemory {
    /// One more GPU, and so much of it.
    pub(in crate::agent) fn add(&mut self, memory: Reading<Bytes>) {
        self.gpus += 1;
        self.memory = self.memory.and_then(|sum| Ok(Bytes(sum.0.saturating_add(memory?.0))));
    }
}

/// What a reading takes along.
pub(super) struct Reader<'a> {
    pub(super) buffer: &'a mut [u8],
    pub(super) root: &'a Root,
    pub(super) aside: &'a mut Aside,
    pub(super) now: Moment,
}

impl Entry {
    /// A process of which only the PID is known.
    pub(super) fn unreadable(pid: u32) -> Self {
        Self {
            process: Process {
                id: ProcessId { pid, start_ticks: None },
                facts: ProcessFacts::missing(Identity::Unverified, Missing::NotYet).into(),
                load: ProcessLoad::missing(Missing::NotYet),
                allocator: None,
            },
            stat: None,
            read: Moment(0),
            cpu: None,
            named: 0,
            nvml_memory: NvmlMemory::default(),
            held: 0,
            pass: 0,
            verified: false,
            verify_due: Moment(0),
            group: None,
            environment: Err(Missing::NotYet),
            cuda: Cuda::default(),
            threads_due: Some(Moment(0)),
            asleep: 0,
        }
    }

    /// Whether it surely is who it was, and has done nothing for long.
    pub(super) fn rests(&self) -> bool {
        self.asleep >= RESTS && self.process.facts.identity == Identity::Sure
    }

    /// Whether nobody has looked at it yet.
    pub(super) fn is_unread(&self) -> bool {
        self.process.id.start_ticks.is_none() && self.process.facts.comm == Err(Missing::NotYet)
    }

    /// Looks at a process for the first time. NVML named it at `listed`, or nobody but `/proc` did.
    pub(super) fn open(pid: u32, reader: &mut Reader<'_>, listed: Option<Moment>) -> Self {
        let mut entry = Self::unreadable(pid);
        let opened = files::open(pid, "stat");
        let line = match &opened {
            Ok(stat) => files::read(stat, reader.buffer),
            Err(error) => Err(*error),
        };
        let error = line.as_ref().err().copied();
        let Some(stat) = line.ok().and_then(stat::parse) else {
            let why = reader.root.why_absent(error);
            entry.process.facts = ProcessFacts::missing(Identity::Unverified, why).into();
            entry.process.load = ProcessLoad::missing(why);
            return entry;
        };
        entry.process.id.start_ticks = Some(stat.start_ticks);
        entry.stat = opened.ok().and_then(|stat| reader.root.keep(stat));
        entry.take(&stat, reader.root, reader.aside, reader.now);
        entry.identify(reader.root, reader.now, listed);
        entry
    }

    /// Reads it again; false when it is not that process any more.
    pub(super) fn refresh(&mut self, reader: &mut Reader<'_>, listed: Option<Moment>) -> bool {
        let Some(start_ticks) = self.process.id.start_ticks else { return false };
        let line = match &self.stat {
            Some(stat) => files::read(stat, reader.buffer),
            None => files::open(self.process.id.pid, "stat").and_then(|stat| files::read(&stat, reader.buffer)),
        };
        let Some(stat) = line.ok().and_then(stat::parse).filter(|stat| stat.start_ticks == start_ticks) else {
            return false;
        };
        self.take(&stat, reader.root, reader.aside, reader.now);
        self.identify(reader.root, reader.now, listed);
        true
    }

    fn take(&mut self, stat: &stat::Stat<'_>, root: &Root, aside: &mut Aside, now: Moment) {
        let id = self.process.id;
        // Whose turn it is differs by PID, or one pass in five would carry all.
        let turn = |at: Moment| (at.0 + u64::from(id.pid) * 1000) / GROUP;
        let is_turn = turn(std::mem::replace(&mut self.read, now)) != turn(now);
        // They are shared with the snapshots before, as long as nobody writes.
        let facts = &self.process.facts;
        let related = (Ok(stat.parent), Ok(stat.group), Ok(stat.session));
        if (facts.parent, facts.group, facts.session) != related {
            let facts = self.process.facts_mut();
            (facts.parent, facts.group, facts.session) = related;
        }
        if !matches!(&self.process.facts.comm, Ok(comm) if comm.as_str().as_bytes() == stat.comm) {
            let comm = Text::new(stat.comm);
            // Another name is another program: an exec, with arguments of its own.
            if self.process.facts.comm.as_ref() != Ok(&comm) {
                let facts = self.process.facts_mut();
                facts.comm = Ok(comm);
                facts.argv = Err(Missing::NotYet);
                aside.argv(id);
            }
        }
        let was = self.process.load.state;
        let load = &mut self.process.load;
        let (state, thread) = match stat.state {
            State::Zombie if stat.threads > 1 => {
                living_thread(id.pid).map_or((State::Zombie, None), |(folder, state)| (state, Some(folder)))
            }
            state => (state, None),
        };
        load.state = Ok(state);
        load.wchan = match state {
            State::DiskSleep => files::wchan(&thread.unwrap_or_else(|| format!("/proc/{}", id.pid).into())),
            _ => Err(Missing::Unsupported),
        };
        if load.threads != Ok(stat.threads) && self.process.facts.trainer_threads != Ok(true) {
            self.threads_due.get_or_insert(now.after(THREADS));
        }
        load.threads = Ok(stat.threads);
        load.rss = Ok(Bytes(stat.rss_pages.saturating_mul(root.page_size)));
        // Who is frozen may be let go on; and in the first version of control groups, who is frozen shows as blocked.
        let is_blocked = was == Ok(State::DiskSleep) && state == State::DiskSleep;
        if is_turn && (self.process.facts.frozen_by.is_ok() || is_blocked) {
            self.read_group(root);
        }
        let load = &mut self.process.load;
        match self.cpu {
            Some((at, _)) if now.since(at) < SHORT => return,
            Some((at, ticks)) => {
                let slept = state == State::Sleeping && ticks == stat.cpu_ticks;
                self.asleep = if slept { self.asleep.saturating_add(1) } else { 0 };
                load.cpu = Ok(root.cpu(stat.cpu_ticks.saturating_sub(ticks), now.since(at)));
            }
            None => load.cpu = Err(Missing::NotYet),
        }
        self.cpu = Some((now, stat.cpu_ticks));
        // In the second version, who is frozen only seems to sleep. Of a thousand who began to, each has its turn.
        if u32::from(self.asleep) == u32::from(RESTS) + id.pid % 4 {
            self.read_group(root);
        }
    }

    /// Reads what `stat` does not tell: its user and its control group, either of which may change.
    pub(super) fn read_rarely(&mut self, root: &Root, aside: &mut Aside) {
        let Some(_) = self.process.id.start_ticks else { return };
        let pid = self.process.id.pid;
        let uid: Reading<u32> = Root::uid(pid);
        let known = self.process.facts.uid;
        // A process that ended meanwhile keeps the user it had.
        if known != uid && (uid.is_ok() || known.is_err()) {
            let facts = self.process.facts_mut();
            facts.uid = uid;
            facts.user = uid.and_then(|uid| aside.user(uid).ok_or(Missing::NotYet));
        }
        self.read_group(root);
    }

    /// Reads its control group: where it was started, and whether it is frozen.
    fn read_group(&mut self, root: &Root) {
        let mut buffer = [0; 4096];
        let group = files::open(self.process.id.pid, "cgroup").and_then(|file| files::read(file, &mut buffer));
        let Ok(group) = group else { return };
        let frozen_by = root.freezer.frozen_by(group).ok_or(Missing::Unsupported);
        self.group = origin::of_group(group);
        self.confine();
        let origin = origin::origin(self.group.as_ref(), &self.environment);
        if self.process.facts.origin != origin {
            self.process.facts_mut().origin = origin;
        }
        if self.process.facts.frozen_by != frozen_by {
            self.process.facts_mut().frozen_by = frozen_by;
        }
    }

    /// Takes what its arguments and environment are.
    pub(super) fn learn(&mut self, argv: Reading<Argv>, environment: Reading<Environment>) {
        let facts = self.process.facts_mut();
        facts.argv = argv;
        let value = |get: fn(&Environment) -> &Option<Text>| match &environment {
            Ok(environment) => get(environment).clone().ok_or(Missing::Unsupported),
            Err(why) => Err(*why),
        };
        facts.elastic_run = value(|it| &it.elastic_run);
        facts.rank = value(|it| &it.rank);
        self.environment = environment.map(|it| {
            self.cuda = it.cuda;
            it.origin
        });
        facts.origin = origin::origin(self.group.as_ref(), &self.environment);
        self.confine();
    }

    /// Takes note whether it may be shown some of the host's GPUs only.
    fn confine(&mut self) {
        let environment = self.environment.as_ref().ok().and_then(Option::as_ref);
        self.cuda.is_confined = self.group.iter().chain(environment).any(Origin::is_confined);
    }

    /// Takes note that it is shown as related processes: threads tell of trainers, and these hold a GPU.
    pub(super) fn is_kin(&mut self) {
        if matches!(self.process.facts.trainer_threads, Err(why) if why != Missing::Unsupported) {
            self.process.facts_mut().trainer_threads = Err(Missing::Unsupported);
        }
    }

    /// Whether the names of its threads are to be read.
    pub(super) fn has_new_threads(&self, now: Moment) -> bool {
        self.threads_due.is_some_and(|due| now >= due)
    }

    /// Reads the names of its threads.
    pub(super) fn read_threads(&mut self) {
        self.threads_due = None;
        if self.process.id.start_ticks.is_some() {
            self.process.facts_mut().trainer_threads = files::has_trainer_threads(self.process.id.pid);
        }
    }

    /// How surely this is the process that NVML means. See [`Identity`]. Related processes was found in `/proc` itself:
    /// it can only be too young.
    pub(super) fn identify(&mut self, root: &Root, now: Moment, listed: Option<Moment>) {
        if self.process.facts.identity == Identity::Sure && (listed.is_none() || self.verified) {
            return;
        }
        if listed.is_some() && !self.verified && now >= self.verify_due {
            self.verify_due = now.after(VERIFY);
            self.verified = root.is_ours() || root.holds_gpu(self.process.id.pid);
        }
        let start = self.process.id.start_ticks.map_or(now, |ticks| root.moment(ticks));
        let whole = root.moment(2).since(Moment(0));
        // One that started after the list was read is not the one that was listed.
        let identity = if listed.is_some() && !self.verified {
            Identity::Unverified
        } else if listed.unwrap_or(now).min(now) >= start.after(whole) {
            Identity::Sure
        } else {
            Identity::Fresh
        };
        if self.process.facts.identity != identity {
            self.process.facts_mut().identity = identity;
        }
    }
}

impl Root {
    /// CPU time a second: 100 for one core.
    #[expect(clippy::cast_precision_loss, reason = "ticks between two passes are few")]
    fn cpu(&self, ticks: u64, span: Duration) -> Percent {
        let seconds = ticks as f32 / self.ticks_per_second as f32;
        Percent::new(100.0 * seconds / span.as_secs_f32())
    }

    /// When a process with these start ticks started.
    pub(super) fn moment(&self, ticks: u64) -> Moment {
        Moment(ticks.saturating_mul(1000) / self.ticks_per_second)
    }
}
