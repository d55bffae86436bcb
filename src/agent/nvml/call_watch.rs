//! Announces each call into the driver, so that another thread can notice a hang, and remembers which calls fail.
//!
//! A hung call cannot be cancelled. Its thread is abandoned: if the call returns later, the thread makes no more calls.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use nvml_wrapper::error::NvmlError;

use super::errors;
use crate::agent::clock;
use crate::agent::worker::Progress;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Failure, Trouble};

/// The subject of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum CallSubject {
    /// The driver as a whole.
    Driver,
    /// The GPU at this index.
    Gpu(u32),
}

/// A call into the driver, which may hang.
#[derive(Debug, Clone, Copy)]
pub(in crate::agent) struct Call {
    pub(in crate::agent) function: &'static str,
    pub(in crate::agent) subject: CallSubject,
}

/// A call that hung.
#[derive(Debug, Clone)]
pub(in crate::agent) struct Unresponsive {
    pub(in crate::agent) subject: CallSubject,
    pub(in crate::agent) function: &'static str,
    /// When to make the call again. `None` while another attempt would be useless.
    pub(in crate::agent) again: Option<Moment>,
    pub(in crate::agent) trouble: Trouble,
}

/// A call that failed the last time it was made.
#[derive(Debug)]
struct FailedCall {
    subject: CallSubject,
    function: &'static str,
    failure: Failure,
    /// Whether the call is made only while a person looks at that GPU.
    is_on_demand: bool,
}

/// Announces each call of this thread, and remembers which calls fail.
#[derive(Debug)]
pub(in crate::agent) struct CallWatch {
    progress: Arc<Progress<Call>>,
    failed: RefCell<Vec<FailedCall>>,
    is_on_demand: Cell<bool>,
}

impl CallWatch {
    pub(in crate::agent) fn new(progress: Arc<Progress<Call>>) -> Self {
        Self { progress, failed: RefCell::default(), is_on_demand: Cell::new(false) }
    }

    /// Sets whether the following calls are made only because a person looks at the GPU.
    pub(super) fn set_on_demand(&self, is_on_demand: bool) {
        self.is_on_demand.set(is_on_demand);
    }

    /// Forgets the failures of calls that were made because a person looked at the GPU at this index.
    pub(super) fn forget_on_demand(&self, index: u32) {
        self.failed.borrow_mut().retain(|failed| failed.subject != CallSubject::Gpu(index) || !failed.is_on_demand);
    }

    /// Announces a call and makes it. In an abandoned thread, makes no call and returns a timeout.
    pub(super) fn call<T>(
        &self,
        subject: CallSubject,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        if !self.progress.begin(Call { function, subject }, clock::now()) {
            return Err(NvmlError::Timeout);
        }
        let result = call();
        self.progress.end();
        self.note(subject, function, result.as_ref().err());
        result
    }

    /// Remembers whether a call fails, and since when.
    fn note(&self, subject: CallSubject, function: &'static str, error: Option<&NvmlError>) {
        let mut all = self.failed.borrow_mut();
        let before = all.iter().position(|failed| (failed.subject, failed.function) == (subject, function));
        let since = before.map(|at| all.swap_remove(at).failure.since);
        if let Some(error) = error.filter(|error| errors::is_partial(error)) {
            let since = since.unwrap_or_else(clock::now);
            let failure = Failure { call: function.into(), error: error.to_string().into(), since };
            all.push(FailedCall { subject, function, failure, is_on_demand: self.is_on_demand.get() });
        }
    }

    /// Returns the failing calls that concern this subject, sorted by function name.
    pub(super) fn failures(&self, subject: CallSubject) -> Vec<Failure> {
        let all = self.failed.borrow();
        let mut failures: Vec<Failure> =
            all.iter().filter(|failed| failed.subject == subject).map(|failed| failed.failure.clone()).collect();
        failures.sort_by(|one, other| one.call.cmp(&other.call));
        failures
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.progress.is_abandoned()
    }
}
