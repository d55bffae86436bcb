//! JSON is frozen as version 1: every name in `tests/data/json-v1.txt` stays, with its type. New
//! names may be added.
//!
//! Each line of the file is an output, a path in it and the types of the values there. The paths of
//! lines and commands come from the types in the program; those of the other outputs from what the
//! program prints in the cases below.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use fake_nvml::GpuProcess;
use gputop::protocol::command::Command;
use gputop::protocol::line::Line;
use schemars::{JsonSchema, schema_for};
use serde_json::Value;

use crate::cli::json;
use crate::host::{GIB, Host};
use crate::idle;
use crate::orphans::{HostWithOrphan, end_a_process};
use crate::process::run;
use crate::process_tree::audit_lines;
use crate::replay::Recorder;
use crate::slurm::SlurmLab;

/// The types of the values at each path.
type Paths = BTreeMap<String, BTreeSet<String>>;

const FROZEN: &str = "tests/data/json-v1.txt";

fn frozen() -> Paths {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(FROZEN))
        .expect("the file is checked in");
    let line = |line: &str| {
        let (path, types) = line.rsplit_once(": ").expect("a path and its types");
        (
            path.to_owned(),
            types.split(" or ").map(str::to_owned).collect(),
        )
    };
    text.lines().map(line).collect()
}

/// Where the paths of an output come from.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// The types in the program: all that an output can contain.
    Types,
    /// One output, in which a value may be null that could have been a number.
    Values,
}

/// Whether values have their frozen types, and no word that stands for a value is gone.
fn is_kept(frozen: &BTreeSet<String>, now: &BTreeSet<String>, source: Source) -> bool {
    let types = |set: &BTreeSet<String>| -> BTreeSet<String> {
        set.iter()
            .filter(|name| !name.starts_with('`'))
            .cloned()
            .collect()
    };
    match source {
        Source::Types => frozen.is_subset(now) && types(frozen) == types(now),
        Source::Values => now.is_subset(frozen),
    }
}

/// Fails for each frozen path of the output that is gone or has a value of another type.
#[track_caller]
fn check(output: &str, current: &Paths, source: Source) {
    let name = format!("json-v1-{}.txt", output.replace(' ', "-"));
    let lines: Vec<String> = current
        .iter()
        .map(|(path, types)| format!("{path}: {}", words(types)))
        .collect();
    let list = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, list).expect("the target folder has room");
    let mut broken = Vec::new();
    let prefix = format!("{output} ");
    let frozen: Paths = frozen()
        .into_iter()
        .filter(|(path, _)| path.starts_with(&prefix))
        .collect();
    assert!(
        !frozen.is_empty(),
        "{FROZEN} has no line for `{output}`: add those of {}",
        path.display()
    );
    for (path, types) in frozen {
        match current.get(&path) {
            None => broken.push(format!("{path}: is gone")),
            Some(now) if is_kept(&types, now, source) => {}
            Some(now) => broken.push(format!("{path}: was {}, is {}", words(&types), words(now))),
        }
    }
    assert!(
        broken.is_empty(),
        "JSON is frozen as version 1, and these names changed:\n{}\nGive them back their names and types. New names may be \
         added beside them: add their lines from {} to {FROZEN}.",
        broken.join("\n"),
        path.display()
    );
}

fn words(types: &BTreeSet<String>) -> String {
    types
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" or ")
}

/// The paths of all values that a schema allows.
fn paths_of_type<T: JsonSchema>(output: &str) -> Paths {
    let schema = schema_for!(T).to_value();
    let mut paths = Paths::new();
    walk_schema(&format!("{output} "), &schema, &schema, &mut paths);
    paths
}

