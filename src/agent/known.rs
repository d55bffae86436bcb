//! The processes as the loop last read them: who may be signalled at all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::snapshot::{Identity, ProcessId};

/// What the loop last read of every tenant, shared with the thread that obeys commands.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<Mutex<HashMap<u32, (ProcessId, Identity)>>>);

impl Known {
    /// Who has this PID, and how surely.
    pub(super) fn get(&self, pid: u32) -> Option<(ProcessId, Identity)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied()
    }

    /// Takes what a pass read in place of what was known before.
    pub(super) fn replace(&self, processes: impl IntoIterator<Item = (ProcessId, Identity)>) {
        let known = processes.into_iter().map(|(id, identity)| (id.pid, (id, identity))).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}
