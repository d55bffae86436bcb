//! The layers of a process's memory in a plot.

use crate::base::units::Moment;
use crate::model::{HostModel, TensorLayer, reserved};
use crate::protocol::snapshot::{Process, ProcessId};

/// A part of the memory of a process, from the bottom of a plot: parts that stay come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub(crate) enum MemoryLayer {
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
    #[strum(to_string = "libraries")]
    Libraries,
    /// Memory of tensors whose categories are not known.
    #[strum(to_string = "allocated")]
    Allocated,
    /// Memory that PyTorch keeps without a tensor in it.
    #[strum(to_string = "cached")]
    Cached,
    /// Not PyTorch's: the CUDA context, kernels, libraries.
    #[strum(to_string = "other")]
    Other,
    /// Memory whose parts are not known.
    #[strum(to_string = "not divided")]
    Undivided,
}

/// The amount of each layer in KiB.
pub(crate) type LayerAmounts = [u32; MemoryLayer::ALL.len()];

impl MemoryLayer {
    pub(crate) const ALL: [Self; 10] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::NamedTensors,
        Self::Activations,
        Self::Libraries,
        Self::Allocated,
        Self::Cached,
        Self::Other,
        Self::Undivided,
    ];

    fn of(layer: TensorLayer) -> Self {
        match layer {
            TensorLayer::Parameters => Self::Parameters,
            TensorLayer::Gradients => Self::Gradients,
            TensorLayer::OptimizerState => Self::OptimizerState,
            TensorLayer::NamedTensors => Self::NamedTensors,
            TensorLayer::Activations => Self::Activations,
            TensorLayer::Libraries => Self::Libraries,
            TensorLayer::Unallocated => Self::Cached,
        }
    }

    /// Returns the layers of a process that holds this many KiB, and the KiB of its tensors: by the probe, else by the
    /// allocator stats.
    pub(super) fn amounts(model: &HostModel, process: &Process, kib: u32, now: Moment) -> (LayerAmounts, Option<u32>) {
        let mut amounts = LayerAmounts::default();
        let outside =
            |amounts: &LayerAmounts| kib.saturating_sub(amounts.iter().fold(0, |sum, part| sum.saturating_add(*part)));
        if let Some(report) = process.fresh_report(now)
            && !report.devices.is_empty()
            && report.devices.iter().all(|device| !device.categories.is_empty())
        {
            for (category, bytes) in report.devices.iter().flat_map(|device| &device.categories) {
                let amount = &mut amounts[Self::of(TensorLayer::of(*category)) as usize];
                *amount = amount.saturating_add(in_kib(bytes.0));
            }
            let tensors: u64 = report.devices.iter().filter_map(|device| Some(device.allocated?.0)).sum();
            amounts[Self::Other as usize] = outside(&amounts);
            return (amounts, Some(in_kib(tensors)));
        }
        match stats_of(model, process.id) {
            Some((allocated, cached)) => {
                amounts[Self::Allocated as usize] = allocated;
                amounts[Self::Cached as usize] = cached;
                amounts[Self::Other as usize] = outside(&amounts);
                (amounts, Some(allocated))
            }
            None => {
                amounts[Self::Undivided as usize] = kib;
                (amounts, None)
            }
        }
    }
}

/// Returns the KiB of a process's tensors, and those that PyTorch reserved without a tensor.
fn stats_of(model: &HostModel, process: ProcessId) -> Option<(u32, u32)> {
    let stats = reserved(model.latest()?, process, None)?;
    Some((in_kib(stats.allocated.0), in_kib(stats.sum().saturating_sub(stats.allocated).0)))
}

/// Returns an amount in KiB, at most 4 TiB.
pub(super) fn in_kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}
