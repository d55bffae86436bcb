//! Fields on virtual machines: vGPU capabilities, and the driver model of Windows below WSL.

use super::GpuFields;
use crate::commands::query::value::{NOT_AVAILABLE, QueryValue, word};
use crate::protocol::snapshot::GpuDetail;

/// One of the vGPU capabilities, by its index in `GpuDetail::vgpu`.
fn capability(detail: &GpuDetail, at: usize, words: [&'static str; 2]) -> QueryValue {
    let capability = detail.vgpu.as_ref().map(|all| all.get(at).copied().flatten()).map_err(|reason| *reason);
    QueryValue::of(capability, |capability| {
        capability.map_or(NOT_AVAILABLE, |has_it| QueryValue::plain(words[usize::from(has_it)]))
    })
}

const SUPPORTED: [&str; 2] = ["Not Supported", "Supported"];

pub(super) fn driver_capability(fields: &mut GpuFields) {
    let help = "Whether the driver lets one virtual machine have vGPUs of different types.";
    fields.detail("vgpu_driver_capability.heterogenous_multivGPU", "", help, |detail| capability(detail, 0, SUPPORTED));
}

pub(super) fn gpu_capabilities(fields: &mut GpuFields) {
    for (at, name, words, help) in [
        (1, "fractional_multiVgpu", SUPPORTED, "Whether one virtual machine can have several fractional vGPUs."),
        (2, "heterogeneous_timeSlice_profile", SUPPORTED, "Whether vGPUs of different types can share time slices."),
        (3, "heterogeneous_timeSlice_sizes", SUPPORTED, "Whether vGPUs of different sizes can share time slices."),
        (4, "homogeneous_placements", SUPPORTED, "Whether the placement of vGPUs of one size is known."),
        (5, "mig_timeSlicing", SUPPORTED, "Whether vGPUs can share the time slices of a MIG instance."),
        (6, "mig_timeSlicing_mode", ["Disabled", "Enabled"], "Whether vGPUs share the time slices of a MIG instance."),
    ] {
        let name = format!("vgpu_device_capability.{name}");
        fields.detail(name, "", help, move |detail| capability(detail, at, words));
    }
}

pub(super) fn driver_model(fields: &mut GpuFields) {
    for (at, name, help) in [
        (0, "driver_model.current", "Driver model of Windows, below WSL: WDDM, TCC, MCDM."),
        (1, "driver_model.pending", "Driver model after the next reboot."),
    ] {
        fields.detail(name, "", help, move |detail| {
            word(detail.driver_model.map(|models| models[at]), &["WDDM", "TCC", "MCDM"])
        });
    }
}
