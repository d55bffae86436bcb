//! Reads what can hang, on threads of its own: arguments and environment, which take the process's mmap
//! lock, and the names of users, which may be asked of a server.
//!
//! A thread that hangs is left behind, and what it was to read counts as failed.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use uzers::{Users, UsersCache};

use super::super::{Wake, clock};
use super::origin::Environment;
use super::{files, stat};
use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::protocol::snapshot::{Missing, ProcessId, Reading};

/// What was read.
#[derive(Debug)]
pub(in crate::agent) enum Finding {
    /// The arguments of a process, and what its environment says.
    Argv(ProcessId, Reading<Argv>, Reading<Environment>),
    /// The name of a user.
    User(u32, Text),
}

/// One thing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    Argv(ProcessId),
    User(u32),
}

/// An errand that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(2);
/// No more threads than this are left behind in what hangs.
const STUCK: usize = 8;

/// One queue of errands, and the thread that runs them one after the other.
#[derive(Debug)]
struct Runner {
    name: &'static str,
    events: mpsc::Sender<Wake>,
    queue: VecDeque<Errand>,
    running: Option<(Errand, Moment)>,
    thread: Option<SyncSender<Errand>>,
    stuck: usize,
}

impl Runner {
    fn new(name: &'static str, events: mpsc::Sender<Wake>) -> Self {
        Self { name, events, queue: VecDeque::new(), running: None, thread: None, stuck: 0 }
    }

    fn push(&mut self, errand: Errand) {
        if !self.queue.contains(&errand) {
            self.queue.push_back(errand);
        }
        self.go_on();
    }

    fn go_on(&mut self) {
        if self.running.is_some() || self.stuck >= STUCK {
            return;
        }
        let Some(errand) = self.queue.pop_front() else { return };
        let thread = self.thread.take().or_else(|| start(self.name, self.events.clone()));
        if let Some(thread) = thread
            && thread.try_send(errand).is_ok()
        {
            self.running = Some((errand, clock::now()));
            self.thread = Some(thread);
        }
    }

    /// Leaves the thread behind when it hangs. Says what it was at.
    fn check(&mut self, now: Moment) -> Option<Errand> {
        let (errand, _) = self.running.filter(|(_, since)| now.since(*since) >= DEADLINE)?;
        self.running = None;
        self.thread = None;
        self.stuck += 1;
        self.go_on();
        Some(errand)
    }

    fn done(&mut self, errand: Errand) {
        if self.running.is_some_and(|(running, _)| running == errand) {
            self.running = None;
        } else {
            self.stuck = self.stuck.saturating_sub(1);
        }
        self.go_on();
    }
}

fn start(name: &str, events: mpsc::Sender<Wake>) -> Option<SyncSender<Errand>> {
    let (sender, errands) = mpsc::sync_channel(1);
    // Without a thread the facts stay as they are: not read yet.
    thread::Builder::new().name(name.to_owned()).spawn(move || run(&errands, &events)).ok()?;
    Some(sender)
}

fn run(errands: &Receiver<Errand>, events: &mpsc::Sender<Wake>) {
    let users = UsersCache::new();
    while let Ok(errand) = errands.recv() {
        let finding = match errand {
            Errand::Argv(id) => read_both(id),
            Errand::User(uid) => {
                let user = users.get_user_by_uid(uid);
                let name = user.map(|user| Text::new(user.name().as_encoded_bytes()));
                Finding::User(uid, name.unwrap_or_else(|| uid.to_string().into()))
            }
        };
        if events.send(Wake::Found(finding)).is_err() {
            return;
        }
    }
}

/// Arguments and environment. Those of a successor with the same PID are not taken for them.
fn read_both(id: ProcessId) -> Finding {
    let (argv, environment) = (argv(id.pid), environment(id.pid));
    let mut buffer = [0; 1024];
    let stat = files::open(id.pid, "stat").and_then(|file| files::read(file, &mut buffer));
    if stat.ok().and_then(stat::parse).is_some_and(|stat| Some(stat.start_ticks) == id.start_ticks) {
        Finding::Argv(id, argv, environment)
    } else {
        // It has ended meanwhile.
        Finding::Argv(id, Err(Missing::NotYet), Err(Missing::NotYet))
    }
}

/// The arguments, 4 KiB at most.
fn argv(pid: u32) -> Reading<Argv> {
    let mut buffer = [0; Text::LIMIT];
    let file = files::open(pid, "cmdline").map_err(files::why)?;
    let line = files::read(&file, &mut buffer).map_err(files::why)?;
    let argv = line.strip_suffix(&[0]).unwrap_or(line);
    // A kernel thread and a zombie have none.
    Ok(if argv.is_empty() { Argv::default() } else { argv.split(|byte| *byte == 0).map(Text::new).collect() })
}

/// What the environment says, as far as its first 128 KiB: so long was the longest once.
fn environment(pid: u32) -> Reading<Environment> {
    let mut environ = Vec::new();
    // The kernel gives a page at a time.
    let read = files::open(pid, "environ").and_then(|file| {
        File::from(file)
            .take(128 << 10)
            .read_to_end(&mut environ)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    match read {
        // A zombie has none.
        Ok(_) | Err(Errno::SRCH) => Ok(Environment::parse(&environ)),
        Err(error) => Err(files::why(error)),
    }
}

/// Everything that is read aside.
#[derive(Debug)]
pub(super) struct Aside {
    argv: Runner,
    names: Runner,
    users: HashMap<u32, Option<Text>>,
}

impl Aside {
    pub(super) fn new(events: mpsc::Sender<Wake>) -> Self {
        Self { argv: Runner::new("argv", events.clone()), names: Runner::new("users", events), users: HashMap::new() }
    }

    /// Has the arguments of a process read.
    pub(super) fn argv(&mut self, id: ProcessId) {
        self.argv.push(Errand::Argv(id));
    }

    /// The name of a user; has it looked up when it is not known yet.
    pub(super) fn user(&mut self, uid: u32) -> Option<Text> {
        if let Some(name) = self.users.get(&uid) {
            return name.clone();
        }
        self.users.insert(uid, None);
        self.names.push(Errand::User(uid));
        None
    }

    /// Takes note that something was read.
    pub(super) fn done(&mut self, finding: &Finding) {
        match finding {
            Finding::Argv(id, ..) => self.argv.done(Errand::Argv(*id)),
            Finding::User(uid, name) => {
                self.users.insert(*uid, Some(name.clone()));
                self.names.done(Errand::User(*uid));
            }
        }
    }

    /// Leaves threads behind that hang. Says whose arguments they were at.
    pub(super) fn check(&mut self, now: Moment) -> Option<ProcessId> {
        if let Some(Errand::User(uid)) = self.names.check(now) {
            // A user who cannot be looked up goes by number.
            self.users.insert(uid, Some(uid.to_string().into()));
        }
        match self.argv.check(now) {
            Some(Errand::Argv(id)) => Some(id),
            _ => None,
        }
    }
}
