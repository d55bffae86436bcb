//! The lines of a job's page that say which ranks differ from the others, the most urgent first.

use std::sync::Arc;

use super::{ShownJob, distance, gigahertz, severity_of};
use crate::base::units::{Bytes, Moment};
use crate::model::{
    GpuOrProcess, Growing, HostModel, JobPart, JobRank, Lag, MissingRank, Severity, TroubleRank,
    main_gpu,
};
use crate::output::labels::growth::full_after;
use crate::output::labels::short_amount;
use crate::protocol::host_key::HostKey;
use crate::protocol::snapshot::Throttle;

/// A rank, or a host, that differs from the others.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// `None` for a host.
    pub(super) rank: Option<u32>,
    /// `gpu-03:5`
    pub(super) place: String,
    /// The letter of the rank in the grid.
    pub(super) letter: char,
    pub(super) severity: Severity,
    pub(super) sentence: String,
}

/// The most lines of one kind: if more ranks differ in the same way, none is the odd one.
const MOST: usize = 5;

/// The difference from the median memory that has a line: the larger one of both.
const CLEAR_MEMORY: Bytes = Bytes(1 << 30);
const CLEAR_SHARE: u64 = 10;

/// Returns the differences, the most urgent first: hosts that do not answer, GPUs that are lost,
/// missing ranks, leaks, candidates for a straggler, what is left over, memory.
pub(super) fn find(shown: &ShownJob<'_>) -> Vec<Difference> {
    let leaks = leaks(shown);
    // The memory of a rank that grows differs anyway.
    let grows = |line: &Difference| leaks.iter().any(|leak| leak.rank == line.rank);
    let mut memory = memory(shown);
    memory.retain(|line| !grows(line));
    let kinds = [
        silent_hosts(shown),
        sick_gpus(shown),
        missing(shown),
        leaks,
        stragglers(shown),
        left_over(shown),
        memory,
    ];
    kinds.into_iter().flat_map(cut).collect()
}

/// Keeps the first lines of one kind, and counts the others.
fn cut(mut lines: Vec<Difference>) -> Vec<Difference> {
    let others = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if let Some(last) = lines.last_mut().filter(|_| others > 0) {
        let noun = if others == 1 { "line" } else { "lines" };
        last.sentence = format!("{} (+{others} {noun} like this)", last.sentence);
    }
    lines
}

fn of_rank(shown: &ShownJob<'_>, rank: &JobRank, letter: char, sentence: String) -> Difference {
    Difference {
        rank: Some(rank.rank),
        place: shown.place(rank),
        letter,
        severity: severity_of(letter),
        sentence,
    }
}

/// A time of a host as the viewer's clock shows it, as in ` since 12:01`; empty where no clock is
/// known.
fn since(shown: &ShownJob<'_>, host: HostKey, at: Moment) -> String {
    let now = shown.fleet.host(host).map(HostModel::now);
    let clock = shown.clocks.shared(shown.fleet, host);
    clock.zip(now).map_or_else(String::new, |(clock, now)| {
        format!(" since {}", clock.near(at, now))
    })
}

fn silent_hosts(shown: &ShownJob<'_>) -> Vec<Difference> {
    let silent = shown
        .job
        .hosts()
        .into_iter()
        .filter(|host| !shown.answers(*host));
    let line = |host: HostKey| {
        let ranks = shown.job.ranks.iter().filter(|rank| rank.host == host);
        let ranks = match ranks.count() {
            0 => String::new(),
            1 => ": its rank is unknown".to_owned(),
            count => format!(": its {count} ranks are unknown"),
        };
        Difference {
            rank: None,
            place: shown.fleet.name(host).to_owned(),
            letter: '?',
            severity: Severity::Notable,
            sentence: format!("does not answer{ranks}, and whether a rank is missing"),
        }
    };
    silent.map(line).collect()
}

