//! `--csv`: the load of each GPU in base units, under the names that it has in JSON. The cell of a
//! missing value is empty.

use serde_json::Value;

use crate::base::time::local_time;
use crate::base::units::Moment;
use crate::model::HostModel;
use crate::output::judged::{self, JudgedColumn};
use crate::output::{self, table, without_formula};
use crate::protocol::snapshot::{Cause, Gpu, GpuLoad, Missing, ProcessLoad, Snapshot};

/// The columns before the readings.
const IDENTITY: [&str; 6] = ["time", "host", "unix_time_ms", "index", "uuid", "name"];
/// The last column: why the GPU does not answer, as in the JSON.
const TROUBLE: &str = "trouble";

/// Returns one row for each GPU, below the header.
pub(super) fn table(snapshot: &Snapshot, gpus: &[&Gpu], header: bool) -> String {
    let names = names();
    let mut rows: Vec<Vec<String>> = Vec::new();
    if header {
        let names = IDENTITY
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .chain([TROUBLE]);
        rows.push(names.map(str::to_owned).collect());
    }
    for gpu in gpus {
        let name = gpu.facts.name.as_ref().map_or("", |name| name.as_str());
        let uuid = if gpu.facts.name.is_err() && is_silent(gpu) {
            ""
        } else {
            gpu.uuid.0.as_str()
        };
        let [time, host, unix_ms] = when_and_where(snapshot);
        let identity = [
            time,
            host,
            unix_ms,
            gpu.facts.index.to_string(),
            plain(uuid),
            plain(name),
        ];
        // The last readings of a GPU that does not answer are out of date.
        let load = if is_silent(gpu) {
            Value::Null
        } else {
            serde_json::to_value(&gpu.load).unwrap_or(Value::Null)
        };
        let readings = names.iter().map(|name| cell(&load[name.as_str()]));
        let trouble = gpu
            .trouble
            .as_ref()
            .map_or_else(String::new, |trouble| trouble.cause.to_string());
        rows.push(
            identity
                .into_iter()
                .chain(readings)
                .chain([trouble])
                .collect(),
        );
    }
    output::csv(rows)
}

/// Returns one row for each process on these GPUs, below the header. A GPU whose processes are not
/// known has a row without a process: its cells are empty, as those of all missing values.
pub(super) fn processes<'a>(
    model: &HostModel,
    snapshot: &Snapshot,
    gpus: impl Iterator<Item = &'a Gpu>,
    header: bool,
) -> String {
    /// The columns before the readings, and the readings of a process on a GPU.
    const IDENTITY: &str =
        "time,host,unix_time_ms,gpu_index,gpu_uuid,pid,start_ticks,user,command,type";
    const ON_GPU: [&str; 2] = ["memory_used_bytes", "sm_utilization_percent"];
    /// The last columns: the verdict and the growth.
    const JUDGED: [&[JudgedColumn]; 2] = [&judged::PROCESS_COLUMNS, &judged::GROWTH_COLUMNS];
    let names = names_of(serde_json::to_value(ProcessLoad::missing(
        Missing::Unsupported,
    )));
    let columns = IDENTITY
        .split(',')
        .chain(ON_GPU)
        .chain(names.iter().map(String::as_str))
        .chain(JUDGED.into_iter().flatten().map(|column| column.name));
    let columns: Vec<String> = columns.map(str::to_owned).collect();
    let (width, mut rows) = (columns.len(), Vec::new());
    if header {
        rows.push(columns);
    }
    let when_and_where = when_and_where(snapshot);
    for gpu in gpus {
        let index_and_uuid = || [gpu.facts.index.to_string(), plain(gpu.uuid.0.as_str())];
        if gpu.missing.processes.is_some() && gpu.processes.is_empty() {
            let mut cells = when_and_where.to_vec();
            cells.extend(index_and_uuid());
            cells.resize(width, String::new());
            rows.push(cells);
        }
        for gpu_process in &gpu.processes {
            let process = snapshot.process(gpu_process.process);
            let on_gpu = serde_json::to_value(gpu_process).unwrap_or(Value::Null);
            let load = process
                .and_then(|process| serde_json::to_value(&process.load).ok())
                .unwrap_or(Value::Null);
            let user = process.and_then(|process| process.facts.user.as_ref().ok());
            let mut cells = when_and_where.to_vec();
            cells.extend(index_and_uuid());
            cells.extend(["pid", "start_ticks"].map(|name| cell(&on_gpu[name])));
            cells.push(plain(user.map_or("", |user| user.as_str())));
            cells.push(plain(&process.map_or_else(String::new, table::command)));
            cells.extend(
                ["type"]
                    .into_iter()
                    .chain(ON_GPU)
                    .map(|name| cell(&on_gpu[name])),
            );
            cells.extend(names.iter().map(|name| cell(&load[name.as_str()])));
            let judged = model
                .verdict(gpu_process.process)
                .map(|verdict| judged::process(model, verdict));
            let judged = serde_json::to_value(judged).unwrap_or(Value::Null);
            cells.extend(
                JUDGED
                    .into_iter()
                    .flat_map(|columns| judged::cells(&judged, columns))
                    .map(|value| cell(&value)),
            );
            rows.push(cells);
        }
    }
    output::csv(rows)
}

/// Returns the local time, the name of the host, and the Unix time in milliseconds.
fn when_and_where(snapshot: &Snapshot) -> [String; 3] {
    let host = &snapshot.host.facts;
    [
        local_time(snapshot.unix_ms, host.utc_offset.unwrap_or(0)),
        plain(host.name.as_str()),
        snapshot.unix_ms.to_string(),
    ]
}

/// Whether the GPU cannot be read. A GPU that needs a reset still answers in part.
fn is_silent(gpu: &Gpu) -> bool {
    gpu.trouble
        .as_ref()
        .is_some_and(|trouble| trouble.cause != Cause::Reset)
}

/// Returns the names of the readings, in the order of the JSON.
pub(super) fn names() -> Vec<String> {
    names_of(serde_json::to_value(GpuLoad::missing(
        Moment(0),
        Missing::Unsupported,
    )))
}

/// Returns the names of a group of readings.
fn names_of(group: serde_json::Result<Value>) -> Vec<String> {
    let group = group.unwrap_or(Value::Null);
    let fields = group.as_object().into_iter().flatten();
    fields
        .map(|(name, _)| name.clone())
        .filter(|name| name != "time_ms" && name != "missing")
        .collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => plain(text),
        Value::Array(list) => plain(&list.iter().map(cell).collect::<Vec<_>>().join(" ")),
        // Readings are single-precision numbers. As such, 69.856 is not 69.85600280761719.
        #[expect(clippy::cast_possible_truncation, reason = "the number was an f32")]
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .map_or_else(String::new, |number| (number as f32).to_string()),
        other => other.to_string(),
    }
}

/// Returns a text that no spreadsheet takes for a formula.
fn plain(text: &str) -> String {
    without_formula(text).into_owned()
}
