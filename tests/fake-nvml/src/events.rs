//! Events: Xid errors, delivered once to each event set that registered for them.

use std::{
    ptr, thread,
    time::{Duration, Instant},
};

use crate::{
    abi::{Answer, Code, EventData, Handle, NONE, Out},
    calls::{self, Function, device_calls, system_calls},
    machine::Machine,
};

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 8;

/// The first event set's handle.
const FIRST_SET: usize = 0x6e45_0000;

/// All event sets; `None` for one that was freed.
#[derive(Default)]
pub struct EventSets(Vec<Option<EventSet>>);

#[derive(Default)]
struct EventSet {
    /// The numbers of the registered devices.
    devices: Vec<usize>,
    /// The number of the world's Xids that were delivered or skipped.
    seen: usize,
}

impl EventSets {
    fn set(&mut self, handle: Handle) -> Result<&mut Option<EventSet>, Code> {
        let index = handle.addr().wrapping_sub(FIRST_SET) / 16;
        self.0
            .get_mut(index)
            .filter(|set| set.is_some())
            .ok_or(Code::INVALID_ARGUMENT)
    }
}

system_calls! {
    nvmlEventSetCreate(machine, set: Out<Handle>) {
        let seen = machine.world.xids.len();
        machine.events.0.push(Some(EventSet { devices: Vec::new(), seen }));
        set.write(ptr::without_provenance_mut(FIRST_SET + (machine.events.0.len() - 1) * 16))
    }
    nvmlEventSetFree(machine, set: Handle) {
        *machine.events.set(set)? = None;
        Ok(())
    }
}

device_calls! {
    nvmlDeviceGetSupportedEventTypes(device, types: Out<u64>) { device.gpu().and_then(|_| types.write(XID)) }
    nvmlDeviceRegisterEvents(device, types: u64, set: Handle) {
        device.gpu()?;
        let number = device.number();
        let set = device.machine.events.set(set)?.as_mut().ok_or(Code::INVALID_ARGUMENT)?;
        if types & !XID != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        if types & XID != 0 {
            set.devices.push(number);
        }
        Ok(())
    }
}

macro_rules! wait_calls {
    ($($name:ident)*) => {
        $(
            // SAFETY: the name is NVML's, and nothing else in this library exports it.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(set: Handle, data: Out<EventData>, timeout_ms: u32) -> std::ffi::c_int {
                static FUNCTION: Function = Function::new(stringify!($name));
                calls::waiting_call(&FUNCTION, || wait(set, data, timeout_ms))
            }
        )*
    };
}

wait_calls! { nvmlEventSetWait nvmlEventSetWait_v2 }

#[expect(
    clippy::disallowed_methods,
    reason = "the caller waits, and no event reports a change of the file"
)]
fn wait(set: Handle, data: Out<EventData>, timeout_ms: u32) -> Answer {
    let started = Instant::now();
    loop {
        {
            let mut machine = calls::machine();
            machine.refresh();
            if let Some(event) = next(&mut machine, set)? {
                return data.write(event);
            }
        }
        let left = Duration::from_millis(timeout_ms.into()).saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// The next Xid for a set. Once a GPU of the set is lost and its own Xids are delivered, the set
/// answers only `GPU_IS_LOST`, whatever happens to other GPUs.
fn next(machine: &mut Machine, handle: Handle) -> Result<Option<EventData>, Code> {
    let mut set = machine
        .events
        .set(handle)?
        .take()
        .ok_or(Code::INVALID_ARGUMENT)?;
    // A new version of the file may have fewer Xids.
    set.seen = set.seen.min(machine.world.xids.len());
    let seen = set.seen;
    let mut found = None;
    while let (None, Some(xid)) = (&found, machine.world.xids.get(set.seen)) {
        set.seen += 1;
        found = set
            .devices
            .iter()
            .find(|number| machine.is_selected(**number, &xid.gpu))
            .map(|number| EventData {
                device: Machine::handle(*number),
                kind: XID,
                data: xid.xid,
                gpu_instance: NONE,
                compute_instance: NONE,
            });
    }
    let is_lost = |device: Handle| {
        machine
            .number(device)
            .is_ok_and(|number| machine.position(number).is_err())
    };
    let answers_lost = set
        .devices
        .iter()
        .any(|number| machine.position(*number).is_err())
        && !found
            .as_ref()
            .is_some_and(|event: &EventData| is_lost(event.device));
    if answers_lost {
        set.seen = seen;
    }
    // The set was taken from its slot above.
    if let Some(slot) = machine
        .events
        .0
        .get_mut(handle.addr().wrapping_sub(FIRST_SET) / 16)
    {
        *slot = Some(set);
    }
    if answers_lost {
        Err(Code::GPU_IS_LOST)
    } else {
        Ok(found)
    }
}
