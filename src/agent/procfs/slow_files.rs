//! Reads, on separate threads, what can hang: arguments and environment, which need the mmap lock of the process, and names
//! of users, which may come from a server.
//!
//! A thread that hangs is abandoned. The value that it was reading counts as failed until the thread returns.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use uzers::get_user_by_uid;

use super::origin::Environment;
use super::{files, stat};
use crate::agent::worker::{Received, Worker, WorkerMessage, WorkerThread};
use crate::agent::{AgentEvent, clock, secrets};
use crate::base::text::{Argv, Text};
use crate::base::units::Moment;
use crate::protocol::snapshot::{Missing, ProcessId, Reading};

/// A read that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(2);

/// The most of an environment that is read, in bytes. Before Linux 2.6.23 no environment was longer.
const MOST_ENVIRONMENT: u64 = 128 << 10;

/// The facts about one process that are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) struct SlowFacts {
    pub(super) argv: Reading<Argv>,
    /// The variables of the environment that gputop uses.
    pub(super) environment: Reading<Environment>,
    /// The PID that the process was started to serve. Missing when none is named, or in another PID namespace.
    pub(super) served: Reading<u32>,
}

impl SlowFacts {
    pub(super) fn missing(why: Missing) -> Self {
        Self { argv: Err(why), environment: Err(why), served: Err(why) }
    }
}

#[derive(Debug)]
pub(in crate::agent) enum SlowFilesMessage {
    Process(WorkerMessage<(ProcessId, SlowFacts)>),
    User(WorkerMessage<(u32, Text)>),
}

/// A queue of things to read, and the thread that reads them one after the other.
pub(super) struct ReadQueue<Key, Value> {
    worker: Worker<Key, Key, (Key, Value)>,
    read: fn(Key) -> Value,
    waiting: VecDeque<Key>,
    is_reading: bool,
}

impl<Key: Copy + PartialEq + Send + 'static, Value: 'static> ReadQueue<Key, Value> {
    fn new(
        name: &'static str,
        read: fn(Key) -> Value,
        deliver: impl Fn(WorkerMessage<(Key, Value)>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { worker: Worker::new(name, |_| DEADLINE, deliver), read, waiting: VecDeque::new(), is_reading: false }
    }

    pub(super) fn push(&mut self, key: Key) {
        if !self.waiting.contains(&key) {
            self.waiting.push_back(key);
        }
        self.read_next();
    }

    fn read_next(&mut self) {
        let Some(key) = self.waiting.front().copied().filter(|_| !self.is_reading) else { return };
        let read = self.read;
        if !self.worker.is_running() && !self.worker.is_exhausted() {
            // Without a thread, the facts stay as they are: not read yet.
            let _failed = self.worker.start(move |thread| read_all(&thread, read));
        }
        if self.worker.send(key) {
            self.waiting.pop_front();
            self.is_reading = true;
        }
    }

    /// Abandons the thread if it hangs, and returns the key that the thread was reading.
    fn abandon_overdue(&mut self, now: Moment) -> Option<Key> {
        let (key, _) = self.worker.abandon_overdue(now)?;
        self.is_reading = false;
        self.read_next();
        Some(key)
    }

    pub(super) fn receive(&mut self, message: WorkerMessage<(Key, Value)>) -> Option<(Key, Value)> {
        match self.worker.receive(message) {
            Received::Output(output) => {
                self.is_reading = false;
                self.read_next();
                Some(output)
            }
            Received::Late => None,
            // The hung read has returned, so it can be repeated.
            Received::CameBack(key) => {
                self.push(key);
                None
            }
        }
    }
}

fn read_all<Key: Copy, Value>(thread: &WorkerThread<Key, Key, (Key, Value)>, read: fn(Key) -> Value) {
    while let Ok(key) = thread.requests.recv() {
        if !thread.progress.begin(key, clock::now()) {
            return;
        }
        let value = read(key);
        if !thread.progress.end() || !thread.deliver((key, value)) {
            return;
        }
    }
}

pub(super) struct SlowFiles {
    pub(super) processes: ReadQueue<ProcessId, SlowFacts>,
    users: ReadQueue<u32, Text>,
    /// By user ID. `None` while a name is being looked up.
    user_names: HashMap<u32, Option<Text>>,
}

impl SlowFiles {
    pub(super) fn new(events: mpsc::Sender<AgentEvent>) -> Self {
        let wake = events.clone();
        let deliver = move |message| wake.send(AgentEvent::SlowFile(SlowFilesMessage::Process(message))).is_ok();
        let deliver_user = move |message| events.send(AgentEvent::SlowFile(SlowFilesMessage::User(message))).is_ok();
        Self {
            processes: ReadQueue::new("argv", read_process, deliver),
            users: ReadQueue::new("users", user_name, deliver_user),
            user_names: HashMap::new(),
        }
    }

