//! Calls about one GPU, which remember what the GPU does not support and what failed.

use std::rc::Rc;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::call_watch::{CallSubject, CallWatch};
use super::calls::NamedCall;
use super::errors::{is_fatal, missing, needs_reset};
use crate::protocol::snapshot::{Missing, Reading};

/// A call that failed: the function and its error.
pub(super) type CallError = (&'static str, NvmlError);

/// The calls about one GPU, or about one MIG instance.
#[derive(Debug)]
pub(super) struct GpuCalls {
    pub(super) device: Device<'static>,
    /// The index of the GPU; of the parent for an instance.
    pub(super) index: u32,
    pub(super) watch: Rc<CallWatch>,
    /// Functions, each with its argument, that this GPU does not support. They are not called again.
    unsupported: Vec<(&'static str, u32)>,
    /// Whether a call was answered in this pass.
    pub(super) has_answered: bool,
    /// The first call that failed in this pass.
    pub(super) failed: Option<CallError>,
    /// The call after which this GPU is not asked any more in this pass.
    pub(super) fatal: Option<CallError>,
}

impl GpuCalls {
    pub(super) fn new(device: Device<'static>, index: u32, watch: Rc<CallWatch>) -> Self {
        Self { device, index, watch, unsupported: vec![], has_answered: false, failed: None, fatal: None }
    }

    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        (self.has_answered, self.failed) = (false, None);
    }

    /// Makes calls again that were not supported: the answers depend on whether MIG splits the GPU.
    pub(super) fn forget_unsupported(&mut self) {
        self.unsupported.clear();
    }

    /// Whether a function is worth a call.
    pub(super) fn is_callable(&self, function: &'static str) -> bool {
        self.fatal.is_none() && !self.unsupported.contains(&(function, 0))
    }

    /// Remembers that this GPU does not support a function.
    pub(super) fn set_unsupported(&mut self, function: &'static str) {
        self.unsupported.push((function, 0));
    }

    /// Makes a call that is announced, whatever was answered before.
    pub(super) fn call<T>(
        &self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        self.watch.call(CallSubject::Gpu(self.index), function, call)
    }

    /// Asks for one reading.
    pub(super) fn ask<T>(
        &mut self,
        function: &'static str,
        call: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Reading<T> {
        self.ask_with(function, 0, call)
    }

    /// Asks for one reading of a function that is called with several arguments.
    pub(super) fn ask_with<T>(
        &mut self,
        function: &'static str,
        argument: u32,
        call: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Reading<T> {
        if self.fatal.is_some() {
            return Err(Missing::Failed);
        }
        if self.unsupported.contains(&(function, argument)) {
            return Err(Missing::Unsupported);
        }
        match self.call(function, || call(&self.device)) {
            Ok(value) => {
                self.has_answered = true;
                Ok(value)
            }
            Err(error) if is_fatal(&error) => {
                self.fatal = Some((function, error));
                Err(Missing::Failed)
            }
            Err(error) => {
                let why = missing(&error);
                if why == Missing::Unsupported {
                    self.has_answered = true;
                    self.unsupported.push((function, argument));
                } else {
                    // A GPU that needs a reset says more than the failure before.
                    self.failed.take_if(|(_, before)| needs_reset(&error) && !needs_reset(before));
                    self.failed.get_or_insert((function, error));
                }
                Err(why)
            }
        }
    }

    /// Asks by a function that nvml.h deprecates, or by its successor: drivers before 535 have only the former. A function
    /// that the driver lacks is called once.
    pub(super) fn renamed<T>(&mut self, [old, new]: [NamedCall<T>; 2]) -> Reading<T> {
        match self.ask(old.0, old.1) {
            Err(Missing::Unsupported) => self.ask(new.0, new.1),
            other => other,
        }
    }
}
