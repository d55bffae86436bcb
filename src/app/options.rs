//! The options of the screen that the user sets when gputop starts.

use std::time::Duration;

/// The options of the screen that the user sets when gputop starts.
#[derive(Debug, Clone, Copy)]
pub struct AppOptions {
    /// Whether processes are never signalled.
    pub readonly: bool,
    /// Whether the lines come from a recording: there is no agent that commands could go to.
    pub is_recording: bool,
    /// The time between two readings.
    pub interval: Duration,
    /// How long before a leak runs out of memory the user is warned.
    pub warn_before: Duration,
}

impl Default for AppOptions {
    fn default() -> Self {
        Self {
            readonly: false,
            is_recording: false,
            interval: Duration::from_secs(1),
            warn_before: Duration::from_hours(1),
        }
    }
}