/// GPUs that cannot be used, and Xid errors of any kind since the start of the rank.
fn sick_gpus(shown: &ShownJob<'_>) -> Vec<Difference> {
    let line = |rank: &JobRank| {
        let model = shown.model(rank.host)?;
        let gpu = main_gpu(model, rank.process)?;
        let health = model.health(gpu);
        let is_sick = matches!(
            health.trouble,
            Some(TroubleRank::Lost | TroubleRank::HardwareError)
        ) || gpu.trouble.is_some();
        let ticks = rank.process.start_ticks?;
        let per_second = model.latest()?.host.facts.ticks_per_second.max(1);
        let started = Moment(ticks.saturating_mul(1000) / per_second);
        let xid = gpu.health.xids.iter().rev().find(|xid| xid.at >= started);
        match (is_sick, xid) {
            (true, Some(xid)) => Some((
                'x',
                format!("{}{}", health.phrase, since(shown, rank.host, xid.at)),
            )),
            (true, None) => Some(('x', health.phrase)),
            (false, Some(xid)) => Some((
                '!',
                format!("Xid {}{}", xid.code, since(shown, rank.host, xid.at)),
            )),
            (false, None) => None,
        }
        .map(|(letter, sentence)| of_rank(shown, rank, letter, sentence))
    };
    shown.job.ranks.iter().filter_map(line).collect()
}

fn missing(shown: &ShownJob<'_>) -> Vec<Difference> {
    let missing = shown.missing.iter().flatten();
    let line = |rank: &MissingRank| {
        let host = rank.host.map_or("", |host| shown.fleet.name(host));
        let seen = rank.host.zip(rank.since);
        let began = seen.map_or_else(
            || ": it was not seen".to_owned(),
            |(host, at)| since(shown, host, at),
        );
        let answers = if host.is_empty() {
            "all hosts answer".to_owned()
        } else {
            format!("{host} answers")
        };
        Difference {
            rank: Some(rank.rank),
            place: shown.place_of_missing(rank),
            letter: 'm',
            severity: Severity::Bad,
            sentence: format!("missing{began} ({answers})"),
        }
    };
    missing.map(line).collect()
}

/// The growth of a rank's memory, or of its GPU's.
fn growing<'a>(model: &'a HostModel, rank: &JobRank) -> Option<&'a Growing> {
    let of_process = GpuOrProcess::Process(rank.process);
    let gpu = main_gpu(model, rank.process).map(|gpu| GpuOrProcess::Gpu(gpu.uuid.clone()));
    let of = |subject: &GpuOrProcess| {
        let mut growing = model.growing().iter();
        growing.find(|growing| growing.subject == *subject)
    };
    of(&of_process).or_else(|| of(&gpu?))
}

/// Ranks whose memory leaks, or grows and is full soon, while that of the others does not.
fn leaks(shown: &ShownJob<'_>) -> Vec<Difference> {
    let ranks = &shown.job.ranks;
    let grow: Vec<(&JobRank, &HostModel, &Growing)> = ranks
        .iter()
        .filter_map(|rank| {
            let model = shown.model(rank.host)?;
            let growing = growing(model, rank)?;
            (growing.is_leak() || growing.is_urgent()).then_some((rank, model, growing))
        })
        .collect();
    let others = ranks.len() - grow.len();
    let others = match others {
        0 => "all ranks grow".to_owned(),
        1 => "the other one: 0".to_owned(),
        _ => format!("the other {others}: 0"),
    };
    let line = |(rank, model, growing): &(&JobRank, &HostModel, &Growing)| {
        let word = if growing.is_leak() { "LEAK" } else { "grows" };
        let clock = shown.clocks.shared(shown.fleet, rank.host);
        let full = growing.left().map_or_else(String::new, |left| {
            format!("; {}", full_after(clock, model.now(), left))
        });
        let sentence = format!("{word} {}, {others}{full}", growing.evidence.rate);
        let letter = if growing.is_leak() { 'L' } else { '!' };
        of_rank(shown, rank, letter, sentence)
    };
    grow.iter().map(line).collect()
}

