//! The headline and the findings: what leaked, what ran out, what was left over, each with a badge
//! and in sentences, the worst first.

use std::time::Duration;

use super::badge::PageBadge;
use super::words;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::logs::diff::RunComparison;
use crate::logs::recorded_run::{
    GpuRun, HeldMemory, HostRun, LeakFound, ObservedGrowth, ProcessKey, ProcessRun, RecordedRun,
    RunEvent, RunSubject, SuspectFound,
};
use crate::model::{NewsKind, Severity, Total};
use crate::protocol::snapshot::GpuUuid;

/// The kinds of findings, the worst first: in the order of the troubles of the screen, with memory
/// that ran out before memory that will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FindingRank {
    GpuTrouble,
    OutOfMemory,
    FullSoon,
    HardwareError,
    Leak,
    Leftover,
    /// Anything that deserves a look, and is no trouble.
    Remark,
}

/// Something that was found in a recording.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finding {
    rank: FindingRank,
    pub(super) badge: PageBadge,
    /// The finding in one sentence without an end mark.
    headline: String,
    /// The finding in sentences.
    pub(super) text: String,
    pub(super) subject: RunSubject,
    /// The GPUs whose memory the process kept without being listed there.
    kept_on: Vec<GpuUuid>,
}

/// The findings of a host.
#[derive(Debug, Clone)]
pub(super) struct HostSummary {
    /// The GPUs and processes that ran, and when, as a sentence.
    pub(super) ran: String,
    /// The worst first.
    pub(super) findings: Vec<Finding>,
    /// The highest memory, as a sentence.
    pub(super) peaks: String,
}

/// The headline and what is below it.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    /// The badge of the worst finding.
    pub(super) badge: PageBadge,
    /// The worst finding in one sentence without an end mark.
    pub(super) headline: String,
    /// In the order of the hosts of the run.
    pub(super) hosts: Vec<HostSummary>,
    /// Sentences about the recording itself.
    pub(super) notes: Vec<String>,
}

/// The most findings of one kind.
const MOST: usize = 5;

/// Memory that is full within this time is worse than a leak, as on the screen.
const SOON: Duration = Duration::from_mins(15);

impl Summary {
    pub(super) fn of(run: &RecordedRun) -> Self {
        let hosts: Vec<HostSummary> = run
            .hosts
            .iter()
            .map(|host| HostSummary {
                ran: what_ran(host),
                findings: findings(host),
                peaks: peaks(host),
            })
            .collect();
        let found = run.hosts.iter().zip(&hosts);
        let worst = found
            .filter_map(|(host, summary)| Some((host, summary.findings.first()?)))
            .min_by_key(|(_, finding)| finding.rank);
        let (badge, headline) = match worst {
            None => {
                let badge = PageBadge {
                    severity: Severity::Fine,
                    text: "ok".to_owned(),
                };
                (badge, "Nothing wrong found".to_owned())
            }
            Some((host, finding)) => {
                let on = if run.hosts.len() > 1 {
                    format!(" on {}", host.name)
                } else {
                    String::new()
                };
                (finding.badge.clone(), format!("{}{on}", finding.headline))
            }
        };
        let problems = run.problems.iter();
        Self {
            badge,
            headline,
            hosts,
            notes: problems
                .map(|problem| format!("The recording: {problem}."))
                .collect(),
        }
    }

    /// Adds the answer to whether a change helped.
    pub(super) fn compare(&mut self, comparison: &RunComparison, name: &str) {
        if let Some(headline) = comparison.headline() {
            self.notes
                .push(format!("This recording → {name}: {headline}."));
        }
    }

    /// How many findings there are besides the headline.
    pub(super) fn other_findings(&self) -> usize {
        let findings: usize = self.hosts.iter().map(|host| host.findings.len()).sum();
        findings.saturating_sub(1)
    }
}

impl Finding {
    /// Whether it concerns a GPU, or a process that used it.
    pub(super) fn concerns(&self, host: &HostRun, gpu: &GpuRun) -> bool {
        let is_there = match &self.subject {
            RunSubject::Gpu(uuid) => *uuid == gpu.uuid,
            RunSubject::Process(key) => host
                .processes
                .get(key)
                .is_some_and(|process| process.gpus.contains(&gpu.uuid)),
        };
        is_there || self.kept_on.contains(&gpu.uuid)
    }
}

/// Returns the findings of a host, the worst first.
fn findings(host: &HostRun) -> Vec<Finding> {
    let mut findings: Vec<Finding> = host
        .leaks
        .iter()
        .take(MOST)
        .map(|leak| of_leak(host, leak))
        .collect();
    findings.extend(
        host.largest_processes()
            .into_iter()
            .filter_map(|(key, process)| of_out_of_memory(host, key, process)),
    );
    findings.extend(of_suspects(host));
    findings.extend(of_events(host));
    // Findings of one rank stay in their order.
    findings.sort_by_key(|finding| finding.rank);
    findings
}

