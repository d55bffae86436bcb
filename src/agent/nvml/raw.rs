//! NVML calls that nvml-wrapper lacks or makes in another way: the start in separate steps, process
//! utilization in one call, Xid events.
//!
//! A function that the library lacks is an error, never a panic.

use std::ffi::{OsStr, c_uint, c_ulonglong};
use std::mem;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlProcessUtilizationSample_t,
};

use crate::base::text::Text;

/// The NVML library, started. It is never unloaded: threads in hung calls still use it.
pub(in crate::agent) type Library = &'static Nvml;

pub(super) fn handle(device: &Device<'static>) -> nvmlDevice_t {
    // SAFETY: the handle is only passed back to NVML, whose driver lives as long as the process.
    unsafe { device.handle() }
}

pub(super) fn load(file: &OsStr) -> Result<NvmlLib, NvmlError> {
    // SAFETY: loading runs code of the library, which is the driver's own or one that the user
    // named.
    Ok(unsafe { NvmlLib::new(file) }?)
}

pub(super) fn init(library: &NvmlLib) -> Result<(), NvmlError> {
    let function = nvml_sym(library.nvmlInit_v2.as_ref())?;
    // SAFETY: the function takes no arguments.
    nvml_try(unsafe { function() })
}

/// Returns the value that NVML expects in the first field of a structure of this version.
pub(super) fn structure_version<T>(version: u32) -> u32 {
    u32::try_from(size_of::<T>()).map_or(0, |size| size | version << 24)
}

pub(super) fn until_nul(bytes: &[u8]) -> Text {
    Text::new(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// The first and the largest capacity of the buffer, in samples.
const FIRST_SAMPLES: usize = 256;
const MOST_SAMPLES: usize = 1 << 16;

/// Fills `samples` with those after the time `after`, in microseconds by the clock of the samples
/// (`nvmlDeviceGetProcessUtilization`).
pub(super) fn process_utilization(
    device: &Device<'static>,
    samples: &mut Vec<nvmlProcessUtilizationSample_t>,
    after: u64,
) -> Result<(), NvmlError> {
    const NONE: nvmlProcessUtilizationSample_t = nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    // This room mostly suffices. To query the size first would take one more call in each pass.
    let room = samples.capacity().max(FIRST_SAMPLES);
    samples.clear();
    samples.resize(room, NONE);
    let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
    // SAFETY: `samples` has room for `count` of them.
    let result =
        nvml_try(unsafe { function(handle(device), samples.as_mut_ptr(), &raw mut count, after) });
    if let Err(NvmlError::InsufficientSize(_)) = result {
        samples.reserve((count as usize).clamp(room, MOST_SAMPLES));
    }
    samples.truncate(if result.is_ok() { count as usize } else { 0 });
    result
}

/// A set of events that GPUs are registered with. It is never freed, since freeing it could hang.
#[derive(Debug)]
pub(super) struct EventSet {
    set: nvmlEventSet_t,
    library: Library,
}

// SAFETY: NVML allows calls from any thread, and an abandoned thread starts no more calls.
unsafe impl Send for EventSet {}
// SAFETY: as above.
unsafe impl Sync for EventSet {}

/// `nvmlEventTypeXidCriticalError`.
const XID: c_ulonglong = 8;

impl EventSet {
    pub(super) fn create(library: Library) -> Result<Self, NvmlError> {
        let function = nvml_sym(library.lib().nvmlEventSetCreate.as_ref())?;
        let mut set: nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: NVML writes a handle to `set`.
        nvml_try(unsafe { function(&raw mut set) })?;
        Ok(Self { set, library })
    }

    pub(super) fn register(&self, device: &Device<'static>) -> Result<(), NvmlError> {
        let function = nvml_sym(self.library.lib().nvmlDeviceRegisterEvents.as_ref())?;
        // SAFETY: both handles came from NVML.
        nvml_try(unsafe { function(handle(device), XID, self.set) })
    }

    /// Returns the GPU and code of the next Xid error (`nvmlEventSetWait_v2`). Does not wait: the
    /// error is then a timeout.
    pub(super) fn next(&self) -> Result<(Handle, u64), NvmlError> {
        let function = nvml_sym(self.library.lib().nvmlEventSetWait_v2.as_ref())?;
        // SAFETY: the structure is plain numbers and a pointer, for all of which zero is valid.
        let mut event: nvmlEventData_t = unsafe { mem::zeroed() };
        // SAFETY: `event` is the structure that this function fills.
        nvml_try(unsafe { function(self.set, &raw mut event, 0) })?;
        Ok((Handle(event.device as usize), event.eventData))
    }
}

/// NVML's handle of a GPU as a number, for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Handle(usize);

pub(super) fn handle_of(device: &Device<'static>) -> Handle {
    Handle(handle(device) as usize)
}
