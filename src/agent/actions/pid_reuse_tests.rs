//! Forced reuse of PIDs: a later process with the same PID is never signalled.
//!
//! `GPUTOP_REUSE_ROUNDS=100000 cargo test --release reuse` plays more rounds than the usual 1,000.
//! It needs root, which may set the next PID (`ns_last_pid`).

use std::fs;
use std::io::Write;

use super::tests::{Sleeper, TestHandler, now_in_ticks};
use super::*;
use crate::protocol::command::Signal;

/// The last PID that the kernel assigned.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// The number of processes that wait for their first tick together.
const BATCH: usize = 16;

/// Events before the PID went to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReuseCase {
    /// The process was listed, and is held after its end.
    Seen,
    /// The same, and it was listed within its first tick: a later process can have the same start ticks.
    SeenYoung,
    /// The process was held before its end.
    Held,
}

#[test]
fn no_stranger_is_signalled_when_a_pid_is_used_again() {
    let rounds: usize = std::env::var("GPUTOP_REUSE_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(1000);
    // Every user may open the file. Writing the same number changes nothing, and shows whether writing is permitted.
    if fs::read(LAST_PID).and_then(|pid| fs::write(LAST_PID, pid)).is_err() {
        let _closed = writeln!(io::stderr(), "skipped: only root can set the next PID ({LAST_PID})");
        return;
    }
    let handler = TestHandler::new();
    let (mut played, mut alike) = (0, 0);
    let mut play = |victims: Vec<Sleeper>, story| {
        for is_alike in victims.into_iter().filter_map(|victim| round(&handler, victim, story)) {
            played += 1;
            alike += usize::from(is_alike);
        }
        played
    };
    while play((0..BATCH).map(|_| Sleeper::start()).map(Sleeper::wait_a_tick).collect(), ReuseCase::Seen) < rounds {
        (0..BATCH).for_each(|_| {
            play(vec![Sleeper::start()], ReuseCase::SeenYoung);
        });
        play((0..BATCH).map(|_| Sleeper::start()).map(Sleeper::wait_a_tick).collect(), ReuseCase::Held);
    }
    let _closed = writeln!(
        io::stderr(),
        "{played} PIDs reused, {alike} of them in the same tick: no other process was signalled"
    );
}

/// Ends the victim, gives its PID to another process, and signals. Returns whether both have the same start ticks. `None`
/// when yet another process got the PID.
#[track_caller]
fn round(handler: &TestHandler, victim: Sleeper, story: ReuseCase) -> Option<bool> {
    let process = victim.id();
    handler.list(process, identity_of(process));
    if story == ReuseCase::Held {
        assert_eq!(handler.hold(process), Outcome::Held { caution: None });
    }
    drop(victim);
    let mut stranger = successor_of(process)?;
    handler.send(&Command::Hold { process });
    handler.send(&Command::Signal { process, signal: Signal::Kill });
    // No process has this PID, so its refusal marks the end of the replies.
    let last = ProcessId { pid: 0, start_ticks: None };
    handler.send(&Command::Hold { process: last });
    while let reply = handler.reply()
        && reply.process != last
    {
        // A hold from before may be renewed: it is still that of the victim, which has ended.
        let is_harmless = match reply.outcome {
            Outcome::Refused { .. } | Outcome::Ended { .. } => true,
            Outcome::Held { .. } => story == ReuseCase::Held,
            _ => false,
        };
        assert!(is_harmless, "{story:?}: {:?}", reply.outcome);
    }
    assert!(stranger.is_alive(), "{story:?}: another process was signalled");
    Some(stranger.id() == process)
}

/// The identity as the main loop sets it: sure only if the process was read at least a clock tick after its start.
fn identity_of(process: ProcessId) -> Identity {
    let passed = Some(now_in_ticks()) > process.start_ticks;
    if passed && stat::of(process.pid, &mut Vec::new()).is_ok() { Identity::Sure } else { Identity::Fresh }
}

/// Starts a process with the PID of an ended one.
fn successor_of(process: ProcessId) -> Option<Sleeper> {
    (0..20).find_map(|_| {
        fs::write(LAST_PID, (process.pid - 1).to_string()).expect("root may");
        let stranger = Sleeper::start();
        (stranger.id().pid == process.pid).then_some(stranger)
    })
}
