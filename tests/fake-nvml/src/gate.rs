//! The gate that every call passes: it is counted, delayed, stopped, refused, or let through.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU64, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::{
    abi::{Answer, Code, Handle, to_c},
    counts,
    gpu::{Gpu, Part},
    scene::{Place, Scene, Sight, percent, wave},
};

static SCENE: LazyLock<Mutex<Scene>> = LazyLock::new(Mutex::default);

/// The scene. Nobody may hold it while he waits: a call that hangs must not stop the others.
pub fn scene() -> MutexGuard<'static, Scene> {
    SCENE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One exported function.
pub struct Call {
    name: &'static str,
    counter: OnceLock<Option<&'static AtomicU64>>,
}

impl Call {
    pub const fn new(name: &'static str) -> Self {
        Self { name, counter: OnceLock::new() }
    }

    fn count(&self) {
        if let Some(counter) = self.counter.get_or_init(|| counts::slot(self.name)) {
            counter.fetch_add(1, Relaxed);
        }
    }
}

/// A device as one call sees it.
pub struct At<'a> {
    pub scene: &'a mut Scene,
    /// The call shall answer nonsense.
    pub garbage: bool,
    number: usize,
    place: Place,
}

impl At<'_> {
    /// The GPU; for what MIG devices do not answer.
    pub fn gpu(&self) -> Result<&Gpu, Code> {
        if self.place.part.is_some() { Err(Code::NOT_SUPPORTED) } else { Ok(self.board()) }
    }

    /// The GPU, or the one that the MIG device is part of.
    pub fn board(&self) -> &Gpu {
        &self.scene.world.gpus[self.place.gpu]
    }

    /// The MIG device, if it is one.
    pub fn part(&self) -> Option<&Part> {
        self.board().parts().get(self.place.part?)
    }

    pub fn number(&self) -> usize {
        self.number
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub fn sights(&self) -> &[Sight] {
        self.scene.sights(self.number)
    }

    /// −1 to 1 for a figure that wanders, 0 for one at rest.
    pub fn wave(&self, salt: u32) -> f64 {
        if self.board().jitter {
            wave(self.scene.now, f64::from(salt) + f64::from(crate::system::number(self.number)) * 3.1)
        } else {
            0.0
        }
    }

    /// A share of the GPU's time.
    pub fn share(&self, value: Option<u32>, salt: u32) -> Option<u32> {
        if self.garbage { Some(4_294_000) } else { value.map(|it| percent(it, self.wave(salt) * 8.0)) }
    }
}

/// A call about a device.
pub fn device(call: &Call, device: Handle, body: impl FnOnce(&mut At<'_>) -> Answer) -> c_int {
    unharmed(|| {
        let (mut scene, garbage) = admit(call, Some(device), false)?;
        let number = scene.number(device)?;
        let place = scene.place(number)?;
        body(&mut At { scene: &mut scene, garbage, number, place })
    })
}

/// A call about the machine.
pub fn system(call: &Call, body: impl FnOnce(&mut Scene, bool) -> Answer) -> c_int {
    unharmed(|| {
        let (mut scene, garbage) = admit(call, None, false)?;
        body(&mut scene, garbage)
    })
}

/// A call that brings the machine into being: the only one that is let through before.
pub fn opening(call: &Call, open: impl FnOnce(&mut Scene) -> Answer) -> c_int {
    unharmed(|| {
        open(&mut scene())?;
        let (mut scene, _) = admit(call, None, true)?;
        scene.opened += 1;
        Ok(())
    })
}

/// A call that waits by itself, and takes the scene when it needs it.
pub fn waiting(call: &Call, body: impl FnOnce() -> Answer) -> c_int {
    unharmed(|| {
        drop(admit(call, None, false)?);
        body()
    })
}

/// Counts the call and does to it what the world says. Gives the scene, and whether to answer nonsense.
fn admit(call: &Call, device: Option<Handle>, opening: bool) -> Result<(MutexGuard<'static, Scene>, bool), Code> {
    call.count();
    let mut delayed = false;
    loop {
        let mut scene = scene();
        scene.look();
        let number = device.and_then(|it| scene.number(it).ok());
        let fault = scene.fault(call.name, number);
        let pause = match fault {
            Some(it) if it.latency_ms > 0 && !delayed => it.latency_ms,
            Some(it) if it.hang => 10,
            _ => {
                if scene.opened == 0 && !opening {
                    return Err(Code::UNINITIALIZED);
                }
                if let Some(error) = fault.and_then(|it| it.error.as_ref()) {
                    return Err(Code::of(error).unwrap_or(Code::UNKNOWN));
                }
                let garbage = fault.is_some_and(|it| it.garbage);
                return Ok((scene, garbage));
            }
        };
        delayed = true;
        drop(scene);
        #[expect(clippy::disallowed_methods, reason = "the world wants time to go by here")]
        thread::sleep(Duration::from_millis(pause));
    }
}

/// Keeps a panic of ours from the C caller.
pub fn unharmed(body: impl FnOnce() -> Answer) -> c_int {
    to_c(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)))
}

/// Exports functions whose first argument is a device. `at` is the device, an [`At`].
macro_rules! device_calls {
    ($($name:ident($at:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            // SAFETY: the names are NVML's, and nobody else here exports them.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(device: $crate::abi::Handle $(, $arg: $type)*) -> std::ffi::c_int {
                static CALL: $crate::gate::Call = $crate::gate::Call::new(stringify!($name));
                $crate::gate::device(&CALL, device, |$at| $body)
            }
        )*
    };
}

/// Exports functions about the machine. `scene` is the [`Scene`].
macro_rules! system_calls {
    ($($name:ident($scene:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            // SAFETY: the names are NVML's, and nobody else here exports them.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                static CALL: $crate::gate::Call = $crate::gate::Call::new(stringify!($name));
                $crate::gate::system(&CALL, |$scene, _garbage| $body)
            }
        )*
    };
}

pub(crate) use {device_calls, system_calls};
