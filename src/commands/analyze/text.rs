//! The verdicts as text, with advice against growth.

use std::time::Duration;

use super::log::AnalyzedLog;
use super::picture;
use super::series::JudgedSeries;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::commands::output::{StyledText, TextStyle};
use crate::model::{GrowthPattern, LeakVerdict, describe_evidence, on_growth};

/// The most changes of the verdict, and the most sudden falls, that are listed. The others are counted.
const LISTED: usize = 12;
const INDENT: usize = 4;

pub(super) fn format(logs: &[(Text, AnalyzedLog)], style: TextStyle) -> String {
    let mut text = StyledText::new(style);
    for (name, log) in logs {
        if logs.len() > 1 {
            text.line(format_args!("{name}:"));
        }
        let mut series: Vec<&JudgedSeries> = log.series.iter().collect();
        series.sort_by_key(|judged| std::cmp::Reverse(judged.last.verdict));
        for judged in series {
            add_series(&mut text, judged);
        }
        for note in &log.notes {
            text.paragraph(INDENT, format_args!("note: {note}"));
        }
        if log.missing > 0 {
            text.line(format_args!("{} readings are missing in the log", log.missing));
        }
        if log.unreadable.count > 0 {
            text.line(format_args!("{} of {} lines could not be read:", log.unreadable.count, log.lines));
            for (line, reason) in &log.unreadable.first {
                text.line(format_args!("  line {line}: {reason}"));
            }
        }
    }
    advise(&mut text, logs);
    text.finish()
}

/// Adds the advice against each growth pattern, once for all series with that pattern.
fn advise(text: &mut StyledText, logs: &[(Text, AnalyzedLog)]) {
    /// Pieces of advice that are given in full; the others by their titles.
    const IN_FULL: usize = 3;
    let mut patterns: Vec<(GrowthPattern, Vec<String>)> = Vec::new();
    for (file, log) in logs {
        for (pattern, judged) in log.series.iter().filter_map(|judged| Some((judged.pattern?, judged))) {
            // If a process grows, it tells more than the GPU that grows with it.
            let is_process_of_it = |other: &JudgedSeries| {
                let (ours, theirs) = (&judged.series, &other.series);
                other.pattern.is_some()
                    && theirs.pid.is_some()
                    && (&theirs.host, &theirs.gpu) == (&ours.host, &ours.gpu)
            };
            if judged.series.pid.is_none() && log.series.iter().any(is_process_of_it) {
                continue;
            }
            let file = if logs.len() > 1 { format!("{file}: ") } else { String::new() };
            let name = format!("{file}{}", name(judged));
            match patterns.iter_mut().find(|(known, _)| *known == pattern) {
                Some((_, names)) => names.push(name),
                None => patterns.push((pattern, vec![name])),
            }
        }
    }
    let mut given = Vec::new();
    for (pattern, names) in &patterns {
        let for_series = if patterns.len() > 1 { format!(" for {}", names.join(" and ")) } else { String::new() };
        text.paragraph(
            0,
            format_args!("What to try{for_series}, the most likely first; memory alone cannot tell which it is:"),
        );
        for (number, advice) in (1..).zip(on_growth(&[*pattern])) {
            let is_brief = number > IN_FULL || given.contains(&advice);
            text.advice(number, &advice, is_brief);
            if !is_brief {
                given.push(advice);
            }
        }
    }
}

/// Returns the name of a series: `GPU 0, process 4711 (python)`; with several hosts, `left, GPU 0`.
fn name(judged: &JudgedSeries) -> String {
    let series = &judged.series;
    let gpu = match (&series.gpu, series.is_index) {
        (Some(gpu), true) => format!("GPU {gpu}"),
        (Some(gpu), false) => gpu.to_string(),
        (None, _) => "memory".to_owned(),
    };
    let gpu = series.host.as_ref().map_or(gpu.clone(), |host| format!("{host}, {gpu}"));
    match (series.pid, &series.name) {
        (Some(pid), Some(process)) => format!("{gpu}, process {pid} ({process})"),
        (Some(pid), None) => format!("{gpu}, process {pid}"),
        (None, _) => gpu,
    }
}

