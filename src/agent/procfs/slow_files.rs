//! Reads, on separate threads, what can hang: arguments and environment, which need the mmap lock
//! of the process, and names of users, which may come from a server; and the bytes that a process
//! has read, which need the lock that an exec holds; and the libraries of a process.
//!
//! A [`ReadPool`] of threads reads each kind, so that a read that hangs delays no other.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use uzers::get_user_by_uid;

use super::monitors::is_monitor;
use super::origin::Environment;
use super::read_pool::{Answer, Priority, ReadPool};
use super::{files, stat};
use crate::agent::{AgentEvent, clock};
use crate::base::secrets;
use crate::base::text::{Argv, Text};
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{Missing, ProcessId, Reading};

/// How long the other processes wait for a read. A read takes less than a millisecond when nothing
/// is wrong.
const PATIENCE: Duration = Duration::from_millis(50);

/// The same for user names, which may come from a server.
const USER_PATIENCE: Duration = Duration::from_secs(2);

/// The most of an environment that is read, in bytes. Before Linux 2.6.23 no environment was
/// longer.
const MOST_ENVIRONMENT: u64 = 128 << 10;

/// The facts about one process that are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) struct SlowFacts {
    pub(super) argv: Reading<Argv>,
    /// The variables of the environment that gputop uses.
    pub(super) environment: Reading<Environment>,
    /// The PID that the process was started to serve. Missing when none is named, or in another PID
    /// namespace.
    pub(super) served: Reading<u32>,
    /// Whether the arguments or the environment were empty, as they are for a moment during an exec.
    pub(super) is_empty: bool,
}

impl SlowFacts {
    pub(super) fn missing(why: Missing) -> Self {
        Self {
            argv: Err(why),
            environment: Err(why),
            served: Err(why),
            is_empty: false,
        }
    }
}

#[derive(Debug)]
pub(in crate::agent) enum SlowFilesMessage {
    Process(Answer<ProcessId, SlowFacts>),
    User(Answer<u32, Text>),
    BytesRead(Answer<ProcessId, Option<Bytes>>),
    Monitor(Answer<ProcessId, bool>),
}

pub(super) struct SlowFiles {
    pub(super) processes: ReadPool<ProcessId, SlowFacts>,
    users: ReadPool<u32, Text>,
    pub(super) bytes_read: ReadPool<ProcessId, Option<Bytes>>,
    /// Whether a process is a monitor.
    pub(super) monitors: ReadPool<ProcessId, bool>,
    /// By user ID. `None` while a name is being looked up.
    user_names: HashMap<u32, Option<Text>>,
}

impl SlowFiles {
    pub(super) fn new(events: mpsc::Sender<AgentEvent>) -> Self {
        let (wake, wake_for_bytes) = (events.clone(), events.clone());
        let wake_for_monitors = events.clone();
        let deliver = move |answer| {
            wake.send(AgentEvent::SlowFile(SlowFilesMessage::Process(answer)))
                .is_ok()
        };
        let deliver_bytes = move |answer| {
            wake_for_bytes
                .send(AgentEvent::SlowFile(SlowFilesMessage::BytesRead(answer)))
                .is_ok()
        };
        let deliver_monitor = move |answer| {
            wake_for_monitors
                .send(AgentEvent::SlowFile(SlowFilesMessage::Monitor(answer)))
                .is_ok()
        };
        let deliver_user = move |answer| {
            events
                .send(AgentEvent::SlowFile(SlowFilesMessage::User(answer)))
                .is_ok()
        };
        Self {
            processes: ReadPool::new("argv", PATIENCE, read_process, deliver),
            users: ReadPool::new("users", USER_PATIENCE, user_name, deliver_user),
            bytes_read: ReadPool::new("bytes read", PATIENCE, read_bytes, deliver_bytes),
            monitors: ReadPool::new("monitors", PATIENCE, is_monitor, deliver_monitor),
            user_names: HashMap::new(),
        }
    }

    /// Returns the name of a user. `None` while it is being looked up.
    pub(super) fn user_name(&mut self, uid: u32) -> Option<Text> {
        self.user_names
            .entry(uid)
            .or_insert_with(|| {
                self.users.push(uid, Priority::Normal, clock::now());
                None
            })
            .clone()
    }

    pub(super) fn receive_user(&mut self, answer: Answer<u32, Text>) -> (u32, Text) {
        let (uid, name) = self.users.receive(answer, clock::now());
        self.user_names.insert(uid, Some(name.clone()));
        (uid, name)
    }

