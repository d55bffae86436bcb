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
        "memory_columns": log.memory_names,
        "doubts": log.doubts,
        "problem": log.problem.as_ref().map(LogProblem::sentence),
    })
}

fn series_json(judged: &JudgedSeries, file: Option<&Text>) -> Value {
    let series = &judged.series;
    let axis = JsonAxis(judged);
    let index = series
        .gpu
        .as_ref()
        .filter(|_| series.is_index)
        .and_then(|gpu| gpu.as_str().parse::<u64>().ok());
    let falls = judged
        .falls
        .iter()
        .map(|fall| json!({"at": axis.place(fall.at), "sentence": fall.words(), "given_back_bytes": fall.given_back}));
    let mut value = json!({
        "host": series.host,
        "gpu": index.map_or_else(|| json!(series.gpu), |index| json!(index)),
        "pid": series.pid,
        "verdict": judged.verdict().name(),
        "worst_verdict": judged.worst_verdict().name(),
        "headline": headline::headline(judged),
        "episodes": judged.episodes.iter().map(|episode| axis.episode(episode)).collect::<Vec<_>>(),
        "timeline": judged.timeline.iter().map(|timed| axis.verdict(timed)).collect::<Vec<_>>(),
        "forecasts": judged.forecasts.iter().map(|timed| axis.verdict(timed)).collect::<Vec<_>>(),
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
        "span_seconds": judged.times.steps.is_none().then_some(judged.span),
        "falls": falls.collect::<Vec<_>>(),
    });
    if let Some(label) = &series.label {
        value["label"] = json!(label);
    }
    // In a log of steps, times are steps.
    if let Some(steps) = judged.times.steps {
        value["time_unit"] = json!(steps.word);
        value["span_steps"] = json!(steps.count(judged.span));
    }
    if let Some(full) = judged.full {
        value["full_at"] = json!(axis.place(full.at));
    }
    if let Some(file) = file {
        value["file"] = json!(file);
    }
    value
}

/// Writes the times of a series: seconds since its beginning, or steps.
struct JsonAxis<'a>(&'a JudgedSeries);

impl JsonAxis<'_> {
    fn place(&self, at: f64) -> f64 {
        match self.0.times.steps {
            Some(steps) => steps.step(self.0.since_log_began(at)),
            None => at,
        }
    }

    /// Adds a rate under the name of its period.
    fn add_rate(&self, value: &mut Value, rate: Option<f64>) {
        match self.0.times.steps {
            Some(steps) => {
                value["rate_bytes_per_step"] =
                    json!(rate.map(|rate| (rate * steps.seconds).round()));
            }
            None => value["rate_bytes_per_s"] = json!(rate.map(f64::round)),
        }
    }

    fn episode(&self, episode: &Episode) -> Value {
        let end: &str = episode.end.into();
        let mut value = json!({
            "verdict": episode.verdict.name(),
            "from": self.place(episode.from),
            "to": self.place(episode.to),
            "called_at": self.place(episode.called_at),
            "withdrawn_at": episode.withdrawn_at.map(|at| self.place(at)),
            "end": end,
            "held_bytes": episode.held,
            "limit_bytes": episode.limit,
            "part": episode.part.map(part_name),
        });
        self.add_rate(&mut value, Some(episode.evidence.rate.0));
        value
    }

    fn verdict(&self, timed: &TimedVerdict) -> Value {
        let forecast = timed.evidence.and_then(|evidence| evidence.forecast);
        let seconds =
            |span: Option<Duration>| span.map(|span| (span.as_secs_f64() * 10.0).round() / 10.0);
        let mut value = json!({ "at": self.place(timed.at), "verdict": timed.verdict.name() });
        self.add_rate(&mut value, timed.evidence.map(|evidence| evidence.rate.0));
        let spans = [
            ("oom_in", forecast.map(|forecast| forecast.likely)),
            ("oom_low", forecast.map(|forecast| forecast.low)),
            ("oom_high", forecast.map(|forecast| forecast.high)),
        ];
        for (name, span) in spans {
            match self.0.times.steps {
                Some(steps) => {
                    let count = seconds(span).map(|seconds| steps.count(seconds).round());
                    value[format!("{name}_steps")] = json!(count);
                }
                None => value[format!("{name}_s")] = json!(seconds(span)),
            }
        }
        if let Some(plateau) = timed.evidence.and_then(|evidence| evidence.plateau) {
            value["plateau"] = json!({
                "bytes": plateau.likely,
                "low_bytes": plateau.low,
                "high_bytes": plateau.high,
                "is_known": plateau.is_known,
                "is_above_limit": plateau.is_above_limit,
            });
        }
        // Few logs have parts, so the key is left out of the others.
        if let Some(part) = timed.part {
            value["part"] = json!(part_name(part));
        }
        value
    }
}
