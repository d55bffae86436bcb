//! The stream as others read it: what the schema promises, and what the agent writes.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use fake_nvml::{Kind, Tenant};
use gputop::protocol::command::Command;
use gputop::protocol::line::Line;
use gputop::protocol::reply::Outcome;
use gputop::protocol::snapshot::{Process, Snapshot};
use serde_json::Value;

use crate::DEADLINE;
use crate::process::{Started, run};
use crate::world::{GIB, Host};

/// An agent, and a reader that holds each of its lines against the schema.
pub(crate) struct Agent {
    stdin: ChildStdin,
    lines: Receiver<Vec<u8>>,
    schema: jsonschema::Validator,
    process: Started,
}

impl Agent {
    pub(crate) fn start(host: &Host) -> Self {
        Self::run(&mut host.gputop(["agent", "--interval", "100ms"]))
    }

    pub(crate) fn run(command: &mut std::process::Command) -> Self {
        let mut process = Started::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let stdin = process.child().stdin.take().expect("it was asked for");
        let stdout = BufReader::new(process.child().stdout.take().expect("it was asked for"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || stdout.split(b'\n').map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { stdin, lines, schema: validator(), process }
    }

    /// The next line, which keeps the schema.
    #[track_caller]
    pub(crate) fn next(&self) -> Line {
        let line = self.lines.recv_timeout(DEADLINE).expect("the agent goes on");
        let value: Value = serde_json::from_slice(&line).expect("a line is JSON");
        let errors: Vec<String> =
            self.schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path)).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
        Line::parse(&line).expect("our own line").expect("our own kind")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn ask(&mut self, command: &Command) {
        command.write(&mut self.stdin).and_then(|()| self.stdin.flush()).expect("the agent reads");
    }
}

fn validator() -> jsonschema::Validator {
    let schema = run(std::process::Command::new(env!("CARGO_BIN_EXE_gputop")).arg("schema"));
    let schema: Value = serde_json::from_slice(&schema.out).expect("it is JSON");
    jsonschema::meta::validate(&schema).expect("it is a schema");
    jsonschema::validator_for(&schema).expect("it is a schema")
}

/// What the lines up to now say.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) snapshot: Option<Snapshot>,
    fulls: usize,
    ticks: usize,
}

impl Seen {
    #[track_caller]
    pub(crate) fn take(&mut self, line: Line) {
        match line {
            Line::Full(full) => {
                self.fulls += 1;
                self.snapshot = Some(*full);
            }
            Line::Tick(change) => {
                self.ticks += 1;
                let snapshot = self.snapshot.as_mut().expect("the first line is whole");
                snapshot.apply(*change).expect("a tick starts from the line before");
            }
            Line::Reply(_) => {}
        }
    }

    /// Reads on until the host is so.
    #[track_caller]
    pub(crate) fn until(&mut self, agent: &Agent, what: &str, is_so: impl Fn(&Snapshot) -> bool) {
        for _ in 0..200 {
            if self.snapshot.as_ref().is_some_and(&is_so) {
                return;
            }
            self.take(agent.next());
        }
        panic!("never {what}: {:#?}", self.snapshot);
    }
}

/// The processes that hold a GPU. Others of the host are their kin, who come and go.
fn tenants(snapshot: &Snapshot) -> Vec<&Process> {
    let is_tenant = |it: &&Process| snapshot.gpus.iter().flat_map(|gpu| &gpu.processes).any(|of| of.process == it.id);
    snapshot.processes.iter().filter(is_tenant).collect()
}

