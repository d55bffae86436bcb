//! Forced reuse of PIDs: whatever the timing, no stranger is signalled.
//!
//! `GPUTOP_REUSE_ROUNDS=100000 cargo test --release reuse` plays more rounds than the usual 1,000.
//! It needs root, which may say which PID comes next (`ns_last_pid`).

use std::fs;
use std::io::Write;

use super::tests::{Sleeper, TestHandler, now_in_ticks};
use super::*;
use crate::protocol::command::Signal;

/// Where the kernel keeps the PID that it gave last.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// The number of processes that wait out their first tick together.
const BATCH: usize = 16;

/// Events before the PID went to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReuseCase {
    /// The person saw the process, and asks for it when it is gone.
    Seen,
    /// The same, and it was seen as early as could be: a successor can have its start ticks too.
    SeenYoung,
    /// It was held already.
    Held,
}

#[test]
fn no_stranger_is_signalled_when_a_pid_is_used_again() {
    let rounds: usize = std::env::var("GPUTOP_REUSE_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(1000);
    // Anyone may open it. Writing what is there changes nothing, and shows whether one may.
    if fs::read(LAST_PID).and_then(|pid| fs::write(LAST_PID, pid)).is_err() {
        let _closed = writeln!(io::stderr(), "skipped: only root can say which PID comes next ({LAST_PID})");
        return;
    }
    let bench = TestHandler::new();
    let (mut played, mut alike) = (0, 0);
    let mut play = |victims: Vec<Sleeper>, story| {
        for is_alike in victims.into_iter().filter_map(|victim| round(&bench, victim, story)) {
            played += 1;
            alike += usize::from(is_alike);
        }
        played
    };
    while play((0..BATCH).map(|_| Sleeper::start()).map(Sleeper::grown).collect(), ReuseCase::Seen) < rounds {
        (0..BATCH).for_each(|_| {
            play(vec![Sleeper::start()], ReuseCase::SeenYoung);
        });
        play((0..BATCH).map(|_| Sleeper::start()).map(Sleeper::grown).collect(), ReuseCase::Held);
    }
    let _closed = writeln!(io::stderr(), "{played} PIDs used again, {alike} of them in the same tick: no one was hit");
}

/// Ends the victim, gives its PID to a stranger, and signals. Says whether the two have the same start
/// ticks; absent when another process was quicker to get the PID.
#[track_caller]
fn round(bench: &TestHandler, victim: Sleeper, story: ReuseCase) -> Option<bool> {
    let process = victim.id();
    bench.sees(process, identity_of(process));
    if story == ReuseCase::Held {
        assert_eq!(bench.hold(process), Outcome::Held { caution: None });
    }
    drop(victim);
    let mut stranger = successor_of(process)?;
    bench.ask(&Command::Hold { process });
    bench.ask(&Command::Signal { process, signal: Signal::Kill });
    // Nobody has this PID, so its refusal marks the end of the answers.
    let last = ProcessId { pid: 0, start_ticks: None };
    bench.ask(&Command::Hold { process: last });
    while let reply = bench.reply()
        && reply.process != last
    {
        // A hold that was there before may be renewed: it is still of the victim, which has ended.
        let is_harmless = match reply.outcome {
            Outcome::Refused { .. } | Outcome::Ended { .. } => true,
            Outcome::Held { .. } => story == ReuseCase::Held,
            _ => false,
        };
        assert!(is_harmless, "{story:?}: {:?}", reply.outcome);
    }
    assert!(stranger.lives(), "{story:?}: a stranger was hit");
    Some(stranger.id() == process)
}

/// As the loop would have it: sure only if a tick of the clock passed before the process was read.
fn identity_of(process: ProcessId) -> Identity {
    let passed = Some(now_in_ticks()) > process.start_ticks;
    if passed && stat::of(process.pid, &mut Vec::new()).is_ok() { Identity::Sure } else { Identity::Fresh }
}

/// A process that has the PID of one that has ended.
fn successor_of(process: ProcessId) -> Option<Sleeper> {
    (0..20).find_map(|_| {
        fs::write(LAST_PID, (process.pid - 1).to_string()).expect("root may");
        let stranger = Sleeper::start();
        (stranger.id().pid == process.pid).then_some(stranger)
    })
}
