//! Troubles that keep the driver or a GPU from answering, and single functions of the driver that
//! fail.

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
    /// Whether the first pass is not complete.
    pub(crate) fn is_starting(&self) -> bool {
        self.cause == Cause::Starting
    }

    /// Returns whether the cause is a call that has not returned, or a first pass that is not
    /// complete.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The first pass is not complete, or a call that can take seconds has not returned.
    #[strum(to_string = "starting")]
    Starting,
    /// No NVML library was found on this host.
    #[strum(to_string = "no NVML")]
    NoLibrary,
    /// The NVML library cannot be loaded.
    #[strum(to_string = "not loading")]
    NotLoading,
    /// The library found no running driver.
    #[strum(to_string = "no driver")]
    NoDriver,
    /// The driver found no GPU.
    #[strum(to_string = "no GPU")]
    NoGpu,
    /// The library and the kernel module have different versions.
    #[strum(to_string = "mismatch")]
    #[serde(rename = "version_mismatch")]
    Mismatch,
    /// The driver refused access.
    #[strum(to_string = "denied")]
    Denied,
    /// A call has not returned.
    #[strum(to_string = "hung")]
    Hung,
    /// The GPU has fallen off the bus.
    #[strum(to_string = "lost")]
    Lost,
    /// The GPU needs a reset. Some of its readings, and its processes, can still be read.
    #[strum(to_string = "needs reset")]
    #[serde(rename = "needs_reset")]
    Reset,
    /// A call failed for another reason.
    #[strum(to_string = "failed")]
    Failed,
}
