//! Signs that a process loads a model instead of leaking: it has not computed yet, or reads from
//! files about what it puts on the GPU.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{GpuProcess, Process};

/// The bytes read from files for each byte gained on the GPU, while a process loads: weights may be
/// converted on the way.
const READ_FOR_GAINED: std::ops::RangeInclusive<f64> = 0.5..=2.5;

/// The time for which growth is still found after a load has ended: it stalls for two of its parts
/// first, of 16 seconds each.
const STILL_FOUND: Duration = Duration::from_secs(40);

/// The signs that show whether a process loads on one GPU.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(in crate::model) struct LoadingSigns {
    /// Whether the SM use was read at least once.
    knows_sm: bool,
    /// When the process was first seen to use an SM; `None` if it never was.
    computes_since: Option<Moment>,
    /// The bytes read from files and the memory held, when the agent began to report them; `None`
    /// while it does not.
    began: Option<[Bytes; 2]>,
    latest: [Bytes; 2],
}

impl LoadingSigns {
    /// Adds what a snapshot of this moment shows of the process on the GPU.
    pub(super) fn add(&mut self, at: Moment, gpu_process: &GpuProcess, process: &Process) {
        // An unreadable SM use is no sign of loading.
        self.knows_sm = gpu_process.sm.is_ok();
        if gpu_process.sm.is_ok_and(|sm| sm.value() > 0.0) {
            self.computes_since.get_or_insert(at);
        }
        match process.bytes_read.zip(gpu_process.memory.ok()) {
            Some((read, held)) => {
                self.latest = [read, held];
                self.began.get_or_insert(self.latest);
            }
            None => self.began = None,
        }
    }

    /// Whether all growth that is found now may be from the time before the first computation: the
    /// process has not used an SM since gputop first saw it, or only just began.
    pub(super) fn has_not_computed(&self, now: Moment) -> bool {
        self.knows_sm
            && self
                .computes_since
                .is_none_or(|since| now.since(since) < STILL_FOUND)
    }

    /// Whether the process reads from files about what it puts on the GPU.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(super) fn reads_what_it_gains(&self) -> bool {
        let Some(began) = self.began else {
            return false;
        };
        let [read, gained] =
            [0, 1].map(|place: usize| self.latest[place].saturating_sub(began[place]).0 as f64);
        gained > 0.0 && READ_FOR_GAINED.contains(&(read / gained))
    }
}
