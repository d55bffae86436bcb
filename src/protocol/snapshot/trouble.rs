//! What keeps a driver or a GPU from answering, and which of their functions fail.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::base::units::Moment;

/// What keeps the driver, or one GPU, from answering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// What kind it is, for a program to tell.
    pub cause: Cause,
    /// One sentence for a person: what was done, to what, what to do about it.
    pub sentence: Text,
    /// The NVML function that failed or hangs; absent when no call was reached.
    #[serde(rename = "nvml_function")]
    pub call: Option<Text>,
    /// When it began.
    #[serde(rename = "start_time_ms")]
    pub since: Moment,
}

impl Trouble {
    /// Whether a call has not come back.
    pub fn is_silence(&self) -> bool {
        matches!(self.cause, Cause::Starting | Cause::Hung)
    }
}

/// A function of the driver that fails while the rest goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The NVML function.
    #[serde(rename = "nvml_function")]
    pub call: Text,
    /// What NVML says of it.
    pub error: Text,
    /// Since when it fails.
    #[serde(rename = "start_time_ms")]
    pub since: Moment,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

/// The kinds of [`Trouble`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The first pass is not over; or a call has not come back that takes seconds at times.
    Starting,
    /// There is no NVML library on this host.
    NoLibrary,
    /// There is one, and it cannot be loaded.
    NotLoading,
    /// The library found no driver, or none that runs.
    NoDriver,
    /// There is a driver, and it finds no GPU.
    NoGpu,
    /// Library and kernel module are of different versions.
    #[serde(rename = "version_mismatch")]
    Mismatch,
    /// The driver did not let us.
    Denied,
    /// A call has not come back.
    Hung,
    /// The GPU fell off the bus.
    Lost,
    /// The GPU needs a reset. Some of its figures, and its processes, can be read all the same.
    #[serde(rename = "needs_reset")]
    Reset,
    /// A call failed in another way.
    Failed,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::NoLibrary => "no NVML",
            Self::NotLoading => "not loading",
            Self::NoDriver => "no driver",
            Self::NoGpu => "no GPU",
            Self::Mismatch => "mismatch",
            Self::Denied => "denied",
            Self::Hung => "hung",
            Self::Lost => "lost",
            Self::Reset => "needs reset",
            Self::Failed => "failed",
        })
    }
}
