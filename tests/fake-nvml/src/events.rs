//! Events: the driver's Xid messages, delivered once to each set that asked for them.

use std::{
    ptr, thread,
    time::{Duration, Instant},
};

use crate::{
    abi::{Answer, Code, EventData, Handle, NONE, Out},
    gate::{self, Call, device_calls, system_calls},
    scene::Scene,
};

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 8;

/// The first event set's handle.
const FIRST_SET: usize = 0x6e45_0000;

/// All sets that were created; freed ones leave a hole.
#[derive(Default)]
pub struct EventSets(Vec<Option<EventSet>>);

#[derive(Default)]
struct EventSet {
    /// Numbers of the devices whose Xids it wants.
    devices: Vec<usize>,
    /// How many of the world's Xids it has seen.
    seen: usize,
}

impl EventSets {
    fn of(&mut self, handle: Handle) -> Result<&mut Option<EventSet>, Code> {
        let index = handle.addr().wrapping_sub(FIRST_SET) / 16;
        self.0.get_mut(index).filter(|it| it.is_some()).ok_or(Code::INVALID_ARGUMENT)
    }
}

system_calls! {
    nvmlEventSetCreate(scene, set: Out<Handle>) {
        let seen = scene.world.xids.len();
        scene.events.0.push(Some(EventSet { devices: Vec::new(), seen }));
        set.put(ptr::without_provenance_mut(FIRST_SET + (scene.events.0.len() - 1) * 16))
    }
    nvmlEventSetFree(scene, set: Handle) {
        *scene.events.of(set)? = None;
        Ok(())
    }
}

device_calls! {
    nvmlDeviceGetSupportedEventTypes(at, types: Out<u64>) { at.gpu().and_then(|_| types.put(XID)) }
    nvmlDeviceRegisterEvents(at, types: u64, set: Handle) {
        at.gpu()?;
        let number = at.number();
        let set = at.scene.events.of(set)?.as_mut().ok_or(Code::INVALID_ARGUMENT)?;
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
            // SAFETY: the names are NVML's, and nobody else here exports them.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(set: Handle, data: Out<EventData>, timeout_ms: u32) -> std::ffi::c_int {
                static CALL: Call = Call::new(stringify!($name));
                gate::waiting(&CALL, || wait(set, data, timeout_ms))
            }
        )*
    };
}

wait_calls! { nvmlEventSetWait nvmlEventSetWait_v2 }

#[expect(clippy::disallowed_methods, reason = "the caller asked to wait, and a file tells nobody that it changed")]
fn wait(set: Handle, data: Out<EventData>, timeout_ms: u32) -> Answer {
    let started = Instant::now();
    loop {
        {
            let mut scene = gate::scene();
            scene.look();
            if let Some(event) = next(&mut scene, set)? {
                return data.put(event);
            }
        }
        let left = Duration::from_millis(timeout_ms.into()).saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// The next Xid that the set has not seen. Once one of its GPUs is gone, and has said why, that is all that the set
/// says, whatever befalls the others.
fn next(scene: &mut Scene, handle: Handle) -> Result<Option<EventData>, Code> {
    let mut set = scene.events.of(handle)?.take().ok_or(Code::INVALID_ARGUMENT)?;
    // A file that was written anew may have fewer.
    set.seen = set.seen.min(scene.world.xids.len());
    let seen = set.seen;
    let mut found = None;
    while let (None, Some(xid)) = (&found, scene.world.xids.get(set.seen)) {
        set.seen += 1;
        found = set.devices.iter().find(|it| scene.is(**it, &xid.gpu)).map(|number| EventData {
            device: Scene::handle(*number),
            kind: XID,
            data: xid.xid,
            gpu_instance: NONE,
            compute_instance: NONE,
        });
    }
    let lost = |device: Handle| scene.number(device).is_ok_and(|number| scene.place(number).is_err());
    let is_deaf = set.devices.iter().any(|it| scene.place(*it).is_err())
        && !found.as_ref().is_some_and(|it: &EventData| lost(it.device));
    if is_deaf {
        set.seen = seen;
    }
    // It is there: we took it from its place above.
    if let Some(place) = scene.events.0.get_mut(handle.addr().wrapping_sub(FIRST_SET) / 16) {
        *place = Some(set);
    }
    if is_deaf { Err(Code::GPU_IS_LOST) } else { Ok(found) }
}
