//! What the command line says about the screen.

use std::time::Duration;

/// What the command line says about the screen.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Signal no process.
    pub readonly: bool,
    /// From one reading to the next.
    pub interval: Duration,
    /// So long before a leak runs out of memory, it is told.
    pub warn_before: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { readonly: false, interval: Duration::from_secs(1), warn_before: Duration::from_hours(1) }
    }
}