fn add_series(text: &mut StyledText, judged: &JudgedSeries) {
    let mut paragraph = |paragraph: std::fmt::Arguments<'_>| text.paragraph(INDENT, paragraph);
    let creep = judged.creep.as_ref().map_or_else(String::new, |creep| format!(", though {creep}"));
    paragraph(format_args!("{}: {}{creep}", name(judged), word(judged.last.verdict)));
    if let Some(reason) = &judged.reason {
        paragraph(format_args!("  {reason}"));
    } else if let Some(leak) = judged.timeline.iter().rev().find(|timed| timed.verdict == LeakVerdict::Leak) {
        paragraph(format_args!("  called a leak after {}, later withdrawn", elapsed(leak.at)));
    }
    // A leak of allocated memory may not show in the total.
    let shows_allocated = !judged.allocated.is_empty();
    if shows_allocated {
        paragraph(format_args!("  memory allocated by tensors:"));
    }
    let points = if shows_allocated { &judged.allocated } else { &judged.points };
    text.lines(&picture::draw(judged, points, text.style.width, text.style.ascii));
    let mut paragraph = |paragraph: std::fmt::Arguments<'_>| text.paragraph(INDENT, paragraph);
    let capacity = judged.capacity.map_or_else(String::new, |capacity| format!(" of {capacity}"));
    let last = judged.points.last().map_or(Bytes(0), |(_, bytes)| Bytes(*bytes));
    let span = elapsed(judged.span);
    paragraph(format_args!("  {} samples in {span}; {last}{capacity} at the end", judged.samples));
    if let Some(split) = judged.split {
        let (allocated, unallocated) = (split.allocated, split.reserved.saturating_sub(split.allocated));
        let fragmented = judged.series.allocator.map(|allocator| allocator.fragmented).filter(|bytes| bytes.0 > 0);
        let fragmented = fragmented.map_or_else(String::new, |bytes| format!(" ({bytes} of it in split segments)"));
        let outside = split.outside.map_or_else(String::new, |bytes| {
            format!(", {}{} not PyTorch's", if bytes < 0 { "-" } else { "" }, Bytes(bytes.unsigned_abs()))
        });
        paragraph(format_args!("  at the end: {allocated} allocated, {unallocated} unallocated{fragmented}{outside}"));
    }
    let changes: Vec<_> = judged.timeline.iter().filter(|timed| timed.verdict != LeakVerdict::TooSoon).collect();
    let skipped = changes.len().saturating_sub(LISTED);
    if skipped > 0 {
        paragraph(format_args!("  {skipped} earlier changes"));
    }
    for timed in &changes[skipped..] {
        let evidence = timed.evidence.as_ref();
        let evidence =
            evidence.map_or_else(String::new, |evidence| format!(": {}", describe_evidence(timed.part, evidence)));
        paragraph(format_args!("  after {}: {}{evidence}", elapsed(timed.at), word(timed.verdict)));
    }
    for (at, fall) in judged.falls.iter().take(LISTED) {
        paragraph(format_args!("  after {}: {fall}", elapsed(*at)));
    }
    if judged.falls.len() > LISTED {
        paragraph(format_args!("  and {} more sudden falls", judged.falls.len() - LISTED));
    }
    text.line("");
}

fn word(verdict: LeakVerdict) -> &'static str {
    match verdict {
        LeakVerdict::TooSoon => "too soon to say",
        LeakVerdict::WarmingUp => "warming up",
        LeakVerdict::Suspect => "suspect",
        LeakVerdict::Steady | LeakVerdict::Leak => verdict.word(),
    }
}

fn elapsed(seconds: f64) -> Elapsed {
    Elapsed(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
