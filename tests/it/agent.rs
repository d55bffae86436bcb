//! A `gputop agent` whose lines a test reads and checks against the JSON Schema.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use gputop::protocol::command::Command;
use gputop::protocol::line::Line;
use gputop::protocol::snapshot::Snapshot;
use serde_json::Value;

use crate::DEADLINE;
use crate::host::Host;
use crate::process::{ChildProcess, run};

/// The validator of the schema that `gputop schema` prints.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let output = run(std::process::Command::new(env!("CARGO_BIN_EXE_gputop")).arg("schema"));
    let schema: Value = serde_json::from_slice(&output.stdout).expect("the schema is JSON");
    jsonschema::meta::validate(&schema).expect("the schema is a JSON Schema");
    jsonschema::validator_for(&schema).expect("the schema is a JSON Schema")
});

/// A running agent. Each of its lines is checked against the schema that gputop prints.
pub(crate) struct Agent {
    stdin: ChildStdin,
    lines: Receiver<Vec<u8>>,
    process: ChildProcess,
}

impl Agent {
    /// Starts an agent on a host, with a pass every 100 ms.
    pub(crate) fn start(host: &Host) -> Self {
        Self::spawn(&mut host.gputop(["agent", "--interval", "100ms"]))
    }

    pub(crate) fn spawn(command: &mut std::process::Command) -> Self {
        // The agent goes on while the schema is compiled, which takes seconds on a busy machine.
        LazyLock::force(&SCHEMA);
        let mut process = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            stdout
                .split(b'\n')
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self {
            stdin,
            lines,
            process,
        }
    }

    /// Waits for the next line, and checks that it conforms to the schema.
    #[track_caller]
    pub(crate) fn next_line(&self) -> Line {
        let line = self
            .lines
            .recv_timeout(DEADLINE)
            .expect("the agent writes another line");
        let value: Value = serde_json::from_slice(&line).expect("a line is JSON");
        let errors: Vec<String> = SCHEMA
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
        Line::parse(&line)
            .expect("the line parses")
            .expect("the kind of line is known")
    }

    /// Waits until the agent has ended, while its standard input stays open. It may write some
    /// lines before.
    #[track_caller]
    pub(crate) fn expect_end(&self) {
        let mut ends = (0..1000).map(|_| self.lines.recv_timeout(DEADLINE));
        let end = ends.find_map(Result::err);
        assert_eq!(
            end,
            Some(RecvTimeoutError::Disconnected),
            "the agent did not end"
        );
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn send(&mut self, command: &Command) {
        command
            .write(&mut self.stdin)
            .and_then(|()| self.stdin.flush())
            .expect("the agent reads its stdin");
    }
}

/// The snapshot that an agent's lines add up to.
#[derive(Default)]
pub(crate) struct ReceivedLines {
    /// `None` before the first line.
    pub(crate) snapshot: Option<Snapshot>,
    /// The number of `full` lines so far.
    pub(crate) full_lines: usize,
    /// The number of `tick` lines so far.
    pub(crate) tick_lines: usize,
}

impl ReceivedLines {
    /// Adds a line to the snapshot.
    #[track_caller]
    pub(crate) fn apply(&mut self, line: Line) {
        match line {
            Line::Full(full) => {
                self.full_lines += 1;
                self.snapshot = Some(*full);
            }
            Line::Tick(change) => {
                self.tick_lines += 1;
                let snapshot = self
                    .snapshot
                    .as_mut()
                    .expect("the first line is a full line");
                snapshot
                    .apply(*change)
                    .expect("a tick changes the snapshot of the line before");
            }
            Line::Reply(_) | Line::Checkpoint(_) => {}
        }
    }

    /// Reads lines until a condition holds, at most 200. `description` completes "never …" when it
    /// does not.
    #[track_caller]
    pub(crate) fn read_until(
        &mut self,
        agent: &Agent,
        description: &str,
        is_true: impl Fn(&Snapshot) -> bool,
    ) {
        for _ in 0..200 {
            if self.snapshot.as_ref().is_some_and(&is_true) {
                return;
            }
            self.apply(agent.next_line());
        }
        panic!("never {description}: {:#?}", self.snapshot);
    }
}