    /// When to call [`Self::read_waiting`] although nothing else happens. `None` if nothing waits
    /// behind a slow read.
    pub(super) fn deadline(&self, now: Moment) -> Option<Moment> {
        let deadlines = [
            self.processes.deadline(now),
            self.users.deadline(now),
            self.bytes_read.deadline(now),
            self.monitors.deadline(now),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Reads what waits behind slow reads.
    pub(super) fn read_waiting(&mut self, now: Moment) {
        self.processes.read_waiting(now);
        self.users.read_waiting(now);
        self.bytes_read.read_waiting(now);
        self.monitors.read_waiting(now);
        for uid in self.users.slower_than(USER_PATIENCE, now) {
            // A user whose name cannot be looked up is shown by number until the name comes.
            self.user_names.insert(uid, Some(uid.to_string().into()));
        }
    }
}

fn user_name(uid: u32) -> Text {
    let user = get_user_by_uid(uid);
    user.map_or_else(
        || uid.to_string().into(),
        |user| Text::new(user.name().as_encoded_bytes()),
    )
}

/// Reads how much a process has read, and makes sure that it is not a later process with the same
/// PID.
fn read_bytes(id: ProcessId) -> Option<Bytes> {
    files::bytes_read(id.pid).filter(|_| stat::start_ticks(id.pid) == id.start_ticks)
}

/// Reads the arguments and environment, and makes sure that they are not those of a later process
/// with the same PID.
fn read_process(id: ProcessId) -> SlowFacts {
    let (argv, (environment, has_variables)) = (argv(id.pid), environment(id.pid));
    let has_words = argv.as_ref().map_or(true, |argv| !argv.is_empty());
    let served = argv
        .as_ref()
        .map_err(|why| *why)
        .and_then(|argv| served(id.pid, argv, &environment));
    if stat::start_ticks(id.pid) == id.start_ticks {
        SlowFacts {
            argv,
            environment,
            served,
            is_empty: !has_words || !has_variables,
        }
    } else {
        // The process has ended meanwhile.
        SlowFacts::missing(Missing::NotYet)
    }
}

/// Returns the PID that a compile worker of PyTorch or the kernel of a notebook was started to
/// serve. The same words in the arguments or environment of another program may mean anything.
fn served(pid: u32, argv: &Argv, environment: &Reading<Environment>) -> Reading<u32> {
    let has_word = |part: &str| argv.iter().any(|word| word.contains(part));
    let served = if has_word("torch/_inductor/compile_worker") {
        argv.iter()
            .find_map(|word| word.strip_prefix("--parent=")?.parse().ok())
    } else if has_word("ipykernel") {
        environment.as_ref().map_err(|why| *why)?.notebook_server
    } else {
        None
    };
    let served = served.ok_or(Missing::Unsupported)?;
    let namespace = |directory: &str| {
        fs::read_link(format!("/proc/{directory}/ns/pid")).map_err(|_| Missing::Denied)
    };
    if namespace(&pid.to_string())? == namespace("self")? {
        Ok(served)
    } else {
        Err(Missing::Unsupported)
    }
}

/// Reads the arguments, and masks the secrets in them.
fn argv(pid: u32) -> Reading<Argv> {
    Ok(secrets::mask_argv(arguments(pid)?.into_iter()))
}

/// Reads the arguments with their secrets, up to [`Text::LIMIT`] bytes.
pub(super) fn arguments(pid: u32) -> Reading<Vec<Text>> {
    let mut buffer = [0; Text::LIMIT];
    let line = files::open(pid, "cmdline")
        .and_then(|file| files::read(file, &mut buffer))
        .map_err(files::missing)?;
    let argv = line.strip_suffix(&[0]).unwrap_or(line);
    // A kernel thread and a zombie have no arguments.
    Ok(if argv.is_empty() {
        Vec::new()
    } else {
        argv.split(|byte| *byte == 0).map(Text::new).collect()
    })
}

/// Reads the environment. Returns whether it has variables, too; true if it could not be read.
fn environment(pid: u32) -> (Reading<Environment>, bool) {
    let mut environ = Vec::new();
    let read = files::open(pid, "environ").and_then(|file| {
        // One read returns at most a page.
        let read = File::from(file)
            .take(MOST_ENVIRONMENT)
            .read_to_end(&mut environ);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    match read {
        // A zombie has no environment.
        Ok(_) | Err(Errno::SRCH) => (Ok(Environment::parse(&environ, pid)), !environ.is_empty()),
        Err(error) => (Err(files::missing(error)), true),
    }
}
