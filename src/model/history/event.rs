//! What happened on a GPU, for the time axis of a graph: who came, went, was signalled or let go of much.

use std::collections::VecDeque;

use crate::base::text::Text;
use crate::base::units::{Bytes, Moment};
use crate::protocol::command::Signal;
use crate::protocol::snapshot::{GpuUuid, ProcessId, Reading, Snapshot};

/// So many are remembered, the latest.
const REMEMBERED: usize = 256;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryEventKind {
    /// A process took memory for the first time.
    Began,
    /// A process holds nothing any more, as it ended or, if it lives, let go; it held so much when last seen, absent when
    /// that was not known.
    Ended(Option<Bytes>),
    /// It was sent a signal from here.
    Signalled(Signal),
    /// It let go of much at once.
    Fell {
        /// From this amount.
        from: Bytes,
        /// To this.
        to: Bytes,
    },
    /// The driver reported an error of the GPU, by that number.
    Xid(u64),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEvent {
    /// When.
    pub at: Moment,
    /// What.
    pub what: HistoryEventKind,
    /// Where; absent for what concerns a process wherever it is.
    pub gpu: Option<GpuUuid>,
    /// To whom, and its short name; absent for what concerns a whole GPU.
    pub process: Option<(ProcessId, Reading<Text>)>,
}

/// All that happened, in the order in which it was seen.
#[derive(Debug, Clone, Default)]
pub(super) struct EventLog(VecDeque<HistoryEvent>);

impl EventLog {
    pub(super) fn add(&mut self, event: HistoryEvent) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    /// Takes in the errors that the driver reported.
    pub(super) fn learn(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            for xid in &gpu.health.xids {
                let what = HistoryEventKind::Xid(xid.code);
                let is_known =
                    |it: &HistoryEvent| (it.at, it.what) == (xid.at, what) && it.gpu.as_ref() == Some(&gpu.uuid);
                if !self.0.iter().any(is_known) {
                    self.add(HistoryEvent { at: xid.at, what, gpu: Some(gpu.uuid.clone()), process: None });
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &HistoryEvent> {
        self.0.iter()
    }
}

/// Whether a fall is worth a word: half a GiB at least, and an eighth of what was held. Less is the tooth of a saw.
pub(super) fn is_fall(from: Bytes, to: Bytes) -> bool {
    let lost = from.saturating_sub(to);
    lost >= Bytes::from_mib(512) && lost.0 >= from.0 / 8
}
