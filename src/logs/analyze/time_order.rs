//! Corrects the times of a log whose times descend, where the clock was set, or where times of day
//! start again at midnight.

use super::rows::LogRow;

/// The number of rows after a backward step that show whether the clock was set back or a line is
/// late.
const LOOK_AHEAD: usize = 8;
const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The clock of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogClock {
    Dates,
    /// Times without dates, which may start again at midnight.
    TimesOfDay,
    /// Steps, by the word for one. They may start again with each epoch.
    Steps(&'static str),
    /// The numbers of the samples.
    Numbers,
}

/// Turns the rows of a log around if nearly all times descend. Returns a note if it did.
pub(super) fn turn_around(rows: &mut [LogRow]) -> Option<String> {
    /// Fewer backward steps are lines that came late.
    const LEAST_STEPS: usize = 3;
    let steps = |is_step: fn(i64, i64) -> bool| {
        rows.windows(2)
            .filter(|pair| is_step(pair[0].time, pair[1].time))
            .count()
    };
    let (back, ahead) = (steps(|one, next| next < one), steps(|one, next| next > one));
    if back < LEAST_STEPS || back < 9 * ahead {
        return None;
    }
    rows.reverse();
    Some("the times descend: the log was read from its end to its beginning".to_owned())
}

/// Shifts the times of rows so that the clock never steps, and returns a note for each kind of
/// shift. Late lines keep their times and their places.
pub(super) fn straighten(rows: &mut [LogRow], clock: LogClock) -> Vec<String> {
    if clock == LogClock::Numbers {
        return Vec::new();
    }
    let interval = usual_interval(rows);
    let (mut steps, mut midnights, mut late, mut offset) = (Vec::new(), Vec::new(), 0_u64, 0_i64);
    let Some(mut latest) = rows.first().map(|row| row.time) else {
        return Vec::new();
    };
    for row in 1..rows.len() {
        let raw = rows[row].time;
        let time = raw + offset;
        if time < latest {
            let ahead = &rows[row..(row + LOOK_AHEAD).min(rows.len())];
            let earlier = ahead
                .iter()
                .filter(|next| next.time + offset < latest)
                .count();
            let back = latest - time;
            if earlier * 4 < ahead.len() * 3 || earlier <= 1 || back <= SECOND_MS.max(2 * interval)
            {
                late += 1;
            } else if clock == LogClock::TimesOfDay
                && (DAY_MS - back).abs() < 2 * interval + SECOND_MS
            {
                offset += DAY_MS;
                midnights.push(rows[row].line);
            } else {
                offset += back + interval;
                steps.push((rows[row].line, -back));
            }
        } else if clock == LogClock::Dates
            && skips_the_hour_of_spring(latest - offset, time - latest, interval)
        {
            offset -= HOUR_MS;
            steps.push((rows[row].line, HOUR_MS));
        }
        rows[row].time = raw + offset;
        latest = latest.max(rows[row].time);
    }
    let others = |count: usize| {
        if count > 1 {
            format!(", and {} times more", count - 1)
        } else {
            String::new()
        }
    };
    let mut notes = Vec::new();
    if let (LogClock::Steps(word), Some((line, _))) = (clock, steps.first()) {
        let others = others(steps.len());
        notes.push(format!(
            "at line {line} the {word}s start again{others}: counted on"
        ));
    } else if let Some((line, step)) = steps.first() {
        let direction = if *step < 0 { "back" } else { "ahead" };
        let is_hour = step.abs().abs_diff(HOUR_MS) < 60_000;
        let cause = if is_hour { " (daylight saving?)" } else { "" };
        #[expect(clippy::cast_precision_loss, reason = "for a person to read")]
        let seconds = step.abs() as f64 / 1000.0;
        let others = others(steps.len());
        notes.push(format!(
            "at line {line} the clock was set {direction} by {seconds:.0} s{cause}{others}: taken as no gap"
        ));
    }
    if let Some(line) = midnights.first() {
        let others = others(midnights.len());
        notes.push(format!(
            "at line {line} the time starts again after a day{others}: taken as the next day"
        ));
    }
    if late > 0 {
        notes.push(format!("{late} lines are out of order: sorted by time"));
    }
    notes
}

/// Returns the median time between two rows, in milliseconds.
fn usual_interval(rows: &[LogRow]) -> i64 {
    /// The number of rows of which the median is taken.
    const ROWS: usize = 100_000;
    let mut intervals: Vec<i64> = rows
        .windows(2)
        .take(ROWS)
        .map(|pair| pair[1].time - pair[0].time)
        .filter(|interval| *interval > 0)
        .collect();
    intervals.sort_unstable();
    intervals
        .get(intervals.len() / 2)
        .copied()
        .unwrap_or(SECOND_MS)
}

/// Whether a gap is the hour that daylight saving time skips in spring, before 3 at night.
fn skips_the_hour_of_spring(before: i64, gap: i64, interval: i64) -> bool {
    /// With samples that are further apart, an hour is no clear step.
    const LONGEST_INTERVAL: i64 = 300 * SECOND_MS;
    let hour = before.rem_euclid(DAY_MS) / HOUR_MS;
    interval < LONGEST_INTERVAL && (gap - HOUR_MS).abs() < 2 * interval + SECOND_MS && hour < 3
}
