//! What `/proc` says of the processes that hold a GPU.
//!
//! The descriptor of a process's `stat` stays open: it belongs to that very process, so when its PID is
//! used again, reading it fails instead of telling of a stranger. Only files that cannot block are read
//! here; [`aside`] reads the others, on threads of their own.

mod aside;
mod files;
pub(super) mod stat;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use self::aside::Aside;
pub(super) use self::aside::Finding;
use self::files::Root;
pub(super) use self::files::living_thread;
use super::{Wake, clock};
use crate::snapshot::{Identity, Missing, Process, ProcessFacts, ProcessId, ProcessLoad, Reading, State};
use crate::units::{Bytes, Moment, Percent};
use crate::untrusted::Text;

/// Of so many processes a pass the user is read for the first time. With a thousand new ones the first
/// line comes sooner, and the users with the next.
const USERS: usize = 200;

/// An unverified process is looked at again so often: it may open the GPU's device file.
const VERIFY: Duration = Duration::from_secs(5);

/// A process that NVML named.
#[derive(Debug)]
struct Tenant {
    process: Process,
    /// Absent when there are no descriptors left: then it is opened for each reading.
    stat: Option<OwnedFd>,
    /// CPU ticks at an earlier reading.
    cpu: Option<(Moment, u64)>,
    /// Whether its PID is one of ours, and not of another PID namespace.
    verified: bool,
    verify_due: Moment,
    /// The pass that named it last.
    pass: u64,
}

/// Every process that holds a GPU, by PID.
#[derive(Debug)]
pub(super) struct Tenants {
    known: BTreeMap<u32, Tenant>,
    root: Root,
    aside: Aside,
    pass: u64,
    /// Whose user is looked at again next: one a pass.
    next: u32,
    buffer: Box<[u8; 1024]>,
}

impl Tenants {
    /// Nobody yet. With `ours`, every PID that is named is one of this PID namespace.
    pub(super) fn new(ours: bool, events: mpsc::Sender<Wake>) -> Self {
        Self {
            known: BTreeMap::new(),
            root: Root::new(ours),
            aside: Aside::new(events),
            pass: 0,
            next: 0,
            buffer: Box::new([0; 1024]),
        }
    }

    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        self.pass += 1;
    }

    /// Reads the process that NVML named at `listed`, once a pass, and says who it is.
    pub(super) fn see(&mut self, pid: u32, listed: Moment) -> ProcessId {
        let known = self.known.get_mut(&pid).filter(|tenant| tenant.pass == self.pass);
        if let Some(tenant) = known {
            return tenant.process.id;
        }
        let now = clock::now();
        let refreshed = match self.known.get_mut(&pid) {
            Some(tenant) => tenant.refresh(&mut *self.buffer, &self.root, &mut self.aside, now, listed),
            None => false,
        };
        if !refreshed {
            let tenant = Tenant::open(pid, &mut *self.buffer, &self.root, &mut self.aside, now, listed);
            self.known.insert(pid, tenant);
        }
        self.known.get_mut(&pid).map_or(ProcessId { pid, start_ticks: None }, |tenant| {
            tenant.pass = self.pass;
            tenant.process.id
        })
    }

    /// Ends a pass: forgets those whom NVML named no more. Says who is left, by PID.
    pub(super) fn end(&mut self) -> impl Iterator<Item = &Process> {
        let pass = self.pass;
        self.known.retain(|_, tenant| tenant.pass == pass);
        // A process may change its user id without a trace in `stat`. One a pass is cheap, and finds it.
        let turn = self.known.range(self.next..).next().map(|(pid, _)| *pid);
        self.next = turn.map_or(0, |pid| pid + 1);
        let unread = |tenant: &Tenant| tenant.process.facts.uid == Err(Missing::NotYet);
        let due = self.known.iter_mut().filter(|(pid, tenant)| Some(**pid) == turn || unread(tenant));
        for (_, tenant) in due.take(USERS) {
            tenant.read_user(&self.root, &mut self.aside);
        }
        if let Some(id) = self.aside.check(clock::now())
            && let Some(tenant) = self.known.get_mut(&id.pid).filter(|tenant| tenant.process.id == id)
        {
            tenant.process.facts.argv = Err(Missing::Failed);
        }
        self.known.values().map(|tenant| &tenant.process)
    }

    /// Takes what was read aside.
    pub(super) fn learn(&mut self, finding: Finding) {
        self.aside.done(&finding);
        match finding {
            Finding::Argv(id, argv) => {
                let tenant = self.known.get_mut(&id.pid).filter(|tenant| tenant.process.id == id);
                if let Some(tenant) = tenant {
                    tenant.process.facts.argv = argv;
                }
            }
            Finding::User(uid, name) => {
                for tenant in self.known.values_mut().filter(|it| it.process.facts.uid == Ok(uid)) {
                    tenant.process.facts.user = Ok(name.clone());
                }
            }
        }
    }
}

