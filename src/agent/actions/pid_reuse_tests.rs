//! Forced reuse of PIDs: a later process with the same PID is never signalled.
//!
//! `GPUTOP_REUSE_ROUNDS=100000 cargo test --release reuse` runs more rounds than the usual 1,000.
//! The test needs root: only root can set the next PID (`ns_last_pid`).

use std::fs;
use std::io::Write;

use super::tests::{Sleeper, TestHandler, now_in_ticks};
use super::*;
use crate::protocol::command::Signal;

/// The last PID that the kernel assigned.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// The number of processes of each case in one turn of the loop.
const BATCH: usize = 16;

/// The fate of a process before another one got its PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReuseCase {
    /// The process was only listed. It is to be held when its PID already belongs to another
    /// process.
    Seen,
    /// As [`ReuseCase::Seen`], but listed within its first clock tick: a later process can have the
    /// same start ticks.
    SeenYoung,
    /// The process was held before its end.
    Held,
}

#[test]
fn no_stranger_is_signalled_when_a_pid_is_used_again() {
    let rounds: usize = std::env::var("GPUTOP_REUSE_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1000);
    // Every user may open the file. Writing the same number changes nothing, and shows whether
    // writing is permitted.
    if fs::read(LAST_PID)
        .and_then(|pid| fs::write(LAST_PID, pid))
        .is_err()
    {
        let _closed = writeln!(
            io::stderr(),
            "skipped: only root can set the next PID ({LAST_PID})"
        );
        return;
    }
    let handler = TestHandler::new();
    let (mut played, mut alike) = (0, 0);
    let mut play = |victims: Vec<Sleeper>, case| {
        for is_alike in victims
            .into_iter()
            .filter_map(|victim| round(&handler, victim, case))
        {
            played += 1;
            alike += usize::from(is_alike);
        }
        played
    };
    while play(
        (0..BATCH)
            .map(|_| Sleeper::start())
            .map(Sleeper::wait_a_tick)
            .collect(),
        ReuseCase::Seen,
    ) < rounds
    {
        (0..BATCH).for_each(|_| {
            play(vec![Sleeper::start()], ReuseCase::SeenYoung);
        });
        play(
            (0..BATCH)
                .map(|_| Sleeper::start())
                .map(Sleeper::wait_a_tick)
                .collect(),
            ReuseCase::Held,
        );
    }
    let _closed = writeln!(
        io::stderr(),
        "{played} PIDs reused, {alike} of them in the same tick: no other process was signalled"
    );
}

/// Lists the victim, ends it, gives its PID to another process, and signals. Returns whether both
/// processes have the same start ticks. `None` when no process got the PID.
#[track_caller]
fn round(handler: &TestHandler, victim: Sleeper, case: ReuseCase) -> Option<bool> {
    let process = victim.id();
    handler.list(process, identity_of(process));
    if case == ReuseCase::Held {
        assert_eq!(handler.hold(process), Outcome::Held { caution: None });
    }
    drop(victim);
    let mut stranger = successor_of(process)?;
    handler.send(&Command::Hold { process });
    handler.send(&Command::Signal {
        process,
        signal: Signal::Kill,
    });
    // No process has PID 0, so the refusal to hold it marks the end of the replies.
    let last = ProcessId {
        pid: 0,
        start_ticks: None,
    };
    handler.send(&Command::Hold { process: last });
    while let reply = handler.reply()
        && reply.process != last
    {
        // A process that was held may be held again: still the victim, which has ended.
        let is_harmless = match reply.outcome {
            Outcome::Refused { .. } | Outcome::Ended { .. } => true,
            Outcome::Held { .. } => case == ReuseCase::Held,
            _ => false,
        };
        assert!(is_harmless, "{case:?}: {:?}", reply.outcome);
    }
    assert!(
        stranger.is_alive(),
        "{case:?}: another process was signalled"
    );
    Some(stranger.id() == process)
}

/// The identity as the main loop sets it: sure only if the process was read at least a clock tick
/// after its start.
fn identity_of(process: ProcessId) -> Identity {
    let passed = Some(now_in_ticks()) > process.start_ticks;
    if passed && stat::read_process(process.pid, &mut Vec::new()).is_ok() {
        Identity::Sure
    } else {
        Identity::Fresh
    }
}

/// Starts a process with the PID of an ended one. `None` when another program takes the PID each
/// time.
fn successor_of(process: ProcessId) -> Option<Sleeper> {
    (0..20).find_map(|_| {
        fs::write(LAST_PID, (process.pid - 1).to_string()).expect("root may");
        let stranger = Sleeper::start();
        (stranger.id().pid == process.pid).then_some(stranger)
    })
}
