//! The memory of one recorded step by module, and the variables that keep results of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::base::text::Text;
use crate::base::units::Bytes;

/// The memory of one recorded step on a CUDA device. The amounts are those that the program
/// requested: blocks of the allocator may be larger.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleMemory {
    /// PyTorch's number of the device: 0 for `cuda:0`.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The highest memory of tensors. It is the memory of the models in `rows` then, and the next
    /// three amounts.
    #[serde(rename = "peak_bytes")]
    pub peak: Bytes,
    /// The part of the peak that was allocated before the step.
    #[serde(rename = "before_bytes")]
    pub before: Bytes,
    /// The part of the peak that the program allocated in the step outside of modules.
    #[serde(rename = "outside_bytes")]
    pub outside: Bytes,
    /// The part of the peak that the backward pass allocated.
    #[serde(rename = "backward_bytes")]
    pub backward: Bytes,
    /// The modules with the most memory, the largest first.
    #[serde(default)]
    pub rows: Vec<ModuleRow>,
    /// The number of modules that are left out; absent when there are none.
    pub rows_left_out: Option<u64>,
}

/// The memory of a module, with the modules in it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleRow {
    /// The path of the module in its model, as in `blocks.3.mlp`; of a model the name of its class.
    pub path: Text,
    /// The name of the class.
    #[serde(rename = "type")]
    pub kind: Option<Text>,
    /// How often it was called in the step; 0 for a list of modules.
    pub calls: Option<u64>,
    /// The memory that its forward pass left behind when that of the model had ended.
    #[serde(rename = "activation_bytes")]
    pub activations: Bytes,
    /// Its memory at the peak of the step.
    #[serde(rename = "peak_bytes")]
    pub peak: Bytes,
}

/// Variables that alone keep a result of a step after its end.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeptResult {
    /// PyTorch's number of the device.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The variables.
    pub names: Vec<Text>,
    /// The line that sets one of them, as in `train.py:31 in main`.
    pub line: Option<Text>,
    /// The memory that `del` frees.
    pub bytes: Bytes,
}