impl Tenant {
    /// Looks at a process for the first time.
    fn open(pid: u32, buffer: &mut [u8], root: &Root, aside: &mut Aside, now: Moment, listed: Moment) -> Self {
        let opened = files::open(pid, "stat");
        let mut tenant = Self {
            process: Process {
                id: ProcessId { pid, start_ticks: None },
                facts: ProcessFacts::missing(Identity::Unverified, Missing::NotYet),
                load: ProcessLoad::missing(Missing::NotYet),
            },
            stat: None,
            cpu: None,
            verified: root.is_ours(),
            verify_due: Moment(0),
            pass: 0,
        };
        let line = match &opened {
            Ok(stat) => files::read(stat, buffer).ok(),
            Err(_) => None,
        };
        let Some(stat) = line.and_then(stat::parse) else {
            let why = root.why_absent(opened.err());
            tenant.process.facts = ProcessFacts::missing(Identity::Unverified, why);
            tenant.process.load = ProcessLoad::missing(why);
            return tenant;
        };
        tenant.process.id.start_ticks = Some(stat.start_ticks);
        tenant.stat = opened.ok().and_then(|stat| root.keep(stat));
        tenant.take(&stat, root, aside, now);
        tenant.identify(root, now, listed);
        tenant
    }

    /// Reads it again; false when it is not that process any more.
    fn refresh(&mut self, buffer: &mut [u8], root: &Root, aside: &mut Aside, now: Moment, listed: Moment) -> bool {
        let Some(start_ticks) = self.process.id.start_ticks else { return false };
        let line = match &self.stat {
            Some(stat) => files::read(stat, buffer),
            None => files::open(self.process.id.pid, "stat").and_then(|stat| files::read(&stat, buffer)),
        };
        let Some(stat) = line.ok().and_then(stat::parse).filter(|stat| stat.start_ticks == start_ticks) else {
            return false;
        };
        self.take(&stat, root, aside, now);
        if self.process.facts.identity != Identity::Sure {
            self.identify(root, now, listed);
        }
        true
    }

    fn take(&mut self, stat: &stat::Stat<'_>, root: &Root, aside: &mut Aside, now: Moment) {
        let id = self.process.id;
        let facts = &mut self.process.facts;
        facts.parent = Ok(stat.parent);
        if !matches!(&facts.comm, Ok(comm) if comm.as_str().as_bytes() == stat.comm) {
            let comm = Text::new(stat.comm);
            // Another name is another program: an exec, with arguments of its own.
            if facts.comm.as_ref() != Ok(&comm) {
                facts.comm = Ok(comm);
                facts.argv = Err(Missing::NotYet);
                aside.argv(id);
            }
        }
        let load = &mut self.process.load;
        load.state = Ok(match stat.state {
            State::Zombie if stat.threads > 1 => living_thread(id.pid).map_or(State::Zombie, |(_, state)| state),
            state => state,
        });
        load.threads = Ok(stat.threads);
        load.rss = Ok(Bytes(stat.rss_pages.saturating_mul(root.page_size)));
        load.cpu = match self.cpu {
            Some((at, ticks)) if now > at => Ok(root.cpu(stat.cpu_ticks.saturating_sub(ticks), now.since(at))),
            _ => Err(Missing::NotYet),
        };
        self.cpu = Some((now, stat.cpu_ticks));
    }

    fn read_user(&mut self, root: &Root, aside: &mut Aside) {
        let Some(_) = self.process.id.start_ticks else { return };
        let uid: Reading<u32> = root.uid(self.process.id.pid);
        let facts = &mut self.process.facts;
        // A process that ended meanwhile keeps the user it had.
        if facts.uid == uid || uid.is_err() && facts.uid.is_ok() {
            return;
        }
        facts.uid = uid;
        facts.user = uid.and_then(|uid| aside.user(uid).ok_or(Missing::NotYet));
    }

