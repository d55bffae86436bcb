//! The frame of every exported function: calls are counted, and delayed, stopped or refused as the
//! world file says.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU64,
        atomic::Ordering::Relaxed,
    },
    thread,
    time::Duration,
};

use crate::{
    abi::{Answer, Code, Handle, to_c},
    counts,
    gpu::{Gpu, MigInstance},
    machine::{Machine, Position, ProcessState, percent, wave},
    world::Fault,
};

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);

/// Locks the machine. No call may wait with the lock: a call that hangs must not stop the others.
pub fn machine() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One exported function.
pub struct Function {
    name: &'static str,
    counter: OnceLock<Option<&'static AtomicU64>>,
}

impl Function {
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            counter: OnceLock::new(),
        }
    }

    fn count(&self) {
        if let Some(counter) = self.counter.get_or_init(|| counts::counter(self.name)) {
            counter.fetch_add(1, Relaxed);
        }
    }
}

/// The device that a call is about: a GPU or a MIG instance.
pub struct Device<'a> {
    pub machine: &'a mut Machine,
    /// Whether the call answers nonsense.
    pub garbage: bool,
    number: usize,
    position: Position,
}

impl Device<'_> {
    /// The GPU; for functions that a MIG instance does not support.
    pub fn gpu(&self) -> Result<&Gpu, Code> {
        if self.position.instance.is_some() {
            Err(Code::NOT_SUPPORTED)
        } else {
            Ok(self.physical_gpu())
        }
    }

    /// The GPU, or the GPU that the MIG instance is a part of.
    pub fn physical_gpu(&self) -> &Gpu {
        &self.machine.world.gpus[self.position.gpu]
    }

    /// The MIG instance; `None` for a GPU.
    pub fn instance(&self) -> Option<&MigInstance> {
        self.physical_gpu().instances().get(self.position.instance?)
    }

    pub fn number(&self) -> usize {
        self.number
    }

    pub fn position(&self) -> Position {
        self.position
    }

    pub fn process_states(&self) -> &[ProcessState] {
        self.machine.process_states(self.number)
    }

    /// A number from −1 to 1 that changes with time if the GPU has jitter; otherwise 0. Each salt
    /// has its own course.
    pub fn wave(&self, salt: u32) -> f64 {
        if self.physical_gpu().jitter {
            wave(
                self.machine.now,
                f64::from(salt) + f64::from(crate::system::number(self.number)) * 3.1,
            )
        } else {
            0.0
        }
    }

    /// A utilization in percent, with jitter.
    pub fn utilization(&self, value: Option<u32>, salt: u32) -> Option<u32> {
        /// A sample that some drivers give, and that no reader may believe.
        const GARBAGE: u32 = 4_294_000;
        if self.garbage {
            Some(GARBAGE)
        } else {
            value.map(|value| percent(value, self.wave(salt) * 8.0))
        }
    }
}

/// Answers a call about a device.
pub fn device_call(
    function: &Function,
    device: Handle,
    body: impl FnOnce(&mut Device<'_>) -> Answer,
) -> c_int {
    catch_panics(|| {
        let (mut machine, garbage) = begin_call(
            function,
            |machine| machine.fault(function.name, machine.number(device).ok()),
            false,
        )?;
        let number = machine.number(device)?;
        let position = machine.position(number)?;
        body(&mut Device {
            machine: &mut machine,
            garbage,
            number,
            position,
        })
    })
}

/// Answers a call about the machine.
pub fn system_call(function: &Function, body: impl FnOnce(&mut Machine, bool) -> Answer) -> c_int {
    catch_panics(|| {
        let (mut machine, garbage) = begin_call(
            function,
            |machine| machine.fault(function.name, None),
            false,
        )?;
        body(&mut machine, garbage)
    })
}

/// Answers a call for the handle of the GPU at an index. A fault of all functions of a GPU does not
/// concern it.
pub fn handle_call(
    function: &Function,
    index: u32,
    body: impl FnOnce(&Machine) -> Answer,
) -> c_int {
    catch_panics(|| {
        let (machine, _) = begin_call(
            function,
            |machine| machine.handle_fault(function.name, index),
            false,
        )?;
        body(&machine)
    })
}

/// Answers a call that initialises the library: the only calls that are accepted before.
pub fn init_call(function: &Function, open: impl FnOnce(&mut Machine) -> Answer) -> c_int {
    catch_panics(|| {
        open(&mut machine())?;
        let (mut machine, _) =
            begin_call(function, |machine| machine.fault(function.name, None), true)?;
        machine.opened += 1;
        Ok(())
    })
}

/// Answers a call that waits, and locks the machine only when it needs it.
pub fn waiting_call(function: &Function, body: impl FnOnce() -> Answer) -> c_int {
    catch_panics(|| {
        drop(begin_call(
            function,
            |machine| machine.fault(function.name, None),
            false,
        )?);
        body()
    })
}

/// Counts a call, and applies the first fault of the world file that fits. Returns the machine, and
/// whether the call answers nonsense.
fn begin_call(
    function: &Function,
    find_fault: impl for<'a> Fn(&'a Machine) -> Option<&'a Fault>,
    is_init: bool,
) -> Result<(MutexGuard<'static, Machine>, bool), Code> {
    /// How often a hung call looks whether the world file still says so.
    const HANG_MS: u64 = 10;
    function.count();
    let mut delayed = false;
    loop {
        let mut machine = machine();
        machine.refresh();
        let fault = find_fault(&machine);
        let pause_ms = match fault {
            Some(fault) if fault.latency_ms > 0 && !delayed => fault.latency_ms,
            Some(fault) if fault.hang => HANG_MS,
            _ => {
                if machine.opened == 0 && !is_init {
                    return Err(Code::UNINITIALIZED);
                }
                if let Some(error) = fault.and_then(|fault| fault.error.as_ref()) {
                    return Err(Code::find(error).unwrap_or(Code::UNKNOWN));
                }
                let garbage = fault.is_some_and(|fault| fault.garbage);
                return Ok((machine, garbage));
            }
        };
        delayed = true;
        drop(machine);
        #[expect(clippy::disallowed_methods, reason = "the world file asks for a delay")]
        thread::sleep(Duration::from_millis(pause_ms));
    }
}

/// Turns a panic into an error code: a panic must not unwind into C.
fn catch_panics(body: impl FnOnce() -> Answer) -> c_int {
    to_c(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)))
}

/// Exports functions whose first argument is a device. `device` in the body is a [`Device`].
macro_rules! device_calls {
    ($($name:ident($device:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            // SAFETY: the name is NVML's, and nothing else in this library exports it.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(device: $crate::abi::Handle $(, $arg: $type)*) -> std::ffi::c_int {
                static FUNCTION: $crate::calls::Function = $crate::calls::Function::new(stringify!($name));
                $crate::calls::device_call(&FUNCTION, device, |$device| $body)
            }
        )*
    };
}

/// Exports functions about the machine. `machine` in the body is the [`Machine`].
macro_rules! system_calls {
    ($($name:ident($machine:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            // SAFETY: the name is NVML's, and nothing else in this library exports it.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                static FUNCTION: $crate::calls::Function = $crate::calls::Function::new(stringify!($name));
                $crate::calls::system_call(&FUNCTION, |$machine, _garbage| $body)
            }
        )*
    };
}

pub(crate) use {device_calls, system_calls};
