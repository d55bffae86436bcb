//! What was found, for people.

use std::fmt::Write;
use std::time::Duration;

use super::log::Found;
use super::picture;
use super::series::Judged;
use crate::base::text::Text;
use crate::base::units::{Bytes, Elapsed};
use crate::commands::report::prose::{wrap, wrap_figures};
use crate::commands::report::table;
use crate::model::{Advice, Growth, Outlook, evidence_of, on_growth};

/// How it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) width: usize,
    pub(super) ascii: bool,
}

/// Changes of the outlook that are told; the others are counted.
const TOLD: usize = 12;

/// All logs.
pub(super) fn of(logs: &[(Text, Found)], style: Style) -> String {
    let mut text = String::new();
    for (name, found) in logs {
        if logs.len() > 1 {
            put(&mut text, format_args!("{name}:\n"));
        }
        let mut series: Vec<&Judged> = found.series.iter().collect();
        // What leaks first.
        series.sort_by_key(|it| std::cmp::Reverse(it.last.outlook));
        for judged in series {
            one(&mut text, judged, style);
        }
        for note in &found.notes {
            tell(&mut text, style, format_args!("note: {note}"));
        }
        if found.missing > 0 {
            put(&mut text, format_args!("{} readings were not given by the driver\n", found.missing));
        }
        if found.bad.count > 0 {
            put(&mut text, format_args!("{} of {} lines could not be read:\n", found.bad.count, found.lines));
            for (line, why) in &found.bad.named {
                put(&mut text, format_args!("  line {line}: {why}\n"));
            }
        }
    }
    advise(&mut text, logs, style);
    if style.ascii { table::ascii(&text) } else { text }
}

/// What to try against what leaked to the end, once for all that grow in the same way.
fn advise(text: &mut String, logs: &[(Text, Found)], style: Style) {
    let mut ways: Vec<(Growth, Vec<String>)> = Vec::new();
    for (file, found) in logs {
        for (way, judged) in found.series.iter().filter_map(|it| Some((it.way?, it))) {
            // Of a GPU, its processes say more.
            let is_inside =
                |it: &Judged| it.way.is_some() && it.series.pid.is_some() && it.series.gpu == judged.series.gpu;
            if judged.series.pid.is_none() && found.series.iter().any(is_inside) {
                continue;
            }
            let file = if logs.len() > 1 { format!("{file}: ") } else { String::new() };
            let name = format!("{file}{}", name(judged));
            match ways.iter_mut().find(|it| it.0 == way) {
                Some((_, names)) => names.push(name),
                None => ways.push((way, vec![name])),
            }
        }
    }
    let mut told = Vec::new();
    for (way, names) in &ways {
        // Who it is for is clear where there is but one way.
        let whom = if ways.len() > 1 { format!(" for {}", names.join(" and ")) } else { String::new() };
        let head = format!("What to try{whom}, the most likely first; memory alone cannot tell which it is:");
        for line in wrap(&head, style.width, 0) {
            put(text, format_args!("{line}\n"));
        }
        list(text, &on_growth(&[*way]), &mut told, style);
    }
}

/// These texts: the first of them in full where they were not told before, and of the others what they come to.
fn list(text: &mut String, texts: &[Advice], told: &mut Vec<Advice>, style: Style) {
    const FULL: usize = 3;
    for (number, advice) in (1..).zip(texts) {
        put(text, format_args!("{number}. {}\n", advice.title()));
        let is_full = number <= FULL && !told.contains(advice);
        if is_full {
            told.push(*advice);
        }
        for paragraph in advice.paragraphs().iter().filter(|_| is_full) {
            let is_code = paragraph.starts_with(' ');
            let width = if is_code { usize::MAX } else { style.width.saturating_sub(3) };
            for line in wrap(paragraph, width, 0) {
                put(text, format_args!("   {line}\n"));
            }
        }
    }
}

