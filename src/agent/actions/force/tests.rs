//! Tests that end whole jobs of real processes by force.

mod frozen;

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::process::{Pid, kill_process};

use self::frozen::FrozenFileSystem;
use super::super::tests::{DEADLINE, Sleeper, TestHandler, id_of, wait_for_state};
use super::*;
use crate::agent::procfs::stat;
use crate::protocol::command::Command;
use crate::protocol::reply::Reply;
use crate::protocol::snapshot::Identity;

/// The name of the environment variable that marks all processes of a tree.
const MARK: &str = "GPUTOP_TEST_TREE";

/// A root process and its descendants, killed at the end of the test.
struct TestTree {
    root: Child,
    mark: String,
}

impl TestTree {
    /// Starts a shell that runs this script.
    fn start(script: &str) -> Self {
        Self::started("sh", &["-c", script])
    }

    fn started(program: &str, arguments: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!(
            "{MARK}={}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let (name, value) = mark.split_once('=').expect("there is one");
        let mut command = Program::new(program);
        command
            .args(arguments)
            .env(name, value)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Self {
            root: command.spawn().expect("it starts"),
            mark,
        }
    }

    /// Waits for the line `ready`.
    fn ready(mut self) -> Self {
        let line = BufReader::new(self.root.stdout.take().expect("it is piped"))
            .lines()
            .next();
        assert_eq!(
            line.expect("it says something").expect("it is text"),
            "ready"
        );
        self
    }

    /// Waits until the tree has at least this many processes.
    fn wait_for_members(self, count: usize) -> Self {
        wait_until(|| self.members().len() >= count, "it does not grow");
        self
    }

    fn root(&self) -> ProcessId {
        id_of(self.root.id())
    }

    /// Returns the living processes of the tree.
    fn members(&self) -> Vec<ProcessId> {
        let pids = fs::read_dir("/proc")
            .expect("there is one")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let has_mark = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ"));
            environment.is_ok_and(|all| {
                all.split(|byte| *byte == 0)
                    .any(|variable| variable == self.mark.as_bytes())
            })
        };
        let ids = pids.filter(has_mark).filter_map(|pid| {
            let start_ticks = Some(stat::read_process(pid, &mut Vec::new()).ok()?.start_ticks);
            Some(ProcessId { pid, start_ticks })
        });
        ids.collect()
    }

    fn children_of(&self, parent: ProcessId) -> Vec<ProcessId> {
        let mut members = self.members();
        members.retain(|member| {
            stat::read_process(member.pid, &mut Vec::new())
                .is_ok_and(|stat| stat.parent == parent.pid)
        });
        members
    }
}

impl Drop for TestTree {
    fn drop(&mut self) {
        // The next scan finds processes that start meanwhile.
        while let members = self.members()
            && !members.is_empty()
        {
            for pid in members
                .iter()
                .filter_map(|member| Pid::from_raw(i32::try_from(member.pid).ok()?))
            {
                let _ended = kill_process(pid, Number::KILL);
            }
            // The root is a member until it is reaped.
            let _status = self.root.try_wait();
        }
        let _status = self.root.wait();
    }
}

#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool, complaint: &str) {
    let deadline = clock::now().after(DEADLINE);
    while !condition() {
        assert!(clock::now() < deadline, "{complaint}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

fn say(word: &str) {
    let _closed = writeln!(io::stderr(), "{word}");
}

/// Whether a program is installed.
fn has(program: &str) -> bool {
    let status = Program::new(program)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let has = status.is_ok_and(|status| status.success());
    if !has {
        say(&format!("skipped: there is no {program}"));
    }
    has
}

fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        say("skipped: only root can do this");
    }
    is
}

impl TestHandler {
    #[track_caller]
    fn hold_all(&self, processes: &[ProcessId]) {
        self.list_all(processes, Identity::Sure);
        for process in processes {
            let outcome = self.hold(*process);
            assert!(matches!(outcome, Outcome::Held { .. }), "{outcome:?}");
        }
    }

    fn force(&self, processes: &[ProcessId]) {
        self.send(&Command::Force {
            processes: processes.to_vec(),
        });
    }

    /// Returns the replies until at least `count` processes were signalled and all of these have
    /// ended.
    #[track_caller]
    fn replies_until_all_ended(&self, count: usize) -> Vec<Reply> {
        let mut replies: Vec<Reply> = Vec::new();
        let (mut sent, mut ended) = (BTreeSet::new(), BTreeSet::new());
        while sent.len() < count || ended != sent {
            let reply = self.reply();
            match reply.outcome {
                Outcome::Sent {
                    signal: Signal::Kill,
                    ..
                } => assert!(sent.insert(reply.process), "twice: {reply:?}"),
                Outcome::Ended { .. } | Outcome::Zombie { .. } => {
                    ended.insert(reply.process);
                }
                Outcome::Joined { .. } | Outcome::Alive { .. } => (),
                _ => panic!("{reply:?}"),
            }
            replies.push(reply);
        }
        replies
    }
}

