//! Announces each call into the driver, so that another thread can notice a hang, and remembers
//! which calls fail.
//!
//! A hung call cannot be cancelled. Its thread is abandoned: if the call returns later, the thread
//! makes no more calls.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use nvml_wrapper::error::NvmlError;

use super::errors;
use crate::agent::clock;
use crate::agent::worker::Progress;
use crate::base::units::Moment;
use crate::protocol::snapshot::{Failure, Trouble};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum CallSubject {
    Driver,
    /// The GPU at this index.
    Gpu(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct Call {
    pub(in crate::agent) function: &'static str,
    pub(in crate::agent) subject: CallSubject,
}

/// A call that hung.
#[derive(Debug, Clone)]
pub(in crate::agent) struct Unresponsive {
    pub(in crate::agent) call: Call,
    /// When to make the call again. `None`: only after it has returned.
    pub(in crate::agent) again: Option<Moment>,
    pub(in crate::agent) trouble: Trouble,
}

/// A call that failed the last time it was made.
#[derive(Debug)]
struct FailedCall {
    call: Call,
    failure: Failure,
    /// Whether the call is made only while a person looks at that GPU.
    is_on_demand: bool,
}

#[derive(Debug)]
pub(in crate::agent) struct CallWatch {
    progress: Arc<Progress<Call>>,
    failed: RefCell<Vec<FailedCall>>,
    is_on_demand: Cell<bool>,
}

impl CallWatch {
    pub(in crate::agent) fn new(progress: Arc<Progress<Call>>) -> Self {
        Self {
            progress,
            failed: RefCell::default(),
            is_on_demand: Cell::new(false),
        }
    }

    /// Sets whether the following calls are made only because a person looks at the GPU.
    pub(super) fn set_on_demand(&self, is_on_demand: bool) {
        self.is_on_demand.set(is_on_demand);
    }

    /// Forgets the failures of calls that were made because a person looked at the GPU at this
    /// index.
    pub(super) fn forget_on_demand(&self, index: u32) {
        let is_kept = |failed: &FailedCall| {
            failed.call.subject != CallSubject::Gpu(index) || !failed.is_on_demand
        };
        self.failed.borrow_mut().retain(is_kept);
    }

    /// Announces a call and makes it. In an abandoned thread, makes no call and returns a timeout.
    pub(super) fn call<T>(
        &self,
        subject: CallSubject,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        let announced = Call { function, subject };
        if !self.progress.begin(announced, clock::now()) {
            return Err(NvmlError::Timeout);
        }
        let result = call();
        self.progress.end();
        self.note(announced, result.as_ref().err());
        result
    }

    fn note(&self, call: Call, error: Option<&NvmlError>) {
        let mut all = self.failed.borrow_mut();
        let before = all.iter().position(|failed| failed.call == call);
        let since = before.map(|place| all.swap_remove(place).failure.since);
        if let Some(error) = error.filter(|error| errors::is_partial(error)) {
            let since = since.unwrap_or_else(clock::now);
            let failure = Failure {
                call: call.function.into(),
                error: error.to_string().into(),
                since,
            };
            all.push(FailedCall {
                call,
                failure,
                is_on_demand: self.is_on_demand.get(),
            });
        }
    }

    pub(super) fn failures(&self, subject: CallSubject) -> Vec<Failure> {
        let all = self.failed.borrow();
        let of_subject = all.iter().filter(|failed| failed.call.subject == subject);
        let mut failures: Vec<Failure> = of_subject.map(|failed| failed.failure.clone()).collect();
        failures.sort_by(|one, other| one.call.cmp(&other.call));
        failures
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.progress.is_abandoned()
    }
}
