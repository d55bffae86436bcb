//! Makes calls about one GPU. Remembers which calls the GPU does not support, and which call failed
//! in this pass.

use std::rc::Rc;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::call_watch::{CallSubject, CallWatch};
use super::errors::{is_fatal, missing};
use super::wanted::Wanted;
use crate::protocol::snapshot::{Missing, Reading};

/// A call that failed: the function and its error.
pub(super) type CallError = (&'static str, NvmlError);

/// The calls about one GPU, or about one MIG instance.
#[derive(Debug)]
pub(super) struct GpuCalls {
    pub(super) device: Device<'static>,
    /// The index of the GPU; for a MIG instance, that of its parent.
    pub(super) index: u32,
    pub(super) watch: Rc<CallWatch>,
    /// The readings to take: see [`take!`].
    pub(super) only: Rc<Wanted>,
    /// Functions, each with its arguments, that this GPU does not support. They are not called
    /// again.
    pub(super) unsupported: Vec<(&'static str, Box<[u32]>)>,
    /// Whether the GPU answered a call in this pass, if only that it does not support the call.
    pub(super) has_answered: bool,
    /// The first call that failed in this pass, or the first that reported that the GPU needs a
    /// reset.
    pub(super) failed: Option<CallError>,
    /// The call that failed because the GPU or the driver is lost. No more calls are made in this
    /// pass.
    pub(super) fatal: Option<CallError>,
}

impl GpuCalls {
    pub(super) fn new(
        device: Device<'static>,
        index: u32,
        watch: Rc<CallWatch>,
        only: Rc<Wanted>,
    ) -> Self {
        Self {
            device,
            index,
            watch,
            only,
            unsupported: vec![],
            has_answered: false,
            failed: None,
            fatal: None,
        }
    }

    fn is_unsupported(&self, function: &'static str, arguments: &[u32]) -> bool {
        self.unsupported
            .iter()
            .any(|(name, known)| *name == function && **known == *arguments)
    }

    pub(super) fn is_callable(&self, function: &'static str) -> bool {
        self.fatal.is_none() && !self.is_unsupported(function, &[])
    }

    /// Announces and makes a call, even if the function is known to be unsupported.
    pub(super) fn call<T>(
        &self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        self.watch
            .call(CallSubject::Gpu(self.index), function, call)
    }

    pub(super) fn read<T>(
        &mut self,
        function: &'static str,
        call: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Reading<T> {
        self.read_with(function, &[], call)
    }

    /// Reads a value with a function that a GPU may support for only some arguments.
    pub(super) fn read_with<T>(
        &mut self,
        function: &'static str,
        arguments: &[u32],
        call: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Reading<T> {
        if self.fatal.is_some() {
            return Err(Missing::Failed);
        }
        if self.is_unsupported(function, arguments) {
            return Err(Missing::Unsupported);
        }
        let result = self.call(function, || call(&self.device));
        self.has_answered |= result.is_ok();
        result.map_err(|error| self.note_error(function, arguments, error))
    }

    pub(super) fn note_error(
        &mut self,
        function: &'static str,
        arguments: &[u32],
        error: NvmlError,
    ) -> Missing {
        let why = missing(&error);
        if is_fatal(&error) {
            self.fatal = Some((function, error));
        } else if why == Missing::Unsupported {
            self.has_answered = true;
            self.unsupported.push((function, arguments.into()));
        } else {
            // A needed reset is more important than an earlier failure.
            let needs_reset = |error: &NvmlError| matches!(error, NvmlError::ResetRequired);
            self.failed
                .take_if(|(_, before)| needs_reset(&error) && !needs_reset(before));
            self.failed.get_or_insert((function, error));
        }
        why
    }
}

/// Sets readings of a group to values. A value is computed only if its reading is wanted, or one of
/// its readings. The group is a variable that is named as the group in the JSON of a GPU.
macro_rules! take {
    (@ $calls:expr, $group:ident, ($($reading:ident),+) = $value:expr) => {
        let is_wanted = |field: &str| {
            let path = || [stringify!($group), $group.key_of(field)].join(".");
            $calls.only.is_everything() || $calls.only.has(&path())
        };
        if $(is_wanted(stringify!($reading)))||+ {
            ($($group.$reading,)+) = $value;
        } else {
            $($group.$reading = Err($crate::protocol::snapshot::Missing::NotAsked);)+
        }
    };
    (@ $calls:expr, $group:ident, $reading:ident = $value:expr) => {
        take!(@ $calls, $group, ($reading) = ($value,))
    };
    ($calls:expr, $group:ident: $($target:tt = $value:expr;)+) => {
        $(take!(@ $calls, $group, $target = $value);)+
    };
}

/// Reads a number or structure with an NVML function that takes the handle of a GPU, arguments, and
/// a pointer to the value. `=> [a, b]`: reads an array with a function that takes a pointer to each
/// element.
macro_rules! read {
    ($calls:expr, $function:ident $(($($argument:expr),+))?) => {
        read!($calls, $function $(($($argument),+))? => [value]).map(|[value]| value)
    };
    ($calls:expr, $function:ident $(($($argument:expr),+))? => [$($part:ident),+]) => {
        $calls.read_with(stringify!($function), &[$($($argument),+)?], |gpu| {
            let function = nvml_wrapper::error::nvml_sym(gpu.nvml().lib().$function.as_ref())?;
            // SAFETY: each part is a number or a structure of numbers, for all of which zero is
            // valid.
            $( let mut $part = unsafe { std::mem::zeroed() }; )+
            let handle = $crate::agent::nvml::raw::handle(gpu);
            // SAFETY: NVML writes one value of its type behind each pointer.
            nvml_wrapper::error::nvml_try(unsafe { function(handle, $($($argument,)+)? $(&raw mut $part),+) })?;
            Ok([$($part),+])
        })
    };
}

/// Reads a structure whose first field tells NVML the structure's size and version.
macro_rules! read_structure {
    ($calls:expr, $function:ident, $structure:ty, version $version:literal) => {
        $calls.read(stringify!($function), |gpu| {
            let function = nvml_wrapper::error::nvml_sym(gpu.nvml().lib().$function.as_ref())?;
            // SAFETY: the structure consists of numbers, for all of which zero is valid.
            let mut structure: $structure = unsafe { std::mem::zeroed() };
            structure.version = $crate::agent::nvml::raw::structure_version::<$structure>($version);
            let handle = $crate::agent::nvml::raw::handle(gpu);
            // SAFETY: `structure` has the size and version that its field says.
            nvml_wrapper::error::nvml_try(unsafe { function(handle, &raw mut structure) })?;
            Ok(structure)
        })
    };
}

/// Reads a string with a function that takes the handle of a GPU, arguments, a buffer and the
/// length of the buffer.
macro_rules! read_text {
    ($calls:expr, $function:ident $(($($argument:expr),+))?) => {
        $calls.read_with(stringify!($function), &[$($($argument),+)?], |gpu| {
            let function = nvml_wrapper::error::nvml_sym(gpu.nvml().lib().$function.as_ref())?;
            let mut bytes = [0_u8; 96];
            let handle = $crate::agent::nvml::raw::handle(gpu);
            // SAFETY: NVML writes at most the given length.
            let result = unsafe { function(handle, $($($argument,)+)? bytes.as_mut_ptr().cast(), 96) };
            nvml_wrapper::error::nvml_try(result)?;
            Ok($crate::agent::nvml::raw::until_nul(&bytes))
        })
    };
}

pub(super) use {read, read_structure, read_text, take};