/// Ends the job of which the user saw these processes, and checks that no process of it is left.
#[track_caller]
fn end_whole_job(tree: &TestTree, shown: &[ProcessId]) -> Vec<Reply> {
    let (handler, mut stranger) = (TestHandler::new(), Sleeper::start());
    handler.hold_all(shown);
    handler.force(shown);
    let replies = handler.replies_until_all_ended(shown.len());
    let log = handler.audit();
    for process in killed(&replies) {
        let mode = if shown.contains(&process) {
            "job"
        } else {
            "joined"
        };
        assert!(
            log.contains(&(process.pid.into(), mode.to_owned())),
            "{process:?} as {mode}: {log:?}"
        );
    }
    wait_until(|| tree.members().is_empty(), "there are survivors");
    assert!(stranger.is_alive());
    replies
}

fn joined(replies: &[Reply]) -> Vec<(ProcessId, ProcessId)> {
    let joined = replies.iter().filter_map(|reply| match reply.outcome {
        Outcome::Joined { parent, .. } => Some((reply.process, parent)),
        _ => None,
    });
    joined.collect()
}

/// Returns the killed processes in order.
fn killed(replies: &[Reply]) -> Vec<ProcessId> {
    replies
        .iter()
        .filter(|reply| matches!(reply.outcome, Outcome::Sent { .. }))
        .map(|reply| reply.process)
        .collect()
}

#[test]
fn a_supervisor_that_restarts_its_child_ends_with_it() {
    let tree = TestTree::start("while :; do sleep 1000; done").wait_for_members(2);
    let root = tree.root();
    let child = tree.children_of(root)[0];
    let replies = end_whole_job(&tree, &[root, child]);
    assert_eq!(killed(&replies), [child, root]);
    assert_eq!(joined(&replies), []);
}

#[test]
fn a_supervisor_of_many_restarts_none_of_them() {
    const PROGRAM: &str = "import os, subprocess\n\
        for _ in range(40): subprocess.Popen(['sleep', '1000'])\n\
        print('ready', flush=True)\n\
        while os.wait(): subprocess.Popen(['sleep', '1000'])";
    if has("python3") {
        // The line is printed when the last child is about to run: for a moment, that child has no
        // environment yet.
        let tree = TestTree::started("python3", &["-c", PROGRAM])
            .ready()
            .wait_for_members(41);
        let shown = tree.members();
        assert_eq!(
            joined(&end_whole_job(&tree, &shown)),
            [],
            "none was restarted"
        );
    }
}

#[test]
fn descendants_join_generation_after_generation() {
    let tree = TestTree::start("sh -c 'sh -c \"sleep 1000; :\"; :'; :").wait_for_members(4);
    let replies = end_whole_job(&tree, &[tree.root()]);
    let order = killed(&replies);
    assert_eq!(order.len(), 4);
    let lineage: Vec<_> = order
        .windows(2)
        .rev()
        .map(|pair| (pair[0], pair[1]))
        .collect();
    assert_eq!(
        joined(&replies),
        lineage,
        "each with its parent, which ends after it"
    );
}

#[test]
fn descendants_in_other_sessions_end() {
    let tree = TestTree::start("setsid sleep 1000 & setsid sleep 1000 & wait").wait_for_members(3);
    assert_eq!(joined(&end_whole_job(&tree, &[tree.root()])).len(), 2);
}

#[test]
fn processes_that_ignore_signals_end() {
    let tree =
        TestTree::start("trap '' TERM INT HUP; while :; do sleep 1000; done").wait_for_members(2);
    end_whole_job(&tree, &[tree.root()]);
}

#[test]
fn a_fork_storm_ends() {
    const STORM: &str = "f() { if [ $1 = 0 ]; then exec sleep 1000; fi; \
        f $(($1 - 1)) & f $(($1 - 1)) & wait; }; echo ready; f 8; :";
    // Everything else is prepared first: otherwise the storm is over when the forced end begins.
    let handler = TestHandler::new();
    let tree = TestTree::start(STORM).ready();
    handler.hold_all(&[tree.root()]);
    handler.force(&[tree.root()]);
    let ended = killed(&handler.replies_until_all_ended(1)).len();
    wait_until(|| tree.members().is_empty(), "there are survivors");
    say(&format!("{ended} of at most 511 processes"));
}

#[test]
fn a_job_at_rest_of_hundreds_ends() {
    let tree =
        TestTree::start("i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i + 1)); done; wait")
            .wait_for_members(301);
    let began = clock::now();
    assert_eq!(joined(&end_whole_job(&tree, &[tree.root()])).len(), 300);
    say(&format!("301 processes: {:?}", clock::now().since(began)));
}

#[test]
fn a_parent_that_does_not_reap_is_named_and_is_not_signalled() {
    let tree = TestTree::start("sleep 1000 & exec sleep 1000").wait_for_members(2);
    let root = tree.root();
    let child = tree.children_of(root)[0];
    let handler = TestHandler::new();
    handler.hold_all(&[child]);
    handler.force(&[child]);
    let replies = handler.replies_until_all_ended(1);
    match replies.last().map(|reply| &reply.outcome) {
        Some(Outcome::Zombie { parent, .. }) => assert_eq!(*parent, root.pid),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        stat::read_process(root.pid, &mut Vec::new())
            .map(|stat| stat.state)
            .ok(),
        Some(State::Sleeping),
        "it was not shown"
    );
}

