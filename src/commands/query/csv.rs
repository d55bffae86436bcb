//! `--csv`: the load of each GPU in base units, under the names that it has in JSON. The cell of a missing value is empty.

use serde_json::Value;

use crate::base::units::Moment;
use crate::protocol::snapshot::{Cause, Gpu, GpuLoad, Missing, Snapshot};

/// The columns before the readings.
const IDENTITY: [&str; 4] = ["unix_time_ms", "index", "uuid", "name"];

/// Returns one row for each GPU, below the header.
pub(super) fn table(snapshot: &Snapshot, gpus: &[&Gpu], header: bool) -> String {
    let names = names();
    let mut rows: Vec<Vec<String>> = Vec::new();
    if header {
        rows.push(IDENTITY.map(str::to_owned).into_iter().chain(names.iter().cloned()).collect());
    }
    for gpu in gpus {
        let name = gpu.facts.name.as_ref().map_or("", |name| name.as_str());
        let identity =
            [snapshot.unix_ms.to_string(), gpu.facts.index.to_string(), quoted(gpu.uuid.0.as_str()), quoted(name)];
        // The last readings of a GPU that does not answer are out of date.
        let load = if is_silent(gpu) { Value::Null } else { serde_json::to_value(&gpu.load).unwrap_or(Value::Null) };
        let readings = names.iter().map(|name| cell(&load[name.as_str()]));
        rows.push(identity.into_iter().chain(readings).collect());
    }
    rows.iter().map(|row| row.join(",") + "\n").collect()
}

/// Whether the GPU cannot be read. A GPU that needs a reset still answers in part.
fn is_silent(gpu: &Gpu) -> bool {
    gpu.trouble.as_ref().is_some_and(|trouble| trouble.cause != Cause::Reset)
}

/// Returns the names of the readings, in the order of the JSON.
fn names() -> Vec<String> {
    let empty = serde_json::to_value(GpuLoad::missing(Moment(0), Missing::Unsupported)).unwrap_or(Value::Null);
    let fields = empty.as_object().into_iter().flatten();
    fields.map(|(name, _)| name.clone()).filter(|name| name != "time_ms" && name != "missing").collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(list) => quoted(&list.iter().map(cell).collect::<Vec<_>>().join(" ")),
        other => other.to_string(),
    }
}

/// Quotes a cell as RFC 4180 says.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
