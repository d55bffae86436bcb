//! A series drawn with characters: the highest amount of each column, and below it what was said then.

use std::fmt::Write;

use super::series::Judged;
use crate::base::units::{Bytes, Elapsed};
use crate::model::Outlook;

const HEIGHT: usize = 8;
/// Columns of the amounts at the left.
const LABEL: usize = Bytes::WIDTH + 2;

/// Draws these of its amounts, a line each; nothing where there is too little.
pub(super) fn draw(judged: &Judged, points: &[(f64, u64)], width: usize, ascii: bool) -> String {
    let columns = width.saturating_sub(LABEL + " │".chars().count()).clamp(16, 160);
    if points.len() < 2 || judged.span <= 0.0 {
        return String::new();
    }
    let tops = tops(points, judged.span, columns);
    let most = tops.iter().flatten().copied().max().unwrap_or(1).max(1);
    let least = points.iter().map(|it| it.1).min().unwrap_or(0);
    // What is small beside the rest would be a flat line at the top.
    let base = if least > most / 2 { least - (most - least).min(least) / 2 } else { 0 };
    let blocks: Vec<char> =
        if ascii { " .:#".chars().collect() } else { " ▁▂▃▄▅▆▇█".chars().collect() };
    let full = blocks.len() - 1;
    let mut text = String::new();
    for line in (0..HEIGHT).rev() {
        let label = match line {
            _ if line == HEIGHT - 1 => Bytes(most).to_string(),
            0 => Bytes(base).to_string(),
            _ => String::new(),
        };
        let axis = if ascii { '|' } else { '│' };
        let mut row = format!("{label:>LABEL$} {axis}");
        for top in &tops {
            let level = top.map_or(0, |it| {
                let share = u128::from(it.saturating_sub(base)) * (HEIGHT * full) as u128;
                usize::try_from(share / u128::from((most - base).max(1))).unwrap_or(usize::MAX)
            });
            // What is there is seen, however little it is.
            let level = if line == 0 && top.is_some() { level.max(1) } else { level };
            row.push(blocks[level.saturating_sub(line * full).min(full)]);
        }
        let _infallible: std::fmt::Result = writeln!(text, "{}", row.trim_end());
    }
    let said = format!("{:>LABEL$}  {}", "", said(judged, columns));
    let _infallible: std::fmt::Result = writeln!(text, "{}", said.trim_end());
    let end = Elapsed(std::time::Duration::try_from_secs_f64(judged.span).unwrap_or_default()).to_string();
    let gap = columns.saturating_sub(end.len() + 1);
    let _infallible: std::fmt::Result = writeln!(text, "{:>LABEL$}  0{:gap$}{end}", "", "");
    text
}

/// The highest amount of each column; absent where there is no sample.
fn tops(points: &[(f64, u64)], span: f64, columns: usize) -> Vec<Option<u64>> {
    let mut tops = vec![None; columns];
    for (at, bytes) in points {
        let column = column(*at, span, columns);
        tops[column] = tops[column].max(Some(*bytes));
    }
    // Where samples are fewer than columns, each stands up to the next.
    if points.len() < 2 * columns {
        for at in 1..columns {
            tops[at] = tops[at].or(tops[at - 1]);
        }
    }
    tops
}

/// `?` where it was suspected, `!` where it was called a leak.
fn said(judged: &Judged, columns: usize) -> String {
    let mut marks = vec![' '; columns];
    let ends = judged.timeline.iter().skip(1).map(|it| it.at).chain([judged.span]);
    for (said, end) in judged.timeline.iter().zip(ends) {
        let mark = match said.outlook {
            Outlook::Leak => '!',
            Outlook::Suspect => '?',
            _ => continue,
        };
        for at in &mut marks[column(said.at, judged.span, columns)..=column(end, judged.span, columns)] {
            *at = if *at == '!' { '!' } else { mark };
        }
    }
    marks.into_iter().collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a column of some hundred"
)]
fn column(at: f64, span: f64, columns: usize) -> usize {
    ((at / span * columns as f64) as usize).min(columns - 1)
}
