//! The sentence that says what happened to a series.

use super::episodes::{Episode, EpisodeEnd};
use super::judged::JudgedSeries;
use crate::base::text::Text;
use crate::base::units::Bytes;
use crate::model::{LeakVerdict, MemoryPart};

/// Returns the name of a series: `GPU 0, process 4711 (python)`; with several hosts, `left, GPU 0`.
pub(super) fn name(judged: &JudgedSeries) -> String {
    let gpu = gpu_name(judged);
    let gpu = judged
        .series
        .host
        .as_ref()
        .map_or(gpu.clone(), |host| format!("{host}, {gpu}"));
    match (judged.series.pid, &judged.name) {
        (Some(pid), Some(process)) => format!("{gpu}, process {pid} ({process})"),
        (Some(pid), None) => format!("{gpu}, process {pid}"),
        (None, _) => gpu,
    }
}

pub(super) fn gpu_name(judged: &JudgedSeries) -> String {
    let series = &judged.series;
    let label = series.label.as_ref().filter(|_| series.gpu.is_some());
    let label = label.map_or_else(String::new, |label| format!(", {label}"));
    let name = match (&series.gpu, series.is_index, series.is_by_order) {
        (Some(gpu), true, true) => format!("GPU {gpu} (by order)"),
        (Some(gpu), true, false) => format!("GPU {gpu}"),
        (Some(gpu), false, _) => gpu.to_string(),
        (None, ..) => series
            .label
            .as_ref()
            .map_or_else(|| "memory".to_owned(), Text::to_string),
    };
    format!("{name}{label}")
}

/// Says what happened: `LEAKED from 12m24s to 2h00m (22:31 to 00:19), +1.5 GiB/min, ended at 79.6
/// of 80 GiB`.
///
/// Memory that is full at the end is told first: `FULL at 2h10m, +19 GiB in the last 1h50m`.
pub(super) fn headline(judged: &JudgedSeries) -> String {
    /// A program that takes all memory at its start has it for most of the time.
    const AT_START: f64 = 0.25;
    let Some(full) = judged.full else {
        return story(judged);
    };
    let is_grown = judged.worst_verdict().grows();
    if !is_grown && full.at < judged.span * AT_START {
        return story(judged);
    }
    let clock = judged
        .clock(full.at)
        .map_or_else(String::new, |clock| format!(" ({clock})"));
    let story = if is_grown {
        format!("; {}", story(judged))
    } else {
        format!("; {}", share(judged, judged.held, None))
    };
    format!(
        "FULL at {}{clock}, +{} in the last {}{story}",
        judged.moment(full.at),
        plain(full.gained),
        judged.times.elapsed(full.at - full.from)
    )
}

/// Says what happened before memory was full, or without that.
fn story(judged: &JudgedSeries) -> String {
    let leaks: Vec<&Episode> = judged
        .episodes
        .iter()
        .filter(|episode| episode.verdict == LeakVerdict::Leak)
        .collect();
    let ended_with = match judged.verdict() {
        LeakVerdict::Leak => leaks.last(),
        // The longest tells most.
        _ => leaks
            .iter()
            .max_by(|one, other| (one.to - one.from).total_cmp(&(other.to - other.from))),
    };
    if let Some(leak) = ended_with {
        let which = match (leaks.len(), judged.verdict()) {
            (1, _) => String::new(),
            (count, LeakVerdict::Leak) => format!(" {count} times, last"),
            (count, _) => format!(" {count} times, longest"),
        };
        return format!(
            "LEAKED{which} {}, {}, {}",
            span(judged, leak),
            rate(judged, leak),
            ending(judged, leak)
        );
    }
    let at_end = format!("{} at the end", share(judged, judged.held, None));
    let suspect = judged.episodes.last();
    match (judged.last.verdict, suspect) {
        (LeakVerdict::TooSoon, _) => {
            let plural = if judged.samples == 1 { "" } else { "s" };
            format!(
                "too soon to say: {} sample{plural} in {}",
                judged.samples,
                judged.times.elapsed(judged.span)
            )
        }
        (_, Some(filling)) if filling.verdict == LeakVerdict::Filling => {
            let plateau = filling.evidence.plateau;
            let plateau = plateau.map_or_else(String::new, |plateau| format!("{plateau}; "));
            if judged.last.verdict == LeakVerdict::Filling {
                format!(
                    "fills up since {}: {plateau}{at_end}",
                    judged.moment(filling.from)
                )
            } else {
                format!("filled up {}: {plateau}{at_end}", span(judged, filling))
            }
        }
        (LeakVerdict::Suspect, Some(suspect)) => {
            let clock = judged
                .clock(suspect.from)
                .map_or_else(String::new, |clock| format!(" ({clock})"));
            format!(
                "suspect since {}{clock}, {}, {at_end}",
                judged.moment(suspect.from),
                rate(judged, suspect)
            )
        }
        (verdict, Some(suspect)) => {
            format!(
                "{}; suspect {}, {}; {at_end}",
                word(verdict),
                span(judged, suspect),
                rate(judged, suspect)
            )
        }
        (verdict, None) => {
            let creep = judged
                .creep
                .as_ref()
                .map_or_else(String::new, |creep| format!(", though {creep}"));
            format!(
                "{} for {}{creep}; {at_end}",
                word(verdict),
                judged.times.elapsed(judged.span)
            )
        }
    }
}

