//! Says aloud which call into the driver is in progress, so that another thread can tell when it hangs.
//!
//! A call that hangs cannot be ended. Its thread is left behind: when the call comes back after all,
//! everything that thread still asks is refused here, and the driver hears no more from it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use nvml_wrapper::error::NvmlError;

use super::errors;
use crate::agent::clock;
use crate::agent::worker::Progress;
use crate::protocol::snapshot::Failure;

/// Whom a call asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Subject {
    /// The driver as a whole.
    Driver,
    /// The GPU at this index.
    Gpu(u32),
}

/// A call into the driver, which may hang.
#[derive(Debug, Clone, Copy)]
pub(in crate::agent) struct Call {
    /// The NVML function.
    pub(in crate::agent) function: &'static str,
    /// Whom it asks.
    pub(in crate::agent) subject: Subject,
}

/// Announces each call of this thread, and remembers which calls fail.
#[derive(Debug)]
pub(in crate::agent) struct Watch {
    progress: Arc<Progress<Call>>,
    subject: Cell<Subject>,
    /// Calls that failed the last time they were made, and whether they are made only while someone looks.
    failures: RefCell<Vec<(Subject, &'static str, Failure, bool)>>,
    is_aside: Cell<bool>,
}

impl Watch {
    /// A watch over the calls of this thread.
    pub(in crate::agent) fn new(progress: Arc<Progress<Call>>) -> Self {
        Self { progress, subject: Cell::new(Subject::Driver), failures: RefCell::default(), is_aside: Cell::new(false) }
    }

    /// The calls that follow ask this one.
    pub(super) fn about(&self, subject: Subject) {
        self.subject.set(subject);
    }

    /// Whether the calls that follow are made only while someone looks.
    pub(super) fn aside(&self, is_aside: bool) {
        self.is_aside.set(is_aside);
    }

    /// Nobody looks any more: what failed then is not asked again.
    pub(super) fn look_away(&self) {
        let subject = self.subject.get();
        self.failures.borrow_mut().retain(|(whom, .., is_aside)| *whom != subject || !is_aside);
    }

    /// Makes a call, announced.
    ///
    /// A thread that was left behind gets a timeout without calling.
    pub(super) fn call<T>(
        &self,
        function: &'static str,
        ask: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        if !self.progress.begin(Call { function, subject: self.subject.get() }, clock::now()) {
            return Err(NvmlError::Timeout);
        }
        let result = ask();
        self.progress.end();
        self.note(function, result.as_ref().err());
        result
    }

    /// Takes note of whether a call fails, and since when.
    fn note(&self, function: &'static str, error: Option<&NvmlError>) {
        let subject = self.subject.get();
        let mut failures = self.failures.borrow_mut();
        let before = failures.iter().position(|(whom, call, ..)| (*whom, *call) == (subject, function));
        match (error.filter(|error| errors::is_partial(error)), before) {
            (None, Some(at)) => drop(failures.swap_remove(at)),
            (Some(error), None) => {
                let failure = Failure { call: function.into(), error: error.to_string().into(), since: clock::now() };
                failures.push((subject, function, failure, self.is_aside.get()));
            }
            (Some(error), Some(at)) => failures[at].2.error = error.to_string().into(),
            (None, None) => {}
        }
    }

    /// What fails of what this one was asked.
    pub(super) fn failures(&self, subject: Subject) -> Vec<Failure> {
        let failures = self.failures.borrow();
        let mut failures: Vec<_> =
            failures.iter().filter(|(whom, ..)| *whom == subject).map(|(_, _, failure, _)| failure.clone()).collect();
        failures.sort_by(|one, other| one.call.cmp(&other.call));
        failures
    }

    /// Whether this thread was left behind.
    pub(super) fn is_left_behind(&self) -> bool {
        self.progress.is_abandoned()
    }
}
