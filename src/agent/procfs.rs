//! What `/proc` says of the processes that are shown: those that NVML named, and those that the census
//! found to belong to them.
//!
//! The descriptor of a process's `stat` stays open: it belongs to that very process, so when its PID is
//! used again, reading it fails instead of telling of a stranger. Only files that cannot block are read
//! here; [`aside`] reads the others, on threads of their own.

pub(super) mod device_files;
pub(super) mod files;
mod freezer;
mod origin;
mod process;
mod slow_files;
pub(super) mod stat;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use self::device_files::Devices;
use self::files::Root;
pub(super) use self::files::is_initial_pid_namespace;
pub(super) use self::origin::Cuda;
use self::process::{Entry, Reader};
pub(super) use self::process::{ListedProcess, NvmlMemory};
use self::slow_files::Aside;
pub(super) use self::slow_files::Finding;
use super::{Wake, clock};
use crate::base::text::Argv;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Identity, Missing, Process, ProcessId, Reading};

/// The first pass looks at so many processes: those that hold most, as one sees them first.
const FIRST: usize = 64;
/// Where there are more than this, those who rest are read every fourth pass.
const MANY: usize = 256;
/// Of so many processes a pass the user is read for the first time. With a thousand new ones a line comes
/// sooner, and the users with the next.
const USERS: usize = 200;
/// Of so many a pass the names of threads are read: each may have hundreds.
const THREADS: usize = 4;
/// Related processes is read so often: every fifth second, where a pass that comes a little early counts.
const KIN: Duration = Duration::from_millis(4500);

/// What the arguments of a child of `multiprocessing` hold.
const MULTIPROCESSING: [&str; 3] = ["--multiprocessing-fork", "multiprocessing.spawn", "multiprocessing.forkserver"];

/// Every process that is shown, by PID.
#[derive(Debug)]
pub(super) struct Processes {
    /// In a box, since the places of a tree are half empty.
    known: BTreeMap<u32, Box<Entry>>,
    root: Root,
    aside: Aside,
    pass: u64,
    /// How many more may be read for the first time in this pass.
    room: usize,
    /// In this pass, only what is read quickly.
    is_quick: bool,
    /// Those for whom there was none, with the time of the list that named them.
    put_off: Vec<(u32, Moment)>,
    /// Whose user is looked at again next: one a pass.
    next: u32,
    /// Whose arguments tell whether it is shown.
    strays: BTreeSet<ProcessId>,
    /// Whose arguments did.
    adopted: Vec<ProcessId>,
    /// What those ran who were ended of late: who runs the same belongs here.
    expected: Vec<Argv>,
    /// One that held a GPU has ended, or lost its parent, since one last asked.
    upset: bool,
    buffer: Box<[u8; 1024]>,
}

