//! The library and the machine: initialisation, versions, handles.

use std::{
    env,
    ffi::{c_char, c_int},
    fs,
    path::PathBuf,
};

use crate::{
    abi::{Answer, Code, Handle, Out},
    calls::{self, Function, system_calls},
    machine::{Machine, Position},
};

macro_rules! init_calls {
    ($($name:ident($($arg:ident: $type:ty)?))*) => {
        $(
            // SAFETY: the name is NVML's, and nothing else in this library exports it.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type)?) -> c_int {
                static FUNCTION: Function = Function::new(stringify!($name));
                calls::init_call(&FUNCTION, open)
            }
        )*
    };
}

init_calls! {
    nvmlInit()
    nvmlInit_v2()
    nvmlInitWithFlags(_flags: u32)
}

macro_rules! handle_calls {
    ($($name:ident)*) => {
        $(
            // SAFETY: the name is NVML's, and nothing else in this library exports it.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(index: u32, handle: Out<Handle>) -> c_int {
                static FUNCTION: Function = Function::new(stringify!($name));
                calls::handle_call(&FUNCTION, index, |machine| {
                    write_handle(machine, machine.indexed(index as usize), Code::INVALID_ARGUMENT, handle)
                })
            }
        )*
    };
}

handle_calls! {
    nvmlDeviceGetHandleByIndex
    nvmlDeviceGetHandleByIndex_v2
}

fn open(machine: &mut Machine) -> Answer {
    let Some(path) = env::var_os("FAKE_NVML_WORLD").map(PathBuf::from) else {
        eprintln!("fake-nvml: FAKE_NVML_WORLD names no world file");
        return Err(Code::UNKNOWN);
    };
    machine.open(&path)
}

/// `nvmlErrorString`. Works before initialisation, and is neither counted nor delayed.
// SAFETY: the name is NVML's, and nothing else in this library exports it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    Code(code).text().as_ptr()
}

system_calls! {
    nvmlShutdown(machine) {
        machine.opened -= 1;
        if machine.opened == 0 {
            machine.close();
        }
        Ok(())
    }

    nvmlSystemGetDriverVersion(machine, text: Out<c_char>, length: u32) {
        text.text(length, &machine.world.driver)
    }
    nvmlSystemGetNVMLVersion(machine, text: Out<c_char>, length: u32) {
        text.text(length, &format!("{}.{}", machine.world.cuda / 1000, machine.world.driver))
    }
    nvmlSystemGetCudaDriverVersion(machine, version: Out<c_int>) {
        version.write(machine.world.cuda)
    }
    nvmlSystemGetCudaDriverVersion_v2(machine, version: Out<c_int>) {
        version.write(machine.world.cuda)
    }
    nvmlSystemGetProcessName(machine, pid: u32, text: Out<c_char>, length: u32) {
        let name = process_name(machine, pid).ok_or(Code::NOT_FOUND)?;
        text.text(length, &name)
    }

    nvmlDeviceGetCount(machine, count: Out<u32>) {
        count.write(number(machine.count()))
    }
    nvmlDeviceGetCount_v2(machine, count: Out<u32>) {
        count.write(number(machine.count()))
    }
    nvmlDeviceGetHandleByUUID(machine, uuid: Out<c_char>, handle: Out<Handle>) {
        write_handle(machine, machine.find(&uuid.string()?), Code::NOT_FOUND, handle)
    }
    nvmlDeviceGetHandleBySerial(machine, serial: Out<c_char>, handle: Out<Handle>) {
        let serial = serial.string()?;
        let gpu = machine.world.gpus.iter().find(|gpu| gpu.serial.as_ref() == Some(&serial));
        write_handle(machine, gpu.and_then(|gpu| machine.find(&gpu.uuid)), Code::NOT_FOUND, handle)
    }
    nvmlDeviceGetHandleByPciBusId(machine, bus_id: Out<c_char>, handle: Out<Handle>) {
        by_bus_id(machine, bus_id, handle)
    }
    nvmlDeviceGetHandleByPciBusId_v2(machine, bus_id: Out<c_char>, handle: Out<Handle>) {
        by_bus_id(machine, bus_id, handle)
    }
    nvmlSystemGetConfComputeState(_machine) {
        Err(Code::NOT_SUPPORTED)
    }
    nvmlUnitGetCount(_machine, count: Out<u32>) {
        count.write(0)
    }
}

fn by_bus_id(machine: &Machine, bus_id: Out<c_char>, handle: Out<Handle>) -> Answer {
    let asked = bus_numbers(&bus_id.string()?);
    let gpu = machine
        .world
        .gpus
        .iter()
        .find(|gpu| asked.is_some() && bus_numbers(&gpu.pci) == asked);
    write_handle(
        machine,
        gpu.and_then(|gpu| machine.find(&gpu.uuid)),
        Code::NOT_FOUND,
        handle,
    )
}

fn write_handle(
    machine: &Machine,
    found: Option<(usize, Position)>,
    otherwise: Code,
    handle: Out<Handle>,
) -> Answer {
    let (number, position) = found.ok_or(otherwise)?;
    if machine.world.gpus[position.gpu].hidden {
        return Err(otherwise);
    }
    machine.position(number)?;
    handle.write(Machine::handle(number))
}

fn process_name(machine: &Machine, pid: u32) -> Option<String> {
    let all_processes = machine
        .world
        .gpus
        .iter()
        .flat_map(crate::Gpu::all_processes);
    if let Some(name) = all_processes
        .filter(|process| process.pid == pid)
        .find_map(|process| process.name.clone())
    {
        return Some(name);
    }
    let argv = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = argv
        .split(|byte| *byte == 0)
        .next()
        .filter(|first| !first.is_empty())?;
    Some(String::from_utf8_lossy(first).into_owned())
}

/// Domain, bus and device of `00000000:1B:00.0`; the domain may be short or left out.
pub fn bus_numbers(bus_id: &str) -> Option<(u32, u32, u32)> {
    let (rest, _function) = bus_id.split_once('.')?;
    let mut numbers = rest
        .rsplit(':')
        .map(|number| u32::from_str_radix(number, 16));
    let (device, bus) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let domain = numbers.next().transpose().ok()?.unwrap_or(0);
    Some((domain, bus, device))
}

/// A count as a C `unsigned`.
pub fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
