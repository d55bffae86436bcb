//! The state that a program derived from the lines of a host up to a moment: with it, a reader need
//! not begin with the first line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::base::units::Moment;

/// The derived state of a host. It stands after a full line in recordings, and in the lines of a
/// recorder that an agent passes on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The version of the state. A reader ignores a checkpoint of another version than its own.
    pub version: u32,
    /// The time of the snapshot that the state is from.
    #[serde(rename = "time_ms")]
    pub at: Moment,
    /// The wall clock of the host at that time.
    #[serde(rename = "unix_time_ms")]
    pub unix_ms: u64,
    /// The history and the state of the verdicts. Only a gputop with the same version of the state
    /// can read it.
    #[schemars(with = "Value")]
    pub state: Box<RawValue>,
}

impl PartialEq for Checkpoint {
    fn eq(&self, other: &Self) -> bool {
        (self.version, self.at, self.unix_ms, self.state.get())
            == (other.version, other.at, other.unix_ms, other.state.get())
    }
}
