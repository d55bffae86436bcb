//! The table of a log with many series: leaks, then suspects; the others are counted.

use std::collections::HashSet;
use std::fmt::Write;

use super::episodes::Episode;
use super::headline::{gpu_name, rate, share};
use super::judged::JudgedSeries;
use super::log_span::LogSpan;
use super::series::LogSeries;
use crate::model::LeakVerdict;
use crate::output::StyledText;

/// The worst that is said about a series, as the table counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SeriesRank {
    Leaked,
    Suspect,
    Filling,
    WarmingUp,
    Steady,
    TooSoon,
}

impl SeriesRank {
    pub(super) fn of(judged: &JudgedSeries) -> Self {
        match (judged.worst_verdict(), judged.last.verdict) {
            (LeakVerdict::Leak, _) => Self::Leaked,
            (_, LeakVerdict::Suspect | LeakVerdict::Leak) => Self::Suspect,
            (LeakVerdict::Filling, _) | (_, LeakVerdict::Filling) => Self::Filling,
            (_, LeakVerdict::WarmingUp) => Self::WarmingUp,
            (_, LeakVerdict::Steady) => Self::Steady,
            (_, LeakVerdict::TooSoon) => Self::TooSoon,
        }
    }

    /// The words after a number of series.
    fn words(self) -> &'static str {
        match self {
            Self::Leaked => "leaked",
            Self::Suspect => "suspect",
            Self::Filling => "filled up",
            Self::WarmingUp => "warming up",
            Self::Steady => "steady",
            Self::TooSoon => "too short to judge",
        }
    }
}

