//! The verdicts as text, with advice against growth.

use super::falls::MemoryFall;
use super::headline::{headline, name, word};
use super::judged::JudgedSeries;
use super::log::AnalyzedLog;
use super::next_steps;
use super::picture;
use super::summary::{self, SeriesRank};
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{Evidence, GrowthPattern, LeakVerdict, on_growth};
use crate::output::{StyledText, TextStyle};

/// Logs with more series begin with a table.
const FEW_SERIES: usize = 4;
const INDENT: usize = 4;

/// Returns the text for all logs. With `all`, each series has its details, however many there are.
pub(super) fn format(logs: &[(Text, AnalyzedLog)], all: bool, style: TextStyle) -> String {
    let mut text = StyledText::new(style);
    let (mut has_hidden_series, mut hidden_events) = (false, 0);
    for (name, log) in logs.iter().filter(|(_, log)| log.problem.is_none()) {
        if logs.len() > 1 {
            text.gap();
            text.heading(&format!("{name}:"));
        }
        for doubt in &log.doubts {
            text.paragraph(INDENT, format_args!("DOUBT: {doubt}"));
        }
        let mut series: Vec<&JudgedSeries> = log.series.iter().collect();
        series.sort_by_key(|judged| SeriesRank::of(judged));
        let has_table = series.len() > FEW_SERIES;
        if has_table {
            summary::add(&mut text, &series, log.times, all);
        }
        has_hidden_series |= has_table && !all;
        for judged in series.iter().filter(|_| all || !has_table) {
            hidden_events += add_series(&mut text, judged, all);
        }
        add_memory_names(&mut text, log);
        for note in &log.notes {
            text.paragraph(INDENT, format_args!("note: {note}"));
        }
        if log.missing > 0 {
            text.line(format_args!(
                "{} readings are missing in the log",
                log.missing
            ));
        }
        if log.unreadable.count > 0 {
            text.line(format_args!(
                "{} of {} lines could not be read:",
                log.unreadable.count, log.lines
            ));
            for sentence in log.unreadable.sentences() {
                text.paragraph(INDENT, format_args!("  {sentence}"));
            }
        }
    }
    // Where nothing grew, lesser events are of no use.
    let has_grown = logs
        .iter()
        .flat_map(|(_, log)| &log.series)
        .any(next_steps::has_grown);
    if has_hidden_series || hidden_events > 0 && has_grown {
        let command = next_steps::command_for_all(logs);
        text.gap();
        match (has_hidden_series, hidden_events) {
            (true, _) => text.paragraph(
                4,
                format_args!("`{command}` shows each with its graph and its events."),
            ),
            (false, 1) => text.paragraph(4, format_args!("`{command}` also lists 1 lesser event.")),
            (false, count) => text.paragraph(
                4,
                format_args!("`{command}` also lists {count} lesser events."),
            ),
        }
    }
    advise(&mut text, logs);
    next_steps::add(&mut text, logs);
    text.finish()
}