/// `GPU 0, process 4711 (python)`
fn name(judged: &Judged) -> String {
    let series = &judged.series;
    let mut name = match (&series.gpu, series.is_index) {
        (Some(gpu), true) => format!("GPU {gpu}"),
        (Some(gpu), false) => gpu.to_string(),
        (None, _) => "memory".to_owned(),
    };
    if let Some(pid) = series.pid {
        name = format!("{name}, process {pid}");
        if let Some(process) = &series.name {
            name = format!("{name} ({process})");
        }
    }
    name
}

fn one(text: &mut String, judged: &Judged, style: Style) {
    let span = Elapsed(Duration::try_from_secs_f64(judged.span).unwrap_or_default());
    let creep = judged.creep.as_ref().map_or_else(String::new, |it| format!(", though {it}"));
    tell(text, style, format_args!("{}: {}{creep}", name(judged), word(judged.last.outlook)));
    if let Some(reason) = &judged.reason {
        tell(text, style, format_args!("  {reason}"));
    } else if let Some(was) = judged.timeline.iter().rev().find(|it| it.outlook == Outlook::Leak) {
        let at = elapsed(was.at);
        tell(text, style, format_args!("  it was called a leak after {at}, and that was withdrawn"));
    }
    // What leaks is drawn, where the whole does not show it.
    let is_part = !judged.allocated.is_empty();
    if is_part {
        tell(text, style, format_args!("  what tensors hold of it:"));
    }
    let points = if is_part { &judged.allocated } else { &judged.points };
    text.push_str(&picture::draw(judged, points, style.width, style.ascii));
    let whole = judged.capacity.map_or_else(String::new, |it| format!(" of {it}"));
    let last = judged.points.last().map_or(Bytes(0), |it| Bytes(it.1));
    tell(text, style, format_args!("  {} samples in {span}; {last}{whole} at the end", judged.samples));
    if let Some(parts) = judged.parts {
        let (allocated, unallocated) = (parts.allocated, parts.reserved.saturating_sub(parts.allocated));
        let split = judged.series.allocator.map(|it| it.fragmented).filter(|it| it.0 > 0);
        let split = split.map_or_else(String::new, |it| format!(" ({it} of it in split segments)"));
        let outside = parts.outside.map_or_else(String::new, |it| {
            format!(", {}{} not PyTorch's", if it < 0 { "-" } else { "" }, Bytes(it.unsigned_abs()))
        });
        tell(
            text,
            style,
            format_args!("  at the end: {allocated} allocated, {unallocated} unallocated{split}{outside}"),
        );
    }
    changes(text, judged, style);
    for (at, fall) in judged.falls.iter().take(TOLD) {
        tell(text, style, format_args!("  after {}: {fall}", elapsed(*at)));
    }
    if judged.falls.len() > TOLD {
        tell(text, style, format_args!("  and {} sudden falls more", judged.falls.len() - TOLD));
    }
    text.push('\n');
}

/// When it became what: of the last of them, the rest would be too long.
fn changes(text: &mut String, judged: &Judged, style: Style) {
    let worth: Vec<_> = judged.timeline.iter().filter(|it| it.outlook != Outlook::TooSoon).collect();
    let skipped = worth.len().saturating_sub(TOLD);
    if skipped > 0 {
        tell(text, style, format_args!("  {skipped} changes before these"));
    }
    for said in &worth[skipped..] {
        let evidence = said.evidence.map_or_else(String::new, |it| format!(": {}", evidence_of(said.part, &it)));
        tell(text, style, format_args!("  after {}: {}{evidence}", elapsed(said.at), word(said.outlook)));
    }
}

fn word(outlook: Outlook) -> &'static str {
    match outlook {
        Outlook::TooSoon => "too soon to say",
        Outlook::Steady => "steady",
        Outlook::WarmingUp => "warming up",
        Outlook::Suspect => "suspect",
        Outlook::Leak => "LEAK",
    }
}

fn elapsed(seconds: f64) -> Elapsed {
    Elapsed(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A line, and what does not fit into it indented below.
fn tell(text: &mut String, style: Style, what: std::fmt::Arguments<'_>) {
    for (at, line) in wrap_figures(&what.to_string(), style.width, 4).iter().enumerate() {
        put(text, format_args!("{}{line}\n", if at == 0 { "" } else { "    " }));
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _infallible: std::fmt::Result = text.write_fmt(what);
}