fn of_leak(host: &HostRun, leak: &LeakFound) -> Finding {
    let name = host.subject_name(&leak.subject);
    let on = on_gpus(host, &leak.subject);
    let rate = ObservedGrowth::of_leak(&leak.evidence)
        .map_or_else(String::new, |growth| format!(" {growth}"));
    let forecast = leak.evidence.forecast.filter(|_| leak.is_current);
    let full = forecast.map(|forecast| words::clock_after(host, leak.until, forecast.likely));
    let headline = match (&full, leak.is_current) {
        (Some(full), _) => format!("{name}{on} leaks{rate}: memory is full at about {full}"),
        (None, true) => format!("{name}{on} leaks{rate}"),
        (None, false) => format!(
            "{name}{on} leaked{rate} until {}",
            words::time(host, leak.until)
        ),
    };
    let is_soon = forecast.is_some_and(|forecast| forecast.likely <= SOON);
    let (rank, badge) = match full.filter(|_| is_soon) {
        Some(full) => (FindingRank::FullSoon, format!("full {full}")),
        None => (FindingRank::Leak, "LEAK".to_owned()),
    };
    Finding {
        rank,
        badge: bad(badge),
        headline,
        text: leak_sentence(host, leak),
        subject: leak.subject.clone(),
        kept_on: Vec::new(),
    }
}

fn of_out_of_memory(host: &HostRun, key: ProcessKey, process: &ProcessRun) -> Option<Finding> {
    let ooms = process.ooms.filter(|ooms| *ooms > 0)?;
    let subject = RunSubject::Process(key);
    let (name, on) = (process.name_with_pid(key), on_gpus(host, &subject));
    Some(Finding {
        rank: FindingRank::OutOfMemory,
        badge: bad("out of memory".to_owned()),
        headline: format!("{name}{on} ran out of memory {}", times(ooms)),
        text: out_of_memory_sentence(host, key, process, ooms),
        subject,
        kept_on: Vec::new(),
    })
}

/// Returns the processes that hold memory and should not; the first of several that do says so for
/// all of them.
fn of_suspects(host: &HostRun) -> Vec<Finding> {
    let left_over = host.suspects.iter().filter(|suspect| is_bad(suspect));
    let count = left_over.clone().count();
    let all = HeldMemory::total(left_over.map(|suspect| &suspect.held));
    let finding = |suspect: &SuspectFound| {
        let held = words::held(HeldMemory::total(std::iter::once(&suspect.held)));
        let held = if held == "-" {
            String::new()
        } else {
            format!(" {held}")
        };
        let gone = if suspect.is_current {
            ""
        } else {
            " It was gone at the end."
        };
        let sentence = format!("{}: {}", suspect.name, suspect.sentence);
        Finding {
            rank: if is_bad(suspect) {
                FindingRank::Leftover
            } else {
                FindingRank::Remark
            },
            badge: PageBadge {
                severity: suspect.severity,
                text: format!("{}{held}", suspect.word),
            },
            text: format!("{sentence}.{gone}"),
            headline: if is_bad(suspect) && count > 1 {
                left_over_words(count, all)
            } else {
                sentence
            },
            subject: RunSubject::Process(suspect.process),
            kept_on: suspect.kept_on.clone(),
        }
    };
    host.suspects.iter().take(MOST).map(finding).collect()
}

fn is_bad(suspect: &SuspectFound) -> bool {
    suspect.severity == Severity::Bad
}

/// Returns the errors of GPUs, and memory that was about to be full without a leak.
fn of_events(host: &HostRun) -> Vec<Finding> {
    let finding = |event: &RunEvent| {
        let (rank, badge) = match event.kind? {
            NewsKind::GpuTrouble => (FindingRank::GpuTrouble, "GPU trouble".to_owned()),
            NewsKind::Xid => {
                let words = event.sentence.split(" on ").next().unwrap_or("Xid");
                (FindingRank::HardwareError, words.to_owned())
            }
            NewsKind::FullSoon if is_full_soon_at_end(host, event) => {
                (FindingRank::FullSoon, "full soon".to_owned())
            }
            _ => return None,
        };
        Some(Finding {
            rank: if event.severity == Severity::Bad {
                rank
            } else {
                FindingRank::Remark
            },
            badge: PageBadge {
                severity: event.severity.max(Severity::Notable),
                text: badge,
            },
            headline: event.sentence.clone(),
            text: format!("{}: {}.", words::time(host, event.at), event.sentence),
            subject: event.subject.clone(),
            kept_on: Vec::new(),
        })
    };
    host.events.iter().filter_map(finding).take(MOST).collect()
}