/// Adds the advice against each growth pattern, once for all series with that pattern.
fn advise(text: &mut StyledText, logs: &[(Text, AnalyzedLog)]) {
    /// Pieces of advice that are given in full; the others by their titles.
    const IN_FULL: usize = 3;
    /// Series that are named.
    const NAMED: usize = 4;
    let mut patterns: Vec<(GrowthPattern, Vec<String>)> = Vec::new();
    for (file, log) in logs {
        for (pattern, judged) in log
            .series
            .iter()
            .filter_map(|judged| Some((judged.pattern?, judged)))
        {
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
            let file = if logs.len() > 1 {
                format!("{file}: ")
            } else {
                String::new()
            };
            let name = format!("{file}{}", name(judged));
            match patterns.iter_mut().find(|(known, _)| *known == pattern) {
                Some((_, names)) => names.push(name),
                None => patterns.push((pattern, vec![name])),
            }
        }
    }
    let mut given = Vec::new();
    for (pattern, names) in &patterns {
        text.gap();
        let for_series = match names.len() {
            _ if patterns.len() < 2 => String::new(),
            0..=NAMED => format!(" for {}", names.join(" and ")),
            count => format!(
                " for {} and {} more",
                names[..NAMED].join(" and "),
                count - NAMED
            ),
        };
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

/// Adds a series. Returns the number of its events that are left out.
fn add_series(text: &mut StyledText, judged: &JudgedSeries, shows_all: bool) -> usize {
    let mut paragraph = |paragraph: std::fmt::Arguments<'_>| text.paragraph(INDENT, paragraph);
    paragraph(format_args!("{}: {}", name(judged), headline(judged)));
    let leak = judged
        .episodes
        .iter()
        .rfind(|episode| episode.verdict == LeakVerdict::Leak);
    if let Some(reason) = &judged.reason {
        paragraph(format_args!("  at the end: {reason}"));
    } else if let Some(leak) = leak {
        // A forecast is of no use afterwards.
        let evidence = Evidence {
            forecast: None,
            ..leak.evidence
        };
        paragraph(format_args!("  {}", judged.describe(leak.part, &evidence)));
    }
    // A leak of allocated memory may not show in the total.
    let shows_allocated = !judged.allocated.is_empty();
    if shows_allocated {
        paragraph(format_args!("  memory allocated by tensors:"));
    }
    let points = if shows_allocated {
        &judged.allocated
    } else {
        &judged.points
    };
    text.lines(&picture::draw(
        judged,
        points,
        text.style.width,
        text.style.ascii,
    ));
    let mut paragraph = |paragraph: std::fmt::Arguments<'_>| text.paragraph(INDENT, paragraph);
    let plural = if judged.samples == 1 { "" } else { "s" };
    let dates = judged
        .times
        .date(judged.begin)
        .zip(judged.times.date(judged.time(judged.span)));
    let dates = dates.map_or_else(String::new, |(begin, end)| format!(", {begin} to {end}"));
    let after = judged.times.since_begin(judged.begin);
    let is_late = dates.is_empty() && judged.times.steps.is_none() && after.0.as_secs() > 0;
    let late = if is_late {
        format!(", beginning {after} after the log")
    } else {
        String::new()
    };
    paragraph(format_args!(
        "  {} sample{plural} in {}{dates}{late}",
        judged.samples,
        judged.times.elapsed(judged.span)
    ));
    if let Some(split) = judged.split {
        let (allocated, unallocated) = (
            split.allocated,
            split.reserved.saturating_sub(split.allocated),
        );
        let fragmented = judged
            .series
            .allocator
            .map(|allocator| allocator.fragmented)
            .filter(|bytes| bytes.0 > 0);
        let fragmented = fragmented.map_or_else(String::new, |bytes| {
            format!(" ({bytes} of it in split segments)")
        });
        let outside = split.outside.map_or_else(String::new, |bytes| {
            format!(
                ", {}{} not PyTorch's",
                if bytes < 0 { "-" } else { "" },
                Bytes(bytes.unsigned_abs())
            )
        });
        paragraph(format_args!(
            "  at the end: {allocated} allocated, {unallocated} unallocated{fragmented}{outside}"
        ));
    }
    let hidden = add_events(text, judged, shows_all);
    text.gap();
    hidden
}

/// Adds the changes of the verdict and the sudden falls, in the order of time. Without `all`, the
/// less important are left out. Returns their number.
fn add_events(text: &mut StyledText, judged: &JudgedSeries, shows_all: bool) -> usize {
    /// Events that are listed.
    const LISTED: usize = 12;
    let befores = std::iter::once(LeakVerdict::TooSoon)
        .chain(judged.timeline.iter().map(|timed| timed.verdict));
    let changes = befores
        .zip(&judged.timeline)
        .filter(|(_, timed)| timed.verdict != LeakVerdict::TooSoon);
    let changes = changes.map(|(before, timed)| {
        let evidence = timed
            .evidence
            .map(|evidence| format!(": {}", judged.describe(timed.part, &evidence)));
        let weight = match before.max(timed.verdict) {
            LeakVerdict::Leak => EventWeight::Leak,
            LeakVerdict::Suspect => EventWeight::Other,
            _ => EventWeight::Lesser,
        };
        let words = format!("{}{}", word(timed.verdict), evidence.unwrap_or_default());
        (timed.at, weight, words)
    });
    let falls = judged
        .falls
        .iter()
        .map(|fall| (fall.at, weight_of(fall, &judged.falls), fall.words()));
    // A fall is the reason for a change at the same time, and stays before it.
    let mut events: Vec<(f64, EventWeight, String)> = falls.chain(changes).collect();
    events.sort_by(|one, other| one.0.total_cmp(&other.0));
    let count = events.len();
    if !shows_all {
        let of_leaks = events
            .iter()
            .filter(|(_, weight, _)| *weight == EventWeight::Leak)
            .count();
        // The last events tell how it ended.
        let (mut leaks, mut others) = (of_leaks.min(LISTED), LISTED.saturating_sub(of_leaks));
        events.reverse();
        events.retain(|(_, weight, _)| {
            let left = match weight {
                EventWeight::Leak => &mut leaks,
                EventWeight::Other => &mut others,
                EventWeight::Lesser => return false,
            };
            let is_kept = *left > 0;
            *left = left.saturating_sub(1);
            is_kept
        });
        events.reverse();
    }
    for (at, _, event) in &events {
        let clock = judged
            .clock(*at)
            .map_or_else(String::new, |clock| format!(" ({clock})"));
        text.paragraph(
            INDENT,
            format_args!("  {}{clock}: {event}", after(judged, *at)),
        );
    }
    count - events.len()
}

/// Returns `after 2h10m`, or `at step 4,800`.
fn after(judged: &JudgedSeries, at: f64) -> String {
    let preposition = if judged.times.steps.is_some() {
        "at"
    } else {
        "after"
    };
    format!("{preposition} {}", judged.moment(at))
}

/// A fall that is small beside the largest of its series is a lesser event.
fn weight_of(fall: &MemoryFall, falls: &[MemoryFall]) -> EventWeight {
    let largest = falls.iter().map(|fall| fall.given_back).max();
    if largest.is_some_and(|largest| fall.given_back.0 < largest.0 / 3) {
        EventWeight::Lesser
    } else {
        EventWeight::Other
    }
}

/// Names the columns of memory that were judged.
fn add_memory_names(text: &mut StyledText, log: &AnalyzedLog) {
    /// Columns that are named.
    const MOST: usize = 4;
    let names: Vec<String> = log
        .memory_names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let more = if names.len() > MOST {
        format!(" and {} more", names.len() - MOST)
    } else {
        String::new()
    };
    let plural = if names.len() == 1 { "" } else { "s" };
    if !names.is_empty() {
        let names = names[..names.len().min(MOST)].join(", ");
        text.paragraph(INDENT, format_args!("memory column{plural}: {names}{more}"));
    }
}

/// How much an event says about a leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventWeight {
    /// A leak begins or ends.
    Leak,
    Other,
    /// A small fall, or a series that does not leak warms up or is steady.
    Lesser,
}