    /// Returns the name of a user. `None` while it is being looked up.
    pub(super) fn user_name(&mut self, uid: u32) -> Option<Text> {
        self.user_names
            .entry(uid)
            .or_insert_with(|| {
                self.users.push(uid);
                None
            })
            .clone()
    }

    pub(super) fn receive_user(&mut self, message: WorkerMessage<(u32, Text)>) -> Option<(u32, Text)> {
        let (uid, name) = self.users.receive(message)?;
        self.user_names.insert(uid, Some(name.clone()));
        Some((uid, name))
    }

    /// Abandons threads that hang. Returns the process whose arguments could not be read, if any.
    pub(super) fn abandon_overdue(&mut self, now: Moment) -> Option<ProcessId> {
        if let Some(uid) = self.users.abandon_overdue(now) {
            // A user whose name cannot be looked up is shown by number.
            self.user_names.insert(uid, Some(uid.to_string().into()));
        }
        self.processes.abandon_overdue(now)
    }
}

fn user_name(uid: u32) -> Text {
    let user = get_user_by_uid(uid);
    user.map_or_else(|| uid.to_string().into(), |user| Text::new(user.name().as_encoded_bytes()))
}

/// Reads the arguments and environment, and makes sure that they are not those of a later process with the same PID.
fn read_process(id: ProcessId) -> SlowFacts {
    let (argv, environment) = (argv(id.pid), environment(id.pid));
    let served = argv.as_ref().map_err(|why| *why).and_then(|argv| served(id.pid, argv, &environment));
    if stat::start_ticks(id.pid) == id.start_ticks {
        SlowFacts { argv, environment, served }
    } else {
        // The process has ended meanwhile.
        SlowFacts::missing(Missing::NotYet)
    }
}

/// Returns the PID that a compile worker of PyTorch or the kernel of a notebook was started to serve. The same words in the
/// arguments or environment of another program may mean anything.
fn served(pid: u32, argv: &Argv, environment: &Reading<Environment>) -> Reading<u32> {
    let has_word = |part: &str| argv.iter().any(|word| word.contains(part));
    let served = if has_word("torch/_inductor/compile_worker") {
        argv.iter().find_map(|word| word.strip_prefix("--parent=")?.parse().ok())
    } else if has_word("ipykernel") {
        environment.as_ref().map_err(|why| *why)?.notebook_server
    } else {
        None
    };
    let served = served.ok_or(Missing::Unsupported)?;
    let namespace = |directory: &str| fs::read_link(format!("/proc/{directory}/ns/pid")).map_err(|_| Missing::Denied);
    if namespace(&pid.to_string())? == namespace("self")? { Ok(served) } else { Err(Missing::Unsupported) }
}

/// Reads the arguments, up to [`Text::LIMIT`] bytes, and masks the secrets in them.
fn argv(pid: u32) -> Reading<Argv> {
    let mut buffer = [0; Text::LIMIT];
    let line = files::open(pid, "cmdline").and_then(|file| files::read(file, &mut buffer)).map_err(files::missing)?;
    let argv = line.strip_suffix(&[0]).unwrap_or(line);
    // A kernel thread and a zombie have no arguments.
    Ok(if argv.is_empty() { Argv::default() } else { secrets::mask_argv(argv.split(|byte| *byte == 0).map(Text::new)) })
}

fn environment(pid: u32) -> Reading<Environment> {
    let mut environ = Vec::new();
    let read = files::open(pid, "environ").and_then(|file| {
        // One read returns at most a page.
        let read = File::from(file).take(MOST_ENVIRONMENT).read_to_end(&mut environ);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    match read {
        // A zombie has no environment.
        Ok(_) | Err(Errno::SRCH) => Ok(Environment::parse(&environ)),
        Err(error) => Err(files::missing(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_hangs_does_not_delay_the_others_for_longer_than_the_deadline() {
        let (sender, messages) = mpsc::channel();
        let mut queue = ReadQueue::new("test", |key: u32| key * 2, move |message| sender.send(message).is_ok());
        queue.worker.pretend(1, Moment(0));
        queue.is_reading = true;
        queue.push(2);
        assert_eq!(queue.abandon_overdue(Moment(1999)), None);
        assert_eq!(queue.abandon_overdue(Moment(2000)), Some(1));
        let message = messages.recv().unwrap();
        assert_eq!(queue.receive(message), Some((2, 4)));
    }
}
