//! The lines that an agent writes: they conform to the schema, and ticks add up to the next full
//! line.

use fake_nvml::{GpuProcess, ProcessKind};
use gputop::protocol::command::Command;
use gputop::protocol::line::Line;
use gputop::protocol::reply::Outcome;
use gputop::protocol::snapshot::{Process, Snapshot};

use crate::agent::{Agent, ReceivedLines};
use crate::host::{GIB, Host};

/// The GPU processes. The other processes of a snapshot are related processes, which come and go.
fn gpu_processes(snapshot: &Snapshot) -> Vec<&Process> {
    let uses_gpu = |process: &&Process| {
        snapshot
            .gpus
            .iter()
            .flat_map(|gpu| &gpu.processes)
            .any(|gpu_process| gpu_process.process == process.id)
    };
    snapshot.processes.iter().filter(uses_gpu).collect()
}

#[test]
fn every_line_conforms_to_the_schema_while_gpus_come_and_go() {
    let mut host = Host::with_jitter(["H100", "A100-MIG", "GTX-970"]);
    let sleeper = host.start_sleep(0, 2 * GIB);
    host.change(|world| {
        let gpu = &mut world.gpus[0].processes;
        gpu.push(GpuProcess {
            memory: None,
            kinds: vec![ProcessKind::Compute, ProcessKind::Graphics],
            ..GpuProcess::fictional(4_000_001, 0)
        });
        gpu.push(GpuProcess {
            kinds: vec![ProcessKind::Mps],
            ..GpuProcess::fictional(4_000_002, GIB)
        });
        world.gpus[2]
            .processes
            .push(GpuProcess::fictional(4_000_003, GIB));
    });
    let mut agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "four GPU processes", |snapshot| {
        gpu_processes(snapshot).len() == 4
    });
    for _ in 0..10 {
        received.apply(agent.next_line());
    }
    assert!(received.tick_lines > 5, "{} ticks", received.tick_lines);

    let failed_gpus = |snapshot: &Snapshot| {
        snapshot
            .gpus
            .iter()
            .filter(|gpu| gpu.trouble.is_some())
            .count()
    };
    host.change(|world| world.gpus[0].falls_off_the_bus());
    received.read_until(&agent, "a lost GPU", |snapshot| failed_gpus(snapshot) == 1);
    host.change(|world| (world.gpus[0].lost, world.gpus[0].hidden) = (false, true));
    received.read_until(&agent, "a GPU that is not listed", |snapshot| {
        failed_gpus(snapshot) == 1
    });
    // The GPU comes back with another index.
    host.change(|world| {
        let gpu = world.gpus.remove(0);
        world.gpus.push(gpu);
        world.gpus[2].hidden = false;
    });
    received.read_until(&agent, "all GPUs back", |snapshot| {
        failed_gpus(snapshot) == 0 && snapshot.gpus.iter().all(|gpu| gpu.load.memory_used.is_ok())
    });

    let processes = &received
        .snapshot
        .as_ref()
        .expect("lines were read")
        .processes;
    let id = processes
        .iter()
        .find(|process| process.id.pid == sleeper)
        .expect("the process still runs")
        .id;
    for command in [
        Command::Inspect { process: id },
        Command::Hold { process: id },
    ] {
        agent.send(&command);
        let outcome = loop {
            match agent.next_line() {
                Line::Reply(reply) if reply.process == id => break reply.outcome,
                line => received.apply(line),
            }
        };
        assert!(
            matches!(outcome, Outcome::Inspected(_) | Outcome::Held { .. }),
            "{outcome:?}"
        );
    }
    agent.send(&Command::Scan);
    agent.send(&Command::Interval {
        milliseconds: 200,
        silence: None,
    });
    received.read_until(&agent, "another interval", |snapshot| {
        snapshot.interval_ms == 200
    });
    agent.send(&Command::Full);
    let full_lines = received.full_lines;
    while received.full_lines == full_lines {
        received.apply(agent.next_line());
    }
}

#[test]
fn an_agent_ends_when_its_viewer_is_silent_for_as_long_as_it_was_told() {
    let host = Host::new(["H100"]);
    let mut agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "the ability", Snapshot::can_end_after_silence);
    agent.send(&Command::Interval {
        milliseconds: 200,
        silence: Some(1500),
    });
    received.read_until(&agent, "another interval", |snapshot| {
        snapshot.interval_ms == 200
    });
    agent.expect_end();
}

#[test]
fn ticks_add_up_to_the_next_full_line() {
    let mut host = Host::new(["H100", "H100"]);
    for gib in 1..5 {
        host.start_sleep(0, gib * GIB);
    }
    let agent = Agent::start(&host);
    let mut received = ReceivedLines::default();
    received.read_until(&agent, "four GPU processes", |snapshot| {
        gpu_processes(snapshot).len() == 4
    });
    // A process comes and goes, and a temperature changes: all of it in ticks.
    let ended = host.start_sleep(1, GIB);
    received.read_until(&agent, "a fifth GPU process", |snapshot| {
        gpu_processes(snapshot).len() == 5
    });
    host.change(|world| world.gpus[1].processes.clear());
    host.change(|world| world.gpus[0].temperature.gpu = Some(77));
    received.read_until(&agent, "four GPU processes again", |snapshot| {
        gpu_processes(snapshot)
            .iter()
            .all(|process| process.id.pid != ended)
            && snapshot.gpus[0].load.temperature.map(|celsius| celsius.0) == Ok(77)
    });
    assert!(
        received.full_lines < received.tick_lines,
        "{} full, {} ticks",
        received.full_lines,
        received.tick_lines
    );
    // Arguments and users are read by a thread of their own.
    received.read_until(&agent, "arguments and users", |snapshot| {
        gpu_processes(snapshot)
            .iter()
            .all(|process| process.facts.argv.is_ok() && process.facts.user.is_ok())
    });
    let full = Line::parse(&host.run(["--json"]).stdout).expect("the line parses");
    let Some(Line::Full(mut full)) = full else {
        panic!("{full:?}")
    };
    // Beside each GPU process, `--json` prints its user and command, which the stream has in the
    // list of processes.
    for gpu_process in full.gpus.iter_mut().flat_map(|gpu| &mut gpu.processes) {
        let names = gpu_process.names.take().expect("the process is listed");
        assert_eq!(names.command.as_str(), "sleep 1000");
    }
    // Everything but clocks, counters and other values that change by themselves.
    let constant_part = |snapshot: &Snapshot| {
        let gpus = snapshot.gpus.iter().map(|gpu| {
            (
                gpu.uuid.clone(),
                gpu.facts.clone(),
                gpu.load.memory_used,
                gpu.load.temperature,
                gpu.processes.clone(),
                gpu.trouble.clone(),
            )
        });
        let processes = gpu_processes(snapshot)
            .into_iter()
            .map(|process| (process.id, process.facts.clone(), process.load.state));
        (
            snapshot.host.facts.clone(),
            snapshot.driver.clone(),
            gpus.collect::<Vec<_>>(),
            processes.collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        constant_part(&received.snapshot.expect("lines were read")),
        constant_part(&full)
    );
}