impl Processes {
    /// Nobody yet. With `ours`, every PID that is named is one of this PID namespace.
    pub(super) fn new(ours: bool, devices: Devices, events: mpsc::Sender<Wake>) -> Self {
        Self {
            known: BTreeMap::new(),
            root: Root::new(ours, devices),
            aside: Aside::new(events),
            pass: 0,
            room: 0,
            is_quick: false,
            put_off: Vec::new(),
            next: 0,
            strays: BTreeSet::new(),
            adopted: vec![],
            expected: vec![],
            upset: false,
            buffer: Box::new([0; 1024]),
        }
    }

    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        self.pass += 1;
        (self.room, self.is_quick) = (usize::MAX, false);
        self.put_off.clear();
    }

    /// Begins the first pass, for which someone waits: it reads a few, and of those what is read quickly. The
    /// others are only PIDs in it, and are not shown.
    pub(super) fn begin_first(&mut self) {
        self.begin();
        (self.room, self.is_quick) = (FIRST, true);
    }

    /// Reads what the first pass put off, for the next one. Rates are of the time since.
    pub(super) fn catch_up(&mut self) {
        let put_off = std::mem::take(&mut self.put_off);
        self.begin();
        for (pid, listed) in put_off {
            self.see(pid, listed, Err(Missing::NotYet));
        }
        self.read_rarely(clock::now());
    }

    /// Reads the process that NVML named at `listed` with so much memory, once a pass, and says who it is.
    pub(super) fn see(&mut self, pid: u32, listed: Moment, memory: Reading<Bytes>) -> ProcessId {
        let known = self.known.get_mut(&pid).filter(|entry| entry.named == self.pass);
        if let Some(entry) = known {
            entry.nvml_memory.add(memory);
            return entry.process.id;
        }
        // With a thousand of them, the reading is most of what gputop costs; and most of a thousand wait.
        let is_turn = (u64::from(pid) + self.pass).is_multiple_of(4);
        if self.known.len() > MANY && !is_turn && self.known.get(&pid).is_some_and(|it| it.rests()) {
            // Read in one of the next passes.
        } else if self.room > 0 || self.known.contains_key(&pid) {
            self.read(pid, Some(listed));
        } else {
            self.put_off.push((pid, listed));
            self.known.insert(pid, Entry::unreadable(pid).into());
        }
        self.known.get_mut(&pid).map_or(ProcessId { pid, start_ticks: None }, |entry| {
            (entry.named, entry.pass, entry.nvml_memory) = (self.pass, self.pass, NvmlMemory::default());
            entry.nvml_memory.add(memory);
            entry.process.id
        })
    }

    /// Reads a process that holds a GPU by another's word than NVML's; absent when it has ended.
    pub(super) fn see_holder(&mut self, pid: u32) -> Option<ProcessId> {
        self.read(pid, None);
        let entry = self.known.get_mut(&pid).filter(|entry| entry.process.id.start_ticks.is_some())?;
        (entry.held, entry.pass) = (self.pass, self.pass);
        entry.is_kin();
        Some(entry.process.id)
    }

    /// Reads a process, or whoever has its PID now.
    fn read(&mut self, pid: u32, listed: Option<Moment>) {
        let (now, pass) = (clock::now(), self.pass);
        let Self { known, root, aside, buffer, upset, room, .. } = self;
        let mut reader = Reader { buffer: &mut **buffer, root, aside, now };
        let was = known.get(&pid).map(|entry| (entry.process.facts.parent, entry.named + 1 == pass));
        let refreshed = known.get_mut(&pid).is_some_and(|entry| entry.refresh(&mut reader, listed));
        if !refreshed {
            // NVML may name a process for long that has ended; that is news only once.
            *upset |= was.is_some_and(|(parent, named)| named && parent.is_ok());
            *room = room.saturating_sub(1);
            known.insert(pid, Entry::open(pid, &mut reader, listed).into());
        } else if let (Some((before, _)), Some(entry)) = (was, known.get(&pid)) {
            *upset |= before != entry.process.facts.parent;
        }
    }

    /// Keeps related processes, and reads those whose turn it is; all of them, when `hurry` or when someone's end
    /// has just shown.
    pub(super) fn keep(&mut self, related: &[ProcessId], hurry: bool) {
        let pass = self.pass;
        let has_left = |entry: &Entry| entry.named + 1 == pass && entry.process.id.start_ticks.is_some();
        self.upset |= self.known.values().any(|entry| has_left(entry));
        let hurry = hurry || self.upset;
        let now = clock::now();
        for id in related {
            let entry = self.known.get(&id.pid);
            if entry.is_some_and(|entry| entry.pass == pass) {
                continue;
            }
            let known = entry.filter(|entry| entry.process.id == *id);
            if known.is_none_or(|entry| hurry || now.since(entry.read) >= KIN) {
                let is_new = known.is_none();
                self.read(id.pid, None);
                if let Some(entry) = self.known.get_mut(&id.pid).filter(|_| is_new) {
                    // Turns are spread over the seconds, or one pass in five would carry all.
                    entry.read = Moment(now.0.saturating_sub(u64::from(id.pid % 5) * 1000));
                }
            }
            let Some(entry) = self.known.get_mut(&id.pid) else { continue };
            // Whoever has its PID now is not related processes; the census will find out.
            if entry.process.id == *id {
                entry.pass = pass;
                entry.is_kin();
            }
        }
    }

    /// Ends a pass: forgets those whom nobody wanted. Says who is left, by PID.
    pub(super) fn end(&mut self) -> impl Iterator<Item = &Process> {
        let pass = self.pass;
        self.known.retain(|_, entry| entry.pass == pass);
        let now = clock::now();
        if !self.is_quick {
            self.read_rarely(now);
        }
        if let Some(id) = self.aside.check(now)
            && let Some(entry) = self.known.get_mut(&id.pid).filter(|entry| entry.process.id == id)
        {
            entry.learn(Err(Missing::Failed), Err(Missing::Failed));
        }
        self.known.values().filter(|entry| !entry.is_unread()).map(|entry| &entry.process)
    }

    /// Reads of a few what does not change in most passes, or takes long.
    fn read_rarely(&mut self, now: Moment) {
        // A process may change its user id without a trace in `stat`. One a pass is cheap, and finds it.
        let turn = self.known.range(self.next..).next().map(|(pid, _)| *pid);
        self.next = turn.map_or(0, |pid| pid + 1);
        let unreadable = |entry: &Entry| entry.process.facts.uid == Err(Missing::NotYet);
        let due = self.known.iter_mut().filter(|(pid, entry)| Some(**pid) == turn || unreadable(entry));
        for (_, entry) in due.take(USERS) {
            entry.read_rarely(&self.root, &mut self.aside);
        }
        let pass = self.pass;
        let due = self.known.values_mut().filter(|entry| entry.named == pass && entry.has_new_threads(now));
        due.take(THREADS).for_each(|entry| entry.read_threads());
    }

    /// Those who hold a GPU, and whose PID surely is theirs.
    pub(super) fn roots(&self) -> impl Iterator<Item = ProcessId> {
        let named = self.known.values().filter(|entry| entry.named == self.pass || entry.held == self.pass);
        let sure = named.filter(|entry| entry.process.facts.identity != Identity::Unverified);
        sure.map(|entry| entry.process.id)
    }

    /// Whom NVML named last, who surely are those.
    pub(super) fn gpu_processes(&self) -> impl Iterator<Item = ListedProcess> {
        // Catching up is a pass too, which names only some.
        let named = self.known.values().filter(|entry| entry.named > 0 && entry.named + 1 >= self.pass);
        let sure = named.filter(|entry| entry.process.facts.identity == Identity::Sure);
        sure.map(|entry| ListedProcess {
            id: entry.process.id,
            uid: entry.process.facts.uid,
            nvml_memory: entry.nvml_memory,
        })
    }

    /// What the environment of a process says about CUDA's devices.
    pub(super) fn cuda(&self, id: ProcessId) -> Option<&Cuda> {
        self.known.get(&id.pid).filter(|entry| entry.process.id == id).map(|entry| &entry.cuda)
    }

    /// Whether one that held a GPU has ended since one last asked, or someone has another parent.
    pub(super) fn take_upset(&mut self) -> bool {
        std::mem::take(&mut self.upset)
    }

    /// Has the arguments read of those whom only they can make related processes.
    pub(super) fn ask_about(&mut self, strays: &[ProcessId]) {
        for id in strays {
            self.strays.insert(*id);
            self.aside.argv(*id);
        }
    }

    /// From now on, a stray that runs this is shown.
    pub(super) fn expect(&mut self, argv: Argv) {
        if !argv.is_empty() && !self.expected.contains(&argv) {
            self.expected.push(argv);
        }
    }

    /// That is over.
    pub(super) fn expect_nobody(&mut self) {
        self.expected.clear();
    }

    /// Those whose arguments made them related processes.
    pub(super) fn take_adopted(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.adopted)
    }

    /// Takes what was read aside.
    pub(super) fn learn(&mut self, finding: Finding) {
        self.aside.done(&finding);
        match finding {
            Finding::Argv(id, argv, environment) => {
                let is_child = |argument: &str| MULTIPROCESSING.iter().any(|it| argument.contains(it));
                let is_ours = |argv: &Argv| argv.iter().any(is_child) || self.expected.contains(argv);
                if self.strays.remove(&id) && argv.as_ref().is_ok_and(is_ours) {
                    self.adopted.push(id);
                }
                let before = self.known.range(..id.pid).next_back().map(|(_, it)| it.process.facts.clone());
                let entry = self.known.get_mut(&id.pid).filter(|entry| entry.process.id == id);
                if let Some(entry) = entry {
                    entry.learn(argv, environment);
                    if let Some(before) = before {
                        entry.process.facts_mut().share(&before);
                    }
                }
            }
            Finding::User(uid, name) => {
                for entry in self.known.values_mut().filter(|it| it.process.facts.uid == Ok(uid)) {
                    entry.process.facts_mut().user = Ok(name.clone());
                }
            }
        }
    }
}