    /// How surely this is the process that NVML means. See [`Identity`].
    fn identify(&mut self, root: &Root, now: Moment, listed: Moment) {
        if !self.verified && now >= self.verify_due {
            self.verify_due = now.after(VERIFY);
            self.verified = files::holds_gpu(self.process.id.pid);
        }
        let start = self.process.id.start_ticks.map_or(now, |ticks| root.moment(ticks));
        let whole = root.moment(2).since(Moment(0));
        // One that started after the list was read is not the one that was listed.
        self.process.facts.identity = if !self.verified {
            Identity::Unverified
        } else if listed.min(now) >= start.after(whole) {
            Identity::Sure
        } else {
            Identity::Fresh
        };
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
    fn moment(&self, ticks: u64) -> Moment {
        Moment(ticks.saturating_mul(1000) / self.ticks_per_second)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn see(tenants: &mut Tenants, pid: u32, listed: Moment) -> Process {
        tenants.begin();
        tenants.see(pid, listed);
        tenants.end().next().cloned().unwrap()
    }

    fn nobody() -> Tenants {
        Tenants::new(true, mpsc::channel().0)
    }

    #[test]
    fn a_process_is_sure_when_it_started_well_before_it_was_listed() {
        let mut tenants = nobody();
        let me = see(&mut tenants, std::process::id(), Moment(0));
        assert_eq!(me.facts.identity, Identity::Fresh);
        let start = tenants.root.moment(me.id.start_ticks.unwrap());
        let me = see(&mut tenants, std::process::id(), Moment(start.0 + 19));
        assert_eq!(me.facts.identity, Identity::Fresh);
        // Once sure it stays so: the descriptor is of this process and no other.
        tenants.known.values_mut().for_each(|me| me.identify(&tenants.root, Moment(start.0 + 20), Moment(u64::MAX)));
        let me = see(&mut tenants, std::process::id(), Moment(0));
        assert_eq!(me.facts.identity, Identity::Sure);
    }

    #[test]
    fn rates_need_a_second_reading() {
        let mut tenants = nobody();
        let first = see(&mut tenants, std::process::id(), Moment(0));
        assert_eq!((first.load.cpu, first.facts.parent.is_ok()), (Err(Missing::NotYet), true));
        assert!(first.load.rss.is_ok_and(|rss| rss > Bytes::from_mib(1)));
        let me = tenants.known.get_mut(&std::process::id()).unwrap();
        me.cpu = me.cpu.map(|(at, ticks)| (Moment(at.0 - 1000), ticks));
        let second = see(&mut tenants, std::process::id(), Moment(0));
        assert!(second.load.cpu.is_ok());
    }

    #[test]
    fn a_process_that_ended_is_only_a_pid() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut tenants = nobody();
        let alive = see(&mut tenants, child.id(), Moment(0));
        assert_eq!(alive.id.start_ticks, tenants.known[&child.id()].process.id.start_ticks);
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = see(&mut tenants, child.id(), Moment(0));
        assert_eq!((gone.id.start_ticks, gone.facts.identity), (None, Identity::Unverified));
        assert_eq!(gone.load.state, Err(Missing::Failed));
        tenants.begin();
        assert_eq!(tenants.end().count(), 0);
    }

    #[test]
    fn a_pid_of_another_namespace_is_not_verified_by_being_here() {
        let mut tenants = nobody();
        tenants.root = Root::foreign();
        let me = see(&mut tenants, std::process::id(), Moment(u64::MAX));
        assert_eq!(me.facts.identity, Identity::Unverified);
        let nobody = see(&mut tenants, 1 << 22, Moment(u64::MAX));
        assert_eq!(nobody.facts.comm, Err(Missing::Unsupported));
    }

    #[test]
    fn without_a_descriptor_it_is_read_all_the_same() {
        let mut tenants = nobody();
        let first = see(&mut tenants, std::process::id(), Moment(0));
        tenants.known.values_mut().for_each(|me| me.stat = None);
        assert_eq!(see(&mut tenants, std::process::id(), Moment(0)).id, first.id);
        // Another process with the same PID is another.
        tenants.known.values_mut().for_each(|me| me.process.id.start_ticks = Some(1));
        assert_eq!(see(&mut tenants, std::process::id(), Moment(0)).id, first.id);
    }
}