fn walk_schema(path: &str, schema: &Value, root: &Value, paths: &mut Paths) {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix("#/$defs/"))
    {
        walk_schema(path, &root["$defs"][name], root, paths);
    }
    for alternative in ["oneOf", "anyOf", "allOf"]
        .into_iter()
        .filter_map(|key| schema[key].as_array())
        .flatten()
    {
        walk_schema(path, alternative, root, paths);
    }
    let types = match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several
            .iter()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    };
    let known = paths.entry(path.to_owned()).or_default();
    known.extend(types);
    // The words that stand for a value are as much a part of the format as names.
    let values = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(schema.get("const"));
    known.extend(
        values
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`")),
    );
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk_schema(&format!("{path}.{name}"), property, root, paths);
    }
    if schema["items"].is_object() {
        walk_schema(&format!("{path}[]"), &schema["items"], root, paths);
    }
    for (place, item) in schema["prefixItems"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        walk_schema(&format!("{path}[{place}]"), item, root, paths);
    }
    if schema["additionalProperties"].is_object() {
        walk_schema(
            &format!("{path}.*"),
            &schema["additionalProperties"],
            root,
            paths,
        );
    }
}

/// The paths of the values that the program printed.
fn paths_of_values(output: &str, values: &[Value]) -> Paths {
    let mut paths = Paths::new();
    for value in values {
        walk_value(&format!("{output} "), value, &mut paths);
    }
    paths
}

fn walk_value(path: &str, value: &Value, paths: &mut Paths) {
    let type_name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    paths
        .entry(path.to_owned())
        .or_default()
        .insert(type_name.to_owned());
    for (name, value) in value.as_object().into_iter().flatten() {
        walk_value(&format!("{path}.{name}"), value, paths);
    }
    for value in value.as_array().into_iter().flatten() {
        walk_value(&format!("{path}[]"), value, paths);
    }
}

#[test]
fn names_of_lines_stay() {
    check("line", &paths_of_type::<Line>("line"), Source::Types);
}

#[test]
fn names_of_commands_stay() {
    check(
        "command",
        &paths_of_type::<Command>("command"),
        Source::Types,
    );
}

#[test]
fn names_of_orphans_stay() {
    let mut orphaned = HostWithOrphan::new();
    orphaned.host.add_process(
        0,
        GpuProcess {
            kinds: Vec::new(),
            ..GpuProcess::fictional(4_000_001, 20 * GIB)
        },
    );
    let output = orphaned.host.run(["orphans", "--json", "--timeout", "20s"]);
    check(
        "orphans --json",
        &paths_of_values("orphans --json", &[json(&output)]),
        Source::Values,
    );
}

#[test]
fn names_of_idle_stay() {
    let recorder = Recorder::new();
    let hosts = [
        idle::via("gpu-01", &idle::lines_after(&recorder, 95)),
        idle::via("gpu-02", &idle::lines_after(&recorder, 20)),
    ];
    let output = recorder
        .host
        .run(["idle", "--json", "--via", &hosts[0], "--via", &hosts[1]]);
    let slurm = SlurmLab::new();
    slurm.let_the_job_run_for_days();
    let of_job = run(&mut slurm.ssh.gputop(["idle", "--json", "--slurm", "4242"]));
    check(
        "idle --json",
        &paths_of_values("idle --json", &[json(&output), json(&of_job)]),
        Source::Values,
    );
}

#[test]
fn names_of_wait_stay() {
    let recorder = Recorder::new();
    let path = recorder.record("leak.jsonl", 241, 10_000);
    let via = format!("box=cat {}", path.display());
    let values = [["--via", &via], ["--timeout", "1ms"]].map(|arguments| {
        let arguments = ["wait", "--json", "--leak"].into_iter().chain(arguments);
        json(&recorder.host.run(arguments))
    });
    check(
        "wait --json",
        &paths_of_values("wait --json", &values),
        Source::Values,
    );
}

/// A message of PyTorch that has every part, and whose amounts do not add up.
const OUT_OF_MEMORY: &str = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
    total capacity of 79.25 GiB of which 1.25 GiB is free. Process 4711 has 60.00 GiB memory in use. Including non-PyTorch \
    memory, this process has 7.50 GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 20.00 MiB \
    is reserved by PyTorch but unallocated.";

#[test]
fn names_of_explain_stay() {
    let mut host = Host::new(["H100"]);
    let pid = host.start_sleep(0, 2 * GIB);
    let message = OUT_OF_MEMORY.replace("4711", &pid.to_string());
    let output = host.run(["explain", "--json", &message]);
    check(
        "explain --json",
        &paths_of_values("explain --json", &[json(&output)]),
        Source::Values,
    );
}

#[test]
fn names_of_analyze_stay() {
    let host = Host::new(["H100"]);
    let logs = ["leak.csv", "twin.csv"]
        .map(|log| format!("{}/tests/data/memory/{log}", env!("CARGO_MANIFEST_DIR")));
    let mut log = "time,gpu,pid,allocated_bytes,reserved_bytes\n".to_owned();
    for second in 0..600_u64 {
        // An epoch ends each 200 s, and each batch leaks.
        let allocated = ((10 + second % 200) << 24) + (second << 24);
        writeln!(log, "{second},0,4711,{allocated},{}", allocated + GIB)
            .expect("writing to a string succeeds");
    }
    let parts = host.path("parts.csv");
    fs::write(&parts, log).expect("/tmp has room");
    let mut log = "time,memory.used [MiB],memory.total [MiB]\n".to_owned();
    for minute in 0..60_u32 {
        let share = 1.0 - (-f64::from(minute) / 30.0).exp();
        writeln!(log, "{},{:.0},81920", 60 * minute, 40_960.0 * share)
            .expect("writing to a string succeeds");
    }
    let cache = host.path("cache.csv");
    fs::write(&cache, log).expect("/tmp has room");
    let output = host.run([
        "analyze",
        "--json",
        &logs[0],
        &logs[1],
        &parts.display().to_string(),
        &cache.display().to_string(),
    ]);
    check(
        "analyze --json",
        &paths_of_values("analyze --json", &[json(&output)]),
        Source::Values,
    );
}

#[test]
fn names_of_diff_stay() {
    let recorder = Recorder::new();
    let path = recorder
        .record("run.jsonl", 31, 10_000)
        .display()
        .to_string();
    let output = recorder.host.run(["diff", "--json", &path, &path]);
    check(
        "diff --json",
        &paths_of_values("diff --json", &[json(&output)]),
        Source::Values,
    );
}

#[test]
fn names_of_the_audit_log_stay() {
    let mut host = Host::new(["H100"]);
    end_a_process(&mut host);
    check(
        "audit log",
        &paths_of_values("audit log", &audit_lines(&host)),
        Source::Values,
    );
}
