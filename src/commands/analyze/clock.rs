//! The clock of a log: it may be set back, jump by an hour, and lines may come late. Here it goes on, and says so.

/// Rows that are looked at to tell a clock that was set back from a line that came late.
const AHEAD: usize = 8;
/// Milliseconds.
const DAY: i64 = 86_400_000;

/// Makes times that go on, as far as that can be known, and says what was done. Lines that came late stay where they
/// are: who needs an order sorts by time.
pub(super) fn straighten(times: &mut [i64], lines: &[u64], has_dates: bool) -> Vec<String> {
    let usual = usual(times);
    let (mut notes, mut late, mut offset) = (Vec::new(), 0_u64, 0_i64);
    let Some(mut latest) = times.first().copied() else { return notes };
    let (mut steps, mut first) = (0_u64, None);
    let (mut days, mut midnight) = (0_u64, None);
    for at in 1..times.len() {
        let raw = times[at];
        let time = raw + offset;
        if time < latest {
            let ahead = &times[at..(at + AHEAD).min(times.len())];
            let stays = ahead.iter().filter(|it| **it + offset < latest).count();
            if stays * 4 >= ahead.len() * 3 && stays > 1 && latest - time > 2 * usual {
                let back = latest - time;
                if !has_dates && (DAY - back).abs() < 2 * usual + 1000 {
                    offset += DAY;
                    days += 1;
                    midnight.get_or_insert(lines[at]);
                    times[at] = raw + offset;
                    latest = latest.max(times[at]);
                    continue;
                }
                offset += back + usual;
                steps += 1;
                first.get_or_insert((lines[at], -back));
            } else {
                late += 1;
            }
        } else if has_dates && is_summer(latest - offset, time - latest, usual) {
            offset -= 3_600_000;
            steps += 1;
            first.get_or_insert((lines[at], 3_600_000));
        }
        times[at] = raw + offset;
        latest = latest.max(times[at]);
    }
    if let Some((line, by)) = first {
        let word = if by < 0 { "back" } else { "ahead" };
        let others = if steps > 1 { format!(", and {} times more", steps - 1) } else { String::new() };
        let hour = if by.abs_diff(0).abs_diff(3_600_000) < 60_000 { " (daylight saving?)" } else { "" };
        #[expect(clippy::cast_precision_loss, reason = "for a person to read")]
        let by = by.abs() as f64 / 1000.0;
        notes.push(format!("at line {line} the clock was set {word} by {by:.0} s{hour}{others}: taken as no gap"));
    }
    if let Some(line) = midnight {
        let others = if days > 1 { format!(", and {} times more", days - 1) } else { String::new() };
        notes.push(format!("at line {line} the time begins anew after a day{others}: taken as the next day"));
    }
    if late > 0 {
        notes.push(format!("{late} lines are out of their order: sorted by time"));
    }
    notes
}

/// Milliseconds from one time to the next, as a rule.
fn usual(times: &[i64]) -> i64 {
    let mut steps: Vec<i64> = times.windows(2).take(100_000).map(|it| it[1] - it[0]).filter(|it| *it > 0).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().unwrap_or(1000)
}

/// Whether a gap is the hour that is left out in spring, at night.
fn is_summer(before: i64, gap: i64, usual: i64) -> bool {
    let hour = before.rem_euclid(DAY) / 3_600_000;
    usual < 300_000 && (gap - 3_600_000).abs() < 2 * usual + 1000 && hour < 3
}
