//! A graph of a series in characters: the highest amount in each column, and below it marks for
//! suspect and leak.

use super::judged::JudgedSeries;
use crate::base::units::Bytes;
use crate::model::LeakVerdict;

const HEIGHT: usize = 8;
const LABEL: usize = Bytes::WIDTH + 2;

/// Draws `points` (seconds and bytes) over the span of `judged`. Returns an empty text for fewer
/// than two points, and for an amount that does not move.
pub(super) fn draw(
    judged: &JudgedSeries,
    points: &[(f64, u64)],
    width: usize,
    ascii: bool,
) -> String {
    let columns = width
        .saturating_sub(LABEL + " │".chars().count())
        .clamp(16, 160);
    if points.len() < 2 || judged.span <= 0.0 {
        return String::new();
    }
    let peaks = peaks(points, judged.span, columns);
    let most = peaks.iter().flatten().copied().max().unwrap_or(1).max(1);
    let least = points.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0);
    // With a scale from 0, a small change of a large amount would be a flat line at the top.
    let base = if least > most / 2 {
        least - (most - least).min(least) / 2
    } else {
        0
    };
    // The scale of an amount that hardly moves would have the same number at both ends.
    if Bytes(most).to_string() == Bytes(base).to_string() {
        return String::new();
    }
    let (blocks, axis) = if ascii {
        (" .:#", '|')
    } else {
        (" ▁▂▃▄▅▆▇█", '│')
    };
    let blocks: Vec<char> = blocks.chars().collect();
    let full = blocks.len() - 1;
    let mut lines = Vec::new();
    for line in (0..HEIGHT).rev() {
        let label = match line {
            _ if line == HEIGHT - 1 => Bytes(most).to_string(),
            0 => Bytes(base).to_string(),
            _ => String::new(),
        };
        let block = |peak: &Option<u64>| {
            let level = peak.map_or(0, |peak| {
                let level = u128::from(peak.saturating_sub(base)) * (HEIGHT * full) as u128;
                usize::try_from(level / u128::from((most - base).max(1))).unwrap_or(usize::MAX)
            });
            // The lowest line shows every sample, however little it is.
            let level = if line == 0 && peak.is_some() {
                level.max(1)
            } else {
                level
            };
            blocks[level.saturating_sub(line * full).min(full)]
        };
        lines.push(format!(
            "{label:>LABEL$} {axis}{}",
            peaks.iter().map(block).collect::<String>()
        ));
    }
    lines.push(format!("{:>LABEL$}  {}", "", marks(judged, columns)));
    let clock = |at: f64| {
        judged
            .clock(at)
            .map_or_else(String::new, |clock| format!(" ({clock})"))
    };
    let begin = match judged.times.steps {
        Some(_) => judged.moment(0.0),
        None => format!("0{}", clock(0.0)),
    };
    let end = format!("{}{}", judged.moment(judged.span), clock(judged.span));
    let gap = columns.saturating_sub(begin.len() + end.len());
    lines.push(format!("{:>LABEL$}  {begin}{:gap$}{end}", "", ""));
    lines
        .iter()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect()
}

/// Returns the highest amount in each column, `None` in columns without a sample.
fn peaks(points: &[(f64, u64)], span: f64, columns: usize) -> Vec<Option<u64>> {
    let mut peaks = vec![None; columns];
    for (at, bytes) in points {
        let column = column(*at, span, columns);
        peaks[column] = peaks[column].max(Some(*bytes));
    }
    // With few samples, each also fills the columns up to the next sample.
    if points.len() < 2 * columns {
        for column in 1..columns {
            peaks[column] = peaks[column].or(peaks[column - 1]);
        }
    }
    peaks
}

/// Returns a line with `?` below suspect, `!` below leak and `~` below filling.
fn marks(judged: &JudgedSeries, columns: usize) -> String {
    let mut marks = vec![' '; columns];
    let ends = judged
        .timeline
        .iter()
        .skip(1)
        .map(|next| next.at)
        .chain([judged.span]);
    for (timed, end) in judged.timeline.iter().zip(ends) {
        let mark = match timed.verdict {
            LeakVerdict::Leak => '!',
            LeakVerdict::Suspect => '?',
            LeakVerdict::Filling => '~',
            _ => continue,
        };
        for place in
            &mut marks[column(timed.at, judged.span, columns)..=column(end, judged.span, columns)]
        {
            *place = if *place == '!' { '!' } else { mark };
        }
    }
    marks.into_iter().collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "at most 160 columns"
)]
fn column(at: f64, span: f64, columns: usize) -> usize {
    ((at / span * columns as f64) as usize).min(columns - 1)
}
