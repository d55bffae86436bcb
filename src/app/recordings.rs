//! Replays, the recording that `R` starts, and marks.

pub(crate) mod active_recording;
pub(crate) mod marks;
pub(crate) mod replay;
