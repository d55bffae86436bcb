//! Reads a GPU and the instances that MIG splits it into. Each instance is a GPU with memory and
//! processes of its own.

use nvml_wrapper::Device;
use nvml_wrapper::struct_wrappers::device::DeviceAttributes;

use super::gpu_calls::{CallError, GpuCalls, read, read_text};
use super::nvml_gpu::{GpuPass, NvmlGpu};
use super::raw;
use crate::base::text::Text;
use crate::protocol::snapshot::{GpuUuid, Reading};

/// Reads a GPU, then its instances. Looks for new instances in slow passes, and when an instance
/// does not answer.
pub(super) fn read(
    gpu: &mut NvmlGpu,
    instances: &mut Vec<NvmlGpu>,
    pass: &mut GpuPass<'_>,
) -> Result<(), CallError> {
    let slow = gpu.read(pass)?;
    if gpu.readings.health.mig != Ok(true) || !gpu.calls.only.has("instances") {
        instances.clear();
        return Ok(());
    }
    if slow || instances.is_empty() {
        find_instances(gpu, instances);
    }
    // An instance that was destroyed does not answer. The search finds the instances that replace
    // it.
    let working = |instances: &[NvmlGpu]| {
        instances
            .iter()
            .filter(|instance| instance.readings.trouble.is_none())
            .count()
    };
    let before = working(instances);
    instances.retain_mut(|instance| {
        // A process that uses an instance opens the device file of the parent.
        instance.readings.facts.minor = gpu.readings.facts.minor;
        is_same_instance(instance) && instance.read(pass).is_ok()
    });
    if working(instances) < before && !gpu.calls.watch.is_abandoned() {
        find_instances(gpu, instances);
    }
    Ok(())
}

fn find_instances(gpu: &mut NvmlGpu, instances: &mut Vec<NvmlGpu>) {
    let calls = &mut gpu.calls;
    let count = read!(calls, nvmlDeviceGetMaxMigDeviceCount);
    let mut old = std::mem::take(instances);
    for index in 0..count.unwrap_or(0) {
        // Most indices are unused on most GPUs, so an error here is no failure of the GPU.
        let device = calls.call("nvmlDeviceGetMigDeviceHandleByIndex", || {
            calls.device.mig_device_by_index(index)
        });
        let Ok(device) = device else { continue };
        let uuid = calls
            .call("nvmlDeviceGetUUID", || device.uuid())
            .map(|uuid| GpuUuid(uuid.into()));
        // "Handles may be reused and their properties can change in the process" (nvml.h at
        // nvmlDeviceGetMigDeviceHandleByIndex). An instance whose UUID cannot be read counts as
        // unchanged.
        let is_same = |instance: &NvmlGpu| {
            uuid.as_ref()
                .map_or(true, |uuid| instance.readings.uuid == *uuid)
                && raw::handle_of(&instance.calls.device) == raw::handle_of(&device)
        };
        if let Some(place) = old.iter().position(is_same) {
            instances.push(old.swap_remove(place));
            continue;
        }
        let parent = &gpu.readings.uuid;
        let uuid = uuid.unwrap_or_else(|_| GpuUuid(format!("{parent}/{index}").into()));
        let parent = Some(parent.clone());
        instances.push(NvmlGpu::new(
            device,
            uuid,
            calls.index,
            parent,
            &calls.watch,
            &calls.only,
        ));
    }
    for instance in instances
        .iter_mut()
        .filter(|instance| instance.readings.facts.name.is_err())
    {
        instance.readings.facts.name = instance_name(&mut instance.calls);
    }
}

/// Whether the handle still belongs to this instance. An instance whose UUID cannot be read counts
/// as unchanged.
fn is_same_instance(instance: &NvmlGpu) -> bool {
    let uuid = instance
        .calls
        .call("nvmlDeviceGetUUID", || instance.calls.device.uuid());
    uuid.map_or(true, |uuid| instance.readings.uuid == GpuUuid(uuid.into()))
}

/// Returns the name of an instance's profile, as in `nvidia-smi -L`: `MIG 1g.10gb`.
fn instance_name(calls: &mut GpuCalls) -> Reading<Text> {
    let name = read_text!(calls, nvmlDeviceGetName);
    let name = name.as_ref().map_or("", Text::as_str);
    if let Some(begin) = name.find("MIG ") {
        return Ok(name[begin..].into());
    }
    // Older drivers give an instance its parent's name, or none.
    calls
        .read("nvmlDeviceGetAttributes_v2", Device::attributes)
        .map(|attributes| profile(&attributes).into())
}

/// Returns the name of the profile with these slices and this memory, which is rounded up to whole
/// GiB.
fn profile(attributes: &DeviceAttributes) -> String {
    let gpu = attributes.gpu_instance_slice_count;
    let compute = attributes.compute_instance_slice_count;
    let gib = attributes.memory_size_mb.div_ceil(1024);
    if compute == gpu {
        format!("MIG {gpu}g.{gib}gb")
    } else {
        format!("MIG {compute}c.{gpu}g.{gib}gb")
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
