//! The state of a host in a checkpoint: all that the model derived from earlier lines, so that a
//! reader can go on from there.
//!
//! A checkpoint has all verdicts, news and events, and of each curve the 15 minutes by the second,
//! one hour by ten seconds, one day by five minutes and the days before by the hour. So a graph
//! shows less detail for older times than it did live: the highest and lowest amounts of five
//! minutes instead of the peaks of ten seconds, and those of an hour for days that are over.
//!
//! A checkpoint may be forged, like every line: one that is not understood, or breaks a rule that
//! the model relies on, is ignored.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::growth::LeakDetectors;
use super::history::History;
use super::news::NewsLog;
use super::user_hues::UserHues;
use super::verdict::process_records::ProcessRecords;
use crate::base::text::Text;
use crate::protocol::checkpoint::Checkpoint;
use crate::protocol::snapshot::Snapshot;

/// The version of the state. It grows when a field of these types comes without a default, goes or
/// changes its meaning: recordings of the version before then lose their checkpoints, and are read from their
/// first line.
pub(super) const VERSION: u32 = 7;

/// Everything that [`HostModel`](super::HostModel) derives from more than the latest snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DerivedState<'a> {
    pub(super) boot_id: Cow<'a, Text>,
    pub(super) history: Cow<'a, History>,
    pub(super) leaks: Cow<'a, LeakDetectors>,
    pub(super) records: Cow<'a, ProcessRecords>,
    pub(super) news: Cow<'a, NewsLog>,
    /// Older checkpoints have none.
    #[serde(default)]
    pub(super) user_hues: Cow<'a, UserHues>,
}

impl DerivedState<'_> {
    /// Returns the state as a checkpoint; `None` if it cannot be written as JSON.
    pub(super) fn to_checkpoint(&self, latest: &Snapshot) -> Option<Checkpoint> {
        let state = serde_json::value::to_raw_value(self).ok()?;
        Some(Checkpoint {
            version: VERSION,
            at: latest.at,
            unix_ms: latest.unix_ms,
            state,
        })
    }

    /// Returns the state in a checkpoint, unless it is of another version or boot, later than the
    /// latest snapshot, or unsound.
    pub(super) fn parse(checkpoint: &Checkpoint, latest: &Snapshot) -> Option<Self> {
        if checkpoint.version != VERSION || checkpoint.at > latest.at {
            return None;
        }
        let state: Self = serde_json::from_str(checkpoint.state.get()).ok()?;
        let is_sound = state.history.is_sound() && state.leaks.are_sound() && state.news.is_sound();
        (*state.boot_id == latest.host.facts.boot_id && is_sound).then_some(state)
    }
}

/// Returns the news in a checkpoint, on the same conditions as [`DerivedState::parse`].
pub(super) fn news(checkpoint: &Checkpoint, latest: &Snapshot) -> Option<NewsLog> {
    /// The other fields are skipped, which takes a tenth of the time.
    #[derive(Deserialize)]
    struct NewsOfState {
        boot_id: Text,
        news: NewsLog,
    }
    if checkpoint.version != VERSION || checkpoint.at > latest.at {
        return None;
    }
    let state: NewsOfState = serde_json::from_str(checkpoint.state.get()).ok()?;
    (state.boot_id == latest.host.facts.boot_id && state.news.is_sound()).then_some(state.news)
}

#[cfg(test)]
mod tests;
