//! Helpers of the tests: a running command handler, and child processes.

use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;

use rustix::param::clock_ticks_per_second;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use serde_json::Value;

use super::super::audit::tests::TestHome;
use super::super::*;
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{Missing, Process, ProcessFacts, ProcessLoad, State};

/// The longest wait for an expected event.
pub(in crate::agent::actions) const DEADLINE: Duration = Duration::from_secs(20);

/// A running command handler, with its input and output.
pub(in crate::agent::actions) struct TestHandler {
    lines: Option<OwnedFd>,
    targets: CommandTargets,
    replies: Receiver<Reply>,
    pub(in crate::agent::actions) woken: Receiver<AgentEvent>,
    thread: Option<thread::JoinHandle<()>>,
    home: TestHome,
}

impl TestHandler {
    pub(in crate::agent::actions) fn new() -> Self {
        Self::with(false, || ())
    }

    pub(in crate::agent::actions) fn readonly() -> Self {
        Self::with(true, || ())
    }

    /// Returns a handler that runs as the user nobody. Only root can create it.
    pub(in crate::agent::actions) fn without_permissions() -> Self {
        let nobody = Uid::from_raw(65_534);
        let handler = Self::with(false, move || {
            set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        });
        std::os::unix::fs::chown(handler.home.path(), Some(nobody.as_raw()), None)
            .expect("root may");
        handler
    }

    fn with(readonly: bool, prepare: impl FnOnce() + Send + 'static) -> Self {
        // The child process of another test must not inherit the pipe.
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (wake, woken) = mpsc::channel();
        let (sender, replies) = mpsc::channel();
        let targets = CommandTargets::default();
        let replies_to: ReplySender = Arc::new(move |reply| {
            // The test may be over.
            let _over: Result<(), mpsc::SendError<Reply>> = sender.send(reply);
        });
        let home = TestHome::new();
        let audit = Audit::new(Some(home.path().join("gputop")), replies_to.clone());
        let mut handler =
            CommandHandler::new(targets.clone(), wake, replies_to, Some(audit), readonly);
        // Other tests may keep all cores busy for seconds.
        handler.longest_stop = DEADLINE;
        let thread = thread::spawn(move || {
            prepare();
            handler.run(Vec::new(), CommandReader::new(reader.as_fd()));
            handler.audit.expect("the test gave a log").finish(DEADLINE);
        });
        Self {
            lines: Some(writer),
            targets,
            replies,
            woken,
            thread: Some(thread),
            home,
        }
    }

    pub(in crate::agent::actions) fn send(&self, command: &Command) {
        let mut line = Vec::new();
        command.write(&mut line).expect("a line");
        rustix::io::write(self.lines.as_ref().expect("it is open"), &line)
            .expect("the handler reads");
    }

    /// Makes a process a target of commands, as the main loop does.
    pub(in crate::agent::actions) fn list(&self, process: ProcessId, identity: Identity) {
        self.list_all(&[process], identity);
    }

