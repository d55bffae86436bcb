//! The options that an agent is started with, by a viewer or by hand, and the limits of its
//! interval.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::base::units::{Elapsed, ExactSpan, parse_span};

/// The shortest interval between two passes: with a shorter one, reading would be most of what the
/// host does.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest interval of a loop on this host that the user asks for in milliseconds. A pass may
/// take longer.
pub const SHORTEST_LOOP: Duration = Duration::from_millis(1);

/// The interval between two passes unless another is given.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// The longest interval between two passes: nobody watches at a longer one.
pub const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// The variable with which an agent passes on the lines of a recorder of the same user, as long as
/// one runs. It is no flag: an earlier gputop ignores a variable, and refuses a flag that it does
/// not know.
pub const SHARED_LINES: &str = "GPUTOP_SHARED_LINES";

/// The value of [`SHARED_LINES`] for a report on this host. Any other value is for a viewer of
/// another host.
pub const SHARED_LINES_HERE: &str = "here";

/// The options that an agent is started with.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The time from one pass to the next.
    pub interval: Duration,
    /// The NVML library to load; `None` for the system's.
    pub nvml_lib: Option<PathBuf>,
    /// Whether to read a simulated machine instead of this host.
    pub demo: SimulatedMachine,
    /// Whether to refuse every signal.
    pub readonly: bool,
    /// Whether to read the detail of every GPU, which takes about a hundred more NVML calls per
    /// pass.
    pub detail: bool,
    /// The only readings of GPUs to take, each as its path in the JSON of a GPU
    /// (`load.memory_used_bytes`), or `processes` or `instances`. Empty for all but the detail.
    pub only: Vec<String>,
    /// Whether to pass on the lines of a recorder of the same user on this host, if one runs,
    /// instead of reading the host again.
    pub shares_lines: bool,
}

/// Whether an agent reads a simulated machine instead of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedMachine {
    /// It reads its host.
    None,
    /// It reads a simulated machine.
    FromNow,
    /// It reads a simulated machine, and first writes lines of what its GPUs did before.
    WithPast,
}

/// The time from one reading to the next, within [`SHORTEST_INTERVAL`] and [`LONGEST_INTERVAL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval(pub Duration);

impl Interval {
    /// Returns a sentence about an interval that is so long that the user may have meant
    /// milliseconds.
    pub fn interval_warning(self) -> Option<String> {
        const LONG: Duration = Duration::from_secs(100);
        let Self(interval) = self;
        let seconds = interval.as_secs();
        let sentence = || {
            format!(
                "the interval is {seconds} s, which is {}: milliseconds need a unit, as in 500ms",
                Elapsed(interval)
            )
        };
        (interval >= LONG).then(sentence)
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parse_span(text)? {
            span if span < SHORTEST_INTERVAL => Err("the shortest interval is 100ms".to_owned()),
            span if span > LONGEST_INTERVAL => Err("the longest interval is 24h".to_owned()),
            span => Ok(Self(span)),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ExactSpan(self.0).fmt(f)
    }
}