#[test]
fn a_process_that_was_stopped_before_ends_too() {
    let tree = TestTree::start("sh -c 'kill -STOP $$'; :").wait_for_members(2);
    wait_for_state(tree.children_of(tree.root())[0], State::Stopped);
    end_whole_job(&tree, &[tree.root()]);
}

#[test]
fn if_one_process_is_not_held_none_is_signalled() {
    let (handler, mut one, mut other) = (TestHandler::new(), Sleeper::start(), Sleeper::start());
    handler.hold_all(&[one.id()]);
    handler.force(&[one.id(), other.id()]);
    for (id, because) in [
        (one.id(), "is not held: open"),
        (other.id(), "is not held: open"),
    ] {
        match handler.next_outcome_of(id) {
            Outcome::Refused { reason } => assert!(reason.as_str().contains(because), "{reason}"),
            outcome => panic!("{outcome:?}"),
        }
    }
    assert!(one.is_alive() && other.is_alive());
}

#[test]
fn a_process_that_has_just_ended_does_not_prevent_the_end_of_the_others() {
    let (handler, one, other) = (TestHandler::new(), Sleeper::start(), Sleeper::start());
    let (gone, id) = (one.id(), other.id());
    handler.hold_all(&[gone, id]);
    drop(one);
    while !matches!(handler.next_outcome_of(gone), Outcome::Ended { .. }) {}
    handler.force(&[gone, id]);
    assert_eq!(killed(&handler.replies_until_all_ended(1)), [id]);
}

#[test]
fn if_one_process_may_not_be_ended_all_are_continued() {
    // The first child keeps root's rights when its parent gives them up; the handler has none.
    const PROGRAM: &str = "import os, signal, time\n\
        if os.fork() == 0: time.sleep(1000)\n\
        os.setresuid(65534, 65534, 65534)\n\
        stopped = os.fork()\n\
        if stopped == 0: time.sleep(1000)\n\
        os.kill(stopped, signal.SIGSTOP)\n\
        os.waitpid(stopped, os.WUNTRACED)\n\
        print('ready', flush=True)\n\
        time.sleep(1000)";
    if !is_root() || !has("python3") {
        return;
    }
    let tree = TestTree::started("python3", &["-c", PROGRAM]).ready();
    let (root, handler) = (tree.root(), TestHandler::without_permissions());
    handler.hold_all(&[root]);
    handler.force(&[root]);
    match handler.next_outcome_of(root) {
        Outcome::Resumed { reason } => {
            let reason = reason.as_str();
            assert!(
                reason.starts_with("nothing was ended: no permission to signal"),
                "{reason}"
            );
            assert!(reason.contains("owned by root"), "{reason}");
        }
        outcome => panic!("{outcome:?}"),
    }
    wait_for_state(root, State::Sleeping);
    let children = tree.children_of(root);
    assert_eq!(children.len(), 2);
    let are_states_restored = || {
        let states = children.iter().map(|child| {
            stat::read_process(child.pid, &mut Vec::new())
                .expect("the process is alive")
                .state
        });
        let mut states: Vec<_> = states.collect();
        states.sort_unstable();
        // A continued process runs for a moment before it sleeps again.
        states == [State::Sleeping, State::Stopped]
    };
    wait_until(
        are_states_restored,
        "the one that was stopped before stays so, the other goes on",
    );
    let log = handler.audit();
    assert!(
        log.contains(&(root.pid.into(), "resumed".to_owned())),
        "{log:?}"
    );
}

#[test]
fn a_process_that_hangs_in_the_kernel_is_killed_and_reported_as_alive_until_its_end() {
    let Some(frozen) = is_root().then(FrozenFileSystem::new).flatten() else {
        return say("skipped: no file system can be mounted and frozen here");
    };
    let tree = TestTree::start(&format!(
        "sleep 1000 & echo x > {}/file",
        frozen.place.display()
    ))
    .wait_for_members(2);
    let root = tree.root();
    wait_for_state(root, State::DiskSleep);
    let handler = TestHandler::new();
    handler.hold_all(&[root]);
    handler.force(&[root]);
    loop {
        match handler.next_outcome_of(root) {
            Outcome::Sent {
                signal: Signal::Kill,
                ..
            } => (),
            Outcome::Alive {
                state,
                wchan,
                seconds,
            } => {
                assert_eq!((state, seconds), (State::DiskSleep, 2));
                assert!(wchan.is_some(), "root may know where it waits");
                break;
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(tree.members(), [root], "its child could be ended, and was");
    frozen.thaw();
    assert!(matches!(
        handler.next_outcome_of(root),
        Outcome::Ended { .. } | Outcome::Zombie { .. }
    ));
}