/// Adds the numbers of series, and a table of those that leaked or are suspect. `series` are sorted
/// by rank.
pub(super) fn add(
    text: &mut StyledText,
    series: &[&JudgedSeries],
    times: LogSpan,
    shows_all: bool,
) {
    /// Rows of the table without `--all`.
    const MOST_ROWS: usize = 40;
    let ranks = [
        SeriesRank::Leaked,
        SeriesRank::Suspect,
        SeriesRank::Filling,
        SeriesRank::WarmingUp,
        SeriesRank::Steady,
        SeriesRank::TooSoon,
    ];
    let count = |rank: SeriesRank| {
        series
            .iter()
            .filter(|judged| SeriesRank::of(judged) == rank)
            .count()
    };
    let counts: Vec<String> = ranks
        .into_iter()
        .map(|rank| (count(rank), rank.words()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let slow = series
        .iter()
        .filter(|judged| judged.creep.is_some())
        .count();
    let slow = if slow > 0 {
        format!(" ({slow} of them grow slowly)")
    } else {
        String::new()
    };
    text.paragraph(
        4,
        format_args!("{}: {}{slow}", counted(series), counts.join(", ")),
    );
    let listed = count(SeriesRank::Leaked) + count(SeriesRank::Suspect);
    let shown = if shows_all {
        listed
    } else {
        listed.min(MOST_ROWS)
    };
    if shown > 0 {
        text.line("");
        let rows: Vec<[String; COLUMNS]> =
            series[..shown].iter().map(|judged| cells(judged)).collect();
        add_table(text, &rows);
    }
    if shown < listed {
        text.line(format_args!("and {} more", listed - shown));
    }
    if shown > 0 {
        text.line("");
        let meaning = match times.date(times.begin) {
            Some(date) => format!("are times of day; the log begins at {date}"),
            None => "count from the beginning of the log".to_owned(),
        };
        text.paragraph(
            0,
            format_args!("FROM and UNTIL {meaning}. REACHED is the memory in use at UNTIL."),
        );
    }
    text.gap();
}

/// Returns the number of series, and the number of GPUs and processes whose memory they are: `8
/// GPUs`.
fn counted(series: &[&JudgedSeries]) -> String {
    let of_process: Vec<&LogSeries> = series
        .iter()
        .map(|judged| &judged.series)
        .filter(|one| one.pid.is_some())
        .collect();
    let gpus = series.len() - of_process.len();
    let ids: HashSet<_> = of_process.iter().map(|one| (&one.host, one.pid)).collect();
    let several = |count: usize, one: &str, more: &str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let gpus_in_words = several(gpus, "GPU", "GPUs");
    let processes = several(of_process.len(), "process", "processes");
    match (gpus, of_process.len()) {
        (_, 0) => gpus_in_words,
        (0, uses) if uses == ids.len() => processes,
        (0, uses) => format!("{uses} curves of memory, one for each process on each GPU"),
        (gpus, uses) => format!(
            "{} curves of memory, of {gpus_in_words} and of {processes} on {}",
            gpus + uses,
            if gpus == 1 { "it" } else { "them" }
        ),
    }
}

const COLUMNS: usize = 9;
const TITLES: [&str; COLUMNS] = [
    "HOST", "GPU", "PID", "NAME", "VERDICT", "FROM", "UNTIL", "RATE", "REACHED",
];
/// The columns that are cut off on a narrow terminal, with the least width of each.
const CUT: [(usize, usize); 3] = [(3, 6), (1, 12), (0, 6)];

/// Shortens a UUID to its first eight digits, which hardly any two GPUs share.
fn short_gpu(name: String) -> String {
    const LENGTH: usize = "GPU-01234567".len();
    let is_uuid = ["GPU-", "MIG-"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if is_uuid {
        name.chars().take(LENGTH).collect()
    } else {
        name
    }
}

/// Returns the file name of a program.
fn short_name(program: &str) -> &str {
    program
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(program)
}

/// Returns the cells of a series.
fn cells(judged: &JudgedSeries) -> [String; COLUMNS] {
    let series = &judged.series;
    let text = |value: Option<&dyn ToString>| value.map(ToString::to_string).unwrap_or_default();
    let rank = SeriesRank::of(judged);
    let wanted = if rank == SeriesRank::Leaked {
        LeakVerdict::Leak
    } else {
        LeakVerdict::Suspect
    };
    let episodes = || {
        judged
            .episodes
            .iter()
            .filter(|episode| episode.verdict == wanted)
    };
    let longest =
        episodes().max_by(|one, other| (one.to - one.from).total_cmp(&(other.to - other.from)));
    let episode: Option<&Episode> = if judged.verdict() == wanted {
        episodes().next_back()
    } else {
        longest
    };
    let word = if rank == SeriesRank::Leaked {
        "LEAKED"
    } else {
        "suspect"
    };
    let times = |at: fn(&Episode) -> f64| {
        episode.map_or_else(String::new, |episode| {
            let at = at(episode);
            judged
                .clock(at)
                .unwrap_or_else(|| match judged.times.steps {
                    Some(_) => judged.moment(at),
                    None => judged.times.since_begin(judged.time(at)).to_string(),
                })
        })
    };
    [
        text(series.host.as_ref().map(|host| host as &dyn ToString)),
        short_gpu(gpu_name(judged)),
        text(series.pid.as_ref().map(|pid| pid as &dyn ToString)),
        judged
            .name
            .as_ref()
            .map_or_else(String::new, |name| short_name(name.as_str()).to_owned()),
        word.to_owned(),
        times(|episode| episode.from),
        times(|episode| episode.to),
        episode.map_or_else(String::new, |episode| rate(judged, episode)),
        episode.map_or_else(String::new, |episode| share(judged, episode.held, None)),
    ]
}

/// Adds a table without the columns that are empty, and with long names cut off so that it fits the
/// width.
fn add_table(text: &mut StyledText, rows: &[[String; COLUMNS]]) {
    const GAP: usize = 2;
    let length = |cell: &str| cell.chars().count();
    let mut widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let widest = rows
            .iter()
            .map(|row| length(&row[column]))
            .max()
            .unwrap_or(0);
        if widest == 0 {
            0
        } else {
            widest.max(TITLES[column].len())
        }
    });
    for (column, least) in CUT {
        let whole: usize = widths
            .iter()
            .filter(|width| **width > 0)
            .map(|width| width + GAP)
            .sum::<usize>()
            - GAP;
        let excess = whole.saturating_sub(text.style.width);
        widths[column] = (widths[column].saturating_sub(excess)).max(widths[column].min(least));
    }
    let titles = TITLES.map(str::to_owned);
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            let cell: String = if length(cell) > width {
                cell.chars().take(width - 1).chain(['…']).collect()
            } else {
                cell.clone()
            };
            let _infallible: std::fmt::Result = write!(line, "{cell:<width$}{:GAP$}", "");
        }
        text.line(line.trim_end());
    }
}
