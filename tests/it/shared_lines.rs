//! An agent for a viewer of another host passes on the lines of a recorder that runs there.

use std::process::Stdio;

use gputop::protocol::command::Command;
use gputop::protocol::line::Line;
use gputop::protocol::reply::Outcome;
use gputop::protocol::snapshot::{ProcessId, Snapshot};
use rustix::process::Signal;

use crate::agent::Agent;
use crate::host::{GIB, Host};
use crate::process::run;
use crate::record::RunningRecorder;

/// The variable that the first command on another host sets.
const SHARED: &str = "GPUTOP_SHARED_LINES";

fn shared_agent(host: &Host) -> Agent {
    let mut command = host.gputop(["agent", "--interval", "100ms"]);
    Agent::spawn(command.env(SHARED, "1").stderr(Stdio::null()))
}

/// Returns the next full line, and the other lines before it.
fn next_full(agent: &Agent) -> (Box<Snapshot>, Vec<Line>) {
    let mut before = Vec::new();
    loop {
        match agent.next_line() {
            Line::Full(snapshot) => return (snapshot, before),
            line => before.push(line),
        }
    }
}

#[test]
fn one_agent_reads_the_host_until_a_command_needs_more_than_lines() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 3 * GIB);
    let file = host.path("recording.jsonl.zst");
    let file_name = file.to_str().expect("the path is UTF-8").to_owned();
    let recorder = RunningRecorder::start(&host, &file, &["-o", &file_name]);

    let mut agent = shared_agent(&host);
    let (first, before) = next_full(&agent);
    assert!(before.is_empty(), "a full line comes first: {before:?}");
    assert!(
        first.sequence > 1,
        "the recorder's agent has written lines before: {}",
        first.sequence
    );
    // On a busy machine, some ticks come before the recorder tells what it knows.
    let past = loop {
        match agent.next_line() {
            Line::Checkpoint(past) => break past,
            Line::Tick(_) => {}
            line => panic!("neither a tick nor the past: {line:?}"),
        }
    };
    assert!(past.at >= first.at, "it is from the full line, or later");
    assert!(
        matches!(agent.next_line(), Line::Tick(_)),
        "then each line comes"
    );

    agent.send(&Command::Interval {
        milliseconds: 1000,
        silence: None,
    });
    agent.send(&Command::Full);
    let (again, _) = next_full(&agent);
    assert!(again.sequence > first.sequence, "it is the same agent");

    let process = ProcessId {
        pid,
        start_ticks: first
            .processes
            .iter()
            .find(|process| process.id.pid == pid)
            .expect("the process is listed")
            .id
            .start_ticks,
    };
    agent.send(&Command::Inspect { process });
    let (own, _) = next_full(&agent);
    assert_eq!(own.sequence, 1, "now the agent reads the host itself");
    let outcome = loop {
        if let Line::Reply(reply) = agent.next_line() {
            break reply.outcome;
        }
    };
    assert!(matches!(outcome, Outcome::Inspected(_)), "{outcome:?}");
    recorder.end(Signal::TERM);
}

#[test]
fn an_agent_goes_on_by_itself_when_the_recorder_ends_and_without_one() {
    let mut host = Host::new(["H100"]);
    host.start_sleep(0, GIB);
    let without = shared_agent(&host);
    assert_eq!(next_full(&without).0.sequence, 1);

    let file = host.path("recording.jsonl.zst");
    let file_name = file.to_str().expect("the path is UTF-8").to_owned();
    let recorder = RunningRecorder::start(&host, &file, &["-o", &file_name]);
    let agent = shared_agent(&host);
    assert!(next_full(&agent).0.sequence > 1);
    recorder.end(Signal::KILL);
    let own = loop {
        let (snapshot, _) = next_full(&agent);
        if snapshot.sequence == 1 {
            break snapshot;
        }
    };
    assert_eq!(own.gpus.len(), 1);

    // The socket of a recorder that was killed is in nobody's way.
    let recorder = RunningRecorder::start(&host, &file, &["-o", &file_name]);
    assert!(next_full(&shared_agent(&host)).0.sequence > 1);
    recorder.end(Signal::TERM);
}

#[test]
fn the_fifth_agent_of_a_user_that_would_read_the_host_for_another_one_ends_with_a_sentence() {
    let host = Host::new(["H100"]);
    let agents: Vec<Agent> = (0..4).map(|_| shared_agent(&host)).collect();
    for agent in &agents {
        assert_eq!(next_full(agent).0.sequence, 1);
    }
    let mut fifth = host.gputop(["agent"]);
    let fifth = run(fifth.env(SHARED, "1"));
    assert_eq!(fifth.code, 1, "{}", fifth.stderr);
    assert!(
        fifth
            .stderr
            .contains("4 agents of this user read this host for other viewers already"),
        "{}",
        fifth.stderr
    );
    // An agent of this host's own viewer is another matter.
    assert_eq!(next_full(&Agent::start(&host)).0.sequence, 1);
}
