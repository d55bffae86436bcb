//! Tests of commands with real children.

mod bench;

use std::io::Write;
use std::process::Stdio;

use rustix::process::test_kill_process;

pub(super) use self::bench::{DEADLINE, Sleeper, TestHandler, comes_to, id_of, now_in_ticks};
use super::*;
use crate::protocol::command::Signal;
use crate::protocol::snapshot::State;

#[test]
fn a_held_process_ends_and_the_loop_looks_at_once() {
    let (bench, mut child) = (TestHandler::new(), Sleeper::start().grown());
    bench.sees(child.id(), Identity::Sure);
    assert_eq!(bench.hold(child.id()), Outcome::Held { caution: None });
    assert!(matches!(bench.signal(child.id(), Signal::Term), Outcome::Sent { signal: Signal::Term, .. }));
    let id = child.id();
    child.0.wait().expect("it ends");
    bench.tells_of_its_end();
    bench.asks_for_a_scan();
    bench.is_refused(id, "has already ended");
    let pid = id.pid.into();
    let told: Vec<_> = bench.audit().into_iter().filter(|(_, word)| word != "zombie").collect();
    assert_eq!(told, [(pid, "one".to_owned()), (pid, "ended".to_owned())]);
}

#[test]
fn a_held_process_that_ends_by_itself_is_told_of() {
    let (bench, child) = (TestHandler::new(), Sleeper::start().grown());
    bench.sees(child.id(), Identity::Sure);
    assert_eq!(bench.hold(child.id()), Outcome::Held { caution: None });
    drop(child);
    bench.tells_of_its_end();
    bench.asks_for_a_scan();
}

#[test]
fn a_process_that_its_parent_forgot_is_a_zombie_until_it_is_reaped() {
    let (bench, mut child) = (TestHandler::new(), Sleeper::start().grown());
    let id = child.id();
    bench.sees(id, Identity::Sure);
    assert_eq!(bench.hold(id), Outcome::Held { caution: None });
    assert!(matches!(bench.signal(id, Signal::Kill), Outcome::Sent { .. }));
    let parent = std::process::id();
    let Outcome::Zombie { at, parent: named } = bench.answer() else { panic!("no zombie") };
    assert_eq!(named, parent);
    bench.asks_for_a_scan();
    assert_eq!(bench.signal(id, Signal::Kill), Outcome::Zombie { at, parent }, "a signal changes nothing");
    child.0.wait().expect("it ended");
    assert_eq!(bench.answer(), Outcome::Ended { at });
}

#[test]
fn a_stopped_process_keeps_the_signal_and_is_said_to_live() {
    let (bench, mut child) = (TestHandler::new(), Sleeper::start().grown());
    let id = child.id();
    bench.sees(id, Identity::Sure);
    assert_eq!(bench.hold(id), Outcome::Held { caution: None });
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
    comes_to(id, State::Stopped);
    assert!(matches!(bench.signal(id, Signal::Term), Outcome::Sent { .. }));
    match bench.answer() {
        Outcome::Alive { state, seconds, .. } => assert_eq!((state, seconds), (State::Stopped, 2)),
        other => panic!("{other:?}"),
    }
    assert!(child.lives());
    assert!(matches!(bench.signal(id, Signal::Kill), Outcome::Sent { .. }));
    child.0.wait().expect("it ends");
    bench.tells_of_its_end();
}

