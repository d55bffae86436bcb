//! The outline of a recording: its begin and end, its gaps, and what happened in it. A timeline
//! shows it.

use serde::{Deserialize, Serialize};

use super::fleet::Fleet;
use super::health::Severity;
use super::news::NewsKind;
use crate::base::text::Text;

/// A part of the outline. Times are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutlinePart {
    /// The times of the first and the last line.
    Span {
        begin: u64,
        end: u64,
    },
    /// Nothing was recorded between these times.
    Gap {
        begin: u64,
        end: u64,
    },
    Event(OutlineEvent),
    /// Nothing follows.
    Complete,
}

/// Something that happened in a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutlineEvent {
    pub unix_ms: u64,
    /// The number of the news among those of its host.
    pub number: u64,
    /// The name of the host.
    pub host: Text,
    pub news: NewsKind,
    pub severity: Severity,
    pub sentence: Text,
}

/// Returns the news of all hosts that an outline names.
pub(crate) fn events(fleet: &Fleet) -> Vec<OutlineEvent> {
    let mut events = Vec::new();
    for (host, model) in fleet.hosts() {
        let Some(latest) = model.latest() else {
            continue;
        };
        let host = Text::from(fleet.name(host));
        // A process that begins is no reason to look.
        let named = model
            .news()
            .filter(|item| item.kind.summary_word().is_some() || item.kind == NewsKind::Signalled);
        events.extend(named.map(|item| {
            OutlineEvent {
                unix_ms: latest
                    .unix_ms
                    .saturating_sub(latest.at.0.saturating_sub(item.at.0)),
                number: item.number,
                host: host.clone(),
                news: item.kind,
                severity: item.severity,
                sentence: Text::from(item.sentence.as_str()),
            }
        }));
    }
    events
}