    pub(in crate::agent::actions) fn list_all(&self, processes: &[ProcessId], identity: Identity) {
        let facts = Arc::new(ProcessFacts::missing(identity, Missing::NotYet));
        let load = ProcessLoad::missing(Missing::NotYet);
        let all = processes.iter().map(|id| Process {
            id: *id,
            facts: facts.clone(),
            load: load.clone(),
            allocator: None,
            probe: None,
            bytes_read: None,
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|process| process.id);
        self.targets.set(&all);
    }

    #[track_caller]
    pub(in crate::agent::actions) fn reply(&self) -> Reply {
        self.replies.recv_timeout(DEADLINE).expect("a reply")
    }

    /// Returns the next outcome of a process, and skips those of others.
    #[track_caller]
    pub(in crate::agent::actions) fn next_outcome_of(&self, process: ProcessId) -> Outcome {
        let mut replies = std::iter::from_fn(|| Some(self.reply()));
        replies
            .find(|reply| reply.process == process)
            .expect("they never end")
            .outcome
    }

    #[track_caller]
    pub(in crate::agent::actions) fn next_outcome(&self) -> Outcome {
        self.reply().outcome
    }

    #[track_caller]
    pub(in crate::agent::actions) fn hold(&self, process: ProcessId) -> Outcome {
        self.send(&Command::Hold { process });
        self.next_outcome_of(process)
    }

    #[track_caller]
    pub(in crate::agent::actions) fn signal(&self, process: ProcessId, signal: Signal) -> Outcome {
        self.send(&Command::Signal { process, signal });
        self.next_outcome_of(process)
    }

    #[track_caller]
    pub(in crate::agent::actions) fn expect_refusal(&self, process: ProcessId, because: &str) {
        match self.hold(process) {
            Outcome::Refused { reason } => assert!(reason.as_str().contains(because), "{reason}"),
            other => panic!("not refused: {other:?}"),
        }
        match self.signal(process, Signal::Kill) {
            Outcome::Refused { .. } => (),
            other => panic!("signalled all the same: {other:?}"),
        }
    }

    /// Expects that the process ends. Before its parent reaps it, the process may be reported as a
    /// zombie.
    #[track_caller]
    pub(in crate::agent::actions) fn expect_end(&self) {
        match self.next_outcome() {
            Outcome::Zombie { .. } => self.expect_end(),
            outcome => assert!(matches!(outcome, Outcome::Ended { .. }), "{outcome:?}"),
        }
    }

    #[track_caller]
    pub(in crate::agent::actions) fn expect_scan(&self) {
        assert!(matches!(
            self.woken.recv_timeout(DEADLINE),
            Ok(AgentEvent::Scan)
        ));
    }
}

impl TestHandler {
    /// Closes the input, and waits for the handler to end.
    fn close(&mut self) {
        drop(self.lines.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                thread::panicking() || ended.is_ok(),
                "the handler ends without a panic when the input closes"
            );
        }
    }

    /// Closes the input, and returns the lines of the audit log: the PID, and the mode or the
    /// outcome.
    pub(in crate::agent::actions) fn audit(mut self) -> Vec<(u64, String)> {
        self.close();
        let lines = self.home.lines();
        let pid_of = |id: &Value| {
            lines
                .iter()
                .find(|line| line["id"] == *id)
                .and_then(|line| line["pid"].as_u64())
        };
        let word = |line: &Value| {
            line["mode"]
                .as_str()
                .or(line["outcome"].as_str())
                .expect("one of them")
                .to_owned()
        };
        lines
            .iter()
            .map(|line| (pid_of(&line["id"]).expect("an act comes first"), word(line)))
            .collect()
    }
}

impl Drop for TestHandler {
    fn drop(&mut self) {
        self.close();
    }
}

/// A child process that is killed and reaped at the end of its test.
pub(in crate::agent::actions) struct Sleeper(pub(in crate::agent::actions) Child);

impl Sleeper {
    pub(in crate::agent::actions) fn start() -> Self {
        Self::spawn("sleep", &["1000"])
    }

    pub(in crate::agent::actions) fn spawn(program: &str, arguments: &[&str]) -> Self {
        let mut command = std::process::Command::new(program);
        Self(
            command
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts"),
        )
    }

    /// Waits for the next clock tick, after which no process can start with the same start ticks.
    pub(in crate::agent::actions) fn wait_a_tick(self) -> Self {
        while Some(now_in_ticks()) <= self.id().start_ticks {
            let a_millisecond = Timespec {
                tv_sec: 0,
                tv_nsec: 1_000_000,
            };
            poll(&mut [], Some(&a_millisecond)).expect("it waits for nothing");
        }
        self
    }

    pub(in crate::agent::actions) fn id(&self) -> ProcessId {
        id_of(self.0.id())
    }

    pub(in crate::agent::actions) fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // The child process may have ended already.
        let _ended: io::Result<()> = self.0.kill();
        let _status = self.0.wait();
    }
}

pub(in crate::agent::actions) fn now_in_ticks() -> u64 {
    clock::now().0 * clock_ticks_per_second() / 1000
}

pub(in crate::agent::actions) fn id_of(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: Some(
            stat::read_process(pid, &mut Vec::new())
                .expect("the process is alive")
                .start_ticks,
        ),
    }
}

#[track_caller]
pub(in crate::agent::actions) fn wait_for_state(process: ProcessId, state: State) {
    let deadline = clock::now().after(DEADLINE);
    while stat::read_process(process.pid, &mut Vec::new())
        .expect("it is not reaped")
        .state
        != state
    {
        assert!(
            clock::now() < deadline,
            "{process:?} does not come to be {state:?}"
        );
        thread::park_timeout(Duration::from_millis(2));
    }
}
