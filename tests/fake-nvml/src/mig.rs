//! Multi-instance GPUs: the mode, the instances, and the handles from a GPU to its instances and
//! back.

use crate::{
    abi::{Attributes, Code, Handle, Out},
    calls::{Device, device_calls},
    gpu::MigInstance,
    machine::Machine,
};

device_calls! {
    nvmlDeviceGetMigMode(device, current: Out<u32>, pending: Out<u32>) {
        let on = u32::from(device.gpu()?.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?.enabled);
        current.write(on)?;
        pending.write(on)
    }
    nvmlDeviceGetMaxMigDeviceCount(device, count: Out<u32>) {
        count.write(device.gpu()?.mig.as_ref().map_or(0, |mig| mig.max))
    }
    nvmlDeviceGetMigDeviceHandleByIndex(device, index: u32, handle: Out<Handle>) {
        let gpu = device.gpu()?;
        if gpu.mig.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        let part = gpu.instances().get(index as usize).ok_or(Code::NOT_FOUND)?;
        let (number, _) = device.machine.find(&part.uuid).ok_or(Code::NOT_FOUND)?;
        handle.write(Machine::handle(number))
    }
    nvmlDeviceIsMigDeviceHandle(device, is_part: Out<u32>) { is_part.write(device.instance().is_some().into()) }
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, handle: Out<Handle>) {
        part(device)?;
        let (number, _) = device.machine.find(&device.physical_gpu().uuid).ok_or(Code::NOT_FOUND)?;
        handle.write(Machine::handle(number))
    }
    nvmlDeviceGetGpuInstanceId(device, id: Out<u32>) { id.write(part(device)?.gpu_instance) }
    nvmlDeviceGetComputeInstanceId(device, id: Out<u32>) { id.write(part(device)?.compute_instance) }
    nvmlDeviceGetAttributes(device, attributes: Out<Attributes>) { attributes.write(attributes_of(part(device)?)) }
    nvmlDeviceGetAttributes_v2(device, attributes: Out<Attributes>) { attributes.write(attributes_of(part(device)?)) }
}

fn part<'a>(device: &'a Device<'_>) -> Result<&'a MigInstance, Code> {
    device.instance().ok_or(Code::NOT_SUPPORTED)
}

fn attributes_of(part: &MigInstance) -> Attributes {
    Attributes {
        multiprocessors: part.multiprocessors,
        copy_engines: part.slices,
        decoders: part.slices / 2,
        encoders: 0,
        jpeg: 0,
        ofa: 0,
        gpu_slices: part.slices,
        compute_slices: part.slices,
        memory_mb: part.memory.total >> 20,
    }
}