fn stragglers(shown: &ShownJob<'_>) -> Vec<Difference> {
    let line = |rank: &JobRank| {
        let model = |host| shown.model(host);
        let lags = shown.job.straggles(*rank, &shown.figures, model);
        if lags.is_empty() {
            return None;
        }
        let words: Vec<String> = lags.iter().map(|(lag, _)| lag_in_words(*lag)).collect();
        // The slowdown is the cause of a low clock: its time says most.
        let is_slowdown = |(lag, _): &&(Lag, Moment)| matches!(lag, Lag::Slowdown(_));
        let first = lags.iter().map(|(_, at)| *at).min();
        let at = lags.iter().find(is_slowdown).map(|(_, at)| *at).or(first)?;
        let sentence = format!(
            "candidate for a straggler: {}{}",
            words.join(", "),
            since(shown, rank.host, at)
        );
        Some(of_rank(shown, rank, 's', sentence))
    };
    shown.job.ranks.iter().filter_map(line).collect()
}

/// `1.20GHz (median 1.83GHz)`, `thermal throttling`.
fn lag_in_words(lag: Lag) -> String {
    match lag {
        Lag::Clock(clock, median) => {
            format!("{} (median {})", gigahertz(clock), gigahertz(median))
        }
        Lag::Slowdown(Throttle::Thermal | Throttle::HardwareThermal) => {
            "thermal throttling".to_owned()
        }
        Lag::Slowdown(reason) => format!("throttled: {reason}"),
        Lag::Link(width, median) => format!("PCIe x{width} (median x{median})"),
        Lag::Power(power, median) => format!("{power} (median {median})"),
    }
}

/// Processes of an earlier start of the ranks.
fn left_over(shown: &ShownJob<'_>) -> Vec<Difference> {
    let parts = shown.job.parts.iter();
    let outlive = shown.job.has_only_leftovers();
    let line = |part: &Arc<JobPart>| {
        let (processes, from) = if outlive {
            (&part.members, "after the end of all ranks")
        } else {
            (&part.left_over, "over from an earlier start of the ranks")
        };
        let first = processes.first()?;
        let count = processes.len();
        let noun = if count == 1 { "process" } else { "processes" };
        Some(Difference {
            rank: None,
            place: shown.fleet.name(part.host).to_owned(),
            letter: '!',
            severity: Severity::Notable,
            sentence: format!("{count} {noun} left {from} (PID {})", first.pid),
        })
    };
    parts.filter_map(line).collect()
}

/// Ranks that hold clearly more or less memory than the median, the farthest first.
fn memory(shown: &ShownJob<'_>) -> Vec<Difference> {
    let far = |value: Option<Bytes>, median: Option<Bytes>| {
        let (value, median) = value.zip(median)?;
        let away = distance(value, median);
        (away >= CLEAR_MEMORY && away.0 >= median.0 / CLEAR_SHARE).then_some((value, median, away))
    };
    let ranks = shown.job.ranks.iter().zip(&shown.figures);
    let mut lines: Vec<(Bytes, Difference)> = ranks
        .filter_map(|(rank, figures)| {
            let held = far(figures.memory, shown.medians.memory);
            let allocated = far(figures.allocated, shown.medians.allocated);
            let (value, median, away) = held.or(allocated)?;
            let words = |name: &str, (value, median, _): (Bytes, Bytes, Bytes)| {
                format!(
                    "{name} {} (median {})",
                    short_amount(value),
                    short_amount(median)
                )
            };
            let sentences = [
                held.map(|held| words("holds", held)),
                allocated.map(|allocated| words("allocated", allocated)),
            ];
            let sentence = sentences
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", ");
            let letter = if value > median { '+' } else { '-' };
            Some((away, of_rank(shown, rank, letter, sentence)))
        })
        .collect();
    lines.sort_by_key(|(away, _)| std::cmp::Reverse(*away));
    lines.into_iter().map(|(_, line)| line).collect()
}