/// Returns the time of an episode since the beginning of the series, and in a log with dates also
/// the times of day: `from 12m24s to 2h00m (22:31 to 00:19)`.
fn span(judged: &JudgedSeries, episode: &Episode) -> String {
    let clocks = judged.clock(episode.from).zip(judged.clock(episode.to));
    let clocks = clocks.map_or_else(String::new, |(from, to)| format!(" ({from} to {to})"));
    format!(
        "from {} to {}{clocks}",
        judged.moment(episode.from),
        judged.moment(episode.to)
    )
}

/// Returns the rate with the part that grows: `allocated +30 MiB/min`.
pub(super) fn rate(judged: &JudgedSeries, episode: &Episode) -> String {
    let part = match episode.part {
        Some(MemoryPart::Allocated) => "allocated ",
        Some(MemoryPart::Cache) => "unallocated ",
        Some(MemoryPart::Outside) => "not PyTorch's ",
        _ => "",
    };
    format!("{part}{}", judged.rate(episode.evidence.rate))
}

fn ending(judged: &JudgedSeries, leak: &Episode) -> String {
    let share = share(judged, leak.held, leak.limit);
    match leak.end {
        EpisodeEnd::SeriesEnds if judged.ends_early && judged.series.pid.is_some() => {
            format!("until the process ended at {share}")
        }
        EpisodeEnd::SeriesEnds => format!("ended at {share}"),
        EpisodeEnd::ProgramEnded => format!("until the program ended at {share}"),
        EpisodeEnd::Stopped => format!("stopped at {share}"),
        EpisodeEnd::Released => format!("released at {share}"),
    }
}

/// Returns an amount as a part of the memory: `79.6 of 80 GiB`. A process has less than that if
/// other processes hold some: `limit` is what it has.
pub(super) fn share(judged: &JudgedSeries, held: Bytes, limit: Option<Bytes>) -> String {
    let Some(capacity) = judged.capacity else {
        return plain(held);
    };
    let limit = limit.unwrap_or(capacity);
    // Less than two hundredths are contexts of other processes.
    let (of, rest) = if limit.0 < capacity.0 / 100 * 98 {
        (limit, " that other processes left")
    } else {
        (capacity, "")
    };
    let (held, of) = (plain(held), plain(of));
    match (held.split_once(' '), of.split_once(' ')) {
        (Some((amount, unit)), Some((_, same))) if unit == same => {
            format!("{amount} of {of}{rest}")
        }
        _ => format!("{held} of {of}{rest}"),
    }
}

/// Returns an amount without a decimal 0.
fn plain(bytes: Bytes) -> String {
    bytes.to_string().replace(".0 ", " ")
}

pub(super) fn word(verdict: LeakVerdict) -> &'static str {
    match verdict {
        LeakVerdict::TooSoon => "too soon to say",
        LeakVerdict::WarmingUp => "warming up",
        LeakVerdict::Filling => "filling up",
        LeakVerdict::Suspect => "suspect",
        LeakVerdict::Steady | LeakVerdict::Leak => verdict.word(),
    }
}
