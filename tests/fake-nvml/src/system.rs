//! The library and the machine: coming and going, versions, handles.

use std::{
    env,
    ffi::{c_char, c_int},
    fs,
    path::PathBuf,
};

use crate::{
    abi::{Answer, Code, Handle, Out},
    gate::{self, Call, system_calls},
    scene::{Place, Scene},
};

macro_rules! opening_calls {
    ($($name:ident($($arg:ident: $type:ty)?))*) => {
        $(
            // SAFETY: the names are NVML's, and nobody else here exports them.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type)?) -> c_int {
                static CALL: Call = Call::new(stringify!($name));
                gate::opening(&CALL, open)
            }
        )*
    };
}

opening_calls! {
    nvmlInit()
    nvmlInit_v2()
    nvmlInitWithFlags(_flags: u32)
}

fn open(scene: &mut Scene) -> Answer {
    let Some(path) = env::var_os("FAKE_NVML_WORLD").map(PathBuf::from) else {
        eprintln!("fake-nvml: FAKE_NVML_WORLD names no world file");
        return Err(Code::UNKNOWN);
    };
    scene.open(&path)
}

/// `nvmlErrorString`. Needs no initialised library, and is neither counted nor delayed.
// SAFETY: the name is NVML's, and nobody else here exports it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    Code(code).text().as_ptr()
}

system_calls! {
    nvmlShutdown(scene) {
        scene.opened -= 1;
        if scene.opened == 0 {
            scene.close();
        }
        Ok(())
    }

    nvmlSystemGetDriverVersion(scene, text: Out<c_char>, length: u32) {
        text.text(length, &scene.world.driver)
    }
    nvmlSystemGetNVMLVersion(scene, text: Out<c_char>, length: u32) {
        text.text(length, &format!("{}.{}", scene.world.cuda / 1000, scene.world.driver))
    }
    nvmlSystemGetCudaDriverVersion(scene, version: Out<c_int>) {
        version.put(scene.world.cuda)
    }
    nvmlSystemGetCudaDriverVersion_v2(scene, version: Out<c_int>) {
        version.put(scene.world.cuda)
    }
    nvmlSystemGetProcessName(scene, pid: u32, text: Out<c_char>, length: u32) {
        let name = process_name(scene, pid).ok_or(Code::NOT_FOUND)?;
        text.text(length, &name)
    }

    nvmlDeviceGetCount(scene, count: Out<u32>) {
        count.put(number(scene.count()))
    }
    nvmlDeviceGetCount_v2(scene, count: Out<u32>) {
        count.put(number(scene.count()))
    }
    nvmlDeviceGetHandleByIndex(scene, index: u32, device: Out<Handle>) {
        hand_out(scene, scene.indexed(index as usize), Code::INVALID_ARGUMENT, device)
    }
    nvmlDeviceGetHandleByIndex_v2(scene, index: u32, device: Out<Handle>) {
        hand_out(scene, scene.indexed(index as usize), Code::INVALID_ARGUMENT, device)
    }
    nvmlDeviceGetHandleByUUID(scene, uuid: Out<c_char>, device: Out<Handle>) {
        hand_out(scene, scene.find(&uuid.string()?), Code::NOT_FOUND, device)
    }
    nvmlDeviceGetHandleBySerial(scene, serial: Out<c_char>, device: Out<Handle>) {
        let serial = serial.string()?;
        let gpu = scene.world.gpus.iter().find(|it| it.serial.as_ref() == Some(&serial));
        hand_out(scene, gpu.and_then(|it| scene.find(&it.uuid)), Code::NOT_FOUND, device)
    }
    nvmlDeviceGetHandleByPciBusId(scene, bus_id: Out<c_char>, device: Out<Handle>) {
        by_bus_id(scene, bus_id, device)
    }
    nvmlDeviceGetHandleByPciBusId_v2(scene, bus_id: Out<c_char>, device: Out<Handle>) {
        by_bus_id(scene, bus_id, device)
    }
    nvmlSystemGetConfComputeState(_scene) {
        Err(Code::NOT_SUPPORTED)
    }
    nvmlUnitGetCount(_scene, count: Out<u32>) {
        count.put(0)
    }
}

fn by_bus_id(scene: &Scene, bus_id: Out<c_char>, device: Out<Handle>) -> Answer {
    let asked = bus_numbers(&bus_id.string()?);
    let gpu = scene.world.gpus.iter().find(|it| asked.is_some() && bus_numbers(&it.pci) == asked);
    hand_out(scene, gpu.and_then(|it| scene.find(&it.uuid)), Code::NOT_FOUND, device)
}

fn hand_out(scene: &Scene, found: Option<(usize, Place)>, otherwise: Code, device: Out<Handle>) -> Answer {
    let (number, place) = found.ok_or(otherwise)?;
    if scene.world.gpus[place.gpu].hidden {
        return Err(otherwise);
    }
    scene.place(number)?;
    device.put(Scene::handle(number))
}

fn process_name(scene: &Scene, pid: u32) -> Option<String> {
    let everyone = scene.world.gpus.iter().flat_map(crate::Gpu::everyone);
    if let Some(name) = everyone.filter(|it| it.pid == pid).find_map(|it| it.name.clone()) {
        return Some(name);
    }
    let argv = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = argv.split(|it| *it == 0).next().filter(|it| !it.is_empty())?;
    Some(String::from_utf8_lossy(first).into_owned())
}

/// Domain, bus and device of `00000000:1B:00.0`; the domain may be short or left out.
pub fn bus_numbers(bus_id: &str) -> Option<(u32, u32, u32)> {
    let (rest, _function) = bus_id.split_once('.')?;
    let mut numbers = rest.rsplit(':').map(|it| u32::from_str_radix(it, 16));
    let (device, bus) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let domain = numbers.next().transpose().ok()?.unwrap_or(0);
    Some((domain, bus, device))
}

/// A count as C has it.
pub fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
