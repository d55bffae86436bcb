//! Reads a GPU and the instances that MIG splits it into. Each instance is a GPU with memory and processes of its own.

use std::rc::Rc;

use nvml_wrapper::Device;
use nvml_wrapper::struct_wrappers::device::DeviceAttributes;

use super::call_watch::CallWatch;
use super::gpu_calls::{CallError, GpuCalls, read, read_text};
use super::nvml_gpu::{GpuPass, NvmlGpu};
use super::raw;
use super::wanted::Wanted;
use crate::agent::GpuReadings;
use crate::base::text::Text;
use crate::protocol::snapshot::{GpuUuid, Reading};

/// A GPU that answers, and its instances.
#[derive(Debug)]
pub(super) struct PhysicalGpu {
    pub(super) gpu: NvmlGpu,
    instances: Vec<NvmlGpu>,
}

impl PhysicalGpu {
    pub(super) fn new(
        device: Device<'static>,
        uuid: GpuUuid,
        index: u32,
        watch: &Rc<CallWatch>,
        only: &Rc<Wanted>,
    ) -> Self {
        Self { gpu: NvmlGpu::new(device, uuid, index, None, watch, only), instances: vec![] }
    }

    pub(super) fn set_index(&mut self, index: u32) {
        self.gpu.set_index(index);
        self.instances.iter_mut().for_each(|instance| instance.set_index(index));
    }

    pub(super) fn readings(&self) -> impl Iterator<Item = &GpuReadings> {
        std::iter::once(&self.gpu).chain(&self.instances).map(|gpu| &gpu.readings)
    }

    pub(super) fn into_readings(self) -> Vec<GpuReadings> {
        std::iter::once(self.gpu).chain(self.instances).map(|gpu| gpu.readings).collect()
    }

    /// Reads the GPU and its instances. Looks for new instances in slow passes, and when an instance does not answer.
    pub(super) fn read(&mut self, pass: &mut GpuPass<'_>) -> Result<(), CallError> {
        let slow = self.gpu.read(pass)?;
        if self.gpu.readings.health.mig != Ok(true) {
            self.instances.clear();
            return Ok(());
        }
        if slow || self.instances.is_empty() {
            self.find_instances();
        }
        // An instance that was destroyed does not answer. The search finds the instances that replace it.
        let working = |gpu: &Self| gpu.instances.iter().filter(|instance| instance.readings.trouble.is_none()).count();
        let before = working(self);
        let minor = self.gpu.readings.facts.minor;
        self.instances.retain_mut(|instance| {
            // A process that uses an instance opens the device file of the parent.
            instance.readings.facts.minor = minor;
            is_same_instance(instance) && instance.read(pass).is_ok()
        });
        if working(self) < before && !self.gpu.calls.watch.is_abandoned() {
            self.find_instances();
        }
        Ok(())
    }

    fn find_instances(&mut self) {
        let calls = &mut self.gpu.calls;
        let count = read!(calls, nvmlDeviceGetMaxMigDeviceCount);
        let mut old = std::mem::take(&mut self.instances);
        for index in 0..count.unwrap_or(0) {
            // Most indices are unused on most GPUs, so an error here is no failure of the GPU.
            let device = calls.call("nvmlDeviceGetMigDeviceHandleByIndex", || calls.device.mig_device_by_index(index));
            let Ok(device) = device else { continue };
            let uuid = calls.call("nvmlDeviceGetUUID", || device.uuid()).map(|uuid| GpuUuid(uuid.into()));
            // "Handles may be reused and their properties can change in the process" (nvml.h at
            // nvmlDeviceGetMigDeviceHandleByIndex). An instance whose UUID cannot be read counts as unchanged.
            let is_same = |instance: &NvmlGpu| {
                uuid.as_ref().map_or(true, |uuid| instance.readings.uuid == *uuid)
                    && raw::handle_of(&instance.calls.device) == raw::handle_of(&device)
            };
            if let Some(at) = old.iter().position(is_same) {
                self.instances.push(old.swap_remove(at));
                continue;
            }
            let parent = &self.gpu.readings.uuid;
            let uuid = uuid.unwrap_or_else(|_| GpuUuid(format!("{parent}/{index}").into()));
            self.instances.push(NvmlGpu::new(
                device,
                uuid,
                calls.index,
                Some(parent.clone()),
                &calls.watch,
                &calls.only,
            ));
        }
        for instance in self.instances.iter_mut().filter(|instance| instance.readings.facts.name.is_err()) {
            instance.readings.facts.name = instance_name(&mut instance.calls);
        }
    }
}

/// Whether the handle still belongs to this instance. An instance whose UUID cannot be read counts as unchanged.
fn is_same_instance(instance: &NvmlGpu) -> bool {
    let uuid = instance.calls.call("nvmlDeviceGetUUID", || instance.calls.device.uuid());
    uuid.map_or(true, |uuid| instance.readings.uuid == GpuUuid(uuid.into()))
}

/// Returns the name of an instance's profile, as in `nvidia-smi -L`: `MIG 1g.10gb`.
fn instance_name(calls: &mut GpuCalls) -> Reading<Text> {
    let name = read_text!(calls, nvmlDeviceGetName);
    let name = name.as_ref().map_or("", Text::as_str);
    if let Some(at) = name.find("MIG ") {
        return Ok(name[at..].into());
    }
    // Older drivers give an instance its parent's name, or none.
    calls.read("nvmlDeviceGetAttributes_v2", Device::attributes).map(|attributes| profile(&attributes).into())
}

/// Returns the name of the profile with these slices and this memory, which is rounded up to whole GiB.
fn profile(attributes: &DeviceAttributes) -> String {
    let gpu = attributes.gpu_instance_slice_count;
    let compute = attributes.compute_instance_slice_count;
    let gib = attributes.memory_size_mb.div_ceil(1024);
    if compute == gpu { format!("MIG {gpu}g.{gib}gb") } else { format!("MIG {compute}c.{gpu}g.{gib}gb") }
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
