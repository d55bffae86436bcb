//! Groups of tensors in the reports of the probe: their categories, their changes, and the lines that
//! allocated them.

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

use crate::base::text::Text;
use crate::base::units::Bytes;

/// Reads a list, and leaves out items that another version of the probe writes in another form.
pub(super) fn known_items<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ListItem<T> {
        Known(T),
        Unknown(IgnoredAny),
    }
    let items: Vec<ListItem<T>> = Vec::deserialize(deserializer)?;
    let known = |item| match item {
        ListItem::Known(item) => Some(item),
        ListItem::Unknown(IgnoredAny) => None,
    };
    Ok(items.into_iter().filter_map(known).collect())
}

/// A part of the memory that PyTorch reserved.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum TensorCategory {
    /// Weights of modules, trained or frozen.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// Memory of optimizers, such as the moments of Adam.
    #[strum(to_string = "optimizer state")]
    OptimizerState,
    /// Buffers of modules, such as the statistics of batch normalization.
    Buffers,
    /// Inputs and other tensors that a variable of the program names.
    #[strum(to_string = "named tensors")]
    NamedTensors,
    /// Results that the autograd graph keeps for the backward pass, and temporary tensors.
    Activations,
    /// Memory that the probe has not looked at yet: it may be of any category.
    #[strum(to_string = "not looked at yet")]
    NotLookedAt,
    /// Memory of libraries such as cuBLAS and NCCL within the allocator.
    Libraries,
    /// Private pools of CUDA graphs.
    #[strum(to_string = "CUDA graph pools")]
    GraphPools,
    /// Freed memory that another stream may still use.
    Pending,
    /// Free memory that `empty_cache` would return.
    Cache,
    /// Free memory in segments that are partly in use.
    Fragmentation,
    /// A category of a later version.
    #[serde(other)]
    Other,
}

/// Tensors of one category, shape and type.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorGroup {
    /// PyTorch's number of the device.
    #[serde(rename = "cuda_device")]
    pub device: u32,
    /// The category.
    pub category: TensorCategory,
    /// The shape; absent for memory without a Python tensor.
    pub shape: Option<Vec<u64>>,
    /// The type of the elements, as in `float32`; absent for memory without a Python tensor.
    pub dtype: Option<Text>,
    /// The memory of each block without a Python tensor; absent where the shape is known.
    #[serde(rename = "block_bytes")]
    pub block: Option<Bytes>,
    /// The name of the optimizer state, as in `exp_avg`; absent in other categories.
    pub kind: Option<Text>,
    /// The number of tensors.
    pub count: u64,
    /// Their memory.
    pub bytes: Bytes,
    /// The age of the oldest in steps; absent before the first step.
    pub age_steps: Option<u64>,
    /// How many more there are than at the time of `changes_since`; absent in the first reading.
    pub count_change: Option<i64>,
    /// How many more bytes they have than then.
    pub bytes_change: Option<i64>,
    /// Whether the tensors are views of larger blocks, as the flat buffers of FSDP; the bytes are
    /// those of the blocks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part: bool,
    /// The lines that allocated what changed between two marks; absent unless stacks were recorded.
    pub allocated_at: Option<AllocationLines>,
}

/// The lines of a program that allocated memory.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllocationLines {
    /// The innermost line of the user's program, as in `train.py:40 in step`.
    pub user: Option<Text>,
    /// The innermost line outside PyTorch.
    pub inner: Option<Text>,
}