#[test]
fn a_dead_leader_with_a_living_thread_has_not_ended() {
    const PROGRAM: &str = "import ctypes, threading, time\n\
        threading.Thread(target=time.sleep, args=(1000,)).start()\n\
        print('ready', flush=True)\n\
        ctypes.CDLL(None).syscall(60, 0)";
    let python = std::process::Command::new("python3").arg("-V").stdout(Stdio::null()).status();
    if !cfg!(target_arch = "x86_64") || !python.is_ok_and(|status| status.success()) {
        let _closed = writeln!(io::stderr(), "skipped: no python3 to make a leader that exits alone");
        return;
    }
    let (bench, mut child) = (TestHandler::new(), Sleeper::of("python3", &["-c", PROGRAM]).grown());
    let id = child.id();
    // A dead leader is a zombie before any thread is.
    let mut ready = [0; 6];
    io::Read::read_exact(child.0.stdout.as_mut().expect("it is piped"), &mut ready).expect("it says so");
    comes_to(id, State::Zombie);
    bench.sees(id, Identity::Sure);
    assert_eq!(bench.hold(id), Outcome::Held { caution: None });
    assert!(matches!(bench.signal(id, Signal::Int), Outcome::Sent { .. }));
    match bench.answer() {
        Outcome::Alive { state, .. } => assert_eq!(state, State::Sleeping, "the thread's"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(bench.signal(id, Signal::Kill), Outcome::Sent { .. }));
    child.0.wait().expect("it ends");
    bench.tells_of_its_end();
}

#[test]
fn whoever_must_not_be_signalled_is_not_held() {
    let (bench, mut child) = (TestHandler::new(), Sleeper::start().grown());
    let id = child.id();
    for pid in [0, 1, u32::MAX, 1 << 31] {
        bench.is_refused(ProcessId { pid, start_ticks: Some(0) }, "not a process to signal");
    }
    bench.is_refused(id_of(std::process::id()), "is gputop itself");
    let parent = std::os::unix::process::parent_id();
    bench.is_refused(id_of(parent), if parent == 1 { "not a process" } else { "is gputop itself" });
    bench.is_refused(ProcessId { start_ticks: None, ..id }, "another PID namespace");
    bench.is_refused(id, "is not listed");
    bench.sees(id, Identity::Unverified);
    bench.is_refused(id, "another PID namespace");
    bench.sees(id, Identity::Fresh);
    bench.is_refused(id, "try again");
    let earlier = ProcessId { start_ticks: id.start_ticks.map(|ticks| ticks - 1), ..id };
    bench.sees(id, Identity::Sure);
    bench.is_refused(earlier, "has already ended");
    // The loop has not noticed yet that the PID went to another.
    bench.sees(earlier, Identity::Sure);
    bench.is_refused(earlier, "has already ended");
    if let Ok(kthreadd) = stat::of(2, &mut Vec::new())
        && kthreadd.is_kernel_thread()
    {
        bench.sees(id_of(2), Identity::Sure);
        bench.is_refused(id_of(2), "thread of the kernel");
    }
    assert!(child.lives());
}

#[test]
fn readonly_means_what_it_says() {
    let (bench, mut child) = (TestHandler::readonly(), Sleeper::start().grown());
    bench.sees(child.id(), Identity::Sure);
    bench.is_refused(child.id(), "--readonly");
    assert!(child.lives());
}

#[test]
fn a_process_of_another_user_is_named_with_its_owner() {
    if !rustix::process::getuid().is_root() {
        let _closed = writeln!(io::stderr(), "skipped: only root can be someone else for a while");
        return;
    }
    let bench = TestHandler::powerless();
    let mut child = Sleeper::start().grown();
    bench.sees(child.id(), Identity::Sure);
    bench.is_refused(child.id(), "(sleep, owned by root): run gputop as root (`sudo gputop`)");
    assert!(child.lives());
}

#[test]
fn what_was_let_go_is_not_signalled() {
    let (bench, mut child) = (TestHandler::new(), Sleeper::start().grown());
    let id = child.id();
    bench.sees(id, Identity::Sure);
    assert_eq!(bench.hold(id), Outcome::Held { caution: None });
    assert_eq!(bench.hold(id), Outcome::Held { caution: None }, "twice is once");
    bench.ask(&Command::Release { process: id });
    match bench.signal(id, Signal::Kill) {
        Outcome::Refused { reason } => assert!(reason.as_str().contains("open the panel again"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(child.lives() && test_kill_process(rustix::process::Pid::from_child(&child.0)).is_ok());
}

#[test]
fn a_person_sees_inside_a_process() {
    let (bench, child) = (TestHandler::new(), Sleeper::start().grown());
    bench.ask(&Command::Inspect { process: child.id() });
    let Outcome::Inspected(found) = bench.answer() else { panic!("not inspected") };
    assert_eq!(found.ancestors.first().map(|(pid, _)| *pid), Some(std::process::id()));
    assert!(found.exe.is_some_and(|exe| exe.as_str().ends_with("sleep") || exe.as_str().contains("coreutils")));
    assert!(found.environment.is_some_and(|all| all.iter().any(|it| it.as_str().starts_with("PATH="))));
    assert!(found.limits.is_some_and(|all| all.iter().any(|(name, ..)| name.as_str() == "Max open files")));
    assert!(found.files.is_some_and(|all| all.iter().any(|(number, it)| *number == 0 && it.as_str() == "/dev/null")));
    assert!(found.pss.is_some_and(|pss| pss.0 > 0) && found.cwd.is_some() && found.trouble.is_none());
    let stranger = ProcessId { start_ticks: Some(1), ..child.id() };
    bench.ask(&Command::Inspect { process: stranger });
    assert!(matches!(bench.answer(), Outcome::NotInspected { .. }));
}

#[test]
fn the_interval_stays_within_reason() {
    let bench = TestHandler::new();
    for (asked, given) in [(0, SHORTEST_INTERVAL), (2000, Duration::from_secs(2)), (u64::MAX, LONGEST_INTERVAL)] {
        bench.ask(&Command::Interval { milliseconds: asked });
        let woken = bench.woken.recv_timeout(DEADLINE);
        assert!(matches!(woken, Ok(AgentEvent::Interval(interval)) if interval == given), "{asked} ms");
    }
    bench.ask(&Command::Scan);
    bench.asks_for_a_scan();
}
