//! Troubles that keep a driver or a GPU from answering, and functions that fail.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::text::Text;
use crate::base::units::Moment;

/// A trouble that keeps the driver, or one GPU, from answering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// The kind of trouble.
    pub cause: Cause,
    /// One sentence for the user: what failed, on what, and what to do.
    pub sentence: Text,
    /// The NVML function that failed or hangs; `null` when none was called.
    #[serde(rename = "nvml_function")]
    pub call: Option<Text>,
    /// When the trouble began, in milliseconds since boot.
    #[serde(rename = "start_time_ms")]
    pub since: Moment,
}

impl Trouble {
    /// Returns whether a call has not returned.
    pub fn is_silence(&self) -> bool {
        matches!(self.cause, Cause::Starting | Cause::Hung)
    }
}

/// A function of the driver that fails while others work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The NVML function.
    #[serde(rename = "nvml_function")]
    pub call: Text,
    /// The error as NVML describes it.
    pub error: Text,
    /// When the function first failed, in milliseconds since boot.
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
    /// The first pass is not complete, or a call that can take seconds has not returned.
    Starting,
    /// No NVML library was found on this host.
    NoLibrary,
    /// The NVML library cannot be loaded.
    NotLoading,
    /// The library found no running driver.
    NoDriver,
    /// The driver found no GPU.
    NoGpu,
    /// The library and the kernel module have different versions.
    #[serde(rename = "version_mismatch")]
    Mismatch,
    /// The driver refused access.
    Denied,
    /// A call has not returned.
    Hung,
    /// The GPU has fallen off the bus.
    Lost,
    /// The GPU needs a reset. Some of its readings, and its processes, can still be read.
    #[serde(rename = "needs_reset")]
    Reset,
    /// A call failed for another reason.
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
