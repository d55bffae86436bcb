//! The tables of a page, as text that both HTML and Markdown show.

use super::words;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::logs::diff::{Metric, RunComparison};
use crate::logs::recorded_run::{
    GpuRun, HeldMemory, HostRun, LeakFound, LoadRange, Mean, ProcessKey, ProcessRun, RunSubject,
};
use crate::model::Severity;
use crate::output::labels::tensors;
use crate::protocol::snapshot::TensorLeak;

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PageTable {
    pub(super) title: &'static str,
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<Vec<PageCell>>,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PageCell {
    Text(String),
    /// A number with its unit: right-aligned.
    Number(String),
    /// A command line or a line of a program.
    Code(String),
    /// Text about a problem.
    Bad(String),
}

impl PageCell {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) | Self::Code(text) | Self::Bad(text) => text,
        }
    }
}

fn text(text: impl Into<String>) -> PageCell {
    PageCell::Text(text.into())
}

fn number(text: impl Into<String>) -> PageCell {
    PageCell::Number(text.into())
}

fn mean(range: &LoadRange, unit: &str) -> String {
    range.all.as_ref().map_or_else(
        || "-".to_owned(),
        |all| format!("{:.0}{unit}", Mean::mean(all)),
    )
}

fn highest(range: &LoadRange, unit: &str) -> String {
    range
        .all
        .map_or_else(|| "-".to_owned(), |all| format!("{:.0}{unit}", all.high))
}

/// Returns the table of GPUs.
pub(super) fn gpus(host: &HostRun) -> PageTable {
    let row = |gpu: &GpuRun| {
        let name = gpu
            .name
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
        let peak = gpu.memory.peak.map(|(_, peak)| peak);
        let share = peak
            .zip(gpu.capacity)
            .and_then(|(peak, capacity)| peak.share_of(capacity));
        let share = share.map_or_else(String::new, |share| format!(" ({:.0}%)", share * 100.0));
        let at = gpu
            .memory
            .peak
            .map_or_else(|| "-".to_owned(), |(at, _)| words::time(host, at));
        vec![
            text(gpu.label.clone()),
            text(name),
            number(words::amount(gpu.capacity)),
            number(format!("{}{share}", words::amount(peak))),
            number(at),
            number(words::amount(gpu.memory.lowest.map(|(_, lowest)| lowest))),
            number(words::growth(gpu.curve.growth())),
            number(mean(&gpu.sm, "%")),
            number(mean(&gpu.power, "W")),
            number(highest(&gpu.temperature, "°C")),
        ]
    };
    PageTable {
        title: "GPUs",
        headings: vec![
            "GPU",
            "Name",
            "Memory",
            "Peak",
            "At",
            "Lowest",
            "Growth",
            "Mean use",
            "Mean power",
            "Hottest",
        ],
        rows: host.gpus.iter().map(row).collect(),
    }
}

/// Returns the table of processes, the largest first.
pub(super) fn processes(host: &HostRun) -> PageTable {
    let row = |(key, process): (ProcessKey, &ProcessRun)| {
        let gpus = process
            .gpus
            .iter()
            .filter_map(|uuid| Some(host.gpu(uuid)?.label.clone()));
        let until = if process.is_there {
            "the end".to_owned()
        } else {
            words::time(host, process.ended)
        };
        let step = Metric::StepSeconds.format(process.steps.and_then(|steps| steps.seconds()));
        let ooms = match process.ooms {
            None => number("-"),
            Some(0) => number("0"),
            Some(ooms) => PageCell::Bad(ooms.to_string()),
        };
        vec![
            number(key.id.pid.to_string()),
            PageCell::Code(process.command.clone().unwrap_or_else(|| process.name())),
            text(process.user().map_or("-", Text::as_str)),
            text(gpus.collect::<Vec<_>>().join(", ")),
            text(format!("{} to {until}", words::time(host, process.began))),
            number(words::amount(process.memory.peak.map(|(_, peak)| peak))),
            number(words::amount(process.tensors.peak.map(|(_, peak)| peak))),
            number(words::amount(
                process.curve.floor().map(|kib| Bytes::from_kib(kib.into())),
            )),
            number(words::growth(process.curve.growth())),
            number(
                process
                    .mean_sm()
                    .map_or_else(|| "-".to_owned(), |sm| format!("{sm:.0}%")),
            ),
            number(step),
            ooms,
        ]
    };
    PageTable {
        title: "Processes",
        headings: vec![
            "PID",
            "Command",
            "User",
            "GPU",
            "Held memory",
            "Peak",
            "Peak of tensors",
            "Floor",
            "Growth",
            "Mean use",
            "Step",
            "Out of memory",
        ],
        rows: host.largest_processes().into_iter().map(row).collect(),
    }
}

