//! Events for the time axis of a graph: processes that began, ended, were signalled or released
//! much memory, and Xid errors.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Reading, Snapshot};

/// The most events that are remembered. The oldest is dropped for a new one.
const REMEMBERED: usize = 256;

/// The largest number of events that a checkpoint may count: more than there can be.
const MOST: u64 = 1 << 53;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HistoryEventKind {
    /// A process took memory for the first time.
    Began,
    /// A process released all its memory: it ended, or lives on without any. Contains the amount
    /// last seen, `None` when that was not known.
    Ended(Option<Bytes>),
    Signalled(Signal),
    /// The process released much memory at once.
    Dropped {
        from: Bytes,
        to: Bytes,
    },
    /// The driver reported this Xid error of the GPU.
    Xid(u64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HistoryEvent {
    pub at: Moment,
    pub kind: HistoryEventKind,
    /// The GPU; `None` when the event concerns a process on all GPUs that it uses.
    pub gpu: Option<GpuUuid>,
    /// The process and its short name; `None` when the event concerns a whole GPU.
    pub process: Option<(ProcessId, Reading<Text>)>,
}

/// The latest events, in the order in which they were seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct EventLog {
    events: VecDeque<HistoryEvent>,
    /// The number of events so far, those that were dropped included.
    added: u64,
}

impl EventLog {
    /// Whether a log of a checkpoint keeps the rules that adding relies on.
    pub(super) fn is_sound(&self) -> bool {
        self.events.len() <= REMEMBERED && self.added <= MOST
    }

    pub(super) fn add(&mut self, event: HistoryEvent) {
        if self.events.len() == REMEMBERED {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.added += 1;
    }

    pub(super) fn add_xids(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            for xid in &gpu.health.xids {
                let kind = HistoryEventKind::Xid(xid.code);
                let is_known = |event: &HistoryEvent| {
                    (event.at, event.kind) == (xid.at, kind)
                        && event.gpu.as_ref() == Some(&gpu.uuid)
                };
                if !self.events.iter().any(is_known) {
                    self.add(HistoryEvent {
                        at: xid.at,
                        kind,
                        gpu: Some(gpu.uuid.clone()),
                        process: None,
                    });
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &HistoryEvent> {
        self.events.iter()
    }

    /// Returns the events after the first `seen` ones.
    pub(super) fn after(&self, seen: u64) -> impl Iterator<Item = &HistoryEvent> {
        let new = usize::try_from(self.added.saturating_sub(seen)).unwrap_or(usize::MAX);
        self.events
            .iter()
            .skip(self.events.len().saturating_sub(new))
    }
}

/// Whether a drop is large enough to be an event: at least 512 MiB, and at least an eighth of the
/// amount before. Smaller drops are garbage collection.
pub(super) fn is_drop(from: Bytes, to: Bytes) -> bool {
    let lost = from.saturating_sub(to);
    lost >= Bytes::from_mib(512) && lost.0 >= from.0 / 8
}
