//! What was found, for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::log::Found;
use super::series::{Judged, Said};
use crate::base::text::Text;
use crate::commands::report::prose::advice;
use crate::model::{on_growth, part_name};

/// All logs as one object.
pub(super) fn of(logs: &[(Text, Found)]) -> Value {
    let is_one = logs.len() == 1;
    let series: Vec<Value> = logs
        .iter()
        .flat_map(|(name, found)| found.series.iter().map(move |it| one(it, (!is_one).then_some(name))))
        .collect();
    let files: Vec<Value> = logs
        .iter()
        .map(|(name, found)| {
            let bad: Vec<Value> =
                found.bad.named.iter().map(|(line, why)| json!({"line": line, "why": why.as_str()})).collect();
            json!({
                "file": name.as_str(),
                "lines": found.lines,
                "bad_lines": found.bad.count,
                "first_bad_lines": bad,
                "missing_readings": found.missing,
                "notes": found.notes,
            })
        })
        .collect();
    json!({"series": series, "files": files})
}

fn one(judged: &Judged, file: Option<&Text>) -> Value {
    let series = &judged.series;
    let index = series.gpu.as_ref().filter(|_| series.is_index).and_then(|it| it.as_str().parse::<u64>().ok());
    let gpu = index.map_or_else(|| json!(series.gpu.as_ref().map(Text::as_str)), |it| json!(it));
    let falls: Vec<Value> = judged.falls.iter().map(|(at, fall)| json!({"at": at, "what": fall.to_string()})).collect();
    let mut value = json!({
        "gpu": gpu,
        "pid": series.pid,
        "verdict": judged.last.outlook.name(),
        "timeline": judged.timeline.iter().map(said).collect::<Vec<_>>(),
        "forecasts": judged.forecasts.iter().map(said).collect::<Vec<_>>(),
        "gpu_uuid": series.uuid.as_ref().map(Text::as_str),
        "process_name": series.name.as_ref().map(Text::as_str),
        "advice": advice(&judged.way.map_or_else(Vec::new, |way| on_growth(&[way]))),
        "sentence": judged.reason,
        "part": judged.last.part.map(part_name),
        "reserved_bytes": judged.parts.map(|it| it.reserved.0),
        "allocated_bytes": judged.parts.map(|it| it.allocated.0),
        "not_pytorch_bytes": judged.parts.and_then(|it| it.outside),
        "active_bytes": series.allocator.map(|it| it.active().0),
        "inactive_split_bytes": series.allocator.map(|it| it.fragmented.0),
        "requested_bytes": series.allocator.map(|it| it.active().saturating_sub(it.rounding).0),
        "capacity_bytes": judged.capacity.map(|it| it.0),
        "samples": judged.samples,
        "seconds": judged.span,
        "falls": falls,
    });
    if let Some(file) = file {
        value["file"] = json!(file.as_str());
    }
    value
}

fn said(said: &Said) -> Value {
    let forecast = said.evidence.and_then(|it| it.forecast);
    let seconds = |it: Option<Duration>| it.map(|it| (it.as_secs_f64() * 10.0).round() / 10.0);
    let mut value = json!({
        "at": said.at,
        "verdict": said.outlook.name(),
        "rate_bytes_per_s": said.evidence.map(|it| it.rate.0.round()),
        "oom_in_s": seconds(forecast.map(|it| it.likely)),
        "oom_low_s": seconds(forecast.map(|it| it.low)),
        "oom_high_s": seconds(forecast.map(|it| it.high)),
    });
    // Few logs tell parts apart.
    if let Some(part) = said.part {
        value["part"] = json!(part_name(part));
    }
    value
}
