//! The verdicts as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::log::AnalyzedLog;
use super::series::{JudgedSeries, TimedVerdict};
use crate::base::text::Text;
use crate::commands::output::advice_json;
use crate::model::{on_growth, part_name};

pub(super) fn to_json(logs: &[(Text, AnalyzedLog)]) -> Value {
    let has_one_log = logs.len() == 1;
    let series: Vec<Value> = logs
        .iter()
        .flat_map(|(name, log)| {
            log.series.iter().map(move |judged| series_json(judged, (!has_one_log).then_some(name)))
        })
        .collect();
    let files: Vec<Value> = logs
        .iter()
        .map(|(name, log)| {
            let first = log.unreadable.first.iter().map(|(line, why)| json!({"line": line, "why": why}));
            json!({
                "file": name,
                "lines": log.lines,
                "bad_lines": log.unreadable.count,
                "first_bad_lines": first.collect::<Vec<_>>(),
                "missing_readings": log.missing,
                "notes": log.notes,
            })
        })
        .collect();
    json!({"series": series, "files": files})
}

fn series_json(judged: &JudgedSeries, file: Option<&Text>) -> Value {
    let series = &judged.series;
    let index = series.gpu.as_ref().filter(|_| series.is_index).and_then(|gpu| gpu.as_str().parse::<u64>().ok());
    let falls = judged.falls.iter().map(|(at, fall)| json!({"at": at, "sentence": fall.to_string()}));
    let mut value = json!({
        "host": series.host,
        "gpu": index.map_or_else(|| json!(series.gpu), |index| json!(index)),
        "pid": series.pid,
        "verdict": judged.last.verdict.name(),
        "timeline": judged.timeline.iter().map(verdict_json).collect::<Vec<_>>(),
        "forecasts": judged.forecasts.iter().map(verdict_json).collect::<Vec<_>>(),
        "gpu_uuid": series.uuid,
        "process_name": series.name,
        "advice": advice_json(&judged.pattern.map_or_else(Vec::new, |pattern| on_growth(&[pattern]))),
        "sentence": judged.reason,
        "part": judged.last.part.map(part_name),
        "reserved_bytes": judged.split.map(|split| split.reserved),
        "allocated_bytes": judged.split.map(|split| split.allocated),
        "not_pytorch_bytes": judged.split.and_then(|split| split.outside),
        "active_bytes": series.allocator.map(|allocator| allocator.active()),
        "inactive_split_bytes": series.allocator.map(|allocator| allocator.fragmented),
        "requested_bytes": series.allocator.map(|allocator| allocator.active().saturating_sub(allocator.rounding)),
        "capacity_bytes": judged.capacity,
        "samples": judged.samples,
        "span_seconds": judged.span,
        "falls": falls.collect::<Vec<_>>(),
    });
    if let Some(file) = file {
        value["file"] = json!(file);
    }
    value
}

fn verdict_json(timed: &TimedVerdict) -> Value {
    let forecast = timed.evidence.and_then(|evidence| evidence.forecast);
    let seconds = |span: Option<Duration>| span.map(|span| (span.as_secs_f64() * 10.0).round() / 10.0);
    let mut value = json!({
        "at": timed.at,
        "verdict": timed.verdict.name(),
        "rate_bytes_per_s": timed.evidence.map(|evidence| evidence.rate.0.round()),
        "oom_in_s": seconds(forecast.map(|forecast| forecast.likely)),
        "oom_low_s": seconds(forecast.map(|forecast| forecast.low)),
        "oom_high_s": seconds(forecast.map(|forecast| forecast.high)),
    });
    // Few logs have parts, so the key is left out of the others.
    if let Some(part) = timed.part {
        value["part"] = json!(part_name(part));
    }
    value
}
