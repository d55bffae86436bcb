//! `--csv`: what changes each second about each GPU, in base units under the names of the JSON. A missing value is empty.

use serde_json::Value;

use crate::base::units::Moment;
use crate::protocol::snapshot::{Cause, Gpu, GpuLoad, Missing, Snapshot};

/// Who a row is about, before its readings.
const WHO: [&str; 4] = ["unix_ms", "index", "uuid", "name"];

/// One row for each GPU, below a head.
pub(super) fn table(snapshot: &Snapshot, gpus: &[&Gpu], header: bool) -> String {
    let names = names();
    let mut text = String::new();
    if header {
        let head: Vec<&str> = WHO.into_iter().chain(names.iter().map(String::as_str)).collect();
        text.push_str(&head.join(","));
        text.push('\n');
    }
    for gpu in gpus {
        let name = gpu.facts.name.as_ref().map_or("", |it| it.as_str());
        let who =
            [snapshot.unix_ms.to_string(), gpu.facts.index.to_string(), quoted(gpu.uuid.0.as_str()), quoted(name)];
        // Of a GPU that does not answer, the last is no news.
        let load = if is_silent(gpu) { Value::Null } else { serde_json::to_value(&gpu.load).unwrap_or(Value::Null) };
        let readings = names.iter().map(|name| field(&load[name.as_str()]));
        let row: Vec<String> = who.into_iter().chain(readings).collect();
        text.push_str(&row.join(","));
        text.push('\n');
    }
    text
}

/// One that needs a reset still says what it can.
fn is_silent(gpu: &Gpu) -> bool {
    gpu.trouble.as_ref().is_some_and(|it| it.cause != Cause::Reset)
}

/// The readings' names, in the order of the JSON.
fn names() -> Vec<String> {
    let empty = serde_json::to_value(GpuLoad::missing(Moment(0), Missing::Unsupported)).unwrap_or(Value::Null);
    let fields = empty.as_object().into_iter().flatten();
    fields.map(|(name, _)| name.clone()).filter(|it| it != "at_ms" && it != "missing").collect()
}

fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(list) => quoted(&list.iter().map(field).collect::<Vec<_>>().join(" ")),
        other => other.to_string(),
    }
}

/// As RFC 4180 wants it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
