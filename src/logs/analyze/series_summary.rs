//! The figures of each series of a log, for `gputop diff`.

use std::path::Path;

use anyhow::{Context, anyhow};

use super::headline;
use super::input;
use super::judged::JudgedSeries;
use super::log::LogReader;
use super::log_options::LogOptions;
use crate::base::text::Text;
use crate::model::LeakVerdict;

/// A series of memory over the time of a log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeriesSummary {
    pub(crate) name: String,
    pub(crate) pid: Option<u32>,
    pub(crate) verdict: LeakVerdict,
    /// The rate of the latest leak in bytes per second, or per step.
    pub(crate) leak_rate: Option<f64>,
    /// The rate of the latest leak in words: `+114 MiB/min`.
    pub(crate) leak_words: Option<String>,
    /// The word for a step in a log without times.
    pub(crate) step: Option<&'static str>,
    /// Seconds or steps since the beginning, and bytes: of a long series, the lowest and the
    /// highest of each part.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A log that was judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogSummary {
    /// When the log began and ended, or how long it is, for a person.
    pub(crate) span: String,
    pub(crate) series: Vec<SeriesSummary>,
    /// Doubts about units, each with the option of `analyze` that settles it.
    pub(crate) doubts: Vec<String>,
}

/// Judges a log.
///
/// # Errors
///
/// When the file cannot be read or judged.
pub(crate) fn summarize(path: &Path) -> anyhow::Result<LogSummary> {
    let name = Text::new(path.as_os_str().as_encoded_bytes());
    let mut log = LogReader::new(LogOptions::default());
    if path.as_os_str() == "-" {
        input::read_stdin(&mut log).context("cannot read the standard input")?;
    } else {
        input::read_file(path, &name, &mut log).with_context(|| format!("cannot read {name}"))?;
    }
    let log = log.finish();
    if let Some(problem) = &log.problem {
        return Err(anyhow!("cannot judge {name}: {}", problem.sentence()));
    }
    let times = log.times;
    let seconds = times.seconds();
    let span = match times.date(times.begin).zip(times.date(times.end)) {
        Some((begin, end)) => format!("{begin} to {end}"),
        None => format!("{} to {}", times.at(0.0), times.at(seconds)),
    };
    Ok(LogSummary {
        span,
        series: log.series.iter().map(SeriesSummary::of).collect(),
        doubts: log.doubts,
    })
}

impl SeriesSummary {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn of(judged: &JudgedSeries) -> Self {
        let steps = judged.times.steps;
        let leak = judged
            .episodes
            .iter()
            .rfind(|episode| episode.verdict == LeakVerdict::Leak);
        Self {
            name: headline::name(judged),
            pid: judged.series.pid,
            verdict: judged.worst_verdict(),
            leak_rate: leak
                .map(|leak| leak.evidence.rate.0 * steps.map_or(1.0, |steps| steps.seconds)),
            leak_words: leak.map(|leak| headline::rate(judged, leak)),
            step: steps.map(|steps| steps.word),
            points: judged
                .points
                .iter()
                .map(|(at, bytes)| (steps.map_or(*at, |steps| steps.count(*at)), *bytes as f64))
                .collect(),
        }
    }
}
