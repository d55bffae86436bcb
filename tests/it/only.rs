//! An agent with `--only` takes the readings that it is asked for, and says which of the others it
//! was not asked for.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use gputop::protocol::line::Line;
use gputop::protocol::snapshot::{Gpu, Missing, Snapshot};
use serde_json::{Map, Value};

use crate::agent::ReceivedLines;
use crate::host::{GIB, Host};
use crate::process::ChildProcess;

const GROUPS: [&str; 4] = ["facts", "load", "health", "detail"];

/// Returns the first complete snapshot of an agent that reads the detail, with these options.
fn snapshot<'a>(host: &Host, options: impl IntoIterator<Item = &'a str>) -> Snapshot {
    let arguments = ["agent", "--detail", "--interval", "100ms"];
    let mut command = host.gputop(arguments.into_iter().chain(options));
    let mut agent = ChildProcess::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let output = agent.child().stdout.take().expect("stdout is piped");
    let mut received = ReceivedLines::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = Line::parse(&line.expect("the agent writes lines"));
        received.apply(line.expect("the line parses").expect("the kind is known"));
        let snapshot = received.snapshot.as_ref().expect("the first line is full");
        let is_read = |gpu: &Gpu| gpu.detail.is_some() && !gpu.is_partly_read();
        if !snapshot.gpus.is_empty() && snapshot.gpus.iter().all(is_read) {
            return received.snapshot.expect("it was just there");
        }
    }
    panic!("the agent ended")
}

/// Returns each reading of a group, by its name, except those that grow from one pass to the next.
fn readings(group: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let group: &Map<String, Value> = group.as_object().expect("a group is an object");
    group.iter().filter(|(name, _)| {
        !["missing", "not_asked", "time_ms", "energy_millijoules"].contains(&name.as_str())
    })
}

/// Whether a value is known, or one in it is.
fn is_known(value: &Value) -> bool {
    match value {
        Value::Object(_) => readings(value).any(|(_, value)| is_known(value)),
        _ => !value.is_null(),
    }
}

/// Checks that each reading of a group is as without `--only`, or is marked as not asked for.
fn check_rest(all: &Value, group: &Value, path: &str) {
    for (name, value) in readings(group) {
        let not_asked = group["not_asked"].as_array();
        let is_marked = not_asked.is_some_and(|names| names.contains(&name.as_str().into()));
        match (is_marked, value) {
            (true, _) => {
                assert_eq!(
                    group["missing"][name], "unsupported",
                    "version 1 has five words"
                );
                assert!(value.is_null(), "{path}: {name}");
            }
            (false, Value::Object(_)) => check_rest(&all[name], value, path),
            (false, _) => assert_eq!(*value, all[name], "{name} with --only {path}"),
        }
    }
}

#[test]
fn each_reading_is_the_same_when_it_alone_is_asked_for() {
    let mut host = Host::new(["H100", "RTX-4090", "GH200"]);
    host.change(|world| {
        "595.71.05".clone_into(&mut world.driver);
        for gpu in &mut world.gpus {
            gpu.fields
                .extend([(274, 95), (280, 1), (251, 1), (264, 2), (284, 40), (301, 2)]);
        }
    });
    let json = |snapshot: &Snapshot| -> Vec<Value> {
        let gpus = snapshot.gpus.iter();
        gpus.map(|gpu| serde_json::to_value(gpu).expect("a GPU is JSON"))
            .collect()
    };
    let all = json(&snapshot(&host, []));
    let mut paths = BTreeSet::new();
    for (gpu, group) in all.iter().flat_map(|gpu| GROUPS.map(|group| (gpu, group))) {
        assert!(gpu[group].get("not_asked").is_none(), "{:#}", gpu[group]);
        let known = readings(&gpu[group]).filter(|(_, value)| is_known(value));
        paths.extend(known.map(|(name, _)| (group, name.clone())));
    }
    assert!(paths.len() > 120, "{} paths: {paths:?}", paths.len());
    for (group, name) in &paths {
        let path = format!("{group}.{name}");
        let asked = json(&snapshot(&host, ["--only", &path]));
        assert_eq!(asked.len(), all.len());
        for (asked, all) in asked.iter().zip(&all) {
            assert_eq!(asked[group][name], all[group][name], "{path}");
            for group in GROUPS {
                check_rest(&all[group], &asked[group], &path);
            }
        }
    }
}

#[test]
fn processes_and_readings_that_nobody_asked_for_are_told_apart_from_unsupported_ones() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, GIB);
    let gpu = &snapshot(&host, ["--only", "facts.name,processes"]).gpus[0];
    assert_eq!(gpu.processes[0].process.pid, pid);
    assert_eq!(gpu.missing.processes, None);
    let reasons = (gpu.load.power.err(), gpu.facts.gpu_instance.err());
    assert_eq!(
        reasons,
        (Some(Missing::NotAsked), Some(Missing::Unsupported))
    );
    let gpu = &snapshot(&host, ["--only", "load.power_watts"]).gpus[0];
    assert!(gpu.load.power.is_ok() && gpu.missing.processes_not_asked);
}
