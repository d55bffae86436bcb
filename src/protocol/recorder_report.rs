//! The reports of the process that writes a recording for a viewer, one JSON object on each line.

use serde::{Deserialize, Serialize};

use crate::base::text::Text;

/// A report of the process that writes a recording for a viewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderReport {
    /// The state of the recording.
    pub state: RecorderState,
    /// A sentence for the user.
    pub sentence: Text,
}

/// The state of a recording that a viewer makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecorderState {
    /// Lines are written.
    Writing,
    /// Nothing can be written, as on a full disk. Writing is tried again and again.
    Paused,
    /// The recording is over.
    Closed,
}