#[test]
fn every_line_keeps_the_schema_whatever_becomes_of_the_host() {
    let mut host = Host::with(["H100", "A100-MIG", "GTX-970"]);
    let steady = host.sleeper(0, 2 * GIB);
    host.change(|world| {
        let gpu = &mut world.gpus[0].tenants;
        gpu.push(Tenant {
            memory: None,
            kinds: vec![Kind::Compute, Kind::Graphics],
            ..Tenant::fictional(4_000_001, 0)
        });
        gpu.push(Tenant { kinds: vec![Kind::Mps], ..Tenant::fictional(4_000_002, GIB) });
        world.gpus[2].tenants.push(Tenant::fictional(4_000_003, GIB));
    });
    let mut agent = Agent::start(&host);
    let mut seen = Seen::default();
    seen.until(&agent, "four tenants", |it| tenants(it).len() == 4);
    for _ in 0..10 {
        seen.take(agent.next());
    }
    assert!(seen.ticks > 5, "{} ticks", seen.ticks);

    let sick = |it: &Snapshot| it.gpus.iter().filter(|gpu| gpu.trouble.is_some()).count();
    host.change(|world| world.gpus[0].falls_off_the_bus());
    seen.until(&agent, "a lost GPU", |it| sick(it) == 1);
    host.change(|world| (world.gpus[0].lost, world.gpus[0].hidden) = (false, true));
    seen.until(&agent, "a GPU that is not listed", |it| sick(it) == 1);
    // Back, at another place.
    host.change(|world| {
        let back = world.gpus.remove(0);
        world.gpus.push(back);
        world.gpus[2].hidden = false;
    });
    seen.until(&agent, "all back", |it| sick(it) == 0 && it.gpus.iter().all(|gpu| gpu.load.memory_used.is_ok()));

    let known = seen.snapshot.as_ref().and_then(|it| it.processes.iter().find(|it| it.id.pid == steady));
    let id = known.expect("it is still there").id;
    for command in [Command::Inspect { process: id }, Command::Hold { process: id }] {
        agent.ask(&command);
        let answer = loop {
            match agent.next() {
                Line::Reply(reply) if reply.process == id => break reply.outcome,
                line => seen.take(line),
            }
        };
        let is_answer = matches!(answer, Outcome::Inspected(_) | Outcome::Held { .. });
        assert!(is_answer, "{answer:?}");
    }
    agent.ask(&Command::Scan);
    agent.ask(&Command::Interval { milliseconds: 200 });
    seen.until(&agent, "another interval", |it| it.interval_ms == 200);
    agent.ask(&Command::Full);
    let fulls = seen.fulls;
    while seen.fulls == fulls {
        seen.take(agent.next());
    }
}

#[test]
fn ticks_lead_to_what_the_next_whole_line_says() {
    let mut host = Host::still(["H100", "H100"]);
    for gib in 1..5 {
        host.sleeper(0, gib * GIB);
    }
    let agent = Agent::start(&host);
    let mut seen = Seen::default();
    seen.until(&agent, "four tenants", |it| tenants(it).len() == 4);
    // Tenants come and go, a process ends, a figure moves: all of it in ticks.
    let gone = host.sleeper(1, GIB);
    seen.until(&agent, "a fifth", |it| tenants(it).len() == 5);
    host.change(|world| world.gpus[1].tenants.clear());
    host.change(|world| world.gpus[0].temperature.gpu = Some(77));
    seen.until(&agent, "it gone", |it| {
        tenants(it).iter().all(|it| it.id.pid != gone) && it.gpus[0].load.temperature.map(|it| it.0) == Ok(77)
    });
    assert!(seen.fulls < seen.ticks, "{} whole lines, {} ticks", seen.fulls, seen.ticks);
    // The slow lane has been read by then, and a whole line says the same, but for what moves by itself.
    seen.until(&agent, "all of it read", |it| {
        tenants(it).iter().all(|it| it.facts.argv.is_ok() && it.facts.user.is_ok())
    });
    let whole = Line::parse(&host.run(["--json"]).out).expect("our own line");
    let Some(Line::Full(mut whole)) = whole else { panic!("{whole:?}") };
    // Beside each GPU process, `--json` prints its user and command, which the stream has in the list of processes.
    for gpu_process in whole.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
        let names = gpu_process.names.take().expect("the process is listed");
        assert_eq!(names.command.as_str(), "sleep 1000");
    }
    let still = |it: &Snapshot| {
        let gpus = it.gpus.iter().map(|gpu| {
            (
                gpu.uuid.clone(),
                gpu.facts.clone(),
                gpu.load.memory_used,
                gpu.load.temperature,
                gpu.processes.clone(),
                gpu.trouble.clone(),
            )
        });
        let processes = tenants(it).into_iter().map(|it| (it.id, it.facts.clone(), it.load.state));
        (it.host.facts.clone(), it.driver.clone(), gpus.collect::<Vec<_>>(), processes.collect::<Vec<_>>())
    };
    assert_eq!(still(&seen.snapshot.expect("there were lines")), still(&whole));
}
