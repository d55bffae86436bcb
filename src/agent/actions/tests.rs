//! Tests of commands with real child processes.

mod bench;

use std::io::Write;
use std::process::Stdio;

use rustix::process::test_kill_process;

pub(super) use self::bench::{DEADLINE, Sleeper, TestHandler, id_of, now_in_ticks, wait_for_state};
use super::*;
use crate::protocol::command::Signal;
use crate::protocol::snapshot::State;

#[test]
fn the_end_of_a_signalled_process_starts_a_scan() {
    let (handler, mut child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    handler.list(child.id(), Identity::Sure);
    assert_eq!(handler.hold(child.id()), Outcome::Held { caution: None });
    assert!(matches!(
        handler.signal(child.id(), Signal::Term),
        Outcome::Sent {
            signal: Signal::Term,
            ..
        }
    ));
    let id = child.id();
    child.0.wait().expect("it ends");
    handler.expect_end();
    handler.expect_scan();
    handler.expect_refusal(id, "has already ended");
    let pid = id.pid.into();
    let events: Vec<_> = handler
        .audit()
        .into_iter()
        .filter(|(_, word)| word != "zombie")
        .collect();
    assert_eq!(events, [(pid, "one".to_owned()), (pid, "ended".to_owned())]);
}

#[test]
fn the_end_of_a_held_process_is_reported_without_a_signal() {
    let (handler, child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    handler.list(child.id(), Identity::Sure);
    assert_eq!(handler.hold(child.id()), Outcome::Held { caution: None });
    drop(child);
    handler.expect_end();
    handler.expect_scan();
}

#[test]
fn an_ended_process_is_a_zombie_until_its_parent_reaps_it() {
    let (handler, mut child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    let id = child.id();
    handler.list(id, Identity::Sure);
    assert_eq!(handler.hold(id), Outcome::Held { caution: None });
    assert!(matches!(
        handler.signal(id, Signal::Kill),
        Outcome::Sent { .. }
    ));
    let parent = std::process::id();
    let Outcome::Zombie { at, parent: named } = handler.next_outcome() else {
        panic!("no zombie")
    };
    assert_eq!(named, parent);
    handler.expect_scan();
    assert_eq!(
        handler.signal(id, Signal::Kill),
        Outcome::Zombie { at, parent },
        "a signal changes nothing"
    );
    child.0.wait().expect("it ended");
    assert_eq!(handler.next_outcome(), Outcome::Ended { at });
}

#[test]
fn a_stopped_process_keeps_the_signal_and_is_reported_as_alive() {
    let (handler, mut child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    let id = child.id();
    handler.list(id, Identity::Sure);
    assert_eq!(handler.hold(id), Outcome::Held { caution: None });
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
    wait_for_state(id, State::Stopped);
    assert!(matches!(
        handler.signal(id, Signal::Term),
        Outcome::Sent { .. }
    ));
    match handler.next_outcome() {
        Outcome::Alive { state, seconds, .. } => assert_eq!((state, seconds), (State::Stopped, 2)),
        other => panic!("{other:?}"),
    }
    assert!(child.is_alive());
    assert!(matches!(
        handler.signal(id, Signal::Kill),
        Outcome::Sent { .. }
    ));
    child.0.wait().expect("it ends");
    handler.expect_end();
}

#[test]
fn a_dead_leader_with_a_living_thread_has_not_ended() {
    const PROGRAM: &str = "import ctypes, threading, time\n\
        threading.Thread(target=time.sleep, args=(1000,)).start()\n\
        print('ready', flush=True)\n\
        ctypes.CDLL(None).syscall(60, 0)";
    let python = std::process::Command::new("python3")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    if !cfg!(target_arch = "x86_64") || !python.is_ok_and(|status| status.success()) {
        let _closed = writeln!(
            io::stderr(),
            "skipped: no python3 to make a leader that exits alone"
        );
        return;
    }
    let (handler, mut child) = (
        TestHandler::new(),
        Sleeper::spawn("python3", &["-c", PROGRAM]).wait_a_tick(),
    );
    let id = child.id();
    // The line shows that the second thread runs: then only the leader is a zombie.
    let mut ready = [0; 6];
    io::Read::read_exact(child.0.stdout.as_mut().expect("it is piped"), &mut ready)
        .expect("the program prints a line");
    wait_for_state(id, State::Zombie);
    handler.list(id, Identity::Sure);
    assert_eq!(handler.hold(id), Outcome::Held { caution: None });
    assert!(matches!(
        handler.signal(id, Signal::Int),
        Outcome::Sent { .. }
    ));
    match handler.next_outcome() {
        Outcome::Alive { state, .. } => assert_eq!(state, State::Sleeping, "the thread's"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        handler.signal(id, Signal::Kill),
        Outcome::Sent { .. }
    ));
    child.0.wait().expect("it ends");
    handler.expect_end();
}

#[test]
fn a_process_that_must_not_be_signalled_is_not_held() {
    let (handler, mut child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    let id = child.id();
    for pid in [0, 1, u32::MAX, 1 << 31] {
        handler.expect_refusal(
            ProcessId {
                pid,
                start_ticks: Some(0),
            },
            "not a process to signal",
        );
    }
    handler.expect_refusal(id_of(std::process::id()), "is gputop itself");
    let parent = std::os::unix::process::parent_id();
    handler.expect_refusal(
        id_of(parent),
        if parent == 1 {
            "not a process"
        } else {
            "is gputop itself"
        },
    );
    handler.expect_refusal(
        ProcessId {
            start_ticks: None,
            ..id
        },
        "another PID namespace",
    );
    handler.expect_refusal(id, "is not listed");
    handler.list(id, Identity::Unverified);
    handler.expect_refusal(id, "another PID namespace");
    handler.list(id, Identity::Fresh);
    handler.expect_refusal(id, "try again");
    let earlier = ProcessId {
        start_ticks: id.start_ticks.map(|ticks| ticks - 1),
        ..id
    };
    handler.list(id, Identity::Sure);
    handler.expect_refusal(earlier, "has already ended");
    // The main loop has not noticed yet that another process has the PID.
    handler.list(earlier, Identity::Sure);
    handler.expect_refusal(earlier, "has already ended");
    if let Ok(kthreadd) = stat::read_process(2, &mut Vec::new())
        && kthreadd.is_kernel_thread()
    {
        handler.list(id_of(2), Identity::Sure);
        handler.expect_refusal(id_of(2), "thread of the kernel");
    }
    assert!(child.is_alive());
}

#[test]
fn a_readonly_agent_refuses_to_hold_and_to_signal() {
    let (handler, mut child) = (TestHandler::readonly(), Sleeper::start().wait_a_tick());
    handler.list(child.id(), Identity::Sure);
    handler.expect_refusal(child.id(), "--readonly");
    assert!(child.is_alive());
}

#[test]
fn a_refusal_names_the_owner_of_the_process() {
    if !rustix::process::getuid().is_root() {
        let _closed = writeln!(
            io::stderr(),
            "skipped: only root can change its user for a while"
        );
        return;
    }
    let handler = TestHandler::without_permissions();
    let mut child = Sleeper::start().wait_a_tick();
    handler.list(child.id(), Identity::Sure);
    handler.expect_refusal(
        child.id(),
        "(sleep, owned by root): run gputop as root (`sudo gputop`)",
    );
    assert!(child.is_alive());
}

#[test]
fn a_released_process_is_not_signalled() {
    let (handler, mut child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    let id = child.id();
    handler.list(id, Identity::Sure);
    assert_eq!(handler.hold(id), Outcome::Held { caution: None });
    assert_eq!(
        handler.hold(id),
        Outcome::Held { caution: None },
        "twice is once"
    );
    handler.send(&Command::Release { process: id });
    match handler.signal(id, Signal::Kill) {
        Outcome::Refused { reason } => {
            assert!(reason.as_str().contains("open the panel again"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        child.is_alive() && test_kill_process(rustix::process::Pid::from_child(&child.0)).is_ok()
    );
}

#[test]
fn an_inspection_contains_details_of_the_process() {
    let (handler, child) = (TestHandler::new(), Sleeper::start().wait_a_tick());
    handler.send(&Command::Inspect {
        process: child.id(),
    });
    let Outcome::Inspected(found) = handler.next_outcome() else {
        panic!("not inspected")
    };
    assert_eq!(
        found.ancestors.first().map(|(pid, _)| *pid),
        Some(std::process::id())
    );
    assert!(
        found.exe.is_some_and(
            |exe| exe.as_str().ends_with("sleep") || exe.as_str().contains("coreutils")
        )
    );
    assert!(found.environment.is_some_and(|all| {
        all.iter()
            .all(|variable| !variable.as_str().starts_with("PATH"))
    }));
    assert!(found.limits.is_some_and(|all| {
        all.iter()
            .any(|(name, ..)| name.as_str() == "Max open files")
    }));
    assert!(found.files.is_some_and(|all| {
        all.iter()
            .any(|(number, it)| *number == 0 && it.as_str() == "/dev/null")
    }));
    assert!(
        found.pss.is_some_and(|pss| pss.0 > 0) && found.cwd.is_some() && found.trouble.is_none()
    );
    let stranger = ProcessId {
        start_ticks: Some(1),
        ..child.id()
    };
    handler.send(&Command::Inspect { process: stranger });
    assert!(matches!(
        handler.next_outcome(),
        Outcome::NotInspected { .. }
    ));
}

#[test]
fn the_interval_is_clamped() {
    let handler = TestHandler::new();
    for (asked, given) in [
        (0, SHORTEST_INTERVAL),
        (2000, Duration::from_secs(2)),
        (u64::MAX, LONGEST_INTERVAL),
    ] {
        handler.send(&Command::Interval {
            milliseconds: asked,
            silence: None,
        });
        let woken = handler.woken.recv_timeout(DEADLINE);
        assert!(
            matches!(woken, Ok(AgentEvent::Interval(interval)) if interval == given),
            "{asked} ms"
        );
    }
    handler.send(&Command::Scan);
    handler.expect_scan();
}

#[test]
fn a_silence_of_the_viewer_ends_the_agent_if_it_was_asked_so() {
    let handler = TestHandler::new();
    let begin = clock::time_awake();
    handler.send(&Command::Interval {
        milliseconds: 1000,
        // Shorter than a viewer may ask for.
        silence: Some(1),
    });
    let woken = handler.woken.recv_timeout(DEADLINE);
    assert!(matches!(woken, Ok(AgentEvent::Interval(_))), "{woken:?}");
    // The handler owns the other end, and the standard input is still open.
    let ended = handler.woken.recv_timeout(DEADLINE);
    assert!(
        matches!(ended, Err(mpsc::RecvTimeoutError::Disconnected)),
        "{ended:?}"
    );
    assert!(clock::time_awake() >= begin + CommandReader::SHORTEST_SILENCE);
}
