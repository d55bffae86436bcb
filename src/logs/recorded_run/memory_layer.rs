//! The layers of a process's memory in a plot.

use std::fmt;

use crate::base::units::{Bytes, Moment};
use crate::model::{HostModel, TensorLayer, reserved};
use crate::protocol::snapshot::{Process, ProcessId};

/// A part of the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLayer {
    Tensors(TensorLayer),
    /// Memory of tensors whose categories are not known.
    Allocated,
    /// Not PyTorch's: the CUDA context, kernels, libraries.
    Other,
    /// Memory whose parts are not known.
    Undivided,
}

/// The number of layers.
const COUNT: usize = TensorLayer::ALL.len() + 3;

/// The amount of each layer in KiB, in the order of [`MemoryLayer::ALL`].
pub(crate) type LayerAmounts = [u32; COUNT];

impl MemoryLayer {
    /// All layers from the bottom of a plot: parts that stay come first.
    pub(crate) const ALL: [Self; COUNT] = [
        Self::Tensors(TensorLayer::Parameters),
        Self::Tensors(TensorLayer::Gradients),
        Self::Tensors(TensorLayer::OptimizerState),
        Self::Tensors(TensorLayer::NamedTensors),
        Self::Tensors(TensorLayer::Activations),
        Self::Tensors(TensorLayer::Libraries),
        Self::Allocated,
        Self::Tensors(TensorLayer::Unallocated),
        Self::Other,
        Self::Undivided,
    ];

    /// Returns the layers of a process that holds this many KiB, and the KiB of its tensors: by the
    /// probe, else by the allocator stats.
    pub(super) fn amounts(
        model: &HostModel,
        process: &Process,
        kib: u32,
        now: Moment,
    ) -> (LayerAmounts, Option<u32>) {
        let outside = |known: &[u32]| {
            kib.saturating_sub(known.iter().fold(0, |sum, part| sum.saturating_add(*part)))
        };
        let report = process.fresh_report(now);
        if let Some((report, layers)) =
            report.and_then(|report| Some((report, TensorLayer::amounts(report)?)))
        {
            let layers = layers.map(|bytes| in_kib(bytes.0));
            let of_tensors = TensorLayer::ALL.into_iter().zip(layers);
            let known = of_tensors.map(|(layer, kib)| (Self::Tensors(layer), kib));
            let tensors: Option<Bytes> = report.devices.iter().map(|device| device.allocated).sum();
            let amounts = in_order(known.chain([(Self::Other, outside(&layers))]));
            return (amounts, tensors.map(|tensors| in_kib(tensors.0)));
        }
        match stats_of(model, process.id) {
            Some((allocated, unallocated)) => {
                let other = outside(&[allocated, unallocated]);
                let unallocated = (Self::Tensors(TensorLayer::Unallocated), unallocated);
                (
                    in_order([
                        (Self::Allocated, allocated),
                        unallocated,
                        (Self::Other, other),
                    ]),
                    Some(allocated),
                )
            }
            None => (in_order([(Self::Undivided, kib)]), None),
        }
    }
}

impl fmt::Display for MemoryLayer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensors(layer) => layer.fmt(out),
            Self::Allocated => out.write_str("allocated"),
            Self::Other => out.write_str("other"),
            Self::Undivided => out.write_str("not divided"),
        }
    }
}

/// Puts the amounts of some layers into their places.
fn in_order(known: impl IntoIterator<Item = (MemoryLayer, u32)>) -> LayerAmounts {
    let mut amounts = LayerAmounts::default();
    for (layer, kib) in known {
        if let Some(place) = MemoryLayer::ALL.iter().position(|other| *other == layer) {
            amounts[place] = kib;
        }
    }
    amounts
}

/// Returns the KiB of a process's tensors, and those that PyTorch reserved without a tensor.
fn stats_of(model: &HostModel, process: ProcessId) -> Option<(u32, u32)> {
    let stats = reserved(model.latest()?, process, None)?;
    Some((
        in_kib(stats.allocated.0),
        in_kib(stats.sum().saturating_sub(stats.allocated).0),
    ))
}

/// Returns an amount in KiB, at most 4 TiB.
pub(super) fn in_kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}
