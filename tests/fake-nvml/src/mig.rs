//! Multi-instance GPUs: the mode, the parts, and the way between a part and its GPU.

use crate::{
    abi::{Attributes, Code, Handle, Out},
    gate::{At, device_calls},
    gpu::Part,
    scene::Scene,
};

device_calls! {
    nvmlDeviceGetMigMode(at, current: Out<u32>, pending: Out<u32>) {
        let on = u32::from(at.gpu()?.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?.enabled);
        current.put(on)?;
        pending.put(on)
    }
    nvmlDeviceGetMaxMigDeviceCount(at, count: Out<u32>) {
        count.put(at.gpu()?.mig.as_ref().map_or(0, |it| it.max))
    }
    nvmlDeviceGetMigDeviceHandleByIndex(at, index: u32, device: Out<Handle>) {
        let gpu = at.gpu()?;
        if gpu.mig.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        let part = gpu.parts().get(index as usize).ok_or(Code::NOT_FOUND)?;
        let (number, _) = at.scene.find(&part.uuid).ok_or(Code::NOT_FOUND)?;
        device.put(Scene::handle(number))
    }
    nvmlDeviceIsMigDeviceHandle(at, is_part: Out<u32>) { is_part.put(at.part().is_some().into()) }
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(at, device: Out<Handle>) {
        part(at)?;
        let (number, _) = at.scene.find(&at.board().uuid).ok_or(Code::NOT_FOUND)?;
        device.put(Scene::handle(number))
    }
    nvmlDeviceGetGpuInstanceId(at, id: Out<u32>) { id.put(part(at)?.gpu_instance) }
    nvmlDeviceGetComputeInstanceId(at, id: Out<u32>) { id.put(part(at)?.compute_instance) }
    nvmlDeviceGetAttributes(at, attributes: Out<Attributes>) { attributes.put(attributes_of(part(at)?)) }
    nvmlDeviceGetAttributes_v2(at, attributes: Out<Attributes>) { attributes.put(attributes_of(part(at)?)) }
}

fn part<'a>(at: &'a At<'_>) -> Result<&'a Part, Code> {
    at.part().ok_or(Code::NOT_SUPPORTED)
}

fn attributes_of(part: &Part) -> Attributes {
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
