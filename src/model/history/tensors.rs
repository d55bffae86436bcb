//! The history of the categories of a process's memory that the probe reports.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MemoryHistory;
use crate::base::units::{Bytes, Moment};
use crate::protocol::snapshot::{ProbeReport, TensorCategory};

/// Categories that are one layer of a graph, from the bottom: those that stay come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub(crate) enum TensorLayer {
    /// Parameters and buffers.
    #[strum(to_string = "parameters")]
    Parameters,
    #[strum(to_string = "gradients")]
    Gradients,
    #[strum(to_string = "optimizer state")]
    OptimizerState,
    #[strum(to_string = "named tensors")]
    NamedTensors,
    #[strum(to_string = "activations")]
    Activations,
    /// Memory of libraries and of CUDA graphs, memory that the probe has not looked at yet, and
    /// categories of later versions.
    #[strum(to_string = "libraries, other")]
    Libraries,
    /// Memory that PyTorch keeps without a tensor in it.
    #[strum(to_string = "unallocated")]
    Unallocated,
}

impl TensorLayer {
    pub(crate) const ALL: [Self; 7] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::NamedTensors,
        Self::Activations,
        Self::Libraries,
        Self::Unallocated,
    ];

    /// Returns the memory in each layer, on all devices together; `None` if a device has no
    /// categories.
    pub(crate) fn amounts(report: &ProbeReport) -> Option<[Bytes; Self::ALL.len()]> {
        if report.devices.is_empty()
            || report
                .devices
                .iter()
                .any(|device| device.categories.is_empty())
        {
            return None;
        }
        let categories = || report.devices.iter().flat_map(|device| &device.categories);
        Some(Self::ALL.map(|layer| {
            categories()
                .filter(|(category, _)| Self::of(**category) == layer)
                .map(|(_, bytes)| *bytes)
                .sum()
        }))
    }

    pub(crate) fn of(category: TensorCategory) -> Self {
        match category {
            TensorCategory::Parameters | TensorCategory::Buffers => Self::Parameters,
            TensorCategory::Gradients => Self::Gradients,
            TensorCategory::OptimizerState => Self::OptimizerState,
            TensorCategory::NamedTensors => Self::NamedTensors,
            TensorCategory::Activations => Self::Activations,
            TensorCategory::Libraries
            | TensorCategory::GraphPools
            | TensorCategory::NotLookedAt
            | TensorCategory::Other => Self::Libraries,
            TensorCategory::Pending | TensorCategory::Cache | TensorCategory::Fragmentation => {
                Self::Unallocated
            }
        }
    }
}

/// The memory in each layer, on all devices of a process together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TensorHistory([MemoryHistory; TensorLayer::ALL.len()]);

impl TensorHistory {
    /// Returns each layer, from the bottom.
    pub(crate) fn layers(&self) -> impl Iterator<Item = (TensorLayer, &MemoryHistory)> {
        TensorLayer::ALL.into_iter().zip(&self.0)
    }

    pub(super) fn is_sound(&self) -> bool {
        self.0.iter().all(MemoryHistory::is_sound)
    }

    /// Adds a report. `None` where there is none, or an old one: a gap.
    pub(super) fn push(&mut self, at: Moment, report: Option<&ProbeReport>, patience: Duration) {
        let amounts = report.and_then(TensorLayer::amounts);
        for (place, history) in self.0.iter_mut().enumerate() {
            history.push(at, amounts.map(|amounts| amounts[place]), patience);
        }
    }
}
