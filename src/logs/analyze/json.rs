//! The verdicts as JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::episodes::Episode;
use super::headline;
use super::judged::{JudgedSeries, TimedVerdict};
use super::log::{AnalyzedLog, LogProblem};
use crate::base::text::Text;
use crate::model::{on_growth, part_name};
use crate::output::advice_json;

/// Writes an object with all series and all files, one series after the other: together they may
/// take much memory.
pub(super) fn write(logs: &[(Text, AnalyzedLog)], mut out: impl Write) -> io::Result<()> {
    let file_name = |name| (logs.len() > 1).then_some(name);
    let series = logs.iter().flat_map(|(name, log)| {
        log.series
            .iter()
            .map(move |judged| series_json(judged, file_name(name)))
    });
    out.write_all(b"{\"series\":[")?;
    for (number, series) in series.enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut out, &series)?;
    }
    let files: Vec<Value> = logs
        .iter()
        .map(|(name, log)| file_json(name, log))
        .collect();
    writeln!(out, "],\"files\":{}}}", Value::from(files))?;
    out.flush()
}

fn file_json(name: &Text, log: &AnalyzedLog) -> Value {
    let first = log
        .unreadable
        .first
        .iter()
        .map(|(line, why)| json!({"line": line, "why": why}));
    json!({
        "file": name,
        "lines": log.lines,
        "bad_lines": log.unreadable.count,
        "first_bad_lines": first.collect::<Vec<_>>(),
        "missing_readings": log.missing,
        "notes": log.notes,
        "problem": log.problem.as_ref().map(LogProblem::sentence),
    })
}

fn series_json(judged: &JudgedSeries, file: Option<&Text>) -> Value {
    let series = &judged.series;
    let index = series
        .gpu
        .as_ref()
        .filter(|_| series.is_index)
        .and_then(|gpu| gpu.as_str().parse::<u64>().ok());
    let falls = judged
        .falls
        .iter()
        .map(|(at, fall)| json!({"at": at, "sentence": fall.to_string()}));
    let mut value = json!({
        "host": series.host,
        "gpu": index.map_or_else(|| json!(series.gpu), |index| json!(index)),
        "pid": series.pid,
        "verdict": judged.verdict().name(),
        "worst_verdict": judged.worst_verdict().name(),
        "headline": headline::headline(judged),
        "episodes": judged.episodes.iter().map(episode_json).collect::<Vec<_>>(),
        "timeline": judged.timeline.iter().map(verdict_json).collect::<Vec<_>>(),
        "forecasts": judged.forecasts.iter().map(verdict_json).collect::<Vec<_>>(),
        "gpu_uuid": series.uuid,
        "process_name": judged.name,
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

fn episode_json(episode: &Episode) -> Value {
    let end: &str = episode.end.into();
    json!({
        "verdict": episode.verdict.name(),
        "from": episode.from,
        "to": episode.to,
        "called_at": episode.called_at,
        "withdrawn_at": episode.withdrawn_at,
        "end": end,
        "rate_bytes_per_s": episode.evidence.rate.0.round(),
        "held_bytes": episode.held,
        "limit_bytes": episode.limit,
        "part": episode.part.map(part_name),
    })
}

fn verdict_json(timed: &TimedVerdict) -> Value {
    let forecast = timed.evidence.and_then(|evidence| evidence.forecast);
    let seconds =
        |span: Option<Duration>| span.map(|span| (span.as_secs_f64() * 10.0).round() / 10.0);
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
