//! The times in which a series leaked, was suspect, or filled up: when growth began and ended, and how it
//! ended.

use super::rows::LogRow;
use crate::base::units::{Bytes, Moment};
use crate::model::{Evidence, LeakVerdict, MemoryPart};

/// A time in which memory grew. Times are seconds since the start of the
/// series.
#[derive(Debug, Clone)]
pub(super) struct Episode {
    /// The worst verdict in this time. Growth that proves to level off was never worse than that.
    pub(super) verdict: LeakVerdict,
    /// When growth began.
    pub(super) from: f64,
    /// When growth ended, or when the series ends.
    pub(super) to: f64,
    /// When the worst verdict was given first.
    pub(super) called_at: f64,
    /// When the verdict was withdrawn; `None` if the series ends before that.
    pub(super) withdrawn_at: Option<f64>,
    pub(super) end: EpisodeEnd,
    /// The memory in use when growth ended.
    pub(super) held: Bytes,
    /// The amount at which memory ran out then, if known.
    pub(super) limit: Option<Bytes>,
    /// The figures shortly before the end.
    pub(super) evidence: Evidence,
    pub(super) part: Option<MemoryPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum EpisodeEnd {
    /// The series ends while memory grows.
    SeriesEnds,
    /// Memory stopped growing, and was kept.
    Stopped,
    /// Memory was given back.
    Released,
    /// Nearly all memory was given back: the program ended.
    ProgramEnded,
}

/// Collects the episodes of a series, sample by sample.
#[derive(Debug)]
pub(super) struct EpisodeRecorder<'a> {
    rows: &'a [LogRow],
    episodes: Vec<Episode>,
    is_open: bool,
    /// The memory gained at most in the open episode, in the floor of the series.
    gained: Bytes,
}

impl<'a> EpisodeRecorder<'a> {
    /// `rows` are the rows of the series in the order of time.
    pub(super) fn new(rows: &'a [LogRow]) -> Self {
        Self {
            rows,
            episodes: Vec::new(),
            is_open: false,
            gained: Bytes(0),
        }
    }

    /// Adds the verdict after the sample at `at` seconds, whose row has this index. `evidence` is
    /// needed for a new verdict, and else now and then.
    pub(super) fn push(
        &mut self,
        at: f64,
        row: usize,
        verdict: LeakVerdict,
        evidence: Option<(Evidence, Option<MemoryPart>)>,
    ) {
        if !verdict.grows() {
            if self.is_open {
                self.close(at, row);
            }
            return;
        }
        let Some((evidence, part)) = evidence else {
            return;
        };
        if !self.is_open {
            self.is_open = true;
            self.gained = Bytes(0);
            self.episodes.push(Episode {
                verdict,
                from: seconds(evidence.since),
                to: at,
                called_at: at,
                withdrawn_at: None,
                end: EpisodeEnd::SeriesEnds,
                held: self.rows[row].used(),
                limit: None,
                evidence,
                part,
            });
        }
        let Some(episode) = self.episodes.last_mut() else {
            return;
        };
        let is_filling = verdict == LeakVerdict::Filling && episode.verdict != verdict;
        let is_raised = verdict > episode.verdict || is_filling;
        if is_raised {
            (episode.verdict, episode.called_at) = (verdict, at);
            self.gained = Bytes(0);
        }
        if verdict == episode.verdict {
            self.gained = self.gained.max(evidence.gained);
            // A fall empties the evidence: the figures before it tell more.
            if evidence.gained.0 >= self.gained.0 / 2 {
                (episode.evidence, episode.part) = (evidence, part.or(episode.part));
                // Later evidence of a long growth may begin later, and the growth does not.
                episode.from = if is_raised {
                    seconds(evidence.since)
                } else {
                    episode.from.min(seconds(evidence.since))
                };
            }
        }
    }

    /// Returns the episodes. An episode that goes on at the end lasts to the last row.
    pub(super) fn finish(mut self) -> Vec<Episode> {
        let last = self.rows.last().zip(self.rows.first());
        if let Some((last, first)) = last.filter(|_| self.is_open)
            && let Some(episode) = self.episodes.last_mut()
        {
            (episode.to, episode.held, episode.limit) =
                (between(first, last), last.used(), last.limit());
            self.merge();
        }
        self.episodes
    }

    /// Ends the open episode: its verdict was withdrawn at the row with this index.
    fn close(&mut self, at: f64, row: usize) {
        /// The seconds of the last samples that show how much is kept.
        const RECENT: f64 = 60.0;
        self.is_open = false;
        let rows = &self.rows[..=row];
        let (Some(episode), Some(first)) = (self.episodes.last_mut(), rows.first()) else {
            return;
        };
        let begin = rows.partition_point(|row| between(first, row) < episode.from);
        let rows = &rows[begin.min(row)..];
        let low = |rows: &[LogRow]| {
            rows.iter()
                .map(|row| row.used().0)
                .min()
                .unwrap_or(u64::MAX)
        };
        let base = low(&rows[..=rows.len() / 10]);
        let level = base.saturating_add(self.gained.0);
        let recent = low(&rows[rows
            .partition_point(|row| between(first, row) < at - RECENT)
            .min(rows.len() - 1)..]);
        let is_released = recent < base.saturating_add(self.gained.0 / 2);
        episode.end = match () {
            () if !is_released => EpisodeEnd::Stopped,
            () if recent < level / 10 => EpisodeEnd::ProgramEnded,
            () => EpisodeEnd::Released,
        };
        let last = if is_released {
            // The last row before the fall.
            let high = base.saturating_add(self.gained.0 / 5 * 4);
            rows.iter().rposition(|row| row.used().0 >= high)
        } else {
            // The first row after which memory never was much less than at the end.
            let kept = recent.saturating_sub(self.gained.0 / 100);
            rows.iter().rposition(|row| row.used().0 < kept)
        };
        let last = &rows[last.unwrap_or(0)];
        episode.withdrawn_at = Some(at);
        episode.to = between(first, last).max(episode.from);
        let held = if is_released {
            last.used()
        } else {
            last.used().max(Bytes(recent))
        };
        (episode.held, episode.limit) = (held, last.limit());
        self.merge();
    }

    /// Joins the last episode with the one before if it is the same growth.
    fn merge(&mut self) {
        let [.., before, last] = self.episodes.as_mut_slice() else {
            return;
        };
        if last.from >= before.to {
            return;
        }
        let called_at = if before.verdict >= last.verdict {
            before.called_at
        } else {
            last.called_at
        };
        let verdict = before.verdict.max(last.verdict);
        *before = Episode {
            verdict,
            called_at,
            from: before.from.min(last.from),
            ..last.clone()
        };
        self.episodes.pop();
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a log is shorter than 200,000 years"
)]
pub(super) fn between(first: &LogRow, row: &LogRow) -> f64 {
    row.time.abs_diff(first.time) as f64 / 1000.0
}

fn seconds(moment: Moment) -> f64 {
    moment.since(Moment(0)).as_secs_f64()
}
