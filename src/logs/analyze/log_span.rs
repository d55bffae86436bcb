//! The times of a log's first and last row, and times of day as the log writes them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;

use super::rows::LogRow;
use crate::base::units::Elapsed;

/// The time between the first and the last row of a log, as [`LogRow::time`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct LogSpan {
    pub(super) begin: i64,
    pub(super) end: i64,
    /// How far the time zone of the log's dates is ahead of UTC, in milliseconds. `None` for a log
    /// without dates.
    zone: Option<i64>,
    /// `None` for a log of times.
    pub(super) steps: Option<StepAxis>,
}

/// The steps of a log that has no times. The detector needs times: it sees the log as if it had
/// lasted an hour, so that growth which needs up to 24 times the log to fill the memory matters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepAxis {
    /// The word for one step.
    pub(super) word: &'static str,
    /// The first step.
    first: f64,
    /// The seconds that a step lasts for the detector.
    pub(super) seconds: f64,
    /// Whether the steps are whole numbers.
    is_whole: bool,
}

impl StepAxis {
    /// Gives rows, whose times are steps in thousandths, the times that the detector sees.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "steps are below 2^53"
    )]
    pub(super) fn scale(rows: &mut [LogRow], word: &'static str) -> Self {
        /// The time of a log with many samples.
        const USUAL_MS: f64 = 3600.0 * 1000.0;
        /// The shortest and the longest time between two samples.
        const INTERVALS_MS: [f64; 2] = [1000.0, 60_000.0];
        let (Some(first), Some(last)) = (
            rows.first().map(|row| row.time),
            rows.last().map(|row| row.time),
        ) else {
            return Self {
                word,
                first: 0.0,
                seconds: 1.0,
                is_whole: true,
            };
        };
        let intervals = rows
            .windows(2)
            .filter(|pair| pair[0].time < pair[1].time)
            .count()
            .max(1) as f64;
        let interval_ms = (USUAL_MS / intervals).clamp(INTERVALS_MS[0], INTERVALS_MS[1]);
        let span = (last - first).max(1) as f64;
        let ms = intervals * interval_ms / span;
        let is_whole = rows.iter().all(|row| row.time % 1000 == 0);
        for row in rows {
            row.time = ((row.time - first) as f64 * ms).round() as i64;
        }
        Self {
            word,
            first: first as f64 / 1000.0,
            seconds: ms,
            is_whole,
        }
    }

    /// Returns the step so many seconds after the first.
    pub(super) fn step(self, seconds: f64) -> f64 {
        self.first + self.count(seconds)
    }

    /// Returns the number of steps in so many seconds.
    pub(super) fn count(self, seconds: f64) -> f64 {
        let count = seconds / self.seconds;
        if self.is_whole { count.round() } else { count }
    }

    /// Returns a number of steps in words: `4,800 steps`.
    pub(super) fn words(self, steps: f64) -> String {
        let number = number(steps);
        let plural = if number == "1" { "" } else { "s" };
        format!("{number} {}{plural}", self.word)
    }
}

/// Returns a number with commas between thousands, and with two decimals if it is small.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 10.0 && value.fract().abs() > 0.005 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl LogSpan {
    /// Returns the span of rows in the order of time. `zone` is `None` for a log without dates.
    pub(super) fn new(rows: &[LogRow], zone: Option<i64>, steps: Option<StepAxis>) -> Self {
        let (begin, end) = rows
            .first()
            .zip(rows.last())
            .map_or((0, 0), |(first, last)| (first.time, last.time));
        Self {
            begin,
            end,
            zone,
            steps,
        }
    }

    /// Returns the time of day of a moment: `22:19`, in a log of more than a day `21 Nov 22:19`,
    /// and in a log of some minutes `22:19:52`. `None` for a log without dates.
    pub(super) fn clock(self, time: i64) -> Option<String> {
        const SHORT: i64 = 10 * 60_000;
        const DAY: i64 = 24 * 60 * 60_000;
        let format = match self.end - self.begin {
            span if span <= SHORT => "%H:%M:%S",
            span if span <= DAY => "%H:%M",
            _ => "%-d %b %H:%M",
        };
        Some(self.civil(time)?.strftime(format).to_string())
    }

    /// Returns the date and time of day of a moment: `2026-11-21 22:19:52`. `None` for a log
    /// without dates.
    pub(super) fn date(self, time: i64) -> Option<String> {
        Some(self.civil(time)?.strftime("%Y-%m-%d %H:%M:%S").to_string())
    }

    fn civil(self, time: i64) -> Option<DateTime> {
        let local = Timestamp::from_millisecond(time.checked_add(self.zone?)?).ok()?;
        Some(local.to_zoned(jiff::tz::TimeZone::UTC).datetime())
    }

    /// Returns the seconds from the first row to the last.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a log is shorter than 200,000 years"
    )]
    pub(super) fn seconds(self) -> f64 {
        (self.end - self.begin) as f64 / 1000.0
    }

    /// Returns a span of seconds in words: `2h10m`, or `4,800 steps`.
    pub(super) fn elapsed(self, seconds: f64) -> String {
        match self.steps {
            Some(steps) => steps.words(steps.count(seconds)),
            None => duration(seconds).to_string(),
        }
    }

    /// Returns a moment so many seconds after the beginning: `2h10m`, or `step 4,800`.
    pub(super) fn at(self, seconds: f64) -> String {
        match self.steps {
            Some(steps) => format!("{} {}", steps.word, number(steps.step(seconds))),
            None => duration(seconds).to_string(),
        }
    }

    /// Returns the time from the log's first row to a moment.
    pub(super) fn since_begin(self, time: i64) -> Elapsed {
        Elapsed(Duration::from_millis(
            (time - self.begin).max(0).unsigned_abs(),
        ))
    }
}

fn duration(seconds: f64) -> Elapsed {
    Elapsed(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