/// Returns the table of leaks: those of the curves, then those that the probe found.
pub(super) fn leaks(host: &HostRun) -> PageTable {
    let by_curve = |leak: &LeakFound| {
        let end = leak.evidence.forecast.filter(|_| leak.is_current);
        let end = end.map(|forecast| {
            let at =
                leak.until + u64::try_from(forecast.likely.as_millis()).unwrap_or(u64::MAX / 4);
            format!(
                "{} (in {})",
                words::date_and_time(host, at),
                words::duration_of(forecast.likely)
            )
        });
        let reason = words::leak_reason(leak);
        let over = || {
            if leak.is_current {
                "not within a day".to_owned()
            } else {
                "the growth is over".to_owned()
            }
        };
        vec![
            PageCell::Bad(host.subject_name(&leak.subject)),
            text(words::time(host, leak.since)),
            text(
                reason
                    .split("; out of memory")
                    .next()
                    .unwrap_or(&reason)
                    .to_owned(),
            ),
            text(end.unwrap_or_else(over)),
            text(leak.advice.join("; ")),
        ]
    };
    PageTable {
        title: "Leaks",
        headings: vec![
            "Process or GPU",
            "Since",
            "Evidence",
            "Memory is full",
            "Possible causes",
        ],
        rows: host.leaks.iter().map(by_curve).collect(),
    }
}

/// Returns the leaks that the probe found inside PyTorch, with their lines and holders.
pub(super) fn tensor_leaks(host: &HostRun) -> PageTable {
    let leaks = host
        .largest_processes()
        .into_iter()
        .filter_map(|(key, process)| Some((key, process, process.report()?)));
    let row = |key: ProcessKey, leak: &TensorLeak| {
        let line = leak
            .allocated_at
            .as_ref()
            .and_then(|lines| lines.user.as_ref().or(lines.inner.as_ref()));
        let held_by: Vec<&str> = leak.held_by.iter().map(Text::as_str).collect();
        let cause = leak
            .title
            .as_ref()
            .or(leak.cause.as_ref())
            .map_or_else(String::new, ToString::to_string);
        let advice = leak
            .advice
            .as_ref()
            .map_or_else(String::new, |advice| format!(": {advice}"));
        vec![
            PageCell::Bad(host.subject_name(&RunSubject::Process(key))),
            text(tensors::leak(leak)),
            PageCell::Code(line.map_or_else(|| "-".to_owned(), ToString::to_string)),
            PageCell::Code(if held_by.is_empty() {
                "-".to_owned()
            } else {
                held_by.join("; ")
            }),
            text(format!("{cause}{advice}")),
        ]
    };
    PageTable {
        title: "Tensors that leak",
        headings: vec!["Process", "Growth", "Allocated at", "Held by", "Cause"],
        rows: leaks
            .flat_map(|(key, _, report)| report.leaks.iter().map(move |leak| row(key, leak)))
            .collect(),
    }
}

/// Returns the table of processes that hold memory and should not.
pub(super) fn suspects(host: &HostRun) -> PageTable {
    let rows = host.suspects.iter().map(|suspect| {
        let until = if suspect.is_current {
            "the end".to_owned()
        } else {
            words::time(host, suspect.until)
        };
        let word = suspect.word.to_owned();
        vec![
            text(suspect.name.clone()),
            if suspect.severity == Severity::Bad {
                PageCell::Bad(word)
            } else {
                PageCell::Text(word)
            },
            number(words::held(HeldMemory::total(std::iter::once(
                &suspect.held,
            )))),
            text(format!("{} to {until}", words::time(host, suspect.since))),
            text(suspect.sentence.clone()),
        ]
    });
    PageTable {
        title: "Processes that may be left over",
        headings: vec!["Process", "Verdict", "Holds", "Seen", "Why"],
        rows: rows.collect(),
    }
}

/// Returns the table of two recordings side by side.
pub(super) fn comparison(comparison: &RunComparison) -> PageTable {
    let rows = comparison
        .processes
        .iter()
        .chain(&comparison.marks)
        .chain(&comparison.gpus)
        .flat_map(|subject| {
            subject.shown_metrics().enumerate().map(|(row, metric)| {
                let [a, b] = [metric.a, metric.b].map(|value| number(metric.metric.format(value)));
                let name = if row == 0 {
                    subject.name.clone()
                } else {
                    String::new()
                };
                vec![
                    PageCell::Code(name),
                    text(metric.metric.words()),
                    a,
                    b,
                    number(metric.change_in_words()),
                ]
            })
        });
    PageTable {
        title: "Compared",
        headings: vec![
            "Process or GPU",
            "Figure",
            "This recording",
            "The other",
            "Change",
        ],
        rows: rows.collect(),
    }
}

/// Returns the table of events: the last `most`, without harmless ones if there are more.
pub(super) fn events(host: &HostRun, most: usize) -> PageTable {
    let is_kept = |severity: Severity| host.events.len() <= most || severity >= Severity::Notable;
    let events: Vec<_> = host
        .events
        .iter()
        .filter(|event| is_kept(event.severity) || event.kind.is_none())
        .collect();
    let events = events
        .get(events.len().saturating_sub(most)..)
        .unwrap_or_default();
    let row = |event: &&crate::logs::recorded_run::RunEvent| {
        let sentence = event.sentence.clone();
        vec![
            number(words::time(host, event.at)),
            if event.severity == Severity::Bad {
                PageCell::Bad(sentence)
            } else {
                PageCell::Text(sentence)
            },
        ]
    };
    PageTable {
        title: "Events",
        headings: vec!["Time", "Event"],
        rows: events.iter().map(row).collect(),
    }
}
