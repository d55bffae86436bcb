//! The instances of a GPU that MIG splits. Each is a GPU of its own with memory and processes of its own.

use nvml_wrapper::Device;
use nvml_wrapper::struct_wrappers::device::DeviceAttributes;

use super::call_watch::Watch;
use super::gpu::{Gpu, Pass};
use super::raw;
use crate::base::text::Text;
use crate::protocol::snapshot::{GpuUuid, Reading};

/// The name of its profile, as `nvidia-smi -L` gives it: `MIG 1g.10gb`.
pub(super) fn name(part: &mut Gpu, watch: &Watch) -> Reading<Text> {
    let name = part.ask(watch, "nvmlDeviceGetName", 0, raw::name);
    if let Some(profile) = name.as_ref().ok().and_then(|name| name.as_str().find("MIG ").map(|at| &name.as_str()[at..]))
    {
        return Ok(profile.into());
    }
    // Older drivers give an instance its parent's name, or none.
    part.ask(watch, "nvmlDeviceGetAttributes_v2", 0, Device::attributes).map(|it| profile(&it).into())
}

/// The profile's name from what it has: slices of the GPU, and memory rounded up to whole GiB.
fn profile(attributes: &DeviceAttributes) -> String {
    let gpu = attributes.gpu_instance_slice_count;
    let compute = attributes.compute_instance_slice_count;
    let gib = attributes.memory_size_mb.div_ceil(1024);
    if compute == gpu { format!("MIG {gpu}g.{gib}gb") } else { format!("MIG {compute}c.{gpu}g.{gib}gb") }
}

/// Reads the instances; looks for new ones when `slow`, or when one of them does not answer.
pub(super) fn read(gpu: &mut Gpu, pass: &mut Pass<'_>, split: bool, slow: bool) {
    if !split {
        gpu.parts.clear();
        return;
    }
    if slow || gpu.parts.is_empty() {
        find(gpu, pass.watch);
    }
    // An instance that was taken apart answers no more. The next look finds what took its place.
    let answer = |gpu: &Gpu| gpu.parts.iter().filter(|part| part.readings.trouble.is_none()).count();
    let before = answer(gpu);
    let (watch, minor) = (pass.watch, gpu.readings.facts.minor);
    gpu.parts.retain_mut(|part| {
        // An instance has no device file of its own that a process must open.
        part.readings.facts.minor = minor;
        is_still_itself(part, watch) && part.read(pass).is_ok()
    });
    if answer(gpu) < before && !pass.watch.is_left_behind() {
        find(gpu, pass.watch);
    }
}

/// Whether the handle is still that of this instance: another may have taken its place. One that does not say is no other.
fn is_still_itself(part: &Gpu, watch: &Watch) -> bool {
    let uuid = watch.call("nvmlDeviceGetUUID", || part.device.uuid());
    uuid.map_or(true, |it| part.readings.uuid == GpuUuid(it.into()))
}

fn find(gpu: &mut Gpu, watch: &Watch) {
    let count = gpu.ask(watch, "nvmlDeviceGetMaxMigDeviceCount", 0, Device::mig_device_count);
    let mut old = std::mem::take(&mut gpu.parts);
    let index = gpu.readings.facts.index;
    for place in 0..count.unwrap_or(0) {
        // Most places are empty on most GPUs: that is no failure, so it is not asked through the GPU.
        let device = watch.call("nvmlDeviceGetMigDeviceHandleByIndex", || gpu.device.mig_device_by_index(place));
        let Ok(device) = device else { continue };
        let uuid = watch.call("nvmlDeviceGetUUID", || device.uuid()).map(|it| GpuUuid(it.into()));
        // A handle alone may by now be that of another: "Handles may be reused and their properties can change in the
        // process" (nvml.h at nvmlDeviceGetMigDeviceHandleByIndex).
        // One that does not say its UUID this time is no other.
        let is_it = |part: &Gpu| {
            uuid.as_ref().map_or(true, |it| part.readings.uuid == *it)
                && raw::handle_of(&part.device) == raw::handle_of(&device)
        };
        if let Some(at) = old.iter().position(is_it) {
            gpu.parts.push(old.swap_remove(at));
            continue;
        }
        let uuid = uuid.unwrap_or_else(|_| GpuUuid(format!("{}/{place}", gpu.readings.uuid).into()));
        let parent = Some(gpu.readings.uuid.clone());
        gpu.parts.push(Gpu::open(device, uuid, index, parent, watch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_as_nvidia_smi_names_it() {
        let attributes = |gpu, compute, mb| DeviceAttributes {
            multiprocessor_count: 14,
            shared_copy_engine_count: 1,
            shared_decoder_count: 0,
            shared_encoder_count: 0,
            shared_jpeg_count: 0,
            shared_ofa_count: 0,
            gpu_instance_slice_count: gpu,
            compute_instance_slice_count: compute,
            memory_size_mb: mb,
        };
        assert_eq!(profile(&attributes(1, 1, 4864)), "MIG 1g.5gb");
        assert_eq!(profile(&attributes(3, 3, 40192)), "MIG 3g.40gb");
        assert_eq!(profile(&attributes(3, 1, 19968)), "MIG 1c.3g.20gb");
    }
}
