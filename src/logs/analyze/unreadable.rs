//! The lines of a log that cannot be read: how many, and why.

use std::borrow::Cow;

use super::dates::ACCEPTED;
use super::other_formats::GPU_COMMAND;
use crate::base::text::Text;

#[derive(Debug, Default)]
pub(super) struct UnreadableLines {
    pub(super) count: u64,
    /// Line number and reason of the first unreadable lines.
    pub(super) first: Vec<(u64, Text)>,
    /// Each reason once, in the order of its first line.
    reasons: Vec<CountedReason>,
}

#[derive(Debug)]
struct CountedReason {
    reason: UnreadableReason,
    first_line: u64,
    count: u64,
}

/// Why a line cannot be read.
#[derive(Debug)]
pub(super) struct UnreadableReason {
    reason: Cow<'static, str>,
    /// The cell that is to blame.
    cell: Option<Text>,
}

impl UnreadableReason {
    pub(super) const NO_TIME: &str = "no time";
    pub(super) const NO_COLUMNS: Self = Self {
        reason: Cow::Borrowed("no column can be recognized as time and memory"),
        cell: None,
    };

    pub(super) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason: reason.into(),
            cell: None,
        }
    }

    pub(super) fn of_cell(reason: impl Into<Cow<'static, str>>, cell: &str) -> Self {
        /// Characters of the cell that are shown.
        const SHOWN: usize = 40;
        Self {
            reason: reason.into(),
            cell: Some(Text::new(cell.chars().take(SHOWN).collect::<String>())),
        }
    }

    fn sentence(&self) -> String {
        match &self.cell {
            Some(cell) => format!("{}: {cell}", self.reason),
            None => self.reason.to_string(),
        }
    }
}

impl UnreadableLines {
    pub(super) fn add(&mut self, number: u64, reason: UnreadableReason) {
        /// Unreadable lines, and reasons, that are listed; the others are counted.
        const LISTED: usize = 5;
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push((number, Text::new(reason.sentence())));
        }
        if let Some(known) = self
            .reasons
            .iter_mut()
            .find(|known| known.reason.reason == reason.reason)
        {
            known.count += 1;
        } else if self.reasons.len() < LISTED {
            self.reasons.push(CountedReason {
                reason,
                first_line: number,
                count: 1,
            });
        }
    }

    /// Adds the lines of another list.
    pub(super) fn extend(&mut self, other: Self) {
        /// As in [`Self::add`].
        const LISTED: usize = 5;
        self.count += other.count;
        self.first.extend(other.first);
        self.first.sort_by_key(|(line, _)| *line);
        self.first.truncate(LISTED);
        for counted in other.reasons {
            let known = self
                .reasons
                .iter_mut()
                .find(|known| known.reason.reason == counted.reason.reason);
            match known {
                Some(known) => {
                    known.count += counted.count;
                    known.first_line = known.first_line.min(counted.first_line);
                }
                None => self.reasons.push(counted),
            }
        }
        self.reasons.sort_by_key(|counted| counted.first_line);
        self.reasons.truncate(LISTED);
    }

    /// Returns a sentence for each reason, with its first line: `line 3 and 7 more: no time:
    /// yesterday`.
    pub(super) fn sentences(&self) -> Vec<String> {
        let sentence = |counted: &CountedReason| {
            let more = match counted.count {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let accepted = if counted.reason.reason == UnreadableReason::NO_TIME
                && self.is_frequent(counted)
            {
                format!("; {ACCEPTED}")
            } else {
                String::new()
            };
            Text::new(format!(
                "line {}{more}: {}{accepted}",
                counted.first_line,
                counted.reason.sentence()
            ))
            .to_string()
        };
        self.reasons.iter().map(sentence).collect()
    }

    /// Whether the reason is no accident of few lines.
    fn is_frequent(&self, counted: &CountedReason) -> bool {
        counted.count >= 10 || counted.count == self.count && self.count > 1
    }

    /// Says what to record instead of a log without rows. `missing` is the number of readings such
    /// as `[N/A]`.
    pub(super) fn advice(&self, missing: u64) -> String {
        let most = self.reasons.iter().max_by_key(|counted| counted.count);
        match most {
            None if missing > 0 => format!("all readings are missing ({missing}), such as `[N/A]`"),
            Some(counted) if counted.reason.reason == UnreadableReason::NO_TIME => {
                format!(
                    "line {}: {}; {ACCEPTED}",
                    counted.first_line,
                    counted.reason.sentence()
                )
            }
            Some(counted) if counted.reason.reason == UnreadableReason::NO_COLUMNS.reason => {
                format!(
                    "line {}: {}; name the columns of its header with `--time COLUMN --memory COLUMN`, \
                     or give the time between two lines with `--interval 5`; or record with \
                     `{GPU_COMMAND}`",
                    counted.first_line,
                    counted.reason.sentence()
                )
            }
            Some(counted) => {
                format!(
                    "line {}: {}; record with `{GPU_COMMAND}`",
                    counted.first_line,
                    counted.reason.sentence()
                )
            }
            None => format!("it has no rows; record with `{GPU_COMMAND}`"),
        }
    }
}
