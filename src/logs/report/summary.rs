//! The headline and the summary: what ran, what leaked, what ran out, what was left over, in
//! sentences.

use super::words;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::logs::diff::RunComparison;
use crate::logs::recorded_run::{
    HeldMemory, HostRun, LeakFound, ProcessKey, ProcessRun, RecordedRun, RunSubject,
};
use crate::model::{NewsKind, Severity, Total};

/// A sentence of the summary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SummarySentence {
    pub(super) severity: Severity,
    pub(super) text: String,
}

/// The headline and the sentences below it.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    pub(super) headline: String,
    pub(super) sentences: Vec<SummarySentence>,
}

/// The most sentences of one kind.
const MOST: usize = 5;

impl Summary {
    pub(super) fn of(run: &RecordedRun) -> Self {
        let mut summary = Self {
            headline: String::new(),
            sentences: Vec::new(),
        };
        let mut headlines = Vec::new();
        for host in &run.hosts {
            let on = if run.hosts.len() > 1 {
                format!(" on {}", host.name)
            } else {
                String::new()
            };
            summary.add(Severity::Unknown, what_ran(host));
            for text in summary.findings(host) {
                headlines.push(format!("{text}{on}"));
            }
            summary.add(Severity::Unknown, peaks(host));
        }
        for problem in &run.problems {
            summary.add(Severity::Notable, format!("The recording: {problem}."));
        }
        summary.headline = match headlines.as_slice() {
            [] => "No leak, no out-of-memory error and nothing left over".to_owned(),
            [one] => one.clone(),
            [first, second] => format!("{first}; {second}"),
            [first, second, rest @ ..] => format!("{first}; {second}; and {} more", rest.len()),
        };
        summary
    }

    /// Adds the answer to whether a change helped.
    pub(super) fn compare(&mut self, comparison: &RunComparison, name: &str) {
        if let Some(headline) = comparison.headline() {
            self.add(
                Severity::Unknown,
                format!("This recording → {name}: {headline}."),
            );
        }
    }

    fn add(&mut self, severity: Severity, text: String) {
        self.sentences.push(SummarySentence { severity, text });
    }

    /// Adds the sentences about a host's problems. Returns a few words for each.
    fn findings(&mut self, host: &HostRun) -> Vec<String> {
        let mut headlines = Vec::new();
        for (number, leak) in host.leaks.iter().enumerate() {
            let name = host.subject_name(&leak.subject);
            let verb = if leak.is_current { "leaks" } else { "leaked" };
            headlines.push(format!(
                "{name} {verb} {}",
                leak.evidence.rate.to_string().trim_start_matches('+')
            ));
            if number < MOST {
                self.add(Severity::Bad, leak_sentence(host, leak));
            }
        }
        for (key, process) in host.largest_processes() {
            let Some(ooms) = process.ooms.filter(|ooms| *ooms > 0) else {
                continue;
            };
            let name = process.name_with_pid(key);
            headlines.push(format!("{name} ran out of memory"));
            self.add(
                Severity::Bad,
                out_of_memory_sentence(host, key, process, ooms),
            );
        }
        let left_over: Vec<_> = host
            .suspects
            .iter()
            .filter(|suspect| suspect.severity == Severity::Bad)
            .collect();
        if !left_over.is_empty() {
            let held = HeldMemory::total(left_over.iter().map(|suspect| &suspect.held));
            headlines.push(left_over_words(left_over.len(), held));
        }
        for suspect in host.suspects.iter().take(MOST) {
            let gone = if suspect.is_current {
                ""
            } else {
                " It was gone at the end."
            };
            self.add(
                suspect.severity,
                format!(
                    "{}: {}: {}.{gone}",
                    suspect.word, suspect.name, suspect.sentence
                ),
            );
        }
        let trouble =
            |kind: Option<NewsKind>| matches!(kind, Some(NewsKind::Xid | NewsKind::GpuTrouble));
        for event in host
            .events
            .iter()
            .filter(|event| trouble(event.kind))
            .take(MOST)
        {
            headlines.push(event.sentence.clone());
            self.add(
                event.severity,
                format!("{}: {}.", words::time(host, event.at), event.sentence),
            );
        }
        headlines
    }
}

fn left_over_words(count: usize, held: Total) -> String {
    let (noun, verb) = if count == 1 {
        ("process", "holds")
    } else {
        ("processes", "hold")
    };
    let held = match held {
        Total {
            bytes: Bytes(0),
            is_lower_bound: true,
        } => "memory".to_owned(),
        Total {
            bytes,
            is_lower_bound: true,
        } => format!("at least {bytes}"),
        Total {
            bytes,
            is_lower_bound: false,
        } => bytes.to_string(),
    };
    format!("{count} left-over {noun} {verb} {held}")
}

