//! The marks that a program sets with `gputop_probe.mark` and `gputop_probe.phase`, and which tensors
//! came and went between two of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::tensor_group::{TensorGroup, known_items};
use crate::base::text::Text;
use crate::base::units::Bytes;

/// A mark of a program.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProgramMark {
    /// Its name; `NAME end` at the end of a phase.
    pub name: Text,
    /// The number of the step then; absent before the first step.
    pub step: Option<u64>,
    /// When it was set: seconds since 1970 (UTC).
    #[serde(rename = "unix_time_seconds")]
    pub unix_time: Option<f64>,
    /// The line of the program that set it, as in `train.py:40 in main`.
    pub at: Option<Text>,
}

/// Two marks of a program, and what changed between them.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MarkPair {
    /// The first mark, the last time that both were set.
    pub since: ProgramMark,
    /// The second mark.
    pub until: ProgramMark,
    /// The time between both in seconds.
    pub seconds: Option<f64>,
    /// How often both were set, one after the other; absent in an answer.
    pub times: Option<u64>,
    /// The memory of tensors on each CUDA device with any.
    #[serde(default)]
    pub devices: Vec<MarkedDevice>,
    /// The number of the time that `groups` is of; absent if only the totals are known.
    pub groups_from: Option<u64>,
    /// The groups of tensors that changed, the largest change first.
    #[serde(default, deserialize_with = "known_items")]
    pub groups: Vec<TensorGroup>,
    /// The changed groups that are left out; absent when there are none.
    pub groups_left_out: Option<OmittedChange>,
}

impl MarkPair {
    /// The change of the memory of tensors from the first mark to the second, in bytes, on all
    /// devices.
    pub(crate) fn bytes_change(&self) -> i64 {
        self.devices.iter().map(|device| device.bytes_change).sum()
    }

    /// The change of all times together in bytes; `None` if it is not known.
    pub(crate) fn total_bytes_change(&self) -> Option<i64> {
        self.devices
            .iter()
            .map(|device| device.total_bytes_change)
            .sum()
    }
}

/// The memory of tensors on one CUDA device at two marks.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MarkedDevice {
    /// PyTorch's number of the device: 0 for `cuda:0`.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The memory of tensors at the second mark.
    #[serde(rename = "allocated_bytes")]
    pub allocated: Bytes,
    /// How many bytes more it is than at the first mark.
    pub bytes_change: i64,
    /// The changes of all times together; absent in an answer.
    pub total_bytes_change: Option<i64>,
}

/// Changed groups of tensors that are left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct OmittedChange {
    /// Their number.
    pub count: u64,
    /// The change of their memory in bytes.
    pub bytes_change: i64,
}