/// Whether a warning of full memory holds until the end of the recording, and is not that of a leak.
fn is_full_soon_at_end(host: &HostRun, warning: &RunEvent) -> bool {
    let is_leak = host
        .leaks
        .iter()
        .any(|leak| leak.subject == warning.subject);
    let later = host
        .events
        .iter()
        .filter(|event| event.at >= warning.at && event.subject == warning.subject);
    let ends = [NewsKind::FullNoMore, NewsKind::Ended, NewsKind::OutOfMemory];
    let is_over = |event: &RunEvent| event.kind.is_some_and(|kind| ends.contains(&kind));
    !is_leak && !later.into_iter().any(is_over)
}

fn bad(text: String) -> PageBadge {
    PageBadge {
        severity: Severity::Bad,
        text,
    }
}

/// Returns the GPUs of a process, as in ` on GPU 0, 1`; nothing for a GPU.
fn on_gpus(host: &HostRun, subject: &RunSubject) -> String {
    let RunSubject::Process(key) = subject else {
        return String::new();
    };
    let gpus = host
        .processes
        .get(key)
        .map_or(&[][..], |process| &process.gpus);
    let labels: Vec<&str> = gpus
        .iter()
        .filter_map(|uuid| Some(host.gpu(uuid)?.label.as_str()))
        .collect();
    if labels.is_empty() {
        String::new()
    } else {
        format!(" on GPU {}", labels.join(", "))
    }
}

fn times(count: u64) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
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
    let on = on_gpus(host, &leak.subject);
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
    let reason = words::leak_reason(leak);
    // A forecast holds only while the memory grows.
    let (evidence, _forecast) = reason
        .split_once("; out of memory")
        .unwrap_or((&reason, ""));
    let reason = if leak.is_current { &reason } else { evidence };
    let since = words::time(host, leak.since);
    let causes = if leak.advice.is_empty() {
        String::new()
    } else {
        format!(" Possible causes: {}.", leak.advice.join("; "))
    };
    format!(
        "{name}{on} {verb}{until}, since {since}: {reason}.{}{causes}",
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
    let moments: Vec<String> = seen
        .take(MOST)
        .map(|event| words::time(host, event.at))
        .collect();
    let at = if moments.is_empty() {
        String::new()
    } else {
        format!(", at {}", moments.join(", "))
    };
    format!(
        "{} ran out of memory {}{at}.",
        process.name_with_pid(key),
        times(ooms)
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::UserHues;

    fn event(kind: NewsKind, severity: Severity, sentence: &str) -> RunEvent {
        RunEvent {
            at: 1_784_016_758_000,
            kind: Some(kind),
            severity,
            subject: RunSubject::Gpu(GpuUuid("GPU-0".into())),
            sentence: sentence.to_owned(),
        }
    }

    fn summary(events: Vec<RunEvent>) -> Summary {
        let host = HostRun {
            name: "a".into(),
            utc_offset: None,
            driver: None,
            began: 1_784_016_700_000,
            ended: 1_784_016_800_000,
            gpus: Vec::new(),
            processes: BTreeMap::new(),
            events,
            leaks: Vec::new(),
            suspects: Vec::new(),
        };
        Summary::of(&RecordedRun {
            hosts: vec![host],
            problems: Vec::new(),
            user_hues: UserHues::default(),
        })
    }

    #[test]
    fn the_headline_is_the_worst_finding_with_its_badge() {
        let of_program = event(
            NewsKind::Xid,
            Severity::Notable,
            "Xid 31 on GPU 0: page fault",
        );
        let soon = event(NewsKind::FullSoon, Severity::Bad, "FULL SOON train.py");
        let lost = event(
            NewsKind::GpuTrouble,
            Severity::Bad,
            "GPU 0: fell off the bus",
        );
        let began = event(NewsKind::Began, Severity::Fine, "train.py started");
        let headline = |events: &[&RunEvent]| {
            let summary = summary(events.iter().copied().cloned().collect());
            (summary.badge.severity, summary.badge.text, summary.headline)
        };
        let expected = |severity, badge: &str, headline: &str| {
            (severity, badge.to_owned(), headline.to_owned())
        };
        assert_eq!(
            headline(&[&began]),
            expected(Severity::Fine, "ok", "Nothing wrong found")
        );
        assert_eq!(
            headline(&[&began, &of_program]),
            expected(Severity::Notable, "Xid 31", "Xid 31 on GPU 0: page fault")
        );
        assert_eq!(
            headline(&[&of_program, &soon]),
            expected(Severity::Bad, "full soon", "FULL SOON train.py")
        );
        assert_eq!(
            headline(&[&of_program, &soon, &lost]),
            expected(Severity::Bad, "GPU trouble", "GPU 0: fell off the bus")
        );
    }

    #[test]
    fn a_warning_that_is_over_is_no_finding() {
        let soon = event(NewsKind::FullSoon, Severity::Bad, "FULL SOON train.py");
        let over = event(NewsKind::FullNoMore, Severity::Fine, "no longer");
        assert_eq!(summary(vec![soon, over]).headline, "Nothing wrong found");
    }

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
