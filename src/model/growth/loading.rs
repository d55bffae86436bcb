//! Signs that a process loads a model instead of leaking: it has not computed yet, or reads from files about what it puts on the GPU.

use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::protocol::snapshot::{GpuProcess, Process};

/// The bytes read from files for each byte gained on the GPU, while a process loads: weights may be converted on the way.
const READ_FOR_GAINED: std::ops::RangeInclusive<f64> = 0.5..=2.5;

/// The signs that show whether a process loads on one GPU.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(in crate::model) struct LoadingSigns {
    /// Whether the SM use was read at least once.
    knows_sm: bool,
    /// Whether the process was seen to use an SM.
    used_sm: bool,
    /// The bytes read from files and the memory held, when the agent began to report them; `None` while it does not.
    began: Option<[Bytes; 2]>,
    latest: [Bytes; 2],
}

impl LoadingSigns {
    pub(super) fn add(&mut self, gpu_process: &GpuProcess, process: &Process) {
        // An unreadable SM use is no sign of loading.
        self.knows_sm = gpu_process.sm.is_ok();
        self.used_sm |= gpu_process.sm.is_ok_and(|sm| sm.value() > 0.0);
        match process.bytes_read.zip(gpu_process.memory.ok()) {
            Some((read, held)) => {
                self.latest = [read, held];
                self.began.get_or_insert(self.latest);
            }
            None => self.began = None,
        }
    }

    /// Whether the process has not used an SM since gputop first saw it.
    pub(super) fn has_not_computed(&self) -> bool {
        self.knows_sm && !self.used_sm
    }

    /// Whether the process reads from files about what it puts on the GPU.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(super) fn reads_what_it_gains(&self) -> bool {
        let Some(began) = self.began else { return false };
        let [read, gained] = [0, 1].map(|at: usize| self.latest[at].saturating_sub(began[at]).0 as f64);
        gained > 0.0 && READ_FOR_GAINED.contains(&(read / gained))
    }
}
