//! How an agent is started, by a viewer or by hand.

use std::path::PathBuf;
use std::time::Duration;

/// The shortest interval between two passes: below it, reading would be most of what the host does.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The interval between two passes unless another is given.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// The longest interval between two passes: beyond it, nobody is watching.
pub const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// How an agent is started.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The time from one pass to the next.
    pub interval: Duration,
    /// The NVML library to load; `None` for the system's.
    pub nvml_lib: Option<PathBuf>,
    /// Whether to show the simulated machine.
    pub demo: bool,
    /// Whether to refuse every signal.
    pub readonly: bool,
    /// Whether to read the detail of every GPU, which takes about a hundred more NVML calls per pass.
    pub detail: bool,
}