fn what_ran(host: &HostRun) -> String {
    let names: Vec<&str> = host
        .gpus
        .iter()
        .filter_map(|gpu| gpu.name.as_ref().map(Text::as_str))
        .collect();
    let name = match names.first() {
        Some(first) if names.iter().all(|name| name == first) => format!(" ({first})"),
        _ => String::new(),
    };
    let driver = host
        .driver
        .as_ref()
        .map_or_else(String::new, |driver| format!(", driver {driver},"));
    let count = |count: usize, noun: &str, plural: &str| {
        format!("{count} {}", if count == 1 { noun } else { plural })
    };
    format!(
        "{}: {}{name}{driver} and {} from {} to {} ({}, {}).",
        host.name,
        count(host.gpus.len(), "GPU", "GPUs"),
        count(host.processes.len(), "process", "processes"),
        words::date_and_time(host, host.began),
        words::time(host, host.ended),
        words::duration(host.ended.saturating_sub(host.began)),
        words::time_zone(host),
    )
}

fn leak_sentence(host: &HostRun, leak: &LeakFound) -> String {
    let name = host.subject_name(&leak.subject);
    let process = match &leak.subject {
        RunSubject::Process(key) => host.processes.get(key),
        RunSubject::Gpu(_) => None,
    };
    let gpus = process.map(|process| {
        process
            .gpus
            .iter()
            .filter_map(|uuid| Some(host.gpu(uuid)?.label.as_str()))
    });
    let on = gpus.map_or_else(String::new, |gpus| {
        format!(" on GPU {}", gpus.collect::<Vec<_>>().join(", "))
    });
    let verb = if leak.is_current {
        "leaks"
    } else {
        "leaked until"
    };
    let until = if leak.is_current {
        String::new()
    } else {
        format!(" {}", words::time(host, leak.until))
    };
    let line = process.and_then(ProcessRun::report).and_then(|report| {
        let leak = report.leaks.first()?;
        let lines = leak.allocated_at.as_ref();
        let at = lines.and_then(|lines| lines.user.as_ref().or(lines.inner.as_ref()));
        let at = at.map(|line| format!("allocated at {line}"));
        let holder = leak
            .held_by
            .first()
            .map(|holder| format!("held by {holder}"));
        let known: Vec<String> = [at, holder].into_iter().flatten().collect();
        (!known.is_empty()).then(|| format!(" The tensors are {}.", known.join(", ")))
    });
    // A forecast holds only while the memory grows.
    let (evidence, _forecast) = leak
        .reason
        .split_once("; out of memory")
        .unwrap_or((&leak.reason, ""));
    let reason = if leak.is_current {
        &leak.reason
    } else {
        evidence
    };
    let since = words::time(host, leak.since);
    format!(
        "{name}{on} {verb}{until}, since {since}: {}.{}",
        reason,
        line.as_deref().unwrap_or_default()
    )
}

fn out_of_memory_sentence(
    host: &HostRun,
    key: ProcessKey,
    process: &ProcessRun,
    ooms: u64,
) -> String {
    let is_it = |subject: &RunSubject| *subject == RunSubject::Process(key);
    let seen = host
        .events
        .iter()
        .filter(|event| event.kind == Some(NewsKind::OutOfMemory) && is_it(&event.subject));
    let times: Vec<String> = seen
        .take(MOST)
        .map(|event| words::time(host, event.at))
        .collect();
    let times = if times.is_empty() {
        String::new()
    } else {
        format!(", at {}", times.join(", "))
    };
    let count = if ooms == 1 {
        "once".to_owned()
    } else {
        format!("{ooms} times")
    };
    format!(
        "{} ran out of memory {count}{times}.",
        process.name_with_pid(key)
    )
}

fn peaks(host: &HostRun) -> String {
    let highest = host.fullest_gpu().filter(|gpu| gpu.memory.peak.is_some());
    match highest {
        Some(gpu) => format!(
            "GPU {}: {}",
            gpu.label,
            words::peak(&gpu.memory, gpu.capacity, host)
        ),
        None => "No memory figure of a GPU was read.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_over_an_unknown_amount_says_at_least() {
        let words = |count, gib, lower_bound| {
            left_over_words(
                count,
                Total {
                    bytes: Bytes::from_gib(gib),
                    is_lower_bound: lower_bound,
                },
            )
        };
        assert_eq!(words(2, 11, false), "2 left-over processes hold 11.0 GiB");
        assert_eq!(
            words(2, 11, true),
            "2 left-over processes hold at least 11.0 GiB"
        );
        assert_eq!(words(1, 0, true), "1 left-over process holds memory");
    }
}
